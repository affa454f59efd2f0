"""Each agent and each route: the call becomes questions, the answers become its own output."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

import a4p
from samples import (
    CACHE,
    EXTRAS,
    ROUTES,
    asked,
    claude,
    codex,
    codex_async,
    dsh,
    option,
    strict_json,
)

REDIS, MEMORY = a4p.Answer(["Redis"]), a4p.Answer(["Memory"])


def read(agent: str, payload: Any, desk: str = "wait") -> a4p.Call | None:
    """What the hook of an agent makes of what comes on stdin; an error is logged, and silent."""
    try:
        return a4p.AGENTS[agent].read(json.loads(json.dumps(payload)), desk)
    except a4p.A4pError:
        return None


def call_of(agent: str, payload: Any, desk: str = "wait") -> a4p.Call:
    found = read(agent, payload, desk)
    assert found is not None
    return found


def output(agent: str, payload: Any, *answers: a4p.Answer, desk: str = "wait") -> Any:
    """The JSON that the agent gets, as it arrives."""
    found = call_of(agent, payload, desk)
    return strict_json(json.dumps(found.write(found, answers)))


def shape(question: a4p.Question) -> tuple[Any, ...]:
    return question.key, question.header, question.text, question.labels, question.multi


# --- the call becomes questions ---------------------------------------------

def test_claudes_questions_are_known_by_their_text() -> None:
    found = call_of("claude", claude(CACHE, EXTRAS))
    assert [shape(question) for question in found.questions] == [
        ("Where should sessions live?", "Cache", "Where should sessions live?",
         ["Redis", "Memory"], False),
        ("Which extras?", "Extras", "Which extras?",
         ["Tracing", "Metrics, alerts", 'A "dry" run'], True)]
    assert [one.description for one in found.questions[0].options] == ["takes Redis",
                                                                       "takes Memory"]


def test_codexs_questions_are_known_by_their_id() -> None:
    found = call_of("codex", codex())
    assert [shape(question) for question in found.questions] == [
        ("cache", "Cache", "Where should sessions live?", ["Redis", "Memory"], False)]


def test_codexs_later_questions_have_titles_and_bare_labels_and_no_id() -> None:
    found = call_of("codex", codex_async())
    assert [shape(question) for question in found.questions] == [
        ("Where should sessions live?", "", "Where should sessions live?", ["Redis", "Memory"],
         False),
        ("Anything else?", "", "Anything else?", [], False)]


@pytest.mark.parametrize("event", ["AskUserQuestion", "PreToolUse"])
def test_dshs_questions_are_known_by_their_id_and_may_lack_options(event: str) -> None:
    found = call_of("dsh", dsh(event=event))
    assert [shape(question) for question in found.questions] == [
        ("cache", "Cache", "Where should sessions live?", ["Redis", "Memory"], False),
        ("extras", "", "Which extras?", ["Tracing", "Metrics"], True),
        ("name", "", "What is it called?", [], False)]


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_the_sender_is_the_agent_the_project_and_the_session(
        agent: str, payload: Any, desk: str) -> None:
    sender = call_of(agent, payload, desk).sender
    assert sender.agent == {"claude": "Claude", "codex": "Codex", "dsh": "DSH"}[agent]
    assert sender.project == "shop"
    assert sender.session == payload["session_id"]


@pytest.mark.parametrize(("cwd", "project"), [
    ("/home/ada/shop/", "shop"), ("/", ""), ("", ""), (None, ""), (5, ""), (["/x"], ""),
    ("/a/b\nc", "b c"), ("/a/\x1b[31mred", "\\x1b[31mred"), ("/a/店铺", "店铺")])
def test_a_project_is_one_safe_line(cwd: Any, project: str) -> None:
    assert call_of("claude", claude(cwd=cwd)).sender.project == project


def test_a_call_may_hold_more_than_a4p_knows() -> None:
    row = {**CACHE, "preview": "P", "isOther": True, "isSecret": False, "max": 3,
           "options": [{**option("Redis"), "preview": "R", "x": [1]}, option("Memory")]}
    payload = claude(row, colour="green")
    payload["tool_input"]["metadata"] = {"source": "remember"}
    assert call_of("claude", payload).questions[0].labels == ["Redis", "Memory"]


def test_options_may_lack_a_description_and_questions_a_header() -> None:
    row = {"question": "Q?", "multiSelect": False, "options": [{"label": "A"}, {"label": "B"}]}
    assert shape(call_of("claude", claude(row)).questions[0]) == ("Q?", "", "Q?", ["A", "B"],
                                                                  False)


# --- Claude Code: two routes ------------------------------------------------

MODES = ["default", "acceptEdits", "plan", "bypassPermissions", "auto", "dontAsk", None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("desk", ["wait", "beside"])
def test_exactly_one_of_claudes_two_events_answers(desk: str, mode: str | None) -> None:
    acting = [event for event in ("PreToolUse", "PermissionRequest")
              if read("claude", claude(event=event, permission_mode=mode), desk)]
    beside = desk == "beside" and mode not in ("auto", "dontAsk")
    assert acting == ["PermissionRequest" if beside else "PreToolUse"]


def test_older_versions_tell_no_mode() -> None:
    payload = claude(event="PermissionRequest")
    for key in ("permission_mode", "effort"):
        del payload[key]
    assert read("claude", payload, "beside") is not None
    assert read("claude", payload, "wait") is None


def test_claude_gets_its_whole_input_back_with_the_answers_at_pre_tool_use() -> None:
    payload = claude(CACHE, EXTRAS)
    payload["tool_input"]["metadata"] = {"source": "remember"}
    given = output("claude", payload, MEMORY,
                   a4p.Answer(["Tracing", "Metrics, alerts"], "and logs"))
    assert given == {"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "allow",
        "updatedInput": {
            "questions": [CACHE, EXTRAS], "metadata": {"source": "remember"},
            "answers": {"Where should sessions live?": "Memory",
                        "Which extras?": 'Tracing, "Metrics, alerts", and logs'}}}}


def test_claude_gets_the_same_beside_its_own_dialog() -> None:
    given = output("claude", claude(CACHE, event="PermissionRequest"), REDIS, desk="beside")
    assert given == {"hookSpecificOutput": {
        "hookEventName": "PermissionRequest",
        "decision": {"behavior": "allow", "updatedInput": {
            "questions": [CACHE], "answers": {"Where should sessions live?": "Redis"}}}}}


def test_the_call_itself_is_not_changed() -> None:
    payload = claude(CACHE, EXTRAS)
    before = copy.deepcopy(payload)
    found = a4p.AGENTS["claude"].read(payload, "wait")
    assert found
    found.write(found, [REDIS, a4p.Answer(["Tracing"])])
    assert payload == before


@pytest.mark.parametrize(("labels", "words", "text"), [
    (["Tracing"], "", "Tracing"),
    (["Tracing", 'A "dry" run'], "", 'Tracing, "A \\"dry\\" run"'),
    (["Metrics, alerts"], "", '"Metrics, alerts"'),
    (["Tracing", "Metrics, alerts", 'A "dry" run'], "",
     'Tracing, "Metrics, alerts", "A \\"dry\\" run"'),
    (["Tracing"], "but later, please", "Tracing, but later, please"),
    ([], "none, for now", "none, for now"),
    ([], 'say "no"\nand\\why 🐳 问', 'say "no"\nand\\why 🐳 问'),
])
def test_several_labels_are_joined_and_quoted_where_they_must_be(
        labels: list[str], words: str, text: str) -> None:
    given = output("claude", claude(EXTRAS), a4p.Answer(labels, words))
    assert given["hookSpecificOutput"]["updatedInput"]["answers"] == {"Which extras?": text}


@pytest.mark.parametrize("label", ["a,b", "Grün", "问题", "it's", "a\nb", "C:\\x"])
def test_a_label_without_comma_and_space_or_quotes_is_sent_as_it_is(label: str) -> None:
    given = output("claude", claude(asked("Q?", label, "B", multi=True)), a4p.Answer([label, "B"]))
    assert given["hookSpecificOutput"]["updatedInput"]["answers"]["Q?"] == f"{label}, B"


@pytest.mark.parametrize("label", ["Metrics, alerts", 'A "dry" run', "a,b", " outer space "])
def test_a_single_choice_is_the_label_itself(label: str) -> None:
    given = output("claude", claude(asked("Q?", label, "B")), a4p.Answer([label]))
    assert given["hookSpecificOutput"]["updatedInput"]["answers"]["Q?"] == label


@pytest.mark.parametrize("words", ["Neither", 'use "DuckDB", please', "two\nlines", "都不要", "🦆",
                                   "3"])
def test_free_text_is_the_answer_as_it_is(words: str) -> None:
    for payload, desk in ((claude(), "wait"), (claude(event="PermissionRequest"), "beside")):
        given = output("claude", payload, a4p.Answer([], words), desk=desk)
        specific = given["hookSpecificOutput"]
        new = specific.get("updatedInput") or specific["decision"]["updatedInput"]
        assert new["answers"] == {"Where should sessions live?": words}


def test_answers_that_came_with_the_call_are_replaced() -> None:
    payload = claude()
    payload["tool_input"]["answers"] = {"old": "x"}
    given = output("claude", payload, REDIS)["hookSpecificOutput"]["updatedInput"]
    assert given["answers"] == {"Where should sessions live?": "Redis"}


# --- Codex ------------------------------------------------------------------

def reason_of(given: Any) -> str:
    specific = given["hookSpecificOutput"]
    assert given == {"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "deny",
        "permissionDecisionReason": specific["permissionDecisionReason"]}}
    return str(specific["permissionDecisionReason"])


def native_of(reason: str) -> Any:
    """The tool's own result inside the reason."""
    return json.JSONDecoder().raw_decode(reason[reason.index('{"answers"'):])[0]


AUTH = {"id": "auth", "header": "Auth", "question": "Which method?", "options": [
    option("JWT"), option("Session")]}


def test_codex_reads_an_answer_in_the_reason_of_a_refusal() -> None:
    payload = codex({**AUTH, "id": "a"}, {**AUTH, "id": "b", "question": "And inside?"})
    reason = reason_of(output("codex", payload, a4p.Answer(["JWT"]),
                              a4p.Answer([], "mTLS, signed")))
    assert "the user has answered" in reason
    assert "Which method? -> JWT" in reason
    assert "And inside? -> mTLS, signed" in reason
    assert native_of(reason) == {"answers": {"a": {"answers": ["JWT"]},
                                             "b": {"answers": ["mTLS, signed"]}}}
    assert "not call request_user_input again" in reason
    order = [reason.index(part) for part in ("answered", "Which method?", "And inside?",
                                             '{"answers"', "not call")]
    assert order == sorted(order)


def test_the_reason_ends_so_that_codexs_own_tail_fits() -> None:
    """Codex 0.171 puts `. Tool: request_user_input` behind it and trims outer space."""
    reason = reason_of(output("codex", codex(AUTH), a4p.Answer(["JWT"])))
    assert reason == reason.strip()
    assert reason[-1].isalnum()


def test_the_reason_names_the_tool_that_was_called() -> None:
    reason = reason_of(output("codex", codex_async(), REDIS, a4p.Answer([], "no")))
    assert "not call request_user_input_async again" in reason
    assert native_of(reason) == {"answers": {"Where should sessions live?": {"answers": ["Redis"]},
                                             "Anything else?": {"answers": ["no"]}}}


@pytest.mark.parametrize("words", ['use "mysql"', "two\nlines", "tab\t\\ back", "都不要 🦆", "} ]"])
def test_words_reach_codex_verbatim_and_the_native_part_stays_json(words: str) -> None:
    reason = reason_of(output("codex", codex(AUTH), a4p.Answer([], words)))
    assert f"Which method? -> {words}" in reason
    assert native_of(reason) == {"answers": {"auth": {"answers": [words]}}}


def test_words_beside_labels_are_a_note_in_codexs_own_form() -> None:
    multi = {**AUTH, "multiSelect": True}
    reason = reason_of(output("codex", codex(multi),
                              a4p.Answer(["JWT", "Session"], "rotate keys")))
    assert native_of(reason) == {"answers": {"auth": {"answers": [
        "JWT", "Session", "user_note: rotate keys"]}}}


def test_codex_may_ask_the_same_twice_under_two_ids() -> None:
    payload = codex({**AUTH, "id": "q0"}, {**AUTH, "id": "q1"})
    reason = reason_of(output("codex", payload, a4p.Answer(["JWT"]), a4p.Answer(["Session"])))
    assert native_of(reason)["answers"] == {"q0": {"answers": ["JWT"]},
                                            "q1": {"answers": ["Session"]}}


@pytest.mark.parametrize("mode", ["default", "bypassPermissions", "plan", None])
@pytest.mark.parametrize("desk", ["wait", "beside"])
def test_codex_is_answered_in_every_mode(mode: str | None, desk: str) -> None:
    assert read("codex", codex(permission_mode=mode), desk) is not None


# --- DSH --------------------------------------------------------------------

def test_dsh_gets_its_strict_schema_and_no_other_key() -> None:
    given = output("dsh", dsh(), a4p.Answer(["Memory"]),
                   a4p.Answer(["Tracing", "Metrics"], "soon"),
                   a4p.Answer([], "Ladenkasse 🛒"))
    assert given == {"answers": [
        {"id": "cache", "selected": ["Memory"]},
        {"id": "extras", "selected": ["Tracing", "Metrics"], "custom": "soon"},
        {"id": "name", "selected": [], "custom": "Ladenkasse 🛒"}]}


@pytest.mark.parametrize("words", ["neither", 'say "no"\n', "3", "都不要"])
def test_free_text_on_a_single_choice_is_custom_alone(words: str) -> None:
    single = {"id": "x", "question": "Q?", "options": [{"label": "A"}, {"label": "B"}]}
    assert output("dsh", dsh(single), a4p.Answer([], words)) == {
        "answers": [{"id": "x", "selected": [], "custom": words}]}


def test_dshs_hooks_bridge_gets_a_reason() -> None:
    given = output("dsh", dsh(event="PreToolUse"), REDIS, a4p.Answer(["Metrics"]),
                   a4p.Answer([], "x"))
    reason = reason_of(given)
    assert "Which extras? -> Metrics" in reason
    assert native_of(reason) == {"answers": {
        "cache": {"answers": ["Redis"]}, "extras": {"answers": ["Metrics"]},
        "name": {"answers": ["x"]}}}
    assert "not call ask_user_question again" in reason


# --- what is left alone -----------------------------------------------------

@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_the_samples_themselves_are_answered(agent: str, payload: Any, desk: str) -> None:
    assert read(agent, payload, desk) is not None


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_a_subagent_is_left_alone(agent: str, payload: Any, desk: str) -> None:
    assert read(agent, {**payload, "agent_id": "a1", "agent_type": "general"}, desk) is None


def test_a_dsh_session_with_a_parent_is_left_alone() -> None:
    assert read("dsh", dsh(parent_session="session-16")) is None


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_other_tools_are_left_alone(agent: str, payload: Any, desk: str) -> None:
    for tool in ("Bash", "ExitPlanMode", "askuserquestion", "AskUserQuestion ", "", None, 5, ["x"],
                 {"a": 1}, "mcp__x__AskUserQuestion", "request_user_input_sync", "ask_user"):
        found = read(agent, {**payload, "tool_name": tool}, desk)
        assert found is None or (payload["hook_event_name"] == "PermissionRequest"
                                 and found.questions[0].kind == "approval")


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_other_events_are_left_alone(agent: str, payload: Any, desk: str) -> None:
    for event in ("PostToolUse", "SubagentStop", "Notification", "pretooluse", "BeforeTool", "", None, 5,
                  True, ["PreToolUse"], {"PreToolUse": 1}):
        assert read(agent, {**payload, "hook_event_name": event}, desk) is None


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_no_agent_answers_for_another(agent: str, payload: Any, desk: str) -> None:
    for other in set(a4p.AGENTS) - {agent}:
        assert read(other, payload, desk) is None


def test_codex_and_dsh_have_no_permission_request() -> None:
    assert read("codex", codex(hook_event_name="PermissionRequest")) is None
    assert read("dsh", dsh(event="PermissionRequest")) is None


OTHER_SHAPES: list[Any] = [
    {"message": "Pick one", "requestedSchema": {"properties": {"db": {"enum": ["A", "B"]}}}},
    {"question": "Q?", "options": ["A", "B"]}, {"questions": {"question": "Q?"}},
    {"questions": []},
    {"questions": None}, {"questions": "Q?"}, {"questions": ["Q?"]}, {"questions": [[]]},
    {"questions": [None]}, {}, [], None, "{not json", 5, {"plan": "…"}, [CACHE],
    {"questions": [CACHE] * 21}, {"Questions": [CACHE]}, {"questions": [CACHE, 5]},
    {"questions": [CACHE, {}]}]


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_another_shape_under_the_same_name_is_left_alone(
        agent: str, payload: Any, desk: str) -> None:
    for shape in OTHER_SHAPES:
        assert read(agent, {**payload, "tool_input": shape}, desk) is None, shape
    bare = {key: value for key, value in payload.items() if key != "tool_input"}
    assert read(agent, bare, desk) is None


MALFORMED = [
    {"question": None}, {"question": ""}, {"question": " \n"}, {"question": 5},
    {"question": ["Q?"]},
    {"header": None}, {"header": 5}, {"header": ["H"]},
    {"multiSelect": "yes"}, {"multiSelect": 1}, {"multiSelect": None},
    {"multi_select": "no", "multiSelect": "no"},
    {"options": "AB"}, {"options": {"label": "A"}}, {"options": 5}, {"options": [None]},
    {"options": [[]]}, {"options": [{}]}, {"options": [5, 6]}, {"options": [{"label": 5}]},
    {"options": [{"label": ""}, {"label": "B"}]}, {"options": [{"label": " "}]},
    {"options": [{"label": None, "description": "d"}]}, {"options": [{"label": ["A"]}]},
    {"options": [{"label": "A", "description": 5}]},
    {"options": [{"label": "A", "description": []}]},
    {"options": [option("A"), option("A")]}, {"options": [option("A"), "A"]},
    {"options": [option(str(number)) for number in range(51)]},
]


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_one_malformed_question_leaves_the_whole_call_alone(
        agent: str, payload: Any, desk: str) -> None:
    *rows, last = payload["tool_input"]["questions"]
    for broken in MALFORMED:
        if "title" in last:
            broken = {{"question": "title"}.get(key, key): value for key, value in broken.items()}
        call = {**payload, "tool_input": {"questions": [*rows, {**last, **broken}]}}
        assert read(agent, call, desk) is None, broken


@pytest.mark.parametrize("key", [None, 5, "", ["x"], {"a": 1}])
@pytest.mark.parametrize("make", [codex, dsh])
def test_an_id_that_is_none_leaves_the_call_alone(make: Any, key: Any) -> None:
    agent = make.__name__
    assert read(agent, make({**AUTH, "id": key})) is None


def test_dsh_itself_refuses_a_question_without_an_id() -> None:
    """The model is then told what is wrong with its call; an answer would hide it."""
    bare = {key: value for key, value in AUTH.items() if key != "id"}
    assert read("dsh", dsh(bare)) is None


@pytest.mark.parametrize(("agent", "payload"), [
    ("claude", claude({"question": "Q?", "header": "H", "multiSelect": False})),
    ("claude", claude({**CACHE, "options": []})), ("claude", claude({**CACHE, "options": None})),
    ("codex", codex({"id": "x", "header": "H", "question": "Free?"})),
    ("codex", codex_async({"title": "Free?"}, {"title": "And?"})),
    ("dsh", dsh({"id": "x", "question": "Free?"}, {"id": "y", "question": "And?", "options": []})),
])
def test_a_call_without_options_anywhere_is_left_alone(agent: str, payload: Any) -> None:
    assert read(agent, payload) is None


def test_one_question_with_options_makes_the_others_askable() -> None:
    found = call_of("dsh", dsh({"id": "x", "question": "Free?"}, AUTH))
    assert [question.options == [] for question in found.questions] == [True, False]


def test_texts_that_are_the_same_leave_the_call_alone() -> None:
    """Claude Code finds its answers by the text: one of two would be an invention."""
    assert read("claude", claude(CACHE, {**CACHE, "header": "Other"})) is None
    assert read("claude", claude({**CACHE, "id": "a"}, {**CACHE, "id": "b"})) is None
    row = {"title": "Same?", "options": ["A", "B"]}
    assert read("codex", codex_async(row, {**row, "options": ["C", "D"]})) is None


def test_ids_that_are_the_same_leave_the_call_alone() -> None:
    other = {**AUTH, "question": "And inside?"}
    assert read("codex", codex(AUTH, other)) is None
    assert read("dsh", dsh(AUTH, other)) is None


@pytest.mark.parametrize("payload", [None, True, 5, 1.5, "x", "", [], [claude()], {}, {"a": 1}])
def test_what_is_no_call_at_all_is_left_alone(payload: Any) -> None:
    for agent in a4p.AGENTS:
        assert read(agent, payload) is None


# --- what holds for every route ---------------------------------------------

def texts_of(value: Any) -> list[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in texts_of(part)]


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
@pytest.mark.parametrize("words", ["plain", 'q"uote\\ \n\t', "问题 🐳", "\ud800 \x00", pytest.param("x" * 20_000, id="long")])
def test_every_answer_is_one_line_of_ascii_json(
        agent: str, payload: Any, desk: str, words: str) -> None:
    found = call_of(agent, payload, desk)
    line = json.dumps(found.write(found, [a4p.Answer([], words)] * len(found.questions)))
    assert line.isascii() and "\n" not in line
    assert words in "\n".join(texts_of(strict_json(line)))


@pytest.mark.parametrize(("agent", "payload", "desk"), ROUTES)
def test_nothing_is_ever_granted_without_answers(agent: str, payload: Any, desk: str) -> None:
    found = call_of(agent, payload, desk)
    given = found.write(found, [a4p.Answer([], "words")] * len(found.questions))
    text = json.dumps(given)
    if '"allow"' in text:
        specific = given["hookSpecificOutput"]
        new = specific.get("updatedInput") or specific["decision"]["updatedInput"]
        assert set(new["answers"].values()) == {"words"}
        assert len(new["answers"]) == len(found.questions)
