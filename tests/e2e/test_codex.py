"""The real Codex: what the model is told when the phone answers its question tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from agents import Codex
from homes import PROMPT, Home
from models import Result
from phones import Phone

Start = Callable[..., Codex]

DATABASE = {"id": "db", "header": "Database", "question": "Which database?", "options": [
    {"label": "PostgreSQL", "description": "robust"}, {"label": "SQLite", "description": "small"}]}
LOGIN = {"id": "login", "header": "Login", "question": "Which login?", "options": [
    {"label": "JWT", "description": "stateless"}, {"label": "Session", "description": "cookie"}]}
ASYNC_DATABASE = {"title": "Which database?", "options": ["PostgreSQL", "SQLite"]}
ASYNC_NAME = {"title": "Which name?"}
WORDS = 'Neither: use "DuckDB",\nnot \'SQLite\'\\ — 用数据库 🦆, 3 GB'
UNANSWERED = '{"answers":{}}'  # what `codex exec` does itself: it has nobody to ask


def native(result: Result) -> Any:
    """Take the answers out of what the model was told: Codex's frame, a sentence, JSON."""
    framed = re.fullmatch(r"Tool call blocked by PreToolUse hook: (.*)\. Tool: (\w+)",
                          result.text, re.S)
    assert framed and framed[2] == result.tool, result
    found = re.search(r'\{"answers".*\}', framed[1], re.S)
    assert found, result
    answers, _ = json.JSONDecoder().raw_decode(found[0])
    return {key: value["answers"] for key, value in answers["answers"].items()}


# === codex exec ==================================================================================

def test_a_tap_is_the_answer(codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE)
    push = phone.push()
    assert push["title"] == "Codex: Database"
    phone.tap(push, 1)
    assert agent.model.result().text == (
        "Tool call blocked by PreToolUse hook: This is no error: the user has answered, from the "
        "phone. Which database? -> SQLite. As the tool's result: "
        '{"answers": {"db": {"answers": ["SQLite"]}}} Go on with these answers, and do not call '
        "request_user_input again for them. Tool: request_user_input")
    assert "Answered: SQLite" in phone.replaced(push)["message"]


def test_a_number_is_the_answer(codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE)
    phone.push()
    phone.type("２")
    assert native(agent.model.result()) == {"db": ["SQLite"]}


def test_words_are_the_answer_verbatim(codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE)
    phone.push()
    phone.bar(WORDS)
    result = agent.model.result()
    assert native(result) == {"db": [WORDS]}
    assert WORDS in result.text


def test_two_questions_are_asked_one_after_the_other(codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE, LOGIN)
    phone.tap(phone.push(), 0)
    second = phone.push(1)
    assert second["title"] == "Codex: Login (2/2)"
    phone.type("session")
    assert native(agent.model.result()) == {"db": ["PostgreSQL"], "login": ["Session"]}


def test_the_async_tool_gets_its_answer_at_once(codex: Start, phone: Phone) -> None:
    agent = codex(ASYNC_DATABASE, ASYNC_NAME, tool="request_user_input_async",
                  model_name="gpt-6.2-sol")
    phone.tap(phone.push(), 1)
    phone.push(1)
    phone.type("Ledger")
    assert native(agent.model.result()) == {
        "Which database?": ["SQLite"], "Which name?": ["Ledger"]}


def test_an_answer_arrives_where_codex_itself_would_refuse_to_ask(
        codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE, flag=False)
    phone.tap(phone.push(), 0)
    assert native(agent.model.result()) == {"db": ["PostgreSQL"]}


def test_nobody_answers_and_codex_goes_its_own_way(
        codex: Start, home: Home, phone: Phone) -> None:
    home.configure(timeout=2)
    agent = codex(DATABASE)
    push = phone.push()
    assert agent.model.result().text == UNANSWERED
    assert "Not answered" in phone.replaced(push)["message"]


def test_at_home_codex_goes_its_own_way_and_the_phone_is_silent(
        codex: Start, home: Home, phone: Phone) -> None:
    home.run("home")
    agent = codex(DATABASE)
    assert agent.model.result().text == UNANSWERED
    assert not phone.pushes


# === codex in the terminal, hooks trusted by its user ============================================

DIALOG = r"Question 1/1"


def test_a_tap_answers_the_terminal_program(codex: Start, phone: Phone) -> None:
    agent = codex(DATABASE, mode="tui")
    phone.tap(phone.push(), 1)
    assert native(agent.model.result()) == {"db": ["SQLite"]}


def test_coming_home_gives_a_waiting_question_to_the_terminal(
        codex: Start, home: Home, phone: Phone) -> None:
    agent = codex(DATABASE, mode="tui")
    push = phone.push()
    assert not re.search(DIALOG, agent.screen.text())
    home.run("home")
    assert "Which database?" in agent.screen.shows(DIALOG, PROMPT)
    assert "Released" in phone.replaced(push, PROMPT)["message"]


def test_a_killed_question_is_withdrawn_by_the_next_command(
        codex: Start, home: Home, phone: Phone) -> None:
    agent = codex(DATABASE, mode="tui")
    push = phone.push()
    agent.screen.press_until("interrupted", "Escape")  # Codex kills the hook without warning
    agent.no_hooks()
    home.run("status")
    assert "No longer waiting" in phone.replaced(push, PROMPT)["message"]
