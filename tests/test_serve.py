"""The embedded server, read as a specification of ntfy's wire format.

The answers in RECORDED are those of a real ntfy 2.13 (a few, where it says so, of a later one),
with ids, times and expiry masked.
"""
from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import http.server
import json
import os
import queue
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from urllib.parse import quote, urlsplit

import pytest

import a4p

TOKEN = "tk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
DOCS = "https://ntfy.sh/docs/"
PAGE = b"<!doctype html><style>b{}</style><script>1</script>"


def ask(server, method, path, body=None, **headers):
    """Return (status, headers, text) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.request(method, path, body.encode() if isinstance(body, str) else body,
                           {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def publish(server, topic, message, **fields):
    """Return the published message as the server answered it."""
    body = json.dumps({"topic": topic, "message": message, **fields}, ensure_ascii=False)
    status, _, text = ask(server, "POST", "/", body)
    assert status == 200, text
    return json.loads(text)


def poll(server, path, **headers):
    """Return the messages of a poll."""
    status, _, text = ask(server, "GET", path, **headers)
    assert status == 200, text
    return [json.loads(line) for line in text.splitlines()]


def texts(messages):
    return [message["message"] for message in messages]


def code(answer):
    return answer[0], json.loads(answer[2])["code"]


def until(sock, wanted):
    """Wait for these bytes."""
    got = b""
    while wanted not in got:
        part = sock.recv(65536)
        assert part, got
        got += part


class Listener:
    """A stream, opened and past its head."""

    def __init__(self, server, path, **headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.sock = self.answer.fp.raw._sock

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.answer.close()
        self.connection.close()

    def line(self):
        return self.answer.readline().decode()

    def event(self):
        return json.loads(self.line())


def raw(server, data, read_all=True):
    """Send bytes as they are; return all that comes until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(data)
        if read_all:
            sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.fixture()
def server():
    with a4p.Server(page=PAGE) as running:
        yield running


@pytest.fixture()
def guarded():
    with a4p.Server(page=PAGE, token=TOKEN) as running:
        yield running


def limited(**limits):
    return type("Tight", (a4p.Limits,), limits)


# --- Publishing: what a real server answered -------------------------------------------------

HTTP_A = {"action": "http", "label": "Approve", "url": "http://127.0.0.1:9/a", "method": "POST",
          "headers": {"X-Sig": "abc"}, "body": "{\"ok\":true}", "clear": True}
HTTP_D = {"action": "http", "label": "拒绝 Deny", "url": "http://127.0.0.1:9/d"}
VIEW = {"action": "view", "label": "Open", "url": "https://example.com/x?y=1&z=2"}
HEAD = '{"id":"ID","time":T,"expires":T,"event":"message","topic":"t"'


def error(number, text, link=""):
    link = f',"link":"{DOCS}{link}"' if link else ""
    return f'{{"code":{number},"http":{number // 100},"error":"{text}"{link}}}'


def actions_error(detail):
    return error(40018, f"invalid request: actions invalid; {detail}", "publish/#action-buttons")


INVALID_JSON = error(40024, "invalid request: request body must be valid JSON")
TOO_LARGE = error(41303, "JSON body too large")
NO_FILES = error(40014, "invalid request: attachments not allowed", "config/#attachments")


def action(**fields):
    return {"topic": "t", "message": "m", "actions": [fields]}


RECORDED_JSON = {  # what is posted to /: what came back
    "three actions": (
        {"topic": "t", "title": "标题 title", "message": "Hello 世界", "priority": 4,
         "tags": ["warning", "x"], "click": "https://example.com/",
         "actions": [HTTP_A, HTTP_D, VIEW]},
        HEAD + ',"title":"标题 title","message":"Hello 世界","priority":4,'
        '"tags":["warning","x"],"click":"https://example.com/","actions":['
        '{"id":"AID","action":"http","label":"Approve","clear":true,"url":"http://127.0.0.1:9/a",'
        '"method":"POST","headers":{"X-Sig":"abc"},"body":"{\\"ok\\":true}"},'
        '{"id":"AID","action":"http","label":"拒绝 Deny","clear":false,'
        '"url":"http://127.0.0.1:9/d"},'
        '{"id":"AID","action":"view","label":"Open","clear":false,'
        '"url":"https://example.com/x?y=1\\u0026z=2"}]}'),
    "four actions": ({"topic": "t", "message": "m", "actions": [HTTP_A, HTTP_D, VIEW, HTTP_A]},
                     actions_error("only 3 actions allowed")),
    "no url": (action(action="http", label="no url"),
               actions_error("parameter 'url' is required for action 'http'")),
    "no label": (action(action="http", url="http://127.0.0.1:9/"),
                 actions_error("parameter 'label' is required")),
    "unknown action": (action(action="foo", label="l"), actions_error(
        "parameter 'action' cannot be 'foo', valid values are 'view', 'broadcast' and 'http'")),
    "copy": (action(action="copy", label="l", value="v"), actions_error(
        "parameter 'action' cannot be 'copy', valid values are 'view', 'broadcast' and 'http'")),
    "GET with body": (
        action(action="http", label="l", url="http://127.0.0.1:9/", method="GET", body="x"),
        actions_error("parameter 'body' cannot be set if method is GET")),
    "broadcast": (action(action="broadcast", label="Do", intent="io.x", extras={"a": "1"}),
                  HEAD + ',"message":"m","actions":[{"id":"AID","action":"broadcast",'
                  '"label":"Do","clear":false,"intent":"io.x","extras":{"a":"1"}}]}'),
    "any url": (action(action="http", label="l", url="not a url"),
                HEAD + ',"message":"m","actions":[{"id":"AID","action":"http","label":"l",'
                '"clear":false,"url":"not a url"}]}'),
    "header of a wrong type": (action(action="http", label="l", url="u", headers={"n": 1}),
                               INVALID_JSON),
    "no topic": ({"message": "x"}, error(40009, "invalid request: topic invalid")),
    "bad topic": ({"topic": "bad topic!"}, error(40009, "invalid request: topic invalid")),
    "long topic": ({"topic": "t" * 65}, error(40009, "invalid request: topic invalid")),
    "reserved topic": ({"topic": "docs", "message": "x"},
                       error(40010, "invalid request: topic name is not allowed")),
    "priority 6": ({"topic": "t", "priority": 6},
                   error(40007, "invalid priority parameter", "publish/#message-priority")),
    "priority as text": ({"topic": "t", "priority": "high"}, INVALID_JSON),
    "cache as boolean": ({"topic": "t", "cache": False}, INVALID_JSON),
    "tags as text": ({"topic": "t", "tags": "a,b"}, INVALID_JSON),
    "no object": (["topic"], INVALID_JSON),
    "priority 0, unknown field": ({"topic": "t", "message": "x", "priority": 0, "new": {"a": 1}},
                                  HEAD + ',"message":"x"}'),
    "priority 3 is echoed": ({"topic": "t", "message": "x", "priority": 3},
                             HEAD + ',"message":"x","priority":3}'),
    "null is absent": ({"topic": "t", "message": "x", "title": None}, HEAD + ',"message":"x"}'),
    "empty message": ({"topic": "t", "message": ""}, HEAD + ',"message":"triggered"}'),
    "outer space": ({"topic": "t", "message": "  two\nlines \n\n", "title": "  a\nb  "},
                    HEAD + ',"title":"a\\nb","message":"two\\nlines"}'),
    "tags are joined and split": ({"topic": "t", "message": "x", "tags": ["a,b", " c "]},
                                  HEAD + ',"message":"x","tags":["a","b","c"]}'),
    "e-mail": ({"topic": "t", "email": "a@example.com"},
               error(40001, "e-mail notifications are not enabled",
                     "config/#e-mail-notifications")),
    "icon": ({"topic": "t", "icon": "ftp://x"},
             error(40021, "invalid request: icon URL is invalid", "publish/#icons")),
    "markdown": ({"topic": "t", "message": "<b>md</b> **x**", "markdown": True},
                 HEAD + ',"message":"\\u003cb\\u003emd\\u003c/b\\u003e **x**",'
                 '"content_type":"text/markdown"}'),
    "uncached": ({"topic": "t", "message": "x", "cache": "no"},
                 '{"id":"ID","time":T,"event":"message","topic":"t","message":"x"}'),
    "sequence id (2.16)": ({"topic": "t", "message": "x", "sequence_id": "seq-1"},
                           HEAD.replace('"time"', '"sequence_id":"seq-1","time"')
                           + ',"message":"x"}'),
    "bad sequence id (2.16)": ({"topic": "t", "sequence_id": "a b"},
                               error(40049, "invalid request: sequence ID invalid",
                                     "publish/#updating-deleting-notifications")),
    "message of 4095 bytes": ({"topic": "t", "message": "a" * 4095},
                              HEAD + f',"message":"{"a" * 4095}"}}'),
    "message of 4096 bytes": ({"topic": "t", "message": "a" * 4096}, NO_FILES),
    "4095 bytes of CJK": ({"topic": "t", "message": "界" * 1365},
                          HEAD + f',"message":"{"界" * 1365}"}}'),
    "4098 bytes of CJK": ({"topic": "t", "message": "界" * 1366}, NO_FILES),
    "line separators": ({"topic": "t", "message": "a\u2028b\u2029c"},
                        HEAD + ',"message":"a\\u2028b\\u2029c"}'),
}
RECORDED_BYTES = {
    "not JSON": ("{nope", INVALID_JSON),
    "nothing": ("", INVALID_JSON),
    "what follows is ignored": ('{"topic":"t","message":"x"} trailing', HEAD + ',"message":"x"}'),
    "8192 bytes": ('{"topic":"t","message":"a","x":"' + "t" * 8158 + '"}', TOO_LARGE),
    "8191 bytes": ('{"topic":"t","message":"a","x":"' + "t" * 8157 + '"}',
                   HEAD + ',"message":"a"}'),
    "escapes count": (json.dumps({"topic": "t", "message": "界" * 1365}), TOO_LARGE),
    "a lone surrogate": ('{"topic":"t","message":"a\\ud800b"}', HEAD + ',"message":"a\ufffdb"}'),
    "deep nesting": ('{"topic":"t","message":"x","y":' + "[" * 3000 + "]" * 3000 + "}", None),
}


def masked(text):
    text = re.sub('"id":"[A-Za-z0-9]{12}"', '"id":"ID"', text)
    text = re.sub('"id":"[A-Za-z0-9]{10}"', '"id":"AID"', text)
    return re.sub('"(time|expires)":[0-9]{10}', r'"\1":T', text)


@pytest.fixture(scope="module")
def shared():
    with a4p.Server() as running:
        yield running


def expect(answer, wanted):
    status, headers, text = answer
    assert masked(text) == wanted + "\n"
    assert status == json.loads(wanted.replace(":T", ":0")).get("http", 200)
    assert headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("name", RECORDED_JSON)
def test_json_publish_is_answered_as_recorded(shared, name):
    sent, wanted = RECORDED_JSON[name]
    expect(ask(shared, "POST", "/", json.dumps(sent, ensure_ascii=False)), wanted)


@pytest.mark.parametrize("name", RECORDED_BYTES)
def test_a_body_is_answered_as_recorded(shared, name):
    sent, wanted = RECORDED_BYTES[name]
    answer = ask(shared, "PUT", "/", sent)
    if wanted:
        expect(answer, wanted)
    else:
        assert answer[0] in (200, 400)


RECORDED_HEADERS = {  # (method, path, headers, body): what came back
    "short actions": (
        "POST", "/t", {"Actions": "http, Approve, http://127.0.0.1:9/a, method=PUT, clear=true; "
                                  "view, Open, https://example.com"}, "via header",
        HEAD + ',"message":"via header","actions":[{"id":"AID","action":"http",'
        '"label":"Approve","clear":true,"url":"http://127.0.0.1:9/a","method":"PUT"},'
        '{"id":"AID","action":"view","label":"Open","clear":false,"url":"https://example.com"}]}'),
    "RFC 2047, a named priority": (
        "POST", "/t", {"Title": "=?UTF-8?B?5qCH6aKY?=", "Priority": "high", "Tags": "a,b"}, "body",
        HEAD + ',"title":"标题","message":"body","priority":4,"tags":["a","b"]}'),
    "query": ("PUT", "/t?priority=3&title=" + quote("题") + "&tags=x", {}, "b",
              HEAD + ',"title":"题","message":"b","priority":3,"tags":["x"]}'),
    "aliases": ("POST", "/t", {"t": "T", "p": "5", "ta": "a", "sid": "s", "md": "1"}, "b",
                HEAD.replace('"time"', '"sequence_id":"s","time"')
                + ',"title":"T","message":"b","priority":5,"tags":["a"],'
                '"content_type":"text/markdown"}'),
    "a header before the query": ("POST", "/t?title=q", {"X-Title": "h"}, "b",
                                  HEAD + ',"title":"h","message":"b"}'),
    "RFC 9218's priority": ("POST", "/t", {"Priority": "u=1, i"}, "b", HEAD + ',"message":"b"}'),
    "the priority behind it": ("POST", "/t?p=2", {"Priority": "u=1"}, "b",
                               HEAD + ',"message":"b","priority":2}'),
    "bad priority": ("POST", "/t", {"Priority": "9"}, "b", error(
        40007, "invalid priority parameter", "publish/#message-priority")),
    "webhook": ("GET", "/t/publish?message=a%5Cnb&title=T", {}, None,
                HEAD + ',"title":"T","message":"a\\nb"}'),
    "trigger": ("GET", "/t/trigger", {}, None, HEAD + ',"message":"triggered"}'),
    "send": ("GET", "/t/send", {"m": "x"}, None, HEAD + ',"message":"x"}'),
    "4095 bytes": ("POST", "/t", {}, "a" * 4095, HEAD + f',"message":"{"a" * 4095}"}}'),
    "4096 bytes": ("POST", "/t", {}, "a" * 4096, NO_FILES),
    "5000 bytes": ("POST", "/t", {}, "a" * 5000, NO_FILES),
    "a megabyte": ("POST", "/t", {}, "a" * (1 << 20), NO_FILES),
    "a JSON megabyte": ("POST", "/", {}, '{"topic":"t","message":"' + "a" * (1 << 20), TOO_LARGE),
    "not UTF-8": ("POST", "/t", {}, b"\xff\xfe", NO_FILES),
    "a file": ("PUT", "/t", {"Filename": "f.txt"}, "x", NO_FILES),
    "JSON at a topic is text": ("POST", "/t", {}, '{"topic":"x"}',
                                HEAD + ',"message":"{\\"topic\\":\\"x\\"}"}'),
    "update (2.16)": ("PUT", "/t/seq_1", {}, "x", HEAD.replace(
        '"time"', '"sequence_id":"seq_1","time"') + ',"message":"x"}'),
    "delete (2.16)": ("DELETE", "/t/seq_1", {}, None, HEAD.replace(
        '"time"', '"sequence_id":"seq_1","time"').replace("message", "message_delete") + "}"),
    "clear (2.16)": ("PUT", "/t/seq_1/clear", {}, None, HEAD.replace(
        '"time"', '"sequence_id":"seq_1","time"').replace("message", "message_clear") + "}"),
    "read (2.16)": ("PUT", "/t/seq_1/read", {}, None, HEAD.replace(
        '"time"', '"sequence_id":"seq_1","time"').replace("message", "message_clear") + "}"),
    "title of 1025 bytes (2.28)": ("POST", "/t", {"Title": "t" * 1025}, "x", error(
        40057, "invalid request: title too large", "publish/#limitations")),
    "tags of 513 bytes (2.28)": ("POST", "/t", {"Tags": "t" * 513}, "x", error(
        40058, "invalid request: tags too large", "publish/#limitations")),
    "delay": ("POST", "/t", {"Delay": "30s"}, "x", error(
        40004, "invalid delay parameter: unable to parse delay; "
               "this server delivers at once only", "publish/#scheduled-delivery")),
    "health": ("GET", "/v1/health", {}, None, '{"healthy":true}'),
    "auth": ("GET", "/t/auth", {}, None, '{"success":true}'),
    "auth of two": ("GET", "/t,u/auth", {}, None, '{"success":true}'),
    "no WebSocket": ("GET", "/t/ws", {}, None, error(
        40016, "invalid request: client not using the websocket protocol",
        "subscribe/api/#websockets")),
    "nothing there": ("GET", "/t/nope", {}, None, error(40401, "page not found")),
    "nothing to delete": ("DELETE", "/t", {}, None, error(40401, "page not found")),
    "another method": ("PATCH", "/t", {}, "x", error(40401, "page not found")),
    "a path out": ("GET", "/../t/json", {}, None, error(40401, "page not found")),
    "a reserved topic": ("POST", "/docs", {}, "x", error(
        40010, "invalid request: topic name is not allowed")),
    "a reserved topic's stream": ("GET", "/docs,t/json", {}, None, error(
        40009, "invalid request: topic invalid")),
    "bad since": ("GET", "/t/json?poll=1&since=bad", {}, None, error(
        40008, "invalid since parameter", "subscribe/api/#fetch-cached-messages")),
}


@pytest.mark.parametrize("name", RECORDED_HEADERS)
def test_a_request_is_answered_as_recorded(shared, name):
    method, path, headers, body, wanted = RECORDED_HEADERS[name]
    expect(ask(shared, method, path, body, **headers), wanted)


@pytest.mark.parametrize("short, actions", [
    ('view, "a, \\"b\\"", https://x', [("view", 'a, "b"', "https://x")]),
    ("action=http,label='A;B',url=u", [("http", "A;B", "u")]),
    ("view,A,u;view,B,v;", [("view", "A", "u"), ("view", "B", "v")]),
    ("HTTP, A, url=u", [("http", "A", "u")]), ("url=u, action=view, label=A", [("view", "A", "u")]),
    ("view, It's A, https://x/?y=1", [("view", "It's A", "https://x/?y=1")]),
    ("view, A, u, what, aaa=b", [("view", "A", "u")]),  # what it does not know, it ignores
])
def test_short_actions_quote_with_either_mark(shared, short, actions):
    _, _, text = ask(shared, "POST", "/t", "x", Actions=short)
    assert [(a["action"], a["label"], a["url"]) for a in json.loads(text)["actions"]] == actions


@pytest.mark.parametrize("short, detail", [
    ("view, A, u, headers=b", "invalid"), ("view, A, label.x=b", "actions invalid"),
    ("view", "parameter 'label' is required"),
    ("action=http, label=\"the end is missing", "unexpected end of input"),
    ("view, 'A' B, u", "unexpected end of input"), ("view, ', u", "unexpected end of input"),
    ("view, A, u; view, A, u; view, A, u; view, A, u", "only 3 actions allowed"),
    ("[1]", ""), ("[", "JSON error"),
])
def test_short_actions_say_what_is_wrong(shared, short, detail):
    status, _, text = ask(shared, "POST", "/t", "x", Actions=short)
    assert status == 400
    assert detail in json.loads(text)["error"]


def test_a_long_gap_in_short_actions_does_not_hold_the_server(shared):
    began = time.process_time()
    assert ask(shared, "POST", "/t", "x", Actions="view," + " " * 60_000 + '"')[0] == 400
    assert time.process_time() - began < 5


def test_a_short_action_takes_headers_extras_and_body(shared):
    short = "http, A, http://x, headers.X-A=1, body='{\"a\": 1}'; broadcast, B, extras.k=v"
    _, _, text = ask(shared, "POST", "/t", "x", Actions=short)
    first, second = json.loads(text)["actions"]
    assert (first["headers"], first["body"]) == ({"X-A": "1"}, '{"a": 1}')
    assert second["extras"] == {"k": "v"}


def test_utf8_in_a_header_is_read_as_such(server):
    answer = raw(server, "POST /t HTTP/1.0\r\nTitle: 题目\r\nContent-Length: 1\r\n\r\nx".encode())
    assert '"title":"题目"' in answer.decode()


# --- Headers, methods, bodies -----------------------------------------------------------------

def test_an_answer_has_ntfys_headers_and_one_of_its_own(server):
    for method, path, body in (("GET", "/v1/health", None), ("POST", "/t", "x"),
                               ("GET", "/t/nope", None)):
        _, headers, _ = ask(server, method, path, body)
        assert set(headers) == {"Access-Control-Allow-Origin", "Content-Type", "Date",
                                "Content-Length", "X-A4P"}
        assert headers["Access-Control-Allow-Origin"] == "*"
        assert headers["X-A4P"] == "1"


def test_a_web_page_may_ask_with_any_header(guarded):
    status, headers, text = ask(guarded, "OPTIONS", "/t", Origin="https://ntfy.sh",
                                Access_Control_Request_Method="POST")
    assert (status, text) == (200, "")
    assert headers["Access-Control-Allow-Origin"] == "*"
    assert headers["Access-Control-Allow-Methods"] == "GET, PUT, POST, PATCH, DELETE"
    assert headers["Access-Control-Allow-Headers"] == "*, Authorization"
    assert "Content-Type" not in headers


def test_head_has_no_body(server):
    answer = raw(server, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")
    answer = raw(server, b"HEAD /t HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.endswith(b"\r\n\r\n")


def test_the_page_runs_its_own_script_and_no_other(server):
    for path in ("/", "/t"):
        status, headers, text = ask(server, "GET", path)
        assert (status, text.encode()) == (200, PAGE)
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        digest = base64.b64encode(hashlib.sha256(b"1").digest()).decode()
        policy = dict(part.split(" ", 1) for part in
                      headers["Content-Security-Policy"].split("; "))
        assert policy["script-src"] == f"'sha256-{digest}'"
        assert policy["style-src"].startswith("'sha256-")
        assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"


def test_one_connection_carries_many_requests(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.connect()
        sock = connection.sock
        for number in range(20):
            connection.request("POST", "/t", str(number))
            assert connection.getresponse().read()
            assert connection.sock is sock
        connection.request("GET", "/t/json?poll=1")
        lines = connection.getresponse().read().splitlines()
        assert texts(map(json.loads, lines)) == [str(number) for number in range(20)]


def test_pipelined_requests_are_answered_in_turn(server):
    one = b"POST /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n"
    answer = raw(server, one + b"a" + one + b"b" + b"GET /t/raw?poll=1 HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\na\nb\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_a_request_may_come_byte_by_byte(server):
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        for byte in b"PUT /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi":
            sock.sendall(bytes([byte]))
        until(sock, b'"message":"hi"')


@pytest.mark.parametrize("head", [
    b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Content-Length: 3\r\nContent-Length: 4",
    b"Content-Length: -1", b"Content-Length: +3", b"Content-Length: x",
    b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"])
def test_a_body_without_one_length_is_refused_and_ends_the_connection(server, head):
    answer = raw(server, b"POST /t HTTP/1.1\r\nHost: localhost\r\n" + head
                 + b"\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_a_client_that_waits_for_the_go_ahead_gets_it(server):
    with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(b"PUT /t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                     b"Expect: 100-continue\r\n\r\n")
        assert sock.recv(65536).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"hi")
        until(sock, b'"message":"hi"')


@pytest.mark.parametrize("junk", [
    b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"GET /v1/health HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
    b"GET /v1/health HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n"])
def test_junk_is_refused_and_harms_nobody(server, junk):
    assert raw(server, junk + b"\r\n\r\n")[:13] in (
        b"", b"HTTP/1.1 400 ", b"HTTP/1.1 414 ", b"HTTP/1.1 431 ")
    assert ask(server, "GET", "/v1/health")[0] == 200


# --- Subscribing ------------------------------------------------------------------------------

def stored(path, *messages):
    """Write a store; each message is (id, age in seconds, topic, text)."""
    now = int(time.time())
    with open(path, "w") as file:
        for name, age, topic, text in messages:
            file.write(json.dumps({"id": name, "time": now - age, "expires": now - age + 43200,
                                   "event": "message", "topic": topic, "message": text},
                                  separators=(",", ":")) + "\n")
    return now


@pytest.fixture()
def history(tmp_path):
    path = str(tmp_path / "messages")
    now = stored(path, ("AAAAAAAAAAA0", 7200, "t", "m0"), ("AAAAAAAAAAA1", 3600, "t", "m1"),
                 ("AAAAAAAAAAA2", 60, "t", "m2"), ("AAAAAAAAAAA3", 30, "u", "other"))
    with a4p.Server(store=path) as running:
        running.now = now
        yield running


@pytest.mark.parametrize("query, wanted", [
    ("", ["m0", "m1", "m2"]), ("&since=all", ["m0", "m1", "m2"]), ("&since=none", []),
    ("&since=latest", ["m2"]), ("&since=AAAAAAAAAAA0", ["m1", "m2"]),
    ("&since=AAAAAAAAAAA2", []), ("&since=10m", ["m2"]), ("&since=1h30m", ["m1", "m2"]),
    ("&since=9999999999", []), ("&since=0", ["m0", "m1", "m2"]), ("&si=10m", ["m2"]),
    ("&since=BBBBBBBBBBBB", ["m0", "m1", "m2"]),  # unknown: everything
    ("&since=AAAAAAAAAAA3", []),  # another topic's
    ("&scheduled=1&since=1m59s", ["m2"]), ("&id=AAAAAAAAAAA1", ["m1"]),
])
def test_since_says_what_is_replayed(history, query, wanted):
    assert texts(poll(history, "/t/json?poll=1" + query)) == wanted


def test_since_a_time_includes_that_second(history):
    moment = history.now - 3600
    assert texts(poll(history, f"/t/json?poll=1&since={moment}")) == ["m1", "m2"]
    assert texts(poll(history, f"/t/json?poll=1&since={moment + 1}")) == ["m2"]
    assert texts(poll(history, "/t/json", X_Since=str(moment), X_Poll="yes")) == ["m1", "m2"]


def test_two_topics_come_in_the_order_of_their_messages(history):
    assert texts(poll(history, "/u,t/json?po=1")) == ["m0", "m1", "m2", "other"]
    assert texts(poll(history, "/u,t/json?poll=1&since=AAAAAAAAAAA1")) == ["m2", "other"]
    assert texts(poll(history, "/t,t/json?poll=1&since=latest")) == ["m2"]


def test_an_empty_poll_has_no_body(history):
    status, headers, text = ask(history, "GET", "/never-used/json?poll=1")
    assert (status, text, headers["Content-Length"]) == (200, "", "0")
    assert headers["Content-Type"] == "application/x-ndjson; charset=utf-8"


def test_a_poll_speaks_sse_and_raw_too(history):
    _, headers, text = ask(history, "GET", "/t/sse?poll=1&since=latest")
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert re.fullmatch(r'data: \{"id":"AAAAAAAAAAA2".*\}\n\n', text)
    _, headers, text = ask(history, "GET", "/t/raw?poll=1&since=AAAAAAAAAAA0")
    assert (headers["Content-Type"], text) == ("text/plain; charset=utf-8", "m1\nm2\n")


def test_an_uncached_message_goes_to_streams_only(server):
    with Listener(server, "/t/json") as stream:
        stream.event()
        ask(server, "POST", "/t", "now or never", Cache="no")
        assert stream.event()["message"] == "now or never"
    assert poll(server, "/t/json?poll=1") == []


@pytest.mark.parametrize("query, wanted", [
    ("title=T", ["b"]), ("t=T&m=a", []), ("message=a", ["a"]), ("m=b", ["b"]),
])
def test_filters_choose_messages(server, query, wanted):
    publish(server, "t", "a")
    publish(server, "t", "b", title="T", tags=["x"])
    assert texts(poll(server, f"/t/json?poll=1&{query}")) == wanted


def test_a_stream_opens_then_replays_then_goes_on(server):
    publish(server, "t", "before")
    with Listener(server, "/t,u/json?since=all") as stream:
        opened = stream.event()
        assert list(opened) == ["id", "time", "event", "topic"]
        assert (opened["event"], opened["topic"]) == ("open", "t,u")
        assert stream.answer.headers["Connection"] == "close"  # its end is the connection's
        assert stream.event()["message"] == "before"
        for topic in ("u", "t"):
            answered = publish(server, topic, "live")
            assert stream.event() == answered


def test_a_stream_has_no_history_unless_asked(server):
    publish(server, "t", "before")
    with Listener(server, "/t/json") as stream:
        assert stream.event()["event"] == "open"
        publish(server, "t", "after")
        assert stream.event()["message"] == "after"


def test_a_filter_of_a_stream_lets_events_pass(server):
    with Listener(server, "/t/json?title=T") as stream:
        assert stream.event()["event"] == "open"
        publish(server, "t", "no")
        publish(server, "t", "yes", title="T")
        ask(server, "DELETE", "/t/seq")
        ask(server, "PUT", "/t/seq/clear")
        assert stream.event()["message"] == "yes"
        assert [stream.event()["event"] for _ in range(2)] == ["message_delete", "message_clear"]


def test_sse_names_what_is_no_message(server):
    with Listener(server, "/t/sse") as stream:
        assert stream.line() == "event: open\n"
        assert stream.line().startswith('data: {"id":')
        assert stream.line() == "\n"
        publish(server, "t", "x")
        assert stream.line().startswith("data: {")
        assert stream.line() == "\n"
        ask(server, "DELETE", "/t/seq")
        assert '"message_delete"' in stream.line()


def test_raw_is_one_line_for_each_message(server):
    with Listener(server, "/t/raw") as stream:
        assert stream.line() == "\n"
        publish(server, "t", "two\nlines")
        assert stream.line() == "two lines\n"
        ask(server, "DELETE", "/t/seq")
        assert stream.line() == "\n"


def test_a_keepalive_comes_whether_or_not_messages_do():
    with a4p.Server(limits=limited(KEEPALIVE_SECONDS=0.1)) as server, \
            Listener(server, "/t,u/json") as stream:
        start = time.monotonic()
        assert stream.event()["event"] == "open"
        publish(server, "t", "x")
        assert [stream.event()["event"] for _ in range(3)] == ["message"] + ["keepalive"] * 2
        assert 0.15 < time.monotonic() - start < 2


def test_http_1_0_gets_its_stream_unchunked(server):
    publish(server, "t", "x")
    answer = raw(server, b"GET /t/raw?poll=1 HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\nx\n")
    assert b"chunked" not in answer


def test_replay_and_live_messages_leave_no_gap_and_no_double(server):
    total, count = 300, 8
    seen = {}

    def follow(number):
        names = []
        with Listener(server, "/t/json?since=all") as stream:
            while len(names) < total:
                event = stream.event()
                if event["event"] == "message":
                    names.append(event["message"])
        seen[number] = names

    threads = [threading.Thread(target=follow, args=(number,)) for number in range(count)]
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        for number in range(total):
            if number % 20 == 10 and number // 20 < count:
                threads[number // 20].start()
            connection.request("POST", "/t", str(number))
            connection.getresponse().read()
    for thread in threads:
        thread.join(10)
    assert seen == {number: [str(n) for n in range(total)] for number in range(count)}


def test_two_publishers_are_seen_in_one_order_by_all(server):
    with Listener(server, "/t/raw") as first, Listener(server, "/t/raw") as second:
        first.line(), second.line()
        threads = [threading.Thread(target=lambda n=n: [ask(server, "POST", "/t", f"{n}-{i}")
                                                        for i in range(40)]) for n in range(3)]
        for thread in threads:
            thread.start()
        lines = [first.line() for _ in range(120)]
        assert [second.line() for _ in range(120)] == lines
        for thread in threads:
            thread.join(5)
    assert [text + "\n" for text in texts(poll(server, "/t/json?poll=1"))] == lines


def test_since_the_message_just_received_is_empty(server):
    with Listener(server, "/t/json") as stream:
        stream.event()
        for number in range(50):
            publish(server, "t", str(number))
            name = stream.event()["id"]
            assert poll(server, f"/t/json?poll=1&since={name}") == []


# --- The key that only this server knows --------------------------------------------------------

def test_the_extra_key_comes_last_in_streams(server):
    body = '{"a4p":{"q":"<?>","n":[1,null,2.5]},"topic":"t","message":"x","title":"T"}'
    status, _, _ = ask(server, "POST", "/", body)
    assert status == 200
    for form in ("json", "sse"):
        _, _, text = ask(server, "GET", f"/t/{form}?poll=1")
        assert text.rstrip().endswith('"message":"x","a4p":{"q":"\\u003c?\\u003e",'
                                      '"n":[1,null,2.5]}}')


@pytest.mark.parametrize("extra, rest, status, kept", [
    ({"a": "x" * 12_000}, {}, 200, True),  # 16 KiB in all
    ({"a": "x" * 16_384}, {}, 200, False),  # dropped; the message is not
    ({"a": "x" * 60_000}, {}, 200, False),
    ({"a": "x"}, {"unknown": "x" * 8192}, 413, False),  # without the key, ntfy's own limit holds
    ({"a": "<" * 4000}, {}, 200, False),  # too long as it is sent on
    ("text", {}, 200, False), (None, {}, 200, False), ({}, {}, 200, False),
    ({"a": float("nan")}, {}, 200, False), ({"a": "\ud800"}, {}, 200, True),
])
def test_the_extra_key_is_dropped_where_it_does_not_fit(server, extra, rest, status, kept):
    body = json.dumps({"topic": "t", "message": "x", "a4p": extra, **rest})
    assert ask(server, "POST", "/", body)[0] == status
    for message in poll(server, "/t/json?poll=1"):
        assert message["message"] == "x"
        assert ("a4p" in message) == kept


# --- Auth -------------------------------------------------------------------------------------

def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def in_query(value):
    return "auth=" + base64.urlsafe_b64encode(value.encode()).decode().rstrip("=")


@pytest.mark.parametrize("value", ["Bearer " + TOKEN, "bearer  " + TOKEN, basic("", TOKEN),
                                   basic("anybody", TOKEN)])
def test_the_token_opens(guarded, value):
    assert ask(guarded, "POST", "/t", "x", Authorization=value)[0] == 200
    assert ask(guarded, "POST", "/", '{"topic":"t"}', Authorization=value)[0] == 200
    assert ask(guarded, "GET", "/t/auth", Authorization=value)[2] == '{"success":true}\n'
    assert len(poll(guarded, "/t/json?poll=1&" + in_query(value))) == 2


FORBIDDEN = error(40301, "forbidden", "publish/#authentication")
UNAUTHORIZED = error(40101, "unauthorized", "publish/#authentication")


@pytest.mark.parametrize("method, path, body", [
    ("POST", "/t", "x"), ("POST", "/", '{"topic":"t"}'), ("GET", "/t/json?poll=1", None),
    ("GET", "/t/sse", None), ("GET", "/t/auth", None), ("GET", "/t/ws", None),
    ("GET", "/t/trigger", None), ("DELETE", "/t/s", None), ("PUT", "/t/s/clear", None)])
def test_without_credentials_it_is_forbidden(guarded, method, path, body):
    expect(ask(guarded, method, path, body), FORBIDDEN)
    expect(ask(guarded, method, path, body, Authorization="Token " + TOKEN), FORBIDDEN)
    expect(ask(guarded, method, path, body, Authorization="Bearer wrong"), UNAUTHORIZED)


@pytest.mark.parametrize("path", ["/", "/t", "/v1/health"])
def test_page_and_health_need_no_token_but_no_wrong_one_either(guarded, path):
    assert ask(guarded, "GET", path)[0] == 200
    expect(ask(guarded, "GET", path, Authorization="Bearer wrong"), UNAUTHORIZED)


@pytest.mark.parametrize("value", [basic("phone", "wrong"), "Basic !!!", "Bearer ", "Basic ",
                                   "Bearer tök", basic(TOKEN, "")])
def test_wrong_credentials_are_401(guarded, value):
    expect(ask(guarded, "POST", "/t", "x", Authorization=value.encode()), UNAUTHORIZED)


def test_the_topic_is_looked_at_before_the_credentials(guarded):
    assert code(ask(guarded, "POST", "/", '{"topic":"bad topic!"}')) == (400, 40009)


def test_padding_in_the_query_is_the_real_servers_500(guarded):
    path = "/t/json?poll=1&auth=" + quote(base64.b64encode(b"Bearer xxx").decode())
    expect(ask(guarded, "GET", path), error(50001, "internal server error"))
    assert code(ask(guarded, "GET", "/t/json?poll=1&auth=%21%21")) == (500, 50001)


def test_after_thirty_failures_even_the_right_token_waits():
    with a4p.Server(token=TOKEN, limits=limited(FAILURE_SECONDS=1)) as server:
        answers = [code(ask(server, "GET", "/t/auth", Authorization="Bearer x"))
                   for _ in range(33)]
        assert answers[:30] == [(401, 40101)] * 30
        assert answers[-1] == (429, 42909)
        answer = ask(server, "GET", "/t/auth", Authorization="Bearer " + TOKEN)
        expect(answer, error(42909, "limit reached: too many auth failures",
                             "publish/#limitations"))
        assert ask(server, "GET", "/")[0] == 200
        deadline = time.monotonic() + 5
        while ask(server, "GET", "/t/auth", Authorization="Bearer " + TOKEN)[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_without_a_token_credentials_are_ignored(server):
    assert ask(server, "POST", "/t", "x", Authorization="Bearer anything")[0] == 200
    assert ask(server, "GET", "/t/json?poll=1&auth=!")[0] == 200


# --- Web pages from elsewhere -------------------------------------------------------------------

@pytest.mark.parametrize("headers, status", [
    ({}, 200), ({"Host": "localhost:1"}, 200), ({"Host": "[::1]:80"}, 200),
    ({"Host": "10.0.0.7"}, 200), ({"Host": "desk.example"}, 200),
    ({"Host": "evil.example"}, 403), ({"Host": "localhost.evil.example"}, 403),
    ({"Host": "127.0.0.1.evil.example"}, 403),
    ({"Host": "desk.example.evil.example"}, 403), ({"Host": "evil@localhost"}, 403),
    ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
    ({"Origin": "http://localhost:3000", "Host": "localhost:80"}, 403),
    ({"Origin": "http://localhost:80", "Host": "localhost:80"}, 200),
    ({"Origin": "https://desk.example", "Host": "127.0.0.1:8080"}, 200),  # through a proxy
    ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 200), ({"Sec-Fetch-Site": "none"}, 200),
])
def test_without_a_token_web_pages_from_elsewhere_are_refused(headers, status):
    with a4p.Server(base_url="https://desk.example") as server:
        for method, path, body in (("POST", "/t", "x"), ("POST", "/", '{"topic":"t"}'),
                                   ("GET", "/t/trigger", None), ("GET", "/t/json?poll=1", None)):
            assert ask(server, method, path, body, **headers)[0] == status


def test_with_a_token_ntfys_web_app_may_press_buttons(guarded):
    answer = ask(guarded, "POST", "/t", "x", Origin="https://ntfy.sh", Sec_Fetch_Site="cross-site",
                 Host="evil.example", Authorization="Bearer " + TOKEN)
    assert answer[0] == 200
    assert answer[1]["Access-Control-Allow-Origin"] == "*"
    assert code(ask(guarded, "POST", "/t", "x", Origin="https://ntfy.sh")) == (403, 40301)


# --- What it bears ------------------------------------------------------------------------------

def test_a_stream_too_many_is_refused_until_another_leaves():
    with a4p.Server(limits=limited(STREAMS=2)) as server:
        with Listener(server, "/t/json") as stream, Listener(server, "/t/json"):
            assert stream.event()["event"] == "open"
            expect(ask(server, "GET", "/t/json"), error(
                42903, "limit reached: too many active subscriptions", "publish/#limitations"))
            assert ask(server, "GET", "/t/json?poll=1")[0] == 200
        deadline = time.monotonic() + 8
        while True:
            with Listener(server, "/t/json") as stream:
                if stream.answer.status == 200:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_topic_too_many_is_refused():
    with a4p.Server(limits=limited(TOPICS=2)) as server:
        publish(server, "a", "x")
        publish(server, "b", "x")
        publish(server, "b", "x")
        wanted = error(42904, "limit reached: the total number of topics on the server has been "
                              "reached, please contact the admin", "publish/#limitations")
        expect(ask(server, "POST", "/c", "x"), wanted)
        assert poll(server, "/c/json?poll=1") == []


def test_topics_without_messages_take_no_room():
    with a4p.Server(limits=limited(TOPICS=2)) as server:
        for number in range(5):
            assert ask(server, "POST", f"/t{number}", "x", Cache="no")[0] == 200
        assert not server.topics


@pytest.mark.parametrize("limits, wanted", [
    ({"KEPT": 3}, ["1", "8", "9"]), ({"KEPT_BYTES": 250}, ["8", "9"])])
def test_the_oldest_messages_go_first(limits, wanted):
    with a4p.Server(limits=limited(**limits)) as server:
        publish(server, "old", "0")
        publish(server, "old", "1")
        for number in range(10 if "KEPT" not in limits else 2):
            publish(server, "t", str(number if "KEPT" not in limits else number + 8))
        assert texts(poll(server, "/old,t/json?poll=1")) == wanted


def test_a_connection_too_many_is_refused():
    with a4p.Server(limits=limited(CONNECTIONS=2)) as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            stream = stack.enter_context(Listener(server, "/t/json"))
            assert stream.event()["event"] == "open"
        expect(ask(server, "GET", "/v1/health"),
               error(42901, "limit reached: too many requests", "publish/#limitations"))


def test_a_reader_too_slow_loses_its_stream_and_resumes_it():
    with a4p.Server(limits=limited(QUEUE=20, WRITE_SECONDS=0.2)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        body = json.dumps({"topic": "t", "message": "x", "a4p": {"x": "y" * 16_000}})
        with contextlib.closing(connection), Listener(server, "/t/json") as stream:
            stream.event()
            sent, got = [], []
            while server.listeners:
                connection.request("POST", "/", body)
                sent.append(json.loads(connection.getresponse().read())["id"])
                assert len(sent) < 5000
            with contextlib.suppress(ValueError, http.client.HTTPException, OSError):
                while True:
                    got.append(stream.event()["id"])
        assert 0 < len(got) < len(sent)
        with Listener(server, f"/t/json?since={got[-1]}") as stream:
            stream.event()
            assert got + [stream.event()["id"] for _ in sent[len(got):]] == sent


def test_a_request_too_slow_is_cut_however_often_a_byte_comes():
    with a4p.Server(limits=limited(HEAD_SECONDS=0.3, BODY_SECONDS=0.3)) as server:
        for start in (b"GET / HTTP/1.1\r\nA: ", b"POST /t HTTP/1.1\r\nContent-Length: 900\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", server.port), 5) as sock:
                sock.sendall(start)
                begun = time.monotonic()
                with contextlib.suppress(OSError):
                    while time.monotonic() - begun < 3:
                        sock.sendall(b"x")
                        time.sleep(0.02)
                assert time.monotonic() - begun < 2


def test_a_connection_too_idle_is_closed():
    with a4p.Server(limits=limited(HEAD_SECONDS=0.1)) as server, \
            socket.create_connection(("127.0.0.1", server.port), 5) as sock:
        sock.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        begun = time.monotonic()
        assert b"".join(iter(lambda: sock.recv(4096), b"")).endswith(b"}\n")
        assert time.monotonic() - begun < 2


# --- The file -----------------------------------------------------------------------------------

def test_messages_survive_a_restart_with_their_ids(tmp_path):
    path = str(tmp_path / "messages")
    with a4p.Server(store=path) as server:
        kept = [publish(server, "t", "<1>", title="题", actions=[VIEW], sequence_id="s"),
                publish(server, "u", "2")]
        ask(server, "POST", "/t", "x", Cache="no")
        deleted = json.loads(ask(server, "DELETE", "/t/s")[2])
    with a4p.Server(store=path) as server:
        assert poll(server, "/t,u/json?poll=1") == [*kept, deleted]
        assert poll(server, f"/t,u/json?poll=1&since={kept[1]['id']}") == [deleted]


def test_the_extra_key_survives_a_restart(tmp_path):
    path = str(tmp_path / "messages")
    with a4p.Server(store=path) as server:
        publish(server, "t", "x", a4p={"q": 1})
    with a4p.Server(store=path) as server:
        assert poll(server, "/t/json?poll=1")[0]["a4p"] == {"q": 1}


def test_every_acknowledged_message_survives_kill_9(tmp_path):
    path = str(tmp_path / "messages")
    script = ("import a4p, sys\n"
              "print(a4p.Server(store=sys.argv[1]).port, flush=True)\n"
              "sys.stdin.read()\n")
    child = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE,
                             stdin=subprocess.PIPE,
                             env={**os.environ, "PYTHONPATH": os.path.dirname(a4p.__file__)})
    try:
        port = int(child.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        names = []
        with contextlib.closing(connection):
            for number in range(100):
                connection.request("POST", "/t", str(number))
                names.append(json.loads(connection.getresponse().read())["id"])
            child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait(5)
        child.stdout.close()
        child.stdin.close()
    with a4p.Server(store=path) as server:
        assert [message["id"] for message in poll(server, "/t/json?poll=1")] == names


def test_a_torn_last_line_is_dropped_and_said(tmp_path):
    path, said = tmp_path / "messages", []
    stored(path, ("AAAAAAAAAAA0", 10, "t", "whole"))
    with open(path, "a") as file:
        file.write('{"id":"AAAAAAAAAAA1","time":17')
    with a4p.Server(store=str(path), log=said.append) as server:
        assert len(said) == 1 and said[0].startswith("dropped 1 torn")
        publish(server, "t", "new")
    said.clear()
    with a4p.Server(store=str(path), log=said.append) as server:
        assert texts(poll(server, "/t/json?poll=1")) == ["whole", "new"]
        assert said == []


def test_lines_that_are_no_messages_are_skipped_and_said(tmp_path):
    path, said = tmp_path / "messages", []
    stored(path, ("AAAAAAAAAAA0", 10, "t", "whole"))
    with open(path, "ab") as file:
        file.write(b'\n[]\n{"id":1}\nnull\n\xff\x00\n' + b"[" * 100_000 + b"\n")
        file.write(b'{"id":"x","topic":"t","event":"message","time":"a"}\n')
    with a4p.Server(store=str(path), log=said.append) as server:
        assert texts(poll(server, "/t/json?poll=1")) == ["whole"]
        assert len(said) == 1 and said[0].startswith("dropped 7 torn or foreign lines")


def test_messages_older_than_twelve_hours_are_gone(tmp_path):
    path = str(tmp_path / "messages")
    stored(path, ("AAAAAAAAAAA0", 43201, "t", "old"), ("AAAAAAAAAAA1", 43100, "t", "young"))
    with a4p.Server(store=path) as server:
        assert texts(poll(server, "/t/json?poll=1")) == ["young"]


def test_messages_expire_while_it_runs():
    with a4p.Server(limits=limited(KEPT_SECONDS=1)) as server:
        publish(server, "t", "x")
        assert len(poll(server, "/t/json?poll=1")) == 1
        deadline = time.monotonic() + 4
        while poll(server, "/t/json?poll=1"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        publish(server, "u", "x")
        assert list(server.topics) == ["u"]


def test_the_file_is_rewritten_when_it_holds_mostly_what_is_gone(tmp_path):
    path = tmp_path / "messages"
    limits = limited(KEPT=5, DEAD_BYTES=2000)
    with a4p.Server(store=str(path), limits=limits) as server:
        for number in range(200):
            publish(server, "t", str(number))
            assert path.stat().st_size < 4500
        publish(server, "t", "last")
    assert os.listdir(tmp_path) == ["messages"]
    with a4p.Server(store=str(path), limits=limits) as server:
        assert texts(poll(server, "/t/json?poll=1")) == ["196", "197", "198", "199", "last"]


@pytest.mark.skipif(os.name != "posix", reason="modes and symlinks are POSIX")
def test_the_file_is_its_owners_alone_under_any_umask(tmp_path):
    path = tmp_path / "messages"
    limits = limited(KEPT=1, DEAD_BYTES=0)
    for umask in (0o000, 0o077):
        before = os.umask(umask)
        try:
            with a4p.Server(store=str(path), limits=limits) as server:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                for number in range(9):
                    publish(server, "t", str(number))
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
        finally:
            os.umask(before)
        path.unlink()


@pytest.mark.skipif(os.name != "posix", reason="modes and symlinks are POSIX")
@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory"])
def test_what_is_no_plain_file_is_refused(tmp_path, kind):
    path, target = tmp_path / "messages", tmp_path / "precious"
    target.write_text("precious")
    {"symlink": lambda: path.symlink_to(target), "fifo": lambda: os.mkfifo(path),
     "directory": path.mkdir}[kind]()
    with pytest.raises(a4p.A4pError) as refused:
        a4p.Server(store=str(path))
    assert refused.value.key == "home_write"
    assert target.read_text() == "precious"


def test_a_full_disk_costs_no_delivery_and_what_it_lacks_is_written_later(tmp_path):
    said = []
    path = tmp_path / "messages"
    with a4p.Server(store=str(path), log=said.append) as server:
        path.unlink()
        path.symlink_to("/dev/full")
        publish(server, "t", "x")
        assert texts(poll(server, "/t/json?poll=1")) == ["x"]
        assert ["cannot write" in line for line in said] == [True]
        publish(server, "t", "y")
    assert path.is_file() and not path.is_symlink()
    with a4p.Server(store=str(path), log=said.append) as server:
        assert texts(poll(server, "/t/json?poll=1")) == ["x", "y"]


def test_ten_thousand_messages_load_within_a_second(tmp_path):
    path = str(tmp_path / "messages")
    stored(path, *((f"{number:012}", 100, f"t{number % 50}", "some text " * 10)
                   for number in range(10_000)))
    begun = time.process_time()  # not the wall's: others may use the machine
    with a4p.Server(store=path) as server:
        assert time.process_time() - begun < 1
        assert len(poll(server, "/t7/json?poll=1")) == 200


# --- iOS ----------------------------------------------------------------------------------------

@pytest.fixture()
def upstream():
    """A server that notes (path, X-Poll-ID, body) and answers 200."""
    seen = queue.Queue()

    class Note(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.put((self.path, self.headers["X-Poll-ID"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *about):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Note) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        running.seen = seen
        running.url = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.shutdown()
        thread.join(5)


def test_a_message_makes_the_upstream_wake_the_phone(upstream):
    with a4p.Server(base_url="https://desk.example/", upstream=upstream.url + "/") as server:
        ask(server, "DELETE", "/t/seq")
        message = publish(server, "t", "x")
        topic = hashlib.sha256(b"https://desk.example/t").hexdigest()
        assert upstream.seen.get(timeout=5) == (f"/{topic}", message["id"], b"")
        assert upstream.seen.empty()


def test_an_upstream_that_hangs_or_is_down_blocks_nobody():
    said = queue.Queue()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        limits = limited(UPSTREAM_SECONDS=0.2, UPSTREAM=2)
        with a4p.Server(base_url="http://b", upstream=url, log=said.put, limits=limits) as server:
            begun = time.monotonic()
            for number in range(9):
                publish(server, "t", str(number))
            assert time.monotonic() - begun < 1.5  # 9 timeouts are 1.8
            assert "failed" in said.get(timeout=5)


# --- Coming and going ---------------------------------------------------------------------------

def test_a_busy_port_is_a_clear_error(server):
    with pytest.raises(a4p.A4pError) as refused:
        a4p.Server(port=server.port)
    assert refused.value.key == "listen"


def test_its_url_names_where_it_listens(server):
    assert urlsplit(server.url).netloc == f"127.0.0.1:{server.port}"


def test_its_end_ends_streams_and_frees_the_port():
    with a4p.Server() as server:
        stream = Listener(server, "/t/json")
        stream.event()
    with stream, contextlib.suppress(http.client.HTTPException, ConnectionError):
        assert stream.line() == ""
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), 1)
    with a4p.Server(port=server.port):
        pass


def test_no_part_of_an_answer_waits_for_a_delayed_acknowledgement(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    with contextlib.closing(connection):
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took = []
        for _ in range(31):
            begun = time.monotonic()
            connection.request("POST", "/t", "x")
            connection.getresponse().read()
            took.append(time.monotonic() - begun)
        assert sorted(took)[15] < 0.035  # 40 ms otherwise


def test_a_broken_encoded_word_stays_as_it_is(server):
    answer = ask(server, "POST", "/t", "x", Title="=?utf-8?B?a?=")
    assert (answer[0], json.loads(answer[2])["title"]) == (200, "=?utf-8?B?a?=")
