#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a full disk under the state folder end to end: messages, waiting results, and recovery without help.

    disk.py BIN_FOLDER [TestCase.test ...]

The state folder is a small tmpfs, which needs root and a host that lets it mount.
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
import urllib.error
import urllib.request

from e2e import BIN, FAILED, OK, ROOT, Daemon
from operations import free_port

MIB = 1 << 20
GRAPH = ROOT / "examples/mandelbrot/mandelbrot.json"
LARGE = ("--symbol", "w=2048", "--symbol", "h=1024")  # Options for results of 6 MiB.
SMALL = ("--symbol", "w=16", "--symbol", "h=16")
CONFIG = """
[server]
drain_ms = 500
[metrics]
listen = "127.0.0.1:{port}"
[jobs]
running_per_tenant_max = 2
kept_bytes_max = {kept}
"""
# Times that the documents promise, in seconds; they hold on a busy machine, too.
SHOWN_WITHIN, GOES_ON_WITHIN, SWEPT_WITHIN = 5, 10, 60


class FullDisk(unittest.TestCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("mounting a small file system needs root")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-disk-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.state = self.folder / "daemon/state"
        self.state.mkdir(parents=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", self.state], capture_output=True).returncode != 0:
            self.skipTest("this host does not allow mounting")
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=False)
        self.port = free_port()
        self.daemon = None
        self.addCleanup(self.kill)
        self.configure()

    def configure(self, kept=8 << 30):
        (self.folder / "hpvmd.toml").write_text(CONFIG.format(port=self.port, kept=kept))

    def start(self):
        self.daemon = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", self.folder / "hpvmd.toml")
        ready = self.daemon.ctl("devices", "--connect-timeout", "30")
        self.assertEqual(ready.returncode, OK, ready.stderr + self.log())

    def kill(self):
        if self.daemon and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()

    def log(self):
        return self.daemon.log.read_text()

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name} (\S+)$", self.get("/metrics")[1], re.M).group(1))

    def free(self):
        facts = os.statvfs(self.state)
        return facts.f_bavail * facts.f_frsize

    def fill(self, left):
        """Fills the file system except for `left` bytes."""
        with open(self.state / "fill", "ab") as file:
            end = time.monotonic() + 10
            while self.free() > left and time.monotonic() < end:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, self.free() - left)
                except OSError:  # Another process used the space first: less than `left` remains.
                    pass
        self.assertLessEqual(self.free(), left)

    def submit(self, *arguments, code=OK):
        done = self.daemon.ctl("submit", "--detach", GRAPH, *arguments)
        self.assertEqual(done.returncode, code, done.stderr + self.log()[-3000:])
        return done.stdout.split()[0] if code == OK else done.stderr

    def jobs(self):
        return {job["id"]: job for job in json.loads(self.daemon.ctl("list", "--all", "-o", "json").stdout)}

    def states(self, *ids):
        jobs = self.jobs()
        return {jobs[job]["state"].removeprefix("JOB_STATE_") for job in ids}

    def within(self, seconds, what, name):
        start = time.monotonic()
        while not what():
            self.assertLess(time.monotonic() - start, seconds, f"{name}: {self.get('/readyz')}\n{self.jobs()}\n{self.log()[-3000:]}")
            time.sleep(0.1)
        print(f"  {name}: {time.monotonic() - start:.1f} s", flush=True)

    def is_shown(self):
        status, text = self.get("/readyz")
        return (status == 503 and '"disk_full"' in text and "is full" in text and "bytes are free" in text
                and self.metric("hpvm_store_accepts_writes") == 0 and "The disk is full" in self.log())

    def is_well(self):
        return self.get("/readyz")[0] == 200 and self.metric("hpvm_store_accepts_writes") == 1

    def check_refused(self):
        refused = self.submit(*SMALL, code=FAILED)
        self.assertIn("RESOURCE_EXHAUSTED", refused)
        self.assertIn("disk", refused)
        self.assertNotIn(str(self.state), refused)

    def image(self, job):
        path = self.folder / "image.png"
        path.unlink(missing_ok=True)
        done = self.daemon.ctl("wait", job, "-O", f"image={path}")
        self.assertEqual(done.returncode, OK, done.stderr)
        return path.read_bytes()

    # Results without room wait in memory, are shown everywhere, and are stored when there is room.
    def test_results_wait_for_room(self):
        self.start()
        expected = self.image(self.submit(*LARGE))
        self.fill(3 * MIB)
        # All are submitted at once, before the first uses the room up. The third has to wait for its turn.
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = sorted(pool.map(lambda _: self.submit(*LARGE), range(3)))
        self.within(SHOWN_WITHIN + 5, lambda: self.is_shown(), "shown, with the runs themselves")
        why = lambda job: self.jobs()[job].get("waits_for", "")
        self.within(SHOWN_WITHIN, lambda: all("Waits for room on the server's disk" in why(job) for job in waiting), "each job says why")
        self.assertIn("Waits for room on the server's disk", self.daemon.ctl("list", "-o", "wide").stdout)
        self.assertIn("Waits for room on the server's disk", self.daemon.ctl("get", waiting[0]).stdout)
        self.assertEqual(self.states(*waiting[:2]), {"RUNNING"})
        self.assertGreater(self.metric("hpvm_disk_free_bytes"), 0)
        self.check_refused()
        self.assertEqual(self.daemon.ctl("run", GRAPH, *SMALL).returncode, OK)
        # One result is dropped, which needs no room.
        extra = waiting.pop()
        self.assertEqual(self.daemon.ctl("cancel", extra).returncode, OK)
        self.within(SHOWN_WITHIN, lambda: self.states(extra) == {"CANCELLED"}, "cancelled")
        (self.state / "fill").unlink()
        self.within(GOES_ON_WITHIN, lambda: self.states(*waiting) == {"SUCCEEDED"} and self.is_well(), "goes on")
        for job in waiting:
            self.assertEqual(self.image(job), expected)
            self.assertEqual(self.jobs()[job]["attempt"], 1)
        self.assertEqual(len(self.jobs()), 4)
        self.assertEqual(self.daemon.stop(), 0)

    # Another process fills the disk to the last byte: this shows before anything fails, and dropping results by hand
    # makes room again although not a byte is free.
    def test_the_documented_way_out_at_no_bytes(self):
        self.start()
        # Each image is different: equal results of one tenant share a file.
        done = [self.submit("--symbol", "w=2048", "--symbol", f"h={1024 - i}") for i in range(4)]
        for job in done:
            self.image(job)
        self.fill(0)
        self.within(SHOWN_WITHIN, self.is_shown, "shown")
        self.check_refused()
        self.configure(kept=7 * MIB)
        self.daemon.process.send_signal(signal.SIGHUP)
        self.within(SWEPT_WITHIN, lambda: self.free() > 8 * MIB, "old results are gone")
        self.within(GOES_ON_WITHIN, self.is_well, "goes on")
        self.assertNotIn("broken", self.daemon.ctl("devices").stdout.lower())
        self.assertEqual(self.states(*done), {"SUCCEEDED"})
        self.image(done[-1])
        self.image(self.submit(*SMALL))
        self.assertEqual(self.daemon.stop(), 0)
        check = subprocess.run([BIN / "hpvmd", "--check-jobs", "--state", self.state], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)

    # A daemon that was killed on a full disk starts again with its jobs; without its reserve it reports in one
    # sentence what it needs, and exits with a code after which systemd does not restart it.
    def test_a_start_on_a_full_disk(self):
        self.start()
        expected = self.image(self.submit(*LARGE))
        self.fill(3 * MIB)
        job = self.submit(*LARGE)
        self.within(SHOWN_WITHIN + 5, self.is_shown, "shown, with the run itself")
        self.kill()
        self.fill(0)
        self.start()
        self.within(SHOWN_WITHIN, self.is_shown, "shown after a start")
        self.within(SHOWN_WITHIN, lambda: "Waits for room" in self.jobs()[job]["waits_for"], "the job says why")
        (self.state / "fill").unlink()
        self.within(GOES_ON_WITHIN, lambda: self.states(job) == {"SUCCEEDED"} and self.is_well(), "goes on")
        self.assertEqual(self.image(job), expected)
        self.kill()
        (self.state / "reserve").unlink()
        self.fill(0)
        last = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", self.folder / "hpvmd.toml")
        self.assertEqual(last.process.wait(20), 3)
        said = last.log.read_text().splitlines()[-1]
        for part in ("hpvmd: ", str(self.state), "is full: 0 bytes are free", "are needed to start"):
            self.assertIn(part, said)
        self.assertIn("RestartPreventExitStatus=2 3\n", (ROOT / "deploy/hpvmd.service").read_text())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
