#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The graph builder, documents, pictures, and the diagnostics of wrong documents."""

import json
import pathlib
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

import numpy as np

import support
import hpvm._short
import hpvm._svg
from hpvm import Graph, In, InOut, Out, Scalar, Variant
from support import hpvm


def two_adds():
    g = Graph("adds", symbols=["n"])
    module = g.wasm("k", support.KERNELS["k"])
    x = g.input("x", np.int32, ["n"])
    first = g.node("first", module, "add", ports=[In("in", x), Out("out", "i32", ["n"])], scalars=[Scalar("amount", "i32", 1)],
                   instances=["n"])
    second = g.node("second", ports=[In("in", first["out"]), Out("out", "i32", ["n"])], instances=["n"],
                    scalars=[Scalar("amount", "i32", "n")], variants=[Variant(module, "add", devices=["cpu"])])
    g.output("y", second["out"])
    return g


class Graphs(support.WithServer):
    def test_a_built_graph_runs(self):
        result = self.client.run(two_adds(), x=np.int32([1, 2, 3]))
        self.assertEqual(result["y"].tolist(), [5, 6, 7])

    def test_a_graph_in_a_graph(self):
        g = Graph("outer", symbols=["n"])
        module = g.wasm("k", support.KERNELS["k"])
        x = g.input("x", "i32", ["n"])
        inner = g.subgraph("rounds", ports=[InOut("data", x)], instances=[4], index=["i"])
        step = inner.node("step", module, "add_in_place", ports=[InOut("data", inner.port("data"))],
                          scalars=[Scalar("amount", "i32", "i + 1")], instances=["n"])
        inner.connect(step["data"], inner.port("data"))
        g.output("y", inner["data"])
        self.assertEqual(self.client.run(g, x=np.int32([0, 100]))["y"].tolist(), [10, 110])

    def test_it_is_the_document_of_the_example(self):
        g = Graph("matmul")
        module = g.wasm("matmul", support.ROOT / "examples/matmul/matmul.wasm")
        a, b = g.input("A", "f32", ["m", "k"]), g.input("B", "f32", ["k", "n"])
        node = g.node("multiply", module, "matmul", ports=[In("a", a), In("b", b), Out("c", "f32", ["m", "n"])],
                      scalars=[Scalar("n", "i32"), Scalar("k", "i32")], instances=["n", "m"])
        g.output("C", node["c"])
        example = json.loads((support.ROOT / "examples/matmul/matmul.json").read_text())
        example.pop("description", None)
        self.assertEqual({**g.to_dict(), "name": 0}, {**example, "name": 0})

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for inline in (False, True):
                path = pathlib.Path(folder) / f"{inline}.json"
                two_adds().save(path, inline=inline)
                loaded = Graph.load(path)
                self.assertEqual(self.client.run(loaded, x=np.int32([0]))["y"].tolist(), [2])
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "No such file"):
                Graph.load(pathlib.Path(folder) / "none.json")
            (pathlib.Path(folder) / "bad.json").write_text("{")
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "is not JSON"):
                Graph.load(pathlib.Path(folder) / "bad.json")
            (pathlib.Path(folder) / "gone.json").write_text(json.dumps(
                {"modules": {"k": {"kind": "wasm", "source": {"file": "gone.wasm"}}}}))
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, 'module "k" cannot be read'):
                Graph.load(pathlib.Path(folder) / "gone.json")

    def test_diagnostics_have_places(self):
        document = two_adds().to_dict()
        document["nodes"]["first"]["ports"][0]["type"] = "f99"
        document["edges"][0]["to"] = "nobody.in"
        document["outputs"]["y"]["shape"] = ["q"]
        with self.assertRaises(hpvm.InvalidArgumentError) as caught:
            self.client.prepare(document, modules=support.KERNELS)
        places = [diagnostic.place for diagnostic in caught.exception.diagnostics]
        self.assertIn("/nodes/first/ports/0/type", places)
        self.assertTrue(all(diagnostic.severity == "error" and diagnostic.message for diagnostic in caught.exception.diagnostics))
        for place in places:
            self.assertIn(place, str(caught.exception))

    def test_short_documents(self):
        matmul = pathlib.Path(__file__).resolve().parents[3] / "examples/matmul"
        document = {"hpvm": 2, "module": "matmul.wasm", "inputs": {"A": "f32[m, k]", "B": "f32[k, n]"},
                    "nodes": {"matmul": ["A", "B", "out f32[m, n]", "n", "k"]}, "outputs": {"C": "matmul"}}
        graph = Graph.from_document(document, matmul)
        one = np.ones((3, 3), "f4")
        self.assertTrue((self.client.run(graph, A=one, B=one)["C"] == 3).all())
        self.assertEqual(list(graph.modules()), ["matmul"])
        self.assertEqual(sorted(self.texts_of(graph._repr_svg_())), sorted(
            ["A", "f32[m, k]", "B", "f32[k, n]", "matmul", "n × m instances", "A", "B", "out", "C", "f32[m, n]"]))
        with tempfile.TemporaryDirectory() as folder:
            graph.save(pathlib.Path(folder) / "g.json")
            again = Graph.load(pathlib.Path(folder) / "g.json")
            self.assertTrue((self.client.run(again, A=one, B=one)["C"] == 3).all())
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "cannot be written"):
                graph.save(pathlib.Path(folder) / "none/g.json")
        document["nodes"]["matmul"][2] = "out f99[m, n]"
        with self.assertRaises(hpvm.InvalidArgumentError) as caught:
            self.client.prepare(Graph.from_document(document, matmul))
        self.assertEqual([found.place for found in caught.exception.diagnostics], ["/nodes/matmul/2"])

    def test_odd_documents(self):
        for document in ("[]", "{}", '{"hpvm": 2}', '{"hpvm": 2, "module": 3}', '{"hpvm": 2, "modules": {"a": "a.so"}}', '{"modules": 3, "nodes": [1]}', '{"modules": {"k": 3}}', "nonsense", ""):
            with self.subTest(document), self.assertRaises(hpvm.InvalidArgumentError):
                self.client.prepare(document)

    def test_mistakes_of_the_builder(self):
        g = two_adds()
        for mistake, why in (
                (lambda: g.input("x", "i32", []), "two inputs"),
                (lambda: g.wasm("k", b""), "two modules"),
                (lambda: g.wasm("z", "/nowhere.wasm"), "cannot be read"),
                (lambda: g.module("z", "elf", b""), "kinds are"),
                (lambda: g.node("first", "k", ports=[]), "two nodes"),
                (lambda: g.node("third", ports=[]), "either a module or variants"),
                (lambda: g.node("third", "k", ports=[In("a", "i32", []), In("a", "i32", [])]), "two ports"),
                (lambda: g.node("fourth", "k", ports=[In("a", "i32", [])])["b"], "no port \"b\""),
                (lambda: In("a", "i32"), "no shape"),
                (lambda: g.output("y", g.input("z", "i32", [])), "two outputs"),
                (lambda: g.connect(two_adds().input("w", "i32", []), "first.in"), "another graph")):
            with self.subTest(why), self.assertRaisesRegex(hpvm.InvalidArgumentError, why):
                mistake()
        with self.assertRaisesRegex(TypeError, "element type"):
            g.input("c", "complex64", [])

    @staticmethod
    def facts_of(document):
        """Returns what a picture of a document shows."""
        nodes = {name: ([(port["name"], port["access"], port.get("type"), port.get("shape")) for port in node["ports"]],
                        node.get("instances", [])) for name, node in document["nodes"].items()}
        return {"inputs": document["inputs"], "outputs": document["outputs"], "nodes": nodes,
                "edges": sorted((edge["from"], edge["to"]) for edge in document["edges"])}

    def test_the_long_form_of_pictures(self):
        """Compares the expansion for pictures with hpvmctl's, which is the server's."""
        documents = [path.read_text() for folder in ("examples/*", "schemas/examples/valid")
                     for path in support.ROOT.glob(folder + "/*.json") if '"hpvm": 2' in path.read_text()]
        self.assertGreater(len(documents), 10)
        more = {"hpvm": 2, "module": "k.wasm", "symbols": ["i"],
                "inputs": {"x": "f32[n]", "s": {"type": "u64", "shape": []}, "t": "f64"}, "nodes": {
            "f": ["inout x", 3], "g": ["inout f", "in x", "out f32[n + 1]"], "h": ["inout g.f", "inout g.out", "n"],
            "same": ["x", "in x", "x", "out x_2 f32[min(n, 4), 2]", "i64 n * 2", "s", "t", "in s", "n-1", 0.5],
            "b": {"ports": [{"name": "a", "access": "in", "type": "f32", "shape": ["n"]},
                            {"name": "b", "access": "out", "type": "f32", "shape": ["n"]}],
                  "instances": ["n"], "variants": [{"module": "k", "entry": "b"}]},
            "after": {"args": ["b", " out\tf32[ n , 2 ] ", "i32 i"], "instances": ["n", 2], "group": [1, 1]}},
            "outputs": {"a": "h.g", "c": "h.g_1", "d": "g.f", "e": "after", "x": "x"}, "edges": [{"from": "f.x", "to": "b.a"}]}
        for text in [*documents, json.dumps(more)]:
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "short.json").write_text(text)
                done = subprocess.run([support.BIN / "hpvmctl", "graph", "show", "--full", folder + "/short.json"],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                short, long_form = json.loads(text), json.loads(done.stdout)
                self.assertEqual(self.facts_of(hpvm._short.long_form(short)), self.facts_of(long_form))
                self.assertEqual(sorted(self.texts_of(hpvm._svg.draw(short))), sorted(self.texts_of(hpvm._svg.draw(long_form))))

    def test_pictures_of_wrong_short_documents(self):
        for wrong in ({}, {"inputs": 3, "nodes": [1], "outputs": "x", "edges": 4, "symbols": 5}, {"inputs": {"x": 3, "y": "f32[n"}},
                      {"nodes": {"a": 3, "b": {"args": 3}, "c": {"ports": 3}, "d": {"ports": [3]}, "e": ["", "out", "in", 3, None, {}]}},
                      {"nodes": {"a": ["inout b"], "b": ["inout a"], "c": ["inout c"]}, "outputs": {"y": "a", "z": "none", "w": 4}},
                      {"nodes": {"a": ["out f32[n]", "out f32[n]"], "b": ["a", "a.none", "out f32[a,,b]"]}, "outputs": {"y": "a"}}):
            with self.subTest(wrong):
                xml.etree.ElementTree.fromstring(hpvm._svg.draw({"hpvm": 2, **wrong}))
        many = {f"n{i}": [f"inout n{i - 1}" if i else "inout x"] for i in range(3000)}
        self.assertIn("3000 nodes", hpvm._svg.draw({"hpvm": 2, "inputs": {"x": "f32[n]"}, "nodes": many, "outputs": {"y": "n2999"}}))

    @staticmethod
    def texts_of(svg):
        return [element.text for element in xml.etree.ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]

    def test_pictures(self):
        svg = two_adds().to_svg()
        root = xml.etree.ElementTree.fromstring(svg)
        texts = self.texts_of(svg)
        for name in ("x", "y", "first", "second", "n instances", "i32[n]"):
            self.assertIn(name, texts)
        self.assertEqual(len(list(root.iter("{http://www.w3.org/2000/svg}path"))), 3 + 1)  # Edges, and the arrow's head.
        boxes = [tuple(float(element.get(key)) for key in ("x", "y", "width", "height"))
                 for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("rx")]
        for i, (x, y, w, h) in enumerate(boxes):
            for other in boxes[i + 1:]:
                apart = x + w <= other[0] or other[0] + other[2] <= x or y + h <= other[1] or other[1] + other[3] <= y
                self.assertTrue(apart, (boxes[i], other))
        hostile = Graph('<script>&"').to_svg()
        xml.etree.ElementTree.fromstring(hostile)
        self.assertNotIn("<script>", hostile)
        big = {"inputs": {}, "outputs": {}, "nodes": {f"n{i}": {"ports": []} for i in range(1000)}, "edges": []}
        self.assertIn("1000 nodes", Graph.from_document(big).to_svg())
        for odd in ({}, {"nodes": {"a": {}}, "edges": [{}]}):
            xml.etree.ElementTree.fromstring(Graph.from_document(odd).to_svg())


if __name__ == "__main__":
    support.main()
