# SPDX-License-Identifier: Apache-2.0
"""What the scripts that try seeded bugs share: copies of the tree that have them, and how results are written."""
import os
import pathlib
import subprocess

import patches

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent


def system_bugs(prefix=""):
    """By name: the file of each bug of daemon and scheduler (system/*.patch)."""
    found = {}
    for patch in patches.read_all(HERE / "system"):
        if patch.bug.startswith(prefix):
            found.setdefault(patch.bug, patch.file)
    return found


def copy_tree(folder, changed):
    """The tree as it is, with `changed` texts; what is the same already keeps its time."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                            capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for top, inner, files in os.walk(folder):
        if pathlib.Path(top) == folder and "build" in inner:
            inner.remove("build")
        for path in (pathlib.Path(top, file) for file in files):
            if str(path.relative_to(folder)) not in names | {"base/mutant.h"}:
                path.unlink()
    for name in sorted(names):
        text = changed[name].encode() if name in changed else (ROOT / name).read_bytes()
        write(folder / name, text, (ROOT / name).stat().st_mode)
    write(folder / "base/mutant.h", (HERE / "mutant.h").read_bytes(), 0o644)


def write(path, content, mode):
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode & 0o777)


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
