"""install and uninstall: nobody's config is harmed, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import a4p
from conftest import HookRun
from homes import A4P, SOON, Home
from phones import Phone
from users import VARIABLES, User

NAMES = ("claude", "codex", "dsh")
EXAMPLES = int(os.environ.get("A4P_TEST_EXAMPLES", "60"))  # of each property


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path / "me")


def commands(path: Path) -> list[str]:
    """The hook commands in a config, in their order."""
    return [hook["command"] for groups in json.loads(path.read_text())["hooks"].values()
            for group in groups for hook in group["hooks"]]


# === Any settings file ===========================================================================

@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Settings files name a folder that is no real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A4P_HOME", str(tmp_path_factory.mktemp("state")))
        yield


SPACES = st.sampled_from(["", "", " ", "\n", "\n  ", "\r\n\t", "  \n\n"])
WORDS = st.sampled_from(["hooks", "PreToolUse", "PermissionRequest", "Stop", "matcher", "env", "a",
                         "", "键", 'q"', "b\\", "e\n", "{", "]", ",", "hook claude"])
FOREIGN = st.sampled_from([
    {"matcher": "Bash", "hooks": [{"type": "command", "command": "echo hi"}]},
    {"hooks": [{"type": "command", "command": "a4p hook claude", "timeout": 5}]},
    {"hooks": [{"type": "prompt", "prompt": "[ ! -e x ] {"}, {}], "x": {"hooks": []}},
    {"matcher": "AskUserQuestion", "hooks": []}, {}, {"matcher": ""}])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6)
EVENTS = st.dictionaries(st.sampled_from(["PreToolUse", "PermissionRequest", "Stop", "x"]),
                         st.lists(FOREIGN, max_size=3), max_size=3)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A settings file's content, with hooks or without, anywhere among the keys."""
    config = draw(st.dictionaries(WORDS.filter("hooks".__ne__), VALUES, max_size=4))
    items = list(config.items())
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), ("hooks", draw(EVENTS)))
    return dict(items)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The same as some program or person would have written it down."""
    config = draw(configs())
    if draw(st.booleans()):
        text = json.dumps(config, indent=draw(st.sampled_from([None, 0, 1, 2, 4, "\t"])),
                          ensure_ascii=draw(st.booleans()))
        line = draw(st.sampled_from(["\n", "\r\n"]))
        text = text.replace("\n", line) + draw(st.sampled_from(["", line, "\n\n"]))
    else:
        text = draw(SPACES) + draw(spaced(config)) + draw(SPACES)
    return draw(st.sampled_from(["", "", "", "\ufeff"])) + text


@st.composite
def spaced(draw: st.DrawFn, value: Any) -> str:
    """JSON with white space where white space may be."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else [(None, item) for item in value]
        rows = []
        for key, item in pairs:
            name = "" if key is None else json.dumps(key) + draw(SPACES) + ":" + draw(SPACES)
            rows.append(draw(SPACES) + name + draw(spaced(item)) + draw(SPACES))
        left, right = "{}" if isinstance(value, dict) else "[]"
        return left + (",".join(rows) if rows else draw(SPACES)) + right
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def parsed(text: str | None) -> Any:
    return json.loads((text or "{}").lstrip("\ufeff"))


def without(config: Any, name: str) -> Any:
    """The config without a4p's groups; brackets that hold nothing count as not there."""
    hooks = {event: [group for group in groups if f"hook {name} ||" not in json.dumps(group)]
             for event, groups in config.get("hooks", {}).items()}
    kept = {event: groups for event, groups in hooks.items() if groups}
    rest = {key: value for key, value in config.items() if key != "hooks"}
    return {**rest, **({"hooks": kept} if kept else {})}


def steps(name: str) -> tuple[Callable[[str | None], str], Callable[[str | None], str | None]]:
    """What install does to the text of an agent's config, and what uninstall does."""
    [(_, added, removed)] = a4p.edits(a4p.State(), name, "x")
    return added, removed


def groups_of(name: str) -> dict[str, Any]:
    """{event: group} that install writes."""
    hooks = json.loads(steps(name)[0](None))["hooks"]
    return {event: group for event, [group] in hooks.items()}


@pytest.mark.parametrize("name", ["claude", "codex"])
@settings(deadline=None, max_examples=EXAMPLES)
@given(text=texts())
def test_install_then_uninstall_gives_back_the_same_bytes(name: str, text: str) -> None:
    added, removed = steps(name)
    installed = added(text)
    assert removed(installed) == text
    assert added(installed) == installed  # twice is once
    assert removed(text) == text  # and uninstall without install is nothing


@settings(deadline=None, max_examples=EXAMPLES)
@given(text=texts())
def test_foreign_entries_survive_in_their_order(text: str) -> None:
    installed = parsed(steps("claude")[0](text))
    assert without(installed, "claude") == without(parsed(text), "claude")
    assert [key for key in installed if key in parsed(text)] == list(parsed(text))
    for event, group in groups_of("claude").items():
        assert installed["hooks"][event][0] == group


@settings(deadline=None, max_examples=EXAMPLES)
@given(text=texts(), config=configs())
def test_what_others_change_meanwhile_stays(text: str, config: dict[str, Any]) -> None:
    """Another program rewrites the file between install and uninstall, as Claude Code does."""
    added, removed = steps("claude")
    changed = parsed(added(text))
    for event, groups in config.get("hooks", {}).items():
        changed["hooks"][event] = groups[:1] + changed["hooks"].get(event, []) + groups[1:]
    changed.update((key, value) for key, value in config.items() if key != "hooks")
    rest = removed(json.dumps(changed, indent=2, ensure_ascii=False))
    assert without(parsed(rest), "claude") == without(changed, "claude")
    assert "hook claude ||" not in (rest or "")


@settings(deadline=None, max_examples=EXAMPLES)
@given(text=texts())
def test_installing_again_after_a_move_repairs_the_paths(text: str) -> None:
    added, removed = steps("claude")
    moved = added(text).replace("/a4p.py", "/old/a4p.py")
    assert parsed(added(moved)) == parsed(added(text))
    assert removed(added(moved)) == text


def test_an_agent_that_rewrites_its_file_leaves_nothing_of_ours_behind() -> None:
    """Claude Code writes all of it anew: uninstall takes away the brackets that install made."""
    added, removed = steps("claude")
    for text in ('{"a": 1}', '{"hooks": {"Stop": [{"hooks": []}]}, "a": []}', "{}"):
        rewritten = json.dumps(parsed(added(text)), indent=2)
        assert parsed(removed(rewritten)) == parsed(text)


def test_a_hook_in_a_group_with_others_goes_alone() -> None:
    hook = groups_of("claude")["PreToolUse"]["hooks"][0]
    other = {"type": "command", "command": "echo hi"}
    for hooks in ([hook, other], [other, hook], [other, hook, other]):
        config = {"hooks": {"PreToolUse": [{"matcher": "AskUserQuestion", "hooks": hooks}]}}
        rest = [each for each in hooks if each is other]
        found = parsed(steps("claude")[1](json.dumps(config, indent=2)))
        assert found["hooks"]["PreToolUse"][0]["hooks"] == rest


def test_only_documented_keys_are_written(user: User) -> None:
    user.run("install", "claude", "codex")
    for path in (user.claude, user.codex):
        config = json.loads(path.read_text())
        assert list(config) == ["hooks"]
        for groups in config["hooks"].values():
            assert [set(group) - {"matcher"} for group in groups] == [{"hooks"}]
            assert [set(hook) for hook in groups[0]["hooks"]] == [{"type", "command", "timeout"}]
            assert groups[0]["hooks"][0]["timeout"] > a4p.WAIT_LIMIT


# === DSH's patch file ============================================================================

PATCHES = {
    "the default": "# yours\n\n[]\n", "bare": "[]", "padded": "[]  \n# end",
    "a list": "- insert:\n    - id: mine\n      name: x\n", "without line end": "- remove: [a]",
    "comments and a list": "# one []\n\n- insert:\n  - id: b\n# two\n", "windows": "[]\r\n",
    "a windows list": "- remove: [a]\r\n", "comments alone": "# nothing\n"}


@pytest.mark.parametrize("text", PATCHES.values(), ids=PATCHES)
def test_any_patch_file_of_dsh_comes_back_as_it_was(user: User, text: str) -> None:
    user.write(user.dsh, text)
    before = user.files()
    user.run("install", "dsh")
    installed = user.dsh.read_bytes()
    assert b"- insert:\n    - id: a4p\n" in installed
    assert not re.search(rb"^\[\]", installed, re.M)
    assert (user.dsh.parent / "a4p.mjs").exists()
    user.run("install", "dsh")
    assert user.dsh.read_bytes() == installed
    user.run("uninstall", "dsh")
    assert user.files() == before


@pytest.mark.parametrize("text", ["key: value\n", "  - insert: []\n", "[{insert: []}]\n",
                                  "---\n- insert: []\n", "[]\n- insert: []\n"])
def test_a_patch_file_that_is_no_plain_list_is_left_alone(user: User, text: str) -> None:
    user.write(user.dsh, text)
    done = user.try_run("install", "dsh")
    assert done.returncode == 1
    assert done.stderr.startswith(f"a4p: {user.dsh}: ")
    assert "- insert:\n    - id: a4p\n" in done.stderr  # to paste
    assert user.files() == {".dsh/cordis.patch.yml": (text.encode(), user.dsh.stat().st_mode)}


def test_the_setting_desk_is_in_the_patch_file(user: User) -> None:
    user.run("setup", "--yes", "--topic", "t")
    config = user.home / ".a4p" / "config.json"
    user.run("install", "dsh")
    assert '"beside": true' in user.dsh.read_text()
    config.write_text(json.dumps({**json.loads(config.read_text()), "desk": "wait"}))
    user.run("install", "dsh")
    assert '"beside": false' in user.dsh.read_text()


# === Files and folders ===========================================================================

def test_where_there_was_nothing_nothing_stays(user: User) -> None:
    user.run("install", "claude", "codex", "dsh")
    assert set(user.files()) == {".claude/settings.json", ".codex/hooks.json", ".dsh/a4p.mjs",
                                 ".dsh/cordis.patch.yml"}
    user.run("uninstall")
    assert user.files() == {}


def test_a_copy_stays_beside_until_uninstall(user: User) -> None:
    text = '{"model": "opus"}\n'
    user.write(user.claude, text).chmod(0o640)
    user.run("install", "claude")
    copy = user.claude.with_name("settings.json.a4p-backup")
    assert (copy.read_text(), stat.S_IMODE(copy.stat().st_mode)) == (text, 0o640)
    user.run("uninstall", "claude")
    assert user.files() == {".claude/settings.json": (text.encode(), 0o100640)}


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_the_mode_stays(user: User, mode: int) -> None:
    user.write(user.codex, "{}").chmod(mode)
    user.run("install", "codex")
    assert stat.S_IMODE(user.codex.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_stays(user: User) -> None:
    os.chown(user.write(user.claude, "{}"), 1234, 1235)
    user.run("install", "claude")
    found = user.claude.stat()
    assert (found.st_uid, found.st_gid) == (1234, 1235)


def test_a_link_stays_a_link(user: User) -> None:
    real = user.write(user.home / "dotfiles" / "claude.json", '{"a": 1}')
    user.claude.parent.mkdir()
    user.claude.symlink_to("../dotfiles/claude.json")
    user.run("install", "claude")
    assert user.claude.is_symlink()
    assert len(commands(real)) == 4
    assert list(real.parent.iterdir()) == [real]
    user.run("uninstall", "claude")
    assert user.claude.is_symlink()
    assert real.read_text() == '{"a": 1}'


def test_a_read_only_file_is_left_alone(user: User) -> None:
    user.write(user.claude, "{}").chmod(0o444)
    done = user.try_run("install", "claude")
    assert done.returncode == 1
    assert done.stderr.startswith(f"a4p: {user.claude} cannot be written (read-only) - ")
    assert '"AskUserQuestion"' in done.stderr  # to paste
    assert user.files() == {".claude/settings.json": (b"{}", 0o100444)}


@pytest.mark.parametrize("words", [("install", "claude"), ("setup", "--yes")])
def test_a_home_on_a_read_only_folder_is_a_clear_error(
        user: User, words: tuple[str, ...]) -> None:
    if os.geteuid() == 0:  # nothing is read-only to root, save what the kernel shows
        user.env["HOME"] = "/sys"
    user.home.chmod(0o555)
    done = user.try_run(*words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"a4p: {user.env['HOME']}/.")


BROKEN = {"a comment": '{\n  // mine\n  "a": 1\n}', "a comma": '{"a": 1,}', "empty": "",
          "a list": "[1]", "hooks as a list": '{"hooks": []}', "an event as text":
          '{"hooks": {"PreToolUse": "x"}}',
          "odd": '{"hooks": {"Stop": [7]}}'}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_file_that_does_not_parse_is_left_alone(user: User, name: str, text: str) -> None:
    path = user.write(getattr(user, name), text)
    before = user.files()
    done = user.try_run("install", name)
    assert done.returncode == 1
    assert done.stderr.startswith(f"a4p: {path}: ")
    pasted = json.loads(done.stderr[done.stderr.index("\n{"):])
    assert pasted["hooks"]["PreToolUse"][0]["hooks"][0]["command"].endswith(f"hook {name} || true")
    assert user.files() == before


def test_a_file_that_is_not_utf_8_is_left_alone(user: User) -> None:
    user.claude.parent.mkdir()
    user.claude.write_bytes(b'{"a": "\xff"}')
    assert user.try_run("install", "claude").returncode == 1
    assert user.claude.read_bytes() == b'{"a": "\xff"}'


def test_the_line_of_an_error_is_said(user: User) -> None:
    user.write(user.claude, '{\n  "a": ,\n}\n')  # a comma too many is blamed on another line by Python 3.13
    assert "line 2" in user.try_run("install", "claude").stderr


def test_a_file_with_a_key_twice_is_left_alone(user: User) -> None:
    """Agents take the last, the first is where a4p's hooks would go."""
    path = user.write(user.claude, '{"hooks": {}, "hooks": {"Stop": []}}')
    done = user.try_run("install", "claude")
    assert done.returncode == 1 and "a key stands there twice" in done.stderr
    assert path.read_text() == '{"hooks": {}, "hooks": {"Stop": []}}'


def test_agents_may_be_named_as_people_write_them(user: User) -> None:
    user.run("install", "Claude,", "codex")
    assert set(user.files()) == {".claude/settings.json", ".codex/hooks.json"}


def test_a_project_has_hooks_of_claude_alone(user: User) -> None:
    done = user.try_run("install", "codex", "--project")
    assert done.returncode == 2 and user.files() == {}
    user.run("install", "--project")
    assert set(user.files()) == {".claude/settings.local.json"}
    user.run("uninstall", "--project")
    assert user.files() == {}


def test_one_broken_file_does_not_hinder_the_others(user: User) -> None:
    user.write(user.claude, "{,}")
    done = user.try_run("install", "claude", "codex")
    assert done.returncode == 1
    assert len(commands(user.codex)) == 3


def test_a_dry_run_shows_the_change_and_makes_none(user: User) -> None:
    user.write(user.claude, '{\n  "a": 1\n}\n')
    before = user.files()
    shown = user.run("install", "claude", "dsh", "--dry-run")
    assert f"--- {user.claude}\n+++ {user.claude}\n" in shown
    assert '\n {\n+  "hooks": {\n' in shown
    assert f"+++ {user.dsh}\n" in shown
    assert user.files() == before
    user.run("install", "claude")
    before = user.files()
    assert '-  "hooks": {\n' in user.run("uninstall", "claude", "--dry-run")
    assert user.files() == before


def test_the_environment_moves_the_files(user: User) -> None:
    for variable in VARIABLES[:3]:
        user.env[variable] = str(user.home / variable)
    user.run("install", *NAMES)
    assert {path.name for path in user.home.iterdir()} == set(VARIABLES[:3])


def test_a_project_has_its_own_settings(user: User) -> None:
    user.run("install", "--project")
    assert list(user.files()) == [".claude/settings.local.json"]
    user.run("uninstall", "--project")
    assert user.files() == {}


# === Which agents ================================================================================

def test_nobody_there_to_ask_and_none_named_is_an_error(user: User) -> None:
    (user.home / ".claude").mkdir()
    done = user.try_run("install")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert user.files() == {}


def test_yes_takes_the_agents_that_are_there(user: User) -> None:
    (user.home / ".codex").mkdir()
    user.run("install", "--yes")
    assert list(user.files()) == [".codex/hooks.json"]


def test_an_agent_on_the_path_is_there(user: User) -> None:
    program = user.write(user.home / "bin" / "claude", "#!/bin/sh\n")
    program.chmod(0o755)
    user.env["PATH"] += f":{program.parent}"
    user.run("install", "--yes")
    assert user.claude.exists()


def test_an_unknown_agent_is_wrong_usage(user: User) -> None:
    done = user.try_run("install", "cluade")
    assert done.returncode == 2
    assert "cluade" in done.stderr


def test_uninstall_says_where_there_was_nothing(user: User) -> None:
    assert f"Nothing to change in {user.claude}." in user.run("uninstall", "claude")
    assert user.files() == {}


# === What waits, and what a4p itself keeps =======================================================

DB = {"hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "cwd": "/x", "tool_input": {
    "questions": [{"question": "Which?", "options": [{"label": "A"}, {"label": "B"}]}]}}


@pytest.fixture
def safe_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person of a real home is left alone."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    for variable in VARIABLES[:3]:
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.usefixtures("safe_home")
def test_uninstall_releases_what_waits(
        home: Home, phone: Phone, hook: Callable[..., HookRun]) -> None:
    run = hook("claude", DB)
    push = phone.push()
    home.run("uninstall", "codex")
    assert run.process.poll() is None  # that is another agent's
    home.run("uninstall", "claude")
    assert run.output() is None
    assert phone.replaced(push)["message"] == "Released, back at the terminal"
    assert (home.path / "config.json").exists()


@pytest.mark.usefixtures("safe_home")
def test_purge_tells_the_phone_and_leaves_nothing(
        home: Home, phone: Phone, hook: Callable[..., HookRun]) -> None:
    run = hook("claude", DB)
    push = phone.push()
    home.run("uninstall", "--purge")
    assert run.output() is None
    phone.replaced(push)
    assert not home.path.exists() or not list(home.path.iterdir())


def test_purge_is_not_hindered_by_another_s_broken_file(user: User) -> None:
    user.run("setup", "--yes")
    user.write(user.codex, "{,}")
    assert user.try_run("uninstall", "--purge").returncode == 1
    assert set(user.files()) == {".codex/hooks.json"}


@pytest.mark.usefixtures("safe_home")
def test_purge_leaves_what_is_not_a4ps(home: Home) -> None:
    (home.path / "mine").write_text("x")
    home.run("uninstall", "--purge")
    assert [path.name for path in home.path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("safe_home")
def test_a_dry_run_releases_nothing(
        home: Home, phone: Phone, hook: Callable[..., HookRun]) -> None:
    run = hook("claude", DB)
    push = phone.push()
    home.run("uninstall", "--purge", "--dry-run")
    phone.tap(push, 1)
    assert run.answers() == {"Which?": "B"}


# === The hook line ===============================================================================

ODD = ["of 用户", "it's \"$HOME\";&|`x`", "back\\slash [x] {y} %20"]


@pytest.mark.parametrize("name", ODD)
def test_a_hook_line_survives_any_path(user: User, tmp_path: Path, name: str) -> None:
    user.script = user.write(tmp_path / name / "a4p.py", A4P.read_text())
    user.env["A4P_HOME"] = str(tmp_path / name / "state")
    user.run("install", *NAMES)
    shells = [shell for shell in ("/bin/sh", "/bin/bash", "/bin/zsh", "/usr/bin/fish")
              if os.path.exists(shell)]
    lines = set(commands(user.claude) + commands(user.codex))
    config = re.search(r"config: (.*)", user.dsh.read_text())
    assert config
    lines.add(json.loads(config[1])["command"])
    assert len(lines) == 3
    user.run("setup", "--yes", "--topic", "t")
    for line in lines:
        for shell in shells:
            (tmp_path / name / "state" / "out").unlink(missing_ok=True)
            assert heard(user, shell, line) == ""
            (tmp_path / name / "state" / "out").write_text("\n\n")
            assert "stdin is not JSON" in heard(user, shell, line)
    user.run("uninstall")
    assert not [path for path in user.files() if not path.startswith("bin")]


def heard(user: User, shell: str, line: str) -> str:
    """Run a hook line with an input that is logged; return the log."""
    log = Path(user.env["A4P_HOME"]) / "a4p.log"
    log.unlink(missing_ok=True)
    done = subprocess.run([shell, "-c", line], env={"PATH": "/usr/bin:/bin"}, input="{no json",
                          text=True, capture_output=True, timeout=SOON, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return log.read_text() if log.exists() else ""


def test_a_hook_line_is_silent_where_all_is_gone(user: User, tmp_path: Path) -> None:
    user.script = user.write(tmp_path / "bin" / "a4p.py", A4P.read_text())
    user.run("install", "claude")
    line = commands(user.claude)[0]
    (user.home / ".a4p").mkdir()
    (user.home / ".a4p" / "out").write_text("\n\n")
    user.script.unlink()
    done = subprocess.run(["/bin/sh", "-c", line], input="{}", text=True, capture_output=True,
                          timeout=SOON, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_installing_after_the_script_moved_repairs_the_path(user: User, tmp_path: Path) -> None:
    user.write(user.claude, '{"a": 1}')
    for folder in ("old", "new"):
        user.script = user.write(tmp_path / folder / "a4p.py", A4P.read_text())
        user.run("install", "claude")
    assert all(f"{tmp_path}/new/a4p.py" in line for line in commands(user.claude))
    assert len(commands(user.claude)) == 4
    user.run("uninstall", "claude")
    assert user.claude.read_text() == '{"a": 1}'


def test_the_text_of_a_hook_line_is_stable(user: User) -> None:
    """Codex asks for trust again when it changes: whoever changes it must mean to."""
    user.run("install", "codex")
    script, home = shlex.quote(str(A4P)), shlex.quote(str(user.home))
    assert commands(user.codex) == 3 * [
        f"[ ! -e {home}/.a4p/out ] || {shlex.quote(a4p.stable_python())} -I -S {script} "
        "hook codex || true"]


def test_the_interpreter_is_named_by_what_outlives_an_upgrade(tmp_path: Path) -> None:
    """Here: the Python of the tests' venv is called by a link outside of it, or its real name."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")],
                   check=True, timeout=60)
    code = f"import sys; sys.path.insert(0, {str(A4P.parent)!r}); import a4p; " \
           "print(a4p.stable_python())"
    env = {**os.environ, "PATH": f"{tmp_path}/venv/bin:{os.environ['PATH']}"}
    done = subprocess.run([str(tmp_path / "venv" / "bin" / "python3"), "-c", code], env=env,
                          text=True, capture_output=True, timeout=SOON, check=True)
    found = done.stdout.strip()
    assert not found.startswith(str(tmp_path))
    assert os.path.realpath(found) == os.path.realpath(sys.executable)


@pytest.mark.parametrize(("real", "link", "target"), [
    ("python-3.99.7-linux", "python-3.99-linux", "python-3.99.7-linux"),  # uv; mise likewise
    ("Cellar/python@3.99/3.99.7_1", "opt/python@3.99", "../Cellar/python@3.99/3.99.7_1")])
def test_a_versioned_folder_gives_way_to_the_link_to_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: str, link: str, target: str) -> None:
    (tmp_path / real / "bin").mkdir(parents=True)
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(target)
    python = tmp_path / real / "bin" / "python3.99"
    python.touch()
    monkeypatch.setattr(sys, "_base_executable", str(python))
    assert a4p.stable_python() == str(tmp_path / link / "bin" / "python3.99")


def test_on_windows_both_shells_take_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git Bash and cmd.exe; written to work there, not tested there: only the form is looked at."""
    state = a4p.State()
    with monkeypatch.context() as patch:
        patch.setattr(a4p.os, "name", "nt")
        patch.setattr(a4p, "stable_python", lambda: "C:\\Program Files\\py\\python.exe")
        lines = [a4p.hook_line(state, name) for name in ("claude", "codex")]
    for line, name in zip(lines, ("claude", "codex")):
        assert line.startswith('cd . && "C:/Program Files/py/python.exe" -I -S "')
        assert line.endswith(f'" hook {name} || exit 0')
        assert re.fullmatch(a4p.LINE, json.dumps(line))
