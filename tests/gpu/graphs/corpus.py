#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts corpus.txt, whose head defines its syntax, to the JSON that hpvm-gpu-graphs reads.

    corpus.py short|long [OUTPUT]
"""

import json
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).with_name("corpus.txt")
VALUE = re.compile(r"(\w+):(\w+)\[([^\]]*)\]$")
SCALAR_TYPES = {"f": "f32", "d": "f64", "l": "i64"}


class Fault(Exception):
    pass


def evaluate(expression, sizes):
    """Returns the value of an extent, as the graph's reader computes it."""
    return int(eval(expression.replace("/", "//"), {"__builtins__": {}, "min": min, "max": max}, dict(sizes)))


def tensor(text):
    """Parses NAME:TYPE[SHAPE] to (name, description)."""
    match = VALUE.match(text)
    if not match:
        raise Fault(f"\"{text}\" is not NAME:TYPE[SHAPE]")
    shape = [extent if not extent.isdigit() else int(extent) for extent in match[3].split(",") if extent]
    return match[1], {"type": match[2], "shape": shape}


class Graph:
    def __init__(self, name, sizes):
        self.name, self.sizes = name, sizes
        self.repeat, self.rotate, self.until = 1, [], ""
        self.inputs, self.fills, self.nodes, self.edges, self.outputs = {}, [], {}, [], {}
        self.values = {}  # The origin and the description of each value, by name.

    def take_input(self, words):
        name, what = tensor(words[0])
        kind, span = (words[1], words[2:]) if ".." not in words[1] else ("uniform", words[1:])
        low, high = span[0].split("..") if span else ("0", "1")
        number = lambda text: float(text) if re.match(r"-?[\d.]+$", text) else float(evaluate(text, self.sizes))
        fill = {"perm": "permutation", "steps": "offsets"}.get(kind, kind)
        if fill not in ("uniform", "sorted", "permutation", "offsets", "iota", "zero"):
            raise Fault(f"\"{kind}\" is no way to fill an input")
        self.fills.append({"name": name, "type": what["type"], "fill": fill, "low": number(low), "high": number(high),
                           "shape": [evaluate(str(extent), self.sizes) for extent in what["shape"]]})
        self.inputs[name] = what
        self.values[name] = (name, what)

    def take_node(self, line):
        head, _, instances = line.partition("@")
        head, _, scalars = head.partition(";")
        head, _, made = head.partition(">")
        entry, *arguments = head.split()
        node_name = entry if entry not in self.nodes else f"{entry}_{len(self.nodes)}"
        ports, after = [], {}
        for argument in arguments:
            name = argument.rstrip("*")
            source, what = self.values[name]
            access = "inout" if argument.endswith("*") else "in"
            port = name if all(p["name"] != name for p in ports) else f"{name}_{len(ports)}"
            ports.append({"name": port, "access": access, **what})
            self.edges.append({"from": source, "to": f"{node_name}.{port}"})
            if access == "inout":
                after[name] = (f"{node_name}.{port}", what)
        for text in made.split():
            name, what = tensor(text)
            ports.append({"name": name, "access": "out", **what})
            after[name] = (f"{node_name}.{name}", what)
        self.values.update(after)
        node = {"ports": ports, "variants": [{"module": "kernels", "entry": entry}]}
        if scalars.split():
            node["scalars"] = [self.scalar(text, i) for i, text in enumerate(scalars.split())]
        extents, _, group = (part.strip() for part in instances.partition(" / "))
        node["instances"] = [self.extent(text) for text in extents.split(",")]
        if group:
            node["group"] = [int(text) for text in group.split(",")]
        self.nodes[node_name] = node

    @staticmethod
    def scalar(text, index):
        kind, _, value = text.rpartition(":")
        value = float(value) if kind in ("f", "d") else int(value) if re.match(r"-?\d+$", value) else value
        return {"name": f"s{index}", "type": SCALAR_TYPES.get(kind, "i32"), "value": value}

    @staticmethod
    def extent(text):
        if text.startswith("?"):
            port, most = text[1:].split("<")
            return {"port": port, "max": most}
        return int(text) if text.isdigit() else text

    def take_line(self, line):
        words = line.split()
        if words[0] == "in":
            self.take_input(words[1:])
        elif words[0] == "out":
            self.outputs = {name: self.values[name] for name in words[1:]}
        else:
            self.take_node(line)

    def to_json(self):
        document = {
            "hpvm": 1,
            "name": self.name,
            "symbols": sorted(self.sizes),
            "inputs": self.inputs,
            "outputs": {name: what for name, (_, what) in self.outputs.items()},
            "modules": {"kernels": {"kind": "wasm", "source": {"file": "gpu_graphs.wasm"}}},
            "nodes": self.nodes,
            "edges": self.edges + [{"from": source, "to": name} for name, (source, _) in self.outputs.items()],
        }
        return {"name": self.name, "document": document, "symbols": self.sizes, "inputs": self.fills,
                "repeat": self.repeat, "rotate": self.rotate, "until": self.until}


def begin(line, is_long):
    name, *words = line.split()
    graph = Graph(name, {})
    for word in words:
        if "->" in word:
            graph.rotate.append(word.split("->"))
        elif word.startswith("until="):
            graph.until = word[6:]
        elif re.match(r"x\d+$", word):
            graph.repeat = int(word[1:])
        else:
            symbol, _, size = word.partition("=")
            graph.sizes[symbol] = int(size.split("/")[-1 if is_long else 0])
    return graph


def read(size, text=None):
    """Returns the graphs as JSON values, with "short" or "long" sizes."""
    graphs = []
    for number, line in enumerate((text or SOURCE.read_text()).splitlines(), 1):
        line = line.split("#")[0].rstrip()
        try:
            if line and not line[0].isspace():
                graphs.append(begin(line, size == "long"))
            elif line:
                graphs[-1].take_line(line.strip())
        except (Fault, KeyError, ValueError, NameError, IndexError) as error:
            raise SystemExit(f"{SOURCE.name}:{number}: {error!r}") from error
    names = [graph.name for graph in graphs]
    if len(set(names)) != len(names):
        raise SystemExit(f"{SOURCE.name}: a name occurs twice.")
    return [graph.to_json() for graph in graphs]


def main():
    graphs = json.dumps({"graphs": read(sys.argv[1])}, indent=1)
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(graphs + "\n")
    else:
        print(graphs)


if __name__ == "__main__":
    main()
