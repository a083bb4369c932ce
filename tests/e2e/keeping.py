#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests kept data: jobs replayed on another server, modules, memory, and tenants that are deleted and renamed.

    keeping.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import unittest

import numpy as np

from e2e import BIN, CANNOT_PLACE, FAILED, HERE, OK, USAGE
from jobs import add, indexed, spin, trap
from tenants import IS_ROOT, Tenants


class WithJobs(Tenants):
    TCP = False

    @classmethod
    def prepare(cls):
        cls.number = 0

    def file(self, document):
        type(self).number += 1
        path = self.folder / f"graph{self.number}.json"
        path.write_text(json.dumps(document))
        return path

    def submit(self, document, *more, values=(1, 2, 3), name="in"):
        graph = self.file(document)
        array = self.folder / f"in{self.number}.npy"
        np.save(array, np.asarray(values, np.int32))
        return self.ok("submit", "-d", graph, "--input", f"{name}={array}", *more).strip()

    def finished(self, document, *more, code=OK, **given):
        job = self.submit(document, *more, **given)
        tenant = ("--tenant", more[more.index("--tenant") + 1]) if "--tenant" in more else ()
        self.assertEqual(self.server.ctl("wait", job, *tenant).returncode, code)
        return job

    def bundle(self, job, *more):
        folder = self.folder / f"{job}.hpvm"
        self.assertEqual(self.ok("bundle", job, "--output", folder, *more).strip(), str(folder))
        return folder


class Keeping(WithJobs):
    # --- bundle and replay ---

    def test_a_bundle_has_all_of_a_job_and_replays(self):
        job = self.finished(add(4), "--name", "plus four", "--label", "project=blur", "--priority", "3")
        folder = self.bundle(job)
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        described = json.loads((folder / "job.json").read_text())
        self.assertEqual((described["name"], described["priority"], described["labels"]), ("plus four", 3, {"project": "blur"}))
        self.assertEqual(json.loads((folder / "record.json").read_text())["id"], job)
        self.assertGreater(len((folder / "events.jsonl").read_text().splitlines()), 1)
        self.assertIn("devices", json.loads((folder / "server.json").read_text()))
        np.testing.assert_array_equal(np.load(folder / described["inputs"]["in"]), [1, 2, 3])
        for more in ((), ("--local", "--device", "cpu")):
            done = self.ok("replay", folder, *more)
            self.assertRegex(done, r"^The same: the job was SUCCEEDED and is SUCCEEDED now\n  output \w+: same\n$")
        again = self.ok("apply", "-d", folder / "job.json").strip()
        self.assertEqual(self.server.ctl("wait", again).returncode, OK)

    def test_a_difference_is_found(self):
        folder = self.bundle(self.finished(add(4)))
        name, file = next(iter(json.loads((folder / "outputs.json").read_text()).items()))
        np.save(folder / file, np.asarray([5, 7, 7], np.int32))
        done = self.server.ctl("replay", folder)
        self.assertEqual(done.returncode, FAILED)
        self.assertIn(f"output {name}: 1 of 3 elements differ, the first at 1", done.stdout)
        report = json.loads(self.server.ctl("replay", folder, "-o", "json").stdout)
        self.assertIn("1 of 3", report["outputs"][name])

    def test_a_job_that_failed_fails_again(self):
        folder = self.bundle(self.finished(trap(), code=FAILED, values=[0, 0, 0]))
        self.assertFalse((folder / "outputs.json").exists())
        for more in ((), ("--local", "--device", "cpu")):
            done = self.ok("replay", folder, *more)
            self.assertIn("The same: the job was FAILED and is FAILED now", done)
            self.assertIn("  then: ", done)
            self.assertIn("  now: ", done)

    def test_inputs_that_travel_as_files_and_elements_of_arrays(self):
        large = np.arange(2_000_000, dtype=np.int32)
        folder = self.bundle(self.finished(add(1), values=large))
        np.testing.assert_array_equal(np.load(next((folder / "inputs").iterdir())), large)
        self.assertIn("The same", self.ok("replay", folder))
        array = self.ok("submit", "-d", self.file(indexed()), "--array", "3-5", "--array-symbol", "s", "--input", "in=@index").strip()
        self.assertEqual(self.server.ctl("wait", array).returncode, OK)
        elements = json.loads(self.ok("list", "--array", array, "-o", "json"))
        for element in elements:
            folder = self.bundle(element["id"])
            self.assertIn("The same", self.ok("replay", folder))
        self.refused(USAGE, "array", "bundle", array)

    def test_bundles_are_refused_with_a_reason(self):
        self.refused(USAGE, "NOT_FOUND", "bundle", "job-" + "0" * 32)
        job = self.finished(add())
        folder = self.bundle(job)
        self.refused(USAGE, "already exists", "bundle", job, "--output", folder)
        (folder / "record.json").write_text("[")
        self.refused(USAGE, "not a JSON object", "replay", folder)
        shutil.rmtree(folder)
        self.assertNotEqual(self.server.ctl("replay", folder).returncode, OK)

    def test_a_bundle_that_names_files_elsewhere_reads_none(self):
        folder = self.bundle(self.finished(add()))
        described = json.loads((folder / "job.json").read_text())
        described["inputs"]["in"] = "/etc/passwd"
        (folder / "job.json").write_text(json.dumps(described))
        self.refused(USAGE, "/etc/passwd", "replay", folder)

    # --- modules and memory ---

    def test_modules_are_listed_and_deleted(self):
        handle = self.ok("module", "put", HERE / "kernels.wasm").strip()
        shown = {module["sha256"]: module for module in json.loads(self.ok("module", "list", "-o", "json"))}
        self.assertEqual(int(shown[handle]["size_bytes"]), (HERE / "kernels.wasm").stat().st_size)
        self.assertEqual(shown[handle]["kind"], "MODULE_KIND_UNSPECIFIED")
        self.finished(add())
        self.assertIn("graph", self.ok("module", "list"))
        self.ok("module", "delete", handle[:12])
        self.assertNotIn(handle, self.ok("module", "list", "-o", "name"))
        self.refused(USAGE, "begins with", "module", "delete", handle[:12])
        self.finished(add())  # The module is uploaded again automatically.

    def test_memory_in_one_picture(self):
        self.finished(add())
        text = self.ok("mem")
        for heading in ("MEMORY", "TENANT", "KEPT"):
            self.assertRegex(text, rf"(?m)^{heading} ")
        self.assertRegex(text, r"(?m)^host +\S+ \S+ +\S+ \S+ \(\d+ %\) +the server and its executors$")
        kept = json.loads(self.ok("mem", "-o", "json", "--largest", "1"))
        self.assertEqual(len(kept["kept"]), 1)
        self.assertGreater(kept["kept_left_out"], 0)


@unittest.skipUnless(IS_ROOT, "administration needs root")
class TenantEnds(WithJobs):
    CONFIG = "[auth]\ntokens = true\npeers = true\n[jobs]\nrunning_per_tenant_max = 2\n"

    def rows(self, tenant):
        tables = {"jobs": "SELECT count(*) FROM jobs WHERE tenant = ?", "keys": "SELECT count(*) FROM keys WHERE tenant = ?"}
        with sqlite3.connect(f"file:{self.server.state}/jobs.db?mode=ro", uri=True) as database:
            return {name: database.execute(sql, (tenant,)).fetchone()[0] for name, sql in tables.items()}

    def make(self, tenant, jobs=3):
        """Makes a tenant with a token, ended jobs, waiting jobs, and a buffer's worth of outputs on disk."""
        self.ok("tenant", "create", tenant)
        token = self.folder / f"{tenant}.token"
        self.ok("token", "create", "--tenant", tenant, "--output", token)
        made = [self.finished(add(n), "--idempotency-key", f"key{n}", "--tenant", tenant, values=np.arange(50_000 + n)) for n in range(jobs)]
        spinning = [self.submit(spin(), "--tenant", tenant, name="out") for _ in range(2)]
        made += [self.submit(add(), "--after", spinning[0], "--tenant", tenant) for _ in range(2)]
        return token, made

    def wait_for(self, holds, seconds=30):
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, self.server.log.read_text()[-3000:])
            time.sleep(0.05)

    def test_deletes_all_of_a_tenant_and_frees_its_name(self):
        token, made = self.make("trial")
        self.refused(USAGE, "--yes", "tenant", "delete", "trial")
        self.refused(CANNOT_PLACE, "disable it first", "tenant", "delete", "trial", "--yes")
        self.ok("tenant", "disable", "trial")
        self.ok("tenant", "delete", "trial", "--yes")
        self.refused(USAGE, "NOT_FOUND", "tenant", "show", "trial")
        self.assertEqual(self.rows("trial"), {"jobs": 0, "keys": 0})
        self.wait_for(lambda: not list((self.server.state / "blobs").glob("trial/*/*")))
        self.assertNotEqual(self.server.ctl("list", token=token).returncode, OK)
        self.assertIn("DeleteTenant", self.ok("audit", "list", "-o", "json"))
        # The name starts afresh: an old idempotency key has no effect, and the tenant has no data.
        self.ok("tenant", "create", "trial")
        self.assertEqual(self.ok("list", "--tenant", "trial", "-o", "name"), "")
        again = self.finished(add(0), "--idempotency-key", "key0", "--tenant", "trial")
        self.assertNotIn(again, made)
        self.assertNotEqual(self.server.ctl("list", token=token).returncode, OK)

    def test_a_deletion_goes_on_after_a_crash(self):
        self.make("crash", jobs=1)
        self.ok("submit", "-d", self.file(indexed()), "--array", "0-199", "--array-symbol", "s", "--input", "in=@index", "--tenant", "crash")
        self.ok("tenant", "disable", "crash")
        self.server.stop()
        os.environ["HPVMD_FAILPOINTS"] = "core.tenant_removal.list=error(unavailable)"
        try:
            self.server.start()
        finally:
            del os.environ["HPVMD_FAILPOINTS"]
        self.ok("tenant", "delete", "crash", "--yes", "--detach")
        self.assertIn("being deleted", self.ok("tenant", "show", "crash"))
        self.refused(CANNOT_PLACE, "being deleted", "tenant", "enable", "crash")
        self.refused(USAGE, "being deleted", "tenant", "create", "crash")
        self.assertGreater(self.rows("crash")["jobs"], 0)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.wait_for(lambda: self.server.ctl("tenant", "show", "crash").returncode != OK)
        self.assertEqual(self.rows("crash"), {"jobs": 0, "keys": 0})

    def test_the_default_tenant_and_strangers_stay(self):
        self.ok("tenant", "disable", "local")
        try:
            self.refused(CANNOT_PLACE, "default", "tenant", "delete", "local", "--yes")
        finally:
            self.ok("tenant", "enable", "local")
        self.refused(USAGE, "NOT_FOUND", "tenant", "delete", "nobody", "--yes")

    def hpvmd(self, *arguments):
        return subprocess.run([BIN / "hpvmd", "--config", self.server.config, *arguments], capture_output=True, text=True, timeout=60)

    def test_renames_a_tenant_with_its_jobs(self):
        token, made = self.make("old")
        array = self.ok("submit", "-d", self.file(indexed()), "--array", "0-3", "--array-symbol", "s", "--input", "in=@index",
                        "--label", "project=blur", "--tenant", "old").strip()
        self.ok("tenant", "set", "old", "--weight", "7")
        running = self.hpvmd("--rename-tenant", "old", "new")
        self.assertEqual(running.returncode, 1)
        self.assertIn("process", running.stderr)
        self.server.stop()
        try:
            for words, said in ((("nobody", "new"), "There is no tenant"), (("old", "local"), "already"), (("old", "A B"), "1 to 63"),
                                (("local", "new"), "default")):
                refused = self.hpvmd("--rename-tenant", *words)
                self.assertEqual((refused.returncode, said in refused.stderr), (1, True), refused.stderr)
            done = self.hpvmd("--rename-tenant", "old", "new")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"with its {len(made) + 2 + 4} jobs", done.stdout)
            self.assertIn("0 faults", self.hpvmd("--check-jobs").stdout)
        finally:
            self.server.start()
        self.refused(USAGE, "NOT_FOUND", "tenant", "show", "old")
        self.assertEqual(json.loads(self.ok("tenant", "show", "new", "-o", "json"))["weight"], 7)
        self.assertEqual(self.whoami(token=token)["tenant"], "new")
        listed = self.ok("list", "--limit", "100", "-o", "name", token=token).split()
        self.assertTrue(set(made) <= set(listed))
        out = self.folder / "renamed.npy"
        self.ok("wait", made[0], "--output", f"out_out={out}", token=token)
        np.testing.assert_array_equal(np.load(out), np.arange(50_000))
        elements = json.loads(self.ok("list", "--array", array, "-o", "json", token=token))
        self.assertEqual([element["labels"] for element in elements], [{"project": "blur"}] * 4)
        # The old key still belongs to the earlier job: another request with it is refused.
        self.refused(USAGE, "key0", "submit", "-d", self.file(add(77)), "--input", f"in={out}", "--idempotency-key", "key0", token=token)
        self.ok("cancel", *[job for job in listed if job not in made[:3]], token=token)

    def test_checks_beside_the_daemon_that_runs(self):
        done = self.hpvmd("--check-config", "--online")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("The daemon runs with this configuration.", done.stdout)
        self.assertRegex(done.stdout, r"A daemon of version \S+ serves on ")
        changed = self.folder / "changed.toml"
        changed.write_text(self.server.config.read_text() + "queued_max = 77\nqueued_per_tenant_max = 66\nstore = \"memory\"\n")
        done = subprocess.run([BIN / "hpvmd", "--config", changed, "--check-config", "--online"], capture_output=True, text=True, timeout=60)
        self.assertRegex(done.stdout, r"A reload changes jobs\.queued_max 10000 -> 77\.")
        self.assertRegex(done.stdout, r'A restart changes jobs\.store "sqlite" -> "memory"; a reload keeps the old value\.')
        elsewhere = self.folder / "elsewhere.toml"
        elsewhere.write_text(f'[server]\nlisten = "unix:{self.folder}/no.sock, 127.0.0.1:1"\nstate_dir = "{self.folder}/other"\n[metrics]\nlisten = "127.0.0.1:0"\n')
        done = subprocess.run([BIN / "hpvmd", "--config", elsewhere, "--check-config", "--online"], capture_output=True, text=True, timeout=60)
        self.assertIn("No daemon answers", done.stdout)


del Tenants, WithJobs  # These classes are no tests of this file.

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
