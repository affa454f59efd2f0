"""A reply text becomes an answer: a label, a place on the list, or the person's own words."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import a4p
from samples import ANY_TEXT, STEADY, question

DEPLOY = question("Docker", "systemd", "local only", "other")
TWELVE = question(*(f"plan {word}" for word in "abcdefghijkl"))
EXTRAS = question("Auth", "Search", "Export", "Billing", multi=True)
SIZES = question("8", "16", "32 GB")
ROUNDS = question("8", "16", "32", multi=True)


def answer(reply: str, asked: a4p.Question) -> Any:
    """What the agent would get: ([labels], words), or "asked back"."""
    meant = asked.read(reply)
    return (meant.selected, meant.text) if meant else "asked back"


def circled(number: int) -> str:
    """1 to 50 as one character."""
    first, start = ((1, 0x2460) if number <= 20 else (21, 0x3251) if number <= 35
                    else (36, 0x32B1))
    return chr(start + number - first)


def chinese(number: int) -> str:
    """1 to 99 in Chinese."""
    digits = "零一二三四五六七八九"
    tens, ones = divmod(number, 10)
    head = ("" if tens == 1 else digits[tens]) + "十" if tens else ""
    return head + (digits[ones] if ones or not tens else "")


# --- a number of the list ---------------------------------------------------

@pytest.mark.parametrize("reply", [
    "3", "３", "3.", "3)", "(3)", "#3", "③", "选3", "option 3",  # the contract's own row
    " 3 ", "3\n", "\t3", "03", "003", "３．", "３）", "（３）", "[3]", "【3】", "＃3", "(#3)",
    "3。", "3、", "3,", "3，", "3!", "3！", "3~", "3 .", "3 !", "3..", "3吧", "3:", "3：", "3;",
    "3️⃣", "3\u20e3", "3\u200b", "\ufeff3", "❸", "➂", "➌", "⓷", "⒊", "⑶", "㊂", "㈢",
    "𝟛", "𝟯", "٣", "३", "๓",
    "三", "三。", "第三", "第三个", "第3个", "第 3 项", "三号", "3号", "3 号", "选三", "选第三个",
    "选择3", "选择 3", "选项3", "选项三", "答案3", "编号 3", "选3吧", "选３。",
    "Option 3", "OPTION 3.", "option3", "option #3", "option (3)", "choice 3", "answer 3",
    "number 3", "No. 3", "no.3",
])
def test_a_number_in_any_usual_dress_chooses_from_the_list(reply: str) -> None:
    assert answer(reply, DEPLOY) == (["local only"], "")
    assert answer(reply, EXTRAS) == (["Export"], "")


def test_every_place_of_the_longest_list_can_be_chosen() -> None:
    long = question(*(f"plan {place}x" for place in range(1, 51)))
    for number in range(1, 51):
        wide = str(number).translate({48 + digit: 0xFF10 + digit for digit in range(10)})
        for reply in (str(number), wide, circled(number), chinese(number), f"0{number}",
                      f"({number})", f"#{number}", f"{number}.", f"选{number}",
                      f"第{chinese(number)}个", f"option {number}"):
            assert answer(reply, long) == ([f"plan {number}x"], ""), reply


@pytest.mark.parametrize("reply", ["⑫", "⑿", "⒓", "⓬", "十二", "12", "012"])
def test_twelve_is_twelve_and_not_one_and_two(reply: str) -> None:
    assert answer(reply, TWELVE) == (["plan l"], "")


@pytest.mark.parametrize("reply", ["🔟", "❿", "➉", "➓", "⓾"])
def test_ten_as_one_character_is_ten(reply: str) -> None:
    assert answer(reply, TWELVE) == (["plan j"], "")


@pytest.mark.parametrize("reply", [
    "9", "９", "9.", "(9)", "#9", "⑨", "九", "选9", "option 9", "9号", "第九个", "0", "00", "零",
    "5", "五", "十", "十二", "100", "007", "999999999", "9999999999", "1000000000000000000000"])
def test_a_bare_number_outside_the_list_is_asked_back(reply: str) -> None:
    assert answer(reply, DEPLOY) == "asked back"
    assert answer(reply, EXTRAS) == "asked back"


# --- words ------------------------------------------------------------------

WORDS = [
    "true", "null", "4.5", '{"a": 1}', '"3"', "3 days",  # the contract's own row
    "3.0", "-3", "+3", "3-", "3rd", "3k", "3%", "$3", "v3", "3x", "0x3", "1e0", "½", "3?", "3？",
    "３ days", "12:30", "3 or 4", "no 3", "'3'", "3\nplease", "3 please", "三天", "三 天",
    "十分好", "一起", "一般", "三心二意", "第", "个", "选", "option", "#", "()", ".", "No", "Nope",
    "Docker please", "not Docker", "Docker.", '"Docker"', "Dockerr", "local  only", "localonly",
    "<b>3</b>", "C:\\3", "\x1b[3", "\x00", "\ud800", "🐳",
]


@pytest.mark.parametrize("reply", WORDS)
def test_anything_else_is_the_words_verbatim(reply: str) -> None:
    assert answer(reply, DEPLOY) == ([], reply)
    assert answer(f"\n {reply}\t", DEPLOY) == ([], reply)


@pytest.mark.parametrize("reply", ["1,3", "1 3", "1、3", "1和3", "1/2", "1-2", "1 or 2", "1, 2.",
                                   "①②", "1: but later", "1, and log it", "3 replicas please"])
def test_several_numbers_on_a_single_choice_are_words(reply: str) -> None:
    assert answer(reply, DEPLOY) == ([], reply)


@pytest.mark.parametrize("reply", ["①②", "❶❷", "(1)(2)", "一二", "第一第二"])
def test_two_numbers_in_a_row_are_not_one_of_two_digits(reply: str) -> None:
    assert answer(reply, TWELVE) == ([], reply)


@pytest.mark.parametrize("reply", ["两个", "两", "选两个", "两个。"])
def test_two_of_them_is_not_the_second_of_them(reply: str) -> None:
    """两 counts things; the second is 二 or 第二."""
    assert answer(reply, DEPLOY) == ([], reply)
    assert answer(reply, EXTRAS) == ([], reply)


def test_inner_space_and_lines_of_words_are_kept() -> None:
    reply = "neither:\n\n  use  DuckDB\t– “quoted”, 逗号，🦆"
    assert answer(f"  {reply}  ", DEPLOY) == ([], reply)


@pytest.mark.parametrize("reply", ["3", "yes", "第三个", "1,3", " a\nb ", "９", '{"a": 1}'])
def test_a_question_without_options_takes_words_alone(reply: str) -> None:
    assert answer(reply, question()) == ([], reply.strip())
    assert answer(reply, question(multi=True)) == ([], reply.strip())


# --- labels -----------------------------------------------------------------

@pytest.mark.parametrize("reply", ["Docker", "docker", "DOCKER", " docker\n", "Ｄｏｃｋｅｒ"])
def test_a_label_is_known_whatever_its_case_and_outer_space(reply: str) -> None:
    assert answer(reply, DEPLOY) == (["Docker"], "")


@pytest.mark.parametrize("multi", [False, True])
def test_labels_that_differ_only_in_case_are_told_apart_or_not_guessed(multi: bool) -> None:
    asked = question("Yes", "yes", "No", multi=multi)
    assert answer("Yes", asked) == (["Yes"], "")
    assert answer("yes", asked) == (["yes"], "")
    assert answer("YES", asked) == ([], "YES")
    assert answer("NO", asked) == (["No"], "")
    assert answer("2", asked) == (["yes"], "")


@pytest.mark.parametrize("multi", [False, True])
def test_labels_that_differ_only_in_width_are_told_apart(multi: bool) -> None:
    asked = question("ABC", "ＡＢＣ", multi=multi)
    assert answer("ABC", asked) == (["ABC"], "")
    assert answer("ＡＢＣ", asked) == (["ＡＢＣ"], "")
    assert answer("abc", asked) == ([], "abc")


@pytest.mark.parametrize("multi", [False, True])
def test_outer_space_of_a_label_does_not_hide_it(multi: bool) -> None:
    """A phone or the server may trim what is sent; the label itself is the answer."""
    asked = question(" Yes ", "yes", multi=multi)
    assert answer(" Yes ", asked) == ([" Yes "], "")
    assert answer("Yes", asked) == ([" Yes "], "")
    assert answer("yes", asked) == (["yes"], "")


@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("label", ["Metrics, tracing", 'say "hi"', "it's", "a、b", "1,3", "1 and 3",
                                   "a\nb", "{}", "null", "desk", "终端", "是，全部", "C++", "-", "🐳"])
def test_a_label_with_anything_in_it_is_known(label: str, multi: bool) -> None:
    asked = question("Auth", label, "Search", multi=multi)
    assert answer(label, asked) == ([label], "")
    assert answer("2", asked) == ([label], "")


def test_a_label_comes_before_a_place_on_the_list() -> None:
    asked = question("2 workers", "1", "3")
    assert answer("1", asked) == (["1"], "")
    assert answer("3", asked) == (["3"], "")
    assert answer("2 WORKERS", asked) == (["2 workers"], "")


# --- lettered lists ---------------------------------------------------------

@pytest.mark.parametrize("label", ["3", "03", "３", "③", "❸", "3️⃣", "三", "第三个", "十二", "3.", "(3)",
                                   "#2", "Option 2", "No. 1", "选项二", "999"])
def test_a_label_that_reads_as_a_number_makes_the_list_lettered(label: str) -> None:
    asked = question("Docker", label, "other")
    assert asked.lettered
    assert asked.marks == ["A", "B", "C"]
    assert answer(label, asked) == ([label], "")
    assert answer("b", asked) == ([label], "")


@pytest.mark.parametrize("label", ["3 days", "1.5", "v2", "2nd", "-1", "10 GB", "3.11", "a",
                                   "none",
                                   "C3", "12:30", "3-4", "1,2", "十分好"])
def test_a_label_with_more_than_a_number_keeps_the_numbers(label: str) -> None:
    asked = question("Docker", label, "other")
    assert asked.marks == ["1", "2", "3"]
    assert answer("2", asked) == ([label], "")


@pytest.mark.parametrize("reply", ["B", "b", "Ｂ", " b ", "B.", "b)", "(b)", "#B", "option b",
                                   "Option B",
                                   "选B", "选 b", "第B个", "b。", "B!", "ⓑ", "Ⓑ", "[b]"])
def test_a_letter_chooses_from_a_lettered_list(reply: str) -> None:
    assert answer(reply, SIZES) == (["16"], "")


@pytest.mark.parametrize("reply", ["1", "3", "9", "２", "③", "第一个", "八", "16.0", "d", "D", "z",
                                   "b2",
                                   "ab", "b please", "a or b"])
def test_a_number_that_is_no_label_is_words_on_a_lettered_list(reply: str) -> None:
    assert answer(reply, SIZES) == ([], reply)


@pytest.mark.parametrize(("reply", "label"), [("8", "8"), ("８", "8"), (" 16\n", "16"),
                                              ("32 gb", "32 GB"), ("C", "32 GB")])
def test_a_number_that_is_a_label_is_that_label(reply: str, label: str) -> None:
    assert answer(reply, SIZES) == ([label], "")


def test_letters_that_are_labels_are_no_marks() -> None:
    asked = question("b", "A", "7")
    assert asked.marks == ["C", "D", "E"]
    assert [answer(reply, asked)[0] for reply in ("b", "B", "a", "A", "c", "E")] == [
        ["b"], ["b"], ["A"], ["A"], ["b"], ["7"]]


def test_a_lettered_list_may_be_longer_than_the_alphabet() -> None:
    asked = question(*(str(number) for number in range(100, 150)))
    assert len(set(asked.marks)) == 50
    for mark, label in zip(asked.marks, asked.labels):
        assert answer(mark.lower(), asked) == ([label], "")


def test_a_list_may_take_every_letter_away() -> None:
    asked = question(*"abcdefghijklmnopqrstuvwxyz", "7")
    assert len(set(asked.marks)) == 27
    assert answer("z", asked) == (["z"], "")
    assert answer("7", asked) == (["7"], "")
    assert answer(asked.marks[26], asked) == (["7"], "")


# --- several may be chosen --------------------------------------------------

@pytest.mark.parametrize("reply", [
    "1,3", "1 3", "1、3", "1和3",  # the contract's own row
    "3,1", "1, 3", "1 ,3", "1 , 3", "1，3", "１，３", "１ ３", "1;3", "1；3", "1/3", "1+3", "1&3",
    "1 & 3",
    "1 and 3", "1, and 3", "1与3", "1及3", "1跟3", "1\n3", "1\t3", "1  3", "1,3.", "1,3。", "1, 3 .",
    "1,3!", "1,3！", "1、3吧", "1,,3", "01,03", "(1) (3)", "(1),(3)", "1) 3)", "1. 3.", "#1 #3",
    "#1,#3",
    "①③", "① ③", "①、③", "❶ ❸", "1️⃣ 3️⃣", "1️⃣,3️⃣", "一、三", "一和三", "一, 三", "第一和第三",
    "第一个和第三个", "1号 3号", "选1和3", "选 1,3", "选1,选3", "option 1, option 3",
    "1,1,3", "3,1,3", "1,3,1,3",
    "Auth, Export", "auth,export", "Auth、Export", "Export；Auth", "Auth\nExport",
    " Auth ,  Export ",
    "Auth, Auth, Export",
])
def test_several_numbers_or_labels_choose_several(reply: str) -> None:
    assert answer(reply, EXTRAS) == (["Auth", "Export"], "")


@pytest.mark.parametrize(("reply", "labels", "words"), [
    ("1,3 and add logging", ["Auth", "Export"], "and add logging"),
    ("2: but later", ["Search"], "but later"),
    ("2, but later", ["Search"], "but later"),
    ("2. but later", ["Search"], "but later"),
    ("2) but later", ["Search"], "but later"),
    ("2; but later", ["Search"], "but later"),
    ("2：但以后", ["Search"], "但以后"),
    ("2，但以后", ["Search"], "但以后"),
    ("第二个，但以后", ["Search"], "但以后"),
    ("1 3 log it", ["Auth", "Export"], "log it"),
    ("3 1\nand\n\nlog it ", ["Auth", "Export"], "and\n\nlog it"),
    ("1、3 并且加日志", ["Auth", "Export"], "并且加日志"),
    ("1,3: 4.5 GB at 12:30", ["Auth", "Export"], "4.5 GB at 12:30"),
    ("1,3 10k users", ["Auth", "Export"], "10k users"),
    ("1 2 3 4 all", ["Auth", "Search", "Export", "Billing"], "all"),
])
def test_words_behind_the_numbers_come_along(reply: str, labels: list[str], words: str) -> None:
    assert answer(reply, EXTRAS) == (labels, words)


@pytest.mark.parametrize("reply", [
    "3 replicas please", "2 days", "2 GB", "2但是以后", "10k", "1.5", "12:30", "1:30", "1-3", "1~3",
    "3rd",
    "1 or 3", "1或3", "all", "none", "both", "Auth and something", "Auth, Nope", "Auth,", "not 1,3",
    "add 1,3", "3000 users", "第", "两个都要", "{}", "-1,3", "a,c", "A",
])
def test_a_reply_that_begins_otherwise_is_words(reply: str) -> None:
    assert answer(reply, EXTRAS) == ([], reply)


@pytest.mark.parametrize("reply", ["9", "1,9", "9 1", "0,1", "1和9", "13", "1 2 3 4 5", "1、九"])
def test_a_number_outside_the_list_among_others_is_asked_back(reply: str) -> None:
    assert answer(reply, EXTRAS) == "asked back"


@pytest.mark.parametrize("reply", ["1,9 and more", "9: later", "0 1 words", "1 3 9 words"])
def test_words_behind_a_number_outside_the_list_are_not_half_taken(reply: str) -> None:
    assert answer(reply, EXTRAS) == ([], reply)


def test_numbers_above_nine_on_a_multiple_choice() -> None:
    asked = question(*TWELVE.labels, multi=True)
    assert answer("10, 12", asked) == (["plan j", "plan l"], "")
    assert answer("⑩ ⑫", asked) == (["plan j", "plan l"], "")
    assert answer("十二、三", asked) == (["plan c", "plan l"], "")
    assert answer("1 2", asked) == (["plan a", "plan b"], "")
    assert answer("12 and then some", asked) == ([], "12 and then some")
    assert answer("11,12: and then some", asked) == (["plan k", "plan l"], "and then some")


def test_labels_with_commas_are_not_taken_apart() -> None:
    asked = question("Auth", "Metrics, tracing", "Metrics", multi=True)
    assert answer("Metrics, tracing", asked) == (["Metrics, tracing"], "")
    assert answer("1,2", asked) == (["Auth", "Metrics, tracing"], "")
    assert answer("Auth, Metrics", asked) == (["Auth", "Metrics"], "")
    assert answer("Auth, Metrics, tracing", asked) == ([], "Auth, Metrics, tracing")


def test_all_labels_together_may_be_one_label() -> None:
    asked = question("A", "B", "A, B", multi=True)
    assert answer("A, B", asked) == (["A, B"], "")
    assert answer("B, A", asked) == (["A", "B"], "")


@pytest.mark.parametrize("reply", ["a,c", "A C", "a、c", "A和C", "a and c", "Ａ，Ｃ", "(a) (c)", "选A和C",
                                   "c,a", "a, c.", "8, 32", "ⓐ ⓒ"])
def test_several_letters_choose_several(reply: str) -> None:
    assert answer(reply, ROUNDS) == (["8", "32"], "")


@pytest.mark.parametrize(("reply", "labels", "words"), [
    ("a c and log", ["8", "32"], "and log"), ("b: but later", ["16"], "but later"),
    ("a big one", [], "a big one"), ("1,2", [], "1,2"), ("1", [], "1"), ("8", ["8"], ""),
    ("both a and b", [], "both a and b"), ("add it", [], "add it"), ("cab", [], "cab"),
])
def test_letters_and_words_on_a_lettered_multiple_choice(
        reply: str, labels: list[str], words: str) -> None:
    assert answer(reply, ROUNDS) == (labels, words)


# --- what holds for every question and every reply --------------------------

TRICKY = ["1", "2", "３", "①", "三", "Option 2", "a", "A", "b", "Yes", "yes", "a, b", "1,2", '"q"',
          "x\ny", " y", "two words", "desk", "🐳", "\u200b", "№ 1", "İ", "ß", "SS"]
LABELS = st.lists(st.one_of(st.sampled_from(TRICKY), ANY_TEXT.filter(str.strip)), min_size=1,
                  max_size=8, unique_by=str.strip)
QUESTIONS = st.builds(lambda labels, multi: question(*labels, multi=multi), LABELS, st.booleans())
REPLIES = st.one_of(
    ANY_TEXT, st.sampled_from(TRICKY + WORDS),
    st.text("0123456789 ,;:/.、，和两三十第个选()#)]abzABand３①\ufe0f\u20e3\n", max_size=12))


@settings(STEADY, max_examples=400)
@given(asked=QUESTIONS, reply=REPLIES)
def test_every_reply_means_something(asked: a4p.Question, reply: str) -> None:
    meant = asked.read(reply)
    if meant is None:
        return
    assert meant.selected == [label for label in asked.labels if label in meant.selected]
    if not asked.multi:
        assert len(meant.selected) + bool(meant.text) <= 1
    if not meant.selected:
        assert meant.text == reply.strip()
    assert reply.strip().endswith(meant.text)


@settings(STEADY, max_examples=200)
@given(asked=QUESTIONS, data=st.data())
def test_a_label_that_is_sent_exactly_is_chosen(asked: a4p.Question, data: st.DataObject) -> None:
    label = data.draw(st.sampled_from(asked.labels))
    assert asked.read(label) == a4p.Answer([label])


@settings(STEADY, max_examples=200)
@given(asked=QUESTIONS, data=st.data())
def test_every_mark_chooses_its_option(asked: a4p.Question, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(asked.labels) - 1))
    assert asked.read(asked.marks[place]) == a4p.Answer([asked.labels[place]])
    assert len({a4p.fold(mark) for mark in asked.marks}) == len(asked.labels)


@settings(STEADY)
@given(reply=REPLIES, multi=st.booleans())
def test_without_options_every_reply_is_words(reply: str, multi: bool) -> None:
    assert question(multi=multi).read(reply) == a4p.Answer([], reply.strip())


@settings(STEADY)
@given(places=st.lists(st.integers(1, 12), min_size=1, max_size=12),
       between=st.sampled_from([",", " ", "、", "，", "和", "/", ";", " and ", "\n", ", "]))
def test_any_numbers_of_the_list_in_any_order_are_those_labels(
        places: list[int], between: str) -> None:
    asked = question(*TWELVE.labels, multi=True)
    chosen = [TWELVE.labels[place - 1] for place in sorted(set(places))]
    assert answer(between.join(map(str, places)), asked) == (chosen, "")


# --- any reply is read at once --------------------------------------------------

@pytest.mark.parametrize("multi", [False, True])
@pytest.mark.parametrize("first", ["Docker", "8"])
@pytest.mark.parametrize("reply", [
    "option" + " " * 64_000 + "x", "1" + " " * 64_000 + "x", "1" + " )" * 32_000 + "x",
    "a" + " " * 64_000 + "b", "第" * 21_000, "(" * 64_000 + "1", "1 " * 32_000, "a," * 32_000])
def test_the_longest_reply_is_read_within_seconds(reply: str, first: str, multi: bool) -> None:
    asked = question(first, "systemd", multi=multi)
    began = time.process_time()
    assert asked.read(reply)
    assert time.process_time() - began < 5
