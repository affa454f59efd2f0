"""The push: what the phone shows, how it answers, and that it fits into what ntfy carries."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import a4p
from samples import STEADY, TOPIC, config, question

SERVER = "https://ntfy.example"
PAGE = f"{SERVER}/{TOPIC}-response"
PLAIN = config(server=SERVER)
ONE = question("Docker", "systemd", "local only", description="one way")
FOUR = question("Docker", "systemd", "local only", "other")
MULTI = question("Auth", "Search", multi=True)
LETTERED = question("8", "16")
TYPED = question(text="What is it called?")


def push(asked: a4p.Question, settings: a4p.Config = PLAIN, tag: str = "",
         **more: Any) -> a4p.Push:
    sent = a4p.Push(settings, a4p.Sender("Claude", "shop"), asked, **more)
    sent.tag, sent.tagged = tag or "z9", bool(tag)
    return sent


def composed(asked: a4p.Question, settings: a4p.Config = PLAIN, **more: Any) -> dict[str, Any]:
    return dict(push(asked, settings, **more).compose())


def rows(body: dict[str, Any]) -> list[str]:
    """The rows of the list of options."""
    return list(body["message"].split("\n\n")[1].split("\n"))


def notes(body: dict[str, Any]) -> list[str]:
    """What stands below the list."""
    return list(body["message"].split("\n\n")[-1].split("\n"))


def kinds(body: dict[str, Any]) -> list[str]:
    return [action["action"] for action in body.get("actions", [])]


def fits(body: dict[str, Any]) -> bool:
    """Whether ntfy (2.13 and later) takes it as one message."""
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return (len(data) <= 8191 and len(body["message"].encode("utf-8", "replace")) <= 4095
            and len(body["title"].encode("utf-8", "replace")) <= 250 and body["title"] != ""
            and len(body.get("actions", [])) <= 3)


# --- the form ---------------------------------------------------------------

def test_a_single_choice_of_up_to_three_has_a_button_for_each() -> None:
    sent = push(ONE)
    body = sent.compose()
    assert body == {
        "topic": TOPIC, "title": "Claude: Deploy", "priority": 4, "sequence_id": sent.id,
        "message": "How should the service run?\n\n"
                   "1. Docker - one way\n2. systemd - one way\n3. local only - one way\n\n"
                   "Tap a button, or type your own words.\n"
                   f"In a browser: {PAGE}\nshop",
        "actions": [{"action": "http", "label": label, "method": "POST", "clear": True,
                     "url": f"{PAGE}?title={sent.id}", "body": label,
                     "headers": {"Content-Type": "text/plain; charset=utf-8"}}
                    for label in ONE.labels]}


@pytest.mark.parametrize(("asked", "hint", "marks"), [
    (FOUR, "Reply with the number, or your own words.", "1234"),
    (MULTI, "Several may be chosen: reply with the numbers, such as 1,2.", "12"),
    (question("8", "16", "32", "64"), "Reply with the letter, or your own words.", "ABCD"),
    (question("8", "16", "32", multi=True),
     "Several may be chosen: reply with the letters, such as A,C.", "ABC"),
])
def test_a_list_is_numbered_or_lettered_and_one_button_opens_the_reply_page(
        asked: a4p.Question, hint: str, marks: str) -> None:
    body = composed(asked)
    assert rows(body) == [f"{mark}. {label}" for mark, label in zip(marks, asked.labels)]
    assert notes(body) == [hint, f"In a browser: {PAGE}", "shop"]
    assert body["actions"] == [{"action": "view", "label": "Reply", "url": PAGE, "clear": False}]


def test_a_lettered_single_choice_of_two_still_has_buttons() -> None:
    body = composed(LETTERED)
    assert rows(body) == ["A. 8", "B. 16"]
    assert [action["body"] for action in body["actions"]] == ["8", "16"]


def test_a_question_without_options_asks_for_words() -> None:
    body = composed(TYPED)
    assert body["message"] == ("What is it called?\n\nReply with your own words.\n"
                               f"In a browser: {PAGE}\nshop")
    assert "http" not in kinds(body)


def test_the_letters_named_as_an_example_are_letters_of_the_list() -> None:
    asked = question("a", "8", "c", multi=True)
    named = re.findall(r"\b[A-Z]\b", notes(composed(asked))[0])
    assert set(named) <= set(asked.marks)


def test_the_phone_speaks_chinese() -> None:
    chinese = config(server=SERVER, lang="zh")
    body = composed(question("甲", "乙", header=""), chinese)
    assert body["title"] == "Claude: 问题"
    assert notes(body) == ["点按钮，或直接输入文字。", f"用浏览器回复：{PAGE}", "shop"]
    assert composed(MULTI, chinese)["actions"][0]["label"] == "回复"


@pytest.mark.parametrize(("header", "place", "title"), [
    ("Deploy", (1, 1), "Claude: Deploy"),
    ("", (1, 1), "Claude: Question"),
    (" \n\t", (1, 1), "Claude: Question"),
    ("two\nlines ", (1, 1), "Claude: two lines"),
    ("Deploy", (2, 3), "Claude: Deploy (2/3)"),
    ("", (1, 2), "Claude: Question (1/2)"),
])
def test_the_title_names_the_agent_the_header_and_the_place(
        header: str, place: tuple[int, int], title: str) -> None:
    assert composed(question("A", "B", header=header), place=place)["title"] == title


@pytest.mark.parametrize("header", ["h" * 1000, "问" * 1000, "🐳" * 1000, "é" * 243, "a🐳" * 60],
                         ids=["letters", "Chinese", "emoji", "accents", "mixed"])
@pytest.mark.parametrize("place", [(1, 1), (12, 20)])
def test_a_long_title_is_cut_between_characters_before_the_place(
        header: str, place: tuple[int, int]) -> None:
    title = composed(question("A", "B", header=header), place=place)["title"]
    assert 240 < len(title.encode()) <= 250
    shown = title.removesuffix(" (12/20)")
    assert shown.endswith("…") and shown[:-1] == f"Claude: {header}"[:len(shown) - 1]
    assert title.endswith(" (12/20)") == (place == (12, 20))


def test_a_description_is_one_row_with_its_option() -> None:
    asked = a4p.Question("k", "", "Q?", [a4p.Option("A", "two\n lines"), a4p.Option("B")])
    assert rows(composed(asked)) == ["1. A - two lines", "2. B"]


def test_a_label_of_several_lines_stays_one_row() -> None:
    body = composed(question("Docker\n2. systemd", "none"))
    assert len(rows(body)) == 2
    assert rows(body)[1] == "2. none"


def test_without_a_project_nothing_stands_for_it() -> None:
    body = a4p.Push(PLAIN, a4p.Sender("Ask"), ONE).compose()
    assert notes(body)[-1] == f"In a browser: {PAGE}"


def test_the_tag_is_named_where_several_questions_wait() -> None:
    assert notes(composed(FOUR, tag="b7"))[1] == (
        "Several questions wait: begin a typed reply with b7.")
    assert "z9" not in composed(FOUR)["message"]


def test_the_priority_is_the_configured_one() -> None:
    assert composed(ONE, config(server=SERVER, priority=5))["priority"] == 5


def test_each_push_has_an_id_of_its_own_that_ntfy_takes_as_a_sequence_id() -> None:
    sent = [push(ONE) for _ in range(200)]
    assert len({one.id for one in sent}) == 200
    for one in sent:
        assert re.fullmatch("q[a-z2-7]{10}", one.id)
        body = one.compose()
        assert body["sequence_id"] == one.id
        assert {action["url"] for action in body["actions"]} == {f"{PAGE}?title={one.id}"}


@pytest.mark.parametrize("label", ["two\nlines", "tab\there", "bell\x07", "\ud800", "zero\x00"])
def test_a_label_that_would_not_come_back_whole_gets_no_button(label: str) -> None:
    assert kinds(composed(question(label, "other"))) == ["view"]


def test_buttons_of_one_push_can_be_told_apart() -> None:
    """ntfy's web app looks for the button that was clicked by its label."""
    start = "Keep the old table and "
    body = composed(question(start * 3 + "drop it later", start * 3 + "never drop it"))
    labels = [action["label"] for action in body["actions"]]
    assert len(set(labels)) == len(labels)


def test_a_long_label_is_short_on_its_button_and_whole_in_the_reply() -> None:
    label = "问" * 60
    button = composed(question(label, "other"))["actions"][0]
    assert len(button["label"].encode()) <= 60
    assert button["label"].startswith("问问问")
    assert button["body"] == label


# --- click, view and the embedded server ------------------------------------

@pytest.mark.parametrize("asked", [ONE, FOUR, MULTI, TYPED])
@pytest.mark.parametrize(("phone", "embedded", "clicks"), [
    ("", False, False), ("android", False, False), ("ios", False, True), ("", True, True)])
def test_a_touch_opens_the_reply_page_where_typing_is_not_possible(
        asked: a4p.Question, phone: str, embedded: bool, clicks: bool) -> None:
    body = composed(asked, config(server=SERVER, phone=phone), embedded=embedded)
    assert body.get("click") == (PAGE if clicks else None)


def test_the_server_may_live_below_a_path() -> None:
    body = composed(FOUR, config(server=SERVER + "/ntfy/"))
    assert body["actions"][0]["url"] == f"{SERVER}/ntfy/{TOPIC}-response"


def test_a_foreign_server_gets_nothing_but_ntfys_own_fields() -> None:
    assert "a4p" not in composed(FOUR)


def test_the_embedded_server_gets_the_question_as_data() -> None:
    asked = a4p.Question("k", "Deploy", "How?", [
        a4p.Option("Docker", "one way", "1", danger=True), a4p.Option("systemd")], multi=True)
    sent = push(asked, place=(2, 3), tag="b7", embedded=True)
    sent.deadline = 1234.5
    assert sent.compose()["a4p"] == {
        "v": 1, "kind": "question", "id": sent.id, "agent": "Claude", "project": "shop",
        "header": "Deploy", "text": "How?", "n": 2, "of": 3, "marks": ["1", "2"],
        "options": [{"label": "Docker", "description": "one way", "priority": "1",
                     "danger": True}, {"label": "systemd"}],
        "multi": True, "custom": True, "deadline": 1234, "tag": "b7"}


def test_the_embedded_server_gets_no_tag_where_no_other_question_waits() -> None:
    assert composed(FOUR, embedded=True)["a4p"]["tag"] == ""


def test_the_embedded_server_gets_the_text_that_the_push_had_to_cut() -> None:
    text = "word " * 1500
    body = composed(question("A", "B", text=text), embedded=True)
    assert " … " in body["message"]
    assert body["a4p"]["text"] == text
    assert len(a4p.encode(body)) <= a4p.EXTRA_LIMIT


def test_what_is_too_much_even_for_the_embedded_server_goes_as_a_plain_push() -> None:
    body = composed(question("A", "B", text="word " * 5000), embedded=True)
    assert "a4p" not in body
    assert fits(body)


# --- credentials ------------------------------------------------------------

@pytest.mark.parametrize(("values", "header"), [
    ({}, None),
    ({"token": "tk_own", "reply_token": "tk_reply"}, "Bearer tk_reply"),
    ({"token": "tk_own", "share_token": True}, "Bearer tk_own"),
    ({"token": "tk_own", "reply_token": "tk_reply", "share_token": True}, "Bearer tk_reply"),
    ({"user": "ada", "password": "pw_own", "reply_token": "tk_reply"}, "Bearer tk_reply"),
])
def test_buttons_carry_the_token_that_may_be_shared(
        values: dict[str, Any], header: str | None) -> None:
    body = composed(ONE, config(server=SERVER, **values))
    assert kinds(body) == ["http"] * 3
    assert {action["headers"].get("Authorization") for action in body["actions"]} == {header}
    if header != "Bearer tk_own":
        assert "tk_own" not in json.dumps(body)
    assert "pw_own" not in json.dumps(body)


@pytest.mark.parametrize("values", [
    {"token": "tk_own"}, {"user": "ada", "password": "pw_own"}, {"password": "pw_own"},
    {"user": "ada", "password": "pw_own", "share_token": True}])
def test_without_a_token_to_share_the_form_is_numbered(values: dict[str, Any]) -> None:
    body = composed(ONE, config(server=SERVER, **values))
    assert kinds(body) == ["view"]
    assert notes(body)[0] == "Reply with the number, or your own words."
    assert "_own" not in json.dumps(body)


@pytest.mark.parametrize("asked", [FOUR, MULTI, TYPED])
def test_a_push_without_option_buttons_carries_no_token(asked: a4p.Question) -> None:
    shared = config(server=SERVER, token="tk_own", reply_token="tk_reply", share_token=True)
    body = composed(asked, shared, embedded=True)
    assert "tk_" not in json.dumps(body)


# --- what gives way ---------------------------------------------------------

def test_a_question_that_fits_is_shown_whole() -> None:
    body = composed(question("Docker", "systemd", text="x" * 900, description="d" * 900))
    assert "…" not in body["message"]
    assert kinds(body) == ["http", "http"]


def test_descriptions_give_way_first() -> None:
    text, labels = "x" * 900, ["a" * 40, "b" * 40]
    body = composed(question(*labels, text=text, description="d" * 1500))
    assert rows(body) == [f"1. {labels[0]}", f"2. {labels[1]}"]
    assert body["message"].startswith(text + "\n\n")
    assert kinds(body) == ["http", "http"]
    assert len(a4p.encode(body)) <= 3800


def test_the_middle_of_the_text_gives_way_second() -> None:
    text = "START" + "x" * 9000 + "END"
    body = composed(question("Docker", "systemd", text=text, description="d"))
    shown = body["message"].split("\n\n")[0]
    assert shown.startswith("STARTxxx") and shown.endswith("xxxEND") and "x … x" in shown
    assert rows(body) == ["1. Docker", "2. systemd"]
    assert kinds(body) == ["http", "http"]
    assert 3700 < len(a4p.encode(body)) <= 3800


def test_buttons_give_way_third() -> None:
    labels = ["a" * 1000, "b" * 1000]
    body = composed(question(*labels, text="x" * 300, description="d"))
    assert kinds(body) == ["view"]
    assert notes(body)[0] == "Reply with the number, or your own words."
    assert rows(body) == [f"1. {labels[0]}", f"2. {labels[1]}"]
    assert len(a4p.encode(body)) <= 3800


def test_shown_labels_give_way_last() -> None:
    labels = ["a" * 3000, "问" * 1000]
    asked = question(*labels, text="x" * 300)
    body = composed(asked)
    assert [row[:6] for row in rows(body)] == ["1. aaa", "2. 问问问"]
    assert all(row.endswith("…") and len(row.encode()) <= 3 + 48 for row in rows(body))
    assert kinds(body) == ["view"]
    assert asked.read("2") == a4p.Answer([labels[1]])


def test_what_cannot_be_made_small_enough_is_refused() -> None:
    asked = question(*(f"option number {number}: {'x' * 40}" for number in range(200)))
    with pytest.raises(a4p.A4pError) as error:
        push(asked).compose()
    assert error.value.key == "too_big"


def test_a_cut_text_keeps_a_part_that_is_worth_reading() -> None:
    asked = question(*("x" * 60 for _ in range(50)), text="y" * 5000)
    body = composed(asked)
    assert body["message"].split("\n\n")[0].count("y") >= 200


@pytest.mark.parametrize("line", ["a line of a plan\n", 'say "no" \\ or\t"yes"\n', "\x1b[31m",
                                  '"', "\n"])
@pytest.mark.parametrize("size", [4_000, 12_000, 40_000, 200_000, 1_000_000])
def test_a_text_of_any_length_is_cut_however_json_writes_it(line: str, size: int) -> None:
    text = "START" + line * (size // len(line)) + "END"
    body = composed(question("Yes", "No", text=text))
    assert fits(body)
    shown = body["message"].split("\n\nTap")[0]
    assert shown.startswith("START") and "END\n\n1. Yes" in shown
    assert kinds(body) == ["http", "http"]


# --- what holds for every question ------------------------------------------

PIECES = st.text(st.one_of(st.sampled_from("问題😀é\"\\\n\t\x01\u2028 ab"), st.characters(
    exclude_categories=())), min_size=1, max_size=12)
LONG = st.builds(lambda piece, times: (piece * times)[:30_000], PIECES,
                 st.sampled_from([1, 1, 3, 40, 300, 2000, 9000]))
LABELS = st.lists(LONG.map(lambda text: text[:2000]).filter(str.strip), max_size=8, unique=True)


@settings(STEADY, max_examples=100)
@given(text=LONG, labels=LABELS, header=LONG, description=LONG, multi=st.booleans(),
       embedded=st.booleans(), place=st.sampled_from([(1, 1), (2, 3), (19, 20)]))
def test_every_push_fits_into_ntfy_or_is_refused(
        text: str, labels: list[str], header: str, description: str, multi: bool, embedded: bool,
        place: tuple[int, int]) -> None:
    asked = question(*labels, text=text, header=header, description=description, multi=multi)
    try:
        body = composed(asked, place=place, embedded=embedded)
    except a4p.A4pError as error:
        assert error.key == "too_big"
        return
    assert len(a4p.encode(body)) <= a4p.EXTRA_LIMIT
    body.pop("a4p", None)
    assert fits(body)
    for mark in asked.marks:
        assert f"{mark}. " in body["message"]
    if "http" in kinds(body):
        assert [action["body"] for action in body["actions"]] == labels


@settings(STEADY, max_examples=100)
@given(text=LONG, labels=st.lists(st.text(st.characters(exclude_categories=("C",)), min_size=1,
                                          max_size=9).filter(str.strip), max_size=4, unique=True))
def test_a_question_with_short_labels_is_never_too_big(text: str, labels: list[str]) -> None:
    body = composed(question(*labels, text=text))
    assert fits(body)
    assert "\ufffd" not in body["message"].replace("\ufffd", "", text.count("\ufffd"))


@settings(STEADY, max_examples=200)
@given(text=LONG, limit=st.integers(8, 400))
def test_texts_are_cut_between_characters(text: str, limit: int) -> None:
    end, middle = a4p.cut_end(text, limit), a4p.cut_middle(text, limit)
    clean = text.encode("utf-8", "replace").decode()
    for cut in (end, middle):
        assert a4p.size(cut) <= limit
    if a4p.size(text) <= limit:
        assert end == middle == text
        return
    assert end[-1] == "…" and clean.startswith(end[:-1])
    head, _, tail = middle.rpartition(" … ")
    assert clean.startswith(head) and clean.endswith(tail)


# --- what replaces it when it is over ---------------------------------------

@pytest.mark.parametrize(("state", "text"), [
    ("answered", "Answered: Docker"), ("timeout", "Not answered, back at the terminal"),
    ("released", "Released, back at the terminal"), ("withdrawn", "Withdrawn by the agent"),
    ("desk", "Answered at the desk"), ("lost", "No longer waiting, see the terminal")])
def test_the_push_is_replaced_quietly_under_its_own_title(state: str, text: str) -> None:
    sent = push(ONE, place=(1, 2))
    assert sent.closing(state, "Docker") == {
        "topic": TOPIC, "title": "Claude: Deploy (1/2)", "message": text, "priority": 2,
        "sequence_id": sent.id}


def test_the_embedded_server_is_told_how_it_ended() -> None:
    sent = push(ONE, embedded=True)
    assert sent.closing("answered", "Docker")["a4p"] == {
        "v": 1, "kind": "end", "id": sent.id, "state": "answered", "answer": "Docker"}


@pytest.mark.parametrize("answer", ["x" * 65_536, "问" * 20_000, "😀" * 16_000, '"' * 60_000],
                         ids=["letters", "Chinese", "emoji", "quotes"])
@pytest.mark.parametrize("embedded", [False, True])
def test_a_receipt_for_long_words_fits_too(answer: str, embedded: bool) -> None:
    body = push(ONE, embedded=embedded).closing("answered", answer)
    assert len(a4p.encode(body)) <= a4p.EXTRA_LIMIT
    body.pop("a4p", None)
    assert fits(body)


def test_a_word_about_a_question_stands_beside_its_push() -> None:
    sent = push(ONE)
    button = sent.button("Docker", "Docker", sent.id)
    body = sent.aside("9 is not on the list (1-3).", [button] if button else [])
    assert body["title"] == "Claude: Deploy"
    assert body["sequence_id"] != sent.id
    assert re.fullmatch(a4p.TOPIC_FORM, body["sequence_id"])
    assert body["actions"] == [button]
    assert fits(body)
