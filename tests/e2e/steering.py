#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the control of waiting and running jobs: held and released, limited, and watched while they print.

    steering.py BIN_FOLDER [TestCase.test ...]
"""

import json
import select
import signal
import sys
import time
import unittest

from e2e import DEADLINE, FAILED, OK, USAGE
from jobs import INTERRUPTED, WithDaemon, add, busy, chatty, indexed, one_node, port, spin


def slow_chatty(rounds):
    """Returns a graph that takes some milliseconds a round, and then prints: with --repeat one line for each repetition."""
    document = busy(rounds)
    says = chatty()
    document["modules"]["said"] = says["modules"]["k"]
    leaf = says["nodes"]["node"]
    leaf["variants"][0]["module"] = "said"
    document["nodes"]["says"] = leaf
    document["edges"] = [{"from": "in", "to": "node.in"}, {"from": "node.out", "to": "says.in"},
                         {"from": "says.out", "to": "out_out"}]
    return document


class Held(WithDaemon):
    def test_hold_and_release(self):
        job = self.submit(add(), "--hold")
        time.sleep(0.3)
        shown = self.job(job)
        self.assertEqual(shown["state"], "JOB_STATE_ACCEPTED")
        self.assertIn(f"`hpvmctl release {job}` releases it", shown["waits_for"])
        after = self.submit(add(), "--after", job)
        self.ctl("hold", job, "--reason", "not yet")  # The job is already held: nothing changes.
        self.ctl("release", job)
        self.ctl("wait", after)
        self.assertEqual(self.state(job), "SUCCEEDED")
        refused = self.ctl("hold", job, code=USAGE)
        self.assertIn("only a job that has not started can be held or released", refused.stderr)

    def test_a_waiting_job(self):
        blocker = self.spinning()
        job = self.submit(add(), "--after", f"{blocker}:ended")
        held = self.ctl("hold", job, "--reason", "its data comes at noon", "-o", "json")
        self.assertEqual(json.loads(held.stdout)[0]["hold"]["reason"], "its data comes at noon")
        self.ctl("cancel", blocker)
        for command in ("describe", "get"):
            text = self.ctl(command, job).stdout
            self.assertIn("its data comes at noon", text)
        self.assertIn("its data comes at noon", self.ctl("list", "-o", "wide").stdout)
        self.assertEqual(self.state(job), "ACCEPTED")
        self.kill()
        self.start()
        self.assertEqual(self.state(job), "ACCEPTED")
        self.assertIn("its data comes at noon", self.job(job)["waits_for"])
        self.ctl("release", job)
        self.ctl("wait", job)

    def test_arrays(self):
        array = self.submit(indexed(), "--array", "0-4", "--array-symbol", "s", "--input", "in=@index", "--hold")
        time.sleep(0.2)
        self.assertEqual(self.ctl("list", "--array", array, "--state", "accepted", "-o", "name").stdout.count("job-"), 5)
        released = self.ctl("release", array)
        self.assertIn("5 jobs are released", released.stderr)
        self.ctl("wait", array)
        self.ctl("release", array, code=USAGE)

    def test_the_deadline_goes_on(self):
        job = self.submit(add(), "--hold", "--deadline", "400ms")
        self.assertEqual(self.await_state(job, "EXPIRED", "SUCCEEDED"), "EXPIRED")
        self.assertIn("while it was held", self.ctl("wait", job, code=DEADLINE).stderr)

    def test_wrong_use(self):
        self.ctl("hold", "job-none", code=USAGE)
        job = self.submit(add(), "--hold")
        self.ctl("hold", job, "--reason", "r" * 256, code=USAGE)
        self.ctl("cancel", job)


class Limited(WithDaemon):
    def test_the_wait(self):
        blockers = [self.spinning() for _ in range(4)]  # The largest number that the tenant may run.
        job = self.submit(add(), "--max-wait", "500ms")
        self.assertIn("waits at most 500 ms", self.ctl("get", job).stdout)
        self.assertEqual(self.await_state(job, "EXPIRED", "RUNNING"), "EXPIRED")
        done = self.ctl("wait", job, code=DEADLINE)
        self.assertIn("longer than its limit (500 ms, set by the submitter)", done.stderr)
        self.ctl("cancel", *blockers)

    def test_the_run(self):
        job = self.submit(spin(), "--max-run", "700ms", values=[0], name="spin")
        done = self.ctl("wait", job, code=DEADLINE)
        self.assertEqual(self.state(job), "FAILED")
        self.assertIn("did not end within its limit (700 ms, set by the submitter)", done.stderr)
        again = self.ctl("retry", job, "--detach").stdout.strip()
        self.assertEqual(int(self.job(again)["limits"]["run_ns"]), 700_000_000)
        self.ctl("wait", again, code=DEADLINE)

    def test_device_time(self):
        job = self.submit(busy(60), "--max-device-time", "200ms", "--repeat", "50")
        begun = time.monotonic()
        done = self.ctl("wait", job, code=FAILED)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertIn("more device time than its limit (200 ms, set by the submitter)", done.stderr)
        self.ctl("wait", self.submit(busy(20), "--max-device-time", "1m"))


class Logs(WithDaemon):
    def follow(self, job):
        return self.popen("logs", "-f", job)

    def test_lines_come_while_it_runs(self):
        job = self.submit(slow_chatty(150), "--repeat", "20", values=[6])
        logs = self.follow(job)
        self.assertTrue(select.select([logs.stdout], [], [], 30)[0])
        first = logs.stdout.readline()
        self.assertEqual(first, "says(0, 0, 0): in[0] is 7, half of it 3.5\n")
        self.assertEqual(self.state(job), "RUNNING")
        rest, _ = logs.communicate(timeout=60)
        self.assertEqual(logs.returncode, OK)
        self.assertEqual((first + rest).splitlines(), self.ctl("logs", job).stdout.splitlines())
        self.assertEqual((first + rest).count("half of it"), 20)
        late = self.ctl("logs", "-f", job).stdout  # This client comes when the job has ended.
        self.assertEqual(late, first + rest)

    def test_interrupting_detaches(self):
        job = self.submit(slow_chatty(150), "--repeat", "40", values=[6])
        logs = self.follow(job)
        self.assertTrue(select.select([logs.stdout], [], [], 30)[0])
        logs.send_signal(signal.SIGINT)
        self.assertEqual(logs.wait(20), INTERRUPTED)
        self.assertIn("the job goes on", logs.stderr.read())
        self.assertEqual(self.state(job), "RUNNING")
        self.ctl("cancel", job)

    def test_a_reader_that_goes_away(self):
        job = self.submit(slow_chatty(100), "--repeat", "20", values=[6])
        logs = self.follow(job)
        logs.stdout.readline()
        logs.stdout.close()
        self.ctl("wait", job, timeout=120)
        logs.wait(30)  # It ends by SIGPIPE or with an error.

    def test_a_flood(self):
        document = one_node("verbose", (port("out", "out"),), [("lines", 100_000)], instances="1")
        document["modules"]["k"]["source"]["file"] = "debug.wasm"
        job = self.submit(document, "--symbol", "n=1", "--repeat", "30", values=(0,))
        followed = self.ctl("logs", "-f", job, timeout=120).stdout.splitlines()
        kept = self.ctl("logs", job).stdout.splitlines()
        self.assertEqual(len([line for line in kept if "of many" in line]), 1000)
        self.assertEqual(sorted(followed), sorted(kept))
        self.assertIn("more lines were dropped", kept[-1])

    def test_several_attempts(self):
        job = self.submit(slow_chatty(150), "--repeat", "20", values=[6])
        logs = self.follow(job)
        logs.stdout.readline()
        self.kill_executors()
        out, said = logs.communicate(timeout=120)
        self.assertEqual(logs.returncode, OK, said)
        self.assertIn("attempt 1 was lost", said)
        self.assertEqual(self.job(job)["attempt"], 2)
        self.assertGreaterEqual(out.count("half of it"), 20)
        self.assertEqual(self.ctl("logs", job).stdout.count("half of it"), 20)

    def test_describe_waits_for_no_silence(self):
        job = self.spinning()
        self.addCleanup(self.ctl, "cancel", job)

        def shortest(command):
            times = []
            for _ in range(5):
                begun = time.monotonic()
                self.ctl(command, job)
                times.append(time.monotonic() - begun)
            return min(times)

        # The time of a plain command is subtracted, since the machine may have other load.
        self.assertLess(shortest("describe") - shortest("get"), 0.25, "the past ends when the server says so")



if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:])
