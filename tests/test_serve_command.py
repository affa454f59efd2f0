"""`a4p.py serve` as a command: what it prints, refuses and keeps."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import SOON
from homes import A4P, Home
from test_qr import read


@contextlib.contextmanager
def serving(home: Home, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run it; gives its first line and the process."""
    process = subprocess.Popen([sys.executable, str(A4P), "serve", *words], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.terminate()
        process.communicate(timeout=SOON)


def refused(*words: str) -> str:
    """Run it where it must refuse; gives the one line that says why."""
    done = subprocess.run([sys.executable, str(A4P), "serve", *words], capture_output=True,
                          text=True, timeout=SOON, check=False)
    assert done.returncode in (1, 2)
    assert done.stderr.count("\n") == 1
    assert " - " in done.stderr
    return done.stderr


def test_the_first_line_is_the_url_then_the_link_and_a_code_to_scan(home: Home) -> None:
    with serving(home, "--listen", "127.0.0.1:0", "--token", "sesame") as (url, process):
        assert process.stdout
        link = process.stdout.readline().strip().removeprefix("On the phone: ")
        assert link == f"{url}/{home.config['topic']}#t=sesame"
        rows = [process.stdout.readline().rstrip("\n") for _ in range(20)]
        process.terminate()
        rows += process.stdout.read().splitlines()
        assert read([row for row in rows if row]) == [link]


def test_a_link_too_long_for_a_code_stands_alone(home: Home) -> None:
    token = "s" * 150
    with serving(home, "--listen", "127.0.0.1:0", "--token", token) as (url, process):
        assert process.stdout
        assert process.stdout.readline().endswith(f"{url}/{home.config['topic']}#t={token}\n")
        with urllib.request.urlopen(f"{url}/v1/health", timeout=SOON) as answer:
            assert answer.status == 200  # it serves all the same
        process.terminate()
        assert process.stdout.read() == ""


def test_a_token_made_by_serve_is_kept(home: Home) -> None:
    for _ in range(2):
        with serving(home, "--listen", "127.0.0.1:0", "--token") as (url, _):
            token = json.loads((home.path / "config.json").read_text())["serve_token"]
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(f"{url}/x/json?poll=1", timeout=SOON)
            assert error.value.code == 403
            request = urllib.request.Request(f"{url}/x/json?poll=1",
                                             headers={"Authorization": f"Bearer {token}"})
            assert urllib.request.urlopen(request, timeout=SOON).status == 200
    assert token not in (home.path / "a4p.log").read_text() if (home.path / "a4p.log").exists() else 1


def test_open_to_others_without_a_token_is_refused(home: Home) -> None:
    assert "add --token" in refused("--listen", "0.0.0.0:0")


def test_a_busy_port_is_said(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert f"cannot listen on 127.0.0.1:{port}" in refused("--listen", f"127.0.0.1:{port}")


@pytest.mark.parametrize("text", ["nonsense", "127.0.0.1:99999", "127.0.0.1:x"])
def test_an_address_that_is_none_is_said(home: Home, text: str) -> None:
    assert "is no HOST:PORT" in refused("--listen", text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(home: Home, number: signal.Signals) -> None:
    with serving(home, "--listen", "127.0.0.1:0") as (_, process):
        process.send_signal(number)
        out, err = process.communicate(timeout=SOON)
        assert (process.returncode, err) == (0, "")


def test_messages_outlive_a_kill(home: Home) -> None:
    with serving(home, "--listen", "127.0.0.1:0") as (url, process):
        urllib.request.urlopen(f"{url}/topic", b"kept", timeout=SOON)
        process.kill()
    store = Path(home.path / "serve.jsonl")
    assert store.stat().st_mode & 0o777 == 0o600
    with serving(home, "--listen", "127.0.0.1:0") as (url, _):
        found = urllib.request.urlopen(f"{url}/topic/json?poll=1", timeout=SOON).read()
    assert json.loads(found)["message"] == "kept"
