"""The real Claude Code and Codex call ask_user: on the phone, at the desk, for long, and killed."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import models
from agents import MARK, Agent, Claude, Codex, Dsh, end, marked, wait_until, write_json
from homes import A4P, Home
from models import Call, Model, Result
from phones import Phone

ASK: dict[str, Any] = {"title": "Which database?", "description": "For the shop.", "options": [
    {"value": "pg", "label": "PostgreSQL"}, {"value": "lite", "label": "SQLite"}]}
CLAUDE_TOOL, CODEX_TOOL = "mcp__a4p__ask_user", "ask_user"
LONG = 150.0  # seconds
SERVER = (str(A4P).encode(), b"mcp")


def servers(agent: Agent) -> list[int]:
    """The processes of `a4p.py mcp` that an agent runs."""
    found = []
    for pid in marked(agent.mark):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found += [pid] if tuple(words[1:3]) == SERVER else []
    return found


def value(result: Result) -> Any:
    """What the tool told, out of the agent's frame."""
    told = re.search(r"\{.*\}", result.text, re.S)
    assert told and not result.is_error, result
    return json.loads(told[0])


class McpClaude(Claude):
    """Claude Code with a4p as an MCP server, as `claude mcp add` writes it, and leave to use it."""

    def __init__(self, root: Path, model: Model, home: Home, *, mode: str = "print",
                 server: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> None:
        super().__init__(root, model, "true", mode=mode, settings={
            "permissions": {"allow": ["mcp__a4p"]}, "env": env or {}})
        file = self.home / ".claude.json"
        row = {"type": "stdio", "command": sys.executable, "args": [str(A4P), "mcp"],
               "env": {"A4P_HOME": str(home.path)}, **(server or {})}
        write_json(file, {**json.loads(file.read_text()), "mcpServers": {"a4p": row}})

    def asks(self, pattern: str) -> str:
        """Say "ask me" until the screen shows this: on a terminal the server comes up meanwhile."""
        for _ in range(10):
            with contextlib.suppress(AssertionError):
                return self.screen.shows(pattern, 4)
            self.screen.say("ask me")
        raise AssertionError(f"no {pattern!r}\n{self.screen.last}")


class McpCodex(Codex):
    """Codex with a4p as an MCP server, as the README says it; it hands down no environment."""

    def __init__(self, root: Path, model: Model, home: Home, *, mode: str = "exec",
                 server: str = "") -> None:
        super().__init__(root, model, "true", mode=mode, model_name="gpt-5")
        with open(self.home / ".codex" / "config.toml", "a", encoding="utf-8") as file:
            file.write(f'[mcp_servers.a4p]\ncommand = "{sys.executable}"\n'
                       f'args = ["{A4P}", "mcp"]\n{server}\n[mcp_servers.a4p.env]\n'
                       f'A4P_HOME = "{home.path}"\n{MARK} = "{self.mark}"\n')


@pytest.fixture(autouse=True)
def _namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codex has the tools of an MCP server in a namespace, and its model calls them there."""
    hear, say = models.DIALECTS["/v1/responses"]

    def say_in_namespace(turn: models.Turn) -> Iterator[models.Event]:
        for event in say(turn):
            bare = f'"name": "{CODEX_TOOL}"'
            yield json.loads(models.dumps(event).replace(bare, '"namespace": "mcp__a4p", ' + bare))

    monkeypatch.setitem(models.DIALECTS, "/v1/responses", (hear, say_in_namespace))


Start = Callable[..., Agent]


@pytest.fixture(params=["claude", "codex"])
def agent(request: pytest.FixtureRequest, tmp_path: Path, home: Home,
          run: contextlib.ExitStack) -> Start:
    """Start each agent, whose model calls ask_user so many times, one after the other."""

    def start(calls: int = 1, arguments: dict[str, Any] = ASK, **options: Any) -> Agent:
        kind, tool = {"claude": (McpClaude, CLAUDE_TOOL),
                      "codex": (McpCodex, CODEX_TOOL)}[request.param]
        model = run.enter_context(Model(*[[Call(tool, arguments)] for _ in range(calls)]))
        return run.enter_context(kind(tmp_path, model, home, **options))

    return start


def test_a_tap_is_the_answer(agent: Start, phone: Phone) -> None:
    one = agent()
    push = phone.push()
    assert re.match(r"(Claude Code|Codex): Which database\?", push["title"])
    assert "shop" in push["message"].split("\n")[-1]  # the project
    phone.tap(push, 1)
    assert value(one.model.result()) == {"value": "lite", "reason": None}
    assert "SQLite" in phone.replaced(push)["message"]


def test_words_are_the_answer(agent: Start, phone: Phone) -> None:
    one = agent()
    phone.push()
    phone.type("neither: 用文件, \"flat\" ones")
    assert value(one.model.result()) == {"value": None, "reason": "neither: 用文件, \"flat\" ones"}


def test_a_wrong_call_tells_the_model_which_field_and_why(agent: Start) -> None:
    one = agent(arguments={**ASK, "options": []})
    assert "options: [] does not fit" in one.model.result().text


def test_a_server_killed_while_a_call_waits(agent: Start, phone: Phone, home: Home) -> None:
    """The model hears of it; a new server answers the next call and clears the old push."""
    one = agent(2)
    push = phone.push()
    killed = servers(one)
    assert end(killed, signal.SIGKILL, 3) and killed
    assert re.search("(?i)connection|closed", one.model.result().text)
    if isinstance(one, Claude):  # 2.1.332 starts the server again; Codex 0.171 does so in a new run
        phone.tap(phone.push(1), 0)
        assert value(one.model.result(1)) == {"value": "pg", "reason": None}
    else:
        assert "ransport closed" in one.model.result(1).text
        home.run("status")
    assert "No longer waiting" in phone.replaced(push)["message"]


def test_the_end_of_the_agent_withdraws_the_push(agent: Start, phone: Phone) -> None:
    one = agent()
    push = phone.push()
    one.kill()
    assert "ithdrawn" in phone.replaced(push, 3)["message"]
    wait_until(lambda: not servers(one), 3, lambda: f"the end of {servers(one)}")


# === On a terminal ===============================================================================

def test_at_the_desk_claude_shows_the_form(tmp_path: Path, home: Home, phone: Phone,
                                           run: contextlib.ExitStack) -> None:
    home.run("home")
    model = run.enter_context(Model([Call(CLAUDE_TOOL, ASK)]))
    one = run.enter_context(McpClaude(tmp_path, model, home, mode="tmux"))
    one.asks("requests your input")
    one.screen.press_until("❯ ◯ PostgreSQL", "Right")
    one.screen.press_until("❯ ◯ SQLite", "Down")
    one.screen.press_until("✔ Reply: .*SQLite", "Space")
    one.screen.press_until("❯ Accept", "Down")
    one.screen.press_until(r"(?s)\A(?!.*requests your input)", "Enter")
    assert value(model.result()) == {"value": "lite", "reason": None}
    assert not phone.pushes


def test_at_the_desk_codex_shows_the_form(tmp_path: Path, home: Home, phone: Phone,
                                          run: contextlib.ExitStack) -> None:
    home.run("home")
    model = run.enter_context(Model([Call(CODEX_TOOL, ASK)]))
    one = run.enter_context(McpCodex(tmp_path, model, home, mode="tui"))
    assert "For the shop." in one.screen.shows("Field 1/2")
    one.screen.press_until("Field 2/2", "C-n")  # past the own words
    one.screen.press_until("› 2. SQLite", "Down")
    one.screen.press_until(r"(?s)\A(?!.*Field 2/2)", "Enter")
    assert value(model.result()) == {"value": "lite", "reason": None}
    assert not phone.pushes


def test_escape_in_the_terminal_withdraws_the_push(tmp_path: Path, home: Home, phone: Phone,
                                                   run: contextlib.ExitStack) -> None:
    model = run.enter_context(Model([Call(CODEX_TOOL, ASK)]))
    one = run.enter_context(McpCodex(tmp_path, model, home, mode="tui"))
    push = phone.push()
    one.screen.press_until("interrupted", "Escape")
    assert "ithdrawn" in phone.replaced(push, 3)["message"]


# === A call of 150 seconds =======================================================================

def test_calls_of_150_seconds(tmp_path: Path, home: Home, phone: Phone,
                              run: contextlib.ExitStack) -> None:
    """Claude Code 2.1.332: without terminal it waits; on one it moves a call to the background
    after 120 s, unless told otherwise. Codex 0.171 waits for 300 s."""
    home.configure(mcp_timeout=600)

    def start(name: str, kind: Any, tool: str, **options: Any) -> Model:
        (tmp_path / name).mkdir()
        model = run.enter_context(Model([Call(tool, {**ASK, "description": name})]))
        one = run.enter_context(kind(tmp_path / name, model, home, **options))
        if options.get("mode") == "tmux":
            one.asks(f"(?i){name} ·")  # the running call, by its description
        return model

    started = {
        "print": start("print", McpClaude, CLAUDE_TOOL),
        "exec": start("exec", McpCodex, CODEX_TOOL),
        "moved": start("moved", McpClaude, CLAUDE_TOOL, mode="tmux"),
        "kept": start("kept", McpClaude, CLAUDE_TOOL, mode="tmux",
                      env={"CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS": "0"})}
    pushes = [phone.push(n) for n in range(len(started))]
    assert "moved to the background" in started["moved"].result(timeout=LONG).text
    time.sleep(max(0.0, pushes[-1]["time"] + LONG - time.time()))
    for push in pushes:
        phone.tap(push, 1)
    for name in ("print", "exec", "kept"):
        assert value(started[name].result()) == {"value": "lite", "reason": None}
    assert '{"value":"lite","reason":null}' in started["moved"].user_text("<task-notification>")


@pytest.mark.parametrize("options", [
    {"server": {"timeout": 10_000}}, {"env": {"MCP_TOOL_TIMEOUT": "10000"}}])
def test_the_keys_of_claudes_limit(tmp_path: Path, home: Home, phone: Phone,
                                   run: contextlib.ExitStack, options: dict[str, Any]) -> None:
    model = run.enter_context(Model([Call(CLAUDE_TOOL, ASK)]))
    run.enter_context(McpClaude(tmp_path, model, home, **options))
    push = phone.push()
    assert "timed out after 10s" in model.result().text
    assert "ithdrawn" in phone.replaced(push)["message"]


def test_the_key_of_codexs_limit(tmp_path: Path, home: Home, phone: Phone,
                                 run: contextlib.ExitStack) -> None:
    model = run.enter_context(Model([Call(CODEX_TOOL, ASK)]))
    one = run.enter_context(McpCodex(tmp_path, model, home, server="tool_timeout_sec = 10"))
    push = phone.push()
    assert "timed out awaiting tools/call after 10s" in model.result().text
    one.finish()
    home.run("status")  # where `codex exec` killed the server first, this replaces the push
    assert re.search("ithdrawn|No longer waiting", phone.replaced(push)["message"])


# === DSH =========================================================================================

DSH_ROW = """\
- insert:
    - id: mcp-a4p
      name: '@deepseek-ai/dsh-mcp-client'
      config: {{transport: stdio, serverName: a4p, command: {python}, args: [{script}, mcp],
        env: {{A4P_HOME: {home}}}, toolCallTimeoutMs: {limit}}}
"""


@pytest.mark.parametrize("limit", [3600000, 10_000])
def test_dsh_asks_and_its_limit_has_a_key(tmp_path: Path, home: Home, phone: Phone,
                                          run: contextlib.ExitStack, limit: int) -> None:
    row = DSH_ROW.format(python=sys.executable, script=A4P, home=home.path, limit=limit)
    model = run.enter_context(Model([Call(CLAUDE_TOOL, ASK)]))
    run.enter_context(Dsh(tmp_path, model, lambda agent: (
        agent.home / ".dsh" / "cordis.patch.yml").write_text(row)))
    push = phone.push()
    assert push["title"].endswith(": Which database?")
    if limit > 10_000:
        phone.tap(push, 1)
        assert value(model.result()) == {"value": "lite", "reason": None}
    else:
        assert "ithdrawn" in phone.replaced(push, 30)["message"]
