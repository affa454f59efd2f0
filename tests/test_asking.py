"""The main job: a question reaches the phone, the answer reaches the agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import SOON, HookRun
from homes import A4P, Home
from phones import Phone

Start = Callable[..., HookRun]
DB = {"question": "Which database?", "header": "Database", "multiSelect": False,
      "options": [{"label": "PostgreSQL", "description": "robust"},
                  {"label": "SQLite", "description": "small"}]}
FEATURES = {"question": "Which features?", "header": "Feat", "multiSelect": True,
            "options": [{"label": "Auth"}, {"label": "Metrics, tracing"}, {"label": "Search"}]}


def claude(*questions: Any, event: str = "PreToolUse", **more: Any) -> dict[str, Any]:
    return {"session_id": "s1", "cwd": "/home/me/shop", "hook_event_name": event,
            "permission_mode": "default", "tool_name": "AskUserQuestion",
            "tool_input": {"questions": list(questions)}, **more}


def waits(home: Home) -> list[dict[str, Any]]:
    return list(json.loads(home.run("status", "--json"))["waiting"])


def delivered(home: Home, count: int = 1) -> None:
    """Wait until the hook knows that so many pushes were taken."""
    log, end = home.path / "a4p.log", time.monotonic() + SOON
    while not log.exists() or log.read_text().count(" asks: ") < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def log(home: Home) -> str:
    return (home.path / "a4p.log").read_text()


def test_a_tap_is_the_answer(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    assert push["title"] == "Claude: Database"
    assert push["message"].startswith(
        "Which database?\n\n1. PostgreSQL - robust\n2. SQLite - small\n\n")
    assert push["message"].endswith("\nshop")
    assert push["priority"] == 4
    phone.tap(push, 1)
    assert run.answers() == {"Which database?": "SQLite"}
    assert phone.replaced(push)["message"] == "Answered: SQLite"


@pytest.mark.parametrize("reply", ["2", "２", "②", "sqlite", "选2", "#2."])
def test_a_typed_choice_is_the_answer(home: Home, phone: Phone, hook: Start, reply: str) -> None:
    run = hook("claude", claude(DB))
    phone.push()
    phone.type(reply)
    assert run.answers() == {"Which database?": "SQLite"}


@pytest.mark.parametrize("words", ['Neither: use "DuckDB"', "two\nlines", "都不要，用 DuckDB", "🦆 only"])
def test_words_are_the_answer_verbatim(home: Home, phone: Phone, hook: Start, words: str) -> None:
    run = hook("claude", claude(DB))
    phone.push()
    phone.type(words)
    assert run.answers() == {"Which database?": words}


def test_the_message_bar_of_the_android_app_counts(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    phone.push()
    phone.bar("2")
    assert run.answers() == {"Which database?": "SQLite"}


def test_several_questions_are_asked_one_after_the_other(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB, FEATURES))
    first = phone.push(0)
    assert first["title"] == "Claude: Database (1/2)"
    phone.tap(first, 0)
    second = phone.push(1)
    assert second["title"] == "Claude: Feat (2/2)"
    assert [action["action"] for action in second["actions"]] == ["view"]
    phone.tap(first, 1)  # a late second tap on the first
    phone.type("2,3 and logs")
    assert run.answers() == {"Which database?": "PostgreSQL",
                             "Which features?": '"Metrics, tracing", Search, and logs'}
    assert phone.replaced(first)["message"] == "Answered: PostgreSQL"
    assert phone.replaced(second)["message"] == "Answered: Metrics, tracing, Search, and logs"


def test_a_number_outside_the_list_is_asked_back_once(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    phone.push(0)
    phone.type("9")
    assert "9 is not on the list (1-2)" in phone.push(1)["message"]
    phone.type("9")
    assert run.answers() == {"Which database?": "9"}


def test_blank_replies_are_ignored(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    phone._send(phone._address, "POST", f"/{phone.topic}-response", "  ", {"Cache": "no"})
    phone.tap(push, 0)
    assert run.answers() == {"Which database?": "PostgreSQL"}


def test_what_was_typed_before_the_push_is_no_answer(
        home: Home, phone: Phone, hook: Start) -> None:
    phone.type("SQLite")
    time.sleep(1.1)  # ntfy's clock has whole seconds
    run = hook("claude", claude(DB))
    push = phone.push()
    assert run.process.poll() is None
    phone.tap(push, 0)
    assert run.answers() == {"Which database?": "PostgreSQL"}


def test_a_tap_for_another_question_is_ignored(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    phone._send(phone._address, "POST", f"/{phone.topic}-response?title=qaaaaaaaaaa", "SQLite")
    phone.tap(push, 0)
    assert run.answers() == {"Which database?": "PostgreSQL"}


@pytest.mark.parametrize("word", ["desk", "终端", " Desk "])
def test_the_desk_word_gives_the_question_back(
        home: Home, phone: Phone, hook: Start, word: str) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    phone.type(word)
    assert run.output() is None
    assert phone.replaced(push)["message"] == "Released, back at the terminal"


def test_nobody_answers(home: Home, phone: Phone, hook: Start) -> None:
    home.configure(timeout=1)
    run = hook("claude", claude(DB))
    push = phone.push()
    assert run.output() is None
    assert phone.replaced(push)["message"] == "Not answered, back at the terminal"
    assert waits(home) == []


def test_one_answer_of_two_is_not_handed_over_but_logged(
        home: Home, phone: Phone, hook: Start) -> None:
    home.configure(timeout=1)
    run = hook("claude", claude(DB, FEATURES))
    phone.tap(phone.push(0), 1)
    phone.push(1)
    assert run.output() is None
    assert "not handed over: Which database?\n    SQLite" in log(home)


def test_home_releases_within_a_second_even_if_out_follows_at_once(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    assert [entry["text"] for entry in waits(home)] == ["Which database?"]
    assert "Released: 1." in home.run("home")
    began = time.monotonic()
    with subprocess.Popen([sys.executable, str(A4P), "out"], stdout=subprocess.DEVNULL):
        assert run.output() is None
        assert time.monotonic() - began < 1.0
    assert phone.replaced(push)["message"] == "Released, back at the terminal"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_withdraws_at_once(
        home: Home, phone: Phone, hook: Start, number: signal.Signals) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    began = time.monotonic()
    run.process.send_signal(number)
    assert run.output() is None
    assert time.monotonic() - began < 1.0
    assert phone.replaced(push)["message"] == "Withdrawn by the agent"


def test_a_signal_that_comes_in_a_callback_is_not_lost(
        home: Home, phone: Phone, hook: Start, tmp_path: Path) -> None:
    """What a signal's handler raises there, as at the end of an import, Python drops."""
    script = tmp_path / "signalled.py"
    script.write_text(f"""import os, signal, sys
sys.path.insert(0, {str(A4P.parent)!r})
import a4p
class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))
def ended():
    Lost()
    return ""
a4p.watch = lambda state, call: ended
sys.exit(a4p.main(sys.argv[1:]))
""")
    run = hook("claude", claude(DB), script)
    assert run.output() is None
    assert phone.replaced(phone.push())["message"] == "Withdrawn by the agent"


def test_the_push_of_a_killed_hook_is_replaced_by_the_next_command(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    run.process.kill()
    run.process.wait()
    assert waits(home) == []
    assert phone.replaced(push)["message"] == "No longer waiting, see the terminal"
    assert waits(home) == []


def test_a_dead_agent_releases(home: Home, phone: Phone, hook: Start,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as agent:
        monkeypatch.setenv("CLAUDE_PID", str(agent.pid))
        run = hook("claude", claude(DB))
        phone.push()
        agent.kill()
        agent.wait()
        assert run.output(3) is None


def test_a_changed_parent_releases(home: Home, phone: Phone) -> None:
    code = ("import subprocess, sys, os\n"
            "p = subprocess.Popen(sys.argv[1:], stdin=0, stdout=subprocess.DEVNULL)\n"
            "print(p.pid, flush=True)\nsys.stderr.close()\nimport time; time.sleep(60)")
    with subprocess.Popen([sys.executable, "-c", code, sys.executable, "-I", "-S", str(A4P),
                           "hook", "claude"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as agent:
        assert agent.stdin and agent.stdout
        agent.stdin.write(json.dumps(claude(DB)).encode())
        agent.stdin.close()
        agent.stdin = None
        agent.stdout.readline()
        push = phone.push()
        agent.kill()
    assert phone.replaced(push)["message"] == "Withdrawn by the agent"


def test_the_answer_goes_out_before_the_receipt_and_stdout_is_free(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    phone.tap(phone.push(), 0)
    assert run.process.stdout
    assert run.process.stdout.read().endswith(b"\n")  # the end comes although the receipt runs
    assert run.process.wait(SOON) == 0


@pytest.mark.parametrize(("desk", "event", "mode", "acts"), [
    ("wait", "PreToolUse", "default", True), ("wait", "PermissionRequest", "default", False),
    ("beside", "PreToolUse", "default", False), ("beside", "PermissionRequest", "plan", True),
    ("beside", "PreToolUse", "dontAsk", True), ("beside", "PreToolUse", "auto", True),
    ("beside", "PermissionRequest", "auto", False)])
def test_desk_chooses_the_event_that_answers(  # noqa: PLR0913
        home: Home, phone: Phone, hook: Start, desk: str, event: str, mode: str,
        acts: bool) -> None:
    home.configure(desk=desk)
    run = hook("claude", claude(DB, event=event, permission_mode=mode))
    if acts:
        phone.tap(phone.push(), 1)
    found = run.output()
    assert (found is not None) == acts
    if acts:
        assert found["hookSpecificOutput"]["hookEventName"] == event


def transcript_line(kind: str, block: dict[str, Any]) -> str:
    return json.dumps({"type": kind, "message": {"role": kind, "content": [block]}}) + "\n"


def test_answered_at_the_desk_ends_the_wait(
        home: Home, phone: Phone, hook: Start, tmp_path: Any) -> None:
    home.configure(desk="beside")
    path = tmp_path / "transcript.jsonl"
    use = {"type": "tool_use", "name": "AskUserQuestion", "input": {"questions": [DB]}}
    path.write_text(transcript_line("assistant", {**use, "id": "old"})
                    + transcript_line("user", {"type": "tool_result", "tool_use_id": "old"})
                    + transcript_line("assistant", {**use, "id": "new"}))
    run = hook("claude", claude(DB, event="PermissionRequest", transcript_path=str(path)))
    push = phone.push()
    with path.open("a") as file:
        file.write(transcript_line("user", {"type": "tool_result", "tool_use_id": "other"}))
    assert run.process.poll() is None
    with path.open("a") as file:
        file.write(transcript_line("user", {"type": "tool_result", "tool_use_id": "new"}))
    began = time.monotonic()
    assert run.output() is None
    assert time.monotonic() - began < 1.0
    assert phone.replaced(push)["message"] == "Answered at the desk"


def test_codex_gets_the_answer_as_the_reason_of_a_refusal(
        home: Home, phone: Phone, hook: Start) -> None:
    question = {"id": "db", "header": "Database", "question": "Which database?",
                "options": DB["options"]}
    run = hook("codex", {"hook_event_name": "PreToolUse", "tool_name": "request_user_input",
                         "cwd": "/w", "tool_input": {"questions": [question]}})
    phone.tap(phone.push(), 1)
    specific = run.output()["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    assert '{"answers": {"db": {"answers": ["SQLite"]}}}' in specific["permissionDecisionReason"]


def test_dsh_gets_its_own_form_with_typed_only_questions_too(
        home: Home, phone: Phone, hook: Start) -> None:
    questions = [{"id": "db", "question": "Which?", "options": [{"label": "A"}, {"label": "B"}]},
                 {"id": "name", "question": "Name?"}]
    run = hook("dsh", {"hook_event_name": "AskUserQuestion", "tool_name": "ask_user_question",
                       "parent_session": None, "tool_input": {"questions": questions}})
    phone.type("b") if phone.push(0) else None
    assert "actions" not in phone.push(1)
    phone.type("shop ✓")
    assert run.output() == {"answers": [{"id": "db", "selected": ["B"]},
                                        {"id": "name", "selected": [], "custom": "shop ✓"}]}


class TestSeveralSessions:
    """Two hooks wait on one topic."""

    def start(self, phone: Phone, hook: Start) -> tuple[HookRun, HookRun, Any, Any]:
        first = hook("claude", claude(DB))
        one = phone.push(0)
        second = hook("claude", claude({**DB, "question": "Second?", "header": "Two"}))
        return first, second, one, phone.push(1)

    def test_taps_go_to_their_own(self, home: Home, phone: Phone, hook: Start) -> None:
        first, second, one, two = self.start(phone, hook)
        phone.tap(two, 1)
        phone.tap(one, 0)
        assert first.answers() == {"Which database?": "PostgreSQL"}
        assert second.answers() == {"Second?": "SQLite"}

    def test_a_tagged_reply_goes_to_its_own(self, home: Home, phone: Phone, hook: Start) -> None:
        first, second, one, two = self.start(phone, hook)
        assert "Several questions wait" not in one["message"]
        tag = two["message"].partition("begin a typed reply with ")[2].partition(".")[0]
        phone.type(f"#{tag.upper()} use duckdb")
        assert second.answers() == {"Second?": "use duckdb"}
        phone.replaced(two)
        phone.type("2")  # alone again: no tag is needed
        assert first.answers() == {"Which database?": "SQLite"}

    def test_a_bare_reply_is_asked_back_with_the_questions_as_buttons(
            self, home: Home, phone: Phone, hook: Start) -> None:
        first, second, _, _ = self.start(phone, hook)
        phone.type("2")
        which = phone.push(2)
        assert len(which["actions"]) == 2
        assert "Which one is “2” for?" in which["message"]
        assert first.process.poll() is None
        assert second.process.poll() is None
        phone.tap(which, 1)
        assert second.answers() == {"Second?": "SQLite"}
        phone.tap(which, 0)
        assert first.answers() == {"Which database?": "SQLite"}

    def test_a_reply_to_a_tag_that_is_over_goes_nowhere(
            self, home: Home, phone: Phone, hook: Start) -> None:
        first, second, _, two = self.start(phone, hook)
        tag = two["message"].partition("begin a typed reply with ")[2].partition(".")[0]
        phone.tap(two, 0)
        second.answers()
        phone.type(f"{tag} 2")
        assert f"The question {tag} no longer waits" in phone.push(2)["message"]
        assert first.process.poll() is None


def test_ask_prints_the_answer(home: Home, phone: Phone) -> None:
    with subprocess.Popen([sys.executable, str(A4P), "ask", "Deploy?", "-o", "Yes", "-o", "No"],
                          stdout=subprocess.PIPE, text=True) as process:
        push = phone.push()
        assert push["title"] == "Ask: Question"
        phone.tap(push, 1)
        out, _ = process.communicate(timeout=SOON)
    assert (process.returncode, out) == (0, "No\n")
    assert phone.replaced(push)["message"] == "Answered: No"


def test_ask_as_json_with_words(home: Home, phone: Phone) -> None:
    with subprocess.Popen([sys.executable, str(A4P), "ask", "Name?", "--json"],
                          stdout=subprocess.PIPE, text=True) as process:
        phone.push()
        phone.type("shop")
        out, _ = process.communicate(timeout=SOON)
    assert json.loads(out) == {"selected": [], "text": "shop"}


def test_ask_says_that_nobody_answered(home: Home, phone: Phone) -> None:
    done = subprocess.run([sys.executable, str(A4P), "ask", "Name?", "--timeout", "1"],
                          capture_output=True, text=True, timeout=SOON, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "a4p: nobody answered in time\n"


def test_ctrl_c_withdraws_an_ask(home: Home, phone: Phone) -> None:
    with subprocess.Popen([sys.executable, str(A4P), "ask", "Name?"], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        push = phone.push()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SOON)
    assert process.returncode == 130
    assert phone.replaced(push)["message"] == "Withdrawn by the agent"


def test_notify_sends_a_titled_push(home: Home, phone: Phone) -> None:
    home.run("notify", "Build done", "--title", "CI")
    push = phone.push()
    assert (push["title"], push["message"]) == ("CI", "Build done")


def test_a_server_that_is_not_there_is_no_delivery(home: Home) -> None:
    home.configure(server="http://127.0.0.1:9")
    began = time.monotonic()
    done = subprocess.run([sys.executable, str(A4P), "notify", "x"], capture_output=True,
                          text=True, timeout=SOON, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("a4p: http://127.0.0.1:9 cannot be reached")
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - began < 10


def test_waiting_uses_no_measurable_cpu(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()

    def used() -> float:
        with open(f"/proc/{run.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = used()
    time.sleep(3)
    assert used() - before <= 0.02  # 0.1 s a minute would be 0.005
    phone.tap(push, 0)
    run.answers()


def test_the_demo_answers_by_itself() -> None:
    done = subprocess.run([sys.executable, str(A4P), "demo", "--reply", "3"], capture_output=True,
                          text=True, timeout=SOON, check=False)
    assert done.returncode == 0
    found = json.loads(done.stdout[done.stdout.index("{"):])
    answers = found["hookSpecificOutput"]["updatedInput"]["answers"]
    assert answers == {"How should the service run?": "local only"}


def test_the_demo_given_back_says_so() -> None:
    done = subprocess.run([sys.executable, str(A4P), "demo", "--reply", "desk"], capture_output=True,
                          text=True, timeout=SOON, check=False)
    assert (done.returncode, done.stderr) == (3, "a4p: the question was released\n")
