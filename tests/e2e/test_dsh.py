"""The real DSH with the plugin that a4p installs: what the model is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import Dsh
from homes import PROMPT, Home
from models import Result
from phones import Phone

Start = Callable[..., Dsh]

DATABASE = {"id": "db", "header": "Database", "question": "Which database?", "options": [
    {"label": "PostgreSQL", "description": "robust"}, {"label": "SQLite", "description": "small"}]}
FEATURES = {"id": "features", "header": "Features", "question": "Which features?",
            "multi_select": True,
            "options": [{"label": "Auth"}, {"label": "Search"}, {"label": "Export"}]}
NAME = {"id": "name", "question": "Which name?"}
WORDS = 'Neither: use "DuckDB",\nnot \'SQLite\'\\ — 用数据库 🦆, 3 GB'
UNANSWERED = Result(  # what headless DSH does itself: it has nobody to ask
    "ask_user_question", "Error: no user-questions answerer accepted the request", True)


def answers(result: Result) -> Any:
    """Take the answers out of what the model was told."""
    assert not result.is_error, result
    told = json.loads(result.text)
    assert list(told) == ["answers"]
    return told["answers"]


def test_a_tap_is_the_answer(dsh: Start, phone: Phone) -> None:
    agent = dsh(DATABASE)
    push = phone.push()
    assert push["title"] == "DSH: Database"
    phone.tap(push, 1)
    assert answers(agent.model.result()) == [{"id": "db", "selected": ["SQLite"]}]
    assert "Answered: SQLite" in phone.replaced(push)["message"]


def test_a_number_is_the_answer(dsh: Start, phone: Phone) -> None:
    agent = dsh(DATABASE)
    phone.push()
    phone.type("#1")
    assert answers(agent.model.result()) == [{"id": "db", "selected": ["PostgreSQL"]}]


def test_words_are_the_answer_verbatim(dsh: Start, phone: Phone) -> None:
    agent = dsh(DATABASE)
    phone.push()
    phone.bar(WORDS)
    assert answers(agent.model.result()) == [{"id": "db", "selected": [], "custom": WORDS}]


def test_three_questions_of_three_kinds(dsh: Start, phone: Phone) -> None:
    agent = dsh(DATABASE, FEATURES, NAME)
    phone.tap(phone.push(), 0)
    assert phone.push(1)["title"] == "DSH: Features (2/3)"
    phone.type("1,3 and add logging")
    assert phone.push(2)["title"] == "DSH: Question (3/3)"
    phone.type("Ledger 帐本")
    first, second, third = answers(agent.model.result())
    assert first == {"id": "db", "selected": ["PostgreSQL"]}
    assert second == {
        "id": "features", "selected": ["Auth", "Export"], "custom": "and add logging"}
    assert third == {"id": "name", "selected": [], "custom": "Ledger 帐本"}


def test_nobody_answers_and_dsh_asks_itself(dsh: Start, home: Home, phone: Phone) -> None:
    home.configure(timeout=2)
    agent = dsh(DATABASE)
    push = phone.push()
    assert agent.model.result() == UNANSWERED
    assert "Not answered" in phone.replaced(push)["message"]


def test_at_home_dsh_asks_itself_and_the_phone_is_silent(
        dsh: Start, home: Home, phone: Phone) -> None:
    home.run("home")
    agent = dsh(DATABASE)
    assert agent.model.result() == UNANSWERED
    assert not phone.pushes


def test_coming_home_gives_a_waiting_question_back(
        dsh: Start, home: Home, phone: Phone) -> None:
    agent = dsh(DATABASE)
    push = phone.push()
    home.run("home")
    assert agent.model.result(timeout=PROMPT) == UNANSWERED
    assert "Released" in phone.replaced(push, PROMPT)["message"]


DESK = """// The desk: answers DSH's own question card after a while, or when asked to.
import { existsSync } from 'node:fs';
export const name = 'desk';
export function apply(ctx, config) {
  ctx.on('user-questions/request', async (request, next) => {
    while (!existsSync(config.flag)) {
      if (request.signal?.aborted) throw new Error('the card was closed');
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    return { answers: request.questions.map((question) =>
      ({ id: question.id, selected: [question.options[0].label] })) };
  });
}
"""


def desk_of(tmp_path: Path, agent: Dsh) -> Path:
    """Sit down at DSH's desk; the file that is given makes it answer with the first option."""
    plugin, flag = tmp_path / "desk.mjs", tmp_path / "answer-now"
    plugin.write_text(DESK)
    patch = agent.home / ".dsh" / "profiles" / "headless" / "cordis.patch.yml"
    patch.write_text(patch.read_text() + f"    - id: desk\n      name: {json.dumps(str(plugin))}\n"
                     f"      config: {json.dumps({'flag': str(flag)})}\n")
    return flag


def test_beside_the_desk_the_phone_may_be_first(
        dsh: Start, home: Home, phone: Phone, tmp_path: Path) -> None:
    home.configure(desk="beside")
    agent = dsh(DATABASE, also=lambda agent: desk_of(tmp_path, agent))
    push = phone.push()
    phone.tap(push, 1)
    assert answers(agent.model.result()) == [{"id": "db", "selected": ["SQLite"]}]
    assert "Answered: SQLite" in phone.replaced(push)["message"]


def test_beside_the_phone_the_desk_may_be_first(
        dsh: Start, home: Home, phone: Phone, tmp_path: Path) -> None:
    home.configure(desk="beside")
    agent = dsh(DATABASE, also=lambda agent: desk_of(tmp_path, agent))
    push = phone.push()
    (tmp_path / "answer-now").touch()
    assert answers(agent.model.result()) == [{"id": "db", "selected": ["PostgreSQL"]}]
    assert "Withdrawn" in phone.replaced(push)["message"]


def test_beside_with_nobody_at_the_desk_the_phone_still_answers(
        dsh: Start, home: Home, phone: Phone) -> None:
    home.configure(desk="beside")
    agent = dsh(DATABASE)
    phone.tap(phone.push(), 1)
    assert answers(agent.model.result()) == [{"id": "db", "selected": ["SQLite"]}]


def test_without_the_plugin_dsh_asks_itself(dsh: Start, phone: Phone) -> None:
    agent = dsh(DATABASE, commands=["install", "uninstall"])
    assert agent.model.result() == UNANSWERED
    assert not phone.pushes
