"""What the fast tests share: calls as the agents make them, questions, configs, runs of a4p."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as st

import a4p

SCRIPT = str(Path(a4p.__file__).absolute())
TOPIC = "a4p-" + "abcdefghijklmnopqrstuvwxyz"
SOON = 20.0  # seconds: the longest that a command may take here

# The same examples in every run: a test of today fails tomorrow only for a reason.
STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates too


# --- questions and configs --------------------------------------------------

def question(*labels: str, multi: bool = False, text: str = "How should the service run?",
             header: str = "Deploy", description: str = "") -> a4p.Question:
    """A question with these labels; without labels one that is answered in words."""
    options = [a4p.Option(label, description) for label in labels]
    return a4p.Question("q1", header, text, options, multi)


def config(**values: Any) -> a4p.Config:
    """The config that a file with a topic and these values gives, whatever the environment."""
    bare = dict.fromkeys(a4p.ENVIRONMENT, "")
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, bare):
        write_config(Path(folder), **values)
        return a4p.Config(folder)


def write_config(home: Path, **values: Any) -> None:
    """A config file with a topic, English, and these values."""
    home.mkdir(exist_ok=True)
    (home / "config.json").write_text(json.dumps({"topic": TOPIC, "lang": "en", **values}))


# --- calls of the agents ----------------------------------------------------

def option(label: str, description: str = "") -> dict[str, Any]:
    """One choice in the form that Claude Code and Codex use."""
    return {"label": label, "description": description or f"takes {label}"}


def asked(text: str, *labels: str, multi: bool = False, header: str = "Cache") -> dict[str, Any]:
    """One question of Claude Code."""
    return {"question": text, "header": header, "multiSelect": multi,
            "options": [option(label) for label in labels]}


CACHE = asked("Where should sessions live?", "Redis", "Memory")
EXTRAS = asked("Which extras?", "Tracing", "Metrics, alerts", 'A "dry" run', multi=True,
               header="Extras")


def fresh(rows: Any) -> list[Any]:
    """Copies of the questions, so that no test changes those of another."""
    return copy.deepcopy(list(rows))


def claude(*questions: Any, event: str = "PreToolUse", **more: Any) -> dict[str, Any]:
    """A call of AskUserQuestion as Claude Code passes it to a hook."""
    call: dict[str, Any] = {
        "session_id": "5f0c2f4e-1111-4222-8333-944455556666", "cwd": "/home/ada/shop",
        "transcript_path": "/home/ada/.claude/projects/shop/5f0c2f4e.jsonl",
        "permission_mode": "default", "effort": {"level": "high"}, "hook_event_name": event,
        "tool_name": "AskUserQuestion",
        "tool_input": {"questions": fresh(questions or [CACHE])}}
    if event == "PreToolUse":
        call["tool_use_id"] = "toolu_0001"
    return {**call, **more}


def codex(*questions: Any, **more: Any) -> dict[str, Any]:
    """A call of request_user_input as Codex passes it to a hook."""
    rows = questions or ({"id": "cache", "header": "Cache", "question": CACHE["question"],
                          "options": CACHE["options"]},)
    return {"session_id": "0a1b", "turn_id": "0a1c", "cwd": "/home/ada/shop",
            "hook_event_name": "PreToolUse", "model": "gpt-5.5", "permission_mode": "default",
            "tool_name": "request_user_input", "tool_input": {"questions": fresh(rows)},
            "tool_use_id": "call_7", **more}


def codex_async(*questions: Any, **more: Any) -> dict[str, Any]:
    """A call of request_user_input_async: titles, and options that are bare labels."""
    rows = questions or ({"title": "Where should sessions live?", "options": ["Redis", "Memory"]},
                         {"title": "Anything else?"})
    return codex(*rows, tool_name="request_user_input_async", **more)


def dsh(*questions: Any, event: str = "AskUserQuestion", **more: Any) -> dict[str, Any]:
    """A call of ask_user_question as DSH's plugin (or its hooks bridge) passes it."""
    rows = questions or (
        {"id": "cache", "header": "Cache", "question": "Where should sessions live?",
         "options": [{"label": "Redis", "description": "a server"}, {"label": "Memory"}]},
        {"id": "extras", "question": "Which extras?", "multi_select": True,
         "options": [{"label": "Tracing"}, {"label": "Metrics"}]},
        {"id": "name", "question": "What is it called?"})
    call: dict[str, Any] = {
        "session_id": "session-17", "cwd": "/home/ada/shop", "hook_event_name": event,
        "tool_name": "ask_user_question", "tool_use_id": "call_0",
        "tool_input": {"questions": fresh(rows)}}
    if event == "AskUserQuestion":
        call.update(agent="dsh", parent_session=None)
    return {**call, **more}


# agent and every route by which a question of it is answered: (agent, call, desk)
ROUTES = [
    ("claude", claude(CACHE, EXTRAS), "wait"),
    ("claude", claude(CACHE, EXTRAS, event="PermissionRequest"), "beside"),
    ("claude", claude(CACHE, permission_mode="dontAsk"), "beside"),
    ("codex", codex(), "wait"),
    ("codex", codex_async(), "wait"),
    ("dsh", dsh(), "wait"),
    ("dsh", dsh(event="PreToolUse"), "wait"),
]


# --- runs of a4p ------------------------------------------------------------

def strict_json(text: str) -> Any:
    """The value of a JSON text; raises ValueError for what only Python reads as JSON."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def run(home: Path, *words: str, data: bytes = b"", flags: tuple[str, ...] = (),
        **environment: str) -> subprocess.CompletedProcess[bytes]:
    """One run of a4p.py on this home; only `environment` speaks of a4p and of a language."""
    told = {name: value for name, value in os.environ.items()
            if not name.startswith(("A4P_", "LC_", "LANG", "CLAUDE_"))}
    return subprocess.run(
        [sys.executable, *flags, SCRIPT, *words], input=data, capture_output=True, check=False,
        timeout=SOON, env={**told, "A4P_HOME": str(home), "LANG": "C.UTF-8", **environment})


def log_of(home: Path) -> str:
    """The log of this home, "" where there is none."""
    path = home / "a4p.log"
    return path.read_text() if path.exists() else ""
