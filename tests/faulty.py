"""A small ntfy server that does what it is told to do wrong.

What is wrong is data: a `Reply` says how one request is answered, and a server has a list of
them for each kind of request (the last one stays). Without any it does as ntfy 2.13 does, as far
as a hook needs it: publish, stream, poll, `since`. A proxy's requests are answered, too.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import queue
import socket
import socketserver
import ssl
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

SOON = 15.0  # seconds: the longest that anything may take that should be immediate
CUT, RESET, STALL, DRIP = "cut", "reset", "stall", "drip"
Event = dict[str, Any]
KINDS = ("publish", "stream", "poll", "connect")


_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """How one request is answered: as by ntfy, but for what is given here."""

    status: int = 200
    body: bytes | None = None  # in place of what ntfy would say
    headers: Sequence[str] = ()
    raw: bytes | None = None  # in place of all, the status line too
    chunk: int = 0  # the size of the chunks; 0: none, the connection's end is the end
    late: float = 0.0  # seconds until the first byte
    end: str = CUT  # what follows; a stream as ntfy has it ends with the server only
    takes: bool = False  # a publish is stored although `body` or `raw` says something else


def refusal(status: int, code: int = 0, text: str = "no") -> Reply:
    """An error as ntfy tells it, or with an HTML page where there is no code."""
    page = b"<html><h1>Error</h1></html>"
    told = {"code": code, "http": status, "error": text, "link": "https://ntfy.sh/docs"}
    return Reply(status, json.dumps(told).encode() if code else page)


@dataclass
class Request:
    """One request, as it came."""

    kind: str
    target: str
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def topics(self) -> list[str]:
        """The topics of a stream or a poll."""
        return urlsplit(self.target).path.split("/")[-2].split(",")

    @property
    def since(self) -> str:
        """The value of `since`."""
        return parse_qs(urlsplit(self.target).query)["since"][0]


class Faulty:
    """The server; use it in a `with`. `limit`: streams at once, more are refused; `clock`:
    seconds that its clock is ahead; `tls`: it speaks TLS, as a `proxy` only inside CONNECT."""

    def __init__(self, limit: int = 1000, clock: int = 0, tls: ssl.SSLContext | None = None,
                 proxy: bool = False, **replies: Sequence[Reply]) -> None:
        self.limit, self.clock, self.tls = limit, clock, tls
        every = list(replies.pop("every", []))
        self.replies = {kind: every or [Reply()] for kind in KINDS}
        self.replies.update({kind: list(rows) for kind, rows in replies.items()})
        self.requests: list[Request] = []
        self.taken: list[Event] = []  # the bodies of the publishes that were stored
        self.kept: list[tuple[str, str, bytes]] = []  # id, topic, line: what a replay brings
        self.streams: dict[queue.SimpleQueue[bytes], socket.socket] = {}
        self.news = threading.Condition()
        self.closed = threading.Event()
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    sock = self.connection
                    server.serve(tls.wrap_socket(sock, server_side=True)
                                 if tls and not proxy else sock)

        class Listener(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True
            request_queue_size = 100

        self.listener = Listener(("127.0.0.1", 0), Handler)
        self.port: int = self.listener.server_address[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Faulty:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed.set()
        self.cut()
        self.listener.shutdown()
        self.listener.server_close()

    # --- what a test does and waits for

    def wait(self, kind: str, count: int = 1) -> Request:
        """Wait for so many requests of a kind; give the last of these."""
        def seen() -> list[Request]:
            return [request for request in self.requests if request.kind == kind]

        with self.news:
            assert self.news.wait_for(lambda: len(seen()) >= count, SOON), self.requests
            return seen()[count - 1]

    def published(self) -> list[Event]:
        """All that was published, taken or not."""
        return [json.loads(request.body) for request in list(self.requests)
                if request.kind == "publish"]

    def told(self, fits: Callable[[Event], object], n: int = 0) -> Event:
        """Wait for the n-th publish that was taken and fits."""
        with self.news:
            assert self.news.wait_for(lambda: len(list(filter(fits, self.taken))) > n,
                                      SOON), self.taken
            return list(filter(fits, self.taken))[n]

    def push(self, n: int = 0) -> Event:
        """Wait for the n-th question."""
        return self.told(lambda body: "actions" in body, n)

    def event(self, topic: str, message: str, **more: Any) -> Event:
        """A message as this server would store it now."""
        return event(topic, message, **{"time": int(time.time()) + self.clock, **more})

    def send(self, *events: Event | bytes, kept: bool = True, live: bool = True) -> None:
        """Put events, or lines that are none, on the streams (`live`), into the cache (`kept`)."""
        for one in events:
            line, name, topic = (one, "", "") if isinstance(one, bytes) else (
                line_of(one), str(one.get("id")), str(one.get("topic")))
            with self.news:
                self.kept += [(name, topic, line)] * kept
                for stream in list(self.streams) * live:
                    stream.put(line)

    def forget(self) -> None:
        """Lose the cache."""
        with self.news:
            self.kept.clear()

    def cut(self, reset: bool = False) -> None:
        """End every stream."""
        with self.news:
            streams = list(self.streams.items())
            self.streams.clear()
        for lines, sock in streams:
            finish(sock, RESET if reset else CUT)
            lines.put(b"")

    # --- what it does

    def serve(self, sock: socket.socket) -> None:
        """Answer one connection's request."""
        with sock, sock.makefile("rb") as file:
            if not file.peek(1)[:1].isalpha():  # nothing, or TLS where none is spoken
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                return
            method, target, _ = str(file.readline(), "latin-1").split()
            headers = http.client.parse_headers(file)
            body = file.read(int(headers.get("Content-Length") or 0))
            request = Request(kind_of(method, target), target, headers, body)
            with self.news:
                self.requests.append(request)
                number = sum(one.kind == request.kind for one in self.requests)
                self.news.notify_all()
            rows = self.replies.get(request.kind, [Reply(404)])
            reply = rows[min(number, len(rows)) - 1]
            if request.kind == "stream" and len(self.streams) >= self.limit:
                reply = refusal(429, 42903, "limit reached: too many active subscriptions")
            self.closed.wait(reply.late)
            if request.kind == "connect" and reply.status == 200 and self.tls:
                sock.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                self.serve(self.tls.wrap_socket(sock, server_side=True))
                return
            self.answer(sock, request, reply)
            finish(sock, reply.end, self.closed)

    def answer(self, sock: socket.socket, request: Request, reply: Reply) -> None:
        """Send what the reply says, and for the rest what ntfy would."""
        said, lines = reply.body, queue.SimpleQueue[bytes]()
        plain = reply.status == 200 and said is None and reply.raw is None
        if request.kind == "publish" and (plain or reply.takes):
            stored = self.store(json.loads(request.body))
            said = stored if said is None else said
        elif request.kind == "stream" and plain:
            said = self.opened(request, lines, sock)
        elif request.kind == "poll" and plain:
            said = b"".join(self.replay(request))
        if reply.raw is not None:
            sock.sendall(reply.raw)
            return
        head = [f"HTTP/1.1 {reply.status} Said", "Content-Type: application/json", *reply.headers]
        head += ["Transfer-Encoding: chunked"] * bool(reply.chunk)
        sock.sendall("\r\n".join([*head, "", ""]).encode())
        data = said or b""
        try:
            while data:
                send_in_chunks(sock, data, reply.chunk)
                data = lines.get() if request.kind == "stream" and plain else b""
            sock.sendall(b"0\r\n\r\n" * bool(reply.chunk))
        finally:
            self.streams.pop(lines, None)

    def store(self, body: Event) -> bytes:
        """Take a publish; give ntfy's answer."""
        stored = self.event(**body)
        self.send(stored)
        with self.news:
            self.taken.append(body)
            self.news.notify_all()
        return line_of(stored)

    def opened(self, request: Request, lines: queue.SimpleQueue[bytes],
               sock: socket.socket) -> bytes:
        """Let a stream begin: `open`, and what came after `since`."""
        first = self.event(",".join(request.topics), "", event="open")
        with self.news:
            self.streams[lines] = sock
            replay = [] if request.since == "none" else self.replay(request)
        return b"".join([line_of(first), *replay])

    def replay(self, request: Request) -> list[bytes]:
        """What came after `since`; all where it is unknown, as ntfy does."""
        names = [name for name, _, _ in self.kept]
        first = names.index(request.since) + 1 if request.since in names else 0
        return [line for _, topic, line in self.kept[first:] if topic in ("", *request.topics)]


def event(topic: str, message: str, **more: Any) -> Event:
    """A message as ntfy would store it now."""
    return {"id": f"m{next(_numbers):011d}", "time": int(time.time()), "event": "message",
            "topic": topic, "message": message, **more}


def line_of(event: Event) -> bytes:
    """The line of an event."""
    return json.dumps(event).encode() + b"\n"


def tap(push: Event, text: str) -> Event:
    """What a button's tap becomes."""
    return event(push["topic"] + "-response", text, title=push["sequence_id"])


def kind_of(method: str, target: str) -> str:
    """The kind of a request: one of KINDS, "file" or "delete"."""
    if method == "GET":
        return "file" if "/file/" in target else "poll" if "poll=1" in target else "stream"
    return {"POST": "publish"}.get(method, method.lower())


def send_in_chunks(sock: socket.socket, data: bytes, size: int) -> None:
    """Send data, in HTTP chunks of `size` bytes if there is one."""
    if not size:
        sock.sendall(data)
    for start in range(0, len(data), size or len(data) + 1) if size else ():
        part = data[start:start + size]
        sock.sendall(b"%x\r\n%b\r\n" % (len(part), part))


def finish(sock: socket.socket, end: str, closed: threading.Event | None = None) -> None:
    """End a connection in one of the ways."""
    if end == STALL and closed:
        closed.wait(SOON)
    while end == DRIP and closed and not closed.wait(0.1):
        sock.sendall(b"x")
    with contextlib.suppress(OSError):
        if end == RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            sock.shutdown(socket.SHUT_RDWR)
    sock.close()
