"""The answer page in a real Chromium, on a phone's and a desk's screen, against `a4p.py serve`.

Every visit is watched: a console error, an error of the script, something that the page's policy
forbids or a request to another server fails the test. Pictures go to `shots/`.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Request,
    Route,
    expect,
    sync_playwright,
)

import a4p

SHOTS = Path(__file__).with_name("shots")
SMALL = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True,
         "device_scale_factor": 2}
LARGE = {"viewport": {"width": 1280, "height": 800}, "is_mobile": False, "has_touch": False,
         "device_scale_factor": 1}
SOON = 1000  # milliseconds until something that arrived is on the screen
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--no-proxy-server"]
DATABASE = [{"label": "Docker", "description": "PostgreSQL in a container", "priority": "high"},
            {"label": "systemd", "description": "The distribution's own service"},
            {"label": "local only", "priority": "low"}]
FEATURES = [{"label": "Search"}, {"label": "Export", "description": "CSV and JSON"},
            {"label": "Accounts", "priority": "medium"}]
APPROVAL = [{"label": "Allow", "danger": True, "description": "Runs the command once"},
            {"label": "Always", "danger": True}, {"label": "Deny"}]


def new_topic() -> str:
    """A topic that nobody has used."""
    return f"a4p-{uuid.uuid4().hex[:26]}"


class Site:
    """`a4p.py serve` with a home of its own, and the agents' side of one topic."""

    def __init__(self, home: Path, token: str = "") -> None:
        self.home, self.token, self.port = home, token, 0
        self.topic = new_topic()
        self.start()

    def start(self) -> None:
        """Serve, on the same port as before."""
        token = ["--token", self.token] if self.token else []
        self.process = subprocess.Popen(
            [sys.executable, a4p.__file__, "serve", "--listen", f"127.0.0.1:{self.port}", *token],
            env={**os.environ, "A4P_HOME": str(self.home)}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.url = self.process.stdout.readline().strip()
        assert self.url, "a4p.py serve does not start"
        self.port = urllib.parse.urlsplit(self.url).port or 0

    def stop(self) -> None:
        """End the server as a person does."""
        self.process.terminate()
        assert self.process.wait(10) is not None
        assert self.process.stdout
        self.process.stdout.close()

    def call(self, path: str, body: bytes | None = None, method: str = "") -> Any:
        """An HTTP call with the token; returns the open answer."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = urllib.request.Request(self.url + path, body, headers)
        request.method = method or ("GET" if body is None else "POST")
        return urllib.request.urlopen(request, timeout=10)

    def publish(self, **message: Any) -> str:
        """Publish on the topic; returns the message's id."""
        with self.call("/", json.dumps({"topic": self.topic, **message}).encode()) as answer:
            return str(json.load(answer)["id"])

    def ask(self, **changes: Any) -> str:
        """Ask a question as a hook does; returns its id."""
        key = "q" + base64.b32encode(os.urandom(10)).decode().lower()[:10]
        extra: dict[str, Any] = {
            "v": 1, "kind": "question", "id": key, "agent": "Claude", "project": "shop",
            "header": "Database", "text": "Which database should the shop use?", "n": 1, "of": 1,
            "options": DATABASE, "multi": False, "custom": True, "deadline": time.time() + 272,
            **changes}
        if "marks" not in changes:
            silent = extra["kind"] == "approval"
            extra["marks"] = ["" if silent else str(i + 1) for i in range(len(extra["options"]))]
        self.publish(title="Claude: " + str(extra["header"])[:50], message=str(extra["text"]),
                     sequence_id=key, a4p=extra)
        return key

    def end(self, key: str, state: str, answer: str = "") -> None:
        """Close a question as its hook does."""
        self.publish(title="Claude", message=state, sequence_id=key, priority=2, a4p={
            "v": 1, "kind": "end", "id": key, "state": state, "answer": answer})

    def reply(self, key: str, text: str) -> None:
        """Answer a question from somewhere else: a button in the ntfy app, another page."""
        self.call(f"/{self.topic}-response?title={key}", text.encode()).close()

    def replies(self, count: int) -> list[tuple[str, str]]:
        """Wait for this many replies; returns question id and text of each."""
        found: list[tuple[str, str]] = []
        with self.call(f"/{self.topic}-response/json?since=all") as stream:
            while len(found) < count:
                event = json.loads(stream.readline())
                if event["event"] == "message":
                    found.append((event["title"], event["message"]))
        return found


class Visit:
    """One page in a browser of its own, as a person sees it."""

    def __init__(self, context: BrowserContext, site: Site) -> None:
        self.context, self.site, self.page = context, site, context.new_page()
        self.troubles: list[str] = []
        self.requests: list[Request] = []
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog {dialog.message}"))
        self.page.on("console", lambda said: self.troubles.append(said.text)
                     if said.type in ("error", "warning") else None)

    def open(self, path: str = "", fragment: str = "") -> Visit:
        """Open the topic's page, or another path, and wait for its stream."""
        self.page.goto(f"{self.site.url}{path or '/' + self.site.topic}{fragment}")
        if not path:
            self.connected()
        return self

    def connected(self) -> None:
        """Wait until the state line says so."""
        expect(self.page.locator("#state")).to_have_class(re.compile(r"\bconnected\b"))

    def settled(self) -> None:
        """Wait until a tap is no longer taken for a second one on the card that was there."""
        self.page.evaluate("new Promise(done => setTimeout(done, calm - Date.now() + 1))")

    @property
    def cards(self) -> Locator:
        """The waiting questions."""
        return self.page.locator("article")

    @property
    def recent(self) -> Locator:
        """What is over."""
        return self.page.locator("li")

    @property
    def posts(self) -> list[str]:
        """The bodies of the answers that this page sent."""
        return [request.post_data or "" for request in self.requests if request.method == "POST"]

    def button(self, name: str) -> Locator:
        """The button whose accessible name begins so."""
        return self.page.get_by_role("button", name=re.compile("^" + re.escape(name)))

    def shot(self, name: str) -> None:
        """A picture of the whole page."""
        SHOTS.mkdir(exist_ok=True)
        width = (self.page.viewport_size or {"width": 0})["width"]
        self.page.screenshot(path=SHOTS / f"{name}-{width}.png", full_page=True)

    def forgive(self, *signs: str) -> None:
        """Take what a test provoked off the list of troubles."""
        self.troubles = [one for one in self.troubles if not any(sign in one for sign in signs)]

    def check(self) -> None:
        """Nothing went wrong, and nothing left for another server."""
        assert self.troubles == []
        own = self.site.url.replace("http://", "")
        hosts = {urllib.parse.urlsplit(request.url).netloc for request in self.requests}
        assert hosts <= {own, ""}, "the page talks to another server"  # "" is data:


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless Chromium with a fresh profile."""
    with sync_playwright() as driver:
        path = os.environ.get("A4P_CHROMIUM", "/usr/bin/chromium")
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server without a token."""
    site = Site(tmp_path_factory.mktemp("shared"))
    yield site
    site.stop()


@pytest.fixture
def site(shared: Site) -> Site:
    """A topic of its own on a server without a token."""
    shared.topic = new_topic()
    if shared.process.poll() is not None:  # a test failed while it was away
        shared.start()
    return shared


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Site]:
    """A topic on a server with a token."""
    site = Site(tmp_path, "tk_secret-9")
    yield site
    site.stop()


Visitor = Callable[..., Visit]


@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Visitor]:
    """Opens browsers, each with settings of its own; looks for trouble at the end."""
    visits: list[Visit] = []

    def visit(site: Site, **settings: Any) -> Visit:
        context = chromium.new_context(**{**SMALL, **settings})
        context.set_default_timeout(5000)
        visits.append(Visit(context, site))
        return visits[-1]

    yield visit
    for one in visits:
        one.check()
        one.context.close()


@pytest.fixture(params=[SMALL, LARGE], ids=["360x740", "1280x800"])
def visit(request: pytest.FixtureRequest, visitor: Visitor, site: Site) -> Visit:
    """The topic's page, open and connected, on either screen."""
    return visitor(site, **request.param).open()


# === Answering ===================================================================================


def test_a_question_appears_within_a_second_and_a_tap_answers_it(visit: Visit, site: Site) -> None:
    expect(visit.page.get_by_text("Nothing is waiting")).to_be_visible()
    key = site.ask(n=2, of=3, tag="k7")
    expect(visit.cards).to_have_count(1, timeout=SOON)
    for text in ("Claude · shop · k7", "Database", "Which database should the shop use?",
                 "2 of 3", "PostgreSQL in a container", "high priority", "low priority"):
        expect(visit.cards.get_by_text(text, exact=True)).to_be_visible()
    expect(visit.cards.get_by_text(re.compile(r"^04:\d\d left$"))).to_be_visible()
    assert visit.page.title() == "(1) a4p"
    visit.shot("question")
    visit.button("3 local only").click()
    assert site.replies(1) == [(key, "local only")]
    expect(visit.cards.get_by_text("Sent: local only. Waiting for the agent.")).to_be_visible()
    expect(visit.button("3 local only")).to_be_hidden()
    visit.shot("sent")
    site.end(key, "answered", "local only")
    expect(visit.cards).to_have_count(0, timeout=SOON)
    expect(visit.recent.get_by_text("Answered: local only")).to_be_visible()
    assert visit.page.title() == "a4p"
    visit.shot("answered")


def test_a_touch_answers(site: Site, visitor: Visitor) -> None:
    visit = visitor(site).open()
    key = site.ask()
    visit.button("1 Docker").tap()
    assert site.replies(1) == [(key, "Docker")]


def test_a_number_key_answers_the_first_question(visit: Visit, site: Site) -> None:
    key = site.ask()
    expect(visit.cards).to_have_count(1)
    for ignored in ("9", "0", "x", "Control+2", "Alt+2"):
        visit.page.keyboard.press(ignored)
    visit.page.keyboard.press("2")
    assert site.replies(1) == [(key, "systemd")]
    expect(visit.cards.get_by_text("Sent: systemd.")).to_be_visible()
    assert visit.posts == ["systemd"]


def test_letters_choose_where_the_list_has_letters(visit: Visit, site: Site) -> None:
    key = site.ask(options=[{"label": "8"}, {"label": "16"}], marks=["B", "C"])
    expect(visit.button("C 16")).to_be_visible()
    visit.page.keyboard.press("1")
    visit.page.keyboard.press("c")
    assert site.replies(1) == [(key, "16")]


def test_typed_words_answer_and_their_digits_choose_nothing(visit: Visit, site: Site) -> None:
    key = site.ask()
    visit.page.get_by_label("Other").click()
    visit.page.keyboard.type(" 2 replicas, 中文 <b>  ")
    assert visit.posts == []
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(key, "2 replicas, 中文 <b>")]


def test_a_question_without_options_takes_words(visit: Visit, site: Site) -> None:
    key = site.ask(options=[], header="Name", text="What shall it be called?")
    visit.page.get_by_label("Your answer").fill("shop2")
    visit.button("Send").click()
    assert site.replies(1) == [(key, "shop2")]


def test_several_are_chosen_by_check_boxes_and_one_submit(visit: Visit, site: Site) -> None:
    key = site.ask(options=FEATURES, multi=True, header="Features")
    visit.page.get_by_role("checkbox", name="1 Search").check()
    visit.page.get_by_text("Accounts").click()
    visit.shot("several")
    visit.button("Submit").click()
    assert site.replies(1) == [(key, "1, 3")]


def test_several_are_toggled_by_keys_and_submitted_with_words(visit: Visit, site: Site) -> None:
    key = site.ask(options=FEATURES, multi=True)
    expect(visit.cards).to_have_count(1)
    for mark in "1323":
        visit.page.keyboard.press(mark)
    expect(visit.page.get_by_role("checkbox", checked=True)).to_have_count(2)
    visit.page.get_by_label("Other").fill("and add logging")
    visit.page.get_by_role("heading", name="Database").click()
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(key, "1, 2: and add logging")]


def test_nothing_chosen_is_said_and_not_sent(visit: Visit, site: Site) -> None:
    site.ask(options=FEATURES, multi=True)
    visit.button("Submit").click()
    expect(visit.cards.get_by_role("status")).to_have_text("Choose an option or type an answer.")
    assert visit.posts == []


def test_an_approval_offers_its_buttons_and_no_words(visit: Visit, site: Site) -> None:
    key = site.ask(kind="approval", header="Bash", text="rm -rf build\n  && make", custom=False,
                   options=APPROVAL)
    expect(visit.button("Allow ⚠ careful Runs the command once")).to_be_visible()
    expect(visit.page.get_by_role("textbox")).to_have_count(0)
    assert visit.cards.locator(".text").inner_text() == "rm -rf build\n  && make"
    visit.shot("approval")
    visit.button("Deny").click()
    assert site.replies(1) == [(key, "Deny")]


def test_no_key_grants_a_permission_that_is_not_in_focus(visit: Visit, site: Site) -> None:
    """A number meant for another window, or for the card that has just left, allows nothing."""
    key = site.ask(kind="approval", header="Bash", text="make", options=APPROVAL)
    expect(visit.button("Allow")).to_be_visible()
    expect(visit.cards.locator(".mark")).to_have_count(0)
    for ignored in ("1", "2", "3", "0", "a", "A", "d", "y", "Enter", "Escape", "Space"):
        visit.page.keyboard.press(ignored)
    expect(visit.cards.get_by_role("status")).to_have_text("Choose an option or type an answer.")
    assert visit.posts == []
    visit.button("Always").focus()
    visit.page.keyboard.press("1")
    visit.page.keyboard.press("Enter")
    expect(visit.cards.get_by_text("Sent: Always.")).to_be_visible()
    assert visit.posts == ["Always"]
    assert site.replies(1) == [(key, "Always")]


def test_a_key_for_a_question_behind_an_approval_goes_to_neither(visit: Visit, site: Site) -> None:
    site.ask(kind="approval", header="Bash", text="make", custom=False, options=APPROVAL)
    site.ask()
    expect(visit.cards).to_have_count(2)
    visit.page.keyboard.press("1")
    visit.page.keyboard.press("Enter")
    expect(visit.cards.first.get_by_role("status")).not_to_be_empty()
    assert visit.posts == []


@pytest.mark.parametrize("multi", [False, True])
def test_an_option_that_is_dangerous_looks_so(visit: Visit, site: Site, multi: bool) -> None:
    site.ask(header="Data", multi=multi, options=[
        {"label": "Keep"}, {"label": "Drop the table", "danger": True, "priority": "high"}])
    expect(visit.cards.get_by_text("⚠ careful")).to_have_count(1)
    expect(visit.cards.get_by_text("high priority")).to_be_visible()
    looks = visit.cards.locator(".row").evaluate_all("""rows => rows.map(row => [
        getComputedStyle(row).borderTopColor, getComputedStyle(row.querySelector("b")).color])""")
    assert looks[0] == ["rgb(131, 135, 143)", "rgb(27, 29, 33)"]
    assert looks[1] == ["rgb(174, 31, 26)"] * 2
    visit.shot(f"danger{'-several' * multi}")


def test_the_end_of_a_turn_offers_done_and_takes_words(visit: Visit, site: Site) -> None:
    turn = {"header": "Finished", "options": [{"label": "Done"}], "marks": ["1"],
            "text": "The tests pass.\n\nShall I go on?"}
    first, second = site.ask(**turn), site.ask(**turn)
    expect(visit.cards).to_have_count(2)
    visit.shot("turn")
    visit.page.get_by_label("Other").first.fill("Yes, with the page")
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(first, "Yes, with the page")]
    site.end(first, "answered", "Yes, with the page")
    expect(visit.cards).to_have_count(1)
    visit.settled()
    visit.button("1 Done").click()
    assert site.replies(2)[1] == (second, "Done")


def test_two_queued_questions_are_answered_oldest_first(visit: Visit, site: Site) -> None:
    first, second = site.ask(n=1, of=2), site.ask(n=2, of=2, header="Name", options=FEATURES)
    expect(visit.cards).to_have_count(2, timeout=SOON)
    assert [card.get_by_role("heading").inner_text() for card in visit.cards.all()] == [
        "Database", "Name"]
    assert visit.page.title() == "(2) a4p"
    visit.shot("queue")
    visit.page.keyboard.press("1")
    assert site.replies(1) == [(first, "Docker")]
    site.end(first, "answered", "Docker")
    expect(visit.cards).to_have_count(1, timeout=SOON)
    visit.settled()
    visit.button("2 Export").click()
    expect(visit.cards.get_by_text("Sent: Export.")).to_be_visible()
    assert site.replies(2)[1] == (second, "Export")


def test_a_double_tap_sends_once_and_does_not_reach_the_next_card(
        visit: Visit, site: Site) -> None:
    first = site.ask()
    second = site.ask()
    expect(visit.cards).to_have_count(2)
    visit.page.evaluate("""new MutationObserver(changes => {
        if (!changes.some(change => change.removedNodes.length)) return;
        const key = new KeyboardEvent("keydown", { key: "1", bubbles: true });
        document.querySelector("article .row")?.click();
        document.body.dispatchEvent(key);
    }).observe(document.querySelector("#queue"), { childList: true })""")  # meant for what left
    visit.button("1 Docker").first.dblclick()
    expect(visit.cards.get_by_text("Sent: Docker.")).to_be_visible()
    site.end(first, "answered", "Docker")
    expect(visit.recent.get_by_text("Answered: Docker")).to_be_visible()
    expect(visit.cards).to_have_count(1)
    assert visit.posts == ["Docker"]
    site.end(second, "timeout")
    expect(visit.cards).to_have_count(0)
    assert site.replies(1) == [(first, "Docker")]


def test_the_keyboard_alone_is_enough(visit: Visit, site: Site) -> None:
    first, second = site.ask(), site.ask(header="Name")
    expect(visit.cards).to_have_count(2)
    visit.button("2 systemd").first.focus()
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(first, "systemd")]
    visit.button("Answer again").focus()
    site.end(first, "answered", "systemd")
    expect(visit.page.get_by_role("article", name="Name")).to_be_focused()
    visit.page.keyboard.press("Tab")
    expect(visit.button("1 Docker")).to_be_focused()
    assert visit.page.evaluate(
        "parseFloat(getComputedStyle(document.activeElement).outlineWidth)") >= 2
    visit.shot("focus")
    visit.settled()
    visit.page.keyboard.press("Space")
    assert site.replies(2)[1] == (second, "Docker")


def test_an_answer_far_down_leaves_the_page_where_it_is(visit: Visit, site: Site) -> None:
    keys = [site.ask(header=f"Number {number}") for number in range(5)]
    expect(visit.cards).to_have_count(5)
    visit.button("3 local only").last.click()
    expect(visit.cards.last.get_by_text("Sent: local only.")).to_be_visible()
    expect(visit.cards.first).not_to_be_focused()
    assert visit.page.evaluate("scrollY") > 500
    site.end(keys[4], "answered", "local only")
    expect(visit.cards).to_have_count(4)


def run_towards(site: Site, *words: str) -> subprocess.Popen[str]:
    """Start a4p with these words towards the site's topic."""
    env = {**os.environ, "A4P_HOME": str(site.home), "A4P_SERVER": site.url,
           "A4P_TOPIC": site.topic, "A4P_TOKEN": site.token}
    return subprocess.Popen([sys.executable, a4p.__file__, *words], env=env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask_from_a_script(site: Site, *words: str) -> subprocess.Popen[str]:
    """Start `a4p.py ask` towards the site's topic."""
    return run_towards(site, "ask", *words, "--json")


def test_the_answer_reaches_the_one_who_asked(visit: Visit, site: Site) -> None:
    with ask_from_a_script(site, "Which port?", "-o", "8080", "-o", "9090", "--header", "Port",
                           "--timeout", "50") as script:
        expect(visit.cards.get_by_text(re.compile("^00:[45]. left$"))).to_be_visible()
        visit.button("B 9090").click()
        assert json.loads(script.communicate(timeout=20)[0]) == {
            "selected": ["9090"], "text": None}
    expect(visit.recent.get_by_text("Answered: 9090")).to_be_visible()


def test_a_hook_s_request_for_permission_is_granted_by_its_button(
        visit: Visit, site: Site) -> None:
    (site.home / "out").write_text("\n\n")
    with run_towards(site, "hook", "claude") as hook:
        assert hook.stdin
        hook.stdin.write(json.dumps({
            "session_id": str(uuid.uuid4()), "cwd": "/home/ada/shop", "prompt_id": "p1",
            "permission_mode": "default", "hook_event_name": "PermissionRequest",
            "tool_name": "Bash", "tool_input": {"command": "rm -rf / --no-preserve-root"}}))
        hook.stdin.close()
        hook.stdin = None
        expect(visit.button("Allow ⚠ careful")).to_be_visible()
        expect(visit.cards.locator(".mark")).to_have_count(0)
        visit.page.keyboard.press("1")
        visit.button("Allow").click()
        output = json.loads(hook.communicate(timeout=20)[0])
    assert output["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    expect(visit.recent.get_by_text("Answered: Allow")).to_be_visible()
    assert visit.posts == ["Allow"]


def test_several_answers_and_words_reach_the_one_who_asked(
        guarded: Site, visitor: Visitor) -> None:
    visit = visitor(guarded).open(fragment="#t=" + guarded.token)
    with ask_from_a_script(guarded, "Which?", "--multi", "-o", "Search", "-o", "Export", "-o",
                           "Accounts") as script:
        visit.button("Submit").wait_for()
        visit.page.keyboard.press("1")
        visit.page.keyboard.press("3")
        visit.page.get_by_label("Other").fill("2 more later")
        visit.page.keyboard.press("Enter")
        assert json.loads(script.communicate(timeout=20)[0]) == {
            "selected": ["Search", "Accounts"], "text": "2 more later"}
    expect(visit.recent.get_by_text("Answered: Search, Accounts, 2 more later")).to_be_visible()


def test_a_number_that_is_not_on_the_list_is_asked_back_in_the_card(
        visit: Visit, site: Site) -> None:
    with ask_from_a_script(site, "Which?", "-o", "Search", "-o", "Export") as script:
        visit.page.get_by_label("Other").fill("9")
        visit.page.keyboard.press("Enter")
        expect(visit.cards.get_by_text("9 is not on the list (1-2).")).to_be_visible()
        visit.settled()
        visit.button("2 Export").click()
        assert json.loads(script.communicate(timeout=20)[0])["selected"] == ["Export"]
    expect(visit.cards).to_have_count(0)
    expect(visit.recent).to_have_count(1)


# === What becomes of a question ==================================================================


def test_a_reply_from_elsewhere_is_seen_and_can_be_changed(visit: Visit, site: Site) -> None:
    key = site.ask()
    expect(visit.cards).to_have_count(1)
    site.reply(key, "Docker")
    expect(visit.cards.get_by_text("Sent: Docker.")).to_be_visible(timeout=SOON)
    site.reply("another-title", "systemd")
    visit.button("Answer again").click()
    visit.settled()
    visit.button("2 systemd").click()
    assert site.replies(3)[2] == (key, "systemd")


@pytest.mark.parametrize(("state", "told"), [
    ("answered", "Answered: from the desk, 中文"), ("timeout", "Timed out, back at the terminal"),
    ("released", "Back at the terminal"), ("desk", "Answered at the desk"),
    ("lost in space", "No longer waiting"), ("constructor", "No longer waiting")])
def test_how_a_question_ended_is_told(site: Site, visitor: Visitor, state: str, told: str) -> None:
    visit = visitor(site).open()
    key = site.ask()
    expect(visit.cards).to_have_count(1)
    site.end(key, state, "from the desk, 中文")
    expect(visit.cards).to_have_count(0, timeout=SOON)
    expect(visit.recent.get_by_text(told, exact=True)).to_be_visible()
    expect(visit.recent.get_by_text("Claude · shop · Database")).to_be_visible()


def test_a_question_past_its_deadline_leaves_and_a_late_end_is_still_told(
        site: Site, visitor: Visitor) -> None:
    visit = visitor(site).open()
    key = site.ask(deadline=time.time() + 1)
    expect(visit.cards.locator(".clock.soon")).to_have_text(re.compile("00:0. left"))
    expect(visit.recent.get_by_text("Timed out")).to_be_visible(timeout=15000)
    site.end(key, "answered", "Docker")
    expect(visit.recent.get_by_text("Answered: Docker")).to_be_visible(timeout=SOON)
    expect(visit.recent).to_have_count(1)


def test_the_clock_of_the_phone_does_not_matter(site: Site, visitor: Visitor) -> None:
    visit = visitor(site)
    visit.page.clock.install(time=time.time() - 7200)
    visit.open()
    site.ask(deadline=time.time() + 4000)
    visit.page.clock.run_for(1000)
    expect(visit.cards.get_by_text(re.compile(r"^1:06:\d\d left$"))).to_be_visible()


def test_a_reply_that_is_asked_back_can_be_given_again(visit: Visit, site: Site) -> None:
    key = site.ask()
    visit.page.get_by_label("Other").fill("9")
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(key, "9")]
    site.publish(title="Claude: Database", message="9 is not on the list (1-3).",
                 sequence_id=key + "b")
    expect(visit.cards.get_by_text("9 is not on the list (1-3).")).to_be_visible(timeout=SOON)
    expect(visit.recent).to_have_count(0)
    visit.settled()
    visit.button("1 Docker").click()
    assert site.replies(2)[1] == (key, "Docker")


def test_a_reply_asked_back_before_its_own_post_is_through_waits_again(
        site: Site, visitor: Visitor) -> None:
    visit = visitor(site).open()
    key = site.ask()

    def late(route: Route) -> None:
        response = route.fetch()
        site.publish(title="Claude", message="9 is not on the list.", sequence_id=key + "b")
        expect(visit.cards.get_by_role("status")).to_have_text("9 is not on the list.")
        route.fulfill(response=response)

    visit.page.route("**/*-response?title=*", late)
    visit.page.get_by_label("Other").fill("9")
    with visit.page.expect_response("**/*-response?title=*"):
        visit.page.get_by_label("Other").press("Enter")
    expect(visit.page.get_by_label("Other")).to_be_enabled()
    expect(visit.cards.get_by_role("status")).to_have_text("9 is not on the list.")
    expect(visit.button("Answer again")).to_be_hidden()


def test_a_question_whose_structure_did_not_fit_is_answered_with_words(
        visit: Visit, site: Site) -> None:
    site.publish(title="Claude: Big", message="1. one\n2. two", sequence_id="qabcdefgh23")
    expect(visit.cards.get_by_role("heading", name="Claude: Big")).to_be_visible(timeout=SOON)
    visit.page.get_by_label("Your answer").fill("2")
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [("qabcdefgh23", "2")]
    site.end("qabcdefgh23", "answered", "two")
    expect(visit.recent.get_by_text("Answered: two")).to_be_visible()


def test_a_deleted_question_leaves_without_a_trace(visit: Visit, site: Site) -> None:
    first, second = site.ask(), site.ask()
    expect(visit.cards).to_have_count(2)
    site.call(f"/{site.topic}/{first}", method="DELETE").close()
    site.call(f"/{site.topic}/{second}/clear", b"", method="PUT").close()
    expect(visit.cards).to_have_count(0, timeout=SOON)
    expect(visit.recent).to_have_count(0)


def test_recent_pushes_are_the_last_twenty_newest_first(visit: Visit, site: Site) -> None:
    for number in range(23):
        site.publish(title=f"Backup {number}", message="two\n  lines")
    expect(visit.recent).to_have_count(20)
    expect(visit.recent.first).to_contain_text("Backup 22")
    expect(visit.recent.last).to_contain_text("Backup 3")
    assert visit.recent.first.locator(".text").inner_text() == "two\n  lines"
    visit.page.reload()
    visit.connected()
    expect(visit.recent.first).to_contain_text("Backup 22")
    expect(visit.recent).to_have_count(20)


def test_a_text_that_is_json_is_shown_readably(visit: Visit, site: Site) -> None:
    value = {"service": "shop", "ports": [8080, 9090], "env": {"DEBUG": False, "NAME": None},
             "empty": [{}, ""], "notes": "two\nlines", "steps": [{"run": "make", "ok": True}]}
    site.ask(text=json.dumps(value))
    expect(visit.cards.locator("pre")).to_have_text("""\
service: shop
ports:
  - 8080
  - 9090
env:
  DEBUG: false
  NAME: null
empty:
  - {}
  - ""
notes: |
  two
  lines
steps:
  - run: make
    ok: true""", use_inner_text=True)
    visit.shot("json")


def test_a_text_that_only_begins_like_json_is_shown_as_it_is(visit: Visit, site: Site) -> None:
    site.ask(text='[draft] {"a":\n  1}')
    assert visit.cards.locator("p.text").inner_text() == '[draft] {"a":\n  1}'


def test_typing_survives_what_arrives(visit: Visit, site: Site) -> None:
    first = site.ask()
    field = visit.page.get_by_label("Other").first
    field.fill("half an ans")
    second = site.ask(header="Name")
    site.publish(title="Backup", message="done")
    site.end(second, "desk")
    expect(visit.recent).to_have_count(2)
    expect(field).to_be_focused()
    visit.page.keyboard.type("wer")
    visit.page.keyboard.press("Enter")
    assert site.replies(1) == [(first, "half an answer")]


# === The connection ==============================================================================


def test_after_a_restart_of_the_server_the_page_catches_up(visit: Visit, site: Site) -> None:
    gone, waits = site.ask(), site.ask(header="Still here")
    expect(visit.cards).to_have_count(2)
    site.stop()
    expect(visit.page.get_by_text("No connection, trying again")).to_be_visible()
    visit.shot("lost")
    site.start()
    site.end(gone, "answered", "Docker")
    late = site.ask(header="Came meanwhile")
    visit.connected()
    expect(visit.recent.get_by_text("Answered: Docker")).to_be_visible(timeout=SOON)
    assert [card.get_by_role("heading").inner_text() for card in visit.cards.all()] == [
        "Still here", "Came meanwhile"]
    visit.settled()
    visit.button("1 Docker").last.click()
    assert site.replies(1) == [(late, "Docker")]
    assert waits
    visit.forgive("ERR_")


@pytest.mark.parametrize("event", [
    "Event('online')", "PageTransitionEvent('pageshow', {persisted: true})",
    "Event('visibilitychange')"])
def test_a_phone_that_comes_back_reconnects_at_once(
        site: Site, visitor: Visitor, event: str) -> None:
    visit = visitor(site).open()
    old = site.ask()
    site.publish(title="Backup", message="done")
    expect(visit.recent).to_have_count(1)
    with visit.page.expect_request(re.compile(r"/sse\?since=12h"), timeout=SOON):
        visit.page.evaluate(f"dispatchEvent(new {event})")
    visit.connected()
    site.end(old, "answered", "Docker")
    expect(visit.cards).to_have_count(0, timeout=SOON)
    expect(visit.recent).to_have_count(2)


def test_an_answer_that_cannot_be_sent_is_said_and_can_be_sent_again(
        visit: Visit, site: Site) -> None:
    key = site.ask()
    visit.page.get_by_label("Other").fill("my words")
    site.stop()
    expect(visit.page.get_by_text("No connection, trying again")).to_be_visible()
    visit.page.get_by_label("Other").press("Enter")
    expect(visit.cards.get_by_text("Not sent (no connection). Please try again.")).to_be_visible()
    visit.shot("failed")
    site.start()
    expect(visit.page.get_by_label("Other")).to_have_value("my words")
    visit.button("Send").click()
    assert site.replies(1) == [(key, "my words")]
    visit.forgive("ERR_")


# === Token and topic =============================================================================


@pytest.mark.parametrize("fragment", ["#t=tk_secret-9", "#tk_secret-9", "#t=tk%5Fsecret%2D9"])
def test_the_token_comes_in_the_fragment_and_stays(
        guarded: Site, visitor: Visitor, fragment: str) -> None:
    visit = visitor(guarded).open(fragment=fragment)
    assert visit.page.url == f"{guarded.url}/{guarded.topic}"
    key = guarded.ask()
    visit.button("1 Docker").click()
    assert guarded.replies(1) == [(key, "Docker")]
    visit.page.reload()
    visit.connected()
    expect(visit.cards.get_by_text("Sent: Docker.")).to_be_visible()
    assert not any("tk_secret" in request.url for request in visit.requests)


def test_without_the_token_the_page_asks_for_it_until_it_is_right(
        guarded: Site, visitor: Visitor) -> None:
    visit = visitor(guarded)
    visit.open("/" + guarded.topic)
    field = visit.page.get_by_label("Token")
    expect(field).to_be_focused()
    visit.shot("token")
    field.fill("wrong")
    field.press("Enter")
    expect(field).to_have_value("")
    expect(field).to_be_visible()
    field.fill(" tk_secret-9 ")
    visit.button("Continue").click()
    visit.connected()
    expect(field).to_be_hidden()
    guarded.ask()
    expect(visit.cards).to_have_count(1, timeout=SOON)
    visit.forgive("status of 401", "status of 403")


def test_a_token_that_changed_is_asked_for(guarded: Site, visitor: Visitor) -> None:
    visit = visitor(guarded).open(fragment="#t=tk_secret-9")
    guarded.stop()
    guarded.token = "tk_other"
    guarded.start()
    visit.page.get_by_label("Token").fill("tk_other", timeout=20000)
    visit.page.keyboard.press("Enter")
    visit.connected()
    visit.forgive("ERR_", "status of 401", "status of 403")


def test_the_page_without_a_topic_asks_for_it(site: Site, visitor: Visitor) -> None:
    visit = visitor(site)
    visit.open("/")
    field = visit.page.get_by_label("Topic")
    expect(field).to_be_focused()
    visit.shot("topic")
    field.fill("not a topic")
    field.press("Enter")
    assert urllib.parse.urlsplit(visit.page.url).path == "/"
    field.fill(site.topic)
    visit.button("Continue").click()
    visit.connected()
    assert visit.page.url == f"{site.url}/{site.topic}"


def test_the_address_of_the_response_topic_shows_the_questions(
        site: Site, visitor: Visitor) -> None:
    visit = visitor(site)
    visit.open(f"/{site.topic}-response").connected()
    key = site.ask()
    visit.button("1 Docker").click()
    assert site.replies(1) == [(key, "Docker")]


def test_a_browser_without_storage_works_with_the_link(guarded: Site, visitor: Visitor) -> None:
    visit = visitor(guarded)
    visit.page.add_init_script("""Object.defineProperty(window, "localStorage", {
        get() { throw new DOMException("denied", "SecurityError"); } })""")
    visit.open(fragment="#t=tk_secret-9")
    key = guarded.ask()
    visit.button("1 Docker").click()
    assert guarded.replies(1) == [(key, "Docker")]


# === For everyone ================================================================================

CONTRAST = r"""() => {
  const rgb = text => text.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + .05) / (low + .05);
  };
  const ground = node => {
    for (; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
      if (colour[3] !== 0) throw new Error("half transparent");
    }
    throw new Error("no background");
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.data.trim() || !node.checkVisibility() || node.id === "live") continue;
    const style = getComputedStyle(node);
    found.push({ what: text.data.trim().slice(0, 30), need: 4.5,
      ratio: ratio(rgb(style.color), ground(node)) });
  }
  for (const node of document.querySelectorAll("button, .row, .field")) {
    if (!node.checkVisibility()) continue;
    found.push({ what: "edge of " + node.className, need: 3,
      ratio: ratio(rgb(getComputedStyle(node).borderTopColor), ground(node.parentElement)) });
  }
  return found;
}"""


def everything(site: Site) -> None:
    """Fill the topic with one of each thing that the page can show."""
    site.publish(title="Backup", message="Nightly backup finished: 3.2 GB in 4 min.\nNo errors.")
    site.end(site.ask(header="Deploy", text="Deploy to staging now?"), "answered", "Yes")
    site.end(site.ask(header="Branch", text="Which branch?"), "timeout")
    site.ask(n=1, of=3)
    site.ask(n=2, of=3, header="Features", text="Which of these first?", options=FEATURES,
             multi=True)
    site.ask(kind="approval", header="Bash", text="rm -rf build/ && make release", custom=False,
             options=APPROVAL, deadline=time.time() + 14)
    site.ask(header="Config", text='{"service": "shop", "ports": [8080, 9090]}')
    site.reply(site.ask(header="Name", options=[], text="What shall it be called?"), "shop")
    site.ask(header="Long", text="A long question. " * 12)


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["360x740", "1280x800"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(
        site: Site, visitor: Visitor, scheme: str, size: dict[str, Any]) -> None:
    everything(site)
    visit = visitor(site, color_scheme=scheme, **size).open()
    expect(visit.cards).to_have_count(6)
    visit.page.get_by_role("checkbox", name="2 Export").check()
    visit.page.get_by_label("Other").nth(2).press("Enter")
    expect(visit.page.get_by_text("Choose an option or type an answer.")).to_be_visible()
    found = visit.page.evaluate(CONTRAST)
    assert len(found) > 40
    assert [one for one in found if one["ratio"] < one["need"]] == []
    ground = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (ground == "rgb(18, 19, 22)") == (scheme == "dark")
    visit.shot(scheme)


def test_the_small_screen_does_not_scroll_sideways_and_suits_a_thumb(
        site: Site, visitor: Visitor) -> None:
    everything(site)
    site.ask(header="x" * 200, text="y" * 400, options=[{"label": "z" * 300, "danger": True}])
    visit = visitor(site).open()
    expect(visit.cards).to_have_count(7)
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 360
    boxes = visit.page.evaluate("""[...document.querySelectorAll("button, .row, .field")]
        .filter(node => node.checkVisibility()).map(node => node.getBoundingClientRect().height)""")
    assert len(boxes) > 15 and min(boxes) >= 48
    fields = visit.page.evaluate("""[...document.querySelectorAll(".field")]
        .map(node => parseFloat(getComputedStyle(node).fontSize))""")
    assert min(fields) >= 16, "iOS zooms into smaller fields"


def test_a_screen_reader_hears_questions_and_finds_names(visit: Visit, site: Site) -> None:
    expect(visit.page.locator("#live")).to_have_attribute("aria-live", "polite")
    site.ask()
    expect(visit.page.locator("#live")).to_have_text(
        "Claude · shop · Database: Which database should the shop use?", timeout=SOON)
    expect(visit.page.get_by_role("region", name="Waiting questions")).to_be_visible()
    expect(visit.page.get_by_role("article", name="Database")).to_be_visible()
    expect(visit.page.get_by_role("group", name="Database")).to_be_visible()
    expect(visit.page.get_by_role("button", name="1 Docker high priority PostgreSQL in a container"
                                  )).to_be_visible()
    expect(visit.page.get_by_role("textbox", name="Other")).to_be_visible()
    expect(visit.page.get_by_role("timer")).to_be_visible()
    assert visit.page.evaluate("""[...document.querySelectorAll("button, input, a")].filter(
        node => node.checkVisibility() && !node.textContent && !node.labels?.length)""") == []
    assert visit.page.evaluate("document.documentElement.lang") == "en"


def test_chinese_is_spoken_to_a_chinese_browser(site: Site, visitor: Visitor) -> None:
    everything(site)
    visit = visitor(site, locale="zh-CN", color_scheme="dark").open()
    expect(visit.cards).to_have_count(6)
    for text in ("已连接", "第 1 个，共 3 个", "高优先级", "提交", "最近", "已回答：Yes",
                 "已发送：shop。等待 agent 接收。"):
        expect(visit.page.get_by_text(text, exact=True).first).to_be_visible()
    assert visit.page.evaluate("document.documentElement.lang") == "zh-CN"
    visit.shot("chinese")


def test_every_text_is_there_in_both_languages(site: Site, visitor: Visitor) -> None:
    texts = visitor(site).open().page.evaluate("TEXT")
    assert len(texts) > 30
    for key, pair in texts.items():
        english, chinese = pair
        assert english and chinese and english != chinese, key
        assert english.isascii() and re.search(r"[\u4e00-\u9fff]", chinese), key
        assert english.count("{}") == chinese.count("{}"), key


# === Safety ======================================================================================

ATTACKS = ["<img src=x onerror=alert(1)>", "<script>alert(2)</script>",
           "</style><svg onload=alert(3)>", "javascript:alert(4)", "{}{}$&$1${alert(5)}",
           "' onclick='alert(6)", "\u202e\u2066evil"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_comes_from_outside_is_never_markup(
        site: Site, visitor: Visitor, attack: str) -> None:
    option = {"label": attack, "description": attack, "priority": attack, "danger": attack}
    site.publish(title=attack, message=attack)
    site.end(site.ask(agent=attack, project=attack, header=attack, text=attack), attack, attack)
    site.end(site.ask(agent=attack, project=attack, header=attack, text=attack), "answered", attack)
    visit = visitor(site).open()
    key = site.ask(agent=attack, project=attack, tag=attack, header=attack, text=attack, n=attack,
                   of=2, options=[option, option], marks=[attack, attack])
    expect(visit.cards).to_have_count(1)
    expect(visit.recent).to_have_count(3)
    assert attack in visit.cards.inner_text() and attack in visit.recent.first.inner_text()
    before = visit.page.evaluate("document.querySelectorAll('*').length")
    visit.settled()  # the ended ones may have been shown for a moment
    visit.cards.locator(".row").first.click()
    assert site.replies(1) == [(key, attack)]
    expect(visit.cards.get_by_text("Sent:")).to_contain_text(attack)
    assert visit.page.locator("img, svg, article script, article style").count() == 0
    assert visit.page.evaluate("document.querySelectorAll('*').length") == before
    assert visit.page.locator("main a").count() == 0


@pytest.mark.parametrize("odd", [
    None, 5, "text", [], {"innerHTML": "<img src=x onerror=alert(1)>", "textContent": "x"},
    [{"innerHTML": "<img src=x onerror=alert(1)>"}]], ids=repr)
def test_values_of_wrong_types_do_no_harm(site: Site, visitor: Visitor, odd: Any) -> None:
    visit = visitor(site).open()
    for name in ("agent", "header", "text", "n", "of", "deadline", "tag", "multi", "custom"):
        site.ask(**{name: odd})
    site.ask(options=odd, marks=odd)
    site.ask(options=[odd, {"label": odd, "description": odd, "priority": odd, "danger": odd}],
             marks=[odd, odd])
    site.publish(title="odd", message="odd", a4p={"v": odd, "kind": odd, "id": odd})
    key = site.ask(header="The last")
    expect(visit.page.get_by_role("article", name="The last")).to_be_visible()
    assert visit.page.locator("img").count() == 0
    visit.settled()
    visit.page.get_by_role("article", name="The last").get_by_text("Docker").click()
    assert site.replies(1) == [(key, "Docker")]


def test_the_policy_forbids_everything_but_the_pages_own_script_and_style(site: Site) -> None:
    with site.call("/" + site.topic) as answer:
        policy = dict(part.split(" ", 1) for part in
                      answer.headers["Content-Security-Policy"].split("; "))
        text = answer.read().decode()
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy[kind])
    assert not re.search(r"\son\w+=|\sstyle=|https?://|innerHTML|insertAdjacent|eval\(", text)
