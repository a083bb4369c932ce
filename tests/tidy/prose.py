#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the English of comments, docstrings and documents: sentences that a reader has to translate.

    prose.py ROOT

A sentence begins with its subject. A sentence that opens with a bare question word ("What is left ...", "Whether it runs.") or with
"Of" or "By" hides its subject, or has none. Each fault is a line "path:line: what"; exits with 1 if there is any. Questions are
allowed, and so are sentences whose clause in front ends with a comma ("By default, ...").
"""

import ast
import pathlib
import re
import subprocess
import sys

OPENING = re.compile(r"^(What|Whatever|Who|Whoever|Whom|Whose|Which|Whichever|Whether|How|Of|By|Where)\b(?! *[\"`])")
# "Where a module is missing, the run ends", "By default the first one".
CLAUSE = re.compile(r"^(Where|By)\b[^.]*,|^By (default|hand|convention|design)\b")
SENTENCE_END = re.compile(r"(?<=[.:;]) +|(?<=[.:;][*)]) +|(?<=[.:;]\*\*) +")
SCRIPT = re.compile(r"(\.(sh|cmake|toml|ya?ml)|(^|/)CMakeLists\.txt)$")
# Kernels whose comments golden files quote by their lines, seeds of fuzzers, and generated lists.
LEFT_OUT = re.compile(r"^(tests/golden|tests/mutants/patches|tests/fuzz/config|compiler/math|docs/API\.md|CHANGELOG\.md)")


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if not LEFT_OUT.match(line) and (root / line).is_file()]


def comments(text, mark="//"):
    """Yields (line, text) of each comment; comments on consecutive lines are one."""
    block, start = [], 0
    for number, line in enumerate(text.splitlines() + [""], 1):
        stripped = line.strip()
        if stripped.startswith((mark + " SPDX-License-Identifier", "#!")):
            continue
        if stripped.startswith(mark):
            start = start if block else number
            block.append(stripped.strip(mark[0]).lstrip(":").strip())
            continue
        if block:
            yield start, " ".join(block)
            block = []
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        before, found, comment = code.partition(mark)
        if found and not before.endswith(":") and (mark == "//" or before.endswith(" ") and comment.startswith(" ")):
            yield number, comment.strip()


def script_comments(text):
    return comments(text, "#")


def python_prose(text):
    """Yields (line, text) of each comment, and of each paragraph of a docstring."""
    yield from script_comments(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            number = node.body[0].lineno
            for paragraph in ast.get_docstring(node).split("\n\n"):
                yield number, " ".join(paragraph.split())
                number += paragraph.count("\n") + 2


def paragraphs(text):
    """Yields (line, text) of each paragraph of a document, without code, tables and headings."""
    block, start, fenced = [], 0, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("```"):
            fenced = not fenced
        is_prose = not fenced and line.strip() and not line.startswith(("    ", "|", "#", "```", "<", "!["))
        if is_prose and re.match(r"\s*(?:[-*]|\d+\.) ", line) and block:
            yield start, " ".join(block)
            block = []
        if is_prose:
            start = start if block else number
            block.append(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", line).strip())
        elif block:
            yield start, " ".join(block)
            block = []


def faults_of(text, parts):
    for number, paragraph in parts(text):
        for sentence in SENTENCE_END.split(paragraph):
            plain = sentence.lstrip("*_(\"")  # A name in backticks is a subject.
            if OPENING.match(plain) and not CLAUSE.match(plain) and not plain.rstrip("*_`)\"").endswith("?"):
                yield number, plain[:80]


def parts_of(name):
    """Returns the function that finds the prose of a file; None for files without prose."""
    by_suffix = {".cc": comments, ".h": comments, ".proto": comments, ".md": paragraphs, ".py": python_prose}
    return script_comments if SCRIPT.search(name) else by_suffix.get(pathlib.PurePosixPath(name).suffix)


def main():
    root = pathlib.Path(sys.argv[1])
    count = 0
    for name in tracked(root):
        parts = parts_of(name)
        if parts is None:
            continue
        for number, sentence in faults_of((root / name).read_text(encoding="utf-8", errors="replace"), parts):
            print(f"{name}:{number}: A sentence opens without its subject: {sentence}")
            count += 1
    print(f"prose: {count} faults")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
