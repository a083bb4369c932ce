#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the C++ client as an installed package: in an empty prefix, found by CMake and pkg-config, used by separate programs.

    cmake_package.py BUILD_FOLDER [TestCase.test ...]

The prefix is moved after the installation, so that nothing depends on its original place.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release").resolve()
sys.argv[1:2] = [str(BUILD / "bin")]  # e2e.py expects this argument.

from e2e import OK, ROOT, Daemon  # noqa: E402

HERE = ROOT / "tests/e2e"
RUNAWAYS = HERE / "runaways.wasm"
VERSION = re.search(r"^project\(hpvmd VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1)
COMPILERS = [name for name in ("g++", "clang++-22") if shutil.which(name)]


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-package-"))
        first = cls.folder / "first"
        run("cmake", "--install", BUILD, "--prefix", first, "--component", "client")
        cls.prefix = cls.folder / "prefix"
        first.rename(cls.prefix)
        cls.library = cls.prefix / "lib/libhpvm_client.so"
        cls.cache = cls.folder / "cache"
        cls.environment = {**os.environ, "XDG_CACHE_HOME": str(cls.cache)}
        cls.environment.pop("HPVM_EXECUTOR", None)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def build(self, source, name, compiler="c++"):
        folder = self.folder / f"{name}-{compiler}"
        run("cmake", "-S", source, "-B", folder, f"-DCMAKE_PREFIX_PATH={self.prefix}", f"-DCMAKE_CXX_COMPILER={compiler}")
        run("cmake", "--build", folder)
        return folder

    def daemon(self, name):
        daemon = Daemon(self.folder / name, "--devices", "cpu")
        ready = daemon.ctl("devices", "--connect-timeout", "30")
        self.assertEqual(ready.returncode, OK, ready.stderr)
        return daemon

    def test_what_is_installed(self):
        files = {str(path.relative_to(self.prefix)) for path in self.prefix.rglob("*") if path.is_file()}
        for wanted in ("include/hpvm/client.h", "include/hpvm/types.h", "include/hpvm/v1/service.pb.h", "include/hpvm/kernel/hpvm.h",
                       "lib/cmake/hpvm/hpvmConfig.cmake", "lib/cmake/hpvm/hpvmConfigVersion.cmake", "lib/pkgconfig/hpvm.pc",
                       "lib/hpvm/hpvm-executor", "lib/hpvm/hpvm-compiler", f"lib/libhpvm_client.so.{VERSION}"):
            self.assertIn(wanted, files)
        self.assertFalse([name for name in files if name.endswith((".a", ".grpc.pb.h"))])
        # The library file has two chained links: the soname, and the name that linkers use.
        major = f"libhpvm_client.so.{VERSION.split('.')[0]}"
        self.assertEqual(os.readlink(self.library), major)
        self.assertEqual(os.readlink(self.prefix / "lib" / major), f"libhpvm_client.so.{VERSION}")
        self.assertIn(f"Library soname: [{major}]", run("readelf", "-d", self.library))
        # The library neither needs the compiler nor names its build folder.
        self.assertNotIn("LLVM", run("readelf", "-d", self.library))
        self.assertNotRegex(run("readelf", "-d", self.library), r"R(UN)?PATH")
        for name in files:
            if name.endswith((".h", ".cmake", ".pc")):
                self.assertNotIn(str(ROOT), (self.prefix / name).read_text(), name)

    def test_headers_stand_alone(self):
        include = self.prefix / "include"
        headers = sorted(path for path in include.glob("hpvm/*.h"))
        self.assertGreater(len(headers), 12)
        quoted = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
        for header in headers:
            for target in quoted.findall(header.read_text()):
                self.assertRegex(target, r"^(hpvm|absl)/", f"{header} includes what is not installed")
                self.assertTrue(target.startswith("absl/") or (include / target).is_file(), f"{header}: {target}")
        source = self.folder / "alone.cc"
        for compiler in COMPILERS:
            for header in headers:
                source.write_text(f"#include <{header.relative_to(include)}>\n" * 2)
                run(compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", include, source)

    def test_what_the_library_shows(self):
        names = [line[19:] for line in run("nm", "-DC", "--defined-only", self.library).splitlines() if line[17] != "A"]
        public = re.compile(r"(vtable for |typeinfo for |typeinfo name for |guard variable for )?hpvm::"
                            r"(v1::(?!Hpvm::|Admin::|Operations::)|Client::|Admin::|client_api::Buffer::|Block::|Graph::|LocalEngine::|"
                            r"(TensorBytes|TensorSizeBytes|Describe|ReadTensorFile|WriteTensorFile|DiagnosticsOf|DetailOf|ToText|Version|LoadProfile|ProfileFile)\b)")
        self.assertEqual([name for name in names if not public.match(name)], [])
        hidden = re.compile(r"hpvm::(Client::(Connection|LocalRun|RunCall|AsyncRuns|Many\w+)|LocalEngine::Process|Admin::Stub)::")
        self.assertEqual([name for name in names if hidden.match(name)], [])
        self.assertIn("hpvm::Client::Connect(hpvm::ClientOptions const&)@@HPVM_CLIENT", names)

    def test_the_example_with_and_without_a_daemon(self):
        for compiler in COMPILERS:
            folder = self.build(ROOT / "examples/cmake-client", "example", compiler)
            self.assertIn("libhpvm_client.so.0", run("readelf", "-d", folder / "matmul"))
            module = ROOT / "examples/matmul/matmul.wasm"
            self.assertIn("is right", run(folder / "matmul", module, env=self.environment))
            daemon = self.daemon(f"daemon-{compiler}")
            try:
                self.assertIn("is right", run(folder / "matmul", module, daemon.server))
            finally:
                self.assertEqual(daemon.stop(), 0, daemon.log.read_text())
            gone = subprocess.run([folder / "matmul", "/nowhere.wasm"], capture_output=True, text=True, env=self.environment)
            self.assertEqual(gone.returncode, 1)
            self.assertIn("/nowhere.wasm", gone.stderr)
        self.assertTrue((self.cache / "hpvm/artifact.key").is_file())

    def test_the_first_page(self):
        """Builds and runs README's C++ program unchanged."""
        block = next(block for block in re.findall(r"```cpp\n(.*?)```", (ROOT / "README.md").read_text(), re.S) if "int main" in block)
        source = self.folder / "first"
        source.mkdir()
        (source / "matmul.cc").write_text(block)
        shutil.copy(ROOT / "examples/cmake-client/CMakeLists.txt", source)
        program = self.build(source, "first-build") / "matmul"
        daemon = self.daemon("first-page")
        try:
            self.assertEqual(run(program, env={**os.environ, "HPVM_SERVER": daemon.server}, cwd=ROOT), "400\n")
        finally:
            self.assertEqual(daemon.stop(), 0, daemon.log.read_text())

    def test_calls(self):
        check = self.build(HERE / "package", "check") / "check"
        print(run(check, "local", RUNAWAYS, env=self.environment), end="")
        daemon = self.daemon("calls")
        try:
            print(run(check, "calls", daemon.server, RUNAWAYS), end="")
        finally:
            self.assertEqual(daemon.stop(), 0, daemon.log.read_text())

    def test_a_daemon_that_is_restarted(self):
        check = self.build(HERE / "package", "check") / "check"
        daemon = self.daemon("restarted")
        with subprocess.Popen([check, "restart", daemon.server, RUNAWAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as client:
            self.assertEqual(client.stdout.readline(), "ready\n")
            daemon.stop()
            daemon = self.daemon("restarted")
            out, err = client.communicate("go\n", timeout=60)
        self.assertEqual((client.returncode, out), (0, "prepared again\n"), err)
        self.assertEqual(daemon.stop(), 0, daemon.log.read_text())

    def test_pkg_config(self):
        source = self.folder / "version.cc"
        source.write_text('#include <hpvm/version.h>\n#include <cstdio>\nint main() { std::puts(hpvm::Version()); }\n')
        environment = {**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}
        flags = run("pkg-config", f"--define-variable=prefix={self.prefix}", "--cflags", "--libs", "hpvm", env=environment).split()
        run("c++", "-std=c++20", source, "-o", self.folder / "version", *flags, f"-Wl,-rpath,{self.prefix}/lib")
        self.assertEqual(run(self.folder / "version"), f"{VERSION}\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
