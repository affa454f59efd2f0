"""The real agents, each in a private home, against a scripted model, with one hook command.

Everything an agent started (its daemon and its hooks too) carries a mark in its environment;
`close` ends exactly those processes. That and tmux make these drivers work on Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from models import PATIENCE, Model

INSTALLED = Path(os.environ.get("A4P_E2E") or Path.home() / ".cache" / "a4p-e2e")
MARK = "A4P_E2E_RUN"
KEPT_ENV = ("PATH", "A4P_HOME")  # an agent sees nothing else of the environment of the tests
HOOK_TIMEOUT = 600  # seconds, what the agents use when none is set


def program(pattern: str) -> str:
    """Find an installed agent; `pattern` is a glob below the folder of install.sh."""
    found = sorted(INSTALLED.glob(pattern))
    if not found:
        raise AssertionError(f"no {INSTALLED}/{pattern}: run tests/e2e/install.sh")
    return str(found[0])


# === Processes ===================================================================================

def marked(mark: str) -> list[int]:
    """List the live processes whose environment holds this mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
            if wanted in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return found


def end(pids: Iterable[int], how: signal.Signals, timeout: float) -> bool:
    """Signal these processes; tell whether all are gone within `timeout` seconds."""
    deadline, gone = time.monotonic() + timeout, True
    with contextlib.ExitStack() as stack:
        handles = []
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handles.append(os.pidfd_open(pid))
                stack.callback(os.close, handles[-1])
                signal.pidfd_send_signal(handles[-1], how)
        for handle in handles:
            left = max(0.0, deadline - time.monotonic())
            gone = bool(select.select([handle], [], [], left)[0]) and gone
    return gone


Started = TypeVar("Started", bound="Agent")


class Agent:
    """A running agent: a context manager that ends everything the agent started."""

    def __init__(self, root: Path, model: Model, env: Mapping[str, str]) -> None:
        self.model = model
        self.home, self.work, self.mark = root / "home", root / "shop", uuid.uuid4().hex
        self.home.mkdir()
        self.work.mkdir()
        kept = {name: os.environ[name] for name in KEPT_ENV if name in os.environ}
        self.env = {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", "SHELL": "/bin/bash",
                    "TERM": "xterm-256color", MARK: self.mark, **env}
        self._errors = root / "stderr.txt"
        self._children: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Start the agent; `with` does."""
        raise NotImplementedError

    def __enter__(self: Started) -> Started:
        with contextlib.ExitStack() as failed:
            failed.callback(self.close)
            self.start()
            failed.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the agent and all it started: asked first, then killed."""
        if not end(marked(self.mark), signal.SIGTERM, 3):
            end(marked(self.mark), signal.SIGKILL, 3)
        for child in self._children:
            child.wait(5)
        if self._errors.exists():  # pytest shows it where a test fails
            print(self._errors.read_text(encoding="utf-8"))

    def run(self, *command: str) -> str:
        """Run a command as this agent's user would; return its output."""
        done = subprocess.run(command, cwd=self.work, env=self.env, timeout=PATIENCE, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            raise AssertionError(f"{command} exits {done.returncode}: {done.stderr}")
        return done.stdout

    def spawn(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """Start a command as this agent's user would; `close` prints what it says on stderr."""
        with open(self._errors, "a", encoding="utf-8") as errors:
            child = subprocess.Popen(command, cwd=self.work, env=self.env, text=True, stdin=stdin,
                                     stdout=subprocess.PIPE, stderr=errors, encoding="utf-8")
        self._children.append(child)
        return child

    def finish(self, timeout: float = PATIENCE) -> str:
        """Wait until the agent ends by itself; return its output."""
        return self._children[-1].communicate(timeout=timeout)[0]

    def kill(self) -> None:
        """Kill the agent itself without warning; its hooks live on."""
        self._children[-1].kill()
        self._children[-1].wait()

    def hooks(self) -> list[int]:
        """List the processes of hooks that run now."""
        return [pid for pid in marked(self.mark) if b"\0hook\0" in _argv(pid)]

    def no_hooks(self, timeout: float = 3) -> None:
        """Wait until no hook runs any more, at most `timeout` seconds."""
        wait_until(lambda: not self.hooks(), timeout, lambda: f"the end of {self.hooks()}")


def _argv(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def wait_until(look: Callable[[], object], timeout: float, what: Callable[[], str]) -> None:
    """Look every 50 ms, for things that nothing announces, for at most `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if look():
            return
        time.sleep(0.05)
    raise AssertionError(f"not within {timeout:g} s: {what()}")


class Screen:
    """A terminal that a person could sit at: a tmux server of its own."""

    def __init__(self, agent: Agent, *command: str) -> None:
        self._folder = tempfile.mkdtemp(prefix="a4p-e2e-")  # a socket's path must be short
        self._agent, self.last = agent, ""
        self._tmux("new-session", "-d", "-x", "150", "-y", "50",
                   "-c", str(agent.work), shlex.join(command))
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def close(self) -> None:
        """Remove the socket; the agent ends the processes. pytest shows the last screen."""
        print(self.last)
        shutil.rmtree(self._folder)

    def text(self) -> str:
        """What is on the screen now."""
        self.last = self._tmux("capture-pane", "-p")
        return self.last

    def shows(self, pattern: str, timeout: float = PATIENCE) -> str:
        """Wait until a line matches the pattern; return the whole screen."""
        wait_until(lambda: re.search(pattern, self.text(), re.M), timeout,
                   lambda: f"{pattern!r} on the screen\n{self.last}")
        return self.last

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names."""
        for key in keys:
            self._tmux("send-keys", key)

    def press_until(self, pattern: str, *keys: str) -> str:
        """Press keys, again each second, until a line matches.

        What has just come up drops keys: a program that starts, a dialog of Claude's.
        """
        for _ in range(int(PATIENCE)):
            self.press(*keys)
            with contextlib.suppress(AssertionError):
                return self.shows(pattern, 1)
        raise AssertionError(f"{keys} do not lead to {pattern!r}\n{self.last}")

    def say(self, text: str) -> None:
        """Type a line; Enter follows when the text is on the screen, as with a person."""
        self.press_until(re.escape(text), "C-u", text)
        self.press("Enter")

    def _tmux(self, *words: str) -> str:
        return self._agent.run("tmux", "-S", f"{self._folder}/s", *words)


# === Claude Code =================================================================================

CLAUDE = {"2.1.332": "claude", "2.1.197": "claude197"}
DIALOG, NO_DIALOG = "Enter to select", r"(?s)\A(?!.*Enter to select)"  # what the screen shows
BOTH_EVENTS = ("PreToolUse", "PermissionRequest")


class Claude(Agent):
    """Claude Code with `hook` on AskUserQuestion; the user says "ask me" at once.

    mode "print": its host is this object, so its own dialog is a request to the host.
    mode "tmux": its own dialog is on a terminal, `screen`.
    """

    screen: Screen

    def __init__(self, root: Path, model: Model, hook: str, *, version: str = "2.1.332",
                 mode: str = "print", events: tuple[str, ...] = BOTH_EVENTS,
                 permission_mode: str = "default", timeout: float = HOOK_TIMEOUT,
                 settings: Mapping[str, Any] | None = None) -> None:
        super().__init__(root, model, {
            "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_AUTH_TOKEN": "none", "IS_SANDBOX": "1",
            "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})
        self._configure(hook, events, permission_mode, timeout, settings or {})
        self.binary = program(
            f"{CLAUDE[version]}/node_modules/@anthropic-ai/claude-code-*-*/claude")
        self._asked: queue.Queue[dict[str, Any]] = queue.Queue()
        self.mode = mode

    def start(self) -> None:
        """Start Claude in its mode."""
        {"print": self._start_print, "tmux": self._start_tmux}[self.mode]()

    def _configure(self, hook: str, events: tuple[str, ...], permission_mode: str,
                   timeout: float, settings: Mapping[str, Any]) -> None:
        command = {"type": "command", "command": hook, "timeout": timeout}
        group = {"matcher": "AskUserQuestion", "hooks": [command]}
        write_json(self.home / ".claude" / "settings.json", {
            "hooks": {event: [group] for event in events},
            "permissions": {"defaultMode": permission_mode},
            "skipDangerousModePermissionPrompt": True, "skipAutoPermissionPrompt": True,
            **settings})
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        write_json(self.home / ".claude.json", {
            "hasCompletedOnboarding": True, "theme": "dark",
            "projects": {str(self.work): trusted}})

    def dialog(self, timeout: float = PATIENCE) -> str:
        """Wait until Claude asks at the desk; return what it shows there."""
        if self._on_screen():
            return self.screen.shows(DIALOG, timeout)
        try:
            return json.dumps(self._asked.get(timeout=timeout), ensure_ascii=False)
        except queue.Empty:
            raise AssertionError(f"no dialog of Claude's own within {timeout:g} s") from None

    def has_dialog(self) -> bool:
        """Tell whether Claude has asked at the desk."""
        if self._on_screen():
            return bool(re.search(DIALOG, self.screen.text()))
        return not self._asked.empty()

    def close(self) -> None:
        """End Claude, its hooks and its terminal."""
        super().close()
        if self._on_screen():
            self.screen.close()

    def _on_screen(self) -> bool:
        return hasattr(self, "screen")

    def _start_tmux(self) -> None:
        self.screen = Screen(self, self.binary)
        self.screen.shows("❯")
        self.screen.say("ask me")

    def _start_print(self) -> None:
        child = self.spawn(self.binary, "-p", "--input-format", "stream-json", "--verbose",
                           "--output-format", "stream-json", "--permission-prompt-tool", "stdio",
                           stdin=subprocess.PIPE)
        assert child.stdin and child.stdout
        threading.Thread(target=self._listen, args=(child.stdout,), daemon=True).start()
        message = {"role": "user", "content": "ask me"}
        child.stdin.write(json.dumps({"type": "user", "message": message}) + "\n")
        child.stdin.flush()  # and stays open: a host that listens but never answers

    def _listen(self, lines: IO[str]) -> None:
        for line in lines:
            event = json.loads(line)
            if event["type"] == "control_request":
                self._asked.put(event["request"])


def write_json(path: Path, value: object) -> None:
    """Write a JSON file and the folder it is in."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


# === Codex =======================================================================================

CODEX_CONFIG = """\
model = "{model}"
model_provider = "scripted"
check_for_update_on_startup = false
suppress_unstable_features_warning = true
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false
[features]
enable_request_compression = false
default_mode_request_user_input = {flag}
[projects."{work}"]
trust_level = "trusted"
[tui]
screen_reader_detection_done = true
[tui.model_availability_nux]
"gpt-6-sol" = 9
"gpt-6.1-sol" = 9
"gpt-6.2-sol" = 9
[notice.model_migrations]
"gpt-5.5" = "gpt-6-sol"
"""


class Codex(Agent):
    """Codex with `hook` on its question tools; the user says "ask me" at once.

    mode "exec": `codex exec`, hooks trusted by its flag. mode "tui": the terminal program with
    its daemon, hooks trusted as a user does it, by "Trust all" on the terminal.
    """

    screen: Screen

    def __init__(self, root: Path, model: Model, hook: str, *, mode: str = "exec",
                 model_name: str = "gpt-5.5", flag: bool = True,
                 timeout: int = HOOK_TIMEOUT) -> None:
        super().__init__(root, model, {"CODEX_HOME": str(root / "home" / ".codex"),
                                       "SCRIPTED_KEY": "none"})
        command = {"type": "command", "command": hook, "timeout": timeout}
        group = {"matcher": "^request_user_input(_async)?$", "hooks": [command]}
        write_json(self.home / ".codex" / "hooks.json", {"hooks": {"PreToolUse": [group]}})
        (self.home / ".codex" / "config.toml").write_text(CODEX_CONFIG.format(
            model=model_name, url=model.url, work=self.work, flag=str(flag).lower()))
        self.binary = program("codex/node_modules/@openai/codex-*-*/vendor/*/bin/codex")
        self.mode = mode

    def start(self) -> None:
        """Start Codex in its mode."""
        {"exec": self._start_exec, "tui": self._start_tui}[self.mode]()

    def close(self) -> None:
        """End Codex, its daemon, its hooks and its terminal."""
        super().close()
        if hasattr(self, "screen"):
            self.screen.close()

    def _start_exec(self) -> None:
        self.spawn(self.binary, "exec", "--skip-git-repo-check",
                   "--dangerously-bypass-hook-trust", "ask me")

    def _start_tui(self) -> None:
        self.screen = Screen(self, self.binary)
        self.screen.shows("Trust all and continue")
        self.screen.press_until("› 2", "2")
        self.screen.press("Enter")
        self.screen.shows("Ask Codex")
        self.screen.say("ask me")


# === DSH =========================================================================================

ASK_TOOL_ROW = """\
- insert:
    - id: tool-ask-user
      name: '@deepseek-ai/dsh-tool-ask-user'
"""


class Dsh(Agent):
    """DSH, headless, told "ask me"; `plug` is called before it starts, to put the plugin in.

    The headless profile does not offer ask_user_question (DSH 0.2.1), so its row is added.
    """

    def __init__(self, root: Path, model: Model, plug: Callable[[Dsh], object]) -> None:
        super().__init__(root, model, {
            "DSH_HOME": str(root / "home" / ".dsh"), "DEEPSEEK_BASE_URL": model.url,
            "DEEPSEEK_API_KEY": "none", "DSH_TELEMETRY_DISABLED": "1"})
        self.binary, self._plug = program("dsh/venv/bin/dsh"), plug

    def start(self) -> None:
        """Make the profile, put the rows in, start DSH."""
        self.run(self.binary, "--profile", "headless", "--dump-config")
        profile = self.home / ".dsh" / "profiles" / "headless"
        (profile / "cordis.patch.yml").write_text(ASK_TOOL_ROW)
        self._plug(self)
        self.spawn(self.binary, "--profile", "headless", "ask me")
