"""Several sessions on one topic: the right answer in the right one, whatever dies meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import a4p
from conftest import SOON, HookRun
from faulty import Faulty, Reply
from gate import Gate
from homes import Home
from phones import Phone
from test_asking import DB, claude, delivered, waits

Start = Callable[..., HookRun]
HOOKS = 8


class Replier:
    """A phone that answers each push by itself: by tap, or by its tag and the words."""

    def __init__(self, config: a4p.Config) -> None:
        self.ntfy, self.topic = a4p.Ntfy(config), config.topic
        self.stream = self.ntfy.stream([self.topic], "")
        self.tapped = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with ThreadPoolExecutor(4) as pool:
            for event in self.stream:
                if event["event"] == "message" and "actions" in event and event["priority"] == 4:
                    pool.submit(self._answer, event)

    def _answer(self, push: dict[str, Any]) -> None:
        name = push["message"].split("\n")[0]
        tag = push["message"].partition("begin a typed reply with ")[2].partition(".")[0]
        body = {"topic": self.topic + "-response", "message": f"for {name}"}
        if tag and int(name) % 2:
            body["message"] = f"{tag} for {name}"
        else:
            body["title"] = push["sequence_id"]
            self.tapped += 1
        self.ntfy.publish(body)


def test_eight_at_once_each_get_their_own_in_100_rounds(home: Home) -> None:
    """Eight conversations wait on one topic; half are answered by tap, half by tagged words."""
    config = a4p.State(str(home.path)).config
    replier = Replier(config)
    ready, options = threading.Barrier(HOOKS), [a4p.Option("Yes"), a4p.Option("No")]

    def session(number: int) -> int:
        right = 0
        state = a4p.State(str(home.path))
        with a4p.Conversation(state, a4p.Sender("Test"), 30, lambda body: None) as talk:
            for turn in range(100):
                if ready.wait(30) == 0:  # in an hour there are not so many as here in seconds
                    for old in (home.path / "pending").glob("*.over"):
                        old.unlink()
                name = str(number + HOOKS * turn)
                outcome = talk.ask(a4p.Question("", "", name, options))
                right += outcome == a4p.Answer([], f"for {name}")
        return right

    with ThreadPoolExecutor(HOOKS) as pool:
        rights = list(pool.map(session, range(HOOKS)))
    replier.stream.close()
    assert rights == [100] * HOOKS
    assert 0 < replier.tapped < 100 * HOOKS


def test_eight_hooks_at_once(home: Home, phone: Phone, hook: Start) -> None:
    runs = {f"Q{n}?": hook("claude", claude({**DB, "question": f"Q{n}?"})) for n in range(HOOKS)}
    pushes = [phone.push(n) for n in range(HOOKS)]
    for number, push in enumerate(pushes):
        phone.tap(push, number % 2)
    labels = ["PostgreSQL", "SQLite"]
    wanted = {push["message"].split("\n")[0]: labels[n % 2] for n, push in enumerate(pushes)}
    assert {name: run.answers()[name] for name, run in runs.items()} == wanted


def test_killed_at_any_moment_none_of_the_others_is_harmed(
        home: Home, phone: Phone, hook: Start) -> None:
    """kill -9 leaves no wrong answer and no stuck registry."""
    chance = random.Random(4)
    for turn in range(4):
        runs = {f"Q{turn}.{n}?": hook("claude", claude({**DB, "question": f"Q{turn}.{n}?"}))
                for n in range(4)}
        victims = chance.sample(sorted(runs), 2)
        for victim in victims:
            time.sleep(chance.random() * 0.4)  # any moment: the point of the test
            runs[victim].process.kill()
            runs[victim].process.wait()
        answered = set()
        n = 0
        while answered != runs.keys() - set(victims):
            push = phone.push(n)
            n += 1
            name = push["message"].split("\n")[0]
            if name in runs.keys() - set(victims) - answered:
                phone.tap(push, 1)
                assert runs[name].answers() == {name: "SQLite"}
                answered.add(name)
    assert waits(home) == []
    assert not list((home.path / "pending").glob("*.json"))


def test_a_reused_pid_is_no_live_entry(home: Home, hook: Start, phone: Phone) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    file = next((home.path / "pending").glob("*.json"))
    entry = json.loads(file.read_text())
    run.process.kill()
    run.process.wait()
    entry["pid"] = 1  # a process that is there, and is not the one that wrote the entry
    file.write_text(json.dumps(entry))
    assert waits(home) == []
    assert phone.replaced(push)["message"] == "No longer waiting, see the terminal"


def test_an_entry_of_another_host_is_left_alone(home: Home, hook: Start, phone: Phone) -> None:
    run = hook("claude", claude(DB))
    phone.push()
    file = next((home.path / "pending").glob("*.json"))
    run.process.kill()
    run.process.wait()
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "elsewhere"}))
    assert waits(home) == []
    assert file.exists()


def test_a_second_tap_after_the_answer_does_no_harm(
        home: Home, phone: Phone, hook: Start) -> None:
    first = hook("claude", claude(DB))
    push = phone.push(0)
    phone.tap(push, 0)
    assert first.answers() == {"Which database?": "PostgreSQL"}
    second = hook("claude", claude({**DB, "question": "Next?"}))
    phone.push(1)
    phone.tap(push, 1)  # a late tap on the first push
    time.sleep(0.5)
    assert second.process.poll() is None
    phone.tap(phone.push(1), 1)
    assert second.answers() == {"Next?": "SQLite"}


def test_a_restart_that_loses_the_cache_loses_no_later_reply(
        home: Home, hook: Start) -> None:
    with a4p.Server("127.0.0.1", 0) as server:
        port = server.port
        home.configure(server=server.url)
        phone = Phone(server.url, home.config["topic"])
        run = hook("claude", claude(DB))
        push = phone.push()
        delivered(home)
        phone.close()
    with a4p.Server("127.0.0.1", port) as server:
        phone = Phone(server.url, home.config["topic"])
        phone.tap(push, 1)
        assert run.answers() == {"Which database?": "SQLite"}
        phone.close()


def test_a_typed_reply_is_taken_once_even_if_all_is_replayed(
        home: Home, phone: Phone, hook: Start) -> None:
    """The first question's words come again with a full replay; they are not the second's."""
    first = hook("claude", claude(DB))
    phone.push(0)
    phone.type("my words")
    assert first.answers() == {"Which database?": "my words"}
    state = a4p.State(str(home.path))
    push = a4p.Push(state.config, a4p.Sender("Test"), a4p.Question("", "", "Next?"))
    with a4p.Conversation(state, a4p.Sender("Test"), 1, lambda body: None) as talk:
        talk.inbox.opened.wait(SOON)
        talk.push, talk.pushed_at, talk.published, talk.replayed = push, int(time.time()) - 60, 0, set()
        talk.skew, talk.echo = 0, ""
        push.tag = state.pending.add({"id": push.id, "since": time.time()})
        for event in talk.ntfy.poll(talk.inbox.topics, "all"):
            assert talk._consider({**event, "via": 99}) is None
        state.pending.drop(push.tag)


def test_an_entry_stays_until_its_receipt_is_handed_on(home: Home) -> None:
    """So that the push of a process that is killed on the way is replaced by the next command."""
    state, there = a4p.State(str(home.path)), []
    with a4p.Conversation(state, a4p.Sender("Test"), 1,
                          lambda body: there.append(len(state.pending.live()))) as talk:
        assert talk.ask(a4p.Question("", "", "Well?")).state == "timeout"
    assert there == [1]
    assert state.pending.live() == []


# --- words that were meant for another ---------------------------------------

def test_a_yes_meant_for_a_question_that_is_over_allows_nothing(
        server: str, home: Home, hook: Start) -> None:
    """It is typed while two wait, and heard when one is left: without a network in between."""
    may = {**claude(DB, event="PermissionRequest"), "tool_name": "Bash",
           "tool_input": {"command": "rm -rf /srv/data"}}
    with Gate(server) as gate, contextlib.closing(Phone(server, home.config["topic"])) as phone:
        home.configure(server=gate.url, timeout=4)
        first = hook("claude", claude(DB))
        phone.push()
        home.configure(timeout=60)
        second = hook("claude", may)
        push = phone.push(1)
        delivered(home, 2)
        gate.shut()
        gate.cut()
        time.sleep(2.02 - time.time() % 1)  # what is typed in a push's own second never counts
        phone.type("yes")
        assert first.output() is None
        gate.shut(False)
        asked = next(phone.push(n) for n in (2, 3) if "“yes”" in phone.push(n)["message"])
        assert asked["actions"] and second.process.poll() is None
        phone.tap(push, -1)
        assert second.output()["hookSpecificOutput"]["decision"]["behavior"] == "deny"


def test_a_reply_sent_twice_answers_no_question_that_was_not_there(
        home: Home, phone: Phone, hook: Start) -> None:
    again = {**DB, "question": "Drop the old one?", "options": [{"label": "Keep"}, {"label": "Drop"}]}
    run = hook("claude", claude(DB, again))
    phone.push()
    delivered(home)
    time.sleep(1.02 - time.time() % 1)  # both within a second
    phone.type("2")
    phone.type("2")
    phone.tap(phone.push(1), 0)
    assert run.answers() == {"Which database?": "SQLite", "Drop the old one?": "Keep"}


# --- who is gone, and who is not ----------------------------------------------

def test_a_dead_agent_behind_a_shell_withdraws_its_question(home: Home, phone: Phone) -> None:
    """The shell of the hook's line lives on, and with it the hook's parent."""
    code = ("import subprocess, sys; subprocess.run(['/bin/sh', '-c', sys.argv[1]], "
            "input=sys.argv[2].encode(), stdout=subprocess.PIPE)")
    call = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "request_user_input",
                       "tool_input": {"questions": [{"id": "a", **DB}]}})
    agent = subprocess.Popen([sys.executable, "-c", code, home.hook("codex"), call])
    push = phone.push()
    agent.kill()
    agent.wait()
    assert phone.replaced(push)["message"] == "Withdrawn by the agent"


def test_home_counts_before_the_question_is_out(home: Home, hook: Start) -> None:
    with Faulty(stream=[Reply(late=1.5)]) as server:
        home.configure(server=server.url, timeout=60)
        run = hook("claude", claude(DB))
        server.wait("stream")
        home.run("home")
        assert run.output() is None


def test_a_host_s_other_name_is_no_other_host(home: Home, hook: Start, phone: Phone) -> None:
    """Laptops are renamed by the networks they are in."""
    run = hook("claude", claude(DB))
    phone.push()
    delivered(home)
    file = next((home.path / "pending").glob("*.json"))
    file.write_text(json.dumps({**json.loads(file.read_text()), "host": "another"}))
    assert [entry["text"] for entry in waits(home)] == ["Which database?"]
    phone.type("2")
    assert run.answers() == {"Which database?": "SQLite"}


@pytest.mark.skipif(sys.platform == "win32", reason="there is no ps")
def test_a_process_is_known_by_ps_in_any_language_and_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.path.exists
    monkeypatch.setattr(os.path, "exists", lambda path: path != "/proc/self/stat" and there(path))
    found = set()
    for zone in ("UTC0", "Asia/Shanghai", "XYZ-9"):
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("LC_ALL", "C.UTF-8")
        found.add(a4p.process_stamp(os.getpid()))
    assert len(found) == 1 and "" not in found
