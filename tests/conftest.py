"""What all tests share: a server, a home that is out, a phone, and hooks as agents call them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).absolute().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "e2e")]

import a4p  # noqa: E402
import fixtures  # noqa: E402
from homes import A4P  # noqa: E402

if {"A4P_PYTHON", "PYTEST_XDIST_WORKER"} <= set(os.environ):  # `make coverage`
    sys.executable = str(HERE / "covered.sh")

SOON = 15.0  # seconds: the longest that anything may take that should be immediate


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of the ntfy server under test: `serve`, or the one that A4P_TEST_SERVER names."""
    if os.environ.get("A4P_TEST_SERVER"):
        yield os.environ["A4P_TEST_SERVER"].rstrip("/")
        return
    with a4p.Server("127.0.0.1", 0) as running:
        yield running.url


home, phone = fixtures.home, fixtures.phone


class HookRun:
    """One run of `a4p.py hook AGENT`, as an agent does it."""

    def __init__(self, agent: str, payload: Any, script: Path = A4P) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), "hook", agent], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdin
        data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        self.process.stdin.write(data)
        self.process.stdin.close()
        self.process.stdin = None

    def text(self, timeout: float = SOON) -> str:
        """Wait for the end; give stdout. Status 0 and an empty stderr are a hook's duty."""
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0
        assert err == b""
        return out.decode("ascii")

    def output(self, timeout: float = SOON) -> Any:
        """Wait for the end; give the JSON on stdout, None where there is none."""
        text = self.text(timeout)
        assert text.count("\n") == (1 if text else 0)
        return json.loads(text) if text else None

    def answers(self) -> dict[str, str]:
        """The answers that Claude Code would get."""
        specific = self.output()["hookSpecificOutput"]
        given = specific.get("updatedInput") or specific["decision"]["updatedInput"]
        return dict(given["answers"])


@pytest.fixture
def hook() -> Iterator[Callable[..., HookRun]]:
    """Start a hook; whatever still runs after the test is ended."""
    runs: list[HookRun] = []

    def start(agent: str, payload: Any, script: Path = A4P) -> HookRun:
        runs.append(HookRun(agent, payload, script))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
        run.process.wait()
        for pipe in (run.process.stdout, run.process.stderr):
            if pipe:
                pipe.close()
