#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints figures of the tree's structure as a table: sizes, large classes and functions, cycles, and the files that one change touches.

    structure.py ROOT [--details]

Production code is the C++ outside of tests, benchmarks and examples. Comments do not count. Methods and functions come from
universal-ctags (package universal-ctags); the other figures come from the text. --details lists the items of each figure.
"""

import argparse
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

NOT_PRODUCTION = re.compile(r"^(tests|bench|examples|docs)/|/testing/|(_test|_fuzz|_benchmark)\.cc$")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
FUNCTION_LINES_MAX = 70

# Changes: a pattern for names of the present example, and a pattern for the folders where the example belongs.
CHANGES = {
    "a device family (vulkan)": (r'"vulkan|\bkVulkan|IsVulkan|vulkan::|backends/vulkan/', r"backends/(vulkan|gpu)/|compiler/back/vulkan/"),
    "a module kind (spirv)": (r'kSpirv\b|MODULE_KIND_SPIRV|"spirv"', r"compiler/front/spirv/"),
    "a run option (rotations)": (r"rotations", r"$^"),
    "a gRPC method (ListCosts)": (r"ListCosts|list_costs", r"$^"),
}


def tracked(root):
    listing = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.splitlines() if (root / name).is_file()]


def production(root):
    return [name for name in tracked(root) if re.search(r"\.(cc|h)$", name) and not NOT_PRODUCTION.search(name)]


# Users of the client library, and its own sources, include its headers without their folder.
PUBLIC_FOLDERS = ("base/include", "client/include")


def included(target, exists):
    """Returns the path below the root of the file that a quoted include names."""
    if target.startswith("hpvm/v1/"):
        return "proto/" + target
    return next((f"{folder}/{target}" for folder in PUBLIC_FOLDERS if exists(f"{folder}/{target}")), target)


def files_by_folder(names):
    return collections.Counter(str(pathlib.PurePosixPath(name).parent) for name in names)


def without_comments(text):
    return COMMENT.sub(lambda match: match.group(1) or "", text)


def tags_of(root, names):
    """Returns functions with their lines and classes, inline functions included."""
    if shutil.which("ctags") is None:
        sys.exit("structure.py needs the command ctags: apt-get install universal-ctags")
    made = subprocess.run(["ctags", "--output-format=json", "--fields=+ne", "--kinds-C++=f", "--languages=C++",
                           "--langmap=C++:+.h", "-f", "-", "-L", "-"], cwd=root, input="\n".join(names),
                          capture_output=True, text=True, check=True)
    return [json.loads(line) for line in made.stdout.splitlines()]


def cycles(edges):
    """Returns groups of nodes that reach each other (Tarjan 1972)."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(edges[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return groups


def folder_edges(names, texts):
    edges = {str(pathlib.PurePosixPath(name).parent): set() for name in names}
    known = set(names)
    for name in names:
        folder = str(pathlib.PurePosixPath(name).parent)
        for target in INCLUDE.findall(texts[name]):
            other = str(pathlib.PurePosixPath(included(target, known.__contains__)).parent)
            if other in edges and other != folder:
                edges[folder].add(other)
    return edges


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--details", action="store_true")
    options = parser.parse_args()
    names = tracked(options.root)
    sources = production(options.root)
    texts = {name: without_comments((options.root / name).read_text()) for name in sources}
    described = {name: without_comments((options.root / name).read_text()) if name.endswith(".proto") else
                 (options.root / name).read_text() for name in names
                 if re.search(r"\.(proto|json)$", name) and not NOT_PRODUCTION.search(name) and "examples/" not in name}

    rows = []
    lines = sum(sum(1 for line in text.splitlines() if line.strip()) for text in texts.values())
    rows.append(("production lines without comments and blanks", lines, []))
    tags = tags_of(options.root, sources)
    methods = collections.defaultdict(set)
    for tag in tags:
        if tag.get("scopeKind") in ("class", "struct"):
            methods[tag["scope"]].add((tag["name"], tag.get("signature", ""), tag["path"], tag["line"]))
    classes = sorted(((len(found), name) for name, found in methods.items()), reverse=True)
    rows.append((f"methods of the largest class ({classes[0][1]})", classes[0][0], [f"{n} {c}" for n, c in classes[:15]]))
    largest = files_by_folder(sources).most_common(15)
    rows.append((f"files in the largest folder ({largest[0][0]})", largest[0][1], [f"{n} {f}" for f, n in largest]))
    groups = cycles(folder_edges(sources, texts))
    rows.append(("groups of folders that include each other", len(groups), [" ".join(group) for group in groups]))
    long = sorted((tag["end"] - tag["line"] + 1, tag["name"], tag["path"]) for tag in tags if "end" in tag)
    long = [entry for entry in reversed(long) if entry[0] > FUNCTION_LINES_MAX]
    rows.append((f"functions of more than {FUNCTION_LINES_MAX} lines", len(long), [f"{n} {f} {p}" for n, f, p in long]))
    counted = [name for name in sources if "use_count()" in texts[name]]
    rows.append(("files where a use_count is logic", len(counted), counted))
    for change, (pattern, home) in CHANGES.items():
        files = [name for name, text in sorted({**texts, **described}.items())
                 if re.search(pattern, text) and not re.match(home, name)]
        rows.append((f"files that {change} stands in", len(files), files))

    for what, figure, details in rows:
        print(f"{what:60} {figure:>8}")
        if options.details:
            for detail in details:
                print(f"    {detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
