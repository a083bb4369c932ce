#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts faults around three real daemons on a real PostgreSQL while clients submit jobs at all of them, and checks that each
acknowledged job succeeds once, with the right output.

    daemon_faults.py BIN_FOLDER [--faults N] [--seconds S] [--seed S] [--log FILE]

Faults: a daemon is killed, stopped in order, or paused beyond its lease (with its executors); a host is cut off from the
database, perhaps beyond its lease; a host is drained; PostgreSQL is restarted, crashes, or is away for some seconds; an executor
is killed. Hosts do not connect to each other, so there are no other connections to cut.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
sys.path.insert(0, str(HERE))

import wire  # noqa: E402

OK = 0


class Load:
    """Submits jobs with keys of their own at all hosts, and remembers what was acknowledged."""

    def __init__(self, cluster, graph, number):
        self.cluster, self.graph, self.number = cluster, graph, number
        self.acknowledged, self.failed, self.rng, self.stopped = {}, 0, random.Random(number), False
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        count = 0
        while not self.stopped:
            count += 1
            key = f"load-{self.number}-{count}"
            amount = self.rng.randrange(1_000)
            host = self.rng.choice(sorted(self.cluster.hosts))
            done = self.cluster.hosts[host].ctl(
                "submit", "--detach", self.graph(amount), "--input", f"in={self.cluster.folder}/in.npy", "--idempotency-key", key,
                "--attempts", "10", "--deadline", "1h", "--patience", "20s", "--connect-timeout", "5", timeout=120)
            if done.returncode == OK:
                self.acknowledged[done.stdout.strip()] = amount
            else:
                self.failed += 1
            time.sleep(self.rng.uniform(0.2, 1))

    def stop(self):
        self.stopped = True
        self.thread.join()


class Faults:
    def __init__(self, cluster, rng, lease_s, children):
        self.cluster, self.rng, self.lease_s, self.children = cluster, rng, lease_s, children

    def host(self):
        return self.rng.choice(sorted(self.cluster.hosts))

    def again(self, name):
        self.cluster.start(name)
        self.cluster.await_ready(name)

    def kill(self):
        name = self.host()
        self.cluster.hosts[name].stop(signal.SIGKILL)
        time.sleep(self.rng.uniform(0, self.lease_s * 1.5))
        self.again(name)

    def stop(self):
        name = self.host()
        code = self.cluster.hosts[name].stop(timeout=60)
        assert code == 0, f"{name} ended with {code}"
        self.again(name)

    def pause(self):
        name = self.host()
        process = self.cluster.hosts[name].process
        pids = [process.pid, *self.children(process.pid)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.5, self.lease_s * 2))
        for pid in reversed(pids):
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def cut(self):
        wire = self.cluster.wires[self.host()]
        wire.is_cut = True
        time.sleep(self.rng.uniform(0.5, self.lease_s * 2))
        wire.is_cut = False

    def executor(self):
        name = self.host()
        for pid in self.children(self.cluster.hosts[name].process.pid)[:2]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def drain(self):
        name, other = self.rng.sample(sorted(self.cluster.hosts), 2)
        self.cluster.hosts[other].ctl("cluster", "drain", name)
        time.sleep(self.rng.uniform(0.5, 3))
        end = time.monotonic() + 60
        while self.cluster.hosts[other].ctl("cluster", "uncordon", name).returncode != OK and time.monotonic() < end:
            time.sleep(0.5)

    def database(self):
        how = self.rng.choice((signal.SIGINT, signal.SIGQUIT))
        self.cluster.database.stop(how)
        time.sleep(self.rng.choice((0, self.rng.uniform(0, self.lease_s * 1.5))))
        self.cluster.database.start()

    KINDS = ("kill", "stop", "pause", "cut", "executor", "drain", "database")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin")
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begins no fault after that time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log")
    arguments = parser.parse_args()
    sys.argv[1:] = [arguments.bin]
    import cluster as e2e_cluster  # noqa: E402
    from e2e import children, one_node, port  # noqa: E402

    lines = []

    def say(text):
        print(text, flush=True)
        lines.append(text)

    rng = random.Random(arguments.seed)

    class Cluster(e2e_cluster.Cluster):
        """Each host reaches the database over a connection of its own that can be cut."""

        wires = {}

        def config(self, name, **keys):
            folder = self.folder / f"wire-{name}"
            if name not in self.wires:
                self.wires[name] = wire.Wire(folder, self.database.folder)
            return super().config(name, database=f"postgresql://hpvm@/postgres?host={folder}", **keys)

    cluster = Cluster()
    np.save(cluster.folder / "in.npy", np.arange(1_000, dtype=np.int32))

    def graph(amount):
        path = cluster.folder / f"add-{amount}.json"
        if not path.exists():
            rounds = amount % 10 + 1
            document = one_node("busy", (port("in", "in"), port("out", "out")), [("amount", amount), ("rounds", rounds)])
            scratch = path.with_suffix(f".{threading.get_ident()}")
            scratch.write_text(json.dumps(document))
            scratch.rename(path)
        return path

    broken = []
    counts = dict.fromkeys(Faults.KINDS, 0)
    loads = [Load(cluster, graph, number) for number in range(3)]
    try:
        faults = Faults(cluster, rng, e2e_cluster.LEASE_S, children)
        began = time.monotonic()
        while sum(counts.values()) < arguments.faults and time.monotonic() < began + arguments.seconds:
            kind = rng.choice(Faults.KINDS)
            counts[kind] += 1
            getattr(faults, kind)()
            time.sleep(rng.uniform(0.2, 2))
            if sum(counts.values()) % 25 == 0:
                print(f"{sum(counts.values())} faults in {time.monotonic() - began:.0f} s", flush=True)
    finally:
        for load in loads:
            load.stop()
    try:
        acknowledged = {job: amount for load in loads for job, amount in load.acknowledged.items()}
        ids = sorted(acknowledged)
        attempts = hosts = 0
        end = time.monotonic() + 120
        for at, job_id in enumerate(ids):
            host = cluster.hosts[("one", "two", "three")[at % 3]]
            while True:
                done = host.ctl("get", job_id, "-o", "json")
                job = json.loads(done.stdout)[0] if done.returncode == OK else None
                if job is not None and job["state"] not in ("JOB_STATE_ACCEPTED", "JOB_STATE_QUEUED", "JOB_STATE_RUNNING"):
                    break
                if time.monotonic() > end:
                    break
                time.sleep(0.2)
            if job is None or job["state"] != "JOB_STATE_SUCCEEDED":
                broken.append(f"{job_id}: {job and job['state']} {job and job.get('error')} {done.stderr}")
                continue
            attempts += int(job["attempt"]) > 1
            end = time.monotonic() + 120  # Jobs go on, however many wait.
        # The outputs of some of them, fetched at any host.
        for job_id in rng.sample(ids, min(len(ids), 50)):
            host = cluster.hosts[faults.host()]
            bundle = cluster.folder / f"bundle-{job_id}"
            done = host.ctl("bundle", job_id, "--output", bundle)
            found = [path for path in bundle.rglob("*.npy") if "out" in path.name]
            expected = np.arange(1_000, dtype=np.int32) + acknowledged[job_id]
            if done.returncode != OK or not any(np.array_equal(np.load(path), expected) for path in found):
                broken.append(f"{job_id}: its output is wrong: {done.stderr} {found}")
        listed = json.loads(cluster.hosts["one"].ctl("list", "--limit", "100000", "-o", "json", timeout=300).stdout)
        keys = [job["idempotency_key"] for job in listed]
        doubles = sorted({key for key in keys if keys.count(key) > 1})
        broken += [f"the key {key} has several jobs" for key in doubles]
        say(f"{sum(counts.values())} faults {counts}, seed {arguments.seed}: {len(ids)} acknowledged jobs, {attempts} of them with more "
            f"than one attempt; {sum(load.failed for load in loads)} submits that gave up; {len(broken)} broken promises")
        for text in broken:
            say(text)
        if broken:
            say(cluster.logs())
    finally:
        cluster.close()
        for cable in cluster.wires.values():
            cable.close()
    if arguments.log:
        pathlib.Path(arguments.log).write_text("\n".join(lines) + "\n")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
