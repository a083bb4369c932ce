# SPDX-License-Identifier: Apache-2.0
"""The namespace of each folder's files (docs/decisions/0018-namespaces.md); tidy.py asks for the faults of each file."""

import re

# Namespace of a folder and of the folders below it that have no row. Folders in `hpvm` are shared by others, or consist of an interface.
ROOMS = {
    "base": "hpvm",
    "proto": "hpvm",
    "client": "hpvm",
    "client/ctl": "hpvm::ctl",
    "sandbox": "hpvm::sandbox",
    "builder": "hpvm::builder",
    "supervisor": "hpvm::supervisor",
    "graph": "hpvm::graph",
    "schemas": "hpvm::graph",
    "scheduler": "hpvm::scheduler",
    "engine": "hpvm::engine",
    "executor": "hpvm::executor",
    "server": "hpvm::server",
    "backends": "hpvm::backends",
    "backends/contract": "hpvm",
    "backends/null": "hpvm",
    "backends/interp": "hpvm",
    "backends/gpu": "hpvm::gpu",
    "backends/cpu": "hpvm::cpu",
    "backends/opencl": "hpvm::opencl",
    "backends/vulkan": "hpvm::vulkan",
    "compiler/api": "hpvm",
    "compiler/ir": "hpvm::ir",
    "compiler/math": "hpvm::math",
    "compiler/front/wasm": "hpvm::wasm",
    "compiler/front/opencl": "hpvm::opencl",
    "compiler/front/spirv": "hpvm::spirv",
    "compiler/back": "hpvm::gpu",
    "compiler/back/llvm": "hpvm::cpu",
    "compiler/back/kernel_il": "hpvm::kernel_il",
    "compiler/back/opencl": "hpvm::opencl",
    "compiler/back/vulkan": "hpvm::vulkan",
    "compiler/analysis": "hpvm::analysis",
    "compiler/pass": "hpvm::pass",
    "compiler/driver": "hpvm::compile",
    "compiler/debug": "hpvm::debug",
}
# The interface of a device family, which the registry and tests name, lies in `hpvm` like the contract that it implements.
FACE = re.compile(r"backends/(?!contract/|shared/|gpu/)\w+/(?:device|build|instance)\.(?:h|cc)")
# Files that are C, or have a C interface.
PLAIN = re.compile(r"backends/contract/grant\.h|client/kernel/hpvm\.h|compiler/math/\w+\.h|compiler/front/opencl/bridge/bridge\.h|"
                   r"compiler/back/kernel_il/spirv_bridge\.(?:h|cc)")
# Argument-dependent lookup must find these functions, so that they lie in the namespace of their argument types.
LOOKED_UP = {"compiler/api/artifact.cc": "hpvm::ir"}
# A program or a fuzzer that uses its folder's namespace may contain nothing but its entry.
ENTRY = re.compile(r"(?:^|/)main\.cc$|_fuzz\.cc$")

OPENS = re.compile(r"namespace (?:([\w:]+) )?\{$")
CLOSES = re.compile(r"\}  // namespace\b")
# A file may declare names of another folder; such a block contains nothing else.
DECLARES = re.compile(r"\s*(?://.*|(?:class|struct|enum class|enum) \w+(?: : \w+)?;(?:\s*//.*)?)?")


def room_of(path):
    """Returns the longest folder of the table that contains the path; None when there is none."""
    parts = path.split("/")[:-1]
    names = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in names if name in ROOMS), None)


def stands_in(space, room):
    """Returns true if a namespace belongs to the folder: it is the folder's own, or lies below it and belongs to no other folder."""
    owners = (owner for owner in {"hpvm", *ROOMS.values()} if space == owner or space.startswith(owner + "::"))
    return max(owners, key=len, default=None) == ROOMS[room]


def filled(lines):
    """Yields (line number, namespace) of each namespace that a file fills with more than declarations of classes."""
    stack = []  # [line, full name, whether something is in it]
    for number, line in enumerate(lines, 1):
        if opened := OPENS.fullmatch(line):
            outer = stack[-1][1] if stack else ""
            inner = opened.group(1) or ""
            stack.append([number, "::".join(filter(None, (outer, inner))), False])
        elif stack and (CLOSES.match(line) or line == "}" and not stack[-1][2]):
            start, space, is_filled = stack.pop()
            if is_filled:
                yield start, space
        elif stack and not DECLARES.fullmatch(line):
            stack[-1][2] = True


def faults(path, lines):
    """Yields (line number, what) for each fault of a C++ file's namespaces; `path` is from the root, with slashes."""
    room = room_of(path)
    if room is None:
        yield 1, "The folder has no room in tests/tidy/namespaces.py."
        return
    if PLAIN.fullmatch(path):
        return
    spaces = list(filled(lines))
    for number, space in spaces:
        is_excused = space == LOOKED_UP.get(path) or space == "hpvm" and FACE.fullmatch(path)
        if space and not stands_in(space, room) and not is_excused:
            yield number, f"This is in namespace {space}; files of {room} stand in {ROOMS[room]} (docs/decisions/0018-namespaces.md)."
    if not any(space for _, space in spaces) and not ENTRY.search(path):
        yield 1, f"The file is in no namespace; files of {room} stand in {ROOMS[room]} (docs/decisions/0018-namespaces.md)."
