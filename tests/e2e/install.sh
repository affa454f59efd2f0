#!/bin/sh
# Puts the real agents, at pinned versions, into $A4P_E2E (default ~/.cache/a4p-e2e); what is
# there already is left alone. They need no account: the tests give each a scripted model.
set -eu
root=${A4P_E2E:-$HOME/.cache/a4p-e2e}

need() {  # need PROGRAM: from apt where that is possible
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "$0: install $1 first" >&2
        exit 1
    fi
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y "$1"
}

from_npm() {  # from_npm FOLDER PACKAGE VERSION
    grep -qs "\"version\": \"$3" "$root/$1/node_modules/$2"-*-*/package.json && return
    need npm
    mkdir -p "$root/$1"
    npm install --no-audit --no-fund --loglevel=error --prefix "$root/$1" "$2@$3"
}

from_pip() {  # from_pip FOLDER PACKAGE VERSION; without what it depends on
    "$root/$1/venv/bin/python" -c "from importlib.metadata import version
assert version('$2') == '$3'" 2>/dev/null && return
    "${PYTHON:-python3}" -m venv --clear "$root/$1/venv"
    "$root/$1/venv/bin/pip" install -q --disable-pip-version-check --no-deps "$2==$3"
}

need tmux
from_npm claude @anthropic-ai/claude-code 2.1.332
from_npm claude197 @anthropic-ai/claude-code 2.1.197
from_npm codex @openai/codex 0.171.0
from_pip dsh deepseek-harness-runtime-bin 0.2.1rc2
