# SPDX-License-Identifier: Apache-2.0
"""Expands the short form of a graph document ("hpvm": 2; docs/GRAPHS.md) as far as a picture needs it: inputs, outputs, the
outermost nodes with their ports and instances, and edges, with the names that the server gives them (graph/long_form.h).

The server reports the faults of a document. This expansion leaves out what it does not understand."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

_SOURCE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SCALAR = re.compile(r"(?:i32|i64|f32|f64)[ \t]+(.*)", re.S)
_BLANKS = " \t"

Tensor = Dict[str, Any]  # "type" and "shape"; empty if they are not known.


class _Port:
    """A port of a node, or an input of the graph, which is a port that can be read."""

    def __init__(self, name: str, access: str, tensor: Optional[Tensor] = None) -> None:
        self.name, self.access, self.tensor = name, access, tensor or {}
        self.source: Optional[Tuple[str, _Port]] = None  # The endpoint that the port reads, as text and as port.

    @property
    def is_written(self) -> bool:
        return self.access.endswith("out")

    def followed(self) -> Tensor:
        """Returns the type and shape of the port, or of the data that it reads or updates."""
        port, passed = self, {id(self): self}
        while not port.tensor and port.source is not None and id(port.source[1]) not in passed:
            port = port.source[1]
            passed[id(port)] = port
        for before in passed.values():  # So that each port is passed once.
            before.tensor = port.tensor
        return port.tensor

    def described(self) -> Dict[str, Any]:
        return {"name": self.name, "access": self.access, **self.followed()}


class _Argument(NamedTuple):
    kind: str  # "name" alone, "in", "inout", "out" or "scalar".
    name: str = ""  # The source; of "out": the port; of a scalar: the expression.
    tensor: Optional[Tensor] = None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _extent(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def _tensor(value: Any) -> Tensor:
    """Reads a type and a shape: "f32[h, w]", or an object."""
    if isinstance(value, dict):
        known = "type" in value and isinstance(value.get("shape"), list)
        return {"type": value["type"], "shape": value["shape"]} if known else {}
    if not isinstance(value, str):
        return {}
    kind, bracket, inside = value.strip(_BLANKS).partition("[")
    inside = inside.rpartition("]")[0]
    extents, depth = [""], 0
    for char in inside:
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:  # Commas in parentheses separate the arguments of min and max.
            extents.append("")
        else:
            extents[-1] += char
    shape = [_extent(extent.strip(_BLANKS)) for extent in extents] if inside.strip(_BLANKS) else []
    return {"type": kind.strip(_BLANKS), "shape": shape}


def _argument(value: Any) -> _Argument:
    if not isinstance(value, str):
        return _Argument("scalar")
    text = value.strip(_BLANKS)
    if _SOURCE.fullmatch(text):
        return _Argument("name", text)
    word, rest = (re.split(r"[ \t]+", text, maxsplit=1) + [""])[:2]
    if word in ("in", "inout"):
        return _Argument(word, rest) if _SOURCE.fullmatch(rest) else _Argument("scalar")
    if word == "out":
        head = rest.partition("[")[0].strip(_BLANKS)
        name, rest = re.split(r"[ \t]+", rest, maxsplit=1) if re.search(r"[ \t]", head) else ("out", rest)
        return _Argument("out", name, _tensor(rest))
    scalar = _SCALAR.fullmatch(text)
    return _Argument("scalar", scalar.group(1) if scalar else text)


class _Node:
    """A node. `read` adds the ports that its arguments say, `resolve` those that depend on the names around the node."""

    def __init__(self, name: str, description: Any) -> None:
        self.name, self.description = name, _object(description)
        arguments = description if isinstance(description, list) else self.description.get("args")
        self.is_short = arguments is not None
        self.ports: List[_Port] = []
        self._names: Set[str] = set()
        if not self.is_short:
            described = self.description.get("ports")
            for port in map(_object, described if isinstance(described, list) else []):
                self.ports.append(_Port(str(port.get("name", "")), str(port.get("access", "")), _tensor(port)))
        self._arguments = list(map(_argument, arguments)) if isinstance(arguments, list) else []
        self._port_of: List[Optional[_Port]] = []
        for position, (kind, text, tensor) in enumerate(self._arguments):
            is_port = kind in ("in", "inout", "out")
            self._port_of.append(self._add(text if kind == "out" else text.partition(".")[0], position, kind, tensor)
                                 if is_port else None)

    def _free(self, wanted: str, position: int) -> str:
        name = wanted
        while name in self._names:
            name, position = f"{wanted}_{position}", position + 1
        self._names.add(name)
        return name

    def _add(self, wanted: str, position: int, access: str, tensor: Optional[Tensor] = None) -> _Port:
        self.ports.append(_Port(self._free(wanted, position), access, tensor))
        return self.ports[-1]

    def resolve(self, scope: "_Scope") -> None:
        for position, (kind, text, _) in enumerate(self._arguments):
            found = scope.source(text) if kind in ("name", "in", "inout") else None
            if kind == "name" and found is not None:
                is_scalar = text in scope.symbols or (text in scope.inputs and not found[1].tensor.get("shape", ["?"]))
                if not is_scalar:
                    self._port_of[position] = self._add(text.partition(".")[0], position, "in")
            port = self._port_of[position]
            if port is None:
                self._free(text if _NAME.fullmatch(text) else f"arg{position}", position)
            else:
                port.source = found

    def instances(self) -> List[Any]:
        """Returns the instances that follow from the first output, or from the first data that is updated in place."""
        written = [port for port in self.ports if port.access == "out"] or [port for port in self.ports if port.is_written]
        return list(reversed(written[0].followed().get("shape", []))) if written else []

    def described(self) -> Dict[str, Any]:
        ports = [port for port in self._port_of if port is not None] if self.is_short else self.ports
        instances = {"instances": self.instances()} if self.is_short else {}
        return {**instances, **self.description, "ports": [port.described() for port in ports]}


class _Scope:
    """The names of the outermost graph."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.inputs = {name: _Port(name, "out", _tensor(value)) for name, value in _object(document.get("inputs")).items()}
        self.nodes = {name: _Node(name, value) for name, value in _object(document.get("nodes")).items()}
        symbols = document.get("symbols")
        texts = [text for text in (symbols if isinstance(symbols, list) else []) if isinstance(text, str)]
        texts += [str(extent) for port in self.inputs.values() for extent in port.tensor.get("shape", [])]
        self.symbols = {word for text in texts for word in re.findall(r"[A-Za-z0-9_]+", text)} - {"min", "max"}

    def source(self, text: str) -> Optional[Tuple[str, _Port]]:
        """Returns the endpoint of an edge that begins at `text`: an input, a node that writes one port, or NODE.PORT."""
        name, _, wanted = text.partition(".")
        if name in self.nodes:
            written = [port for port in self.nodes[name].ports if port.is_written and wanted in ("", port.name)]
            return (f"{name}.{written[0].name}", written[0]) if len(written) == 1 else None
        return (name, self.inputs[name]) if name in self.inputs and wanted in ("", name) else None


def long_form(document: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the parts of the long form that a picture shows."""
    scope = _Scope(document)
    for node in scope.nodes.values():
        node.resolve(scope)
    edges = [{"from": port.source[0], "to": f"{node.name}.{port.name}"}
             for node in scope.nodes.values() for port in node.ports if port.source is not None]
    outputs: Dict[str, Any] = {}
    for name, value in _object(document.get("outputs")).items():
        found = scope.source(value) if isinstance(value, str) else None
        outputs[name] = found[1].followed() if found is not None else _object(value)
        if found is not None:
            edges.append({"from": found[0], "to": name})
    own = document.get("edges")
    edges += [edge for edge in own if isinstance(edge, dict)] if isinstance(own, list) else []
    return {"name": document.get("name", ""), "inputs": {name: port.tensor for name, port in scope.inputs.items()},
            "outputs": outputs, "nodes": {name: node.described() for name, node in scope.nodes.items()}, "edges": edges}
