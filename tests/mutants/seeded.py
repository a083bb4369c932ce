# SPDX-License-Identifier: Apache-2.0
"""Code shared by the scripts that try seeded bugs: it copies the tree with the bugs applied, and writes results."""
import os
import pathlib
import subprocess

import patches

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent


def system_bugs(prefix=""):
    """Returns the patched file of each bug of the daemon and the scheduler (system/*.patch), by bug name."""
    found = {}
    for patch in patches.read_all(HERE / "system"):
        if patch.bug.startswith(prefix):
            found.setdefault(patch.bug, patch.file)
    return found


def copy_tree(folder, changed):
    """Copies the tree, with the texts of `changed` in place of the originals; unchanged files keep their time."""
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
    """Writes a Markdown table; the first column holds names."""
    with open(path, "w", encoding="utf-8") as file:
        file.write("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|\n")
        for name, *cells in rows:
            file.write("| " + " | ".join([f"`{name}`", *map(str, cells)]) + " |\n")


def finish(total, missed):
    """Prints how many bugs were caught; returns the exit status."""
    print(f"{total - missed} of {total} caught.")
    return 1 if missed else 0
