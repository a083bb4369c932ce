#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates docs/API.md: the gRPC API from proto/hpvm/v1, and the C++ client from its public headers.

    api.py [--write]

protoc provides descriptors with the comments; server/identity/methods.h has the role that each call requires. cpp_headers.py reads the headers. Needs protoc
and python3-protobuf, which the build of the daemon needs too.
"""

import pathlib
import re
import subprocess
import tempfile

from google.protobuf import descriptor_pb2

import common
import cpp_headers
from common import ROOT, Disagreement

DOCUMENT = "docs/API.md"
PROTOS = "proto/hpvm/v1"
HEADERS = ("client/include/hpvm", "base/include/hpvm")
METHODS = "server/identity/methods.h"
COLUMNS = 150
# Reading order; a file that is not listed comes last.
PROTO_ORDER = ["service", "common", "graph", "job", "many", "record", "tensor", "buffer", "ring", "admin", "operations"]
HEADER_ORDER = ["client", "options", "graph", "tensor", "buffer", "repetition", "pending", "cancellation", "diagnostics", "credentials", "profile",
                "local_engine", "admin", "version", "types", "element_type"]

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {number: name.removeprefix("TYPE_").lower() for name, number in Field.Type.items()}


def in_order(names, order):
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


def anchor(name):
    """Returns GitHub's anchor of a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", name.lower()).replace(" ", "-")


def prose(comment, indent=""):
    """Formats a comment as Markdown: paragraphs are wrapped, indented lines become code."""
    parts, code, text = [], [], []

    def flush():
        if text:
            parts.append(common.wrap(escaped(" ".join(text)), indent, columns=COLUMNS))
            text.clear()
        if any(line.strip() for line in code):
            parts.append("\n".join([f"{indent}```cpp", *(indent + line[2:] if line else "" for line in trimmed(code)), f"{indent}```"]))
        code.clear()

    for line in comment.rstrip().split("\n"):
        if line.startswith("  ") and not text or (code and not line.strip()):
            code.append(line.rstrip())
            continue
        if not line.strip():
            flush()
            continue
        if code:
            flush()
        text.append(line.strip())
    flush()
    return "\n\n".join(parts)


def trimmed(lines):
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def escaped(text):
    """Escapes characters that have a meaning in Markdown, outside of quoted code."""
    def plain(part):
        part = part.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")
        return re.sub(r"\bdocs/([A-Z]+\.md)", r"[\1](\1)", part)
    return "".join(part if number % 2 else plain(part) for number, part in enumerate(re.split(r"(`[^`]*`)", text)))


class Proto:
    """A .proto file with the comments of all its items."""

    def __init__(self, file):
        self.file = file
        self.name = pathlib.PurePosixPath(file.name).stem
        self.comments = {tuple(one.path): one for one in file.source_code_info.location}

    def head(self):
        """Returns the comment above `syntax`."""
        location = self.comments.get((12,))
        texts = [*location.leading_detached_comments, location.leading_comments] if location is not None else []
        text = "\n\n".join(self.dedented(one) for one in texts if one)
        return "\n".join(line for line in text.split("\n") if not line.startswith("SPDX-")).strip("\n")

    @staticmethod
    def dedented(text):
        return "\n".join(line.removeprefix(" ") for line in text.rstrip("\n").split("\n"))

    def comment(self, path):
        location = self.comments.get(tuple(path))
        if location is None:
            return ""
        return "\n\n".join(self.dedented(text) for text in (location.leading_comments, location.trailing_comments) if text.strip())


class Api:
    def __init__(self):
        names = in_order([path.stem for path in (ROOT / PROTOS).glob("*.proto")], PROTO_ORDER)
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "set"
            subprocess.run(["protoc", f"-I{ROOT / 'proto'}", "--include_source_info", f"--descriptor_set_out={target}",
                            *(f"hpvm/v1/{name}.proto" for name in names)], check=True)
            files = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes()).file
        found = {pathlib.PurePosixPath(file.name).stem: Proto(file) for file in files}
        self.protos = [found[name] for name in names]
        rows = re.findall(r'\{"/(hpvm\.v1\.\w+)/(\w+)", Role::k(\w+), Change::k(\w+)\}', (ROOT / METHODS).read_text(encoding="utf-8"))
        self.access = {(service, method): (role.lower(), change) for service, method, role, change in rows}

    @staticmethod
    def link(type_name):
        """Returns .hpvm.v1.PutModuleRequest.Header as a link; names of other packages stay as they are."""
        name = type_name.removeprefix(".hpvm.v1.")
        return f"[{name}](#{anchor(name)})" if name != type_name else f"`{type_name.removeprefix('.')}`"

    def type_of(self, field, message):
        if field.type == Field.TYPE_MESSAGE:
            for nested in message.nested_type:
                if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
                    key, value = nested.field
                    return f"map from {self.type_of(key, nested)} to {self.type_of(value, nested)}"
        name = self.link(field.type_name) if field.type in (Field.TYPE_MESSAGE, Field.TYPE_ENUM) else f"`{SCALARS[field.type]}`"
        return f"list of {name}" if field.label == Field.LABEL_REPEATED else name

    @staticmethod
    def entry(name, facts, comment):
        """Returns a list item: the comment's first paragraph beside the name, the others below."""
        text = prose(comment, "  ")
        head = f"- **`{name}`** · {facts}"
        return head + ("\n\n" + text if text else "")

    def message(self, proto, message, path, outer=""):
        name = outer + message.name
        yield f"#### {name}"
        if text := prose(proto.comment(path)):
            yield text
        entries = []
        for index, field in enumerate(message.field):
            facts = [self.type_of(field, message), str(field.number)]
            if field.proto3_optional:
                facts.append("may be absent")
            elif field.HasField("oneof_index"):
                facts.append(f"one of `{message.oneof_decl[field.oneof_index].name}`")
            entries.append(self.entry(field.name, " · ".join(facts), proto.comment([*path, 2, index])))
        if entries:
            yield "\n".join(entries) if not any("\n" in entry for entry in entries) else "\n\n".join(entries)
        elif not text:
            yield "No fields."
        for index, enum in enumerate(message.enum_type):
            yield from self.enum(proto, enum, [*path, 4, index], name + ".")
        for index, nested in enumerate(message.nested_type):
            if not nested.options.map_entry:
                yield from self.message(proto, nested, [*path, 3, index], name + ".")

    def enum(self, proto, enum, path, outer=""):
        yield f"#### {outer}{enum.name}"
        if text := prose(proto.comment(path)):
            yield text
        yield "\n".join(self.entry(value.name, str(value.number), proto.comment([*path, 2, index])) for index, value in enumerate(enum.value))

    def service(self, proto, service, index):
        full = f"hpvm.v1.{service.name}"
        yield f"### Service {full}"
        if text := prose(proto.comment([6, index])):
            yield text
        groups = self.groups(proto, service, index)
        for number, method in enumerate(service.method):
            comment = proto.comment([6, index, 2, number])
            if number in groups:
                yield f"**{prose(comment)}**"
                comment = ""
            if (full, method.name) not in self.access:
                raise Disagreement(f"{METHODS} does not name {full}/{method.name}.")
            role, change = self.access[(full, method.name)]
            parts = [("stream of " if method.client_streaming else "") + self.link(method.input_type),
                     ("stream of " if method.server_streaming else "") + self.link(method.output_type)]
            recorded = {"None": "", "State": " · audited", "Buffers": " · audited if it writes buffers"}[change]
            yield self.entry(method.name, f"{parts[0]} → {parts[1]} · {role}{recorded}", comment)

    @staticmethod
    def groups(proto, service, index):
        """Returns the methods whose comment is the title of a group: the first method after a blank line, when others of the group have no
        comment."""
        blocks, end = [], None
        for number in range(len(service.method)):
            location = proto.comments[(6, index, 2, number)]
            start = location.span[0] - len(location.leading_comments.splitlines())
            if end is None or start > end + 1:
                blocks.append([])
            blocks[-1].append(bool(location.leading_comments))
            end = location.span[0] if len(location.span) == 3 else location.span[2]
        starts = [sum(map(len, blocks[:number])) for number in range(len(blocks))]
        return {start for start, block in zip(starts, blocks) if block[0] and not all(block)}

    def lines(self):
        for proto in self.protos:
            for index, service in enumerate(proto.file.service):
                yield from self.service(proto, service, index)
        for proto in self.protos:
            yield f"### {proto.name}.proto"
            if text := prose(proto.head()):
                yield text
            for index, enum in enumerate(proto.file.enum_type):
                yield from self.enum(proto, enum, [5, index])
            for index, message in enumerate(proto.file.message_type):
                yield from self.message(proto, message, [4, index])


def merged(items):
    """Merges functions and aliases without a comment into the block before them."""
    last = None
    for item in items:
        if last is not None and not (item.names or item.comment or last.names):
            last.code += "\n" + item.code
            continue
        if last is not None:
            yield last
        last = item
    if last is not None:
        yield last


def header_lines():
    files = {path.stem: path for folder in HEADERS for path in (ROOT / folder).glob("*.h")}
    for stem in in_order(files, HEADER_ORDER):
        header = cpp_headers.read(files[stem].read_text(encoding="utf-8"), str(files[stem].relative_to(ROOT)))
        yield f"### hpvm/{stem}.h"
        if text := prose(header.head):
            yield text
        for item in merged(header.items):
            if item.names:
                yield f"#### {item.names}"
            if text := prose(item.comment):
                yield text
            yield "\n".join(["```cpp", item.code, "```"])


INTRODUCTION = """
Two interfaces of a server: the [gRPC API](#the-grpc-api), for every language, and the [C++ client](#the-c-client), which wraps it. [CLIENTS.md](CLIENTS.md)
introduces the C++ package, [PYTHON.md](PYTHON.md) the Python one, and [GRAPHS.md](GRAPHS.md) describes the documents that they carry.
"""

ERRORS = """
A failed call has a canonical gRPC code and a message of full sentences. [CLIENTS.md](CLIENTS.md#c-calls) lists what the codes mean. Details are in
[ErrorDetail](#errordetail); a fault of a document or module is a [Diagnostic](#diagnostic) with its place.
"""


def make():
    api = Api()
    parts = ["# API", common.generated("api.py", "the protos and the public headers"), INTRODUCTION.strip(), "## The gRPC API",
             "Package `hpvm.v1`. Each call is listed with its request, its answer and the least role that may make it"
             " ([TENANTS.md](TENANTS.md#roles));\n*audited* calls are in the record of who changed what ([TENANTS.md](TENANTS.md#the-audit)).", ERRORS.strip()]
    parts += api.lines()
    parts += ["## The C++ client", "Public headers in `include/hpvm`, namespace `hpvm`. Private members, deleted functions and bodies are left out here."]
    parts += header_lines()
    return {DOCUMENT: "\n\n".join(parts) + "\n"}


if __name__ == "__main__":
    common.main(make)
