#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows docs/TUTORIAL.md and docs/WRITING_KERNELS.md block by block in an empty folder, in one shell, as a reader would.

    tutorial.py BIN_FOLDER

A block after `<!-- file: NAME -->` is written to that file, one after `<!-- append: NAME -->` to its end. In `console`
blocks, lines that begin with `$ ` are typed, with the continuation lines that begin with `> `; the others are output, where `...`
within a line stands for any text and alone for any lines. A block after `<!-- needs: DEVICE -->` is omitted when the
server has no such device. `~/hpvmd` and `$HPVM/build/release` are this tree and this build.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

from e2e import BIN, ROOT

# The least number of commands in each document.
COMMANDS_MIN = {"TUTORIAL": 30, "WRITING_KERNELS": 15}
BLOCK = re.compile(r"(?:^<!-- (file|append|needs): (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
LINES_MAX = 400
END = "-- end of command"


class Step:
    def __init__(self, line, typed):
        self.line, self.typed, self.shown = line, [typed], []

    def matches(self, printed):
        pattern = ""
        for line in self.shown:
            if line.strip() == "...":
                pattern += r"(?:[^\n]*\n)*?"
            else:
                words = re.split(r"(\.\.\.)|\s+", line.strip())
                parts = [".*?" if word == "..." else re.escape(word) for word in words if word]
                pattern += r"[^\S\n]*" + r"[^\S\n]*".join(parts) + r"[^\S\n]*\n"
        return re.fullmatch(pattern, printed) is not None


def text_of(document):
    return (ROOT / f"docs/{document}.md").read_text()


def blocks(document):
    """Yields (line, kind of mark, its word, language, text) for each fence."""
    text = text_of(document)
    for match in BLOCK.finditer(text):
        yield text.count("\n", 0, match.start(4)) + 1, *match.groups()


def steps_of(first_line, text):
    found = []
    for number, line in enumerate(text.splitlines(), first_line):
        if line.startswith("$ "):
            found.append(Step(number, line[2:]))
        elif line.startswith("> "):
            found[-1].typed.append(line[2:])
        else:
            found[-1].shown.append(line)
    return found


class Shell:
    """Shell is one bash for the whole page, so that variables and background processes stay."""

    def __init__(self, folder, environment):
        self.process = subprocess.Popen(["bash", "--norc"], cwd=folder, env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def type(self, text, timeout=100):
        """Types the text; returns the output of the commands."""
        timer = threading.Timer(timeout, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(f"{text}\necho '{END}'\n")
            self.process.stdin.flush()
            printed = ""
            for line in self.process.stdout:
                if line == END + "\n":
                    return printed
                printed += line
            raise AssertionError(f"The shell ended at: {text}\n{printed}")
        finally:
            timer.cancel()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(20)


class Pages(unittest.TestCase):
    def test_pages_are_as_said(self):
        for document in COMMANDS_MIN:
            text = text_of(document)
            self.assertLessEqual(len(text.splitlines()), LINES_MAX, document)
            self.assertEqual(text.count("\n```"), 2 * len(list(blocks(document))), f"A fence of {document} has an unknown form.")
            for line, mark, word, language, text in blocks(document):
                is_run = language == "console" or mark in ("file", "append")
                self.assertTrue(is_run, f"docs/{document}.md:{line}: no program runs this block")
                if language == "console":
                    self.assertTrue(text.startswith("$ "), f"docs/{document}.md:{line}")

    def test_tutorial(self):
        self.follow_page("TUTORIAL")

    def test_guide_to_kernels(self):
        self.follow_page("WRITING_KERNELS")

    def follow_page(self, document):
        """Runs each block in order."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-tutorial-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HPVM_")}
        environment.update(PATH=f"/usr/bin:{os.environ['PATH']}", HOME=str(folder), LC_ALL="C.UTF-8")
        shell = Shell(folder, environment)
        self.addCleanup(shell.close)
        # If a step fails before the page's end, its server is stopped nevertheless.
        self.addCleanup(lambda: shell.type("kill $(jobs -p) 2>/dev/null; wait"))
        ran = 0
        for line, mark, word, language, text in blocks(document):
            if mark in ("file", "append"):
                with open(folder / word, "a" if mark == "append" else "w", encoding="utf-8") as file:
                    file.write(text)
            elif mark == "needs" and word not in shell.type("hpvmctl devices -o name").split():
                print(f"not run: docs/{document}.md:{line}: there is no {word} here")
            else:
                for step in steps_of(line, text):
                    self.follow(shell, folder, document, step)
                    ran += 1
        print(f"docs/{document}.md: {ran} commands run")
        self.assertGreaterEqual(ran, COMMANDS_MIN[document])

    def follow(self, shell, folder, document, step):
        package = f"{BIN.parent}/python:{os.environ.get('PYTHONPATH', '')}"
        typed = "\n".join(step.typed).replace("~/hpvmd", str(ROOT)).replace("$HPVM/build/release/python", package)
        printed = shell.type(typed.replace("$HPVM/build/release/bin", str(BIN)))
        log = folder / "hpvmd.log"
        told = log.read_text()[-2000:] if log.exists() else ""
        shown = "\n".join(step.shown)
        self.assertTrue(step.matches(printed), f"docs/{document}.md:{step.line}: {step.typed[0]}\nprinted:\n{printed}\n"
                                               f"shown:\n{shown}\nhpvmd:\n{told}")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
