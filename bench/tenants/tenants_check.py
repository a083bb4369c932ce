#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `hpvm-bench tenants --quick --json` and checks its output: every case, its figures, and that all results were verified.

The test asserts nothing about times, because a machine that runs tests is busy.
"""
import json
import os
import subprocess
import sys

MEMORY = [f"{who}_{what}_mib" for who in ("runner", "compiler", "runner_after_runs") for what in ("private_dirty", "pss", "rss")]
SANDBOX = ["ratio_sandbox_off"]
CASES = {
    "spawn": [f"{who}_{what}_ms" for who in ("cold", "warm", "sandbox_off_cold", "fork_exec") for what in ("p50", "p99")],
    "first_call": ["cold_p50_ms", "warm_p50_ms"],
    "memory": MEMORY,
    "share/copy": ["tenants_1_per_s", "tenants_3_per_s", "ratio_3_over_1"],
    "share/work": ["tenants_1_per_s", "tenants_3_per_s", "ratio_3_over_1"],
    "sandbox/compute": SANDBOX + ["ours_us", "sandbox_off_us"],
    "sandbox/launches": SANDBOX + ["ours_us", "sandbox_off_us"],
    "sandbox/run_64": SANDBOX + ["ours_per_s", "sandbox_off_per_s"],
}


def check_line(line):
    """Returns the faults of one case's line."""
    name = line["case"]
    faults = []
    if line.get("suite") != "tenants":
        faults.append(f"{name}: the suite is {line.get('suite')!r}")
    for figure in CASES.get(name, []):
        value = line["figures"].get(figure)
        if not isinstance(value, (int, float)) or value <= 0:
            faults.append(f"{name}: figure {figure} is {value!r}")
    if line["verified"] is not True:
        faults.append(f"{name}: not verified: {line['note']}")
    return faults


def main():
    expected = dict(CASES)
    command = [f"{sys.argv[1]}/hpvm-bench", "tenants", "--quick", "--json"] + sys.argv[2:]
    if os.geteuid() != 0:
        # Only root may read the memory of a process that is locked down.
        del expected["memory"]
        command += [word for name in expected for word in ("--filter", name)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=280)
    lines = [json.loads(text) for text in run.stdout.splitlines()]
    faults = [] if run.returncode == 0 else [f"the exit code is {run.returncode}"]
    if not lines or not {"processor", "cores", "date", "command"} <= lines[0].keys():
        faults.append("the first line does not describe the machine")
    seen = [line["case"] for line in lines[1:]]
    wanted = sys.argv[2:]
    names = [name for name in expected if not wanted or any(part in name for part in wanted if part != "--filter")]
    if sorted(seen) != sorted(names):
        faults.append(f"the cases are {seen}, not {names}")
    for line in lines[1:]:
        faults += check_line(line)
    print("\n".join(faults) if faults else f"{len(seen)} cases, all verified")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
