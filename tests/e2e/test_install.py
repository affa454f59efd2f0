"""setup as a new user does it on a terminal, and the real agents on a config that it installed."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents import Agent, Claude, Codex, Dsh, Screen, end, marked
from homes import A4P
from models import Call, Model
from phones import Phone
from test_claude import DATABASE as CLAUDE_QUESTION
from test_claude import chosen
from test_codex import DATABASE as CODEX_QUESTION
from test_codex import native
from test_dsh import DATABASE as DSH_QUESTION
from test_dsh import answers

COMMAND = (sys.executable, str(A4P))
QUICK = (sys.executable, "-c", f"import sys; sys.path.insert(0, {str(A4P.parent)!r}); import a4p; "
         "a4p.TEST_WAIT = 2.0; sys.exit(a4p.main())")  # the test question waits 2 s, not 120


class Person(Agent):
    """Somebody with a home and nothing in it."""

    def start(self) -> None:
        """There is nothing to start."""


@pytest.fixture(autouse=True)
def _new_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A4P_HOME", raising=False)


@pytest.fixture
def person(tmp_path: Path, run: contextlib.ExitStack) -> Person:
    """A new user at a terminal."""
    return run.enter_context(Person(tmp_path, run.enter_context(Model()), {}))


@pytest.fixture
def terminal(run: contextlib.ExitStack) -> Callable[..., Screen]:
    """Start a command at the terminal of somebody."""

    def start(agent: Agent, *command: str) -> Screen:
        screen = Screen(agent, *command)
        run.callback(screen.close)
        run.callback(lambda: end(marked(agent.mark), signal.SIGKILL, 3))
        return screen

    return start


def config(agent: Agent) -> dict[str, Any]:
    """The config that setup saved."""
    return dict(json.loads((agent.home / ".a4p" / "config.json").read_text()))


@contextlib.contextmanager
def phone_of(agent: Agent) -> Iterator[Phone]:
    """A phone that shows the topic that setup made."""
    with contextlib.closing(Phone(config(agent)["server"], config(agent)["topic"])) as phone:
        yield phone


def go_through(screen: Screen, server: str, agents: str) -> None:
    """Answer the five questions as a new user would: four by Enter, the server by its URL."""
    screen.shows(r"Language: .*\[en\]:")
    screen.press("Enter")
    screen.shows(r"Server: .*\[https://ntfy.sh\]:")
    screen.say(server)
    screen.shows(r"Topic.* \[a4p-[a-z2-7]{26}\]:")
    screen.press("Enter")
    screen.shows(r"Phone: .*\[android\]:")
    screen.press("Enter")
    screen.shows(rf"Put hooks .*\[{agents}\]:")
    screen.press("Enter")


# === setup =======================================================================================

def test_a_minute_after_setup_began_a_tap_has_come_back_and_claude_is_answered(
        tmp_path: Path, run: contextlib.ExitStack, server: str,
        terminal: Callable[..., Screen]) -> None:
    model = run.enter_context(Model([Call("AskUserQuestion", {"questions": [CLAUDE_QUESTION]})]))
    claude = Claude(tmp_path, model, "", events=(), mode="tmux")
    settings = claude.home / ".claude" / "settings.json"
    before = json.loads(settings.read_text())
    screen = terminal(claude, *COMMAND, "setup")
    go_through(screen, server, "claude")
    shown = screen.shows("Ready on the phone")
    assert f"{server}/{config(claude)['topic']}" in shown
    assert "▄" in shown  # the QR code
    with phone_of(claude) as phone:
        screen.press("Enter")
        screen.shows(r"Waiting for the phone: 1[12]\d s left")
        push = phone.push()
        assert "Does this reach you?" in push["message"]
        phone.tap(push, 0)
        shown = screen.shows(r"It works: “Yes” came back \d+ ms after")
        assert "a test message went there and back" in shown
        assert "Yes" in phone.replaced(push)["message"]
        claude.run(*COMMAND, "out")
        run.enter_context(claude)
        phone.tap(phone.push(1), 1)
        assert model.result() == chosen(("Which database?", "SQLite"))
    claude.run(*COMMAND, "uninstall", "--purge")
    after = json.loads(settings.read_text())  # Claude Code has written it anew meanwhile
    assert not after.pop("hooks", {})
    assert {**before, **after, "hooks": {}} == {**after, **before}
    assert not (claude.home / ".a4p").exists()


def test_no_reply_leads_to_the_usual_causes(
        person: Person, server: str, terminal: Callable[..., Screen]) -> None:
    screen = terminal(person, *QUICK, "setup")
    go_through(screen, server, "none")
    screen.shows("Ready on the phone")
    with phone_of(person) as phone:
        screen.press("Enter")
        push = phone.push()
        shown = screen.shows("The usual causes:")
        assert "battery optimisation" in shown
        phone.replaced(push)


def test_a_server_that_is_not_there_is_said_before_anything_is_sent(
        person: Person, terminal: Callable[..., Screen]) -> None:
    screen = terminal(person, *COMMAND, "setup")
    go_through(screen, "http://127.0.0.1:9", "none")
    screen.shows("Ready on the phone")
    screen.press("Enter")
    shown = screen.shows(r"failure +http://127.0.0.1:9 cannot be reached")
    assert "Waiting for the phone" not in shown


def test_what_does_not_fit_is_asked_again(
        person: Person, terminal: Callable[..., Screen]) -> None:
    screen = terminal(person, *COMMAND, "setup", "--topic", "t-of-mine")
    screen.shows("Language")
    screen.say("klingon")
    screen.shows("klingon does not fit here")
    screen.say("zh")
    screen.shows("服务器：")
    screen.say("ntfy.sh")
    screen.shows("ntfy.sh 不合要求")
    screen.press("C-c")
    screen.shows("已中止")
    assert not (person.home / ".a4p").exists()


def test_the_embedded_server_is_started_beside_setup(
        person: Person, terminal: Callable[..., Screen]) -> None:
    screen = terminal(person, *COMMAND, "setup", "--server", "embedded")
    screen.shows("Language")
    for _ in range(4):  # language, topic, phone, agents
        screen.press("Enter")
    screen.shows("a4p.py serve --listen 0.0.0.0:2586 --token")
    assert config(person)["server"].endswith(":2586")
    assert config(person)["token"] == config(person)["serve_token"]


def test_setup_again_keeps_what_was_chosen(person: Person, server: str) -> None:
    person.run(*COMMAND, "setup", "--yes", "--server", server, "--lang", "zh")
    first = config(person)
    person.run(*COMMAND, "setup", "--yes")
    assert config(person) == first
    assert (first["server"], first["lang"]) == (server, "zh")


def test_setup_with_yes_asks_nothing_and_proves_itself(
        person: Person, server: str, terminal: Callable[..., Screen]) -> None:
    person.run(*COMMAND, "setup", "--yes", "--server", server)
    with phone_of(person) as phone:
        screen = terminal(person, *COMMAND, "setup", "--yes")
        phone.tap(phone.push(), 0)
        screen.shows("It works: “Yes” came back")


# === The real agents on an installed config ======================================================

def ready(agent: Agent, server: str, name: str) -> None:
    """Set a4p up for this agent, and go out."""
    agent.run(*COMMAND, "setup", "--yes", "--server", server)
    agent.run(*COMMAND, "install", name)
    agent.run(*COMMAND, "out")


def test_codex_runs_the_hook_that_its_user_trusted(
        tmp_path: Path, run: contextlib.ExitStack, server: str) -> None:
    call = Call("request_user_input", {"questions": [CODEX_QUESTION]})
    model = run.enter_context(Model([call], [call]))
    codex = Codex(tmp_path, model, "", mode="tui")
    hooks = codex.home / ".codex" / "hooks.json"
    hooks.unlink()
    ready(codex, server, "codex")
    assert "d_trust_bad" in doctor(codex)
    with phone_of(codex) as phone:
        run.enter_context(codex)  # its user takes "Trust all and continue"
        phone.tap(phone.push(), 1)
        assert native(model.result()) == {"db": ["SQLite"]}
        assert "d_trust" in doctor(codex)
        codex.run(*COMMAND, "install", "codex")  # again: nothing changes, nothing to trust
        codex.spawn(codex.binary, "exec", "--skip-git-repo-check", "ask me again")
        phone.tap(phone.push(1), 0)
        assert native(model.result(1)) == {"db": ["PostgreSQL"]}
    codex.run(*COMMAND, "uninstall")
    assert not hooks.exists()


def doctor(agent: Agent) -> list[str]:
    """The checks that doctor made, by their keys."""
    done = agent.spawn(*COMMAND, "doctor", "--json").communicate(timeout=60)[0]
    return [row["check"] for row in json.loads(done)["checks"]]


@pytest.mark.parametrize("mode", ["print", "tmux"])
def test_claude_is_answered_through_an_installed_config(
        tmp_path: Path, run: contextlib.ExitStack, server: str, mode: str) -> None:
    model = run.enter_context(Model([Call("AskUserQuestion", {"questions": [CLAUDE_QUESTION]})]))
    claude = Claude(tmp_path, model, "", events=(), mode=mode)
    ready(claude, server, "claude")
    with phone_of(claude) as phone:
        run.enter_context(claude)
        phone.tap(phone.push(), 1)
        assert model.result() == chosen(("Which database?", "SQLite"))


def test_a_session_of_claude_that_is_open_soon_uses_what_is_installed_meanwhile(
        tmp_path: Path, run: contextlib.ExitStack, server: str) -> None:
    """It looks at its settings every few seconds: so the model asks until it has."""
    asked = [{**CLAUDE_QUESTION, "question": f"Which database, at {n}?"} for n in range(10, 20)]
    model = run.enter_context(Model(*(
        [Call("AskUserQuestion", {"questions": [question]})] for question in asked)))
    claude = run.enter_context(Claude(tmp_path, model, "", events=(), mode="tmux"))
    claude.dialog()
    ready(claude, server, "claude")
    with phone_of(claude) as phone:
        for n in range(10, 19):
            if phone.pushes:
                break
            # at the desk, until this one is gone: the next may be there at once
            claude.screen.press_until(rf"(?s)\A(?!.*database, at {n}\?.*Enter to select)", "Enter")
            with contextlib.suppress(AssertionError):
                phone.push(timeout=4)
        push = phone.push()
        phone.tap(push, 1)
        text = push["message"].split("\n")[0]
        number = [question["question"] for question in asked].index(text)
        assert model.result(number) == chosen((text, "SQLite"))


def test_claude_is_answered_through_the_settings_of_a_project(
        tmp_path: Path, run: contextlib.ExitStack, server: str) -> None:
    model = run.enter_context(Model([Call("AskUserQuestion", {"questions": [CLAUDE_QUESTION]})]))
    claude = Claude(tmp_path, model, "", events=())
    claude.run(*COMMAND, "setup", "--yes", "--server", server)
    claude.run(*COMMAND, "uninstall", "claude")
    claude.run(*COMMAND, "install", "--project")
    claude.run(*COMMAND, "out")
    assert (claude.work / ".claude" / "settings.local.json").exists()
    with phone_of(claude) as phone:
        run.enter_context(claude)
        phone.tap(phone.push(), 1)
        assert model.result() == chosen(("Which database?", "SQLite"))


PATCHES = {"new": None, "default": "# mine\n\n[]\n", "list": "- insert:\n    - id: tool-ask-user\n"
           "      name: '@deepseek-ai/dsh-tool-ask-user'\n"}


@pytest.mark.parametrize("patch", PATCHES.values(), ids=PATCHES)
def test_dsh_is_answered_whatever_its_patch_file_was(
        tmp_path: Path, run: contextlib.ExitStack, server: str, patch: str | None) -> None:
    model = run.enter_context(Model([Call("ask_user_question", {"questions": [DSH_QUESTION]})]))

    def plug(agent: Dsh) -> None:
        if patch is not None:
            (agent.home / ".dsh" / "cordis.patch.yml").write_text(patch)
        if "tool-ask-user" in str(patch):  # the profile's own row would stand there twice
            (agent.home / ".dsh" / "profiles" / "headless" / "cordis.patch.yml").write_text("[]\n")
        ready(agent, server, "dsh")

    dsh = run.enter_context(Dsh(tmp_path, model, plug))
    with phone_of(dsh) as phone:
        phone.tap(phone.push(), 1)
        assert answers(model.result()) == [{"id": "db", "selected": ["SQLite"]}]
    dsh.run(*COMMAND, "uninstall")
    file = dsh.home / ".dsh" / "cordis.patch.yml"
    assert (file.read_text() if file.exists() else None) == patch
    dsh.run(dsh.binary, "--profile", "headless", "--dump-config")  # it still boots
