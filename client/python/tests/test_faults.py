#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that stop, and clients that are closed, interrupted, forked, or end with runs in flight."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings

import numpy as np

import support
from support import hpvm

ZERO = {"out": np.zeros(1, "i4")}
BEGIN = """
import sys, os, signal, threading, time
sys.argv = ["test", sys.argv[1], *sys.argv[2:]]
import support, hpvm, numpy as np
client = hpvm.connect(sys.argv[2])
ZERO = {"out": np.zeros(1, "i4")}
"""


class Faults(support.WithServer):
    def in_progress(self, count):
        return lambda: self.running_now() == count

    def running_now(self):
        return {r.resource: r.used for r in self.client.admin.usage().resources}["running-jobs"]

    def tearDown(self):
        support.wait_until(self.in_progress(0), what="the end of all runs")

    def test_a_client_that_is_closed_during_a_call(self):
        client = hpvm.connect(self.server)
        spin = client.prepare(support.spin())
        caught = []

        def run():
            try:
                spin.run(ZERO)
            except hpvm.HpvmError as error:
                caught.append(error)

        runs = [threading.Thread(target=run) for _ in range(3)]
        for thread in runs:
            thread.start()
        support.wait_until(self.in_progress(3), what="three runs")
        client.close()
        client.close()
        for thread in runs:
            thread.join(10)
        self.assertEqual([type(error) for error in caught], [hpvm.ClosedError] * 3)
        for call in (lambda: spin.run(ZERO), client.devices, lambda: client.buffer(np.zeros(3, "f4")), spin.release):
            with self.assertRaises(hpvm.ClosedError):
                call()

    def test_time_is_up(self):
        spin = self.client.prepare(support.spin())
        begin = time.monotonic()
        with self.assertRaises(hpvm.DeadlineExceededError):
            spin.run(ZERO, timeout=0.3)
        with self.assertRaises(hpvm.DeadlineExceededError):
            spin.run(ZERO, deadline=0.3)
        self.assertLess(time.monotonic() - begin, 5)
        for wrong in ({"timeout": 0}, {"timeout": -1}, {"deadline": 0}):
            with self.assertRaises(ValueError):
                spin.run(ZERO, **wrong)

    def test_an_interrupt_ends_the_run(self):
        program = self.begin(BEGIN + """
spin = client.prepare(support.spin())
matmul = client.prepare(support.matmul())
print("begins", flush=True)
try:
    spin.run(ZERO)
except KeyboardInterrupt:
    print("interrupted", flush=True)
one = np.ones((2, 2), "f4")
print(matmul.run(A=one, B=one)["C"][0, 0], flush=True)
pid = os.fork()  # gRPC's state is sound after the interrupt.
if pid == 0:
    print(matmul.run(A=one, B=one)["C"][0, 0], flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
""")
        self.assertEqual(program.stdout.readline(), "begins\n")
        support.wait_until(self.in_progress(1), what="the run")
        begin = time.monotonic()
        program.send_signal(signal.SIGINT)
        self.assertEqual(program.stdout.readline(), "interrupted\n")
        self.assertLess(time.monotonic() - begin, 2)
        support.wait_until(self.in_progress(0), 5, "the run's end")
        # communicate() would lose the lines that readline has buffered.
        out, err = program.stdout.read(), program.stderr.read()
        self.assertEqual((out.split(), program.wait(30)), (["2.0", "2.0", "0"], 0), err)

    def test_the_interpreter_ends_with_runs_in_flight(self):
        done = self.script(BEGIN + """
spin = client.prepare(support.spin())
for _ in range(3):
    threading.Thread(target=lambda: spin.run(ZERO), daemon=True).start()
job = client.submit(support.spin(), ZERO)
job.add_done_callback(print)
while {r.resource: r.used for r in client.admin.usage().resources}["running-jobs"] < 4:
    time.sleep(0.01)
print(job.id)
""", timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        support.wait_until(self.in_progress(1), what="the end of the runs, but for the job")
        self.assertNotIn("Fatal", done.stderr)
        self.client.job(done.stdout.strip()).cancel()

    def test_forked_children_have_connections_of_their_own(self):
        done = self.script(BEGIN + """
import multiprocessing
matmul = client.prepare(support.matmul())
one = np.ones((2, 2), "f4")
def work(factor):
    return float(matmul.run(A=one * factor, B=one)["C"][0, 0])
context = multiprocessing.get_context(sys.argv[3])
if __name__ == "__main__":
    with context.Pool(3) as pool:
        print(pool.map(work, range(20)))
    print(work(5))
""", "fork")
        self.assertEqual(done.stdout, f"{[2.0 * i for i in range(20)]}\n10.0\n", done.stderr)

    def test_forked_children_share_no_events_with_their_parent(self):
        done = self.script(BEGIN + """
matmul = client.prepare(support.matmul())
one = np.ones((2, 2), "f4")
matmul.run(A=one, B=one)
pid = os.fork()
if pid == 0:
    paths = ["/proc/self/fd/" + name for name in os.listdir("/proc/self/fd")]
    links = [os.readlink(path) for path in paths if os.path.exists(path)]
    print([link for link in links if "eventpoll" in link or "eventfd" in link or "socket" in link])
    print(matmul.run(A=one, B=one)["C"][0, 0], flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
""")
        self.assertEqual(done.stdout, "[]\n2.0\n0\n", done.stderr)

    def test_forked_children_share_no_memory_with_their_parent(self):
        done = self.script(BEGIN + """
import multiprocessing
matmul = client.prepare(support.matmul())
def work(factor):
    a = np.full((600, 600), factor, "f4")
    return all((matmul.run(A=a, B=np.ones((600, 600), "f4"))["C"] == 600 * factor).all() for _ in range(8))
print(work(1), client.tensor_path)  # There is memory to use again now.
children = [multiprocessing.get_context("fork").Process(target=lambda factor=factor: os._exit(0 if work(factor) else 9))
            for factor in range(2, 5)]
for child in children:
    child.start()
print(work(7))
for child in children:
    child.join()
print([child.exitcode for child in children])
""")
        self.assertEqual(done.stdout, "True shared memory\nTrue\n[0, 0, 0]\n", done.stderr)

    def test_a_data_loader_of_torch(self):
        done = self.script(BEGIN + """
import torch
matmul = client.prepare(support.matmul())
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        return torch.from_dlpack(matmul.run(A=np.full((2, 2), index, "f4"), B=np.ones((2, 2), "f4"))["C"])
for workers in (0, 2):
    batches = list(torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=workers))
    print([float(batch.sum()) for batch in batches])
""")
        self.assertEqual(done.stdout, "[48.0, 176.0, 304.0]\n" * 2, done.stderr)

    def test_a_fork_that_grpc_does_not_survive_says_why(self):
        done = self.script("""
import os, sys
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
import grpc
sys.argv = ["test", sys.argv[1], *sys.argv[2:]]
import support, hpvm
client = hpvm.connect(sys.argv[2])
pid = os.fork()
if pid == 0:
    try:
        client.devices()
    except hpvm.FailedPreconditionError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(len(client.devices()))
""")
        self.assertIn("Import hpvm before grpc", done.stdout, done.stderr)
        self.assertTrue(done.stdout.endswith("\n1\n"), done.stdout)

    def test_threads_share_a_client(self):
        matmul = self.client.prepare(support.matmul())
        wrong = []

        def work(number):
            a = np.full((300, 300), number, "f4")
            for _ in range(10):
                if not (matmul.run(A=a, B=np.ones((300, 300), "f4"))["C"] == 300 * number).all():
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_nobody_is_there(self):
        begin = time.monotonic()
        for server in ("unix:/nowhere/hpvmd.sock", "127.0.0.1:1"):
            with self.assertRaisesRegex(hpvm.UnavailableError, "No hpvmd answers.*hpvmd --dev"):
                hpvm.connect(server, connect_timeout=0.5)
        self.assertLess(time.monotonic() - begin, 5)
        for server in ("unix:", "nowhere", "host:port", "http:/x"):
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "address"):
                hpvm.connect(server)


class Restarts(support.WithServer):
    def restart(self, number=signal.SIGKILL):
        self.daemon.stop(number)
        type(self).start()

    def test_prepared_again_and_said(self):
        matmul = self.client.prepare(support.matmul())
        one = np.ones((2, 2), "f4")
        self.restart()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            support.wait_until(self.answers, what="the server")
            result = matmul.run(A=one, B=one)
        self.assertTrue(result.prepared_again)
        self.assertEqual([item.category for item in told], [hpvm.PreparedAgainWarning])
        self.assertEqual(result["C"].tolist(), [[2, 2], [2, 2]])
        self.assertFalse(matmul.run(A=one, B=one).prepared_again)

    def answers(self):
        try:
            return bool(self.client.devices())
        except hpvm.UnavailableError:
            return False

    def test_shared_memory_after_a_restart(self):
        matmul = self.client.prepare(support.matmul())
        a = np.ones((600, 600), "f4")
        for _ in range(3):
            matmul.run(A=a, B=a)
        self.restart()
        support.wait_until(self.answers, what="the server")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hpvm.PreparedAgainWarning)
            for _ in range(3):
                self.assertTrue((matmul.run(A=a, B=a)["C"] == 600).all())
        self.assertEqual(self.client.tensor_path, "shared memory")

    def test_jobs_and_watches_survive(self):
        outages = []
        with hpvm.connect(self.server, on_unanswered=outages.append) as client:
            job = client.submit(support.busy(2000), {"in": np.int32([1])})
            told = threading.Event()
            job.add_done_callback(lambda _: told.set())
            support.wait_until(job.running, what="the job")
            threading.Timer(0.3, self.restart).start()
            self.assertEqual(job.result(90)["out_out"].tolist(), [2])
            self.assertTrue(told.wait(30))
            self.assertGreaterEqual(len(outages), 1)

    def test_nobody_waits_for_ever(self):
        with hpvm.connect(self.server, patience=0.5) as client:
            job = client.submit(support.spin(), ZERO)
            told = []
            job.add_done_callback(told.append)
            self.daemon.stop(signal.SIGKILL)
            self.assertEqual(list(hpvm.as_completed([job])), [job])  # The end can no longer be learnt.
            self.assertEqual(told, [job])
            with self.assertRaises(hpvm.UnavailableError):
                job.result(5)
        type(self).start()
        support.wait_until(self.answers, what="the server")
        self.client.job(job.id).cancel()
        client = hpvm.connect(self.server)
        endless = client.submit(support.spin(), ZERO)
        threading.Timer(0.5, client.close).start()
        with self.assertRaises(hpvm.ClosedError):
            list(hpvm.as_completed([endless]))
        self.client.job(endless.id).cancel()

    def test_a_server_that_dies_in_a_run(self):
        spin = self.client.prepare(support.spin())
        threading.Timer(0.5, self.restart).start()
        with self.assertRaises(hpvm.UnavailableError):
            spin.run(ZERO)
        support.wait_until(self.answers, what="the server")


class Profiles(support.WithServer):
    def connect(self, text, environment=(), **arguments):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "profiles.toml").write_text(text)
            done = subprocess.run(
                [sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import hpvm\n"
                 f"try: print(hpvm.connect(**{arguments!r}, connect_timeout=1).server_info().tenant)\n"
                 "except hpvm.HpvmError as error: print(type(error).__name__, error)", str(support.PACKAGE)],
                env={**os.environ, "HPVM_PROFILES": folder + "/profiles.toml", **dict(environment)}, capture_output=True, text=True)
            return done.stdout.strip() or done.stderr

    def test_profiles(self):
        here = f'[profile.here]\nserver = "{self.server}"\ntenant = "lab"\n'
        self.assertEqual(self.connect('default = "here"\n' + here), "lab")
        self.assertEqual(self.connect(here, profile="here"), "lab")
        self.assertEqual(self.connect(here, {"HPVM_PROFILE": "here"}), "lab")
        self.assertEqual(self.connect(here, {"HPVM_PROFILE": "here", "HPVM_TENANT": "other"}), "other")
        self.assertEqual(self.connect('default = "none"\n', server=self.server), "local")
        self.assertIn('no profile "x"; there are: here', self.connect(here, profile="x"))
        self.assertIn('unknown key "sever"', self.connect('[profile.here]\nsever = "x"\n', profile="here"))
        self.assertIn("are not TOML", self.connect("= 3", profile="here"))
        self.assertIn('"server" has to be a string', self.connect("[profile.here]\nserver = 3\n", profile="here"))
        self.assertIn("would travel", self.connect('[profile.far]\nserver = "far.example:1"\ntoken_file = "/x"\n', profile="far"))

    def test_a_token_follows_its_file(self):
        bearer = hpvm._credentials.TokenFile  # The way to it is hpvm.Credentials(token_file=...), which needs a server with tokens.
        first, second = ("hpvm_" + letters * 32 for letters in ("ab", "cd"))
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "cannot be read: No such file"):
                bearer(path)
            pathlib.Path(path).write_text(first + "\n", encoding="utf-8")
            token = bearer(path)
            self.assertEqual(token.current(), first)
            self.assertFalse(token.renew(first))
            pathlib.Path(path + ".new").write_text(second, encoding="utf-8")
            os.rename(path + ".new", path)
            self.assertEqual(token.current(), second)
            self.assertTrue(token.renew(first))
            os.remove(path)
            self.assertEqual(token.current(), second)
            client = hpvm.connect(self.server, credentials=hpvm.Credentials(token=second))
            self.assertTrue(client.devices())
            client.close()

    def test_secrets_are_not_shown(self):
        secret = "hpvm_" + "ab" * 32
        self.assertNotIn(secret, repr(hpvm.Credentials(token=secret)))
        for wrong in ("Bearer " + secret, secret[:-1], "-----BEGIN CERTIFICATE-----"):
            with self.assertRaises(hpvm.InvalidArgumentError) as caught:
                hpvm.connect(self.server, credentials=hpvm.Credentials(token=wrong))
            self.assertNotIn("abab", str(caught.exception))


if __name__ == "__main__":
    support.main()
