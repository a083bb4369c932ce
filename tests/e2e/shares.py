#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests fair shares with the real programs: processor time by weight, and a small tenant (mouse) beside a large one (hog).

    shares.py BIN_FOLDER [--seconds N] [--off-max PART]

A tenant's share is the processor time of its executor, as the kernel counts it, whatever the length and number of its
runs. So the weights are chosen contrary to the numbers of clients.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from e2e import BIN, DEADLINE, HERE, OK, Daemon, children, one_node, port

# Weight, clients, and how often each run repeats a kernel of about a millisecond.
WEIGHTED = {"light": (100, 4, 1_000_000), "middle": (200, 2, 1_000_000), "heavy": (400, 3, 1_000_000)}
INSTANCES = 64


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def executors(daemon):
    """Returns the runners only: compilers beside them compute no part of a run."""
    found = {}
    for pid in children(daemon.process.pid):
        try:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "hpvm-executor":
                found[pid] = processor_seconds(pid)
        except OSError:
            pass
    return found


class Load:
    """Load is a number of clients of one tenant, each of which runs one graph after another until it is stopped."""

    def __init__(self, daemon, folder, tenant, clients, repeat):
        self.daemon, self.tenant, self.repeat, self.stopped, self.failures = daemon, tenant, repeat, False, []
        self.arguments = ["--tenant", tenant, "-o", "json", "run", folder / "graph.json", "--input", f"in={folder}/in.npy"]
        before = executors(daemon)
        warm = daemon.ctl(*self.arguments, "--repeat", 400)
        assert warm.returncode == OK, warm.stderr
        after = executors(daemon)
        # The executor that worked for this tenant.
        self.pid = max(after, key=lambda pid: after[pid] - before.get(pid, 0))
        self.clients, self.running = clients, []

    def start(self):
        self.running = [None] * self.clients
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(self.clients)]
        for thread in self.threads:
            thread.start()

    def work(self, index):
        while not self.stopped:
            command = [BIN / "hpvmctl", "--server", self.daemon.server, *self.arguments, "--repeat", str(self.repeat)]
            self.running[index] = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                                   text=True)
            error = self.running[index].communicate()[1]
            if self.running[index].returncode != OK and not self.stopped:
                self.failures.append(error)
                time.sleep(0.1)

    def stop(self):
        self.stopped = True
        for process in self.running:
            if process is not None and process.poll() is None:
                process.terminate()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures[0]


def check_weights(daemon, folder, seconds, off_max):
    loads = []
    for tenant, (weight, clients, repeat) in WEIGHTED.items():
        made = daemon.ctl("tenant", "create", tenant, "--weight", weight)
        assert made.returncode == OK, made.stderr
        loads.append(Load(daemon, folder, tenant, clients, repeat))
    for load in loads:
        load.start()
    time.sleep(2)
    before = {load.tenant: processor_seconds(load.pid) for load in loads}
    time.sleep(seconds)
    used = {load.tenant: processor_seconds(load.pid) - before[load.tenant] for load in loads}
    for load in loads:
        load.stop()
    worst, weights = 0, sum(weight for weight, _, _ in WEIGHTED.values())
    for tenant, (weight, _, _) in WEIGHTED.items():
        share, due = used[tenant] / sum(used.values()), weight / weights
        worst = max(worst, abs(share / due - 1))
        print(f"weight {weight}: {used[tenant]:.2f} s, {share:.1%} of the processor time; {due:.1%} is due")
    print(f"weights 1:2:4 over {seconds:.0f} s: the worst share is {worst:.1%} off")
    return worst <= off_max


def check_mouse(daemon, folder, seconds):
    """The hog always has runs of many seconds; the mouse now and then has a run of some 20 ms, with a deadline."""
    hog, mouse = Load(daemon, folder, "hog", 8, 1_000_000), Load(daemon, folder, "mouse", 1, 20)
    hog.start()
    time.sleep(2)
    before = {load.tenant: processor_seconds(load.pid) for load in (hog, mouse)}
    start, totals, late = time.monotonic(), [], 0
    while time.monotonic() - start < seconds:
        done = daemon.ctl(*mouse.arguments, "--repeat", 20, "--deadline", "1s")
        assert done.returncode in (OK, DEADLINE), done.stderr
        if done.returncode == OK:
            totals.append(int(json.loads(done.stdout)["timing"]["total_ns"]) / 1e6)
        else:
            late += 1
    used = {load.tenant: processor_seconds(load.pid) - before[load.tenant] for load in (hog, mouse)}
    hog.stop()
    totals.sort()
    in_time = len(totals) / (len(totals) + late)
    print(f"mouse: {len(totals)} of {len(totals) + late} runs in time ({in_time:.1%}), median {totals[len(totals) // 2]:.0f} ms, "
          f"longest {totals[-1]:.0f} ms; {used['mouse']:.2f} s of processor time beside the hog's {used['hog']:.2f} s")
    return in_time >= 0.95


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--off-max", type=float, default=0.15, help="of a share, as a part of what is due")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-shares-"))
    shutil.copy(HERE / "kernels.wasm", folder)
    document = one_node("busy", [port("in", "in"), port("out", "out")], [("amount", 1), ("rounds", 1)])
    (folder / "graph.json").write_text(json.dumps(document))
    np.save(folder / "in.npy", np.zeros(INSTANCES, np.int32))
    daemon = Daemon(folder / "daemon", "--devices", "cpu")
    try:
        ready = daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + daemon.log.read_text()
        good = check_weights(daemon, folder, options.seconds, options.off_max)
        good = check_mouse(daemon, folder, options.seconds) and good
    finally:
        code = daemon.stop()
        log = daemon.log.read_text()
        shutil.rmtree(folder)
    assert code == 0, f"hpvmd ended with {code}:\n{log}"
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
