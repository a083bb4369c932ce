#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what a running hpvmd reports end to end: metrics, health, spans at a collector, JSON logs.

    observe.py BIN_FOLDER [TestCase.test ...]
"""

import http.client
import http.server
import json
import math
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

from e2e import HERE, OK, Daemon, children, one_node, port

IN_OUT = (port("in", "in"), port("out", "out"))
CONFIG = """
[metrics]
listen = "127.0.0.1:0"
[log]
format = "json"
[server]
drain_ms = 20000
[tracing]
endpoint = "http://127.0.0.1:{port}"
[tenants]
from_metadata = true
"""
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')


def parse_metrics(text):
    """Returns samples {(name, ((label, value), ...)): number} of Prometheus' text format; asserts every rule of it that we know."""
    assert text.endswith("\n"), "The last line has no newline."
    samples, types, family = {}, {}, None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert NAME.fullmatch(family) and family not in types, line
            types[family] = None
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and types[name] is None and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
            continue
        name = NAME.match(line).group()
        rest = line[len(name):]
        labels = ()
        if rest.startswith("{"):
            end = rest.rindex("}")
            inside = rest[1:end]
            labels = tuple(m.groups() for m in LABEL.finditer(inside))
            assert inside.rstrip(",") == ",".join(f'{k}="{v}"' for k, v in labels), line
            assert len({k for k, _ in labels}) == len(labels), line
            rest = rest[end + 1:]
        assert re.fullmatch(r" (\S+)", rest), line
        kind = types[family]
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        assert any(name == family + suffix for suffix in suffixes), f"{line} under {family}"
        assert (name, labels) not in samples, line
        value = float(rest)
        assert kind != "counter" or value >= 0, line
        samples[name, labels] = value
    for name, kind in types.items():
        assert kind is not None, name
        assert (kind == "counter") == name.endswith("_total"), name
        if kind == "histogram":
            check_histogram(name, samples)
    return samples


def check_histogram(name, samples):
    series = {}
    for (sample, labels), value in samples.items():
        if sample == name + "_bucket":
            others = tuple(label for label in labels if label[0] != "le")
            series.setdefault(others, []).append((float(dict(labels)["le"]), value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets)
        assert list(bounds) == sorted(set(bounds)) and math.isinf(bounds[-1]), (name, bounds)
        assert list(counts) == sorted(counts), (name, counts)
        assert counts[-1] == samples[name + "_count", labels], name
        assert samples[name + "_sum", labels] >= 0, name


class Collector:
    """Collector accepts OTLP over HTTP."""

    def __init__(self):
        outer = self
        self.spans, self.requests, self.lock = [], 0, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                with outer.lock:
                    outer.requests += 1
                    for resource in json.loads(body)["resourceSpans"]:
                        attributes = attributes_of(resource["resource"])
                        assert attributes["service.name"] == "hpvmd"
                        for scope in resource["scopeSpans"]:
                            outer.spans += [{**span, "instance": attributes["service.instance.id"]}
                                            for span in scope["spans"]]
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def of(self, trace, name=None):
        with self.lock:
            return [s for s in self.spans if s["traceId"] == trace and (name is None or s["name"] == name)]

    def wait(self, trace, name, count=1, timeout=20):
        end = time.monotonic() + timeout
        while len(self.of(trace, name)) < count:
            assert time.monotonic() < end, f"the span {name} did not arrive: {[s['name'] for s in self.of(trace)]}"
            time.sleep(0.02)
        return self.of(trace, name)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes_of(thing):
    return {a["key"]: next(iter(a["value"].values())) for a in thing["attributes"]}


class ObservedDaemon(Daemon):
    def __init__(self, folder, config):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "hpvmd.toml"
        file.write_text(config)
        self.log_start = (folder / "hpvmd.log").stat().st_size if (folder / "hpvmd.log").exists() else 0
        super().__init__(folder, "--config", file, "--devices", "cpu")
        self.metrics_port = None

    def lines(self):
        return [json.loads(line) for line in self.log.read_text()[self.log_start:].splitlines()]

    def get(self, path, timeout=10):
        """Returns status and text of an HTTP request; waits for the endpoint of a daemon that starts."""
        end = time.monotonic() + 20
        while self.metrics_port is None:
            for line in self.lines():
                if line["message"] == "Serving metrics and health":
                    self.metrics_port = int(line["address"].rsplit(":", 1)[1])
            assert time.monotonic() < end, self.log.read_text()
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=timeout)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def metrics(self):
        status, text = self.get("/metrics")
        assert status == 200, text
        return parse_metrics(text)

    def wait_ready(self):
        end = time.monotonic() + 30
        while self.get("/readyz")[0] != 200:
            assert time.monotonic() < end, self.get("/readyz")
            time.sleep(0.05)


def traceparent(sampled=True):
    trace, span = os.urandom(16).hex(), os.urandom(8).hex()
    return trace, span, {"TRACEPARENT": f"00-{trace}-{span}-{'01' if sampled else '00'}"}


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-observe-"))
        shutil.copy(HERE / "kernels.wasm", cls.folder)
        np.save(cls.folder / "in.npy", np.arange(4, dtype=np.int32))
        cls.collector = Collector()

    @classmethod
    def tearDownClass(cls):
        cls.collector.close()
        shutil.rmtree(cls.folder)

    def ctl(self, daemon, *arguments, environment=None, code=OK):
        old = dict(os.environ)
        os.environ.update(environment or {})
        try:
            done = daemon.ctl(*arguments)
        finally:
            os.environ.clear()
            os.environ.update(old)
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}\n{daemon.log.read_text()[-2000:]}")
        return done.stdout.strip()

    def graph(self, entry, *scalars):
        ports = (port("out", "inout"),) if entry == "spin" else IN_OUT
        path = self.folder / f"{entry}.json"
        path.write_text(json.dumps(one_node(entry, ports, scalars)))
        return path, "--input", f"{'out' if entry == 'spin' else 'in'}={self.folder / 'in.npy'}"

    def assert_inside(self, inner, outer):
        self.assertGreaterEqual(int(inner["startTimeUnixNano"]), int(outer["startTimeUnixNano"]), inner["name"])
        self.assertLessEqual(int(inner["endTimeUnixNano"]), int(outer["endTimeUnixNano"]), inner["name"])


class Observe(Case):
    """Observe uses one daemon for all tests."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon = ObservedDaemon(cls.folder / "daemon", CONFIG.format(port=cls.collector.port))
        cls.daemon.wait_ready()

    @classmethod
    def tearDownClass(cls):
        code = cls.daemon.stop()
        leftover = children(cls.daemon.process.pid)
        log = cls.daemon.log.read_text()
        super().tearDownClass()
        assert code == 0, f"hpvmd ended with {code}:\n{log}"
        assert not leftover, leftover

    # Counters change by the work done, and by nothing else.
    def test_metrics(self):
        before = self.daemon.metrics()
        for _ in range(3):
            self.ctl(self.daemon, "submit", *self.graph("add", ("amount", 1)))
        self.ctl(self.daemon, "submit", *self.graph("divide"), code=1)
        self.ctl(self.daemon, "run", *self.graph("add", ("amount", 1)))
        time.sleep(1.2)  # The values that are sampled once a second are up to date.
        after = self.daemon.metrics()

        def moved(name, **labels):
            key = lambda samples: sum(v for (n, ls), v in samples.items()
                                      if n == name and labels.items() <= dict(ls).items())
            return key(after) - key(before)

        job = {"tenant": "local", "kind": "job"}
        self.assertEqual(moved("hpvm_graph_submitted_total", **job), 4)
        self.assertEqual(moved("hpvm_graph_completed_total", **job), 3)
        self.assertEqual(moved("hpvm_graph_failed_total", reason="aborted", **job), 1)
        self.assertEqual(moved("hpvm_graph_completed_total", tenant="local", kind="run"), 1)
        self.assertEqual(moved("hpvm_grpc_calls_total", method="hpvm.v1.Hpvm/Submit", code="ok"), 4)
        self.assertEqual(moved("hpvm_grpc_calls_total", method="hpvm.v1.Hpvm/Run", code="ok"), 1)
        self.assertEqual(moved("hpvm_job_attempts_total"), 4)
        self.assertEqual(moved("hpvm_queue_seconds_count", kind="job"), 4)
        self.assertEqual(moved("hpvm_job_seconds_count", state="succeeded"), 3)
        self.assertGreaterEqual(moved("hpvm_graph_seconds_count", phase="run"), 4)
        self.assertGreaterEqual(moved("hpvm_node_seconds_count", device="cpu:0"), 3)
        self.assertGreaterEqual(moved("hpvm_store_commit_writes_sum"), 12)   # Accepted, running and ended.
        self.assertGreater(moved("hpvm_scheduler_decision_seconds_count"), 0)
        self.assertGreater(moved("hpvm_transfer_bytes_total", direction="out"), 0)
        self.assertGreater(moved("hpvm_transfer_bytes_total", direction="in"), 0)
        self.assertGreater(moved("process_cpu_seconds_total"), 0)
        self.assertEqual(after["hpvm_ready", ()], 1)
        self.assertEqual(after["hpvm_live", ()], 1)
        self.assertEqual(after["hpvm_device_state", (("device", "cpu:0"), ("kind", "cpu"), ("state", "ready"))], 1)
        self.assertGreater(after["hpvm_store_bytes", (("file", "database"),)], 0)
        self.assertGreater(after["hpvm_disk_free_bytes", ()], 0)
        self.assertEqual(after["hpvm_executors", ()], 1)

    # Free text of a tenant's names and graphs appears nowhere in the metrics.
    def test_no_free_text(self):
        secret = "sekret"
        document = one_node("add", IN_OUT, [("amount", 1)])
        document["name"] = secret
        document["nodes"] = {secret: document["nodes"]["node"]}
        document["edges"] = [{"from": e["from"].replace("node.", secret + "."), "to": e["to"].replace("node.", secret + ".")}
                             for e in document["edges"]]
        path = self.folder / "secret.json"
        path.write_text(json.dumps(document))
        self.ctl(self.daemon, "submit", path, "--input", f"in={self.folder / 'in.npy'}", "--name", secret)
        self.assertNotIn(secret, self.daemon.get("/metrics")[1])

    # Spans lead from the caller's down to the node, each inside its parent.
    def test_trace_of_a_job(self):
        trace, caller, environment = traceparent()
        job = self.ctl(self.daemon, "submit", *self.graph("add", ("amount", 1)), "--detach", environment=environment)
        self.ctl(self.daemon, "jobs", "wait", job)
        (submit,) = self.collector.wait(trace, "Submit")
        (whole,) = self.collector.wait(trace, "job")
        (attempt,) = self.collector.wait(trace, "attempt")
        (run,) = self.collector.wait(trace, "run")
        (node,) = self.collector.wait(trace, "node")
        self.assertEqual(submit["parentSpanId"], caller)
        self.assertEqual(submit["kind"], 2)
        self.assertEqual(attributes_of(submit)["hpvm.job_id"], job)
        self.assertEqual(whole["parentSpanId"], submit["spanId"])
        for key, value in {"hpvm.job_id": job, "hpvm.tenant": "local", "hpvm.state": "SUCCEEDED"}.items():
            self.assertEqual(attributes_of(whole)[key], value)
        self.assertRegex(attributes_of(whole)["hpvm.graph"], "^[0-9a-f]{64}$")
        self.assertEqual(attempt["parentSpanId"], whole["spanId"])
        self.assertEqual(self.collector.of(trace, "queue")[0]["parentSpanId"], whole["spanId"])
        for name in ("bind", "copy_in", "run", "copy_out"):
            (phase,) = self.collector.of(trace, name)
            self.assertEqual(phase["parentSpanId"], attempt["spanId"], name)
            self.assert_inside(phase, attempt)
        self.assertEqual(node["parentSpanId"], run["spanId"])
        self.assertEqual(attributes_of(node)["hpvm.device"], "cpu:0")
        self.assertEqual(attributes_of(node)["hpvm.node"], "node")
        self.assert_inside(node, run)
        self.assert_inside(attempt, whole)
        spans = self.collector.of(trace)
        self.assertEqual(len({s["spanId"] for s in spans}), len(spans))
        self.assertFalse([s for s in spans if "status" in s])

    # A failing job's spans show the failure.
    def test_trace_of_a_failure(self):
        trace, _, environment = traceparent()
        self.ctl(self.daemon, "submit", *self.graph("divide"), environment=environment, code=1)
        (whole,) = self.collector.wait(trace, "job")
        self.assertEqual(whole["status"]["code"], 2)
        self.assertIn("node", whole["status"]["message"])
        self.assertEqual(attributes_of(whole)["hpvm.state"], "FAILED")
        self.assertEqual(attributes_of(whole)["hpvm.code"], "ABORTED")

    # A Run has no job: its phases belong to the call. A trace that the caller does not sample is not exported.
    def test_trace_of_a_run(self):
        trace, caller, environment = traceparent()
        unsampled, _, quiet = traceparent(sampled=False)
        self.ctl(self.daemon, "run", *self.graph("add", ("amount", 1)), environment=quiet)
        self.ctl(self.daemon, "run", *self.graph("add", ("amount", 1)), environment=environment)
        (call,) = self.collector.wait(trace, "Run")
        (prepare,) = self.collector.wait(trace, "PrepareGraph")
        self.assertEqual({call["parentSpanId"], prepare["parentSpanId"]}, {caller})
        for name in ("queue", "run", "copy_out"):
            (phase,) = self.collector.wait(trace, name)
            self.assertEqual(phase["parentSpanId"], call["spanId"], name)
            self.assert_inside(phase, call)
        self.assertEqual(attributes_of(call)["rpc.grpc.status_code"], "0")
        self.assertEqual(self.collector.of(unsampled), [])

    # Every line is a JSON object; lines about a job carry its id.
    def test_log_is_json(self):
        job = self.ctl(self.daemon, "submit", *self.graph("add", ("amount", 1)), "--detach")
        self.ctl(self.daemon, "jobs", "wait", job)
        end = time.monotonic() + 5
        while not [line for line in self.daemon.lines() if line.get("job") == job and "ended" in line["message"].lower()]:
            self.assertLess(time.monotonic(), end, self.daemon.log.read_text()[-2000:])
            time.sleep(0.02)
        for line in self.daemon.lines():
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("debug", "info", "warning", "error"))
            self.assertNotRegex(line["message"], r"tenant=|job=")
        self.assertEqual({line.get("tenant") for line in self.daemon.lines() if line.get("job") == job}, {"local"})


class Life(Case):
    """Life tests starts and ends; each test has a daemon of its own."""

    def start(self, name, config=None):
        daemon = ObservedDaemon(self.folder / name, config or CONFIG.format(port=self.collector.port))
        self.addCleanup(lambda: daemon.process.poll() is None and (daemon.process.kill(), daemon.process.wait()))
        daemon.wait_ready()
        return daemon

    # A trace continues in the daemon that takes over the job.
    def test_trace_over_a_crash(self):
        daemon = self.start("crash")
        trace, _, environment = traceparent()
        job = self.ctl(daemon, "submit", *self.graph("busy", ("amount", 1), ("rounds", 3_000)), "--detach",
                       environment=environment)
        (submit,) = self.collector.wait(trace, "Submit")
        self.collector.wait(trace, "queue")   # The job runs.
        daemon.process.kill()
        daemon.process.wait()
        again = self.start("crash")
        self.ctl(again, "jobs", "wait", job)
        (whole,) = self.collector.wait(trace, "job")
        self.assertEqual(whole["parentSpanId"], submit["spanId"])
        self.assertNotEqual(whole["instance"], submit["instance"])
        attempts = self.collector.wait(trace, "attempt", 2)
        self.assertEqual({a["parentSpanId"] for a in attempts}, {whole["spanId"]})
        self.assertEqual(sorted(attributes_of(a)["hpvm.attempt"] for a in attempts), ["1", "2"])
        self.assertEqual(["status" in a for a in sorted(attempts, key=lambda a: a["startTimeUnixNano"])], [True, False])
        self.assertEqual(again.metrics()["hpvm_job_attempts_lost_total", (("reason", "daemon"),)], 1)
        self.assertEqual(again.stop(), 0)

    # A draining daemon is alive, not ready, and gives the reason.
    def test_ready_during_drain(self):
        daemon = self.start("drain")
        job = self.ctl(daemon, "submit", *self.graph("spin"), "--detach")
        end = time.monotonic() + 20
        while daemon.metrics()["hpvm_jobs", (("state", "running"),)] != 1:
            self.assertLess(time.monotonic(), end)
        daemon.process.send_signal(signal.SIGTERM)
        while daemon.get("/readyz")[0] == 200:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        status, text = daemon.get("/readyz")
        self.assertEqual(status, 503)
        self.assertEqual([r["reason"] for r in json.loads(text)["reasons"]], ["draining"])
        self.assertFalse(json.loads(text)["ready"])
        self.assertEqual(daemon.get("/livez"), (200, '{"live":true,"reasons":[]}\n'))
        self.assertEqual(daemon.metrics()["hpvm_draining", ()], 1)
        self.ctl(daemon, "jobs", "cancel", job)
        self.assertEqual(daemon.process.wait(15), 0)

    # Nothing waits for an unreachable collector.
    def test_dead_collector(self):
        daemon = self.start("dead", CONFIG.format(port=1))
        start = time.monotonic()
        for _ in range(3):
            self.ctl(daemon, "submit", *self.graph("add", ("amount", 1)))
        self.assertLess(time.monotonic() - start, 20)
        end = time.monotonic() + 10
        while daemon.metrics()["hpvm_span_export_failures_total", ()] == 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        start = time.monotonic()
        self.assertEqual(daemon.stop(), 0)
        self.assertLess(time.monotonic() - start, 5)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
