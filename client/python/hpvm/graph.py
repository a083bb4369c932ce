# SPDX-License-Identifier: Apache-2.0
"""Graphs, built in code or read from files.

>>> g = Graph("matmul")
>>> A, B = g.input("A", "f32", ["m", "k"]), g.input("B", "f32", ["k", "n"])
>>> multiply = g.node(
...     "multiply", g.wasm("matmul", "examples/matmul/matmul.wasm"),
...     ports=[In("a", A), In("b", B), Out("c", "f32", ["m", "n"])],
...     scalars=[Scalar("n", "i32"), Scalar("k", "i32")], instances=["n", "m"])
>>> C = g.output("C", multiply["c"])
>>> g.to_dict()["edges"]
[{'from': 'A', 'to': 'multiply.a'}, {'from': 'B', 'to': 'multiply.b'}, {'from': 'multiply.c', 'to': 'C'}]
"""

from __future__ import annotations

import os
import pathlib
import re
from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from hpvm import _arrays
from hpvm.errors import InvalidArgumentError

Extent = Union[int, str]
Source = Union[str, "os.PathLike[str]", bytes, bytearray]


class Endpoint:
    """A tensor of a graph: an input, or a port of a node. An edge begins or ends at an endpoint."""

    def __init__(self, name: str, type: str, shape: Tuple[Extent, ...], scope: "Scope") -> None:
        self.name = name  # "node.port", or the bare name of an input.
        self.type, self.shape, self.scope = type, shape, scope

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, {self.type}{list(self.shape)})"


class Port:
    """A parameter of a kernel that is a tensor. Use In, Out or InOut.

    `what` is the element type (a name, or anything that numpy takes for a dtype), with a shape; or an Endpoint: then
    the port takes its type and shape, and an edge leads from it to the port."""

    access = ""

    def __init__(self, name: str, what: Any, shape: Optional[Sequence[Extent]] = None, *, kind: str = "all_to_all") -> None:
        self.name, self.kind = name, kind
        self.source = what if isinstance(what, Endpoint) else None
        if self.source is not None:
            self.type, self.shape = self.source.type, tuple(self.source.shape if shape is None else shape)
        else:
            self.type = _arrays.type_name(what)
            if shape is None:
                raise InvalidArgumentError(f'Port "{name}" has a type but no shape.')
            self.shape = tuple(shape)


class In(Port):
    """A port that the kernel reads."""
    access = "in"


class Out(Port):
    """A port that the kernel writes. Its memory reads as zero before the kernel runs."""
    access = "out"


class InOut(Port):
    """A port that the kernel updates in place."""
    access = "inout"


class Scalar:
    """A parameter of a kernel that is one number.

    `value`: a number, an expression of symbols, or an Endpoint of rank 0; absent: the symbol of the parameter's own name."""

    def __init__(self, name: str, type: Any, value: Any = None) -> None:
        self.name, self.type = name, _arrays.type_name(type)
        self.value = name if value is None else value

    def to_dict(self) -> Dict[str, Any]:
        value = {"input": self.value.name} if isinstance(self.value, Endpoint) else self.value
        return {"name": self.name, "type": self.type, "value": value}


class Module(NamedTuple):
    """A module: the code of kernels."""
    name: str
    kind: str


class Variant(NamedTuple):
    """One implementation of a node; the server picks one for each device."""
    module: Union[Module, str]
    entry: str
    devices: Sequence[str] = ()
    abi: str = ""
    constants: Mapping[int, Any] = MappingProxyType({})

    def to_dict(self) -> Dict[str, Any]:
        variant: Dict[str, Any] = {"module": self.module.name if isinstance(self.module, Module) else self.module,
                                   "entry": self.entry}
        if self.abi:
            variant["abi"] = self.abi
        if self.devices:
            variant["devices"] = list(self.devices)
        if self.constants:
            variant["constants"] = {str(number): value for number, value in self.constants.items()}
        return variant


class Node:
    """A node in a graph. `node["port"]` is the endpoint of the edges at its port."""

    def __init__(self, name: str, ports: Sequence[Port], scope: "Scope") -> None:
        self.name, self._scope = name, scope
        self._ports = {port.name: port for port in ports}

    def __getitem__(self, port: str) -> Endpoint:
        try:
            found = self._ports[port]
        except KeyError:
            raise InvalidArgumentError(f'Node "{self.name}" has no port "{port}"; it has {", ".join(self._ports)}.') from None
        return Endpoint(f"{self.name}.{port}", found.type, found.shape, self._scope)

    def __repr__(self) -> str:
        return f"Node({self.name!r}, ports={list(self._ports)})"


class Scope:
    """Nodes and the edges between them: a graph, or the inside of an internal node."""

    def __init__(self, root: "Graph", path: str) -> None:
        self._root, self._path = root, path
        self._nodes: Dict[str, Dict[str, Any]] = {}
        self._edges: List[Dict[str, Any]] = []

    def _add(self, name: str, description: Dict[str, Any], ports: Sequence[Port]) -> Node:
        if name in self._nodes:
            raise InvalidArgumentError(f'{self._path} has two nodes of the name "{name}".')
        names = [port.name for port in ports]
        if len(set(names)) != len(names):
            raise InvalidArgumentError(f'Node "{name}" has two ports of one name: {", ".join(names)}.')
        self._nodes[name] = description
        node = Node(name, ports, self)
        for port in ports:
            if port.source is not None:
                self.connect(port.source, node[port.name], kind=port.kind)
        return node

    def node(self, name: str, module: Union[Module, str, None] = None, entry: str = "", *, ports: Sequence[Port],
             scalars: Sequence[Scalar] = (), instances: Sequence[Any] = (), group: Sequence[Extent] = (),
             variants: Sequence[Variant] = (), params: Sequence[str] = (), devices: Sequence[str] = (),
             hints: Sequence[str] = (), math: str = "") -> Node:
        """Adds a leaf: a kernel with its ports and scalars. `entry` is the exported function; absent: the node's name.

        Instead of a module and an entry, `variants` lists several implementations. docs/PYTHON.md and the schema of
        graph documents describe the other arguments."""
        if (module is None) == (not variants):
            raise InvalidArgumentError(f'Node "{name}" needs either a module or variants.')
        chosen = list(variants) if module is None else [Variant(module, entry or name)]
        leaf: Dict[str, Any] = {"ports": [_describe(port) for port in ports]}
        if scalars:
            leaf["scalars"] = [scalar.to_dict() for scalar in scalars]
        for key, value in (("params", params), ("instances", instances), ("group", group), ("devices", devices),
                           ("hints", hints)):
            if value:
                leaf[key] = list(value)
        if math:
            leaf["math"] = math
        leaf["variants"] = [variant.to_dict() for variant in chosen]
        return self._add(name, leaf, ports)

    def subgraph(self, name: str, *, ports: Sequence[Port], instances: Sequence[Extent] = (),
                 index: Sequence[str] = ()) -> "Subgraph":
        """Adds an internal node: a graph in a node. Build its inside with the same methods; `inside.port("x")` is its
        own port."""
        inside = Subgraph(self, name, ports)
        description: Dict[str, Any] = {"ports": [_describe(port) for port in ports], "nodes": inside._nodes,
                                       "edges": inside._edges}
        if instances:
            description["instances"] = list(instances)
        if index:
            description["index"] = list(index)
        inside.node_outside = self._add(name, description, ports)
        return inside

    def connect(self, source: Union[Endpoint, str], target: Union[Endpoint, str], *, kind: str = "all_to_all") -> None:
        """Adds an edge: `g.connect(a["out"], b["in"])`, or `g.connect("a.out", "b.in")`."""
        for end in (source, target):
            if isinstance(end, Endpoint) and end.scope is not self:
                raise InvalidArgumentError(f'"{end.name}" belongs to another graph than {self._path}.')
        edge = {"from": source.name if isinstance(source, Endpoint) else source,
                "to": target.name if isinstance(target, Endpoint) else target}
        if kind != "all_to_all":
            edge["kind"] = kind
        self._edges.append(edge)


class Subgraph(Scope):
    """The inside of an internal node."""

    node_outside: Node

    def __init__(self, outside: Scope, name: str, ports: Sequence[Port]) -> None:
        super().__init__(outside._root, f'Node "{name}"')
        self._own = {port.name: port for port in ports}

    def port(self, name: str) -> Endpoint:
        """Returns the node's own port, as the inside sees it."""
        if name not in self._own:
            raise InvalidArgumentError(f'{self._path} has no port "{name}"; it has {", ".join(self._own)}.')
        return Endpoint(name, self._own[name].type, self._own[name].shape, self)

    def __getitem__(self, name: str) -> Endpoint:
        """Returns the node's port, as the graph around it sees it."""
        return self.node_outside[name]


def _describe(port: Port) -> Dict[str, Any]:
    if not port.access:
        raise InvalidArgumentError(f'Port "{port.name}" is neither In nor Out nor InOut.')
    return {"name": port.name, "access": port.access, "type": port.type, "shape": list(port.shape)}


def _spell_out_modules(document: Dict[str, Any]) -> None:
    """Writes modules that the short form names as files in the long form (docs/GRAPHS.md)."""
    if document.get("hpvm") != 2:
        return
    if isinstance(document.get("module"), str) and "modules" not in document:
        file = document.pop("module")
        stem = file.rsplit("/", 1)[-1].split(".", 1)[0]
        document["modules"] = {stem if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", stem) else "module": file}
    modules = document.get("modules")
    if not isinstance(modules, dict):
        return
    for name, file in list(modules.items()):
        kind = {"wasm": "wasm", "spv": "spirv", "cl": "opencl"}.get(file.rsplit(".", 1)[-1]) if isinstance(file, str) else None
        if kind is not None:
            modules[name] = {"kind": kind, "source": {"file": file}}


def read_source(source: Source, base: pathlib.Path, name: str) -> bytes:
    """Returns the bytes of the module `name`; paths are relative to `base`."""
    if isinstance(source, (bytes, bytearray)):
        return bytes(source)
    path = base / os.fspath(source)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgumentError(f'The file "{path}" of module "{name}" cannot be read: {error.strerror}.') from None


class Graph(Scope):
    """A graph document (schemas/graph.schema.json) with the bytes of its modules."""

    def __init__(self, name: str = "", *, description: str = "", symbols: Sequence[str] = ()) -> None:
        super().__init__(self, "The graph")
        self.name, self.description = name, description
        self._symbols = list(symbols)
        self._inputs: Dict[str, Dict[str, Any]] = {}
        self._outputs: Dict[str, Dict[str, Any]] = {}
        self._modules: Dict[str, Dict[str, Any]] = {}
        self._bytes: Dict[str, bytes] = {}
        self._loaded: Optional[Dict[str, Any]] = None

    # --- Inputs and outputs ---

    def input(self, name: str, type: Any, shape: Sequence[Extent]) -> Endpoint:
        """Adds an input. `type`: a name such as "f32", or a dtype of numpy. Extents are numbers or expressions of
        symbols."""
        if name in self._inputs:
            raise InvalidArgumentError(f'The graph has two inputs of the name "{name}".')
        self._inputs[name] = {"type": _arrays.type_name(type), "shape": list(shape)}
        return Endpoint(name, self._inputs[name]["type"], tuple(shape), self)

    def output(self, name: str, source: Endpoint) -> Endpoint:
        """Adds an output, which receives the tensor of `source`."""
        if name in self._outputs:
            raise InvalidArgumentError(f'The graph has two outputs of the name "{name}".')
        self._outputs[name] = {"type": source.type, "shape": list(source.shape)}
        self.connect(source, name)
        return Endpoint(name, source.type, tuple(source.shape), self)

    def symbol(self, name: str) -> str:
        """Adds a symbol whose value the run gives, because nothing else determines it."""
        if name not in self._symbols:
            self._symbols.append(name)
        return name

    # --- Modules ---

    def module(self, name: str, kind: str, source: Source, *, options: str = "") -> Module:
        """Adds a module. `kind`: wasm, spirv or opencl. `source`: a file's path, or the bytes themselves."""
        if name in self._modules:
            raise InvalidArgumentError(f'The graph has two modules of the name "{name}".')
        if kind not in ("wasm", "spirv", "opencl", "bitstream"):
            raise InvalidArgumentError(f'Module "{name}" has the kind "{kind}"; kinds are wasm, spirv, opencl and bitstream.')
        self._bytes[name] = read_source(source, pathlib.Path(), name)
        self._modules[name] = {"kind": kind, "source": {"file": f"{name}.{kind}"}}
        if options:
            self._modules[name]["options"] = options
        return Module(name, kind)

    def wasm(self, name: str, source: Source) -> Module:
        """Adds a WebAssembly module."""
        return self.module(name, "wasm", source)

    def spirv(self, name: str, source: Source) -> Module:
        """Adds a SPIR-V module."""
        return self.module(name, "spirv", source)

    def opencl(self, name: str, source: Source, *, options: str = "") -> Module:
        """Adds OpenCL C: a file's path, or the text as bytes. `options` are the compiler's."""
        return self.module(name, "opencl", source, options=options)

    # --- Documents ---

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Graph":
        """Reads a document, and the files beside it that its modules name."""
        place = pathlib.Path(path)
        try:
            text = place.read_text(encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(f'The graph "{place}" cannot be read: {error.strerror}.') from None
        return cls.from_document(text, place.parent, where=str(place))

    @classmethod
    def from_document(cls, document: Union[str, Mapping[str, Any]], folder: Union[str, "os.PathLike[str]"] = ".", *,
                      modules: Optional[Mapping[str, bytes]] = None, where: str = "the document") -> "Graph":
        """Makes a graph from JSON text or a dictionary. `modules` has bytes for modules that name a file; other files
        are read from `folder`."""
        import json  # Imported here and below, because importing json costs as much as all of this module.
        try:
            loaded = json.loads(document) if isinstance(document, str) else json.loads(json.dumps(document))
        except ValueError as error:
            raise InvalidArgumentError(f"{where} is not JSON: {error}") from None
        if not isinstance(loaded, dict):
            raise InvalidArgumentError(f"{where} is not a JSON object.")
        graph = cls(loaded.get("name", "") if isinstance(loaded.get("name"), str) else "")
        graph._loaded = loaded
        _spell_out_modules(loaded)
        described = loaded.get("modules")
        for name, module in (described.items() if isinstance(described, dict) else ()):
            source = module.get("source") if isinstance(module, dict) else None
            file = source.get("file") if isinstance(source, dict) else None
            if modules is not None and name in modules:
                graph._bytes[name] = bytes(modules[name])
            elif isinstance(file, str):
                graph._bytes[name] = read_source(file, pathlib.Path(folder), name)
        return graph

    def to_dict(self) -> Dict[str, Any]:
        """Returns the document. The server reports all faults of the document at once when it is prepared."""
        if self._loaded is not None:
            return dict(self._loaded)
        document: Dict[str, Any] = {"hpvm": 1}
        for key, value in (("name", self.name), ("description", self.description), ("symbols", self._symbols)):
            if value:
                document[key] = value
        document.update(inputs=self._inputs, outputs=self._outputs, modules=self._modules, nodes=self._nodes, edges=self._edges)
        return document

    def document(self) -> str:
        """Returns the document as JSON text."""
        import json
        return json.dumps(self.to_dict())

    def modules(self) -> Dict[str, bytes]:
        """Returns the bytes of the modules by name."""
        return dict(self._bytes)

    def save(self, path: Union[str, "os.PathLike[str]"], *, inline: bool = False) -> None:
        """Writes the document, with its modules as files beside it; with `inline`, as base64 inside it."""
        import json
        place = pathlib.Path(path)
        document = json.loads(self.document())
        try:
            for name, data in self._bytes.items():
                source = document["modules"][name]["source"]
                if inline:
                    import base64
                    document["modules"][name]["source"] = {"inline": base64.b64encode(data).decode()}
                else:
                    (place.parent / source["file"]).write_bytes(data)
            place.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise InvalidArgumentError(f'The graph cannot be written to "{place}": {error.strerror} ("{error.filename}").') from None

    # --- Pictures ---

    def to_svg(self) -> str:
        """Returns the graph as a picture."""
        from hpvm import _svg
        return _svg.draw(self.to_dict())

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def show(self) -> Any:
        """Draws the graph in a notebook; elsewhere returns an object whose `data` is the SVG text."""
        try:
            from IPython.display import SVG, display
        except ImportError:
            class Picture:
                data = self.to_svg()
            return Picture()
        picture = SVG(self.to_svg())
        try:
            get_ipython()  # type: ignore[name-defined]
        except NameError:
            return picture
        display(picture)
        return None

    def __repr__(self) -> str:
        document = self.to_dict()
        return (f"Graph({self.name!r}, inputs={list(document.get('inputs', {}))}, outputs={list(document.get('outputs', {}))}, "
                f"nodes={list(document.get('nodes', {}))})")
