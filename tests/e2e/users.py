"""A person with a home directory, for the tests of what a4p does there."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

import a4p
from homes import A4P, SOON

VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "DSH_HOME", "A4P_HOME")


class User:
    """A person with a home directory, a shell in it, and a4p."""

    def __init__(self, root: Path, script: Path = A4P) -> None:
        self.home, self.script = root, script
        self.home.mkdir(parents=True, exist_ok=True)
        kept = {key: value for key, value in os.environ.items()
                if key not in VARIABLES and not key.startswith("A4P_")}
        self.env = {**kept, "HOME": str(root), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
                    "PATH": "/usr/bin:/bin"}
        self.claude = root / ".claude" / "settings.json"
        self.codex = root / ".codex" / "hooks.json"
        self.dsh = root / ".dsh" / "cordis.patch.yml"

    def write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def try_run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a4p: in this process where it is the script under test, which is ten times faster."""
        if self.script != A4P:
            return subprocess.run(
                [sys.executable, str(self.script), *words], env=self.env, cwd=self.home, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=SOON, check=False)
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, open(os.devnull) as null:
            patch.setattr(os, "environ", os.environ.copy())
            os.environ.clear()
            os.environ.update(self.env)
            patch.chdir(self.home)
            patch.setattr(sys, "stdin", null)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = a4p.main(list(words))
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def run(self, *words: str) -> str:
        done = self.try_run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def files(self) -> dict[str, tuple[bytes, int]]:
        """All that is in the home, with its bytes and modes."""
        return {str(path.relative_to(self.home)): (path.read_bytes(), path.stat().st_mode)
                for path in self.home.rglob("*") if path.is_file()}
