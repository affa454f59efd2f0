"""setup: a config, hooks, and a question that comes back; tests/e2e goes through it by hand."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from homes import A4P, SOON
from phones import Phone
from users import User


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "me")


def config(user: User) -> dict[str, Any]:
    """The config that setup saved."""
    return dict(json.loads((user.home / ".a4p" / "config.json").read_text()))


def test_yes_installs_into_the_agents_that_are_there(user: User) -> None:
    (user.home / ".claude").mkdir()
    shown = user.run("setup", "--yes")
    assert set(user.files()) == {".a4p/config.json", ".claude/settings.json"}
    assert f"Installed: {user.claude}\n" in shown
    assert f"https://ntfy.sh/{config(user)['topic']}\n" in shown


def test_what_each_agent_still_needs_is_said(user: User) -> None:
    for path in (user.claude, user.codex, user.dsh):
        path.parent.mkdir()
    shown = user.run("setup", "--yes")
    assert "trust the hooks" in shown and "`codex exec` skips them without a word" in shown
    assert "Open sessions of Claude Code" in shown and "dsh web" in shown


def test_where_nobody_agreed_nothing_is_installed_but_shown(user: User) -> None:
    user.write(user.claude, "{}")
    shown = user.run("setup", "--topic", "mine")
    assert set(user.files()) == {".a4p/config.json", ".claude/settings.json"}
    assert user.claude.read_text() == "{}"
    assert "hook claude || true" in shown and "hook codex || true" in shown


def test_again_it_keeps_what_was_chosen(user: User) -> None:
    user.run("setup", "--yes", "--server", "http://127.0.0.1:9/", "--lang", "zh")
    first = config(user)
    user.run("setup", "--yes")
    assert config(user) == first
    assert (first["server"], first["lang"], first["desk"]) == ("http://127.0.0.1:9", "zh", "beside")


def test_the_embedded_server_gets_a_token_that_stays(user: User) -> None:
    shown = user.run("setup", "--yes", "--server", "embedded")
    first = config(user)
    assert first["server"].endswith(":2586") and len(first["token"]) == 26
    assert first["token"] == first["serve_token"] and first["token"] not in shown
    assert "a4p.py serve --listen 0.0.0.0:2586 --token" in shown
    user.run("setup", "--yes", "--server", "embedded")
    assert config(user) == first


@pytest.mark.parametrize("words", [("--server", "ntfy.sh"), ("--topic", "a b"), ("--lang", "fr")])
def test_what_does_not_fit_is_wrong_usage_and_saves_nothing(
        user: User, words: tuple[str, str]) -> None:
    done = user.try_run("setup", "--yes", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"a4p: {words[1]} does not fit")
    assert user.files() == {}


def test_a_config_that_cannot_be_changed_is_said_and_the_rest_is_done(user: User) -> None:
    user.write(user.claude, "{,}")
    user.codex.parent.mkdir()
    done = user.try_run("setup", "--yes")
    assert done.returncode == 1
    assert str(user.claude) in done.stderr
    assert user.codex.exists()


def all_of(terminal: int) -> bytes:
    """What a terminal shows until its process has ended."""
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal ends
        while data := os.read(terminal, 65536):
            shown += data
    return shown


def test_on_a_terminal_the_test_question_comes_back(user: User, server: str) -> None:
    user.run("setup", "--yes", "--server", server)
    ours, theirs = pty.openpty()
    with contextlib.closing(Phone(server, config(user)["topic"])) as phone, subprocess.Popen(
            [sys.executable, str(A4P), "setup", "--yes"], env=user.env, cwd=user.home,
            stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        push = phone.push()
        assert "Does this reach you?" in push["message"]
        phone.tap(push, 0)
        shown = all_of(ours)
        assert process.wait(SOON) == 0
        phone.replaced(push)
    os.close(ours)
    assert "▀".encode() in shown  # the QR code
    assert b"s left" in shown  # the countdown
    assert "It works: “Yes” came back ".encode() in shown and b" ms after" in shown


def test_what_is_typed_on_a_terminal_is_taken_as_it_is_meant(user: User, server: str) -> None:
    """A slash too many is no part of the server; a question given back was no silence."""
    topic = "a4p-" + os.urandom(8).hex()
    typed = f"\n{server}/\n{topic}\nsmoke\npage\nnone\n\n"  # "smoke" is no phone
    ours, theirs = pty.openpty()
    with contextlib.closing(Phone(server, topic)) as phone, subprocess.Popen(
            [sys.executable, str(A4P), "setup"], env=user.env, cwd=user.home,
            stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        phone.push()
        phone.type("desk")
        shown = all_of(ours)
        assert process.wait(SOON) == 3
    os.close(ours)
    assert config(user)["server"] == server
    assert b"smoke does not fit here - Phone: android, ios, or page" in shown
    assert b"the question was released" in shown and b"usual causes" not in shown
