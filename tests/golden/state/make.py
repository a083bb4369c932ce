#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the state folder of a release, for the tests that open it with every later release.

    make.py BIN_FOLDER NAME

BIN_FOLDER has that release's programs. Its daemon gets jobs in every state, tenants and tokens, and is killed; its
state folder, without regenerated files, becomes NAME.tar.gz beside this file. NAME.txt lists what the tests must find: a line
for each job, with its name in the tests, its id and its state.
"""

import json
import pathlib
import shutil
import signal
import sys
import tarfile
import tempfile
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "e2e"))
from e2e import Daemon, one_node, port  # noqa: E402

IN_OUT = (port("in", "in"), port("out", "out"))
CONFIG = "[jobs]\nrunning_per_tenant_max = 1\n"
KEPT = {"audit", "blobs", "identity.sqlite", "identity.sqlite-wal", "jobs.db", "jobs.db-wal"}


class State:
    def __init__(self, folder):
        self.folder = folder
        shutil.copy(HERE.parents[1] / "e2e" / "kernels.wasm", folder)
        (folder / "hpvmd.toml").write_text(CONFIG)
        self.daemon = Daemon(folder / "daemon", "--devices", "cpu", "--config", folder / "hpvmd.toml")
        self.ctl("devices", "--connect-timeout", "30")

    def ctl(self, *arguments, codes=(0,)):
        done = self.daemon.ctl(*arguments)
        assert done.returncode in codes, (arguments, done.stdout, done.stderr, self.daemon.log.read_text()[-2000:])
        return done.stdout.strip()

    def submit(self, document, *arguments, values=(1, 2, 3), wait=True):
        (self.folder / "graph.json").write_text(json.dumps(document))
        words = [self.folder / "graph.json"]
        ports = [name for name, port in document["inputs"].items() if port["shape"]]
        if ports:
            np.save(self.folder / "in.npy", np.asarray(values, np.int32))
            words += ["--input", f"{ports[0]}={self.folder}/in.npy"]
        job = self.ctl("submit", *words, "--detach", "-o", "name", *arguments).split()[0]
        if wait:
            self.ctl("wait", job, codes=(0, 1))
        return job

    def state(self, job):
        return json.loads(self.ctl("get", job, "-o", "json"))[0]["state"]


def fill(state):
    """Returns [(name, id)] of every job."""
    add = one_node("add", IN_OUT, [("amount", 5)])
    indexed = one_node("add", ({**port("in", "in"), "shape": []}, {**port("out", "out"), "shape": []}),
                       [("amount", "s")], instances="1")
    indexed["symbols"] = ["s"]
    array = ("--array", "0-2", "--array-symbol", "s", "--input", "in=@index")
    spin = one_node("spin", (port("out", "inout"),), instances="1")
    jobs = {"succeeded": state.submit(add, "--idempotency-key", "key-succeeded", "--label", "a=b"),
            "large": state.submit(add, values=np.zeros(30_000)),
            "failed": state.submit(one_node("divide", IN_OUT), values=(0, 0, 0))}
    done = state.submit(indexed, *array)
    jobs["cancelled"] = state.submit(spin, values=(0,), wait=False)
    while "RUNNING" not in state.state(jobs["cancelled"]):
        time.sleep(0.05)
    state.ctl("cancel", jobs["cancelled"])
    jobs["running"] = state.submit(spin, values=(0,), wait=False)
    while "RUNNING" not in state.state(jobs["running"]):
        time.sleep(0.05)
    jobs["queued"] = state.submit(add, "--idempotency-key", "key-queued", wait=False)
    jobs["queued_large"] = state.submit(add, values=np.zeros(30_000), wait=False)
    jobs["dependent"] = state.submit(add, "--after", jobs["queued"], wait=False)
    jobs["dependent_on_running"] = state.submit(add, "--after", jobs["running"] + ":ended", wait=False)
    waiting = state.submit(indexed, *array, "--idempotency-key", "key-array", wait=False)
    jobs["dependent_on_array"] = state.submit(add, "--after", waiting, wait=False)
    for name, array in (("array_done", done), ("array", waiting)):
        listed = state.ctl("list", "--array", array, "-o", "name").split()
        jobs.update({f"{name}_{i}": job for i, job in enumerate(reversed(listed))})
    return list(jobs.items())


def main():
    name = sys.argv[2]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-state-"))
    state = State(folder)
    try:
        jobs = fill(state)
        state.ctl("tenant", "create", "blue", "--weight", "3")
        state.ctl("--tenant", "blue", "token", "create", "--name", "night", "--output", folder / "secret")
        lines = [f"{name} {job} {state.state(job)}\n" for name, job in jobs]
    finally:
        state.daemon.process.send_signal(signal.SIGKILL)
        state.daemon.process.wait()
    (HERE / f"{name}.txt").write_text("".join(lines))
    with tarfile.open(HERE / f"{name}.tar.gz", "w:gz") as tar:
        for path in sorted((folder / "daemon/state").iterdir()):
            if path.name in KEPT:
                tar.add(path, path.name)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
