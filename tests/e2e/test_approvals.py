"""The real agents: approvals, plans and ends of turns are decided from the phone, or at the desk."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import CLAUDE, HOOK_TIMEOUT, Agent, Claude, Codex, Dsh, wait_until, write_json
from homes import PROMPT, Home
from models import Call, Model
from phones import Phone

ALLOW, DENY = 0, -1  # places of the buttons; between them Claude Code's Always
DIALOG, NO_DIALOG = "Do you want to proceed", r"(?s)\A(?!.*Do you want to proceed)"
SHOT = Call("Bash", {"command": "touch x && echo RAN", "description": "Leave a mark"})
FETCH = "curl -s http://127.0.0.1:9/a || echo RAN"  # nobody listens on port 9


def hooks(home: Home, agent: str, *events: str) -> dict[str, Any]:
    """What the agent's config needs for these events."""
    command = {"type": "command", "command": home.hook(agent), "timeout": HOOK_TIMEOUT}
    return {"hooks": {event: [{"hooks": [command]}] for event in events}}


@pytest.fixture
def claude(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Claude]:
    """Start a Claude Code in a terminal whose model makes these calls, with hooks on `event`."""

    def start(*calls: Call, event: str = "PermissionRequest", **options: Any) -> Claude:
        model = run.enter_context(Model(*([call] for call in calls)))
        return run.enter_context(Claude(tmp_path, model, "", mode="tmux",
                                        settings=hooks(home, "claude", event), **options))

    return start


@pytest.fixture
def codex(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Codex]:
    """Start a Codex in a terminal whose model makes these calls, with hooks on `event`."""

    def start(*calls: Call, event: str = "PermissionRequest") -> Codex:
        model = run.enter_context(Model(*([call] for call in calls)))
        agent = Codex(tmp_path, model, "", mode="tui")
        write_json(agent.home / ".codex" / "hooks.json", hooks(home, "codex", event))
        return run.enter_context(agent)

    return start


@pytest.fixture
def dsh(tmp_path: Path, home: Home, run: contextlib.ExitStack) -> Callable[..., Dsh]:
    """Start a DSH, with a4p's plugin installed, whose model makes these calls."""

    def plug(agent: Dsh) -> None:
        agent.run(home.python, home.script, "install", "dsh")

    def start(*calls: Call) -> Dsh:
        model = run.enter_context(Model(*([call] for call in calls)))
        return run.enter_context(Dsh(tmp_path, model, plug))

    return start


def reply(phone: Phone, push: dict[str, Any], text: str) -> None:
    """Type when the push's second is over: what was typed within it may be older than it."""
    time.sleep(max(0.0, push["time"] + 1 - time.time()))
    phone.type(text)


def ran(agent: Agent) -> bool:
    """Tell whether the command that asked for permission was run."""
    return (agent.work / "x").exists()


# === Claude Code =================================================================================

@pytest.mark.parametrize("version", CLAUDE)
def test_allow_runs_the_command(claude: Callable[..., Claude], phone: Phone, version: str) -> None:
    agent = claude(SHOT, version=version)
    push = phone.push()
    assert push["title"] == "Claude: Bash"
    assert push["message"].startswith("Leave a mark\ntouch x && echo RAN\n")
    assert not ran(agent)
    phone.tap(push, ALLOW)
    assert agent.model.result().text == "RAN"
    assert phone.replaced(push)["message"] == "Answered: Allow"
    agent.screen.shows(NO_DIALOG)


def test_always_is_not_asked_again(claude: Callable[..., Claude], phone: Phone) -> None:
    agent = claude(*(Call("Bash", {"command": FETCH, "description": text}) for text in "12"))
    push = phone.push()
    assert [action["label"] for action in push["actions"]] == ["Allow", "Always", "Deny"]
    assert "Always adds: addRules Bash curl" in push["message"]
    phone.tap(push, 1)
    assert [agent.model.result(n).text for n in (0, 1)] == ["RAN", "RAN"]
    assert "curl" in (agent.work / ".claude" / "settings.local.json").read_text()
    assert phone.pushes == [push]


def test_words_deny_and_reach_the_model(claude: Callable[..., Claude], phone: Phone) -> None:
    agent = claude(SHOT)
    reply(phone, phone.push(), "Not now: write to build/ 里面")
    result = agent.model.result()
    assert (result.text, result.is_error) == ("Not now: write to build/ 里面", True)
    assert not ran(agent)


@pytest.mark.parametrize(("key", "done"), [("Enter", True), ("Escape", False)])
def test_an_approval_decided_at_the_desk_withdraws_the_push(
        claude: Callable[..., Claude], phone: Phone, key: str, done: bool) -> None:
    agent = claude(SHOT)
    push = phone.push()
    agent.screen.shows(DIALOG)
    agent.screen.press_until(NO_DIALOG, key)
    assert phone.replaced(push)["message"] == ("Answered at the desk" if done
                                               else "Withdrawn by the agent")
    agent.no_hooks()
    assert ran(agent) == done


def test_coming_home_leaves_the_dialog(
        claude: Callable[..., Claude], home: Home, phone: Phone) -> None:
    agent = claude(SHOT)
    push = phone.push()
    home.run("home")
    phone.replaced(push, PROMPT)
    agent.screen.shows(DIALOG)
    assert not ran(agent)


@pytest.fixture
def planner(claude: Callable[..., Claude], home: Home, phone: Phone) -> Claude:
    """A Claude Code that has written a plan and shows it.

    Its plan's file gets a name of Claude's own; the test writes it while a question waits.
    """
    home.configure(desk="beside")
    ready = {"question": "Ready?", "header": "Plan", "options": [
        {"label": label, "description": label} for label in ("Yes", "Later")]}
    agent = claude(Call("AskUserQuestion", {"questions": [ready]}),
                   Call("ToolSearch", {"query": "select:ExitPlanMode", "max_results": 1}),
                   Call("ExitPlanMode", {}), permission_mode="plan")
    first = phone.push()
    names: list[str] = []

    def named() -> list[str]:
        for file in (agent.home / ".claude" / "projects").glob("*/*.jsonl"):
            names.extend(re.findall(r'"slug":"([^"]+)"', file.read_text()))
        return names

    wait_until(named, 10, lambda: "a name for the plan in the transcript")
    name = names[-1]
    (agent.home / ".claude" / "plans").mkdir(exist_ok=True)
    (agent.home / ".claude" / "plans" / f"{name}.md").write_text("# Ledger\n\n1. Sum up\n")
    phone.tap(first, ALLOW)
    return agent


def test_a_plan_is_read_and_approved(planner: Claude, phone: Phone) -> None:
    push = phone.push(1)
    assert push["title"] == "Claude: Plan"
    assert push["message"].startswith("# Ledger\n\n1. Sum up\n")
    assert [action["label"] for action in push["actions"]] == ["Approve", "Keep planning"]
    phone.tap(push, ALLOW)
    assert planner.model.result(2).text.startswith("User has approved your plan.")


def test_words_about_a_plan_keep_planning(planner: Claude, phone: Phone) -> None:
    reply(phone, phone.push(1), "Split it in two")
    result = planner.model.result(2)
    assert (result.text, result.is_error) == ("Split it in two", True)
    planner.screen.shows("plan mode on")


def test_a_finished_turn_is_told_and_waits_for_nobody(
        claude: Callable[..., Claude], phone: Phone) -> None:
    agent = claude(event="Stop")
    push = phone.push()
    assert push["title"] == "Claude: Finished"
    assert push["message"].startswith("done\n\nshop · ")
    assert "actions" not in push
    agent.no_hooks()


def test_a_reply_continues_the_session_once(
        claude: Callable[..., Claude], home: Home, phone: Phone) -> None:
    home.configure(reply_wait=60)
    agent = claude(event="Stop")
    agent.screen.shows("running Stop hook")
    phone.push()
    phone.type("Now write the tests")
    agent.screen.shows("Now write the tests")
    again = phone.push(1)
    phone.tap(again, 0)
    assert phone.replaced(again)["message"] == "done\n\nAnswered: Done"
    agent.no_hooks()


def test_escape_ends_the_wait_for_a_reply(
        claude: Callable[..., Claude], home: Home, phone: Phone) -> None:
    home.configure(reply_wait=60)
    agent = claude(event="Stop")
    push = phone.push()
    agent.screen.press_until("Interrupted", "Escape")
    assert phone.replaced(push, PROMPT)["message"] == "done\n\nWithdrawn by the agent"
    agent.no_hooks()


# === Codex =======================================================================================

ESCALATED = Call("exec_command", {
    "cmd": "touch x && echo RAN", "sandbox_permissions": "require_escalated",
    "justification": "May I leave a mark?"})


def test_codex_runs_what_is_allowed(codex: Callable[..., Codex], phone: Phone) -> None:
    agent = codex(ESCALATED)
    push = phone.push()
    assert push["title"] == "Codex: Bash"
    assert push["message"].startswith("May I leave a mark?\ntouch x && echo RAN\n")
    assert [action["label"] for action in push["actions"]] == ["Allow", "Deny"]
    phone.tap(push, ALLOW)
    assert "RAN" in agent.model.result().text
    assert ran(agent)


def test_codex_gets_words_as_its_denial(codex: Callable[..., Codex], phone: Phone) -> None:
    agent = codex(ESCALATED)
    reply(phone, phone.push(), "Use the folder tmp")
    assert 'Rejected("Use the folder tmp")' in agent.model.result().text.replace("\\", "")
    assert not ran(agent)


def test_codex_asks_at_its_terminal_once_the_user_is_home(
        codex: Callable[..., Codex], home: Home, phone: Phone) -> None:
    agent = codex(ESCALATED)
    push = phone.push()
    home.run("home")
    agent.screen.shows("Would you like to run")
    phone.replaced(push)
    assert not ran(agent)


def test_a_reply_continues_codex(
        codex: Callable[..., Codex], home: Home, phone: Phone) -> None:
    home.configure(reply_wait=60)
    agent = codex(event="Stop")
    push = phone.push()
    assert push["title"] == "Codex: Finished"
    phone.type("Now write the tests")
    assert "<hook_prompt" in agent.model.user_text("Now write the tests")
    phone.tap(phone.push(1), 0)
    agent.no_hooks()


# === DSH =========================================================================================

def outside(tmp_path: Path) -> Call:
    """A call that writes a file outside DSH's workspace."""
    return Call("write", {"file_path": str(tmp_path / "x"), "content": "mark\n",
                          "sandbox_permissions": "danger-full-access",
                          "justification": "May I leave a mark?"})


def test_dsh_may_once(dsh: Callable[..., Dsh], phone: Phone, tmp_path: Path) -> None:
    agent = dsh(outside(tmp_path))
    push = phone.push()
    assert (push["title"], push["priority"], push["tags"]) == ("DSH: write", 5, ["warning"])
    assert "May I leave a mark?" in push["message"]
    assert f"{tmp_path / 'x'}\n+mark\n" in push["message"]
    phone.tap(push, ALLOW)
    assert not agent.model.result().is_error
    assert (tmp_path / "x").read_text() == "mark\n"


def test_dsh_may_not_and_is_told_why(
        dsh: Callable[..., Dsh], phone: Phone, tmp_path: Path) -> None:
    agent = dsh(outside(tmp_path))
    reply(phone, phone.push(), "Stay in the workspace")
    assert "the user rejected" in agent.model.result().text
    agent.model.user_text("Stay in the workspace")
    assert not (tmp_path / "x").exists()


def test_a_finished_turn_of_dsh_is_told(dsh: Callable[..., Dsh], phone: Phone) -> None:
    agent = dsh()
    push = phone.push()
    assert push["title"] == "DSH: Finished"
    assert push["message"].startswith("done\n\nshop · ")
    agent.finish()
    assert phone.pushes == [push]


def test_a_reply_continues_dsh(dsh: Callable[..., Dsh], home: Home, phone: Phone) -> None:
    home.configure(reply_wait=60)
    agent = dsh()
    phone.push()
    phone.type("Now write the tests")
    assert agent.model.user_text("Now write the tests") == "Now write the tests"
    phone.tap(phone.push(1), 0)
    agent.finish()
