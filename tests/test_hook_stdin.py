"""Whatever comes on stdin: the hook exits 0 and prints nothing, or an answer that is valid.

The real command runs against a port where nobody listens: a question that is asked all the same
is refused at once. The mutated calls run through the same code in this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import a4p
from samples import (
    CACHE,
    EXTRAS,
    ROUTES,
    SCRIPT,
    SOON,
    asked,
    claude,
    codex,
    codex_async,
    config,
    dsh,
    log_of,
    run,
    strict_json,
    write_config,
)

HOOK = [sys.executable, "-I", "-S", SCRIPT, "hook"]
FLAGS = ("-I", "-S")


def line(payload: Any) -> bytes:
    """A call as the agents write it."""
    return json.dumps(payload).encode() + b"\n"


def within(payload: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The call with changes in its first question."""
    first, *others = payload["tool_input"]["questions"]
    return {**payload, "tool_input": {"questions": [{**first, **changes}, *others]}}


PLAIN = config()
CALL = line(claude())
TEN_MB = 10_000_000

NOT_JSON = {
    "nothing": b"", "blank": b" \n\t", "text": b"hello", "cut": CALL[:-3], "oops": b"{oops",
    "one more": CALL.strip() + b"}", "two calls": CALL + CALL, "quotes": b"{'a': 1}",
    "NUL": b"\x00", "NULs": b"\x00" * 5000, "NUL inside": CALL.replace(b"Cache", b"Ca\x00he"),
    "newline in a text": CALL.replace(b"Cache", b"Ca\nhe"), "BOM": b"\xef\xbb\xbf" + CALL,
    "UTF-16": CALL.decode().encode("utf-16"), "Latin-1": CALL.replace(b"Cache", b"Caf\xe9"),
    "raw surrogate": CALL.replace(b"Cache", b"\xed\xa0\x80"), "overlong": b"\xc0\x80" + CALL,
    "all bytes": bytes(range(256)), "arrays": b"[" * 200_000, "objects": b'{"a":' * 100_000,
    "over 10 MB": b" " * (TEN_MB + 1), "over 10 MB of a call": CALL[:-3] + b" " * TEN_MB + b"}",
}

WRONG_TYPES = {
    "array": b"[]", "array of a call": b"[" + CALL + b"]", "null": b"null",
    "string": b'"AskUserQuestion"',
    "input null": line({**claude(), "tool_input": None}),
    "input string": line({**codex(), "tool_input": "{not json"}),
    "input array": line({**dsh(), "tool_input": [CACHE]}),
    "no input": line({key: value for key, value in claude().items() if key != "tool_input"}),
    "questions object": line({**claude(), "tool_input": {"questions": CACHE}}),
    "questions string": line({**codex(), "tool_input": {"questions": "Q?"}}),
    "text number": line(within(claude(), question=5)),
    "header object": line(within(claude(), header={"a": 1})),
    "id number": line(within(dsh(), id=7)),
    "multi string": line(within(claude(), multiSelect="false")),
    "options numbers": line(within(codex(), options=[1, 2])),
    "label null": line(within(claude(), options=[{"label": None}, {"label": "B"}])),
    "description array": line(within(dsh(), options=[{"label": "A", "description": []}])),
    "labels twice": line(within(claude(), options=[{"label": "A"}, {"label": "A"}])),
}

NOT_OURS = {
    "another tool": line({**claude(), "tool_name": "Bash"}),
    "another event": line({**claude(), "hook_event_name": "PostToolUse"}),
    "subagent": line({**claude(), "agent_id": "a1"}),
    "child session": line(dsh(parent_session="session-1")),
    "the other event": line(claude(event="PermissionRequest")),
    "no options anywhere": line(dsh({"id": "x", "question": "Free?"})),
}

VAGUE = {  # not ours, or malformed: logged or not
    "empty object": b"{}", "no tool": line({"hook_event_name": "PreToolUse"}),
    "no event": line({"tool_name": "AskUserQuestion"}),
    "tool array": line({**claude(), "tool_name": ["AskUserQuestion"]}),
    "event object": line({**claude(), "hook_event_name": {"PreToolUse": 1}}),
}

ASKED = {
    "claude": line(claude(CACHE, EXTRAS)), "codex": line(codex()),
    "codex later": line(codex_async()),
    "dsh": line(dsh()), "indented": json.dumps(claude(), indent=8).encode(),
    "lone surrogates": line(within(claude(), question="\ud800?", options=["\udc00", "B"])),
    "NULs in texts": line(within(claude(transcript_path="a\x00b", cwd="/\x00"),
                                 question="a\x00b?")),
    "a megabyte": line(within(codex(), question="word " * 200_000)),
    "nested": CALL[:-2] + b', "x": ' + b"[" * 300 + b"]" * 300 + b"}",
    "odd surroundings": line(claude(cwd=5, session_id=None, transcript_path=[],
                                    permission_mode={})),
    "many options": line(within(dsh(), options=[{"label": f"plan {n}"} for n in range(50)])),
}

SAMPLES = {**NOT_JSON, **WRONG_TYPES, **NOT_OURS, **VAGUE, **ASKED}


def agent_of(data: bytes) -> str:
    """The agent that would pass this call."""
    return ("codex" if b"request_user_input" in data else
            "dsh" if b"ask_user_question" in data else "claude")


@pytest.fixture(scope="module")
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else can take."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def done(tmp_path: Path, closed_port: int, name: str) -> str:
    """The log after one sample through the real command, which exits 0, soon, and prints nothing."""
    write_config(tmp_path, server=f"http://127.0.0.1:{closed_port}")
    (tmp_path / "out").touch()
    began = time.monotonic()
    process = run(tmp_path, "hook", agent_of(SAMPLES[name]), data=SAMPLES[name], flags=FLAGS)
    assert (process.returncode, process.stdout, process.stderr) == (0, b"", b"")
    assert time.monotonic() - began < SOON
    return log_of(tmp_path)


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json_is_logged_as_that_in_one_line(done: str, name: str) -> None:
    assert "stdin is over" in done if "10 MB" in name else "stdin is not JSON" in done
    assert done.count("\n") == 1


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_wrong_types_inside_are_logged(done: str, name: str) -> None:
    assert done and "not delivered" not in done and "Traceback" not in done


@pytest.mark.parametrize("name", NOT_OURS)
def test_what_is_not_ours_is_passed_over_without_a_trace(done: str, name: str) -> None:
    assert done == ""


@pytest.mark.parametrize("name", VAGUE)
def test_what_may_be_malformed_or_another_s_leads_to_no_fault(done: str, name: str) -> None:
    assert "Traceback" not in done


@pytest.mark.parametrize("name", ASKED)
def test_what_can_be_asked_is_asked_and_the_refusal_logged(done: str, name: str) -> None:
    assert "not delivered: http://127.0.0.1:" in done and "Traceback" not in done


# --- around stdin -----------------------------------------------------------

@pytest.fixture
def out(tmp_path: Path, closed_port: int) -> Path:
    """A home that is out, whose server is not there."""
    write_config(tmp_path / "home", server=f"http://127.0.0.1:{closed_port}")
    (tmp_path / "home" / "out").touch()
    return tmp_path / "home"


def environment(home: Path) -> dict[str, str]:
    told = {name: value for name, value in os.environ.items() if not name.startswith("A4P_")}
    return {**told, "A4P_HOME": str(home), "LC_ALL": "C"}


@pytest.mark.parametrize("words", [(), ("nope",), ("Claude",), ("claude", "codex"), ("",),
                                   ("claude\n",), ("claude", "--zzz"), ("\x1b[2J",)])
def test_a_wrong_agent_exits_0_and_is_logged(out: Path, words: tuple[str, ...]) -> None:
    done = run(out, "hook", *words, data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    log = log_of(out)
    assert " hook: " in log and "\x1b" not in log and "Traceback" not in log


def test_a_wrong_agent_is_logged_at_home_too(out: Path) -> None:
    (out / "out").unlink()
    done = run(out, "hook", "nope", data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert " hook: " in log_of(out)


@pytest.mark.parametrize(("text", "said"), [('{"topic": }', "config.json, line 1: "),
                                            ('{"topic": 5}', "config.json, line 1: topic must be"),
                                            ('{"topic": ""}', "no topic yet"),
                                            (None, "no topic yet")])
def test_a_config_that_does_not_work_is_logged(out: Path, text: str | None, said: str) -> None:
    (out / "config.json").unlink()
    if text is not None:
        (out / "config.json").write_text(text)
    done = run(out, "hook", "claude", data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert said in log_of(out) and log_of(out).count("\n") == 1


def test_a_terminal_gets_a_hint_and_no_wait(out: Path) -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run([*HOOK, "claude"], stdin=theirs, capture_output=True, timeout=SOON,
                              env=environment(out), check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"a4p.py setup" in done.stderr and done.stderr.count(b"\n") == 1
    assert " hook: " in log_of(out)


@pytest.mark.parametrize("redirection", ["<&-", "<&- >&- 2>&-", "2>&-", ">/dev/full"])
def test_closed_descriptors_are_no_error_and_no_wait(out: Path, redirection: str) -> None:
    began = time.monotonic()
    done = subprocess.run(["sh", "-c", f'exec "$@" {redirection}', "sh", *HOOK, "claude"],
                          input=CALL,
                          capture_output=True, timeout=SOON, env=environment(out), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert time.monotonic() - began < 8
    assert log_of(out)


def test_a_hint_does_not_go_to_stdout_where_stderr_is_closed(out: Path) -> None:
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *HOOK, "claude"], stdin=theirs,
                              stdout=subprocess.PIPE, timeout=SOON, env=environment(out),
                              check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, done.stdout) == (0, b"")


def test_a_folder_that_is_gone_is_no_error(tmp_path: Path) -> None:
    """A relative A4P_HOME has no meaning there, but the agent must not see a failure."""
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = subprocess.run(["sh", "-c", script, "sh", *HOOK, "claude"], input=CALL, cwd=tmp_path,
                          capture_output=True, timeout=SOON, check=False,
                          env={**environment(tmp_path), "A4P_HOME": "relative"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_an_agent_that_never_ends_its_call_is_given_up(out: Path) -> None:
    code = (f"import sys; sys.path.insert(0, {os.path.dirname(SCRIPT)!r}); import a4p; "
            "a4p.STDIN_WAIT = 0.2; sys.exit(a4p.main(['hook', 'claude']))")
    with subprocess.Popen([sys.executable, "-B", "-I", "-S", "-c", code], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=environment(out)) as hook:
        assert hook.stdin and hook.stdout and hook.stderr
        with contextlib.suppress(BrokenPipeError):
            hook.stdin.write(CALL[:-9])
            hook.stdin.flush()
        assert hook.wait(timeout=SOON) == 0  # stdin is still open
        assert (hook.stdout.read(), hook.stderr.read()) == (b"", b"")
    assert "stdin was not complete within" in log_of(out)


# --- at home ----------------------------------------------------------------

SLOW = {"json", "re", "urllib", "http", "socket", "threading", "argparse", "subprocess", "ssl",
        "queue",
        "typing", "dataclasses", "collections", "enum", "logging", "traceback", "unicodedata",
        "hashlib", "datetime", "tempfile", "signal", "shlex", "base64", "random"}


def loaded(stderr: bytes) -> set[str]:
    """The top modules that `-X importtime` names."""
    rows = [row.rpartition("|")[2].strip() for row in stderr.decode().splitlines() if "|" in row]
    return {row.split(".")[0] for row in rows}


@pytest.mark.parametrize("agent", sorted(a4p.AGENTS))
def test_at_home_the_hook_loads_nothing_slow_and_says_nothing(out: Path, agent: str) -> None:
    (out / "out").unlink()
    done = run(out, "hook", agent, data=CALL, flags=("-I", "-S", "-X", "importtime"))
    assert (done.returncode, done.stdout) == (0, b"")
    found = loaded(done.stderr)
    assert "posixpath" in found or "ntpath" in found, "the modules were not told"
    assert found & SLOW == set()
    assert sorted(path.name for path in out.iterdir()) == ["config.json"]


@pytest.mark.parametrize("data", [b"{oops", b"x" * 3_000_000], ids=["oops", "huge"])
def test_at_home_stdin_does_not_matter(out: Path, data: bytes) -> None:
    (out / "out").unlink()
    done = run(out, "hook", "claude", data=data, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert log_of(out) == ""


def test_at_home_a_broken_config_does_not_matter(out: Path) -> None:
    (out / "out").unlink()
    (out / "config.json").write_text("{")
    done = run(out, "hook", "claude", data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr, log_of(out)) == (0, b"", b"", "")


def test_an_end_that_has_passed_is_home_and_the_file_goes(out: Path) -> None:
    (out / "out").write_text("1000000000\n600\n")
    done = run(out, "hook", "claude", data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr, log_of(out)) == (0, b"", b"", "")
    assert not (out / "out").exists()


def test_without_any_home_nothing_is_made(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "hook", "claude", data=CALL, flags=FLAGS)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "none").exists()


# --- mutated calls ----------------------------------------------------------

JUNK: list[Any] = [
    None, True, False, 0, -1, 1.5, 10**30, float("inf"), float("nan"), "", " ", "\n", "x",
    "\ud800",
    "\x00", "\u202e", "3", "A", "AskUserQuestion", "PreToolUse", "x" * 9000, "问" * 3000, [], {},
    [[]], [None],
    {"label": "A"}, {"a": {"b": []}}, ["A", "B"], ["A", "A"], [{"label": "A"}, {"label": "B"}],
    [1, 2],
    {"questions": []}, CACHE, [CACHE], [CACHE, CACHE], asked("Other?", "1", "２", "③")]


def nodes(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(
        value, list) else []
    return [found for key in keys for found in ((value, key), *nodes(value[key]))]


def mutated(payload: Any, chance: random.Random) -> Any:
    """The call with up to three things changed, removed, doubled or added."""
    value = json.loads(json.dumps({"": payload}))
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(nodes(value))
        junk = json.loads(json.dumps(chance.choice(JUNK)))
        kind = chance.randrange(6)
        if kind == 0 and key != "":
            del container[key]
        elif kind == 1 and isinstance(container, list):
            container.append(container[key])
        elif kind == 2 and isinstance(container, dict):
            container[chance.choice(["id", "agent_id", "header", "title", "options", "label",
                                     "x"])] = junk
        else:
            container[key] = junk
    return value[""]


def check_call(call: a4p.Call, chance: random.Random) -> None:
    """Whatever is asked can be shown, and every answer to it leaves as valid JSON."""
    labels = [chance.sample(one.labels, min(len(one.labels), 2 if one.multi else 1))
              for one in call.questions]
    for answers in ([a4p.Answer(found, "" if found else "words") for found in labels],
                    [a4p.Answer([], 'my "own"\n问 \ud83d')] * len(labels)):
        text = json.dumps(call.write(call, answers))
        assert text.isascii() and "\n" not in text
        check_output(call, strict_json(text))
    for one in call.questions:
        assert len(set(one.labels)) == len(one.labels)
        with contextlib.suppress(a4p.A4pError):
            sent = a4p.Push(PLAIN, call.sender, one).compose()
            assert len(a4p.encode(sent)) <= 8191
        if one.options:
            assert one.read(one.labels[0]) == a4p.Answer([one.labels[0]])


def check_output(call: a4p.Call, given: Any) -> None:
    """The output has the form that the agent's event asks for, with an answer to each question."""
    event, asked_for = call.payload["hook_event_name"], call.questions
    if event == "AskUserQuestion":
        assert all({"id", "selected"} <= set(row) <= {"id", "selected", "custom"}
                   for row in given["answers"])
        assert [row["id"] for row in given["answers"]] == [one.key for one in asked_for]
        assert all(row["selected"] or row["custom"] for row in given["answers"])
        return
    specific = given["hookSpecificOutput"]
    assert list(given) == ["hookSpecificOutput"] and specific["hookEventName"] == event
    if asked_for[0].kind == "approval":  # a mutated tool's name is another tool's
        assert set(specific["decision"]) <= {"behavior", "message", "updatedPermissions"}
        return
    if specific.get("permissionDecision") == "deny":
        assert all(one.text in specific["permissionDecisionReason"] for one in asked_for)
        return
    new = specific.get("updatedInput") or specific["decision"]["updatedInput"]
    assert {**call.payload["tool_input"], "answers": new["answers"]} == new
    assert set(new["answers"]) == {one.text for one in asked_for}
    assert len(new["answers"]) == len(asked_for) and all(new["answers"].values())


def payload_in(data: bytes) -> object:
    """What the hook reads where these bytes are its stdin; raises A4pError."""
    before = os.dup(0)
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)
        try:
            return a4p.read_payload()
        finally:
            os.dup2(before, 0)
            os.close(before)


def call_in(data: bytes, agent: str, desk: str) -> a4p.Call | None:
    """What the hook makes of these bytes: a refusal that is logged counts as nothing."""
    try:
        found = a4p.AGENTS[agent].read(payload_in(data), desk)
    except a4p.A4pError:
        return None
    assert found is None or isinstance(found, a4p.Call)
    return found


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_a_mutated_call_is_nothing_or_has_a_valid_answer(
        agent: str, payload: Any, desk: str) -> None:
    chance = random.Random(1)
    for _ in range(200):
        data = json.dumps(mutated(payload, chance)).encode()
        call = call_in(data, agent, chance.choice([desk, desk, "wait", "beside"]))
        if call:
            check_call(call, chance)


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_most_mutations_of_the_surroundings_are_still_asked(
        agent: str, payload: Any, desk: str) -> None:
    """The mutator above is worth something only if much of what it makes gets through."""
    chance = random.Random(7)
    found = [call_in(json.dumps(mutated(payload, chance)).encode(), agent,
                     desk) for _ in range(100)]
    assert 15 < sum(call is not None for call in found) < 95


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_mutated_bytes_are_nothing_or_have_a_valid_answer(
        agent: str, payload: Any, desk: str) -> None:
    chance = random.Random(agent)
    for _ in range(100):
        data = bytearray(json.dumps(payload, ensure_ascii=False).encode())
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at:at + chance.randint(0, 3)] = chance.choice(
                [b"", b"\x00", b"\xff", b'"', b"\\", b"{", b"]", b",", b"\\ud800", b"NaN",
                 b"1e999", b"9" * 30])
        call = call_in(bytes(data), agent, desk)
        if call:
            check_call(call, chance)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_json_has_not_never_reaches_the_agent(number: str) -> None:
    """Claude Code gets its whole input back: what only Python reads as JSON must not be in it."""
    data = CALL.replace(b'"questions":', b'"x": %s, "questions":' % number.encode())
    call = call_in(data, "claude", "wait")
    if call:
        strict_json(json.dumps(call.write(call, [a4p.Answer(["Redis"])])))


def test_the_samples_say_what_they_are_meant_to_say() -> None:
    for name, data in ASKED.items():
        assert call_in(data, agent_of(data), "wait"), name
    for name, data in {**WRONG_TYPES, **NOT_OURS, **VAGUE}.items():
        assert call_in(data, agent_of(data), "wait") is None, name
    for name, data in NOT_JSON.items():
        if "10 MB" not in name:
            with pytest.raises(a4p.A4pError):
                payload_in(data)
