#!/usr/bin/env python3
"""The table of `make bench`: what a4p costs, each figure a ratio within this one run.

Medians of RUNS runs. An ntfy server to compare with: A4P_BENCH_SERVER=http://...
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).absolute().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "e2e")]

from homes import A4P, Home  # noqa: E402
from phones import Phone  # noqa: E402

RUNS = 15
PYTHON = [sys.executable, "-I", "-S"]
CALL: dict[str, Any] = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "cwd": "/w", "tool_input": {
    "questions": [{"question": "Which?", "header": "H", "multiSelect": False,
                   "options": [{"label": "A"}, {"label": "B"}]}]}}


def row(name: str, value: str, aim: str = "") -> None:
    """Print a line of the table."""
    print(f"| {name:<58} | {value:>24} | {aim:>7} |", flush=True)


def children_cpu() -> float:
    """Seconds of CPU of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu(command: list[str], env: dict[str, str]) -> float:
    """Seconds of CPU of one command."""
    before = children_cpu()
    subprocess.run(command, check=True, env=env, stdin=subprocess.DEVNULL)
    return children_cpu() - before


def so_far(pid: int) -> float:
    """Seconds of CPU that all threads of a process have had; 0 where the system does not tell."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def alternate(*works: Callable[[], float]) -> list[float]:
    """The medians of several measurements, run in turn so that noise hits all alike."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(RUNS):
        for values, work in zip(found, works):
            values.append(work())
    return [statistics.median(values) for values in found]


def bench_home(folder: Path) -> None:
    """A hook at home, called directly and as installed, against an empty interpreter."""
    env = {"A4P_HOME": str(folder / "none"), "PATH": os.environ["PATH"]}
    hook = [*PYTHON, str(A4P), "hook", "claude"]
    line = f"[ ! -e {folder}/none/out ] || {' '.join(hook)} || true"
    bare, direct, guarded = alternate(lambda: cpu([*PYTHON, "-c", "pass"], env),
                                      lambda: cpu(hook, env),
                                      lambda: cpu(["/bin/sh", "-c", line], env))
    row("mode home, a4p.py called directly / bare interpreter, CPU", f"{direct / bare:.2f}", "3.0")
    row("mode home, as installed / bare interpreter, CPU", f"{guarded / bare:.3f}", "0.2")


def start_hook(home: Home, text: str = "Which?") -> subprocess.Popen[bytes]:
    """A hook that has its question."""
    question = {**CALL["tool_input"]["questions"][0], "question": text}
    call = {**CALL, "tool_input": {"questions": [question]}}
    process = subprocess.Popen([*PYTHON, str(A4P), "hook", "claude"], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE,
                               env={**os.environ, "A4P_HOME": str(home.path)})
    assert process.stdin
    process.stdin.write(json.dumps(call).encode())
    process.stdin.close()
    process.stdin = None
    return process


def bench_out(home: Home, server: str) -> None:
    """From start to the push, against an interpreter's start and a publish by curl."""
    pushes = 0
    with contextlib.closing(Phone(server, home.config["topic"])) as phone:
        ends: list[float] = []
        heard: list[float] = []
        used: list[float] = []
        spent: list[float] = []

        def a4p() -> float:
            nonlocal pushes
            began = time.monotonic()
            process = start_hook(home)
            push = phone.push(pushes)
            taken = time.monotonic() - began
            used.append(so_far(process.pid))
            pushes += 1
            time.sleep(0.3)  # it waits now
            began = time.monotonic()
            phone.tap(push, 0)
            assert process.stdout
            process.stdout.read()  # its end: the agent has the answer
            heard.append(time.monotonic() - began)
            process.wait(10)
            ends.append(time.monotonic() - began)
            phone.replaced(push)
            return taken

        def curl() -> float:
            nonlocal pushes
            began, before = time.monotonic(), children_cpu()
            subprocess.run([*PYTHON, "-c", "pass"], check=True)
            subprocess.run(["curl", "-s", "-H", "Title: x", "-d", "x", f"{server}/{phone.topic}"],
                           stdout=subprocess.DEVNULL, check=True)
            spent.append(children_cpu() - before)
            phone.push(pushes)
            pushes += 1
            return time.monotonic() - began

        mine, theirs = alternate(a4p, curl)
        row("mode out, start to push / interpreter + curl, wall", f"{mine / theirs:.2f}")
        row("                                              in ms", f"{mine * 1e3:.0f} / {theirs * 1e3:.0f}")
        cpus = statistics.median(used), statistics.median(spent)
        row("mode out, start to push / interpreter + curl, CPU", f"{cpus[0] / cpus[1]:.2f}")
        row("                                             in ms", f"{cpus[0] * 1e3:.0f} / {cpus[1] * 1e3:.0f}")
    bench_reply(server, statistics.median(heard), statistics.median(ends))


def bench_reply(server: str, answer: float, end: float) -> None:
    """From the reply to the answer and to the hook's end, against curl showing the same line."""
    def curl() -> float:
        process = subprocess.Popen(["curl", "-sN", f"{server}/bench-curl/json"],
                                   stdout=subprocess.PIPE)
        assert process.stdout
        process.stdout.readline()
        began = time.monotonic()
        post(server, "bench-curl", b"x")
        process.stdout.readline()
        taken = time.monotonic() - began
        process.kill()
        process.wait()
        return taken

    theirs = statistics.median(curl() for _ in range(RUNS))
    for name, mine, aim in ("answer", answer, ""), ("hook's end", end, "1.6"):
        row(f"reply to the {name} / the line in curl, wall", f"{mine / theirs:.2f}", aim)
        row("                                   in ms", f"{mine * 1e3:.1f} / {theirs * 1e3:.1f}")


def post(server: str, topic: str, body: bytes) -> None:
    """One publish on a connection of its own."""
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", f"/{topic}", body)
        connection.getresponse().read()


def memory(pid: int, key: str = "VmHWM") -> float:
    """MiB of a process, at its peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    return 0.0


def bench_memory(folder: Path, server: str) -> None:
    """The peak of a hook that waits, alone and one of many."""
    for count in (1, 10, 100):
        home = Home(folder / f"memory{count}", server)
        home.configure(timeout=600)
        with contextlib.closing(Phone(server, home.config["topic"])) as phone:
            os.environ["A4P_HOME"] = str(home.path)
            hooks = [start_hook(home) for _ in range(count)]
            phone.push(count - 1, 120)
            peak = statistics.median(memory(process.pid) for process in hooks)
            row(f"a waiting hook's peak memory, {count} at once, MiB", f"{peak:.1f}", "22")
            home.run("home")
            for process in hooks:
                process.communicate(timeout=30)


def bench_load(folder: Path, server: str) -> None:
    """Hooks that all wait on one topic at once: how many get their own answer, how soon."""
    for count in (30, 60):
        home = Home(folder / f"load{count}", server)
        home.configure(timeout=600)
        os.environ["A4P_HOME"] = str(home.path)
        with contextlib.closing(Phone(server, home.config["topic"])) as phone:
            hooks = {f"Q{n}?": start_hook(home, f"Q{n}?") for n in range(count)}
            pushes = [phone.push(n, 120) for n in range(count)]
            began = time.monotonic()
            for push in pushes:
                if "actions" in push:  # else the machine was too busy for its limits
                    phone.tap(push, int(push["message"].split("?")[0][1:]) % 2)
            outs = {name: process.communicate(timeout=60)[0] for name, process in hooks.items()}
            took = time.monotonic() - began
        right = 0
        for n, (name, out) in enumerate(outs.items()):
            specific = json.loads(out)["hookSpecificOutput"] if out else {}
            right += specific.get("updatedInput", {}).get("answers") == {name: "AB"[n % 2]}
        late = (home.path / "a4p.log").read_text().count(" not delivered: ")
        row(f"{count} hooks at once on one topic: own answer / not delivered in time",
            f"{right} / {late}", f"{count} / 0")
        row(f"{count} hooks at once, first tap to the last one's end, s", f"{took:.2f}")


class Readers:
    """Many streams in one thread: notes when each line came."""

    def __init__(self, server: str, topics: list[str]) -> None:
        self.selector = selectors.DefaultSelector()
        self.arrived: dict[tuple[int, str], float] = {}
        self.twice = 0
        address = urlsplit(server)
        for number, topic in enumerate(topics):
            sock = socket.create_connection((address.hostname, address.port))
            sock.sendall(f"GET /{topic}/json HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n".encode())
            self.selector.register(sock, selectors.EVENT_READ, [number, b""])
        self.stop = False
        self.opened = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop:
            for key, _ in self.selector.select(0.1):
                now = time.monotonic()
                *lines, key.data[1] = (key.data[1] + key.fileobj.recv(65536)).split(b"\n")  # type: ignore[union-attr]
                for line in lines:
                    if b'"event":"open"' in line:
                        self.opened += 1
                    elif b'"event":"message"' in line:
                        mark = (key.data[0], json.loads(line)["message"])
                        self.twice += mark in self.arrived
                        self.arrived[mark] = now


def bench_serve(name: str, server: str, streams: int, rate: int, seconds: int,
                pid: int = 0) -> None:
    """Streams over half as many topic pairs, and publishes spread over them."""
    pairs = [f"b{os.getpid()}-{streams}-{n}" for n in range(streams // 2)]
    readers = Readers(server, [f"{topic},{topic}-response" for topic in pairs for _ in range(2)])
    while readers.opened < streams:
        time.sleep(0.05)
    sent: dict[str, float] = {}
    connection = http.client.HTTPConnection(urlsplit(server).netloc, timeout=10)
    began = time.monotonic()
    for number in range(rate * seconds):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        sent[str(number)] = time.monotonic()
        connection.request("POST", f"/{pairs[number % len(pairs)]}", str(number).encode())
        connection.getresponse().read()
    took = time.monotonic() - began
    time.sleep(0.5)
    readers.stop = True
    readers.thread.join()
    delays = sorted(at - sent[text] for (_, text), at in readers.arrived.items())
    lost = 2 * len(sent) - len(delays)
    label = f"{name}: {streams} streams, {rate} publishes/s for {seconds} s"
    row(f"{label}, p50 / p99 ms", f"{delays[len(delays) // 2] * 1e3:.1f} / "
        f"{delays[int(len(delays) * 0.99)] * 1e3:.1f}", "p99 50")
    row(f"{label}, lost / twice", f"{lost} / {readers.twice}", "0 / 0")
    row(f"{label}, done per s", f"{len(sent) / took:.0f}")
    if pid:
        row(f"{label}, MiB", f"{memory(pid):.1f}", "100")


def bench_start(folder: Path) -> None:
    """How long `serve` takes to its URL with so many stored messages."""
    import a4p

    for count in (100, 1_000, 10_000, 100_000):
        home = folder / f"store{count}"
        home.mkdir()
        now = int(time.time())
        lines = (a4p.go_json({"id": f"{n:012d}", "time": now, "expires": now + 40_000,
                              "event": "message", "topic": f"t{n % 50}", "message": "x" * 200})
                 for n in range(count))
        (home / "serve.jsonl").write_bytes(b"".join(lines))
        began = time.monotonic()
        with serving(home):
            row(f"serve: to its URL with {count} stored messages, s",
                f"{time.monotonic() - began:.2f}", "1" if count == 10_000 else "")


@contextlib.contextmanager
def serving(home: Path) -> Iterator[tuple[str, int]]:
    """`a4p.py serve`; gives its URL and pid."""
    process = subprocess.Popen([sys.executable, str(A4P), "serve", "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "A4P_HOME": str(home)})
    assert process.stdout
    yield process.stdout.readline().strip(), process.pid
    process.terminate()
    process.communicate(timeout=10)


def main() -> None:
    """Print the table."""
    print(f"| {'':<58} | {'measured':>24} | {'aim':>7} |\n|{'-' * 60}|{'-' * 26}|{'-' * 9}|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bench_home(folder)
        with serving(folder / "server") as (server, pid):
            home = Home(folder / "a4p", server)
            bench_out(home, server)
            bench_memory(folder, server)
            bench_load(folder, server)
            for streams in (10, 50, 200):
                bench_serve("serve", server, streams, 200, 30 if streams == 200 else 5, pid)
        if os.environ.get("A4P_BENCH_SERVER"):
            bench_serve("the other", os.environ["A4P_BENCH_SERVER"].rstrip("/"), 20, 50, 5)
        bench_start(folder)


if __name__ == "__main__":
    main()
