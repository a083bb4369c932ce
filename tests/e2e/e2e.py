#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the real programs end to end: a private hpvmd, hpvmctl, executors, compilers, kernels.

    e2e.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BIN = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/bin").resolve()

OK, FAILED, USAGE, CANNOT_PLACE, CANCELLED, DEADLINE, UNREACHABLE = 0, 1, 2, 3, 5, 6, 7


def port(name, access, count="n", kind="i32"):
    return {"name": name, "access": access, "type": kind, "shape": [count]}


def one_node(entry, ports, scalars=(), instances="n", **more):
    """Returns a document with a single leaf whose ports are the graph's; inout ports are both its input and its output."""
    inputs = {p["name"]: {"type": p["type"], "shape": p["shape"]} for p in ports if p["access"] != "out"}
    outputs = {p["name"] + "_out": {"type": p["type"], "shape": p["shape"]} for p in ports if p["access"] != "in"}
    leaf = {"ports": list(ports), "scalars": [{"name": n, "type": "i32", "value": v} for n, v in scalars],
            "instances": [instances], "variants": [{"module": "k", "entry": entry}], **more}
    edges = [{"from": p["name"], "to": f"node.{p['name']}"} for p in ports if p["access"] != "out"]
    edges += [{"from": f"node.{p['name']}", "to": p["name"] + "_out"} for p in ports if p["access"] != "in"]
    return {"hpvm": 1, "name": entry, "symbols": ["n"], "inputs": inputs, "outputs": outputs,
            "modules": {"k": {"kind": "wasm", "source": {"file": "kernels.wasm"}}}, "nodes": {"node": leaf}, "edges": edges}


def children(pid):
    """Returns all live descendants."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found += [int(entry.name)] + children(int(entry.name))
    return found


class Daemon:
    def __init__(self, folder, *arguments):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server = f"unix:{self.folder}/hpvmd.sock"
        self.log = self.folder / "hpvmd.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([BIN / "hpvmd", "--dev", "--listen", self.server, "--state",
                                             self.folder / "state", *arguments], stderr=log, stdout=log)

    def ctl(self, *arguments, input=None, timeout=60):
        # A separate cache, so that --local does not find results of an earlier build.
        environment = {**os.environ, "HPVM_SERVER": self.server, "XDG_CACHE_HOME": str(self.folder / "cache")}
        return subprocess.run([BIN / "hpvmctl", *map(str, arguments)], input=input, capture_output=True, text=True,
                              timeout=timeout, env=environment)

    def stop(self, number=signal.SIGTERM, timeout=20):
        self.process.send_signal(number)
        return self.process.wait(timeout)


class WithDaemon(unittest.TestCase):
    """WithDaemon has a private daemon for all tests of the class, in a folder with the files that it needs."""

    files = ()
    devices = "cpu"  # These executors load no driver, and are locked down the most; gpu.py tests the others.

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-e2e-"))
        for file in cls.files:
            shutil.copy(HERE / file, cls.folder)
        cls.daemon = Daemon(cls.folder / "daemon", "--devices", cls.devices)
        ready = cls.daemon.ctl("devices", "--connect-timeout", "30")
        assert ready.returncode == OK, ready.stderr + cls.daemon.log.read_text()

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        leftover = children(cls.daemon.process.pid)
        log = cls.daemon.log.read_text()
        shutil.rmtree(cls.folder)
        assert code == 0, f"hpvmd ended with {code}:\n{log}"
        assert not leftover, leftover


class EndToEnd(WithDaemon):
    files = ("kernels.wasm",)

    def write(self, name, document):
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def array(self, name, values, dtype=np.int32):
        path = self.folder / name
        np.save(path, np.asarray(values, dtype))
        return path

    def run_graph(self, document, *arguments, command=("submit",), code=OK, timeout=60):
        path = self.write("graph.json", document)
        done = self.daemon.ctl(*command, path, *arguments, timeout=timeout)
        self.assertEqual(done.returncode, code, f"stdout: {done.stdout}\nstderr: {done.stderr}\n"
                                                f"log: {self.daemon.log.read_text()[-2000:]}")
        return done

    def with_profiles(self, text, *arguments, **variables):
        """Runs hpvmctl without a server in its environment, and with these profiles."""
        path = self.write("profiles.toml", text)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HPVM_")}
        done = subprocess.run([BIN / "hpvmctl", *arguments], capture_output=True, text=True, timeout=60,
                              env={**environment, "HPVM_PROFILES": str(path), **variables})
        return done.returncode, done.stdout + done.stderr

    def test_profiles(self):
        here = f'[profile.here]\nserver = "{self.daemon.server}"\ntenant = "lab"\n'
        ask = ("devices", "-o", "name")
        nowhere = {"HPVM_SERVER": "unix:/nowhere"}
        for text, arguments, variables, code in (
                ('default = "here"\n' + here, (), {}, OK),
                (here, ("--profile", "here"), nowhere, OK),
                (here, (), {"HPVM_PROFILE": "here"}, OK),
                ('default = "here"\n' + here, (), nowhere, UNREACHABLE),
                (here, ("--profile", "here", "--server", "unix:/nowhere"), {}, UNREACHABLE),
                ('default = "gone"\n' + here, ("--server", self.daemon.server), {}, OK)):
            with self.subTest(arguments=arguments, **variables):
                self.assertEqual(self.with_profiles(text, *ask, "--connect-timeout", "1", *arguments, **variables)[0], code)
        code, text = self.with_profiles(here, *ask, "--profile", "gone")
        self.assertEqual(code, USAGE)
        self.assertIn('no profile "gone"; there are: here', text)
        code, text = self.with_profiles(here, "completion", "bash", "--profile", "gone")  # This command needs no server.
        self.assertEqual(code, OK, text)
        self.assertIn('"tenant": "lab"', self.with_profiles(here, "quota", "-o", "json", "--profile", "here")[1])

    def start_spinning(self, *arguments):
        """Starts a job that runs until it is cancelled."""
        document = one_node("spin", [port("out", "inout")], instances="1")
        job = self.run_graph(document, "--input", f"out={self.array('in.npy', [0])}", "--detach", *arguments).stdout.strip()
        for _ in range(100):
            if "RUNNING" in self.daemon.ctl("jobs", "get", job).stdout:
                return job
            time.sleep(0.05)
        self.fail("the job does not start")

    def check_serving(self):
        """Checks that the daemon still runs a job correctly."""
        document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 5)])
        self.run_graph(document, "--input", f"in={self.array('in.npy', [1, 2, 3])}", "--output",
                       f"out_out={self.folder}/out.npy")
        self.assertEqual(np.load(self.folder / "out.npy").tolist(), [6, 7, 8])

    def test_errors_of_any_length_arrive(self):
        document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 7)])
        leaf = document["nodes"].pop("node")
        document["outputs"] = {f"out{i}": document["outputs"]["out_out"] for i in range(80)}
        document["edges"] = []
        for i in range(80):
            document["nodes"][f"a_node_with_a_long_name_{i}"] = {
                **leaf, "variants": [{"module": "k", "entry": f"an_entry_that_is_not_there_{i}"}]}
            document["edges"] += [{"from": "in", "to": f"a_node_with_a_long_name_{i}.in"},
                                  {"from": f"a_node_with_a_long_name_{i}.out", "to": f"out{i}"}]
        for command in (("submit",), ("run",)):
            done = self.run_graph(document, "--input", f"in={self.array('in.npy', [1])}", command=command, code=USAGE)
            for i in range(80):
                self.assertIn(f"an_entry_that_is_not_there_{i}\"", done.stderr)
            self.assertNotIn("errors_in_body", done.stderr)

    def test_submit_run_and_local_agree(self):
        document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 7)])
        values = np.arange(100_000, dtype=np.int32)  # Larger than the inline limit.
        for command in (("submit",), ("run",), ("run", "--local")):
            out = self.folder / "sum.npy"
            out.unlink(missing_ok=True)
            done = self.run_graph(document, "--input", f"in={self.array('in.npy', values)}", "--output", f"out_out={out}",
                                  command=command)
            np.testing.assert_array_equal(np.load(out), values + 7)
            self.assertIn("node", done.stdout)
            self.assertIn("phases:", done.stdout)

    def test_in_place_update_does_not_touch_the_input(self):
        document = one_node("add_in_place", [port("data", "inout")], [("amount", 1)])
        source = self.array("in.npy", [1, 2, 3])
        self.run_graph(document, "--input", f"data={source}", "--output", f"data_out={self.folder}/o.npy", "--repeat", "5")
        self.assertEqual(np.load(source).tolist(), [1, 2, 3])
        self.assertEqual(np.load(self.folder / "o.npy").tolist(), [2, 3, 4])

    def test_barrier_and_group_memory(self):
        document = one_node("group_sum", [port("in", "in"), port("out", "out", "n/16")], group=[16])
        values = np.arange(160, dtype=np.int32)
        self.run_graph(document, "--input", f"in={self.array('in.npy', values)}", "--output", f"out_out={self.folder}/o.npy")
        np.testing.assert_array_equal(np.load(self.folder / "o.npy"), values.reshape(10, 16).sum(1))

    def test_json_output(self):
        document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 0)])
        done = self.run_graph(document, "--input", f"in={self.array('in.npy', [1])}", "-o", "json")
        report = json.loads(done.stdout)
        self.assertEqual(report["state"], "SUCCEEDED")
        self.assertEqual(report["placements"][0]["node"], "node")
        again = json.loads(self.run_graph(document, "--input", f"in={self.array('in.npy', [1])}", "-o", "json").stdout)
        self.assertEqual((again["prepare"]["compiled"], again["prepare"]["from_cache"]), (0, 1))
        jobs = json.loads(self.daemon.ctl("jobs", "-o", "json").stdout)
        self.assertEqual([job["id"] for job in jobs[:2]], [again["job"], report["job"]])

    def test_detach_wait_and_idempotency(self):
        path = self.write("g.json", one_node("add", [port("in", "in"), port("out", "out")], [("amount", 1)]))
        arguments = ("submit", path, "--input", f"in={self.array('in.npy', [41])}", "--detach", "--idempotency-key", "once")
        first, second = self.daemon.ctl(*arguments), self.daemon.ctl(*arguments)
        self.assertEqual((first.returncode, first.stdout), (OK, second.stdout), second.stderr)
        done = self.daemon.ctl("jobs", "wait", first.stdout.strip(), "-O", f"out_out={self.folder}/w.npy")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(np.load(self.folder / "w.npy").tolist(), [42])

    def test_traps_name_node_instance_and_reason(self):
        cases = [
            (one_node("divide", [port("in", "in"), port("out", "out")]), [1, 2, 3, 0, 5],
             ["node", "(3, 0, 0)", "divi"]),
            (one_node("stop", [port("out", "inout")]), [0] * 4, ["node", "(2, 0, 0)", "unreachable"]),
            (one_node("recurse", [port("out", "inout")], instances="1"), [0] * 4, ["node", "stack"]),
            (one_node("reach", [port("out", "inout")], [("distance", 1 << 28)]), [0] * 4, ["node", "out of bounds"]),
        ]
        for document, values, wants in cases:
            name = next(iter(document["inputs"]))
            for command in (("submit",), ("run",), ("run", "--local")):
                with self.subTest(document["name"], command=command):
                    done = self.run_graph(document, "--input", f"{name}={self.array('in.npy', values)}", command=command,
                                          code=FAILED)
                    for want in wants:
                        self.assertIn(want, done.stderr)
        self.check_serving()

    def test_endless_kernel_meets_its_deadline(self):
        document = one_node("spin", [port("out", "inout")], instances="1")
        for command in (("submit",), ("run",)):
            start = time.monotonic()
            self.run_graph(document, "--input", f"out={self.array('in.npy', [0])}", "--deadline", "300ms", command=command,
                           code=DEADLINE)
            self.assertLess(time.monotonic() - start, 10)
        self.check_serving()

    def test_endless_lanes_meet_their_deadline(self):
        """Some instances of a vector never end; meanwhile and afterwards the tenant's other jobs continue."""
        document = one_node("spin_some", [port("in", "in"), port("out", "out")])
        values = np.zeros(100_000, dtype=np.int32)
        good = self.array("zeros.npy", values)
        self.run_graph(document, "--input", f"in={good}", "--output", f"out_out={self.folder}/o.npy")
        np.testing.assert_array_equal(np.load(self.folder / "o.npy"), np.arange(100_000))
        values[[5, 777, 99_999]] = 2
        bad = self.array("some.npy", values)
        start = time.monotonic()
        job = self.run_graph(document, "--input", f"in={bad}", "--deadline", "2s", "--detach").stdout.strip()
        self.check_serving()
        waited = self.daemon.ctl("jobs", "wait", job)
        self.assertEqual(waited.returncode, DEADLINE, waited.stderr)
        self.assertLess(time.monotonic() - start, 20)
        self.run_graph(document, "--input", f"in={good}", "--output", f"out_out={self.folder}/o.npy")
        np.testing.assert_array_equal(np.load(self.folder / "o.npy"), np.arange(100_000))

    def test_cancel(self):
        document = one_node("spin", [port("out", "inout")], instances="1")
        done = self.run_graph(document, "--input", f"out={self.array('in.npy', [0])}", "--detach")
        job = done.stdout.strip()
        self.assertEqual(self.daemon.ctl("jobs", "cancel", job).returncode, OK)
        waited = self.daemon.ctl("jobs", "wait", job)
        self.assertEqual(waited.returncode, CANCELLED, waited.stderr)
        self.check_serving()

    def test_executor_killed_mid_run(self):
        job = self.start_spinning("--attempts", "1")
        for pid in children(self.daemon.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        waited = self.daemon.ctl("jobs", "wait", job)
        self.assertIn(waited.returncode, (FAILED, UNREACHABLE), waited.stderr)
        self.assertIn("executor", waited.stderr)
        self.check_serving()

    def test_maps_under_load(self):
        """Checks the loaded libraries while a job runs: the daemon and the runner load no compiler, driver or Wasm engine."""
        if os.geteuid() != 0:
            self.skipTest("reading the memory maps of sandboxed processes needs root")
        job = self.start_spinning()
        loaded = {}
        for pid in [self.daemon.process.pid] + children(self.daemon.process.pid):
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            loaded.setdefault(name, set()).update(re.findall(r"/lib([A-Za-z+_-]+)[0-9.+-]*\.so", pathlib.Path(f"/proc/{pid}/maps").read_text()))
        self.assertEqual(self.daemon.ctl("jobs", "cancel", job).returncode, OK)
        self.assertEqual({"hpvmd", "hpvm-executor", "hpvm-compiler"}, set(loaded))
        for program in ("hpvmd", "hpvm-executor"):
            self.assertIn("c", loaded[program])
            # libOpenCL is only the loader, which has loaded no driver.
            self.assertEqual([lib for lib in loaded[program]
                              if re.match("LLVM|pocl|vulkan|wabt|SPIRV", lib) or (lib, program) == ("OpenCL", "hpvmd")],
                             [], program)
        self.assertNotIn("grpc", loaded["hpvm-executor"])
        self.assertTrue([lib for lib in loaded["hpvm-compiler"] if lib.startswith("LLVM")])

    def test_client_vanishes(self):
        path = self.write("g.json", one_node("spin", [port("out", "inout")], instances="1"))
        with subprocess.Popen([BIN / "hpvmctl", "run", path, "--input", f"out={self.array('in.npy', [0])}"],
                              env={**os.environ, "HPVM_SERVER": self.daemon.server}) as client:
            time.sleep(1)
            client.kill()
        self.check_serving()

    def test_bad_input(self):
        good = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 5)])
        array = self.array("in.npy", [1, 2, 3])

        def changed(**changes):
            return {**good, **changes}

        def leaf(**changes):
            return changed(nodes={"node": {**good["nodes"]["node"], **changes}})

        (self.folder / "text.wasm").write_text("hello")
        module = lambda name: {"k": {"kind": "wasm", "source": {"file": name}}}
        cases = [
            ("malformed", '{"hpvm": 1,', [], USAGE, "byte"),
            ("not an object", "[]", [], USAGE, "object"),
            ("unknown field", changed(noodles={}), [], USAGE, "noodles"),
            ("duplicate key", '{"hpvm": 1, "hpvm": 1}', [], USAGE, "twice"),
            ("deep", "[" * 100_000, [], USAGE, "32"),
            ("dangling", changed(edges=good["edges"] + [{"from": "in", "to": "gone.in"}]), [], USAGE, "gone"),
            ("cycle", changed(nodes={"a": good["nodes"]["node"], "b": good["nodes"]["node"]},
                              edges=[{"from": "a.out", "to": "b.in"}, {"from": "b.out", "to": "a.in"},
                                     {"from": "b.out", "to": "out_out"}]), [], USAGE, "cycle"),
            ("no such module", changed(modules=module("absent.wasm")), [], USAGE, "absent.wasm"),
            ("not a module", changed(modules=module("text.wasm")), [], USAGE, "not valid WebAssembly"),
            ("no such entry", leaf(variants=[{"module": "k", "entry": "nothing"}]), [], USAGE, "nothing"),
            ("wrong signature", leaf(scalars=[{"name": "amount", "type": "f64", "value": 1}]), [], USAGE, "f64"),
            ("no device", leaf(devices=["gpu"]), [], CANNOT_PLACE, "gpu"),
            ("overflowing extent", leaf(instances=["n*4611686018427387904*4"]), [], USAGE, "n*4611686018427387904*4"),
            ("unknown input", good, ["--input", f"im={array}"], USAGE, '"im"'),
            ("wrong type", good, ["--input", f"in={self.array('f.npy', [1], np.float32)}"], USAGE, "f32"),
            ("wrong rank", good, ["--input", f"in={self.array('r.npy', [[1]])}"], USAGE, "i32[1, 1]"),
            ("no file", good, ["--input", "in=/nowhere.npy"], USAGE, "/nowhere.npy"),
            ("no input", good, None, USAGE, '"in"'),
        ]
        for name, document, arguments, code, want in cases:
            with self.subTest(name):
                given = [] if arguments is None else arguments or ["--input", f"in={array}"]
                done = self.run_graph(document, *given, code=code)
                self.assertIn(want, done.stderr)
        self.check_serving()

    def test_documents_read_their_own_folder(self):
        """A document from someone else uploads only files beside it; endless files are not read."""
        own, secret = self.folder / "own", self.folder / "secret.wasm"
        own.mkdir()
        shutil.copy(self.folder / "kernels.wasm", secret)
        shutil.copy(self.folder / "kernels.wasm", own / "kernels.wasm")
        os.mkfifo(own / "pipe")
        (own / "link").symlink_to("../secret.wasm")
        (own / "inside").symlink_to("kernels.wasm")
        array = self.array("in.npy", [1, 2, 3])

        def submit(file, *arguments):
            document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 5)])
            document["modules"]["k"]["source"]["file"] = str(file)
            (own / "graph.json").write_text(json.dumps(document))
            return self.daemon.ctl("submit", own / "graph.json", "-i", f"in={array}", *arguments, timeout=20)

        for file, want in (("../secret.wasm", "--allow-file"), (secret, "--allow-file"), ("link", "--allow-file"),
                           ("/dev/zero", "--allow-file"), ("pipe", "is a named pipe"), (".", "is a folder"),
                           ("absent", "absent")):
            with self.subTest(file):
                done = submit(file)
                self.assertEqual(done.returncode, USAGE, done.stderr)
                self.assertIn(want, done.stderr)
        for arguments in (("kernels.wasm",), ("inside",), ("../secret.wasm", "--allow-file", secret),
                          (secret, "--allow-file", own / "kernels.wasm", "--allow-file", secret)):
            done = submit(*arguments)
            self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("is a device", submit("/dev/zero", "--allow-file", "/dev/zero").stderr)
        explained = self.daemon.ctl("kernel", "explain", "--graph", own / "graph.json", timeout=20)
        self.assertEqual(explained.returncode, USAGE)

    def test_file_arguments_end(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        document = self.write("graph.json", one_node("add", [port("in", "in"), port("out", "out")], [("amount", 5)]))
        for odd, want in ((pipe, "is a named pipe"), ("/dev/zero", "is a device"), (self.folder, "is a folder"),
                          ("/nowhere", "/nowhere")):
            for command in (["submit", odd], ["graph", "validate", odd], ["graph", "show", odd], ["module", "put", odd],
                            ["kernel", "explain", odd, "add"], ["submit", document, "-i", f"in={odd}"],
                            ["run", document, "-i", f"in={odd}"], ["list", "--token-file", odd]):
                with self.subTest(" ".join(map(str, command))):
                    done = self.daemon.ctl(*command, timeout=20)
                    self.assertEqual(done.returncode, USAGE, done.stderr)
                    self.assertIn(want, done.stderr)
        done = self.daemon.ctl("submit", document, "-i", f"in={self.array('in.npy', [1])}", "-O", f"out_out={self.folder}")
        self.assertEqual(done.returncode, USAGE, done.stderr)

    def test_usage(self):
        for arguments, want in ((["submti"], "submti"), ([], "subcommand"), (["submit"], "graph"),
                                (["-o", "yml", "devices"], "yml")):
            done = self.daemon.ctl(*arguments)
            self.assertEqual(done.returncode, USAGE, done.stderr)
            self.assertIn(want, done.stderr + done.stdout)
        self.assertEqual(self.daemon.ctl("--help").returncode, OK)
        self.assertIn("hpvmctl 0.", self.daemon.ctl("--version").stdout)
        unreachable = self.daemon.ctl("devices", "--server", "unix:/nowhere/x.sock", "--connect-timeout", "0.2")
        self.assertEqual(unreachable.returncode, UNREACHABLE)
        self.assertIn("/nowhere/x.sock", unreachable.stderr)
        self.assertEqual(self.daemon.ctl("jobs", "get", "0123456789abcdef").returncode, USAGE)

    def test_graph_commands(self):
        examples = ROOT / "examples/edge-detection/edge-detection.json"
        self.assertEqual(self.daemon.ctl("graph", "validate", examples).returncode, OK)
        dot = self.daemon.ctl("graph", "show", "--dot", examples)
        self.assertIn("zero_crossings", dot.stdout)
        canonical = self.daemon.ctl("graph", "show", examples).stdout
        again = self.daemon.ctl("graph", "show", "-", input=canonical)
        self.assertEqual(again.stdout, canonical)
        broken = self.daemon.ctl("graph", "validate", "-", input='{"hpvm": 3}')
        self.assertEqual(broken.returncode, USAGE)
        self.assertIn("/hpvm", broken.stdout)

    def test_short_documents(self):
        """The output of `graph init` runs once its question marks are replaced; mistakes are found by comparison with the module."""
        init = self.daemon.ctl("graph", "init", ROOT / "examples/matmul/matmul.wasm")
        self.assertEqual(init.returncode, OK, init.stderr)
        self.assertIn("its elements have 4 bytes", init.stderr)
        document = json.loads(init.stdout)
        self.assertEqual(document["nodes"]["matmul"], ["p0", "p1", "out f32[?, ?]", "i32 ?", "i32 ?"])
        self.assertEqual(document["inputs"], {"p0": "f32[?, ?]", "p1": "f32[?, ?]"})
        folder = self.folder / "short"
        folder.mkdir()
        shutil.copy(ROOT / "examples/matmul/matmul.wasm", folder)

        def check(*options):
            (folder / "g.json").write_text(json.dumps(document))
            return self.daemon.ctl("graph", "validate", *options, folder / "g.json")
        unfinished = check()
        self.assertEqual(unfinished.returncode, USAGE)
        self.assertIn("/inputs/p0", unfinished.stdout)
        document["inputs"] = {"p0": "f32[m, k]", "p1": "f32[k, n]"}
        document["nodes"]["matmul"] = ["p0", "p1", "out f32[m, n]", "n", "k"]
        self.assertEqual((check().returncode, check().stdout), (OK, ""))
        a, b = np.random.default_rng(1).random((2, 5, 5), dtype=np.float32)
        inputs = [word for name, values in (("p0", a), ("p1", b))
                  for word in ("--input", f"{name}={self.array(name + '.npy', values, np.float32)}")]
        done = self.daemon.ctl("submit", folder / "g.json", *inputs, "--output", f"matmul_out={self.folder}/c.npy")
        self.assertEqual(done.returncode, OK, done.stderr)
        np.testing.assert_allclose(np.load(self.folder / "c.npy"), a @ b, rtol=1e-5)
        # The module gives its entries and the number and width of their parameters.
        document["nodes"] = {"product": ["p0", "p1", "out f32[m, n]", "n", "k"]}
        document["outputs"] = {"c": "product"}
        wrong = check()
        self.assertEqual(wrong.returncode, USAGE)
        self.assertIn('/nodes/product: module "matmul": The module exports no function named "product". It exports "matmul".', wrong.stdout)
        self.assertEqual(check("--document-only").returncode, OK)
        document["nodes"] = {"matmul": ["p0", "p1", "out f64[m, n]", "n", "k"]}
        document["outputs"] = {"c": "matmul"}
        doubled = check()
        self.assertEqual(doubled.returncode, OK)
        self.assertIn('Port "out" has elements of type "f64" (8 bytes), and the kernel "matmul" accesses 4 bytes at a time.', doubled.stdout)
        document["nodes"] = {"matmul": ["p0", "p1", "out f32[m, n]", "n", "f32 k"]}
        self.assertEqual(check().returncode, USAGE)
        (folder / "one.cl").write_text("kernel void scale(global const float* x, global float* y, uint n) {}")
        opencl = self.daemon.ctl("graph", "init", folder / "one.cl")
        self.assertEqual(json.loads(opencl.stdout)["nodes"], {"scale": ["x", "out f32[?]", "i32 ?"]})
        self.assertIn("has no kernel of that name", self.daemon.ctl("graph", "init", folder / "one.cl", "shrink").stderr)
        self.assertNotEqual(self.daemon.ctl("graph", "init", self.folder / "nothing.wasm").returncode, OK)
        # A SPIR-V module declares its parameters, too.
        shader = self.daemon.ctl("graph", "init", ROOT / "examples/spirv/voronoi.spv")
        self.assertEqual(json.loads(shader.stdout)["nodes"],
                         {"main": ["sites", "out nearest i32[?]", "out distances i32[?]", "i32 ?", "i32 ?"]})
        self.assertEqual(json.loads(shader.stdout)["inputs"], {"sites": "i32[?]"})
        shutil.copy(ROOT / "examples/spirv/voronoi.spv", folder)
        document = json.loads((ROOT / "examples/spirv/voronoi.json").read_text())
        self.assertEqual((check().returncode, check().stdout), (OK, ""))
        voronoi = document["nodes"]["voronoi"]
        voronoi["scalars"].append({"name": "more", "type": "i32", "value": "n"})
        self.assertIn("It declares 2 scalars, and the node has 3.", check().stdout)
        voronoi["variants"][0]["entry"] = "area"
        wrong = check()
        self.assertEqual(wrong.returncode, USAGE)
        self.assertIn('/nodes/voronoi: Module "shader" has no entry point "area"; it has main.', wrong.stdout)

    def test_module_put_and_hash_source(self):
        done = self.daemon.ctl("module", "put", self.folder / "kernels.wasm")
        self.assertEqual(done.returncode, OK, done.stderr)
        document = one_node("add", [port("in", "in"), port("out", "out")], [("amount", 5)])
        document["modules"] = {"k": {"kind": "wasm", "source": {"sha256": done.stdout.strip()}}}
        self.run_graph(document, "--input", f"in={self.array('in.npy', [1])}", "--output", f"out_out={self.folder}/h.npy")
        self.assertEqual(np.load(self.folder / "h.npy").tolist(), [6])

    def test_completion_is_valid_bash(self):
        script = self.daemon.ctl("completion", "bash").stdout
        checked = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        offered = subprocess.run(["bash", "-c", script + '\nCOMP_WORDS=(hpvmctl su); COMP_CWORD=1; _hpvmctl; echo "${COMPREPLY[@]}"'],
                                 text=True, capture_output=True)
        self.assertEqual(offered.stdout.strip(), "submit", offered.stderr)


class Lifecycle(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-e2e-"))
        shutil.copy(HERE / "kernels.wasm", self.folder)
        self.daemon = None

    def tearDown(self):
        if self.daemon is not None and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *arguments):
        self.daemon = Daemon(self.folder / "daemon", *arguments)
        ready = self.daemon.ctl("devices", "--connect-timeout", "30")
        self.assertEqual(ready.returncode, OK, ready.stderr + self.daemon.log.read_text())

    def submit(self, amount=1, array="in", command="submit"):
        graph = self.folder / "g.json"
        graph.write_text(json.dumps(one_node("add", [port("in", "in"), port("out", "out")], [("amount", amount)])))
        np.save(self.folder / "in.npy", np.arange(4, dtype=np.int32))
        return self.daemon.ctl(command, graph, "--input", f"in={self.folder}/{array}.npy", "--output",
                               f"out_out={self.folder}/out.npy")

    def test_stops_cleanly_with_work_in_hand(self):
        self.start()
        self.assertEqual(self.submit().returncode, OK)
        graph = self.folder / "spin.json"
        graph.write_text(json.dumps(one_node("spin", [port("out", "inout")], instances="1")))
        self.daemon.ctl("submit", graph, "--input", f"out={self.folder}/in.npy", "--detach")
        pids = children(self.daemon.process.pid)
        self.daemon.process.send_signal(signal.SIGTERM)
        self.daemon.process.send_signal(signal.SIGTERM)  # A second SIGTERM ends the daemon at once.
        self.assertEqual(self.daemon.process.wait(45), 0)
        self.check_gone(pids)

    def check_gone(self, pids):
        for _ in range(50):
            alive = [pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()]
            if not alive:
                return
            time.sleep(0.1)
        self.fail(alive)

    def test_killed_daemon_leaves_no_executor(self):
        self.start()
        self.assertEqual(self.submit().returncode, OK)
        pids = children(self.daemon.process.pid)
        self.assertTrue(pids)
        self.daemon.stop(signal.SIGKILL)
        self.check_gone(pids)

    def test_full_disk(self):
        """Runs need no disk; a job that cannot be stored is refused, and accepted when there is room again."""
        if os.geteuid() != 0:
            self.skipTest("mounting a small file system needs root")
        state = self.folder / "daemon/state"
        state.mkdir(parents=True)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", state], capture_output=True).returncode != 0:
            self.skipTest("this host does not allow mounting")
        try:
            self.start()
            self.assertEqual(self.submit().returncode, OK)
            subprocess.run(["sh", "-c", f"dd if=/dev/zero of={state}/fill bs=1k 2>/dev/null"], check=False)
            np.save(self.folder / "large.npy", np.arange(100_000, dtype=np.int32))
            refused = self.submit(7, "large")
            self.assertEqual(refused.returncode, FAILED, refused.stderr + self.daemon.log.read_text())
            self.assertIn("RESOURCE_EXHAUSTED", refused.stderr)
            for amount in range(3):
                done = self.submit(amount, command="run")
                self.assertEqual(done.returncode, OK, done.stderr + self.daemon.log.read_text())
            (state / "fill").unlink()
            end = time.monotonic() + 15
            while (done := self.submit(7, "large")).returncode != OK:
                self.assertLess(time.monotonic(), end, done.stderr + self.daemon.log.read_text())
                time.sleep(0.2)
            self.assertEqual(self.daemon.stop(), 0)
        finally:
            if self.daemon and self.daemon.process.poll() is None:
                self.daemon.process.kill()
                self.daemon.process.wait()
            subprocess.run(["umount", "-l", state], check=False)

    def test_configuration_errors_name_the_key(self):
        config = self.folder / "hpvmd.toml"
        for text, want in (("[server]\nlisen = 'x'\n", "lisen"), ("nonsense", "line"), ("[graph]\nnodes_max = -1\n", "nodes_max")):
            config.write_text(text)
            done = subprocess.run([BIN / "hpvmd", "--config", config, "--check-config"], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(want, done.stderr)

    def test_repeated_runs_leave_nothing_behind(self):
        self.start()
        self.assertEqual(self.submit().returncode, OK)
        fds = lambda pid: len(os.listdir(f"/proc/{pid}/fd"))
        pids = [self.daemon.process.pid] + children(self.daemon.process.pid)
        before = [fds(pid) for pid in pids]
        for i in range(15):
            self.assertEqual(self.submit(i).returncode, OK)
        after = [fds(pid) for pid in pids]
        self.assertLessEqual(max(a - b for a, b in zip(after, before)), 20, (before, after))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[2:]])
