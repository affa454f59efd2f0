"""HTTP proxies before the server under test, each with one fault or one age of ntfy."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator


class Passing(http.server.BaseHTTPRequestHandler):
    """Passes requests on; subclasses change something."""

    server_url = ""

    def do_GET(self) -> None:
        """Pass a poll or a stream on, as it comes."""
        self.forward(None)

    def do_POST(self) -> None:
        """Pass a publish on."""
        self.forward(self.change(self.rfile.read(int(self.headers["Content-Length"]))))

    def change(self, body: bytes) -> bytes:
        """What becomes of a published body."""
        return body

    def forward(self, body: bytes | None) -> None:
        """Ask the server, and send what it says."""
        request = urllib.request.Request(self.server_url + self.path, body, method=self.command)
        with urllib.request.urlopen(request, timeout=60) as reply:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError, http.client.HTTPException):
                while data := reply.read1(65536):
                    self.wfile.write(data)
                    self.wfile.flush()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


class Before216(Passing):
    """ntfy before 2.16 ignores `sequence_id`."""

    def change(self, body: bytes) -> bytes:
        """Drop what it does not know."""
        found = json.loads(body)
        found.pop("sequence_id", None)
        return json.dumps(found).encode()


@contextlib.contextmanager
def proxy(kind: type[Passing], server: str) -> Iterator[str]:
    """Run one before `server`; gives its URL."""
    handler = type("Handler", (kind,), {"server_url": server})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    running.daemon_threads = True
    threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()
