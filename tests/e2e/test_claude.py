"""The real Claude Code: what the model is told, by both routes, at the desk and on the phone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents import CLAUDE, NO_DIALOG, Claude
from homes import PROMPT, Home
from models import Result
from phones import Phone

Start = Callable[..., Claude]


def question(text: str, header: str, *labels: str, multi: bool = False) -> dict[str, Any]:
    """Give a question of AskUserQuestion."""
    return {"question": text, "header": header, "multiSelect": multi,
            "options": [{"label": label, "description": f"that is {label}"} for label in labels]}


DATABASE = question("Which database?", "Database", "PostgreSQL", "SQLite")
FEATURES = question("Which features?", "Features", "Auth", "Search", "Export", multi=True)
MODES = ["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto"]
WORDS = 'Neither: use "DuckDB",\nnot \'SQLite\'\\ — 用数据库 🦆, 3 GB'


def chosen(*pairs: tuple[str, str]) -> Result:
    """What the model is told when each answer is a label."""
    told = ", ".join(f'"{question}"="{answer}"' for question, answer in pairs)
    return Result("AskUserQuestion", f"Your questions have been answered: {told}. "
                  "You can now continue with these answers in mind.", False)


def written(version: str, *pairs: tuple[str, str]) -> Result:
    """What the model is told when an answer is the user's own words."""
    if version == "2.1.197":
        return chosen(*pairs)
    told = ", ".join(f'"{question}"="{answer}"' for question, answer in pairs)
    return Result("AskUserQuestion", f"The user answered: {told}. Read the answers carefully — "
                  "they may request clarification, changes, or that you not proceed — and follow "
                  "what they actually say.", False)


@pytest.fixture(params=["wait", "beside"])
def desk(request: pytest.FixtureRequest, home: Home) -> str:
    """Both routes: the terminal waits for the phone, or its dialog is beside."""
    home.configure(desk=request.param)
    return str(request.param)


@pytest.fixture
def beside(home: Home) -> None:
    """The route on which the terminal's dialog is beside the phone's."""
    home.configure(desk="beside")


@pytest.fixture(params=list(CLAUDE))
def version(request: pytest.FixtureRequest) -> str:
    """Each pinned version."""
    return str(request.param)


# === From the phone ==============================================================================

@pytest.mark.usefixtures("desk")
def test_a_tap_is_the_answer(claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version)
    push = phone.push()
    assert push["title"] == "Claude: Database"
    assert [action["label"] for action in push["actions"]] == ["PostgreSQL", "SQLite"]
    assert push["message"].startswith("Which database?\n\n1. PostgreSQL")
    assert "shop" in push["message"]  # the project
    phone.tap(push, 1)
    assert agent.model.result() == chosen(("Which database?", "SQLite"))
    assert "Answered: SQLite" in phone.replaced(push)["message"]


@pytest.mark.usefixtures("desk")
def test_a_number_is_the_answer(claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version)
    phone.push()
    phone.type("2.")
    assert agent.model.result() == chosen(("Which database?", "SQLite"))


@pytest.mark.usefixtures("desk")
def test_words_are_the_answer_verbatim(claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version)
    phone.push()
    phone.bar(WORDS)
    assert agent.model.result() == written(version, ("Which database?", WORDS))


@pytest.mark.usefixtures("desk")
def test_two_questions_are_asked_one_after_the_other(
        claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, FEATURES, version=version)
    first = phone.push()
    assert first["title"] == "Claude: Database (1/2)"
    phone.tap(first, 0)
    second = phone.push(1)
    assert second["title"] == "Claude: Features (2/2)"
    phone.type("1,3")
    assert agent.model.result() == chosen(
        ("Which database?", "PostgreSQL"), ("Which features?", "Auth, Export"))


def test_words_behind_the_numbers_of_a_multi_select_come_last(
        claude: Start, phone: Phone, version: str) -> None:
    agent = claude(FEATURES, version=version)
    phone.push()
    phone.type("1,3 and add logging")
    assert agent.model.result() == written(
        version, ("Which features?", "Auth, Export, and add logging"))


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("mode", MODES)
def test_the_beside_route_answers_in_every_mode(
        claude: Start, phone: Phone, version: str, mode: str) -> None:
    agent = claude(DATABASE, version=version, permission_mode=mode)
    phone.tap(phone.push(), 1)
    assert agent.model.result() == chosen(("Which database?", "SQLite"))
    assert len(phone.pushes) == 1  # of the two events, one asks


@pytest.mark.usefixtures("beside")
def test_an_answer_from_the_phone_closes_the_dialog_at_the_desk(
        claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version, mode="tmux")
    assert "Which database?" in agent.dialog()
    phone.tap(phone.push(), 1)
    assert agent.model.result() == chosen(("Which database?", "SQLite"))
    agent.screen.shows(NO_DIALOG)


# === At the desk =================================================================================

@pytest.mark.usefixtures("beside")
def test_an_answer_at_the_desk_withdraws_the_push(
        claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version, mode="tmux")
    push = phone.push()
    agent.dialog()
    agent.screen.press_until(NO_DIALOG, "Enter")
    assert agent.model.result() == chosen(("Which database?", "PostgreSQL"))
    assert "Answered at the desk" in phone.replaced(push, PROMPT)["message"]
    agent.no_hooks()


@pytest.mark.usefixtures("beside")
def test_a_dialog_dismissed_at_the_desk_withdraws_the_push(
        claude: Start, phone: Phone, version: str) -> None:
    agent = claude(DATABASE, version=version, mode="tmux")
    push = phone.push()
    agent.dialog()
    agent.screen.press_until(NO_DIALOG, "Escape")
    phone.replaced(push, PROMPT)
    agent.no_hooks()
    assert not agent.model.results


@pytest.mark.usefixtures("beside")
def test_a_tap_after_the_desk_answered_changes_nothing(claude: Start, phone: Phone) -> None:
    agent = claude(DATABASE, mode="tmux")
    push = phone.push()
    agent.dialog()
    agent.screen.press_until(NO_DIALOG, "Enter")
    phone.tap(push, 1)
    assert agent.model.result() == chosen(("Which database?", "PostgreSQL"))
    phone.replaced(push, PROMPT)


# === When the phone does not answer ==============================================================

def test_nobody_answers_and_the_waiting_terminal_asks(
        claude: Start, home: Home, phone: Phone, version: str) -> None:
    home.configure(desk="wait", timeout=2)
    agent = claude(DATABASE, version=version)
    push = phone.push()
    assert not agent.has_dialog()
    agent.dialog()
    assert "Not answered" in phone.replaced(push)["message"]


def test_nobody_answers_and_the_dialog_beside_stays(
        claude: Start, home: Home, phone: Phone, version: str) -> None:
    home.configure(desk="beside", timeout=2)
    agent = claude(DATABASE, version=version, mode="tmux")
    agent.dialog()
    assert "Not answered" in phone.replaced(phone.push())["message"]
    assert agent.has_dialog()
    agent.screen.press_until(NO_DIALOG, "Enter")
    assert agent.model.result() == chosen(("Which database?", "PostgreSQL"))


@pytest.mark.usefixtures("desk")
def test_at_home_the_terminal_asks_and_the_phone_is_silent(
        claude: Start, home: Home, phone: Phone, version: str) -> None:
    home.run("home")
    agent = claude(DATABASE, version=version, mode="tmux")
    agent.dialog()
    agent.screen.press_until(NO_DIALOG, "Enter")
    assert agent.model.result() == chosen(("Which database?", "PostgreSQL"))
    assert not phone.pushes


def test_coming_home_gives_a_waiting_question_to_the_terminal(
        claude: Start, home: Home, phone: Phone, version: str) -> None:
    home.configure(desk="wait")
    agent = claude(DATABASE, version=version, mode="tmux")
    push = phone.push()
    assert not agent.has_dialog()
    home.run("home")
    assert "Which database?" in agent.dialog(PROMPT)
    assert "Released" in phone.replaced(push, PROMPT)["message"]


@pytest.mark.usefixtures("beside")
def test_coming_home_leaves_the_dialog_and_withdraws_the_push(
        claude: Start, home: Home, phone: Phone) -> None:
    agent = claude(DATABASE, mode="tmux")
    push = phone.push()
    agent.dialog()
    home.run("home")
    assert "Released" in phone.replaced(push, PROMPT)["message"]
    agent.no_hooks()
    assert agent.has_dialog()


@pytest.mark.usefixtures("desk")
def test_the_question_of_a_killed_claude_is_withdrawn(claude: Start, phone: Phone) -> None:
    agent = claude(DATABASE)
    push = phone.push()
    agent.kill()
    assert "Withdrawn" in phone.replaced(push, PROMPT)["message"]
    agent.no_hooks()


# === When a4p is not there =======================================================================

@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("gone", ["script", "python"])
def test_without_a4p_or_its_python_the_terminal_asks(
        claude: Start, home: Home, tmp_path: Path, gone: str) -> None:
    setattr(home, gone, str(tmp_path / "moved-away"))
    agent = claude(DATABASE, mode="tmux")
    assert "Which database?" in agent.dialog()
    agent.screen.press_until(NO_DIALOG, "Enter")
    assert agent.model.result() == chosen(("Which database?", "PostgreSQL"))
