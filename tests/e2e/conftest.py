"""What the tests with real agents share: a server, a home that is out, a phone, the agents."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import fixtures
from agents import Claude, Codex, Dsh
from homes import A4P, Home
from models import Call, Model


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `a4p.py serve` on a free port, or of $A4P_TEST_SERVER."""
    if "A4P_TEST_SERVER" in os.environ:
        yield os.environ["A4P_TEST_SERVER"]
        return
    env = {**os.environ, "A4P_HOME": str(tmp_path_factory.mktemp("server"))}
    with subprocess.Popen([sys.executable, str(A4P), "serve", "--listen", "127.0.0.1:0"], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url, "a4p.py serve does not start"
        yield url
        process.terminate()


home, phone = fixtures.home, fixtures.phone


@pytest.fixture
def run() -> Iterator[contextlib.ExitStack]:
    """Holds what a test starts, and ends it after the test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def claude(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Claude]:
    """Start a Claude Code whose model asks these questions in one call."""

    def start(*questions: dict[str, Any], **options: Any) -> Claude:
        call = Call("AskUserQuestion", {"questions": questions})
        model = run.enter_context(Model([call]))
        return run.enter_context(Claude(tmp_path, model, home.hook("claude"), **options))

    return start


@pytest.fixture
def codex(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Codex]:
    """Start a Codex whose model asks these questions in one call."""

    def start(*questions: dict[str, Any], tool: str = "request_user_input",
              **options: Any) -> Codex:
        model = run.enter_context(Model([Call(tool, {"questions": questions})]))
        return run.enter_context(Codex(tmp_path, model, home.hook("codex"), **options))

    return start


@pytest.fixture
def dsh(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Dsh]:
    """Start a DSH, with a4p's plugin installed, whose model asks these questions in one call."""

    def start(*questions: dict[str, Any], commands: Sequence[str] = ("install",),
              also: Callable[[Dsh], object] = lambda agent: None) -> Dsh:
        def plug(agent: Dsh) -> None:
            for command in commands:
                agent.run(home.python, home.script, command, "dsh")
            also(agent)

        model = run.enter_context(Model([Call("ask_user_question", {"questions": questions})]))
        return run.enter_context(Dsh(tmp_path, model, plug))

    return start
