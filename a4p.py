#!/usr/bin/env python3
"""a4p: answer your coding agents from the phone.

You leave the desk with `a4p.py out`. What Claude Code, Codex or DSH ask from then on reaches
your phone through ntfy; the tap, the number or the words that come back go into the same
session as the answer. `a4p.py home` ends it. One file, the standard library, Python >= 3.9.
A hook prints one JSON object or nothing, exits 0, never hangs, never guesses, never grants:
where anything is in doubt, the question is asked at the terminal as if a4p were not there.

`grep '^# ===' a4p.py` is the table of contents; a section uses only those above it.
"""
from __future__ import annotations

import io
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs a hook 4 ms at every start
    from collections import OrderedDict, deque
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from http.server import BaseHTTPRequestHandler as HandlerBase
    from queue import SimpleQueue
    from typing import Any
    Json = dict[str, Any]
    Read = Callable[[Json, str], "list[Question]"]
    Write = Callable[["Call", Sequence["Answer"]], Json]
else:
    HandlerBase = object

# === Constants and limits ===================================================

VERSION = "0.1.0"
REPLY_SUFFIX = "-response"
DESK_WORDS = ("desk", "终端")  # typed alone on the phone: back to the terminal
ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"

OPEN_WAIT = 3.0  # seconds for a stream's `open`, then publish all the same and poll
PUBLISH_WAIT = 10.0  # seconds for one push, name look-up included
CONNECT_WAIT = 8.0  # seconds to connect, and for each answer of a request that is no stream
SILENCE = 77.0  # seconds; ntfy sends a keepalive each 45, so after 77 the socket is dead
POLL_EVERY = 5.0  # seconds; ntfy refills one request in 5
POLL_SLOWEST = 30.0
BACKOFF = (0.3, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between attempts to open a stream
TICK = 0.25  # seconds between looks at the registry, the transcript and the agent

STDIN_LIMIT = 10_000_000  # bytes of one hook call
STDIN_WAIT = 10.0  # seconds for it to arrive
LINE_LIMIT = 1 << 20  # bytes of one line of a stream
REPLY_LIMIT = 65_536  # bytes of a reply sent as a text attachment
MESSAGE_LIMIT = 4095  # bytes; ntfy 2.13 turns 4096 into an attachment, or 400/40014
BODY_LIMIT = 8191  # bytes of JSON; 8192 are 413/41303
WHOLE_AIM = 3800  # bytes of JSON that FCM and APNs (4 KB) keep whole
EXTRA_LIMIT = 16_000  # bytes of JSON with the `a4p` key, for the embedded server alone
TITLE_LIMIT = 250  # bytes
BUTTONS = 3  # ntfy refuses a fourth action: 400/40018
TEXT_FLOOR = 240  # bytes of question text that are worth a push
BUTTON_SHOWN = 60  # bytes of a button's label
LABEL_SHOWN = 48  # bytes of a label once labels are shortened
LOG_LIMIT = 1_000_000  # bytes of a4p.log; the older half goes
HOOK_TIMEOUT = 86_400  # seconds, written into the agents' configs
WAIT_LIMIT = 82_800  # seconds that a call may wait: below HOOK_TIMEOUT
TAKEN_KEPT = 50_000  # seconds; ntfy's cache replays nothing older than 12 h
TAG_KEPT = 3_600  # seconds that a late reply to an ended question is known as one

TAG_LETTERS = "abcdefghjkmnpqrstuvwxyz"
TAG_FORM = r"[a-z][2-9]{1,2}"
ID_FORM = r"q[a-z2-7]{10}"
TOPIC_FORM = r"[-_A-Za-z0-9]{1,64}"
EVENT_ID_FORM = r"[A-Za-z0-9]{1,32}"


# === Errors =================================================================


class A4pError(Exception):
    """What could not be done: a key of MESSAGES and its values. Only `main` shows it."""

    exit_code = 1

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key = key
        self.values = values

    def __str__(self) -> str:
        return self.text("en")

    def text(self, lang: str) -> str:
        """What is wrong, where, and after " - " the mend."""
        mend = say(lang, str(self.values.get("mend", "mend")))
        return say(lang, self.key, **{**self.values, "mend": mend})


class UsageError(A4pError):
    """Wrong usage or config."""

    exit_code = 2


class NoAnswer(A4pError):
    """Nobody answered in time, or the question was released."""

    exit_code = 3


class Refused(A4pError):
    """The server did not do it: `http` status (0: no answer at all) and ntfy's `code`."""

    def __init__(self, key: str, http: int = 0, code: int = 0, **values: object) -> None:
        super().__init__(key, http=http, code=code, **values)
        self.http = http
        self.code = code


class Released(BaseException):
    """A signal took the question away: no Exception, so that no handler keeps it."""


# === Words for people =======================================================

# key: (English, Chinese). What stands on the phone.
PHONE = {
    "question": ("Question", "问题"),
    "tap": ("Tap a button, or type your own words.", "点按钮，或直接输入文字。"),
    "number": ("Reply with the number, or your own words.", "回复编号，或直接输入文字。"),
    "letter": ("Reply with the letter, or your own words.", "回复字母，或直接输入文字。"),
    "numbers": ("Several may be chosen: reply with the numbers, such as {some}.",
                "可多选：回复编号，例如 {some}。"),
    "letters": ("Several may be chosen: reply with the letters, such as {some}.",
                "可多选：回复字母，例如 {some}。"),
    "words": ("Reply with your own words.", "请直接输入文字回复。"),
    "tagged": ("Several questions wait: begin a typed reply with {tag}.",
               "有多个问题在等：输入回复时请以 {tag} 开头。"),
    "browser": ("In a browser: {url}", "用浏览器回复：{url}"),
    "reply": ("Reply", "回复"),
    "answered": ("Answered: {answer}", "已回答：{answer}"),
    "timeout": ("Not answered, back at the terminal", "无人回答，已回到终端"),
    "released": ("Released, back at the terminal", "已放回终端"),
    "withdrawn": ("Withdrawn by the agent", "已被 agent 撤回"),
    "desk": ("Answered at the desk", "已在电脑前回答"),
    "lost": ("No longer waiting, see the terminal", "已不再等待，请看终端"),
    "not_listed": ("{reply} is not on the list ({marks}). Send it again to give it as your words.",
                   "列表中没有 {reply}（{marks}）。再发一次，就按原话转达。"),
    "only_listed": ("{reply} is not on the list ({marks}), and only the list counts here.",
                    "列表中没有 {reply}（{marks}），这里只能选列表中的。"),
    "not_text": ("A reply must be plain text, up to 64 KB.", "回复必须是纯文本，最多 64 KB。"),
    "which": ("Several questions wait. Which one is “{reply}” for? Tap it, or send the reply "
              "again behind its tag:",
              "有多个问题在等。“{reply}”是回答哪一个的？请点选，或以标签开头重发："),
    "tag_over": ("The question {tag} no longer waits, “{reply}” went nowhere.",
                 "问题 {tag} 已不在等待，“{reply}”没有送出。"),
}

# key: (English, Chinese). What stands on the terminal.
MESSAGES = {
    "out": ("Out: questions go to the phone until {until}.",
            "外出模式：问题会发到手机，直到 {until}。"),
    "out_open": ("Out: questions go to the phone. `a4p.py home` ends it.",
                 "外出模式：问题会发到手机。`a4p.py home` 结束。"),
    "home": ("Home: questions stay at the terminal.", "在家模式：问题留在终端。"),
    "released_n": ("Released: {n}.", "已放回终端：{n} 个。"),
    "server_is": ("Server {server}, topic {topic}.", "服务器 {server}，主题 {topic}。"),
    "no_config": ("no topic yet - run: a4p.py setup", "还没有主题 - 请运行：a4p.py setup"),
    "waiting_n": ("Waiting: {n}.", "等待中：{n} 个。"),
    "waiting_row": ("  {id}  {agent}  {project}  {left} s left  {text}",
                    "  {id}  {agent}  {project}  还剩 {left} 秒  {text}"),
    "ask_wait": ("Waiting for the phone: {left} s left (Ctrl-C withdraws)",
                 "等待手机回复：还剩 {left} 秒（Ctrl-C 撤回）"),
    "hook_hint": ("`a4p.py hook` is called by agents, with JSON on stdin - run: a4p.py setup",
                  "`a4p.py hook` 由 agent 调用，从标准输入读 JSON - 请运行：a4p.py setup"),
    "sent": ("Sent.", "已发送。"),
    "no_answer": ("nobody answered in time", "没有人及时回答"),
    "not_waiting": ("the question was released", "问题已放回终端"),
    "withdrawn_cli": ("withdrawn", "已撤回"),
    "config_json": ("{file}, line {line}: not JSON ({detail}) - mend that line",
                    "{file} 第 {line} 行：不是 JSON（{detail}）- 请修正该行"),
    "config_value": ("{file}, line {line}: {name} must be {want} - mend it",
                     "{file} 第 {line} 行：{name} 必须是 {want} - 请修正"),
    "env_value": ("{name} must be {want} - mend or unset it",
                  "{name} 必须是 {want} - 请修正或取消"),
    "config_read": ("{file} cannot be read ({detail}) - check its owner and mode",
                    "无法读取 {file}（{detail}）- 请检查所有者和权限"),
    "home_write": ("{file} cannot be written ({detail}) - check the folder, or set A4P_HOME",
                   "无法写入 {file}（{detail}）- 请检查目录，或设置 A4P_HOME"),
    "ask_options": ("a question needs a text, and options that differ - check -o",
                    "提问需要文字和互不相同的选项 - 请检查 -o"),
    "duration": ("{value} is no duration - write 90, 45s, 10m, 2h or 1d",
                 "{value} 不是时长 - 请写 90、45s、10m、2h 或 1d"),
    "no_network": ("{server} cannot be reached ({detail}) - check the network and `server`",
                   "无法连接 {server}（{detail}）- 请检查网络和 `server`"),
    "slow_network": ("{server} did not answer within {seconds} s - check the network",
                     "{server} 在 {seconds} 秒内没有回应 - 请检查网络"),
    "bad_tls": ("{server} does not prove who it is ({detail}) - check the certificate",
                "{server} 的证书无法验证（{detail}）- 请检查证书"),
    "moved": ("{server} answers HTTP {http} and points elsewhere - set `server` to {to}",
              "{server} 返回 HTTP {http} 并指向别处 - 请把 `server` 设为 {to}"),
    "refused": ("{server} refused it: HTTP {http}, ntfy code {code} {detail} - {mend}",
                "{server} 拒绝了请求：HTTP {http}，ntfy 代码 {code} {detail} - {mend}"),
    "no_ntfy": ("{server} answered, but not as ntfy does (a login page?) - check the network",
                "{server} 有回应，但不是 ntfy（登录页面？）- 请检查网络"),
    "socks": ("SOCKS proxies are not supported - set `proxy` to an http:// one, or none",
              "不支持 SOCKS 代理 - 请把 `proxy` 设为 http:// 代理或留空"),
    "too_big": ("the question does not fit in one push - it stays at the terminal",
                "问题太长，一条推送放不下 - 留在终端"),
    "mend_401": ("the credentials are wrong, see `token`", "凭据错误，请检查 `token`"),
    "mend_403": ("these credentials may not use this topic", "该凭据无权使用此主题"),
    "mend_42908": ("the daily quota is used up until midnight UTC; try your own server",
                   "今日配额已用完（UTC 零点重置）；可改用自己的服务器"),
    "mend_413": ("the push is too large", "推送过大"),
    "mend_429": ("wait a minute, fewer requests are allowed", "请等一分钟，请求过于频繁"),
    "mend": ("see the server's log", "请看服务器日志"),
    "listen": ("cannot listen on {address} ({detail}) - choose another with --listen",
               "无法监听 {address}（{detail}）- 请用 --listen 换一个"),
    "listen_form": ("{value} is no HOST:PORT - write 127.0.0.1:2586",
                    "{value} 不是 HOST:PORT - 请写 127.0.0.1:2586"),
    "serve_token": ("{address} is open to others - add --token, or listen on 127.0.0.1",
                    "{address} 对外开放 - 请加上 --token，或监听 127.0.0.1"),
    "serve_link": ("On the phone: {link}", "手机打开：{link}"),
    "stdin_slow": ("stdin was not complete within {seconds} s", "{seconds} 秒内没有读完标准输入"),
    "stdin_big": ("stdin is over {limit} bytes", "标准输入超过 {limit} 字节"),
    "usage": ("{detail} - see {prog} --help", "{detail} - 请看 {prog} --help"),
    "stdin_json": ("stdin is not JSON: {detail}", "标准输入不是 JSON：{detail}"),
    "unexpected": ("unexpected {detail} - see {file}", "意外错误 {detail} - 见 {file}"),
    "setup_done": ("Saved {file} (topic {topic}).", "已保存 {file}（主题 {topic}）。"),
    "setup_phone": ("On the phone: install ntfy, subscribe to\n    {server}/{topic}\n"
                    "Whoever knows the topic can read and answer: it is a password.",
                    "手机上：安装 ntfy，订阅\n    {server}/{topic}\n"
                    "知道主题的人就能看到并回答：它就是密码。"),
    "setup_hooks": ("For {agent}, in {file}:", "{agent}，写入 {file}："),
    "setup_dsh": ("For DSH: a4p.py install dsh", "DSH：a4p.py install dsh"),
    "setup_next": ("Then: a4p.py out", "然后：a4p.py out"),
    "installed": ("Installed: {file}", "已安装：{file}"),
    "uninstalled": ("Removed from: {file}", "已移除：{file}"),
    "not_installed": ("Nothing of a4p in {file}.", "{file} 中没有 a4p 的内容。"),
    "foreign_yaml": ("{file} is not a list a4p can add to - put these lines in yourself:\n{lines}",
                     "{file} 不是 a4p 能添加的列表 - 请自行加入：\n{lines}"),
    "demo_ask": ("The question is out. Answer it from another terminal:\n  {curl}\n"
                 "or open {url} in a browser.",
                 "问题已发出。在另一个终端回答：\n  {curl}\n或用浏览器打开 {url}"),
    "demo_got": ("Claude Code gets:", "Claude Code 收到："),
    "demo_push": ("The phone shows:", "手机显示："),
}


def say(lang: str, key: str, **values: object) -> str:
    """The text of KEY in `lang` ("zh", else English), filled in.

    >>> say("en", "browser", url="https://x/y")
    'In a browser: https://x/y'
    >>> say("zh", "question")
    '问题'
    """
    pair = PHONE.get(key) or MESSAGES[key]
    return pair[1 if lang == "zh" else 0].format(**values)


def escaped(text: str) -> str:
    r"""`text` with all that a terminal would act on written out.

    >>> escaped("\x1b[31mb")
    '\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain(text: str, limit: int = 200) -> str:
    r"""`text` as one line that is safe on a terminal, cut to `limit` characters.

    >>> plain("a\n\x1b[31mb")
    'a \\x1b[31mb'
    """
    line = " ".join(text.split())
    return escaped(line if len(line) <= limit else line[: limit - 1] + "…")


def seconds_of(text: str) -> float:
    """Seconds of a duration such as 90, 45s, 10m, 2h or 1d; raises UsageError.

    >>> seconds_of("2h"), seconds_of("1.5m"), seconds_of("90")
    (7200.0, 90.0, 90.0)
    """
    unit = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:].lower())
    number = text[:-1] if unit else text
    if not number.replace(".", "", 1).isascii() or not number.replace(".", "", 1).isdigit():
        raise UsageError("duration", value=plain(text, 40))
    seconds = float(number) * (unit or 1)
    if not 1 <= seconds <= 31_536_000:
        raise UsageError("duration", value=plain(text, 40))
    return seconds


# === State: the folder, the mode, the log, the config, what waits ===========


class Out:
    """The mode out: `until` (epoch seconds or None) and `wait` (seconds or None)."""

    def __init__(self, until: int | None, wait: float | None) -> None:
        self.until = until
        self.wait = wait


def home_dir() -> str:
    """$A4P_HOME as an absolute path, ~/.a4p where it is not set."""
    return os.path.abspath(os.environ.get("A4P_HOME") or os.path.expanduser("~/.a4p"))


def read_out(home: str) -> Out | None:
    """The mode out, or None at home. Whoever finds it past its end removes it."""
    path = os.path.join(home, "out")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            first, second = file.readline(64).strip(), file.readline(64).strip()
    except OSError:
        return None
    if first and not (first.isascii() and first.isdigit()):
        return None  # not ours: fail towards the terminal
    until = min(int(first), 253_402_300_799) if first else None  # the year 9999 is for ever
    if until is not None and until <= time.time():
        remove(path)
        return None
    try:
        wait = float(second)
    except ValueError:
        wait = 0
    return Out(until, wait if 1 <= wait <= WAIT_LIMIT else None)


def remove(path: str) -> bool:
    """Unlink; True for the one caller that did it."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def list_dir(folder: str) -> list[str]:
    """The names in a folder; none where it is not there."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def make_dir(path: str) -> None:
    """The folder, 0700 where it is new; raises A4pError."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise A4pError("home_write", file=path, detail=error.strerror) from None


def write_private(path: str, text: str, place: Callable[[str, str], None] = os.replace) -> None:
    """Write atomically, 0600 under any umask; raises A4pError. `place` puts the draft there."""
    draft = f"{path}.{os.getpid()}.{random_id(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        place(draft, path)
    except FileExistsError:
        raise
    except OSError as error:
        raise A4pError("home_write", file=path, detail=error.strerror) from None
    finally:
        remove(draft)


def random_id(length: int) -> str:
    """`length` characters of a-z2-7 from the system's randomness, 5 bits each."""
    return "".join(ID_LETTERS[byte & 31] for byte in os.urandom(length))


class Log:
    """`a4p.log`: one line for each thing that happened; never a secret, topics shortened."""

    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, "a4p.log")
        self.hidden: dict[str, str] = {}  # what never stands there: what stands in its place

    def line(self, text: str, *details: str) -> None:
        """Add a line, `details` indented below it. A log that cannot be written is no error."""
        rows = [text, *details]
        for secret, shown in self.hidden.items():  # before a cut leaves a part of one
            rows = [row.replace(secret, shown) for row in rows]
        entry = "\n    ".join(plain(row, 500) for row in rows) + "\n"
        entry = time.strftime("%Y-%m-%d %H:%M:%S ") + entry
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            with os.fdopen(os.open(self.path, flags, 0o600), "ab") as file:
                file.write(entry.encode("utf-8", "replace"))
                size = file.tell()
            if size > LOG_LIMIT:
                with open(self.path, "rb") as old:
                    old.seek(size - LOG_LIMIT // 2)
                    write_private(self.path, str(old.read().partition(b"\n")[2], "utf-8", "replace"))
        except (OSError, ValueError, A4pError):
            return  # a full disk must not cost an answer

    def failure(self, what: str, error: BaseException) -> None:
        """An unexpected error with its traceback."""
        import traceback
        rows = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self.line(f"{what}: {type(error).__name__}", *rows.splitlines()[-30:])


# The config: key -> (default, form of its text, what an error says it must be)
SETTINGS: dict[str, tuple[object, str, str]] = {
    "server": ("https://ntfy.sh", r"https?://[^\s/?#@]+(/[^\s?#]*)?", "an http:// or https:// URL"),
    "topic": ("", r"|[-_A-Za-z0-9]{1,55}", "1 to 55 of a-z A-Z 0-9 - _"),
    "token": ("", r"[^\s]*", "text without spaces"),
    "user": ("", r"[^\r\n\0]*", "text of one line"),
    "password": ("", r"[^\r\n\0]*", "text of one line"),
    "reply_token": ("", r"[^\s]*", "text without spaces"),
    "share_token": (False, "True|False", "true or false"),
    "timeout": (60, r"[\d.]+", f"seconds, 1 to {WAIT_LIMIT}"),
    "priority": (4, "[1-5]", "1 to 5"),
    "lang": ("auto", "auto|en|zh", '"auto", "en" or "zh"'),
    "phone": ("", "|android|ios", '"", "android" or "ios"'),
    "proxy": ("", r"|\w+://\S+", "a proxy's http:// URL or empty"),
    "desk": ("wait", "wait|beside", '"wait" or "beside"'),
    "serve_token": ("", r"[^\s]*", "text without spaces"),
}
ENVIRONMENT = {"A4P_SERVER": "server", "A4P_TOPIC": "topic", "A4P_TOKEN": "token",
               "A4P_TIMEOUT": "timeout", "A4P_LANG": "lang"}


def setting_fits(key: str, value: object) -> bool:
    """Whether `value` may stand as `key` in the config.

    >>> setting_fits("priority", 6), setting_fits("topic", "a4p-x"), setting_fits("timeout", True)
    (False, True, False)
    """
    import re
    default, form, _ = SETTINGS[key]
    kinds = (int, float) if key == "timeout" else (type(default),)
    if type(value) not in kinds or not re.fullmatch(form, str(value)):
        return False
    return key != "timeout" or 1 <= float(str(value)) <= WAIT_LIMIT


class Config(dict[str, "Any"]):
    """What `config.json` and the environment say, as attributes, too; raises UsageError."""

    def __init__(self, home: str) -> None:
        import contextlib
        import re
        super().__init__({key: row[0] for key, row in SETTINGS.items()})
        self.path = os.path.join(home, "config.json")
        self.stored, text = read_json(self.path)
        for key in SETTINGS.keys() & self.stored.keys():
            if not setting_fits(key, self.stored[key]):
                found = re.search(rf'"{key}"\s*:', text)
                line = text[: found.start() if found else 0].count("\n") + 1
                raise UsageError("config_value", file=self.path, line=line, name=key,
                                 want=SETTINGS[key][2])
            self[key] = self.stored[key]
        for name, key in ENVIRONMENT.items():
            value: Any = os.environ.get(name, "")
            if value and key == "timeout":
                with contextlib.suppress(UsageError):  # what it must be is said below
                    value = seconds_of(value)
            if value and not setting_fits(key, value):
                raise UsageError("env_value", name=name, want=SETTINGS[key][2])
            self[key] = value or self[key]
        self["server"] = self.server.rstrip("/")
        self["lang"] = resolve_lang(self.lang)

    def __getattr__(self, key: str) -> Any:
        if key not in self:
            raise AttributeError(key)
        return self[key]

    @property
    def unknown(self) -> list[str]:
        """The keys of the file that a4p does not know; they are kept."""
        return [key for key in self.stored if key not in SETTINGS]

    def save(self, **changes: object) -> None:
        """Merge `changes` into the file, keeping every other key; raises A4pError."""
        import json
        self.stored.update(changes)
        make_dir(os.path.dirname(self.path))
        write_private(self.path, json.dumps(self.stored, indent=2, ensure_ascii=False) + "\n")


def read_json(path: str) -> tuple[Json, str]:
    """The object in a JSON file and its text, both empty where there is none; UsageError."""
    import json
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(1_000_000)
        found = json.loads(text)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        raise UsageError("config_read", file=path, detail=error.strerror) from None
    except json.JSONDecodeError as error:
        raise UsageError("config_json", file=path, line=error.lineno, detail=error.msg) from None
    except (ValueError, RecursionError):
        raise UsageError("config_json", file=path, line=1, detail="not UTF-8 text") from None
    if not isinstance(found, dict):
        raise UsageError("config_json", file=path, line=1, detail="not an object")
    return found, text


def resolve_lang(lang: str) -> str:
    """"zh" or "en"; "auto" follows LC_ALL, LC_MESSAGES and LANG."""
    if lang == "auto":
        names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
        lang = next((name for name in names if name), "")
    return "zh" if lang.lower().startswith("zh") else "en"


def process_stamp(pid: int) -> str:
    """What tells this process from a later one of the same pid; "" when it is gone.

    Linux has the start time in /proc; elsewhere `ps` tells it.
    """
    if sys.platform == "win32":
        return "?"  # os.kill(pid, 0) would send Ctrl-C there
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
    except (OSError, IndexError):
        if os.path.exists("/proc/self/stat"):
            return ""
    import subprocess
    return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True,
                          timeout=5, check=False).stdout.strip()


class Pending:
    """`pending/`: one small file for each question that waits now, on this host.

    A file is named by its question's tag: making it claims the tag, without any lock. It stays
    for TAG_KEPT seconds as `.over`, so that a late reply to the tag is known as one.
    """

    def __init__(self, home: str) -> None:
        self.folder = os.path.join(home, "pending")
        self.taken = os.path.join(home, "taken")

    def add(self, entry: Json, labels: Sequence[str] = ()) -> str:
        """Put the entry there as this process's; returns its tag, which no label starts with."""
        import json
        import socket
        make_dir(self.folder)
        starts = [fold(label)[:3] for label in labels]
        entry.update(pid=os.getpid(), stamp=process_stamp(os.getpid()), host=socket.gethostname())
        while True:
            tag = entry["tag"] = self._free_tag(starts)
            try:
                write_private(self._path(tag), json.dumps(entry), os.link)
                return tag
            except FileExistsError:
                continue  # another question was faster

    def _free_tag(self, starts: Sequence[str]) -> str:
        """A letter and a digit, or two where many wait; random, so that few collide."""
        used = {name.partition(".")[0] for name in list_dir(self.folder)}
        for turn in range(20):
            letter, *rest = os.urandom(2 + turn // 10)
            tag = TAG_LETTERS[letter % len(TAG_LETTERS)] + "".join(str(2 + n % 8) for n in rest)
            if tag not in used and not any(start.startswith(tag) for start in starts):
                break
        return tag

    def _path(self, tag: str) -> str:
        return os.path.join(self.folder, tag + ".json")

    def waits(self, tag: str) -> bool:
        """Whether the entry is still there: `home` takes it away."""
        return os.path.exists(self._path(tag))

    def drop(self, tag: str) -> bool:
        """Take the entry away; True for the one caller that did it."""
        path = self._path(tag)
        try:
            os.rename(path, path[:-4] + "over")
        except OSError:
            return False
        return True

    def entries(self, ending: str = "json") -> list[Json]:
        """Every readable entry, the oldest first; those of other hosts left out."""
        import json
        import re
        import socket
        found = []
        for name in list_dir(self.folder):
            if not re.fullmatch(rf"{TAG_FORM}\.{ending}", name):
                continue
            try:
                with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                    entry = json.loads(file.read(100_000))
                if entry["tag"] == name.partition(".")[0] and entry["host"] == socket.gethostname():
                    found.append({**entry, "since": float(entry["since"])})
            except (OSError, ValueError, TypeError, KeyError):
                continue  # going away just now, or not ours
        return sorted(found, key=lambda entry: (entry["since"], entry["tag"]))

    def live(self) -> list[Json]:
        """The entries whose process is there, the oldest first."""
        return [entry for entry in self.entries() if self._lives(entry)]

    def dead(self) -> list[Json]:
        """The entries left by processes that are gone, each handed to one caller only."""
        return [entry for entry in self.entries()
                if not self._lives(entry) and self.drop(entry["tag"])]

    def _lives(self, entry: Json) -> bool:
        pid, stamp = entry.get("pid"), entry.get("stamp")
        return isinstance(pid, int) and bool(stamp) and process_stamp(pid) == stamp

    def take(self, event_id: str) -> bool:
        """Claim one reply for good; True for one caller of all processes, ever."""
        make_dir(self.taken)
        try:
            os.close(os.open(os.path.join(self.taken, event_id), os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        for folder, ending, kept in ((self.taken, "", TAKEN_KEPT),
                                     (self.folder, ".over", TAG_KEPT)):
            for name in list_dir(folder)[:500]:
                path = os.path.join(folder, name)
                if name.endswith(ending) and age(path) > kept:
                    remove(path)
        return True


def age(path: str) -> float:
    """Seconds since a file was last written; 0 where there is none."""
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0


class State:
    """All of $A4P_HOME: `config` (raises UsageError when first read), `pending`, `log`."""

    def __init__(self, home: str = "") -> None:
        self.home = home or home_dir()
        self.pending = Pending(self.home)
        self.log = Log(self.home)
        self._config: Config | None = None

    @property
    def config(self) -> Config:
        """The config, read once; from then on the log hides its secrets."""
        if self._config is None:
            config = self._config = Config(self.home)
            for key in ("token", "password", "reply_token", "serve_token"):
                self.log.hidden[config[key] or "\0"] = "***"
            self.log.hidden[config.topic or "\0"] = shorten(config.topic)
        return self._config


def shorten(topic: str) -> str:
    """A topic as it may be shown.

    >>> shorten("a4p-abcdefghijklmnopqrstuvwxyz")
    'a4p-abc…'
    """
    return topic[:7 if len(topic) > 10 else 2] + "…"


# === The model: question, option, reply, answer =============================


class Option:
    """One choice: `label` is the answer, the rest is shown where there is room."""

    def __init__(self, label: str, description: str = "", priority: str = "",
                 danger: bool = False) -> None:
        self.label = label
        self.description = description
        self.priority = priority
        self.danger = danger


class Question:
    """A text with options. `key` is what the agent finds its answer by.

    `words` is false where only an option may be the answer. `kind` is what the page calls it.
    """

    kind = "question"

    def __init__(self, key: str, header: str, text: str, options: Sequence[Option] = (),
                 multi: bool = False, words: bool = True) -> None:
        self.key = key
        self.header = header
        self.text = text
        self.options = list(options)
        self.labels = [option.label for option in options]
        self.multi = multi and bool(options)
        self.words = words or not options
        self.lettered = any(number_of(fold(label)) is not None for label in self.labels)

    @property
    def marks(self) -> list[str]:
        """What stands before each option: 1, 2, 3; letters where a label reads as a number.

        >>> Question("", "", "", [Option("8"), Option("a"), Option("9")]).marks
        ['B', 'C', 'D']
        """
        if not self.lettered:
            return [str(number) for number in range(1, len(self.options) + 1)]
        labels = {fold(label) for label in self.labels}
        letters = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c.lower() not in labels]
        more = [f"{(letters or ['A'])[0]}{n}" for n in range(1, 60)]
        return (letters + more)[: len(self.options)]

    def read(self, reply: str) -> Answer | NotListed:
        """What a reply means; words where none are allowed are NotListed."""
        answer = interpret(reply, self)
        if isinstance(answer, Answer) and answer.text and not self.words:
            return NotListed(reply)
        return answer


class Answer:
    """What the agent gets: the `selected` labels, and the person's own words, "" for none."""

    def __init__(self, selected: Sequence[str] = (), text: str = "") -> None:
        self.selected = list(selected)
        self.text = text

    def __repr__(self) -> str:
        return f"Answer({self.selected!r}, {self.text!r})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def joined(self, separator: str = ", ") -> str:
        """For people: labels and words."""
        return separator.join([*self.selected, *([self.text] if self.text else [])])


class NotListed:
    """A reply that looks like a choice but is none: it is asked back. `marks` as typed."""

    def __init__(self, marks: str) -> None:
        self.marks = marks


def fold(text: str) -> str:
    """For comparing only: NFKC, no emoji dressing, outer space or case; ③ and ❸ are 3.

    >>> fold(" ３️⃣ "), fold("Ｄocker"), fold("❸"), fold("①②")
    ('3', 'docker', '3', '1  2')
    """
    import unicodedata
    dressing = dict.fromkeys(map(ord, "\ufe0e\ufe0f\u20e3\u200b\ufeff"))
    text = text.replace("🔟", "10").translate(dressing)
    parts = []
    for c in text:
        value = unicodedata.numeric(c, 0.5) if unicodedata.category(c) == "No" else 0.5
        parts.append(f" {value:.0f} " if value == int(value) else c)
    return unicodedata.normalize("NFKC", "".join(parts)).strip().casefold()


CHINESE_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")}
NUMBER = r"\d{1,40}|[①-⒛]|[一二三四五六七八九]?十[一二三四五六七八九]?|[零一二三四五六七八九]"
LETTER = "[a-z][0-9]{0,2}"
MARK = (r"(?:(?:option|choice|answer|number|no\.|选项|选择|答案|编号|选|第)\s*){{0,2}}"
        r"[#＃(（\[【]*\s*(?P<mark>{form})(?:\s*[)）\]】])*(?:\s*(?:个选项|个|项|号|种|条))?")
ENDS = r"(?![a-z\d]|[.:]\d)"  # not in the middle of 3rd, 10k, 4.5 or 12:30
SEPARATOR = r"(?=[\s,;/、，；+&|.和与及跟])(?:[\s,;/、，；+&|]|\.\s)*(?:(?:and\b|和|与|及|跟)\s*)?"
CLOSING = r"[\s.。,，、!！:：;；)\]~吧]*"


def number_of(folded: str) -> int | None:
    """The number that a folded text means, in any usual dress; None where it means more.

    >>> [number_of(fold(t)) for t in ("３", "3.", "(3)", "#3", "③", "选3", "option 3", "03")]
    [3, 3, 3, 3, 3, 3, 3, 3]
    >>> [number_of(fold(t)) for t in ("第三个", "选十二", "３号", "二十一", "3 days", "4.5", "-3")]
    [3, 12, 3, 21, None, None, None]
    """
    import re
    found = re.fullmatch(MARK.format(form=NUMBER) + CLOSING, folded)
    if found is None:
        return None
    if found["mark"].isdecimal():
        return int(found["mark"])
    tens, ten, ones = found["mark"].rpartition("十")
    return (10 * CHINESE_DIGITS.get(tens, 1) if ten else 0) + CHINESE_DIGITS.get(ones, 0)


def interpret(reply: str, question: Question) -> Answer | NotListed:
    """What a reply text means: a label, a place on the list, or the person's own words.

    >>> db = Question("", "", "", [Option("Docker"), Option("systemd"), Option("local only")])
    >>> interpret("３", db), interpret("docker", db), interpret("3 days", db)
    (Answer(['local only'], ''), Answer(['Docker'], ''), Answer([], '3 days'))
    >>> interpret("9", db).marks
    '9'
    """
    label = label_of(reply, question.labels) or label_at(reply, question)
    if label is not None:
        return Answer([label])
    reply = reply.strip()
    if question.multi:
        return interpret_multi(reply, question)
    if question.options and not question.lettered and number_of(fold(reply)) is not None:
        return NotListed(reply)
    return Answer([], reply)


def label_of(text: str, labels: Sequence[str]) -> str | None:
    """The label that `text` is: to the letter, else the only one ignoring space, then case."""
    for form in (str, str.strip, fold):
        same = [label for label in labels if form(label) == form(text)]
        if len(same) == 1:
            return same[0]
    return None


def label_at(mark: str, question: Question) -> str | None:
    """The label at the place in the list that a mark names, else None."""
    import re
    places = {mark.lower(): label for mark, label in zip(question.marks, question.labels)}
    if not question.lettered:
        return places.get(str(number_of(fold(mark))))
    found = re.fullmatch(MARK.format(form=LETTER) + CLOSING, fold(mark))
    return places.get(found["mark"]) if found else None


def interpret_multi(reply: str, question: Question) -> Answer | NotListed:
    """A reply where several may be chosen: `1,3`, labels, `1,3 and then words`, `2: words`.

    >>> q = Question("", "", "", [Option("a1"), Option("b1"), Option("c1")], multi=True)
    >>> interpret("1、3", q), interpret("1,3 and log it", q), interpret("2: but later", q)
    (Answer(['a1', 'c1'], ''), Answer(['a1', 'c1'], 'and log it'), Answer(['b1'], 'but later'))
    >>> interpret("3 replicas please", q), interpret("B1, c1", q)
    (Answer([], '3 replicas please'), Answer(['b1', 'c1'], ''))
    """
    import re
    words = ""
    found = [label_of(part, question.labels) for part in re.split(r"\s*[,，、;；\n]\s*", reply)]
    if None in found:
        marks, words = leading_marks(fold(reply), question)
        if words or not marks:  # the words come along as they were typed
            marks, words = leading_marks(reply, question)
        found = [label_at(mark, question) for mark in marks]
        if not marks or (words and None in found):
            return Answer([], reply)
    if None in found:
        return NotListed(reply)
    return Answer([label for label in question.labels if label in found], words)


def leading_marks(reply: str, question: Question) -> tuple[list[str], str]:
    """The list marks that a reply starts with, and the words behind them.

    Words count only behind several marks, or behind one with a separator: "3 days" has none.
    """
    import re
    item = MARK.format(form=LETTER if question.lettered else NUMBER) + ENDS
    mark, separator = re.compile(item, re.I), re.compile(SEPARATOR, re.I)
    marks: list[str] = []
    at, found = 0, mark.match(reply)
    while found:
        marks.append(found["mark"])
        at = found.end()
        between = separator.match(reply, at)
        found = mark.match(reply, between.end()) if between else None
    rest = reply[at:]
    words = re.sub(rf"^{CLOSING}$|^[\s,;:：，；、.。]+", "", rest)
    parted = (len(marks) > 1 or re.match(r"\s*[,;:：，；、.。]", rest)
              or reply[at - 1: at] in ")）]】")
    return (marks, words) if parted or not words else ([], reply)


# === The ntfy client ========================================================


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself.

    >>> is_loopback("localhost"), is_loopback("127.8.0.1"), is_loopback("ntfy.sh")
    (True, True, False)
    """
    return host in ("localhost", "::1") or (host.startswith("127.")
                                            and host.replace(".", "").isdigit())


def background(work: Callable[[], object]) -> None:
    """Run `work` in a thread that does not outlive the process."""
    import threading
    threading.Thread(target=work, daemon=True).start()


def within(seconds: float, work: Callable[[], Any], server: str) -> Any:
    """The result of `work`, or Refused after `seconds`: name look-ups have no timeout."""
    import queue
    done: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    background(run)
    try:
        result, error = done.get(timeout=seconds)
    except queue.Empty:
        raise Refused("slow_network", server=server, seconds=int(seconds)) from None
    if error:
        raise error
    return result


class Ntfy:
    """One ntfy server with one set of credentials. Everything raises Refused."""

    def __init__(self, config: Config) -> None:
        import urllib.parse
        self.server: str = config.server
        self.auth = authorization(config)
        parts = urllib.parse.urlsplit(self.server)
        self.scheme, self.host = parts.scheme, parts.hostname or ""
        self.proxy: str = config.proxy

    def publish(self, body: Json) -> Json:
        """Publish JSON to the server's root; returns the message as the server stored it."""
        import json
        import re
        found = self._read("POST", "/", encode(body))
        try:
            message: Json = json.loads(found)
            fits = (message["event"] == "message" and message["topic"] == body["topic"]
                    and re.fullmatch(EVENT_ID_FORM, message["id"])
                    and isinstance(message["time"], int))
        except (ValueError, TypeError, KeyError):
            fits = False
        if not fits:  # a captive portal, or a proxy's page
            raise Refused("no_ntfy", 200, server=self.server)
        return message

    def delete(self, topic: str, sequence_id: str) -> None:
        """Take a push off the phone; servers older than ntfy 2.16 refuse it."""
        self._read("DELETE", f"/{topic}/{sequence_id}")

    def poll(self, topics: Sequence[str], since: str) -> list[Json]:
        """The cached messages after `since` (an id, or epoch seconds)."""
        found = self._read("GET", f"/{','.join(topics)}/json?poll=1&since={since}")
        return [event for event in map(event_of, found.split(b"\n")) if event]

    def fetch(self, url: str) -> bytes:
        """An attachment of this server."""
        if not url.startswith(self.server + "/file/"):
            raise Refused("no_ntfy", server=self.server)
        return self._read("GET", url[len(self.server):])

    def stream(self, topics: Sequence[str], since: str = "") -> Stream:
        """An open stream on `topics`; what came after the event `since`, too."""
        path = f"/{','.join(topics)}/json" + (f"?since={since}" if since else "")
        return Stream(*self.open("GET", path, idle=SILENCE))

    def _read(self, method: str, path: str, body: bytes | None = None) -> bytes:
        response, _ = self.open(method, path, body)
        try:
            with response:
                return bytes(response.read(LINE_LIMIT * 10))
        except Exception as error:  # OSError, or http.client's IncompleteRead and its kin
            raise self._failure(error) from None

    def open(self, method: str, path: str, body: bytes | None = None,
             idle: float = CONNECT_WAIT) -> tuple[Any, list[Any]]:
        """The response to a request, if it is 200, and a list with its socket."""
        import urllib.request
        request = urllib.request.Request(self.server + path, data=body, method=method)
        request.add_header("User-Agent", "a4p/" + VERSION)
        request.add_header("Content-Type", "application/json")
        if self.auth:
            request.add_header("Authorization", self.auth)
        sockets: list[Any] = []
        try:
            response = self._opener(idle, sockets).open(request, timeout=CONNECT_WAIT)
        except Exception as error:
            raise self._failure(error) from None
        if response.status != 200:
            with response:
                raise self._refusal(response)
        return response, sockets

    def _opener(self, idle: float, sockets: list[Any]) -> Any:
        """An opener of just the handlers needed: none follows a redirect.

        `idle`: seconds of silence after connecting. `sockets` receives the connection's socket,
        so that another thread can shut it down.
        """
        import http.client
        import urllib.request
        base: Any = http.client.HTTPConnection
        handler: Any = urllib.request.HTTPHandler()
        if self.scheme == "https":  # a context costs 20 ms, and 3.12 makes one for http, too
            import ssl
            base = http.client.HTTPSConnection
            handler = urllib.request.HTTPSHandler(context=ssl.create_default_context())

        class Connection(base):  # type: ignore[misc]
            def connect(self) -> None:
                super().connect()
                self.sock.settimeout(idle)
                sockets.append(self.sock)

        send = handler.do_open
        handler.do_open = lambda kind, request, **more: send(Connection, request, **more)
        opener = urllib.request.OpenerDirector()
        opener.add_handler(urllib.request.ProxyHandler(self._proxies()))
        opener.add_handler(handler)
        return opener

    def _proxies(self) -> dict[str, str]:
        import urllib.request
        if is_loopback(self.host):
            return {}
        proxy = self.proxy
        if not proxy and not urllib.request.proxy_bypass(self.host):
            found = urllib.request.getproxies()
            proxy = found.get(self.scheme) or found.get("all", "")
        if proxy.startswith("socks"):
            raise Refused("socks")
        return {self.scheme: proxy} if proxy else {}

    def _failure(self, error: Exception) -> Refused:
        import ssl
        if isinstance(error, Refused):
            return error
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            return Refused("bad_tls", server=self.server, detail=plain(reason.verify_message))
        if isinstance(reason, TimeoutError) or "timed out" in str(reason):
            return Refused("slow_network", server=self.server, seconds=int(CONNECT_WAIT))
        detail = plain(getattr(reason, "strerror", "") or str(reason) or type(reason).__name__)
        return Refused("no_network", server=self.server, detail=detail)

    def _refusal(self, response: Any) -> Refused:
        import json
        import urllib.parse
        http = response.status
        if 300 <= http < 400:  # urllib would drop the body, and take the credentials along
            there = urllib.parse.urlsplit(str(response.headers.get("Location", "")))
            to = plain(f"{there.scheme}://{there.netloc}" if there.netloc else "?")
            return Refused("moved", http, server=self.server, to=to)
        try:
            found = json.loads(response.read(LINE_LIMIT))
            code, detail = int(found["code"]), plain(str(found["error"]))
        except Exception:  # no JSON of ntfy's, or the connection ended
            code, detail = 0, ""
        mend = next((key for key in (f"mend_{code}", f"mend_{http}") if key in MESSAGES), "mend")
        return Refused("refused", http, code, server=self.server, detail=detail, mend=mend)


class Stream:
    """An open stream; `embedded` where the server is a4p's own."""

    def __init__(self, response: Any, sockets: list[Any]) -> None:
        self.response = response
        self.sockets = sockets
        self.embedded = response.headers.get("X-A4P") == "1"

    def __iter__(self) -> Iterator[Json]:
        """Each event until the stream ends: cut, reset, silent for SILENCE, or closed."""
        import http.client
        whole = True
        try:
            while True:
                line = self.response.readline(LINE_LIMIT)
                event = event_of(line) if whole else None
                whole = line.endswith(b"\n")  # the rest of an overlong line is no event
                if not line:
                    return
                if event:
                    yield event
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # AttributeError: closed by another thread in the middle of a read

    def close(self) -> None:
        """End the stream, from any thread."""
        import contextlib
        for sock in self.sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(2)


def authorization(config: Config) -> str:
    """The Authorization header's value: Bearer, Basic, or "" for no header at all."""
    import base64
    if config.token:
        return f"Bearer {config.token}"
    pair = f"{config.user}:{config.password}"
    return "Basic " + base64.b64encode(pair.encode()).decode() if pair != ":" else ""


def encode(body: Json) -> bytes:
    r"""JSON as ntfy counts it best: UTF-8, not \u escapes (ntfy 2.13: 4095 bytes of Cyrillic
    escaped are over the limit); a lone surrogate becomes "?"."""
    import json
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def event_of(line: bytes) -> Json | None:
    """The event on a line of a stream, None for anything that is none."""
    import json
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


class Inbox:
    """All that arrives on the topics for as long as a call waits, as one queue of events.

    One thread reads the stream and opens it again after a break; another polls while there is
    no open stream. `since` is the id of the question's own push: ntfy gives exactly what came
    after it. Each event carries the number of the request that brought it as `via`.
    """

    def __init__(self, ntfy: Ntfy, topics: Sequence[str]) -> None:
        import queue
        import threading
        self.ntfy = ntfy
        self.topics = list(topics)
        self.since = ""
        self.embedded = False
        self.refusal: Refused | None = None
        self.opened = threading.Event()  # the first `open` or the first refusal came
        self.requests = 0
        self._events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._live = threading.Event()
        self._poll_wanted = threading.Event()
        self._closed = threading.Event()
        self._stream: Stream | None = None
        background(self._stream_loop)
        background(self._poll_loop)

    def get(self, seconds: float) -> Json | None:
        """The next message within `seconds`, else None."""
        import queue
        try:
            return self._events.get(timeout=max(0.001, seconds))
        except queue.Empty:
            return None

    def put(self, event: Json) -> None:
        """Add an event to the queue."""
        self._events.put(event)

    def follow(self, push_id: str, requests_before: int) -> None:
        """From now on breaks are bridged from this push; look at once where one may have been."""
        self.since = push_id
        if not self._live.is_set() or self.requests != requests_before:
            self._poll_wanted.set()

    def close(self) -> None:
        """End both threads."""
        self._closed.set()
        self._poll_wanted.set()
        if self._stream:
            self._stream.close()

    def _stream_loop(self) -> None:
        failures = 0
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._read_stream()
            except Refused as error:
                if error.http == 403 and len(self.topics) == 2:
                    del self.topics[1]  # the question's topic may not be readable: a help only
                    continue
                if error.http in (401, 403) or error.key in ("moved", "bad_tls", "socks"):
                    self.refusal = error
                self.opened.set()
            self._live.clear()
            self._poll_wanted.set()
            failures = 0 if time.monotonic() - began > 10 else failures + 1
            self._closed.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])

    def _read_stream(self) -> None:
        via = self._next_request()
        self._stream = stream = self.ntfy.stream(self.topics, self.since)
        self.embedded = stream.embedded
        if self._closed.is_set():
            stream.close()
        for event in stream:
            if event["event"] == "open":
                self._live.set()
                self.opened.set()
            self._take(event, via)

    def _poll_loop(self) -> None:
        pause = POLL_EVERY
        while not self._closed.is_set():
            self._poll_wanted.wait()
            if self._live.is_set():
                self._poll_wanted.clear()
                pause = POLL_EVERY
            if self.since:
                pause = self._poll(pause)
            self._closed.wait(pause if self.since else 0.2)

    def _poll(self, pause: float) -> float:
        """Poll once; returns the seconds to wait before the next."""
        via = self._next_request()
        try:
            for event in self.ntfy.poll(self.topics, self.since):
                self._take(event, via)
        except Refused:
            pause *= 2
        return min(pause * 1.2, POLL_SLOWEST)

    def _next_request(self) -> int:
        self.requests += 1
        return self.requests

    def _take(self, event: Json, via: int) -> None:
        import re
        if (event["event"] == "message" and isinstance(event.get("time"), int)
                and re.fullmatch(EVENT_ID_FORM, str(event.get("id")))):
            self.put({**event, "via": via})


# === The push: what the phone shows =========================================


class Sender:
    """Who asks: the agent's title, the project, the session."""

    def __init__(self, agent: str, project: str = "", session: str = "") -> None:
        self.agent = agent
        self.project = project
        self.session = session


class Push:
    """One question on its way to the phone: composes the ntfy messages for it."""

    def __init__(self, config: Config, sender: Sender, question: Question,
                 place: tuple[int, int] = (1, 1), embedded: bool = False) -> None:
        self.config = config
        self.sender = sender
        self.question = question
        self.place = place
        self.embedded = embedded
        self.id = "q" + random_id(10)
        self.tag = ""
        self.tagged = False  # whether the tag was shown: others wait
        self.asides = False  # whether a word about it is on the phone, too
        self.deadline = 0.0
        self.reply_url = f"{config.server}/{config.topic}{REPLY_SUFFIX}"
        count = f" ({place[0]}/{place[1]})" if place[1] > 1 else ""
        header = " ".join(question.header.split()) or self.say("question")
        self.title = cut_end(f"{sender.agent}: {header}", TITLE_LIMIT - len(count)) + count
        token = config.reply_token or (config.token if config.share_token else "")
        self.may_tap = bool(token) or not authorization(config)
        self.headers = {"Content-Type": "text/plain; charset=utf-8",
                        **({"Authorization": "Bearer " + token} if token else {})}

    def say(self, key: str, **values: object) -> str:
        """A text in the phone's language."""
        return say(self.config.lang, key, **values)

    def compose(self) -> Json:
        """The JSON to publish, made smaller until it fits; raises A4pError("too_big").

        What gives way: descriptions, the middle of the text, the buttons, the shown labels.
        """
        labels = self.question.labels
        tap = (self.may_tap and not self.question.multi and 0 < len(labels) <= BUTTONS
               and all(map(str.isprintable, labels))  # others would not come back whole
               and len({cut_end(label, BUTTON_SHOWN) for label in labels}) == len(labels))
        for aim, limit in ((WHOLE_AIM, WHOLE_AIM), (BODY_LIMIT, MESSAGE_LIMIT)):
            for described, taps, shown in ((True, tap, 0), (False, tap, 0), (False, False, 0),
                                           (False, False, LABEL_SHOWN)):
                body = self._fitted(described, taps, shown, aim, limit)
                if body:
                    return self._with_structure(body)
        raise A4pError("too_big")

    def closing(self, state: str, answer: str = "") -> Json:
        """The quiet message that replaces the push once it is over."""
        answer = cut_middle(answer, TEXT_FLOOR * 4)
        body = self._message(self.id, self.say(state, answer=answer), priority=2)
        if self.embedded:
            body["a4p"] = {"v": 1, "kind": "end", "id": self.id, "state": state, "answer": answer}
        return body

    def aside(self, text: str, actions: Sequence[Json] = ()) -> Json:
        """A word about this question, such as a reply asked back."""
        self.asides = True
        more: Json = {"actions": actions} if actions else {}
        if self.embedded:
            more["a4p"] = {"v": 1, "deadline": int(self.deadline)}
        return self._message(self.id + "b", text, **more)

    def button(self, label: str, reply: str, question_id: str) -> Json:
        """An http action that sends `reply` to a question."""
        return {"action": "http", "label": cut_end(label, BUTTON_SHOWN), "method": "POST",
                "url": f"{self.reply_url}?title={question_id}", "headers": self.headers,
                "body": reply, "clear": True}

    def _message(self, sequence_id: str, text: str, **more: object) -> Json:
        return {"topic": self.config.topic, "title": self.title, "message": text,
                "priority": self.config.priority, "sequence_id": sequence_id, **more}

    def _fitted(self, described: bool, taps: bool, shown: int, aim: int, limit: int) -> Json | None:
        """The body with as much of the question's text as fits; None where too little does."""
        text, best = self.question.text, None
        room = high = size(text)  # bytes; how many more JSON makes of them differs
        low = min(TEXT_FLOOR, high)
        while room >= low:
            body = self._body(cut_middle(text, room), described, taps, shown)
            if len(encode(body)) <= aim and size(body["message"]) <= limit:
                best, low = body, room + 16
            elif described:
                return None
            else:
                high = room - 1
            room = (low + high) // 2 if low <= high else 0
        return best

    def _body(self, text: str, described: bool, taps: bool, shown: int) -> Json:
        body = self._message(self.id, self._text(text, described, taps, shown))
        if taps:
            body["actions"] = [self.button(label, label, self.id)
                               for label in self.question.labels]
        elif self.question.options:
            body["actions"] = [{"action": "view", "label": self.say("reply"),
                                "url": self.reply_url, "clear": False}]
        if self.embedded or self.config.phone == "ios":
            body["click"] = self.reply_url
        return body

    def _text(self, text: str, described: bool, taps: bool, shown: int) -> str:
        rows = []
        for mark, option in zip(self.question.marks, self.question.options):
            label = " ".join(option.label.split())
            label = cut_end(label, shown) if shown else label
            detail = " ".join(option.description.split()) if described else ""
            rows.append(f"{mark}. {label}" + (f" - {detail}" if detail else ""))
        marks = self.question.marks
        some = ",".join(marks[:3:2] if len(marks) > 2 else marks)
        notes = [self.say("tap" if taps else self._hint(), some=some)]
        if self.tagged:
            notes.append(self.say("tagged", tag=self.tag))
        notes += [self.say("browser", url=self.reply_url), self.sender.project]
        blocks = [text.strip(), "\n".join(rows), "\n".join(filter(None, notes))]
        return "\n\n".join(filter(None, blocks))

    def _hint(self) -> str:
        if not self.question.options:
            return "words"
        return ("letter" if self.question.lettered else "number") + "s" * self.question.multi

    def _with_structure(self, body: Json) -> Json:
        """Towards a4p's own server: the question's structure, for the answer page."""
        question, (n, of) = self.question, self.place
        options = [{key: value for key, value in vars(option).items() if value}
                   for option in question.options]
        extra = {"v": 1, "kind": question.kind, "id": self.id, "agent": self.sender.agent,
                 "project": self.sender.project, "header": question.header, "n": n, "of": of,
                 "text": question.text, "options": options, "marks": question.marks,
                 "multi": question.multi, "custom": question.words,
                 "deadline": int(self.deadline), "tag": self.tag if self.tagged else ""}
        full = {**body, "a4p": extra}
        return full if self.embedded and len(encode(full)) <= EXTRA_LIMIT else body


def size(text: str) -> int:
    """Bytes of UTF-8, as ntfy counts."""
    return len(text.encode("utf-8", "replace"))


def cut_end(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes, cut between characters, with … for what is gone.

    >>> cut_end("日本語テキスト", 12)
    '日本語…'
    """
    if size(text) <= limit:
        return text
    return text.encode("utf-8", "replace")[: max(0, limit - 3)].decode("utf-8", "ignore") + "…"


def cut_middle(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes: two thirds of its start, " … ", the rest of its end.

    >>> cut_middle("abcdefghijklmnopqrstuvwxyz", 17)
    'abcdefgh … wxyz'
    """
    if size(text) <= limit:
        return text
    data, room = text.encode("utf-8", "replace"), max(0, limit - 5)
    head, tail = room * 2 // 3, len(data) - (room - room * 2 // 3)
    return " … ".join(part.decode("utf-8", "ignore") for part in (data[:head], data[tail:]))


def tag_of(text: str) -> tuple[str, str]:
    """The tag that a typed reply starts with, and the reply behind it; ("", text) without one.

    >>> tag_of("k7 3"), tag_of("#K7: use sqlite"), tag_of("k7"), tag_of("s3bucket")
    (('k7', '3'), ('k7', 'use sqlite'), ('', 'k7'), ('', 's3bucket'))
    """
    import re
    found = re.match(rf"\s*[#＃]?({TAG_FORM})(?:\s*[:：,，]\s*|\s+)(?=\S)", text, re.I)
    return (found[1].lower(), text[found.end():]) if found else ("", text)


# === Asking: one conversation with the phone ================================


class Outcome:
    """How a question ended: `state` (answered, timeout, released, desk, ...) and `answer`."""

    def __init__(self, state: str, answer: Answer | None = None) -> None:
        self.state = state
        self.answer = answer


class Conversation:
    """Asks questions one after the other over one Inbox. Use it in a `with`.

    `ended` is asked every TICK whether the question was decided elsewhere: it returns "" or
    the state to end with. `close_push` gets the publish that replaces a push when it is over.
    """

    def __init__(self, state: State, sender: Sender, timeout: float,
                 close_push: Callable[[Json], object],
                 ended: Callable[[], str] = lambda: "") -> None:
        self.config = state.config
        self.log = state.log
        self.pending = state.pending
        self.sender = sender
        self.timeout = timeout
        self.close_push = close_push
        self.ended = ended
        self.ntfy = Ntfy(self.config)
        self.inbox = Inbox(self.ntfy, [self.config.topic + REPLY_SUFFIX, self.config.topic])
        self.seen: set[str] = set()
        self.pushed: Push | None = None

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *error: object) -> None:
        self.inbox.close()
        self._over("withdrawn")  # where a signal or an error took the question

    def ask(self, question: Question, place: tuple[int, int] = (1, 1)) -> Outcome:
        """Push the question and wait for its end; raises Refused, A4pError("too_big")."""
        self.inbox.opened.wait(OPEN_WAIT)
        if self.inbox.refusal:
            raise self.inbox.refusal
        push = Push(self.config, self.sender, question, place, self.inbox.embedded)
        push.deadline = time.time() + self.timeout
        push.compose()  # before anything is registered: it may be too big
        self.pushed = push
        push.tag = self.pending.add({
            "id": push.id, "agent": self.sender.agent, "project": self.sender.project,
            "text": question.text[:300], "since": time.time(), "deadline": push.deadline,
            "title": push.title, "closing": push.closing("lost")}, question.labels)
        push.tagged = len(self.pending.live()) > 1
        requests = self.inbox.requests
        message = self._publish(push)
        self.log.line(f"{push.id} {self.sender.agent} asks: {question.text}")
        self.inbox.follow(message["id"], requests)
        import subprocess  # noqa: F401 (for the receipt: now, while only the person is awaited)
        outcome = Wait(self, push, message["time"], requests).run()
        self._over(outcome.state, outcome.answer.joined() if outcome.answer else "")
        return outcome

    def _publish(self, push: Push) -> Json:
        body = push.compose()
        try:
            return dict(within(PUBLISH_WAIT - OPEN_WAIT, lambda: self.ntfy.publish(body),
                               self.ntfy.server))
        except Refused as error:
            self.log.line(f"{push.id} {self.sender.agent} not delivered: {error}")
            if error.http not in (0, 200):  # refused: nothing can be on the phone
                self.pushed = None
                self.pending.drop(push.tag)
            self._over("released")
            raise

    def _over(self, state: str, answer: str = "") -> None:
        push = self.pushed
        if push is None:
            return
        self.pending.drop(push.tag)
        self.close_push(push.closing(state, answer))
        if push.asides:
            self.close_push({"topic": self.config.topic, "delete": push.id + "b"})
        self.pushed = None  # last: a signal before this would leave the push alive
        self.log.line(f"{push.id} {self.sender.agent} {state}", *([answer] if answer else []))


class Wait:
    """The wait for one push: which of the arriving events is its reply."""

    def __init__(self, talk: Conversation, push: Push, pushed_at: int, requests: int) -> None:
        self.talk = talk
        self.push = push
        self.pushed_at = pushed_at  # the server's clock, whole seconds
        self.requests = requests  # those made before the push: what they bring is live
        self.replayed: set[int] = set()  # later ones that brought what is older than the push
        self.deadline = time.monotonic() + talk.timeout
        self.asked_back = ""

    def run(self) -> Outcome:
        """Wait until the question is answered or ends otherwise."""
        while True:
            event = self.talk.inbox.get(min(TICK, self.deadline - time.monotonic()))
            outcome = self._consider(event) if event else None
            if outcome:
                return outcome
            if not self.talk.pending.waits(self.push.tag):
                return Outcome("released")
            ended = self.talk.ended()
            if ended:
                return Outcome(ended)
            if event is None and time.monotonic() >= self.deadline:
                return Outcome("timeout")

    def _consider(self, event: Json) -> Outcome | None:
        """What one event means for the question; None while it still waits."""
        if event.get("fetched") == self.push.id:
            return self._typed(event, event["message"])
        if event["time"] < self.pushed_at and event["via"] > self.requests:
            self.replayed.add(event["via"])
        if event["id"] in self.talk.seen or event.get("topic") not in self.talk.inbox.topics:
            return None
        self.talk.seen.add(event["id"])
        typed = self._kind(event)
        text = self._text_of(event) if typed is not None else ""
        if text.strip() in ("", "triggered") and text not in self.push.question.labels:
            return None  # blank: ntfy turns an empty message into "triggered"
        return self._typed(event, text) if typed else self._reply(text)

    def _kind(self, event: Json) -> bool | None:
        """True for words, False for a tap on this question's push, None for neither."""
        import re
        title = str(event.get("title", ""))
        if event["topic"] == self.talk.config.topic:
            if any(map(event.get, ("title", "tags", "click", "actions", "attachment"))):
                return None  # a push: ours, or somebody's
        elif title == self.push.id:
            return False
        elif re.fullmatch(ID_FORM, title):
            return None  # a tap for another question
        early = event["time"] == self.pushed_at and event["via"] in self.replayed
        return None if event["time"] < self.pushed_at or early else True

    def _typed(self, event: Json, text: str) -> Outcome | None:
        """Words count for the question whose tag they start with, else for the only one."""
        pending, push = self.talk.pending, self.push
        waiting = pending.live()
        if len(waiting) > 1:
            push.tagged = True  # from now on this question's tag has been seen, or will be
        tag, rest = tag_of(text)
        tags = {entry["tag"]: entry["id"] for entry in waiting if push.tagged}
        over = tag not in tags and tag in {entry["tag"] for entry in pending.entries("over")}
        meant = tags.get(tag) or (waiting[0]["id"] if len(waiting) == 1 and not over else "")
        asks = not meant and waiting and waiting[0]["id"] == push.id  # the oldest, once
        if (meant != push.id and not asks) or not pending.take(event["id"]):
            return None
        if meant:
            return self._reply(rest if tag in tags else text)
        if over:
            self._aside(push.say("tag_over", tag=tag, reply=cut_end(rest, 200)))
        else:
            self._ask_which(text, waiting)
        return None

    def _ask_which(self, reply: str, waiting: Sequence[Json]) -> None:
        """Ask on the phone which of the waiting questions a reply is for."""
        rows = [f"{one['tag']}  {one['title']}: {plain(one['text'], 60)}" for one in waiting]
        text = self.push.say("which", reply=cut_end(reply, 200)) + "\n\n" + "\n".join(rows)
        buttons = [self.push.button(f"{entry['tag']} {entry['title']}", reply, entry["id"])
                   for entry in waiting[:BUTTONS] if self.push.may_tap and size(reply) < 500]
        self._aside(cut_end(text, WHOLE_AIM // 2), buttons)

    def _text_of(self, event: Json) -> str:
        """The reply's text; "" where it is a file: a text file comes back as a message."""
        file: Any = event.get("attachment")
        if not file and not event.get("encoding"):
            return str(event.get("message", ""))
        try:
            kind, url, length = str(file["type"]), str(file["url"]), int(file["size"])
            fits = kind.startswith("text/plain") and length <= REPLY_LIMIT
        except (KeyError, TypeError, ValueError):
            fits = False
        background(lambda: self._fetch(event, url if fits else ""))
        return ""

    def _fetch(self, event: Json, url: str) -> None:
        """Put a text file's content into the inbox as if it had been typed, or ask back."""
        try:
            text = self.talk.ntfy.fetch(url)[: REPLY_LIMIT + 3].decode("utf-8")
        except (Refused, UnicodeDecodeError):
            self._aside(self.push.say("not_text"))
        else:
            self.talk.inbox.put({**event, "message": text, "fetched": self.push.id})

    def _reply(self, text: str) -> Outcome | None:
        question = self.push.question
        if fold(text) in DESK_WORDS and label_of(text, question.labels) is None:
            return Outcome("released")
        answer = question.read(text)
        if isinstance(answer, Answer):
            return Outcome("answered", answer)
        if self.asked_back == fold(text) and question.words:
            return Outcome("answered", Answer([], text.strip()))
        self.asked_back = fold(text)
        self.deadline = time.monotonic() + self.talk.timeout
        self.push.deadline = time.time() + self.talk.timeout
        marks = f"{question.marks[0]}-{question.marks[-1]}"
        key = "not_listed" if question.words else "only_listed"
        self._aside(self.push.say(key, reply=cut_end(text.strip(), 200), marks=marks))
        return None

    def _aside(self, text: str, actions: Sequence[Json] = ()) -> None:
        """Tell the phone something, without holding up the wait."""
        body = self.push.aside(text, actions)

        def publish() -> None:
            try:
                self.talk.ntfy.publish(body)
            except Refused as error:
                self.talk.log.line(f"{self.push.id} could not ask back: {error}")

        background(publish)


# === Agents: how each one asks and is answered ==============================


class Call:
    """One call of a hook that asks: the questions, and `write`, which makes the agent's JSON."""

    def __init__(self, agent: Agent, payload: Json, questions: list[Question],
                 write: Write) -> None:
        self.agent = agent
        self.payload = payload
        self.questions = questions
        self.tool = str(payload.get("tool_name", ""))
        self.write = write

    @property
    def sender(self) -> Sender:
        """Who asks, for the phone."""
        cwd = self.payload.get("cwd")
        project = os.path.basename(cwd.rstrip("/\\")) if isinstance(cwd, str) else ""
        return Sender(self.agent.title, plain(project, 60), str(self.payload.get("session_id", "")))

    def output(self, answers: Sequence[Answer]) -> Json:
        """The JSON that carries the answers back to the agent."""
        return self.write(self, answers)


class Agent:
    """What a4p knows of one agent: for each event, how it asks and how it is answered.

    `routes` holds (event, read, write): `read` gives the questions in a payload or [] where it
    is not its kind of call; the first route that finds any is taken.
    """

    def __init__(self, title: str, *routes: tuple[str, Read, Write]) -> None:
        self.title = title
        self.routes = routes

    def read(self, payload: object, desk: str) -> Call | None:
        """The call in a hook's payload; None for anything that is not ours to answer."""
        if not isinstance(payload, dict):
            return None
        if payload.get("agent_id") or payload.get("parent_session"):
            return None  # a subagent: the agents refuse its questions themselves
        for event, read, write in self.routes:
            if payload.get("hook_event_name") == event:
                questions = read(payload, desk)
                if questions:
                    return Call(self, payload, questions, write)
        return None


# The tools that ask, and what in a question its answer is found by
KEYS = {"AskUserQuestion": ("question",), "request_user_input": ("id",),
        "request_user_input_async": ("id", "title"), "ask_user_question": ("id",)}


def asks(*tools: str) -> Read:
    """A `read` for question tools."""
    def read(payload: Json, desk: str) -> list[Question]:
        tool = payload.get("tool_name")
        return questions_of(payload.get("tool_input"), KEYS[tool]) or [] if tool in tools else []

    return read


def well_formed(payload: object) -> bool:
    """Whether a payload is an object, with questions in it where its tool is one that asks."""
    if not isinstance(payload, dict):
        return False
    keys = KEYS.get(str(payload.get("tool_name")))
    return keys is None or questions_of(payload.get("tool_input"), keys) is not None


def questions_of(tool_input: object, keys: Sequence[str]) -> list[Question] | None:
    """The questions in a tool's input, in any of the agents' shapes; [] where none has options,
    None where one is malformed, or two have the same key.

    >>> rows = [{"title": "Which?", "options": ["A", "B"]}]
    >>> questions_of({"questions": rows}, ["id", "title"])[0].labels
    ['A', 'B']
    >>> questions_of({"questions": [{"question": "No options?"}]}, ["question"])
    []
    """
    rows = tool_input.get("questions") if isinstance(tool_input, dict) else None
    if not isinstance(rows, list) or not 0 < len(rows) <= 20:
        return None
    questions = [question_of(row, keys) for row in rows]
    found = [question for question in questions if question]
    if len({question.key for question in found}) != len(rows):
        return None
    return found if any(question.options for question in found) else []


def question_of(row: object, keys: Sequence[str]) -> Question | None:
    """One question of an agent; None where it is malformed."""
    if not isinstance(row, dict):
        return None
    text = row.get("question", row.get("title"))
    key, header = next((row[key] for key in keys if key in row), None), row.get("header", "")
    multi: Any = row.get("multiSelect", row.get("multi_select", False))
    rows = row.get("options")
    options = [option_of(item) for item in rows] if isinstance(rows, list) else []
    fits = (isinstance(text, str) and text.strip() and isinstance(key, str) and key
            and isinstance(header, str) and isinstance(multi, bool)
            and isinstance(rows, (list, type(None))) and None not in options
            and len(options) <= 50)
    if not fits:
        return None
    question = Question(str(key), header, str(text), [o for o in options if o], multi)
    return question if len(set(question.labels)) == len(options) else None


def option_of(item: object) -> Option | None:
    """One option: an object with a label, or the label itself."""
    if isinstance(item, str):
        item = {"label": item}
    if not isinstance(item, dict):
        return None
    label, description = item.get("label"), item.get("description", "")
    if not isinstance(label, str) or not label.strip() or not isinstance(description, str):
        return None
    return Option(label, description)


def claude_asks(payload: Json, desk: str) -> list[Question]:
    """The questions, at the one of Claude Code's two events that answers (2.1.332).

    PreToolUse blocks the terminal; PermissionRequest runs beside the terminal's own dialog, but
    never comes in the mode dontAsk, and perhaps not in auto.
    """
    beside = desk == "beside" and payload.get("permission_mode") not in ("dontAsk", "auto")
    if (payload.get("hook_event_name") == "PermissionRequest") != beside:
        return []
    return asks("AskUserQuestion")(payload, desk)


def claude_input(call: Call, answers: Sequence[Answer]) -> Json:
    """The tool's whole input plus `answers`: it replaces the input, it is not merged (2.1.332)."""
    pairs = zip(call.questions, answers)
    texts = {question.text: claude_text(question, answer) for question, answer in pairs}
    return {**call.payload["tool_input"], "answers": texts}


def claude_text(question: Question, answer: Answer) -> str:
    """One answer as Claude Code reads it: labels joined by ", ", quoted where they hold that.

    >>> q = Question("", "", "", [Option("Auth"), Option("Metrics, tracing")], multi=True)
    >>> claude_text(q, Answer(["Auth", "Metrics, tracing"], "and logs"))
    'Auth, "Metrics, tracing", and logs'
    """
    import json
    if not question.multi:
        return answer.text or answer.selected[0]
    labels = [json.dumps(label, ensure_ascii=False) if ", " in label or '"' in label else label
              for label in answer.selected]
    return ", ".join(labels + ([answer.text] if answer.text else []))


def claude_pre_tool_use(call: Call, answers: Sequence[Answer]) -> Json:
    """PreToolUse: allow with the answers as the tool's input."""
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow",
                                   "updatedInput": claude_input(call, answers)}}


def claude_permission(call: Call, answers: Sequence[Answer]) -> Json:
    """PermissionRequest: the same, in that event's form."""
    decision = {"behavior": "allow", "updatedInput": claude_input(call, answers)}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def denial(call: Call, answers: Sequence[Answer]) -> Json:
    """PreToolUse: the only way in is a refusal whose reason reads as the answer.

    Codex 0.171 shows the model `Tool call blocked by PreToolUse hook: REASON. Tool: NAME`.
    """
    import json
    told = "; ".join(f"{question.text} -> {answer.joined()}"
                     for question, answer in zip(call.questions, answers))
    native = {"answers": {question.key: {"answers": native_answers(answer)}
                          for question, answer in zip(call.questions, answers)}}
    reason = (f"This is no error: the user has answered, from the phone. {told}. "
              f"As the tool's result: {json.dumps(native, ensure_ascii=False)} "
              f"Go on with these answers, and do not call {call.tool} again for them")
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
                                   "permissionDecisionReason": reason}}


def native_answers(answer: Answer) -> list[str]:
    """Codex's own form: labels, and words beside them as a note (0.171).

    >>> native_answers(Answer(["JWT"], "rotate keys")), native_answers(Answer([], "use mysql"))
    (['JWT', 'user_note: rotate keys'], ['use mysql'])
    """
    if not answer.text:
        return answer.selected
    return [*answer.selected, "user_note: " + answer.text] if answer.selected else [answer.text]


def dsh_answers(call: Call, answers: Sequence[Answer]) -> Json:
    """DSH's strict output schema: no key beyond id, selected, custom (0.2.1)."""
    return {"answers": [{"id": question.key, "selected": answer.selected,
                         **({"custom": answer.text} if answer.text else {})}
                        for question, answer in zip(call.questions, answers)]}


AGENTS = {
    "claude": Agent("Claude", ("PreToolUse", claude_asks, claude_pre_tool_use),
                    ("PermissionRequest", claude_asks, claude_permission)),
    "codex": Agent("Codex", ("PreToolUse", asks("request_user_input", "request_user_input_async"),
                             denial)),
    "dsh": Agent("DSH", ("AskUserQuestion", asks("ask_user_question"), dsh_answers),
                 ("PreToolUse", asks("ask_user_question"), denial)),
}


class Transcript:
    """Tells when a question was decided in Claude Code's terminal, which sends no signal.

    The JSONL file holds the assistant's `tool_use` with the same questions, then a `tool_result`
    with its id: within 0.2 s of the answer (2.1.332).
    """

    def __init__(self, call: Call) -> None:
        self.path = str(call.payload.get("transcript_path", "")).replace("\0", "")
        self.texts = [question.text for question in call.questions]
        self.tool = call.tool
        self.ids: set[str] = set()
        self.rest = b""
        self.at = 0
        self.decided()  # what was answered before is an older call of the same text

    def decided(self) -> bool:
        """Whether the terminal has decided since the last look."""
        try:
            size = os.stat(self.path).st_size
            if size <= self.at:
                return False
            with open(self.path, "rb") as file:
                file.seek(self.at or max(0, size - 1_000_000))
                data = self.rest + file.read(8_000_000)
                self.at = file.tell()
        except OSError:
            return False
        *lines, self.rest = data.split(b"\n")
        return sum(map(self._decides, lines)) > 0  # every line is to be read

    def _decides(self, line: bytes) -> bool:
        import json
        if self.tool.encode() not in line and b"tool_result" not in line:
            return False
        found = False
        try:
            for block in json.loads(line)["message"]["content"]:
                if block["type"] == "tool_use" and block["name"] == self.tool:
                    if [row["question"] for row in block["input"]["questions"]] == self.texts:
                        self.ids.add(block["id"])
                elif block["type"] == "tool_result" and block["tool_use_id"] in self.ids:
                    self.ids.discard(block["tool_use_id"])
                    found = True
        except (ValueError, TypeError, KeyError, RecursionError):
            return found
        return found


# === The hook ===============================================================


def run_hook(args: Sequence[str]) -> int:
    """`a4p.py hook AGENT`: JSON on stdin, JSON or nothing on stdout; returns 0, always."""
    known = len(args) == 1 and args[0] in AGENTS
    terminal = os.isatty(0)
    try:
        home = home_dir()
        if known and not terminal and read_out(home) is None:
            return 0  # at home: nothing heavier than this was loaded
        state = State(home)
    except OSError:
        return 0  # a relative A4P_HOME in a folder that is gone
    try:
        while os.open(os.devnull, os.O_RDWR) < 3:
            continue  # a descriptor that came closed must not become the log or a socket
        if terminal:
            print(say(resolve_lang("auto"), "hook_hint"), file=sys.stderr)
        if terminal or not known:
            state.log.line("hook: called from a terminal, or for no agent a4p knows", *args[:3])
        else:
            Hook(state, AGENTS[args[0]]).run()
    except Released:
        state.log.line("hook: ended by a signal")
    except A4pError as error:
        state.log.line(f"hook: {error}")
    except Exception as error:  # whatever it is, the agent asks at the terminal
        state.log.failure("hook", error)
    return 0


class Hook:
    """One call of a hook in the mode out."""

    def __init__(self, state: State, agent: Agent) -> None:
        self.state = state
        self.agent = agent
        self.closings: list[Json] = []

    def run(self) -> None:
        """Ask, hand the answer over, and only then tell the phone."""
        on_signals(release)
        try:
            payload = read_payload()
            call = self.agent.read(payload, self.state.config.desk)
            if call is None and not well_formed(payload):
                raise A4pError("stdin_json", detail="not the shape of a hook's call")
            output = self._ask(call) if call else None
            if output is not None:
                on_signals(ignore)  # the answer is on its way
                hand_over(output)
        finally:
            on_signals(ignore)
            self._deliver()

    def _ask(self, call: Call) -> Json | None:
        out, config = read_out(self.state.home), self.state.config
        if not config.topic:
            raise UsageError("no_config")
        sweep(self.state)
        end = time.monotonic() + WAIT_LIMIT  # for the whole call: below the hook's own timeout
        answers: list[Answer] = []
        with Conversation(self.state, call.sender, 0, self.closings.append,
                          Watch(call).ended) as talk:
            for number, question in enumerate(call.questions, 1):
                talk.timeout = min(out and out.wait or config.timeout, end - time.monotonic())
                outcome = talk.ask(question, (number, len(call.questions)))
                if outcome.answer is None:
                    for answer, asked in zip(answers, call.questions):
                        self.state.log.line(f"not handed over: {asked.text}", answer.joined())
                    return None
                answers.append(outcome.answer)
                if number < len(call.questions):
                    self._deliver()
        return call.output(answers)

    def _deliver(self) -> None:
        deliver_later(self.state, self.closings)
        self.closings.clear()


class Watch:
    """Looks whether a call still needs its answer: the agent lives, the terminal is undecided."""

    def __init__(self, call: Call) -> None:
        pid = os.environ.get("CLAUDE_PID", "")
        self.agent = int(pid) if call.agent is AGENTS["claude"] and pid.isdecimal() else 0
        self.parent = os.getppid()
        beside = call.payload["hook_event_name"] == "PermissionRequest"
        self.transcript = Transcript(call) if beside else None

    def ended(self) -> str:
        """"" while it does, else the state to end with."""
        if os.getppid() != self.parent or (self.agent and not alive(self.agent)):
            return "withdrawn"
        return "desk" if self.transcript and self.transcript.decided() else ""


def alive(pid: int) -> bool:
    """Whether a process of this pid is there (os.kill would end it on Windows: True there)."""
    try:
        os.kill(pid, 0) if sys.platform != "win32" else None
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def release(number: int, frame: object) -> None:
    """A signal handler: the question is taken away."""
    on_signals(ignore)  # Claude Code 2.1.197 sends SIGTERM twice
    raise Released


def ignore(number: int, frame: object) -> None:
    """A signal handler: nothing changes."""


def on_signals(handler: Callable[[int, Any], None]) -> None:
    """From now on SIGTERM, SIGHUP and SIGINT are for `handler`."""
    import signal
    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), handler)


def read_payload() -> object:
    """The JSON on stdin; raises A4pError over STDIN_LIMIT bytes or after STDIN_WAIT seconds."""
    import json
    import queue
    done: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        data, part = bytearray(), b"-"
        while part and len(data) <= STDIN_LIMIT:
            try:
                part = os.read(0, 1 << 16)
            except OSError:
                part = b""
            data += part
        done.put(bytes(data))

    background(read)
    try:
        data = done.get(timeout=STDIN_WAIT)
        if len(data) > STDIN_LIMIT:
            raise A4pError("stdin_big", limit=STDIN_LIMIT)
        return json.loads(data.decode("utf-8"), parse_float=finite, parse_constant=finite)
    except queue.Empty:
        raise A4pError("stdin_slow", seconds=int(STDIN_WAIT)) from None
    except (ValueError, RecursionError) as error:
        raise A4pError("stdin_json", detail=plain(str(error))) from None


def finite(text: str) -> float:
    """A number that JSON has; raises ValueError for NaN, Infinity and 1e999.

    >>> finite("1.5")
    1.5
    """
    value = float(text)
    if value - value != 0:
        raise ValueError(f"{text} is no number of JSON")
    return value


def hand_over(output: Json) -> None:
    """Write one line of ASCII JSON to stdout and close it: the agent goes on from here."""
    import json
    data = json.dumps(output, allow_nan=False).encode() + b"\n"
    while data:
        data = data[os.write(1, data):]
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # closed for the agent, and nothing can be added by accident
    os.close(null)


def sweep(state: State) -> None:
    """Replace the pushes of processes that are gone."""
    deliver_later(state, [entry["closing"] for entry in state.pending.dead()])


def deliver_later(state: State, closings: Sequence[Json]) -> None:
    """Publish from a process of its own, which holds none of this one's descriptors."""
    import json
    import subprocess
    for at in range(0, len(closings), 20):
        job = json.dumps(list(closings[at: at + 20])).encode()  # fits a pipe: no waiting
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.abspath(__file__), "deliver"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, "A4P_HOME": state.home})
            if child.stdin:
                child.stdin.write(job)
                child.stdin.close()
        except OSError as error:
            state.log.line(f"receipt: {error}")


def run_deliver() -> int:
    """The process of `deliver_later`: publish what stdin holds; failures are logged only."""
    state = State()
    try:
        closings: Any = read_payload()
        ntfy = Ntfy(state.config)
        for body in closings:
            if body["topic"] == state.config.topic and "delete" in body:
                ntfy.delete(body["topic"], body["delete"])
            elif body["topic"] == state.config.topic:
                ntfy.publish(body)
    except A4pError as error:
        state.log.line(f"receipt: {error}")
    except Exception as error:
        state.log.failure("receipt", error)
    return 0


# === QR code (ISO/IEC 18004) =====================================================================

# Level L, versions 1..10: data codewords, error correction codewords of each block, blocks.
QR_VERSIONS = ((19, 7, 1), (34, 10, 1), (55, 15, 1), (80, 20, 1), (108, 26, 1), (136, 18, 2),
               (156, 20, 2), (194, 24, 2), (232, 30, 2), (274, 18, 4))
QR_ANSI = "\x1b[38;5;231;48;5;16m{}\x1b[0m"  # white on black whatever the terminal's theme


def qr_lines(data: str) -> list[str]:
    """Return the QR code of `data` as lines of text, each showing two rows of modules.

    The light modules are the drawn ones, which is right on a dark terminal; QR_ANSI.format(line)
    is right on every terminal that has colours. Raises ValueError over 271 bytes of UTF-8.

    >>> len(qr_lines("http://192.0.2.7:8080/a4p-topic#t=token"))
    19
    """
    rows = [[False] * 4 + row + [False] * 4 for row in qr_matrix(data.encode())]
    quiet = [[False] * len(rows[0])] * 4
    rows = quiet + rows + quiet + quiet[:1]  # the size is odd: one row more fills the last line
    return ["".join("█▀▄ "[2 * upper + lower] for upper, lower in zip(*pair))
            for pair in zip(rows[::2], rows[1::2])]


def qr_matrix(data: bytes) -> list[list[bool]]:
    """Return the rows of the smallest QR code that holds `data`; True is a dark module.

    Raises ValueError over 271 bytes, the most that version 10 holds.
    """
    version, words = _qr_words(data)
    size = 4 * version + 17
    columns = [x for x in range(size - 1, -1, -1) if x != 6]
    path = [(x, y if pair % 4 else size - 1 - y) for pair in range(0, size - 1, 2)
            for y in range(size) for x in columns[pair:pair + 2]]  # up, then down, and so on
    fixed = _qr_patterns(version, size, 0)
    bits = [word >> i & 1 for word in words for i in range(7, -1, -1)] + [0] * 7
    cells = dict(zip([cell for cell in path if cell not in fixed], bits))
    codes = []
    for mask in range(8):
        dark = {cell: bit ^ (_qr_masks(*cell)[mask] == 0) for cell, bit in cells.items()}
        dark.update(_qr_patterns(version, size, mask))
        codes.append([[dark[x, y] == 1 for x in range(size)] for y in range(size)])
    return min(codes, key=_qr_penalty)


def _qr_words(data: bytes) -> tuple[int, list[int]]:
    """Return the version and all its codewords: the data, in turn from each block, the sums."""
    if len(data) > 271:
        raise ValueError(f"too long for a QR code: {len(data)} bytes, at most 271")
    version = next(v for v, row in enumerate(QR_VERSIONS, 1) if len(data) + 2 + v // 10 <= row[0])
    room, ecc, blocks = QR_VERSIONS[version - 1]
    head = 2 + version // 10  # bytes: mode, length (8 bits, 16 in version 10), terminator
    bits = (4 << 8 * head - 8 | len(data)) << 8 * len(data) | int.from_bytes(data, "big")
    words = (bits << 4).to_bytes(len(data) + head, "big") + b"\xec\x11" * room  # then padding
    cuts = [sum((room + k) // blocks for k in range(i)) for i in range(blocks + 1)]
    parts = [words[cuts[i]:cuts[i + 1]] for i in range(blocks)]
    sums = [_qr_remainder(part, ecc) for part in parts]
    return version, [part[i] for table in (parts, sums) for i in range(len(table[-1]))
                     for part in table if i < len(part)]


def _qr_remainder(words: bytes, ecc: int) -> bytes:
    """Return the Reed-Solomon codewords of one block, over GF(256) with polynomial 0x11d."""
    power = [1]
    while len(power) < 255:
        power.append(power[-1] << 1 ^ (power[-1] >> 7) * 0x11D)

    def times(a: int, b: int) -> int:
        return power[(power.index(a) + power.index(b)) % 255] if a and b else 0
    divisor, rest = [1], [0] * ecc
    for root in power[:ecc]:
        divisor = [a ^ times(b, root) for a, b in zip([*divisor, 0], [0, *divisor])]
    for word in words:
        factor = word ^ rest[0]
        rest = [a ^ times(b, factor) for a, b in zip([*rest[1:], 0], divisor[1:])]
    return bytes(rest)


def _qr_bch(value: int, degree: int, divisor: int) -> int:
    """Return value with its check bits appended, `degree` of them."""
    rest = value << degree
    for i in range(5, -1, -1):  # versions have 6 bits, formats 5
        rest ^= (rest >> degree + i & 1) * divisor << i
    return value << degree | rest


def _qr_patterns(version: int, size: int, mask: int) -> dict[tuple[int, int], int]:
    """Return the modules that hold no data: alignment, timing, finders, version, format."""
    steps = {6, size - 7 if version > 1 else 6, (size - 1) // 2 if version > 6 else 6}
    squares = [(x, y, "101") for x in steps for y in steps if abs(x - y) != size - 13]
    squares += [(x, y, "11010") for x, y in ((3, 3), (3, size - 4), (size - 4, 3))]
    cells = {}
    for x, y, rings in squares:
        reach = range(1 - len(rings), len(rings))
        cells.update({(x + i, y + j): int(rings[max(abs(i), abs(j))])
                      for i in reach for j in reach})
    cells.update({cell: 1 - i % 2 for i in range(8, size - 8) for cell in ((i, 6), (6, i))})
    for i in range(18 * (version > 6)):
        x, y = size - 11 + i % 3, i // 3
        cells[x, y] = cells[y, x] = _qr_bch(version, 12, 0x1F25) >> i & 1
    for i in range(15):  # level and mask, twice
        first = (8, i + i // 6) if i < 8 else (15 - i - i // 9, 8)
        second = (size - 1 - i, 8) if i < 8 else (8, size - 15 + i)
        cells[first] = cells[second] = (_qr_bch(8 | mask, 10, 0x537) ^ 0x5412) >> i & 1
    return {**cells, (8, size - 8): 1}


def _qr_masks(x: int, y: int) -> tuple[int, ...]:
    """Return 0 for each of the eight masks that inverts the module."""
    both, three = x * y % 2, x * y % 3
    return ((x + y) % 2, y % 2, x % 3, (x + y) % 3, (x // 3 + y // 2) % 2, both + three,
            (both + three) % 2, (x + y + three) % 2)


def _qr_penalty(code: list[list[bool]]) -> int:
    """Return how hard a code is to read: runs, finder look-alikes, squares, imbalance."""
    import re
    lines = ["".join(" #"[dark] for dark in line) for line in [*code, *zip(*code)]]
    runs = sum(len(run) - 2 for line in lines for run in re.findall("#{5,}| {5,}", line))
    alike = sum(len(re.findall("(?=# ### # {4}| {4}# ### #)", line)) for line in lines)
    squares = sum(len(set(upper[i:i + 2] + lower[i:i + 2])) == 1
                  for upper, lower in zip(code, code[1:]) for i in range(len(code) - 1))
    dark = sum(map(sum, code)) * 100 / len(code) ** 2
    return runs + 40 * alike + 3 * squares + 10 * int(abs(dark - 50) / 5)


# === The answer page: what `serve` shows ====================================

PAGE = r"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<title>a4p</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --ground: light-dark(#f4f3f0, #121316); --card: light-dark(#fff, #1c1e22);
  --ink: light-dark(#1b1d21, #ececee); --soft: light-dark(#585d66, #a7abb4);
  --line: light-dark(#dcdad4, #31343a); --edge: light-dark(#83878f, #7b808a);
  --press: light-dark(#eceff6, #272b33); --accent: light-dark(#1d56b8, #93b9ff);
  --on: light-dark(#fff, #0d1a30); --bad: light-dark(#ae1f1a, #ff9f96);
  --warm: light-dark(#7d4800, #f3c173); --good: light-dark(#1c6a3a, #86d5a2);
}
* { box-sizing: border-box; margin: 0; }
html { background: var(--ground); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { max-width: 42rem; margin: 0 auto; overflow-wrap: anywhere;
  font: 1.0625rem/1.45 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  padding: max(1rem, env(safe-area-inset-top)) 1rem max(3rem, env(safe-area-inset-bottom)); }
b, h2, .mark, .tag, .main, .send, .quiet, .card .short { font-weight: 600; }
h1 { font-size: 1.125rem; }
h2 { font-size: 1rem; margin: 2.25rem .25rem .75rem; color: var(--soft); }
ul { list-style: none; padding: 0; }
li { padding: .75rem .25rem; border-top: 1px solid var(--line); }
a { color: var(--accent); display: block; padding: .75rem 0; }
header { padding: 0 .25rem 1rem; }
header, .head, .what { display: flex; flex: 1; flex-wrap: wrap; gap: 0 .75rem;
  align-items: baseline; justify-content: space-between; }
.connected::before { content: "●"; margin-right: .4em; color: var(--good); }
#empty { text-align: center; padding: 3.5rem 1rem; }
#live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 1rem;
  padding: 1.125rem; margin-bottom: 1rem; box-shadow: 0 1px 2px #0001, 0 6px 20px #0001; }
.card h2 { margin: .75rem 0 0; color: var(--accent); }
.soft, .head, small { color: var(--soft); font-size: .9375rem; }
.clock { font-variant-numeric: tabular-nums; }
.text { white-space: pre-wrap; }
.card .text { margin: .25rem 0 .625rem; }
.card .short { font-size: 1.25rem; line-height: 1.4; }
pre { font: .9375rem/1.5 ui-monospace, Menlo, Consolas, monospace; }
fieldset { border: 0; padding: 0; min-width: 0; }
fieldset:disabled { opacity: .55; }
button, .row, .field { font: inherit; color: inherit; background: var(--card); width: 100%;
  min-height: 3.25rem; padding: .625rem .875rem; border: 1px solid var(--edge);
  border-radius: .75rem; touch-action: manipulation; }
.row { display: flex; gap: .875rem; align-items: center; text-align: start; margin-top: .625rem; }
.row:has(:checked) { border-color: var(--accent); box-shadow: inset 0 0 0 1px var(--accent); }
.row input { flex: none; width: 1.5rem; height: 1.5rem; accent-color: var(--accent); }
.mark { min-width: 2rem; line-height: 2rem; border-radius: .5rem; text-align: center;
  color: var(--accent); background: var(--press); }
.what small { flex-basis: 100%; }
.tag { font-size: .8125rem; color: var(--soft); }
.high { color: var(--warm); }
.answered { color: var(--good); }
.danger { border-color: var(--bad); }
.danger b, .danger .mark, .risk, .bad, .soon, .lost { color: var(--bad); }
.words { display: grid; grid-template-columns: 1fr auto; gap: .375rem .5rem; }
.words label, .words .field:last-child { grid-column: 1 / -1; }
.main { color: var(--on); background: var(--accent); border-color: var(--accent); }
.send, .quiet { width: auto; color: var(--accent); }
.row ~ .words, .main, .note:not(:empty), .quiet, #key { margin-top: 1rem; }
:focus-visible, .row:has(:focus-visible) { outline: 3px solid var(--accent); outline-offset: 2px; }
@media (hover: hover) { button:not(.main):hover, .row:hover { background: var(--press); } }
</style>
<header><h1>a4p</h1><p id="state" class="soft" role="status"></p></header>
<main tabindex="-1">
<form id="gate" class="card" hidden>
<label for="key"></label><p class="soft" data-say="why"></p>
<input id="key" class="field" autocomplete="off" autocapitalize="none" required>
<button class="main" data-say="go"></button><nav></nav>
</form>
<section id="queue"></section>
<p id="empty" class="soft" data-say="empty" hidden></p>
<section id="past" hidden><h2 data-say="recent"></h2><ul></ul></section>
</main>
<p id="live" aria-live="polite"></p>
<noscript>This page needs JavaScript. Without it, answer in the ntfy app.</noscript>
<script>
"use strict";
const TEXT = {  // [English, Chinese]
  connecting: ["Connecting", "正在连接"], connected: ["Connected", "已连接"],
  lost: ["No connection, trying again", "连接已断开，正在重试"],
  queue: ["Waiting questions", "等待回答的问题"], recent: ["Recent", "最近"],
  empty: ["Nothing is waiting. Questions appear here by themselves.",
    "没有等待回答的问题。新问题会自动出现在这里。"], question: ["Question", "问题"],
  approval: ["Approval", "请求许可"], place: ["{} of {}", "第 {} 个，共 {} 个"],
  left: ["{} left", "剩余 {}"], high: ["high priority", "高优先级"],
  medium: ["medium priority", "中优先级"], low: ["low priority", "低优先级"],
  danger: ["careful", "请谨慎"], several: ["Choose one or more", "可选一项或多项"],
  submit: ["Submit", "提交"], other: ["Other", "其他"], words: ["Your answer", "你的回答"],
  send: ["Send", "发送"], none: ["Choose an option or type an answer.", "请选择一项或输入回答。"],
  sent: ["Sent: {}. Waiting for the agent.", "已发送：{}。等待代理接收。"],
  again: ["Answer again", "重新回答"], offline: ["no connection", "没有连接"],
  failed: ["Not sent ({}). Please try again.", "未能发送（{}）。请重试。"],
  answered: ["Answered: {}", "已回答：{}"], desk: ["Answered at the desk", "已在电脑前回答"],
  timeout: ["Timed out, back at the terminal", "无人回答，已回到终端"],
  released: ["Back at the terminal", "已放回终端"], ended: ["No longer waiting", "已不再等待"],
  topic: ["Topic", "主题"], token: ["Token", "令牌"], go: ["Continue", "继续"],
  why: ["It stands in the link that the server shows: /topic#t=token",
    "就在服务器显示的链接里：/主题#t=令牌"],
};
const zh = /^zh/i.test(navigator.language), $ = selector => document.querySelector(selector);
const say = (key, ...parts) => TEXT[key][+zh].replace(/{}/g, () => parts.shift());
const topic = location.pathname.slice(1).replace(/-response$/, "");
const items = new Map();    // all that is shown, by question id or message id
const seen = new Set();     // message ids: a reconnect replays what is known
const changed = new Set();  // items to draw: a replay is drawn once
const set = Object.assign;
let store = {}, source, timer, delay = 1, skew = 0, calm = 0;  // skew and calm: milliseconds
try { store = localStorage; } catch { }  // storage is off: the token lasts as long as the page

function el(kind, ...kids) {  // what comes from outside becomes text, never markup or a property
  const [tag, ...names] = kind.split("."), node = document.createElement(tag);
  node.className = names.join(" ");
  node.append(...kids.filter(Boolean));
  if (!node.firstElementChild) node.dir = "auto";
  return node;
}

// --- The connection ---
const bearer = () => store.a4pToken ? { Authorization: "Bearer " + store.a4pToken } : {};
const useToken = text => { store.a4pToken = text.replace(/[^!-~]/g, ""); };
const show = state => set($("#state"), { className: "soft " + state, textContent: say(state) });
const later = (act, seconds) => { clearTimeout(timer); timer = setTimeout(act, seconds * 1000); };

function connect() {
  if (source) source.close();
  show("connecting");
  later(lost, 15);
  const code = btoa(bearer().Authorization || "").replace(/=/g, "");
  const auth = code && "&auth=" + code.replace(/[+]/g, "-").replace(/[/]/g, "_");
  source = new EventSource(`/${topic},${topic}-response/sse?since=12h${auth}`);
  source.onmessage = event => { later(lost, 77); take(JSON.parse(event.data)); };
  source.onerror = lost;
  for (const name of ["open", "keepalive"]) source.addEventListener(name, event => {
    if (!event.data) return;  // the browser's own "open"
    later(lost, 77);
    delay = 1;
    skew = JSON.parse(event.data).time * 1000 - Date.now();
    show("connected");
  });
}

async function lost() {
  const refused = source.readyState === EventSource.CLOSED;
  source.close();
  show("lost");
  later(connect, delay);
  delay = Math.min(15, delay * 2);
  const answer = refused && await fetch(`/${topic}/auth`, { headers: bearer() }).catch(Object);
  if ([401, 403].includes(answer.status)) gate("token");
}

function gate(kind) {
  const form = $("#gate"), key = $("#key");
  clearTimeout(timer);
  if (!form.hidden) return;
  form.hidden = false;
  $("#gate label").textContent = say(kind);
  $("#state").textContent = "";
  set(key, kind === "token" ? { type: "password" } : { pattern: "[A-Za-z0-9_\\-]{1,55}" }).focus();
  form.onsubmit = event => {
    event.preventDefault();
    if (kind === "topic") return location.assign("/" + key.value);
    useToken(key.value);
    key.value = "";
    form.hidden = true;
    connect();
  };
}

// --- What arrives ---
const epoch = seconds => Math.min(Number(seconds) || 0, 1e11);

function take(m) {
  if (seen.has(m.id)) return;
  seen.add(m.id);
  const id = m.sequence_id || m.id, a = Object(m.a4p), asked = items.get(m.title);
  const item = items.get(id) || { id, time: m.time };
  if (/^message_/.test(m.event)) return change(item, { gone: true });  // deleted or cleared
  if (m.event !== "message") return;
  if (m.topic !== topic) return asked?.q && change(asked, { sent: m.message });
  const back = items.get(id.replace(/b$/, ""));  // a word about a question: it waits again
  if (back !== item && back?.q) return change(back, { sent: undefined, error: m.message,
    until: epoch(a.deadline) });
  items.set(id, Object.assign(item, { title: m.title, message: m.message }));
  if (a.kind === "question" || a.kind === "approval") ask(item, a);
  else if (a.kind === "end" || item.q) change(item, { end: a });
  else if (/^q[a-z2-7]{10}$/.test(id)) ask(item, { header: m.title, text: m.message });
  else change(item, {});
}

function ask(item, a) {
  if (item.end && !item.late) return;  // an old push that comes after the end
  item.card?.remove();
  const options = Array.isArray(a.options) ? a.options.map(Object) : [];
  const marks = options.map((option, i) => String(Object(a.marks)[i] ?? i + 1));
  const who = [a.agent, a.project, a.tag].filter(Boolean).join(" · ");
  const header = String(a.header || say(a.kind === "approval" ? "approval" : "question"));
  const several = a.multi === true && options.length > 0;
  const q = { ...a, options, marks, who, header, several, words: a.custom || !options.length };
  const until = epoch(a.deadline);
  change(item, { q, until, card: null, end: null, sent: undefined, error: "" });
}

function change(item, what) {
  if (item.card && (what.end || what.gone || what.sent !== undefined))
    calm = Date.now() + 400;  // a second tap or key must not reach the next card
  Object.assign(item, what);
  if (!changed.size) setTimeout(() => { changed.forEach(draw); changed.clear(); tick(); }, 20);
  changed.add(item);
}

// --- What is shown ---
const cards = () => [...$("#queue").children].map(card => card.item);

function draw(item) {
  const { q, card } = item;
  item.row?.remove();
  if (q && !item.end && !item.gone) {
    const next = cards().find(other => other.time > item.time);
    if (!card) $("#queue").insertBefore(build(item, q), next ? next.card : null);
    if (!card) $("#live").textContent = `${q.who}: ${q.text}`;
    return item.refresh();
  }
  const focused = card?.contains(document.activeElement);
  card?.remove();
  item.card = null;
  if (focused) ($("#queue article") || $("main")).focus();
  if (item.gone) items.delete(item.id);
  else $("ul").prepend(item.row = past(item));
}

function tick() {
  for (const item of cards()) {
    const left = Math.ceil(item.until - (Date.now() + skew) / 1000), s = Math.max(0, left);
    const clock = (s < 3600 ? "" : Math.floor(s / 3600) + ":")
      + new Date(s * 1000).toISOString().slice(14, 19);
    item.clock.textContent = item.until ? say("left", clock) : "";
    item.clock.classList.toggle("soon", s <= 15);
    if (item.until && left < -2) change(item, { end: { state: "timeout" }, late: true });
  }
  const waiting = cards().length, rows = [...$("ul").children];
  rows.slice(20).forEach(row => { items.delete(row.item.id); row.remove(); });
  document.title = waiting ? `(${waiting}) a4p` : "a4p";
  $("#empty").hidden = waiting > 0;
  $("#past").hidden = !rows.length;
}

function build(item, q) {
  const note = set(el("p.note"), { role: "status" }), id = "words-" + item.id;
  const words = q.words && set(el("input.field"), { id, autocomplete: "off" });
  const rows = item.rows = q.options.map((option, i) => row(item, option, q.marks[i]));
  const label = set(el("label.soft", say(rows.length ? "other" : "words")), { htmlFor: id });
  const fields = el("fieldset", q.several && el("p.soft", say("several")), ...rows,
    words && el("div.words", label, words, !q.several && el("button.send", say("send"))),
    q.several && el("button.main", say("submit")));
  const form = item.form = set(el("form", fields), { onsubmit: event => {
    event.preventDefault();
    const marks = rows.filter(row => row.control?.checked).map(row => row.mark).join(", ");
    send(item, [marks, words && words.value.trim()].filter(Boolean).join(": "));
  } });
  const onclick = () => change(item, { sent: undefined });
  const redo = set(el("button.quiet", say("again")), { onclick });
  item.refresh = () => {
    form.hidden = item.sent !== undefined;
    redo.hidden = !form.hidden;
    fields.disabled = item.busy;
    note.classList.toggle("bad", !form.hidden);
    note.textContent = form.hidden ? say("sent", item.sent) : item.error;
  };
  item.clock = set(el("span.clock"), { role: "timer" });
  item.card = el("article.card", el("div.head", el("span", q.who), item.clock),
    el("div.head", el("h2", q.header), q.of > 1 && el("span", say("place", q.n, q.of))),
    prose(q.text), form, note, redo);
  fields.ariaLabel = item.card.ariaLabel = q.header;
  return set(item.card, { item, tabIndex: -1 });
}

function row(item, option, mark) {
  const risk = option.danger === true, level = option.priority, kind = risk ? "row.danger" : "row";
  const inside = [el("span.mark", mark), el("span.what", el("b", option.label),
    risk && el("span.tag.risk", "⚠ " + say("danger")),
    Object.hasOwn(TEXT, level) && el("span.tag." + level, say(level)),
    option.description && el("small", option.description))];
  const box = item.q.several && set(el("input"), { type: "checkbox" });
  if (box) return set(el("label." + kind, ...inside, box), { mark });
  const onclick = () => Date.now() > calm && send(item, String(option.label));
  return set(el("button." + kind, ...inside), { mark, onclick, type: "button" });
}

function past(item) {
  const { q, end } = item, title = q ? [q.who, q.header].filter(Boolean).join(" · ") : item.title;
  const clock = new Date(item.time * 1000).toLocaleTimeString([], { timeStyle: "short" });
  const state = end && Object.hasOwn(TEXT, end.state) ? end.state : "ended";
  return set(el("li", el("div.head", el("b", title), el("span", clock)),
    prose(q ? q.text : item.message), end && el("b." + state, say(state, end.answer))), { item });
}

function prose(text) {
  try {
    if (/^\s*[[{]/.test(text)) return el("pre.text", yaml(JSON.parse(text)).trim());
  } catch { }  // it only begins like JSON
  return el(/\n|.{140}/.test(text) ? "p.text" : "p.text.short", text);
}

function yaml(value, line = "\n") {
  if (value && typeof value === "string")
    return (value.includes("\n") ? " |" + line : " ") + value.replace(/\n/g, line);
  const rows = Object.entries(Object(value)), deeper = line + "  ";
  if (!rows.length) return " " + JSON.stringify(value);
  return rows.map(([key, inner]) => line + (Array.isArray(value)
    ? "- " + yaml(inner, deeper).trimStart() : key + ":" + yaml(inner, deeper))).join("");
}

// --- What is answered ---
async function send(item, body) {
  if (!body) return change(item, { error: say("none") });
  if (item.busy || item.sent !== undefined) return;
  change(item, { busy: true, error: "" });
  const url = `/${topic}-response?title=${encodeURIComponent(item.id)}`;
  const signal = AbortSignal.timeout(15000), headers = bearer();
  const answer = await fetch(url, { method: "POST", body, headers, signal }).catch(Object);
  if (answer.ok) take(await answer.json().catch(Object));  // once, though the stream has it too
  if ([401, 403].includes(answer.status)) gate("token");
  const error = say("failed", answer.status || say("offline"));
  change(item, answer.ok ? { busy: false } : { busy: false, error });
}

addEventListener("keydown", event => {
  const key = event.key.toUpperCase(), on = selector => event.target.closest(selector);
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const first = cards().find(item => item.sent === undefined);
  if (!first || first.busy || on("input:not([type=checkbox])")) return;
  if (key === "ENTER" && !on("input, button, a")) first.form.requestSubmit();
  first.rows.find(row => row.mark.toUpperCase() === key)?.click();
});

// --- The start ---
document.documentElement.lang = zh ? "zh-CN" : "en";
$("#queue").ariaLabel = say("queue");
document.querySelectorAll("[data-say]").forEach(n => { n.textContent = say(n.dataset.say); });
addEventListener("hashchange", () => location.reload());  // a link with a token, opened here
for (const name of ["online", "pageshow", "visibilitychange"]) addEventListener(name, event => {
  if (document.hidden || event.persisted === false || !source || !$("#gate").hidden) return;
  delay = 1;
  connect();
});
const found = location.hash.replace(/^#(t=)?/, "").replace(/%[2-7][0-9a-f]/gi, decodeURIComponent);
if (found) history.replaceState(null, "", location.pathname);
if (found) useToken(found);
const known = (store.a4pTopics || "").split(" ").filter(name => name && name !== topic);
if (/^[-_A-Za-z0-9]{1,55}$/.test(topic)) {
  store.a4pTopics = [topic, ...known].slice(0, 8).join(" ");
  connect();
  setInterval(tick, 1000);
} else {
  $("nav").append(...known.map(name => set(el("a", name), { href: "/" + name })));
  gate("topic");
}
</script>
"""


# === Server: ntfy's HTTP interface in one process ===========================
# Answers are those of ntfy 2.13, with 2.16's sequence_id and 2.28's limits on title and tags.

RESERVED_TOPICS = {"docs", "static", "file", "app", "metrics", "account", "settings", "signup",
                   "login", "v1"}
NTFY_ERRORS = {  # code: text | page of ntfy's docs; the first three digits are the HTTP status
    40000: "invalid request", 40401: "page not found", 50001: "internal server error",
    40001: "e-mail notifications are not enabled | config/#e-mail-notifications",
    40004: "invalid delay parameter: unable to parse delay | publish/#scheduled-delivery",
    40007: "invalid priority parameter | publish/#message-priority",
    40008: "invalid since parameter | subscribe/api/#fetch-cached-messages",
    40009: "invalid request: topic invalid", 40010: "invalid request: topic name is not allowed",
    40014: "invalid request: attachments not allowed | config/#attachments",
    40016: "invalid request: client not using the websocket protocol | subscribe/api/#websockets",
    40018: "invalid request: actions invalid | publish/#action-buttons",
    40021: "invalid request: icon URL is invalid | publish/#icons",
    40024: "invalid request: request body must be valid JSON", 41303: "JSON body too large",
    40049: "invalid request: sequence ID invalid | publish/#updating-deleting-notifications",
    40057: "invalid request: title too large | publish/#limitations",
    40058: "invalid request: tags too large | publish/#limitations",
    40101: "unauthorized | publish/#authentication", 40301: "forbidden | publish/#authentication",
    42901: "limit reached: too many requests | publish/#limitations",
    42903: "limit reached: too many active subscriptions | publish/#limitations",
    42904: "limit reached: the total number of topics on the server has been reached, please "
           "contact the admin | publish/#limitations",
    42909: "limit reached: too many auth failures | publish/#limitations"}
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           413: "Request Entity Too Large", 429: "Too Many Requests", 500: "Internal Server Error"}
ACTION_FIELDS = {"action": str, "label": str, "clear": bool, "url": str, "method": str,
                 "headers": dict, "body": str, "intent": str, "extras": dict}
JSON_FIELDS = {"topic": str, "message": str, "title": str, "tags": list, "priority": int,
               "click": str, "icon": str, "attach": str, "filename": str, "markdown": bool,
               "actions": list, "email": str, "delay": str, "cache": str, "sequence_id": str}
STREAM_TYPES = {"json": "application/x-ndjson", "sse": "text/event-stream", "raw": "text/plain"}
ROUTES = (  # methods, path, what answers: a constant, a code, a method of Exchange; ntfy's order
    ("GET HEAD", "/", "page"), ("GET", "/v1/health", {"healthy": True}),
    ("OPTIONS", ".*", "preflight"), ("PUT POST", "/", "publish_json"),
    ("PUT POST", f"/({TOPIC_FORM})(?:/({TOPIC_FORM}))?", "publish"),
    ("DELETE", f"/({TOPIC_FORM})/({TOPIC_FORM})", "withdraw"),
    ("PUT", f"/({TOPIC_FORM})/({TOPIC_FORM})/(read|clear)", "withdraw"),
    ("GET", f"/({TOPIC_FORM})/()(?:publish|send|trigger)", "publish"),
    ("GET", f"/({TOPIC_FORM}(?:,{TOPIC_FORM})*)/(json|sse|raw)", "subscribe"),
    ("GET", f"/{TOPIC_FORM}(?:,{TOPIC_FORM})*/ws", 40016),  # apps have JSON streams, too
    ("GET", f"/{TOPIC_FORM}(?:,{TOPIC_FORM})*/auth", {"success": True}),
    ("GET", f"/{TOPIC_FORM}", "page"))
OPEN_ROUTES = ("page", "preflight", "publish_json", {"healthy": True})  # JSON: asked for later


class Limits:
    """What a server bears, with ntfy's code for what goes over it."""

    MESSAGE, TITLE, TAGS, ACTIONS = 4096, 1024, 512, 3  # 40014 (from 4096 on), 40057, 40058, 40018
    JSON, JSON_A4P, BODY = 8192, 16384, 65536  # bytes: 41303; with the key `a4p`; of any body
    TOPICS = 15_000  # with messages: 42904
    STREAMS, CONNECTIONS = 512, 1024  # open at once, a thread each: 42903, 42901
    KEPT, KEPT_IN_TOPIC, KEPT_BYTES = 100_000, 10_000, 32 << 20  # messages; the oldest go first
    KEPT_SECONDS, KEEPALIVE_SECONDS = 43_200, 45  # ntfy's cache-duration and keepalive-interval
    DEAD_BYTES = 1 << 20  # in the file, beyond twice what is kept
    QUEUE = 2_000  # messages a reader may lag behind; then its stream ends, and it may resume
    HEAD_SECONDS, BODY_SECONDS = 30, 15  # from one answer to the next request's head, to its body
    WRITE_SECONDS = 10  # for a reader to take 64 KiB
    FAILURES, FAILURE_SECONDS, ADDRESSES = 30, 60, 10_000  # bad logins, one back each 60 s: 42909
    UPSTREAM, UPSTREAM_SECONDS = 100, 10  # poll requests that wait; each one's timeout


class Rejected(Exception):
    """An error of ntfy's table; `detail` is what ntfy adds to its text after a semicolon."""

    def __init__(self, code: int, detail: str = "") -> None:
        text, _, page = NTFY_ERRORS[code].partition(" | ")
        self.status = code // 100
        self.body: Json = {"code": code, "http": self.status,
                           "error": f"{text}; {detail}" if detail else text}
        if page:
            self.body["link"] = "https://ntfy.sh/docs/" + page


def utf8(text: str) -> bytes:
    """Return `text` in UTF-8, with U+FFFD for each lone surrogate."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def go_json(value: object) -> bytes:
    r"""Return `value` as a line of JSON with ntfy's escapes. Raises ValueError on NaN.

    >>> go_json({"message": "<b> & \ud800"})
    b'{"message":"\\u003cb\\u003e \\u0026 \xef\xbf\xbd"}\n'
    """
    import json
    import re
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return utf8(re.sub("[<>&\u2028\u2029]", lambda m: f"\\u{ord(m[0]):04x}", text) + "\n")


def decode_words(value: str) -> str:
    """Return a header's text with its RFC 2047 words decoded, as it is where they are broken.

    >>> decode_words("=?UTF-8?B?5qCH?= =?utf-8?q?=E9=A2=98_x?=")
    '标题 x'
    """
    if "=?" not in value:
        return value
    from email.header import decode_header, make_header
    try:
        return str(make_header(decode_header(value)))
    except (ValueError, LookupError):
        return value


def parse_since(text: str, now: int) -> tuple[str, int | str]:
    """Return ("latest", 0), ("id", id) or ("time", epoch). Raises Rejected(40008).

    >>> parse_since("1h30m", 10_000), parse_since("17", 0), parse_since("abcdefABCDEF", 0)
    (('time', 4600), ('time', 17), ('id', 'abcdefABCDEF'))
    """
    import re
    named = {"latest": ("latest", 0), "all": ("time", 0), "none": ("time", 1 << 62)}
    units = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
    part = r"([0-9]{1,12}(?:\.[0-9]{0,9})?)(ns|us|µs|ms|s|m|h)"
    if text in named:
        return named[text]
    if re.fullmatch("[A-Za-z0-9]{12}", text):
        return "id", text
    if re.fullmatch("[-+]?[0-9]{1,18}", text):
        return "time", int(text)
    if re.fullmatch(f"(?:{part})+", text):
        return "time", int(now - sum(float(n) * units[unit] for n, unit in re.findall(part, text)))
    raise Rejected(40008)


def parse_priority(text: str) -> int:
    """Return 1 to 5, or 0 for "". Raises Rejected(40007)."""
    for number, words in enumerate(("", "1 min", "2 low", "3 default", "4 high", "5 max urgent")):
        if text.lower() in (words.split() or [""]):
            return number
    raise Rejected(40007)


def typed(value: object, kinds: dict[str, type]) -> Json:
    """Return the known keys of an object, null left out. Raises Rejected(40024) on other types."""
    if not isinstance(value, dict):
        raise Rejected(40024)
    known = {key: value[key] for key in kinds if value.get(key) is not None}
    for key, item in known.items():
        texts = item.values() if type(item) is dict else item if key == "tags" else ()
        if type(item) is not kinds[key] or any(type(text) is not str for text in texts):
            raise Rejected(40024)
    return known


def short_actions(text: str) -> list[Json]:
    """Return the actions in the short form of the `Actions:` header. Raises Rejected(40018).

    >>> short_actions("http, 'A, B', https://x.y, headers.K=v; view, C, url=u, clear=true")
    [{'action': 'http', 'label': 'A, B', 'url': 'https://x.y', 'headers': {'K': 'v'}}, \
{'action': 'view', 'label': 'C', 'url': 'u', 'clear': True}]
    """
    import re
    term = re.compile(  # key, value in quotes or not, end
        r"""(?:\s*([-.\w]+)\s*=|(?!\s*[-.\w]+\s*=))\s*"""
        r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,;"'\s][^,;]*|)\s*(,|;\s*|$)""", re.A | re.S)
    actions: list[Json] = []
    place = index = 0
    while place < len(text) or index:
        found = term.match(text, place)
        if not found:
            raise Rejected(40018, f"unexpected end of input, quote started at position {place}")
        key, value, end = found.groups("")
        if value.startswith(("'", '"')):
            value = value[1:-1].replace("\\" + value[0], value[0])
        actions += [] if index else [{}]
        third = "url" if actions[-1].get("action") in ("view", "http") else ""
        key = key or ("action", "label", third, "")[min(index, 3)]
        set_action(actions[-1], key, value.strip())
        place, index = found.end(), index + 1 if end == "," else 0
    return actions


def set_action(action: Json, key: str, value: str) -> None:
    """Give an action one field, as text. Raises Rejected(40018)."""
    group, _, name = key.partition(".")
    if name and group in ("headers", "extras"):
        action.setdefault(group, {})[name] = value
    elif key == "clear" and value.lower() in ("true", "yes", "1", "false", "no", "0"):
        action[key] = value.lower() in ("true", "yes", "1")
    elif ACTION_FIELDS.get(key) is str:
        action[key] = value
    else:
        raise Rejected(40018, f"key '{key}' unknown" if key else f"term '{value}' unknown")


def check_actions(actions: list[Json]) -> Iterator[Json]:
    """Yield the actions as ntfy hands them on, with ids. Raises Rejected(40018)."""
    for given in actions:
        kind, method = given.get("action", "").lower(), given.get("method", "").upper()
        for wrong, detail in (
                (len(actions) > Limits.ACTIONS, f"only {Limits.ACTIONS} actions allowed"),
                (kind not in ("view", "broadcast", "http"),  # 2.17 adds copy
                 f"parameter 'action' cannot be '{kind}', valid values are 'view', 'broadcast' "
                 "and 'http'"),
                (not given.get("label"), "parameter 'label' is required"),
                (kind != "broadcast" and not given.get("url"),
                 f"parameter 'url' is required for action '{kind}'"),
                (kind == "http" and method in ("GET", "HEAD") and given.get("body"),
                 f"parameter 'body' cannot be set if method is {method}")):
            if wrong:
                raise Rejected(40018, detail)
        given = {**given, "id": random_id(10), "action": kind, "method": method}
        yield {key: given.get(key, False) for key in ("id", *ACTION_FIELDS)
               if given.get(key) or key == "clear"}


class Message:
    """One event on a topic: the line that goes over the wire, and what is often asked of it."""

    __slots__ = ("serial", "line", "id", "topic", "event", "time", "expires")

    def __init__(self, line: bytes) -> None:
        """Read a line of ours. Raises ValueError, TypeError or LookupError on any other."""
        self.serial, self.line = 0, line
        fields = self.fields()
        self.id, self.topic, self.event = (str(fields[key]) for key in ("id", "topic", "event"))
        self.time, self.expires = int(fields["time"]), int(fields.get("expires", 0))

    @classmethod
    def new(cls, event: str, topic: str, seconds: int = 0, sequence: str = "",
            **more: object) -> Message:
        """Return a new event, kept for `seconds`; of `more`, what is not empty."""
        now = int(time.time())
        fields = {"id": random_id(12), "sequence_id": sequence, "time": now,
                  "expires": seconds and now + seconds, "event": event, "topic": topic, **more}
        return cls(go_json({key: value for key, value in fields.items() if value}))

    def fields(self) -> Json:
        """Return all of it (decoded anew: only filters and `raw` ask)."""
        import json
        return dict(json.loads(self.line))

    def encode(self, form: str) -> bytes:
        """Return the event as a stream shows it: json, sse or raw."""
        if form == "raw":
            text = self.fields()["message"] if self.event == "message" else ""
            return utf8(text.replace("\n", " ") + "\n")
        named = "" if self.event.startswith("message") else f"event: {self.event}\n"
        return self.line if form == "json" else named.encode() + b"data: " + self.line + b"\n"


class Hub:
    """The messages of the last 12 h and their listeners, in step under one lock.

    A stream has each message once and in order: its replay is taken and its listening begins in
    one step; a message is kept and handed on in one step. Kept messages are lines of a file
    ("" for none), with the kernel before the publisher has its reply: enough for kill -9.
    There is no fsync: it would cost each publish a disk's latency, for a power cut's sake.
    """

    def __init__(self, path: str, limits: type[Limits], log: Callable[[str], None]) -> None:
        import threading
        from collections import OrderedDict, defaultdict, deque
        self.path, self.limits, self.log, self.lock = path, limits, log, threading.RLock()
        self.kept: OrderedDict[str, Message] = OrderedDict()
        self.topics: dict[str, deque[Message]] = defaultdict(deque)
        self.listeners: dict[SimpleQueue[Message | None], Callable[[Message], bool]] = {}
        self.serial = self.bytes = self.size = 0
        self.file = self._open(path) if path else None
        self._load()

    @staticmethod
    def _open(path: str) -> io.BufferedRandom:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                raise OSError(0, "not a file")
            file = os.fdopen(os.open(path, flags, 0o600), "r+b")
            if hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), 0o600)  # a umask may take even the owner's bits
            return file
        except OSError as error:
            raise A4pError("home_write", file=path, detail=error.strerror) from None

    def _load(self) -> None:
        broken, line = 0, b"\n"
        for line in self.file or ():
            self.size += len(line)
            try:
                message = Message(line)
                if message.id not in self.kept and line.endswith(b"\n"):
                    self._keep(message)
            except (ValueError, TypeError, LookupError, RecursionError, Rejected):
                broken += line.endswith(b"\n")
        if self.file and not line.endswith(b"\n"):
            self.size -= len(line)
            self.file.truncate(self.size)
            self.log(f"dropped a torn last line of {len(line)} bytes from {self.path}")
        if broken:
            self.log(f"skipped {broken} lines that are no messages in {self.path}")
        self._tidy()

    def _keep(self, message: Message) -> None:
        if message.topic not in self.topics and len(self.topics) >= self.limits.TOPICS:
            raise Rejected(42904)
        self.topics[message.topic].append(message)
        self.kept[message.id] = message
        self.serial = message.serial = self.serial + 1
        self.bytes += len(message.line)
        if len(self.topics[message.topic]) > self.limits.KEPT_IN_TOPIC:
            self._drop(self.topics[message.topic][0])

    def _drop(self, oldest: Message) -> None:
        self.topics[oldest.topic].popleft()
        self.bytes -= len(self.kept.pop(oldest.id).line)
        if not self.topics[oldest.topic]:
            del self.topics[oldest.topic]

    def _tidy(self) -> None:
        limits, now = self.limits, time.time()
        while self.kept:
            oldest = next(iter(self.kept.values()))
            if (oldest.expires > now and len(self.kept) <= limits.KEPT
                    and self.bytes <= limits.KEPT_BYTES):
                break
            self._drop(oldest)
        if self.file and self.size > 2 * self.bytes + limits.DEAD_BYTES:
            self._rewrite(self.file)

    def _rewrite(self, old: io.BufferedRandom) -> None:
        self.size, fresh = self.bytes, self.path + ".new"
        try:
            with self._open(fresh) as file:
                file.truncate(0)
                file.writelines(message.line for message in self.kept.values())
            old.close()  # first, for Windows' sake
            os.replace(fresh, self.path)
        except (OSError, A4pError) as error:
            self.log(f"cannot rewrite {self.path}: {error}")
        self.file = self._open(self.path)

    def publish(self, message: Message) -> None:
        """Keep `message` (if it expires at all) and hand it on. Raises Rejected(42904)."""
        with self.lock:
            if message.expires:
                self._keep(message)
                try:
                    if self.file:
                        self.size += self.file.write(message.line)
                        self.file.flush()  # what a full disk refuses stays here for the next
                except OSError as error:
                    self.log(f"cannot write {self.path}: {error.strerror}")
                self._tidy()
            for queue in [queue for queue, wanted in self.listeners.items() if wanted(message)]:
                queue.put(message)
                if queue.qsize() > self.limits.QUEUE:
                    self.leave(queue)

    def replay(self, since: tuple[str, int | str],
               wanted: Callable[[Message], bool], names: Iterable[str]) -> list[Message]:
        """Return the kept messages of `names` that are `wanted`, `since` a point."""
        kind, value = since
        with self.lock:
            self._tidy()
            stores = [self.topics[name] for name in set(names) & self.topics.keys()]
            if kind == "latest":
                found = [messages[-1] for messages in stores]
            elif kind == "id":  # one it does not know replays everything, as with ntfy
                mark = self.kept[str(value)].serial if value in self.kept else 0
                found = [m for messages in stores for m in messages if m.serial > mark]
            else:
                found = [m for messages in stores for m in messages if m.time >= int(value)]
        return sorted(filter(wanted, found), key=lambda message: message.serial)

    def leave(self, queue: SimpleQueue[Message | None]) -> None:
        """Hand nothing more to a listener, and let it end."""
        with self.lock:
            self.listeners.pop(queue, None)
        queue.put(None)


class Exchange(HandlerBase):
    """One connection, in a thread of its own: requests and their answers, in turn.

    `Server` joins it to http.server's handler, whose import takes too long for every start, and
    cuts it when its deadline is over: a timeout alone lets a byte a second go on for ever.
    """

    ours: Server
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Have answers leave at once: Nagle's algorithm holds some back for 40 ms."""
        import socket
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.limits, self.hub = self.ours.limits, self.ours.hub
        self.deadline = time.monotonic() + self.limits.HEAD_SECONDS
        self.ours.open.add(self)

    def finish(self) -> None:
        """Make room for another."""
        self.ours.open.discard(self)
        super().finish()

    def answer(self) -> None:
        """Answer one request."""
        from urllib.parse import parse_qsl, unquote
        path, _, query = self.path.partition("?")
        keep, self.close_connection = self.close_connection, True
        self.deadline = time.monotonic() + self.limits.BODY_SECONDS
        try:
            if len(self.ours.open) > self.limits.CONNECTIONS:
                raise Rejected(42901)
            self.body = self._body()
            self.close_connection = keep
            self.query = dict(reversed(parse_qsl(query)))
            self.given = {name.lower(): str(value).encode("latin-1").decode("utf-8", "replace")
                          for name, value in reversed(self.headers.items())}
            self._route(unquote(path))
        except Rejected as rejected:
            self.reply(rejected.status, rejected.body)
        except OSError:
            raise
        except Exception as error:
            self.ours.log(f"internal error: {error!r}")
            self.reply(500, Rejected(50001).body)
        self.deadline = time.monotonic() + self.limits.HEAD_SECONDS

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = do_OPTIONS = answer

    def send_error(self, *about: Any) -> None:
        """Answer what http.server itself refuses."""
        self.close_connection = True
        self.reply(400, Rejected(40000).body)

    def log_message(self, *about: Any) -> None:
        """Say nothing: the lines of requests hold topics."""

    def _body(self) -> bytes | None:
        """Return the body, or None where it is too long to be read."""
        lengths, codings = (self.headers.get_all(name, [])
                            for name in ("Content-Length", "Transfer-Encoding"))
        if (codings not in ([], ["chunked"]) or len(lengths + codings) > 1
                or not all(length.isdecimal() and len(length) < 19 for length in lengths)):
            raise Rejected(40000)  # two readers could take it for two different requests
        body = b""
        for size in self._chunks() if codings else map(int, lengths):
            while size:  # too much is taken all the same, or its sender would not see the answer
                part = self.rfile.read(min(size, 65536))
                if not part:
                    raise ConnectionError("it left")
                body, size = body + part[:self.limits.BODY + 1 - len(body)], size - len(part)
        return body if len(body) <= self.limits.BODY else None

    def _chunks(self) -> Iterator[int]:
        import re
        size = -1
        while size:
            line = self.rfile.readline(64).partition(b";")[0].strip()
            if not re.fullmatch(b"[0-9a-fA-F]{1,8}", line):
                raise Rejected(40000)
            size = int(line, 16)
            yield size
            while self.rfile.readline(1024).strip() and not size:  # trailers
                continue

    def _route(self, path: str) -> None:
        import re
        self.trusted = self._trusted()
        for methods, form, target in ROUTES:
            found = re.fullmatch(form, path)
            if found and self.command in methods.split():
                if target not in OPEN_ROUTES:
                    self._admit()
                if isinstance(target, str):
                    getattr(self, target)(*found.groups(""))
                elif isinstance(target, dict):
                    self.reply(200, target)
                else:
                    raise Rejected(target)
                return
        raise Rejected(40401)

    def _trusted(self) -> bool:
        """Return whether the token came along. Raises Rejected(40101, 42909, 50001)."""
        import base64
        import contextlib
        import hmac
        given, coded = self.given.get("authorization", ""), self.query.get("auth", "")
        if not self.ours.token:
            return False
        try:
            if coded:  # unpadded; ntfy fails on "="
                coded = coded.replace("=", "!") + "=" * (-len(coded) % 4)
                given = base64.b64decode(coded, b"-_", validate=True).decode()
        except ValueError:
            raise Rejected(50001) from None
        scheme, _, secret = given.strip().partition(" ")
        if scheme.lower() not in ("basic", "bearer"):
            return False
        if not self.ours.patience(self.client_address[0], 0):
            raise Rejected(42909)
        if scheme.lower() == "basic":
            with contextlib.suppress(ValueError):
                secret = base64.b64decode(secret).decode().partition(":")[2]
        if not hmac.compare_digest(secret.strip().encode(), self.ours.token.encode()):
            self.ours.patience(self.client_address[0], 1)
            raise Rejected(40101)
        return True

    def _admit(self) -> None:
        """Raise Rejected(40301) for whom `Server` says."""
        host, origin = self.given.get("host", ""), self.given.get("origin")
        name, own = host.partition(":")[0], self.ours.base_url.partition("://")[2].split("/")[0]
        named = host.startswith("[") or name in ("", "localhost") or host == own
        near = named or name.replace(".", "").isdigit()  # an address: names alone can be rebound
        asked = self.given.get("sec-fetch-site", "none") in ("none", "same-origin")
        same = origin is None or origin.partition("://")[2] in {host, own} - {""}
        if not (self.trusted if self.ours.token else near and asked and same):
            raise Rejected(40301)

    def param(self, *names: str) -> str:
        """Return the first header, else query parameter, of these names that is not empty."""
        import re
        for name in names:
            value = decode_words(self.given.get(name, "")).strip()
            if value and not (name == "priority" and re.fullmatch(r"u=\d(,\s*(i|\d))?", value)):
                return value  # the exception is RFC 9218's, which browsers and proxies add
        return next((self.query[name].strip() for name in names if self.query.get(name)), "")

    def flag(self, default: str, *names: str) -> bool:
        """Return a yes/no parameter."""
        return (self.param(*names).lower() or default) in ("1", "yes", "true")

    def several(self, *names: str) -> list[str]:
        """Return a parameter that is a list."""
        return [part.strip() for part in self.param(*names).split(",") if part.strip()]

    def filter(self, names: set[str]) -> Callable[[Message], bool]:
        """Return whether a message is of `names` and passes the filters. Raises Rejected(40007)."""
        exact = {"id": self.param("x-id", "id"), "message": self.param("x-message", "message", "m"),
                 "title": self.param("x-title", "title", "t")}
        exact = {key: value for key, value in exact.items() if value}
        wanted = [parse_priority(p) for p in self.several("x-priority", "priority", "prio", "p")]
        tags = set(self.several("x-tags", "tags", "tag", "ta"))

        def passes(message: Message) -> bool:
            if message.topic not in names or not (exact or wanted or tags):
                return message.topic in names
            if message.event != "message":
                return True
            fields = message.fields()
            return (exact.items() <= {key: fields.get(key) for key in exact}.items()
                    and (not wanted or fields.get("priority", 3) in wanted)
                    and tags <= set(fields.get("tags", ())))
        return passes

    def subscribe(self, topics: str, form: str) -> None:
        """Send what was kept, if that is asked for; unless it is a poll, go on with what comes."""
        from queue import SimpleQueue
        names, poll = set(topics.split(",")), self.flag("", "x-poll", "poll", "po")
        if names & RESERVED_TOPICS:
            raise Rejected(40009)
        since = parse_since(self.param("x-since", "since", "si") or ("all" if poll else "none"),
                            int(time.time()))
        wanted, self.form, self.chunked = self.filter(names), form, self.request_version[-1] == "1"
        self.close_connection = self.close_connection or not (poll and self.chunked)
        kind = STREAM_TYPES[form] + "; charset=utf-8"
        head = self.head(200, Content_Type=kind,
                         Transfer_Encoding="chunked" if self.chunked else "")
        if poll:
            if found := self.hub.replay(since, wanted, names):
                self.events(found, head, b"0\r\n\r\n" * self.chunked)
            else:
                self.reply(200, b"", Content_Type=kind)
            return
        queue: SimpleQueue[Message | None] = SimpleQueue()
        with self.hub.lock:
            if len(self.hub.listeners) >= self.limits.STREAMS:
                raise Rejected(42903)
            kept = self.hub.replay(since, wanted, names)
            self.hub.listeners[queue] = wanted
        try:
            self.events([Message.new("open", topics), *kept], head)
            self._follow(queue, topics)
        finally:
            self.hub.leave(queue)

    def _follow(self, queue: SimpleQueue[Message | None], topics: str) -> None:
        from queue import Empty
        due = time.monotonic() + self.limits.KEEPALIVE_SECONDS
        while not self._left():
            try:
                message = queue.get(timeout=max(0.0, min(2.0, due - time.monotonic())))
                batch = [message] + [queue.get() for _ in range(queue.qsize())]
                if None in batch:
                    return
            except Empty:
                batch = []
            if time.monotonic() >= due:
                due += self.limits.KEEPALIVE_SECONDS
                batch.append(Message.new("keepalive", topics))
            self.events(batch)

    def events(self, messages: Iterable[Message | None], head: bytes = b"",
               end: bytes = b"") -> None:
        """Send events in the stream's form, with what stands before and behind them."""
        datas = (message.encode(self.form) for message in messages if message)
        chunks = (b"%x\r\n%b\r\n" % (len(data), data) for data in datas)
        self.send([head], chunks if self.chunked else datas, [end])

    def _left(self) -> bool:
        import socket
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.connection.setblocking(True)

    def publish_json(self) -> None:
        """Publish a JSON body, turned into headers as ntfy does it."""
        import contextlib
        import json
        import re
        body, extra, own, value = self.body or b"", None, 0, None
        with contextlib.suppress(ValueError, RecursionError):  # ntfy ignores what follows it
            value = json.JSONDecoder().raw_decode(body.decode("utf-8", "replace").lstrip())[0]
            extra = value.pop("a4p", None) if isinstance(value, dict) else None
            own = len(go_json(extra)) if isinstance(extra, dict) else 0
        if self.body is None or len(body) - own >= self.limits.JSON:
            raise Rejected(41303)
        more = {"a4p": extra} if own and max(own, len(body)) < self.limits.JSON_A4P else {}
        fields = typed(value, JSON_FIELDS)
        if not re.fullmatch(TOPIC_FORM, fields.get("topic", "")):
            raise Rejected(40009)
        actions = [typed(action, ACTION_FIELDS) for action in fields.get("actions", ())]
        fields.update(actions=json.dumps(actions), tags=",".join(fields.get("tags", ())),
                      markdown=str(fields.get("markdown", "")),
                      priority=str(fields.get("priority") or ""))
        self.body = utf8(fields.pop("message", "") or "triggered")
        self.given.update(("x-" + key.replace("_", "-"), text) for key, text in fields.items())
        self._admit()  # only now: ntfy looks at the topic first
        self.publish(fields["topic"], "", **more)

    def publish(self, topic: str, sequence: str, **more: object) -> None:
        """Publish what headers, query and body say. Raises Rejected, as ntfy would."""
        import re
        param, limits = self.param, self.limits
        title, icon = param("x-title", "title", "t"), param("x-icon", "icon")
        tags = self.several("x-tags", "tags", "tag", "ta")
        sequence = sequence or param("x-sequence-id", "sequence-id", "sid")
        for code, wrong in ((40049, sequence and not re.fullmatch(TOPIC_FORM, sequence)),
                            (40021, icon and not re.match("https?://", icon)),
                            (40001, param("x-email", "x-e-mail", "email", "e-mail", "mail", "e")),
                            (40057, len(utf8(title)) > limits.TITLE),
                            (40058, len(utf8(",".join(tags))) > limits.TAGS)):
            if wrong:
                raise Rejected(code)
        if param("x-delay", "delay", "x-at", "at", "x-in", "in"):
            raise Rejected(40004, "this server delivers at once only")
        markdown = (self.flag("", "x-markdown", "markdown", "md")
                    or param("content-type", "content_type").lower() == "text/markdown")
        self._hand_on(Message.new(
            "message", topic, limits.KEPT_SECONDS if self.flag("yes", "x-cache", "cache") else 0,
            sequence, title=title, message=self._text(),
            priority=parse_priority(param("x-priority", "priority", "prio", "p")), tags=tags,
            click=param("x-click", "click"), icon=icon, actions=self._actions(),
            content_type="text/markdown" if markdown else "", **more))

    def _text(self) -> str:
        if self.body is None or len(self.body) >= self.limits.MESSAGE or self.param(
                "x-attach", "attach", "a", "x-filename", "filename", "file", "f"):
            raise Rejected(40014)  # ntfy would make it a file
        try:
            return (self.body.decode() if self.body else self.param(
                "x-message", "message", "m").replace("\\n", "\n")).strip() or "triggered"
        except UnicodeDecodeError:
            raise Rejected(40014) from None

    def _actions(self) -> list[Json]:
        import json
        text = self.param("x-actions", "actions", "action")
        try:
            actions = json.loads(text) if text.startswith("[") else short_actions(text)
            return list(check_actions([typed(action, ACTION_FIELDS) for action in actions]))
        except (ValueError, RecursionError):
            raise Rejected(40018, "JSON error: not a list of actions") from None

    def withdraw(self, topic: str, sequence: str, clear: str = "") -> None:
        """Have clients delete a message, or clear its notification."""
        event = "message_clear" if clear else "message_delete"
        self._hand_on(Message.new(event, topic, self.limits.KEPT_SECONDS, sequence))

    def _hand_on(self, message: Message) -> None:
        if message.topic in RESERVED_TOPICS:
            raise Rejected(40010)
        self.hub.publish(message)
        if self.ours.upstream and message.event == "message":
            self.ours.wake_phones(message)
        self.reply(200, message.line)

    def page(self) -> None:
        """Send the answer page: its own script and style run, and nothing else."""
        if len(self.path) > 1 and self.flag("", "x-unifiedpush", "unifiedpush", "up"):
            self.reply(200, {"unifiedpush": {"version": 1}})
            return
        self.reply(200, self.ours.page, Content_Type="text/html; charset=utf-8",
                   Access_Control_Allow_Origin="", Content_Security_Policy=self.ours.policy,
                   X_Content_Type_Options="nosniff", Referrer_Policy="no-referrer",
                   Cache_Control="no-store")

    def preflight(self) -> None:
        """Let web pages ask (for browsers the asterisk does not cover Authorization)."""
        self.reply(200, b"", Access_Control_Allow_Headers="*, Authorization", Content_Type="",
                   Access_Control_Allow_Methods="GET, PUT, POST, PATCH, DELETE")

    def head(self, status: int, **headers: object) -> bytes:
        """Return a response's head; of `headers` (with _ for -) those that are not empty."""
        named = {"Access_Control_Allow_Origin": "*", "Content_Type": "application/json", **headers,
                 "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()), "X_A4P": 1}
        lines = [f"{key.replace('_', '-')}: {value}" for key, value in named.items() if value != ""]
        return "\r\n".join([f"HTTP/1.1 {status} {REASONS[status]}", *lines, "", ""]).encode()

    def reply(self, status: int, body: bytes | Json, **headers: object) -> None:
        """Send a whole response: JSON unless told otherwise."""
        body = go_json(body) if isinstance(body, dict) else body
        head = self.head(status, **headers, Content_Length=len(body))
        self.send([head, body if self.command != "HEAD" else b""])

    def send(self, *parts: Iterable[bytes]) -> None:
        """Send `parts`, small ones in one write. Raises OSError where they are not taken."""
        import itertools
        buffer = bytearray()
        for part in itertools.chain(*parts, [b""]):
            buffer += part
            if len(buffer) > 65536 or not part:
                self.deadline = time.monotonic() + self.limits.WRITE_SECONDS
                self.connection.sendall(buffer)
                buffer.clear()
        self.deadline = float("inf")


class Server:
    """An ntfy-compatible server; as a context manager it runs in the background.

    Without a token whoever reaches it may use it, save web pages from elsewhere: a foreign name
    as Host (DNS rebinding), a foreign Origin or Sec-Fetch-Site are refused. With a token neither
    matters: no page can send what it does not know, and ntfy's web app may press buttons with it.
    """

    def __init__(self, host: str = "127.0.0.1", port: int = 0, token: str = "", store: str = "",
                 page: bytes = b"", base_url: str = "", upstream: str = "",
                 log: Callable[[str], None] = lambda text: None,
                 limits: type[Limits] = Limits) -> None:
        """Bind. Raises A4pError where the port or the file cannot be had."""
        import socket
        import threading
        from http.server import BaseHTTPRequestHandler
        from queue import SimpleQueue
        from socketserver import ThreadingTCPServer
        self.token, self.page, self.policy, self.log = token, page, page_policy(page), log
        self.limits, self.base_url, self.upstream = limits, base_url.rstrip("/"), upstream
        self.closing, self.thread = False, threading.Thread(target=self.serve_forever, daemon=True)
        self.open: set[Exchange] = set()
        self.polls: SimpleQueue[Message] = SimpleQueue()
        self.failures: dict[str, tuple[float, float]] = {}
        handler = type("Handler", (Exchange, BaseHTTPRequestHandler), {"ours": self})
        listen = type("Listen", (ThreadingTCPServer,), {
            "address_family": socket.AF_INET6 if ":" in host else socket.AF_INET,
            "allow_reuse_address": os.name == "posix", "request_queue_size": 128,
            "daemon_threads": True, "block_on_close": False, "timeout": 0.25,
            "verify_request": lambda *about: len(self.open) < 2 * limits.CONNECTIONS,
            "handle_error": lambda *about: None})  # it left
        try:
            self.tcp = listen((host, port), handler)
        except OSError as error:
            raise A4pError("listen", address=f"{host}:{port}", detail=error.strerror) from None
        name, self.port = self.tcp.server_address[:2]
        self.address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(name, name), self.port
        self.url = "http://{}:{}".format(f"[{name}]" if ":" in name else name, self.port)
        self.hub = Hub(store, limits, log)

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> Server:
        """Serve in a background thread."""
        self.thread.start()
        return self

    def serve_forever(self) -> None:
        """Serve until `close`; then cut every connection and close the file."""
        import contextlib
        import threading
        if self.upstream:
            threading.Thread(target=self._forward, daemon=True).start()
        while not self.closing:
            self.tcp.handle_request()
            self._cut(time.monotonic())
            time.sleep(0.001)  # or it would spin while there are no descriptors left
        self.tcp.server_close()
        self._cut(float("inf"))
        with self.hub.lock, contextlib.suppress(OSError):
            for queue in tuple(self.hub.listeners):
                self.hub.leave(queue)
            if self.hub.file:
                self.hub.file.close()

    def _cut(self, now: float) -> None:
        import contextlib
        for exchange in tuple(self.open):
            if exchange.deadline <= now:
                with contextlib.suppress(OSError):
                    exchange.connection.shutdown(2)

    def close(self) -> None:
        """Make `serve_forever` end, and wait for a background thread. Fit for signal handlers."""
        import contextlib
        import socket
        self.closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(self.address, 1).close()  # wakes it
        if self.thread.ident:
            self.thread.join(5)

    def patience(self, address: str, cost: int) -> bool:
        """Return whether an address (of IPv6: its /64) may try a login, after `cost` failures."""
        address, now = ":".join(address.split(":")[:4]), time.monotonic()
        full = float(self.limits.FAILURES)
        with self.hub.lock:
            left, then = self.failures.pop(address, (full, now))
            left = min(full, left + (now - then) / self.limits.FAILURE_SECONDS) - cost
            self.failures[address] = left, now
            if len(self.failures) > self.limits.ADDRESSES:
                del self.failures[next(iter(self.failures))]
        return left >= 1

    def wake_phones(self, message: Message) -> None:
        """Have the upstream push an empty message to iOS, whose app then fetches this one."""
        if self.polls.qsize() < self.limits.UPSTREAM:
            self.polls.put(message)
        else:
            self.log(f"{self.upstream} is too slow: a poll request is dropped")

    def _forward(self) -> None:
        import hashlib
        import urllib.request
        while True:
            message = self.polls.get()
            topic = hashlib.sha256(f"{self.base_url}/{message.topic}".encode()).hexdigest()
            request = urllib.request.Request(f"{self.upstream.rstrip('/')}/{topic}", b"",
                                             {"X-Poll-ID": message.id}, method="POST")
            try:
                urllib.request.urlopen(request, timeout=self.limits.UPSTREAM_SECONDS).close()
            except (OSError, ValueError) as error:
                self.log(f"poll request to {self.upstream} failed: {error}")


def page_policy(page: bytes) -> str:
    """Return the Content-Security-Policy that lets only the page's own script and style work."""
    import base64
    import hashlib
    import re
    policy = ("default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
              "form-action 'none'; frame-ancestors 'none'")
    for kind in ("script", "style"):
        parts = re.findall(f"<{kind}>(.*?)</{kind}>".encode(), page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(part).digest()).decode() for part in parts]
        policy += f"; {kind}-src " + (" ".join(f"'sha256-{code}'" for code in hashes) or "'none'")
    return policy


# === Setting up: hook lines, DSH's plugin ===================================


def hook_line(state: State, agent: str) -> str:
    """The shell line for an agent's config: silent and free of cost in mode home, and where
    python or a4p.py have gone (measured: an exit status of 2 makes Claude Code deny the call)."""
    import shlex
    out = shlex.quote(os.path.join(state.home, "out"))
    script = shlex.quote(os.path.abspath(__file__))
    python = shlex.quote(sys.executable)
    if state.home != os.path.expanduser("~/.a4p"):  # the agent's environment may not say so
        python = f"A4P_HOME={shlex.quote(state.home)} {python}"
    return f"[ ! -e {out} ] || {python} -I -S {script} hook {agent} || true"


def hook_config(state: State, agent: str) -> Json:
    """What goes into an agent's JSON config, under `hooks`."""
    hook = {"type": "command", "command": hook_line(state, agent), "timeout": HOOK_TIMEOUT}
    matcher = {"claude": "AskUserQuestion", "codex": "^request_user_input(_async)?$"}[agent]
    events = {"claude": ("PreToolUse", "PermissionRequest"), "codex": ("PreToolUse",)}[agent]
    return {"hooks": {event: [{"matcher": matcher, "hooks": [hook]}] for event in events}}


AGENT_FILES = {"claude": "~/.claude/settings.json", "codex": "~/.codex/hooks.json"}

DSH_PLUGIN = r"""// Written by a4p.py: hands ask_user_question to a4p, and the answer to the model.
import { spawn } from 'node:child_process';

export const name = 'a4p';
export const inject = ['tools'];

// Runs the hook in a process group of its own, so that an abort ends all of it.
function ask(command, payload, signal) {
  return new Promise((resolve) => {
    const child = spawn('/bin/sh', ['-c', command],
      { cwd: payload.cwd, stdio: ['pipe', 'pipe', 'ignore'], detached: true });
    const stop = () => { try { process.kill(-child.pid, 'SIGTERM'); } catch { /* gone */ } };
    let out = '';
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
    child.stdin.on('error', () => {});
    child.on('error', () => resolve(null));
    child.stdout.on('data', (data) => { out += data; });
    child.on('close', () => {
      signal?.removeEventListener('abort', stop);
      try {
        const value = JSON.parse(out);
        resolve(Array.isArray(value?.answers) ? value : null);
      } catch { resolve(null); }
    });
    child.stdin.end(JSON.stringify(payload));
  });
}

const usable = (result) => !result?.isError && !result?.value?.pending;

export function apply(ctx, config = {}) {
  ctx.on('tools/execute', async (exec, next) => {
    const header = exec.agent?.session?.header;
    const ours = exec.name === 'ask_user_question' && config.command && !header?.parentSession;
    if (!ours) return next();
    const payload = {
      hook_event_name: 'AskUserQuestion', agent: 'dsh', session_id: header?.id ?? '',
      parent_session: null, cwd: header?.cwd ?? process.cwd(), tool_name: exec.name,
      tool_use_id: exec.callId, tool_input: exec.arguments,
    };
    const result = (value) =>
      ({ isError: false, value, content: [{ type: 'text', text: JSON.stringify(value) }] });
    const turn = exec.signal ?? new AbortController().signal;
    if (!config.beside) {
      const value = await ask(config.command, payload, turn);
      return value ? result(value) : next();
    }
    // Beside: DSH's own card and the phone at once; the first answer ends the other.
    const card = new AbortController(), phone = new AbortController();
    exec.signal = AbortSignal.any([turn, card.signal]);
    try {
      const native = Promise.resolve().then(next).then((got) => ({ got }), (error) => ({ error }));
      const asked = ask(config.command, payload, AbortSignal.any([turn, phone.signal]));
      const first = await Promise.race([
        native.then((end) => (end.error || !usable(end.got)
          ? asked.then((value) => (value ? { value } : end)) : end)),
        asked.then((value) => (value ? { value } : native)),
      ]);
      if (!first.value) phone.abort(); else { card.abort(); await native; }
      if (first.error) throw first.error;
      return first.value ? result(first.value) : first.got;
    } finally { exec.signal = turn; }
  });
}
"""


class DshMount:
    """a4p's entry in `$DSH_HOME/cordis.patch.yml`, which holds for every profile (0.1, 0.2).

    The file is a YAML list, or comments and `[]`: an entry behind `[]` keeps dsh from booting,
    and so does a plugin file that is missing (0.1.0-rc.8), so that one is removed last.
    """

    begin, end = "# a4p begin", "# a4p end"

    def __init__(self, state: State) -> None:
        folder = os.environ.get("DSH_HOME") or os.path.expanduser("~/.dsh")
        self.patch = os.path.join(os.path.abspath(folder), "cordis.patch.yml")
        self.plugin = os.path.join(os.path.abspath(folder), "a4p.mjs")
        self.config = {"command": hook_line(state, "dsh"), "beside": state.config.desk == "beside"}

    def install(self) -> None:
        """Write the plugin, then mount it; raises A4pError and leaves all as it was."""
        text = self._without(self._read())
        block = self._block()
        bare = [row for row in text.splitlines() if row.strip() and not row.startswith("#")]
        if bare == ["[]"]:
            text = text.replace("[]\n" if "[]\n" in text else "[]", f"{self.begin} was []\n{block}")
        elif all(row[0] in "- " for row in bare):
            text += ("" if text.endswith("\n") or not text else "\n") + f"{self.begin}\n{block}"
        else:
            raise A4pError("foreign_yaml", file=self.patch, lines=block)
        make_dir(os.path.dirname(self.patch))
        write_private(self.plugin, DSH_PLUGIN)
        write_private(self.patch, text)

    def uninstall(self) -> bool:
        """Take the entry out, then the plugin away; True where there was one."""
        text = self._read()
        bare = self._without(text)
        if bare == text:
            return remove(self.plugin)
        if bare.strip():
            write_private(self.patch, bare)
        else:
            remove(self.patch)
        remove(self.plugin)
        return True

    def _block(self) -> str:
        import json
        return (f"- insert:\n    - id: a4p\n      name: {json.dumps(self.plugin)}\n"
                f"      config: {json.dumps(self.config)}\n{self.end}\n")

    def _read(self) -> str:
        try:
            with open(self.patch, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("config_read", file=self.patch, detail=error) from None

    def _without(self, text: str) -> str:
        """The text as it was before a4p's entry."""
        import re
        form = rf"^{self.begin}(?P<was> was \[\])?\n.*?^{self.end}\n"
        return re.sub(form, lambda found: "[]\n" if found["was"] else "", text, flags=re.M | re.S)


# === The command line =======================================================


class Options:
    """What argparse found, and the state; `run` is the command."""

    run: Callable[[Options], int]
    state: State
    lang: str

    def __getattr__(self, name: str) -> Any:  # argparse sets the rest
        raise AttributeError(name)

    def say(self, key: str, **values: object) -> str:
        """A text in the terminal's language."""
        return say(self.lang, key, **values)


def show(text: str, file: Any = None) -> None:
    """One print, with everything escaped that a terminal would act on, but for newlines."""
    print("\n".join(escaped(row) for row in text.split("\n")), file=file)


def need_topic(state: State) -> Config:
    """The config with a topic; raises UsageError where there is none yet."""
    if not state.config.topic:
        raise UsageError("no_config")
    return state.config


def cmd_out(options: Options) -> int:
    """Go out: from now on questions go to the phone."""
    need_topic(options.state)
    until = int(time.time() + seconds_of(options.duration)) if options.duration else None
    wait = seconds_of(options.wait) if options.wait else None
    if wait and wait > WAIT_LIMIT:
        raise UsageError("duration", value=options.wait)
    make_dir(options.state.home)
    write_private(os.path.join(options.state.home, "out"),
                  f"{until if until else ''}\n{wait if wait else ''}\n")
    sweep(options.state)
    if until:
        print(options.say("out", until=time.strftime("%Y-%m-%d %H:%M", time.localtime(until))))
    else:
        print(options.say("out_open"))
    return 0


def cmd_home(options: Options) -> int:
    """Come home: questions stay at the terminal, and all that waits is released."""
    remove(os.path.join(options.state.home, "out"))
    pending = options.state.pending
    sweep(options.state)
    released = [entry for entry in pending.entries() if pending.drop(entry["tag"])]
    print(options.say("home"))
    if released:
        print(options.say("released_n", n=len(released)))
    return 0


def cmd_status(options: Options) -> int:
    """Say the mode, the server and what waits."""
    state = options.state
    out, config = read_out(state.home), state.config
    sweep(state)
    waiting = [{key: entry.get(key) for key in ("id", "agent", "project", "text", "since",
                                                "deadline")} for entry in state.pending.live()]
    if options.json:
        print_json({"mode": "out" if out else "home", "until": out.until if out else None,
                    "wait": out.wait if out else None, "server": config.server,
                    "topic": config.topic, "waiting": waiting})
        return 0
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(out.until)) if out and out.until else ""
    print(options.say("out", until=until) if until else options.say("out_open" if out else "home"))
    if config.topic:
        print(options.say("server_is", server=config.server, topic=config.topic))
    print(options.say("waiting_n", n=len(waiting)))
    for entry in waiting:
        row = {key: plain(str(entry[key]), 60) for key in ("id", "agent", "project", "text")}
        left = int(float(entry["deadline"] or 0) - time.time())
        print(options.say("waiting_row", left=left, **row))
    return 0


def print_json(value: Json) -> None:
    """One line of JSON on stdout."""
    import json
    print(json.dumps(value))


def cmd_ask(options: Options) -> int:
    """Ask from any script and print the answer; raises NoAnswer."""
    state, config = options.state, need_topic(options.state)
    question = Question("", options.header, options.text, [Option(o) for o in options.option],
                        options.multi)
    if not options.text.strip() or len(set(question.labels)) < len(question.options) or not all(
            label.strip() for label in question.labels):
        raise UsageError("ask_options")
    timeout = seconds_of(options.timeout) if options.timeout else config.timeout
    on_signals(release)
    closings: list[Json] = []
    progress = Progress(options, time.monotonic() + timeout)
    try:
        with Conversation(state, Sender("Ask", os.path.basename(os.getcwd())), timeout,
                          closings.append, progress.tick) as talk:
            outcome = talk.ask(question)
    finally:
        progress.clear()
        deliver_later(state, closings)
    if outcome.answer is None:
        raise NoAnswer("no_answer" if outcome.state == "timeout" else "not_waiting")
    answer = outcome.answer
    if options.json:
        print_json({"selected": answer.selected, "text": answer.text or None})
    else:
        show("\n".join([*answer.selected, *([answer.text] if answer.text else [])]))
    return 0


class Progress:
    """One line on stderr that says what is waited for; only where stderr is a terminal."""

    def __init__(self, options: Options, end: float) -> None:
        self.options = options
        self.end = end
        self.shown = -1

    def tick(self) -> str:
        """Show the seconds left; returns "", for Conversation's `ended`."""
        left = max(0, int(self.end - time.monotonic()))
        if sys.stderr.isatty() and left != self.shown:
            self.shown = left
            print("\r\x1b[K" + self.options.say("ask_wait", left=left), end="", file=sys.stderr,
                  flush=True)
        return ""

    def clear(self) -> None:
        """Take the line away."""
        if self.shown >= 0:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def cmd_notify(options: Options) -> int:
    """Send a plain push; raises Refused."""
    config, ntfy = need_topic(options.state), Ntfy(options.state.config)
    body = {"topic": config.topic, "title": cut_end(" ".join(options.title.split()) or "a4p",
                                                    TITLE_LIMIT),
            "message": cut_middle(options.text, MESSAGE_LIMIT - 500)}
    within(PUBLISH_WAIT, lambda: ntfy.publish(body), ntfy.server)
    print(options.say("sent"))
    return 0


def cmd_log(options: Options) -> int:
    """Print what happened to each question; with -f go on as more happens."""
    path, at = options.state.log.path, 0
    while True:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                if os.stat(path).st_size < at:
                    at = 0  # the log was trimmed
                file.seek(at)
                for row in file:
                    print(escaped(row.rstrip("\n")), flush=True)
                at = file.tell()
        except FileNotFoundError:
            at = 0
        if not options.follow:
            return 0
        time.sleep(0.5)


def cmd_setup(options: Options) -> int:
    """Make the topic, save the config, and say what to do on the phone and for each agent."""
    state = options.state
    changes: Json = {"topic": options.topic or state.config.topic or "a4p-" + random_id(26),
                     "lang": options.language or state.config.lang}
    if options.server:
        changes["server"] = options.server.rstrip("/")
    for key, value in changes.items():
        if not setting_fits(key, value) or not value:
            raise UsageError("env_value", name="--" + key, want=SETTINGS[key][2])
    state.config.save(**changes)
    state, options.lang = State(state.home), resolve_lang(changes["lang"])
    config = state.config
    print(options.say("setup_done", file=config.path, topic=config.topic), end="\n\n")
    print(options.say("setup_phone", server=config.server, topic=config.topic), end="\n\n")
    import json
    for agent, file in AGENT_FILES.items():
        print(options.say("setup_hooks", agent=AGENTS[agent].title, file=file))
        print(json.dumps(hook_config(state, agent), indent=2, ensure_ascii=False), end="\n\n")
    print(options.say("setup_dsh"))
    print(options.say("setup_next"))
    return 0


def cmd_install(options: Options) -> int:
    """Put a4p into an agent's own config."""
    mount = DshMount(options.state)
    mount.install()
    print(options.say("installed", file=mount.patch))
    return 0


def cmd_uninstall(options: Options) -> int:
    """Take a4p out of an agent's own config."""
    mount = DshMount(options.state)
    done = mount.uninstall()
    print(options.say("uninstalled" if done else "not_installed", file=mount.patch))
    return 0


def cmd_serve(options: Options) -> int:
    """Run the embedded server until a signal ends it; raises UsageError."""
    import contextlib
    state = options.state
    host, _, port = options.listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError("listen_form", value=plain(options.listen, 60))
    token = serve_token(state, options.token)
    if not token and not is_loopback(host):
        raise UsageError("serve_token", address=host)
    make_dir(state.home)
    on_signals(release)
    with Server(host, int(port), token, os.path.join(state.home, "serve.jsonl"), PAGE.encode(),
                options.base_url, options.upstream, state.log.line) as server:
        print(server.url, flush=True)
        show_link(options, server, host, token)
        with contextlib.suppress(KeyboardInterrupt, Released):
            while True:
                time.sleep(3600)
    return 0


def serve_token(state: State, given: str | None) -> str:
    """`--token T`; `--token` alone makes one and keeps it in the config; else the kept one."""
    kept = str(state.config.stored.get("serve_token", ""))
    if given is None or given:
        return given or kept
    if not kept:
        kept = random_id(26)
        state.config.save(serve_token=kept)
    return kept


def show_link(options: Options, server: Server, host: str, token: str) -> None:
    """The link for the phone, as text and as a QR code; the token stands in the fragment."""
    base = options.base_url or server.url.replace(f"//{host}:", f"//{lan_address(host)}:")
    link = f"{base}/{options.state.config.topic}" + (f"#t={token}" if token else "")
    print(options.say("serve_link", link=link))
    form = QR_ANSI if sys.stdout.isatty() else "{}"
    print("\n".join(map(form.format, qr_lines(link))), flush=True)


def lan_address(host: str) -> str:
    """The address of this machine in its network, where `host` means all of them."""
    import socket
    if host not in ("0.0.0.0", "::"):
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


DEMO_CALL = {
    "hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "session_id": "demo",
    "cwd": "/home/me/shop", "tool_input": {"questions": [{
        "question": "How should the service run?", "header": "Deploy", "multiSelect": False,
        "options": [{"label": "Docker", "description": "One container"},
                    {"label": "systemd", "description": "A unit on the host"},
                    {"label": "local only", "description": "No deployment yet"}]}]}}


def cmd_demo(options: Options) -> int:
    """The whole main job on this machine: a server, a question, the JSON that comes out."""
    import json
    import tempfile
    with tempfile.TemporaryDirectory() as folder, Server("127.0.0.1", 0) as server:
        state = State(folder)
        topic = "a4p-" + random_id(26)
        state.config.save(server=server.url, topic=topic, lang=options.lang, timeout=300)
        state = State(folder)
        call = AGENTS["claude"].read(DEMO_CALL, "wait")
        if call is None:
            raise A4pError("unexpected", detail="demo", file="")
        phone = DemoPhone(options, Ntfy(state.config), topic)
        with Conversation(state, call.sender, 300, phone.closed) as talk:
            outcome = talk.ask(call.questions[0])
        if outcome.answer is None:
            raise NoAnswer("no_answer")
        print("\n" + options.say("demo_got"))
        print(json.dumps(call.output([outcome.answer]), indent=2, ensure_ascii=False))
    return 0


class DemoPhone:
    """Plays the phone: shows each push, and answers by itself where `--reply` says what."""

    def __init__(self, options: Options, ntfy: Ntfy, topic: str) -> None:
        import threading
        self.options = options
        self.ntfy = ntfy
        self.topic = topic
        self.stream = ntfy.stream([topic], "")
        threading.Thread(target=self._run, daemon=True).start()

    def closed(self, body: Json) -> None:
        """The push is over."""
        self.stream.close()

    def _run(self) -> None:
        for event in self.stream:
            if event["event"] == "message":
                self._show(event)

    def _show(self, event: Json) -> None:
        replies, message = self.topic + REPLY_SUFFIX, str(event["message"])
        rows = [str(event["title"]), "", *message.split("\n"), "",
                "   ".join(f"[ {action['label']} ]" for action in event.get("actions", []))]
        print(self.options.say("demo_push") + "\n" + "\n".join("  | " + row for row in rows) + "\n")
        if self.options.reply is not None:
            self.ntfy.publish({"topic": replies, "message": self.options.reply})
            return
        url = f"{self.ntfy.server}/{replies}"
        print(self.options.say("demo_ask", curl=f"curl -d 3 {url}", url=url), flush=True)


# name: (run, help in English, in Chinese, example, arguments for add_argument)
COMMANDS: dict[str, tuple[Any, str, str, str, list[tuple[tuple[str, ...], Json]]]] = {
    "setup": (cmd_setup, "make a topic, save the config, show the hook lines",
              "生成主题，保存配置，显示钩子", "a4p.py setup --server https://ntfy.sh", [
                  (("--yes",), {"action": "store_true", "help": "take every default"}),
                  (("--server",), {"default": "", "help": "the ntfy server's URL"}),
                  (("--topic",), {"default": "", "help": "an existing topic"}),
                  (("--lang",), {"dest": "language", "default": "", "help": "en or zh"})]),
    "out": (cmd_out, "questions go to the phone from now on", "从现在起问题发到手机",
            "a4p.py out --for 2h --wait 10m", [
                (("--for",), {"dest": "duration", "default": "", "metavar": "2h",
                              "help": "come home by itself after this time"}),
                (("--wait",), {"default": "", "metavar": "10m",
                               "help": "how long each question waits"})]),
    "home": (cmd_home, "questions stay at the terminal; release what waits",
             "问题留在终端；放回所有等待的问题", "a4p.py home", []),
    "status": (cmd_status, "the mode, the server, what waits", "模式、服务器、等待的问题",
               "a4p.py status --json", [
                   (("--json",), {"action": "store_true", "help": "for programs"})]),
    "hook": (run_hook, "what agents call", "由 agent 调用", "a4p.py hook claude < call.json", [
        (("agent",), {"nargs": "*", "help": "claude, codex or dsh"})]),
    "ask": (cmd_ask, "ask from any script, print the answer", "从脚本提问并打印回答",
            'a4p.py ask "Deploy now?" -o Yes -o No --timeout 10m', [
                (("text",), {"metavar": "QUESTION"}),
                (("-o", "--option"), {"action": "append", "default": [], "help": "a choice"}),
                (("--multi",), {"action": "store_true", "help": "several may be chosen"}),
                (("--header",), {"default": "", "help": "a short title"}),
                (("--timeout",), {"default": "", "metavar": "10m", "help": "how long to wait"}),
                (("--json",), {"action": "store_true", "help": "print JSON"})]),
    "notify": (cmd_notify, "send a plain push", "发送一条普通推送",
               'a4p.py notify "Build done" --title CI', [
                   (("text",), {}), (("--title",), {"default": ""})]),
    "serve": (cmd_serve, "an ntfy-compatible server with an answer page", "内置的 ntfy 兼容服务器",
              "a4p.py serve --listen 127.0.0.1:8080", [
                  (("--listen",), {"default": "127.0.0.1:2586", "metavar": "HOST:PORT"}),
                  (("--token",), {"nargs": "?", "const": "", "metavar": "T",
                                  "help": "what clients must know; alone: one is made and kept"}),
                  (("--base-url",), {"default": "", "help": "its URL as phones see it"}),
                  (("--upstream",), {"default": "", "metavar": "https://ntfy.sh",
                                     "help": "wake iOS phones; each push counts there"})]),
    "demo": (cmd_demo, "see it work, without account or network", "本机演示，无需账号和网络",
             "a4p.py demo --reply 3", [
                 (("--reply",), {"metavar": "R", "help": "answer by itself"})]),
    "install": (cmd_install, "put a4p into an agent's config", "写入 agent 的配置",
                "a4p.py install dsh", [(("agents",), {"nargs": "+", "choices": ["dsh"]})]),
    "uninstall": (cmd_uninstall, "take it out again", "从 agent 的配置移除",
                  "a4p.py uninstall dsh", [(("agents",), {"nargs": "+", "choices": ["dsh"]})]),
    "log": (cmd_log, "what happened to each question", "每个问题的经过", "a4p.py log -f", [
        (("-f", "--follow"), {"action": "store_true", "help": "go on as more happens"})]),
}


def parser(lang: str) -> Any:
    """The argument parser; every command's help ends with an example."""
    import argparse
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise UsageError("usage", detail=message, prog=self.prog)

    top = Parser(prog="a4p.py", description=(__doc__ or "").split("\n")[0])
    top.add_argument("--version", action="version", version="a4p " + VERSION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (run, english, chinese, example, arguments) in COMMANDS.items():
        text = chinese if lang == "zh" else english
        command = commands.add_parser(name, help=text, description=text,
                                      epilog="example: " + example)
        for names, settings in arguments:
            command.add_argument(*names, **settings)
        command.set_defaults(run=run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. The one place where errors become text."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["hook"] and not set(args) & {"-h", "--help"}:
        return run_hook(args[1:])
    if args == ["deliver"]:
        return run_deliver()
    import contextlib
    options = Options()
    options.state, options.lang = State(), resolve_lang("auto")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Chinese or emoji
    try:
        with contextlib.suppress(UsageError):  # its own command says so, if it needs the config
            options.lang = options.state.config.lang
        parser(options.lang).parse_args(args, options)
        status: int = options.run(options)
        return status
    except A4pError as error:
        show("a4p: " + error.text(options.lang), sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, Released):
        print("a4p: " + options.say("withdrawn_cli"), file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        options.state.log.failure("a4p", error)
        print("a4p: " + options.say("unexpected", detail=type(error).__name__,
                                    file=options.state.log.path), file=sys.stderr)
        return 1


if __name__ == "__main__":
    exit_status = main()
    if sys.argv[1:2] == ["hook"]:
        os._exit(exit_status)  # taking modules and threads down costs the agent 20 ms
    sys.exit(exit_status)
