"""A scripted model on 127.0.0.1, so that the real agents run without an account.

It speaks the Anthropic Messages API (Claude Code; DSH from 0.2) and the OpenAI Responses API
(Codex), both as server-sent events. A script is a list of turns, a turn is a list of tool
calls; past the last turn the model says "done". What the agent tells the model, the results
of those calls and the user's words, can be awaited.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, TypeVar, Union

CALL_ID = "call_e2e_"  # then turn and place in it: tells our calls from an agent's own
PATIENCE = 60.0  # seconds: the longest that anything an agent does by itself may take

Event = dict[str, Any]
Seen = TypeVar("Seen")


class Call(NamedTuple):
    """A tool call of the model."""

    tool: str
    arguments: dict[str, Any]


class Result(NamedTuple):
    """What the model was told about one of its calls."""

    tool: str
    text: str
    is_error: bool


class Model:
    """The scripted model; a context manager, serving from construction to exit."""

    def __init__(self, *turns: list[Call]) -> None:
        self.turns = turns
        self.results: dict[str, Result] = {}  # by call id, in the order of arrival
        self.texts: list[str] = []  # the user's words, each once
        self._news = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The root; the agents append /v1/messages or /v1/responses."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def result(self, n: int = 0, timeout: float = PATIENCE) -> Result:
        """Wait for the n-th tool result the model sees, at most `timeout` seconds."""
        return self._await(lambda: list(self.results.values())[n:], timeout, "tool result")

    def user_text(self, part: str, timeout: float = PATIENCE) -> str:
        """Wait for a text of the user that holds `part`, at most `timeout` seconds."""
        return self._await(lambda: [t for t in self.texts if part in t], timeout, repr(part))

    def next_turn(self, seen: list[str]) -> tuple[int, list[Call]]:
        """Give the turn that follows these answered calls, with its number.

        The number depends on the request alone, so a request sent again gets the same turn.
        """
        answered = len(set(seen))
        for number, calls in enumerate(self.turns):
            if answered < len(calls):
                return number, calls
            answered -= len(calls)
        return len(self.turns), []

    def record(self, results: dict[str, tuple[str, bool]], texts: list[str]) -> None:
        """Keep what a request told, and wake whoever waits for it."""
        with self._news:
            for call_id, (text, is_error) in results.items():
                self.results.setdefault(call_id, Result(self._tool(call_id), text, is_error))
            self.texts += [text for text in texts if text not in self.texts]
            self._news.notify_all()

    def _tool(self, call_id: str) -> str:
        turn, place = call_id[len(CALL_ID):].split("_")
        return self.turns[int(turn)][int(place)].tool

    def _await(self, look: Callable[[], list[Seen]], timeout: float, what: str) -> Seen:
        with self._news:
            if self._news.wait_for(look, timeout):
                return look()[0]
        raise AssertionError(f"the model saw no {what} within {timeout:g} s; it saw "
                             f"{list(self.results.values())} and {self.texts}")


# === The two dialects: reading a request, writing a turn =========================================

class Heard(NamedTuple):
    """What one request says: results of our calls as {id: (text, is_error)}, the user's words."""

    results: dict[str, tuple[str, bool]]
    texts: list[str]


Turn = tuple[int, list[Call]]
Content = Union[str, list[dict[str, Any]], None]


def flat(content: Content) -> str:
    """Join the text parts of a content that is a string or a list of parts.

    >>> flat([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])
    'ab'
    """
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])


def hear_messages(body: dict[str, Any]) -> Heard:
    """Read an Anthropic Messages request."""
    heard = Heard({}, [])
    for message in body.get("messages", []):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if str(block.get("tool_use_id")).startswith(CALL_ID):
                told = flat(block.get("content")), bool(block.get("is_error"))
                heard.results[block["tool_use_id"]] = told
            elif message["role"] == "user" and block["type"] == "text":
                heard.texts.append(block["text"])
    return heard


def hear_responses(body: dict[str, Any]) -> Heard:
    """Read an OpenAI Responses request."""
    heard = Heard({}, [])
    for item in body.get("input", []):
        if str(item.get("call_id")).startswith(CALL_ID) and "output" in item:
            heard.results[item["call_id"]] = flat(item["output"]), False
        elif item.get("role") == "user":
            heard.texts.append(flat(item.get("content")))
    return heard


def offers(body: dict[str, Any], calls: list[Call]) -> bool:
    """Tell whether a request lets the model make these calls.

    One that only wants a title does not. gpt-6 gets its tools as an item of the input.
    """
    extra = [item for item in body.get("input", []) if item.get("type") == "additional_tools"]
    offered = dumps([body.get("tools"), extra])
    return all(f'"name": "{call.tool}"' in offered for call in calls)


def say_messages(turn: Turn) -> Iterator[Event]:
    """Write a turn as the events of an Anthropic Messages stream."""
    number, calls = turn
    usage = {"input_tokens": 10, "output_tokens": 5}
    yield {"type": "message_start", "message": {
        "id": f"msg_e2e_{number}", "type": "message", "role": "assistant", "model": "scripted",
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}}
    for index, call in enumerate(calls):
        block = {"type": "tool_use", "id": f"{CALL_ID}{number}_{index}", "name": call.tool}
        yield {"type": "content_block_start", "index": index,
               "content_block": {**block, "input": {}}}
        delta = {"type": "input_json_delta", "partial_json": dumps(call.arguments)}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    if not calls:
        yield {"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0,
               "delta": {"type": "text_delta", "text": "done"}}
        yield {"type": "content_block_stop", "index": 0}
    stop = "tool_use" if calls else "end_turn"
    yield {"type": "message_delta", "usage": usage,
           "delta": {"stop_reason": stop, "stop_sequence": None}}
    yield {"type": "message_stop"}


def say_responses(turn: Turn) -> Iterator[Event]:
    """Write a turn as the events of an OpenAI Responses stream."""
    number, calls = turn
    items: list[dict[str, Any]] = [
        {"type": "function_call", "id": f"fc_{number}_{index}", "name": call.tool,
         "call_id": f"{CALL_ID}{number}_{index}", "arguments": dumps(call.arguments),
         "status": "completed"} for index, call in enumerate(calls)]
    items = items or [
        {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "done", "annotations": []}]}]
    response = {"id": f"resp_e2e_{number}", "object": "response"}
    yield {"type": "response.created",
           "response": {**response, "status": "in_progress", "output": []}}
    for index, item in enumerate(items):
        yield {"type": "response.output_item.added", "output_index": index, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
    yield {"type": "response.completed", "response": {
        **response, "status": "completed", "output": items, "usage": usage}}


def dumps(value: object) -> str:
    """Write JSON as a model does: characters as they are."""
    return json.dumps(value, ensure_ascii=False)


DIALECTS: dict[str, tuple[Callable[[dict[str, Any]], Heard],
                          Callable[[Turn], Iterator[Event]]]] = {
    "/v1/messages": (hear_messages, say_messages),
    "/v1/responses": (hear_responses, say_responses),
}


# === HTTP ========================================================================================

def _handler(model: Model) -> type[BaseHTTPRequestHandler]:
    """Make the request handler class of this model."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Stay silent: pytest shows what was recorded instead."""

        def do_HEAD(self) -> None:
            self._json({})

        def do_GET(self) -> None:
            self._json({"data": [], "models": []})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            dialect = DIALECTS.get(self.path.split("?")[0])
            if not dialect:  # counting tokens, telemetry
                return self._json({"input_tokens": 10})
            hear, say = dialect
            heard = hear(body)
            model.record(*heard)
            number, calls = model.next_turn(list(heard.results))
            return self._stream(say((number, calls if offers(body, calls) else [])))

        def _json(self, value: object) -> None:
            data = dumps(value).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        def _stream(self, events: Iterator[Event]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the agent was stopped meanwhile
                for number, event in enumerate(events):
                    data = dumps({**event, "sequence_number": number})
                    self.wfile.write(f"event: {event['type']}\ndata: {data}\n\n".encode())

    return Handler
