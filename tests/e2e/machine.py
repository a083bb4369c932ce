#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the commands about the machine's use and whether it accepts work: hpvmctl top, cordon, drain, readmit and doctor.

    machine.py BIN_FOLDER
"""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
import unittest

from e2e import BIN, FAILED, OK, UNREACHABLE
from jobs import WithDaemon, add, busy

TIMED_OUT = 124


class Machine(WithDaemon):
    def setUp(self):
        self.ctl("readmit")

    def restart(self):
        self.daemon.stop(signal.SIGKILL)
        self.start()

    def overview(self, *arguments):
        return json.loads(self.ctl("top", "--once", "-o", "json", *arguments).stdout)

    def test_a_closed_server_takes_jobs_and_starts_nothing(self):
        said = self.ctl("cordon", "--reason", "new disks").stdout
        self.assertIn("No work is started from now on", said)
        refused = self.ctl("run", *self.graph(add()), "--patience", "1s", code=UNREACHABLE).stderr
        self.assertIn("starts nothing now: new disks. It accepts jobs, which wait.", refused)
        job = self.submit(add())
        time.sleep(0.3)
        facts = self.job(job)
        self.assertEqual((facts["state"], facts.get("attempt", 0)), ("JOB_STATE_ACCEPTED", 0))
        self.assertEqual(facts["waits_for"], "The server starts nothing now: new disks.")
        self.restart()  # The server stays closed.
        self.assertTrue(self.overview()["intake"]["closed"])
        self.assertIn("CLOSED: nothing is started: new disks", self.ctl("top", "--once").stdout)
        found = self.ctl("doctor", code=FAILED).stdout
        self.assertRegex(found, r"fault +The server starts no work: new disks\n +-> An administrator opens it again: hpvmctl readmit\.")
        time.sleep(0.3)
        self.assertEqual(self.job(job)["state"], "JOB_STATE_ACCEPTED")
        self.assertIn("Work is started again", self.ctl("readmit").stdout)
        self.ctl("wait", job, timeout=60)

    def test_drain_waits_for_what_runs(self):
        job = self.submit(busy(700))
        self.await_state(job, "RUNNING")
        gave_up = self.ctl("drain", "--timeout", "0.2s", "--reason", "upgrade", code=TIMED_OUT)
        self.assertIn("1 jobs and 0 runs are still in progress; the server stays closed", gave_up.stderr)
        self.assertIn("Nothing runs any more.", self.ctl("drain", timeout=120).stdout)
        self.assertEqual(self.job(job)["state"], "JOB_STATE_SUCCEEDED")

    def test_top_shows_who_uses_what(self):
        job = self.submit(busy(3000), "--name", "long one", "--tenant", "lab")
        end = time.monotonic() + 30
        while True:
            now = self.overview()
            if [work for work in now.get("running", []) if work.get("job_id") == job]:
                break
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        [work] = [work for work in now["running"] if work.get("job_id") == job]
        self.assertEqual((work["tenant"], work["name"], work["graph"]), ("lab", "long one", "busy"))
        [lab] = [tenant for tenant in now["tenants"] if tenant["name"] == "lab"]
        self.assertEqual(int(lab["jobs_running"]), 1)
        self.assertGreater(lab["executor_pid"], 1)
        self.assertEqual([device["device"]["id"] for device in now["devices"]], ["cpu:0"])
        self.assertGreater(int(now["memory_bytes"]), 1 << 20)
        for width in (40, 80, 200):
            picture = self.ctl("top", "--once", "--width", width).stdout
            self.assertLessEqual(max(map(len, picture.splitlines())), width)
            self.assertIn("lab", picture)
        self.assertIn("long one", picture)
        self.assertIn(job, picture)
        rates = self.ctl("top", "--count", "2", "--interval", "0.5", "--width", "200").stdout.split("\nDEVICE ")[-1]
        self.assertRegex(rates, r"cpu:0 +READY +\d+ %")
        self.ctl("cancel", job, "--tenant", "lab")

    def test_top_on_a_terminal(self):
        """top fills the terminal's alternate screen, follows its size, and restores it at Ctrl-C."""
        for columns, lines in ((40, 24), (80, 24), (200, 50)):
            keeper, terminal = pty.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            top = subprocess.Popen([BIN / "hpvmctl", "top", "--interval", "0.2"], stdin=terminal, stdout=terminal, stderr=terminal,
                                   env={**os.environ, "HPVM_SERVER": self.daemon.server, "TERM": "xterm"}, start_new_session=True)
            os.close(terminal)
            shown = b""
            while shown.count(b"\x1b[J") < 3:
                shown += os.read(keeper, 65536)
            top.send_signal(signal.SIGINT)
            try:
                while more := os.read(keeper, 65536):
                    shown += more
            except OSError:  # The terminal's other end is gone.
                pass
            os.close(keeper)
            self.assertEqual(top.wait(20), OK)
            self.assertTrue(shown.startswith(b"\x1b[?1049h"), shown[:80])
            self.assertTrue(shown.rstrip().endswith(b"\x1b[?1049l"), shown[-80:])
            for picture in shown.decode().split("\x1b[H")[1:]:
                rows = [row.split("\x1b[K")[0] for row in picture.split("\x1b[J")[0].splitlines()]
                self.assertLessEqual(len(rows), lines)
                self.assertLessEqual(max(map(len, rows)), columns)

    def test_the_doctor(self):
        done = self.daemon.ctl("doctor")
        self.assertIn(done.returncode, (OK, FAILED), done.stderr)
        self.assertRegex(done.stdout, r"good +The server answers; version ")
        self.assertRegex(done.stdout, r"good +cpu:0 \(.*\) is ready\.")
        for finding in json.loads(self.daemon.ctl("doctor", "-o", "json").stdout):
            self.assertTrue(finding["next"] or finding["grade"] == "good", finding)
        away = subprocess.run([BIN / "hpvmctl", "doctor", "-s", f"unix:{self.folder}/none", "--connect-timeout", "0.2"], capture_output=True,
                              text=True)
        self.assertEqual(away.returncode, FAILED)
        self.assertIn("No hpvmd answers", away.stdout)
        self.assertIn("-> Start a server", away.stdout)

    def test_reasons_have_limits(self):
        self.assertIn("The reason has 256 bytes; the limit is 255.", self.ctl("cordon", "--reason", "x" * 256, code=2).stderr)
        self.assertFalse(self.overview()["intake"].get("closed", False))


if __name__ == "__main__":
    unittest.main(argv=[__file__])
