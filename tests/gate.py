"""A TCP gate before a server, which can cut, reset or silence the connections through it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from urllib.parse import urlsplit


class Gate:
    """Passes bytes both ways until told otherwise; `url` leads through it."""

    def __init__(self, server: str) -> None:
        self._target = urlsplit(server)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.opened = 0
        self._shut = False
        self._silent = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._news = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self, reset: bool = False) -> None:
        """End every connection, by FIN or by RST; new ones pass."""
        with self._news:
            pairs, self._pairs = self._pairs, []
        for near, far in pairs:
            if reset:
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for sock in (near, far):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)
                sock.close()

    def shut(self, shut: bool = True) -> None:
        """Refuse new connections, or let them pass again."""
        self._shut = shut

    def silence(self) -> None:
        """From now on what is open carries nothing more; new connections do."""
        with self._news:
            self._silent_pairs = list(self._pairs)
            self._pairs = []

    def wait_opened(self, count: int, seconds: float = 15) -> None:
        """Wait until so many connections have been let through."""
        with self._news:
            assert self._news.wait_for(lambda: self.opened >= count, seconds), self.opened

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._shut:
                near.close()
                continue
            far = socket.create_connection((self._target.hostname, self._target.port))
            with self._news:
                self._pairs.append((near, far))
                self.opened += 1
                self._news.notify_all()
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(near, far, one, other),
                                 daemon=True).start()

    def _pump(self, near: socket.socket, far: socket.socket, one: socket.socket,
              other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = one.recv(65536)
                if (near, far) not in self._pairs and data:
                    continue  # silenced
                if not data:
                    break
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
