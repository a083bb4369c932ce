#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares, runs and releases repeatedly: the memory of hpvmd, the runner and the compiler must stay constant.

    soak.py BIN_FOLDER [--cycles N] [--compiles N]

The default is a short run for ctest; the figures in docs/BENCHMARKS.md are of --cycles 10000 --compiles 1000.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from e2e import BIN, HERE, OK, Daemon, children

# Memory that an allocator may keep from the highest use; a leak of a hundred bytes a cycle shows at 10,000.
GROWTH_KIB_MAX = 1024


def resident_kib(pid):
    """Returns the process's memory without shared memory: buffers and stored documents are memfds with limits of their own."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(fields["RssAnon"].split()[0])


def measure(daemon):
    pids = [daemon.process.pid] + children(daemon.process.pid)
    return {f"{pathlib.Path(f'/proc/{pid}/comm').read_text().strip()} {pid}": resident_kib(pid) for pid in pids}


def cycle(daemon, count, *more):
    subprocess.run([BIN / "prepare_cycles", daemon.server, HERE / "kernels.wasm", str(count), *more], check=True)


def watch(daemon, what, warm, count, *more):
    """Lets caches fill, then measures around `count` cycles; returns false if a process grew or was replaced."""
    cycle(daemon, warm, *more)
    before = measure(daemon)
    cycle(daemon, count, *more)
    after = measure(daemon)
    flat = before.keys() == after.keys()
    for process, kib in sorted(before.items()):
        growth = after.get(process, 0) - kib
        print(f"{what}: {process}: {kib} KiB before, {after.get(process, 0)} KiB after {count} cycles ({growth:+} KiB)")
        flat = flat and growth <= GROWTH_KIB_MAX
    return flat


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--cycles", type=int, default=500)
    parser.add_argument("--compiles", type=int, default=50)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-soak-"))
    daemon = Daemon(folder / "daemon")
    try:
        ready = daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + daemon.log.read_text()
        flat = watch(daemon, "prepare", max(200, options.cycles // 10), options.cycles)
        flat = watch(daemon, "compile", max(30, options.compiles // 10), options.compiles, "--compile") and flat
    finally:
        daemon.stop()
        shutil.rmtree(folder)
    sys.exit(0 if flat else 1)


if __name__ == "__main__":
    main()
