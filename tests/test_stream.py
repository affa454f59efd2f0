"""No reply is lost and none counts twice, whatever happens to the stream."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import a4p
from conftest import HookRun
from gate import Gate
from homes import Home
from phones import Phone
from proxies import Passing, proxy
from test_asking import DB, claude, delivered

Start = Callable[..., HookRun]


@pytest.fixture
def gate(home: Home) -> Iterator[Gate]:
    """A gate before the server, which the home's hooks go through."""
    with Gate(home.config["server"]) as gate:
        home.configure(server=gate.url)
        yield gate


def direct_phone(server: str, home: Home) -> Phone:
    return Phone(server, home.config["topic"])


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_reply_during_a_break_is_not_lost(
        server: str, home: Home, gate: Gate, hook: Start, reset: bool) -> None:
    phone = direct_phone(server, home)
    run = hook("claude", claude(DB))
    phone.push()
    delivered(home)
    gate.shut()
    gate.cut(reset)
    phone.type("SQLite")
    gate.shut(False)
    assert run.answers() == {"Which database?": "SQLite"}
    phone.close()


def test_several_breaks_and_a_reply_after_them(
        server: str, home: Home, gate: Gate, hook: Start) -> None:
    phone = direct_phone(server, home)
    run = hook("claude", claude(DB))
    phone.push()
    delivered(home)
    for _ in range(3):
        before = gate.opened
        gate.cut()
        gate.wait_opened(before + 1)
    phone.type("1")
    assert run.answers() == {"Which database?": "PostgreSQL"}
    phone.close()


def test_a_reply_before_a_break_counts_once(
        server: str, home: Home, gate: Gate, hook: Start) -> None:
    """Two questions: the replay after the break brings the first one's reply again."""
    phone = direct_phone(server, home)
    second = {**DB, "question": "Second?"}
    run = hook("claude", claude(DB, second))
    phone.push(0)
    phone.type("2")
    phone.push(1)
    delivered(home, 2)
    before = gate.opened
    gate.cut()
    gate.wait_opened(before + 1)
    time.sleep(1.2)  # time for the replay to do harm, if it could
    assert run.process.poll() is None
    phone.type("1")
    assert run.answers() == {"Which database?": "SQLite", "Second?": "PostgreSQL"}
    phone.close()


def test_a_dead_socket_is_noticed_by_its_silence(
        server: str, home: Home, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a4p, "SILENCE", 1.0)
    phone = direct_phone(server, home)
    state = a4p.State(str(home.path))
    found: list[a4p.Answer] = []

    def ask() -> None:
        with a4p.Conversation(state, a4p.Sender("Test"), 20, lambda body: None) as talk:
            found.append(talk.ask(a4p.Question("", "", "Here?", [a4p.Option("Yes")])))

    thread = threading.Thread(target=ask)
    thread.start()
    phone.push()
    delivered(home)
    gate.silence()
    phone.type("yes")
    thread.join(15)
    assert found[0] == a4p.Answer(["Yes"])
    phone.close()


def test_a_reply_that_is_there_before_the_publisher_has_its_response(
        server: str, home: Home) -> None:
    """The reply is sent the moment the push is on the wire: 200 times, none lost."""
    state = a4p.State(str(home.path))
    question = a4p.Question("", "", "Here?", [a4p.Option("Yes"), a4p.Option("No")])
    config = state.config
    ntfy = a4p.Ntfy(config)
    stream = ntfy.stream([config.topic], "")

    def reply() -> None:
        sender = a4p.Ntfy(config)
        for event in stream:
            if event["event"] == "message" and event.get("actions"):
                sender.publish({"topic": config.topic + "-response", "message": "No",
                                "title": event["sequence_id"]})

    threading.Thread(target=reply, daemon=True).start()
    answers = []
    with a4p.Conversation(state, a4p.Sender("Test"), 10, lambda body: None) as talk:
        for _ in range(200):
            answers.append(talk.ask(question))
    stream.close()
    assert answers == [a4p.Answer(["No"])] * 200


def test_early_words_count_too(server: str, home: Home) -> None:
    state = a4p.State(str(home.path))
    config, ntfy = state.config, a4p.Ntfy(state.config)
    stream = ntfy.stream([config.topic], "")

    def reply() -> None:
        sender = a4p.Ntfy(config)
        for event in stream:
            if event["event"] == "message" and event.get("title"):
                sender.publish({"topic": config.topic, "message": "my words"})

    threading.Thread(target=reply, daemon=True).start()
    with a4p.Conversation(state, a4p.Sender("Test"), 10, lambda body: None) as talk:
        answers = [talk.ask(a4p.Question("", "", "Words?")) for _ in range(30)]
    stream.close()
    assert answers == [a4p.Answer([], "my words")] * 30


def test_each_reply_is_taken_once_by_all_processes(tmp_path: Path) -> None:
    pending = [a4p.Pending(str(tmp_path)) for _ in range(8)]
    taken = [one.take("abcDEF123456") for one in pending]
    assert sorted(taken) == [False] * 7 + [True]


def test_a_stream_that_never_opens_is_replaced_by_polling(
        home: Home, hook: Start, server: str) -> None:
    """A proxy that buffers the stream lets publishes and polls pass."""

    class Buffering(Passing):
        def do_GET(self) -> None:
            if "poll=1" in self.path:
                self.forward(None)
            else:
                time.sleep(30)

    phone = direct_phone(server, home)
    with proxy(Buffering, server) as url:
        home.configure(server=url)
        run = hook("claude", claude(DB))
        phone.push()
        phone.type("2")
        assert run.answers() == {"Which database?": "SQLite"}
    phone.close()


def test_a_redirect_is_not_followed_and_named(home: Home, hook: Start) -> None:
    class Moved(Passing):
        def forward(self, body: bytes | None) -> None:
            self.send_response(301)
            self.send_header("Location", "https://elsewhere.example/x")
            self.end_headers()

    with proxy(Moved, "") as url:
        home.configure(server=url)
        assert hook("claude", claude(DB)).output() is None
    assert "set `server` to https://elsewhere.example" in (home.path / "a4p.log").read_text()
    assert json.loads(home.run("status", "--json"))["waiting"] == []


def test_a_stream_that_died_without_a_sign_costs_no_answer(
        server: str, home: Home, gate: Gate, hook: Start) -> None:
    """Before the time is up a4p looks once itself."""
    home.configure(timeout=6)
    with contextlib.closing(direct_phone(server, home)) as phone:
        run = hook("claude", claude(DB))
        push = phone.push()
        delivered(home)
        gate.silence()
        phone.tap({**push, "actions": [{**action, "url": action["url"].replace(gate.url, server)}
                                       for action in push["actions"]]}, 1)
        assert run.answers() == {"Which database?": "SQLite"}
