"""A home of a4p, and a4p's commands on it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

A4P = Path(__file__).resolve().parents[2] / "a4p.py"
SOON = 15.0  # seconds: the longest that a command may take
PROMPT = 4.0  # seconds: a4p lets go within one; the rest is for a busy machine


class Home:
    """An $A4P_HOME with mode out, and the command of a4p on it."""

    def __init__(self, path: Path, server: str) -> None:
        self.path, self.script, self.python = path, str(A4P), sys.executable
        topic = f"a4p-{uuid.uuid4().hex[:26]}"
        self.config: dict[str, Any] = {"server": server, "topic": topic, "lang": "en"}
        path.mkdir(mode=0o700)
        self.configure()
        (path / "out").write_text("\n\n")

    def configure(self, **values: object) -> None:
        """Set values of the config file."""
        self.config.update(values)
        file = self.path / "config.json"
        file.touch(0o600)
        file.write_text(json.dumps(self.config))

    def run(self, *words: str) -> str:
        """Run a4p with these words; return what it prints."""
        done = subprocess.run([self.python, self.script, *words], text=True, timeout=SOON,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hook(self, agent: str) -> str:
        """Give the guarded line that an agent's config holds."""
        out, python, script = map(shlex.quote, (f"{self.path}/out", self.python, self.script))
        return f"[ ! -e {out} ] || {python} -I -S {script} hook {agent} || true"
