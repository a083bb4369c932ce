#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harness check: every seeded bug of the scheduler's plans must be caught by the simulator.

    tests/schedsim/mutants.py BIN [--seeds N] [--seconds S] [--table FILE] [NAME ...]

BIN is hpv-schedsim of a copy that tests/mutants/patched.py made, built with the preset mutants. Each bug of plans in
tests/mutants/system runs until a property is broken; exit 1 when one is not caught.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
import seeded  # noqa: E402


def run(binary, name, seeds, seconds):
    """Returns the broken property and the seed; or None."""
    command = [binary, "--seeds", f"1-{seeds}", "--seconds", str(seconds)]
    environment = {**os.environ, "HPVMD_MUTANT": name}
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment,
                              timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        return "ends: a world does not end", "?"
    complaint = re.search(r"FAILED seed (\d+).*\n\s+([a-z ]+): (.*)", done.stdout)
    if complaint:
        return f"{complaint.group(2)}: {complaint.group(3)}", complaint.group(1)
    if done.returncode == 0:
        return None
    died = re.search(r"FAILED seed 0*(\d+); ended by a signal", done.stdout)
    check = "HPVMD_CHECK" if done.returncode == -6 else f"signal {-done.returncode}"
    return f"the scheduler ends itself ({check})", died.group(1) if died else "?"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--table", help="also write a table in Markdown to this file")
    options = parser.parse_args()
    sources = seeded.system_bugs("plan_")
    rows, missed = [], 0
    for name in options.names or sorted(sources):
        caught = run(options.binary, name, options.seeds, options.seconds)
        missed += caught is None
        by, seed = caught or ("NOT CAUGHT", "")
        print(f"{name}: {by}" + (f" (seed {seed})" if caught else ""), flush=True)
        rows.append((name, sources.get(name, ""), by.split(":")[0].split(" (")[0], seed))
    if options.table:
        seeded.write_table(options.table, ("Seeded bug", "Where", "Broken promise", "First seed"), rows)
    return seeded.finish(len(rows), missed)


if __name__ == "__main__":
    sys.exit(main())
