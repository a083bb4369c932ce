#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long lists of jobs take while many jobs wait. This is not a test: it prints figures.

    list_time.py BIN_FOLDER [--jobs 100000] [--repeat 20]

The jobs are arrays of up to 10,000 that are held. For each command it prints the median and the maximum of `repeat` whole processes, the
processor time of one, and the server's own counters of ListJobs meanwhile. `version --help` asks no server: its time is the base
of every command.
"""

import argparse
import os
import pathlib
import re
import statistics
import sys
import tempfile
import time
import urllib.request

from restart_time import Bench

COMMANDS = {
    "a command that asks nobody": ("version", "--help"),
    "list, the first page": ("list",),
    "list of those that run (none)": ("list", "--state", "running"),
    "list --all-tenants": ("list", "--all-tenants"),
    "what completion asks": ("list", "-o", "name", "--limit", "50", "--connect-timeout", "0.3", "--patience", "1ms"),
}
PORT = 9461


def served():
    """Returns how often the server answered ListJobs, and the total time of that."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10).read().decode()
    found = {kind: float(value) for kind, value in
             re.findall(r'^hpvm_grpc_call_seconds_(count|sum)\{[^}]*ListJobs[^}]*\} (\S+)', text, re.M)}
    return found.get("count", 0), found.get("sum", 0)


def measure(bench, options):
    begin = time.monotonic()
    for first in range(0, options.jobs, 10_000):
        bench.ok("submit", "--hold", "--deadline", "1h", bench.folder / "add.json", "--input", f"in={bench.folder}/in.npy",
                 "--array", f"{first}-{min(first + 10_000, options.jobs) - 1}", "--array-symbol", "s")
    print(f"{options.jobs} jobs: submitted in {time.monotonic() - begin:.1f} s", flush=True)
    for what, words in COMMANDS.items():
        count, total = served()
        times, used = [], os.times()
        for _ in range(options.repeat):
            begin = time.monotonic()
            bench.ok(*words)
            times.append(1000 * (time.monotonic() - begin))
        now = os.times()
        processor = 1000 * (now.children_user + now.children_system - used.children_user - used.children_system)
        calls, seconds = (after - before for after, before in zip(served(), (count, total)))
        print(f"{what}: {statistics.median(times):.0f} ms, at most {max(times):.0f} ms; {processor / options.repeat:.0f} ms of processor time" +
              (f"; in the server {1000 * seconds / calls:.2f} ms a call" if calls else ""), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpvm-list-") as name:
        bench = Bench(pathlib.Path(name))
        config = bench.folder / "hpvmd.toml"
        config.write_text(config.read_text() + f'[metrics]\nlisten = "127.0.0.1:{PORT}"\n')
        bench.start()
        try:
            measure(bench, options)
        finally:
            bench.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
