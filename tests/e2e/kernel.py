#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the reports on compiled kernels: `kernel explain`, and "math": "fast" up to the job's record.

    kernel.py BIN_FOLDER [TestCase.test ...]
"""

import json
import sys
import unittest

import numpy as np

from debug import DebugCase, debug_node, line_of
from e2e import HERE, OK, USAGE, port

PORTS = (port("in", "in", kind="f32"), port("out", "out", kind="f32"))
WAVE = ("in=in", "out=out", "n=i32")


class Explain(DebugCase):
    def explain(self, *arguments, code=OK):
        done = self.daemon.ctl("kernel", "explain", *arguments)
        self.assertEqual(done.returncode, code, f"stdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def wave(self, *arguments, params=WAVE, **more):
        stated = [word for param in params for word in ("--param", param)]
        return self.explain(self.folder / "debug.wasm", "wave", *stated, *arguments, **more)

    def test_names_source_lines(self):
        text = self.wave().stdout
        self.assertIn('kernel "wave" of ', text)
        self.assertIn('parameters: "in" in, "out" out, "n" i32\n', text)
        self.assertRegex(text, rf"\ndebug_kernels\.c:{line_of('wave')}\b")

    def test_shows_the_source_that_can_be_read(self):
        # The source lies beside the module, as in the folder in which it was built.
        text = self.explain(HERE / "debug.wasm", "wave").stdout
        self.assertRegex(text, rf"\ndebug_kernels\.c:{line_of('wave')}    out\[i\] = hpvm_sin_f32")

    def test_json_says_the_same(self):
        told = json.loads(self.wave("-o", "json").stdout)
        self.assertEqual([told["entry"], told["math"], told["parameters_guessed"]], ["wave", "exact", False])
        self.assertEqual(told["parameters"], [{"name": "in", "kind": "in"}, {"name": "out", "kind": "out"},
                                              {"name": "n", "kind": "i32"}])
        kinds = {"shape", "control", "access", "bounds", "barrier", "tile", "refused", "call"}
        self.assertTrue({remark["kind"] for remark in told["remarks"]} <= kinds)
        self.assertIn(line_of("wave"), [remark.get("line") for remark in told["remarks"]])
        self.assertTrue(told["vectorised"])
        self.assertTrue(any(variant["unit"] == "tile" for variant in told["variants"]))

    def test_says_whether_launches_can_be_divided(self):
        for device in ("cpu", "h200-opencl"):
            self.assertIn("A launch can be split along x", self.wave("--device", device).stdout)
            told = self.explain(self.folder / "debug.wasm", "race", "--param", "in", "--param", "out", "--device", device).stdout
            self.assertRegex(told, r'The launch cannot be split: the store to "p?[a-z0-9]+" may reach bytes that other parts of the launch access')

    def test_guesses_parameters(self):
        text = self.wave(params=()).stdout
        self.assertIn('parameters: "p0" in, "p1" out, "p2" i32 (guessed', text)

    def test_compiles_for_devices_that_are_not_here(self):
        text = self.wave("--device", "h200-opencl").stdout
        self.assertIn(" for h200-opencl, exact math\n", text)
        self.assertIn("goes to the driver as OpenCL C (", text)
        self.assertIn("__kernel void", self.wave("--device", "h200-opencl", "--emit", "device").stdout)
        self.assertIn("OpEntryPoint GLCompute", self.wave("--device", "h200-vulkan", "--emit", "device").stdout)
        told = json.loads(self.wave("--device", "h200-vulkan", "-o", "json").stdout)
        self.assertEqual(told["format"], "a SPIR-V shader")
        self.assertTrue(all("tile" in variant for variant in told["variants"]))

    def test_says_how_floats_are_added_atomically(self):
        for device in ("h200-opencl", "h200-vulkan"):
            told = self.explain(self.folder / "debug.wasm", "tally", "--param", "in", "--param", "out", "--device", device).stdout
            self.assertRegex(told, rf"debug_kernels\.c:{line_of('tally')}[^\0]*The device's own atomic add makes the sum")

    def test_refuses_devices_that_nobody_has(self):
        self.assertIn("--device takes cpu, opencl[:N]", self.wave("--device", "abacus", code=USAGE).stderr)
        self.assertIn("--level is for processors", self.wave("--device", "h200-opencl", "--level", "x86-64-v3",
                                                            code=USAGE).stderr)
        self.assertIn("for a GPU ask for the kernel IR", self.wave("--device", "h200-opencl", "--emit", "asm",
                                                                     code=USAGE).stderr)

    def test_takes_modules_written_for_devices(self):
        text = self.folder / "scale.cl"
        text.write_text("kernel void scale(global const float* in, global float* out, float by) {\n"
                        "  out[get_global_id(0)] = in[get_global_id(0)] * by;\n}\n")
        params = [word for param in ("in=in", "out=out", "by=f32") for word in ("--param", param)]
        told = self.explain(text, "scale", "--device", "h200-opencl", *params).stdout
        self.assertIn("goes to the driver as OpenCL C (", told)
        self.assertIn("the module's own code: its accesses are not checked", told)
        self.assertIn("OpenCL C runs on OpenCL devices only",
                      self.explain(text, "scale", "--device", "h200-vulkan", *params, code=USAGE).stderr)
        self.assertIn("give each with --param", self.explain(text, "scale", "--device", "h200-opencl", code=USAGE).stderr)

    def test_takes_a_node_of_a_graph(self):
        graph = self.folder / "graph.json"
        graph.write_text(json.dumps(debug_node("wave", PORTS, scalars=[("limit", "n")], math="fast")))
        text = self.explain("--graph", graph).stdout
        self.assertIn('"in" in, "out" out, "limit" i32\n', text)
        self.assertIn("fast math", text)
        self.assertIn('"nothing"', self.explain("--graph", graph, "--node", "nothing", code=USAGE).stderr)

    def test_emits(self):
        for what, want in (("ir", 'func f'), ("llvm", "define "), ("asm", "ret")):
            self.assertIn(want, self.wave("--emit", what).stdout)
        self.assertIn("zmm", self.wave("--emit", "asm", "--level", "x86-64-v4").stdout)
        self.assertNotIn("ymm", self.wave("--emit", "asm", "--level", "x86-64-v2").stdout)
        self.assertIn("fast_", self.wave("--emit", "ir", "--math", "fast").stdout)
        self.assertNotIn("fast_", self.wave("--emit", "ir").stdout)

    def test_wrong_words(self):
        module = self.folder / "debug.wasm"
        (self.folder / "text.wasm").write_text("hello")
        for arguments, want in (((module, "absent"), '"lookup"'), ((self.folder / "text.wasm", "f"), "WebAssembly"),
                                ((self.folder / "gone.wasm", "f"), "gone.wasm"), ((module,), "entry"), ((), "module"),
                                ((module, "wave", "--param", "in=float"), "in=float"),
                                ((module, "wave", "--param", "in"), "1 "),
                                ((module, "wave", "--level", "z80"), "z80"), ((module, "wave", "--emit", "c"), "emit"),
                                ((module, "wave", "--node", "n"), "graph")):
            with self.subTest(arguments=arguments):
                done = self.explain(*arguments, code=USAGE)
                self.assertIn(want, done.stderr + done.stdout)


class FastMath(DebugCase):
    def document(self, **more):
        document = debug_node("wave", PORTS, scalars=[("limit", "n")], **more)
        return document

    def run_wave(self, *command, **more):
        graph = self.folder / "graph.json"
        graph.write_text(json.dumps(self.document(**more)))
        values = np.linspace(-3, 3, 1000, dtype=np.float32)
        np.save(self.folder / "in.npy", values)
        done = self.daemon.ctl(*command, graph, "--input", f"in={self.folder}/in.npy", "--output",
                               f"out_out={self.folder}/out.npy", "-o", "json")
        self.assertEqual(done.returncode, OK, done.stderr)
        got = np.load(self.folder / "out.npy")
        wide = values.astype(np.float64)
        np.testing.assert_allclose(got, np.sin(wide) * np.exp(-wide), rtol=1e-5, atol=1e-6)
        return json.loads(done.stdout)

    def test_is_in_every_record(self):
        for command in (("run",), ("run", "--local"), ("submit",)):
            for math in ("exact", "fast"):
                with self.subTest(command=command, math=math):
                    report = self.run_wave(*command, math=math)
                    if command != ("submit",):
                        self.assertEqual([placement["math"] for placement in report["placements"]], [math])
                        continue
                    job = json.loads(self.daemon.ctl("jobs", "get", report["job"], "-o", "json").stdout)[0]
                    self.assertEqual(job["math"], [{"node": "node", "math": "fast"}] if math == "fast" else [])

    def test_the_interpreter_computes_exactly(self):
        report = self.run_wave("run", "--local", "--check", math="fast")
        self.assertEqual([placement["math"] for placement in report["placements"]], ["exact"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
