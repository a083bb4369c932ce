# SPDX-License-Identifier: Apache-2.0
"""What the scripts that try seeded bugs share: which there are, and how results are written."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names_in_sources(folders, names):
    """By name: where the sources of those folders have HPVMD_MUTANT("name"); `names` is a regular expression."""
    found = {}
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.cc"))
    for path in paths:
        for name in re.findall(rf'HPVMD_MUTANT\("({names})"\)', path.read_text(encoding="utf-8")):
            found.setdefault(name, str(path.relative_to(ROOT)))
    return found


def write_table(path, columns, rows):
    """In Markdown; the first column holds names."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|\n")
        for name, *cells in rows:
            file.write("| " + " | ".join([f"`{name}`", *map(str, cells)]) + " |\n")


def finish(total, missed):
    """Says how many were caught; the exit status."""
    print(f"{total - missed} of {total} caught.")
    return 1 if missed else 0
