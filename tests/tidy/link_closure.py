#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the libraries of the built programs: the daemon has no compiler, driver, Wasm engine or graph parser, the runner no LLVM and no
gRPC. Only the daemon replaces functions of the C library (server/front/io_hooks.cc).

The script looks at three sources, because each alone can be fooled: the libraries the dynamic linker would load, the symbols in the program itself (static
libraries included), and CMake's own link graph.

    link_closure.py BUILD_FOLDER
"""

import pathlib
import re
import subprocess
import sys

# Maps a program to (libraries it must not load, symbol text it must not hold, CMake targets it must not reach).
RULES = {
    "hpvmd": (["LLVM", "OpenCL", "vulkan", "wabt", "SPIRV", "shaderc"],
              [r"\bwabt::", r"\bllvm::", r"\bhpvm::graph::", r"\bhpvm::ir::", r"\bhpvm::engine::", r"\bclCreate", r"\bvkCreate"],
              ["graph", "engine", "backends", "scheduler", "kernel_ir", "wasm_front", "llvm_back", "compiler_service"]),
    "hpvm-executor": (["LLVM", "wabt", "grpc", "SPIRV", "shaderc"],
                      [r"\bwabt::", r"\bllvm::", r"\bgrpc::"],
                      ["wasm_front", "llvm_back", "proto_v1", "server", "client"]),
    "hpvmctl": (["LLVM", "wabt", "OpenCL", "vulkan"],
                [r"\bwabt::", r"\bllvm::", r"\bhpvm::engine::"],
                ["engine", "backends", "wasm_front", "llvm_back", "server"]),
}


# Functions of the C library that the program replaces for the libraries that it loads.
HOOKS, HOOKED = {"recvmsg", "sendmsg", "close", "getpeername"}, "hpvmd"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def reachable(edges, start):
    seen, todo = set(), [start]
    while todo:
        for target in edges.get(todo.pop(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def cmake_edges(build):
    """Returns a map from each target to its dependencies, by label, from CMake's Graphviz output."""
    dot = build / "link.dot"
    # CMake writes one file, instead of two for each of a thousand targets.
    (build / "CMakeGraphVizOptions.cmake").write_text("set(GRAPHVIZ_GENERATE_PER_TARGET OFF)\nset(GRAPHVIZ_GENERATE_DEPENDERS OFF)\n")
    run("cmake", f"--graphviz={dot}", str(build))
    labels, edges = {}, {}
    for line in dot.read_text().splitlines():
        if match := re.match(r'\s*"(node\d+)" \[ label = "([^"\\]+)', line):
            labels[match.group(1)] = match.group(2)
        elif match := re.match(r'\s*"(node\d+)" -> "(node\d+)"', line):
            edges.setdefault(match.group(1), []).append(match.group(2))
    return {labels[a]: [labels[b] for b in targets] for a, targets in edges.items()}


def main():
    build = pathlib.Path(sys.argv[1])
    edges = cmake_edges(build)
    faults = []
    for program, (libraries, symbols, targets) in RULES.items():
        path = build / "bin" / program
        if not path.exists():
            faults.append(f"{program}: not built")
            continue
        loaded = run("ldd", str(path))
        faults += [f"{program}: loads {lib}" for lib in libraries if re.search(rf"lib{lib}", loaded, re.I)]
        names = run("nm", "-C", str(path))
        faults += [f"{program}: holds symbols like {s}" for s in symbols if re.search(s, names)]
        closure = reachable(edges, program)
        if not closure:
            faults.append(f"{program}: CMake's link graph does not know it")
        faults += [f"{program}: CMake links {t}" for t in targets if t in closure]
    for path in sorted(path for path in (build / "bin").iterdir() if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"):
        own = {name.split("@")[0] for name in re.findall(r" [TWV] (\S+)", run("nm", "-D", "--defined-only", str(path)))} & HOOKS
        held = {name.split("@")[0] for name in re.findall(r" [TWV] (\S+)", run("nm", "--defined-only", str(path)))} & HOOKS
        if path.name == HOOKED and own != HOOKS:
            faults.append(f"{path.name}: libraries do not get its own {', '.join(sorted(HOOKS - own))}")
        if path.name != HOOKED and own | held:
            faults.append(f"{path.name}: takes {', '.join(sorted(own | held))} from the C library")
    for fault in faults:
        print(fault)
    print(f"link_closure: {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
