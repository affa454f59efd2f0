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


# --- bytes to begin from: for tests/fuzz.py ---------------------------------

def event(name: str, **more: Any) -> dict[str, Any]:
    """A call of a hook that is no question."""
    return {"session_id": "5f0c2f4e", "cwd": "/home/ada/shop", "prompt_id": "p1",
            "permission_mode": "default", "hook_event_name": name, **more}


CALLS: list[tuple[str, dict[str, Any]]] = [(agent, payload) for agent, payload, _ in ROUTES] + [
    ("claude", event("PermissionRequest", tool_name="Bash", permission_suggestions=[
        {"type": "addRules", "rules": [{"toolName": "Bash", "ruleContent": "make:*"}],
         "behavior": "allow", "destination": "localSettings"}],
        tool_input={"command": "make test | tail -3", "description": "Run the tests"})),
    ("claude", event("PermissionRequest", tool_name="Edit", tool_input={
        "file_path": "../a.py", "old_string": "x\ny", "new_string": "é\n", "replace_all": False})),
    ("claude", event("PermissionRequest", tool_name="ExitPlanMode",
                     tool_input={"plan": "1. Read\n2. Write"})),
    ("codex", event("PermissionRequest", tool_name="apply_patch", turn_id="t1", tool_input={
        "command": "*** Begin Patch\n*** Update File: /etc/hosts\n+x\n*** End Patch"})),
    ("dsh", event("PermissionRequest", tool_name="mcp__db__drop", agent="dsh",
                  tool_input={"reason": "to clean up", "deep": [1, {"a": None}]})),
    ("claude", event("Elicitation", mcp_server_name="shop", message="Your order?",
                     requested_schema={"type": "object", "properties": {
                         "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"]},
                         "gift": {"type": "boolean", "description": "Wrap it?"},
                         "name": {"type": "string"}}})),
    ("claude", event("Stop", last_assistant_message="All is done. " * 99, background_tasks=[])),
    ("codex", event("Stop", turn_id="t1", last_assistant_message="Done.")),
    ("dsh", event("Stop", turn_id="7", agent="dsh")),
]
CALL_BYTES = [json.dumps(payload, ensure_ascii=False).encode() for _, payload in CALLS]
REPLY_BYTES = [text.encode() for text in (
    "3", "1,3 and add logging", "2: but later", "选第三个", "③", "k7 yes", "#K7: use sqlite", "yes",
    "desk", "Redis", "Metrics, alerts, Tracing", '{"behavior": "allow"}', "--allow", "/etc/passwd",
    "$(touch x); `ls`", "option 3.", "(1) [2] {3}", "always", "允许", "\x1b]0;title\x07", "9\r\nX: y")]
CONFIG_BYTES = [json.dumps(values, indent=2, ensure_ascii=False).encode() for values in (
    {"server": "https://ntfy.sh", "topic": TOPIC, "token": "tk_abcdef", "timeout": 60},
    {"server": "http://127.0.0.1:2586/ntfy/", "topic": "t", "user": "ada", "password": "pä ss",
     "reply_token": "tk_2", "share_token": True, "priority": 5, "lang": "zh", "phone": "ios",
     "proxy": "http://u:p%20w@127.0.0.1:3128", "desk": "beside", "reply_wait": 1.5},
    {"topic": TOPIC, "lang": "auto", "unknown": [1, {"a": "日本"}], "serve_token": "x"})]
ENTRY_BYTES = [b"1999999999\n600\n", b"\n\n"] + [json.dumps({
    "id": "qabcdefghij", "agent": "Claude", "project": "shop", "text": "Which?", "since": 1.5,
    "deadline": 1999999999.5, "title": "Claude: Cache", "pid": pid, "stamp": "1", "host": "HOST",
    "closing": {"topic": TOPIC, "title": "Claude: Cache", "message": "x", "sequence_id": "qabcdefghij",
                "priority": 2}, "tag": "k7"}).encode() for pid in (1, 999_999_999)]
STORE_BYTES = [b"".join(json.dumps({
    "id": f"abcdefghijk{n}", "time": 1999990000, "expires": 1999999999, "event": kind, "topic": "t",
    "title": "Claude: Cache", "message": "Where?\n1. Redis", "priority": 4, "tags": ["warning"]},
    separators=(",", ":")).encode() + b"\n" for n, kind in enumerate(["message", "message_delete"]))]
HEAD = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
REQUEST_BYTES = [
    b"GET /" + HEAD + b"\r\n", b"HEAD /t" + HEAD + b"\r\n", b"OPTIONS /t" + HEAD + b"\r\n",
    b"POST /t?title=q2&p=high" + HEAD + b"Content-Length: 5\r\nX-Tags: a,b\r\n\r\nhello",
    b"PUT /t/seq" + HEAD + b"Title: =?utf-8?q?=C3=A4?=\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nabc\r\n0\r\nT: 1\r\n\r\n",
    b"POST /t" + HEAD + b"Actions: view, 'A, B', https://x.y; http, C, http://z, headers.K=v\r\n"
    b"Content-Length: 1\r\n\r\nx",
    b"POST /" + HEAD + b"Content-Length: 150\r\n\r\n" + json.dumps({
        "topic": "t", "message": "x", "title": "A", "priority": 4, "tags": ["b"], "a4p": {"v": 1},
        "actions": [{"action": "view", "label": "L", "url": "u"}]}).encode().ljust(150),
    b"GET /t,u/json?poll=1&since=10m" + HEAD + b"\r\n" + b"GET /t/raw?poll=1&tags=a" + HEAD + b"\r\n",
    b"GET /t/sse?since=all&priority=4" + HEAD + b"Authorization: Basic OmE=\r\n\r\n",
    b"GET /t/json HTTP/1.0\r\n\r\n", b"DELETE /t/seq" + HEAD + b"\r\n",
    b"PUT /t/seq/read" + HEAD + b"\r\n", b"GET /t/trigger?auth=QmFzaWMg" + HEAD + b"\r\n",
    b"GET /v1/health" + HEAD + b"Expect: 100-continue\r\nOrigin: http://127.0.0.1\r\n\r\n"]
LINE_BYTES = [json.dumps({
    "id": "abcdefghijkl", "time": "NOW", "event": "message", "topic": f"{TOPIC}{suffix}",
    "message": "Memory", **more}).replace('"NOW"', "NOW").encode() + b"\n" for suffix, more in (
        ("-response", {}), ("-response", {"title": "qabcdefghij"}), ("", {"tags": ["x"]}), ("", {}),
        ("-response", {"attachment": {"name": "a.txt", "type": "text/plain", "size": 3,
                                      "url": "http://127.0.0.1:9/file/a.txt"}}),
        ("-response", {"encoding": "base64", "expires": 2000000000, "actions": [{"a": 1}]}))]
ASK_USER = {"title": "Which?", "description": '{"a": [1]}', "options": [
    {"value": "pg", "label": "PostgreSQL", "priority": "high"}, {"value": "", "label": "None", "danger": True}]}
MCP_BYTES = [b"".join(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n" for message in some)
             for some in (
    [{"id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "clientInfo": {"name": "n", "title": "T"}, "capabilities": {}}},
     {"method": "notifications/initialized"}, {"id": "p", "method": "ping"}],
    [{"id": 1, "method": "initialize", "params": {"capabilities": {"elicitation": {"form": {}}}}},
     {"id": 2, "method": "tools/call", "params": {"name": "ask_user", "arguments": ASK_USER}},
     {"id": "form of 2", "result": {"action": "accept", "content": {"option": "PostgreSQL"}}}],
    [{"id": 3, "method": "tools/call", "params": {"name": "ask_user", "arguments": ASK_USER,
                                                  "_meta": {"progressToken": 7}}},
     {"method": "notifications/cancelled", "params": {"requestId": 3, "reason": "r"}}],
    [{"id": 4, "method": "tools/call", "params": {"name": "notify_user", "arguments": {"message": "x"}}},
     {"id": 5, "method": "tools/list", "params": {}}])]
MCP_BYTES += [b"[" + b",".join(MCP_BYTES[0].splitlines()) + b"]\n"]
