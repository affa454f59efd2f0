"""What holds for any bytes at all, and a mutator that looks for bytes for which it does not.

`make fuzz SECONDS=600` (python tests/fuzz.py 600) changes recorded samples byte by byte and puts
them through the properties below; each crash is printed with its input, in a form to paste into a
test. tests/test_fuzz.py puts generated input through the same properties, in seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).absolute().parent.parent), str(Path(__file__).absolute().parent)]

import a4p  # noqa: E402
import samples  # noqa: E402

HANG = 20  # seconds: the longest that one input may take in `make fuzz`


# --- what an agent may be told ----------------------------------------------

def calls_in(payload: Any) -> Iterator[a4p.Call]:
    """Each agent's call in a payload, by either desk and language; a refusal is none."""
    for agent in a4p.AGENTS.values():
        for desk, lang in (("wait", "en"), ("beside", "zh")):
            with contextlib.suppress(a4p.A4pError):
                call = agent.read(payload, desk, lang)
                if call:
                    yield call


def check_answers(call: a4p.Call, reply: str) -> None:
    """Read one reply for each question; what the agent gets is its contract and no field more."""
    answers = [question.read(reply) for question in call.questions]
    given = [answer if isinstance(answer, a4p.Answer) else a4p.Answer([], reply)
             if question.words else a4p.Answer(question.labels[:1])
             for question, answer in zip(call.questions, answers)]  # a number is asked back once
    if any(not (answer.selected or answer.text) for answer in given):
        return  # blank replies are ignored before
    for question, answer in zip(call.questions, given):
        assert set(answer.selected) <= set(question.labels)
        assert len(answer.selected) <= (len(question.labels) if question.multi else 1)
    text = json.dumps(call.write(call, given), allow_nan=False)
    assert text.isascii() and "\n" not in text
    check_contract(call, given, samples.strict_json(text))


def check_contract(call: a4p.Call, given: list[a4p.Answer], output: Any) -> None:
    """The exact fields of this event, with nothing in them that was not chosen or typed."""
    event, questions = call.payload["hook_event_name"], call.questions
    if event == "Stop":
        words = given[0].text
        assert output == ({"decision": "block", "reason": call.agent.reply + words}
                          if words else None)
        return
    if event == "AskUserQuestion":
        assert output == {"answers": [
            {"id": question.key, "selected": answer.selected,
             **({"custom": answer.text} if answer.text else {})}
            for question, answer in zip(questions, given)]}
        return
    specific = output.pop("hookSpecificOutput")
    assert output == {} and specific.pop("hookEventName") == event
    if event == "Elicitation":
        content = specific.pop("content")
        assert specific == {"action": "accept"}
        assert list(content) == [question.key for question in questions]
        for question in questions:
            value = content[question.key]
            kind = call.payload["requested_schema"]["properties"][question.key]
            assert type(value) is (bool if kind["type"] == "boolean" else str)
            assert not (question.labels and type(value) is str) or value in question.labels
    elif questions[0].kind == "approval":
        check_decision(call, given[0], specific)
    elif specific.get("permissionDecision") == "deny":
        assert set(specific) == {"permissionDecision", "permissionDecisionReason"}
        assert type(specific["permissionDecisionReason"]) is str
    else:
        decision = specific if event == "PreToolUse" else specific["decision"]
        allow = {"PreToolUse": {"permissionDecision": "allow"}}.get(event, {"behavior": "allow"})
        new = decision.pop("updatedInput")
        assert decision == allow and len(specific) == 1
        assert {**call.payload["tool_input"], "answers": new["answers"]} == new
        assert set(new["answers"]) == {question.text for question in questions}
        assert all(type(text) is str and text for text in new["answers"].values())


def check_decision(call: a4p.Call, answer: a4p.Answer, specific: Any) -> None:
    """Only a label or a word for yes allows; nothing is granted that was not shown."""
    decision, labels = specific.pop("decision"), call.questions[0].labels
    assert specific == {}
    if decision["behavior"] == "allow":
        assert answer.selected and answer.selected[0] in labels[:-1] and not answer.text
        always = len(labels) == 3 and answer.selected == labels[1:2]
        plan = call.payload["tool_name"] == "ExitPlanMode"
        assert decision == {
            "behavior": "allow", **({"updatedInput": call.payload["tool_input"]} if plan else {}),
            **({"updatedPermissions": call.payload["permission_suggestions"]} if always else {})}
    else:
        assert set(decision) == {"behavior", "message"} and decision["behavior"] == "deny"
        assert type(decision["message"]) is str


@contextlib.contextmanager
def a_folder() -> Iterator[str]:
    """A folder that goes away, even while a thread still writes its last line into it."""
    folder = tempfile.mkdtemp()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- properties -------------------------------------------------------------

PLAIN = samples.config()
REPLIES = ["1", "2", "1,2: and more", "yes", "no", "k7 3", "words\nof my own \ud83d", "9", "Done"]


def stdin(data: bytes) -> None:
    """A hook's stdin is refused in one way, or is a call that can be shown and answered."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            payload = a4p.read_payload()
        except a4p.A4pError:
            return
        finally:
            os.dup2(before, 0)
            os.close(before)
    for call in calls_in(payload):
        for number, question in enumerate(call.questions, 1):
            place = number, len(call.questions)
            push = a4p.Push(PLAIN, call.sender, question, place, embedded=True)
            with contextlib.suppress(a4p.A4pError):  # too big
                body = push.compose()
                check_push({key: value for key, value in body.items() if key != "a4p"})
            check_push(push.closing("answered", "x" * 5000))
        for reply in REPLIES:
            check_answers(call, reply)


def check_push(body: dict[str, Any]) -> None:
    """A push is within ntfy's limits, has a title, and its buttons send to our topic alone."""
    encoded = a4p.encode(body)
    assert len(encoded) <= 8191 and len(body["message"].encode("utf-8", "replace")) <= 4095
    assert 0 < len(body["title"].encode("utf-8", "replace")) <= 250
    assert "\n" not in body["title"] and "\r" not in body["title"]
    for action in body.get("actions", ()):
        assert action["url"].startswith(f"https://ntfy.sh/{samples.TOPIC}-response")


CALLS = [call for _, payload in samples.CALLS for call in calls_in(payload)]


def reply(data: bytes) -> None:
    """Whatever is typed or tapped, an agent gets the fields of its contract."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") \
        if not _broken(data) else data.decode("latin-1")
    tag, rest = a4p.tag_of(text)
    assert text.endswith(rest) and (not tag or len(tag) in (2, 3))
    for call in CALLS:
        check_answers(call, text)
    assert a4p.plain(text).isprintable() and a4p.escaped(text).isprintable()


def _broken(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return True
    return False


def config(data: bytes) -> None:
    """A config file is refused in one line, or is a config that works and can be saved."""
    with a_folder() as folder:
        path = Path(folder) / "config.json"
        path.write_bytes(data)
        try:
            found = a4p.State(folder).config
        except a4p.UsageError as error:
            assert all("\n" not in error.text(lang) for lang in ("en", "zh"))
            return
        for key in a4p.SETTINGS:
            assert type(getattr(found, key)) in (str, bool, int, float)
        with contextlib.suppress(a4p.Refused):
            client = a4p.Ntfy(found)
            assert all("\n" not in value and "\r" not in value for value in client.headers.values())
        push = a4p.Push(found, a4p.Sender("Ask"), samples.question("A", "B"))
        with contextlib.suppress(a4p.A4pError):
            a4p.encode(push.compose())
        found.save(priority=3)
        again = a4p.State(folder).config
        assert again.stored == {**found.stored, "priority": 3} and again.token == found.token


def entry(data: bytes) -> None:
    """A file in `pending/` is an entry or nothing; commands work whatever stands there."""
    with a_folder() as folder:
        state = a4p.State(folder)
        (Path(folder) / "pending").mkdir()
        (Path(folder) / "pending" / "k7.json").write_bytes(
            data.replace(b"HOST", socket.gethostname().encode()))
        (Path(folder) / "out").write_bytes(data)
        (Path(folder) / "a4p.log").write_bytes(data)
        a4p.read_out(folder)
        for one in [*state.pending.live(), *state.pending.entries()]:
            assert all(type(one[key]) is str for key in ("id", "tag", "title", "text"))
            int(one["deadline"])
        assert all(isinstance(one["closing"], dict) for one in state.pending.dead())
        state.log.line("x", data.decode("latin-1"))
        written = (Path(folder) / "a4p.log").read_bytes()[len(data):]
        assert written.decode().replace("\n", "").isprintable()


def store(data: bytes) -> None:
    """The server's file is read as far as it is one; what it kept it can tell."""
    with a_folder() as folder:
        path = str(Path(folder) / "serve.jsonl")
        Path(path).write_bytes(data)
        with a4p.Server(store=path) as server:
            for message in server.kept:
                for form in ("json", "sse", "raw"):
                    assert a4p.encoded(message, form).endswith(b"\n")
            new = a4p.new_message("message", "t", 9, message="new")
            server.keep(new)
            server.store(new[1])
        with a4p.Server(store=path) as again:
            assert again.kept == server.kept


class Served:
    """A server for raw requests: it answers or closes, says nothing of an inner error, and ends
    with as many threads as it began with."""

    def __init__(self) -> None:
        self.log: list[str] = []
        limits = type("Brisk", (a4p.Limits,), {
            "KEEPALIVE_SECONDS": 0.1, "HEAD_SECONDS": 3, "BODY_SECONDS": 3})
        self.threads = threading.active_count()
        self.server = a4p.Server(page=b"<script>1</script>", log=self.log.append, limits=limits)
        self.server.tcp.handle_error = self.failed

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *error: object) -> None:
        self.settle()
        self.server.__exit__()

    def failed(self, *about: object) -> None:
        """Note what ended a connection's thread, but for a client that left."""
        if not isinstance(sys.exc_info()[1], OSError):
            self.log.append(traceback.format_exc())

    def settle(self) -> None:
        """Wait until every connection's thread has ended."""
        limit = time.monotonic() + 15
        while threading.active_count() > self.threads + 1 or self.server.open:
            assert time.monotonic() < limit, f"threads: {threading.enumerate()}"
            time.sleep(0.01)
        assert not self.server.listeners

    def request(self, data: bytes) -> bytes:
        """Send these bytes and no more; what comes until it closes."""
        with socket.create_connection(("127.0.0.1", self.server.port), 10) as sock:
            with contextlib.suppress(ConnectionError):  # it may close before it has read all
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: sock.recv(65536), b""))
            return b""

    def check(self, data: bytes) -> None:
        """The property."""
        answer = self.request(data)
        assert answer[:9] in (b"", b"HTTP/1.1 ")
        assert self.log == [], self.log
        assert b'"healthy":true' in self.request(b"GET /v1/health HTTP/1.1\r\nHost: [::1]\r\n\r\n")


def http(data: bytes) -> None:
    """Any bytes on a socket."""
    with Served() as served:
        served.check(data)


def line(data: bytes) -> None:
    """Lines of a stream: no event, or one that a waiting question survives; the tap answers."""
    with a_folder() as folder, a4p.Server() as server:
        samples.write_config(Path(folder), server=server.url, timeout=20)
        state, ended = a4p.State(folder), threading.Event()
        with a4p.Conversation(state, a4p.Sender("Ask"), 20, lambda body: ended.set()) as talk:
            def answer() -> None:
                while not hasattr(talk, "pushed_at"):
                    time.sleep(0.005)
                text = data.replace(b"NOW", str(int(time.time())).encode())
                for event in filter(None, map(a4p.event_of, text.split(b"\n"))):
                    talk.inbox.events.put({**event, "via": 1})
                topic = samples.TOPIC + "-response"
                talk.inbox.events.put({"event": "message", "id": "theTap", "topic": topic, "via": 1,
                                       "time": 1 << 40, "title": talk.push.id, "message": "Memory"})
            with contextlib.suppress(AttributeError):
                del talk.pushed_at
            caught: list[Any] = []
            before, threading.excepthook = threading.excepthook, caught.append
            try:
                a4p.background(answer)
                outcome = talk.ask(samples.question("Redis", "Memory"))
            finally:
                threading.excepthook = before
        assert not caught, caught
        assert outcome.state in ("answered", "released")
        if outcome.state == "answered":
            assert set(outcome.selected) <= {"Redis", "Memory"}


class Spoken:
    """`a4p.py mcp` at a desk without page or phone: whatever comes, each line that it says is a
    message of the protocol, a ping after it is answered, and no error of its own is logged."""

    checks = 0

    def __enter__(self) -> Spoken:
        self.folder = tempfile.mkdtemp()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [sys.executable, a4p.__file__, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.errors, env={**os.environ, "A4P_HOME": self.folder})
        return self

    def __exit__(self, *error: object) -> None:
        with self.process as process:
            process.communicate(timeout=HANG)
        with self.errors:
            self.errors.seek(0)
            said = self.errors.read()
        shutil.rmtree(self.folder)
        assert (process.returncode, said) == (0, b"")

    def check(self, data: bytes) -> None:
        """The property."""
        self.checks += 1
        after = f"after {self.checks}"
        ping = json.dumps({"jsonrpc": "2.0", "method": "ping", "id": after}).encode()
        writer = a4p.background(lambda: self.write(data + b"\n" + ping + b"\n"))
        for line in iter(self.process.stdout.readline, b""):  # type: ignore[union-attr]
            message = samples.strict_json(line.decode())
            if message.get("id") == after:
                break
            self.check_message(message)
        else:
            raise AssertionError("it ended")
        writer.join()
        log = Path(self.folder) / "a4p.log"
        assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()

    def write(self, data: bytes) -> None:
        """Send these lines."""
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def check_message(self, message: Any) -> None:
        """A request of a form, a notification, a result or an error, with nothing else in it."""
        assert message.pop("jsonrpc") == "2.0"
        if "method" in message:
            assert message.pop("method") in ("elicitation/create", "notifications/progress",
                                             "notifications/cancelled")
            assert set(message) <= {"id", "params"}
        elif "error" in message:
            assert set(message) == {"id", "error"} and set(message["error"]) == {"code", "message"}
            assert -32768 <= message["error"]["code"] <= -32000
        else:
            assert set(message) == {"id", "result"} and type(message["id"]) in (str, int)
            value = message["result"].get("structuredContent", {})
            assert set(value) in (set(), {"sent"}, {"value", "reason"})
            assert all(type(text) in (str, bool, type(None)) for text in value.values())


def mcp(data: bytes) -> None:
    """Any bytes on an MCP server's stdin."""
    with Spoken() as spoken:
        spoken.check(data)


# name: (samples, property)
TARGETS: dict[str, tuple[list[bytes], Callable[[bytes], None]]] = {
    "stdin": (samples.CALL_BYTES, stdin), "reply": (samples.REPLY_BYTES, reply),
    "config": (samples.CONFIG_BYTES, config), "entry": (samples.ENTRY_BYTES, entry),
    "store": (samples.STORE_BYTES, store), "http": (samples.REQUEST_BYTES, http),
    "line": (samples.LINE_BYTES, line), "mcp": (samples.MCP_BYTES, mcp)}


# --- the mutator ------------------------------------------------------------

BITS = [b"", b"\0", b"\xff", b"\xed\xa0\x80", b"\r\n", b"\n", b"\r", b" ", b"\t", b'"', b"\\", b"{",
        b"}", b"[", b"]", b",", b":", b";", b"=", b"?", b"&", b"%", b"%00", b"%0a", b"/", b"..", b"-1",
        b"0", b"1e999", b"NaN", b"null", b"true", b"9" * 25, b"\\ud800", b"\\u0000", b"\x1b[2J",
        "③".encode(), "\u202e".encode(), b"k7 ", b"a" * 300, b" " * 300, b"[" * 300, b"HTTP/1.1",
        b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"=?utf-8?q?=ff?="]


def mutate(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """These bytes with a few of them changed, cut, doubled or taken from another sample."""
    found = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 3, 6])):
        at, length = chance.randrange(len(found) + 1), chance.choice([0, 1, 1, 2, 8, 40])
        kind = chance.randrange(6)
        if kind == 0 and at < len(found):
            found[at] = chance.randrange(256)
        elif kind == 1:
            found[at:at + length] = found[at:at + length] * chance.choice([0, 2, 3, 50])
        elif kind == 2:
            other = chance.choice(others)
            start = chance.randrange(len(other) + 1)
            found[at:at + length] = other[start:start + chance.choice([4, 20, 200])]
        else:
            found[at:at + length] = chance.choice(BITS)
    return bytes(found[:200_000])


def hung(number: int, frame: Any) -> None:
    """A signal handler: one input takes too long."""
    raise TimeoutError(f"over {HANG} s")


def main(seconds: float, seed: int, names: list[str]) -> int:
    """Mutate until the time is over; the status is 1 where anything crashed."""
    chance, end = random.Random(seed), time.monotonic() + seconds
    crashes: dict[str, int] = {}
    runs, spent = dict.fromkeys(names or TARGETS, 0), dict.fromkeys(names or TARGETS, 0.0)
    signal.signal(signal.SIGALRM, hung)
    print(f"seed {seed}", flush=True)
    with Served() as served, Spoken() as spoken:
        kept = {"http": served.check, "mcp": spoken.check}  # one server each, for all inputs
        while time.monotonic() < end:
            name = min(spent, key=lambda one: spent[one])
            seeds, check = TARGETS[name]
            data = mutate(chance.choice(seeds), seeds, chance)
            runs[name] += 1
            began = time.monotonic()
            signal.alarm(HANG)
            try:
                kept.get(name, check)(data)
            except Exception as error:
                served.log.clear()
                where = traceback.extract_tb(error.__traceback__)[-1]
                key = f"{name}: {type(error).__name__} at {where.name}:{where.lineno}"
                crashes[key] = crashes.get(key, 0) + 1
                if crashes[key] == 1:
                    traceback.print_exception(type(error), error, error.__traceback__)
                    print(f"CRASH {key}\n  input: {data!r}", flush=True)
            finally:
                signal.alarm(0)
                spent[name] += time.monotonic() - began
    print(f"runs: {runs}\ncrashes: {crashes or 'none'}")
    return 1 if crashes else 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(float(words[0] if words else 600),
                  int(os.environ.get("FUZZ_SEED") or time.time()), words[1:]))
