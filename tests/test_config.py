"""Config, mode and language: what the file and the environment say, and what a4p says back."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import stat
import string
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import a4p
from samples import SCRIPT, SOON, TOPIC, claude, log_of, run, write_config

KEYS = ["server", "topic", "token", "user", "password", "reply_token", "share_token", "timeout",
        "priority", "lang", "phone", "proxy", "desk"]


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No A4P_* and no language in the environment but A4P_HOME."""
    for name in (*a4p.ENVIRONMENT, "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("A4P_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "me"))  # `setup --yes` installs what it finds there
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "DSH_HOME"):
        monkeypatch.delenv(name, raising=False)


def read(home: Path) -> a4p.Config:
    return a4p.Config(str(home))


def refusal(home: Path) -> str:
    """What a command says of this config; it is one line, and the status is 2."""
    with pytest.raises(a4p.UsageError) as error:
        read(home)
    assert error.value.exit_code == 2
    text = error.value.text("en")
    assert "\n" not in text
    return text


# --- where a value comes from -----------------------------------------------

def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert set(KEYS) <= set(a4p.SETTINGS)
    assert {key: getattr(found, key) for key in KEYS} == {
        "server": "https://ntfy.sh", "topic": "", "token": "", "user": "", "password": "",
        "reply_token": "", "share_token": False, "timeout": 60.0, "priority": 4, "lang": "en",
        "phone": "", "proxy": "", "desk": "wait"}
    assert found.unknown == []


def test_the_file_beats_the_defaults(tmp_path: Path) -> None:
    values = {"server": "http://127.0.0.1:8080/ntfy", "topic": "t-1_A", "token": "tk_1",
              "user": "ada", "password": "pass word", "reply_token": "tk_2", "share_token": True,
              "timeout": 2.5, "priority": 1, "lang": "zh", "phone": "ios",
              "proxy": "http://127.0.0.1:3128", "desk": "beside"}
    write_config(tmp_path, **values)
    found = read(tmp_path)
    assert {key: getattr(found, key) for key in KEYS} == values


def test_the_environment_beats_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, server="https://file.example", token="tk_file", timeout=60, lang="en")
    for name, value in {"A4P_SERVER": "https://env.example/", "A4P_TOPIC": "env-topic",
                        "A4P_TOKEN": "tk_env", "A4P_TIMEOUT": "10m", "A4P_LANG": "zh"}.items():
        monkeypatch.setenv(name, value)
    found = read(tmp_path)
    assert (found.server, found.topic, found.token, found.timeout, found.lang) == (
        "https://env.example", "env-topic", "tk_env", 600.0, "zh")


def test_an_empty_variable_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(tmp_path, token="tk_file", timeout=7)
    for name in a4p.ENVIRONMENT:
        monkeypatch.setenv(name, "")
    found = read(tmp_path)
    assert (found.topic, found.token, found.timeout) == (TOPIC, "tk_file", 7.0)


def test_a_slash_behind_the_server_does_not_count(tmp_path: Path) -> None:
    write_config(tmp_path, server="https://ntfy.example/")
    assert read(tmp_path).server == "https://ntfy.example"


@pytest.mark.parametrize(("home", "path"), [("", "~/.a4p"), ("/x/y", "/x/y"), ("x", "{cwd}/x")])
def test_the_home_is_an_absolute_path(
        home: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4P_HOME", home)
    assert a4p.State().home == os.path.expanduser(path.format(cwd=os.getcwd()))


# --- a broken config --------------------------------------------------------

@pytest.mark.parametrize(("text", "line"), [
    ('{"topic": "x"', 1), ('{\n  "topic": "x"\n  "timeout": 60\n}', 3), ("", 1), ("{}\n{}", 2),
    ("[]", 1), ('"x"', 1), ("null", 1), ("topic = x", 1), ('{\n"topic": \'x\'}', 2),
    ("\ufeff{}", 1), ('{"topic": "a\nb"}', 1)])
def test_what_is_not_json_is_named_with_file_line_and_mend(
        tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path}/config.json, line {line}: ")
    assert " - " in said


@pytest.mark.parametrize("data", [
    pytest.param(b"\xff\xfe{}", id="UTF-16"), pytest.param(b'{"topic": "\xed\xa0\x80"}', id="surrogate"),
    pytest.param(b"[" * 100_000, id="deep"), pytest.param(b'{"x": "' + b"y" * 1_100_000, id="huge")])
def test_a_file_that_no_json_parser_takes_is_named_too(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "config.json").write_bytes(data)
    assert refusal(tmp_path).startswith(f"{tmp_path}/config.json, line ")


def test_a_config_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert refusal(tmp_path).startswith(f"{tmp_path}/config.json cannot be read (Is a directory)")


WRONG = {
    "server": [5, None, "", "ntfy.sh", "ftp://ntfy.sh", "https://", "https://a b", "https://u:p@h",
               "https://h?q=1", "https://h/#x", "https://h\nx"],
    "topic": [5, None, [], "a b", "a/b", "ünïcode", "x" * 56, "a,b", "a\n", "a4p.x"],
    "token": [5, None, True, "two\nlines"],
    "user": [5, {}], "password": [5, "a\rb"], "reply_token": [None, "a\nb"],
    "share_token": [0, 1, "true", None],
    "timeout": ["60", None, True, 0, 0.5, -1, 82_801, float("inf"), float("nan"), [60]],
    "priority": [0, 6, "4", 4.0, True, None],
    "lang": [5, "", "fr", "EN", "zh-CN"], "phone": ["Android", "web", None],
    "proxy": [5, "proxy:3128", "http://a b"], "desk": ["", "both", None, True],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key in KEYS for value in WRONG[key]],
                         ids=ascii)
def test_a_wrong_value_is_named_with_its_line_and_what_it_must_be(
        tmp_path: Path, key: str, value: Any) -> None:
    (tmp_path / "config.json").write_text(f'{{\n "x": 1,\n\n "{key}": {json.dumps(value)}\n}}')
    said = refusal(tmp_path)
    assert said.startswith(f"{tmp_path}/config.json, line 4: {key} must be ")
    assert " - " in said
    assert said.count(str(a4p.SETTINGS[key][2])) == 1


def test_the_line_is_the_keys_and_not_that_of_a_value_which_reads_the_same(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{\n "user": "topic",\n "topic": 5\n}')
    assert "line 3: topic must be" in refusal(tmp_path)


@pytest.mark.parametrize(("name", "value"), [
    ("A4P_SERVER", "ntfy.sh"), ("A4P_TOPIC", "a b"), ("A4P_TOKEN", "two\nlines"),
    ("A4P_TIMEOUT", "soon"), ("A4P_TIMEOUT", "2d"), ("A4P_TIMEOUT", "0"), ("A4P_LANG", "fr")])
def test_a_wrong_variable_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert name in refusal(tmp_path)


@pytest.mark.parametrize("key", ["token", "password", "reply_token"])
def test_a_broken_secret_is_not_repeated(tmp_path: Path, key: str) -> None:
    write_config(tmp_path, **{key: "geheim\nnis"})
    assert "geheim" not in refusal(tmp_path)


def test_a_secret_in_a_broken_file_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"token": "geheim" "topic": 1}')
    assert "geheim" not in refusal(tmp_path)


# --- saving -----------------------------------------------------------------

def test_unknown_keys_are_kept_and_known_ones_changed(tmp_path: Path) -> None:
    strange = {"colour": "grün", "nested": {"a": [1, None]}, "topics": ["x"]}
    write_config(tmp_path, token="tk_1", **strange)
    found = read(tmp_path)
    assert found.unknown == list(strange)
    found.save(topic="new", priority=2)
    assert json.loads((tmp_path / "config.json").read_text()) == {
        "topic": "new", "lang": "en", "token": "tk_1", **strange, "priority": 2}
    assert read(tmp_path).topic == "new"


def test_saving_does_not_write_what_only_the_environment_says(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A4P_TOKEN", "tk_env")
    read(tmp_path).save(topic="new")
    assert json.loads((tmp_path / "config.json").read_text()) == {"topic": "new"}


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_files_are_the_owners_alone_under_any_umask(tmp_path: Path, mask: int) -> None:
    home = tmp_path / "new"
    state = a4p.State(str(home))
    with umask(mask):
        state.config.save(topic="x")
        a4p.write_private(str(home / "out"), "\n\n")
        state.pending.add({"id": "qaaaaaaaaaa"})
        assert state.pending.take("abcdefghijkl")
        state.log.line("a line")
    found = [home, *home.rglob("*")]
    assert len(found) == 8  # three folders, config, out, log, one that waits, one that is taken
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in found} == {
        path: 0o700 if path.is_dir() else 0o600 for path in found}


def test_a_file_that_others_could_read_is_replaced_by_one_they_cannot(tmp_path: Path) -> None:
    write_config(tmp_path)
    (tmp_path / "config.json").chmod(0o644)
    read(tmp_path).save(token="tk_1")
    assert stat.S_IMODE((tmp_path / "config.json").stat().st_mode) == 0o600


def test_a_folder_is_listed_with_what_is_linked_but_not_deeper(tmp_path: Path) -> None:
    """The kernel's batteries are links to folders."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "BAT0").symlink_to(tmp_path / "deep")
    (tmp_path / "file").touch()
    assert sorted(a4p.list_dir(str(tmp_path))) == ["BAT0", "deep", "file"]
    assert a4p.list_dir(str(tmp_path / "none")) == []


def test_two_that_claim_a_name_and_a_folder_that_cannot_be(tmp_path: Path) -> None:
    path = str(tmp_path / "folder" / "x")
    assert [a4p.write_private(path, text, os.link) for text in ("one", "two")] == [True, False]
    assert Path(path).read_text() == "one"
    with pytest.raises(a4p.A4pError):  # not that another was faster
        a4p.write_private(path + "/y", "three", os.link)


def test_writing_leaves_no_draft_behind(tmp_path: Path) -> None:
    a4p.write_private(str(tmp_path / "x"), "one")
    a4p.write_private(str(tmp_path / "x"), "two")
    (tmp_path / "folder").mkdir()
    with pytest.raises(a4p.A4pError):
        a4p.write_private(str(tmp_path / "folder"), "three")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "x"]


# --- language ---------------------------------------------------------------

@pytest.mark.parametrize(("environment", "lang"), [
    ({}, "en"), ({"LANG": "zh_CN.UTF-8"}, "zh"), ({"LANG": "zh_TW"}, "zh"), ({"LANG": "ZH"}, "zh"),
    ({"LANG": "de_DE.UTF-8"}, "en"), ({"LANG": "C"}, "en"),
    ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
    ({"LC_ALL": "C", "LC_MESSAGES": "zh_CN", "LANG": "zh_CN"}, "en"),
    ({"LC_ALL": "zh_CN.UTF-8", "LANG": "en_US"}, "zh"),
    ({"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.UTF-8"}, "zh"),
])
def test_auto_follows_the_locale(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], lang: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert read(tmp_path).lang == lang
    for fixed in ("en", "zh"):
        write_config(tmp_path, lang=fixed)
        assert read(tmp_path).lang == fixed


HOMES = {"en": "Home: questions stay at the terminal.", "zh": "在家模式：问题留在终端。"}


@pytest.mark.parametrize(("values", "environment", "lang"), [
    ({"lang": "auto"}, {"LANG": "zh_CN.UTF-8"}, "zh"),
    ({"lang": "auto"}, {"LANG": "C.UTF-8"}, "en"),
    ({"lang": "zh"}, {}, "zh"), ({"lang": "en"}, {"A4P_LANG": "zh"}, "zh"),
    ({"lang": "en"}, {"LANG": "zh_CN.UTF-8"}, "en"),
])
def test_commands_speak_the_configured_language(  # noqa: PLR0913
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
        values: dict[str, str], environment: dict[str, str], lang: str) -> None:
    write_config(tmp_path, **values)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert a4p.main(["home"]) == 0
    assert capsys.readouterr().out.strip() == HOMES[lang]


def test_setup_writes_the_language_it_found(tmp_path: Path) -> None:
    """A hook is started with an environment that is not the user's."""
    assert run(tmp_path, "setup", LANG="zh_CN.UTF-8").returncode == 0
    assert json.loads((tmp_path / "config.json").read_text())["lang"] == "zh"
    assert run(tmp_path, "setup", "--lang", "en", LANG="zh_CN.UTF-8").returncode == 0
    assert json.loads((tmp_path / "config.json").read_text())["lang"] == "en"


def placeholders(text: str) -> list[str]:
    return sorted({name for _, name, _, _ in string.Formatter().parse(text) if name})


def test_every_text_is_there_in_both_languages() -> None:
    for key, (english, chinese) in {**a4p.PHONE, **a4p.MESSAGES}.items():
        assert english.strip() and chinese.strip() and chinese != english, key
        assert placeholders(english) == placeholders(chinese), key
        assert not re.search("[\u4e00-\u9fff]", english), key


def test_no_text_is_hidden_behind_one_of_the_other_table() -> None:
    assert set(a4p.PHONE).isdisjoint(a4p.MESSAGES)


def test_every_command_is_described_in_both_languages() -> None:
    for name, (english, chinese, example, *_) in a4p.COMMANDS.items():
        assert english.isascii() and english
        assert re.search("[\u4e00-\u9fff]", chinese), name
        assert example.startswith(f"a4p.py {name}")


def test_every_text_that_the_code_names_is_there() -> None:
    named = set()
    for node in ast.walk(ast.parse(Path(SCRIPT).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
                node.func, "id", "")
            if called in ("say", "A4pError", "UsageError", "NoAnswer", "Refused"):
                named |= {arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)
                          and isinstance(arg.value, str)}
    assert len(named) > 40
    assert named - set(a4p.PHONE) - set(a4p.MESSAGES) - {"en", "zh"} == set()


# --- the mode ---------------------------------------------------------------

def mode(home: Path, text: str) -> tuple[int | None, float | None] | None:
    """What a file `out` with this text says: (until, wait), or None for home."""
    (home / "out").write_text(text)
    found = a4p.read_out(str(home))
    return (found["until"], found["wait"]) if found else None


@pytest.mark.parametrize(("text", "meant"), [
    ("", (None, None)), ("\n", (None, None)), ("\n\n", (None, None)), ("\n600\n", (None, 600.0)),
    ("\n2.5", (None, 2.5)), ("  \n 60 \n", (None, 60.0)), ("\n60\nmore\n", (None, 60.0)),
    ("\nsoon\n", (None, None)), ("\n0\n", (None, None)), ("\n-5\n", (None, None)),
    ("\nnan\n", (None, None)), ("\ninf\n", (None, None)), ("\n82801\n", (None, None)),
    ("\n82800\n", (None, 82_800.0)), ("4102444800", (4_102_444_800, None)),
    ("4102444800\n30\n", (4_102_444_800, 30.0)),
    ("garbage", None), ("-1\n", None), ("1e12\n", None), ("4102444800.5", None), ("{}", None),
    ("\x00", None), ("²\n", None), ("tomorrow\n60\n", None)])
def test_the_file_out_says_until_when_and_how_long(
        tmp_path: Path, text: str, meant: tuple[int | None, float | None] | None) -> None:
    assert mode(tmp_path, text) == meant
    assert (tmp_path / "out").exists()


def test_an_empty_file_and_none_at_all_differ(tmp_path: Path) -> None:
    assert a4p.read_out(str(tmp_path)) is None
    (tmp_path / "out").touch()
    assert a4p.read_out(str(tmp_path)) is not None


@pytest.mark.parametrize("text", ["1\n", "1000000000\n600\n", "0"])
def test_whoever_finds_the_end_passed_removes_the_file(tmp_path: Path, text: str) -> None:
    assert mode(tmp_path, text) is None
    assert not (tmp_path / "out").exists()


def test_the_end_counts_to_the_second(tmp_path: Path) -> None:
    assert mode(tmp_path, f"{int(time.time()) + 5}\n") is not None
    assert mode(tmp_path, f"{int(time.time())}\n") is None


def test_bytes_that_are_no_text_are_not_out(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"\xff\xfe\x00")
    assert a4p.read_out(str(tmp_path)) is None


def test_a_folder_named_out_is_not_out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert a4p.read_out(str(tmp_path)) is None


@pytest.mark.parametrize(("text", "seconds"), [
    ("1", 1), ("90", 90), ("45s", 45), ("10m", 600), ("2h", 7200), ("1d", 86_400), ("1.5m", 90),
    ("0.5h", 1800), ("2H", 7200), ("365d", 31_536_000)])
def test_durations(text: str, seconds: float) -> None:
    assert a4p.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "h", ".", "m.", "-5", "1h30m", "10 m", "1w", "0",
                                  "0.5", "366d",
                                  "1e3", "nan", "inf", "１0", "²", "1.2.3", "ten", "1_000",
                                  "9" * 400])
def test_what_is_no_duration_is_refused_with_the_forms_there_are(text: str) -> None:
    with pytest.raises(a4p.UsageError) as error:
        a4p.seconds_of(text)
    assert "write 90, 45s, 10m or 2h" in error.value.text("en")


# --- commands: what they do, and their exit status --------------------------

def test_setup_makes_a_topic_and_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path / "new", "setup", "--server", "http://127.0.0.1:9/")
    assert (done.returncode, done.stderr) == (0, b"")
    saved = json.loads((tmp_path / "new" / "config.json").read_text())
    assert re.fullmatch("a4p-[a-z2-7]{26}", saved["topic"])
    assert saved == {"server": "http://127.0.0.1:9", "topic": saved["topic"], "lang": "en",
                     "desk": "beside"}
    shown = done.stdout.decode()
    assert f"http://127.0.0.1:9/{saved['topic']}\n" in shown
    out = tmp_path / "new" / "out"
    for agent in ("claude", "codex"):
        assert re.search(rf"\[ ! -e {out} \] \|\| (A4P_HOME={tmp_path}/new )?\S+ -I -S "
                         rf"\S+a4p.py hook {agent} \|\| true", shown)


def test_setup_again_keeps_the_topic_and_the_rest(tmp_path: Path) -> None:
    write_config(tmp_path, token="tk_1", extra=[1], server="http://127.0.0.1:9", desk="wait")
    before = json.loads((tmp_path / "config.json").read_text())
    done = run(tmp_path, "setup", "--yes")
    assert done.returncode == 0
    assert json.loads((tmp_path / "config.json").read_text()) == before
    assert b"tk_1" not in done.stdout + done.stderr


def test_setup_takes_a_topic_that_is_there(tmp_path: Path) -> None:
    assert run(tmp_path, "setup", "--topic", "our-topic").returncode == 0
    assert read(tmp_path).topic == "our-topic"


def test_two_setups_make_two_topics(tmp_path: Path) -> None:
    topics = set()
    for name in ("a", "b"):
        a4p.State(str(tmp_path / name)).config.save()
        run(tmp_path / name, "setup")
        topics.add(read(tmp_path / name).topic)
    assert len(topics) == 2


def test_out_home_and_status(tmp_path: Path) -> None:
    write_config(tmp_path, server="http://127.0.0.1:9")
    before = int(time.time())
    done = run(tmp_path, "out", "--for", "2h", "--wait", "10m")
    assert done.returncode == 0 and done.stdout.startswith(b"Out: questions go to the phone until")
    until, wait = (tmp_path / "out").read_text().splitlines()
    assert before + 7200 <= int(until) <= time.time() + 7200
    assert float(wait) == 600
    status = run(tmp_path, "status", "--json")
    assert strict_status(status.stdout) == {
        "mode": "out", "until": int(until), "wait": 600, "server": "http://127.0.0.1:9",
        "topic": TOPIC, "waiting": []}
    assert run(tmp_path, "home").stdout == HOMES["en"].encode() + b"\n"
    assert not (tmp_path / "out").exists()
    assert strict_status(run(tmp_path, "status", "--json").stdout) == {
        "mode": "home", "until": None, "wait": None, "server": "http://127.0.0.1:9",
        "topic": TOPIC, "waiting": []}


def strict_status(data: bytes) -> Any:
    assert data.count(b"\n") == 1
    return json.loads(data)


def test_out_without_limits_writes_two_empty_lines(tmp_path: Path) -> None:
    write_config(tmp_path)
    assert run(tmp_path, "out").returncode == 0
    assert (tmp_path / "out").read_text() == "\n\n"
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["9" * 30, "9" * 18, "99999999999999"])
def test_status_survives_an_end_that_no_calendar_has(tmp_path: Path, text: str) -> None:
    write_config(tmp_path)
    (tmp_path / "out").write_text(text + "\n")
    assert a4p.main(["status"]) == 0


def test_home_works_with_a_broken_config(tmp_path: Path) -> None:
    """The way back must not depend on a file that may be broken."""
    (tmp_path / "config.json").write_text("{")
    (tmp_path / "out").touch()
    done = run(tmp_path, "home")
    assert (done.returncode, done.stdout.decode()) == (0, HOMES["en"] + "\n")
    assert not (tmp_path / "out").exists()


def exit_status(words: tuple[str, ...]) -> Any:
    """The exit status of a command."""
    try:
        return a4p.main(words)
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("words", [("bogus",), (), ("out", "--bogus")])
def test_an_unknown_command_is_status_2_and_no_traceback(
        tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Traceback" not in done.stderr and done.stderr


@pytest.mark.parametrize(("words", "status"), [
    (("out",), 2), (("status", "--bogus"), 2), (("bogus",), 2), ((), 2),
    (("out", "--for", "soon"), 2),
    (("out", "--wait", "2d"), 2), (("ask", " "), 2), (("ask", "Q?", "-o", "A", "-o", "A"), 2),
    (("ask", "Q?", "-o", ""), 2), (("ask",), 2), (("notify", "x"), 2),
    (("setup", "--topic", "a b"), 2),
    (("setup", "--server", "ntfy.sh"), 2), (("setup", "--lang", "fr"), 2)])
def test_wrong_use_is_status_2_and_one_line_with_the_mend(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...],
        status: int) -> None:
    if words[:1] == ("ask",):
        write_config(tmp_path, server="http://127.0.0.1:9")
    assert exit_status(words) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1 and shown.err.startswith("a4p"), shown.err
    assert " - " in shown.err, shown.err


@pytest.mark.parametrize("command", ["status", "out", "log"])
def test_a_broken_config_is_status_2_for_every_command_that_needs_it(
        tmp_path: Path, command: str) -> None:
    (tmp_path / "config.json").write_text('{\n"topic": }')
    done = run(tmp_path, command)
    if command == "log":
        assert done.returncode == 0  # it only shows what happened
        return
    said = done.stderr.decode()
    assert done.returncode == 2
    assert said.startswith(f"a4p: {tmp_path}/config.json, line 2: ") and said.count("\n") == 1


def test_a_mend_that_is_named_does_mend(tmp_path: Path) -> None:
    """Whoever is told to run setup must get a config that works from it."""
    (tmp_path / "config.json").write_text('{"topic": }')
    said = run(tmp_path, "status").stderr.decode()
    if "a4p.py setup" in said:
        assert run(tmp_path, "setup").returncode == 0
        assert run(tmp_path, "status").returncode == 0


def test_a_home_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path / "file" / "home", "setup")
    assert done.returncode in (1, 2)
    assert done.stderr.count(b"\n") == 1 and b" - " in done.stderr


@pytest.mark.parametrize("words", [("--help",), *((name, "--help") for name in a4p.COMMANDS)])
@pytest.mark.parametrize("lang", ["en_US.UTF-8", "zh_CN.UTF-8"])
def test_help_is_status_0_and_each_command_has_an_example(
        capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
        words: tuple[str, ...], lang: str) -> None:
    monkeypatch.setenv("LANG", lang)
    with pytest.raises(SystemExit) as end:
        a4p.main(words)
    assert end.value.code == 0
    shown = capsys.readouterr().out
    if len(words) == 2:
        assert f"a4p.py {words[0]}" in shown.split("xample")[-1]
    else:
        assert all(name in shown for name in a4p.COMMANDS)


def test_help_and_version_run_without_any_state(tmp_path: Path) -> None:
    for words in (("--help",), ("--version",), ("out", "--help")):
        done = run(tmp_path / "none", *words)
        assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "none").exists()


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    write_config(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, SCRIPT, "status"], stdout=pipe, timeout=SOON,
                              stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""


def test_a_terminal_without_chinese_or_emoji_is_no_error(tmp_path: Path) -> None:
    write_config(tmp_path)
    state = a4p.State(str(tmp_path))
    state.pending.add({"id": "qaaaaaaaaaa", "agent": "Claude", "project": "店", "text": "🐳 哪个？",
                       "since": time.time(), "deadline": time.time() + 60, "title": "Claude: 店",
                       "closing": {}})
    done = run(tmp_path, "status", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"Claude" in done.stdout


# --- secrets ----------------------------------------------------------------

SECRETS = {"token": "tk_3dc5b1f0a7", "user": "ada", "password": "correct horse battery",
           "reply_token": "tk_9e8d7c6b5a"}
HIDDEN = [TOPIC, *(SECRETS[key] for key in ("token", "password", "reply_token")),
          "dGtfM2RjNWIxZjBhNw", "YWRhOmNvcnJlY3Q"]  # in base64, too


def test_no_command_shows_a_secret_or_logs_it(tmp_path: Path) -> None:
    write_config(tmp_path, server="http://127.0.0.1:9", timeout=1, **SECRETS)
    (tmp_path / "out").touch()
    call = claude(cwd=f"/home/{SECRETS['token']}", prompt_id=SECRETS["password"])
    call["tool_input"]["questions"][0]["question"] = f"Is {SECRETS['password']} on {TOPIC} right?"
    runs = [run(tmp_path, "hook", "claude", data=json.dumps(call).encode()),
            run(tmp_path, "hook", "claude", data=json.dumps(call).encode()[:-9]),
            run(tmp_path, "ask", f"Is it {SECRETS['token']}?"), run(tmp_path, "notify", "x")]
    for done in runs:
        assert not [hidden for hidden in HIDDEN if hidden in (done.stdout + done.stderr).decode()]
    assert [done.returncode for done in runs] == [0, 0, 1, 1]
    log = log_of(tmp_path)
    assert "not delivered" in log
    assert [hidden for hidden in HIDDEN if hidden in log] == []


@pytest.mark.parametrize("at", range(460, 505, 4))
def test_a_line_that_is_cut_keeps_no_part_of_a_secret(tmp_path: Path, at: int) -> None:
    write_config(tmp_path, **SECRETS)
    state = a4p.State(str(tmp_path))
    assert state.config.token
    state.log.line("x" * at + SECRETS["token"] + " y" * 99)
    assert SECRETS["token"][:6] not in log_of(tmp_path)


def test_a_traceback_in_the_log_holds_no_secret(tmp_path: Path) -> None:
    write_config(tmp_path, **SECRETS)
    state = a4p.State(str(tmp_path))
    try:
        raise ValueError(f"Bearer {state.config.token}\nand {state.config.topic}")
    except ValueError as error:
        state.log.failure("test", error)
    log = log_of(tmp_path)
    assert "ValueError" in log and "Bearer ***" in log and a4p.shorten(TOPIC) in log
    assert [hidden for hidden in HIDDEN if hidden in log] == []


def test_a_log_line_is_one_line_and_safe_on_a_terminal(tmp_path: Path) -> None:
    log = a4p.Log(str(tmp_path))
    log.line("a\n2026-01-01 00:00:00 forged\x1b[2J", "b\r\nc")
    lines = log_of(tmp_path).splitlines()
    assert len(lines) == 2 and lines[1].startswith("    ")
    assert "\x1b" not in "".join(lines)


def test_the_log_is_capped_and_keeps_its_newer_half(tmp_path: Path) -> None:
    log = a4p.Log(str(tmp_path))
    (tmp_path / "a4p.log").write_text("old line\n" * (a4p.LOG_LIMIT // 9 + 1))
    log.line("new line")
    kept = (tmp_path / "a4p.log").read_text()
    assert a4p.LOG_LIMIT // 3 < len(kept) < a4p.LOG_LIMIT
    assert kept.startswith("old line\n") and kept.endswith("new line\n")


def test_a_damaged_log_is_capped_too(tmp_path: Path) -> None:
    (tmp_path / "a4p.log").write_bytes(b"caf\xe9\n" * (a4p.LOG_LIMIT // 5 + 1))
    a4p.Log(str(tmp_path)).line("new line")
    kept = (tmp_path / "a4p.log").read_bytes()
    assert len(kept) < a4p.LOG_LIMIT and kept.endswith(b"new line\n")


def test_a_log_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "a4p.log").mkdir()
    a4p.Log(str(tmp_path)).line("lost")
    a4p.Log(str(tmp_path / "none")).line("lost")
