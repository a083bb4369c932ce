#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults between hosts that share a PostgreSQL, and what has to hold in spite of them.

    tests/cluster/faults.py BIN [--faults N] [--seed N] [--lease SECONDS] [--log FILE]

Three hosts, two clients and a watcher for each tenant run as processes (cluster_host.cc) around a real PostgreSQL. Hosts are
killed, paused beyond their leases, cut off, drained; the database is stopped, and crashes. Afterwards, from the ledgers of the
processes and the rows of the database:

  - every job whose submit was acknowledged is stored once, and ends once faults cease;
  - every job has one end, and a job that succeeded has the result of its last claim: no run has an effect twice;
  - no two hosts run one job at a time, but for hosts that were paused and could not stop;
  - a host runs a job only under a claim, and no claim twice;
  - a cancellation that was acknowledged is a job that did not run afterwards, or had ended;
  - watchers see each event, in order, without gaps, and the last one of a job is its end;
  - the counters of tenants are zero.
"""

import argparse
import collections
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import postgres  # noqa: E402
import wire  # noqa: E402

HOSTS, TENANTS = 3, 2
ENDS = {"2": "SUCCEEDED", "3": "FAILED", "4": "CANCELLED", "5": "EXPIRED", "6": "DEAD"}


def before_program():
    """For a child before its program, which takes SIGTERM when its handler is there, and not before."""
    postgres.end_with_parent()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


class World:
    def __init__(self, folder, bin_folder, seed, lease):
        self.folder, self.rng, self.lease = folder, random.Random(seed), lease
        self.program = bin_folder / "hpv-cluster-host"
        self.server = postgres.Server([("synchronous_commit", "on")])
        self.server.start()
        self.wires = [wire.Wire(folder / f"wire{i}", self.server.folder) for i in range(HOSTS)]
        self.hosts = [None] * HOSTS
        self.starts = 0
        self.pauses = collections.defaultdict(list)  # Intervals by the name of a host's ledger.
        self.done = collections.Counter()
        self.logs = []
        for host in range(HOSTS):
            self.start_host(host)
        self.others = [self.begin("watch", f"watch-{t}", self.server.dsn(), "--tenant", f"t{t}") for t in range(TENANTS)]
        self.clients = [self.begin("client", f"c{i}", self.server.dsn(), "--seed", str(seed * 10 + i)) for i in range(2)]

    def begin(self, kind, name, dsn, *more, ledger=None):
        log = open(self.folder / f"{ledger or name}.err", "ab")
        self.logs.append(log)
        return subprocess.Popen([self.program, kind, "--dsn", dsn, "--name", name, "--lease-ms", str(int(self.lease * 1000)),
                                 "--ledger", str(self.folder / f"{ledger or name}.ledger"), *more], stderr=log,
                                preexec_fn=before_program)

    def start_host(self, host):
        self.starts += 1
        ledger = f"h{host}.{self.starts}"
        process = self.begin("host", f"h{host}", self.server.dsn(self.wires[host].folder), ledger=ledger)
        self.hosts[host] = (process, ledger)

    # --- Faults ---

    def kill(self, host):
        self.hosts[host][0].kill()
        self.hosts[host][0].wait()
        self.ended_at(host)
        time.sleep(self.rng.uniform(0, 1.5) * self.lease)
        self.start_host(host)

    def ended_at(self, host):
        """A killed host's runs ended with it."""
        with open(self.folder / f"{self.hosts[host][1]}.ledger", "a") as file:
            file.write(f"K - 0 {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}\n")

    def pause(self, host):
        process, ledger = self.hosts[host]
        begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.rng.uniform(0.2, 2.0) * self.lease)
        process.send_signal(signal.SIGCONT)
        # It takes a moment until its threads have run and it knows that its lease is over.
        self.pauses[ledger].append((begin, time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 1_000_000_000))

    def cut(self, host):
        self.wires[host].is_cut = True
        time.sleep(self.rng.uniform(0.2, 2.0) * self.lease)
        self.wires[host].is_cut = False

    def drain(self, host):
        self.hosts[host][0].terminate()
        code = self.hosts[host][0].wait(60)
        assert code == 0, f"A host that was drained ended with {code}."
        self.start_host(host)

    def stop_database(self, host):
        del host
        self.server.stop(signal.SIGINT)
        time.sleep(self.rng.uniform(0, 1.0) * self.lease)
        self.server.start()

    def crash_database(self, host):
        del host
        self.server.stop(signal.SIGQUIT)
        time.sleep(self.rng.uniform(0, 0.5) * self.lease)
        self.server.start()

    def fault(self):
        name = self.rng.choices(["kill", "pause", "cut", "drain", "stop_database", "crash_database"], [4, 4, 4, 2, 1, 1])[0]
        getattr(self, name)(self.rng.randrange(HOSTS))
        self.done[name] += 1
        time.sleep(self.rng.uniform(0, 0.5))

    # --- The end ---

    def settle(self):
        for client in self.clients:
            client.terminate()
        for client in self.clients:
            assert client.wait(120) == 0, "A client did not get its answers."
        end = time.monotonic() + 180
        while True:
            left = self.server.query("SELECT count(*) FROM cluster_jobs WHERE state < 2")
            if left == "0":
                break
            assert time.monotonic() < end, f"{left} jobs have not ended 180 s after the last fault."
            time.sleep(0.3)
        time.sleep(1)  # The watchers read the last events.
        for process in [host for host, _ in self.hosts] + self.others:
            process.terminate()
            assert process.wait(60) == 0

    def close(self):
        for process in [entry[0] for entry in self.hosts if entry] + self.others + self.clients:
            if process.poll() is None:
                process.kill()
                process.wait()
        for one in self.wires:
            one.close()
        self.server.close()
        for log in self.logs:
            log.close()


def lines(path):
    """Returns a ledger's lines as lists of words."""
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


class Judge:
    """Compares the ledgers with the rows."""

    def __init__(self, world):
        self.world, self.faults = world, []
        rows = world.server.query("SELECT tenant || '/' || id, state, fence, convert_from(result, 'UTF8') FROM cluster_jobs")
        self.jobs = {}
        for row in rows.splitlines():
            name, state, fence, result = row.split("|", 3)
            self.jobs[name] = (state, fence, result)

    def expect(self, is_so, sentence):
        if not is_so:
            self.faults.append(sentence)

    def ledgers(self, pattern):
        return sorted(self.world.folder.glob(pattern + ".ledger"))

    def acknowledged(self):
        count = 0
        for path in self.ledgers("c*"):
            for word in lines(path):
                state, fence, _ = self.jobs.get(word[1], (None, None, None))
                self.expect(state in ENDS, f"{word[1]} was acknowledged and is {state}.")
                if word[0] == "A":
                    count += 1
                else:
                    self.expect(state != "6", f"{word[1]} was cancelled and is DEAD.")
                del fence
        return count

    def effects(self):
        for name, (state, fence, result) in self.jobs.items():
            if state == "2":
                self.expect(result == f"{name.split('/')[1]}/{fence}", f"{name} has the result {result}; its last claim is {fence}.")
        twice = self.world.server.query("SELECT count(*) FROM (SELECT tenant, id FROM cluster_events WHERE state >= 2 "
                                        "GROUP BY tenant, id HAVING count(*) <> 1) AS twice")
        self.expect(twice == "0", f"{twice} jobs have more than one end.")

    def runs(self):
        """Returns the number of runs."""
        intervals, claims = collections.defaultdict(list), collections.Counter()
        for path in self.ledgers("h*"):
            ledger, active = path.stem, {}
            last = 0
            for word in lines(path):
                if word[0] == "P":  # It was as good as paused.
                    self.world.pauses[ledger].append((int(word[1]), int(word[2]) + 1_000_000_000))
                    continue
                job, fence, at = word[1], word[2], int(word[3])
                last = max(last, at)
                if word[0] == "S":
                    claims[job, fence] += 1
                    active[job, fence] = at
                elif word[0] == "E":
                    intervals[job].append((active.pop((job, fence)), at, ledger))
                else:
                    for (job, fence), begin in active.items():
                        intervals[job].append((begin, at, ledger))
                    active = {}
            for (job, fence), begin in active.items():
                intervals[job].append((begin, last, ledger))
        for (job, fence), count in claims.items():
            self.expect(count == 1, f"The claim {fence} of {job} was run {count} times.")
            self.expect(job in self.jobs, f"{job} ran and is not stored.")
        for job, runs in intervals.items():
            runs.sort()
            for (begin, end, ledger), (later, _, other) in zip(runs, runs[1:]):
                was_paused = any(a <= end and later <= b for a, b in self.world.pauses[ledger])
                self.expect(later >= end or was_paused, f"{job} ran in {ledger} and {other} at a time, "
                                                        f"{(end - later) / 1e6:.1f} ms long.")
        return sum(claims.values())

    def events(self):
        for tenant in range(TENANTS):
            seen = lines(self.world.folder / f"watch-{tenant}.ledger")
            numbers = [int(word[1]) for word in seen]
            self.expect(numbers == list(range(1, len(numbers) + 1)), f"The watcher of t{tenant} has gaps.")
            last = {word[2]: word[3] for word in seen}
            for name, (state, _, _) in self.jobs.items():
                if name.startswith(f"t{tenant}/"):
                    self.expect(last.get(name) == ENDS.get(state), f"A watcher saw {name} as {last.get(name)}; it is {ENDS.get(state)}.")

    def counters(self):
        left = self.world.server.query("SELECT count(*) FROM cluster_tenants WHERE waiting <> 0 OR running <> 0")
        self.expect(left == "0", f"{left} tenants have counters that are not zero.")
        left = self.world.server.query("SELECT (SELECT count(*) FROM cluster_needs) + (SELECT count(*) FROM cluster_waits) + "
                                       "(SELECT count(*) FROM cluster_ended)")
        self.expect(left == "0", f"{left} rows of needs, waits or ends are left.")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--faults", type=int, default=500)
    parser.add_argument("--lease", type=float, default=2.0, help="seconds; longer for slow machines")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--log", type=pathlib.Path)
    options = parser.parse_args()
    if postgres.programs() is None:
        print("PostgreSQL is not installed; nothing is tested.")
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-cluster-"))
    begin = time.monotonic()
    world = World(folder, options.bin.resolve(), options.seed, options.lease)
    is_good = False
    try:
        for _ in range(options.faults):
            world.fault()
        world.settle()
        judge = Judge(world)
        acknowledged, runs = judge.acknowledged(), judge.runs()
        judge.effects()
        judge.events()
        judge.counters()
        states = collections.Counter(ENDS.get(state, state) for state, _, _ in judge.jobs.values())
        text = (f"seed {options.seed}: {options.faults} faults ({', '.join(f'{n} {c}' for n, c in sorted(world.done.items()))}) in "
                f"{time.monotonic() - begin:.0f} s; {acknowledged} jobs acknowledged, {runs} runs by {world.starts} hosts; "
                f"{', '.join(f'{c} {n}' for n, c in sorted(states.items()))}; {len(judge.faults)} promises broken")
        print(text)
        for fault in judge.faults[:20]:
            print("BROKEN:", fault)
        if options.log:
            with open(options.log, "a") as file:
                file.write(text + "\n" + "".join(f"BROKEN: {fault}\n" for fault in judge.faults))
        is_good = not judge.faults and acknowledged > 0 and runs > 0
    finally:
        world.close()
        if is_good:
            shutil.rmtree(folder)
        else:
            print(f"The ledgers are in {folder}.")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
