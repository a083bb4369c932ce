#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs chaos.py with each planted fault (faults.py): every fault must be found by the rule that is meant for it.

    chaos_faults.py BIN [FAULT ...]
"""

import pathlib
import re
import shutil
import subprocess
import sys

from faults import FAULTS

HERE = pathlib.Path(__file__).resolve().parent
RUNS = {"drain": ["--drains", "6"], "reload": ["--reloads", "10"]}


# A fault is planted once, and by chance it may have no effect (a forgotten key matters only to a request whose answer
# was lost), so each fault is tried in several worlds.
SEEDS = tuple(range(7, 13))


def judge(name, seed):
    """Returns whether a run with this fault ends with the expected problem, and a line that reports it."""
    _, when, want = FAULTS[name]
    run = RUNS.get(when, ["--kills", "30", "--round", "15"])
    done = subprocess.run([sys.executable, HERE / "chaos.py", sys.argv[1], *run, "--fault", name, "--seed", str(seed)],
                          capture_output=True, text=True, timeout=400)
    for folder in re.findall(r"; (/tmp/hpvm-chaos-\S+) is kept", done.stdout):
        shutil.rmtree(folder, ignore_errors=True)
    problems = [line for line in done.stdout.splitlines() if "PROBLEM" in line]
    found = [line for line in problems if re.search(want, line)]
    is_caught = done.returncode == 1 and bool(found)
    line = (found or problems or [done.stdout[-500:] + done.stderr[-500:]])[0].strip()[:500]
    return is_caught, f"{name}, seed {seed}: {'caught' if is_caught else 'not found'}: {line}"


def main():
    missed = []
    for name in sys.argv[2:] or FAULTS:
        for seed in SEEDS:
            is_caught, line = judge(name, seed)
            print(line, flush=True)
            if is_caught:
                break
        else:
            missed.append(name)
    print(f"{len(missed)} missed" + (": " + ", ".join(missed) if missed else ""))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
