"""`a4p.py doctor`: whether the server answers, and whether the topic is this machine's alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import a4p
from conftest import SOON, HookRun
from homes import A4P, Home
from phones import Phone
from test_asking import DB, claude

Start = Callable[..., HookRun]


def test_a_topic_of_ones_own_is_fine(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    phone.tap(phone.push(), 0)
    run.answers()
    home.run("notify", "hello")
    assert home.run("doctor") == f"ok: {home.config['server']} answers.\n"


def test_questions_of_another_machine_are_warned_of(
        home: Home, phone: Phone, hook: Start, tmp_path: Path) -> None:
    elsewhere = a4p.State(str(tmp_path / "elsewhere"))
    elsewhere.config.save(server=home.config["server"], topic=home.config["topic"], timeout=1)
    with a4p.Conversation(a4p.State(elsewhere.home), a4p.Sender("Test"), 1,
                          lambda body: None) as talk:
        assert talk.ask(a4p.Question("", "", "Whose?")).state == "timeout"
    said = home.run("doctor")
    assert "warning: 1 questions of another machine are on topic a4p-" in said
    assert home.config["topic"] not in said


def test_an_unknown_key_is_told_and_kept(home: Home) -> None:
    home.configure(colour="blue")
    assert "unknown key colour" in home.run("doctor")
    assert '"colour"' in (home.path / "config.json").read_text()


def test_a_server_that_is_not_there_is_a_failure(home: Home) -> None:
    home.configure(server="http://127.0.0.1:9")
    done = subprocess.run([sys.executable, str(A4P), "doctor"], capture_output=True, text=True,
                          timeout=SOON, check=False)
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
