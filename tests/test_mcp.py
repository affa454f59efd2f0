"""`a4p.py mcp`: ask_user for every MCP client, over real pipes, with a phone and with the SDK."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import a4p
from conftest import SOON
from homes import A4P, PROMPT, Home
from phones import Phone

SDK = sys.version_info >= (3, 10)
# On Python 3.9 the tests marked so are skipped, and no message is held against the schema; all
# others run there too.
sdk = pytest.mark.skipif(not SDK, reason="the official MCP SDK (mcp 2.3) needs Python 3.10")

Message = dict[str, Any]

HANDSHAKES = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
FORM: Message = {"elicitation": {"form": {}}}
ASK: Message = {"title": "Which database?", "description": "For the shop.", "options": [
    {"value": "pg", "label": "PostgreSQL", "priority": "high"},
    {"value": "lite", "label": "SQLite", "danger": True}]}


class Client:
    """A client on the pipes of one server: it checks, keeps and hands out what the server says."""

    def __init__(self, version: str = HANDSHAKES[-1], capabilities: Message | None = None,
                 tweak: str = "") -> None:
        program = [str(A4P), "mcp"] if not tweak else [
            "-c", f"import sys; sys.path.insert(0, {str(A4P.parent)!r}); import a4p; {tweak}; "
            "sys.exit(a4p.main(['mcp']))"]
        self.process = subprocess.Popen([sys.executable, *program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.version = version
        self.messages: list[Message] = []
        self.faults: list[object] = []  # what was no message of the protocol
        self._methods: dict[object, str] = {}  # of the requests, by id
        self._forms = 0  # that were seen
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.greeting = self.result(self.request(
            "initialize", protocolVersion=version, capabilities=capabilities or {},
            clientInfo={"name": "tests", "title": "Tester", "version": "1"}))
        self.send({"method": "notifications/initialized"})

    def send(self, message: Message | bytes) -> None:
        """Write a message, or a line as it is."""
        assert self.process.stdin
        if not isinstance(message, bytes):
            message = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(message + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, **params: object) -> int:
        """Send a request; give its id."""
        key = len(self._methods) + 1
        self._methods[key] = method
        self.send({"id": key, "method": method, "params": params})
        return key

    def call(self, tool: str = "ask_user", **params: object) -> int:
        """Call a tool; give the id."""
        return self.request("tools/call", name=tool, arguments=params)

    def ask(self, **changes: object) -> int:
        """Call ask_user as in ASK, but for `changes`; give the id."""
        return self.call(**{**ASK, **changes})

    def find(self, timeout: float = SOON, **part: object) -> Message:
        """Wait for a message with these members."""
        def look() -> list[Message]:
            return [one for one in self.messages if part.items() <= one.items()]

        with self._news:
            assert self._news.wait_for(look, timeout), (part, self.messages[-5:])
            return look()[0]

    def result(self, key: int, timeout: float = SOON) -> Message:
        """Wait for the result of a request."""
        answer = self.find(timeout, id=key)
        assert "result" in answer, answer
        return dict(answer["result"])

    def told(self, key: int, timeout: float = SOON) -> Message:
        """Wait for what a tool tells, the same as text and structured."""
        result = self.result(key, timeout)
        assert not result.get("isError"), result
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
        return dict(result["structuredContent"])

    def failed(self, key: int) -> str:
        """Wait for a tool's error; give its text."""
        result = self.result(key)
        assert result["isError"] and "structuredContent" not in result, result
        return str(result["content"][0]["text"])

    def error(self, key: object, timeout: float = SOON) -> int:
        """Wait for a request's error; give its code."""
        return int(self.find(timeout, id=key)["error"]["code"])

    def form(self) -> str:
        """Wait for the next form; give its id."""
        self._forms += 1

        def look() -> list[str]:
            return [message["id"] for message in self.messages
                    if message.get("method") == "elicitation/create"][self._forms - 1:]

        with self._news:
            assert self._news.wait_for(look, SOON), self.messages[-5:]
            return look()[0]

    def ping(self) -> None:
        """The server lives, and nothing that came before is still to be answered at once."""
        assert self.result(self.request("ping")) == {}

    def close(self) -> None:
        """Close stdin; the server ends by itself, silent on stderr."""
        assert self.process.stdin and self.process.stderr
        self.process.stdin.close()
        assert self.process.wait(SOON) == 0
        assert self.process.stderr.read() == b""

    def end(self) -> None:
        """Take everything down; raise where the server said what is not in the protocol."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe and not pipe.closed and pipe is not self.process.stdin:
                pipe.close()
        assert not self.faults

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            with self._news:
                try:
                    message = json.loads(line.decode())
                    assert message["jsonrpc"] == "2.0"
                    self._check(line, message)
                    self.messages.append(message)
                except Exception as error:  # shown by `end`
                    self.faults.append((line, error))
                self._news.notify_all()

    def _check(self, line: bytes, message: Message) -> None:
        """Against the published schema of the protocol, which the SDK's models are made from."""
        if not SDK:
            return
        from mcp_types import jsonrpc, methods  # here, as each worker would load a second's worth

        jsonrpc.jsonrpc_message_adapter.validate_json(line)
        method, version = message.get("method"), self.version
        if "result" in message:
            methods.parse_server_result(self._methods[message["id"]], version, message["result"])
        elif method and "id" in message:
            methods.parse_server_request(method, version, message["params"])
        elif method:
            methods.parse_server_notification(method, version, message["params"])


@pytest.fixture
def client(home: Home) -> Iterator[Callable[..., Client]]:
    """Start a server and a client on it."""
    clients: list[Client] = []

    def start(*args: Any, **kwargs: Any) -> Client:
        clients.append(Client(*args, **kwargs))
        return clients[-1]

    yield start
    for one in clients:
        one.end()


Start = Callable[..., Client]


def desk(home: Home) -> None:
    """The person is at the desk."""
    (home.path / "out").unlink()


# === The answer ===============================================================


def test_a_tap_gives_the_value_of_the_label(client: Start, phone: Phone) -> None:
    one = client()
    key = one.ask()
    push = phone.push()
    assert push["title"] == "Tester: Which database?"
    assert push["message"].startswith("For the shop.\n\n1. PostgreSQL\n2. SQLite")
    phone.tap(push, 1)
    assert one.told(key) == {"value": "lite", "reason": None}
    assert "SQLite" in phone.replaced(push)["message"]


@pytest.mark.parametrize("typed, value, reason", [
    ("2", "lite", None), ("postgresql", "pg", None), ("neither, use 3 files", None,
                                                     "neither, use 3 files")])
def test_a_typed_reply_is_an_option_or_words(client: Start, phone: Phone, typed: str,
                                             value: str | None, reason: str | None) -> None:
    one = client()
    key = one.ask()
    phone.push()
    phone.type(typed)
    assert one.told(key) == {"value": value, "reason": reason}


def test_without_custom_input_words_are_asked_back_and_never_returned(
        client: Start, phone: Phone) -> None:
    one = client()
    key = one.ask(allowCustomInput=False)
    phone.push()
    for turn in (1, 2):
        phone.type("neither")
        if turn == 1:
            assert "only the list counts" in phone.push(1)["message"]
    one.ping()
    assert not [message for message in one.messages if message.get("id") == key]
    phone.type("1")
    assert one.told(key) == {"value": "pg", "reason": None}


def test_priority_and_danger_reach_the_answer_page(client: Start, phone: Phone) -> None:
    one = client()
    one.ask()
    push = phone.push()
    assert push.get("a4p", {"options": None})["options"] in (None, [
        {"label": "PostgreSQL", "priority": "high"},
        {"label": "SQLite", "priority": "medium", "danger": True}])
    assert ("a4p" in push) == ("click" in push)  # a4p's own server, and no other


def test_a_description_that_is_json_is_shown_readable(client: Start, phone: Phone) -> None:
    one = client()
    one.ask(description='{"table": "orders", "columns": ["id", {"name": "total"}], "drop": null}')
    assert phone.push()["message"].startswith(
        "table: orders\ncolumns.1: id\ncolumns.2.name: total\ndrop: null\n\n1. PostgreSQL")


def test_a_title_that_the_push_would_cut_stands_in_its_text(client: Start, phone: Phone) -> None:
    one = client()
    one.ask(title="Which? " * 60, description="Because.")
    push = phone.push()
    assert push["title"] == "Tester: Question"
    assert push["message"].startswith("Which? " * 60 + "\n\nBecause.")


def test_without_a_description_the_title_is_the_text(client: Start, phone: Phone) -> None:
    one = client()
    one.ask(description="")
    push = phone.push()
    assert (push["title"], push["message"][:15]) == ("Tester: Question", "Which database?")


def test_nobody_answers_in_time(client: Start, home: Home, phone: Phone) -> None:
    home.configure(mcp_timeout=1)
    one = client()
    key = one.ask()
    push = phone.push()
    assert one.told(key) == {"value": None, "reason": "timeout"}
    phone.replaced(push)


def test_the_wait_of_the_mode_out_counts(client: Start, home: Home, phone: Phone) -> None:
    home.run("out", "--wait", "1s")
    one = client()
    assert one.told(one.ask()) == {"value": None, "reason": "timeout"}


@pytest.mark.parametrize("give_back", [
    lambda home, phone: home.run("home"), lambda home, phone: phone.type("desk")])
def test_a_question_given_back_is_cancelled(client: Start, home: Home, phone: Phone,
                                            give_back: Callable[[Home, Phone], None]) -> None:
    one = client()
    key = one.ask()
    push = phone.push()
    give_back(home, phone)
    assert one.told(key) == {"value": None, "reason": "cancelled"}
    phone.replaced(push)


# === At the desk ==============================================================


def test_at_the_desk_the_clients_own_form_asks(client: Start, home: Home, phone: Phone) -> None:
    desk(home)
    one = client(capabilities=FORM)
    key = one.ask()
    asked = one.find(method="elicitation/create")
    assert asked["params"]["message"] == "Which database?\n\nFor the shop."
    fields = asked["params"]["requestedSchema"]["properties"]
    assert fields["option"]["enum"] == ["PostgreSQL", "SQLite"]
    one.send({"id": asked["id"], "result": {"action": "accept", "content": {"option": "SQLite"}}})
    assert one.told(key) == {"value": "lite", "reason": None}
    assert not phone.pushes


FORMS: list[tuple[Message, str | None, str | None]] = [
    ({"action": "accept", "content": {"custom": "use files"}}, None, "use files"),
    ({"action": "accept", "content": {"custom": "2"}}, None, "2"),  # its list has no numbers
    ({"action": "accept", "content": {"option": "SQLite", "custom": "WAL"}}, "lite", "WAL"),
    ({"action": "accept", "content": {"option": "MySQL"}}, None, "cancelled"),
    ({"action": "accept", "content": {"option": None, "custom": " "}}, None, "cancelled"),
    ({"action": "accept", "content": ["SQLite"]}, None, "cancelled"),
    ({"action": "accept"}, None, "cancelled"),
    ({"action": "decline"}, None, "cancelled"),
    ({"action": "cancel"}, None, "cancelled"),
]


def test_what_a_form_comes_back_with(client: Start, home: Home) -> None:
    desk(home)
    one = client(capabilities={"elicitation": {}})
    for form, value, reason in FORMS:
        key = one.ask()
        one.send({"id": one.form(), "result": form})
        assert one.told(key) == {"value": value, "reason": reason}, form


def test_without_custom_input_the_form_has_no_field_for_words(client: Start, home: Home) -> None:
    desk(home)
    one = client(capabilities=FORM)
    key = one.ask(allowCustomInput=False)
    asked = one.find(method="elicitation/create")
    schema = asked["params"]["requestedSchema"]
    assert (list(schema["properties"]), schema["required"]) == (["option"], ["option"])
    one.send({"id": asked["id"], "result": {"action": "accept", "content": {"custom": "neither"}}})
    assert one.told(key) == {"value": None, "reason": "cancelled"}


def test_a_client_that_cannot_show_the_form_after_all_is_no_client(
        client: Start, home: Home) -> None:
    desk(home)
    one = client(capabilities=FORM)
    key = one.ask()
    one.send({"id": one.find(method="elicitation/create")["id"],
              "error": {"code": -32601, "message": "no forms"}})
    assert one.told(key) == {"value": None, "reason": "no_client"}


def test_a_form_that_nobody_fills_is_taken_away(client: Start, home: Home) -> None:
    home.configure(mcp_timeout=1)
    desk(home)
    one = client(capabilities=FORM)
    key = one.ask()
    asked = one.find(method="elicitation/create")
    assert one.told(key) == {"value": None, "reason": "timeout"}
    assert one.find(method="notifications/cancelled")["params"]["requestId"] == asked["id"]


def test_out_means_the_phone_even_where_there_are_forms(
        client: Start, home: Home, phone: Phone) -> None:
    one = client(capabilities=FORM)
    key = one.ask()
    push = phone.push()
    home.run("home")  # and coming home gives it to the desk
    asked = one.find(method="elicitation/create")
    phone.replaced(push)
    one.send({"id": asked["id"], "result": {"action": "accept", "content": {"option": "SQLite"}}})
    assert one.told(key)["value"] == "lite"


def test_a_push_that_is_refused_goes_to_the_form_or_has_no_client(
        client: Start, home: Home) -> None:
    home.configure(server="http://127.0.0.1:1")
    one = client()
    assert one.told(one.ask()) == {"value": None, "reason": "no_client"}
    two = client(capabilities=FORM)
    two.ask()
    two.find(method="elicitation/create")


def test_at_the_desk_the_answer_page_of_serve_asks(client: Start, home: Home) -> None:
    desk(home)
    with a4p.Server("127.0.0.1", 0) as server:
        home.configure(server=server.url)
        page = Phone(server.url, home.config["topic"])
        one = client(capabilities={"elicitation": {"url": {}}})  # which is no form
        key = one.ask()
        page.tap(page.push(), 0)
        assert one.told(key) == {"value": "pg", "reason": None}
        page.close()


class OtherServer(BaseHTTPRequestHandler):
    """Opens streams as ntfy does, and takes no push: it would be an error."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"id":"a","time":1,"event":"open","topic":"t"}\n')

    def log_message(self, *_: object) -> None:
        """Silent."""


def test_at_the_desk_nobody_is_asked_through_another_server(client: Start, home: Home) -> None:
    desk(home)
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherServer) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        home.configure(server=f"http://127.0.0.1:{server.server_address[1]}")
        one = client()
        began = time.monotonic()
        assert one.told(one.ask()) == {"value": None, "reason": "no_client"}
        assert time.monotonic() - began < a4p.OPEN_WAIT
        server.shutdown()


@pytest.mark.parametrize("broken", [{"server": "http://127.0.0.1:1"}, {"topic": ""}])
def test_at_the_desk_without_form_and_page_there_is_no_client_at_once(
        client: Start, home: Home, broken: Message) -> None:
    desk(home)
    home.configure(**broken)
    one = client()
    assert one.told(one.ask(), PROMPT) == {"value": None, "reason": "no_client"}


def test_a_broken_config_is_an_error_that_says_so(client: Start, home: Home) -> None:
    home.configure(priority=9)
    one = client()
    assert "priority must be 1 to 5" in one.failed(one.ask())


# === notify_user ==============================================================


@pytest.mark.parametrize("mode", ["out", "home"])
def test_notify_user_is_a_push_in_either_mode(client: Start, home: Home, phone: Phone,
                                              mode: str) -> None:
    home.run(mode)
    one = client()
    assert one.told(one.call("notify_user", message="Build done")) == {"sent": True}
    assert (phone.push()["title"], phone.push()["message"]) == ("Tester", "Build done")
    one.call("notify_user", message="and tested", title="CI")
    assert phone.push(1)["title"] == "CI"
    assert "actions" not in phone.push(1)


def test_a_notice_that_is_not_delivered_is_an_error(client: Start, home: Home) -> None:
    home.configure(server="http://127.0.0.1:1")
    one = client()
    assert "cannot be reached" in one.failed(one.call("notify_user", message="x"))


# === Wrong calls ==============================================================

OPTION = ASK["options"][0]


WRONG: list[tuple[Message, str]] = [
    ({"title": 3}, "title: 3 does not fit {'type': 'string'"),
    ({"title": ""}, "title: '' does not fit {'type': 'string', 'minLength': 1"),
    ({"description": ["x"]}, "description: ['x'] does not fit {'type': 'string'"),
    ({"description": "x" * 20_001}, "'maxLength': 20000}"),
    ({"options": []}, "options: [] does not fit {'type': 'array', 'minItems': 1, 'maxItems': 50"),
    ({"options": [OPTION] * 51}, "'maxItems': 50"),
    ({"options": "A"}, "options: 'A' does not fit {'type': 'array'"),
    ({"options": ["A"]}, "options[0]: 'A' does not fit {'type': 'object'"),
    ({"options": [OPTION, {"value": "x"}]}, "options[1].label: None does not fit"),
    ({"options": [{"label": "x"}]}, "options[0].value: None does not fit"),
    ({"options": [{**OPTION, "value": 3}]}, "options[0].value: 3 does not fit {'type': 'string'"),
    ({"options": [{**OPTION, "priority": "urgent"}]},
     "options[0].priority: 'urgent' does not fit {'type': 'string', "
     "'enum': ['high', 'medium', 'low']"),
    ({"options": [{**OPTION, "danger": "no"}]},
     "options[0].danger: 'no' does not fit {'type': 'boolean'"),
    ({"options": [OPTION, {**OPTION, "value": "x"}]}, "options: two labels are the same"),
    ({"allowCustomInput": 0}, "allowCustomInput: 0 does not fit {'type': 'boolean'"),
    ({"allow_custom_input": False}, "allow_custom_input: is no field of it"),
]


def test_a_wrong_call_says_which_field_and_why(client: Start, phone: Phone) -> None:
    one = client()
    for changes, fault in WRONG:
        assert fault in one.failed(one.ask(**changes))
    assert not phone.pushes


def test_what_must_be_there(client: Start) -> None:
    one = client()
    for missing in ("title", "description", "options"):
        given = {key: value for key, value in ASK.items() if key != missing}
        assert f"{missing}: None does not fit" in one.failed(one.call(**given))
    for arguments in ([], None, "x"):
        key = one.request("tools/call", name="ask_user", arguments=arguments)
        assert re.search(r"arguments: .* does not fit {'type': 'object'", one.failed(key))


# === The protocol =============================================================


def test_the_handshake_settles_on_a_version(client: Start) -> None:
    one = client()
    for asked in [*HANDSHAKES, "1999-12-31", "2026-07-28", "2099-01-01", 3, None]:
        key = one.request("initialize", protocolVersion=asked, capabilities={},
                          clientInfo={"name": "x", "version": "1"})
        spoken = asked if asked in HANDSHAKES else HANDSHAKES[-1]
        assert one.result(key)["protocolVersion"] == spoken
    assert one.greeting["serverInfo"] == {"name": "a4p", "version": a4p.VERSION}
    assert "tools" in one.greeting["capabilities"]


@pytest.mark.parametrize("version", HANDSHAKES)
def test_each_version_of_the_handshake_asks(client: Start, phone: Phone, version: str) -> None:
    one = client(version)
    one.result(one.request("tools/list"))
    key = one.ask()
    phone.tap(phone.push(), 0)
    assert one.told(key)["value"] == "pg"


def test_two_tools_with_their_schemas(client: Start) -> None:
    one = client()
    tools = {tool["name"]: tool for tool in one.result(one.request("tools/list"))["tools"]}
    assert list(tools) == ["ask_user", "notify_user"]
    ask = tools["ask_user"]
    assert ask["inputSchema"]["required"] == ["title", "description", "options"]
    assert ask["inputSchema"]["properties"]["allowCustomInput"]["default"] is True
    assert ask["inputSchema"]["properties"]["options"]["items"]["properties"]["priority"] == {
        "type": "string", "enum": ["high", "medium", "low"], "default": "medium"}
    assert ask["outputSchema"]["required"] == ["value", "reason"]


NO_JSON = [b"no json", b"{", b'{"jsonrpc": "2.0", "id": 1, "method": "ping"} x', b"\xff\xfe",
           b"[" * 90_000]
NO_REQUEST = [
    b"3", b'"ping"', b"null", b"{}", b"[1]", b'[[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]]',
    b'{"id": 9, "method": "ping"}', b'{"jsonrpc": "1.0", "id": 9, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": [9], "method": "ping"}']


@pytest.mark.parametrize("code, lines", [(-32700, NO_JSON), (-32600, NO_REQUEST)])
def test_what_is_no_json_or_no_request_is_refused_without_id(
        client: Start, code: int, lines: list[bytes]) -> None:
    one = client()
    for count, line in enumerate(lines, 1):
        one.send(line)
        one.ping()
        refused = [message["error"]["code"] for message in one.messages if "error" in message]
        assert refused == [code] * count, line


REFUSED: list[tuple[str, Any, int]] = [
    ("prompts/list", {}, -32601), ("", {}, -32601),
    ("tools/call", {"name": "rm", "arguments": {}}, -32602), ("tools/call", {}, -32602),
    ("tools/call", {"name": ["ask_user"]}, -32602), ("tools/call", [1], -32602),
    (["ping"], {}, -32601), ("notifications/cancelled", {"requestId": 1}, -32601)]


def test_what_the_server_does_not_have_is_refused(client: Start) -> None:
    one = client()
    for number, (method, params, code) in enumerate(REFUSED):
        one.send({"id": f"x{number}", "method": method, "params": params})
        assert one.error(f"x{number}") == code, (method, params)
    one.ping()


def test_notifications_and_stray_answers_are_never_answered(client: Start) -> None:
    one = client()
    before = len(one.messages)
    for method in ("notifications/initialized", "notifications/unknown", "tools/call", "ping"):
        one.send({"method": method, "params": {}})
    for params in ({"requestId": 99}, {"requestId": [1]}, {}, [], None, "x"):
        one.send({"method": "notifications/cancelled", "params": params})
    one.send({"id": "nobody-asked", "result": {}})
    one.send({"id": 1, "error": {"code": 1, "message": "x"}})
    one.send(b"")
    one.ping()
    assert len(one.messages) == before + 1


def test_a_batch_is_answered_one_by_one(client: Start) -> None:
    one = client("2025-03-26")
    ids = [one.request("ping"), one.request("ping")]
    one._methods.update({"a": "ping", "b": "tools/list"})
    one.send(json.dumps([{"jsonrpc": "2.0", "id": "a", "method": "ping"}, 5,
                         {"jsonrpc": "2.0", "method": "notifications/initialized"},
                         {"jsonrpc": "2.0", "id": "b", "method": "tools/list"}]).encode())
    assert [one.result(key) for key in (*ids, "a")] == [{}, {}, {}]  # type: ignore[arg-type]
    assert one.error(None) == -32600
    one.find(id="b")


# === Waiting ==================================================================


def test_calls_wait_side_by_side(client: Start, phone: Phone) -> None:
    one = client()
    keys = {one.ask(description=name): name for name in ("first", "second", "third")}
    pushes = {push["message"].split("\n")[0]: push for push in map(phone.push, range(3))}
    for key, name in reversed(list(keys.items())):
        phone.tap(pushes[name], 1 if name == "second" else 0)
        assert one.told(key)["value"] == ("lite" if name == "second" else "pg")


def test_progress_is_told_to_those_who_want_it(client: Start, phone: Phone) -> None:
    one = client(tweak="a4p.MCP_PROGRESS = 0.3")
    one.ask()  # without a token
    key = one.request("tools/call", name="ask_user", arguments={**ASK, "description": "Two."},
                      _meta={"progressToken": "t"})
    pushes = {push["message"][:4]: push for push in map(phone.push, range(2))}
    one.find(method="notifications/progress")
    phone.tap(pushes["Two."], 0)
    one.told(key)
    told = [message["params"] for message in one.messages if "progressToken" in
            message.get("params", {})]
    assert {params["progressToken"] for params in told} == {"t"}
    assert [params["progress"] for params in told] == sorted(p["progress"] for p in told)
    assert one.messages[-1]["id"] == key  # nothing after the answer


def test_a_form_has_progress_too(client: Start, home: Home) -> None:
    desk(home)
    one = client(capabilities=FORM, tweak="a4p.MCP_PROGRESS = 0.2")
    one.request("tools/call", name="ask_user", arguments=ASK, _meta={"progressToken": 5})
    assert one.find(method="notifications/progress")["params"]["progressToken"] == 5


def test_a_cancelled_call_is_withdrawn_and_not_answered(client: Start, phone: Phone) -> None:
    one = client()
    kept, key = one.ask(), one.ask(description="Cancelled.")
    pushes = {push["message"].split("\n")[0]: push for push in map(phone.push, range(2))}
    one.send({"method": "notifications/cancelled", "params": {"requestId": key, "reason": "x"}})
    assert "ithdrawn" in phone.replaced(pushes["Cancelled."], PROMPT)["message"]
    phone.tap(pushes["For the shop."], 0)
    assert one.told(kept)["value"] == "pg"
    assert not [message for message in one.messages if message.get("id") == key]


def test_cancelling_takes_the_form_away(client: Start, home: Home) -> None:
    desk(home)
    one = client(capabilities=FORM)
    key = one.ask()
    asked = one.find(method="elicitation/create")
    one.send({"method": "notifications/cancelled", "params": {"requestId": key}})
    one.find(method="notifications/cancelled", params={"requestId": asked["id"]})


@pytest.mark.parametrize("leave", [
    lambda one: one.close(), lambda one: one.process.send_signal(signal.SIGTERM),
    lambda one: one.process.send_signal(signal.SIGINT)])
def test_at_the_end_all_is_withdrawn(client: Start, home: Home, phone: Phone,
                                     leave: Callable[[Client], None]) -> None:
    one = client()
    keys = [one.ask(description=f"Question {n}.") for n in range(5)]
    pushes = [phone.push(n) for n in range(5)]
    leave(one)
    assert one.process.wait(PROMPT) == 0
    for push in pushes:
        assert "ithdrawn" in phone.replaced(push, PROMPT)["message"]
    assert not [message for message in one.messages if message.get("id") in keys]


def test_killed_and_started_again(client: Start, phone: Phone) -> None:
    one = client()
    one.ask()
    push = phone.push()
    one.process.kill()
    one.process.wait()
    two = client()
    assert "No longer waiting" in phone.replaced(push)["message"]
    key = two.ask()
    phone.tap(phone.push(1), 1)
    assert two.told(key)["value"] == "lite"


# === Limits ===================================================================


def test_a_message_of_10_mb_is_answered_by_its_id(client: Start) -> None:
    one = client()
    key = one.ask(description="x" * 10_500_000)
    assert "description: 'xxx" in one.failed(key)
    one.ping()


def test_a_longer_line_than_allowed_is_an_error_and_the_next_one_is_fine(client: Start) -> None:
    one = client()
    one.send(b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "' + b"y" * (3 << 24) + b'"}')
    assert one.error(None) == -32700
    one.ping()


def test_of_a_thousand_calls_some_wait_and_the_rest_are_refused(
        client: Start, home: Home, phone: Phone) -> None:
    desk(home)
    one = client(capabilities=FORM)
    keys = [one.ask() for _ in range(1000)]
    one.ping()
    refused = [message for message in one.messages if "error" in message]
    assert len(refused) == len(keys) - a4p.MCP_CALLS
    assert {message["error"]["code"] for message in refused} == {-32000}
    assert f"{a4p.MCP_CALLS} calls wait" in refused[0]["error"]["message"]
    asked = [message for message in one.messages if message.get("method") == "elicitation/create"]
    for message in asked:
        one.send({"id": message["id"], "result": {"action": "decline"}})
    for key in keys[: a4p.MCP_CALLS]:
        assert one.told(key)["reason"] == "cancelled"
    one.ask()  # there is room again
    one.close()


def test_a_client_may_write_a_thousand_calls_before_it_reads(home: Home) -> None:
    process = subprocess.Popen([sys.executable, str(A4P), "mcp"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    assert process.stdin and process.stdout
    with process:
        for key in range(1000):
            process.stdin.write(json.dumps({
                "jsonrpc": "2.0", "id": key, "method": "tools/call",
                "params": {"name": "notify", "arguments": {"message": "x" * 200}}}).encode() + b"\n")
        process.stdin.close()
        answers = [json.loads(line) for line in process.stdout]
        assert process.wait(SOON) == 0
    assert sorted(answer["id"] for answer in answers) == list(range(1000))
    assert {answer["error"]["code"] for answer in answers} == {-32602}


def test_an_id_that_waits_already_is_refused(client: Start, phone: Phone) -> None:
    one = client()
    key = one.ask()
    phone.push()
    one.send({"id": key, "method": "tools/call", "params": {"name": "ask_user", "arguments": ASK}})
    assert one.error(key) == -32000


# === The official SDK's client ================================================

def sdk_client(home: Home, mode: str, script: Path = A4P, **options: Any) -> Any:
    """The SDK's client, on a server of its own."""
    from mcp import Client as SdkClient
    from mcp import StdioServerParameters

    server = StdioServerParameters(command=sys.executable, args=[str(script), "mcp"],
                                   env={"A4P_HOME": str(home.path)})
    return SdkClient(server, mode=mode, **options)


# "auto" tries the revision of 2026, which has no handshake, and falls back to the handshake
both = pytest.mark.parametrize("mode", ["legacy", "auto"])


@sdk
@both
def test_sdk_lists_calls_and_gets_structured_content(home: Home, phone: Phone, mode: str) -> None:
    import mcp

    async def talk() -> None:
        async with sdk_client(home, mode) as one:
            assert one.session.protocol_version == HANDSHAKES[-1]
            assert [tool.name for tool in (await one.list_tools()).tools] == ["ask_user",
                                                                               "notify_user"]
            calls = [asyncio.create_task(one.call_tool("ask_user", {**ASK, "description": name}))
                     for name in ("first", "second")]
            pushes = [await asyncio.to_thread(phone.push, n) for n in (0, 1)]
            for push in pushes:
                phone.tap(push, 0 if push["message"].startswith("first") else 1)
            results = await asyncio.gather(*calls)
            assert [result.structured_content["value"] for result in results] == ["pg", "lite"]
            wrong = await one.call_tool("ask_user", {**ASK, "options": []})
            assert wrong.is_error
            with pytest.raises(mcp.MCPError):
                await one.call_tool("ask_users", {})

    asyncio.run(talk())


@sdk
@both
def test_sdk_cancels(home: Home, phone: Phone, mode: str) -> None:
    async def talk() -> None:
        async with sdk_client(home, mode) as one:
            call = asyncio.create_task(one.call_tool("ask_user", ASK))
            push = await asyncio.to_thread(phone.push)
            call.cancel()
            assert "ithdrawn" in (await asyncio.to_thread(phone.replaced, push, PROMPT))["message"]
            await one.list_tools()

    asyncio.run(talk())


@sdk
@both
def test_sdk_shows_its_form(home: Home, mode: str) -> None:
    from mcp_types import ElicitResult

    desk(home)

    async def fill(context: object, params: Any) -> Any:
        assert params.requested_schema["properties"]["option"]["enum"] == ["PostgreSQL", "SQLite"]
        return ElicitResult(action="accept", content={"option": "SQLite"})

    async def talk() -> None:
        async with sdk_client(home, mode, elicitation_callback=fill) as one:
            result = await one.call_tool("ask_user", ASK)
            assert result.structured_content == {"value": "lite", "reason": None}

    asyncio.run(talk())


@sdk
@both
def test_sdk_hears_progress(home: Home, phone: Phone, mode: str, tmp_path: Path) -> None:
    quick = tmp_path / "quick.py"
    quick.write_text(f"import sys; sys.path.insert(0, {str(A4P.parent)!r})\n"
                     "import a4p; a4p.MCP_PROGRESS = 0.3\nsys.exit(a4p.main(['mcp']))\n")
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        if len(heard) == 2:
            phone.tap(phone.push(), 0)

    async def talk() -> None:
        async with sdk_client(home, mode, quick) as one:
            result = await one.call_tool("ask_user", ASK, progress_callback=hear)
            assert result.structured_content["value"] == "pg"

    asyncio.run(talk())
    assert len(heard) >= 2
