"""Whatever the server and the network do: nothing is lost, counted twice or invented.

A fault is a row. For each: what the hook prints, how long it takes, what the log says.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import a4p
from conftest import SOON, HookRun
from faulty import DRIP, RESET, STALL, Faulty, Reply, event, line_of, refusal, tap
from homes import A4P, Home
from test_asking import DB, claude

Start = Callable[..., HookRun]
Talk = Callable[..., list[a4p.Answer]]
SHORT = {"OPEN_WAIT": "0.5", "SILENCE": "2.0", "POLL_EVERY, POLL_SLOWEST": "0.1, 0.3",
         "BACKOFF": "(0.05, 0.2)"}
HASTY = {"PUBLISH_WAIT": "1.6", "CONNECT_WAIT": "1.0"}  # where the limit is what is tested
BOUND = 8.0  # seconds: below PUBLISH_WAIT, so that no limit was waited for on a busy machine
WORDS = "都不要 🦆, use “DuckDB”"


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes a4p.py with shorter waits, as a module that is compiled once: nothing else differs."""
    made: dict[str, Path] = {}

    def copy(limits: dict[str, str]) -> Path:
        if str(limits) in made:
            return made[str(limits)]
        text = A4P.read_text()
        for name, value in {**SHORT, **limits}.items():
            text, count = re.subn(rf"^{name} = .*?(?=  #)", f"{name} = {value}", text, flags=re.M)
            assert count == 1, name
        folder = tmp_path_factory.mktemp("quick")
        (folder / "a4p.py").write_text(text)
        start = made[str(limits)] = folder / "start.py"
        start.write_text(f"import os, sys\nsys.path.insert(0, {str(folder)!r})\n"
                         "import a4p\nos._exit(a4p.main())\n")
        return start

    return copy


@pytest.fixture
def ask(home: Home, hook: Start, quick: Callable[..., Path]) -> Callable[..., HookRun]:
    """Start a hook that is to use this server, with these config values."""
    def start(server: Faulty | str, limits: dict[str, str] | None = None, **values: Any) -> HookRun:
        home.configure(server=getattr(server, "url", server), **values)
        return hook("claude", claude(DB), quick(limits or {}))

    return start


@pytest.fixture
def talk(home: Home, monkeypatch: pytest.MonkeyPatch) -> Talk:
    """Ask in this process, one question after the other, while a thread plays the phone."""
    monkeypatch.setattr(a4p, "POLL_EVERY", 0.1)
    monkeypatch.setattr(a4p, "BACKOFF", (0.05,))

    def run(server: Faulty, play: Callable[[], None], *texts: str) -> list[a4p.Answer]:
        home.configure(server=server.url)
        options = [a4p.Option("PostgreSQL"), a4p.Option("SQLite")]
        with ThreadPoolExecutor(1) as pool:
            played = pool.submit(play)
            with a4p.Conversation(a4p.State(str(home.path)), a4p.Sender("Claude"), SOON,
                                  lambda body: None) as conversation:
                outcomes = [conversation.ask(a4p.Question("", "", text, options))
                            for text in texts or ["Which database?"]]
            played.result()
        return [outcome for outcome in outcomes if outcome.state == "answered"]

    return run


def entries(home: Home) -> list[str]:
    """The entries of the log without their times and what receipts say; no traceback."""
    text = (home.path / "a4p.log").read_text()
    assert "Traceback" not in text and 'File "' not in text
    found = re.split(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", text, flags=re.M)
    return [entry.rstrip("\n") for entry in found[1:] if not entry.startswith("receipt: ")]


def stays(home: Home, run: HookRun, *causes: str) -> None:
    """The question is back at the terminal, soon, and the log says one of these causes, in
    entries of one line."""
    began = time.monotonic()
    assert run.text() == ""
    assert time.monotonic() - began < BOUND
    said = entries(home)
    assert said[-1].startswith("hook: ")
    assert any(cause in said[-1] for cause in causes), said[-1]
    assert all("\n" not in entry for entry in said)
    assert not list((home.path / "pending").glob("*.json"))


# --- what the server may say to a question ----------------------------------

def moved(status: int) -> Reply:
    """A redirect."""
    return Reply(status, b"", ["Location: https://elsewhere.example/x"])


def said(**values: object) -> Reply:
    """An answer to a publish in ntfy's form, but for these values."""
    return Reply(body=line_of({**event("t", "x"), **values}))


HTML = b"<!DOCTYPE html><html><title>Welcome to the hotel</title>" + b"x" * 5000
NO_NTFY, UNREACHED = "answered, but not as ntfy does (a login page?)", "cannot be reached ("
SLOW, REFUSED = "did not answer within 1 s", "refused it: HTTP "
ELSEWHERE = " and points elsewhere - set `server` to https://elsewhere.example"
OK = b"HTTP/1.1 200 OK\r\n"
BROKEN = f"{UNREACHED} or {NO_NTFY}"  # who says which of the two does not matter
NOT_TAKEN: dict[str, tuple[dict[str, list[Reply]], str]] = {
    **{f"moved {status}, {kind}": ({kind: [moved(status)]}, f"HTTP {status}{ELSEWHERE}")
       for status in (301, 302, 307, 308) for kind in ("publish", "every") if status != 301},
    "moved nowhere": ({"publish": [Reply(302)]}, "HTTP 302 and points elsewhere - set `server` to ?"),
    **{f"{status} {code}": ({"publish": [refusal(status, code)]},
                            f"{REFUSED}{status}, ntfy code {code} {'no ' * (code > 0)}- {mend}")
       for status, code, mend in [
        (400, 40024, "see the server's log"), (404, 40401, "see the server's log"),
        (413, 41301, "the push is too large"), (429, 42901, "wait a minute"),
        (429, 42904, "wait a minute"), (429, 42905, "wait a minute"),
        (429, 42908, "the daily quota is used up until midnight UTC"),
        (429, 42909, "wait a minute"), (429, 42911, "wait a minute"),
        (500, 50001, "see the server's log"), (507, 50701, "see the server's log")]},
    **{f"{status} as a page": ({"every": [refusal(status)]}, f"{REFUSED}{status}, ntfy code 0 ")
       for status in (404, 429, 500, 502, 503)},
    "401": ({"every": [refusal(401, 40101)]}, "HTTP 401, ntfy code 40101 no - the credentials"),
    "403": ({"every": [refusal(403, 40301)]}, "HTTP 403, ntfy code 40301 no - these credentials"),
    "403 for a publish": ({"publish": [refusal(403, 40301)]}, "HTTP 403, ntfy code 40301 no - these"),
    "an error of 1 MB": ({"publish": [Reply(500, b"{" + b" " * 2**20)]}, f"{REFUSED}500, ntfy code 0"),
    "an error that escapes": ({"publish": [refusal(500, 50001, "\x1b]0;x\x07\r\n2026-01-01 00:00:00 y")]},
                              f"{REFUSED}500, ntfy code 50001 "),
    "204": ({"publish": [Reply(204)]}, f"{REFUSED}204"),
    "a portal's page": ({"every": [Reply(body=HTML)]}, NO_NTFY),
    "nothing": ({"publish": [Reply(body=b"")]}, NO_NTFY),
    **{f"200 with {value!r}": ({"publish": [Reply(body=value)]}, NO_NTFY)
       for value in (b"null", b"{}", b"[]", b"7", b"[" * 9999, b"\xff\xfe{")},
    "another topic's message": ({"publish": [said()]}, NO_NTFY),
    "an open event": ({"publish": [said(event="open")]}, NO_NTFY),
    **{f"200 with {key} {value!r}": ({"publish": [said(**{key: value})]}, NO_NTFY)
       for key, value in [("id", 7), ("id", "../x"), ("time", "1"), ("topic", None),
                          ("event", ["message"])]},
    "gzip": ({"every": [Reply(body=gzip.compress(b"{}\n"), headers=["Content-Encoding: gzip"])]}, NO_NTFY),
    **{f"{name}, then {end}": ({"publish": [Reply(raw=raw, end=end)]}, UNREACHED)
       for name, raw in [("nothing", b""), ("half a status", b"HTTP/1.1 2"), ("half a header", OK + b"Cont"),
                         ("half a body", OK + b"Content-Length: 99\r\n\r\n{")] for end in ("cut", RESET)
       if name in ("nothing", "half a status") or end == RESET},
    **{name: ({"publish": [Reply(raw=raw)]}, BROKEN) for name, raw in [
        ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n"), ("a header of 1 MB", OK + b"X: " + b"x" * 2**20 + b"\r\n\r\n"),
        ("200 headers", OK + b"X: y\r\n" * 200 + b"\r\n"), ("a status of words", b"HTTP/1.1 OK OK\r\n\r\n"),
        ("half a chunk", OK + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{"),
        ("no chunk", OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{")]},
    "half a header, then cut": ({"publish": [Reply(raw=OK + b"Cont")]}, BROKEN),
    "half a body, then cut": ({"publish": [Reply(raw=OK + b"Content-Length: 99\r\n\r\n{")]}, BROKEN),
    "silence": ({"every": [Reply(raw=b"", end=STALL)]}, SLOW),
    "half an answer, then silence": ({"publish": [Reply(raw=OK + b"\r\n{", end=STALL)]}, SLOW),
    "a header that does not end": ({"publish": [Reply(raw=OK + b"X: ", end=DRIP)]}, SLOW),
    "a body that does not end": ({"publish": [Reply(raw=OK + b"\r\n", end=DRIP)]}, SLOW),
    "endless 100s": ({"publish": [Reply(raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 99, end=STALL)]}, f"{SLOW} or the answer is not HTTP"),
}


@pytest.mark.parametrize("fault", NOT_TAKEN)
def test_a_question_that_is_not_taken_stays_at_the_terminal(
        home: Home, ask: Start, fault: str) -> None:
    replies, cause = NOT_TAKEN[fault]
    with Faulty(**replies) as server:
        stays(home, ask(server, HASTY if cause.startswith(SLOW) else {}), *cause.split(" or "))
        questions = [body for body in server.published() if "actions" in body]
        assert len(questions) <= 1


@pytest.mark.parametrize("lost", [Reply(raw=b"", takes=True), Reply(raw=OK, end=RESET, takes=True),
                                  Reply(raw=b"HTTP/1.1 20", takes=True),
                                  Reply(raw=b"", end=STALL, takes=True), Reply(body=HTML, takes=True),
                                  Reply(502, HTML, takes=True), Reply(504, HTML, takes=True)])
def test_a_push_whose_acceptance_is_lost_is_replaced(home: Home, ask: Start, lost: Reply) -> None:
    """It may stand on the phone although the hook cannot know: nobody is to answer it."""
    with Faulty(publish=[lost, Reply()]) as server:
        assert ask(server, HASTY if lost.end == STALL else {}).output(BOUND) is None
        push = server.push()
        end = server.told(lambda body: body["sequence_id"] == push["sequence_id"], 1)
        assert end["message"] == "Released, back at the terminal"


@pytest.mark.parametrize(("server", "cause"), [
    ("http://127.0.0.1:9", UNREACHED), ("http://127.0.0.1:99999", UNREACHED),
    ("http://127.0.0.1:x", "server must be an http:// or https:// URL"),
    ("http://[::1", "server must be an http:// or https:// URL"),
    ("http://" + ".".join(["name" * 15] * 5), UNREACHED),  # longer than any name may be: no look-up
    ("http://a..b", UNREACHED), ("http://" + "a" * 64, UNREACHED)])
def test_a_server_that_is_nowhere(home: Home, ask: Start, server: str, cause: str) -> None:
    stays(home, ask(server), cause)


# --- what streams and polls may do while the question waits -----------------

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
OPEN = line_of({"id": "o1", "time": 1, "event": "open", "topic": "x"})
ZIPPED = Reply(body=gzip.compress(OPEN), headers=["Content-Encoding: gzip"])
FULL = refusal(429, 42903, "limit reached: too many active subscriptions")
HEARD: dict[str, dict[str, list[Reply]]] = {
    **{f"in chunks of {size}": {"every": [Reply(chunk=size)]} for size in (1, 7, 100_000)},
    "late": {"every": [Reply(late=0.3)]},
    "a stream for the second topic is forbidden": {"stream": [refusal(403, 40301), Reply()]},
    "streams fail twice": {"stream": [refusal(500), refusal(502), Reply()]},
    **{f"no streams, {status}": {"stream": [refusal(status)]} for status in (404, 500, 503)},
    "too many streams": {"stream": [FULL]},
    "streams are a portal's page": {"stream": [Reply(body=HTML)]},
    "streams are zipped": {"stream": [ZIPPED]},
    "streams end at once": {"stream": [Reply(body=OPEN)]},
    "streams are never opened": {"stream": [Reply(body=b"\n", end=STALL)]},
    **{f"streams are {name}": {"stream": [Reply(raw=raw, end=end)]} for name, raw, end in [
        ("cut", b"", "cut"), ("reset", b"", RESET), ("silent", b"", STALL), ("half a status", b"HTTP/1", "cut"),
        ("garbage", bytes(range(256)), "cut"), ("half a chunk", CHUNKED + b"ff\r\n{", "cut"),
        ("no chunk", CHUNKED + b"zz\r\n", "cut"), ("headers that do not end", OK + b"X: ", DRIP)]},
    **{f"no streams, and a poll is {name}": {"stream": [FULL], "poll": [reply, Reply()]} for name, reply in [
        ("refused", refusal(429, 42901)), ("an error", refusal(500)), ("cut", Reply(raw=b"")),
        ("reset", Reply(raw=b"", end=RESET)), ("a page", Reply(body=HTML)), ("zipped", ZIPPED),
        ("half", Reply(raw=OK + b"Content-Length: 99\r\n\r\n{")), ("moved", moved(302)),
        ("silent", Reply(raw=b"", end=STALL)), ("half, then silence", Reply(raw=OK + b"\r\n{", end=STALL))]},
}


@pytest.mark.parametrize("fault", HEARD)
def test_the_answer_is_heard_all_the_same(home: Home, ask: Start, fault: str) -> None:
    with Faulty(**HEARD[fault]) as server:
        run = ask(server, {"CONNECT_WAIT": "2.0"} if "silen" in fault else {})
        push = server.push()
        server.send(server.event(push["topic"] + "-response", WORDS))
        assert run.answers() == {"Which database?": WORDS}
        assert len([body for body in server.published() if "actions" in body]) == 1
    name = push["sequence_id"]
    assert entries(home) == [f"{name} Claude asks: Which database?", f"{name} Claude answered\n    {WORDS}"]


@pytest.mark.parametrize("deaf", [ZIPPED, Reply(body=HTML), refusal(500), Reply(raw=b"", end=RESET)])
def test_a_question_whose_answer_cannot_come_ends_in_time(home: Home, ask: Start, deaf: Reply) -> None:
    with Faulty(stream=[deaf], poll=[deaf]) as server:
        run = ask(server, timeout=1)
        push = server.push()
        server.send(server.event(push["topic"] + "-response", WORDS))
        assert run.output(BOUND) is None
    assert entries(home)[-1] == f"{push['sequence_id']} Claude timeout"


# --- breaks, replays, duplicates --------------------------------------------

BREAKS = [  # what happens to the first reply, step by step
    "reply reply reply", "reply cut", "half cut", "half reset", "unheard cut", "unheard reset",
    "garbage cut opened reply", "cut opened cut opened reply", "old unheard cut",
    "old reply reply", "forget cut opened reply", "forget old cut opened reply",
    "forget old reset opened half cut", "foreign unheard foreign cut"]


def step(server: Faulty, what: str, reply: dict[str, Any], opened: int) -> None:
    """Do one step of a row."""
    line, topic = line_of(reply), reply["topic"]
    if what == "reply":
        server.send(reply)
    elif what == "unheard":
        server.send(reply, live=False)
    elif what == "half":
        server.send(reply, live=False)
        server.send(line[:len(line) // 2], kept=False)
    elif what == "garbage":
        server.send(b"\0\xff{\n", b"\n", b"[" * 9999 + b"\n", b'"half a line', kept=False)
    elif what == "old":
        server.send(server.event(topic, "PostgreSQL", time=int(time.time()) - 60), live=False)
    elif what == "foreign":
        server.send(server.event(topic, "PostgreSQL", title="qaaaaaaaaaa"),
                    server.event("elsewhere", "PostgreSQL"), live=False)
    elif what == "forget":
        server.forget()
    elif what == "opened":
        server.wait("stream", opened)
    else:
        server.cut(what == "reset")


@pytest.mark.parametrize("kind", ["tap", "words"])
@pytest.mark.parametrize("steps", BREAKS)
def test_a_reply_counts_once_whatever_breaks(
        home: Home, talk: Talk, steps: str, kind: str) -> None:
    with Faulty() as server:
        def play() -> None:
            first = server.push()
            title = {"title": first["sequence_id"]} if kind == "tap" else {}
            reply = server.event(first["topic"] + "-response", "SQLite", time=int(time.time()) + 1, **title)
            opened = 1
            for what in steps.split():
                opened += what in ("cut", "reset")
                step(server, what, reply, opened)
            second = server.push(1)
            server.send(reply, kept=False)  # once more, while the second question waits
            server.send(tap(second, "PostgreSQL"))

        answers = talk(server, play, "Which database?", "Second?")
        assert answers == [a4p.Answer(["SQLite"]), a4p.Answer(["PostgreSQL"])]
        assert len(server.published()) == 2
    assert [entry.partition(" Claude ")[2] for entry in entries(home)] == [
        "asks: Which database?", "answered\n    SQLite", "asks: Second?", "answered\n    PostgreSQL"]


@pytest.mark.parametrize("seconds", [-600, 600, -10**9])
def test_a_clock_that_is_off_changes_nothing(home: Home, ask: Start, seconds: int) -> None:
    with Faulty(clock=seconds) as server:
        topic = home.config["topic"] + "-response"
        server.send(server.event(topic, "PostgreSQL", time=int(time.time()) + seconds - 5))
        run = ask(server)
        server.push()
        server.forget()  # all is replayed
        server.send(server.event(topic, "PostgreSQL", time=int(time.time()) + seconds - 5))
        server.cut()
        server.wait("stream", 2)
        server.send(server.event(topic, "SQLite", time=int(time.time()) + seconds + 1))
        assert run.answers() == {"Which database?": "SQLite"}


# --- lines that are no answer -----------------------------------------------

GONE = ...  # the key is not there
CHANGES: list[tuple[str, Any]] = [  # of a tap on "PostgreSQL": each makes it none
    *[("id", value) for value in (GONE, None, 7, "", "../../taken", "x" * 33, "a\nb", ["a"])],
    *[("time", value) for value in (GONE, None, "1700000000", 1.5, [])],
    *[("event", value) for value in (GONE, None, "open", "keepalive", "message_delete", "message_clear",
                                     "poll_request", "MESSAGE", ["message"])],
    *[("topic", value) for value in (GONE, None, "elsewhere", "", ["x"], 7)],
    *[("title", value) for value in ("qaaaaaaaaaa", "q" + "2" * 10)],
    *[("message", value) for value in (GONE, "", " \n", "triggered", None, True, 1, 1.0, ["PostgreSQL"],
                                       {"PostgreSQL": 1})],
    *[("attachment", value) for value in (True, "x", [1], {"type": "text/plain"}, {"type": 7},
                                          {"type": "text/plain", "size": "x", "url": "y"},
                                          {"type": "text/plain", "size": 1, "url": None},
                                          {"type": "text/plain", "size": float("inf"), "url": "y"},
                                          {"type": "text/plain", "size": 1, "url": "http://127.0.0.1:9/file/x"})],
    ("encoding", "base64")]
RAW: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda line: line[:-9] + b"\n",
    "without its start": lambda line: line[9:],
    "two in one": lambda line: line.strip() + line,
    "in a list": lambda line: b"[" + line.strip() + b"]\n",
    "in a string": lambda line: json.dumps(line.decode()).encode() + b"\n",
    "as an event stream": lambda line: b"data: " + line,
    "not UTF-8": lambda line: line.replace(b"PostgreSQL", b"Postgre\xff\xfeSQL"),
    "behind 1 MB": lambda line: b"x" * 2**20 + line,
    "behind 3 MB": lambda line: b"{" * (3 * 2**20) + line,
    "nested": lambda line: line.replace(b'{"id', b'{"x": ' + b"[" * 99_999 + b', "id'),
    "a long number": lambda line: line.replace(b'"time": ', b'"time": 1' + b"0" * 5000),
    "blank lines": lambda line: b"\n\r\n \n\0\n",
    "other JSON": lambda line: b'null\ntrue\n7\n"x"\n[]\n{}\n{"id": {}}\nNaN\n-\n'}
FOREIGN = {"title": "A build", "tags": ["x"], "click": "http://x", "actions": [{"action": "view"}]}


def no_answers(push: dict[str, Any]) -> dict[str, dict[str, Any] | bytes]:
    """Every line that is no answer to this push, by name."""
    words = push["topic"] + "-response"
    found: dict[str, dict[str, Any] | bytes] = {
        "old words": event(words, "PostgreSQL", time=int(time.time()) - 60)}
    for key, value in CHANGES:
        changed = {**tap(push, "PostgreSQL"), key: value}
        found[f"{key} {value!r}"] = {key: value for key, value in changed.items() if value is not GONE}
    for name, spoil in RAW.items():
        found[name] = spoil(line_of(tap(push, "PostgreSQL")))
    for key, value in FOREIGN.items():
        found[f"a push with {key}"] = event(push["topic"], "PostgreSQL", **{key: value})
    return found


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("name", no_answers({"topic": "t", "sequence_id": "q"}))
def test_a_line_that_is_no_answer_is_none(talk: Talk, name: str) -> None:
    with Faulty() as server:
        def play() -> None:
            push = server.push()
            server.send(no_answers(push)[name])
            if name.startswith(("attachment", "encoding")) and "True" not in name:
                server.told(lambda body: "plain text" in body["message"])
            server.send(tap(push, "SQLite"))

        assert talk(server, play) == [a4p.Answer(["SQLite"])]


@pytest.mark.parametrize("live", [True, False], ids=["on the stream", "in a replay"])
def test_none_of_all_these_lines_is_an_answer(home: Home, ask: Start, live: bool) -> None:
    with Faulty() as server:
        run = ask(server)
        push = server.push()
        server.send(*no_answers(push).values(), live=live)
        if not live:
            server.cut()
            server.wait("stream", 2)
        server.send(tap(push, "SQLite"))
        assert run.answers() == {"Which database?": "SQLite"}
    name = push["sequence_id"]
    assert entries(home)[0] == f"{name} Claude asks: Which database?"
    assert entries(home)[-1] == f"{name} Claude answered\n    SQLite"


# --- names, proxies, TLS ----------------------------------------------------

NAME = "ntfy.example"  # nobody looks it up: the proxy is told the name


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that speaks of no proxy and of no certificate."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("SSL_CERT"):
            monkeypatch.delenv(name)
    return monkeypatch


def answered(server: Faulty, run: HookRun) -> None:
    """The question arrives at this server, and its answer comes."""
    server.send(tap(server.push(), "SQLite"))
    assert run.answers() == {"Which database?": "SQLite"}


@pytest.mark.parametrize("told", ["proxy", "http_proxy", "ALL_PROXY"])
def test_a_proxy_leads_to_the_server(
        ask: Start, environment: pytest.MonkeyPatch, told: str) -> None:
    with Faulty() as proxy:
        address = proxy.url.replace("//", "//ada:p%40ss@")
        values = {"proxy": address} if told == "proxy" else {}
        environment.setenv(*("A", "") if values else (told, address))
        answered(proxy, ask(f"http://{NAME}/ntfy", token="tk_own", **values))
    for request in proxy.requests[:2]:
        assert request.target.startswith(f"http://{NAME}/ntfy/")
        assert request.headers["Host"] == NAME
        assert request.headers["Proxy-Authorization"] == "Basic YWRhOnBAc3M="
        assert request.headers["Authorization"] == "Bearer tk_own"


def test_this_machine_is_asked_without_a_proxy(ask: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("http_proxy", "http://127.0.0.1:9")
    with Faulty() as server:
        answered(server, ask(server))


def test_no_proxy_is_heeded(home: Home, ask: Start, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("http_proxy", "http://127.0.0.1:9")
    environment.setenv("no_proxy", "a..b")
    stays(home, ask("http://a..b"), UNREACHED)
    assert "refused" not in entries(home)[-1]  # by the proxy's port


@pytest.mark.parametrize(("proxy", "cause"), [
    ("http://127.0.0.1:9", UNREACHED), ("socks5://127.0.0.1:9", "SOCKS proxies are not supported")])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_used(
        home: Home, ask: Start, environment: pytest.MonkeyPatch, scheme: str, proxy: str,
        cause: str) -> None:
    stays(home, ask(f"{scheme}://{NAME}", proxy=proxy), cause)


@pytest.mark.parametrize(("scheme", "replies", "cause"), [
    ("http", {"every": [refusal(407)]}, f"{REFUSED}407"),
    ("http", {"every": [refusal(503)]}, f"{REFUSED}503"),
    ("http", {"every": [moved(302)]}, f"HTTP 302{ELSEWHERE}"),
    ("http", {"every": [Reply(body=HTML)]}, NO_NTFY),
    ("https", {"connect": [refusal(407)]}, "407"),
    ("https", {"connect": [refusal(403)]}, "403"),
    ("https", {"connect": [Reply(raw=b"")]}, UNREACHED),
    ("https", {"connect": [Reply(raw=b"", end=STALL)]}, SLOW)])
def test_a_proxy_that_refuses(home: Home, ask: Start, environment: pytest.MonkeyPatch, scheme: str,
                              replies: dict[str, list[Reply]], cause: str) -> None:
    with Faulty(**replies) as proxy:
        stays(home, ask(f"{scheme}://{NAME}", HASTY if cause == SLOW else {}, proxy=proxy.url), cause)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    """A certificate for NAME that signs itself, and a server's side of it."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}",
                    "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return folder / "cert.pem", context


Certificate = "tuple[Path, ssl.SSLContext]"


def test_an_answer_through_tls_in_a_tunnel(
        ask: Start, environment: pytest.MonkeyPatch, certificate: Certificate) -> None:
    environment.setenv("SSL_CERT_FILE", str(certificate[0]))
    with Faulty(tls=certificate[1], proxy=True) as proxy:
        answered(proxy, ask(f"https://{NAME}", proxy=proxy.url.replace("https", "http")))
    assert [request.target for request in proxy.requests if request.kind == "connect"][0] == f"{NAME}:443"


@pytest.mark.parametrize(("trusted", "cause"), [
    (False, "does not prove who it is (self"), (True, "does not prove who it is (IP address mismatch")])
def test_a_certificate_that_proves_nothing(
        home: Home, ask: Start, environment: pytest.MonkeyPatch, certificate: Certificate,
        trusted: bool, cause: str) -> None:
    if trusted:  # but it is another server's
        environment.setenv("SSL_CERT_FILE", str(certificate[0]))
    with Faulty(tls=certificate[1]) as server:
        stays(home, ask(server, token="tk_own"), cause)
        assert server.requests == []  # no token was sent


def test_plain_http_where_tls_is_meant_and_the_other_way_round(
        home: Home, ask: Start, certificate: Certificate) -> None:
    with Faulty() as server:
        stays(home, ask(server.url.replace("http", "https")), UNREACHED)
    with Faulty(tls=certificate[1]) as server:
        stays(home, ask(server.url.replace("https", "http")), UNREACHED)


def test_a_handshake_that_does_not_begin(home: Home, ask: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stays(home, ask(f"https://127.0.0.1:{silent.getsockname()[1]}", HASTY), SLOW)


def test_a_name_that_is_looked_up_for_ever(
        home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver has no time limit of its own, and none that hangs can be had on one machine."""
    looked_up, over = threading.Event(), threading.Event()

    def look_up(*about: object, **more: object) -> Any:
        looked_up.set()
        over.wait(SOON)
        raise OSError("over")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(a4p, "OPEN_WAIT", 0.2)
    monkeypatch.setattr(a4p, "PUBLISH_WAIT", 0.7)
    home.configure(server=f"http://{NAME}", proxy="http://proxy.example")
    began, state = time.monotonic(), a4p.State(str(home.path))
    with pytest.raises(a4p.Refused, match="did not answer within"):
        with a4p.Conversation(state, a4p.Sender("Test"), 10, lambda body: None) as conversation:
            conversation.ask(a4p.Question("", "", "Which?"))
    assert looked_up.is_set() and time.monotonic() - began < BOUND
    over.set()


# --- load -------------------------------------------------------------------

def test_thirty_streams_and_one_that_is_refused(
        home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """ntfy 2.13 lets one address have 30 streams: whoever gets none goes on by polling."""
    monkeypatch.setattr(a4p, "POLL_EVERY", 0.5)
    with Faulty(limit=30) as server:
        home.configure(server=server.url)

        def ask(text: str) -> tuple[str, bool]:
            with a4p.Conversation(a4p.State(str(home.path)), a4p.Sender("Claude"), 60,
                                  lambda body: None) as conversation:
                outcome = conversation.ask(a4p.Question("", "", text, [a4p.Option("Yes")]))
                return outcome.joined(), conversation.inbox.live_since < a4p.NEVER

        texts = [f"Q{n}" for n in range(31)]
        with ThreadPoolExecutor(31) as pool:
            found = pool.map(ask, texts)
            pushes = [server.push(n) for n in range(31)]  # all of them wait now
            for push in pushes:
                server.send(tap(push, f"for {push['message'].split()[0]}"))
            answers, live = zip(*found)
    assert list(answers) == [f"for {text}" for text in texts]
    assert sum(live) == 30
    assert len(entries(home)) == 62


@pytest.mark.parametrize("live", [True, False], ids=["on the stream", "in a replay"])
def test_a_flood_of_foreign_messages(home: Home, ask: Start, live: bool) -> None:
    """5,000 of another's pushes and taps: the answer behind them comes, and nothing is asked back."""
    with Faulty() as server:
        run = ask(server)
        push = server.push()
        topic = push["topic"]
        for n in range(2500):
            server.send(event(topic, f"Build {n} is done. " + "x" * 200, title="CI"),
                        event(topic + "-response", "PostgreSQL", title="qaaaaaaaaaa"), live=live)
        server.send(tap(push, "SQLite"), live=live)
        if not live:
            server.cut()
        assert run.answers() == {"Which database?": "SQLite"}
        assert [body["title"] for body in server.taken if body["topic"] == topic] == [push["title"]]
    assert len(entries(home)) == 2


def test_a_redirect_in_a_break_ends_no_call(home: Home, hook: Start) -> None:
    """A hotel's login page is there for a moment only; what was answered by then counts."""
    with Faulty(stream=[Reply(), moved(302), Reply()]) as server:
        home.configure(server=server.url, timeout=20)
        other = {**DB, "question": "And which cache?"}
        run = hook("claude", claude(DB, other))
        push = server.push()
        server.cut()
        server.wait("stream", 3)
        server.send(tap(push, "SQLite"))
        server.send(tap(server.push(1), "PostgreSQL"))
        assert run.answers() == {"Which database?": "SQLite", "And which cache?": "PostgreSQL"}
