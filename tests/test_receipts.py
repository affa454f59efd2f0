"""What the phone is left with when a question is over, and what that may cost the agent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from conftest import SOON, HookRun
from gate import Gate
from homes import Home
from phones import Phone
from proxies import Before216, proxy
from test_asking import DB, claude, delivered

Start = Callable[..., HookRun]


def test_a_server_that_ignores_sequence_ids_gets_one_quiet_receipt(
        server: str, home: Home, hook: Start) -> None:
    with proxy(Before216, server) as url:
        home.configure(server=url)
        phone = Phone(server, home.config["topic"])
        run = hook("claude", claude(DB))
        phone.push(0)
        phone.type("2")
        assert run.answers() == {"Which database?": "SQLite"}
        receipt = phone.push(1)
        assert receipt["message"] == "Answered: SQLite"
        assert receipt["priority"] == 2
        with pytest.raises(AssertionError, match="no push 2"):
            phone.push(2, 1)
        phone.close()


def test_the_receipt_is_quiet_and_names_the_question(
        home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push()
    phone.tap(push, 0)
    run.answers()
    receipt = phone.replaced(push)
    assert receipt["priority"] == 2
    assert receipt["title"] == push["title"]
    assert "actions" not in receipt


def test_a_word_asked_back_is_taken_away_again(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", claude(DB))
    push = phone.push(0)
    phone.type("7")
    aside = phone.push(1)
    phone.tap(push, 0)
    run.answers()
    assert phone.deleted(aside)["event"] == "message_delete"


def test_the_exit_is_not_delayed_by_the_receipt(home: Home, phone: Phone, hook: Start) -> None:
    """From the end of stdout to the end of the process: the median of nine is below 30 ms
    more than an empty interpreter's own exit, which is below 30 ms itself."""
    delays = []
    for n in range(9):
        run = hook("claude", claude(DB))
        assert run.process.stdout
        phone.tap(phone.push(n), 0)
        run.process.stdout.read()
        began = time.monotonic()
        run.process.wait(SOON)
        delays.append(time.monotonic() - began)
    assert sorted(delays)[4] < 0.06


def test_a_receipt_that_fails_is_logged_only(home: Home, hook: Start, server: str) -> None:
    with proxy(Before216, server) as url:
        home.configure(server=url)
        phone = Phone(server, home.config["topic"])
        run = hook("claude", claude(DB))
        push = phone.push()
        home.configure(server="http://127.0.0.1:9")  # as if it went down now
        phone.tap({**push, "actions": [{**push["actions"][0], "url": push["actions"][0]["url"].replace(
            url, server)}]}, 0)
        assert run.answers() == {"Which database?": "PostgreSQL"}
        phone.close()
    log, end = home.path / "a4p.log", time.monotonic() + SOON
    while "receipt: http://127.0.0.1:9 cannot be reached" not in log.read_text():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_receipt_is_tried_again_until_the_network_is_back(
        home: Home, hook: Start, server: str) -> None:
    with Gate(server) as gate, contextlib.closing(Phone(server, home.config["topic"])) as phone:
        home.configure(server=gate.url, timeout=2)
        run = hook("claude", claude(DB))
        push = phone.push()
        delivered(home)
        gate.shut()
        gate.cut()
        assert run.output() is None
        log, end = home.path / "a4p.log", time.monotonic() + SOON
        while "receipt: " not in log.read_text():
            assert time.monotonic() < end
            time.sleep(0.02)
        gate.shut(False)
        assert phone.replaced(push)["message"] == "Not answered, back at the terminal"
