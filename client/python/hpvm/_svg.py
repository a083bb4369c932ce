# SPDX-License-Identifier: Apache-2.0
"""Draws a graph document: layers from left to right, nodes with their ports, edges as curves.

A node's layer is the length of the longest path from the inputs. The nodes of a layer are ordered by the mean position of their
predecessors, in a few passes (the barycentre method of Sugiyama, Tagawa and Toda, 1981). An edge over several layers has a
position of its own in each layer that it crosses, so that it passes behind no node."""

from __future__ import annotations

import html
from typing import Any, Dict, List, Mapping, Tuple

_CHAR, _ROW, _GAP_X, _GAP_Y, _PAD = 7, 16, 70, 22, 10
_STYLE = ("text{font:12px ui-monospace,monospace;fill:#1b1f24}.t{font-weight:600}.p{font-size:11px;fill:#57606a}"
          ".n{fill:#fff;stroke:#57606a}.i{fill:#ddf4ff;stroke:#0969da}.o{fill:#dafbe1;stroke:#1a7f37}.g{fill:#f6f8fa;stroke:#8250df}"
          ".e{fill:none;stroke:#57606a;stroke-width:1.3}.r{fill:#fff}")
_PASSES = 8
_NODES_MAX = 400


class _Box:
    def __init__(self, key: str, title: str, kind: str, left: List[str], right: List[str], subtitle: str = "") -> None:
        self.key, self.title, self.kind, self.left, self.right, self.subtitle = key, title, kind, left, right, subtitle
        widest = max([len(title) + 2, len(subtitle) + 2] + [
            len(a) + len(b) + 3 for a, b in zip(left + [""] * len(right), right + [""] * len(left))])
        self.width = widest * _CHAR + 2 * _PAD
        self.head = _ROW * (2 if subtitle else 1)
        self.height = self.head + _ROW * max(len(left), len(right)) + _PAD
        self.layer, self.x, self.y = 0, 0.0, 0.0

    @classmethod
    def crossing(cls, key: str, layer: int) -> "_Box":
        """Returns the box of an edge that crosses a layer."""
        box = cls(key, "", "v", [], [])
        box.layer, box.width, box.head, box.height = layer, 0, 0, _ROW
        return box

    def anchor(self, port: str, is_source: bool) -> Tuple[float, float]:
        rows = self.right if is_source else self.left
        row = rows.index(port) if port in rows else 0
        return self.x + (self.width if is_source else 0), self.y + self.head + _ROW * row + _ROW / 2 + 1


def _text(values: Any) -> str:
    return " × ".join(str(v if not isinstance(v, dict) else v.get("max", "?")) for v in values) if values else "1"


def _tensor(tensor: Mapping[str, Any]) -> str:
    return f"{tensor.get('type', '?')}[{', '.join(map(str, tensor.get('shape', [])))}]"


def _boxes(document: Mapping[str, Any]) -> Dict[str, _Box]:
    boxes: Dict[str, _Box] = {}
    for name, tensor in document.get("inputs", {}).items():
        boxes["in:" + name] = _Box("in:" + name, name, "i", [], [_tensor(tensor)])
    for name, node in document.get("nodes", {}).items():
        ports = node.get("ports", [])
        left = [p["name"] for p in ports if p.get("access") in ("in", "inout")]
        right = [p["name"] for p in ports if p.get("access") in ("out", "inout")]
        inner = node.get("nodes")
        subtitle = f"{len(inner)} nodes" if inner is not None else _text(node.get("instances", [])) + " instances"
        boxes[name] = _Box(name, name, "n" if inner is None else "g", left, right, subtitle)
    for name, tensor in document.get("outputs", {}).items():
        boxes["out:" + name] = _Box("out:" + name, name, "o", [_tensor(tensor)], [])
    return boxes


def _edges(document: Mapping[str, Any], boxes: Mapping[str, _Box]) -> List[Tuple[str, str, str, str]]:
    """Returns the edges as (box, port, box, port)."""
    found = []
    for edge in document.get("edges", []):
        begin, _, begin_port = str(edge.get("from", "")).partition(".")
        end, _, end_port = str(edge.get("to", "")).partition(".")
        begin, end = (begin if begin_port else "in:" + begin), (end if end_port else "out:" + end)
        if begin in boxes and end in boxes:
            found.append((begin, begin_port, end, end_port))
    return found


def _layer(boxes: Mapping[str, _Box], edges: List[Tuple[str, str, str, str]]) -> List[List[_Box]]:
    into: Dict[str, int] = {key: 0 for key in boxes}
    after: Dict[str, List[str]] = {key: [] for key in boxes}
    for begin, _, end, _ in edges:
        into[end] += 1
        after[begin].append(end)
    ready = [key for key, count in into.items() if count == 0]
    while ready:
        key = ready.pop()
        for following in after[key]:
            boxes[following].layer = max(boxes[following].layer, boxes[key].layer + 1)
            into[following] -= 1
            if into[following] == 0:
                ready.append(following)
    last = max((box.layer for box in boxes.values()), default=0)
    for box in boxes.values():
        if box.kind == "o":
            box.layer = last
    return [[box for box in boxes.values() if box.layer == layer] for layer in range(last + 1)]


def _cross(layers: List[List[_Box]], boxes: Mapping[str, _Box],
           edges: List[Tuple[str, str, str, str]]) -> List[List[_Box]]:
    """Adds the crossings of each edge to the layers; returns them by edge."""
    crossings = []
    for number, (begin, _, end, _) in enumerate(edges):
        between = [_Box.crossing(f"{number}/{layer}", layer) for layer in range(boxes[begin].layer + 1, boxes[end].layer)]
        for box in between:
            layers[box.layer].append(box)
        crossings.append(between)
    return crossings


def _order(layers: List[List[_Box]], edges: List[Tuple[str, str, str, str]]) -> None:
    def place(boxes: List[_Box]) -> Dict[str, float]:
        return {box.key: row for row, box in enumerate(boxes)}

    for turn in range(_PASSES):
        forward = turn % 2 == 0
        sequence = range(1, len(layers)) if forward else range(len(layers) - 2, -1, -1)
        for index in sequence:
            near = place(layers[index - 1 if forward else index + 1])
            means = {}
            for row, box in enumerate(layers[index]):
                rows = [near[begin if forward else end] for begin, _, end, _ in edges
                        if (end if forward else begin) == box.key and (begin if forward else end) in near]
                means[box.key] = sum(rows) / len(rows) if rows else row
            layers[index].sort(key=lambda box: means[box.key])


def _hops(edge: Tuple[str, str, str, str], between: List[_Box]) -> List[Tuple[str, str, str, str]]:
    """Splits the edge into hops from layer to layer."""
    stops = [edge[0], *(box.key for box in between), edge[2]]
    return [(begin, "", end, "") for begin, end in zip(stops, stops[1:])]


def _arrange(layers: List[List[_Box]]) -> Tuple[float, float]:
    heights = [sum(box.height + _GAP_Y for box in layer) for layer in layers]
    tallest, x = max(heights, default=0), float(_PAD)
    for layer, height in zip(layers, heights):
        y = _PAD + (tallest - height) / 2
        for box in layer:
            box.x, box.y = x, y
            y += box.height + _GAP_Y
        x += max((box.width for box in layer), default=0) + _GAP_X
    return x - _GAP_X + _PAD, tallest - _GAP_Y + 2 * _PAD


def _draw_box(box: _Box) -> str:
    e = html.escape
    middle = box.x + box.width / 2
    parts = [f'<rect class="{box.kind}" x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width}" height="{box.height}" rx="5"/>',
             f'<text class="t" text-anchor="middle" x="{middle:.0f}" y="{box.y + 13:.0f}">{e(box.title)}</text>']
    if box.subtitle:
        parts.append(f'<text class="p" text-anchor="middle" x="{middle:.0f}" y="{box.y + 13 + _ROW:.0f}">{e(box.subtitle)}</text>')
    for rows, x, anchor in ((box.left, box.x + 6, "start"), (box.right, box.x + box.width - 6, "end")):
        for row, port in enumerate(rows):
            y = box.y + box.head + _ROW * row + 13
            parts.append(f'<text class="p" text-anchor="{anchor}" x="{x:.0f}" y="{y:.0f}">{e(port)}</text>')
    return "".join(parts)


def _draw_edge(begin: Tuple[float, float], crossings: List[Tuple[float, float, float]], end: Tuple[float, float]) -> str:
    """Draws one edge. `crossings`: left, right and height of the straight pieces."""
    (x, y), parts = begin, [f"M{begin[0]:.0f} {begin[1]:.0f}"]
    for left, right, height in [*crossings, (end[0], end[0], end[1])]:
        bend = max(_GAP_X * 0.45, (left - x) / 2)
        parts.append(f"C{x + bend:.0f} {y:.0f} {left - bend:.0f} {height:.0f} {left:.0f} {height:.0f}")
        if right > left:
            parts.append(f"H{right:.0f}")
        x, y = right, height
    return f'<path class="e" marker-end="url(#a)" d="{"".join(parts)}"/>'


def draw(document: Mapping[str, Any]) -> str:
    """Returns the graph as SVG text. A graph with very many nodes is drawn as one box with their number. A document in the
    short form is drawn as the long form that it means."""
    if document.get("hpvm") == 2:
        from hpvm import _short
        document = _short.long_form(document)
    name = str(document.get("name") or "graph")
    if len(document.get("nodes", {})) > _NODES_MAX:
        document = {"inputs": document.get("inputs", {}), "outputs": document.get("outputs", {}), "nodes": {
            name: {"ports": [], "nodes": document["nodes"]}}, "edges": []}
    boxes = _boxes(document)
    edges = _edges(document, boxes)
    layers = _layer(boxes, edges)
    crossings = _cross(layers, boxes, edges)
    hops = [hop for edge, between in zip(edges, crossings) for hop in _hops(edge, between)]
    _order(layers, hops)
    width, height = _arrange(layers)
    widths = [max((box.width for box in layer), default=0) for layer in layers]
    lines = [_draw_edge(boxes[begin].anchor(out, True),
                        [(box.x, box.x + widths[box.layer], box.y + _ROW / 2) for box in between],
                        boxes[end].anchor(into, False))
             for (begin, out, end, into), between in zip(edges, crossings)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img" aria-label="{html.escape(name)}"><style>{_STYLE}</style><defs><marker id="a" '
            'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" '
            f'fill="#57606a"/></marker></defs><rect class="r" width="100%" height="100%"/>{"".join(lines)}'
            f'{"".join(map(_draw_box, boxes.values()))}</svg>')
