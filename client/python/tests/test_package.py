#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package itself: a wheel in an empty prefix, types, the examples in its documents, and the cost of importing
it."""

import doctest
import importlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import support
from support import hpvm

CLIENT = support.HERE.parent


class Package(support.WithServer):
    def test_a_wheel_in_an_empty_prefix(self):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([CLIENT / "wheel.sh", folder], capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            wheel = made.stdout.split()[-1]
            prefix = pathlib.Path(folder) / "prefix"
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", prefix, wheel],
                           check=True, capture_output=True)
            done = subprocess.run(
                [sys.executable, "-c", "import sys, hpvm, numpy as np\n"
                 "with hpvm.connect(sys.argv[1]) as client:\n"
                 "    result = client.run(hpvm.Graph.load(sys.argv[2]), A=np.ones((2, 3), 'f4'), B=np.ones((3, 4), 'f4'))\n"
                 "print(hpvm.__file__, result['C'].sum())", self.server, support.ROOT / "examples/matmul/matmul.json"],
                env={**os.environ, "PYTHONPATH": str(prefix)}, capture_output=True, text=True, cwd=folder)
            self.assertEqual(done.stdout.split(), [str(prefix / "hpvm/__init__.py"), "24.0"], done.stderr)
            self.assertTrue((prefix / "hpvm/py.typed").exists())

    def test_types(self):
        done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", CLIENT / "mypy.ini", "--cache-dir", "/dev/null"],
                              capture_output=True, text=True, cwd=support.PACKAGE)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_everything_public_is_documented(self):
        for name in hpvm.__all__:
            with self.subTest(name):
                what = getattr(hpvm, name)
                if isinstance(what, type) and not issubclass(what, hpvm.HpvmError):
                    self.assertTrue(what.__doc__, name)
                    for member, value in vars(what).items():
                        if not member.startswith("_") and callable(value) and member not in ("fill", "request", "to_dict", "of"):
                            self.assertTrue(self.doc_of(what, member), f"{name}.{member}")

    @staticmethod
    def doc_of(kind, member):
        inherited = (vars(base)[member].__doc__ for base in kind.__mro__ if member in vars(base) and hasattr(vars(base)[member], "__doc__"))
        return next(filter(None, inherited), None) or member in ("cancelled", "running", "handle_or_raise")

    def test_examples_in_documents(self):
        os.chdir(support.ROOT)
        names = {"hpvm": hpvm, "np": np, "client": self.client, "server": self.server}
        failed = attempted = 0
        for path in (CLIENT / "hpvm").glob("*.py"):
            name = "hpvm" if path.stem == "__init__" else f"hpvm.{path.stem}"
            module = importlib.import_module(name)
            result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
            failed, attempted = failed + result.failed, attempted + result.attempted
        guide = (support.ROOT / "docs/PYTHON.md").read_text()
        python = "\n".join(re.findall(r"```python\n(.*?)```", guide, re.S))
        parser = doctest.DocTestParser()
        test = parser.get_doctest(python, {**names}, "docs/PYTHON.md", "docs/PYTHON.md", 0)
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        self.assertEqual((failed + result.failed), 0)
        self.assertGreater(attempted + result.attempted, 30)

    def test_the_first_page(self):
        """Runs README's Python code unchanged."""
        readme = (support.ROOT / "README.md").read_text()
        block = next(block for block in re.findall(r"```python\n(.*?)```", readme, re.S) if "hpvm.connect" in block)
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, cwd=support.ROOT, timeout=60,
                              env={**os.environ, "HPVM_SERVER": self.server, "PYTHONPATH": str(support.PACKAGE)})
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("True", done.stdout)

    def test_the_first_page_in_a_shell(self):
        """Runs README's commands for the same matmul unchanged: they build the kernel and submit the graph."""
        readme = (support.ROOT / "README.md").read_text()
        lines = re.sub(r" *\\\n +", " ", readme).split("\n")  # Continued lines are one command.
        commands = [line.strip() for line in lines if re.match("    (clang-22|hpvmctl submit) .*matmul", line)]
        self.assertEqual(len(commands), 2)
        with tempfile.TemporaryDirectory() as folder:
            # The existing module is left out, so that the command has to make it.
            shutil.copytree(support.ROOT / "examples/matmul", folder + "/examples/matmul", ignore=shutil.ignore_patterns("*.wasm", "out"))
            a, b = np.random.rand(30, 20).astype("f4"), np.random.rand(20, 40).astype("f4")
            np.save(folder + "/a.npy", a)
            np.save(folder + "/b.npy", b)
            for command in commands:
                subprocess.run(["bash", "-c", command.replace("-Iclient/kernel", f"-I{support.ROOT}/client/kernel")], cwd=folder,
                               check=True, env={**os.environ, "HPVM_SERVER": self.server, "PATH": f"{support.BIN}:{os.environ['PATH']}"})
            np.testing.assert_allclose(np.load(folder + "/c.npy"), a @ b, rtol=1e-5)

    def test_without_generated_messages(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "hpvm"
            package.mkdir()
            for file in (CLIENT / "hpvm").glob("*.py"):
                (package / file.name).write_bytes(file.read_bytes())
            done = subprocess.run([sys.executable, "-c", "import hpvm"], capture_output=True, text=True, cwd=folder,
                                  env={**os.environ, "PYTHONPATH": folder})
            self.assertIn("run client/python/stubs.sh to make them", done.stderr)


if __name__ == "__main__":
    support.main()
