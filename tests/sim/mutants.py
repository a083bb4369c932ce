#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harness check: every seeded bug must be caught by the simulation.

    tests/sim/mutants.py BIN [--seeds N] [--seconds S] [--table FILE] [NAME ...]

BIN has hpv-sim of a copy that tests/mutants/patched.py made, built with the preset mutants. Each bug of
tests/mutants/system, except those of plans, runs until a checker complains; exit 1 when one is not caught. ELSEWHERE lists
bugs in code that the simulation does not contain, and names the test that catches each.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
import seeded  # noqa: E402

ELSEWHERE = {
    # No simulated disk changes bytes that it has stored.
    "store_sum_ignored": "sqlite_job_database_test",
    # Worlds check that balances match use; the model checks what a balance allows and whose it is.
    "ledger_refusal_uncounted": "ledger_test",
    "ledger_limit_off_by_one": "ledger_test",
    "ledger_charge_another": "ledger_test",
    # States that worlds seldom reach.
    "core_output_bytes_leak": "core_job_test",
    "core_lost_wakeup": "core_job_test",
    "core_cancel_lost_while_starting": "core_job_test",
    # Worlds have no watchers.
    "core_watch_history_unbounded": "job_watch_test",
    "core_watch_gap_unseen": "job_watch_test",
}


def run(binary, name, seeds, seconds):
    """Returns the checker that complained, and after how many seeds; or None."""
    total, start = 0, time.monotonic()
    for worlds in ("cluster",) if name.startswith("cluster_") else ("core", "store"):
        command = [binary, "--seeds", f"0..{seeds - 1}", "--seconds", str(seconds), "--failures", "1", "--mutant", name]
        if worlds != "core":
            command.append(f"--{worlds}")
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            return "time", worlds, total, time.monotonic() - start
        counted = re.search(r"(\d+) seeds, \d+ failed", done.stdout)
        total += int(counted.group(1)) if counted else 0
        if done.returncode != 0:
            complaint = re.search(r"FAILED seed \d+.*\n\s+([a-z ]+): ", done.stdout)
            checker = complaint.group(1) if complaint else f"the program ended with {done.returncode}"
            return checker, worlds, total, time.monotonic() - start
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--table", help="also write a table in Markdown to this file")
    options = parser.parse_args()
    sources = {name: file for name, file in seeded.system_bugs().items() if not name.startswith("plan_")}
    chosen = options.names or sorted(sources)
    rows, missed = [], 0
    for name in chosen:
        if name in ELSEWHERE:
            rows.append((name, sources.get(name, ""), ELSEWHERE[name], ""))
            continue
        caught = run(options.binary, name, options.seeds, options.seconds)
        if caught is None:
            missed += 1
            print(f"{name}: NOT CAUGHT", flush=True)
            rows.append((name, sources.get(name, ""), "NOT CAUGHT", ""))
        else:
            checker, worlds, seeds, took = caught
            print(f"{name}: caught by \"{checker}\" ({worlds}) after {seeds} seeds, {took:.1f} s", flush=True)
            rows.append((name, sources.get(name, ""), f"{checker} ({worlds})", str(seeds)))
    if options.table:
        seeded.write_table(options.table, ("Seeded bug", "Where", "Caught by", "Seeds"), rows)
    return seeded.finish(len(chosen), missed)


if __name__ == "__main__":
    sys.exit(main())
