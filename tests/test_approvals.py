"""Approvals, plans, forms and ends of turns: only an explicit yes allows, and nothing hangs on it."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import a4p
from conftest import SOON, HookRun
from homes import Home
from phones import Phone
from samples import config as configured

Start = Callable[..., HookRun]
YES = ["yes", "y", "ok", "allow", "允许", "同意", "可以"]
NO = ["no", "n", "deny", "拒绝", "不"]
LABELS = {"en": ("Allow", "Always", "Deny"), "zh": ("允许", "始终允许", "拒绝")}
RULE = {"type": "addRules", "behavior": "allow", "destination": "localSettings",
        "rules": [{"toolName": "Bash", "ruleContent": "make:*"}]}
SESSION = "5f0c2f4e-1111-4222-8333-944455556666"


def payload(event: str, **more: Any) -> dict[str, Any]:
    """A call of a hook as Claude Code makes it."""
    return {"session_id": SESSION, "cwd": "/home/ada/shop", "permission_mode": "default",
            "prompt_id": "p1", "hook_event_name": event, **more}


def request(tool: str = "Bash", given: Any = None, **more: Any) -> dict[str, Any]:
    """A request for permission."""
    given = {"command": "make test", "description": "Run the tests"} if given is None else given
    return payload("PermissionRequest", tool_name=tool, tool_input=given, **more)


def stop(text: Any = "All done.", **more: Any) -> dict[str, Any]:
    """The end of a turn."""
    return payload("Stop", last_assistant_message=text, background_tasks=[], **more)


def call_of(given: dict[str, Any], agent: str = "claude", lang: str = "en") -> a4p.Call:
    found = a4p.AGENTS[agent].read(given, "wait", lang)
    assert found is not None
    return found


def left_alone(given: dict[str, Any], agent: str = "claude", desk: str = "wait") -> bool:
    """Whether the call is left to the terminal, as none of a4p's or as malformed."""
    try:
        return a4p.AGENTS[agent].read(given, desk) is None
    except a4p.A4pError:
        return True


def decision(given: dict[str, Any], reply: str, agent: str = "claude", lang: str = "en") -> Any:
    """What the agent gets for this reply, "asked back" where it gets nothing yet."""
    call = call_of(given, agent, lang)
    answer = call.questions[0].read(reply)
    if answer is None:
        return "asked back"
    output = call.write(call, [answer])
    assert output is not None
    return output["hookSpecificOutput"]["decision"]


def push_of(given: dict[str, Any], **config: Any) -> a4p.Push:
    call = call_of(given)
    return a4p.Push(configured(**config), call.sender, call.questions[0])


def type_later(phone: Phone, push: dict[str, Any], text: str) -> None:
    """Type when the push's second is over: what was typed within it may be older than it."""
    time.sleep(max(0.0, push["time"] + 1 - time.time()))
    phone.type(text)


# === What a reply means ==========================================================================

@pytest.mark.parametrize("agent", ["claude", "codex", "dsh"])
@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("dress", [str, str.upper, " {}\n".format])
def test_each_word_for_yes_allows_and_each_for_no_denies(
        agent: str, lang: str, dress: Callable[[str], str]) -> None:
    for word in YES:
        assert decision(request(), dress(word), agent, lang) == {"behavior": "allow"}
    for word in NO:
        given = decision(request(), dress(word), agent, lang)
        assert given == {"behavior": "deny",
                         "message": "" if agent == "dsh" else "The user denied this, from the phone."}


@pytest.mark.parametrize("word", ["ＹＥＳ", "ｏｋ", "Ｙ"])
def test_full_width_letters_are_letters(word: str) -> None:
    assert decision(request(), word)["behavior"] == "allow"


@pytest.mark.parametrize("words", [
    "yes please", "yes.", "yes!", "ok?", "yess", "yes yes", "yes, but use the folder tmp", "no way",
    "not ok", "okay", "sure", "true", "allowed", "not allowed", "don't allow", "always", "never",
    "不可以", "不允许", "不同意", "可以吗", "好", "行", "是", '"yes"', "{yes}", "y/n", "1, 2", "-1",
    "3 days", "null", "approve", "👍", "✅", "/allow", "allow\nrm -rf /", "Y E S", "1 yes"])
def test_any_other_words_deny_and_are_the_message(words: str) -> None:
    for lang in ("en", "zh"):
        assert decision(request(), f" {words} ", lang=lang) == {"behavior": "deny", "message": words}


@pytest.mark.parametrize("number", ["1", "2", "3", "9", "１", "1.", "(1)", "#1", "①", "选1", "第一个",
                                    "option 1", "一", "1️⃣"])
def test_a_bare_number_is_asked_back_and_never_allows(number: str) -> None:
    assert decision(request(), number) == "asked back"
    assert decision(request(permission_suggestions=[RULE]), number) == "asked back"
    assert decision(request("ExitPlanMode", {"plan": "1. do it"}), number) == "asked back"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_a_button_s_label_is_its_answer(lang: str) -> None:
    given = request(permission_suggestions=[RULE])
    allow, always, deny = call_of(given, lang=lang).questions[0].labels
    assert (allow, always, deny) == LABELS[lang]
    assert decision(given, allow, lang=lang) == {"behavior": "allow"}
    assert decision(given, always, lang=lang) == {"behavior": "allow", "updatedPermissions": [RULE]}
    assert decision(given, deny, lang=lang)["behavior"] == "deny"


@pytest.mark.parametrize("suggestions", [
    None, [], {}, "x", 5, [{"type": "addRules", "rules": "x" * 600}]])
def test_always_is_offered_only_where_it_can_be_shown_whole(suggestions: Any) -> None:
    given = request(permission_suggestions=suggestions)
    assert call_of(given).questions[0].labels == ["Allow", "Deny"]
    assert decision(given, "Always") == {"behavior": "deny", "message": "Always"}


def test_nothing_but_the_listed_words_allows_in_2000_random_replies() -> None:
    chance = random.Random(2026)
    words = [*YES, *NO, "always", "1", "2", "sure", "fine", "go", "do it", "始终允许", "好", "desk",
             "Allow", "Always", "Deny", "允许 一次", "yes", "", "null", "3", "a", "b"]
    marks = ["", "", "", " ", " ", ".", "!", ",", "\n", "　", "’", "\u200b", "?", "、", "0", "not ", "不", "🙂", "\0", "'"]
    given = request(permission_suggestions=[RULE])
    allowed = 0
    for _ in range(2000):
        reply = "".join(chance.choice(marks) + chance.choice(words) + chance.choice(marks)
                        for _ in range(chance.choice([1, 1, 1, 1, 2, 3])))
        reply = "".join(c.upper() if chance.random() < 0.2 else c for c in reply)
        for lang in ("en", "zh"):
            bare = reply.replace("\u200b", "").strip().lower()
            listed = {*YES, *(label.lower() for label in LABELS[lang][:2])}
            given_back = decision(given, reply, lang=lang)
            allows = given_back != "asked back" and given_back["behavior"] == "allow"
            assert allows == (bare in listed), reply
            allowed += allows
    assert 100 < allowed < 2000  # both kinds were there


# === What is asked ===============================================================================

@pytest.mark.parametrize("tool", a4p.TOOLS)
@pytest.mark.parametrize("desk", ["wait", "beside"])
def test_a_question_s_tool_is_never_an_approval(tool: str, desk: str) -> None:
    for given in ({}, {"questions": []}, {"questions": [{"question": "Q?"}]}):
        assert all(left_alone(request(tool, given), agent, desk) for agent in a4p.AGENTS)


def test_a_question_that_asks_for_permission_is_a_question() -> None:
    rows = [{"question": "Q?", "options": [{"label": "A"}, {"label": "B"}]}]
    given = request("AskUserQuestion", {"questions": rows})
    assert a4p.AGENTS["claude"].read(given, "wait") is None
    found = a4p.AGENTS["claude"].read(given, "beside")
    assert found is not None and found.questions[0].kind == "question"


@pytest.mark.parametrize("given", [
    request(""), {**request(), "tool_name": None}, {**request(), "tool_name": 5},
    {**request(), "tool_input": None}, {**request(), "tool_input": "ls"},
    {**request(), "tool_input": ["ls"]}, request("ExitPlanMode", {}),
    request("ExitPlanMode", {"plan": " \n"}), request("ExitPlanMode", {"plan": None}), request("ExitPlanMode", {"plan": ""})])
def test_what_cannot_be_shown_is_left_to_the_terminal(given: dict[str, Any]) -> None:
    assert left_alone(given)


def test_a_subagent_s_request_is_asked_and_its_end_is_not_told() -> None:
    assert call_of(request(agent_id="a1")).questions[0].kind == "approval"
    assert left_alone(stop(agent_id="a1"))
    assert left_alone(stop(parent_session="s0"), "dsh")


@pytest.mark.parametrize(("given", "text"), [
    ({"command": "make", "description": "Build"}, "Build\nmake"),
    ({"command": "make", "timeout": 9000, "run_in_background": True},
     "timeout: 9000\nrun_in_background: true\nmake"),
    ({"file_path": "a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 2", "replace_all": False},
     "replace_all: false\na.py\n-x = 1\n-y = 2\n+x = 2"),
    ({"file_path": "/a/b.txt", "content": "one\n\ttwo\n"}, "/a/b.txt\n+one\n+   two\n+"),
    ({"notebook_path": "n.ipynb", "new_source": "1", "cell_id": "c"}, "cell_id: c\nn.ipynb\n+1"),
    ({"command": "*** Begin Patch\n*** Add File: x\n+hi\n*** End Patch"},
     "*** Begin Patch\n*** Add File: x\n+hi\n*** End Patch"),
    ({"url": "https://x.y/z", "prompt": "what is it"}, "url: https://x.y/z\nprompt: what is it"),
    ({"text": "a", "n": 0, "on": False, "none": None, "deep": {"x": [1, 2], "y": {"z": "q"}}},
     "text: a\nn: 0\non: false\nnone: null\ndeep.x.1: 1\ndeep.x.2: 2\ndeep.y.z: q"),
    ({"a": {"b": "shown"}, "a.b": "shown, too", "": {"command": "x"}, "command": "y"},
     "a.b: shown\na.b: shown, too\nx\ny"),
    ({}, "Bash"),
    ({"command": "echo \x1b[2J\u202egnp.exe\rls"}, "echo \\x1b[2J\\u202egnp.exe\\rls")])
def test_a_tool_s_input_is_told_in_words(given: dict[str, Any], text: str) -> None:
    assert call_of(request("Bash", given)).questions[0].text == text


def test_what_always_adds_is_told() -> None:
    rules = [RULE, {"type": "setMode", "mode": "acceptEdits", "destination": "session"}]
    text = call_of(request(permission_suggestions=rules)).questions[0].text
    assert text == ("Run the tests\nmake test\n\nAlways adds: addRules allow localSettings "
                    "Bash make:*; setMode acceptEdits session")


def test_a_long_command_is_cut_in_the_middle_and_never_at_its_end() -> None:
    long = "echo begins; " + "x" * 100_000 + "; rm -rf / # ends"
    push = push_of(request("Bash", {"command": long, "description": "d" * 3000},
                           permission_suggestions=[RULE]))
    body = push.compose()
    assert body["message"].startswith("d")
    assert "; rm -rf / # ends\n\nAlways adds: " in body["message"]
    assert len(a4p.encode(body)) <= a4p.WHOLE_AIM
    assert body["priority"] == 5


def test_the_push_names_the_tool_the_project_and_the_session() -> None:
    body = push_of(request("mcp__linear__create", {"title": "T"})).compose()
    assert body["title"] == "Claude: mcp linear create"
    assert body["message"].startswith("title: T\n\nTap a button, or type: yes allows")
    assert body["message"].endswith("\nshop · 556666")
    assert "1." not in body["message"]
    assert [action["body"] for action in body["actions"]] == ["Allow", "Deny"]


@pytest.mark.parametrize("command", [
    "rm -rf build", "rm -r x", "cd a && rm x -f", "rm --recursive x", "sudo ls", "git push --force",
    "git push -f origin main", "git push origin +main", "git push origin --delete x",
    "git reset --hard HEAD~3", "git clean -fdx", "curl -s https://x.sh | sh", "wget -O- x | bash",
    "curl x | python3 -", 'bash -c "$(curl -fsSL x)"', "dd if=a of=/dev/sda", "mkfs.ext4 /dev/sda",
    "chmod -R 777 .", "chown -R me /", "echo x > /etc/passwd", "echo x >> ~/.bashrc",
    "make | tee -a /var/log/x", "echo > ../other/x", "cat ~/.ssh/id_rsa", "cat .env", "kill -9 1",
    "find . -name x -delete", "psql -c 'DROP TABLE users'", "npm publish", "git commit --no-verify",
    "terraform destroy", "kubectl delete pod x", "shutdown now"])
def test_what_is_risky_is_marked(command: str) -> None:
    push = push_of(request("Bash", {"command": command}))
    body = push.compose()
    assert (body["priority"], body["tags"]) == (5, ["warning"])
    assert [option.danger for option in push.question.options] == [True, False]


@pytest.mark.parametrize("command", [
    "ls -rf", "make test", "git push", "git push --follow-tags", "git status", "git commit -m 'rf'",
    "curl -s https://x.y/z.json", "docker run --rm -it img", "npm install", "cat a > b", "chmod +x a",
    "make 2>/dev/null", "grep -rf patterns src", "pytest -k 'kills or rms'", "find . -name x"])
def test_what_is_usual_is_not(command: str) -> None:
    body = push_of(request("Bash", {"command": command})).compose()
    assert body["priority"] == 4
    assert "tags" not in body


@pytest.mark.parametrize(("tool", "given", "risky"), [
    ("Write", {"file_path": "/home/ada/shop/a", "content": "sudo rm -rf /"}, False),
    ("Write", {"file_path": "a/../b", "content": ""}, False),
    ("Write", {"file_path": "../b", "content": ""}, True),
    ("Write", {"file_path": "/home/ada/shop2/a", "content": ""}, True),
    ("Write", {"file_path": "~/x", "content": ""}, True),
    ("Edit", {"file_path": "/etc/hosts", "old_string": "a", "new_string": "b"}, True),
    ("NotebookEdit", {"notebook_path": "/n.ipynb", "new_source": "1"}, True),
    ("Read", {"file_path": "/etc/hosts"}, False),
    ("apply_patch", {"command": "*** Begin Patch\n*** Add File: /tmp/x\n+hi\n*** End Patch"}, True),
    ("apply_patch", {"command": "*** Begin Patch\n*** Update File: src/x\n+hi\n*** End Patch"}, False),
    ("bash", {"reason": "escalate sandbox to danger-full-access: x", "command": "ls"}, True),
    ("Bash", {"command": "x" * 2_500}, True)])
def test_a_change_outside_the_project_is_risky(
        tool: str, given: dict[str, Any], risky: bool) -> None:
    assert (push_of(request(tool, given)).compose()["priority"] == 5) == risky


def test_looking_for_risks_takes_no_time_even_in_a_hostile_command() -> None:
    began = time.monotonic()
    for part in ("rm git push curl ", "git push ", "curl | ", "find -", "sh (", "chmod "):
        call_of(request("Bash", {"command": part * (2300 // len(part))}))
    call_of(request("Bash", {"command": "x\x1b" * 2_000_000}))
    assert time.monotonic() - began < 10


# === Through the hook ============================================================================

@pytest.mark.parametrize(("agent", "title"), [("claude", "Claude"), ("codex", "Codex"), ("dsh", "DSH")])
def test_a_tap_allows(home: Home, phone: Phone, hook: Start, agent: str, title: str) -> None:
    run = hook(agent, request())
    push = phone.push()
    assert push["title"] == f"{title}: Bash"
    assert push["message"].startswith("Run the tests\nmake test\n\nTap a button")
    assert push["message"].endswith("\nshop · 556666")
    phone.tap(push, 0)
    assert run.output() == {"hookSpecificOutput": {
        "hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
    assert phone.replaced(push)["message"] == "Answered: Allow"


def test_a_typed_yes_allows_and_typed_words_deny(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", request())
    type_later(phone, phone.push(), "OK")
    assert run.output()["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    run = hook("claude", request())
    type_later(phone, phone.push(1), "use the folder 构建")
    assert run.output()["hookSpecificOutput"]["decision"] == {
        "behavior": "deny", "message": "use the folder 构建"}


def test_always_hands_the_suggestions_back(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", request(permission_suggestions=[RULE]))
    phone.tap(phone.push(), 1)
    assert run.output()["hookSpecificOutput"]["decision"] == {
        "behavior": "allow", "updatedPermissions": [RULE]}


def test_a_yes_from_before_the_push_allows_nothing(home: Home, phone: Phone, hook: Start) -> None:
    phone.type("yes")
    run = hook("claude", request())
    push = phone.push()
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(1.5)
    phone.tap(push, -1)
    assert run.output()["hookSpecificOutput"]["decision"]["behavior"] == "deny"


@pytest.mark.parametrize(("later", "counts"), [(0, False), (1, True)])
def test_a_yes_within_the_push_s_second_allows_nothing(
        home: Home, later: int, counts: bool) -> None:
    """Nobody has read it by then."""
    state, ask = a4p.State(str(home.path)), a4p.Approval("", "", "May I?", [
        a4p.Option("Allow"), a4p.Option("Deny")])
    with a4p.Conversation(state, a4p.Sender("Test"), 1, lambda body: None) as talk:
        push = talk.push = a4p.Push(state.config, a4p.Sender("Test"), ask)
        talk.published, talk.pushed_at, talk.replayed, talk.asked_back = 0.0, 100, set(), ""
        talk.skew, talk.echo = 0, ""
        push.tag = state.pending.add({
            "id": push.id, "title": push.title, "text": "May I?", "since": time.time(),
            "deadline": time.time() + 9, "closing": {}})
        event = {"id": "e1", "time": 100 + later, "event": "message", "via": 1.0,
                 "topic": state.config.topic + "-response", "message": "yes"}
        assert (talk._consider(event) == a4p.Answer(["Allow"])) is counts


def test_a_yes_while_another_question_waits_is_asked_back(
        home: Home, phone: Phone, hook: Start) -> None:
    runs = [hook("claude", request()), hook("codex", request())]
    pushes = sorted((phone.push(n) for n in (0, 1)), key=lambda push: str(push["title"]))
    type_later(phone, pushes[-1], "yes")
    asked = phone.push(2)
    assert "“yes”" in asked["message"]
    assert all(run.process.poll() is None for run in runs)
    for run, push in zip(runs, pushes):
        phone.tap(push, -1)
        assert run.output()["hookSpecificOutput"]["decision"]["behavior"] == "deny"


def test_a_number_is_asked_back(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", request(permission_suggestions=[RULE]))
    push = phone.push()
    type_later(phone, push, "1")
    assert "1 is not on the list (Allow / Always / Deny)" in phone.push(1)["message"]
    assert run.process.poll() is None
    phone.type("1")  # again: these are words, and words deny
    assert run.output()["hookSpecificOutput"]["decision"] == {"behavior": "deny", "message": "1"}


@pytest.mark.parametrize("word", ["desk", "终端"])
def test_the_desk_word_leaves_it_to_the_terminal(
        home: Home, phone: Phone, hook: Start, word: str) -> None:
    run = hook("codex", request())
    type_later(phone, phone.push(), word)
    assert run.output() is None


@pytest.mark.parametrize("agent", ["claude", "codex", "dsh"])
def test_nobody_answers_and_nothing_is_allowed(
        home: Home, phone: Phone, hook: Start, agent: str) -> None:
    home.configure(timeout=1)
    run = hook(agent, request())
    push = phone.push()
    assert run.output() is None
    assert phone.replaced(push)["message"] == "Not answered, back at the terminal"
    phone.tap(push, 0)  # too late


def test_a_plan_is_approved_with_its_whole_input(home: Home, phone: Phone, hook: Start) -> None:
    given = {"plan": "# Plan\n\n1. do it\n", "planFilePath": "/home/ada/.claude/plans/x.md"}
    run = hook("claude", request("ExitPlanMode", given))
    push = phone.push()
    assert push["title"] == "Claude: Plan"
    assert push["message"].startswith("# Plan\n\n1. do it\n\nTap a button")
    assert push["priority"] == 4
    assert [action["label"] for action in push["actions"]] == ["Approve", "Keep planning"]
    phone.tap(push, 0)
    assert run.output()["hookSpecificOutput"]["decision"] == {
        "behavior": "allow", "updatedInput": given}


def test_a_plan_has_no_always() -> None:
    given = request("ExitPlanMode", {"plan": "1. do it"}, permission_suggestions=[RULE])
    assert call_of(given).questions[0].labels == ["Approve", "Keep planning"]


def test_words_about_a_plan_keep_planning(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", request("ExitPlanMode", {"plan": "1. do it"}))
    type_later(phone, phone.push(), "test first")
    assert run.output()["hookSpecificOutput"]["decision"] == {
        "behavior": "deny", "message": "test first"}


# === Answered at the desk: Claude Code's transcript ==============================================

EDIT = {"file_path": "a.py", "old_string": "x", "new_string": "y", "replace_all": False}


def used(name: str, given: Any, key: str = "t1") -> dict[str, Any]:
    """The assistant's record of a call."""
    return {"message": {"role": "assistant", "content": [
        {"type": "text", "text": "I edit."}, {"type": "tool_use", "id": key, "name": name, "input": given}]}}


def result(key: str = "t1") -> dict[str, Any]:
    """The record of a call's result."""
    return {"message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": key, "content": "ok"}]}}


def write(path: Path, *records: Any) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def test_an_approval_decided_at_the_desk_withdraws_the_push(
        home: Home, phone: Phone, hook: Start, tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    write(path, used("Edit", EDIT, "t0"), result("t0"))  # the same, long ago
    run = hook("claude", request("Edit", EDIT, transcript_path=str(path)))
    push = phone.push()
    given = {key: EDIT[key] for key in ("new_string", "file_path", "old_string")}  # no default
    write(path, used("Edit", {**given, "new_string": "z"}, "t2"), result("t2"),  # another
          used("Edit", given), {"type": "mode"}, result())
    assert run.output() is None
    assert phone.replaced(push)["message"] == "Answered at the desk"


def test_of_two_calls_with_one_input_one_result_does_not_decide(tmp_path: Path) -> None:
    path = tmp_path / "transcript.jsonl"
    path.touch()
    transcript = a4p.Transcript(call_of(request("Edit", EDIT, transcript_path=str(path))))
    write(path, used("Edit", EDIT, "t1"), used("Edit", EDIT, "t2"), result("t1"))
    assert not transcript.decided()
    write(path, result("t2"))
    assert transcript.decided()


# === Forms of MCP servers ========================================================================

COLOUR = {"type": "string", "title": "Colour", "enum": ["red", "blue"]}


def form(**fields: Any) -> dict[str, Any]:
    """A form as Claude Code passes it."""
    return payload("Elicitation", mcp_server_name="paint", message="Pick", mode="form",
                   requested_schema={"type": "object", "properties": fields, "required": []})


def test_a_form_s_fields_are_questions(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", form(colour=COLOUR, twice={"type": "boolean"},
                              note={"type": "string", "description": "free"}))
    first = phone.push()
    assert first["title"] == "Claude: paint (1/3)"
    assert first["message"].startswith("Pick\nColour\n\n1. red\n2. blue\n")
    phone.tap(first, 1)
    second = phone.push(1)
    assert second["message"].startswith("Pick\ntwice\n\n1. Yes\n2. No\n")
    phone.tap(second, 1)
    phone.push(2)
    phone.type("no hurry")
    assert run.output() == {"hookSpecificOutput": {
        "hookEventName": "Elicitation", "action": "accept",
        "content": {"colour": "blue", "twice": False, "note": "no hurry"}}}


def test_a_choice_takes_no_other_words(home: Home, phone: Phone, hook: Start) -> None:
    run = hook("claude", form(colour=COLOUR))
    phone.push()
    phone.type("green")
    assert "only the list counts" in phone.push(1)["message"]
    phone.type("1")
    assert run.output()["hookSpecificOutput"]["content"] == {"colour": "red"}


@pytest.mark.parametrize("field", [
    {"type": "number"}, {"type": "integer"}, {"type": "array", "items": {"enum": ["a"]}}, {}, None,
    "string", {"type": "string", "format": "email"}, {"type": "string", "minLength": 3},
    {"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, {"type": "string", "enum": [1, 2]},
    {"type": "string", "enum": ["a", "a"]}, {"type": "string", "enum": "ab"},
    {"type": ["string"]}])
def test_a_form_with_another_field_is_the_terminal_s(field: Any) -> None:
    for given in (form(x=field), form(colour=COLOUR, x=field)):
        assert left_alone(given)


@pytest.mark.parametrize("schema", [None, {}, [], "x", {"properties": None}, {"properties": []},
                                    {"properties": {}}, {"properties": {str(n): COLOUR for n in range(21)}}])
def test_a_form_without_usable_fields_is_the_terminal_s(schema: Any) -> None:
    assert left_alone({**form(), "requested_schema": schema})


# === Ends of turns ===============================================================================

@pytest.mark.parametrize(("agent", "title"), [("claude", "Claude"), ("codex", "Codex"), ("dsh", "DSH")])
def test_the_end_of_a_turn_is_told_and_waits_for_nobody(
        home: Home, phone: Phone, hook: Start, agent: str, title: str) -> None:
    run = hook(agent, stop("All 5 tests pass."))
    assert run.output() is None
    push = phone.push()
    assert push["title"] == f"{title}: Finished"
    assert push["message"] == "All 5 tests pass.\n\nshop · 556666"
    assert "actions" not in push
    assert json.loads(home.run("status", "--json"))["waiting"] == []


def test_the_server_may_be_gone_when_a_turn_ends(home: Home, hook: Start) -> None:
    home.configure(server="http://127.0.0.1:9")
    began = time.monotonic()
    assert hook("claude", stop()).output() is None
    assert time.monotonic() - began < 5


def test_a_turn_is_told_once(home: Home, phone: Phone, hook: Start) -> None:
    for text, turn in (("one", "p1"), ("again", "p1"), ("two", "p2")):
        assert hook("claude", {**stop(text), "prompt_id": turn}).output() is None
    assert hook("codex", {**stop("three"), "prompt_id": None, "turn_id": "t1"}).output() is None
    first, *rest = (phone.push(n)["message"] for n in range(3))
    assert {first, *rest} == {f"{text}\n\nshop · 556666" for text in ("one", "two", "three")}
    assert len(phone.pushes) == 3


def test_without_a_turn_s_id_each_end_is_told() -> None:
    bare = {key: value for key, value in stop().items() if key != "prompt_id"}
    assert len({call_of(bare).questions[0].key for _ in range(9)}) == 9


@pytest.mark.parametrize(("tasks", "told"), [
    ([], True), (None, True), ([{"id": "b1", "type": "shell", "status": "completed"}], True),
    ([{"id": "b1", "type": "shell", "status": "running", "command": "make"}], False)])
def test_nothing_is_told_while_background_tasks_run(tasks: Any, told: bool) -> None:
    given = {**stop(), "background_tasks": tasks}
    assert left_alone(given) != told


@pytest.mark.parametrize(("text", "shown"), [
    ("", "Finished"), (None, "Finished"), ("x" * 1000, "x" * 1000), ("x" * 1001, "x" * 1000 + " …"),
    ("First. " + "y" * 995 + ". More.", "First. …"),
    ("Done.\nSee a.py 1.5 " + "z" * 1000, "Done. …"), ("完成了。" + "长" * 1000, "完成了。 …"),
    ("So? " * 400, ("So? " * 250).rstrip() + " …")])
def test_a_long_message_is_cut_behind_a_sentence(text: Any, shown: str) -> None:
    assert call_of(stop(text)).questions[0].text == shown


@pytest.mark.parametrize("rows", [
    [{"type": "assistant", "message": {"role": "assistant", "content": [
        {"type": "text", "text": "It is "}, {"type": "text", "text": "done."}]}},
     {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "tool_use"}]}}],
    [{"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "It is done."}]}},
     {"type": "event_msg", "payload": {"type": "token_count"}}, 5, None, {"message": "text"}],
])
def test_without_a_last_message_the_transcript_s_is_told(rows: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "transcript.jsonl"
    file.write_text("not JSON\n" + "".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    told = call_of({**stop(None), "transcript_path": str(file)}).questions[0].text
    assert told == "It is done."


@pytest.mark.parametrize("path", [None, 0, "", "/nowhere", "a\0b", ["x"]])
def test_a_transcript_that_cannot_be_read_leaves_the_bare_news(path: Any) -> None:
    assert call_of({**stop(None), "transcript_path": path}).questions[0].text == "Finished"


def test_a_reply_continues_the_session(home: Home, phone: Phone, hook: Start) -> None:
    home.configure(reply_wait=30)
    run = hook("claude", stop("Which one? 1. a 2. b"))
    push = phone.push()
    assert push["message"].startswith(
        "Which one? 1. a 2. b\n\nType what to do next, or tap Done.\n")
    assert [action["label"] for action in push["actions"]] == ["Done"]
    phone.type("2")
    output = run.output()
    assert output["decision"] == "block"
    assert output["reason"].endswith(" from the phone. Go on with the reply:\n\n2")
    assert phone.replaced(push)["message"] == "Which one? 1. a 2. b\n\nAnswered: 2"
    run = hook("claude", stop("Took b.", stop_hook_active=True))  # the same turn goes on
    phone.tap(phone.push(1), 0)
    assert run.output() is None


def test_dsh_is_told_the_words_alone(home: Home, phone: Phone, hook: Start) -> None:
    home.configure(reply_wait=30)
    run = hook("dsh", stop())
    phone.push()
    phone.type("go on")
    assert run.output() == {"decision": "block", "reason": "go on"}


def test_coming_home_ends_the_wait_for_a_reply(home: Home, phone: Phone, hook: Start) -> None:
    home.configure(reply_wait=SOON)
    run = hook("codex", stop())
    push = phone.push()
    home.run("home")
    assert run.output(2) is None
    assert phone.replaced(push)["message"] == "All done.\n\nReleased, back at the terminal"


def test_the_wait_for_a_reply_has_its_own_length(home: Home, phone: Phone, hook: Start) -> None:
    home.configure(timeout=60, reply_wait=1)
    run = hook("claude", stop())
    push = phone.push()
    assert run.output() is None
    assert phone.replaced(push)["message"] == "All done.\n\nNot answered, back at the terminal"


@pytest.mark.parametrize(("value", "fits"), [(0, True), (1, True), (600, True), (82800, True),
                                             (82801, False), (-1, False), ("60", False), (True, False)])
def test_reply_wait_is_a_number_of_seconds(value: Any, fits: bool) -> None:
    assert a4p.setting_fits("reply_wait", value) == fits


@pytest.mark.parametrize("given", [request(), stop(), form(colour=COLOUR)])
def test_at_home_nothing_is_asked_or_told(
        home: Home, phone: Phone, hook: Start, given: dict[str, Any]) -> None:
    home.run("home")
    assert hook("claude", given).output() is None
    assert not phone.pushes


def test_a_command_that_is_cut_on_the_phone_is_marked(home: Home) -> None:
    """JSON's escapes make it too big before it is too long."""
    quoted = "\n".join(['echo "' + '\\"' * 20 + '"'] * 23)
    command = f"{quoted}\ncp ~/secret.txt /mnt/share\n{quoted}"
    assert len(command) < a4p.INPUT_SHOWN
    call = a4p.AGENTS["claude"].read(request(given={"command": command}), "wait")
    assert call is not None
    body = a4p.Push(a4p.State(str(home.path)).config, call.sender, call.questions[0]).compose()
    assert "secret" not in body["message"] and (body["priority"], body["tags"]) == (5, ["warning"])
