"""Generated input through the properties of tests/fuzz.py, the same in every run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fuzz
import samples
from samples import ANY_TEXT, STEADY

KEYS = st.sampled_from([
    "questions", "question", "header", "options", "label", "description", "id", "title", "enum",
    "type", "properties", "plan", "command", "file_path", "content", "a4p", "topic", "rules"])
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | ANY_TEXT, inner, max_size=4),
    max_leaves=12)


def mutations(name: str) -> st.SearchStrategy[bytes]:
    """Samples of a target as the mutator changes them."""
    seeds = fuzz.TARGETS[name][0]
    chance = st.randoms(use_true_random=False)
    return st.builds(fuzz.mutate, st.sampled_from(seeds), st.just(seeds), chance)


@st.composite
def payloads(draw: Any) -> bytes:
    """A call of which one value, at the top or in the tool's input, is another."""
    _, payload = draw(st.sampled_from(samples.CALLS))
    inner = draw(st.sampled_from([key for key, value in payload.items() if isinstance(value, dict)]
                                 or [""]))
    part = payload[inner] if inner and draw(st.booleans()) else payload
    changed = {**part, draw(st.sampled_from(sorted(part))): draw(VALUES)}
    return json.dumps(changed if part is payload else {**payload, inner: changed}).encode()


@settings(STEADY, max_examples=60)
@given(payloads())
def test_a_call_with_another_value_is_refused_or_answered_by_its_contract(data: bytes) -> None:
    fuzz.stdin(data)


@settings(STEADY, max_examples=40)
@given(mutations("stdin"))
def test_stdin_is_refused_or_is_a_call(data: bytes) -> None:
    fuzz.stdin(data)


@settings(STEADY, max_examples=25)
@given(mutations("reply") | ANY_TEXT.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_reply_makes_a_hook_say_more_than_its_contract(data: bytes) -> None:
    fuzz.reply(data)


@settings(STEADY, max_examples=60)
@given(mutations("config") | st.dictionaries(
    st.sampled_from(sorted(fuzz.a4p.SETTINGS)), VALUES, max_size=3).map(
        lambda values: json.dumps(values).encode()))
def test_a_config_is_refused_in_a_line_or_works_and_can_be_saved(data: bytes) -> None:
    fuzz.config(data)


@settings(STEADY, max_examples=40)
@given(mutations("entry"))
def test_whatever_lies_in_the_home_the_commands_work(data: bytes) -> None:
    fuzz.entry(data)


@settings(STEADY, max_examples=12)
@given(mutations("store"))
def test_the_server_starts_with_any_file(data: bytes) -> None:
    fuzz.store(data)


@settings(STEADY, max_examples=5)
@given(mutations("line"))
def test_a_waiting_question_survives_any_line_of_a_stream(data: bytes) -> None:
    fuzz.line(data)


@pytest.mark.parametrize(("peer", "name"), [(fuzz.Served, "http"), (fuzz.Spoken, "mcp")])
def test_one_server_answers_any_bytes_in_its_protocol_and_leaves_nothing_behind(
        peer: Any, name: str) -> None:
    with peer() as one:
        @settings(STEADY, max_examples=40)
        @given(mutations(name) | st.binary(max_size=60))
        def check(data: bytes) -> None:
            one.check(data)

        check()


# --- what was found, each kind once -----------------------------------------

@pytest.mark.parametrize(("name", "data"), [
    ("entry", samples.ENTRY_BYTES[2].replace(b'"title"', b'"x"')),
    ("entry", samples.ENTRY_BYTES[3].replace(b'"closing"', b'"x"')),
    ("entry", samples.ENTRY_BYTES[2].replace(b"1999999999.5", b"1e999")),
    ("store", samples.STORE_BYTES[0].replace(b"message_delete", b"mess\\ud800_delete")),
    ("store", samples.STORE_BYTES[0].replace(b"1999990000", b"1e999", 1)),
    ("store", samples.STORE_BYTES[0][:-1] + b"/"), ("store", samples.STORE_BYTES[0][:-1] + b"\xee"),
    ("config", b'{"topic": "t", "x\\ud800": 1}'), ("config", b'{"password": "\\ud800"}'),
    ("config", b'{"server": "http://127.0.0.[1:2586/"}'),
    ("line", samples.LINE_BYTES[4].replace(b'"size": 3', b'"size": 1e999'))])
def test_what_once_crashed_does_not(name: str, data: bytes) -> None:
    fuzz.TARGETS[name][1](data)


def test_the_samples_are_what_they_are_meant_to_be() -> None:
    """A mutator is worth something only if what it begins from goes all the way."""
    assert {call.payload["hook_event_name"] for call in fuzz.CALLS} == {
        "PreToolUse", "PermissionRequest", "AskUserQuestion", "Elicitation", "Stop"}
    assert {agent for agent, _ in samples.CALLS} == set(fuzz.a4p.AGENTS)
    for name, (seeds, check) in fuzz.TARGETS.items():
        for data in seeds if name not in ("line", "http", "mcp") else seeds[:1]:
            check(data)
