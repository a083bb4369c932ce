#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests jobs end to end: hpvmctl's commands for them, and their state after a daemon is killed and started again.

    jobs.py BIN_FOLDER [TestCase.test ...]
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

from e2e import BIN, CANCELLED, CANNOT_PLACE, DEADLINE, FAILED, HERE, OK, UNREACHABLE, USAGE, Daemon, children, one_node, port

TIMED_OUT, INTERRUPTED = 124, 130
IN_OUT = (port("in", "in"), port("out", "out"))
CONFIG = """
[jobs]
running_per_tenant_max = 4
array_max = 100
dependencies_max = 8
[executor]
crashes_max = 100
"""


def add(amount=1):
    return one_node("add", IN_OUT, [("amount", amount)])


def busy(rounds, amount=1):
    """Returns a graph that runs for some milliseconds a round, then does the same as add."""
    return one_node("busy", IN_OUT, [("amount", amount), ("rounds", rounds)])


def spin():
    """Returns a graph that runs until it is stopped."""
    return one_node("spin", (port("out", "inout"),), instances="1")


def trap():
    """Returns a graph that divides by its input, which is 0."""
    return one_node("divide", IN_OUT)


def indexed():
    """Returns a graph that adds a symbol to a scalar: both can be an element's index."""
    document = one_node("add", ({**port("in", "in"), "shape": []}, {**port("out", "out"), "shape": []}),
                        [("amount", "s")], instances="1")
    document["symbols"] = ["s"]
    return document


def chatty():
    document = one_node("chatty", IN_OUT)
    document["modules"]["k"]["source"]["file"] = "debug.wasm"
    return document


class WithDaemon(unittest.TestCase):
    """WithDaemon has a private daemon for the whole class, with a small configuration."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-jobs-"))
        for name in ("kernels.wasm", "debug.wasm"):
            shutil.copy(HERE / name, cls.folder)
        (cls.folder / "hpvmd.toml").write_text(CONFIG)
        cls.start()

    @classmethod
    def start(cls):
        cls.daemon = Daemon(cls.folder / "daemon", "--devices", "cpu", "--config", cls.folder / "hpvmd.toml")
        ready = cls.daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + cls.daemon.log.read_text()

    @classmethod
    def kill(cls):
        cls.daemon.stop(signal.SIGKILL)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.process.send_signal(signal.SIGTERM)
        cls.daemon.process.send_signal(signal.SIGTERM)  # A second SIGTERM ends the daemon at once.
        code = cls.daemon.process.wait(30)
        log = cls.daemon.log.read_text()
        shutil.rmtree(cls.folder)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"

    def ctl(self, *arguments, code=OK, timeout=60, **more):
        done = self.daemon.ctl(*arguments, timeout=timeout, **more)
        self.assertEqual(done.returncode, code, f"{arguments}\nstdout: {done.stdout}\nstderr: {done.stderr}\n"
                                                f"log: {self.daemon.log.read_text()[-2000:]}")
        return done

    def popen(self, *arguments):
        process = subprocess.Popen([BIN / "hpvmctl", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env={**os.environ, "HPVM_SERVER": self.daemon.server})
        self.addCleanup(lambda: (process.poll() is None and process.kill(), process.wait(), process.stdout.close(),
                                 process.stderr.close()))
        return process

    def graph(self, document, values=(1, 2, 3), name="graph"):
        """Returns the arguments that name a document and its input."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        if not any(i["shape"] for i in document["inputs"].values()):
            return [path]
        np.save(self.folder / f"{name}.npy", np.asarray(values, np.int32))
        return [path, "--input", f"{next(iter(document['inputs']))}={self.folder / name}.npy"]

    def submit(self, document, *arguments, values=(1, 2, 3), code=OK, name="graph"):
        done = self.ctl("submit", "--detach", *self.graph(document, values, name), *arguments, code=code)
        return done.stdout.strip()

    def job(self, job_id):
        return json.loads(self.ctl("get", job_id, "-o", "json").stdout)[0]

    def state(self, job_id):
        return self.job(job_id)["state"].removeprefix("JOB_STATE_")

    def await_state(self, job_id, *states, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            state = self.state(job_id)
            if state in states:
                return state
            time.sleep(0.05)
        self.fail(f"{job_id} is {state}, not one of {states}; log: {self.daemon.log.read_text()[-2000:]}")

    def spinning(self, *arguments):
        job = self.submit(spin(), *arguments, values=[0], name="spin")
        self.await_state(job, "RUNNING")
        return job

    def executors(self):
        """Returns the daemon's children that run jobs; compilers are children of those."""
        stat = lambda pid: pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        found = []
        for pid in children(self.daemon.process.pid):
            try:
                if stat(pid) == "hpvm-executor":
                    found.append(pid)
            except OSError:
                pass
        return found

    def kill_executors(self):
        for pid in self.executors():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Commands(WithDaemon):
    def tearDown(self):
        live = self.daemon.ctl("list", "--state", "live", "--all", "-o", "name").stdout.split()
        if live:
            self.ctl("cancel", *live)
            self.daemon.ctl("wait", *live)

    def test_submit_get_wait(self):
        id_file = self.folder / "id"
        job = self.submit(add(), "--name", "nightly", "--label", "a=1", "--label", "b=", "--priority", "7", "--attempts", "2",
                          "--deadline", "10m", "--id-file", id_file, "--idempotency-key", "k-get")
        self.assertEqual(id_file.read_text(), job + "\n")
        self.ctl("wait", job, "--output", f"out_out={self.folder}/o.npy")
        self.assertEqual(np.load(self.folder / "o.npy").tolist(), [2, 3, 4])
        facts = self.job(job)
        self.assertEqual((facts["name"], facts["labels"], facts["priority"], facts["attempts_max"], facts["idempotency_key"],
                          facts["state"], facts["attempt"]),
                         ("nightly", {"a": "1", "b": ""}, 7, 2, "k-get", "JOB_STATE_SUCCEEDED", 1))
        self.assertEqual(round((int(facts["deadline_unix_ns"]) - int(facts["created_unix_ns"])) / 1e9), 600)
        text = self.ctl("get", job).stdout
        for want in (job, "SUCCEEDED", "nightly", "a=1, b=", "out_out: i32[3], 12 B kept", "1 of 2", "ago"):
            self.assertIn(want, text)
        self.assertNotIn("next", text)

    def test_submit_follows(self):
        done = self.ctl("submit", *self.graph(add()), "--output", f"out_out={self.folder}/f.npy", "--progress", "plain")
        self.assertIn("SUCCEEDED", done.stdout)
        self.assertIn("SUCCEEDED", done.stderr)
        self.assertEqual(np.load(self.folder / "f.npy").tolist(), [2, 3, 4])
        report = json.loads(self.ctl("submit", *self.graph(add()), "-o", "json").stdout)
        self.assertEqual(report["state"], "SUCCEEDED")
        self.assertEqual(self.ctl("submit", *self.graph(add()), "-o", "name").stdout[:4], "job-")
        answer = json.loads(self.ctl("submit", "--detach", *self.graph(add()), "-o", "json").stdout)
        self.assertEqual(answer["existed"], False)
        self.assertTrue(answer["job"]["idempotency_key"])

    def test_large_inputs_go_through_buffers_and_leave_none(self):
        values = np.arange(1_000_000, dtype=np.int32)
        self.ctl("submit", *self.graph(add(), values), "--output", f"out_out={self.folder}/l.npy")
        np.testing.assert_array_equal(np.load(self.folder / "l.npy"), values + 1)

    def test_lost_handles_and_buffers(self):
        """A program that dies leaves its handles and buffers behind; its tenant finds and releases them."""
        runner = self.popen("run", *self.graph(spin(), values=[0] * 100_000, name="lost"))
        end = time.monotonic() + 30
        while not self.ctl("graph", "list", "-o", "name").stdout or not self.ctl("buffer", "list", "-o", "name").stdout:
            self.assertLess(time.monotonic(), end, self.daemon.log.read_text()[-2000:])
            time.sleep(0.05)
        runner.kill()
        runner.wait()
        graphs = json.loads(self.ctl("graph", "list", "-o", "json").stdout)
        self.assertEqual([graph["name"] for graph in graphs], ["spin"])
        self.assertIn("spin", self.ctl("graph", "list").stdout)
        self.assertRegex(self.ctl("buffer", "list").stdout, "4[0-9]{2} KiB +shared memory")
        handle = graphs[0]["handle"]
        buffers = self.ctl("buffer", "list", "-o", "name").stdout.split()
        self.assertIn(handle, self.complete("hpvmctl", "graph", "release", "graph-"))
        self.ctl("graph", "release", handle)
        self.ctl("buffer", "delete", *buffers)
        self.assertEqual(self.ctl("graph", "list", "-o", "name").stdout, "")
        self.assertEqual(self.ctl("buffer", "list", "-o", "name").stdout, "")
        self.ctl("graph", "release", handle, code=USAGE)
        self.ctl("buffer", "delete", *buffers, code=USAGE)

    def test_formats(self):
        job = self.submit(add(), "--name", "x" * 255)
        self.ctl("wait", job)
        for words in (("list",), ("jobs",), ("jobs", "list")):
            lines = self.ctl(*words).stdout.splitlines()
            self.assertTrue(any(line.startswith(job) for line in lines))
            self.assertLessEqual(max(map(len, lines)), 100)
        self.assertIn("x" * 255, self.ctl("list", "-o", "wide").stdout)
        self.assertIn(job, self.ctl("list", "-o", "name").stdout.split())
        self.assertIn(job, [j["id"] for j in json.loads(self.ctl("list", "-o", "json").stdout)])
        for words in (("get",), ("jobs", "get")):
            self.assertEqual(self.ctl(*words, job, "-o", "name").stdout, job + "\n")
            self.assertIn("state", self.ctl(*words, job).stdout)
        self.assertEqual(len(self.ctl("get", job, job, "-o", "wide").stdout.splitlines()), 3)

    def test_keys(self):
        words = ("--idempotency-key", "k-keys")
        first = self.submit(add(), *words)
        again = self.ctl("submit", "--detach", *self.graph(add()), *words)
        self.assertEqual(again.stdout.strip(), first)
        self.assertIn("was used before", again.stderr)
        self.assertIn(first, again.stderr)
        large = np.arange(200_000, dtype=np.int32)  # The input goes through a buffer, a new one each time.
        one, two = (self.submit(add(), "--idempotency-key", "k-large", values=large) for _ in range(2))
        self.assertEqual(one, two)
        for document, values in ((add(2), (1, 2, 3)), (add(), (1, 2, 4))):
            other = self.ctl("submit", "--detach", *self.graph(document, values), *words, code=USAGE)
            self.assertIn("ALREADY_EXISTS", other.stderr)
        # A refused submit does not use up its key.
        self.ctl("submit", "--detach", *self.graph({**add(), "edges": []}), "--idempotency-key", "k-burnt", code=USAGE)
        self.submit(add(), "--idempotency-key", "k-burnt")
        # A job can be followed by its key.
        done = self.ctl("submit", *self.graph(add()), *words, "--output", f"out_out={self.folder}/k.npy")
        self.assertIn(first, done.stdout)
        self.assertEqual(np.load(self.folder / "k.npy").tolist(), [2, 3, 4])

    def test_after(self):
        first = self.submit(busy(300))
        second = self.submit(add(), "--after", first)
        text = self.ctl("get", second).stdout
        facts = self.job(second)
        if facts["state"] == "JOB_STATE_ACCEPTED":  # The job was also accepted when the text was made.
            self.assertIn(first, facts["waits_for"])
            self.assertIn(facts["waits_for"], text)
        self.ctl("wait", second)
        self.assertGreaterEqual(int(self.job(second)["started_unix_ns"]), int(self.job(first)["ended_unix_ns"]))

    def test_after_a_failure(self):
        broken = self.submit(trap(), values=[0])
        strict = self.submit(add(), "--after", broken)
        cleanup = self.submit(add(), "--after", f"{broken}:failed")
        last = self.submit(add(), "--after", f"{broken}:ended,{cleanup}", "--after", f"{cleanup}:ended")
        done = self.ctl("wait", strict, code=FAILED)
        for want in ("FAILED_PRECONDITION", broken, f"hpvmctl get {broken}"):
            self.assertIn(want, done.stderr)
        self.assertEqual(self.job(strict)["attempt"], 0)
        self.ctl("wait", cleanup, last)
        never = self.submit(add(), "--after", f"{cleanup}:failed")  # This condition can never become true.
        self.ctl("wait", never, code=FAILED)
        chain = self.submit(add(), "--after", never)
        self.assertIn(never, self.ctl("wait", chain, code=FAILED).stderr)

    def test_array(self):
        scalar = self.graph(indexed(), name="scalar")
        done = self.ctl("submit", *scalar, "--input", "in=@index", "--array", "2-11:3%2", "--array-symbol", "s", "--output",
                        f"out_out={self.folder}/r-{{index}}.npy", "--name", "sweep")
        self.assertIn("4 jobs: 4 SUCCEEDED", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 5)
        for index in (2, 5, 8, 11):
            self.assertEqual(int(np.load(self.folder / f"r-{index}.npy")), 2 * index)
        array = self.submit(indexed(), "--input", "in=@index", "--array", "0-4", "--array-symbol", "s")
        self.assertTrue(array.startswith("array-"), array)
        after = self.submit(add(), "--after", array)
        listed = json.loads(self.ctl("list", "--array", array, "-o", "json").stdout)
        self.assertEqual(sorted(int(j["array_index"]) for j in listed), [0, 1, 2, 3, 4])
        waited = self.ctl("wait", array, "--output", f"out_out={self.folder}/{{job}}.npy")
        for job in [line.split()[0] for line in waited.stdout.splitlines()[1:]]:
            self.assertTrue((self.folder / f"{job}.npy").exists(), waited.stdout)
        self.ctl("wait", after)
        got = self.ctl("get", array)
        self.assertIn("5 SUCCEEDED", got.stderr)
        self.assertIn("[4]", got.stdout)
        self.assertEqual(self.ctl("submit", "--detach", *scalar, "--input", "in=@index", "--array", "7", "--symbol", "s=1", "-o",
                                  "json").stdout.count('"array_job_ids"'), 1)

    def test_array_with_failures(self):
        array = self.submit(trap(), "--array", "0-4", values=[0])
        done = self.ctl("wait", array, code=FAILED)
        self.assertIn("5 FAILED", done.stderr)
        self.assertIn("2 more did not succeed", done.stderr)
        self.assertIn("trapped", done.stderr)
        again = self.ctl("retry", array, "--detach").stdout.split()
        self.assertEqual(len(set(again)), 5)
        self.ctl("wait", *again, code=FAILED)
        good = self.submit(add(), "--array", "0-1")
        self.ctl("wait", good)
        self.assertIn("no element", self.ctl("retry", good).stderr)

    def test_cancel_in_every_state(self):
        running = [self.spinning() for _ in range(4)]  # The largest number that the tenant may run.
        queued = self.submit(add())
        waiting = self.submit(add(), "--after", running[0])
        array = self.submit(add(), "--array", "0-9")
        self.assertEqual((self.state(queued), self.state(waiting)), ("QUEUED", "ACCEPTED"))
        done = self.ctl("cancel", queued, waiting, array)
        self.assertIn("10 jobs had not ended", done.stderr)
        for job in (queued, waiting):
            self.assertEqual(self.state(job), "CANCELLED")
        done = self.ctl("wait", array, code=CANCELLED)
        self.assertIn("10 CANCELLED", done.stderr)
        self.ctl("cancel", *running)
        for job in running:
            done = self.ctl("wait", job, code=CANCELLED)
            self.assertIn(f"hpvmctl retry {job}", done.stderr)
        # The documented `cancel $(list --state live -o name)` without a live job: the command gets no name.
        none = self.ctl("cancel")
        self.assertEqual(none.stdout, "")
        self.assertIn("no job was named", none.stderr)
        self.assertEqual(json.loads(self.ctl("-o", "json", "cancel").stdout), json.loads(self.ctl("-o", "json", "list", "--label", "no=ne").stdout))
        again = self.ctl("cancel", queued)
        self.assertIn("had already ended as CANCELLED", again.stderr)
        self.assertIn("NOT_FOUND", self.ctl("cancel", "job-" + "0" * 32, code=USAGE).stderr)

    def test_retry(self):
        first = self.submit(trap(), "--label", "a=1", values=[0])
        self.ctl("wait", first, code=FAILED)
        second = self.ctl("retry", first, "--detach", "--label", "b=2", "--deadline", "1h").stdout.strip()
        self.assertNotEqual(first, second)
        self.ctl("wait", second, code=FAILED)
        facts = self.job(second)
        self.assertEqual((facts["retry_of"], facts["labels"]), (first, {"a": "1", "b": "2"}))
        good = self.submit(add(5))
        self.ctl("wait", good)
        self.ctl("retry", good, "--output", f"out_out={self.folder}/re.npy")
        self.assertEqual(np.load(self.folder / "re.npy").tolist(), [6, 7, 8])
        one, two = (self.ctl("retry", good, "--detach", "--idempotency-key", "k-retry").stdout for _ in range(2))
        self.assertEqual(one, two)
        done = self.ctl("retry", self.spinning(), code=USAGE)
        self.assertIn("FAILED_PRECONDITION", done.stderr)

    def test_deadlines(self):
        blocker = self.spinning()
        waiting = self.submit(add(), "--after", blocker, "--deadline", "300ms")
        done = self.ctl("wait", waiting, code=DEADLINE)
        self.assertEqual(self.state(waiting), "EXPIRED")
        self.assertIn("--priority", done.stderr)
        late = self.submit(spin(), "--deadline", "500ms", values=[0])
        done = self.ctl("wait", late, code=DEADLINE)
        self.assertEqual(self.state(late), "FAILED")
        for want in ("DEADLINE_EXCEEDED", "hpvmctl retry", "--deadline"):
            self.assertIn(want, done.stderr)
        self.assertIn("deadline", self.ctl("submit", *self.graph(add()), "--deadline", "99d", code=USAGE).stderr)

    def test_lost_attempts_are_repeated_until_the_job_is_dead(self):
        job = self.spinning("--attempts", "2")
        self.kill_executors()
        end = time.monotonic() + 30
        while not (self.state(job) == "RUNNING" and self.job(job)["attempt"] == 2):
            self.assertLess(time.monotonic(), end, self.job(job))
            time.sleep(0.05)
        self.assertEqual(len(self.job(job)["lost_attempts"]), 1)
        self.assertIn("lost", self.ctl("get", job).stdout)
        self.kill_executors()
        done = self.ctl("wait", job, code=FAILED)
        self.assertEqual(self.state(job), "DEAD")
        for want in ("executor", "DEAD after 2 attempts", f"hpvmctl retry {job}", "Attempt 1 was lost"):
            self.assertIn(want, done.stderr)
        self.assertIn("next", self.ctl("get", job).stdout)
        self.submit(add())

    def test_an_attempt_that_is_lost_once_succeeds(self):
        job = self.submit(busy(400))
        self.await_state(job, "RUNNING")
        self.kill_executors()
        self.ctl("wait", job, "--output", f"out_out={self.folder}/l.npy")
        self.assertEqual(np.load(self.folder / "l.npy").tolist(), [2, 3, 4])
        self.assertGreaterEqual(self.job(job)["attempt"], 1)

    def test_logs(self):
        job = self.submit(chatty(), values=[6, 8])
        followed = self.ctl("logs", "-f", job)
        self.assertEqual(followed.stdout.splitlines(), ["node(0, 0, 0): in[0] is 6, half of it 3.0",
                                                        "node(1, 0, 0): in[1] is 8, half of it 4.0"])
        self.assertEqual(self.ctl("logs", job).stdout, followed.stdout)
        self.assertEqual(self.ctl("jobs", "logs", job).stdout, followed.stdout)
        self.assertEqual(len(json.loads(self.ctl("logs", job, "-o", "json").stdout)["lines"]), 2)
        self.assertIn("2 lines", self.ctl("get", job).stdout)
        running = self.spinning()
        self.assertIn("-f waits for that", self.ctl("logs", running).stderr)
        array = self.submit(chatty(), "--array", "0-1", values=[6])
        self.assertEqual(self.ctl("logs", "-f", array).stdout.count("half of it"), 2)

    def test_list_filters(self):
        jobs = [self.submit(add(), "--label", "set=filters", "--label", f"n={n}") for n in range(5)]
        failed = self.submit(trap(), "--label", "set=filters", values=[0])
        self.ctl("wait", *jobs, failed, code=FAILED)
        listed = lambda *words: self.ctl("list", "-o", "name", *words).stdout.split()
        self.assertEqual(listed("--label", "set=filters"), [failed, *reversed(jobs)])
        self.assertEqual(listed("-l", "set=filters", "-l", "n=3"), [jobs[3]])
        self.assertEqual(listed("-l", "set=filters", "--state", "failed,dead"), [failed])
        self.assertEqual(listed("-l", "set=filters", "--state", "live"), [])
        self.assertEqual(len(listed("-l", "set=filters", "--state", "ended")), 6)
        cut = self.ctl("list", "--limit", "2", "-l", "set=filters", "-o", "name")
        self.assertEqual(cut.stdout.split(), [failed, jobs[4]])
        self.assertIn("--all", cut.stderr)
        self.assertGreaterEqual(len(listed("--all")), 6)

    def test_list_watch(self):
        watch = self.popen("list", "--watch", "--label", "set=watch", "-o", "json")
        job = self.submit(add(), "--label", "set=watch")
        self.ctl("wait", job)
        states = []
        for line in watch.stdout:
            event = json.loads(line)
            self.assertEqual(event["id"], job)
            states.append(event["state"])
            if states[-1] == "JOB_STATE_SUCCEEDED":
                break
        self.assertEqual(states[-1], "JOB_STATE_SUCCEEDED")
        watch.kill()

    def test_wait_for_several(self):
        good, bad = self.submit(add()), self.submit(trap(), values=[0])
        running = self.spinning()
        done = self.ctl("wait", good, bad, code=FAILED)
        self.assertIn("1 SUCCEEDED, 1 FAILED", done.stderr)
        for words in ((running,), (good, running)):
            start = time.monotonic()
            late = self.ctl("wait", *words, "--timeout", "400ms", code=TIMED_OUT)
            self.assertLess(time.monotonic() - start, 10)
            self.assertIn("goes on", late.stderr)
            self.assertIn(f"hpvmctl wait {' '.join(words)}", late.stderr)
        self.assertEqual(self.state(running), "RUNNING")

    def test_interrupt_detaches(self):
        graph = self.graph(spin(), [0])
        submit = self.popen("submit", *graph, "--id-file", self.folder / "int-id")
        end = time.monotonic() + 20
        while not (self.folder / "int-id").exists() or not (self.folder / "int-id").read_text():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        job = (self.folder / "int-id").read_text().strip()
        self.await_state(job, "RUNNING")
        submit.send_signal(signal.SIGINT)
        self.assertEqual(submit.wait(10), INTERRUPTED)
        self.assertIn(f"hpvmctl wait {job}", submit.stderr.read())
        self.assertEqual(self.state(job), "RUNNING")

    def test_wrong_use(self):
        good = self.graph(add())
        scalar = self.graph(indexed(), name="scalar")
        cases = [
            (("submit", *good, "--array", "9-1"), "LAST (1) is before FIRST (9)"),
            (("submit", *good, "--array", "all"), "0-99"),
            (("submit", *good, "--array", "0-9", "--output", "out_out=x.npy"), "{index}"),
            (("submit", *good, "--array-symbol", "s"), "--array"),
            (("submit", *good, "--array", "0-9", "--array-symbol", "nosuch"), "nosuch"),
            (("submit", *scalar, "--symbol", "s=1", "--input", "in=@index"), "--array"),
            (("submit", scalar[0], "--symbol", "s=1"), "--input in="),
            (("submit", good[0], "--array", "0-1", "--input", "in=@index"), "rank 0"),
            (("run", *scalar, "--symbol", "s=1", "--input", "in=@index"), "--array"),
            (("submit", *good, "--after", "job-1:done"), "ID:ended"),
            (("submit", *good, "--after", "job-" + "0" * 32), "NOT_FOUND"),
            (("submit", *good, "--after", "array-" + "0" * 32), "NOT_FOUND"),
            (("submit", *good, "--after", "../../etc/passwd"), "passwd"),
            (("submit", *good, "--attempts", "0"), "--attempts"),
            (("submit", *good, "--attempts", "11"), "--attempts"),
            (("submit", *good, "--priority", "101"), "--priority"),
            (("submit", *good, "--deadline", "soon"), "soon"),
            (("submit", *good, "--deadline", "-1s"), "-1s"),
            (("submit", *good, "--label", "novalue"), "novalue"),
            (("submit", *good, "--label", "sp ace=1"), "sp ace"),
            (("submit", *good, "--name", "n" * 256), "255"),
            (("submit", *good, "--idempotency-key", "k" * 256), "255"),
            (("submit", *good, "--id-file", "/nowhere/id"), "/nowhere/id"),
            (("submit", *good, "--detatch"), "--detatch"),
            (("submit", *good, "--idempotency-key", ""), "--idempotency-key: It is empty"),
            (("submit", *good, "--array", ""), "--array: It is empty"),
            (("submit", *good, "--after", ""), "--after takes"),
            (("list", "--array", ""), "--array: It is empty"),
            (("cancell", "job-1"), 'did you mean "cancel"?'),
            (("get",), "job"),
            (("get", "job-" + "0" * 32), "NOT_FOUND"),
            (("get", "array-" + "0" * 32), "array-"),
            (("get", "nonsense"), "nonsense"),
            (("wait", "array-" + "0" * 32), "array-"),
            (("wait", "job-" + "0" * 32), "NOT_FOUND"),
            (("wait", "job-1", "job-2", "--output", "y=y.npy"), "{index}"),
            (("wait", "job-1", "--timeout", "never"), "never"),
            (("retry", "job-" + "0" * 32), "NOT_FOUND"),
            (("logs", "job-" + "0" * 32), "NOT_FOUND"),
            (("list", "--state", "runing"), "running"),
            (("list", "--limit", "0"), "--limit"),
            (("list", "--label", "x"), "NAME=VALUE"),
            (("list", "-o", "yml"), "yaml"),
            (("list", "--patience", "no"), "--patience"),
        ]
        for words, want in cases:
            with self.subTest(" ".join(map(str, words))[:120]):
                done = self.ctl(*words, code=USAGE)
                self.assertIn(want, done.stderr)
                self.assertEqual(done.stdout, "")

    def test_limits(self):
        good = self.graph(add())
        for words, want in (
                (("--array", "0-100"), "has 101 elements; the limit is 100"),
                (("--array", "0-18446744073709551615"), "has 2^64 elements"),
                (("--array", "0-18446744073709551615:18446744073709551615", "--after", "job-" + "0" * 32), "NOT_FOUND"),
                (("--after", ",".join(9 * ["job-" + "0" * 32])), "the limit is 8")):
            with self.subTest(words):
                done = self.daemon.ctl("submit", *good, *words)
                self.assertIn(done.returncode, (FAILED, USAGE))
                self.assertIn(want, done.stderr)

    def test_option_order_does_not_matter(self):
        path, option, value = self.graph(add())
        self.ctl("submit", option, value, "--label", "x=y", path)
        job = self.submit(add())
        self.ctl("-o", "json", "get", job)
        self.ctl("list", "--state", "live", "-o", "name")

    def test_help_has_an_example_for_every_command(self):
        for words in (("submit",), ("run",), ("get",), ("list",), ("wait",), ("cancel",), ("retry",), ("logs",), ("devices",),
                      ("jobs",), ("jobs", "get"), ("graph", "validate"), ("graph", "show"), ("kernel", "explain"),
                      ("module", "put"), ("completion",), ()):
            with self.subTest(words):
                text = self.ctl(*words, "--help").stdout
                self.assertIn("Example", text)
                self.assertIn("hpvmctl " + " ".join(words), text)

    def complete(self, *words):
        script = self.ctl("completion", "bash").stdout
        quoted = " ".join(f"'{w}'" for w in words)
        done = subprocess.run(["bash", "-c", script + f'\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _hpvmctl; '
                               'echo "${COMPREPLY[@]}"'], text=True, capture_output=True,
                              env={**os.environ, "HPVM_SERVER": self.daemon.server, "PATH": f"{BIN}:{os.environ['PATH']}"})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_completion(self):
        job = self.submit(add(), "--idempotency-key", "k-completion")
        self.assertEqual(self.complete("hpvmctl", "ret"), ["retry"])
        self.assertIn("--after", self.complete("hpvmctl", "submit", "--a"))
        self.assertIn(job, self.complete("hpvmctl", "wait", "job-"))
        self.assertIn(job, self.complete("hpvmctl", "jobs", "get", job[:12]))
        self.assertEqual(self.complete("hpvmctl", "list", "--state", "suc"), ["succeeded"])
        self.assertEqual(self.complete("hpvmctl", "get", "-o", "w"), ["wide"])
        for shell in ("bash", "zsh", "fish"):
            self.assertIn("retry", self.ctl("completion", shell).stdout)


def links_of(process):
    links = []
    for fd in os.listdir(f"/proc/{process.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{process.pid}/fd/{fd}"))
        except OSError:   # The descriptor was closed meanwhile.
            pass
    return links


class Restarts(WithDaemon):
    """The daemon ends in the middle, mostly by SIGKILL, and restarts with the same state."""

    def restart(self, seconds=0.3, how=signal.SIGKILL):
        self.daemon.process.send_signal(how)
        self.daemon.process.wait(60)
        time.sleep(seconds)
        self.start()

    def finish(self, process, code=OK, timeout=60):
        out, err = process.communicate(timeout=timeout)
        self.assertEqual(process.returncode, code, f"{out}\n{err}\n{self.daemon.log.read_text()[-3000:]}")
        return out, err

    def await_connection(self, process):
        """Waits until hpvmctl has a socket, and then the time that its first call takes, so that a slow start still meets the outage."""
        end = time.monotonic() + 20
        while not any(link.startswith("socket:") for link in links_of(process)):
            self.assertLess(time.monotonic(), end, "hpvmctl does not connect.")
            time.sleep(0.01)
        time.sleep(0.3)

    def test_wait_goes_on(self):
        job = self.submit(busy(3000))
        self.await_state(job, "RUNNING")
        wait = self.popen("wait", job, "--output", f"out_out={self.folder}/w.npy")
        self.await_connection(wait)
        self.restart()
        _, err = self.finish(wait)
        self.assertEqual(err.count("does not answer; trying again"), 1, err)
        self.assertEqual(np.load(self.folder / "w.npy").tolist(), [2, 3, 4])
        facts = self.job(job)
        self.assertEqual((facts["attempt"], len(facts["lost_attempts"])), (2, 1))
        self.assertIn("daemon", facts["lost_attempts"][0]["error"]["message"])

    def test_submit_follows_across_a_restart(self):
        submit = self.popen("submit", *self.graph(busy(1000)), "--output", f"out_out={self.folder}/s.npy", "--id-file",
                            self.folder / "s-id")
        while not (self.folder / "s-id").exists():
            time.sleep(0.05)
        self.restart()
        self.finish(submit)
        self.assertEqual(np.load(self.folder / "s.npy").tolist(), [2, 3, 4])

    def test_submits_in_the_middle_of_restarts_make_one_job_each(self):
        """Each submit has large inputs, so that restarts interrupt uploads, buffers and submits; then every key names one job."""
        graph = self.graph(add(), np.arange(300_000, dtype=np.int32))
        def one(n):
            return self.daemon.ctl("submit", "--detach", "--attempts", "10", *graph, "--idempotency-key", f"storm-{n}", "--label", "set=storm",
                                   "--connect-timeout", "30")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            running = [pool.submit(one, n) for n in range(36)]
            for _ in range(3):
                time.sleep(0.5)
                self.restart(0.1)
            answers = [r.result() for r in running]
        for answer in answers:
            self.assertEqual(answer.returncode, OK, answer.stderr)
        jobs = [answer.stdout.strip() for answer in answers]
        self.assertEqual(len(set(jobs)), len(jobs))
        for n in (0, 17, 35):
            self.assertEqual(one(n).stdout.strip(), jobs[n])
        listed = self.ctl("list", "--all", "--label", "set=storm", "-o", "name").stdout.split()
        self.assertEqual(sorted(listed), sorted(jobs))
        self.ctl("wait", *jobs, timeout=120)

    def test_keys_outlive_the_daemon(self):
        words = ("--idempotency-key", "k-over")
        first = self.submit(add(), *words)
        self.ctl("wait", first)
        self.restart(0)
        self.assertEqual(self.submit(add(), *words), first)
        self.assertIn("ALREADY_EXISTS", self.ctl("submit", *self.graph(add(9)), *words, code=USAGE).stderr)

    def test_outputs_and_logs_outlive_the_daemon(self):
        job, printed = self.submit(add()), self.submit(chatty(), values=[6])
        self.ctl("wait", job, printed)
        self.restart(0)
        self.ctl("wait", job, "--output", f"out_out={self.folder}/kept.npy")
        self.assertEqual(np.load(self.folder / "kept.npy").tolist(), [2, 3, 4])
        self.assertIn("half of it", self.ctl("logs", printed).stdout)

    def test_logs_follow_across_a_restart(self):
        first = self.submit(busy(500))
        printed = self.submit(chatty(), "--after", first, values=[6])
        logs = self.popen("logs", "--follow", printed)
        time.sleep(0.3)
        self.restart()
        out, _ = self.finish(logs)
        self.assertIn("half of it 3.0", out)

    def test_fetch_goes_on(self):
        values = np.arange(24 << 20, dtype=np.int32)  # 96 MiB.
        job = self.submit(add(), values=values)
        self.ctl("wait", job, timeout=120)
        target = self.folder / "big.npy"
        for delay in (0.1, 0.2, 0.05, 0.4, 0.02, 0.8):
            wait = self.popen("wait", job, "--output", f"out_out={target}")
            time.sleep(delay)
            self.restart(0.1)
            _, err = self.finish(wait, timeout=120)
            np.testing.assert_array_equal(np.load(target), values + 1)
            if "trying again" in err:
                return
        self.fail("the fetch always ended before the daemon did")

    def test_queues_outlive_the_daemon(self):
        first = self.submit(busy(600))
        array = self.submit(busy(20), "--array", "0-9%2", "--after", first)
        last = self.submit(add(), "--after", array)
        expired = self.submit(add(), "--after", last, "--deadline", "200ms")
        self.restart()
        self.ctl("wait", array, last, timeout=120)
        self.ctl("wait", expired, code=DEADLINE)
        facts = json.loads(self.ctl("list", "--array", array, "-o", "json").stdout)
        self.assertGreaterEqual(min(int(f["started_unix_ns"]) for f in facts), int(self.job(first)["ended_unix_ns"]))
        spans = sorted((int(f["started_unix_ns"]), int(f["ended_unix_ns"])) for f in facts)
        for start, _ in spans:
            self.assertLessEqual(sum(1 for s, e in spans if s <= start < e), 2, spans)

    def test_cancelled_before_stays_cancelled(self):
        running = self.submit(spin(), values=[0])
        self.await_state(running, "RUNNING")
        waiting = self.submit(add(), "--after", running)
        self.ctl("cancel", waiting, running)
        self.restart(0)
        self.assertEqual(self.state(waiting), "CANCELLED")
        self.ctl("wait", running, code=CANCELLED)

    def test_drained_attempts_are_not_spent(self):
        job = self.submit(spin(), "--attempts", "1", values=[0])
        self.await_state(job, "RUNNING")
        self.daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        self.restart(0, signal.SIGTERM)  # A second SIGTERM ends the daemon at once.
        self.await_state(job, "RUNNING")
        self.ctl("cancel", job)
        self.ctl("wait", job, code=CANCELLED)

    def test_a_server_that_stays_away_ends_the_wait(self):
        job = self.submit(spin(), values=[0])
        wait = self.popen("wait", job, "--patience", "1s")
        time.sleep(0.5)
        self.kill()
        _, err = self.finish(wait, UNREACHABLE)
        self.assertIn("trying again", err)
        submit = self.daemon.ctl("submit", "--detach", *self.graph(add()), "--connect-timeout", "0.3")
        self.assertEqual(submit.returncode, UNREACHABLE)
        self.start()
        self.ctl("cancel", job)
        self.ctl("wait", job, code=CANCELLED)

    def test_list_watch_goes_on(self):
        watch = self.popen("list", "--watch", "--label", "set=over", "-o", "name")
        time.sleep(0.3)
        self.restart()
        job = self.submit(add(), "--label", "set=over")
        self.assertEqual(watch.stdout.readline().strip(), job)
        watch.kill()


class Each(WithDaemon):
    """Tests many jobs in one call: submit --each."""

    def lines(self, count, **more):
        """Returns lines in which job i adds 1 to i."""
        for i in range(count):
            np.save(self.folder / f"each-{i}.npy", np.asarray([i, i], np.int32))
        path = self.folder / "each.jsonl"
        path.write_text("\n".join(json.dumps({"input": {"in": str(self.folder / f"each-{i}.npy")}, **more})
                                  for i in range(count)) + "\n")
        return path

    def each(self, lines, *arguments, document=None, code=OK):
        path = self.folder / "each.json"
        path.write_text(json.dumps(document or add()))
        return self.ctl("submit", path, "--each", lines, *arguments, code=code)

    def test_each_line_is_a_job(self):
        output = self.folder / "sum-{index}.npy"
        done = self.each(self.lines(40), "--output", f"out_out={output}", "-o", "json")
        self.assertEqual([j["state"] for j in json.loads(done.stdout)], ["JOB_STATE_SUCCEEDED"] * 40)
        for i in range(40):
            np.testing.assert_array_equal(np.load(self.folder / f"sum-{i + 1}.npy"), [i + 1, i + 1])

    def test_keys_make_the_same_jobs(self):
        first = self.each(self.lines(20), "--detach", "--idempotency-key", "each-7").stdout.split()
        self.assertEqual(len(set(first)), 20)
        self.kill()
        self.start()
        self.assertEqual(self.each(self.lines(20), "--detach", "--idempotency-key", "each-7").stdout.split(), first)
        more = self.each(self.lines(21), "--detach", "--idempotency-key", "each-7").stdout.split()
        self.assertEqual(more[:20], first)
        self.ctl("wait", *more)

    def test_one_bad_line(self):
        lines = self.lines(5)
        text = lines.read_text().splitlines()
        text[1] = json.dumps({**json.loads(text[1]), "key": "once"})
        text[3] = json.dumps({**json.loads(text[3]), "key": "once"})  # The key of another request.
        lines.write_text("\n".join(text))
        done = self.each(lines, "--detach", code=USAGE)
        self.assertEqual(len(done.stdout.split()), 4)
        self.assertIn("line 4", done.stderr)
        self.assertIn("once", done.stderr)
        self.ctl("wait", *done.stdout.split())
        for wrong, said in (('{"input": 5}', "line 1"), ('{"inptu": {}}', "inptu"), ("[1]", "object"), ("\n", "no line"),
                            ('{"input": {"nobody": "1"}}', "nobody"), ('{"graph": "-"}', "standard input")):
            lines.write_text(wrong)
            self.assertIn(said, self.each(lines, "--detach", code=USAGE).stderr)
        self.each(self.lines(1), "--array", "0-1", code=USAGE)

    def test_a_kill_in_the_middle_makes_each_once(self):
        lines = self.lines(100, label={"set": "kill"})
        path = self.folder / "each.json"
        path.write_text(json.dumps(add()))
        for delay in (0.05, 0.12, 0.2):
            submit = self.popen("submit", path, "--each", lines, "--detach", "--idempotency-key", "kill")
            time.sleep(delay)
            self.kill()
            self.start()
            out, err = submit.communicate(timeout=60)
            self.assertEqual(submit.returncode, OK, err)
            self.assertEqual(len(set(out.split())), 100)
        listed = self.ctl("list", "--all", "--label", "set=kill", "-o", "name").stdout.split()
        self.assertEqual(sorted(listed), sorted(out.split()))
        self.ctl("wait", *listed, timeout=120)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
