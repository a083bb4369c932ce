#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the sandbox of executors with the real programs: levels, user ids, control groups, spares, and their removal.

    sandbox.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import numpy as np

from e2e import CANNOT_PLACE, HERE, OK, Daemon, children, one_node, port

IN_OUT = (port("in", "in"), port("out", "out"))
UID_FIRST = 63_000


def comm(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def uid(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])


def control_groups(pid):
    """Returns the prefix of the control groups of a process's daemon: daemons of other tests have groups, too."""
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    names = {pathlib.PurePath(line.split(":", 2)[2]).name for line in lines}
    return {name[:name.rindex("-") + 1] for name in names if name.startswith("hpvmd-")}


def left_of(prefixes):
    return [path for prefix in prefixes for path in pathlib.Path("/sys/fs/cgroup").glob(f"**/{prefix}*") if path.is_dir()]


class SandboxTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-sandbox-"))
        self.folder.chmod(0o755)
        shutil.copy(HERE / "kernels.wasm", self.folder)
        np.save(self.folder / "in.npy", np.asarray([1, 2, 3], np.int32))
        (self.folder / "add.json").write_text(json.dumps(one_node("add", IN_OUT, [("amount", 1)])))
        self.daemon = None

    def tearDown(self):
        if self.daemon is not None and self.daemon.process.poll() is None:
            self.daemon.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)

    def start(self, settings):
        config = self.folder / "hpvmd.toml"
        config.write_text(settings)
        self.daemon = Daemon(self.folder / "daemon", "--devices", "cpu", "--config", config)
        ready = self.daemon.ctl("devices", "--connect-timeout", "30")
        self.assertEqual(ready.returncode, OK, ready.stderr + self.daemon.log.read_text())

    def add(self, code=OK):
        done = self.daemon.ctl("run", self.folder / "add.json", "--input", f"in={self.folder / 'in.npy'}", timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr + self.daemon.log.read_text()[-2000:])
        return done

    def executors(self, count):
        """Returns the daemon's executor processes, once there are `count`."""
        deadline = time.monotonic() + 60
        found = []
        while time.monotonic() < deadline:
            found = [pid for pid in children(self.daemon.process.pid) if comm(pid) == "hpvm-executor"]
            if len(found) == count:
                break
            time.sleep(0.05)
        self.assertEqual(len(found), count, self.daemon.log.read_text())
        return found

    def executors_with_users(self, count):
        """Returns the executors, once each has changed from the daemon's user to its own."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = self.executors(count)
            if os.getuid() not in {uid(pid) for pid in found}:
                break
            time.sleep(0.02)
        return found

    def test_command_lines_show_no_tenant(self):
        """Command lines are readable by everybody on the machine: they name neither a tenant nor a tenant's folder."""
        for devices, spares in (("cpu", 0), ("cpu", 1), ("auto", 0)):
            config = self.folder / "hpvmd.toml"
            config.write_text(f"[executor]\nspares = {spares}\n")
            self.daemon = Daemon(self.folder / "daemon", "--devices", devices, "--config", config)
            lines, ends = set(), threading.Event()

            def look():
                while not ends.is_set():
                    for pid in children(self.daemon.process.pid):
                        try:
                            lines.add(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode())
                        except OSError:
                            pass

            watcher = threading.Thread(target=look)
            watcher.start()
            self.assertEqual(self.daemon.ctl("devices", "--connect-timeout", "30").returncode, OK)
            self.add()
            self.executors(1 + spares)
            ends.set()
            watcher.join()
            # (Between fork and exec a child shows the daemon's own.)
            own = pathlib.Path(f"/proc/{self.daemon.process.pid}/cmdline").read_bytes().decode()
            words = [line.rstrip("\0").split("\0") for line in lines - {own} if line]
            programs = {pathlib.Path(one[0]).name for one in words}
            self.assertLessEqual({"hpvm-executor", "hpvm-compiler"}, programs)
            for one in words:
                for word in one[1:]:
                    self.assertNotIn("local", word, one)
                    self.assertNotIn(str(self.folder), word, one)
            self.assertEqual(self.daemon.stop(), 0)

    @unittest.skipIf(os.getuid() != 0, "assigning user ids needs root")
    def test_each_executor_has_a_user_and_nothing_is_left(self):
        self.start(f"[executor]\nuid_first = {UID_FIRST}\nuid_count = 20\nspares = 1\n")
        self.executors(1)
        self.add()
        pids = self.executors_with_users(2)
        self.assertEqual(len({uid(pid) for pid in pids}), 2)
        groups = set().union(*(control_groups(pid) for pid in pids))
        family = children(self.daemon.process.pid)
        self.assertTrue({uid(pid) for pid in family} <= set(range(UID_FIRST, UID_FIRST + 20)))
        log = self.daemon.log.read_text()
        self.assertRegex(log, "sandbox_level=[34]")
        # The module is compiled once, and found again by the next executor, which has another user.
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        again = self.add()
        self.assertEqual(again.returncode, OK)
        cache = list((self.folder / "daemon/state/cache").glob("*/*.hpva"))
        self.assertEqual(len(cache), 1, cache)
        # A killed daemon leaves groups and scratch folders; the next daemon ends and removes them.
        self.daemon.stop(signal.SIGKILL)
        self.start(f"[executor]\nuid_first = {UID_FIRST}\nuid_count = 20\nspares = 0\n")
        # (The executor with which the next daemon checks the sandbox ends a moment later.)
        end = time.monotonic() + 10
        while left_of(groups) or list((self.folder / "daemon/state/scratch").iterdir()):
            self.assertLess(time.monotonic(), end, left_of(groups))
            time.sleep(0.05)
        self.add()
        self.assertEqual(self.daemon.stop(), 0)
        self.assertEqual(left_of(groups), [])
        self.assertEqual(list((self.folder / "daemon/state/scratch").iterdir()), [])

    @unittest.skipIf(os.getuid() != 0, "assigning user ids needs root")
    def test_level_2_has_a_user_too(self):
        """Level 2, without a namespace and an effective control group: a separate user protects the daemon against signals and limits."""
        for ids in (f"uid_first = {UID_FIRST}\nuid_count = 20\n", ""):  # The ids are configured, or chosen by the daemon.
            self.start(f"[executor]\nsandbox_max = 2\nsandbox_min = 2\nspares = 1\n{ids}")
            self.executors(1)
            self.add()
            users = {uid(pid) for pid in self.executors_with_users(2)}
            family = [pid for pid in children(self.daemon.process.pid) if comm(pid).startswith("hpvm-")]
            self.assertEqual(len(users), 2)
            self.assertEqual({uid(pid) for pid in family}, users)
            self.assertNotIn(os.getuid(), users)
            if ids:
                self.assertLessEqual(users, set(range(UID_FIRST, UID_FIRST + 20)))
            else:
                self.assertTrue(all(1879048192 <= user < 2147483648 for user in users), users)
            self.assertIn("sandbox_level=2", self.daemon.log.read_text())
            self.assertEqual(self.daemon.stop(), 0)

    @unittest.skipIf(os.getuid() != 0, "assigning user ids needs root")
    def test_executors_keep_the_daemons_user_where_another_would_not_work(self):
        reasons = {"uid_count = 0": "", "uid_count = 10": "Only its owner may enter the folder"}
        self.folder.chmod(0o700)
        for setting, reason in reasons.items():
            self.start(f"[executor]\n{setting}\nspares = 0\n")
            self.add()
            self.assertEqual({uid(pid) for pid in self.executors(1)}, {os.getuid()})
            self.assertIn(reason, self.daemon.log.read_text())
            self.assertEqual(self.daemon.stop(), 0)

    def test_a_weak_sandbox_runs_nothing(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port_number = probe.getsockname()[1]
        self.start(f"[executor]\nsandbox_max = 1\nsandbox_min = 2\n[metrics]\nlisten = \"127.0.0.1:{port_number}\"\n")
        # An operator sees the sandbox before the first tenant comes.
        end = time.monotonic() + 20
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port_number}/readyz", timeout=10)
                self.fail("It is ready.")
            except urllib.error.HTTPError as error:
                reasons = {one["reason"]: one["detail"] for one in json.loads(error.read())["reasons"]}
            if "starting" not in reasons:
                break
            self.assertLess(time.monotonic(), end, reasons)
            time.sleep(0.05)
        self.assertEqual(list(reasons), ["sandbox"])
        self.assertIn("Executors reach sandbox level 1", reasons["sandbox"])
        self.assertIn("executor.sandbox_min demands level 2", reasons["sandbox"])
        self.assertIn("weaker than executor.sandbox_min", self.daemon.log.read_text())
        done = self.add(code=CANNOT_PLACE)
        self.assertIn("FAILED_PRECONDITION", done.stderr)
        self.assertIn("reaches level 1", done.stderr)
        self.assertIn("demands at least level 2", done.stderr)

    def test_spares_that_are_replaced_are_no_warning(self):
        self.start("[executor]\nspares = 1\n")
        first = self.executors(1)
        self.daemon.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + 30
        while self.executors(1) == first:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertNotIn("A spare executor ended", self.daemon.log.read_text())
        # An executor that ends by itself is reported.
        os.kill(self.executors(1)[0], signal.SIGKILL)
        while "A spare executor ended" not in self.daemon.log.read_text():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)

    def test_each_level_runs_kernels(self):
        for level in range(5):
            self.start(f"[executor]\nsandbox_max = {level}\nsandbox_min = 0\n")
            self.add()
            self.assertRegex(self.daemon.log.read_text(), "Executor ready")
            self.assertEqual(self.daemon.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
