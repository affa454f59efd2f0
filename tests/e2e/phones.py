"""A phone with the ntfy app: what it shows, and what its user does."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

BOOT = 60.0  # seconds: the longest that an agent may take to ask
SOON = 10.0  # seconds: the longest that anything may take once it was asked for
OK = 200

Push = dict[str, Any]


class Phone:
    """What a phone does: it shows the pushes of a topic, and sends what its user taps or types."""

    def __init__(self, server: str, topic: str) -> None:
        self._address, self.topic = urlsplit(server).netloc, topic
        self.pushes: list[Push] = []
        self._later: dict[str, list[Push]] = {}  # what replaced a push, by sequence id
        self._deleted: list[Push] = []
        self._news = threading.Condition()
        self._stream = http.client.HTTPConnection(self._address, timeout=90)
        self._stream.request("GET", f"/{topic}/json?since=all")
        self._socket = self._stream.sock
        self._thread = threading.Thread(target=self._listen, args=(self._stream.getresponse(),))
        self._thread.start()

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):  # the server was first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._stream.close()

    def push(self, n: int = 0, timeout: float = BOOT) -> Push:
        """Wait for the n-th push of the topic."""
        return self._await(lambda: self.pushes[n:], timeout, f"push {n}")

    def replaced(self, push: Push, timeout: float = SOON) -> Push:
        """Wait for what replaces this push."""
        return self._await(lambda: self._later[_sequence(push)], timeout, "replacement")

    def deleted(self, push: Push, timeout: float = SOON) -> Push:
        """Wait for the event that takes this push away."""
        return self._await(lambda: [event for event in self._deleted
                                    if _sequence(event) == _sequence(push)], timeout, "delete")

    def tap(self, push: Push, place: int) -> None:
        """Tap a button: do exactly what it says, as the apps do."""
        action = push["actions"][place]
        assert action["action"] == "http"
        url = urlsplit(action["url"])
        self._send(url.netloc, action.get("method", "POST"), f"{url.path}?{url.query}",
                   action.get("body", ""), action.get("headers", {}))

    def type(self, text: str) -> None:
        """Write to the response topic, as the web app and the reply page do."""
        self._send(self._address, "POST", f"/{self.topic}-response", text)

    def bar(self, text: str) -> None:
        """Write into the message bar below the push, as in the Android app (1.25)."""
        self._send(self._address, "PUT", f"/{self.topic}?priority=3", text)

    def _send(self, address: str, method: str, path: str, body: str,
              headers: dict[str, str] | None = None) -> None:
        connection = http.client.HTTPConnection(address, timeout=SOON)
        with contextlib.closing(connection):
            connection.request(method, path, body.encode(), headers or {})
            reply = connection.getresponse()
            assert reply.status == OK, reply.read()

    def _listen(self, stream: http.client.HTTPResponse) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):  # hung up
            for line in stream:
                self._take(json.loads(line))

    def _take(self, event: Push) -> None:
        with self._news:
            if event["event"] == "message_delete":
                self._deleted.append(event)
                self._news.notify_all()
            if event["event"] != "message" or "title" not in event:
                return  # a keepalive; words that the user typed
            known = self._later.setdefault(_sequence(event), [])
            first = all(_sequence(event) != _sequence(push) for push in self.pushes)
            (self.pushes if first else known).append(event)
            self._news.notify_all()

    def _await(self, look: Callable[[], list[Push]], timeout: float, what: str) -> Push:
        with self._news:
            if self._news.wait_for(look, timeout):
                return look()[0]
        raise AssertionError(f"no {what} within {timeout:g} s; {self.pushes} {self._later}")


def _sequence(event: Push) -> str:
    return str(event.get("sequence_id") or event["id"])
