# SPDX-License-Identifier: Apache-2.0
"""A private daemon, graphs for it, and a client. Run tests as `test_x.py BIN_FOLDER [Case.test ...]`."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()
#: The package with its generated messages, as the build makes it.
PACKAGE = BIN.parent / "python"
E2E = ROOT / "tests/e2e"
for _place in (str(E2E), str(PACKAGE)):
    sys.path.insert(0, _place)

import hpvm  # noqa: E402
from e2e import Daemon, children, one_node, port  # noqa: E402

KERNELS = {"k": (E2E / "kernels.wasm").read_bytes()}
IN_OUT = (port("in", "in"), port("out", "out"))


def graph(document, modules=None):
    return hpvm.Graph.from_document(document, modules=modules or KERNELS)


def add(amount=1, kind="i32"):
    return graph(one_node("add", IN_OUT, [("amount", amount)]))


def add_in_place(amount=1):
    return graph(one_node("add_in_place", (port("data", "inout"),), [("amount", amount)]))


def spin():
    """Returns a graph that runs until it is stopped."""
    return graph(one_node("spin", (port("out", "inout"),), instances="1"))


def busy(rounds, amount=1):
    """Returns a graph that takes some milliseconds a round, and then adds `amount`."""
    return graph(one_node("busy", IN_OUT, [("amount", amount), ("rounds", rounds)]))


def trap():
    """Returns a graph that divides by its input."""
    return graph(one_node("divide", IN_OUT))


def matmul():
    return hpvm.Graph.load(ROOT / "examples/matmul/matmul.json")


def wait_until(is_so, seconds=20, what="it"):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} did not become so within {seconds} s")


class WithServer(unittest.TestCase):
    """A daemon for all tests of the class, and a client for it."""

    config = ""
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-python-"))
        more = list(cls.arguments)
        if cls.config:
            (cls.folder / "hpvmd.toml").write_text(cls.config)
            more += ["--config", str(cls.folder / "hpvmd.toml")]
        cls.start(more)
        try:
            cls.client = hpvm.connect(cls.server, connect_timeout=30)
        except hpvm.HpvmError as error:
            raise AssertionError(f"{error}\n{cls.daemon.log.read_text()[-2000:]}") from None

    @classmethod
    def start(cls, more=()):
        cls.daemon = Daemon(cls.folder / "daemon", "--devices", "cpu", *more)
        cls.server = cls.daemon.server

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        code = cls.daemon.stop()
        left = children(cls.daemon.process.pid)
        log = cls.daemon.log.read_text()
        shutil.rmtree(cls.folder, ignore_errors=True)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"
        assert not left, left

    def running(self):
        """Returns the number of runs in progress on the server, as administrators see it."""
        return sum(resource.used for resource in self.client.admin.usage().resources if resource.resource == "running-jobs")

    def script(self, text, *arguments, timeout=120, **more):
        """Runs a separate program with the package; returns the result of subprocess.run."""
        return subprocess.run([sys.executable, "-c", text, str(BIN), self.server, *arguments], capture_output=True, text=True,
                              timeout=timeout, cwd=HERE, **more)

    def begin(self, text, *arguments):
        return subprocess.Popen([sys.executable, "-c", text, str(BIN), self.server, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, cwd=HERE)


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
