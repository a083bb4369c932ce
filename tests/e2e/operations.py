#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows docs/OPERATIONS.md: its own commands, in its order, with the real programs in a temporary prefix.

    operations.py BIN_FOLDER

The commands are read from the document, so that they cannot drift. Absolute paths are moved under the prefix; commands that need root or systemd
(useradd, runuser, chown, systemctl) are small stand-ins; systemctl does what deploy/hpvmd.service says.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()
DOCUMENT = (ROOT / "docs/OPERATIONS.md").read_text()
VERSION = re.search(r"^project\(hpvmd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M).group(1)
BLOCKS = dict(re.findall(r"<!-- run: ([a-z-]+) -->\n```sh\n(.*?)```", DOCUMENT, re.S))
# Steps in the document's order, except the restore, which comes after the daemon was killed.
STEPS = ["install", "start", "first-check", "health", "reload", "drain", "pause", "backup", "restore", "upgrade", "rollback", "rollback-state"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Systemd:
    """Systemd implements what the unit needs: start until READY=1, stop, reload, restart after a failure."""

    def __init__(self, machine):
        self.machine = machine
        self.process = None
        self.starts = 0
        self.restarts = False
        self.address = str(machine.prefix / "systemd.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.address)
        self.listener.listen()
        self.lock = threading.RLock()
        threading.Thread(target=self.serve, daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()

    def settings(self, name):
        text = (self.machine.prefix / "etc/systemd/system/hpvmd.service").read_text()
        return re.findall(rf"^{name}=(.*)$", text, re.M)

    def setting(self, name, default=None):
        return (self.settings(name) + [default])[0]

    def start(self):
        with self.lock:
            prefix = self.machine.prefix
            user = self.setting("User") if self.machine.has_users else None
            for folder, mode in ((prefix / "run" / self.setting("RuntimeDirectory"), 0o755),
                                 (prefix / "var/lib" / self.setting("StateDirectory"), 0o700)):
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(mode)
                if user:
                    shutil.chown(folder, user, self.setting("Group"))
            assert self.setting("Type") == "notify"
            notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            path = str(prefix / f"notify-{self.starts}.sock")
            notify.bind(path)
            os.chmod(path, 0o666)
            notify.settimeout(0.2)
            command = shlex.split(self.machine.moved(self.setting("ExecStart")))
            with notify, open(prefix / "hpvmd.log", "ab") as log:
                identity = {"user": user, "group": self.setting("Group"), "extra_groups": []} if user else {}
                self.process = subprocess.Popen(command, stdout=log, stderr=log, umask=int(self.setting("UMask"), 8),
                                                env={**os.environ, "NOTIFY_SOCKET": path}, **identity)
                self.starts += 1
                deadline = time.monotonic() + float(self.setting("TimeoutStartSec", "90"))
                while not self.is_told_ready(notify):
                    assert self.process.poll() is None, f"hpvmd ended with {self.process.returncode} before it was ready"
                    assert time.monotonic() < deadline
            self.restarts = True

    @staticmethod
    def is_told_ready(notify):
        try:
            return b"READY=1" in notify.recv(4096)
        except TimeoutError:
            return False

    def stop(self):
        with self.lock:
            self.restarts = False
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(float(self.setting("TimeoutStopSec")))
            assert code == 0, f"hpvmd stopped with {code}"
            self.process = None

    def watch(self):
        while True:
            time.sleep(0.05)
            with self.lock:
                if self.restarts and self.process.poll() is not None:
                    assert self.setting("Restart") == "on-failure"
                    if self.process.returncode != 0:
                        time.sleep(float(self.setting("RestartSec")))
                        self.start()

    def control(self, words):
        words = [word for word in words if not word.startswith("-") and word != "hpvmd"]
        if words in (["start"], ["enable"]):
            self.start()
        elif words == ["stop"]:
            self.stop()
        elif words == ["restart"]:
            self.stop()
            self.start()
        elif words == ["reload"]:
            *checks, last = self.settings("ExecReload")
            assert last == "/bin/kill -HUP $MAINPID"
            for check in checks:
                subprocess.run(shlex.split(self.machine.moved(check)), check=True)
            self.process.send_signal(signal.SIGHUP)
        elif words == ["is-active"]:
            return "active\n" if self.process and self.process.poll() is None else ""
        elif words not in (["daemon-reload"], ["reset-failed"]):
            raise AssertionError(f"systemctl {words}")
        return "\n"

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                try:
                    answer = self.control(connection.recv(4096).decode().split())
                except Exception as error:  # The error is reported to the command that asked.
                    answer = f"FAILED {error!r}\n"
                connection.sendall(answer.encode())


STAND_INS = {
    "useradd": "exit 0",
    "chown": "exit 0",
    # runuser -u hpvm -- COMMAND
    "runuser": '[ "$1" = -u ] && [ "$3" = -- ] && shift 3 && exec "$@"',
    # The owner is dropped, since that user does not exist here.
    "install": 'words=(); while [ $# -gt 0 ]; do case "$1" in -o|-g) shift 2 ;; *) words+=("$1"); shift ;; esac; done\n'
               'exec /usr/bin/install "${words[@]}"',
    "systemctl": "exec /usr/bin/python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                 ' s.sendall(" ".join(sys.argv[2:]).encode()); a = s.recv(4096).decode(); print(a, end="");'
                 " sys.exit(not a or a.startswith(\"FAILED\"))' \"$SYSTEMD\" \"$@\"",
}


def pack(folder, moved=lambda text: text):
    """Packs the part of deploy/bundle.sh's archive that is used here; the libraries are the machine's own."""
    root = folder / "hpvmd"
    (root / "bin").mkdir(parents=True)
    (root / "share/hpvm").mkdir(parents=True)
    for program in ("hpvmd", "hpvmctl", "hpvm-executor", "hpvm-compiler"):
        shutil.copy(BIN / program, root / "bin")
    shutil.copytree(ROOT / "examples", root / "share/hpvm/examples")
    shutil.copy(ROOT / "deploy/hpvmd.service", root / "share/hpvm")
    (root / "share/hpvm/hpvmd.toml").write_text(moved((ROOT / "deploy/hpvmd.toml").read_text()))
    subprocess.run(["tar", "-C", folder, "-cf", f"hpvmd-{VERSION}-linux-x86_64.tar.xz", "hpvmd"], cwd=folder, check=True)
    shutil.rmtree(root)


class Machine:
    """Machine is a prefix that stands for a machine's file system."""

    has_users = False

    def __init__(self):
        self.prefix = pathlib.Path(tempfile.mkdtemp(prefix="hpvmd-ops-"))
        self.port = free_port()
        for folder in ("bin", "usr/bin", "usr/share", "etc/systemd/system", "var/lib", "var/backups", "run", "opt", "tmp", "work"):
            (self.prefix / folder).mkdir(parents=True, exist_ok=True)
        for name, body in STAND_INS.items():
            (self.prefix / "bin" / name).write_text(f"#!/bin/bash\n{body}\n")
            (self.prefix / "bin" / name).chmod(0o755)
        pack(self.prefix / "work", self.configured)
        self.systemd = Systemd(self)

    def moved(self, text):
        """Returns the text with absolute paths moved under the prefix; nologin stays as it is."""
        text = re.sub(r"(?<![\w./])/(opt|usr/bin|usr/share|etc|var|run|tmp)/", rf"{self.prefix}/\1/", text)
        return text.replace("127.0.0.1:9464", f"127.0.0.1:{self.port}")

    def configured(self, config):
        config = self.moved(config)
        for old, new in (('backends = "auto"', 'backends = "cpu"'),
                         ('listen = ""', f'listen = "127.0.0.1:{self.port}"')):
            assert old in config, old
            config = config.replace(old, new)
        return config

    def environment(self):
        return {**os.environ, "PATH": f"{self.prefix}/bin:{self.prefix}/usr/bin:{os.environ['PATH']}",
                "HPVM_SERVER": f"unix:{self.prefix}/run/hpvmd/hpvmd.sock", "SYSTEMD": self.systemd.address,
                "XDG_CACHE_HOME": str(self.prefix / "tmp/cache")}

    def sh(self, text, check=True):
        run = subprocess.run(["bash", "-euo", "pipefail", "-c", self.moved(text).replace("VERSION", VERSION)], cwd=self.prefix / "work",
                             env=self.environment(), capture_output=True, text=True, timeout=120)
        if check and run.returncode != 0:
            log = (self.prefix / "hpvmd.log")
            raise AssertionError(f"{text}\nended with {run.returncode}\n{run.stdout}{run.stderr}\n"
                                 + (log.read_text()[-3000:] if log.exists() else ""))
        return run

    def step(self, name):
        return self.sh(BLOCKS[name])

    def jobs(self):
        """Returns the state of every job that the server lists, by id."""
        answer = json.loads(self.sh("hpvmctl -o json jobs list --all").stdout)
        return {job["id"]: job["state"] for job in (answer["jobs"] if isinstance(answer, dict) else answer)}

    def remove(self):
        if self.systemd.process is not None:
            self.systemd.restarts = False
            self.systemd.process.kill()
            self.systemd.process.wait()
        shutil.rmtree(self.prefix, ignore_errors=True)


class Submitter(threading.Thread):
    """Submitter submits small jobs until it is told to stop; it keeps the ids that were acknowledged."""

    COMMAND = ("hpvmctl submit --detach /usr/share/hpvm/examples/mandelbrot/mandelbrot.json"
               " --symbol w=16 --symbol h=16")

    def __init__(self, machine):
        super().__init__(daemon=True)
        self.machine, self.acknowledged, self.ends = machine, [], threading.Event()

    def run(self):
        while not self.ends.is_set():
            answer = self.machine.sh(self.COMMAND, check=False)
            if answer.returncode == 0:
                self.acknowledged.append(answer.stdout.split()[0])

    def stop(self):
        self.ends.set()
        self.join(60)
        return list(self.acknowledged)


class Operations(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()
        self.addCleanup(self.machine.remove)

    def wait_for(self, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not what():
            self.assertLess(time.monotonic(), deadline, "The state was not reached in time.")
            time.sleep(0.1)

    # Install, start, check, reload, back up under load, kill, restore into a new folder, check, serve, upgrade.
    def test_the_document_can_be_followed(self):
        machine = self.machine
        machine.step("install")
        self.assertIn("active", machine.step("start").stdout)
        self.assertIn("cpu:0", machine.step("first-check").stdout)
        self.assertGreater((machine.prefix / "tmp/hpvmd-check.png").stat().st_size, 100)
        machine.step("health")
        scraped = (machine.prefix / "tmp/hpvmd-metrics.txt").read_text()
        self.check_names(scraped)
        machine.step("reload")
        self.wait_for(lambda: "running_per_tenant_max" in (machine.prefix / "hpvmd.log").read_text(), 10)

        submitter = Submitter(machine)
        submitter.start()
        self.wait_for(lambda: len(submitter.acknowledged) >= 5)
        before = list(submitter.acknowledged)
        machine.step("backup")
        self.wait_for(lambda: len(submitter.acknowledged) >= len(before) + 3)

        # SIGKILL under load: no acknowledged job is lost, and the unit restarts the daemon.
        starts = machine.systemd.starts
        machine.systemd.process.kill()
        self.wait_for(lambda: machine.systemd.starts > starts)
        acknowledged = submitter.stop()
        self.wait_for(lambda: all(state == "SUCCEEDED" for state in self.upper(machine.jobs()).values()))
        self.assertLessEqual(set(acknowledged), set(machine.jobs()))

        machine.step("restore")
        restored = self.upper(machine.jobs())
        self.assertLessEqual(set(before), set(restored))
        self.wait_for(lambda: all(self.upper(machine.jobs())[job] == "SUCCEEDED" for job in before))

        # A damaged file of a backup is found. (Databases without large results have graphs and modules as files.)
        blob = next(path for path in (machine.prefix / "var/backups/hpvmd/today/blobs").rglob("*") if path.is_file())
        blob.chmod(0o600)
        blob.write_bytes(blob.read_bytes()[:-1] + b"!")
        check = machine.sh("hpvmd --check-jobs --state /var/backups/hpvmd/today", check=False)
        self.assertEqual(check.returncode, 1, check.stdout + check.stderr)

        machine.step("upgrade")
        machine.step("first-check")
        machine.step("rollback")
        machine.step("first-check")
        machine.step("rollback-state")
        machine.step("first-check")
        machine.sh("systemctl stop hpvmd")

    @staticmethod
    def upper(jobs):
        return {job: state.upper().removeprefix("JOB_STATE_") for job, state in jobs.items()}

    # The daemon has every metric, key and alarm that the document and the rules name.
    def check_names(self, scraped):
        rules = (ROOT / "deploy/alerts.yml").read_text()
        expressions = "\n".join(re.findall(r"expr: (.*)", rules))
        listed = (ROOT / "docs/METRICS.md").read_text()
        for name in sorted(set(re.findall(r"\b(?:hpvm|process)_[a-z_]+", DOCUMENT + expressions))):
            with self.subTest(metric=name):
                name = re.sub(r"_(count|sum|bucket)$", "", name)  # A series of a histogram.
                self.assertIn(f"# TYPE {name} ", scraped)
                self.assertIn(name, listed)


class Names(unittest.TestCase):
    # The command that enables credentials leaves a file that a daemon accepts, with no other change.
    def test_credentials_are_switched_on(self):
        command, check = re.search(r"```sh\n(sed .*)\n(hpvmd .*)\nsystemctl restart hpvmd\nhpvmctl tenant create", DOCUMENT).groups()
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "hpvmd.toml"
            shutil.copy(ROOT / "deploy/hpvmd.toml", config)
            before = tomllib.loads(config.read_text())
            subprocess.run(["bash", "-c", command.replace("/etc/hpvm/hpvmd.toml", str(config))], check=True)
            after = tomllib.loads(config.read_text())
            self.assertEqual((after["auth"].pop("peers"), after["auth"].pop("tokens")), (True, True))
            self.assertEqual((before["auth"].pop("peers"), before["auth"].pop("tokens")), (False, False))
            self.assertEqual(before, after)
            words = shlex.split(check.replace("/etc/hpvm/hpvmd.toml", str(config))) + ["--state", folder]
            done = subprocess.run([BIN / words[0], *words[1:]], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    # All keys exist in the configuration.
    def test_keys_exist(self):
        config, section = set(), ""
        for line in (ROOT / "deploy/hpvmd.toml").read_text().splitlines():
            if found := re.match(r"\[(\w+)\]", line):
                section = found.group(1)
            elif found := re.match(r"(\w+) =", line):
                config.add(f"{section}.{found.group(1)}")
        sections = {key.split(".")[0] for key in config}
        named = {key for key in re.findall(r"`([a-z]+\.[a-z_]+)(?: = [^`]*)?`", DOCUMENT)
                 if key.split(".")[0] in sections}
        self.assertGreater(len(named), 20)
        self.assertEqual(named - config - {"jobs.db", "accounts.sqlite", "identity.sqlite"}, set())  # File names.

    # Each alarm has a rule, and each rule names an existing section.
    def test_alarms_and_sections_agree(self):
        rules = (ROOT / "deploy/alerts.yml").read_text()
        alerts = set(re.findall(r"alert: (\w+)", rules))
        headings = re.findall(r"^#+ (.*)$", DOCUMENT, re.M)
        named = set(re.findall(r"`(Hpvmd\w+)`", "\n".join(headings)))
        self.assertEqual(alerts - {"HpvmdDown"}, named)
        anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        for runbook in re.findall(r'runbook: "docs/OPERATIONS.md#(.*)"', rules):
            self.assertIn(runbook, anchors)
        self.assertEqual(len(re.findall(r"runbook: ", rules)), len(re.findall(r"alert: ", rules)))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
