#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests watches end to end: hpvmctl list --watch and devices --watch, across restarts and beside a flood.

    watch.py BIN_FOLDER [TestCase.test ...]
"""

import collections
import json
import signal
import sys
import threading
import time
import unittest

import jobs
from jobs import WithDaemon, add, busy

jobs.CONFIG = """
[tenants]
from_metadata = true
[jobs]
running_per_tenant_max = 4
watchers_per_tenant_max = 12
watch_bytes_per_tenant_max = 262144
[executor]
crashes_max = 100
"""
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED", "EXPIRED", "DEAD")


class Lines:
    """Lines reads the output of a process, one JSON object a line, as it arrives."""

    def __init__(self, process):
        self.process, self.all, self.changed = process, [], threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.all.append(json.loads(line))
                self.changed.notify_all()

    def wait(self, is_enough, seconds=60):
        with self.changed:
            return self.changed.wait_for(lambda: is_enough(self.all), seconds)


def states(lines, job):
    return [line["state"].removeprefix("JOB_STATE_") for line in lines.all if line["id"] == job]


def has_ended(job_ids):
    def check(lines):
        ended = {line["id"] for line in lines if line["state"].removeprefix("JOB_STATE_") in ENDED}
        return set(job_ids) <= ended
    return check


class Watches(WithDaemon):
    def watch(self, *arguments, tenant="ann"):
        return Lines(self.popen("--tenant", tenant, *arguments, "--watch", "-o", "json"))

    def submit_for(self, tenant, document, name="graph"):
        return self.submit(document, "--tenant", tenant, name=name)

    def restart(self, how=signal.SIGKILL):
        self.daemon.process.send_signal(how)
        self.daemon.process.wait(60)
        self.start()

    def test_jobs(self):
        """A watch reports each state of each job once, in order, while the daemon stays; and nothing twice when it is killed."""
        early = self.submit_for("ann", add())
        watch = self.watch("list")
        self.assertTrue(watch.wait(has_ended([early])), watch.all)
        job = self.submit_for("ann", add())
        self.assertTrue(watch.wait(has_ended([job])), watch.all)
        self.assertEqual(states(watch, job), ["ACCEPTED", "QUEUED", "RUNNING", "SUCCEEDED"])
        for how in (signal.SIGKILL, signal.SIGTERM):
            running = self.submit_for("ann", busy(1000), name="busy")
            self.assertTrue(watch.wait(lambda lines: "RUNNING" in states(watch, running)), watch.all)
            self.restart(how)
            later = self.submit_for("ann", add())
            self.assertTrue(watch.wait(has_ended([running, later])),
                            [states(watch, running), states(watch, later), watch.process.poll()])
        told = collections.Counter((line["id"], line["state"], line.get("attempt", 0), line.get("change"))
                                   for line in watch.all)
        self.assertEqual([one for one, times in told.items() if times > 1], [])
        for one in {line["id"] for line in watch.all}:
            self.assertEqual([state for state in states(watch, one) if state in ENDED], ["SUCCEEDED"])
        watch.process.send_signal(signal.SIGINT)
        self.assertNotEqual(watch.process.wait(30), 0)

    def test_filters(self):
        watch = self.watch("list", "--label", "kind=blur", "--state", "ended", tenant="eve")
        plain = self.submit_for("eve", add())
        blur = self.submit(add(), "--tenant", "eve", "--label", "kind=blur")
        self.assertTrue(watch.wait(has_ended([blur])), watch.all)
        self.assertEqual(states(watch, blur), ["SUCCEEDED"])
        self.assertEqual(states(watch, plain), [])

    def test_ten_watchers_beside_a_flood(self):
        """Another tenant's flood, whose own watcher does not read, takes neither places nor changes from the watchers."""
        self.ctl("list", "--tenant", "ann")
        watches = [self.watch("list", "--limit", "1") for _ in range(10)]
        # A watch's first list reports each job once, in its state at that time: so each watch has to be there first.
        first = self.submit_for("ann", add(), name="first")
        for watch in watches:
            self.assertTrue(watch.wait(has_ended([first])), watch.all)
        idle = [self.popen("--tenant", "bob", "list", "--watch", "-o", "wide") for _ in range(12)]
        job_ids, stop = [], threading.Event()
        flood = self.graph(add(), name="flood")

        def submit_many():
            while not stop.is_set():
                self.daemon.ctl("submit", "--detach", "--tenant", "bob", *flood, "--array", "0-99", timeout=60)

        thread = threading.Thread(target=submit_many)
        thread.start()
        try:
            for _ in range(10):
                job_ids.append(self.submit_for("ann", add(), name="calm"))
        finally:
            stop.set()
            thread.join()
        for watch in watches:
            self.assertTrue(watch.wait(has_ended(job_ids)), len(watch.all))
            for job in job_ids:
                self.assertEqual(states(watch, job)[-2:], ["RUNNING", "SUCCEEDED"])
                self.assertEqual(len(set(states(watch, job))), len(states(watch, job)))
        refused = self.daemon.ctl("list", "--watch", "--tenant", "bob", "--patience", "1ms", timeout=30)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("watching calls, which is the limit", refused.stderr)
        for process in idle:
            self.assertIsNone(process.poll())

    def test_devices(self):
        watch = self.watch("devices")
        self.assertTrue(watch.wait(lambda lines: any(line["id"] == "cpu:0" for line in lines)))
        self.restart()
        time.sleep(1)
        self.assertEqual([(line["id"], line["gone"]) for line in watch.all], [("cpu:0", False)])
        self.assertIsNone(watch.process.poll())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
