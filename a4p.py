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

# Imported when something of theirs is first asked for: a hook at home, and `typing`, cost nothing.
LAZY = """argparse base64 collections contextlib difflib email.errors email.header hashlib hmac
    http.server json queue re select shlex shutil signal socket socketserver ssl subprocess tempfile
    threading traceback unicodedata urllib.parse urllib.request""".split()  # noqa: SIM905
TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse, base64, collections, contextlib, difflib, hashlib, hmac, json, queue, re, select, shlex, shutil, signal, socket, socketserver, ssl, subprocess, tempfile, threading, traceback, unicodedata  # noqa: E401, E501, I001
    import email.errors as email_errors, email.header as email_header, http.server as http_server, urllib.parse as urllib_parse, urllib.request as urllib_request  # noqa: E401, E501
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from http.server import BaseHTTPRequestHandler as HandlerBase
    from typing import Any
    Json = dict[str, Any]
    Read = Callable[["Call"], "list[Question]"]
    Write = Callable[["Call", Sequence["Answer"]], "Json | None"]
    Finding = tuple[str, str, Json]  # of doctor: ok, warning or failure; a text's key; its values
else:
    HandlerBase = object
    class Lazy:
        """A module of LAZY; submodules have _ for the dot in their names."""

        def __init__(self, name):
            self.name = name

        def __getattr__(self, key):
            __import__(self.name)
            return getattr(sys.modules[self.name], key)
    globals().update((name.replace(".", "_"), Lazy(name)) for name in LAZY)

# === Constants and limits ===================================================

VERSION, REPLY_SUFFIX = "0.1.0", "-response"
DESK_WORDS = ("desk", "终端")  # typed alone on the phone: back to the terminal
ALLOW_WORDS = ("yes", "y", "ok", "allow", "允许", "同意", "可以")  # typed, these alone allow
DENY_WORDS = ("no", "n", "deny", "拒绝", "不")
RISKS = (  # regular expressions, in any case: what in a tool's input gives the push a warning
    r"(?<!-)\brm\b.*\s(-\w*[rf]|--recursive|--force)", r"\b(sudo|doas|pkexec|su)\s",
    r"\bgit\b.*\bpush\b.*\s(-\w*[fd]|--force|--delete|--mirror|\+\w)",
    r"\bgit\b.*\b(reset\b.*--hard|clean\b.*\s-\w*f)", r"\b(\w*sh|eval)\b.*[(`]\s*(curl|wget)\b",
    r"\b(curl|wget)\b.*\|.*\b(\w*sh|python\S*|perl|node)\b",
    r"\b(mkfs|shutdown|reboot|p?kill(all)?)\b", r"\bfind\b.*\s-(delete|exec)\b", r"\bdd\b.*\bof=",
    r"\bch(mod|own)\b.*\s(-\w*R|0?777)", r"(>|\btee\b.*\s)\s*(~|\.\./|/(?!dev/null\b))",
    r"\.(ssh|aws|gnupg|netrc|env)\b|\bid_rsa", r"\b(drop|truncate)\s+(table|database)\b",
    r"\b(kubectl|terraform)\b.*\b(delete|destroy|apply)\b", r"\bpublish\b|--no-verify",
    r"danger-full-access|bypassPermissions|--dangerously")
OPEN_WAIT = 3.0  # seconds for a stream's `open`, then publish all the same and poll
PUBLISH_WAIT = 10.0  # seconds for one push, name look-up included
CONNECT_WAIT = 8.0  # seconds to connect, and for each answer of a request that is no stream
SILENCE = 77.0  # seconds; ntfy sends a keepalive each 45, so after 77 the socket is dead
POLL_EVERY, POLL_SLOWEST = 5.0, 30.0  # seconds; ntfy refills one request in 5
BACKOFF = (0.3, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # seconds between attempts to open a stream
TEST_WAIT = 120.0  # seconds for the answer to setup's question
TICK = 0.25  # seconds between looks at the registry, the transcript and the agent
NEVER = float("inf")  # where a time or a limit is meant
STDIN_LIMIT, STDIN_WAIT = 10_000_000, 10.0  # bytes of one hook call, seconds for it to arrive
LINE_LIMIT = 1 << 20  # bytes of one line of a stream
REPLY_LIMIT = 65_536  # bytes of a reply sent as a text attachment
MESSAGE_LIMIT = 4095  # bytes; ntfy 2.13 turns 4096 into an attachment, or 400/40014
BODY_LIMIT = 8191  # bytes of JSON; 8192 are 413/41303
WHOLE_AIM = 3800  # bytes of JSON that FCM and APNs (4 KB) keep whole
EXTRA_LIMIT = 16_000  # bytes of JSON with the `a4p` key, for the embedded server alone
TITLE_LIMIT = 250  # bytes
BUTTONS = 3  # ntfy refuses a fourth action: 400/40018
TEXT_FLOOR = 240  # bytes of question text that are worth a push
BUTTON_SHOWN, LABEL_SHOWN = 60, 48  # bytes of a button's label, of one that is shortened
INPUT_SHOWN, TURN_SHOWN = 2400, 1000  # bytes of a tool's input, characters of a last message
FORM_KEYS = {"type", "title", "description", "default", "enum", "enumNames"}  # of a text field
LOG_LIMIT = 1_000_000  # bytes of a4p.log; the older half goes
HOOK_TIMEOUT, WAIT_LIMIT = 86_400, 82_800  # seconds: in the agents' configs; of a call, below it
TAKEN_KEPT, TAG_KEPT = 50_000, 3_600  # seconds: more than ntfy's cache of 12 h; for late replies
SPARE_ROOTS = "/etc/ssl/cert.pem"  # macOS has it, and its python.org builds do not look there
ID_LETTERS, ID_FORM = "abcdefghijklmnopqrstuvwxyz234567", r"q[a-z2-7]{10}"
TAG_LETTERS, TAG_FORM = "abcdefghjkmnpqrstuvwxyz", r"[a-z][2-9]{1,2}"
TOPIC_FORM, EVENT_ID_FORM = r"[-_A-Za-z0-9]{1,64}", r"[A-Za-z0-9]{1,32}"

# === Errors =================================================================

class A4pError(Exception):
    """What could not be done: a key of MESSAGES and its values. Only `main` shows it."""
    exit_code = 1

    def __init__(self, key: str, **values: object) -> None:
        super().__init__(key)
        self.key, self.values = key, values

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

# What comes of taking other people's JSON for what it should be
MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)

class Released(BaseException):
    """A signal took the question away: no Exception, so that no handler keeps it."""

# === Words for people =======================================================
# PHONE is for the phone, MESSAGES for the terminal: key | English | Chinese; ¶ is a new line.

def texts(rows: str) -> dict[str, tuple[str, str]]:
    """A table of texts as key -> (English, Chinese)."""
    split = (row.replace("¶", "\n").split(" | ") for row in rows.strip("\n").split("\n"))
    return {key: (english, chinese) for key, english, chinese in split}

PHONE = texts("""
question | Question | 问题
tap | Tap a button, or type your own words. | 点按钮，或直接输入文字。
number | Reply with the number, or your own words. | 回复编号，或直接输入文字。
letter | Reply with the letter, or your own words. | 回复字母，或直接输入文字。
numbers | Several may be chosen: reply with the numbers, such as {some}. | 可多选：回复编号，例如 {some}。
letters | Several may be chosen: reply with the letters, such as {some}. | 可多选：回复字母，例如 {some}。
words | Reply with your own words. | 请直接输入文字回复。
tagged | Several questions wait: begin a typed reply with {tag}. | 有多个问题在等：输入回复时请以 {tag} 开头。
browser | In a browser: {url} | 用浏览器回复：{url}
reply | Reply | 回复
allow | Allow | 允许
always | Always | 始终允许
deny | Deny | 拒绝
adds | Always adds: {rules} | “始终允许”会添加：{rules}
may | Tap a button, or type: yes allows, no denies, other words deny and are passed on. | 点按钮，或输入：可以＝允许，不＝拒绝；其他文字＝拒绝，并转告 agent。
plan | Plan | 计划
approve | Approve | 批准
keep | Keep planning | 继续规划
yes | Yes | 是
no | No | 否
finished | Finished | 已完成
done | Done | 结束
go_on | Type what to do next, or tap Done. | 输入接下来要做的事，或点“结束”。
answered | Answered: {answer} | 已回答：{answer}
timeout | Not answered, back at the terminal | 无人回答，已回到终端
released | Released, back at the terminal | 已退回终端
withdrawn | Withdrawn by the agent | 已被 agent 撤回
desk | Answered at the desk | 已在电脑前回答
lost | No longer waiting, see the terminal | 已不再等待，请看终端
not_listed | {reply} is not on the list ({marks}). Send it again to give it as your words. | 列表中没有 {reply}（{marks}）。再发一次，就按原话转达。
only_listed | {reply} is not on the list ({marks}), and only the list counts here. | 列表中没有 {reply}（{marks}），这里只能选列表中的。
not_text | A reply must be plain text, up to 64 KB. | 回复必须是纯文本，最多 64 KB。
which | Several questions wait. Which one is “{reply}” for? Tap it, or send the reply again behind its tag: | 有多个问题在等。“{reply}”是回答哪一个的？请点选，或以标签开头重发：
tag_over | The question {tag} no longer waits, “{reply}” went nowhere. | 问题 {tag} 已不在等待，“{reply}”没有送出。
""")  # noqa: E501
MESSAGES = texts("""
out | Out: questions go to the phone until {until}. | 外出模式：问题会发到手机，直到 {until}。
out_open | Out: questions go to the phone. `a4p.py home` ends it. | 外出模式：问题会发到手机。`a4p.py home` 结束。
home | Home: questions stay at the terminal. | 在家模式：问题留在终端。
released_n | Released: {n}. | 已退回终端：{n} 个。
server_is | Server {server}, topic {topic}. | 服务器 {server}，主题 {topic}。
no_config | no topic yet - run: a4p.py setup | 还没有主题 - 请运行：a4p.py setup
waiting_n | Waiting: {n}. | 等待中：{n} 个。
waiting_row |   {id}  {agent}  {project}  {left} s left  {text} |   {id}  {agent}  {project}  还剩 {left} 秒  {text}
ask_wait | Waiting for the phone: {left} s left (Ctrl-C withdraws) | 等待手机回复：还剩 {left} 秒（Ctrl-C 撤回）
hook_hint | `a4p.py hook` is called by agents, with JSON on stdin - run: a4p.py setup | `a4p.py hook` 由 agent 调用，从 stdin 读 JSON - 请运行：a4p.py setup
mcp_call | {fault} - mend the call | {fault} - 请修正调用
sent | Sent. | 已发送。
no_answer | nobody answered in time | 没有人及时回答
not_waiting | the question was released | 问题已退回终端
withdrawn_cli | stopped | 已中止
config_json | {file}, line {line}: not JSON ({detail}) - mend that line | {file} 第 {line} 行：不是 JSON（{detail}）- 请修正该行
config_value | {file}, line {line}: {name} must be {want} - mend it | {file} 第 {line} 行：{name} 必须是 {want} - 请修正
env_value | {name} must be {want} - mend or unset it | {name} 必须是 {want} - 请修正或取消
config_read | {file} cannot be read ({detail}) - check its owner and mode | 无法读取 {file}（{detail}）- 请检查所有者和权限
home_write | {file} cannot be written ({detail}) - check it and its folder; A4P_HOME moves those of a4p | 无法写入 {file}（{detail}）- 请检查它和它的目录；a4p 自己的目录可用 A4P_HOME 换掉
ask_options | a question needs a text, and options that differ - check -o | 提问需要文字和互不相同的选项 - 请检查 -o
duration | {value} is no duration, or too long here - write 90, 45s, 10m or 2h | {value} 不是时长，或在这里太长 - 请写 90、45s、10m 或 2h
no_network | {server} cannot be reached ({detail}) - check the network, `server`, and that it runs | 无法连接 {server}（{detail}）- 请检查网络、`server`，以及服务器是否在运行
slow_network | {server} did not answer within {seconds} s - check the network | {server} 在 {seconds} 秒内没有回应 - 请检查网络
bad_tls | {server} does not prove who it is ({detail}) - check the certificate | {server} 的证书无法验证（{detail}）- 请检查证书
moved | {server} answers HTTP {http} and points elsewhere - set `server` to {to} | {server} 返回 HTTP {http} 并指向别处 - 请把 `server` 设为 {to}
refused | {server} refused it: HTTP {http}, ntfy code {code} {detail} - {mend} | {server} 拒绝了请求：HTTP {http}，ntfy 代码 {code} {detail} - {mend}
no_ntfy | {server} answered, but not as ntfy does (a login page?) - check the network | {server} 有回应，但不是 ntfy（登录页面？）- 请检查网络
socks | SOCKS proxies are not supported - set `proxy` to an http:// one, or none | 不支持 SOCKS 代理 - 请把 `proxy` 设为 http:// 代理或留空
too_big | the question does not fit in one push - it stays at the terminal | 问题太长，一条推送放不下 - 留在终端
mend_401 | the credentials are wrong, see `token` | 凭据错误，请检查 `token`
mend_403 | these credentials, or none, may not use this topic; see `token` | 该凭据（或没有凭据）无权使用此主题；请检查 `token`
mend_42908 | the daily quota is used up until midnight UTC; try your own server | 今日配额已用完（UTC 零点重置）；可改用自己的服务器
mend_413 | the push is too large | 推送过大
mend_429 | wait a minute, fewer requests are allowed | 请等一分钟，请求过于频繁
mend | see the server's log | 请看服务器日志
listen | cannot listen on {address} ({detail}) - choose another with --listen | 无法监听 {address}（{detail}）- 请用 --listen 换一个
listen_form | {value} is no HOST:PORT - write 127.0.0.1:2586 | {value} 不是 HOST:PORT - 请写 127.0.0.1:2586
serve_token | {address} is open to others - add --token, or listen on 127.0.0.1 | {address} 对外开放 - 请加上 --token，或监听 127.0.0.1
serve_link | On the phone: {link} | 手机打开：{link}
stdin_slow | stdin was not complete within {seconds} s | {seconds} 秒内没有读完标准输入
stdin_big | stdin is over {limit} bytes | 标准输入超过 {limit} 字节
usage | {detail} - see {prog} --help | {detail} - 请看 {prog} --help
stdin_json | stdin is not JSON: {detail} | 标准输入不是 JSON：{detail}
unexpected | unexpected {detail} - see {file} | 意外错误 {detail} - 见 {file}
setup_done | Saved {file} (topic {topic}). | 已保存 {file}（主题 {topic}）。
setup_android | On the phone: install ntfy, subscribe to¶    {server}/{topic}¶Whoever knows the topic can read and answer: it is a password. | 手机上：安装 ntfy，订阅¶    {server}/{topic}¶知道主题的人就能看到并回答：它就是密码。
setup_ios | On the phone: install ntfy, subscribe to {topic} on {server}.¶Its app cannot type: a tap on a push opens a page that can. Whoever knows¶    {server}/{topic}¶can read and answer: it is a password. | 手机上：安装 ntfy，在 {server} 订阅 {topic}。¶它的 App 不能打字：点推送会打开能输入的网页。¶    {server}/{topic}¶知道这个链接的人就能查看和回答：它就是密码。
setup_page | On the phone, open¶    {server}/{topic}¶Whoever knows this link can read and answer: it is a password. | 用手机打开¶    {server}/{topic}¶知道这个链接的人就能看到并回答：它就是密码。
setup_embedded | In another terminal start the server, leave it running, and open on the phone the link that it shows:¶    a4p.py serve --listen 0.0.0.0:2586 --token | 在另一个终端启动服务器，让它一直运行，并用手机打开它显示的链接：¶    a4p.py serve --listen 0.0.0.0:2586 --token
q_lang | Language: en or zh [{default}]:  | 语言：en 或 zh [{default}]：
q_server | Server: the https:// URL of an ntfy server, or embedded for a4p.py serve on this machine [{default}]:  | 服务器：ntfy 服务器的 https:// URL，或 embedded（本机运行 a4p.py serve）[{default}]：
q_topic | Topic, as secret as a password [{default}]:  | 主题，像密码一样保密 [{default}]：
q_phone | Phone: android, ios, or page for a browser alone [{default}]:  | 手机：android、ios，或 page（只用浏览器）[{default}]：
q_agents | Put hooks into the config of (claude codex dsh, or none) [{default}]:  | 把 hook 写入这些 agent 的配置（claude codex dsh，或 none）[{default}]：
q_ready | Ready on the phone? Enter sends a test question:  | 手机准备好了吗？按回车发送测试问题：
q_bad | {value} does not fit here - {asked} | {value} 不合要求 - {asked}
test_text | Does this reach you? | 收到了吗？
test_ok | It works: “{answer}” came back {ms} ms after the question was sent. | 成功：问题发出 {ms} 毫秒后收到“{answer}”。
silent_android | The server took the question, and no reply came. The usual causes: another topic or server in the app; notifications¶off or muted; battery optimisation; no instant delivery (needed without Google, and with an own server). | 服务器收下了问题，但没有等到回复。常见原因：App 订阅的主题或服务器不对；通知被关闭或静音；¶电池优化；没开即时送达（没有谷歌服务或自建服务器时必须开）。
silent_ios | The server took the question, and no reply came. The usual causes: another topic or server in the app; notifications off;¶with an own server: no `upstream-base-url`, or a `base-url` that is not the app's. | 服务器收下了问题，但没有等到回复。常见原因：App 订阅的主题或服务器不对；通知被关闭；¶自建服务器：没有设 upstream-base-url，或 base-url 与 App 里的不一致。
silent_page | The server took the question, and no reply came. The usual causes: another topic or server is open; the page was closed, or the phone asleep. | 服务器收下了问题，但没有等到回复。常见原因：打开的主题或服务器不对；页面被关闭，或手机已休眠。
installed | Installed: {file} | 已安装：{file}
uninstalled | Removed from: {file} | 已移除：{file}
unchanged | Nothing to change in {file}. | {file} 无需改动。
agent_file | {file}: {detail} - mend that file; a4p left it as it was | {file}：{detail} - 请修正该文件；a4p 没有改动它
by_hand | What a4p has in {file}, for putting it in or taking it out by hand:¶{lines} | a4p 在 {file} 中的内容，请手动加入或移除：¶{lines}
name_agents | there is no terminal to ask on - name the agents ({agents}), or add --yes | 没有终端可以询问 - 请写明 agent（{agents}），或加 --yes
needs_claude |   Open sessions of Claude Code use it from the next question on. |   已打开的 Claude Code 会话从下一个问题起生效。
needs_codex |   Start `codex` once in a terminal and trust the hooks: “Hooks need review”. Until then nothing¶  comes, and `codex exec` skips them without a word. |   请在终端里启动一次 codex，在 “Hooks need review” 处信任这些 hook。¶  在那之前不会有推送，codex exec 会直接跳过，什么提示都没有。
needs_dsh |   `dsh web` loads it within seconds. The profiles headless, sdk and acp have no question tool. |   dsh web 几秒内就会加载。headless、sdk、acp 这几个 profile 没有提问工具。
awake | This machine may fall asleep, and then nothing is asked. Start the agent so: {tool} claude | 这台机器可能会休眠，休眠后就不会提问。请这样启动 agent：{tool} claude
d_status | ok warning failure | 正常 注意 故障
d_python | Python {version}; hooks call {path} | Python {version}；hook 调用 {path}
d_python_bad | Python {version} is too old - run a4p.py with 3.9 or newer | Python {version} 太旧 - 请用 3.9 或更新的运行
d_config | {file} is yours alone | {file} 只有你能读
d_config_bad | others can read a4p's files - chmod go-rwx {loose} | 别人能读 a4p 的文件 - chmod go-rwx {loose}
d_keys_bad | {file} has keys that a4p does not know: {keys} - check their spelling | {file} 中有 a4p 不认识的键：{keys} - 请检查拼写
d_topic | topic {topic} cannot be guessed | 主题 {topic} 无法猜到
d_topic_bad | topic {topic} can be guessed - take a random one: a4p.py setup --topic a4p-$(openssl rand -hex 16) | 主题 {topic} 可能被猜到 - 换一个随机的：a4p.py setup --topic a4p-$(openssl rand -hex 16)
d_left | nothing is left behind; the log is {size} kB: {file} | 没有残留；日志 {size} kB：{file}
d_left_bad | {n} questions of processes that are gone; the log is {size} kB - run a4p.py status; over 2000 kB delete {file} | {n} 个问题的进程已不在；日志 {size} kB - 请运行 a4p.py status；超过 2000 kB 请删除 {file}
d_roots_bad | this Python has no certificate authorities - run its `Install Certificates.command`, or provide {file} | 这个 Python 没有根证书 - 运行 Install Certificates.command，或提供 {file}
d_proxy | through the proxy {proxy} | 经过代理 {proxy}
d_trip | {server}: a test message went there and back in {ms} ms | {server}：发布并从流中收到，用时 {ms} 毫秒
d_trip_bad | {server} takes messages, but its stream does not bring them within {seconds} s - a proxy buffers: `proxy_buffering off` in nginx | {server} 能发布，但 {seconds} 秒内流没有送达 - 有代理在缓冲：nginx 加 proxy_buffering off
d_clock_bad | this clock and the server's differ by {seconds} s - set it | 本机时钟与服务器相差 {seconds} 秒 - 请校准
d_update_bad | the server does not replace pushes, a second one tells how it ended - ntfy 2.16 or newer does | 服务器不会替换推送，结果会另发一条 - 需要 ntfy 2.16 或更新
d_alone_bad | {n} questions of another machine are on topic {topic} - give each machine its own | 主题 {topic} 上有另一台机器的 {n} 个问题 - 每台机器请用自己的主题
d_hook | {agent} {version}: installed in {file} | {agent} {version}：已装入 {file}
d_hook_bad | {agent} {version}: what is in {file} is not what install writes now - a4p.py install {name} | {agent} {version}：{file} 中的内容与现在应写入的不同 - a4p.py install {name}
d_hooks_bad | no agent asks through a4p - a4p.py install | 没有任何 agent 装有 a4p - a4p.py install
d_hook_none | {agent} {version} has no hook of a4p - a4p.py install {name} | {agent} {version} 没有装 a4p 的 hook - a4p.py install {name}
d_off_bad | {agent}: {file} keeps hooks from answering - take out {text} | {agent}：{file} 使 hook 无法回答 - 请去掉 {text}
d_other_bad | {agent}: {file} has another hook on the same tool, which may overrule a4p's - {command} | {agent}：{file} 中另有 hook 针对同一工具，可能压过 a4p 的 - {command}
d_a4phone_bad | {file} has hooks of a4phone, which would ask, too - keep one of both | {file} 中有 a4phone 的 hook，也会提问 - 请只保留一个
d_trust | Codex: the hooks are trusted | Codex：hook 已被信任
d_trust_bad | Codex: the hooks are not trusted, and `codex exec` skips them silently - start `codex` and trust them: “Hooks need review” | Codex：hook 还未被信任，codex exec 会直接跳过 - 启动 codex，在 “Hooks need review” 处信任它们
setup_next | Then: a4p.py out | 然后：a4p.py out
demo_ask | The question is out. Answer it from another terminal:¶  curl -d 3 {url}¶or open {url} in a browser. | 问题已发出。在另一个终端回答：¶  curl -d 3 {url}¶或用浏览器打开 {url}
demo_got | Claude Code gets: | Claude Code 收到：
demo_push | The phone shows: | 手机显示：
""")  # noqa: E501

def say(lang: str, key: str, **values: object) -> str:
    """The text of KEY in `lang` ("zh", else English), filled in."""
    english, chinese = PHONE.get(key) or MESSAGES[key]
    return (chinese if lang == "zh" else english).format(**values)

def escaped(text: str) -> str:
    """`text` with all that a terminal would act on written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)

def plain(text: str, limit: int = 200) -> str:
    r"""`text` as one line that is safe on a terminal, cut to `limit` characters.
    >>> plain("a\n\x1b[31mb")
    'a \\x1b[31mb'
    """
    line = " ".join(text.split())
    return escaped(line if len(line) <= limit else line[: limit - 1] + "…")

def seconds_of(text: str) -> float:
    """Seconds of a duration such as 90, 45s, 1.5m, 2h or 1d; raises UsageError."""
    found = re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([smhdSMHD]?)", text)
    units = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
    seconds = float(found[1]) * units[found[2].lower()] if found else 0
    if not 1 <= seconds <= 31_536_000:
        raise UsageError("duration", value=plain(text, 40))
    return seconds

# === State: the folder, the mode, the log, the config, what waits ===========

def read_out(home: str) -> Json | None:
    """The mode out: `until` (epoch seconds or None) and `wait` (seconds or None); None at home."""
    path = os.path.join(home, "out")
    try:
        with open(path, "rb", opener=unblocked) as file:
            first, second = file.readline(64).strip(), file.readline(64).strip()
    except OSError:
        return None
    if first and not first.isdigit():
        return None  # not ours: fail towards the terminal
    until = min(int(first), 253_402_300_799) if first else None  # the year 9999 is for ever
    if until is not None and until <= time.time():
        remove(path)
        return None
    wait = float(second) if second.replace(b".", b"", 1).isdigit() else 0
    return {"until": until, "wait": wait if 1 <= wait <= WAIT_LIMIT else None}

def unblocked(path: str, flags: int) -> int:
    """An `opener`: a pipe without a writer is an empty file, and not a wait without end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))

def remove(path: str, older: float = 0) -> bool:
    """Unlink what was changed over `older` seconds ago; True for the one caller that did it."""
    with contextlib.suppress(OSError):
        if not older or time.time() - os.lstat(path).st_ctime > older:
            os.unlink(path)
            return True
    return False

def list_dir(folder: str) -> list[str]:
    """The names in a folder; none where it is not there, or another's, which we must not empty."""
    with contextlib.suppress(OSError):
        return [] if os.path.islink(folder) else os.listdir(folder)
    return []

def write_private(path: str, text: str, place: Callable[[str, str], None] = os.replace) -> bool:
    """Write atomically, 0600, with the folder; False where os.link was too late. A4pError."""
    draft = f"{path}.{os.getpid()}.{random_id(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8", newline="") as file:
            file.write(text)
        place(draft, path)
    except OSError as error:
        if place is os.link and os.path.lexists(path):
            return False
        raise A4pError("home_write", file=path, detail=error.strerror) from None
    finally:
        remove(draft)
    return True

def random_id(length: int) -> str:
    """`length` characters of a-z2-7 from the system's randomness, 5 bits each."""
    return "".join(ID_LETTERS[byte & 31] for byte in os.urandom(length))

class Log:
    """`a4p.log`: one line for each thing that happened; never a secret, topics shortened."""

    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, "a4p.log")
        self.hidden: dict[str, str] = {}  # what never stands there: what stands in its place

    def line(self, text: str, *details: str) -> None:
        """Add a line, `details` indented below it. A full disk must not cost an answer."""
        rows = [text, *details]
        for secret, shown in self.hidden.items():  # before a cut leaves a part of one
            rows = [row.replace(secret, shown) for row in rows]
        now = time.strftime("%Y-%m-%d %H:%M:%S ")
        entry = now + "\n    ".join(plain(row, 500) for row in rows) + "\n"
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        with contextlib.suppress(OSError, ValueError, A4pError), os.fdopen(
                os.open(self.path, flags, 0o600), "a+b") as file:
            file.write(entry.encode("utf-8", "replace"))
            if file.tell() > LOG_LIMIT:
                file.seek(-LOG_LIMIT // 2, os.SEEK_END)
                kept = file.read().partition(b"\n")[2]
                write_private(self.path, str(kept, "utf-8", "replace"))

    def failure(self, what: str, error: BaseException) -> None:
        """The error being handled: one of a4p's own in words, another with its traceback."""
        known = isinstance(error, (A4pError, Released))
        self.line(f"{what}: {error if known else type(error).__name__}",
                  *([] if known else traceback.format_exc().splitlines()[-30:]))

# The config: key -> (default, form of its text or range of seconds, what an error says it must be)
SETTINGS: dict[str, tuple[object, Any, str]] = {
    "server": ("https://ntfy.sh", r"https?://([-\w.]+|\[[\w.:]+\])(:\d+)?(/[-\w./~%]*)?",
               "an http:// or https:// URL"),
    "topic": ("", r"|[-_A-Za-z0-9]{1,55}", "1 to 55 of a-z A-Z 0-9 - _"),
    **dict.fromkeys(("token", "reply_token", "serve_token"), ("", r"[!-~]*", "ASCII, no spaces")),
    **dict.fromkeys(("user", "password"), ("", r"[^\r\n\0]*", "text of one line")),
    "share_token": (False, "True|False", "true or false"),
    "timeout": (60, (1, WAIT_LIMIT), f"seconds, 1 to {WAIT_LIMIT}"),
    "mcp_timeout": (300, (1, WAIT_LIMIT), f"seconds, 1 to {WAIT_LIMIT}"),
    "reply_wait": (0, (0, WAIT_LIMIT), f"seconds, 0 to {WAIT_LIMIT}"),
    "priority": (4, "[1-5]", "1 to 5"),
    "lang": ("auto", "auto|en|zh", '"auto", "en" or "zh"'),
    "phone": ("", "|android|ios", '"", "android" or "ios"'),
    "proxy": ("", r"|\w+://\S+", "a proxy's http:// URL or empty"),
    "desk": ("wait", "wait|beside", '"wait" or "beside"')}
ENVIRONMENT = ("A4P_SERVER", "A4P_TOPIC", "A4P_TOKEN", "A4P_TIMEOUT", "A4P_LANG")

def setting_fits(key: str, value: Any) -> bool:
    """Whether `value` may stand as `key` in the config."""
    default, form, _ = SETTINGS[key]
    if isinstance(form, tuple):
        return type(value) in (int, float) and form[0] <= value <= form[1]
    return type(value) is type(default) and bool(re.fullmatch(form, str(value)))

class Config:
    """What `config.json` and the environment say, as attributes; raises UsageError."""

    def __init__(self, home: str) -> None:
        self.path, text = os.path.join(home, "config.json"), "{}"
        try:
            with contextlib.suppress(FileNotFoundError), open(
                    self.path, encoding="utf-8", opener=unblocked) as file:
                text = file.read(1_000_000)
            self.stored: Json = dict(**json.loads(text))  # TypeError: no object
        except OSError as error:
            raise UsageError("config_read", file=self.path, detail=error.strerror) from None
        except (ValueError, TypeError, RecursionError) as error:  # JSONDecodeError has a line
            raise UsageError("config_json", file=self.path, line=getattr(error, "lineno", 1),
                             detail=getattr(error, "msg", error)) from None
        self.unknown = [key for key in self.stored if key not in SETTINGS]  # they are kept
        for key, (default, _, want) in SETTINGS.items():
            value, name = self.stored.get(key, default), "A4P_" + key.upper()
            if not setting_fits(key, value):
                line = re.split(rf'"{key}"\s*:', text)[0].count("\n") + 1
                raise UsageError("config_value", file=self.path, line=line, name=key, want=want)
            given: Any = os.environ.get(name) if name in ENVIRONMENT else None
            if given and key == "timeout":
                with contextlib.suppress(UsageError):  # what it must be is said below
                    given = seconds_of(given)
            if given and not setting_fits(key, given):
                raise UsageError("env_value", name=name, want=want)
            vars(self)[key] = given or value
        self.server: str = self.server.rstrip("/")
        self.lang: str = resolve_lang(self.lang)

    def __getattr__(self, key: str) -> Any:  # for mypy: the attributes are those of SETTINGS
        raise AttributeError(key)

    def save(self, **changes: object) -> None:
        """Merge `changes` into the file, keeping every other key; raises A4pError."""
        self.stored.update(changes)
        write_private(self.path, json.dumps(self.stored, indent=2) + "\n")

def resolve_lang(lang: str) -> str:
    """"zh" or "en"; "auto" follows LC_ALL, LC_MESSAGES and LANG."""
    if lang == "auto":
        lang = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if lang.lower().startswith("zh") else "en"

def process_stamp(pid: int) -> str:
    """What tells this process from a later one of the same pid; "" when it is gone."""
    if sys.platform == "win32":
        return "?"  # os.kill(pid, 0) would send Ctrl-C there
    if not os.path.exists("/proc/self/stat"):
        return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True,
                              text=True, timeout=5, check=False,
                              env={**os.environ, "LC_ALL": "C", "TZ": "UTC0"}).stdout.strip()
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
        return "" if fields[0] in b"ZX" else fields[19].decode()  # the time of its start
    return ""

ENTRY_FORM = {**dict.fromkeys(("id", "tag", "title", "text", "stamp"), str), "closing": dict,
              "pid": int, "since": float, "deadline": float}

class Pending:
    """`pending/`: a file for each question that waits now, on this host. Making it claims the tag
    that it is named by, without a lock. As `.over` it stays for TAG_KEPT seconds."""

    def __init__(self, home: str) -> None:
        self.folder, self.taken = os.path.join(home, "pending"), os.path.join(home, "taken")

    def add(self, entry: Json, labels: Sequence[str] = ()) -> str:
        """Put the entry there as this process's; returns its tag, which no label starts with."""
        avoided = {name.partition(".")[0] for name in list_dir(self.folder)}
        avoided |= {fold(label)[:length] for label in labels for length in (2, 3)}
        entry.update(pid=os.getpid(), stamp=process_stamp(os.getpid()), host=socket.gethostname())
        turn, tag = 0, ""
        while not tag or (tag in avoided and turn < 20) or not write_private(
                f"{self.folder}/{tag}.json", json.dumps({**entry, "tag": tag}), os.link):
            letter, *rest = os.urandom(2 if turn < 10 else 3)
            tag = TAG_LETTERS[letter % len(TAG_LETTERS)] + "".join(str(2 + n % 8) for n in rest)
            turn += 1
        return tag

    def has(self, name: str) -> bool:
        """Whether TAG.json still waits (`home` takes it away), or TAG.over ended lately."""
        return os.path.exists(f"{self.folder}/{name}")

    def ended(self, since: float) -> bool:
        """Whether a question ended since then (epoch): words may have been meant for that one."""
        over = [name for name in list_dir(self.folder) if name.endswith(".over")]
        return any(os.stat(f"{self.folder}/{name}").st_ctime >= since for name in over)

    def drop(self, tag: str) -> bool:
        """Take the entry away; True for the one caller that did it."""
        with contextlib.suppress(OSError):
            os.rename(f"{self.folder}/{tag}.json", f"{self.folder}/{tag}.over")
            return True
        return False

    def entries(self) -> list[Json]:
        """Every readable entry of this host, the oldest first; `lives`: so does its process."""
        found = []
        for name in filter(lambda name: name.endswith(".json"), list_dir(self.folder)):
            try:
                with open(f"{self.folder}/{name}", encoding="utf-8", opener=unblocked) as file:
                    entry = json.loads(file.read(100_000))
                fits = all(isinstance(entry[key], kind) for key, kind in ENTRY_FORM.items())
                lives = fits and entry["stamp"] == process_stamp(entry["pid"]) != ""
                if name == entry["tag"] + ".json" and fits and abs(entry["deadline"]) < 1e12 and (
                        lives or entry["host"] == socket.gethostname()):  # a laptop's may change
                    found.append({**entry, "lives": lives})
            except (OSError, *MALFORMED):
                continue  # going away just now, or not ours
        return sorted(found, key=lambda entry: (entry["since"], entry["tag"]))

    def live(self) -> list[Json]:
        """The entries whose process is there, the oldest first."""
        return [entry for entry in self.entries() if entry["lives"]]

    def dead(self) -> list[Json]:
        """The entries left by processes that are gone, each handed to one caller only."""
        for folder, kept in ((self.folder, TAG_KEPT), (self.taken, TAKEN_KEPT)):
            for name in list_dir(folder):
                if not name.endswith(".json"):  # what is over, or a draft that was left
                    remove(f"{folder}/{name}", kept)
        return [entry for entry in self.entries() if not entry["lives"] and self.drop(entry["tag"])]

    def take(self, event_id: str) -> bool:
        """Claim one reply for good; True for one caller of all processes, ever."""
        return write_private(f"{self.taken}/{event_id}", "", os.link)

class State:
    """All of $A4P_HOME: `config` (raises UsageError when first read), `pending`, `log`."""

    def __init__(self, home: str = "") -> None:
        told = home or os.environ.get("A4P_HOME") or os.path.expanduser("~/.a4p")
        self.home = os.path.abspath(told)
        self.pending, self.log = Pending(self.home), Log(self.home)
        self._config: Config | None = None

    @property
    def config(self) -> Config:
        """The config, read once; from then on the log hides its secrets."""
        if self._config is None:
            config = self._config = Config(self.home)
            secrets = config.token, config.password, config.reply_token, config.serve_token
            self.log.hidden = {**dict.fromkeys(filter(None, secrets), "***"),
                               config.topic or "\0": shorten(config.topic)}
        return self._config

def shorten(topic: str) -> str:
    """A topic as it may be shown: `a4p-abc…`."""
    return topic[:7 if len(topic) > 10 else 2] + "…"

# === The model: question, option, reply, answer =============================

class Option:
    """One choice: `label` is the answer, the rest is shown where there is room."""

    def __init__(self, label: str, description: str = "", priority: str = "",
                 danger: bool = False) -> None:
        self.label, self.description = label, description
        self.priority, self.danger = priority, danger

class Question:
    """A text with options. `key`: what the agent finds its answer by; `words`: whether words may
    be it, too; `kind`: what the page calls it; with a `hint` (a key of PHONE) it has no list."""
    kind, hint = "question", ""

    def __init__(self, key: str, header: str, text: str, options: Sequence[Option] = (),
                 multi: bool = False, words: bool = True) -> None:
        self.key, self.header, self.text, self.options = key, header, text, list(options)
        self.labels = [option.label for option in options]
        self.multi = multi and bool(options)
        self.words = words or not options
        self.lettered = any(mark_of(label, NUMBER) for label in self.labels)
        taken = {form for label in self.labels for form in (fold(label), mark_of(label, LETTER))}
        letters = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c.lower() not in taken]
        marks = [(letters or ["A"])[0] + str(n) for n in range(1, 60)]
        marks = letters + marks if self.lettered else list(map(str, range(1, len(options) + 1)))
        self.marks = [] if self.hint else marks[: len(options)]  # what stands before each option

    def read(self, reply: str) -> Answer | None:
        """What a reply means: labels, places on the list, or the person's own words, which may
        follow where several may be chosen; None for what is asked back, as words that may not be.
        >>> q = Question("", "", "", [Option("a1"), Option("b1"), Option("c1")], multi=True)
        >>> q.read("1、3"), q.read("B1, c1"), q.read("2: but later")
        (Answer(['a1', 'c1'], ''), Answer(['b1', 'c1'], ''), Answer(['b1'], 'but later'))
        """
        found, words, labels = [label_of(reply, self.labels)], "", self.labels
        if None in found and self.multi:
            parts = re.split("[,，、;；\n]", reply, maxsplit=99)
            found = [label_of(part, labels) for part in parts]
        if None in found:
            reply, form = reply.strip(), LETTER if self.lettered else NUMBER
            marks, words = leading_marks(fold(reply), form)
            if self.multi and (words or not marks):  # the words come along as they were typed
                marks, words = leading_marks(reply, form)
            places = dict(zip(map(str.lower, self.marks), labels))
            found = [places.get(mark) for mark in marks]
            single = len(found) == 1 and not words and (None not in found or form == NUMBER)
            several = self.multi and found and not (words and None in found)
            if not labels or not (single or several):
                found, words = [], reply
        if None in found or (words and not self.words):
            return None
        return Answer([one for one in labels if one in found], words)

class Approval(Question):
    """A request for permission: the first option allows, the last denies, one between allows
    from now on. Only a label or ALLOW_WORDS allow, a number never does, other words deny."""
    kind, hint = "approval", "may"

    def read(self, reply: str) -> Answer | None:
        """What a reply means."""
        for words, label in ((ALLOW_WORDS, self.labels[0]), (DENY_WORDS, self.labels[-1])):
            if fold(reply) in words:
                return Answer([label])
        return super().read(reply)

class Answer:
    """What the agent gets: the `selected` labels, and the person's own words, "" for none; or the
    `state` in which a question ended without (timeout, released, desk, withdrawn)."""

    def __init__(self, selected: Sequence[str] = (), text: str = "",
                 state: str = "answered") -> None:
        self.selected, self.text, self.state = list(selected), text, state

    def __repr__(self) -> str:
        return f"Answer({self.selected!r}, {self.text!r})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def joined(self) -> str:
        """For people: labels and words."""
        return ", ".join(filter(None, [*self.selected, self.text]))

def fold(text: str) -> str:
    """For comparing only: NFKC, no emoji dressing, outer space or case; ③ and ❸ are 3."""
    if text.isascii():
        return text.strip().casefold()
    dressing = dict.fromkeys(map(ord, "\ufe0e\ufe0f\u20e3\u200b\ufeff"))
    parts = []
    for c in text.replace("🔟", "10").translate(dressing):
        value = unicodedata.numeric(c, 0.5) if unicodedata.category(c) == "No" else 0.5
        parts.append(f" {value:.0f} " if value == int(value) else c)
    return unicodedata.normalize("NFKC", "".join(parts)).strip().casefold()

CHINESE_DIGITS = str.maketrans("零一二三四五六七八九", "0123456789")
NUMBER = r"\d{1,40}|[①-⒛]|[一二三四五六七八九]?十[一二三四五六七八九]?|[零一二三四五六七八九]"
LETTER = "[a-z][0-9]{0,2}"
MARK = (r"(?:(?:option|choice|answer|number|no\.|选项|选择|答案|编号|选)\s{{0,9}})?"
        r"(?P<nth>第\s{{0,9}})?[#＃(（\[【]{{0,9}}\s{{0,9}}"  # with * 4 KB of spaces take seconds
        r"(?P<mark>{form})(?:\s{{0,9}}[)）\]】]){{0,9}}"
        r"(?:\s{{0,9}}(?:个选项|(?(nth)个|项)|项|号|种|条))?")
ENDS = r"(?![a-z\d]|[.:]\d)"  # not in the middle of 3rd, 10k, 4.5 or 12:30
SEPARATOR = r"(?=[\s,;/、，；+&|.和与及跟])(?:[\s,;/、，；+&|]|\.\s)*(?:(?:and\b|和|与|及|跟)\s*)?"
CLOSING = r"[\s.。,，、!！:：;；)\]~吧]*"

def mark_of(text: str, form: str) -> str:
    """The mark of FORM that a text is, in any usual dress; "" where it means more.
    >>> [mark_of(t, NUMBER) for t in ("③", "选3", "option 3.", "第三个", "3 days", "4.5", "-3")]
    ['3', '3', '3', '3', '', '', '']
    """
    marks, words = leading_marks(fold(text), form)
    return marks[0] if len(marks) == 1 and not words else ""

def leading_marks(text: str, form: str) -> tuple[list[str], str]:
    """The marks of FORM that a text starts with, and the words behind several, or a separator."""
    mark, separator = re.compile(MARK.format(form=form) + ENDS, re.I), re.compile(SEPARATOR, re.I)
    marks, at, found = [], 0, mark.match(text)
    while found:
        name = fold(found["mark"])
        if form == NUMBER:
            tens, ten, ones = name.translate(CHINESE_DIGITS).rpartition("十")
            name = str(int(f"{tens or 1}{ones or 0}" if ten else ones))
        marks.append(name)
        at = found.end()
        between = separator.match(text, at)
        found = mark.match(text, between.end()) if between else None
    rest = text[at:]
    words = re.sub(rf"^{CLOSING}$|^[\s,;:：，；、.。]+", "", rest)
    parted = (len(marks) > 1 or re.match(r"\s*[,;:：，；、.。]", rest)
              or text[at - 1: at] in ")）]】")
    return (marks, words) if marks and (parted or not words) else ([], text)

def label_of(text: str, labels: Sequence[str]) -> str | None:
    """The label that `text` is: to the letter, else the only one ignoring space, then case."""
    for form in (str, str.strip, fold):
        same = [label for label in labels if form(label) == form(text)]
        if len(same) == 1:
            return same[0]
    return None

# === The ntfy client ========================================================

def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine itself."""
    return re.fullmatch(r"localhost|::1|127\.[\d.]+", host) is not None

def background(work: Callable[[], object]) -> Any:
    """Run `work` in a thread that does not outlive the process; returns the thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread

def within(seconds: float, work: Callable[[], Any], server: str) -> Any:
    """The result of `work`, or Refused after `seconds`: name look-ups have no timeout."""
    done: list[Any] = []
    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)
    background(run).join(seconds)
    if not done:
        raise Refused("slow_network", server=server, seconds=int(seconds))
    if isinstance(done[0], Exception):
        raise done[0]
    return done[0]

class Ntfy:
    """One ntfy server, by HTTP of its own: http.client costs 45 ms and 6 MB. Raises Refused."""

    def __init__(self, config: Config) -> None:
        self.server, self.proxy = config.server, str(config.proxy)
        self.url = urllib_parse.urlsplit(self.server)
        self.headers = {"Host": self.url.netloc, "User-Agent": "a4p/" + VERSION,
                        "Connection": "close",
                        **credentials(f"{config.user}:{config.password}", config.token)}
        named = any(name.lower().endswith("_proxy") for name in os.environ)
        if is_loopback(self.url.hostname or ""):
            self.proxy = ""
        elif not self.proxy and (named or sys.platform in ("darwin", "win32")) and (
                not urllib_request.proxy_bypass(self.url.netloc)):
            found = urllib_request.getproxies()
            self.proxy = found.get(self.url.scheme) or found.get("all", "")
        if self.proxy.startswith("socks"):
            raise Refused("socks")

    def publish(self, body: Json) -> Json:
        """Publish JSON to the server's root; returns the message as the server stored it."""
        message = event_of(b"".join(self.open("POST", "/", encode(body)).pieces()))
        if message and message["event"] == "message" and message.get("topic") == body["topic"]:
            return message
        raise Refused("no_ntfy", 200, server=self.server)  # a captive portal, a proxy's page

    def poll(self, topics: Sequence[str], since: str) -> Stream:
        """The cached messages after `since` (an id, or epoch seconds)."""
        return self.open("GET", f"/{','.join(topics)}/json?poll=1&since={since}")

    def fetch(self, url: str) -> bytes:
        """An attachment of this server."""
        if not re.fullmatch(re.escape(self.server) + r"/file/[-.\w]+", url, re.A):
            raise Refused("no_ntfy", server=self.server)
        return b"".join(self.open("GET", url[len(self.server):]).pieces())

    def stream(self, topics: Sequence[str], since: str = "") -> Stream:
        """An open stream on `topics`; what came after the event `since`, too."""
        return self.open("GET", f"/{','.join(topics)}/json?since={since or 'none'}", idle=SILENCE)

    def open(self, method: str, path: str, body: bytes = b"",
             idle: float = CONNECT_WAIT) -> Stream:
        """The response, if it is 200; its body may be silent for `idle` seconds."""
        try:
            sock, start, login = self._connect()
            with sock:  # the response holds it open
                sock.settimeout(idle)
                headers = {**self.headers, **login, "Content-Length": len(body)}
                response = Stream(sock, self._failure, f"{method} {start}{path}", headers, body)
        except Exception as error:
            raise self._failure(error) from None
        if response.status != 200:
            raise self._refusal(response)
        return response

    def _connect(self) -> tuple[Any, str, Json]:
        """A connection, and the start of every path and the login of a request on it."""
        via = urllib_parse.urlsplit(self.proxy if "://" in self.proxy else "//" + self.proxy)
        login = credentials(urllib_parse.unquote(f"{via.username or ''}:{via.password or ''}"),
                            name="Proxy-Authorization")
        secure, host = self.url.scheme == "https", self.url.hostname or ""
        port = self.url.port or (443 if secure else 80)
        to, at = (via.hostname or "", via.port or 80) if self.proxy else (host, port)
        known: Any = to.encode() if to.isascii() else to  # a str loads the codec for IDNA, 1 MB
        sock: Any = socket.create_connection((known, at), CONNECT_WAIT / 2)  # for each address
        if not secure:
            return sock, self.server if self.proxy else self.url.path, login
        if self.proxy:
            there = self.url.netloc if self.url.port else self.url.netloc + ":443"
            found = Stream(sock, self._failure, "CONNECT " + there, {"Host": there, **login})
            if found.status != 200:
                raise OSError(f"the proxy answers HTTP {found.status}")
        context = ssl.create_default_context()
        if os.path.exists(SPARE_ROOTS) and not context.cert_store_stats()["x509_ca"]:
            context.load_verify_locations(SPARE_ROOTS)
        return context.wrap_socket(sock, server_hostname=host), self.url.path, {}

    def _failure(self, error: Exception) -> Refused:
        unproven = getattr(error, "verify_message", "")  # ssl.SSLCertVerificationError has it
        slow = isinstance(error, TimeoutError) or "timed out" in str(error)
        detail = unproven or getattr(error, "strerror", "") or str(error) or type(error).__name__
        return Refused("bad_tls" if unproven else "slow_network" if slow else "no_network",
                       server=self.server, seconds=int(CONNECT_WAIT), detail=plain(detail))

    def _refusal(self, response: Stream) -> Refused:
        http = response.status
        if 300 <= http < 400:  # to follow it would take the credentials along
            there = response.headers.get("location", "?").partition("?")[0].split("/")
            return Refused("moved", http, server=self.server, to=plain("/".join(there[:3]) or "?"))
        try:
            found = json.loads(b"".join(response.pieces()))
            secret = self.headers.get("Authorization", " \0").split(" ")[1]  # it may be repeated
            code, detail = int(found["code"]), plain(str(found["error"]).replace(secret, "***"))
        except Exception:  # no JSON of ntfy's, or the connection ended
            code, detail = 0, ""
        mend = next((key for key in (f"mend_{code}", f"mend_{http}") if key in MESSAGES), "mend")
        return Refused("refused", http, code, server=self.server, detail=detail, mend=mend)

class Stream:
    """The answer to one request: `status`, `headers` (in small letters), the body in pieces or as
    events. Where it is cut or silent, reading raises what `failure` makes of it."""

    def __init__(self, sock: Any, failure: Callable[[Exception], Refused], start: str,
                 headers: Json, body: bytes = b"") -> None:
        self.failure, self.began, self.closed = failure, time.monotonic(), False
        rows = [f"{start} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        sock.sendall("\r\n".join([*rows, "", ""]).encode() + body)
        self.sock, self.file = sock, sock.makefile("rb")
        found = re.match(rb"HTTP/1\.\d ([2-5]\d\d)\b", self._line())
        if not found:
            raise OSError("the answer is not HTTP")
        self.status, self.headers = int(found[1]), {}
        for _, line in zip(range(100), iter(self._line, b"")):
            name, _, value = str(line, "latin-1").partition(":")
            self.headers[name.lower()] = value.strip()

    def _line(self) -> bytes:
        line: bytes = self.file.readline(LINE_LIMIT)
        if not line.endswith(b"\n"):
            raise OSError("the connection was cut")
        return line.strip()

    def pieces(self, limit: float = LINE_LIMIT) -> Iterator[bytes]:
        """The body as it comes, up to about `limit` bytes."""
        chunked = "transfer-encoding" in self.headers
        try:
            left = 0 if chunked else int(self.headers.get("content-length", -1))  # -1: to the end
            while limit > 0:
                if chunked and not left:  # a line's end, but for the first; the next chunk's size
                    left = int((self._line() or self._line()).partition(b";")[0], 16)
                piece = self.file.read1(min(left, 65536))
                if not piece and left > 0:
                    raise OSError("the connection was cut")
                if not piece:
                    return
                yield piece
                left, limit = left - len(piece), limit - len(piece)
        except Exception as error:  # TLS closed by another thread: an AttributeError
            if not self.closed:
                raise self.failure(error) from None

    def __iter__(self) -> Iterator[Json]:
        """Each event, however many: no more than a line is kept."""
        line = bytearray()
        for piece in self.pieces(NEVER):
            first, *more = piece.split(b"\n")
            line += first[: LINE_LIMIT - len(line)]  # without its end it is no JSON
            for rest in more:
                event = event_of(line)
                if event:
                    yield event
                line = bytearray(rest)

    def close(self) -> None:
        """End the stream, from any thread."""
        self.closed = True
        with contextlib.suppress(OSError):  # it had ended
            self.sock.shutdown(2)

def credentials(pair: str, token: str = "", name: str = "Authorization") -> dict[str, str]:
    """The header for a token (Bearer) or for `user:password` (Basic); {} without either."""
    if token or not pair.strip(":"):
        return {name: "Bearer " + token} if token else {}
    return {name: "Basic " + base64.b64encode(pair.encode("utf-8", "replace")).decode()}

def encode(body: Json) -> bytes:
    """JSON in UTF-8, since ntfy 2.13 counts the bytes of escapes; a lone surrogate becomes "?"."""
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

def event_of(line: bytes | bytearray) -> Json | None:
    """The event on a line of a stream, None for anything without a usable id and time."""
    with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):
        event: Json = json.loads(line)
        if (isinstance(event["event"], str) and isinstance(event["time"], int)
                and isinstance(event.get("message", ""), str)  # else a 1 would be a choice
                and re.fullmatch(EVENT_ID_FORM, event["id"])):
            return event
    return None

class Inbox:
    """All that arrives on the topics while a call waits, as one queue. A thread reads the stream,
    and opens it again after a break; a gap that this left is polled, from the question's own push
    on. `via` in an event: when (monotonic) the request began that brought it."""

    def __init__(self, ntfy: Ntfy, topics: Sequence[str]) -> None:
        self.ntfy, self.topics, self.since = ntfy, list(topics), ""
        self.live_since, self.embedded = NEVER, False
        self.refusal: Refused | None = None
        self.opened = threading.Event()  # the first `open` or the first refusal came
        self.events: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self.gap, self._poll_at, self._pause = True, 0.0, POLL_EVERY
        self._stream: Stream | None = None
        self._closed = threading.Event()
        background(self._read_streams)

    def get(self, seconds: float) -> Json | None:
        """The next message within `seconds`, else None."""
        if self.gap and self.since and time.monotonic() >= self._poll_at:
            self._poll_at = NEVER  # one at a time
            background(self._poll)
        with contextlib.suppress(queue.Empty):
            return self.events.get(timeout=max(0.001, seconds))
        return None

    def follow(self, push_id: str, published: float) -> None:
        """Bridge gaps from this push on: there is one unless the stream is live since before it."""
        self.since, self.gap = push_id, self.live_since > published

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._stream:
            self._stream.close()

    def _read_streams(self) -> None:
        failures = 0
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._stream = stream = self.ntfy.stream(self.topics, self.since)
                self.embedded = stream.headers.get("x-a4p") == "1"
                if not self._closed.is_set():
                    self._take(stream)
            except Refused as error:
                if error.http == 403 and len(self.topics) == 2:
                    del self.topics[1]  # the question's topic may not be readable: a help only
                    continue
                if error.http in (401, 403) or error.key in ("moved", "bad_tls"):
                    self.refusal = error
                self.opened.set()
            self.live_since, self.gap = NEVER, True
            failures = 0 if time.monotonic() - began > 10 else failures + 1
            self._closed.wait(BACKOFF[min(failures, len(BACKOFF) - 1)])

    def _poll(self) -> None:
        self.gap = self.live_since == NEVER  # beside an open stream, one poll is enough
        self._pause = min(self._pause * 1.2, POLL_SLOWEST) if self.gap else POLL_EVERY
        try:
            self._take(self.ntfy.poll(self.topics, self.since))
        except Refused:
            self.gap, self._pause = True, min(self._pause * 2, POLL_SLOWEST)
        self._poll_at = time.monotonic() + self._pause

    def _take(self, stream: Stream) -> None:
        """Queue the messages; `open` stands at the start of streams that are no poll."""
        for event in stream:
            if event["event"] == "message":
                self.events.put({**event, "via": stream.began})
            elif event["event"] == "open":
                self.live_since, self.refusal = time.monotonic(), None
                self.opened.set()

# === The push: what the phone shows =========================================

class Sender:
    """Who asks: the agent's title, the project, the session."""

    def __init__(self, agent: str, project: str = "", session: str = "") -> None:
        self.agent, self.project, self.session = agent, project, session
        self.place = " · ".join(filter(None, (project, session[-6:])))  # Codex's ids start alike

class Push:
    """One question on its way to the phone: composes the ntfy messages for it."""

    def __init__(self, config: Config, sender: Sender, question: Question,
                 place: tuple[int, int] = (1, 1), embedded: bool = False) -> None:
        self.config, self.sender, self.question = config, sender, question
        self.place, self.embedded = place, embedded
        self.id, self.deadline = "q" + random_id(10), 0.0
        self.tag, self.tagged = "", False  # whether the tag was shown: others wait
        self.asides = False  # whether a word about it is on the phone, too
        self.reply_url = f"{config.server}/{config.topic}{REPLY_SUFFIX}"
        count = f" ({place[0]}/{place[1]})" if place[1] > 1 else ""
        header = " ".join(question.header.split()) or self.say("question")
        self.title = cut_end(f"{sender.agent}: {header}", TITLE_LIMIT - len(count)) + count
        token = config.reply_token or (config.token if config.share_token else "")
        self.may_tap = bool(token or not (config.token or config.user or config.password))
        self.headers = {"Content-Type": "text/plain; charset=utf-8", **credentials("", token)}

    def say(self, key: str, **values: object) -> str:
        """A text in the phone's language."""
        return say(self.config.lang, key, **values)

    def compose(self) -> Json:
        """The JSON to publish, made smaller until it fits; raises A4pError("too_big")."""
        labels = self.question.labels
        tap = (self.may_tap and not self.question.multi and 0 < len(labels) <= BUTTONS
               and all(map(str.isprintable, labels))  # others would not come back whole
               and len({cut_end(label, BUTTON_SHOWN) for label in labels}) == len(labels))
        # what gives way: descriptions, the middle of the text, buttons, the shown labels
        forms = ((True, tap, BODY_LIMIT), (False, tap, BODY_LIMIT),
                 (False, False, BODY_LIMIT), (False, False, LABEL_SHOWN))
        for aim, limit in ((WHOLE_AIM, WHOLE_AIM), (BODY_LIMIT, MESSAGE_LIMIT)):
            for described, taps, shown in forms:
                room = size(self.question.text)
                while True:
                    text = cut_middle(self.question.text, room)
                    body = self._body(text, described, taps, shown)
                    over = max(len(encode(body)) - aim, size(body["message"]) - limit)
                    if over <= 0:
                        return self._extended(body, self._structure())
                    if described or room <= TEXT_FLOOR:
                        break
                    room = max(TEXT_FLOOR, room - max(16, over // 6))  # JSON: 1 byte can be 6
        raise A4pError("too_big")

    def closing(self, state: str, answer: str = "") -> Json:
        """The quiet message that replaces the push once it is over."""
        answer = cut_middle(answer, TEXT_FLOOR * 4)
        kept = cut_middle(self.question.text, INPUT_SHOWN) + "\n\n"  # what an agent said stays
        text = (kept if self.question.hint == "go_on" else "") + self.say(state, answer=answer)
        end = {"kind": "end", "id": self.id, "state": state, "answer": answer}
        return self._extended(self._message(self.id, text, priority=2), end)

    def aside(self, text: str, actions: Sequence[Json] = ()) -> Json:
        """A word about this question, such as a reply asked back."""
        self.asides = True
        body = self._message(self.id + "b", text, **({"actions": actions} if actions else {}))
        return self._extended(body, {"deadline": int(self.deadline)})

    def button(self, label: str, reply: str, question_id: str) -> Json:
        """An http action that sends `reply` to a question."""
        return {"action": "http", "label": cut_end(label, BUTTON_SHOWN), "method": "POST",
                "url": f"{self.reply_url}?title={question_id}", "headers": self.headers,
                "body": reply, "clear": True}

    def _message(self, sequence_id: str, text: str, **more: object) -> Json:
        return {"topic": self.config.topic, "title": self.title, "message": text,
                "priority": self.config.priority, "sequence_id": sequence_id, **more}

    def _extended(self, body: Json, extra: Json) -> Json:
        """With what the answer page shows, where the server is a4p's own."""
        full = {**body, "a4p": {"v": 1, **extra}}
        return full if self.embedded and len(encode(full)) <= EXTRA_LIMIT else body

    def _structure(self) -> Json:
        question, (n, of) = self.question, self.place
        options = [{key: value for key, value in vars(option).items() if value}
                   for option in question.options]
        return {"kind": question.kind, "id": self.id, "agent": self.sender.agent, "n": n, "of": of,
                "project": self.sender.project, "header": question.header, "options": options,
                "text": question.text, "marks": question.marks or [""] * len(options),
                "multi": question.multi, "custom": question.words,
                "deadline": int(self.deadline), "tag": self.tag if self.tagged else ""}

    def _body(self, text: str, described: bool, taps: bool, shown: int) -> Json:
        """The push; `shown`: bytes of each label in the list."""
        question, marks, rows = self.question, self.question.marks, []
        for mark, option in zip(marks, question.options):
            detail = " ".join(option.description.split()) if described else ""
            rows.append(f"{mark}. {cut_end(' '.join(option.label.split()), shown)}"
                        + (f" - {detail}" if detail else ""))
        listed = ("letter" if question.lettered else "number") + "s" * question.multi
        hint = question.hint or ("tap" if taps else listed if question.options else "words")
        notes = [self.say(hint, some=",".join(marks[:3:2] if len(marks) > 2 else marks)),
                 self.say("tagged", tag=self.tag) if self.tagged else "",
                 self.say("browser", url=self.reply_url),
                 self.sender.place if question.hint else self.sender.project]
        blocks = [text.strip(), "\n".join(rows), "\n".join(filter(None, notes))]
        body = self._message(self.id, "\n\n".join(filter(None, blocks)))
        if taps:
            body["actions"] = [self.button(label, label, self.id) for label in question.labels]
        elif question.options:
            body["actions"] = [{"action": "view", "label": self.say("reply"),
                                "url": self.reply_url, "clear": False}]
        if self.embedded or self.config.phone == "ios":
            body["click"] = self.reply_url
        cut = question.hint == "may" and text != question.text
        if cut or any(option.danger for option in question.options):
            body.update(priority=5, tags=["warning"])
        return body

def size(text: str) -> int:
    """Bytes of UTF-8, as ntfy counts."""
    return len(text.encode("utf-8", "replace"))

def cut_end(text: str, limit: int) -> str:
    """`text` in at most `limit` bytes, cut between characters, with … for what is gone."""
    return cut_middle(text, limit, "…", 1)

def cut_middle(text: str, limit: int, gap: str = " … ", head: float = 2 / 3) -> str:
    """`text` in at most `limit` bytes: two thirds of its start, " … ", the rest of its end.
    >>> cut_middle("abcdefghijklmnopqrstuvwxyz", 17)
    'abcdefgh … wxyz'
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    room = max(0, limit - size(gap))
    start = int(room * head)
    parts = data[:start], data[len(data) - room + start:]
    return gap.join(part.decode("utf-8", "ignore") for part in parts)

def tag_of(text: str) -> tuple[str, str]:
    """The tag that a typed reply starts with, and the reply behind it; ("", text) without one.
    >>> tag_of("k7 3"), tag_of("#K7: use sqlite"), tag_of("k7"), tag_of("s3bucket")
    (('k7', '3'), ('k7', 'use sqlite'), ('', 'k7'), ('', 's3bucket'))
    """
    found = re.match(rf"\s*[#＃]?({TAG_FORM})(?:\s*[:：,，]\s*|\s+)(?=\S)", text, re.I)
    return (found[1].lower(), text[found.end():]) if found else ("", text)

# === Asking: one conversation with the phone ================================

class Conversation:
    """Asks questions over one Inbox, in a `with`. `ended`, called every TICK, tells the state to
    end with, or ""; `close_push` gets the publish that replaces a push when it is over."""
    push: Push  # the one that waits, or waited last

    def __init__(self, state: State, sender: Sender, timeout: float,
                 close_push: Callable[[Json], object],
                 ended: Callable[[], str] = lambda: "") -> None:
        self.config, self.log, self.pending = state.config, state.log, state.pending
        self.sender, self.timeout, self.close_push, self.ended = sender, timeout, close_push, ended
        self.ntfy = Ntfy(self.config)
        self.inbox = Inbox(self.ntfy, [self.config.topic + REPLY_SUFFIX, self.config.topic])
        self.seen, self.waiting = set[str](), False

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *error: object) -> None:
        self.inbox.close()
        self._over("withdrawn")  # where a signal or an error took the question

    def ask(self, question: Question, place: tuple[int, int] = (1, 1)) -> Answer:
        """Push the question and wait for its end; raises Refused, A4pError("too_big")."""
        self.inbox.opened.wait(OPEN_WAIT)
        if self.inbox.refusal:
            raise self.inbox.refusal
        push = self.push = Push(self.config, self.sender, question, place, self.inbox.embedded)
        push.deadline, self.deadline = time.time() + self.timeout, time.monotonic() + self.timeout
        push.compose()  # before anything is registered: it may be too big
        self.waiting = True
        push.tag = self.pending.add({
            "id": push.id, "agent": self.sender.agent, "project": self.sender.project,
            "text": question.text[:300], "since": time.time(), "deadline": push.deadline,
            "title": push.title, "closing": push.closing("lost")}, question.labels)
        push.tagged = len(self.pending.live()) > 1
        self.published = time.monotonic()  # what requests before this bring is live
        body, ntfy = push.compose(), self.ntfy
        try:
            message = within(PUBLISH_WAIT - OPEN_WAIT, lambda: ntfy.publish(body), ntfy.server)
        except Refused as error:
            self.log.line(f"{push.id} {self.sender.agent} not delivered: {error}")
            if error.http not in (0, 200, 502, 504):  # refused: nothing can be on the phone
                self.waiting = not self.pending.drop(push.tag)
            self._over("released")
            raise
        self.log.line(f"{push.id} {self.sender.agent} asks: {question.text}")
        self.inbox.follow(message["id"], self.published)
        subprocess.Popen  # noqa: B018 (imports it: for the receipt, while nobody is kept waiting)
        self.pushed_at, self.echo = message["time"], message["id"]  # the server's, whole seconds
        self.skew = int(push.deadline - self.timeout) - self.pushed_at  # at most what it is
        self.replayed, self.asked_back = set[float](), ""  # later requests with what is older
        answer = self._wait()
        self._over(answer.state, answer.joined())
        return answer

    def _wait(self) -> Answer:
        """Wait until the question is answered or ends otherwise."""
        while True:
            left = self.deadline - time.monotonic()
            self.inbox.gap |= left < OPEN_WAIT  # the stream may be dead without a sign
            event = self.inbox.get(min(TICK, left))
            answer = self._consider(event) if event else None
            if answer:
                return answer
            state = self.ended() if self.pending.has(self.push.tag + ".json") else "released"
            if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
                state = "withdrawn"  # by `release`, but a callback lost what that raised
            if not state and event is None and time.monotonic() >= self.deadline:
                state = "timeout"
            if state:
                return Answer(state=state)

    def _over(self, state: str, answer: str = "") -> None:
        if not self.waiting:
            return
        push = self.push
        self.close_push(push.closing(state, answer))
        if push.asides:
            self.close_push({"topic": self.config.topic, "delete": push.id + "b"})
        self.pending.drop(push.tag)  # after these: killed before, the next command sweeps it
        self.waiting = False  # last: a signal before this would leave the push alive
        self.log.line(f"{push.id} {self.sender.agent} {state}", *([answer] if answer else []))

    def _consider(self, event: Json) -> Answer | None:
        """What one event means for the question; None while it still waits."""
        kind, text = self._kind(event), str(event.get("message", ""))
        if kind and (event.get("attachment") or event.get("encoding")):
            background(lambda: self._fetch(event))
            return None
        blank = text.strip() in ("", "triggered")  # ntfy turns an empty message into the latter
        if not kind or (blank and text not in self.push.question.labels):
            return None
        return self._reply(text) if kind == "tap" else self._typed(event, text)

    def _kind(self, event: Json) -> str:
        """Whether a new event is "words", a "tap" on this question's push, or "" neither."""
        if self.published < event["via"] and event["time"] < self.pushed_at:
            self.replayed.add(event["via"])
        if event["id"] in self.seen or event.get("topic") not in self.inbox.topics:
            return ""
        self.seen.add(event["id"])
        if event["id"] == self.echo:
            self.echo = ""
        early = self.echo and event["via"] <= self.published and len(self.inbox.topics) > 1
        title = str(event.get("title", ""))
        if event["topic"] == self.config.topic:
            if any(map(event.get, ("title", "tags", "click", "actions", "attachment"))):
                return ""  # a push: ours, or somebody's
        elif re.fullmatch(ID_FORM, title):
            return "tap" if title == self.push.id else ""
        strict = self.push.question.kind == "approval" or event["via"] in self.replayed
        since = self.pushed_at + strict  # of a replay, or for an approval, a later second
        return "words" if event["time"] >= since and not early else ""  # before the push itself

    def _typed(self, event: Json, text: str) -> Answer | None:
        """Words count for the question whose tag they start with, else for the only one."""
        pending, push = self.pending, self.push
        waiting = pending.live()
        if len(waiting) > 1:
            push.tagged = True  # from now on this question's tag has been seen, or will be
        tag, rest = tag_of(text)
        tags = {entry["tag"]: entry["id"] for entry in waiting if push.tagged}
        over = tag not in tags and pending.has(tag + ".over")
        oldest = waiting[0]["id"] if waiting else ""
        typed = event["time"] + self.skew + (push.question.kind != "approval")  # seconds, by ours
        alone = len(waiting) == 1 and not over and not pending.ended(typed)
        meant = tags.get(tag) or (oldest if alone else "")
        if (meant or oldest) != push.id or not pending.take(event["id"]):
            return None  # another's, or the oldest asks, once
        if meant:
            return self._reply(rest if tag in tags else text)
        if over:
            self._aside(push.say("tag_over", tag=tag, reply=cut_end(rest, 200)))
            return None
        rows = [f"{one['tag']}  {one['title']}: {plain(one['text'], 60)}" for one in waiting]
        which = push.say("which", reply=cut_end(text, 200)) + "\n\n" + "\n".join(rows)
        self._aside(cut_end(which, WHOLE_AIM // 2), [
            push.button(f"{one['tag']} {one['title']}", text, one["id"])
            for one in waiting[:BUTTONS] if push.may_tap and size(text) < 500])
        return None

    def _fetch(self, event: Json) -> None:
        """Put a text file's content into the inbox as if it had been typed, or ask back."""
        try:
            file: Any = event["attachment"]
            if not file["type"].startswith("text/plain") or file["size"] > REPLY_LIMIT:
                raise ValueError("no text, or too much of it")
            text = self.ntfy.fetch(file["url"])[: REPLY_LIMIT + 3].decode("utf-8")
        except (Refused, *MALFORMED):
            self._aside(self.push.say("not_text"))
        else:
            self.inbox.events.put({**event, "id": event["id"] + "f", "message": text,
                                   "attachment": None, "encoding": ""})

    def _reply(self, text: str) -> Answer | None:
        question, push = self.push.question, self.push
        if fold(text) in DESK_WORDS and label_of(text, question.labels) is None:
            return Answer(state="released")
        answer = question.read(text)
        if answer or (self.asked_back == fold(text) and question.words):
            return answer or Answer([], text.strip())
        self.asked_back = fold(text)
        push.deadline, self.deadline = time.time() + self.timeout, time.monotonic() + self.timeout
        marks = "-".join(question.marks[:1] + question.marks[-1:]) or " / ".join(question.labels)
        self._aside(push.say("not_listed" if question.words else "only_listed",
                             reply=cut_end(text.strip(), 200), marks=marks))
        return None

    def _aside(self, text: str, actions: Sequence[Json] = ()) -> None:
        """Tell the phone something, without holding up the wait."""
        body, question_id = self.push.aside(text, actions), self.push.id
        def publish() -> None:
            try:
                self.ntfy.publish(body)
            except Refused as error:
                self.log.line(f"{question_id} could not ask back: {error}")
        background(publish)

# === Agents: how each one asks and is answered ==============================

class Call:
    """One call of a hook: its `questions`; `write(call, answers)`: for the agent. A4pError."""
    write: Write

    def __init__(self, agent: Agent, payload: Any, desk: str, lang: str) -> None:
        expect(isinstance(payload, dict))
        self.agent, self.payload, self.desk, self.lang = agent, payload, desk, lang
        self.event, self.input = payload.get("hook_event_name"), payload.get("tool_input")
        self.tool, cwd = (name if isinstance(name, str) else "" for name in map(
            payload.get, ("tool_name", "cwd")))
        self.sender = Sender(agent.title, plain(os.path.basename(cwd.rstrip("/\\")), 60),
                             str(payload.get("session_id", "")))
        self.questions: list[Question] = []

    def specific(self, **output: object) -> Json:
        """What Claude Code and Codex read, for the event of this call."""
        return {"hookSpecificOutput": {"hookEventName": self.event, **output}}

class Agent:
    """One agent: `routes` of (event, read, write); the first is taken that reads any questions."""
    denied = "The user denied this, from the phone."
    reply = "The user has read this and replies, from the phone. Go on with the reply:\n\n"

    def __init__(self, title: str, *routes: tuple[str, Read, Write]) -> None:
        self.title, self.routes = title, routes

    def read(self, payload: Any, desk: str, lang: str = "en") -> Call | None:
        """The call in a hook's payload, None for what is not ours to answer; raises A4pError."""
        call = Call(self, payload, desk, lang)
        below = payload.get("agent_id") or payload.get("parent_session")
        for event, read, write in self.routes:
            # the agents refuse questions of subagents themselves
            if event == call.event and (read is approvals or not below):
                call.questions, call.write = read(call), write
                if call.questions:
                    return call
        return None

# The tools that ask: whose each is, and what in a question its answer is found by
TOOLS = {"AskUserQuestion": ("Claude", "question"), "request_user_input": ("Codex", "id"),
         "request_user_input_async": ("Codex", "id", "title"), "ask_user_question": ("DSH", "id")}

def expect(fits: object) -> None:
    """Raise A4pError where a hook's call has not the shape that it must have."""
    if not fits:
        raise A4pError("stdin_json", detail="not the shape of a hook's call")

def field(row: Any, kind: type, *names: str) -> Any:
    """What `row` has under the first of these names, else an empty one; raises A4pError."""
    expect(isinstance(row, dict))
    value = next((row[name] for name in names if name in row), kind())
    expect(isinstance(value, kind))
    return value

def questions_of(call: Call) -> list[Question]:
    """The questions of a tool that asks, in any agent's shape; [] without options; A4pError."""
    title, *keys = TOOLS.get(call.tool, ("",))
    if title != call.agent.title:
        return []
    rows = field(call.input, list, "questions")
    expect(0 < len(rows) <= 20)
    questions = [question_of(row, keys) for row in rows]
    expect(len({question.key for question in questions}) == len(rows))
    return questions if any(question.options for question in questions) else []

def question_of(row: Any, keys: Sequence[str]) -> Question:
    """One question of an agent, its options objects or bare labels; raises A4pError."""
    key, text = field(row, str, *keys), field(row, str, "question", "title")
    rows = [] if row.get("options") is None else field(row, list, "options")
    items = [{"label": item} if isinstance(item, str) else item for item in rows]
    question = Question(key, field(row, str, "header"), text, [
        Option(field(item, str, "label"), field(item, str, "description")) for item in items],
        field(row, bool, "multiSelect", "multi_select"))
    expect(all(map(str.strip, [key, text, *question.labels])) and len(rows) <= 50)
    expect(len(set(question.labels)) == len(rows))
    return question

def claude_asks(call: Call) -> list[Question]:
    """The questions, at the one of Claude Code's events that answers (2.1.332): PreToolUse blocks
    the terminal; PermissionRequest runs beside its dialog, but never in dontAsk, perhaps auto."""
    alone = call.desk == "wait" or call.payload.get("permission_mode") in ("dontAsk", "auto")
    event = "PreToolUse" if alone else "PermissionRequest"
    return questions_of(call) if call.event == event else []

def claude_answers(call: Call, answers: Sequence[Answer]) -> Json:
    """Allow, with the tool's whole input plus `answers`: it replaces the input (2.1.332)."""
    texts = {}
    for question, answer in zip(call.questions, answers):
        labels = [json.dumps(label, ensure_ascii=False)
                  if question.multi and re.search(', |"', label) else label
                  for label in answer.selected]
        texts[question.text] = Answer(labels, answer.text).joined()
    given = {**call.input, "answers": texts}
    if call.event == "PreToolUse":
        return call.specific(permissionDecision="allow", updatedInput=given)
    return call.specific(decision={"behavior": "allow", "updatedInput": given})

def denial(call: Call, answers: Sequence[Answer]) -> Json:
    """PreToolUse: the only way in is a refusal whose reason reads as the answer. Codex 0.171 shows
    `Tool call blocked by PreToolUse hook: REASON. Tool: NAME`; words beside labels are a note."""
    told, native = [], {}
    for question, answer in zip(call.questions, answers):
        told.append(f"{question.text} -> {answer.joined()}")
        words = ("user_note: " if answer.selected else "") + answer.text
        native[question.key] = {"answers": answer.selected + [words] * bool(answer.text)}
    reason = (f"This is no error: the user has answered, from the phone. {'; '.join(told)}. "
              f"As the tool's result: {json.dumps({'answers': native}, ensure_ascii=False)} "
              f"Go on with these answers, and do not call {call.tool} again for them")
    return call.specific(permissionDecision="deny", permissionDecisionReason=reason)

def dsh_answers(call: Call, answers: Sequence[Answer]) -> Json:
    """DSH's strict output schema: no key beyond id, selected, custom (0.2.1)."""
    return {"answers": [{"id": question.key, "selected": answer.selected,
                         **({"custom": answer.text} if answer.text else {})}
                        for question, answer in zip(call.questions, answers)]}

# What of a tool's input stands last on the phone, in this order: key -> what begins its lines.
TOLD_LAST = {"description": "", "file_path": "", "notebook_path": "", "old_string": "-",
             "new_string": "+", "new_source": "+", "content": "+", "command": ""}

def summary(given: Json) -> str:
    r"""A tool's input in words: `key: value` lines, the file, the change or the command last.
    >>> summary({"command": "ls | wc", "description": "Count", "deep": {"x": [1, "b"]}})
    'deep.x.1: 1\ndeep.x.2: b\nCount\nls | wc'
    """
    told = list(leaves(given))
    lines = [f"{key}: {text}" for key, text in told if key not in TOLD_LAST]
    for last, begins in TOLD_LAST.items():
        lines += [begins + line for key, text in told if key == last for line in text.split("\n")]
    return "\n".join(lines)

def leaves(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Each plain value in `value` as text, with its dotted name."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value, 1):
            yield from leaves(inner, f"{name}.{key}" if name else str(key))
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)

def risky(given: Json, cwd: str) -> bool:
    """Whether an input holds one of RISKS, is too long to be shown, or changes a file elsewhere."""
    told = "\n".join(text for key, text in leaves(given) if not TOLD_LAST.get(key))
    files = re.findall(r"^\*\*\* (?:\w+ File|Move to): (.+)", told, re.M)  # Codex's apply_patch
    if any(map(TOLD_LAST.get, given)):
        files += [text for key, text in leaves(given) if key in ("file_path", "notebook_path")]
    paths = [os.path.normpath(os.path.join(cwd, os.path.expanduser(file))) for file in files]
    forms = [form.replace(".*", ".{0,200}") for form in RISKS]  # else the time is cubic
    return (size(told) > INPUT_SHOWN or any(re.search(form, told, re.I) for form in forms)
            or not all((path + os.sep).startswith(os.path.join(cwd, "")) for path in paths))

def approvals(call: Call) -> list[Question]:
    """A request for permission; none for a question's tool, or for a plan without its text."""
    tool, given, lang = call.tool, call.input, call.lang
    if tool in ("", *TOOLS) or not isinstance(given, dict):
        return []
    keys, header, risk = ["allow", "deny"], tool.replace("__", " "), False
    if tool == "ExitPlanMode":  # the plan is there once its file is written (Claude Code 2.1.332)
        keys, header, text = ["approve", "keep"], say(lang, "plan"), str(given.get("plan") or "")
    else:
        risk = risky(given, str(call.payload.get("cwd")))
        text = cut_middle(summary(given).expandtabs(4), INPUT_SHOWN).strip() or tool
    text = "\n".join(map(escaped, text.split("\n")))
    added = call.payload.get("permission_suggestions")
    told = "; ".join(" ".join(word for _, word in leaves(update))
                     for update in (added if isinstance(added, list) else []))
    if tool != "ExitPlanMode" and 0 < size(told) < TEXT_FLOOR * 2:  # else not shown whole
        keys.insert(1, "always")
        text += "\n\n" + say(lang, "adds", rules=escaped(told))
    options = [Option(say(lang, key), danger=risk and key != keys[-1]) for key in keys]
    return [Approval(tool, header, text, options)] if text.strip() else []

def decide(call: Call, answers: Sequence[Answer]) -> Json:
    """PermissionRequest (Claude Code 2.1.332, Codex 0.171): nothing but a chosen label allows."""
    grants, chosen = call.questions[0].labels[:-1], answers[0].selected
    decision: Json = {"behavior": "allow"}
    if not chosen or chosen[0] not in grants:
        decision = {"behavior": "deny", "message": answers[0].text or call.agent.denied}
    elif call.tool == "ExitPlanMode":  # a bare allow would leave its dialog there
        decision["updatedInput"] = call.input
    elif chosen[0] != grants[0]:
        decision["updatedPermissions"] = call.payload["permission_suggestions"]
    return call.specific(decision=decision)

def form_fields(call: Call) -> list[Question]:
    """An MCP form's fields as questions: a choice, yes or no, words; none where one is more."""
    found, forms = [], field(field(call.payload, dict, "requested_schema"), dict, "properties")
    for key, form in forms.items() if len(forms) <= 20 else ():
        kind = field(form, str, "type")
        if kind != "boolean" and (kind != "string" or not form.keys() <= FORM_KEYS):
            return []
        told = [call.payload.get("message"), form.get("title", key), form.get("description")]
        found.append(question_of({
            "id": key, "header": call.payload.get("mcp_server_name"),
            "question": "\n".join(str(text) for text in told if text),
            "options": form.get("enum") if kind == "string" else [
                say(call.lang, "yes"), say(call.lang, "no")]}, ["id"]))
        found[-1].words = not found[-1].options
    return found

def form_filled(call: Call, answers: Sequence[Answer]) -> Json:
    """Elicitation: the content of an MCP server's form (Claude Code 2.1.332)."""
    forms = call.payload["requested_schema"]["properties"]
    return call.specific(action="accept", content={
        question.key: answer.joined() if forms[question.key]["type"] == "string"
        else answer.selected == question.labels[:1]
        for question, answer in zip(call.questions, answers)})

def finished(call: Call) -> list[Question]:
    """The end of a turn, told in the agent's last words, by sentences; not while tasks run on."""
    payload, lang = call.payload, call.lang
    if any(text == "running" for _, text in leaves(payload.get("background_tasks"))):
        return []
    turn = payload.get("prompt_id") or payload.get("turn_id") or random_id(10)
    key = re.sub("[^a-zA-Z0-9]", "", f"{payload.get('session_id')}{turn}")[-99:]
    text = str(payload.get("last_assistant_message")
               or last_words(str(payload.get("transcript_path"))) or say(lang, "finished"))
    if len(text) > TURN_SHOWN:
        part = re.match(rf"(?s).{{1,{TURN_SHOWN - 2}}}([.!?](?=\s)|[。！？\n])", text)
        text = (part[0].rstrip() if part else text[:TURN_SHOWN]) + " …"
    found = Question(key, say(lang, "finished"), text, [Option(say(lang, "done"))])
    found.hint, found.lettered, found.marks = "go_on", True, []  # the agent reads a number
    return [found]

def messages(path: str, at: int = 0) -> tuple[list[Any], int]:
    """A transcript's messages from byte `at` on, else in its last MB; where its last line ends."""
    found = []
    with contextlib.suppress(OSError, ValueError), open(path, "rb", opener=unblocked) as file:
        end = os.fstat(file.fileno()).st_size
        start = file.seek(max(at or end - 1_000_000, end - 8_000_000, 0))
        *lines, rest = file.read(max(0, end - start)).split(b"\n")
        at = end - len(rest)
        for line in lines:
            with contextlib.suppress(*MALFORMED):
                row = json.loads(line)
                found.append(row.get("message") or row["payload"])
    return found, at

def last_words(path: str) -> str:
    """The assistant's last text in a transcript, "" without one."""
    words = ""
    for said in messages(path)[0]:
        with contextlib.suppress(*MALFORMED):
            if said["role"] == "assistant":
                words = "".join(part.get("text", "") for part in said["content"]) or words
    return words

def go_on(call: Call, answers: Sequence[Answer]) -> Json | None:
    """Stop: the reply continues the session, for Claude Code 2.1.332 as a hook's words, for Codex
    0.171 in a user message, for DSH as the user's own."""
    words = answers[0].text
    return {"decision": "block", "reason": call.agent.reply + words} if words else None

APPROVAL, STOP = ("PermissionRequest", approvals, decide), ("Stop", finished, go_on)
AGENTS = {
    "claude": Agent("Claude", ("PreToolUse", claude_asks, claude_answers),
                    ("PermissionRequest", claude_asks, claude_answers), APPROVAL,
                    ("Elicitation", form_fields, form_filled), STOP),
    "codex": Agent("Codex", ("PreToolUse", questions_of, denial), APPROVAL, STOP),
    "dsh": Agent("DSH", ("AskUserQuestion", questions_of, dsh_answers),
                 ("PreToolUse", questions_of, denial), APPROVAL, STOP),
}
AGENTS["dsh"].denied = AGENTS["dsh"].reply = ""  # its plugin gives words as they are

class Transcript:
    """Tells when a call was decided in Claude Code's terminal: its JSONL file has a `tool_use` of
    the same input, then a `tool_result`, 0.2 s after an answer or when the tool ran (2.1.332)."""

    def __init__(self, call: Call) -> None:
        self.path, self.at = str(call.payload.get("transcript_path")), 0
        self.form, self.ids = self._form(call.tool, call.input), set[str]()
        self.decided()  # what was answered before is an older call of the same text

    def decided(self) -> bool:
        """Whether the terminal has decided since the last look."""
        found, (rows, self.at) = False, messages(self.path, self.at)
        for row in rows:
            with contextlib.suppress(*MALFORMED):
                for part in row["content"]:
                    if part["type"] == "tool_result" and part["tool_use_id"] in self.ids:
                        self.ids.discard(part["tool_use_id"])
                        found = found or not self.ids  # of two that are the same, both
                    elif part["type"] == "tool_use" and (
                            self._form(part["name"], part["input"]) == self.form):
                        self.ids.add(part["id"])
        return found

    def _form(self, tool: str, given: object) -> object:
        """What calls that are the same have; hooks get a `false` for what the file leaves out."""
        return tool, {leaf for leaf in leaves(given) if leaf[1] != "false"}

# === The hook ===============================================================

def run_hook(args: Sequence[str]) -> int:
    """`a4p.py hook AGENT`: JSON on stdin, JSON or nothing on stdout; returns 0, always."""
    agent = None if len(args) != 1 or os.isatty(0) else AGENTS.get(args[0])
    try:
        state = State()
    except OSError:
        return 0  # a relative A4P_HOME in a folder that is gone
    if agent and read_out(state.home) is None:
        return 0  # at home: nothing heavier than this was loaded
    try:
        while os.open(os.devnull, os.O_RDWR) < 3:
            continue  # a descriptor that came closed must not become the log or a socket
        if agent:
            answer_call(state, agent)
            return 0
        state.log.line("hook: called from a terminal, or for no agent a4p knows", *args[:3])
        if os.isatty(0):
            print(say(resolve_lang("auto"), "hook_hint"), file=sys.stderr)
    except (Released, Exception) as error:  # whatever it is, the agent asks at the terminal
        state.log.failure("hook", error)
    return 0

def answer_call(state: State, agent: Agent) -> None:
    """Ask what stdin asks, hand the answer over, and only then tell the phone."""
    closings: list[Json] = []
    on_signals(release)
    try:
        call = agent.read(read_payload(), state.config.desk, state.config.lang)
        output = ask_all(state, call, closings) if call else None
        if output is not None:
            on_signals(signal.SIG_IGN)  # the answer is on its way
            with open(1, "wb", closefd=False) as stdout:
                stdout.write(json.dumps(output, allow_nan=False).encode() + b"\n")
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # its end: from here the agent goes on
    finally:
        on_signals(signal.SIG_IGN)
        deliver_later(state, closings)

def need_topic(state: State) -> Config:
    """The config with a topic; raises UsageError where there is none yet."""
    if not state.config.topic:
        raise UsageError("no_config")
    return state.config

def publish_notice(state: State, title: str, text: str) -> None:
    """Send a plain push; raises UsageError without a topic, Refused."""
    config, ntfy = need_topic(state), Ntfy(state.config)
    body = {"topic": config.topic, "message": cut_middle(text, MESSAGE_LIMIT - 500),
            "title": cut_end(" ".join(title.split()) or "a4p", TITLE_LIMIT)}
    within(PUBLISH_WAIT, lambda: ntfy.publish(body), ntfy.server)

def ask_all(state: State, call: Call, closings: list[Json]) -> Json | None:
    """The output for a call, None without all answers; `closings` gets what is to be published."""
    out, config = read_out(state.home), need_topic(state)
    sweep(state)
    turn = call.questions[0] if call.questions[0].hint == "go_on" else None
    if turn and not config.reply_wait:
        if state.pending.take("t" + turn.key):  # else it was told before
            text = f"{turn.text}\n\n{call.sender.place}"
            closings.append(Push(config, call.sender, turn).aside(text))
        return None
    wait = config.reply_wait if turn else out and out["wait"] or config.timeout
    end = time.monotonic() + WAIT_LIMIT  # for the whole call: below the hook's own timeout
    answers: list[Answer] = []
    with Conversation(state, call.sender, 0, closings.append, watch(state, call)) as talk:
        for number, question in enumerate(call.questions, 1):
            deliver_later(state, closings)
            talk.timeout = min(wait, end - time.monotonic())
            answer = talk.ask(question, (number, len(call.questions)))
            if answer.state != "answered":
                for given, asked in zip(answers, call.questions):
                    state.log.line(f"not handed over: {asked.text}", given.joined())
                return None
            answers.append(answer)
    return call.write(call, answers)

def watch(state: State, call: Call) -> Callable[[], str]:
    """What tells how a call ended elsewhere, "" while the agent lives and nobody has decided."""
    pid, parent = os.environ.get("CLAUDE_PID", ""), os.getppid()
    claude = call.agent is AGENTS["claude"]  # Codex 0.171 and DSH ask only after the hook
    agent = int(pid) if claude and pid.isdecimal() and sys.platform != "win32" else 0
    transcript = Transcript(call) if claude and call.event == "PermissionRequest" else None
    pipe: Any = select.poll() if hasattr(select, "poll") else None  # Windows has none
    pipe and pipe.register(1, 0)
    def ended() -> str:  # a shell around the hook outlives the agent; the end of the pipe does not
        gone = os.getppid() != parent or pipe and any(bits & 24 for _, bits in pipe.poll(0))
        try:
            os.kill(agent, 0) if agent else None
        except (OSError, OverflowError) as error:
            gone = gone or isinstance(error, ProcessLookupError)
        desk = not gone and transcript and transcript.decided()
        home = "" if os.path.lexists(state.home + "/out") else "released"
        return "withdrawn" if gone else "desk" if desk else home
    return ended

def release(number: int, frame: object) -> None:
    """A signal handler: the question is taken away."""
    on_signals(signal.SIG_IGN)  # Claude Code 2.1.197 sends SIGTERM twice
    sys.unraisablehook = lambda lost: None  # in a callback, as imports have: `_wait` looks for it
    raise Released("ended by a signal")

def on_signals(handler: Any) -> None:
    """From now on SIGTERM, SIGHUP and SIGINT are for `handler`."""
    for number in (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP", "SIGINT")):
        if number:
            signal.signal(number, handler)

def read_payload() -> Any:
    """The JSON on stdin; raises A4pError over STDIN_LIMIT bytes or after STDIN_WAIT seconds."""
    try:
        stdin = io.BufferedReader(io.FileIO(0, closefd=False))
        data = within(STDIN_WAIT, lambda: stdin.read(STDIN_LIMIT + 1) or b"", "stdin")
        if len(data) > STDIN_LIMIT:
            raise A4pError("stdin_big", limit=STDIN_LIMIT)
        found = json.loads(data.decode())
        json.dumps(found, allow_nan=False)  # raises ValueError: 1e999 and NaN are not JSON
        return found
    except Refused:
        raise A4pError("stdin_slow", seconds=int(STDIN_WAIT)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise A4pError("stdin_json", detail=plain(str(error))) from None

def sweep(state: State) -> None:
    """Replace the pushes of processes that are gone."""
    deliver_later(state, [entry["closing"] for entry in state.pending.dead()])

def deliver_later(state: State, closings: list[Json]) -> None:
    """Publish, and empty the list: from a process with none of this one's descriptors."""
    while closings:
        job = json.dumps(closings[:20]).encode()  # fits a pipe: no waiting
        try:
            child: Any = subprocess.Popen(
                [sys.executable, "-I", "-S", os.path.abspath(__file__), "deliver"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, env={**os.environ, "A4P_HOME": state.home})
            with child.stdin as pipe:
                pipe.write(job)
        except OSError as error:
            state.log.line(f"receipt: {error}")
        del closings[:20]  # last: a signal before this would leave them unsent

def run_deliver() -> int:
    """The process of `deliver_later`: publish what stdin holds; failures are logged only."""
    state = State()
    try:
        ntfy, topic = Ntfy(state.config), state.config.topic
        for body in read_payload():
            for pause in BACKOFF * (body["topic"] == topic):  # else the config has changed since
                try:
                    away = body.get("delete")  # servers older than ntfy 2.16 refuse this
                    ntfy.open("DELETE", f"/{topic}/{away}") if away else ntfy.publish(body)
                    break
                except Refused as error:
                    state.log.failure("receipt", error)
                    if 300 <= error.http < 429:
                        break
                    time.sleep(pause)
    except Exception as error:
        state.log.failure("receipt", error)
    return 0

# === QR code (ISO/IEC 18004) =====================================================================

# Level L, versions 1..6: data codewords, error correction codewords of each block, blocks.
QR_VERSIONS = ((19, 7, 1), (34, 10, 1), (55, 15, 1), (80, 20, 1), (108, 26, 1), (136, 18, 2))
QR_FORMAT = 0b111011111000100  # level L and the first mask, with their check bits
QR_ANSI = "\x1b[38;5;231;48;5;16m{}\x1b[0m"  # white on black whatever the terminal's theme

def qr_lines(data: str) -> list[str]:
    """Return the QR code of `data` as lines of two rows of modules, the light ones drawn: right on
    a dark terminal, and with QR_ANSI on each that has colours. ValueError over 134 bytes."""
    rows = [[0] * 4 + row + [0] * 4 for row in qr_matrix(data.encode())]
    quiet = [[0] * len(rows[0])] * 4
    rows = quiet + rows + quiet + quiet[:1]  # the size is odd: one row more fills the last line
    return ["".join("█▀▄ "[2 * upper + lower] for upper, lower in zip(*pair))
            for pair in zip(rows[::2], rows[1::2])]

def qr_matrix(data: bytes) -> list[list[int]]:
    """Return the rows of the smallest code of `data`; 1 is dark. ValueError over 134 bytes."""
    if len(data) > 134:
        raise ValueError(f"too long for a QR code: {len(data)} bytes, at most 134")
    version = next(v for v, row in enumerate(QR_VERSIONS, 1) if len(data) + 2 <= row[0])
    size = 4 * version + 17
    cells = _qr_fixed(size)
    columns = [x for x in range(size - 1, -1, -1) if x != 6]
    path = [(x, y if pair % 4 else size - 1 - y) for pair in range(0, size - 1, 2)
            for y in range(size) for x in columns[pair:pair + 2]]  # up, then down, and so on
    words = _qr_words(data, *QR_VERSIONS[version - 1])
    bits = [word >> i & 1 for word in words for i in range(7, -1, -1)] + [0] * 7
    free = [cell for cell in path if cell not in cells]
    cells.update({(x, y): bit ^ (x + y + 1) % 2 for (x, y), bit in zip(free, bits)})  # masked
    return [[cells[x, y] for x in range(size)] for y in range(size)]

def _qr_fixed(size: int) -> dict[tuple[int, int], int]:
    """Return the modules that hold no data: finders, alignment, timing, format."""
    squares = [(3, 3, "11010"), (3, size - 4, "11010"), (size - 4, 3, "11010")]
    squares += [(size - 7, size - 7, "101")] * (size > 21)
    cells = {(8, size - 8): 1}
    for x, y, rings in squares:
        reach = range(1 - len(rings), len(rings))
        cells.update({(x + i, y + j): int(rings[max(abs(i), abs(j))])
                      for i in reach for j in reach})
    cells.update({cell: 1 - i % 2 for i in range(8, size - 8) for cell in ((i, 6), (6, i))})
    for i in range(15):  # twice
        first = (8, i + i // 6) if i < 8 else (15 - i - i // 9, 8)
        second = (size - 1 - i, 8) if i < 8 else (8, size - 15 + i)
        cells[first] = cells[second] = QR_FORMAT >> i & 1
    return cells

def _qr_words(data: bytes, room: int, ecc: int, blocks: int) -> list[int]:
    """Return the codewords: the data, one from each block in turn, then their check words."""
    head = int.from_bytes(bytes([4, len(data)]) + data, "big") << 4  # mode, length, terminator
    words = head.to_bytes(len(data) + 2, "big") + b"\xec\x11" * room  # then padding
    parts = [words[start:start + room // blocks] for start in range(0, room, room // blocks)]
    checks = [_qr_remainder(part, ecc) for part in parts]
    return [word for table in (parts, checks) for turn in zip(*table) for word in turn]

def _qr_remainder(words: bytes, ecc: int) -> bytes:
    """Return the Reed-Solomon codewords of one block, over GF(256) with polynomial 0x11d."""
    def times(a: int, b: int) -> int:
        return b and times(a << 1 ^ (a >> 7) * 0x11D, b >> 1) ^ (b & 1) * a
    divisor, rest, root = [1], [0] * ecc, 1
    for _ in range(ecc):
        divisor = [a ^ times(b, root) for a, b in zip([*divisor, 0], [0, *divisor])]
        root = times(root, 2)
    for word in words:
        factor = word ^ rest[0]
        rest = [a ^ times(b, factor) for a, b in zip([*rest[1:], 0], divisor[1:])]
    return bytes(rest)

# === The answer page: what `serve` shows ====================================

PAGE = r"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>a4p</title><link rel="icon" href="data:,">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; background: var(--ground); color: var(--ink);
  --ground: light-dark(#f4f3f0, #121316); --card: light-dark(#fff, #1c1e22);
  --ink: light-dark(#1b1d21, #ececee); --soft: light-dark(#585d66, #a7abb4);
  --edge: light-dark(#83878f, #7b808a); --accent: light-dark(#1d56b8, #93b9ff);
  --bad: light-dark(#ae1f1a, #ff9f96);
  font: 1.0625rem/1.45 system-ui; overflow-wrap: anywhere; -webkit-text-size-adjust: 100%; }
* { box-sizing: border-box; min-width: 0; margin: 0; padding: 0; font: inherit; color: inherit; }
body { max-width: 42rem; margin: auto; padding: .5rem 1rem 3rem; }
header, .head, .fill { display: flex; flex: 1; flex-wrap: wrap; gap: 0 .75rem;
  align-items: baseline; justify-content: space-between; text-align: start; }
small, .soft, .head { color: var(--soft); font-size: .9375rem; font-variant-numeric: tabular-nums; }
.card, .row, .field, button { background: var(--card); border: 1px solid var(--edge);
  border-radius: .75rem; width: 100%; min-height: 3.25rem; padding: .75rem 1rem; }
.card, .card p, .row, .field, button, li, #past h2, #empty { margin-top: .75rem; list-style: none; }
.row input { flex: none; width: 1.5rem; height: 1.5rem; accent-color: var(--accent); }
.row { display: flex; gap: 1rem; align-items: center; } .fill .soft { flex-basis: 100%; }
.text { white-space: pre-wrap; margin: .25rem 0; } pre { font-family: ui-monospace, monospace; }
b, h1, h2, .mark, .high, button:not(.row) { font-weight: 600; }
.card h2, .mark, .high, .connected, .answered, button:not(.row) { color: var(--accent); }
.danger, .lost, .soon, .card:not(.sent) .note { color: var(--bad); border-color: var(--bad); }
.sent form, article:not(.sent) > button { display: none; }
fieldset { border: 0; } fieldset:disabled { opacity: .55; }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
#live { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
</style>
<header><h1>a4p</h1><p id="state" role="status"></p></header>
<main tabindex="-1"><form id="gate" class="card" hidden>
<label><b></b><br><small data-say="why"></small><input id="key" class="field" autocomplete="off"
autocapitalize="none" required></label><button data-say="go"></button></form>
<section id="queue"></section><p id="empty" class="soft" data-say="empty" hidden></p>
<section id="past" hidden><h2 class="soft" data-say="recent"></h2><ul></ul></section></main>
<p id="live" aria-live="polite"></p>
<script>
const TEXT = {  // [English, Chinese]
  why: ["It stands in the server's link: /topic#t=token", "见服务器显示的链接：/主题#t=令牌"],
  sent: ["Sent: {}. Waiting for the agent.", "已发送：{}。等待 agent 接收。"],
  timeout: ["Timed out, back at the terminal", "无人回答，已回到终端"], submit: ["Submit", "提交"],
  empty: ["Nothing is waiting. New questions appear here.", "没有问题在等待，新问题会显示在这里。"],
  several: ["Choose one or more", "可选一项或多项"], place: ["{} of {}", "第 {} 个，共 {} 个"],
  lost: ["No connection, trying again", "连接已断开，正在重试"], connected: ["Connected", "已连接"],
  queue: ["Waiting questions", "等待回答的问题"], released: ["Back at the terminal", "已退回终端"],
  none: ["Choose an option or type an answer.", "请选择一项或输入回答。"], go: ["Continue", "继续"],
  medium: ["medium priority", "中优先级"], question: ["Question", "问题"], topic: ["Topic", "主题"],
  failed: ["Not sent ({}). Please try again.", "未能发送（{}）。请重试。"], send: ["Send", "发送"],
  offline: ["no connection", "没有连接"], desk: ["Answered at the desk", "已在电脑前回答"],
  again: ["Answer again", "重新回答"], other: ["Other", "其他"], words: ["Your answer", "你的回答"],
  high: ["high priority", "高优先级"], ended: ["No longer waiting", "已不再等待"],
  left: ["{} left", "剩余 {}"], answered: ["Answered: {}", "已回答：{}"], token: ["Token", "令牌"],
  low: ["low priority", "低优先级"], danger: ["careful", "请谨慎"], recent: ["Recent", "最近"],
};
const set = Object.assign, zh = /^zh/i.test(navigator.language);
const $ = selector => document.querySelector(selector);
const say = (key, ...parts) => TEXT[key][+zh].replace(/{}/g, () => parts.shift());
const [, topic] = location.pathname.match(/^\/([\w-]{1,55}?)(-response)?$/) || [];  // none: at "/"
const items = new Map();  // all that is shown, by question id or message id, the latest last
const seen = new Set();   // message ids: a reconnect replays what is known
let store = {}, source, timer, drawing, waiting = [];
let skew = 0, calm = 0;  // milliseconds: the server's clock less ours; when taps count again
try { store = localStorage; } catch { }  // storage is off: the token lasts as long as the page
function el(kind, ...kids) {  // what comes from outside becomes text, never markup or a property
  const [tag, ...names] = kind.split("."), node = document.createElement(tag);
  set(node, { className: names.join(" ") }).append(...kids.filter(Boolean));
  return node.firstElementChild ? node : set(node, { dir: "auto" });
}
const bearer = () => store.a4pToken ? { Authorization: "Bearer " + store.a4pToken } : {};
const show = state => set($("#state"), { className: state, textContent: say(state) });
const later = (act, seconds) => { clearTimeout(timer); timer = setTimeout(act, seconds * 1000); };
const change = (item, what) => { set(item, what); draw(); };
function connect() {
  source?.close(); later(lost, 15);
  const code = btoa(bearer().Authorization || "");  // as the server wants it, safe in a URL:
  const auth = code.replace(/[+/=]/g, c => "-_"["+/".indexOf(c)] || "");
  source = new EventSource(`/${topic},${topic}-response/sse?since=12h&auth=${auth}`);
  source.onerror = lost;
  for (const name of ["open", "keepalive", "message"]) source.addEventListener(name, event => {
    if (!event.data) return;  // the browser's own "open"
    const m = JSON.parse(event.data);
    if (name !== "message") skew = m.time * 1000 - Date.now();
    later(lost, 77); show("connected"); take(m);
  });
}
async function lost() {
  source.close(); show("lost"); later(connect, 3);
  const answer = await fetch(`/${topic}/auth`, { headers: bearer() }).catch(Object);
  if ([401, 403].includes(answer.status)) gate();
}
function gate() {  // asks for what is missing, the topic or the token
  clearTimeout(timer); $("#gate").hidden = false; $("#state").textContent = "";
  $("#gate b").textContent = say(topic ? "token" : "topic");
  set($("#key"), topic ? { type: "password" } : { pattern: "[\\w\\-]{1,55}" }).focus();
}
function take(m) {
  if (seen.has(m.id)) return; else seen.add(m.id);
  const id = String(m.topic === topic ? m.sequence_id || m.id : m.title), a = Object(m.a4p);
  const item = items.get(id) || { id, time: m.time }, asks = /^(question|approval)$/.test(a.kind);
  const about = id.endsWith("b") && items.get(id.slice(0, -1));  // whom a word is about
  if ((item.card ?? about?.card)?.isConnected) calm = Date.now() + 400;  // no tap hits the next
  drawing ||= setTimeout(draw, 20);  // a replay is drawn once
  if (m.event !== "message") return /^message_/.test(m.event) && items.delete(id);  // or cleared
  if (m.topic !== topic) return set(item, { sent: m.message });
  const until = Number(a.deadline) || NaN;
  if (about?.card) return set(about, { until, sent: null, error: m.message });
  items.delete(id); items.set(id, item);
  if (!item.card) set(item, { title: m.title, message: m.message });
  if (asks && !item.end) ask(item, a);  // an old push may come after the end
  else if (a.kind === "end" || item.card && !asks) item.end = a;
  else if (/^q[a-z2-7]{10}$/.test(id)) ask(item, { header: m.title, text: m.message });
}
function ask(item, a) {  // makes the card, which keeps what is typed and checked until it ends
  const options = Array.isArray(a.options) ? a.options.map(Object) : [], marks = Object(a.marks);
  const header = String(a.header || say("question")), several = a.multi === true && options[0];
  const who = [a.agent, a.project, a.tag].filter(Boolean).join(" · ");
  const words = a.custom || !options[0], field = set(el("input.field"), { autocomplete: "off" });
  const fields = el("fieldset", several && el("p.soft", say("several")),
    ...options.map((option, i) => row(item, option, String(marks[i] ?? i + 1), several)),
    words && el("label", el("p.soft", say(options[0] ? "other" : "words")), field),
    (words || several) && el("button", say(several ? "submit" : "send")));
  const form = set(el("form", fields), { onsubmit: event => {
    event.preventDefault();
    const chosen = [...form.querySelectorAll(":checked")].map(box => box.value).join(", ");
    send(item, [chosen, field.value.trim()].filter(Boolean).join(": "));
  } });
  const clock = set(el("span"), { role: "timer" }), note = set(el("p.note"), { role: "status" });
  const redo = set(el("button", say("again")), { onclick: () => change(item, { sent: null }) });
  const card = el("article.card", el("div.head", el("span", who), clock),
    el("div.fill", el("h2", header), a.of > 1 && el("small", say("place", a.n, a.of))),
    prose(a.text), form, note, redo);
  fields.ariaLabel = set(card, { tabIndex: -1 }).ariaLabel = header;
  set(item, { card, clock, form, note, until: Number(a.deadline) || NaN, sent: null, error: "",
    title: [who, header].filter(Boolean).join(" · "), message: a.text });
}
function row(item, option, mark, several) {
  const { label, description, priority } = option, danger = option.danger === true;
  const kind = danger ? ".row.danger" : ".row";
  const inside = [mark && el("span.mark", mark), el("span.fill", el("b", label),
    danger && el("b", "⚠ " + say("danger")),
    /^(high|medium|low)$/.test(priority) && el("small." + priority, say(priority)),
    description && el("span.soft", description))];
  if (several)
    return el("label" + kind, ...inside, set(el("input"), { type: "checkbox", value: mark }));
  const onclick = () => Date.now() > calm && send(item, String(label));
  return set(el("button" + kind, ...inside), { onclick, type: "button" });
}
const left = item => item.until - (Date.now() + skew) / 1000;  // seconds; NaN: no deadline
const waits = item => item.card && !item.end && !(left(item) < -2);
function draw() {  // brings the page to what the items say; once a second, too
  drawing = clearTimeout(drawing);
  if (!waiting.every(waits)) calm = Date.now() + 400;
  const queue = $("#queue"), held = document.activeElement?.closest("article");
  const past = [...items.values()].filter(item => !waits(item));
  waiting = [...items.values()].filter(waits).sort((a, b) => a.time - b.time);
  const cards = waiting.map(item => item.card);
  for (const card of [...queue.children]) if (!cards.includes(card)) card.remove();
  waiting.forEach((item, i) => {
    const { card, note, clock, sent } = item, next = queue.children[i];
    if (card !== next) $("#live").textContent = `${item.title}: ${item.message}`;
    if (card !== next) queue.insertBefore(card, next);
    card.classList.toggle("sent", sent != null); item.form.firstChild.disabled = item.busy;
    const told = sent == null ? item.error : say("sent", sent);
    if (note.textContent !== told) note.textContent = told;  // else it would be read out again
    const s = Math.min(86399, Math.max(0, Math.ceil(left(item)))) || 0;
    const time = new Date(s * 1000).toISOString().slice(11, 19).replace(/^00:|^0/, "");
    clock.className = s > 15 ? "clock" : "clock soon";
    clock.textContent = item.until ? say("left", time) : "";
  });
  if (held && !held.isConnected) (cards[0] || $("main")).focus();
  past.slice(0, -20).forEach(item => items.delete(item.id));
  const list = el("ul", ...past.slice(-20).reverse().map(over));
  if (!list.isEqualNode($("ul"))) $("ul").replaceWith(list);
  document.title = waiting.length ? `(${waiting.length}) a4p` : "a4p";
  $("#empty").hidden = waiting.length > 0 || !seen.size; $("#past").hidden = !past.length;
}
function over({ card, end, time, title, message }) {  // what is no longer waiting, as a row
  const clock = new Date(time * 1000).toLocaleTimeString([], { timeStyle: "short" });
  const how = end ? end.state : "timeout", state = Object.hasOwn(TEXT, how) ? how : "ended";
  return el("li", el("div.head", el("b", title), el("span", clock)), prose(message),
    (card || end) && el("b." + state, say(state, end?.answer)));
}
function prose(text) {
  let lines;
  try { lines = /^\s*[[{]/.test(text) && yaml(JSON.parse(text)).trim(); } catch { }  // no JSON
  return lines ? el("pre.text", lines) : el("p.text", text);
}
function yaml(value, line = "\n") {
  if (value && typeof value === "string")
    return (value.includes("\n") ? " |" + line : " ") + value.replace(/\n/g, line);
  const rows = Object.entries(Object(value)).map(([key, kid]) => [key, yaml(kid, line + "  ")]);
  const row = ([key, text]) => Array.isArray(value) ? "- " + text.trimStart() : key + ":" + text;
  return rows.map(pair => line + row(pair)).join("") || " " + JSON.stringify(value);
}
async function send(item, body) {
  if (item.busy || item.sent != null) return;
  change(item, { busy: body !== "", error: body ? "" : say("none") });
  if (!body) return;
  const answer = await fetch(`/${topic}-response?title=${encodeURIComponent(item.id)}`, {
    method: "POST", body, headers: bearer(), signal: AbortSignal.timeout(15000) }).catch(Object);
  if (answer.ok) take(await answer.json().catch(Object));  // once, though the stream has it too
  if ([401, 403].includes(answer.status)) gate();
  const error = answer.ok ? item.error : say("failed", answer.status || say("offline"));
  change(item, { busy: false, error });
}
addEventListener("keydown", event => {
  const key = event.key.toUpperCase(), on = selector => event.target.closest(selector);
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const first = waiting.find(item => item.sent == null);
  if (!first || first.busy || on("input:not([type=checkbox])")) return;
  if (key === "ENTER" && !on("input, button")) first.form.requestSubmit();
  const marks = [...first.card.querySelectorAll(".mark")];
  marks.find(mark => mark.textContent.toUpperCase() === key)?.click();
});
document.documentElement.lang = zh ? "zh-CN" : "en"; $("#queue").ariaLabel = say("queue");
document.querySelectorAll("[data-say]").forEach(n => { n.textContent = say(n.dataset.say); });
addEventListener("hashchange", () => location.reload());  // a link with a token, opened here
for (const name of ["online", "pageshow", "visibilitychange"]) addEventListener(name, event => {
  if (!document.hidden && event.persisted !== false && $("#gate").hidden) connect();
});
const found = location.hash.replace(/^#(t=)?/, "").replace(/%[2-7][0-9a-f]/gi, decodeURIComponent);
if (found) store.a4pToken = found.replace(/[^!-~]/g, "");
history.replaceState(null, "", location.pathname);
$("#gate").onsubmit = event => {
  event.preventDefault();
  location.replace((topic ? "#t=" : "/") + encodeURIComponent($("#key").value));
};
setInterval(draw, 1000); (topic ? connect : gate)();
</script>
"""

# === Server: ntfy's HTTP interface in one process ===========================
# Answers are those of ntfy 2.13, with 2.16's sequence_id and 2.28's limits on title and tags.

RESERVED_TOPICS = {*"docs static file app metrics account settings signup login v1".split()}  # noqa: SIM905
NTFY_ERRORS = """
 | 40000 invalid request | 40401 page not found | 50001 internal server error | 40009 invalid request: topic invalid | 40010 invalid request: topic name is not allowed | 40024 invalid request: request body must be valid JSON | 41303 JSON body too large
config/#attachments | 40014 invalid request: attachments not allowed
config/#e-mail-notifications | 40001 e-mail notifications are not enabled
publish/#action-buttons | 40018 invalid request: actions invalid
publish/#authentication | 40101 unauthorized | 40301 forbidden
publish/#icons | 40021 invalid request: icon URL is invalid
publish/#limitations | 40057 invalid request: title too large | 40058 invalid request: tags too large | 42901 limit reached: too many requests | 42903 limit reached: too many active subscriptions | 42904 limit reached: the total number of topics on the server has been reached, please contact the admin | 42909 limit reached: too many auth failures
publish/#message-priority | 40007 invalid priority parameter
publish/#scheduled-delivery | 40004 invalid delay parameter: unable to parse delay; this server delivers at once only
publish/#updating-deleting-notifications | 40049 invalid request: sequence ID invalid
subscribe/api/#fetch-cached-messages | 40008 invalid since parameter
subscribe/api/#websockets | 40016 invalid request: client not using the websocket protocol
"""  # noqa: E501 - a page of ntfy's docs | the errors that link it; codes begin with the HTTP status
ROUTES = [row.split() for row in f"""
GET,HEAD / page free
GET /v1/health {{"healthy":true}} free
OPTIONS .* preflight free
PUT,POST / publish_json free
PUT,POST /({TOPIC_FORM})(?:/({TOPIC_FORM}))? publish
DELETE,PUT /({TOPIC_FORM})/({TOPIC_FORM})(?:/clear|/read)? hand_on
GET /({TOPIC_FORM})/()(?:publish|send|trigger) publish
GET /({TOPIC_FORM}(?:,{TOPIC_FORM})*)/(json|sse|raw|ws) subscribe
GET /{TOPIC_FORM}(?:,{TOPIC_FORM})*/auth {{"success":true}}
GET /{TOPIC_FORM} page free
""".strip().splitlines()]  # in ntfy's order: methods, path, what answers it, `free` of the token
ACTION_FIELDS = {"action": str, "label": str, "clear": bool, "url": str, "method": str,
                 "headers": dict, "body": str, "intent": str, "extras": dict}
JSON_FIELDS = {"tags": list, "priority": int, "markdown": bool, "actions": list, **dict.fromkeys(
    [*"topic message title click icon attach filename email delay cache sequence_id".split()], str)}  # noqa: SIM905
STORED_FIELDS = {"id": str, "event": str, "topic": str, "time": int, "expires": int}
ALIASES = {  # of a header or query parameter, besides its name and x-name
    "title": "t", "message": "m", "priority": "prio p", "tags": "tag ta", "actions": "action",
    "sequence-id": "sid", "markdown": "md content-type", "since": "si", "poll": "po"}
YES = ("1", "yes", "true")
PRIORITIES = {"": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "min": 1, "low": 2, "default": 3,
              "high": 4, "max": 5, "urgent": 5}
STREAM_TYPES = {"json": "application/x-ndjson", "sse": "text/event-stream", "raw": "text/plain"}
Message = tuple["Json", bytes]  # an event on a topic, and its line of JSON

class Limits:
    """What a server bears, with ntfy's code for what goes over it."""
    MESSAGE, TITLE, TAGS, ACTIONS = 4096, 1024, 512, 3  # 40014 (from 4096 on), 40057, 40058, 40018
    JSON, JSON_A4P, BODY = 8192, 16384, 65536  # bytes: 41303; with the key `a4p`; of any body
    TOPICS, STREAMS, CONNECTIONS = 15_000, 512, 1024  # with messages; open: 42904, 42903, 42901
    KEPT, KEPT_BYTES, DEAD_BYTES = 20_000, 16 << 20, 1 << 20  # the oldest go; those in the file
    KEPT_SECONDS, KEEPALIVE_SECONDS = 43_200, 45  # ntfy's cache-duration and keepalive-interval
    QUEUE, WRITE_SECONDS = 2_000, 10  # a reader's messages that wait; for it to take the buffer
    HEAD_SECONDS, BODY_SECONDS = 30, 15  # from one answer to the next request's head, to its body
    FAILURES, FAILURE_SECONDS, ADDRESSES = 30, 60, 10_000  # bad logins, one back each 60 s: 42909
    UPSTREAM, UPSTREAM_SECONDS = 20, 10  # poll requests at once; each one's timeout

class Rejected(Exception):
    """An error of ntfy's table; `detail` is what ntfy adds to its text after a semicolon."""

    def __init__(self, code: int, detail: str = "") -> None:
        row = next(row for row in NTFY_ERRORS.splitlines() if f"| {code} " in row)
        page, text = row.partition(" |")[0], row.partition(f"| {code} ")[2].partition(" |")[0]
        body = {"code": code, "http": code // 100, "error": text + (detail and "; " + detail)}
        body.update({"link": f"https://ntfy.sh/docs/{page}"} if page else {})
        self.status, self.line = code // 100, go_json(body)

def refuse_if(wrong: object, code: int, detail: str = "") -> None:
    """Raise Rejected where something is wrong."""
    if wrong:
        raise Rejected(code, detail)

def utf8(text: str) -> bytes:
    """Return `text` in UTF-8, with U+FFFD for each lone surrogate."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()

def go_json(value: object) -> bytes:
    """Return `value` as a line of JSON with ntfy's escapes. Raises ValueError on NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return utf8(text.translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}) + "\n")

def typed(value: Any, kinds: dict[str, type]) -> Json:
    """Return the known keys of an object, null left out. Raises Rejected(40024) on other types."""
    refuse_if(not isinstance(value, dict), 40024)
    known = {key: value[key] for key in kinds if value.get(key) is not None}
    for key, item in known.items():
        texts = item.values() if type(item) is dict else item if key == "tags" else ()
        refuse_if(type(item) is not kinds[key] or {type(text) for text in texts} - {str}, 40024)
    return known

def short_actions(text: str) -> list[Json]:
    """Return the actions in the short form of the `Actions:` header. Raises Rejected(40018)."""
    term = r"""\s*(?:([-.\w]+)\s*=)?\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^,;]*)\s*([,;]|$)"""
    actions: list[Json] = [{}]
    for key, value, end in re.findall(term, text):
        if value.startswith(("'", '"')):
            refuse_if(value[-1] != value[0] or len(value) < 2, 40018, "unexpected end of input")
            value = value[1:-1].replace("\\" + value[0], value[0])
        key = key or ("action", "label", "url", "")[min(len(actions[-1]), 3)]
        group, _, name = key.partition(".")
        target = actions[-1].setdefault(group, {}) if name else actions[-1]
        target.setdefault(name or key, value.lower() in YES if key == "clear" else value.strip())
        actions += [{}] if end == ";" else []
    return [action for action in actions if any(action.values())]

def parse_actions(text: str) -> list[Json]:
    """Return actions, of JSON or the short form, as ntfy hands them on. Raises Rejected."""
    try:
        actions = json.loads(text) if text.startswith("[") else short_actions(text)
    except MALFORMED:
        raise Rejected(40018, "JSON error: not a list of actions") from None
    refuse_if(len(actions) > Limits.ACTIONS, 40018, f"only {Limits.ACTIONS} actions allowed")
    for number, action in enumerate(actions):
        one = {**dict.fromkeys(ACTION_FIELDS, ""), "clear": False, **typed(action, ACTION_FIELDS)}
        kind, method = one["action"], one["method"] = one["action"].lower(), one["method"].upper()
        for wrong, detail in (
                (kind not in ("view", "broadcast", "http"), f"parameter 'action' cannot be '{kind}'"
                 ", valid values are 'view', 'broadcast' and 'http'"),  # 2.17 adds copy
                (not one["label"], "parameter 'label' is required"),
                (kind != "broadcast" and not one["url"],
                 f"parameter 'url' is required for action '{kind}'"),
                (kind == "http" and method in ("GET", "HEAD") and one["body"],
                 f"parameter 'body' cannot be set if method is {method}")):
            refuse_if(wrong, 40018, detail)
        actions[number] = {"id": random_id(10), **{key: item for key, item in one.items()
                                                   if item or key == "clear"}}
    return list(actions)

def new_message(event: str, topic: str, seconds: int = 0, **more: object) -> Message:
    """Return a new event, kept for `seconds`; of `more`, what is not empty."""
    now = int(time.time())
    fields = {"id": random_id(12), "sequence_id": "", "time": now,
              "expires": seconds and now + seconds, "event": event, "topic": topic, **more}
    fields = {key: value for key, value in fields.items() if value}
    return fields, go_json(fields)

def encoded(message: Message, form: str) -> bytes:
    """Return an event as a stream shows it: json, sse or raw."""
    fields, line = message
    if form == "raw":
        return utf8(str(fields.get("message", "")).replace("\n", " ") + "\n")
    named = "" if fields["event"].startswith("message") else f"event: {fields['event']}\n"
    return line if form == "json" else utf8(named) + b"data: " + line + b"\n"

class Exchange(HandlerBase):
    """One connection, in a thread of its own; a handler of http.server, once `Server` made it."""
    ours: Server
    limits: type[Limits]
    body: Any = None  # None until a request is there
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # it would hold some answers back for 40 ms
    default_request_version = "HTTP/1.0"  # what is no HTTP at all is refused in HTTP, too

    def handle(self) -> None:
        """Answer requests; of too many connections, that without one for longest has to go."""
        self.deadline = time.monotonic() + self.limits.HEAD_SECONDS
        with self.ours.lock:  # else two that come at once would send the same one away
            waiting = [one for one in tuple(self.ours.open) if one.body is None]
            if waiting and len(self.ours.open) >= self.limits.CONNECTIONS:
                min(waiting, key=lambda one: one.deadline).deadline = 0
                self.ours.cut()
            self.ours.open.add(self)
        try:
            super().handle()
        finally:
            self.ours.open.discard(self)

    def answer(self) -> None:
        """Answer one request."""
        path, _, query = self.path.partition("?")
        path, keep, self.close_connection = urllib_parse.unquote(path), self.close_connection, True
        self.deadline = time.monotonic() + self.limits.BODY_SECONDS
        try:
            refuse_if(len(self.ours.open) > self.limits.CONNECTIONS, 42901)
            lengths = self.headers.get_all("Content-Length", ["0"])
            refuse_if(self.headers.defects or "Transfer-Encoding" in self.headers
                      or lengths[1:] or not re.fullmatch("[0-9]{1,18}", lengths[0]), 40000)
            body, size = b"", int(lengths[0])
            while size:  # what is too much is read, too, or its sender would see no answer
                part = self.rfile.read(min(size, 65536))
                refuse_if(not part, 40000)
                body, size = (body + part)[:self.limits.BODY + 1], size - len(part)
            self.body, self.close_connection = body, keep
            self.given = dict(reversed(urllib_parse.parse_qsl(query)))
            self.given.update((name.lower(), value.encode("latin-1").decode("utf-8", "replace"))
                              for name, value in reversed(self.headers.items())
                              if (name.lower(), value[:2]) != ("priority", "u="))  # RFC 9218's
            target, free, groups = next((
                (target, free, found.groups("")) for methods, form, target, *free in ROUTES
                if self.command in methods and (found := re.fullmatch(form, path))), ("", " ", ()))
            self._admit(free)
            refuse_if(not target, 40401)
            fixed = target.startswith("{")
            self._send([target.encode() + b"\n"]) if fixed else getattr(self, target)(*groups)
        except Rejected as rejected:
            self._send([rejected.line], rejected.status)
        self.body, self.deadline = None, time.monotonic() + self.limits.HEAD_SECONDS

    do_GET = do_HEAD = do_PUT = do_POST = do_PATCH = do_DELETE = do_OPTIONS = answer

    def _admit(self, free: object = None) -> None:
        """Raise Rejected(40101, 40301, 42909, 50001) for whom `Server` says."""
        ours, given, coded = self.ours, self.given.get("authorization", ""), self.given.get("auth")
        if not ours.token:
            host, origin = self.given.get("host", ""), self.given.get("origin")
            own = ours.base_url.partition("://")[2].split("/")[0]
            near = host == own or re.fullmatch(r"(localhost|[0-9.]*|\[.*\])(:[0-9]*)?", host)
            same = origin is None or origin.partition("://")[2] in {host, own} - {""}
            asked = self.given.get("sec-fetch-site", "none") in ("none", "same-origin")
            return refuse_if(not (free or near and same and asked), 40301)
        try:
            if coded:  # unpadded: ntfy fails on "="
                coded = coded.replace("=", "!") + "=" * (-len(coded) % 4)
                given = base64.b64decode(coded, b"-_", validate=True).decode()
            scheme, _, secret = given.strip().partition(" ")
            if scheme.lower() == "basic":
                secret = base64.b64decode(secret).decode().partition(":")[2]
        except ValueError:
            raise Rejected(50001 if coded else 40101) from None
        if scheme.lower() not in ("basic", "bearer"):
            return refuse_if(not free, 40301)
        address, now = ":".join(self.client_address[0].split(":")[:4]), time.monotonic()  # /64
        with ours.lock:
            forgiven, each = ours.failures.get(address, now), self.limits.FAILURE_SECONDS
            refuse_if(forgiven - now > (self.limits.FAILURES - 1) * each, 42909)
            if not hmac.compare_digest(secret.strip().encode(), ours.token.encode()):
                ours.failures[address] = max(now, forgiven) + each
                if len(ours.failures) > self.limits.ADDRESSES:
                    del ours.failures[next(iter(ours.failures))]
                raise Rejected(40101)

    def _param(self, name: str) -> str:
        """Return the header or query parameter of this name, or its first alias in use, or ""."""
        names = (f"x-{name}", name, *ALIASES.get(name, "").split())
        value = next(filter(None, (self.given.get(key, "").strip() for key in names)), "")
        if "=?" in value:
            with contextlib.suppress(ValueError, LookupError, email_errors.MessageError):
                value = str(email_header.make_header(email_header.decode_header(value)))
        return value

    def subscribe(self, topics: str, form: str) -> None:
        """Send what was kept, if that is asked for; unless it is a poll, go on with what comes."""
        names, poll = set(topics.split(",")), self._param("poll").lower() in YES
        refuse_if(form not in STREAM_TYPES, 40016)  # no WebSocket: apps can do without
        refuse_if(names & RESERVED_TOPICS, 40009)
        inbox: queue.SimpleQueue[Message] | None = None if poll else queue.SimpleQueue()
        try:
            found = self._replay(names, inbox)
            events = self._events(inbox, topics, found) if inbox else found
            parts = (encoded(message, form) for message in events)
            self._send(parts if inbox else list(parts), Connection="close" if inbox else "",
                       Content_Type=STREAM_TYPES[form] + "; charset=utf-8")
        finally:
            self.ours.listeners.pop(inbox, None)

    def _replay(self, names: set[str], inbox: queue.SimpleQueue[Message] | None) -> list[Message]:
        """Return what is asked for of the kept; the inbox gets what comes next. Raises Rejected."""
        exact = {key: text for key in ("id", "message", "title") if (text := self._param(key))}
        def wanted(fields: Json) -> bool:
            return fields["topic"] in names and (
                fields["event"] != "message" or exact.items() <= fields.items())
        since, epoch = self._param("since") or ("none" if inbox else "all"), 0
        if not re.fullmatch("all|none|latest|[A-Za-z0-9]{12}", since):  # an unknown id means all
            refuse_if(not re.fullmatch("[-+]?[0-9]{1,18}|([0-9]{1,9}[smh])+", since), 40008)
            ago = sum(int(n) * 60 ** "smh".index(u) for n, u in re.findall("(.+?)([smh])", since))
            epoch = int(since) if since[-1].isdigit() else int(time.time()) - ago
        with self.ours.lock:
            refuse_if(inbox and len(self.ours.listeners) >= self.limits.STREAMS, 42903)
            self.ours.listeners.update({inbox: wanted} if inbox else {})
            kept = [] if since == "none" else list(self.ours.kept)
            latest = dict(self.ours.topics) if since == "latest" else {}
        place = next((n for n, (fields, _) in enumerate(kept, 1) if fields["id"] == since), 0)
        return [(fields, line) for fields, line in kept[place:]
                if fields["time"] >= epoch and fields["expires"] > time.time() and wanted(fields)
                and latest.get(fields["topic"], fields) is fields]

    def _events(self, inbox: Any, topics: str, found: list[Message]) -> Iterator[Message]:
        yield new_message("open", topics)
        yield from found
        found.clear()  # the stream may outlive them
        due = time.monotonic() + self.limits.KEEPALIVE_SECONDS
        while inbox in self.ours.listeners:
            try:
                yield inbox.get(timeout=min(2.0, self.limits.KEEPALIVE_SECONDS))
            except queue.Empty:
                with contextlib.suppress(BlockingIOError):
                    self.connection.setblocking(False)
                    if not self.connection.recv(1, socket.MSG_PEEK):
                        return  # it left
                self.connection.setblocking(True)
            if time.monotonic() >= due:
                due += self.limits.KEEPALIVE_SECONDS
                yield new_message("keepalive", topics)

    def publish_json(self) -> None:
        """Publish a JSON body, turned into headers as ntfy does it."""
        limits, size, own, value, extra = self.limits, len(self.body), 0, None, None
        with contextlib.suppress(*MALFORMED):  # ntfy ignores what follows it
            value = json.JSONDecoder().raw_decode(self.body.decode("utf-8", "replace").lstrip())[0]
            extra = value.get("a4p")
            own = len(go_json(extra)) if isinstance(extra, dict) else 0
        refuse_if(size - own >= limits.JSON, 41303)
        fields = {"topic": "", **typed(value, JSON_FIELDS)}
        refuse_if(not re.fullmatch(TOPIC_FORM, fields["topic"]), 40009)
        self._admit()  # only now: ntfy looks at the topic first
        self.body = utf8(fields.pop("message", "") or "triggered")
        fields["tags"] = ",".join(fields.get("tags", ()))
        self.given.update(("x-" + key.replace("_", "-"),
                           item if isinstance(item, str) else json.dumps(item))
                          for key, item in fields.items() if item)
        fits = own and max(own, size) < limits.JSON_A4P
        self.publish(fields["topic"], "", a4p=extra if fits else None)

    def publish(self, topic: str, sequence: str, **more: object) -> None:
        """Publish what headers, query and body say. Raises Rejected, as ntfy would."""
        param, limits, text = self._param, self.limits, self.body.decode("utf-8", "replace")
        title, icon, sequence = param("title"), param("icon"), sequence or param("sequence-id")
        tags = [tag.strip() for tag in param("tags").split(",") if tag.strip()]
        priority = PRIORITIES.get(param("priority").lower())
        for wrong, code in (
                (sequence and not re.fullmatch(TOPIC_FORM, sequence), 40049),
                (icon and not icon.startswith(("http://", "https://")), 40021),
                (param("email"), 40001), (param("delay"), 40004), (priority is None, 40007),
                (len(utf8(title)) > limits.TITLE, 40057),
                (len(utf8(",".join(tags))) > limits.TAGS, 40058),
                (len(self.body) >= limits.MESSAGE or text.encode() != self.body
                 or param("attach") or param("filename"), 40014)):  # ntfy would make it a file
            refuse_if(wrong, code)
        text = (text or param("message").replace("\\n", "\n")).strip() or "triggered"
        markdown = param("markdown").lower() in (*YES, "text/markdown")
        self.hand_on(topic, sequence, "message", title=title, message=text, priority=priority,
                     tags=tags, click=param("click"), icon=icon,
                     actions=parse_actions(param("actions")),
                     content_type="text/markdown" if markdown else "", **more)

    def hand_on(self, topic: str, sequence: str, event: str = "", **more: object) -> None:
        """Tell everybody; without a name, to delete a message or (PUT) clear its notification."""
        refuse_if(topic in RESERVED_TOPICS, 40010)
        seconds = self.limits.KEPT_SECONDS if (self._param("cache") or "1").lower() in YES else 0
        event = event or ("message_clear" if self.command == "PUT" else "message_delete")
        message, ours = new_message(event, topic, seconds, sequence_id=sequence, **more), self.ours
        with ours.lock:
            if seconds:
                ours.keep(message)
                ours.store(message[1])
            for inbox in [one for one, wants in [*ours.listeners.items()] if wants(message[0])]:
                inbox.put(message)
                if inbox.qsize() > self.limits.QUEUE:
                    ours.listeners.pop(inbox, None)
        if ours.upstream and event == "message" and ours.wakers.acquire(blocking=False):
            background(lambda: ours.wake(topic, message[0]["id"]))
        self._send([message[1]])

    def page(self) -> None:
        """Send the answer page: its own script and style run, and nothing else."""
        if len(self.path) > 1 and self._param("up").lower() in YES:
            return self._send([b'{"unifiedpush":{"version":1}}\n'])
        policy = ("default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; "
                  "form-action 'none'; frame-ancestors 'none'")
        for kind, part in re.findall(rb"(?s)<(script|style)>(.*?)</\1>", self.ours.page):
            digest = base64.b64encode(hashlib.sha256(part).digest()).decode()
            policy += f"; {kind.decode()}-src 'sha256-{digest}'"
        self._send([self.ours.page], Content_Type="text/html; charset=utf-8",
                   Content_Security_Policy=policy, X_Content_Type_Options="nosniff",
                   Referrer_Policy="no-referrer", Cache_Control="no-store")

    def preflight(self) -> None:
        """Let web pages ask (for browsers the asterisk does not cover Authorization)."""
        self._send([], Access_Control_Allow_Headers="*, Authorization", Content_Type="",
                   Access_Control_Allow_Methods="GET, PUT, POST, PATCH, DELETE")

    def _send(self, parts: Iterable[bytes], status: int = 200, **headers: object) -> None:
        """Send a list of parts with its length, others as they come; `headers` have _ for -."""
        size = sum(map(len, parts)) if isinstance(parts, list) else ""
        self.send_response_only(status)
        for name, value in {"Access_Control_Allow_Origin": "*", "Content_Type": "application/json",
                            "Date": self.date_time_string(), "X_A4P": 1, "Content_Length": size,
                            **headers}.items():
            if value != "":
                self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        for part in parts if self.command != "HEAD" else ():
            self.deadline = time.monotonic() + self.limits.WRITE_SECONDS
            self.wfile.write(part)
            self.deadline = float("inf")

class Server:
    """An ntfy-compatible server, in the background until it is left as a context manager. Messages
    are lines of `store`, with the kernel before their publishers have a reply. Without a token web
    pages from elsewhere are refused: by Host (a name can be rebound), Origin, Sec-Fetch-Site."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, token: str = "", store: str = "",
                 page: bytes = b"", base_url: str = "", upstream: str = "",
                 log: Callable[[str], object] = str, limits: type[Limits] = Limits) -> None:
        """Bind and serve. Raises A4pError where the port or the file cannot be had."""
        self.token, self.page, self.log, self.limits = token, page, log, limits
        self.base_url, self.upstream = base_url.rstrip("/"), upstream.rstrip("/")
        self.file, self.size, self.bytes = store, 1 << 62, 0  # too large as it is; of what is kept
        self.lock, self.wakers = threading.Lock(), threading.Semaphore(limits.UPSTREAM)
        self.kept, self.open = collections.deque[Message](), set[Exchange]()
        self.topics: dict[str, Json] = {}  # the last one kept on each
        self.listeners: dict[Any, Callable[[Json], bool]] = {}  # queues, and what each is to get
        self.failures: dict[str, float] = {}  # address: when its bad logins will be forgiven
        handler = type("Handler", (Exchange, http_server.BaseHTTPRequestHandler), {
            "ours": self, "limits": limits, "log_message": lambda *about: None})
        listen = type("Listen", (socketserver.ThreadingTCPServer,), {
            "address_family": socket.AF_INET6 if ":" in host else socket.AF_INET,
            "allow_reuse_address": os.name == "posix", "request_queue_size": 128,
            "daemon_threads": True, "block_on_close": False, "handle_error": lambda *about: None,
            "service_actions": lambda tcp: self.cut()})
        try:
            self.tcp = listen((host, port), handler)
        except OSError as error:
            raise A4pError("listen", address=f"{host}:{port}", detail=error.strerror) from None
        name, self.port = self.tcp.server_address[:2]
        self.url = "http://{}:{}".format(f"[{name}]" if ":" in name else name, self.port)
        try:
            if store:
                os.makedirs(os.path.dirname(store), mode=0o700, exist_ok=True)
                self._load()
        except OSError as error:
            raise A4pError("home_write", file=store, detail=error.strerror) from None
        background(lambda: self.tcp.serve_forever(0.1))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self.tcp.shutdown()
        self.tcp.server_close()
        self.cut(float("inf"))

    def _load(self) -> None:
        dropped, flags = 0, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(self.file, flags, 0o600), "r+b") as file:  # which no pipe can be
            for line in file:
                try:
                    fields = json.loads(line.decode() if line.endswith(b"\n") else "")  # torn off
                    refuse_if(typed(fields, STORED_FIELDS).keys() != STORED_FIELDS.keys(), 40024)
                    self.keep((fields, line))
                except (*MALFORMED, Rejected):
                    dropped += 1
        if dropped:
            self.log(f"dropped {dropped} torn or foreign lines from {self.file}")
        self.store(b"")

    def keep(self, message: Message) -> None:
        """Keep a message, not the oldest ones beyond the limits. Raises Rejected(42904)."""
        kept, topics, limits, topic = self.kept, self.topics, self.limits, message[0]["topic"]
        refuse_if(topic not in topics and len(topics) >= limits.TOPICS, 42904)
        kept.append(message)
        topics[topic] = message[0]
        self.bytes += len(message[1])
        while kept and (kept[0][0]["expires"] <= time.time() or len(kept) > limits.KEPT
                        or self.bytes > limits.KEPT_BYTES):
            fields, line = kept.popleft()
            self.bytes -= len(line)
            if topics[fields["topic"]] is fields:
                del topics[fields["topic"]]

    def store(self, line: bytes) -> None:
        """Add a line to the file; one that is mostly dead, or lacks some, is written anew."""
        self.size += len(line)
        try:
            if self.file and self.size > 2 * self.bytes + self.limits.DEAD_BYTES:
                write_private(self.file, b"".join(each for _, each in self.kept).decode())
                self.size = self.bytes
            elif self.file:
                with open(os.open(self.file, os.O_WRONLY | os.O_APPEND), "ab") as file:
                    file.write(line)
        except (OSError, A4pError) as error:  # of a full disk, for one: it costs no delivery
            self.size = 1 << 62
            self.log(f"cannot write {self.file}: {error}")

    def cut(self, now: float = 0) -> None:
        """End what is over its deadline (a timeout would let a byte a second go on for ever)."""
        for exchange in tuple(self.open):
            if exchange.deadline <= (now or time.monotonic()):
                self.open.discard(exchange)
                with contextlib.suppress(OSError):
                    exchange.connection.shutdown(2)
        time.sleep(0.001)  # or it would spin while there are no descriptors left

    def wake(self, topic: str, name: str) -> None:
        """Have the upstream wake the phone, which then polls for the message of this id."""
        digest = hashlib.sha256(f"{self.base_url}/{topic}".encode()).hexdigest()
        request = urllib_request.Request(f"{self.upstream}/{digest}", b"", {"X-Poll-ID": name})
        try:
            urllib_request.urlopen(request, timeout=self.limits.UPSTREAM_SECONDS).close()
        except Exception as error:  # OSError, or http.client's own kinds
            self.log(f"poll request to {self.upstream} failed: {error}")
        finally:
            self.wakers.release()

# === MCP: ask_user for every client =========================================

MCP_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]  # by `initialize`
MCP_LINE, MCP_CALLS = 1 << 24, 24  # bytes of a message; calls at once: ntfy.sh gives 30 streams
MCP_PROGRESS, MCP_END = 10.0, 2.0  # seconds between notifications; to withdraw all at the end

def record(**fields: Json) -> Json:
    """The JSON schema of an object: what has no default is required, and nothing else may be."""
    return {"type": "object", "properties": fields, "additionalProperties": False,
            "required": [key for key, field in fields.items() if "default" not in field]}

TEXT: Json = {"type": "string", "minLength": 0, "maxLength": 20_000}
LABEL, FLAG, MAYBE = {**TEXT, "minLength": 1}, {"type": "boolean"}, {"type": ["string", "null"]}
MCP_TOOLS: dict[str, Json] = {  # always loaded: else Claude Code 2.1.332 has to search for them
    name: {"name": name, "description": told, "inputSchema": record(**given),
           "outputSchema": record(**back), "annotations": {"readOnlyHint": True},
           "_meta": {"anthropic/alwaysLoad": True}} for name, told, given, back in (
        ("ask_user", "Ask the person you work for, and wait, perhaps for minutes. They see title, "
         "description (text or JSON) and labels. You get the value that they chose, or null and "
         "their words as reason; with timeout, no_client or cancelled nobody has decided.",
         {"title": LABEL, "description": TEXT, "allowCustomInput": {**FLAG, "default": True},
          "options": {"type": "array", "minItems": 1, "maxItems": 50, "items": record(
              value=TEXT, label=LABEL, danger={**FLAG, "default": False}, priority={
                  "type": "string", "enum": ["high", "medium", "low"], "default": "medium"})}},
         {"value": MAYBE, "reason": MAYBE}),
        ("notify_user", "Tell the person something on their phone; nothing comes back.",
         {"message": LABEL, "title": {**TEXT, "default": ""}}, {"sent": FLAG}))}

def check(value: Any, schema: Json, name: str = "arguments") -> None:
    """Raise UsageError, with the field and why, where a call does not fit a schema of MCP_TOOLS."""
    kind = {str: "string", bool: "boolean", list: "array", dict: "object"}.get(type(value), "")
    bounds = [schema[key] for key in schema if key[:3] in ("min", "max")]
    if (kind != schema.get("type") or value not in schema.get("enum", [value])
            or bounds and not bounds[0] <= len(value) <= bounds[1]):
        why = f"{plain(repr(value), 60)} does not fit {schema}" if schema else "is no field of it"
        raise UsageError("mcp_call", fault=f"{name}: {why}")
    for key in [*schema["required"], *value] if kind == "object" else ():
        check(value.get(key), schema["properties"].get(key, {}), f"{name}.{plain(key, 60)}")
    for at, row in enumerate(value if kind == "array" else ()):
        check(row, schema["items"], f"{name}[{at}]")

def dig(value: Any, *keys: str) -> Any:
    """What `value` holds below these keys, None where it does not."""
    found = value.get(keys[0]) if isinstance(value, dict) else None
    return dig(found, *keys[1:]) if keys[1:] else found

class Mcp:
    """An MCP server on stdio, a message a line, with a thread for each call that waits."""

    def __init__(self) -> None:
        self.client: Any = {}  # what `initialize` told
        self.calls: dict[str, Json] = {}  # that wait, by the id of the form for it
        self.over, self.stdout = False, os.fdopen(os.dup(1), "wb")  # whose lines are never mixed
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing but protocol gets out

    def run(self, state: State) -> None:
        """Serve until stdin ends or a signal comes, then withdraw all that waits."""
        on_signals(release)
        with contextlib.suppress(Released):
            sweep(state)
            for line in iter(lambda: sys.stdin.buffer.readline(MCP_LINE), b""):
                found: Any = ""
                with contextlib.suppress(ValueError, RecursionError):
                    found = json.loads(line.strip() or "[]")
                for message in found if isinstance(found, list) else [found]:
                    self._take(message)
        on_signals(signal.SIG_IGN)
        self.over, end = True, time.monotonic() + MCP_END  # clients kill a server that lingers
        while threading.active_count() > 1 and time.monotonic() < end:
            time.sleep(0.02)

    def _send(self, **message: object) -> None:
        with contextlib.suppress(OSError):  # the client is gone: stdin is about to end
            self.stdout.write(encode({"jsonrpc": "2.0", **message}) + b"\n")
            self.stdout.flush()

    def _take(self, message: Any) -> None:
        """Answer a request, start the thread of a call, hand over what a form came back with."""
        key, method, params = (dig(message, name) for name in ("id", "method", "params"))
        asked, name = dig(params, "protocolVersion"), dig(params, "name")
        about = dig(params, "requestId") if method == "notifications/cancelled" else key
        form = str(key) if method is None else f"form of {about!r}"
        call, code, why = self.calls.get(form), 0, f"no JSON-RPC 2.0 within {MCP_LINE} bytes"
        results = {"ping": {}, "tools/list": {"tools": [*MCP_TOOLS.values()]}, "initialize": {
            "protocolVersion": asked if asked in MCP_VERSIONS else MCP_VERSIONS[-1],
            "serverInfo": {"name": "a4p", "version": VERSION}, "capabilities": {"tools": {}}}}
        if dig(message, "jsonrpc") != "2.0" or type(key) not in (str, int, type(None)):
            code, key = -32700 if message == "" else -32600, None
        elif key is None or method is None:
            (call or {})["cancelled" if method else "form"] = message
            return
        elif str(method) in results:
            self.client = params if method == "initialize" else self.client
        elif method != "tools/call":
            code, why = -32601, f"there is no method {plain(str(method), 60)}"
        elif str(name) not in MCP_TOOLS:
            code, why = -32602, f"there is no tool {plain(str(name), 60)}"
        elif call or len(self.calls) >= MCP_CALLS:
            code, why = -32000, f"{MCP_CALLS} calls wait already, or one with this id"
        else:
            self.calls[form] = call = {**message, "form_id": form, "at": time.monotonic()}
            background(lambda: self._call(call, name, params.get("arguments")))
            return
        answer = {"error": {"code": code, "message": why}} if code else {"result": results[method]}
        background(lambda: self._send(id=key, **answer)).join(0.01)  # a client may write much first

    def _call(self, call: Json, name: str, given: Any) -> None:
        state, told = State(), dig(self.client, "clientInfo")
        agent = plain(str(dig(told, "title") or dig(told, "name") or "MCP"), 40)
        try:
            check(given, MCP_TOOLS[name]["inputSchema"])
            if name == "ask_user":
                value = self._ask(call, state, agent, **given)
            else:
                publish_notice(state, given.get("title") or agent, given["message"])
                value = {"sent": True}
            text, call["result"] = encode(value).decode(), {"structuredContent": value}
        except Exception as error:
            state.log.failure("mcp", error)
            text, call["result"] = f"{type(error).__name__}: {error}", {"isError": True}
        if not self._ended(call):
            content = [{"type": "text", "text": text}]
            self._send(id=call["id"], result={**call["result"], "content": content})
        del self.calls[call["form_id"]]

    def _ask(self, call: Json, state: State, agent: str, title: str, description: str,
             options: Sequence[Json], allowCustomInput: bool = True) -> Json:
        """Ask where the person is: on the phone; at home in the client's form, or on the page."""
        values = {row["label"]: row.pop("value") for row in options}
        if len(values) < len(options):
            raise UsageError("mcp_call", fault="arguments.options: two labels are the same")
        with contextlib.suppress(ValueError, RecursionError):  # JSON is shown as `name: value`
            rows = [": ".join(leaf) for leaf in leaves(json.loads(description)) if leaf[0]]
            description = "\n".join(rows) or description
        if not description.strip() or size(title) > TITLE_LIMIT - 50:  # more than a push's title
            title, description = "", f"{title}\n\n{description}".strip()
        question = Question("", title, description, words=allowCustomInput,
                            options=[Option(**{"priority": "medium", **row}) for row in options])
        answer, out, config = Answer(state="no_client"), read_out(state.home), state.config
        seconds = out and out["wait"] or config.mcp_timeout
        able = dig(self.client, "capabilities", "elicitation")
        forms = able == {} or dig(able, "form") is not None
        if config.topic and (out or not forms):
            with contextlib.suppress(Refused), Conversation(
                    state, Sender(agent, os.path.basename(os.getcwd())), seconds,
                    lambda body: deliver_later(state, [body]), lambda: self._ended(call)) as talk:
                if out or talk.inbox.opened.wait(OPEN_WAIT) and talk.inbox.embedded:
                    answer = talk.ask(question)
        if forms and answer.state in ("no_client", "released"):
            answer = self._elicit(call, question, config.lang, seconds)
        nobody = answer.state if answer.state in ("timeout", "no_client") else "cancelled"
        reason = answer.text or None if answer.state == "answered" else nobody
        return {"value": next(map(values.get, answer.selected), None), "reason": reason}

    def _ended(self, call: Json) -> str:
        """The state to end with, "" while the call waits, of which the client hears."""
        token, past = dig(call, "params", "_meta", "progressToken"), time.monotonic() - call["at"]
        if token is not None and past >= call.get("told", 0) + MCP_PROGRESS:
            call["told"] = past
            self._send(method="notifications/progress", params={
                "progressToken": token, "progress": round(past)})
        return "withdrawn" if self.over or "cancelled" in call else ""

    def _elicit(self, call: Json, question: Question, lang: str, seconds: float) -> Answer:
        state, end, form = "", time.monotonic() + seconds, {"type": "string"}
        fields: Json = {"option": {**form, "title": say(lang, "reply"), "enum": question.labels}}
        if question.words:  # its name sorts first: in Codex no form can end on an empty text
            fields["custom"] = {**form, "title": say(lang, "words")}
        self._send(id=call["form_id"], method="elicitation/create", params={
            "message": f"{question.header}\n\n{question.text}".strip(), "requestedSchema": {
                "type": "object", "properties": fields,
                "required": [] if question.words else ["option"]}})
        while not state and "form" not in call:
            time.sleep(TICK)
            state = self._ended(call) or ("timeout" if time.monotonic() >= end else "")
        if state:
            self._send(method="notifications/cancelled", params={"requestId": call["form_id"]})
        result = dig(call, "form", "result")
        content = dig(result, "content") if dig(result, "action") == "accept" else None
        answer = Answer([label for label in question.labels if label == dig(content, "option")],
                        str(dig(content, "custom") or "").strip() * question.words)
        ended = state or ("released" if result else "no_client")
        return answer if answer.joined() else Answer(state=ended)

# === Setting up: install, uninstall, doctor =================================

# agent: the variable that moves ~/.AGENT, the files there (the first gets the hooks) or, with
# a "/", in the working directory, {event: matcher}
MOUNTS: dict[str, tuple[str, str, dict[str, str]]] = {
    "claude": ("CLAUDE_CONFIG_DIR",
               "settings.json .claude/settings.local.json .claude/settings.json", {
        "PreToolUse": "AskUserQuestion", "PermissionRequest": "", "Elicitation": "", "Stop": ""}),
    "codex": ("CODEX_HOME", "hooks.json config.toml .codex/hooks.json .codex/config.toml", {
        "PreToolUse": "^request_user_input(_async)?$", "PermissionRequest": "", "Stop": ""}),
    "dsh": ("DSH_HOME", "cordis.patch.yml", {})}
BACKUP = ".a4p-backup"  # the copy that install leaves beside a file; uninstall removes it
OFF = (r'"disableAllHooks"\s*:\s*true|"(?:ask|deny)"\s*:\s*\[[^\]]*"AskUserQuestion"'
       r"|(?m:^\s*(?:codex_)?hooks\s*=\s*false)")  # what keeps hooks from answering
A4PHONE = r"a4phone|\ba4p(\.mjs)?['\\\"]* hook\b"
# JSON as regular expressions: a string, a4p's hook line, a hook with it, a group of that alone.
CHAR, STRING = r'(?:[^"\\]|\\.)', r'"(?:[^"\\]|\\.)*"'
LINE = rf'"(?:\[ ! -e |cd \. ){CHAR}* -I -S {CHAR}* hook [a-z]+ \|\| {CHAR}*"'
HOOK = rf'\{{(?:\s*{STRING}\s*:\s*(?:{STRING}|\w+)\s*,)*\s*"command"\s*:\s*{LINE}[^{{}}]*\}}'
GROUP = (rf'\{{(?:\s*"matcher"\s*:\s*{STRING}\s*,)?\s*"hooks"\s*:\s*\[\s*{HOOK}\s*\]'
         rf'(?:\s*,\s*"matcher"\s*:\s*{STRING})?\s*\}}')

def agent_files(agent: str) -> list[str]:
    """The paths of an agent's files; the first is where a4p goes."""
    variable, names, _ = MOUNTS[agent]
    folder = os.environ.get(variable) or os.path.expanduser("~/." + agent)
    return [os.path.abspath(name if "/" in name else f"{folder}/{name}") for name in names.split()]

def agents_here() -> list[str]:
    """The agents that are on this machine."""
    return [agent for agent in MOUNTS
            if shutil.which(agent) or os.path.isdir(os.path.dirname(agent_files(agent)[0]))]

def stable_python() -> str:
    """This interpreter by a name that outlives upgrades: never a venv's, nor of a patch level."""
    real = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    names = [f"{folder}/bin/python3{minor}" for folder in ("/opt/homebrew", "/usr/local", "/usr")
             for minor in ("", f".{sys.version_info[1]}")]
    names += [re.sub(r"/Cellar/(.+?)/.+?/", r"/opt/\1/", real),
              re.sub(r"(\d\.\d+)\.\d+", r"\1", real)]
    return next((name for name in names if os.path.realpath(name) == real != name), real)

def hook_line(state: State, agent: str) -> str:
    """The shell line for an agent's config: never status 2, with which Claude Code denies calls."""
    python, script, out = stable_python(), os.path.abspath(__file__), state.home + "/out"
    if os.name == "nt":  # untested; Git Bash, of Claude Code, and cmd.exe, of Codex, both take it
        return f'cd . && "{python}" -I -S "{script}" hook {agent} || exit 0'.replace("\\", "/")
    python, script, out, home = map(shlex.quote, (python, script, out, state.home))
    moved = state.home != os.path.expanduser("~/.a4p")  # the agent's environment may not say so
    line = f"A4P_HOME={home} " * moved + f"{python} -I -S {script} hook {agent}"
    return f"[ ! -e {out} ] || {line} || true"

def hooks_in(text: str) -> list[tuple[str, Json, Json, bool]]:
    """Each hook of a JSON config: (event, group, hook, whether it is a4p's); raises ValueError."""
    events = json.loads(text.lstrip("\ufeff")).get("hooks", {}).items()
    return [(event, group, hook, bool(re.fullmatch(LINE, json.dumps(hook.get("command")))))
            for event, groups in events for group in groups for hook in group.get("hooks", [])]

def opening(text: str, at: int, keys: list[str]) -> tuple[int, list[str]]:
    """Where `keys` lead in the object that begins at `at`, as far as they are there; the rest."""
    pair, end = re.compile(rf"[\s,]*({STRING})\s*:\s*"), at
    while keys and (found := pair.match(text, end)):
        if json.loads(found[1]) == keys[0]:
            return opening(text, found.end() + 1, keys[1:])
        end = json.JSONDecoder().raw_decode(text, found.end())[1]
    return at, keys

def added(text: str | None, groups: Json) -> str:
    """A JSON config with a4p's groups, each first in its event; raises ValueError. Brackets made
    here have white space behind them, what is put into an empty pair has none: `bare` tells."""
    ours = [(event, group) for event, group, _, ours in hooks_in(text or "{}") if ours]
    if text is not None and len(ours) == len(groups) and dict(ours) == groups:
        return text
    text = bare(text)
    if text is None:
        whole = {"hooks": {event: [group] for event, group in groups.items()}}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    unit = str((re.findall(r"\n([ \t]+)\S", text) or ["  "])[0])
    for event, group in reversed(list(groups.items())):
        at, keys = opening(text, text.index("{") + 1, ["hooks", event])
        new: Any = [group]
        for key in reversed(keys):
            new = {key: new}
        gap, more = re.findall(r"^(\s*)([^]}]?)", text[at:])[0]
        gap = gap if more else ""
        lines = json.dumps(new, indent=unit, ensure_ascii=False)[1:-1].strip()
        lines = gap + lines.replace("\n" + unit, "\n" + gap.rpartition("\n")[2])
        text = text[:at] + lines + ("," if more else "") + text[at:]
    if sum(ours for *_, ours in hooks_in(text)) != len(groups):
        raise ValueError("a key stands there twice")
    return text

def bare(text: str | None) -> str | None:
    """The text without a4p's hooks and the brackets made for them, None where that was all."""
    if text is None or not any(ours for *_, ours in hooks_in(text)):
        return text
    event = rf'{STRING}\s*:\s*\[\s+{GROUP}\s*\]'
    hooks = rf'"hooks"\s*:\s*\{{\s+{event}\s*\}}'
    for item, bracket in ((HOOK, r"\["), (GROUP, r"\["), (event, r"\{"), (hooks, r"\{")):
        text = re.sub(rf"({bracket})(?:\s*{item}\s*,)+", r"\1", text)
        text = re.sub(rf",\s*{item}(?=\s*[,\]}}])", "", text)
        if item != HOOK:
            text = re.sub(rf"({bracket}){item}", r"\1", text)
    return None if re.fullmatch(rf"\s*\{{\s+{hooks}\s*\}}\s*", text) else text

def dsh_added(text: str | None, state: State, plugin: str) -> str:
    """DSH's `cordis.patch.yml`, for every profile (0.1, 0.2), with a4p's entry first: a list, or
    comments and `[]`; an entry beside `[]` keeps dsh from booting (0.1.0-rc.8). ValueError."""
    config = {"command": hook_line(state, "dsh"), "beside": state.config.desk == "beside"}
    text = dsh_bare(text) or ""
    rows = [row.rstrip() for row in text.splitlines() if row.strip() and row[0] != "#"]
    if rows != ["[]"] and (
            re.match(" |---", "".join(rows)) or not all(row[0] in "- " for row in rows)):
        raise ValueError("no list that a4p can add to")
    return (f"# a4p begin\n- insert:\n    - id: a4p\n      name: {json.dumps(plugin)}\n"
            f"      config: {json.dumps(config)}\n# a4p end\n"
            + re.sub(r"^\[\]", "# a4p hides []", text, flags=re.M))

def dsh_bare(text: str | None) -> str | None:
    """The same without the entry, None where there was nothing else."""
    ours = r"^# a4p (?:begin\n(?s:.*?)^# a4p end\n?|hides )"
    return re.sub(ours, "", text or "", flags=re.M) or None

DSH_PLUGIN = r"""// Written by a4p.py: hands questions, approvals and ends of turns to a4p.
import { spawn } from 'node:child_process';
import { text as all } from 'node:stream/consumers';
export const name = 'a4p';
export const inject = ['tools'];
// Runs the hook in a process group of its own, so that an abort ends all of it.
const ask = async (command, header, signal, more) => {
  const cwd = header?.cwd ?? process.cwd();
  const child = spawn('/bin/sh', ['-c', command],
    { cwd, stdio: ['pipe', 'pipe', 'ignore'], detached: true });
  const stop = () => { try { process.kill(-child.pid, 'SIGTERM'); } catch { /* gone */ } };
  for (const one of [child, child.stdin]) one.on('error', () => {});
  if (signal?.aborted) stop(); else signal?.addEventListener('abort', stop);
  child.stdin.end(JSON.stringify({ agent: 'dsh', session_id: header?.id ?? '', cwd,
    parent_session: header?.parentSession ?? null, ...more }));
  try { return JSON.parse(await all(child.stdout)); } catch { return null; }
  finally { signal?.removeEventListener('abort', stop); }
};
const say = (agent, text) => text && agent.steer({ id: crypto.randomUUID(), role: 'user',
  content: [{ type: 'text', text }], source: { kind: 'user' } });  // the words are the user's
export function apply(ctx, { command, beside } = {}) {
  if (!command) return;
  const seen = new Map();  // a call's arguments by its id, the last text by the session's
  ctx.on('session/event', ({ header }, { type, data }) => {
    if (type === 'tool/call') seen.set(data.callId, data.arguments);
    if (type === 'tool/result') seen.delete(data.message?.toolCallId);
    if (type !== 'assistant/message') return;
    const texts = (data.message?.content ?? []).filter((part) => part.type === 'text' && part.text);
    if (texts.length) seen.set(header.id, texts.map((part) => part.text).join(''));
  });
  ctx.on('approval/request', async ({ agent, callId, toolName, reason, signal }, next) => {
    let given; try { given = JSON.parse(seen.get(callId)); } catch { /* the reason must do */ }
    const value = await ask(command, agent?.session?.header, signal, { tool_name: toolName,
      hook_event_name: 'PermissionRequest', tool_input: { reason, ...given } });
    const { behavior, message } = value?.hookSpecificOutput?.decision ?? {};
    if (behavior === 'deny') say(agent, message);
    return { allow: 'allowed-once', deny: 'rejected' }[behavior] ?? next();
  });
  ctx.on('agent/turn-stopping', async ({ agent, turn, signal }) => {
    const { header } = agent.session;
    say(agent, (await ask(command, header, signal, { hook_event_name: 'Stop',
      turn_id: `${turn}`, last_assistant_message: seen.get(header.id) }))?.reason);
  });
  ctx.on('tools/execute', async (exec, next) => {
    const header = exec.agent?.session?.header;
    if (exec.name !== 'ask_user_question' || header?.parentSession) return next();
    const turn = exec.signal ?? new AbortController().signal;
    const card = new AbortController(), phone = new AbortController();
    const asked = ask(command, header, AbortSignal.any([turn, phone.signal]), {
      hook_event_name: 'AskUserQuestion', tool_name: exec.name, tool_use_id: exec.callId,
      tool_input: exec.arguments }).then((value) => Array.isArray(value?.answers) && {
      isError: false, value, content: [{ type: 'text', text: JSON.stringify(value) }] });
    if (!beside) return (await asked) || next();
    // Beside: DSH's own card and the phone at once; the first answer ends the other.
    exec.signal = AbortSignal.any([turn, card.signal]);
    const native = Promise.resolve().then(next);
    const fails = (got) => got?.isError || got?.value?.pending;
    try {
      return await Promise.race([
        native.catch(() => ({ isError: true })).then(
          async (got) => (fails(got) && (await asked)) || native),
        asked.then((got) => { if (got) card.abort(); return got || native; })]);
    } finally { phone.abort(); await native.catch(() => 0); exec.signal = turn; }
  });
}
"""

def edits(state: State, agent: str, path: str) -> list[tuple[str, Any, Any]]:
    """[(file, what adds a4p to its text, what takes it out)], in the order for install."""
    if agent == "dsh":  # without its plugin it would not boot: that comes first and goes last
        plugin = os.path.join(os.path.dirname(path), "a4p.mjs")
        return [(plugin, lambda text: DSH_PLUGIN, lambda text: None),
                (path, lambda text: dsh_added(text, state, plugin), dsh_bare)]
    # These keys are documented (Claude Code 2.1.332, Codex 0.171)
    hook = {"type": "command", "command": hook_line(state, agent), "timeout": HOOK_TIMEOUT}
    groups = {event: {**({"matcher": matcher} if matcher else {}), "hooks": [hook]}
              for event, matcher in MOUNTS[agent][2].items()}
    return [(path, lambda text: added(text, groups), bare)]

def edited(path: str, edit: Callable[[str | None], Any]) -> tuple[str | None, Any]:
    """A file's text, None where there is none, and what `edit` makes of it; raises A4pError."""
    text = None
    try:
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
        return text, edit(text)
    except (OSError, *MALFORMED) as error:
        raise A4pError("agent_file", file=path, detail=plain(str(error))) from None

def put(path: str, before: str | None, after: str | None) -> None:
    """Write or unlink a file of others: its mode, owner and links stay, and a copy. A4pError."""
    def place(draft: str, target: str) -> None:
        if before is not None:
            was = os.stat(target)
            if not was.st_mode & 0o222:
                raise PermissionError(13, "read-only")
            if was.st_uid != os.stat(draft).st_uid:  # root, in another's home; else an error
                os.chown(draft, was.st_uid, was.st_gid)
            os.chmod(draft, was.st_mode & 0o7777)
            shutil.copy2(target, path + BACKUP)
        os.unlink(target) if after is None else os.replace(draft, target)
    write_private(os.path.realpath(path), after or "", place)

def judge(fine: object, key: str, bad: str = "warning", **values: object) -> Finding:
    """The finding `key`, or where it is not `fine` `key`_bad, whose text has the mend."""
    return ("ok", key, values) if fine else (bad, key + "_bad", values)

def check_here(state: State) -> Iterator[Finding]:
    """Python, the config and its modes, the topic, what was left behind, the log."""
    config, log, version = need_topic(state), state.log.path, sys.version_info[:3]
    yield judge(version >= (3, 9), "d_python", "failure", path=stable_python(),
                version=".".join(map(str, version)))
    loose = [path for path in (state.home, config.path) if os.name != "nt"
             and os.path.exists(path) and os.stat(path).st_mode & 0o077]
    yield judge(not loose, "d_config", file=config.path, loose=" ".join(map(shlex.quote, loose)))
    yield judge(not config.unknown, "d_keys", file=config.path, keys=plain(str(config.unknown)))
    yield judge(len(config.topic) >= 22 and len(set(config.topic)) >= 10, "d_topic",
                topic=shorten(config.topic))
    left = len(state.pending.entries()) - len(state.pending.live())
    size = os.path.getsize(log) // 1000 if os.path.exists(log) else 0
    yield judge(not left and size < 2000, "d_left", n=left, size=size, file=log)

def check_way(state: State) -> Iterator[Finding]:
    """Certificates, proxy, a message to the server and back on a stream. Raises Refused."""
    config, ntfy = need_topic(state), Ntfy(state.config)
    probe = "q" + random_id(10)  # as a title, a tap on no question: no hook takes it for a reply
    roots = ssl.get_default_verify_paths()
    yield judge(config.server[:5] == "http:" or os.name == "nt" or roots.cafile
                or list_dir(os.path.realpath(roots.capath or "/none"))  # Debian's is a link
                or os.path.exists(SPARE_ROOTS), "d_roots", "failure", file=SPARE_ROOTS)
    yield judge(True, "d_proxy" if ntfy.proxy else "", proxy=ntfy.proxy.rpartition("@")[2])
    topics = [config.topic + REPLY_SUFFIX, config.topic]  # no phone shows what is in the first
    body = {"topic": topics["Authorization" in ntfy.headers], "title": probe, "cache": "no",
            "message": "a4p doctor", "priority": 1, "sequence_id": probe}
    with contextlib.closing(Inbox(ntfy, topics)) as inbox:
        inbox.opened.wait(OPEN_WAIT)
        began = time.monotonic()
        if inbox.refusal:
            raise inbox.refusal
        message = within(PUBLISH_WAIT, lambda: ntfy.publish(body), ntfy.server)
        event: Any = {"id": ""}
        while event and event["id"] != message["id"]:
            event = inbox.get(CONNECT_WAIT)
    late = abs(int(time.time() - message["time"]))
    yield judge(event, "d_trip", "failure", server=config.server, seconds=int(CONNECT_WAIT),
                ms=int((time.monotonic() - began) * 1000))
    yield judge(late < 60, "d_clock", seconds=late)
    yield judge(message.get("sequence_id") == probe, "d_update")
    state.log.line("doctor")  # each question of this machine stands in the log with its id
    with open(state.log.path, encoding="utf-8", errors="replace", opener=unblocked) as file:
        logged = file.read()
    pushed = {str(push.get("sequence_id")) for push in ntfy.poll([config.topic], "12h")}
    foreign = [one for one in pushed if re.fullmatch(ID_FORM, one) and one not in logged]
    yield judge(not foreign, "d_alone", n=len(foreign), topic=shorten(config.topic))

def check_agents(state: State) -> Iterator[Finding]:
    """Of each agent on this machine: its version, a4p's hooks, and what works against them."""
    hooked = False
    for agent in agents_here():
        path, add, drop = edits(state, agent, agent_files(agent)[0])[-1]
        told = ""
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            told = subprocess.run([agent, "--version"], stdin=subprocess.DEVNULL, timeout=10,
                                  capture_output=True, text=True, check=False).stdout
        values = {"agent": AGENTS[agent].title, "name": agent, "file": path,
                  "version": (re.findall(r"\d+\.\d[-.\w]*", told) or ["(?)"])[0]}
        try:
            text, without = edited(path, drop)
            if text == without:
                yield "warning", "d_hook_none", values
                continue
            hooked = True
            yield judge(add(text) == text, "d_hook", "failure", **values)
            for file in dict.fromkeys(agent_files(agent)):
                yield from check_beside(agent, {**values, "file": file})
        except A4pError as error:  # hides no other agent
            yield "failure", error.key, error.values
    yield judge(hooked or not agents_here(), "d_hooks", "failure")

def check_beside(agent: str, values: Json) -> Iterator[Finding]:
    """What one file of an agent has that works against a4p's hooks."""
    file, tool = values["file"], re.sub(r"\W|_async", "", MOUNTS[agent][2].get("PreToolUse", ""))
    text, hooks = edited(file, lambda text: hooks_in(
        text if text and file.endswith(".json") else "{}"))
    text = text or ""
    for found in re.finditer(OFF, text):
        yield judge(False, "d_off", "failure", **values, text=plain(found[0], 60))
    yield judge(not re.search(A4PHONE, text), "d_a4phone", **values)
    for event, group, hook, ours in hooks:
        matcher = re.sub(r"^\*?$", ".*", str(group.get("matcher") or ""))
        with contextlib.suppress(re.error):  # such a hook never runs
            if event == "PreToolUse" and not ours and re.fullmatch(matcher, tool):
                yield judge(False, "d_other", **values, command=plain(str(hook), 60))
    if file == agent_files("codex")[1]:  # Codex 0.171 keeps the hash of each hook there
        _, hooks = edited(agent_files("codex")[0], lambda text: hooks_in(text or "{}"))
        told = [json.dumps({"event_name": re.sub("(?<!^)(?=[A-Z])", "_", event).lower(), **group,
                            "hooks": [{"async": False, **hook}]}, sort_keys=True,
                           separators=(",", ":"), ensure_ascii=False)
                for event, group, hook, ours in hooks if ours]
        yield judge(all(hashlib.sha256(one.encode()).hexdigest() in text for one in told),
                    "d_trust", "failure")

# === The command line =======================================================

class Options:
    """What argparse found, and the state."""
    agents: Sequence[str] = ()
    asks = yes = project = dry_run = json = False

    def __init__(self) -> None:
        self.state, self.lang = State(), resolve_lang("auto")

    def __getattr__(self, name: str) -> Any:  # argparse sets the rest
        raise AttributeError(name)

    def say(self, key: str, **values: object) -> str:
        """A text in the terminal's language."""
        return say(self.lang, key, **values)

    def tell(self, key: str, **values: object) -> None:
        """Print that text."""
        print(self.say(key, **values), flush=True)

def show(text: str, file: Any = None) -> None:
    """One print, with everything escaped that a terminal would act on, but for newlines."""
    print("\n".join(escaped(row) for row in text.split("\n")), file=file)

def tell_mode(options: Options, out: Json | None) -> None:
    """Say whether questions go to the phone, and until when."""
    until = out and out["until"] and time.strftime("%Y-%m-%d %H:%M", time.localtime(out["until"]))
    options.tell("out" if until else "out_open" if out else "home", until=until)

def cmd_out(options: Options) -> None:
    """Go out: from now on questions go to the phone."""
    state, home = options.state, options.state.home
    need_topic(state)
    until = int(time.time() + seconds_of(options.duration)) if options.duration else ""
    wait = seconds_of(options.wait) if options.wait else 0
    if wait > WAIT_LIMIT:
        raise UsageError("duration", value=options.wait)
    write_private(os.path.join(home, "out"), f"{until}\n{wait or ''}\n")
    sweep(state)
    tell_mode(options, read_out(home))
    for tool in ("caffeinate -i", "systemd-inhibit --what=sleep:idle"):
        if shutil.which(tool.split()[0]) and write_private(f"{home}/awake-told", "", os.link):
            options.tell("awake", tool=tool)

def cmd_home(options: Options) -> None:
    """Come home: questions stay at the terminal, and all that waits is released."""
    remove(os.path.join(options.state.home, "out"))
    sweep(options.state)
    tell_mode(options, None)
    let_go(options, options.state.pending.entries())

def let_go(options: Options, entries: Sequence[Json]) -> list[Json]:
    """Release what waits; returns what this call released."""
    released = [entry for entry in entries if options.state.pending.drop(entry["tag"])]
    if released:
        options.tell("released_n", n=len(released))
    return released

def cmd_status(options: Options) -> None:
    """Say the mode, the server and what waits."""
    state, out, config = options.state, read_out(options.state.home), options.state.config
    sweep(state)
    shown = ("id", "agent", "project", "text", "since", "deadline")
    waiting = [{key: entry.get(key) for key in shown} for entry in state.pending.live()]
    if options.json:
        return show(json.dumps({
            "mode": "out" if out else "home", **(out or {"until": None, "wait": None}),
            "server": config.server, "topic": config.topic, "waiting": waiting}))
    tell_mode(options, out)
    options.tell("server_is" if config.topic else "no_config", server=config.server,
                 topic=config.topic)
    options.tell("waiting_n", n=len(waiting))
    for entry in waiting:
        row = {key: plain(str(value), 60) for key, value in entry.items()}
        options.tell("waiting_row", left=int(float(entry["deadline"] or 0) - time.time()), **row)

def cmd_ask(options: Options) -> None:
    """Ask from any script and print the answer; raises NoAnswer."""
    config, labels = need_topic(options.state), options.option
    if not all(map(str.strip, [options.text, *labels])) or len(set(labels)) < len(labels):
        raise UsageError("ask_options")
    question = Question("", options.header, options.text, list(map(Option, labels)), options.multi)
    timeout = seconds_of(options.timeout) if options.timeout else config.timeout
    answer = ask_phone(options, Sender("Ask", os.path.basename(os.getcwd())), question, timeout)
    if answer.state != "answered":
        raise NoAnswer("no_answer" if answer.state == "timeout" else "not_waiting")
    found = json.dumps({"selected": answer.selected, "text": answer.text or None})
    show(found if options.json else "\n".join(filter(None, [*answer.selected, answer.text])))

def ask_phone(options: Options, sender: Sender, question: Question, timeout: float) -> Answer:
    """Ask, with a countdown where stderr is a terminal; the push is replaced at the end."""
    closings: list[Json] = []
    end = time.monotonic() + timeout
    def count_down() -> str:
        left = options.say("ask_wait", left=max(0, int(end - time.monotonic())))
        print("\r\x1b[K" + left, end="\r", file=sys.stderr, flush=True)
        return ""
    watched = [count_down] if os.isatty(2) else []
    on_signals(release)
    try:
        with Conversation(options.state, sender, timeout, closings.append, *watched) as talk:
            return talk.ask(question)
    finally:
        print("\x1b[K" * len(watched), end="", file=sys.stderr, flush=True)
        deliver_later(options.state, closings)

def cmd_notify(options: Options) -> None:
    """Send a plain push; raises Refused."""
    publish_notice(options.state, options.title, options.text)
    options.tell("sent")

def cmd_log(options: Options) -> None:
    """Print what happened to each question; with -f go on as more happens."""
    with contextlib.suppress(FileNotFoundError), open(
            options.state.log.path, encoding="utf-8", errors="replace", opener=unblocked) as file:
        while True:
            for row in file:
                print(escaped(row.rstrip("\n")), flush=True)
            if not options.follow:
                return
            time.sleep(0.5)

def examine(options: Options, *checks: Callable[[State], Iterator[Finding]]) -> int:
    """Show each finding, or all as JSON; no secret is in a text. Returns 1 for a failure."""
    rows: dict[str, Json] = {}  # by the text: a broken config breaks many checks
    words = dict(zip(("ok", "warning", "failure"), options.say("d_status").split()))
    for check in checks:
        findings: list[Finding] = []
        try:
            findings += check(options.state)
        except A4pError as error:
            findings.append(("failure", error.key, error.values))
        for status, key, values in findings:
            text = A4pError(key, **values).text(options.lang) if key in MESSAGES else ""
            if text and text not in rows and not options.json:
                show(f"{words[status]:9}{text}")
            rows[text] = {"status": status, "check": key, "text": text}
    rows.pop("", None)  # what is always so when it is fine
    failed = any(row["status"] == "failure" for row in rows.values())
    if options.json:
        show(json.dumps({"ok": not failed, "checks": list(rows.values())}))
    return int(failed)

def cmd_doctor(options: Options) -> int:
    """Say what works and what does not, and the mend; returns 1 where a failure is left."""
    return examine(options, check_here, check_way, check_agents)

def asked(options: Options, key: str, form: str, default: str, given: str = "") -> str:
    """What was given on the command line, else typed, else the default; raises UsageError."""
    question = options.say("q_" + key, default=default)
    while True:
        asks = options.asks and not given
        said = input(question).strip() if asks else given
        answer = said or default
        if re.fullmatch(form, answer):
            return answer
        error = UsageError("q_bad", value=plain(answer, 60), asked=question.strip(" :："))
        if not asks:
            raise error
        show(error.text(options.lang))

def cmd_install(options: Options) -> int:
    """Put a4p into the configs of the agents named, else of those found here and agreed to."""
    if not (options.agents or options.project or options.yes or options.asks):
        raise UsageError("name_agents", agents=", ".join(MOUNTS))
    known = ["claude"] if options.project else list(MOUNTS)
    names = asked(options, "agents", rf"(?i:[ ,]*\b({'|'.join(known)}|none)\b)+[ ,]*", " ".join(
        agents_here()) or "none", " ".join(options.agents) or "claude" * options.project)
    options.agents = [agent for agent in known if agent in re.findall(r"\w+", names.lower())]
    return max([0, *(carry_out(options, agent) for agent in options.agents)])

def carry_out(options: Options, agent: str) -> int:
    """Add a4p to an agent's config, or remove it; what cannot be done is shown for doing it."""
    path, removes = agent_files(agent)[options.project], options.command == "uninstall"
    steps = edits(options.state, agent, path)
    moves = [(file, drop if removes else add) for file, add, drop in steps]
    try:
        texts = [(file, *edited(file, edit)) for file, edit in moves[::-1 if removes else 1]]
        changes = [row for row in texts if row[1] != row[2]]
        for file, old, new in changes:  # all was read before the first is written
            if options.dry_run:
                show("\n".join(difflib.unified_diff(
                    (old or "").splitlines(), (new or "").splitlines(), file, file, lineterm="")))
            else:
                put(file, old, new)
    except A4pError as error:
        by_hand = options.say("by_hand", file=path, lines=steps[-1][1](None))
        show(f"a4p: {error.text(options.lang)}\n{by_hand}", sys.stderr)
        return error.exit_code
    if options.dry_run:
        return 0
    done = "unchanged" if not changes else "uninstalled" if removes else "installed"
    options.tell(done, file=path)
    if not removes:
        options.tell("needs_" + agent)
    for file, _ in moves if removes else []:
        remove(file + BACKUP)
    return 0

def cmd_uninstall(options: Options) -> int:
    """Take a4p out of the agents' own configs, and release what waits."""
    state, options.agents = options.state, options.agents or [*MOUNTS] * (not options.project)
    status = cmd_install(options)
    if options.dry_run:
        return status
    titles = [AGENTS[agent].title for agent in options.agents]
    released = let_go(options, [entry for entry in state.pending.entries()
                                if entry.get("agent") in titles])
    if options.purge:
        with contextlib.suppress(A4pError):  # the phone is told while there is a config
            for entry in released:
                Ntfy(state.config).publish(entry["closing"])
        for _ in range(40):  # what was released has a last line for the log
            time.sleep(any(process_stamp(one["pid"]) == one["stamp"] for one in released) * 0.05)
        for name in "config.json out a4p.log pending taken awake-told serve.jsonl".split():  # noqa: SIM905
            remove(f"{state.home}/{name}")
            shutil.rmtree(f"{state.home}/{name}", ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(state.home)
    return status

def cmd_setup(options: Options) -> int:
    """Ask for the settings and save them, install, and prove it with a question to the phone."""
    config = options.state.config
    options.lang = asked(options, "lang", "en|zh", config.lang, options.language)
    server = asked(options, "server", SETTINGS["server"][1] + "|embedded", config.server,
                   options.server).rstrip("/")
    topic = asked(options, "topic", r"[-_A-Za-z0-9]{1,55}",
                  config.topic or "a4p-" + random_id(26), options.topic)
    phone = asked(options, "phone", "android|ios|page", config.phone or "android")
    if not (options.yes or options.asks):  # nobody agreed to an install
        options.dry_run, options.agents = True, ["claude", "codex"]
    changes: Json = {"lang": options.lang, "server": server, "topic": topic,
                     "desk": config.stored.get("desk", "beside")}
    if options.asks:
        changes["phone"] = phone.replace("page", "")
    if server == "embedded":
        token = config.serve_token or random_id(26)
        changes.update(server=f"http://{lan_address()}:2586", token=token, serve_token=token)
    config.save(**changes)
    options.state = State(options.state.home)
    options.tell("setup_done", file=config.path, topic=topic)
    status = cmd_install(options)
    way, terminal = server if server == "embedded" else phone, sys.stdout.isatty()
    if terminal and way != "embedded":
        show_code(f"{changes['server']}/{topic}")
    options.tell("setup_" + way, server=changes["server"], topic=topic)
    if terminal:
        status = try_phone(options, phone) or status
    options.tell("setup_next")
    return status

def try_phone(options: Options, phone: str) -> int:
    """Prove the server, then the phone, with a question; returns the exit status."""
    asked(options, "ready", ".*", "")
    if examine(options, check_way):
        return 1
    began = time.monotonic()
    question = Question("", "a4p", options.say("test_text"), [Option(options.say("yes"))])
    answer = ask_phone(options, Sender("a4p"), question, TEST_WAIT)
    if answer.state != "answered":
        options.tell("silent_" + phone if answer.state == "timeout" else "not_waiting")
        return NoAnswer.exit_code
    show(options.say("test_ok", answer=answer.joined(), ms=int((time.monotonic() - began) * 1000)))
    return 0

def show_code(link: str) -> None:
    """A QR code of the link; none where it is too long for one."""
    with contextlib.suppress(ValueError):
        form = QR_ANSI if sys.stdout.isatty() else "{}"
        print("", *map(form.format, qr_lines(link)), "", sep="\n", flush=True)

def cmd_serve(options: Options) -> None:
    """Run the embedded server until a signal ends it; raises UsageError."""
    state, (host, _, port) = options.state, (options.listen or "127.0.0.1:2586").rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError("listen_form", value=plain(options.listen, 60))
    token = str(options.token or state.config.serve_token)
    if options.token == "" and not token:  # --token alone
        token = random_id(26)
        state.config.save(serve_token=token)
    if not token and not is_loopback(host):
        raise UsageError("serve_token", address=host)
    on_signals(release)
    with contextlib.suppress(Released), Server(
            host, int(port), token, f"{state.home}/serve.jsonl", PAGE.encode(),
            options.base_url, options.upstream, state.log.line) as server:
        print(server.url, flush=True)
        there = lan_address() if host in ("0.0.0.0", "::") else host
        base = options.base_url or server.url.replace(f"//{host}:", f"//{there}:")
        link = f"{base}/{state.config.topic}" + (f"#t={token}" if token else "")
        options.tell("serve_link", link=link)  # the fragment never leaves the phone
        show_code(link)
        while True:
            time.sleep(3600)

def lan_address() -> str:
    """The address of this machine in its network."""
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing: it only chooses a route
        return str(probe.getsockname()[0])
    return "127.0.0.1"

def cmd_mcp(options: Options) -> None:
    """Serve `ask_user` to an MCP client until it is gone."""
    Mcp().run(options.state)

DEMO_CALL = {
    "hook_event_name": "PreToolUse", "tool_name": "AskUserQuestion", "cwd": "/home/me/shop",
    "tool_input": {"questions": [{
        "question": "How should the service run?", "header": "Deploy", "multiSelect": False,
        "options": [{"label": label} for label in ("Docker", "systemd", "local only")]}]}}

def cmd_demo(options: Options) -> None:
    """The whole main job on this machine: a server, a question, the JSON that comes out."""
    with tempfile.TemporaryDirectory() as folder, Server("127.0.0.1", 0) as server:
        topic = "a4p-" + random_id(26)
        State(folder).config.save(server=server.url, topic=topic, lang=options.lang)
        state = State(folder)
        call: Any = AGENTS["claude"].read(DEMO_CALL, "wait")
        ntfy = Ntfy(state.config)
        stream = ntfy.stream([topic])
        def play() -> None:  # the phone: shows each push, and answers by itself with --reply
            for event in filter(lambda event: event["event"] == "message", stream):
                taps = "   ".join(f"[ {action['label']} ]" for action in event.get("actions", []))
                rows = [event["title"], "", *event["message"].split("\n"), "", taps]
                show("\n  | ".join([options.say("demo_push"), *rows]) + "\n")
                if options.reply:
                    ntfy.publish({"topic": topic + REPLY_SUFFIX, "message": options.reply})
                else:
                    options.tell("demo_ask", url=f"{ntfy.server}/{topic}{REPLY_SUFFIX}")
        background(play)
        with Conversation(state, call.sender, 300, lambda body: stream.close()) as talk:
            answer = talk.ask(call.questions[0])
        if answer.state != "answered":
            raise NoAnswer("no_answer" if answer.state == "timeout" else "not_waiting")
        options.tell("demo_got")
        show(json.dumps(call.write(call, [answer]), indent=2, ensure_ascii=False))

# name | help in English | in Chinese | example | its arguments, as NAMES VALUE: help
COMMANDS = {row.split(" | ")[0]: row.split(" | ")[1:] for row in """
setup | choose server, phone and agents, and prove it | 选择服务器、手机和 agent，并当场验证 | a4p.py setup --server https://ntfy.sh | --yes: take every default, ask nothing | --server URL: an ntfy server's URL, or embedded | --topic NAME: the topic's name | --lang LANGUAGE: en or zh
out | questions go to the phone from now on | 从现在起问题发到手机 | a4p.py out --for 2h --wait 10m | --for 2h: come home by itself after this time | --wait 10m: how long each question waits
home | questions stay at the terminal; release what waits | 问题留在终端；在等的问题退回终端 | a4p.py home
status | the mode, the server, what waits | 模式、服务器、等待的问题 | a4p.py status --json | --json: for programs
hook | what agents call | 由 agent 调用 | a4p.py hook claude < call.json | agent AGENT: claude, codex or dsh
ask | ask from any script, print the answer | 从脚本提问并打印回答 | a4p.py ask "Deploy now?" -o Yes -o No --timeout 10m | text QUESTION: what to ask | -o --option LABEL...: a choice | --multi: several may be chosen | --header TITLE: a short title | --timeout 10m: how long to wait | --json: print JSON
notify | send a plain push | 发送一条普通推送 | a4p.py notify "Build done" --title CI | text TEXT: what to say | --title TITLE: its title
serve | an ntfy-compatible server with an answer page | 内置的 ntfy 兼容服务器 | a4p.py serve --listen 127.0.0.1:8080 | --listen HOST:PORT: 127.0.0.1:2586 if not given | --token [T]: what clients must know; without a value one is made and kept | --base-url URL: its URL as phones see it | --upstream https://ntfy.sh: wake iOS phones; each push counts there
mcp | ask_user for any MCP client, on stdio | 供任意 MCP 客户端使用的 ask_user（stdio） | a4p.py mcp
demo | see it work, without account or network | 本机演示，无需账号和网络 | a4p.py demo --reply 3 | --reply R: answer by itself
install | put a4p into the agents' own configs | 写入 agent 自己的配置 | a4p.py install claude codex --dry-run | agents AGENT...: claude, codex, dsh; else those found | --project: this project's settings.local.json | --dry-run: show the change only | --yes: into all found here, without asking
uninstall | take a4p out again | 从 agent 的配置移除 | a4p.py uninstall --purge | agents AGENT...: claude, codex, dsh; else all | --project: this project's settings.local.json | --dry-run: show the change only | --purge: delete config and log, too
log | what happened to each question | 每个问题的经过 | a4p.py log -f | -f --follow: go on as more happens
doctor | what works, what does not, and how to mend it | 检查哪里不正常、怎么修 | a4p.py doctor --json | --json: for programs
""".strip().split("\n")}  # noqa: E501
VALUES: dict[str, Json] = {  # what argparse is told; else it takes a text, "" where not given
    "LABEL...": {"action": "append", "default": []}, "AGENT...": {"nargs": "*"},
    "[T]": {"nargs": "?", "const": ""}, "-": {"action": "store_true"},
    "LANGUAGE": {"default": "", "dest": "language"}, "2h": {"default": "", "dest": "duration"}}

def parser(lang: str) -> Any:
    """The argument parser; every command's help ends with an example."""
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> Any:
            raise UsageError("usage", detail=message, prog=self.prog)
    top = Parser(prog="a4p.py", description=(__doc__ or "").split("\n")[0])
    top.add_argument("--version", action="version", version="a4p " + VERSION)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (english, chinese, example, *arguments) in COMMANDS.items():
        text = chinese if lang == "zh" else english
        sub = commands.add_parser(name, help=text, description=text, epilog="example: " + example)
        sub.set_defaults(run=globals().get("cmd_" + name))  # `main` runs `hook` by itself
        for argument in arguments:
            form, _, told = argument.partition(": ")
            names, settings = form.split(), VALUES["-"]
            if names[-1][0] != "-":
                value = names.pop()
                settings = {"metavar": value.strip("[.]"), **VALUES.get(value, {"default": ""})}
            sub.add_argument(*names, help=told, **settings)
    return top

def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status. The one place where errors become text."""
    args = list(sys.argv[1:] if argv is None else argv)
    os.umask(0o077)  # whatever is made, and the folders above it, is its owner's alone
    if args[:1] == ["hook"] and not set(args) & {"-h", "--help"}:
        return run_hook(args[1:])
    if args == ["deliver"]:
        return run_deliver()
    options = Options()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Chinese or emoji
    try:
        with contextlib.suppress(UsageError):  # its own command says so, if it needs the config
            options.lang = options.state.config.lang
        parser(options.lang).parse_args(args, options)
        options.asks = sys.stdin.isatty() and not options.yes
        return int(options.run(options) or 0)
    except A4pError as error:
        show("a4p: " + error.text(options.lang), sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, Released, EOFError):
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
    if sys.argv[1:2] in (["hook"], ["mcp"]):
        os._exit(exit_status)  # taking modules and threads down costs the agent 20 ms
    sys.exit(exit_status)
