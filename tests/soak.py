#!/usr/bin/env python3
"""`make soak`: one hook waits for hours while its connections are cut; then the answer comes.

The argument is the time in seconds (7200 if there is none, below 300 there is little to see).
The table has a row for each minute: the resident memory, the CPU of this minute, the connections.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).absolute().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE / "e2e")]

import a4p  # noqa: E402
import samples  # noqa: E402
from conftest import HookRun  # noqa: E402
from gate import Gate  # noqa: E402
from homes import Home  # noqa: E402
from phones import Phone  # noqa: E402

CUTS = 50  # connections that are cut, by FIN and by RST in turn
APART = 12.0  # seconds between cuts at the least: a stream that lasts 10 is opened again at once
WARM = 3  # minutes until the memory is what it stays
MEMORY_MOVES = 1.0  # MiB, up or down
CPU = 0.1  # seconds in a minute


def used(pid: int) -> tuple[float, float]:
    """MiB of resident memory, and seconds of CPU so far."""
    folder = Path(f"/proc/{pid}")
    if folder.exists():
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, ticks / os.sysconf("SC_CLK_TCK")
    told = subprocess.run(["ps", "-o", "rss=,time=", "-p", str(pid)], capture_output=True,
                          text=True, check=True).stdout
    kib, clock = told.split()
    seconds = 0.0
    for part in clock.replace("-", ":").split(":"):  # 1:02:03 or 62:03.45
        seconds = seconds * 60 + float(part)
    return int(kib) / 1024, seconds


def wait(run: HookRun, gate: Gate, seconds: float) -> list[tuple[float, float]]:
    """Cut and measure until the time is over; (memory, CPU of the minute) of each minute."""
    began, cuts, found = time.monotonic(), 0, list[tuple[float, float]]()
    apart = max(seconds / (CUTS + 1), APART)
    before = used(run.process.pid)[1]
    print("| minute |   MiB | CPU s | cuts | connections |\n|-------:|------:|------:|-----:|------------:|")
    while (now := time.monotonic() - began) < seconds:
        if run.process.poll() is not None:
            raise SystemExit(f"the hook ended early, after {now:.0f} s")
        if now >= (cuts + 1) * apart:
            cuts += 1
            opened = gate.opened
            gate.cut(reset=cuts % 2 == 0)
            gate.wait_opened(opened + 1, 60)
        if now >= (len(found) + 1) * 60:
            memory, cpu = used(run.process.pid)
            found.append((memory, cpu - before))
            before = cpu
            print(f"| {len(found):6} | {memory:5.2f} | {found[-1][1]:5.2f} | {cuts:4} | "
                  f"{gate.opened:11} |", flush=True)
        due = min((cuts + 1) * apart, (len(found) + 1) * 60, seconds)
        time.sleep(max(0.0, due - (time.monotonic() - began)))
    return found


def verdict(found: list[tuple[float, float]]) -> list[str]:
    """What is wrong with these minutes."""
    steady = [memory for memory, _ in found[WARM - 1:]]
    moved = max((abs(memory - steady[0]) for memory in steady), default=0.0)
    busiest = max((cpu for _, cpu in found[1:]), default=0.0)
    print(f"memory moved {moved:.2f} MiB (limit {MEMORY_MOVES}); "
          f"the busiest minute took {busiest:.2f} s of CPU (limit {CPU})")
    return ["memory"] * (moved > MEMORY_MOVES) + ["CPU"] * (busiest > CPU)


def main(seconds: float) -> int:
    """Run the soak; 1 where a limit is passed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(a4p.Server("127.0.0.1", 0))
        gate = stack.enter_context(Gate(server.url))
        home = Home(Path(folder) / "a4p", gate.url)
        home.configure(timeout=seconds + 600)
        os.environ["A4P_HOME"] = str(home.path)
        phone = stack.enter_context(contextlib.closing(Phone(server.url, home.config["topic"])))
        run = HookRun("claude", samples.claude())
        stack.callback(run.process.kill)
        push = phone.push()
        found = wait(run, gate, seconds)
        began = time.monotonic()
        phone.tap(push, 1)
        answers = run.answers()
        print(f"answered within {time.monotonic() - began:.2f} s: {answers}")
        wrong = verdict(found) + ["the answer"] * (answers != {samples.CACHE["question"]: "Memory"})
        phone.replaced(push)
    print(f"wrong: {', '.join(wrong)}" if wrong else "all within the limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]) if sys.argv[1:] else 7200.0))
