#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests hpvmctl as users see it: every example of its help, profiles, formats, one job's story, job files, and odd terminals.

    ctl_examples.py BIN_FOLDER [TestCase.test ...]
"""

import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import termios
import unittest

import numpy as np

from e2e import BIN, FAILED, OK, ROOT, USAGE, children
from jobs import INTERRUPTED, WithDaemon, add, indexed, spin, trap

# Examples that do not end by themselves; each is interrupted once it has printed something.
ENDLESS = re.compile(r"--watch\b")
# Values for words of examples that the reader has to replace.
STAND_INS = {"alice": "daemon", "bob": "bin", "carol": "mail"}


def commands_of(text):
    """Returns the commands that a help text lists."""
    block = re.search(r"^Subcommands:\n((?:  .*\n|\n(?=  \S))*)", text, re.M)
    return re.findall(r"^  (\S+)", block.group(1), re.M) if block else []


def examples_of(text):
    """Returns the lines below "Example:" or "Examples:"."""
    block = re.search(r"^Examples?:\n((?:  .+\n?)+)", text, re.M)
    return [line.strip() for line in block.group(1).splitlines()] if block else []


class Ctl(WithDaemon):
    """Ctl has a daemon, a folder with every file that an example names, and a home folder."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work, cls.home = cls.folder / "work", cls.folder / "home"
        (cls.home / ".local/share/bash-completion/completions").mkdir(parents=True)
        cls.work.mkdir()
        tools = cls.folder / "tools"
        tools.mkdir()
        (tools / "hpvmctl").symlink_to(BIN / "hpvmctl")
        for name, text in (("dot", "#!/bin/sh\ncat > \"$3\"\n"), ("jq", "#!/bin/sh\ncat > /dev/null\n")):
            if shutil.which(name) is None:  # Programs behind a pipe are not part of hpvmctl.
                (tools / name).write_text(text)
                (tools / name).chmod(0o755)
        cls.environment = {name: value for name, value in os.environ.items() if not name.startswith("HPVM_")}
        cls.environment.update(HOME=str(cls.home), HPVM_SERVER=cls.daemon.server, LC_ALL="C.UTF-8",
                               XDG_CACHE_HOME=str(cls.folder / "cache"), PATH=f"{tools}:/usr/bin:{os.environ['PATH']}")  # The system's python3 has packages.
        cls.environment.pop("XDG_CONFIG_HOME", None)
        cls.write_files()

    @classmethod
    def write_files(cls):
        for name in ("matmul/matmul.json", "matmul/matmul.wasm", "mandelbrot/mandelbrot.json", "mandelbrot/mandelbrot.wasm"):
            shutil.copy(ROOT / "examples" / name, cls.work)
        shutil.copy(cls.folder / "kernels.wasm", cls.work)
        for name in ("a", "b", "a1", "b1", "a2", "b2"):
            np.save(cls.work / f"{name}.npy", np.eye(4, dtype=np.float32))
        np.save(cls.work / "small.npy", np.arange(4, dtype=np.int32))
        np.save(cls.work / "parts.npy", np.arange(4, dtype=np.int32))
        sweep = indexed()
        sweep["inputs"] = {"seed": {"type": "i32", "shape": []}}
        sweep["outputs"] = {"r": {"type": "i32", "shape": []}}
        sweep["symbols"] = []
        sweep["nodes"]["node"]["scalars"][0]["value"] = 1
        sweep["edges"] = [{"from": "seed", "to": "node.in"}, {"from": "node.out", "to": "r"}]
        total = add()
        total["inputs"] = {"parts": total["inputs"]["in"]}
        total["edges"][0]["from"] = "parts"
        for name, document in (("sweep", sweep), ("sum", total), ("blur", add())):
            (cls.work / f"{name}.json").write_text(json.dumps(document))
        (cls.work / "jobs.jsonl").write_text("".join(
            json.dumps({"input": {"A": f"a{i}.npy", "B": f"b{i}.npy"}, "output": {"C": f"c{i}.npy"}}) + "\n" for i in (1, 2)))
        (cls.work / "blur.job.json").write_text(json.dumps(
            {"hpvm_job": 1, "graph": add(), "inputs": {"in": "small.npy"}, "outputs": {"out_out": "blurred.npy"}}))
        (cls.work / "matmul.job.json").write_text(json.dumps(
            {"hpvm_job": 1, "graph": "matmul.json", "inputs": {"A": "a.npy", "B": "b.npy"}, "labels": {"project": "blur"}}))

    def shell(self, line, timeout=60, **variables):
        return subprocess.run(["bash", "-c", line], cwd=self.work, capture_output=True, text=True, timeout=timeout,
                              env={**self.environment, **variables})

    def ok(self, line, code=OK, **variables):
        done = self.shell(line, **variables)
        self.assertEqual(done.returncode, code, f"{line}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def matmul(self, *more):
        return self.ok("hpvmctl submit -d matmul.json --input A=a.npy --input B=b.npy " + " ".join(more)).stdout.strip()

    def finished(self, *more):
        job = self.matmul(*more)
        self.ok(f"hpvmctl wait {job}")
        return job

    def on_terminal(self, arguments, columns=80, seconds=30, **variables):
        """Returns the output and error output of hpvmctl on a terminal with `columns` columns."""
        parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([BIN / "hpvmctl", *arguments], stdin=child, stdout=child, stderr=child, cwd=self.work,
                                   env={**self.environment, "TERM": "xterm", **variables})
        os.close(child)
        data, end = b"", time.monotonic() + seconds
        while time.monotonic() < end and select.select([parent], [], [], max(0, end - time.monotonic()))[0]:
            try:
                part = os.read(parent, 65536)
            except OSError:  # EIO: the other end of the terminal is closed.
                break
            if not part:
                break
            data += part
        os.close(parent)
        return process.wait(10), data.decode().replace("\r\n", "\n")


class Examples(Ctl):
    """Examples runs every example that a help text shows."""

    def helps(self):
        pending, seen = [[]], {}
        while pending:
            path = pending.pop(0)
            done = self.shell(" ".join(["hpvmctl", *path, "--help"]))
            self.assertEqual(done.returncode, OK, done.stderr)
            seen[" ".join(path)] = done.stdout
            pending += [path + [name] for name in commands_of(done.stdout)]
        return seen

    def filled(self, line):
        """Returns the example with ids in place of the reader's own values."""
        for word, stand_in in STAND_INS.items():
            line = re.sub(rf"\b{word}\b", stand_in, line)
        if "job-0193…" in line:
            command = re.search(r"hpvmctl (?:jobs )?(\w+)", line).group(1)
            if command in ("hold", "release"):
                job = self.matmul("--hold")
            else:
                job = self.matmul("--name", command) if command in ("cancel", "wait") else self.finished("--name", command)
            line = line.replace("job-0193…", job)
            if command == "replay":
                self.ok(f"hpvmctl bundle {job}")
        if "5f3a09c1be42" in line:
            line = line.replace("5f3a09c1be42", self.ok("hpvmctl module put kernels.wasm").stdout[:12])
        if "delete trial" in line:
            self.ok("hpvmctl tenant create trial")
        if "array-0193…" in line:
            held = re.search(r"hpvmctl (?:jobs )?(hold|release)", line) is not None
            line = line.replace("array-0193…", self.matmul("--array", "0-1", "--hold") if held else self.finished("--array", "0-1"))
        if "tok-0193…" in line:
            self.ok("hpvmctl token create --tenant blur --output revoked.token --replace")
            line = line.replace("tok-0193…", json.loads(self.ok("hpvmctl token list --tenant blur -o json").stdout)[-1]["id"])
        if "/var/lib/hpvmd" in line:
            head = self.ok("hpvmctl audit verify -o name").stdout.strip()
            line = line.replace("/var/lib/hpvmd", str(self.daemon.folder / "state")).replace("812:3f0c…", head)
        self.assertNotIn("…", line, "an example that this test cannot fill in")
        return line

    def run_endless(self, line):
        process = subprocess.Popen(["bash", "-c", "exec " + line], cwd=self.work, env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(select.select([process.stdout], [], [], 20)[0], "nothing was shown")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
        self.assertIn(process.returncode, (-signal.SIGINT, INTERRUPTED), said)

    def test_every_example_runs(self):
        helps = self.helps()
        self.assertGreater(len(helps), 40)
        # Tenants come first, since examples of other commands name them. Commands that close a device or the server come last, before those that open it.
        closing = ("device pause", "device resume", "cordon", "drain", "readmit")
        ordered = sorted(helps, key=lambda path: (closing.index(path) + 1 if path in closing else 0,
                                                  not path.startswith("tenant create"), not path.startswith("tenant")))
        ran = 0
        for path in ordered:
            for example in examples_of(helps[path]):
                with self.subTest(command=path, example=example):
                    line = self.filled(example)
                    ran += 1
                    if ENDLESS.search(line):
                        self.run_endless(line)
                        continue
                    done = self.shell("set -o pipefail; " + line, timeout=120)
                    no_device = "This machine has no device" in done.stderr and "--device" in line
                    # This daemon is not part of a cluster; ctl_cluster.py has one.
                    no_cluster = "not part of a cluster" in done.stderr and path.startswith("cluster ") or "host-needs" in done.stderr and "--needs" in line
                    wanted = done.returncode if no_device or no_cluster else OK
                    self.assertEqual(done.returncode, wanted, f"{line}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        self.assertGreater(ran, 60)
        leaves = [path for path in helps if not commands_of(helps[path])]
        without = [path for path in leaves if not examples_of(helps[path]) and not path.startswith("jobs ")]
        self.assertEqual(without, [], "commands without an example")


class Profiles(Ctl):
    def setUp(self):
        self.file = self.home / ".config/hpvm/profiles.toml"
        self.file.unlink(missing_ok=True)

    def test_a_profile_from_its_making_to_its_end(self):
        self.assertIn("there are no profiles", self.ok("hpvmctl profile list").stderr)
        made = self.ok(f"hpvmctl profile set lab --server {self.daemon.server} --tenant blur --token-file t/../lab.token")
        self.assertIn("`hpvmctl profile use lab`", made.stderr)
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        self.assertEqual([entry.name for entry in self.file.parent.iterdir()], ["profiles.toml"])
        shown = json.loads(self.ok("hpvmctl profile show lab -o json").stdout)
        self.assertEqual(shown["token_file"], str(self.work / "lab.token"))
        self.assertFalse(shown["default"])
        self.ok("hpvmctl profile show", code=USAGE)
        self.ok("hpvmctl profile set lab --unset token_file --unset tenant")
        self.ok("hpvmctl profile use lab")
        self.assertIn("lab (the default)", self.ok("hpvmctl profile show").stdout)
        self.assertEqual(self.ok("hpvmctl profile list -o name").stdout, "lab\n")
        self.assertRegex(self.ok("hpvmctl profile list").stdout, r"\n\*\s+lab\s+unix:")
        self.ok("env -u HPVM_SERVER hpvmctl devices")  # hpvmctl finds the server at the default address.
        self.assertIn("now there is no default", self.ok("hpvmctl profile remove lab").stderr)
        self.ok("hpvmctl profile remove lab", code=USAGE)

    def test_what_is_wrong_is_said_and_changes_nothing(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        for text, said in (('default = "lab"\n[profile.lab]\nserverr = "x"\n', '"serverr" (line 3); did you mean "server"?'),
                           ('defalt = "lab"\n', '"defalt" (line 1); did you mean "default"?')):
            self.file.write_text(text)
            for command in ("list", "use lab", "set lab --server x", "remove lab"):
                self.assertIn(said, self.ok(f"hpvmctl profile {command}", code=USAGE).stderr)
            self.assertEqual(self.file.read_text(), text)
        self.file.write_text('[profile.lab]\nserver = "x"\n')
        self.assertIn('did you mean "lab"', self.ok("hpvmctl profile use lib", code=USAGE).stderr)
        self.assertIn("cannot name a profile", self.ok("hpvmctl profile set 'a b' --server x", code=USAGE).stderr)
        self.assertIn("Nothing is set", self.ok("hpvmctl profile set lab", code=USAGE).stderr)
        self.ok("hpvmctl profile set lab --unset sever", code=USAGE)

    def test_lost_comments_are_told(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text('# mine\n[profile.lab]\nserver = "#x"\n')
        self.assertIn("the comments", self.ok("hpvmctl profile use lab").stderr)
        self.assertNotIn("the comments", self.ok("hpvmctl profile use lab").stderr)
        self.assertIn('server = "#x"', self.file.read_text())


class Formats(Ctl):
    def test_each_format_of_a_list(self):
        job = self.finished("--label", "project=blur", "--name", "yes")
        whole = json.loads(self.ok("hpvmctl list -o json").stdout)
        lines = [json.loads(line) for line in self.ok("hpvmctl list -o jsonl").stdout.splitlines()]
        self.assertEqual(lines, whole)
        columns = self.ok("hpvmctl list -o custom-columns=JOB:id,PROJECT:labels.project,NONE:no.such[3]").stdout
        self.assertRegex(columns.splitlines()[0], r"^JOB +PROJECT +NONE$")
        self.assertRegex(columns, rf"(?m)^{job} +blur +-$")
        try:
            import yaml
        except ImportError:
            yaml = None
        if yaml is not None:
            for command in ("list", "devices", "quota", "whoami", f"get {job}", "version", "audit verify", f"describe {job}"):
                as_json = json.loads(self.ok(f"hpvmctl {command} -o json").stdout)
                as_yaml = yaml.safe_load(self.ok(f"hpvmctl {command} -o yaml").stdout)
                for volatile in (as_json, as_yaml):
                    drop_volatile(volatile)
                self.assertEqual(as_yaml, as_json, command)

    def test_a_wrong_format(self):
        said = self.ok("hpvmctl list -o jsno", code=USAGE).stderr
        for name in ("table", "wide", "json", "jsonl", "yaml", "name", "custom-columns=NAME:PATH"):
            self.assertIn(name, said)
        self.assertIn('did you mean "json"', said)
        self.assertIn("has no path", self.ok("hpvmctl list -o custom-columns=A", code=USAGE).stderr)

    def test_what_is_left_out_is_said(self):
        for _ in range(2):
            self.finished()
        self.assertIn("there are more (--limit, --all)", self.ok("hpvmctl list --limit 1").stderr)
        self.assertEqual(self.ok("hpvmctl list --all").stderr, "")

    def test_version(self):
        client = self.ok("hpvmctl version --client -o name").stdout.strip()
        answer = json.loads(self.ok("hpvmctl version -o json").stdout)
        self.assertEqual((answer["client"]["version"], answer["server"]["version"]), (client, client))
        begin = time.monotonic()
        done = self.ok("hpvmctl version", HPVM_SERVER="unix:/nowhere")
        self.assertLess(time.monotonic() - begin, 10)
        self.assertIn("no server answers at unix:/nowhere", done.stdout)
        self.assertIn("not known", done.stderr)
        self.assertEqual(self.ok("hpvmctl version --client", HPVM_SERVER="unix:/nowhere").stderr, "")


def drop_volatile(value):
    """Removes the fields that differ between two queries."""
    if isinstance(value, dict):
        for name in [name for name in value if name in ("used", "available", "spent", "idle_ns", "usage", "dominant_share", "last", "head", "resources")]:
            del value[name]
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        drop_volatile(one)


class Stories(Ctl):
    """Tests describe and events for a job in every state."""

    def story(self, job, *contained):
        text = self.ok(f"hpvmctl describe {job}").stdout
        for part in contained:
            self.assertRegex(text, part)
        answer = json.loads(self.ok(f"hpvmctl describe {job} -o json").stdout)
        self.assertEqual(answer["job"]["id"], job)
        return text

    def test_one_that_succeeded(self):
        job = self.finished("--label", "project=blur", "--priority", "5", "--name", "story")
        self.story(job, r"state +SUCCEEDED", r"name +story", r"project=blur", r"priority +5", "submitted at", r"attempt 1 of 3",
                   r"prepare.*: parse .*compile", "compute", r"multiply +~?cpu:0",
                   f"`hpvmctl wait {job} --output C=C.npy`")
        events = self.ok(f"hpvmctl events {job}").stdout
        self.assertRegex(events, r"(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}  RUNNING$")
        self.assertRegex(events, r"multiply on cpu:0, ")
        self.assertRegex(events, r"SUCCEEDED\n$")
        self.assertEqual(self.ok(f"hpvmctl events -f {job}").stdout, events)
        lines = [json.loads(line) for line in self.ok(f"hpvmctl events {job} -o jsonl").stdout.splitlines()]
        self.assertEqual(len(lines), len(events.splitlines()))

    def test_one_that_runs_and_one_that_waits_for_it(self):
        running = self.spinning()
        waiting = self.submit(add(), "--after", running)
        text = self.story(running, r"state +RUNNING", r"so far +attempt 1 of 3", "The job runs, attempt 1", f"`hpvmctl wait {running}`")
        self.assertNotIn("SUCCEEDED", text)
        self.story(waiting, r"state +ACCEPTED", rf"Now\n +Waits for .*{running}", f"`hpvmctl describe {running}`")
        self.assertIn("RUNNING", self.ok(f"hpvmctl events {running}").stdout)
        follower = self.popen("events", "-f", running)
        self.assertTrue(select.select([follower.stdout], [], [], 20)[0])
        self.ok(f"hpvmctl cancel {running}")
        output, _ = follower.communicate(timeout=20)
        self.assertTrue(output.endswith("CANCELLED\n"), output)
        self.story(running, r"state +CANCELLED", f"`hpvmctl retry {running}`")
        self.story(waiting, r"state +FAILED", r"after a job that ended in another state")

    def test_one_that_failed(self):
        job = self.submit(trap(), values=(0, 1))
        self.ok(f"hpvmctl wait {job}", code=FAILED)
        self.story(job, r"state +FAILED", r"FAILED: .*integer division by zero", "hpvmctl run --local --check")

    def kill_executors(self):
        for pid in children(self.daemon.process.pid):
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "hpvm-executor":
                    os.kill(pid, signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                pass

    def test_one_that_died(self):
        job = self.spinning("--attempts", "2")
        self.kill_executors()
        end = time.monotonic() + 30
        while (self.job(job)["attempt"], self.state(job)) != (2, "RUNNING"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.story(job, r"attempt 1 of 2, lost: ", r"so far +attempt 2 of 2", "Now\n +The job runs, attempt 2 of 2")
        self.kill_executors()
        self.await_state(job, "DEAD")
        self.story(job, r"state +DEAD", r"attempt 2 of 2, lost: ", f"hpvmctl retry {job}")

    def test_after_a_restart(self):
        job = self.finished()
        self.kill()
        type(self).start()
        self.story(job, r"state +SUCCEEDED", r"attempt 1 of 3", r"prepare.*: parse", "compute")

    def test_no_such_job(self):
        self.ok("hpvmctl describe job-00000000000000000000000000000000", code=USAGE)
        self.ok("hpvmctl events job-00000000000000000000000000000000", code=USAGE)
        self.assertIn("list --array array-1", self.ok("hpvmctl describe array-1", code=USAGE).stderr)


class Apply(Ctl):
    def file(self, name, job):
        (self.work / name).write_text(job if isinstance(job, str) else json.dumps(job))
        return name

    def job_of(self, **members):
        return {"hpvm_job": 1, "graph": "matmul.json", "inputs": {"A": "a.npy", "B": "b.npy"}, **members}

    def test_all_that_submit_says(self):
        name = self.file("all.json", self.job_of(outputs={"C": "applied.npy"}, name="applied", labels={"night": 7}, priority=-3,
                                                 deadline="2h", attempts=2, key="apply-all", devices=["cpu:0"]))
        self.ok(f"hpvmctl apply {name}")
        np.testing.assert_array_equal(np.load(self.work / "applied.npy"), np.eye(4, dtype=np.float32))
        job = json.loads(self.ok("hpvmctl list --label night=7 -o json").stdout)[0]
        self.assertEqual((job["name"], job["priority"], job["attempts_max"], job["idempotency_key"]),
                         ("applied", -3, 2, "apply-all"))
        self.assertNotEqual(job["deadline_unix_ns"], "0")
        self.assertIn(job["id"], self.ok(f"hpvmctl apply -d {name}").stdout)  # The key was already used.

    def test_several_and_from_another_folder(self):
        one = self.file("one.json", self.job_of(outputs={"C": "one.npy"}))
        two = self.file("two.json", {"hpvm_job": 1, "graph": add(3), "modules": {"k": "kernels.wasm"},
                                     "inputs": {"in": "small.npy"}, "outputs": {"out_out": "two.npy"}})
        array = self.file("array.json", {"hpvm_job": 1, "graph": "sweep.json", "inputs": {"seed": "@index"},
                                         "outputs": {"r": "r-{index}.npy"}, "array": "0-2"})
        done = self.ok(f"cd / && hpvmctl apply {self.work}/{one} {self.work}/{two} {self.work}/{array}")
        self.assertIn("5 jobs: 5 SUCCEEDED", done.stderr)
        self.assertEqual(np.load(self.work / "two.npy").tolist(), [3, 4, 5, 6])
        self.assertEqual([int(np.load(self.work / f"r-{i}.npy")) for i in range(3)], [1, 2, 3])
        ids = self.ok(f"hpvmctl apply --detach {one} {array}").stdout.split()
        self.assertEqual([one.split("-")[0] for one in ids], ["job", "array"])

    def test_dry_run_sends_nothing(self):
        before = len(json.loads(self.ok("hpvmctl list --all -o json").stdout))
        name = self.file("dry.json", self.job_of())
        done = self.ok(f"hpvmctl apply --dry-run {name}", HPVM_SERVER="unix:/nowhere")
        self.assertRegex(done.stdout, r"dry\.json +matmul +- +one +A: f32\[4, 4\], B: f32\[4, 4\]")
        self.assertEqual(len(json.loads(self.ok("hpvmctl list --all -o json").stdout)), before)

    def test_what_is_wrong_is_said_with_its_place(self):
        before = len(json.loads(self.ok("hpvmctl list --all -o json").stdout))
        good = self.file("good.json", self.job_of())
        for job, said in ((self.job_of(lables={}), '/lables: There is no such member of a job; did you mean "labels"?'),
                          (self.job_of(priority=101), "/priority: It has to be an integer from -100 to 100."),
                          (self.job_of(inputs={"A": "a.npy"}), 'Input "B" is not given'),
                          (self.job_of(inputs={"A": "../a.npy"}), "--allow-file"),
                          (self.job_of(outputs={"C": "/tmp/c.npy"}), "--allow-file"),
                          (self.job_of(modules={"no": "kernels.wasm"}), 'The graph has no module "no"'),
                          (self.job_of(graph="gone.json"), "gone.json"),
                          (self.job_of(devices=["vulkan"], graph=restricted("cpu")), "--device names none of these"),
                          ('{"hpvm_job": 1, "graph": "a", "graph": "b"}', "occurs twice"), ("{", "is not valid")):
            bad = self.file("bad.json", job)
            self.assertIn(said, self.ok(f"hpvmctl apply -d {good} {bad}", code=USAGE).stderr)
        self.assertEqual(len(json.loads(self.ok("hpvmctl list --all -o json").stdout)), before)
        (self.work / "link.npy").unlink(missing_ok=True)
        (self.work / "link.npy").symlink_to("/etc/hostname")
        bad = self.file("bad.json", self.job_of(inputs={"A": "link.npy", "B": "b.npy"}))
        self.assertIn("--allow-file", self.ok(f"hpvmctl apply -d {bad}", code=USAGE).stderr)

    def test_devices(self):
        for device in ("cpu:0", "cpu"):
            self.ok(f"hpvmctl submit matmul.json --device {device} -i A=a.npy -i B=b.npy")
            self.ok(f"hpvmctl run matmul.json --device {device} -i A=a.npy -i B=b.npy")
            self.ok(f"hpvmctl run --local matmul.json --device {device} -i A=a.npy -i B=b.npy")
        self.ok("hpvmctl run matmul.json --device vulkan:0 -i A=a.npy -i B=b.npy", code=3)  # This daemon has no such device.
        self.ok("hpvmctl run matmul.json --device 'x y' -i A=a.npy -i B=b.npy", code=USAGE)


def restricted(device):
    document = add()
    document["nodes"]["node"]["devices"] = [device]
    return document


class Terminals(Ctl):
    def test_a_pipe_that_closes(self):
        for _ in range(3):
            self.finished()
        done = self.shell("set -o pipefail; for i in $(seq 20); do hpvmctl list --all -o json 2>err | head -1; "
                          "echo ${PIPESTATUS[0]} >> codes; cat err; done; cat codes")
        codes = set((self.work / "codes").read_text().split())
        self.assertLessEqual(codes, {"0", str(128 + signal.SIGPIPE)}, done.stdout)
        self.assertEqual((self.work / "err").read_text(), "")
        # In this pipe the reader certainly closes first.
        done = self.shell("(sleep 1; hpvmctl list -o json; echo $? >&3) 3>code 2>err | true; sleep 3; cat code err")
        self.assertEqual(done.stdout.strip(), str(128 + signal.SIGPIPE))

    def test_forty_columns_cut_nothing(self):
        job = self.finished("--name", "a-name-that-is-not-short")
        for command in (["list", "-o", "wide"], ["describe", job], ["devices"]):
            wide, narrow = self.on_terminal(command, 200), self.on_terminal(command, 40)
            self.assertEqual((wide[0], narrow[0]), (OK, OK))
            self.assertEqual(len(narrow[1].splitlines()), len(wide[1].splitlines()))
        self.assertIn(job, self.on_terminal(["list", "-o", "wide"], 40)[1])
        self.assertIn("a-name-that-is-not-short", self.on_terminal(["list", "-o", "wide"], 40)[1])

    def test_ascii_where_there_is_no_utf8(self):
        job = self.finished("--name", "blür→")
        for locale in ("C", "POSIX"):
            for line in ("hpvmctl --help", "hpvmctl submit --help", "hpvmctl list -o wide", f"hpvmctl describe {job}",
                         "hpvmctl list --stat x", "hpvmctl get job-é"):
                done = self.shell(line, LC_ALL=locale)
                self.assertTrue((done.stdout + done.stderr).isascii(), (line, done.stdout + done.stderr))
        self.assertIn("job-0193...", self.ok("hpvmctl get --help", LC_ALL="C").stdout)
        self.assertIn("job-0193…", self.ok("hpvmctl get --help").stdout)
        self.assertIn("bl\\u00fcr->", self.ok("hpvmctl list -o wide", LC_ALL="C").stdout)
        self.assertIn("blür→", self.ok("hpvmctl list -o wide").stdout)
        self.assertIn("blür→", json.loads(self.ok(f"hpvmctl get {job} -o json", LC_ALL="C").stdout)[0]["name"])

    def test_colours(self):
        job = self.submit(trap(), values=(0, 1))
        self.ok(f"hpvmctl wait {job}", code=FAILED)
        red = "\x1b[31m"
        self.assertNotIn("\x1b", self.ok("hpvmctl list").stdout)
        self.assertIn(f"{red}FAILED", self.ok("hpvmctl list --color always").stdout)
        self.assertIn(f"{red}FAILED", self.ok(f"hpvmctl get {job} --color always").stdout)
        self.assertIn(f"{red}FAILED", self.on_terminal(["list"])[1])
        self.assertNotIn("\x1b", self.on_terminal(["list"], NO_COLOR="1")[1])
        self.assertNotIn("\x1b", self.on_terminal(["list", "--color", "never"])[1])
        self.assertNotIn("\x1b", self.on_terminal(["list"], TERM="dumb")[1])
        self.assertIn(f"{red}hpvmctl:", self.on_terminal(["get", "job-1"])[1])
        self.assertNotIn("\x1b", self.ok("hpvmctl get job-1", code=USAGE).stderr)
        self.assertNotIn("\x1b", self.ok("hpvmctl list -o json --color always").stdout)

    def interrupt(self, *arguments):
        process = self.popen(*arguments, "--progress", "plain")
        line = ""
        while "RUNNING" not in line:
            line = process.stderr.readline()
            self.assertTrue(line, "the command ended before the job ran")
        process.send_signal(signal.SIGINT)
        return process, process.communicate(timeout=20)[1]

    def test_interrupts_detach(self):
        path, *rest = self.graph(spin(), values=[0])
        process, said = self.interrupt("submit", path, *rest)
        self.assertEqual(process.returncode, INTERRUPTED)
        job = re.search(r"`hpvmctl wait (job-\w+)`", said).group(1)
        self.assertEqual(self.state(job), "RUNNING")
        process, said = self.interrupt("wait", job)
        self.assertEqual(process.returncode, INTERRUPTED)
        self.assertIn(f"`hpvmctl wait {job}`", said)
        self.assertEqual(self.state(job), "RUNNING")
        self.ctl("cancel", job)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
