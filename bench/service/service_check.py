#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `hpvm-bench service --quick --json` and checks its output: every case, its figures, and that all results were verified.

The test asserts nothing about times, because a machine that runs tests is busy.
"""
import json
import subprocess
import sys

# Figures that each case must have, among others.
LATENCIES = ["per_s", "p50_us", "p90_us", "p99_us", "p999_us"]
SUBMIT = ["ours_per_s", "sqlite_raw_per_s", "memory_per_s", "grpc_echo_per_s", "grpc_echo_empty_per_s", "ratio_sqlite_raw"]
RUN = [f"{who}_{what}" for who in ("ours", "ours_half_load", "grpc_echo") for what in LATENCIES]
OVERLOAD = ["peak_per_s", "offered_per_s", "goodput_per_s", "ratio_goodput", "rejected", "rejected_p99_ms", "recovery_ms", "rss_max_mib"]
RESTART = ["jobs", "serving_ms", "first_running_ms"]
CASES = {
    **{f"submit/{n}": SUBMIT for n in (1, 8, 32, 64, 256)},
    **{f"jobs/{n}": ["ours_per_s", "memory_per_s"] for n in (1, 64)},
    **{f"run/{n}": RUN for n in (1, 4, 16, 64)},
    **{f"submit_many/{n}": ["ours_per_s", "ours_single_per_s", "sqlite_raw_per_s", "ratio_sqlite_raw"] for n in ("1x16", "64x16", "64x64")},
    **{f"run_many/{n}": ["ours_per_s", "ours_single_per_s", "ratio_single"] for n in (1, 4, 64)},
    "run/no_store": ["ours_p99_us", "ours_slow_disk_p99_us", "submit_slow_disk_p50_us"],
    **{f"overload/{kind}": OVERLOAD for kind in ("run", "submit", "tiny")},
    **{f"restart/{n}": RESTART for n in (10000, 100000)},
    "drain": ["drain_ms", "acknowledged", "succeeded"],
}


def check_line(line):
    """Returns the faults of one case's line."""
    name = line["case"]
    faults = []
    if line.get("suite") != "service":
        faults.append(f"{name}: the suite is {line.get('suite')!r}")
    for figure in CASES.get(name, []):
        value = line["figures"].get(figure)
        if not isinstance(value, (int, float)) or value < 0:
            faults.append(f"{name}: figure {figure} is {value!r}")
    for reach in line["reach"]:
        if reach["figure"] not in line["figures"] or not isinstance(reach["reached"], bool):
            faults.append(f"{name}: {reach} is about no figure")
    if line["verified"] is not True:
        faults.append(f"{name}: not verified: {line['note']}")
    return faults


def main():
    command = [f"{sys.argv[1]}/hpvm-bench", "service", "--quick", "--json"] + sys.argv[2:]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=280)
    lines = [json.loads(text) for text in run.stdout.splitlines()]
    faults = [] if run.returncode == 0 else [f"the exit code is {run.returncode}"]
    if not lines or not {"processor", "cores", "date", "command"} <= lines[0].keys():
        faults.append("the first line does not describe the machine")
    seen = [line["case"] for line in lines[1:]]
    wanted = sys.argv[2:]
    expected = [name for name in CASES if not wanted or any(part in name for part in wanted if part != "--filter")]
    if sorted(seen) != sorted(expected):
        faults.append(f"the cases are {seen}, not {expected}")
    for line in lines[1:]:
        faults += check_line(line)
    print("\n".join(faults) if faults else f"{len(seen)} cases, all verified")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
