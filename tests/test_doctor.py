"""doctor: each line is true, and each failure comes with its mend."""

from __future__ import annotations

import hashlib
import json
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import a4p
from conftest import HookRun
from homes import A4P, Home
from phones import Phone
from users import User

TOPIC = "a4p-abcdefghijklmnopqrstuvwxyz"


class Report:
    """What doctor said: the exit status, and {check: (status, text)}."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.stderr == ""
        found = json.loads(done.stdout)
        self.code, self.ok = done.returncode, found["ok"]
        self.rows = [(row["check"], row["status"], row["text"]) for row in found["checks"]]
        self.statuses = {check: status for check, status, _ in self.rows}
        assert self.code == (0 if self.ok else 1)
        assert self.ok == ("failure" not in self.statuses.values())

    def text(self, check: str) -> str:
        """The text of the one line of this check."""
        [text] = [text for found, _, text in self.rows if found == check]
        return text


class Doctor(User):
    """A person with a config, who runs doctor."""

    def configure(self, **values: object) -> None:
        folder = self.home / ".a4p"
        folder.mkdir(mode=0o700, exist_ok=True)
        config = folder / "config.json"
        config.touch(mode=0o600)
        config.write_text(json.dumps({"topic": TOPIC, **values}))

    def report(self) -> Report:
        return Report(self.try_run("doctor", "--json"))


@pytest.fixture
def user(tmp_path: Path, server: str) -> Doctor:
    """Somebody whose a4p works, but for an agent."""
    user = Doctor(tmp_path / "me")
    user.configure(server=server)
    return user


class Odd:
    """A server that answers as a test says: `respond` gets (method, path), gives (status, body)."""

    def __init__(self, respond: Callable[[str, str], tuple[int, Any]]) -> None:
        odd = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Stay silent."""

            def handle_any(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                odd.seen.append((self.command, self.path, data))
                status, body = respond(self.command, self.path)
                if "/json" in self.path and "poll" not in self.path and status == 200:
                    return self.stream(body)
                if callable(body):
                    body = body(json.loads(data))
                text = body if isinstance(body, str) else json.dumps(body)
                self.send_response(status)
                self.send_header("Location", "https://elsewhere.test/x")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def stream(self, opened: object) -> None:
                self.send_response(200)
                self.end_headers()
                if opened:
                    self.wfile.write(b'{"id":"open1","event":"open","topic":"x"}\n')
                odd.over.wait(60)

            do_GET = do_POST = do_DELETE = handle_any

        self.seen: list[tuple[str, str, bytes]] = []
        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> Odd:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


def taken(body: dict[str, Any]) -> dict[str, Any]:
    """A message as a server stores it."""
    return {"id": "abcdefghijkl", "time": int(time.time()), "event": "message", **body}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for what does not come."""
    monkeypatch.setattr(a4p, "OPEN_WAIT", 0.3)
    monkeypatch.setattr(a4p, "CONNECT_WAIT", 0.5)


# === All is well =================================================================================

def test_all_is_well(user: Doctor) -> None:
    user.run("install", "claude")
    report = user.report()
    assert report.code == 0
    assert set(report.statuses.values()) == {"ok"}
    assert list(report.statuses) == ["d_python", "d_config", "d_topic", "d_left", "d_trip", "d_hook"]
    assert sys.version.split()[0] in report.text("d_python")
    assert a4p.stable_python() in report.text("d_python")


def test_without_json_each_line_begins_with_its_status(user: Doctor) -> None:
    user.run("install", "claude")
    rows = user.run("doctor").splitlines()
    assert all(row.startswith("ok       ") for row in rows)
    user.env["LC_ALL"] = "zh_CN.UTF-8"
    assert all(row.startswith("正常  ") for row in user.run("doctor").splitlines())


def test_every_text_has_its_counterpart_and_both_languages() -> None:
    for key in a4p.MESSAGES:
        if key.startswith("d_"):
            assert all(a4p.MESSAGES[key])
    mends = [key for key in a4p.MESSAGES if key.startswith("d_") and key.endswith("_bad")]
    assert mends
    assert all(" - " in text for key in mends for text in a4p.MESSAGES[key])


# === Here ========================================================================================

def test_no_config_is_a_failure(tmp_path: Path) -> None:
    report = Doctor(tmp_path / "me").report()
    assert report.statuses["no_config"] == "failure"
    assert "a4p.py setup" in report.text("no_config")  # once, however many checks it breaks


def test_a_broken_config_is_one_failure(user: Doctor) -> None:
    (user.home / ".a4p" / "config.json").write_text('{"topic": "x",\n "port": }')
    report = user.report()
    assert "line 2" in report.text("config_json")


def test_a_config_that_others_can_read_is_said_with_the_command(user: Doctor) -> None:
    (user.home / ".a4p").chmod(0o755)
    (user.home / ".a4p" / "config.json").chmod(0o644)
    report = user.report()
    assert report.statuses["d_config_bad"] == "warning"
    command = report.text("d_config_bad").partition(" - ")[2]
    subprocess.run(command, shell=True, check=True, timeout=10)
    assert user.report().statuses["d_config"] == "ok"


def test_a_key_that_is_not_known_is_said(user: Doctor, server: str) -> None:
    user.configure(server=server, tiemout=5)
    assert "tiemout" in user.report().text("d_keys_bad")


@pytest.mark.parametrize("topic", ["mytopic", "claude-questions-at-home", "a" * 40])
def test_a_topic_that_can_be_guessed_is_said(user: Doctor, server: str, topic: str) -> None:
    user.configure(server=server, topic=topic)
    report = user.report()
    assert report.statuses.get("d_topic_bad") == ("warning" if topic != "claude-questions-at-home"
                                                  else None)


def test_topics_are_shortened_and_no_secret_is_shown(user: Doctor, server: str) -> None:
    secrets = {"token": "tk_secret1", "password": "secret2", "reply_token": "tk_secret3"}
    user.configure(server=server, **secrets)
    done = user.try_run("doctor").stdout + user.try_run("doctor", "--json").stdout
    assert "secret" not in done
    assert TOPIC not in done
    assert "a4p-abc…" in done


def test_what_a_killed_process_left_is_counted(user: Doctor) -> None:
    pending = user.home / ".a4p" / "pending"
    state = a4p.State(str(user.home / ".a4p"))
    state.pending.add({"id": "q" + "a" * 10, "title": "Ask: X", "text": "x", "since": 1.0, "deadline": 2.0, "closing": {}})
    [file] = pending.glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "stamp": "another"}))
    report = user.report()
    assert report.text("d_left_bad").startswith("1 ")
    assert file.exists()  # doctor changes nothing


def test_the_log_has_a_size(user: Doctor) -> None:
    (user.home / ".a4p" / "a4p.log").write_bytes(b"x" * 12_000)
    assert "the log is 12 kB" in user.report().text("d_left")


# === The server ==================================================================================

def test_a_server_that_is_not_there(user: Doctor) -> None:
    user.configure(server="http://127.0.0.1:9")
    began = time.monotonic()
    report = user.report()
    assert report.statuses["no_network"] == "failure"
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("status", "code", "mend"), [
    (401, 40101, "the credentials are wrong"), (403, 40301, "may not use this topic"),
    (429, 42908, "daily quota"), (429, 42901, "wait a minute")])
def test_a_refusal_is_said_with_its_mend(
        user: Doctor, short: None, status: int, code: int, mend: str) -> None:
    with Odd(lambda method, path: (status, {"http": status, "code": code, "error": "no"})) as odd:
        user.configure(server=odd.url)
        text = user.report().text("refused")
    assert f"HTTP {status}, ntfy code {code}" in text
    assert mend in text


def test_a_login_page_is_no_server(user: Doctor, short: None) -> None:
    with Odd(lambda method, path: (200, "<html>Welcome to the hotel" if method == "POST" else 1)
             ) as odd:
        user.configure(server=odd.url)
        assert user.report().statuses["no_ntfy"] == "failure"


def test_a_server_that_moved_is_named(user: Doctor, short: None) -> None:
    with Odd(lambda method, path: (301, "")) as odd:
        user.configure(server=odd.url)
        assert "https://elsewhere.test" in user.report().text("moved")


@pytest.mark.parametrize("opened", [True, False])
def test_a_proxy_that_buffers_the_stream_is_found(
        user: Doctor, short: None, opened: bool) -> None:
    with Odd(lambda method, path: (200, taken if method == "POST" else opened)) as odd:
        user.configure(server=odd.url)
        report = user.report()
    assert report.statuses["d_trip_bad"] == "failure"
    assert "proxy_buffering off" in report.text("d_trip_bad")


def test_a_server_before_2_16_and_a_clock_that_is_off(user: Doctor, short: None) -> None:
    def old(body: dict[str, Any]) -> dict[str, Any]:
        stored = taken({key: body[key] for key in ("topic", "message", "title")})
        return {**stored, "time": int(time.time()) - 600}

    with Odd(lambda method, path: (200, old if method == "POST" else True)) as odd:
        user.configure(server=odd.url)
        report = user.report()
    assert report.statuses["d_update_bad"] == report.statuses["d_clock_bad"] == "warning"
    assert "600 s" in report.text("d_clock_bad") or "601 s" in report.text("d_clock_bad")


def test_a_proxy_is_named_without_its_password(user: Doctor, short: None) -> None:
    with Odd(lambda method, path: (200, taken if method == "POST" else True)) as odd:
        proxy = odd.url.replace("http://", "http://me:hidden@")
        user.configure(server="http://ntfy.invalid", proxy=proxy)
        done = user.try_run("doctor", "--json")
        assert any(path.startswith("http://ntfy.invalid/") for _, path, _ in odd.seen)
    assert odd.url.rpartition("/")[2] in Report(done).text("d_proxy")
    assert "hidden" not in done.stdout


def test_a_socks_proxy_is_one_failure(user: Doctor) -> None:
    user.configure(server="http://ntfy.invalid", proxy="socks5://127.0.0.1:9")
    assert user.report().statuses["socks"] == "failure"


def test_a_python_without_certificates_is_told_what_to_do(
        user: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    user.env.update(SSL_CERT_FILE="/nowhere", SSL_CERT_DIR="/nowhere")
    monkeypatch.setattr(a4p, "SPARE_ROOTS", "/nowhere")
    user.configure(server="https://127.0.0.1:9")
    assert user.report().statuses["d_roots_bad"] == "failure"


def test_the_systems_certificates_help_out(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A python.org build on macOS has none of its own: those of /etc/ssl/cert.pem are used."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-keyout", "key.pem", "-out", "cert.pem"],
                   cwd=tmp_path, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    state = a4p.State(str(tmp_path / "a4p"))
    with Odd(lambda method, path: (200, taken)) as odd:
        odd.server.socket = context.wrap_socket(odd.server.socket, server_side=True)
        state.config.save(server=odd.url.replace("http://127.0.0.1", "https://localhost"))
        ntfy = a4p.Ntfy(a4p.State(state.home).config)
        monkeypatch.setattr(a4p, "SPARE_ROOTS", "/nowhere")
        with pytest.raises(a4p.Refused) as error:
            ntfy.publish({"topic": "t"})
        assert error.value.key == "bad_tls"
        monkeypatch.setattr(a4p, "SPARE_ROOTS", str(tmp_path / "cert.pem"))
        assert ntfy.publish({"topic": "t"})["topic"] == "t"


def test_a_question_that_waits_does_not_take_the_probe_for_its_answer(
        home: Home, phone: Phone, hook: Callable[..., HookRun]) -> None:
    payload = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "cwd": "/x",
               "tool_input": {"questions": [{"question": "Which?", "header": "H", "options": [
                   {"label": "A"}, {"label": "B"}]}]}}
    run = hook("claude", payload)
    push = phone.push()
    subprocess.run([sys.executable, str(A4P), "doctor"], capture_output=True, timeout=60,
                   check=False)
    assert run.process.poll() is None
    assert len(phone.pushes) == 1  # the phone saw nothing of it
    phone.tap(push, 1)
    assert run.answers() == {"Which?": "B"}


# === The agents ==================================================================================

def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a config as its user would."""
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def hook_in(config: dict[str, Any], event: str = "PreToolUse") -> dict[str, Any]:
    """The one hook of an event."""
    [group] = config["hooks"][event]
    [hook] = group["hooks"]
    return hook  # type: ignore[no-any-return]


def test_no_agent_at_all_is_no_failure(user: Doctor) -> None:
    assert user.report().code == 0


def test_an_agent_without_our_hook_is_a_failure_where_none_has_it(user: Doctor) -> None:
    (user.home / ".claude").mkdir()
    (user.home / ".codex").mkdir()
    report = user.report()
    assert [row[1] for row in report.rows if row[0] == "d_hook_none"] == ["warning", "warning"]
    assert report.statuses["d_hooks_bad"] == "failure"
    user.run("install", "claude")
    report = user.report()
    assert report.statuses["d_hook_none"] == "warning" and "d_hooks_bad" not in report.statuses
    assert report.text("d_hook_none") == "Codex (?) has no hook of a4p - a4p.py install codex"


@pytest.mark.parametrize("change", [
    lambda config: config["hooks"].pop("PermissionRequest"),
    lambda config: hook_in(config).update(timeout=30),
    lambda config: hook_in(config).pop("timeout"),
    lambda config: hook_in(config).update(
        command=hook_in(config)["command"].replace("a4p.py", "moved/a4p.py")),
    lambda config: hook_in(config).update(command=hook_in(config)["command"].replace(
        a4p.stable_python(), "/bin/sh"))])
def test_a_hook_that_is_not_as_installed(
        user: Doctor, change: Callable[[dict[str, Any]], object]) -> None:
    user.run("install", "claude")
    edit(user.claude, change)
    report = user.report()
    assert report.statuses["d_hook_bad"] == "failure"
    assert "a4p.py install claude" in report.text("d_hook_bad")
    user.run("install", "claude")
    assert user.report().statuses["d_hook"] == "ok"


@pytest.mark.parametrize("more", [
    {"disableAllHooks": True}, {"permissions": {"ask": ["Bash", "AskUserQuestion"]}},
    {"permissions": {"deny": ["AskUserQuestion"]}}])
@pytest.mark.parametrize("place", ["settings.json", "settings.local.json"])
def test_a_switch_that_keeps_claudes_hooks_from_answering(
        user: Doctor, more: dict[str, Any], place: str) -> None:
    user.run("install", "claude")
    user.write(user.claude.with_name(place), json.dumps(more))
    if place == "settings.json":
        user.run("install", "claude")
    report = user.report()
    assert report.statuses["d_off_bad"] == "failure"
    assert str(user.claude.with_name(place)) in report.text("d_off_bad")


@pytest.mark.parametrize("matcher", ["AskUserQuestion", "", "*", ".*", "Bash|AskUserQuestion", None])
def test_another_hook_on_the_same_tool_is_said(user: Doctor, matcher: str | None) -> None:
    group = {"hooks": [{"type": "command", "command": "echo other"}], "matcher": matcher}
    user.write(user.claude, json.dumps({"hooks": {"PreToolUse": [group]}}))
    user.run("install", "claude")
    assert "echo other" in user.report().text("d_other_bad")


@pytest.mark.parametrize("matcher", ["Bash", "Edit|Write", "(broken"])
def test_a_hook_on_another_tool_is_not(user: Doctor, matcher: str) -> None:
    group = {"hooks": [{"type": "command", "command": "echo other"}], "matcher": matcher}
    user.write(user.claude, json.dumps({"hooks": {"PreToolUse": [group]}}))
    user.run("install", "claude")
    assert user.report().code == 0


@pytest.mark.parametrize(("name", "text"), [
    ("claude", '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "a4p hook"}]}]}}'),
    ("codex", 'command = "a4p hook codex"\n'), ("codex", "# a4phone\n"),
    ("codex", 'command = "node \\"/x/a4p.mjs\\" hook codex"\n')])
def test_a4phones_hooks_beside_ours_are_said(user: Doctor, name: str, text: str) -> None:
    user.write(user.claude if name == "claude" else user.codex.with_name("config.toml"), text)
    user.run("install", name)
    assert user.report().statuses["d_a4phone_bad"] == "warning"


def test_a_config_that_does_not_parse_is_a_failure(user: Doctor) -> None:
    user.write(user.claude, "{,}")
    assert str(user.claude) in user.report().text("agent_file")


def test_a_config_that_does_not_parse_hides_no_other_agent(user: Doctor) -> None:
    user.run("install", "codex")
    user.write(user.claude, "{,}")
    report = user.report()
    assert report.statuses["agent_file"] == "failure"
    assert str(user.codex) in report.text("d_hook")


@pytest.mark.parametrize(("said", "shown"), [
    ("echo '2.1.332 (Claude Code)'", "2.1.332"), ("echo 'codex-cli 0.171.0-alpha.1'",
                                                  "0.171.0-alpha.1"), ("exit 3", "(?)")])
def test_the_version_is_shown_where_the_agent_tells_it(
        user: Doctor, said: str, shown: str) -> None:
    program = user.write(user.home / "bin" / "claude", f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    user.env["PATH"] = f"{program.parent}:{user.env['PATH']}"
    user.run("install", "claude")
    assert user.report().text("d_hook").startswith(f"Claude {shown}: installed in ")


def test_hooks_that_are_switched_off_in_codex(user: Doctor) -> None:
    user.run("install", "codex")
    user.write(user.codex.with_name("config.toml"), "[features]\nhooks = false\n")
    assert user.report().statuses["d_off_bad"] == "failure"


def test_codex_runs_only_what_its_user_trusts(user: Doctor) -> None:
    """The form of config.toml is Codex 0.171's; tests/e2e looks at what the real one writes."""
    user.run("install", "codex")
    assert user.report().statuses["d_trust_bad"] == "failure"
    state = ""
    for event, [group] in json.loads(user.codex.read_text())["hooks"].items():
        name = "".join("_" * c.isupper() + c.lower() for c in event).strip("_")
        told = {"event_name": name, **group, "hooks": [{"async": False, **group["hooks"][0]}]}
        data = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(data.encode()).hexdigest()
        state += f'[hooks.state."{user.codex}:{name}:0:0"]\ntrusted_hash = "sha256:{digest}"\n'
    user.write(user.codex.with_name("config.toml"), state)
    assert user.report().statuses["d_trust"] == "ok"
    edit(user.codex, lambda config: hook_in(config).update(timeout=86401))
    assert user.report().statuses["d_trust_bad"] == "failure"


# === awake =======================================================================================

@pytest.mark.parametrize(("tool", "hint"), [
    ("caffeinate", "caffeinate -i claude"), ("systemd-inhibit", "systemd-inhibit --what=sleep:idle"),
    ("other", None)])
def test_a_machine_that_can_be_kept_awake_is_told_once_how(
        user: Doctor, tool: str, hint: str | None) -> None:
    user.write(user.home / "bin" / tool, "").chmod(0o755)
    user.env["PATH"] = str(user.home / "bin")
    first, second = user.run("out"), user.run("out")
    assert (str(hint) in first) is ("fall asleep" in first) is bool(hint)
    assert "fall asleep" not in second


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield


def test_another_machine_on_the_topic_is_noticed(
        home: Home, user: Doctor, phone: Phone, hook: Callable[..., HookRun]) -> None:
    payload = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "cwd": "/x",
               "tool_input": {"questions": [{"question": "Which?", "options": [{"label": "A"}]}]}}
    run = hook("claude", payload)
    phone.tap(phone.push(), 0)
    run.answers()
    user.configure(**home.config)
    (user.home / ".a4p" / "a4p.log").write_text("nothing of it\n")
    assert user.report().text("d_alone_bad").startswith("1 ")
    (user.home / ".a4p" / "a4p.log").write_text((home.path / "a4p.log").read_text())
    assert "d_alone_bad" not in user.report().statuses
