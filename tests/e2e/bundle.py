#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests deploy/bundle.sh: the archive runs from a folder with spaces in its name, with libraries of its own.

    bundle.py BUILD_FOLDER
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release").resolve()
PROGRAMS = ("hpvmd", "hpvmctl", "hpvm-executor", "hpvm-compiler", "hpvm-bench")
# Libraries of the C library, which always come from the machine.
OWN = re.compile(r"^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl)\.so")


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="hpvm-bundle-")
        folder = pathlib.Path(cls.temporary.name)
        subprocess.run([ROOT / "deploy/bundle.sh", "--fast", "--build", BUILD, "--output", folder / "out"], check=True)
        cls.place = folder / "a folder with spaces"
        cls.place.mkdir()
        archives = sorted((folder / "out").glob("*.tar.zst"))
        assert archives, "no archive was written"
        for archive in archives:  # The SPIR-V part is unpacked over the main one.
            subprocess.run(["tar", "--zstd", "-xf", archive, "-C", cls.place], check=True)
        (cls.root,) = cls.place.iterdir()
        # The machine's settings are not inherited.
        cls.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def run_program(self, *command, timeout=120):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=timeout,
                              env=self.environment, cwd="/")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_libraries_are_its_own(self):
        """Every library but the C library's comes from the archive, for programs and libraries alike."""
        files = [self.root / "bin" / name for name in PROGRAMS] + sorted((self.root / "lib").iterdir())
        for file in files:
            for line in self.run_program("ldd", file).splitlines():
                match = re.match(r"\s*(\S+) => (.*?)( \(0x[0-9a-f]+\))?$", line)
                if match and not OWN.match(match[1]):
                    self.assertTrue(match[2].startswith(str(self.root.resolve())), f"{file.name}: {line.strip()}")

    def test_no_newer_c_library_is_asked_for(self):
        """The programs need no glibc newer than 2.36."""
        for file in [self.root / "bin" / name for name in PROGRAMS] + sorted((self.root / "lib").iterdir()):
            versions = re.findall(r"GLIBC_2\.(\d+)", self.run_program("objdump", "-T", file))
            self.assertLessEqual(max(map(int, versions), default=0), 36, file.name)

    def test_runs_a_graph(self):
        """hpvmctl compiles and runs an example with the files of the archive."""
        self.assertRegex(self.run_program(self.root / "bin/hpvmctl", "--version"), r"\d+\.\d+")
        picture = self.place / "picture.png"
        self.run_program(self.root / "bin/hpvmctl", "run", "--local", self.root / "share/hpvm/examples/mandelbrot/mandelbrot.json",
                         "--symbol", "w=64", "--symbol", "h=48", "--output", f"image={picture}")
        self.assertEqual(picture.read_bytes()[:4], b"\x89PNG")

    def test_daemon_serves(self):
        """hpvmd serves, which requires that the libraries beside it use its own socket functions."""
        folder = pathlib.Path(self.temporary.name)
        state = folder / "state"
        state.mkdir(mode=0o700)
        config = folder / "hpvmd.toml"
        config.write_text(f'[server]\nlisten = "unix:{folder}/s"\nstate_dir = "{state}"\n[devices]\nbackends = "cpu"\n')
        daemon = subprocess.Popen([self.root / "bin/hpvmd", "--config", config], env=self.environment, cwd="/", stderr=subprocess.PIPE, text=True)
        try:
            shown = ""
            end = time.monotonic() + 60  # hpvmd serves before it has looked for devices, which may take long on a busy machine.
            while "cpu" not in shown and time.monotonic() < end:
                shown = self.run_program(self.root / "bin/hpvmctl", "--server", f"unix:{folder}/s", "--connect-timeout", "30",
                                         "devices")
            self.assertIn("cpu", shown)
        finally:
            daemon.terminate()
            _, log = daemon.communicate(timeout=60)
        self.assertEqual(daemon.returncode, 0, log)

    def test_bench_checks_itself(self):
        """hpvm-bench finds its kernels and the compiler."""
        self.run_program(self.root / "bin/hpvm-bench", "cpu", "--check", "--filter", "nstream", "--peer", "none")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
