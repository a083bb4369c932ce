#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests quotas end to end: each limit is enforced and reported, the shown use equals the real use, and nothing is leaked.

    quotas.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import signal
import sys
import time
import unittest

from e2e import FAILED, OK, children
from tenants import IS_ROOT, Tenants, add, spin

HELD = ("device-bytes", "host-bytes", "queued-jobs", "running-jobs")


def tagged(tag):
    """Returns a document that has not been prepared yet."""
    return {**add(), "name": tag}


def custom_section(text):
    """Returns bytes that, appended to a module, make another module with the same meaning."""
    name = text.encode()
    return bytes([0, len(name) + 1, len(name)]) + name


@unittest.skipUnless(IS_ROOT, "administration needs root")
class Quotas(Tenants):
    CONFIG = "[auth]\ntokens = true\npeers = true\n[jobs]\nkept_max = 100\n"

    def usage(self, token, resource):
        shown = json.loads(self.ok("quota", "-o", "json", token=token))
        found = [one for one in shown["resources"] if one["resource"] == resource]
        self.assertEqual(len(found), 1, shown)
        return {name: int(found[0].get(name, 0)) for name in ("used", "limit", "available", "refused", "peak")}

    def used(self, token, resource):
        return self.usage(token, resource)["used"]

    def limit(self, name, *quotas):
        self.ok("tenant", "quota", name, *quotas)

    def await_used(self, token, resource, want, seconds=20):
        end = time.monotonic() + seconds
        while (used := self.used(token, resource)) != want:
            self.assertLess(time.monotonic(), end, f"{resource}: {used} in use, not {want}")
            time.sleep(0.1)

    def run_one(self, token, document=None, code=OK):
        done = self.server.ctl("run", self.graph(document or add()), "--input", f"in={self.folder}/in.npy", "--patience", "1ms",
                               token=token)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr + self.server.log.read_text()[-2000:])
        return done.stderr

    def refuse(self, token, resource, document=None, *options):
        """Submits a job that the quota of a resource does not allow; the refusal is counted once."""
        before = self.usage(token, resource)["refused"]
        done = self.server.ctl("submit", self.graph(document or add()), "--input", f"in={self.folder}/in.npy", "--detach",
                               "--patience", "1ms", *options, token=token)
        self.assertNotEqual(done.returncode, OK, done.stdout)
        self.assertIn(f"The tenant's quota of {resource} (", done.stderr)
        self.assertGreater(self.usage(token, resource)["refused"], before)
        return done.stderr

    def spin_job(self, token, *options):
        job = self.submit(spin(), *options, token=token)
        self.await_state(job, "RUNNING", token=token)
        return job

    def end(self, token, *jobs):
        for job in jobs:
            self.ok("cancel", job, token=token)
        for job in jobs:
            self.await_state(job, "CANCELLED", "FAILED", "SUCCEEDED", token=token)
        for resource in HELD[2:]:
            self.await_used(token, resource, 0)

    def test_queued_and_running_jobs(self):
        token = self.tenant("queues", "--quota", "queued-jobs=2", "--quota", "running-jobs=1")
        first = self.spin_job(token)
        waiting = [self.submit(spin(), token=token) for _ in range(2)]
        self.assertEqual((self.used(token, "running-jobs"), self.used(token, "queued-jobs")), (1, 2))
        self.assertIn("(2) does not allow 1 more: 2 are in use", self.refuse(token, "queued-jobs"))
        self.limit("queues", "queued-jobs=3")
        waiting.append(self.submit(spin(), token=token))
        self.refuse(token, "queued-jobs")
        self.limit("queues", "running-jobs=2")
        self.await_used(token, "running-jobs", 2)
        self.await_used(token, "queued-jobs", 2)
        self.end(token, first, *waiting)

    def test_an_array_counts_by_its_elements(self):
        token = self.tenant("arrays", "--quota", "queued-jobs=4")
        self.refuse(token, "queued-jobs", add(), "--array", "0-4")
        self.submit(add(), "--array", "0-3", token=token)
        self.await_used(token, "queued-jobs", 0)

    def test_disk_bytes(self):
        token = self.tenant("disks")
        jobs = [self.submit(add(), token=token)]
        self.await_state(jobs[0], "SUCCEEDED", token=token)
        one = self.used(token, "disk-bytes")
        self.assertGreater(one, 0)
        jobs.append(self.submit(add(), token=token))
        self.await_state(jobs[1], "SUCCEEDED", token=token)
        self.assertEqual(self.used(token, "disk-bytes"), 2 * one, "Equal jobs have equal sizes.")
        self.limit("disks", f"disk-bytes={2 * one}")
        self.refuse(token, "disk-bytes")
        self.assertEqual(self.used(token, "disk-bytes"), 2 * one)
        self.limit("disks", f"disk-bytes={4 * one}")
        self.await_state(self.submit(add(), token=token), "SUCCEEDED", token=token)
        self.assertEqual(self.used(token, "disk-bytes"), 3 * one)

    def test_host_bytes(self):
        token = self.tenant("hosts")
        self.run_one(token)
        self.assertGreater(self.usage(token, "host-bytes")["peak"], 0)
        self.limit("hosts", "host-bytes=1")
        self.assertIn("host-bytes (1) does not allow", self.refuse(token, "host-bytes", tagged("larger")))
        self.limit("hosts", "host-bytes=none")
        self.run_one(token, tagged("larger"))

    def test_modules(self):
        token = self.tenant("modules", "--quota", "modules=1")
        self.run_one(token)
        self.assertEqual(self.used(token, "modules"), 1)
        self.assertEqual(self.usage(token, "modules")["limit"], 1)
        other = self.folder / "other.wasm"
        other.write_bytes((self.folder / "kernels.wasm").read_bytes() + custom_section("other"))
        job = self.spin_job(token)  # The job keeps its module in use.
        done = self.server.ctl("module", "put", other, "--patience", "1ms", token=token)
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("The tenant's quota of modules (1) does not allow 1 more: 1 is in use.", done.stderr)
        self.limit("modules", "modules=2")
        self.ok("module", "put", other, token=token)
        self.assertEqual(self.used(token, "modules"), 2)
        self.end(token, job)

    def test_device_seconds(self):
        token = self.tenant("devices")
        job = self.spin_job(token)
        time.sleep(2)
        self.end(token, job)
        used = self.used(token, "device-seconds")
        self.assertGreater(used, 1_000_000_000)
        self.assertLess(used, 60_000_000_000)
        # The budget starts full, and is smaller than the next job's use.
        self.limit("devices", "device-seconds=1s")
        job = self.spin_job(token)
        time.sleep(3)
        self.end(token, job)
        self.assertEqual(self.usage(token, "device-seconds")["available"], 0)
        text = self.run_one(token, code=FAILED)
        self.assertIn("The tenant's quota of device-seconds (1 an hour) is spent: more is available in", text)
        waiting = self.submit(add(), token=token)
        time.sleep(0.5)
        self.assertIn("Waits for device time", json.dumps(self.state(waiting, token=token)))
        self.assertEqual(self.server.stop(), 0)
        self.server.start()
        self.assertGreaterEqual(self.used(token, "device-seconds"), used)
        self.assertEqual(self.usage(token, "device-seconds")["available"], 0)
        self.assertIn("is spent: more is available in", self.run_one(token, code=FAILED))
        self.limit("devices", "device-seconds=none")
        self.await_state(waiting, "SUCCEEDED", token=token)

    def with_module(self, tag):
        """Returns a document whose kernels have not been compiled yet."""
        (self.folder / f"{tag}.wasm").write_bytes((self.folder / "kernels.wasm").read_bytes() + custom_section(tag))
        return {**tagged(tag), "modules": {"k": {"kind": "wasm", "source": {"file": f"{tag}.wasm"}}}}

    def test_compile_seconds(self):
        token = self.tenant("compilers")
        self.run_one(token, self.with_module("first"))
        self.assertGreater(self.used(token, "compile-seconds"), 0)
        # The next compile leaves a debt for hours; prepared graphs cost nothing.
        self.limit("compilers", "compile-seconds=1ms")
        self.run_one(token, self.with_module("second"))
        self.assertEqual(self.usage(token, "compile-seconds")["available"], 0)
        text = self.run_one(token, self.with_module("third"), code=FAILED)
        self.assertIn("The tenant's quota of compile-seconds (", text)
        self.assertIn("more is available in", text)
        self.limit("compilers", "compile-seconds=none")
        self.run_one(token, self.with_module("third"))

    def test_requests(self):
        token = self.tenant("callers")
        before = self.used(token, "requests")
        self.ok("list", token=token)
        self.assertGreater(self.used(token, "requests"), before)
        self.assertGreater(self.used(token, "request-bytes"), 0)
        self.limit("callers", "requests=1")
        texts = [self.server.ctl("list", "--patience", "1ms", token=token).stderr for _ in range(12)]
        self.assertTrue(any("The tenant's quota of requests (1 a second) is spent: more is available in" in text for text in texts), texts)
        self.assertGreater(self.admin_usage("callers", "requests")["refused"], 0)
        self.limit("callers", "requests=none", "request-bytes=1")
        time.sleep(3)
        texts = [self.server.ctl("list", "--patience", "1ms", token=token).stderr for _ in range(6)]
        self.assertTrue(any("The tenant's quota of request-bytes (1 a second) is spent" in text for text in texts), texts)
        self.limit("callers", "request-bytes=none")
        self.ok("list", token=token)

    def admin_usage(self, name, resource):
        shown = json.loads(self.ok("quota", "-o", "json", "--tenant", name))
        found = next(one for one in shown["resources"] if one["resource"] == resource)
        return {field: int(found.get(field, 0)) for field in ("used", "refused")}

    def test_killed_executor_leaves_nothing(self):
        token = self.tenant("killed")
        job = self.spin_job(token)
        self.assertEqual(self.used(token, "running-jobs"), 1)
        for pid in children(self.server.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.ok("cancel", job, token=token)
        self.await_state(job, "CANCELLED", "FAILED", "DEAD", token=token)
        for resource in ("running-jobs", "queued-jobs", "device-bytes"):
            self.await_used(token, resource, 0)

    def test_disabled(self):
        token = self.tenant("paused")
        job = self.spin_job(token)
        self.ok("tenant", "disable", "paused", "--reason", "the bill is open")
        done = self.server.ctl("list", token=token)
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("is disabled: the bill is open", done.stderr)
        self.assertEqual(self.admin_usage("paused", "running-jobs")["used"], 0)
        self.ok("tenant", "enable", "paused")
        self.await_state(job, "RUNNING", token=token)
        self.end(token, job)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
