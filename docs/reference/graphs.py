#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates docs/GRAPHS.md from schemas/graph.schema.json and the documents of schemas/examples.

    graphs.py [--write]

Fields, types, defaults and meanings come from the schema. Examples are files of schemas/examples/valid, which tests check against the schema and the reader.
Messages are those of the reader for schemas/examples/invalid. The script fails when a field or definition has no description or no section.
"""

import json
import re

import common
from common import ROOT, Disagreement

SCHEMA = "schemas/graph.schema.json"
EXAMPLES = "schemas/examples"
DOCUMENT = "docs/GRAPHS.md"
COLUMNS = 150

# Each section has a title, an introduction, definitions whose members it lists ("": the document), and examples.
SECTIONS = [
    ("The document", 'This section and those up to [Edges](#edges) are the reference of the long form, `"hpvm": 1`. '
     "A document in it is an object with these members.", [""], ["minimal"]),
    ("Names, types and extents", "Values that other members are made of:",
     ["name", "type", "symbol", "expression", "real_expression", "extent", "positiveExtent", "shape"], ["shapes"]),
    ("Inputs and outputs", "", ["tensors"], ["unused-output"]),
    ("Modules", "[MODULES.md](MODULES.md) says what each kind may contain, [KERNELS.md](KERNELS.md) what a WebAssembly kernel may do.", ["module"],
     ["inline-module", "module-kinds"]),
    ("Nodes", "", ["nodes", "node"], []),
    ("Leaves", "", ["leaf"], ["matmul", "groups", "extent-from-port"]),
    ("Ports", "", ["port"], ["inout-chain"]),
    ("Scalars", "", ["scalar"], ["scalars"]),
    ("Variants and devices", "", ["variant", "device", "devices"], ["hpvm-web"]),
    ("Internal nodes", "", ["internal"], ["internal", "replicated-2d"]),
    ("Edges", "An output may feed any number of edges (a broadcast); an input takes exactly one.", ["edges", "endpoint"], ["edge-kinds", "streaming"]),
]
OF_DEFINITION = {name: title for title, _, names, _ in SECTIONS for name in names}


def anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


class Schema:
    def __init__(self):
        self.root = json.loads((ROOT / SCHEMA).read_text(encoding="utf-8"))
        self.definitions = self.root["definitions"]
        missing = set(self.definitions) ^ (set(OF_DEFINITION) - {""})
        if missing:
            raise Disagreement(f"{SCHEMA} and the sections of graphs.py differ in the definitions {sorted(missing)}.")

    def target(self, schema):
        name = schema["$ref"].removeprefix("#/definitions/")
        return name, self.definitions[name]

    def type_of(self, schema, link=True):
        """Returns a short description of a value's type."""
        if "$ref" in schema:
            name, _ = self.target(schema)
            shown = {"nodes": "nodes", "edges": "edges", "positiveExtent": "positive extent", "real_expression": "real expression"}.get(name, name)
            return f"[{shown}](#{anchor(OF_DEFINITION[name])})" if link else shown
        if "enum" in schema:
            values = [f"`{json.dumps(value)}`" for value in schema["enum"]]
            return values[0] if len(values) == 1 else "one of " + ", ".join(values)
        if "anyOf" in schema:
            return " or ".join(self.type_of(one, link) for one in schema["anyOf"])
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            return " or ".join(kind)
        if kind == "array":
            return f"list of {self.type_of(schema['items'], link)}" + self.bounds(schema, "Items")
        if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
            values = schema["additionalProperties"]
            what = self.type_of(values, link) if "$ref" in values or isinstance(values.get("type"), list) else "object"
            return f"object with a {what} for each name" + self.bounds(schema, "Properties")
        if kind in ("integer", "number"):
            low, high = schema.get("minimum"), schema.get("maximum")
            return kind + (f" from {low:,} to {high:,}" if high is not None else f" ({low} or more)" if low is not None else "")
        return kind + self.bounds(schema, "Length")

    @staticmethod
    def bounds(schema, what):
        most, least = schema.get(f"max{what}"), schema.get(f"min{what}")
        unit = " bytes" if what == "Length" else ""
        parts = ([f"at least {least:,}{unit}"] if least and what != "Length" else []) + ([f"at most {most:,}{unit}"] if most else [])
        return "".join(f", {part}" for part in parts)

    def field(self, name, schema, required, indent=""):
        """Returns the lines of one member, and of the members below it."""
        if not schema.get("description", "").endswith("."):
            raise Disagreement(f"{SCHEMA}: the member \"{name}\" has no description that is a sentence.")
        facts = [self.type_of(schema)]
        default = schema.get("default")
        if "default" in schema:
            facts.append(f"default `{json.dumps(default)}`")
        facts.append("required" if required else "optional")
        lines = [f"{indent}- **`{name}`** · " + " · ".join(facts), "", common.wrap(described(schema), indent + "  ", columns=COLUMNS), ""]
        for inner in nested(schema):
            for key, value in inner["properties"].items():
                lines += self.field(key, value, key in inner.get("required", []), indent + "  ")
        return lines

    def definition(self, name):
        schema = self.root if name == "" else self.definitions[name]
        if not schema.get("description", "").endswith("."):
            raise Disagreement(f"{SCHEMA}: the definition \"{name}\" has no description that is a sentence.")
        lines = []
        members = schema if "properties" in schema else next(iter(nested(schema)), {})
        if "properties" not in members:
            shown = {"positiveExtent": "positive extent", "real_expression": "real expression"}.get(name, name)
            kind = "object" if "if" in schema else self.type_of(schema)
            lines += [f"- **{shown}** · {kind}", "", common.wrap(described(schema), "  ", columns=COLUMNS)]
            if "pattern" in schema:
                lines += ["", f"  Pattern: `{schema['pattern']}`"]
            return lines + [""]
        lines += [common.wrap(described(schema), columns=COLUMNS), ""] if name else []
        if schema is not members:
            kind = "Each" if schema["type"] == "array" else "Each value"
            lines += [f"{kind} is an object with these members:", ""]
        for key, value in members["properties"].items():
            lines += self.field(key, value, key in members.get("required", []))
        return lines


def nested(schema):
    """Returns objects with members of their own inside a member's value."""
    if schema.get("type") == "object" and "properties" in schema:
        yield schema
    for one in schema.get("anyOf", []):
        yield from nested(one)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from nested(inner)


def described(schema):
    """Returns the schema's description with links to documents."""
    text = re.sub(r"docs/([A-Z]+\.md)", r"[\1](\1)", schema["description"])
    return re.sub(r'(?<![\w`])(\{"[^{}]*\})', r"`\1`", text)


def example(name):
    path = f"{EXAMPLES}/valid/{name}.json"
    text = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return [f"[`{name}.json`](../{path}):", "", "```json", text, "```", ""]


def messages():
    """Returns the reader's messages about documents that a schema alone cannot refuse."""
    lines = []
    for path in sorted((ROOT / EXAMPLES / "invalid").glob("graph-*.expected.txt")):
        line = path.read_text(encoding="utf-8").splitlines()[0]
        if len(line) < COLUMNS:
            lines.append(line)
    return ["```", *lines, "```"]


def sizes():
    """Returns the limits of a document as a whole, from the code."""
    names = {"kGraphDocumentBytesMax": "bytes of a document (`limits.document_bytes_max`)", "kGraphNodesMax": "nodes (`graph.nodes_max`)",
             "kGraphEdgesMax": "edges (`graph.edges_max`)", "kGraphDepthMax": "nesting of nodes and of the JSON (`graph.depth_max`)",
             "kGraphExpandedNodesMax": "nodes once replicas are written out", "kGraphStringBytesMax": "bytes of a string",
             "kTensorRankMax": "dimensions of a shape", "kKernelParamsMax": "parameters of a kernel"}
    text = (ROOT / "base/limits.h").read_text(encoding="utf-8")
    rows = ["| at most | of |", "|---|---|"]
    for name, what in names.items():
        match = re.search(rf"\b{name} = ([0-9']+)(?: \* k([KM])iB)?;", text)
        if match is None:
            raise Disagreement(f"base/limits.h: {name} is not understood.")
        number = int(match.group(1).replace("'", ""))
        rows.append(f"| {number:,}{f' {match.group(2)}iB' if match.group(2) else ''} | {what.removeprefix('bytes of ') if match.group(2) else what} |")
    return rows


INTRODUCTION = """
A graph document says which kernels run, on what data, and how the data flows between them. It is JSON (RFC 8259) in UTF-8, and an unknown member is an error,
everywhere. It has two forms. People write the [short form](#the-short-form). Servers expand it to the [long form](#the-document), which names every port and
edge, and which also has members that the short form lacks.

`hpvmctl graph validate FILE` checks a document without a server and reports every fault with a JSON pointer. `hpvmctl graph show FILE` prints the canonical
form, `hpvmctl graph show --dot FILE` a picture for Graphviz. An editor checks a document while you write it if its member `"$schema"` names
[`schemas/short.schema.json`](../schemas/short.schema.json) or, for the long form, [`schemas/graph.schema.json`](../schemas/graph.schema.json).

The Python package builds documents in code ([PYTHON.md](PYTHON.md)), and so does the C++ client (`hpvm/graph.h`, [API.md](API.md)).
"""

SHORT_FORM = """
`"hpvm": 2` begins a document that says each type and shape once. The rest follows from the document's own names, never from a module, so that it means the
same under every release. `hpvmctl graph init MODULE` writes a first short document for a module's kernels. Servers and the clients take both forms;
`hpvmctl graph show --full FILE` prints the long one, with all that follows. Types, extents and expressions are the same in both
([Names, types and extents](#names-types-and-extents)).

- `"module": "edges.wasm"` is the one module; `"modules"` may give files in place of objects. The file's ending says the kind: `.wasm`, `.spv`, `.cl`.
- `"inputs"`: name to `"TYPE[EXTENT, ...]"`. `"outputs"`: name to the node that gives it, or to `"NODE.PORT"` where the node writes several ports.
- A node is the list of its kernel's arguments, in the kernel's order, or an object with `"args"` and any of `"module"`, `"entry"`, `"instances"`, `"group"`,
  `"devices"`, `"hints"`, `"math"` and `"variants"`.

| argument | meaning |
|---|---|
| `"image"`, `"smooth"`, `"split.left"` | the kernel reads this input, the output of this node, or this port of a node; `"in NAME"` says the same |
| `"inout field"` | the kernel updates this data in place; other nodes read the result under this node's name |
| `"out f32[h, w]"`, `"out left f32[h]"` | the kernel writes this; a name is needed where others are to tell several outputs apart |
| `"w"`, `"2 * w"`, `3` | a scalar of type i32 |
| `"i64 n"`, `"f32 1 / 3"`, `0.5` | a scalar of this type; a number with a fraction is f32 |
| `"threshold"`, where the input has no dimensions | a scalar, whose value the run gives; `"in threshold"` hands over the data instead |

These parts follow: a port is called after its source (a second one of that name `NAME_POSITION`), an output `out`; data that is read has the type and shape of
its source; `"entry"` is the node's name; `"instances"` is the shape of the first output, or of the first data updated in place, last extent first; edges
follow from the arguments. Nodes in the long form may stand beside short ones, with their edges in `"edges"`; an internal node keeps its `"ports"` and
`"edges"`, and its nodes may be short. Faults name places of the document as it was written; a server's messages about compiled kernels name those of the
long form.
"""

ITERATION = """
A document has no loop construct; a graph never has a cycle. Repetition has two forms:

- *Replicas*: an internal node with `"instances"` and an `inout` port runs its inner graph several times within one run ([Internal nodes](#internal-nodes)).
- *Iterations of a run*: the caller asks for repetitions of the whole graph, and the server runs them without a round trip between them. `--repeat N` is the
  largest number, `--rotate OUTPUT=INPUT` hands an output of one repetition to an input of the next, and `--until OUTPUT` ends after the repetition that
  leaves the output not zero ([PLANS.md](PLANS.md#iterations)):

      hpvmctl run iteration.json --input x=x0.npy --input b=b.npy --repeat 1000 --rotate x_next=x --until done --output x_next=x.npy
"""


def make():
    schema = Schema()
    lines = ["# Graph documents", "", common.generated("graphs.py", f"{SCHEMA} and {EXAMPLES}"), "", INTRODUCTION.strip(), ""]
    titles = ["The short form"] + [title for title, _, _, _ in SECTIONS] + ["Repetition", "Limits", "What the reader refuses"]
    links = [f"[{title}](#{anchor(title)})".replace(" ", "\0") for title in titles]
    lines += [common.wrap(", ".join(links), columns=COLUMNS).replace("\0", " "), ""]
    lines += ["## The short form", "", SHORT_FORM.strip(), "", *example("short-edges"), *example("short-forms")]
    for title, text, definitions, examples in SECTIONS:
        lines += [f"## {title}", ""] + ([common.wrap(text, columns=COLUMNS), ""] if text else [])
        for name in definitions:
            lines += schema.definition(name)
        for name in examples:
            lines += example(name)
    lines += ["## Repetition", "", ITERATION.strip(), "", *example("iteration")]
    lines += ["## Limits", "", "The keys in parentheses set other limits for a server ([CONFIGURATION.md](CONFIGURATION.md)).", "", *sizes(), ""]
    lines += ["## What the reader refuses", "", "The reader refuses what breaks the schema, and more. It reports all faults of a document together. Examples:", "", *messages()]
    return {DOCUMENT: "\n".join(lines) + "\n"}


if __name__ == "__main__":
    common.main(make)
