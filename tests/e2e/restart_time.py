#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a daemon takes to start with many queued jobs, some of which wait for many others. This is not a test: it prints figures.

    restart_time.py BIN_FOLDER [--jobs 10000] [--dependents 1000] [--each 100] [--repeat 5] [--realtime]

The jobs are one array; a job that never ends holds the only running slot. Each dependent comes after `each` elements. The
daemon is killed and started again; the figures are the time that it reports (from its first line to serving), the time from the
process's start to the first answer, and the processor time used by then. With --realtime (needs root) the starts have priority
over other processes of the machine.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import sys
import tempfile
import time

import numpy as np

from e2e import OK, Daemon, HERE, one_node, port

CONFIG = "[jobs]\nqueued_max = 100000\nqueued_per_tenant_max = 100000\nrunning_per_tenant_max = 1\narray_max = 100000\ndependencies_max = 1000\n"


class Bench:
    def __init__(self, folder):
        self.folder = folder
        (folder / "hpvmd.toml").write_text(CONFIG)
        np.save(folder / "in.npy", np.asarray([0], np.int32))
        (folder / "kernels.wasm").write_bytes((HERE / "kernels.wasm").read_bytes())
        (folder / "spin.json").write_text(json.dumps(one_node("spin", (port("out", "inout"),), instances="1")))
        add = one_node("add", (port("in", "in"), port("out", "out")), [("amount", "s")])
        add["symbols"] = ["n", "s"]
        (folder / "add.json").write_text(json.dumps(add))

    def start(self):
        begin = time.monotonic()
        self.daemon = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", self.folder / "hpvmd.toml")
        self.ok("devices", "--connect-timeout", "60")
        took = time.monotonic() - begin
        user, system = (pathlib.Path("/proc") / str(self.daemon.process.pid) / "stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return took, (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def ok(self, *arguments):
        done = self.daemon.ctl(*arguments, timeout=600)
        assert done.returncode == OK, done.stderr + self.daemon.log.read_text()[-2000:]
        return done.stdout

    def fill(self, jobs, dependents, each):
        # Preparing a graph needs one of the tenant's slots, so it comes before the slot is taken for ever.
        self.ok("submit", self.folder / "add.json", "--input", f"in={self.folder}/in.npy", "--symbol", "s=1")
        self.ok("submit", "--detach", self.folder / "spin.json", "--input", f"out={self.folder}/in.npy")
        self.ok("submit", "--detach", self.folder / "add.json", "--input", f"in={self.folder}/in.npy", "--array", f"0-{jobs - dependents - 1}", "--array-symbol", "s")
        ids = self.ok("list", "--state", "live", "--limit", "100000", "-o", "name").split()
        for i in range(dependents):
            after = [word for j in range(each) for word in ("--after", ids[(i * 7 + j * 13) % len(ids)])]
            self.ok("submit", "--detach", self.folder / "add.json", "--input", f"in={self.folder}/in.npy", "--symbol", "s=1", *after)

    def kill(self):
        self.daemon.process.send_signal(signal.SIGKILL)
        self.daemon.process.wait()

    def said(self):
        return [int(float(text)) for text in re.findall(r" Started ms=([\d.]+)", self.daemon.log.read_text())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--dependents", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--realtime", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hpvm-restart-") as name:
        bench = Bench(pathlib.Path(name))
        bench.start()
        begin = time.monotonic()
        bench.fill(options.jobs, options.dependents, options.each)
        print(f"{options.jobs} jobs, {options.dependents} of them after {options.each} each: submitted in {time.monotonic() - begin:.1f} s", flush=True)
        if options.realtime:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))  # Processes started from here on inherit this.
        for _ in range(options.repeat):
            bench.kill()
            took, processor = bench.start()
            log = bench.daemon.log.read_text()
            taken = re.findall(r"Jobs restored jobs=(\d+)", log)[-1]
            print(f"started in {bench.said()[-1]} ms by its log, {1000 * took:.0f} ms to the first answer, {1000 * processor:.0f} ms of processor time; {taken} jobs taken up", flush=True)
        bench.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
