"""The client's HTTP: chunks of any size, answers that are cut, proxies, headers that stay apart."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import a4p
from samples import config

Answer = Callable[["Scripted"], None]
BODY = {"topic": "t", "message": "hé"}


class Scripted(http.server.BaseHTTPRequestHandler):
    """Answers as the test says, and notes what was asked."""

    protocol_version = "HTTP/1.1"
    answer: Answer
    asked: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        """Note and answer."""
        self.asked.append((self.path, dict(self.headers)))
        self.close_connection = True
        type(self).answer(self)

    do_POST = do_GET

    def send(self, data: bytes, **headers: str) -> None:
        """A head with these headers, and the bytes as they are."""
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """A server that answers so; gives its host and what it was asked."""
    kind = type("Kind", (Scripted,), {"answer": staticmethod(answer), "asked": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", kind.asked  # type: ignore[attr-defined]
        server.shutdown()


def client(server: str, **values: Any) -> a4p.Ntfy:
    return a4p.Ntfy(config(server=server, **values))


def line(**fields: Any) -> bytes:
    """An event as a server sends it."""
    event = {"id": "abcdefghijkl", "time": 1, "event": "message", "topic": "t", **fields}
    return json.dumps(event).encode() + b"\n"


def chunked(data: bytes, size: int) -> bytes:
    """The data in chunks of so many bytes."""
    parts = [data[at: at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_chunks_of_any_size_are_one_answer(size: int) -> None:
    data = chunked(line(message="hé"), size) + b"0\r\n\r\n"
    with serving(lambda one: one.send(data, Transfer_Encoding="chunked")) as (host, _):
        assert client(f"http://{host}").publish(BODY)["message"] == "hé"


@pytest.mark.parametrize(("data", "headers"), [
    (chunked(line(message="x"), 50), {"Transfer_Encoding": "chunked"}),  # without the last chunk
    (b"fff\r\n" + line(message="x"), {"Transfer_Encoding": "chunked"}),
    (chunked(line(message="x"), 50) + b"0", {"Transfer_Encoding": "chunked"}),  # 0? 0a? 0fff?
    (line(message="x"), {"Content_Length": "5000"})],
    ids=["no end", "in a chunk", "in a size", "length"])
def test_a_poll_that_is_cut_is_no_poll(data: bytes, headers: dict[str, str]) -> None:
    with serving(lambda one: one.send(data, **headers)) as (host, _), \
            pytest.raises(a4p.Refused) as error:
        list(client(f"http://{host}").poll(["t"], "all"))
    assert error.value.key == "no_network"


@pytest.mark.parametrize("head", [
    b"HTTP/1.1 200 OK\r\nContent-Ty", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n",
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200", b""])
def test_an_answer_that_is_cut_in_its_head_is_none(head: bytes) -> None:
    with serving(lambda one: one.wfile.write(head) and None) as (host, _), \
            pytest.raises(a4p.Refused) as error:
        client(f"http://{host}").poll(["t"], "all")
    assert error.value.key == "no_network"


def test_a_publish_whose_answer_is_cut_is_not_taken_for_one() -> None:
    """The event is whole, the answer is not: more was to come."""
    with serving(lambda one: one.send(line(), Content_Length="5000")) as (host, _), \
            pytest.raises(a4p.Refused) as error:
        client(f"http://{host}").publish(BODY)
    assert error.value.key == "no_network"


def test_what_stands_behind_a_flood_is_found_by_a_poll() -> None:
    flood = line(message="x" * 4000) * 5000  # 20 MB
    with serving(lambda one: one.send(flood + line(message="y"))) as (host, _):
        *_, last = client(f"http://{host}").poll(["t"], "all")
    assert last["message"] == "y"


def test_a_stream_that_is_closed_here_ends_in_silence() -> None:
    def answer(one: Scripted) -> None:
        one.send(chunked(line(event="open"), 50), Transfer_Encoding="chunked")
        one.rfile.read()  # until the client goes

    with serving(answer) as (host, _):
        stream = client(f"http://{host}").stream(["t"])
        assert [(event["event"], stream.close()) for event in stream] == [("open", None)]


def test_an_overlong_line_is_left_out_of_a_stream_and_no_more() -> None:
    data = (line(event="open") + line(message="x" * (a4p.LINE_LIMIT + 9)) + b"\n[]\n{}\nno\n"
            + line(message="y") + line(message="half")[:-9])
    with serving(lambda one: one.send(data)) as (host, _):
        events = list(client(f"http://{host}").stream(["t"]))
    assert [event.get("message") for event in events] == [None, "y"]


def test_what_is_not_http_is_named() -> None:
    with serving(lambda one: one.wfile.write(b"SSH-2.0-x\r\n\r\n") and None) as (host, _), \
            pytest.raises(a4p.Refused) as error:
        client(f"http://{host}").publish(BODY)
    assert "the answer is not HTTP" in error.value.text("en")


def test_a_proxy_gets_the_whole_url_and_its_own_login() -> None:
    with serving(lambda one: one.send(line())) as (host, asked):
        client("http://ntfy.example/base", token="tk_1", proxy=f"http://u:p%40@{host}").publish(BODY)
    path, headers = asked[0]
    assert path == "http://ntfy.example/base/"
    assert headers["Host"] == "ntfy.example"
    assert (headers["Authorization"], headers["Proxy-Authorization"]) == (
        "Bearer tk_1", "Basic dTpwQA==")


def test_a_proxy_of_the_environment_counts_but_not_for_this_machine(
        monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda one: one.send(line())) as (host, asked):
        monkeypatch.setenv("http_proxy", host)
        client("http://ntfy.example").publish(BODY)
        client(f"http://{host}").publish(BODY)
    assert [path for path, _ in asked] == ["http://ntfy.example/", "/"]


def test_the_url_of_an_attachment_cannot_add_headers() -> None:
    with serving(lambda one: one.send(b"text")) as (host, asked):
        ntfy = client(f"http://{host}")
        assert ntfy.fetch(f"http://{host}/file/aB3.txt") == b"text"
        for path in ("x\r\nEvil: 1", "../v1/account", "x y", "x?y"):
            with pytest.raises(a4p.Refused):
                ntfy.fetch(f"http://{host}/file/{path}")
    assert len(asked) == 1
