#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a cluster end to end: three daemons, a real PostgreSQL, and faults.

    cluster.py BIN_FOLDER [TestCase.test ...]
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import numpy as np

from e2e import BIN, CANCELLED, HERE, OK, USAGE, Daemon, children, one_node, port

sys.path.insert(0, str(HERE.parent / "cluster"))
import postgres  # noqa: E402

LEASE_S = 5
IN_OUT = (port("in", "in"), port("out", "out"))


def add(amount=1):
    return one_node("add", IN_OUT, [("amount", amount)])


def busy(rounds, amount=1):
    return one_node("busy", IN_OUT, [("amount", amount), ("rounds", rounds)])


def spin():
    return one_node("spin", (port("out", "inout"),), instances="1")


def indexed():
    document = one_node("add", ({**port("in", "in"), "shape": []}, {**port("out", "out"), "shape": []}),
                        [("amount", "s")], instances="1")
    document["symbols"] = ["s"]
    return document


def chatty():
    document = one_node("chatty", IN_OUT)
    document["modules"]["k"]["source"]["file"] = "debug.wasm"
    return document


class Cluster:
    """Cluster has a database, a folder of files, and daemons by name; `extra` is more of their configuration."""

    def __init__(self, names=("one", "two", "three"), extra="", **more):
        self.extra = extra
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-cluster-"))
        for name in ("kernels.wasm", "debug.wasm"):
            shutil.copy(HERE / name, self.folder)
        (self.folder / "blobs").mkdir()
        self.database = postgres.Server()
        self.database.start()
        self.hosts = {}
        for name in names:
            self.config(name, **more.get(name, {}))
        if extra:  # The first administrator's token is made before a daemon has the state folder.
            (self.folder / "one").mkdir()
            subprocess.run([BIN / "hpvmd", "--config", self.folder / "one.toml", "--state", self.folder / "one/state",
                            "--create-token", "local", "--role", "admin", "--output", self.folder / "admin.token"],
                           check=True, stdout=subprocess.DEVNULL, timeout=60)
        for name in names:
            self.start(name, **more.get(name, {}))
        for name in names:
            self.await_ready(name)

    def config(self, name, **keys):
        keys = {"database": f"postgresql://hpvm@/postgres?host={self.database.folder}", "blob_dir": f"{self.folder}/blobs",
                "host": name, "lease_ms": LEASE_S * 1000, "claims_max": 4, **keys}
        path = self.folder / f"{name}.toml"
        path.write_text(self.extra + "[executor]\ncrashes_max = 100\n[server]\ndrain_ms = 5000\n[cluster]\n" +
                        "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        return path

    def start(self, name, **keys):
        self.hosts[name] = Daemon(self.folder / name, "--devices", "cpu", "--config", self.config(name, **keys))

    def await_ready(self, name):
        token = ("--token-file", self.folder / "admin.token") if self.extra else ()
        ready = self.hosts[name].ctl("devices", "--connect-timeout", "30", *token)
        assert ready.returncode == OK, ready.stderr + self.hosts[name].log.read_text()

    def logs(self):
        return "\n".join(f"--- {name}\n{host.log.read_text()[-2500:]}" for name, host in self.hosts.items())

    def close(self):
        for host in self.hosts.values():
            if host.process.poll() is None:
                host.process.send_signal(signal.SIGCONT)
                host.process.send_signal(signal.SIGTERM)
                host.process.send_signal(signal.SIGTERM)  # The second one ends it at once.
        codes = {}
        for name, host in self.hosts.items():
            try:
                codes[name] = host.process.wait(30)
            except subprocess.TimeoutExpired:
                host.process.kill()
                codes[name] = "killed"
        self.database.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return codes


class WithCluster(unittest.TestCase):
    hosts = {"one": {}, "two": {}, "three": {}}

    @classmethod
    def setUpClass(cls):
        if postgres.programs() is None:
            raise unittest.SkipTest("PostgreSQL is not installed")
        cls.cluster = Cluster(tuple(cls.hosts), **cls.hosts)

    @classmethod
    def tearDownClass(cls):
        logs = cls.cluster.logs()
        killed = {name for name, host in cls.cluster.hosts.items() if host.process.poll() is not None}
        codes = cls.cluster.close()
        assert all(code == 0 for name, code in codes.items() if name not in killed), f"{codes}\n{logs}"

    def ctl(self, host, *arguments, code=OK, timeout=60, **more):
        done = self.cluster.hosts[host].ctl(*arguments, timeout=timeout, **more)
        self.assertEqual(done.returncode, code, f"{host}: {arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}\n"
                                                f"{self.cluster.logs()}")
        return done

    def graph(self, document, values=(1, 2, 3), name="graph"):
        path = self.cluster.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        if not any(i["shape"] for i in document["inputs"].values()):
            return [path]
        np.save(self.cluster.folder / f"{name}.npy", np.asarray(values, np.int32))
        return [path, "--input", f"{next(iter(document['inputs']))}={self.cluster.folder / name}.npy"]

    def submit(self, host, document, *arguments, values=(1, 2, 3), name="graph", **more):
        return self.ctl(host, "submit", "--detach", *self.graph(document, values, name), *arguments, **more).stdout.strip()

    def job(self, host, job_id):
        return json.loads(self.ctl(host, "get", job_id, "-o", "json").stdout)[0]

    def state(self, host, job_id):
        return self.job(host, job_id)["state"].removeprefix("JOB_STATE_")

    def await_state(self, host, job_id, *states, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            job = self.job(host, job_id)
            if job["state"].removeprefix("JOB_STATE_") in states:
                return job
            time.sleep(0.1)
        self.fail(f"{job_id} is {job['state']}, not one of {states}\n{self.cluster.logs()}")

    def spinning(self, host, *arguments):
        job_id = self.submit(host, spin(), *arguments, values=[0], name="spin")
        return job_id, self.await_state(host, job_id, "RUNNING")["host"]

    def listed(self, host):
        return {h["name"]: h for h in json.loads(self.ctl(host, "cluster", "hosts", "-o", "json").stdout)}


class Jobs(WithCluster):
    """Jobs that clients submit, follow and fetch at different hosts."""

    def test_anywhere(self):
        job_id = self.submit("one", add(5), "--label", "test=anywhere")
        self.ctl("two", "wait", job_id)
        job = self.job("three", job_id)
        self.assertEqual(job["state"], "JOB_STATE_SUCCEEDED")
        self.assertIn(job["host"], self.cluster.hosts)
        listed = self.ctl("three", "list", "--label", "test=anywhere", "-o", "name").stdout.split()
        self.assertEqual(listed, [job_id])
        # The outputs are at every host: a retry elsewhere needs the request and its files, too.
        bundle = self.cluster.folder / "bundle"
        self.ctl("two", "bundle", job_id, "--output", bundle)
        self.assertTrue(any(bundle.rglob("*.npy")), sorted(bundle.rglob("*")))
        again = self.ctl("three", "retry", "--detach", job_id).stdout.strip()
        self.assertEqual(self.await_state("one", again, "SUCCEEDED")["retry_of"], job_id)
        self.assertIn(job_id, self.ctl("one", "describe", job_id).stdout)

    def test_outputs(self):
        out = self.cluster.folder / "out.npy"
        self.ctl("two", "submit", *self.graph(add(7), name="outputs"), "--output", f"out_out={out}")
        np.testing.assert_array_equal(np.load(out), [8, 9, 10])

    def test_large_inputs_and_outputs(self):
        values = np.arange(1 << 20, dtype=np.int32)
        out = self.cluster.folder / "large.npy"
        for host in self.cluster.hosts:
            self.ctl(host, "submit", *self.graph(add(1), values, name=f"large-{host}"), "--output", f"out_out={out}")
            np.testing.assert_array_equal(np.load(out), values + 1)

    def test_logs(self):
        job_id = self.submit("one", chatty(), name="chatty")
        self.await_state("two", job_id, "SUCCEEDED")
        texts = {host: self.ctl(host, "logs", job_id).stdout for host in self.cluster.hosts}
        self.assertTrue(texts["one"].strip())
        self.assertEqual(len(set(texts.values())), 1, texts)

    def test_idempotency(self):
        graph = self.graph(add(3), name="same")
        submit = lambda host: self.ctl(host, "submit", "--detach", *graph, "--idempotency-key", "same").stdout.strip()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            ids = set(pool.map(submit, ["one", "two", "three"] * 2))
        self.assertEqual(len(ids), 1)
        refused = self.ctl("two", "submit", "--detach", *self.graph(add(4), name="other"), "--idempotency-key", "same",
                           code=USAGE)
        self.assertIn("was used with another request", refused.stderr)

    def test_dependencies(self):
        first = self.submit("one", busy(200), name="first")
        after = self.submit("two", add(), "--after", first, name="after")
        failed = self.submit("three", add(), "--after", f"{first}:failed", name="failed")
        ended = self.submit("one", add(), "--after", f"{after}:ended", name="ended")
        self.await_state("three", after, "SUCCEEDED")
        self.await_state("two", ended, "SUCCEEDED")
        job = self.await_state("one", failed, "FAILED")
        self.assertIn("comes after", job["error"]["message"])
        missing = self.ctl("one", "submit", "--detach", *self.graph(add()), "--after", "job-none", code=USAGE)
        self.assertIn("job-none", missing.stderr)

    def test_arrays(self):
        done = self.submit("one", indexed(), "--array", "0-11", "--input", "in=@index", "--symbol", "s=1", name="array")
        array = done.splitlines()[0]
        self.assertTrue(array.startswith("array-"), done)
        for host in self.cluster.hosts:
            self.ctl(host, "wait", array)
        done = self.submit("two", indexed(), "--array", "0-5", "--input", "in=@index", "--symbol", "s=1", "--hold", name="array")
        held = done.splitlines()[0]
        after = self.submit("three", add(), "--after", f"{array},{held}")
        never = self.submit("one", add(), "--after", f"{array}:failed")
        self.assertIn("comes after", self.await_state("two", never, "FAILED")["error"]["message"])
        self.assertEqual(self.state("one", after), "ACCEPTED")
        self.ctl("one", "release", held)
        self.await_state("one", after, "SUCCEEDED")

    def test_arrays_run_no_more_elements_at_a_time_than_they_may(self):
        array = self.submit("one", busy(30), "--array", "0-8%2", name="limited").splitlines()[0]
        self.ctl("two", "wait", array)
        elements = json.loads(self.ctl("three", "list", "--array", array, "-o", "json").stdout)
        self.assertEqual(len(elements), 9)
        changes = []
        for element in elements:
            changes += [(int(element["started_unix_ns"]), 1), (int(element["ended_unix_ns"]), -1)]
        running = most = 0
        for _, change in sorted(changes):
            running += change
            most = max(most, running)
        self.assertLessEqual(most, 2, changes)

    def test_arrays_are_held_and_cancelled(self):
        array = self.submit("one", indexed(), "--array", "0-19", "--input", "in=@index", "--symbol", "s=1", "--hold",
                            name="held").splitlines()[0]
        self.ctl("two", "release", array)
        self.ctl("three", "wait", array)
        array = self.submit("one", indexed(), "--array", "0-19", "--input", "in=@index", "--symbol", "s=1", "--hold",
                            name="held").splitlines()[0]
        self.ctl("three", "cancel", array)
        self.ctl("two", "wait", array, code=CANCELLED)

    def test_cancel(self):
        job_id, host = self.spinning("one")
        other = next(name for name in self.cluster.hosts if name != host)
        began = time.monotonic()
        self.ctl(other, "cancel", job_id)
        job = self.await_state(other, job_id, "CANCELLED")
        print(f"\ncancelled at another host: {time.monotonic() - began:.2f} s")
        self.assertEqual(job["error"]["message"], "The job was cancelled.")
        waiting = self.submit("one", add(), "--needs", "label:nowhere")
        self.ctl("two", "cancel", waiting)
        self.assertEqual(self.state("three", waiting), "CANCELLED")

    def test_deadlines(self):
        running = self.submit("one", spin(), "--deadline", "2s", values=[0], name="late")
        waiting = self.submit("two", add(), "--deadline", "1s", "--needs", "label:nowhere")
        self.assertIn("deadline", self.await_state("two", running, "FAILED")["error"]["message"])
        self.assertIn("before it started", self.await_state("one", waiting, "EXPIRED")["error"]["message"])

    def test_hold(self):
        job_id = self.submit("one", add(), "--hold")
        job = self.job("two", job_id)
        self.assertTrue(job["hold"]["by"])
        self.ctl("three", "hold", job_id, "--reason", "not yet")
        self.ctl("two", "release", job_id)
        self.await_state("three", job_id, "SUCCEEDED")

    def test_wait_sees_other_hosts(self):
        job_id, host = self.spinning("one")
        watchers = [subprocess.Popen([BIN / "hpvmctl", "wait", job_id], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                     env={**os.environ, "HPVM_SERVER": self.cluster.hosts[name].server})
                    for name in self.cluster.hosts]
        time.sleep(1)
        self.assertTrue(all(watcher.poll() is None for watcher in watchers))
        self.ctl(host, "cancel", job_id)
        self.assertEqual([watcher.wait(20) for watcher in watchers], [CANCELLED] * 3)

    def test_watch_of_all_jobs(self):
        path = self.cluster.folder / "watch"
        with path.open("w") as out:
            watch = subprocess.Popen([BIN / "hpvmctl", "list", "--watch", "-o", "jsonl", "--label", "test=watch"], stdout=out,
                                     stderr=subprocess.STDOUT,
                                     env={**os.environ, "HPVM_SERVER": self.cluster.hosts["three"].server})
        self.addCleanup(lambda: (watch.kill(), watch.wait()))
        time.sleep(1)
        ids = [self.submit(host, add(), "--label", "test=watch", name=f"watch-{host}") for host in ("one", "two")]
        for job_id in ids:
            self.await_state("one", job_id, "SUCCEEDED")
        end = time.monotonic() + 10
        while time.monotonic() < end and not all(f'"{job_id}"' in path.read_text() for job_id in ids):
            time.sleep(0.1)
        text = path.read_text()
        for job_id in ids:
            self.assertTrue(any(job_id in line and "SUCCEEDED" in line for line in text.splitlines()), text)


class Placement(WithCluster):
    hosts = {"one": {"labels": "lab, ssd", "memory_bytes": 1 << 30}, "two": {}, "three": {"role": "api"}}

    def test_words(self):
        for arguments in (("--needs", "label:lab"), ("--on-host", "one"), ("--host-memory", "512MiB"),
                          ("--needs", "kind:cpu", "--needs", "label:ssd")):
            job_id = self.submit("two", add(), *arguments)
            self.assertEqual(self.await_state("two", job_id, "SUCCEEDED")["host"], "one", arguments)
        waiting = [self.submit("one", add(), *arguments) for arguments in
                   (("--needs", "kind:gpu"), ("--needs", "label:nowhere"), ("--on-host", "nobody"), ("--host-memory", "2GiB"))]
        time.sleep(1)
        for job_id in waiting:
            self.assertEqual(self.state("three", job_id), "ACCEPTED")
            self.ctl("three", "cancel", job_id)

    def test_roles(self):
        jobs = [self.submit("three", add(), "--label", "test=roles") for _ in range(10)]
        hosts = {self.await_state("three", job_id, "SUCCEEDED")["host"] for job_id in jobs}
        self.assertNotIn("three", hosts)
        self.assertNotIn("three", self.listed("three"))

    def test_cordon_and_drain(self):
        self.ctl("three", "cluster", "cordon", "one")
        jobs = [self.submit("one", add()) for _ in range(6)]
        self.assertEqual({self.await_state("one", job_id, "SUCCEEDED")["host"] for job_id in jobs}, {"two"})
        self.ctl("three", "cluster", "uncordon", "one")
        job_id, host = self.spinning("two")
        other = "two" if host == "one" else "one"
        self.ctl("three", "cluster", "drain", host, "--wait", timeout=90)
        job = self.await_state("three", job_id, "RUNNING")
        self.assertEqual(job["host"], other)
        self.assertEqual(job["attempts_counted"], 1)
        self.assertEqual(self.listed("three")[host]["jobs"], "0")
        self.ctl("three", "cluster", "uncordon", host)
        self.ctl("three", "cancel", job_id)
        self.assertIn("nobody", self.ctl("three", "cluster", "cordon", "nobody", code=USAGE).stderr)

    def test_backup(self):
        """The backup of a host says that it lacks the cluster's jobs."""
        done = subprocess.run([BIN / "hpvmd", "--config", self.cluster.folder / "one.toml", "--state",
                               self.cluster.folder / "one/state", "--backup", self.cluster.folder / "backup"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("cluster.blob_dir", done.stdout)
        self.assertTrue((self.cluster.folder / "backup/audit").exists())

    def test_local_intake(self):
        """A host whose own intake is closed claims nothing."""
        self.ctl("one", "cordon")
        time.sleep(2)
        jobs = [self.submit("one", add()) for _ in range(6)]
        self.assertEqual({self.await_state("one", job_id, "SUCCEEDED")["host"] for job_id in jobs}, {"two"})
        self.ctl("one", "readmit")


class Faults(WithCluster):
    def test_1_kill(self):
        job_id, host = self.spinning("one")
        others = [name for name in self.cluster.hosts if name != host]
        self.cluster.hosts[host].stop(signal.SIGKILL)
        began = time.monotonic()
        end = began + 30
        while self.job(others[0], job_id)["host"] == host and time.monotonic() < end:
            time.sleep(0.05)
        took = time.monotonic() - began
        print(f"\nfail-over with a lease of {LEASE_S} s: {took:.1f} s")
        self.assertLess(took, LEASE_S + 10)
        job = self.await_state(others[1], job_id, "RUNNING")
        self.assertIn(job["host"], others)
        self.assertEqual(job["attempt"], 2)
        self.assertEqual(self.listed(others[0])[host]["state"], "STATE_LOST")
        self.ctl(others[0], "cancel", job_id)
        self.cluster.start(host)
        self.cluster.await_ready(host)

    def test_2_pause(self):
        job_id, host = self.spinning("one")
        other = next(name for name in self.cluster.hosts if name != host)
        paused = self.cluster.hosts[host].process
        executors = children(paused.pid)
        for pid in [paused.pid, *executors]:
            os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + 30
        while self.job(other, job_id)["host"] == host and time.monotonic() < end:
            time.sleep(0.1)
        job = self.await_state(other, job_id, "RUNNING")
        self.assertNotEqual(job["host"], host)
        for pid in [*executors, paused.pid]:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        time.sleep(3)
        after = self.job(host, job_id)
        self.assertEqual((after["state"], after["host"]), ("JOB_STATE_RUNNING", job["host"]))
        self.ctl(host, "cancel", job_id)
        self.await_state(host, job_id, "CANCELLED")
        pinned = self.submit(other, add(), "--on-host", host)
        self.await_state(other, pinned, "SUCCEEDED")

    def test_3_stop(self):
        """A host that is stopped gives back what does not end in time, and the attempt does not count."""
        job_id, host = self.spinning("one")
        others = [name for name in self.cluster.hosts if name != host]
        self.assertEqual(self.cluster.hosts[host].stop(timeout=60), 0)
        job = self.await_state(others[0], job_id, "RUNNING")
        self.assertIn(job["host"], others)
        self.assertEqual(job["attempts_counted"], 1)
        self.assertEqual(self.listed(others[0])[host]["state"], "STATE_LEFT")
        self.ctl(others[0], "cancel", job_id)
        self.cluster.start(host)
        self.cluster.await_ready(host)

    def test_4_rolling(self):
        """Three hosts are restarted one after the other under load; no call fails, and no job is lost."""
        stop = []

        def load(number):
            ids = []
            while not stop:
                host = ("one", "two", "three")[number % 3]
                done = self.cluster.hosts[host].ctl("submit", "--detach", *self.graph(busy(20), name=f"load-{number}"),
                                                    "--patience", "60s", "--connect-timeout", "60", timeout=120)
                if done.returncode != OK:
                    return ids, done.stderr
                ids.append(done.stdout.strip())
                number += 3
                time.sleep(0.1)
            return ids, ""

        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            loads = [pool.submit(load, number) for number in range(3)]
            try:
                for host in ("one", "two", "three"):
                    time.sleep(1)
                    self.assertEqual(self.cluster.hosts[host].stop(timeout=60), 0)
                    self.cluster.start(host)
                    self.cluster.await_ready(host)
            finally:
                stop.append(True)
            results = [load.result() for load in loads]
        ids = [job_id for found, _ in results for job_id in found]
        self.assertEqual([error for _, error in results], ["", "", ""])
        self.assertGreater(len(ids), 20)
        for job_id in ids:
            self.await_state("one", job_id, "SUCCEEDED", seconds=60)
        print(f"\nrolling restart: {len(ids)} jobs, none lost, no failed call")

    def test_5_database(self):
        """Runs go on while the database is down; what was acknowledged is done afterwards."""
        jobs = [self.submit("one", busy(50), name=f"before-{i}") for i in range(6)]
        self.cluster.database.stop(signal.SIGQUIT)
        time.sleep(1)
        for host in self.cluster.hosts:
            self.ctl(host, "run", *self.graph(add(2), name=f"down-{host}"))
        failed = self.cluster.hosts["two"].ctl("submit", "--detach", *self.graph(add()), "--patience", "1s")
        self.assertNotEqual(failed.returncode, OK)
        self.assertIn("database", failed.stderr)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            patient = pool.submit(self.submit, "three", add(9), "--patience", "60s", name="patient")
            time.sleep(3)
            self.cluster.database.start()
            jobs.append(patient.result(90))
        for job_id in jobs:
            self.await_state("two", job_id, "SUCCEEDED", seconds=60)

    def test_6_two_of_a_name(self):
        folder = self.cluster.folder / "twin"
        twin = Daemon(folder, "--devices", "cpu", "--config", self.cluster.folder / "one.toml")
        try:
            ready = twin.ctl("devices", "--connect-timeout", "30")
            self.assertEqual(ready.returncode, OK, ready.stderr + twin.log.read_text())
            time.sleep(3)
            log = twin.log.read_text()
            self.assertIn("two daemons have one name", log)
            self.assertLess(log.count("two daemons have one name"), 5)
            jobs = [self.submit("one", add(), "--on-host", "one") for _ in range(4)]
            for job_id in jobs:
                self.await_state("two", job_id, "SUCCEEDED")
            self.assertNotIn("Job claimed", twin.log.read_text())
        finally:
            twin.stop(timeout=60)

    def test_7_files(self):
        """A file of a job that is missing, or damaged, ends the job with DATA_LOSS, and nothing else."""
        for damage in ("missing", "damaged"):
            values = np.random.default_rng(len(damage)).integers(0, 1000, 100_000).astype(np.int32)
            before = set((self.cluster.folder / "blobs").rglob("*"))
            job_id = self.submit("one", add(), "--hold", values=values, name=damage)
            made = [path for path in (self.cluster.folder / "blobs").rglob("*")
                    if path not in before and path.is_file() and path.stat().st_size == values.nbytes]
            self.assertEqual(len(made), 1)
            if damage == "missing":
                made[0].unlink()
            else:
                with made[0].open("r+b") as file:
                    file.write(b"\xff" * 64)
            self.ctl("two", "release", job_id)
            job = self.await_state("two", job_id, "FAILED", "DEAD")
            self.assertEqual((job["state"], job["error"]["code"]), ("JOB_STATE_FAILED", 15), job)
        self.await_state("one", self.submit("one", add()), "SUCCEEDED")


class Identity(unittest.TestCase):
    """Tenants and tokens hold on every host."""

    STALE_S = 3

    @classmethod
    def setUpClass(cls):
        if postgres.programs() is None:
            raise unittest.SkipTest("PostgreSQL is not installed")
        cls.cluster = Cluster(("one", "two"), extra=f"[auth]\ntokens = true\n[identity]\nstale_ms = {cls.STALE_S * 1000}\n")
        cls.admin = cls.cluster.folder / "admin.token"

    @classmethod
    def tearDownClass(cls):
        logs = cls.cluster.logs()
        codes = cls.cluster.close()
        assert set(codes.values()) == {0}, f"{codes}\n{logs}"

    def ctl(self, host, token, *arguments, code=OK):
        done = self.cluster.hosts[host].ctl(*arguments, "--token-file", token)
        self.assertEqual(done.returncode, code, f"{host}: {arguments}\n{done.stdout}\n{done.stderr}\n{self.cluster.logs()}")
        return done

    def until(self, host, token, accepted, seconds=10):
        """Returns how long it took until the host accepted the token, or refused it."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            done = self.cluster.hosts[host].ctl("whoami", "--token-file", token, "--patience", "1ms")
            if (done.returncode == OK) == accepted:
                return time.monotonic() - began, done.stderr
            time.sleep(0.02)
        self.fail(f"{host}: accepted is not {accepted}: {done.stdout} {done.stderr}\n{self.cluster.logs()}")

    def test_1_tokens(self):
        token = self.cluster.folder / "lab.token"
        self.ctl("one", self.admin, "tenant", "create", "lab")
        time.sleep(1)  # The other host learns of the tenant.
        token_id = self.ctl("two", self.admin, "token", "create", "--tenant", "lab", "--output", token).stdout.split()[0]
        took, _ = self.until("one", token, True)
        print(f"\na token that was made at another host is accepted after {took:.2f} s")
        self.ctl("two", self.admin, "token", "revoke", token_id)
        self.until("two", token, False)
        took, error = self.until("one", token, False)
        print(f"a token that was revoked at another host is refused after {took:.2f} s")
        self.assertLess(took, self.STALE_S)
        self.assertIn("UNAUTHENTICATED", error)

    def test_2_disabled(self):
        """A tenant that is disabled at one host runs nothing at another."""
        self.ctl("one", self.admin, "tenant", "create", "off")
        token = self.cluster.folder / "off.token"
        self.ctl("one", self.admin, "token", "create", "--tenant", "off", "--output", token)
        self.until("two", token, True)
        self.ctl("one", self.admin, "tenant", "disable", "off", "--reason", "done")
        _, error = self.until("two", token, False)
        self.assertIn("disabled", error)

    def test_2_deleted(self):
        """A tenant that is made anew under the name of a deleted one finds nothing of it, at any host."""
        token = self.cluster.folder / "gone.token"

        def make():
            self.ctl("one", self.admin, "tenant", "create", "gone")
            self.ctl("one", self.admin, "token", "create", "--tenant", "gone", "--output", token, "--replace")
            self.until("two", token, True)

        def buffers():
            return json.loads(self.ctl("two", token, "buffer", "list", "-o", "json").stdout)

        make()
        script = ("import hpvm, numpy, os, sys; client = hpvm.connect(sys.argv[1], credentials=hpvm.Credentials(token_file=sys.argv[2])); "
                  "client.buffer(numpy.ones(4, 'f4')); os._exit(0)")
        path = f"{BIN.parent}/python:{os.environ.get('PYTHONPATH', '')}"
        subprocess.run(["/usr/bin/python3", "-c", script, self.cluster.hosts["two"].server, str(token)], check=True,
                       env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(len(buffers()), 1)
        graph = self.cluster.folder / "gone.json"
        graph.write_text(json.dumps(add()))
        np.save(self.cluster.folder / "gone.npy", np.ones(3, np.int32))
        for host in ("one", "two"):
            self.ctl(host, token, "submit", graph, "--input", f"in={self.cluster.folder}/gone.npy")
        self.ctl("one", self.admin, "tenant", "disable", "gone")
        self.ctl("one", self.admin, "tenant", "delete", "gone", "--yes")
        make()
        self.assertEqual(json.loads(self.ctl("two", token, "list", "-o", "json").stdout), [])
        end = time.monotonic() + 10
        while buffers() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(buffers(), [])

    def test_3_agent(self):
        """An agent's user of the database runs jobs, and reads no tokens."""
        self.cluster.database.query("CREATE ROLE agent LOGIN")
        done = subprocess.run([BIN / "hpvmd", "--config", self.cluster.folder / "one.toml", "--grant-agent", "agent"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, OK, done.stderr)
        extra, self.cluster.extra = self.cluster.extra, ""  # It has no part in the tenants.
        self.cluster.start("agent", role="agent",
                           database=f"postgresql://agent@/postgres?host={self.cluster.database.folder}")
        self.cluster.await_ready("agent")
        self.cluster.extra = extra
        graph = self.cluster.folder / "agent.json"
        graph.write_text(json.dumps(add()))
        np.save(self.cluster.folder / "agent.npy", np.asarray([1], np.int32))
        arguments = (graph, "--input", f"in={self.cluster.folder}/agent.npy")
        self.ctl("one", self.admin, "submit", *arguments, "--on-host", "agent")
        refused = self.cluster.hosts["agent"].ctl("submit", *arguments)
        self.assertIn("only runs jobs", refused.stderr)
        for table in ("cluster_identity_tokens", "cluster_identity_tenants"):
            read = subprocess.run([self.cluster.database.bin / "psql", "-d",
                                   f"host={self.cluster.database.folder} user=agent dbname=postgres", "-c",
                                   f"SELECT * FROM {table}"], capture_output=True, text=True, timeout=60)
            self.assertIn("permission denied", read.stderr)
        self.assertEqual(self.cluster.hosts["agent"].stop(timeout=60), 0)

    def test_4_without_database(self):
        self.cluster.database.stop(signal.SIGQUIT)
        self.ctl("one", self.admin, "whoami")
        took, error = self.until("one", self.admin, False, seconds=self.STALE_S + 10)
        print(f"\nwithout the database an identity is accepted for {took:.1f} s")
        self.assertGreater(took, self.STALE_S - 2.5)
        self.assertIn("identities were last confirmed", error)
        self.cluster.database.start()
        self.until("one", self.admin, True, seconds=30)


class Metrics(unittest.TestCase):
    @unittest.skipIf(postgres.programs() is None, "PostgreSQL is not installed")
    def test_lost_hosts(self):
        cluster = Cluster(("one", "two"), extra='[metrics]\nlisten = "127.0.0.1:0"\n')
        try:
            text = cluster.hosts["one"].log.read_text()
            address = re.search(r"Serving metrics and health.* address=\"?([0-9.:]+)", text).group(1)

            def await_value(name, value, seconds=40):
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                        lines = answer.read().decode().splitlines()
                    if f"{name} {value}" in lines:
                        return
                    time.sleep(0.3)
                self.fail(f"{name} is not {value}: {[line for line in lines if 'cluster' in line]}")

            await_value('hpvm_cluster_hosts{state="live"}', 2)
            await_value("hpvm_cluster_has_lease", 1)
            await_value("hpvm_cluster_database_answers", 1)
            cluster.hosts["two"].stop(signal.SIGKILL)
            await_value('hpvm_cluster_hosts{state="lost"}', 1)
            cluster.database.stop(signal.SIGINT)
            await_value("hpvm_cluster_database_answers", 0)
            cluster.database.start()
            await_value("hpvm_cluster_database_answers", 1)
            await_value("hpvm_cluster_has_lease", 1)
        finally:
            cluster.close()


class BadStart(unittest.TestCase):
    """Daemons that cannot join say why, and end."""

    @classmethod
    def setUpClass(cls):
        if postgres.programs() is None:
            raise unittest.SkipTest("PostgreSQL is not installed")
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-cluster-"))
        (cls.folder / "blobs").mkdir()
        cls.database = postgres.Server()
        cls.database.start()

    @classmethod
    def tearDownClass(cls):
        cls.database.close()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def refused(self, *expected, **keys):
        keys = {"database": f"postgresql://hpvm@/postgres?host={self.database.folder}", "blob_dir": f"{self.folder}/blobs",
                "host": "one", **keys}
        config = self.folder / "hpvmd.toml"
        config.write_text("[cluster]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
        daemon = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", config)
        code = daemon.process.wait(60)
        text = daemon.log.read_text()
        daemon.log.unlink()
        self.assertNotEqual(code, 0)
        for part in expected:
            self.assertIn(part, text)

    def test_refusals(self):
        here = self.database.folder
        self.refused("gone", blob_dir=f"{self.folder}/gone")
        self.refused("nobody", database=f"postgresql://nobody@/postgres?host={here}")
        self.refused("other", database=f"postgresql://hpvm@/other?host={here}")
        self.refused("has a password", database="postgresql://hpvm:secret@db/hpvm")
        self.refused("neither postgresql", database="mysql://hpvm@db/hpvm")
        self.refused("cluster.role", role="both")
        self.refused("PostgreSQL", database=f"postgresql://hpvm@/postgres?host={self.folder}")

    def test_later_tables(self):
        config = {"database": f"postgresql://hpvm@/later?host={self.database.folder}"}
        self.database.query("CREATE DATABASE later")
        self.refused("gone", blob_dir=f"{self.folder}/gone", **config)  # It makes the tables first.
        done = subprocess.run([self.database.bin / "psql", "-d", f"host={self.database.folder} user=hpvm dbname=later", "-c",
                               "UPDATE cluster_meta SET value = 99 WHERE name IN ('version', 'least_version')"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refused("need a release that knows version 99", **config)

    def test_own_jobs(self):
        """Jobs of the host's own store that have not ended keep it from joining."""
        shutil.copy(HERE / "kernels.wasm", self.folder)
        graph = self.folder / "graph.json"
        graph.write_text(json.dumps(add()))
        np.save(self.folder / "in.npy", np.asarray([1], np.int32))
        alone = Daemon(self.folder / "daemon", "--devices", "cpu")
        held = alone.ctl("submit", "--hold", graph, "--input", f"in={self.folder}/in.npy", "--connect-timeout", "30")
        self.assertEqual(held.returncode, OK, held.stderr)
        self.assertEqual(alone.stop(), 0)
        alone.log.unlink()
        self.refused("1 jobs that have not ended")
        shutil.rmtree(self.folder / "daemon")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
