#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the READMEs of the examples: every command in order, in a copy of the folder, on a real daemon.

    examples.py BIN_FOLDER [TestCase.test ...]

The commands are the indented lines of examples/*/README.md. Each driver makes its data, runs its graph, checks the
result against numpy and draws a picture. The examples in DEVICES need more than a processor; they run on a daemon that looks
for drivers, as in gpu.py, and are skipped without such a device.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

from e2e import BIN, CANNOT_PLACE, OK, ROOT, Daemon, children

EXAMPLES = ROOT / "examples"
# The device that each example needs besides a processor.
DEVICES = {"opencl-c": "opencl:0", "spirv": "vulkan:0"}
# Examples without a graph and driver, with the tests that cover them.
OTHERS = {"cmake-client": "cmake_package.py", "notebook": "test_notebook.py"}
NAMES = sorted(place.parent.name for place in EXAMPLES.glob("*/run.py"))
PICTURE_BYTES_MAX, README_LINES_MAX = 60_000, 60
SLOW = {"train.py": "it trains for some seconds; what it makes is committed"}


def commands_of(name):
    """Returns the indented lines; a backslash joins a line to the next."""
    text = (EXAMPLES / name / "README.md").read_text().replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.startswith("    ")]


def picture_size(data):
    """Returns width and height of a PNG; fails when the data are no PNG."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and data[-8:-4] == b"IEND", data[:32]
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


class Form(unittest.TestCase):
    """Form needs no daemon: every example has its parts, and the gallery lists every example."""

    def test_each_folder_has_its_parts(self):
        folders = {place.name for place in EXAMPLES.iterdir() if place.is_dir()}
        self.assertEqual(folders, set(NAMES) | set(OTHERS))
        self.assertGreaterEqual(len(NAMES), 12)
        self.assertLessEqual(set(DEVICES), set(NAMES))
        for name in NAMES:
            with self.subTest(name):
                folder = EXAMPLES / name
                readme = (folder / "README.md").read_text()
                self.assertLessEqual(len(readme.splitlines()), README_LINES_MAX)
                for part in (f"({name}.png)", "**It teaches**", "## Run", "## In the code"):
                    self.assertIn(part, readme)
                self.assertTrue(any(command.startswith("python3 run.py") for command in commands_of(name)))
                self.assertTrue(any(command.startswith("hpvmctl ") for command in commands_of(name)))
                data = (folder / f"{name}.png").read_bytes()
                self.assertLessEqual(len(data), PICTURE_BYTES_MAX)
                self.assertTrue(100 <= min(picture_size(data)) and max(picture_size(data)) <= 800, picture_size(data))
                for document in folder.glob("*.json"):
                    self.assertIn(document.name, readme)
                    loaded = json.loads(document.read_text())
                    files = ([loaded["module"]] if loaded["hpvm"] == 2 else
                             [module["source"]["file"] for module in loaded["modules"].values()])
                    for file in files:
                        self.assertTrue((folder / file).is_file(), file)

    def test_the_gallery_has_every_example(self):
        text = (EXAMPLES / "README.md").read_text()
        rows = re.findall(r"^\| \[!\[[^\]]*\]\((\S+?)/(\S+?)\.png\)\]\((\S+?)/README\.md\) \| \[(\S+?)\]", text, re.M)
        self.assertTrue(all(len(set(row)) == 1 for row in rows), rows)
        self.assertEqual(sorted(row[0] for row in rows), NAMES)
        for name in OTHERS:
            self.assertIn(f"({name}/README.md)", text)


class Base(unittest.TestCase):
    devices = "cpu"

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-examples-"))
        shutil.copytree(EXAMPLES, cls.folder / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
        cls.daemon = Daemon(cls.folder / "daemon", "--devices", cls.devices)
        ready = cls.daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + cls.daemon.log.read_text()

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        left = children(cls.daemon.process.pid)
        log = cls.daemon.log.read_text()
        shutil.rmtree(cls.folder)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"
        assert not left, left

    def sh(self, name, command):
        package = os.pathsep.join(filter(None, [str(BIN.parent / "python"), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "HPVM_SERVER": self.daemon.server, "XDG_CACHE_HOME": str(self.folder / "cache"),
                       "PATH": f"{BIN}:/usr/bin:{os.environ['PATH']}", "PYTHONPATH": package}
        return subprocess.run(command, shell=True, cwd=self.folder / "examples" / name, env=environment,
                              capture_output=True, text=True, timeout=100)

    def follow(self, name):
        """Runs every command of the README; returns the driver's output."""
        said = ""
        for command in commands_of(name):
            if any(slow in command for slow in SLOW):
                continue
            done = self.sh(name, command)
            self.assertEqual(done.returncode, OK, f"{name}: {command}\n{done.stdout}{done.stderr}"
                                                  f"{self.daemon.log.read_text()[-2000:]}")
            if command.startswith("python3 run.py"):
                said = done.stdout
                self.assertRegex(said, rf"\A{re.escape(name)}: ok: [^\n]+\n\Z")
                print(said, end="", file=sys.stderr)
        written = list((self.folder / "examples" / name / "out").iterdir())
        for place in written:
            if place.suffix == ".png":
                picture_size(place.read_bytes())
            elif place.suffix == ".npy":
                self.assertGreater(np.load(place).size, 0)
        data = (self.folder / "examples" / name / f"out/{name}.png").read_bytes()
        self.assertLessEqual(len(data), PICTURE_BYTES_MAX)
        self.assertEqual(picture_size(data), picture_size((EXAMPLES / name / f"{name}.png").read_bytes()))
        return said


class OnTheProcessor(Base):
    def test_without_the_device_the_drivers_say_so(self):
        for name, family in (("opencl-c", "OpenCL"), ("spirv", "Vulkan")):
            done = self.sh(name, "python3 run.py --inputs out")
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertIn(f"{name}: there is no {family} device", done.stderr)
            for command in commands_of(name):
                if command.startswith("hpvmctl"):
                    code = OK if "streets.json" in command else CANNOT_PLACE
                    self.assertEqual(self.sh(name, command).returncode, code, command)


class OnDevices(Base):
    devices = "auto"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # An executor starts only when every family of drivers has answered.
        first = cls.daemon.ctl("run", EXAMPLES / "mandelbrot/mandelbrot.json", "--symbol", "w=8", "--symbol", "h=8")
        assert first.returncode == OK, first.stderr + cls.daemon.log.read_text()
        cls.found = {device["id"] for device in json.loads(cls.daemon.ctl("devices", "-o", "json").stdout)}


def follows(name):
    def test(self):
        needed = DEVICES.get(name)
        if needed and needed not in self.found:
            self.skipTest(f"there is no {needed} here")
        said = self.follow(name)
        if needed:
            self.assertIn(f"on {needed}", said)
    return test


for _name in NAMES:
    setattr(OnDevices if _name in DEVICES else OnTheProcessor, f"test_{_name.replace('-', '_')}", follows(_name))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
