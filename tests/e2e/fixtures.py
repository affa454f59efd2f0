"""The fixtures that the fast tests and those with real agents share; each has its own `server`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from homes import Home
from phones import Phone


@pytest.fixture
def home(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home that is out, with a topic of its own; its log shows where a test fails."""
    home = Home(tmp_path / "a4p", server)
    if os.environ.get("A4P_TEST_TOKEN"):
        home.configure(token=os.environ["A4P_TEST_TOKEN"], share_token=True)
    monkeypatch.setenv("A4P_HOME", str(home.path))
    yield home
    with contextlib.suppress(FileNotFoundError):
        print((home.path / "a4p.log").read_text())


@pytest.fixture
def phone(home: Home) -> Iterator[Phone]:
    """A phone that shows this home's topic."""
    with contextlib.closing(Phone(home.config["server"], home.config["topic"])) as phone:
        yield phone
