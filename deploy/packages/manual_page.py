#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a manual page from the output of a program's --help.

    manual_page.py PROGRAM SECTION
"""

import pathlib
import re
import subprocess
import sys


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\\&" + text if text.startswith(".") else text


def page(name, section, help_text):
    """Formats CLI11's output: a summary, "Usage:", then parts with a heading; an entry is a line with its text after two blanks or
    below."""
    summary, _, rest = help_text.partition("\nUsage:")
    said = " ".join(summary.split()).rstrip(".").removeprefix(f"{name}: ")
    lines = rest.splitlines()[1:]
    is_called = " ".join(rest.splitlines()[0].split()[1:])
    out = [f'.TH {name.upper()} {section} "" hpvmd', ".SH NAME", escaped(f"{name} - {said[:1].lower()}{said[1:]}"), ".SH SYNOPSIS", f".B {name}", escaped(is_called)]
    for line in lines:
        entry = re.match(r"  (\S.*?)(?:\s{2,}(\S.*))?$", line)
        heading = re.match(r"([A-Z][A-Za-z ]*):\s*(.*)$", line)
        if heading:
            out += [f'.SH "{heading[1].upper()}"'] + ([escaped(heading[2])] if heading[2] else [])
        elif not line.strip():
            pass
        elif line.startswith("   "):  # Continues the text of a long entry.
            out.append(escaped(line.strip()))
        elif entry and entry[2]:
            out += [".TP", f".B {escaped(entry[1])}", escaped(entry[2])]
        elif entry:
            out += [".TP", f".B {escaped(entry[1])}"]
        else:
            out.append(escaped(line.strip()))
    return "\n".join(out) + "\n"


def main():
    program, section = sys.argv[1:]
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    sys.stdout.write(page(pathlib.Path(program).name, section, done.stdout))


if __name__ == "__main__":
    main()
