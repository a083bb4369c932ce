#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `hpvmctl cluster`, and jobs that need hosts, with a server that plays a cluster.

    ctl_cluster.py BIN_FOLDER [TestCase.test ...]
"""

import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

REASON = None
try:
    import grpc
except ImportError:
    REASON = "python3-grpcio is missing; deploy/setup.sh --tests installs it"
if __name__ == "__main__" and REASON:
    print(f"skipped: {REASON}")
    sys.exit(0)

from concurrent import futures  # noqa: E402

from e2e import BIN, CANCELLED, CANNOT_PLACE, FAILED, OK, ROOT, USAGE  # noqa: E402
from jobs import INTERRUPTED, TIMED_OUT  # noqa: E402

sys.path.insert(0, str(BIN.parent / "python"))
from hpvm.v1 import graph_pb2, job_pb2, operations_pb2, service_pb2  # noqa: E402

OPEN, CORDONED, DRAINING = 1, 2, 3
LIVE, LOST = 1, 2
NO_CLUSTER = "The server is not part of a cluster: its configuration names no [cluster] database."
STREAMS = ("PutModule", "PutGraph")


class Cluster(grpc.GenericRpcHandler if REASON is None else object):
    """Cluster plays a server with hosts. Each ListHosts takes up to two jobs of each draining host and gives them to the open host that has least."""

    def __init__(self, **jobs):
        self.lock = threading.Lock()
        self.hosts = {name: operations_pb2.Host(name=name, state=LIVE, intake=OPEN, jobs=count, memory_bytes=64 << 30, version="1.2.0",
                                                words=["kind:cpu", f"label:lab={name}", "device:cpu:0"])
                      for name, count in jobs.items()}
        next(iter(self.hosts.values())).is_self = True
        self.features, self.submitted, self.settings = ["cluster"], [], []
        self.is_cluster, self.gives_back, self.on_list = True, True, None

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        if name in STREAMS:
            answer = {"PutModule": graph_pb2.PutModuleResponse, "PutGraph": graph_pb2.PutGraphResponse}[name]()
            return grpc.stream_unary_rpc_method_handler(lambda parts, context: [None for _ in parts] and answer,
                                                        response_serializer=lambda message: message.SerializeToString())
        method = getattr(self, name, None)
        if method is None:
            return None
        file = {"ServerInfo": service_pb2, "ListHosts": operations_pb2, "SetHostIntake": operations_pb2}.get(name, job_pb2)
        return grpc.unary_unary_rpc_method_handler(method, request_deserializer=getattr(file, name + "Request").FromString,
                                                   response_serializer=lambda message: message.SerializeToString())

    def ServerInfo(self, request, context):
        return service_pb2.ServerInfoResponse(version="1.2.0", api_version=1, features=self.features)

    def ListHosts(self, request, context):
        if not self.is_cluster:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_CLUSTER)
        with self.lock:
            answer = operations_pb2.ListHostsResponse(hosts=self.hosts.values())
            for host in self.hosts.values():
                while self.gives_back and host.intake == DRAINING and host.jobs > 0:
                    host.jobs -= 1
                    min((other for other in self.hosts.values() if other.intake == OPEN), key=lambda other: other.jobs).jobs += 1
                    if host.jobs % 2 == 0:
                        break
            if self.on_list is not None:
                self.on_list()
            return answer

    def SetHostIntake(self, request, context):
        if not self.is_cluster:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, NO_CLUSTER)
        if request.host not in self.hosts:
            context.abort(grpc.StatusCode.NOT_FOUND, f'No host "{request.host}" ever joined.')
        with self.lock:
            self.settings.append((request.host, request.intake))
            self.hosts[request.host].intake = request.intake
            return operations_pb2.SetHostIntakeResponse(host=self.hosts[request.host])

    def Submit(self, request, context):
        self.submitted.append(request)
        return job_pb2.SubmitResponse(job=self.job(request.host_needs))

    @staticmethod
    def job(needs=None):
        return job_pb2.Job(id="job-0123456789abcdef0123456789abcdef", state=job_pb2.JOB_STATE_RUNNING, graph_name="matmul", host="lab-b", host_needs=needs)

    def GetJob(self, request, context):
        return job_pb2.GetJobResponse(job=self.job(self.submitted[-1].host_needs if self.submitted else None))

    def ListJobs(self, request, context):
        return job_pb2.ListJobsResponse(jobs=[self.job()])


class WithCluster(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hpvm-cluster-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("HPVM_")}
        self.environment.update(HOME=str(self.folder), LC_ALL="C.UTF-8")
        self.environment.pop("XDG_CONFIG_HOME", None)

    def start(self, **jobs):
        """Starts a cluster of hosts with so many jobs; underscores in names become dashes."""
        self.cluster = Cluster(**{name.replace("_", "-"): count for name, count in jobs.items()})
        server = grpc.server(futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((self.cluster,))
        self.environment["HPVM_SERVER"] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        self.addCleanup(server.stop, None)

    def ctl(self, *words, code=OK):
        done = subprocess.run([BIN / "hpvmctl", *map(str, words)], capture_output=True, text=True, timeout=60, env=self.environment, cwd=self.folder,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, code, f"{words}\n{done.stdout}{done.stderr}")
        return done

    def intakes(self):
        return [host.intake for host in self.cluster.hosts.values()]

    def jobs(self):
        return [host.jobs for host in self.cluster.hosts.values()]


class Lists(WithCluster):
    def test_hosts(self):
        self.start(lab_a=3, lab_b=0)
        self.cluster.hosts["lab-b"].state = LOST
        lines = self.ctl("cluster", "hosts").stdout.splitlines()
        self.assertRegex(lines[0], r"^ +HOST +STATE +INTAKE +JOBS +MEMORY +VERSION +ADDRESS +WORDS$")
        self.assertRegex(lines[1], r"^\* +lab-a +LIVE +OPEN +3 +0 B of 64\.0 GiB +1\.2\.0 +- +kind:cpu, label:lab=lab-a and 1 more$")
        self.assertRegex(lines[2], r"^ +lab-b +LOST +OPEN ")
        self.assertIn("label:lab=lab-a, device:cpu:0", self.ctl("cluster", "hosts", "-o", "wide").stdout)
        self.assertEqual(self.ctl("cluster", "hosts", "-o", "name").stdout, "lab-a\nlab-b\n")
        answer = json.loads(self.ctl("cluster", "hosts", "-o", "json").stdout)
        self.assertEqual([(host["name"], host["state"], host["is_self"]) for host in answer],
                         [("lab-a", "STATE_LIVE", True), ("lab-b", "STATE_LOST", False)])

    def test_status(self):
        self.start(lab_a=3, lab_b=2)
        text = self.ctl("cluster", "status").stdout
        for line in (r"hosts +2 LIVE", r"intake +2 OPEN", r"jobs +5 jobs claimed", r"answers +lab-a", r"version +1\.2\.0"):
            self.assertRegex(text, rf"(?m)^{line}$")
        self.cluster.hosts["lab-b"].version = "1.3.0"
        self.assertIn("they differ: 1.2.0 (lab-a), 1.3.0 (lab-b)", self.ctl("cluster", "status").stdout)
        self.assertEqual(json.loads(self.ctl("cluster", "status", "-o", "json").stdout)["hosts"], {"LIVE": 2})
        self.assertEqual(self.ctl("cluster", "status", "-o", "name").stdout, "lab-a\n")

    def test_a_server_that_is_no_cluster(self):
        self.start(lab_a=0)
        self.cluster.is_cluster = False
        for words in (("status",), ("hosts",), ("cordon", "lab-a"), ("uncordon", "lab-a"), ("drain", "lab-a"), ("drain", "lab-a", "--wait"),
                      ("rebalance",), ("rebalance", "--yes")):
            done = self.ctl("cluster", *words, code=CANNOT_PLACE)
            self.assertEqual((done.stdout, done.stderr), ("", f"hpvmctl: FAILED_PRECONDITION: {NO_CLUSTER}\n"))

    def test_completion_lists_hosts(self):
        self.start(lab_a=0)
        self.assertIn("hpvmctl cluster hosts -o name", self.ctl("completion", "bash").stdout)


class Intakes(WithCluster):
    def test_cordon_and_uncordon(self):
        self.start(lab_a=3, lab_b=0)
        self.assertIn("Host lab-a takes no more jobs; what it has (3 jobs) goes on.", self.ctl("cluster", "cordon", "lab-a").stdout)
        self.assertEqual(self.intakes(), [CORDONED, OPEN])
        self.assertEqual(self.ctl("cluster", "uncordon", "lab-a").stdout, "Host lab-a takes jobs again.\n")
        self.assertEqual(self.intakes(), [OPEN, OPEN])
        self.assertEqual(json.loads(self.ctl("cluster", "cordon", "lab-b", "-o", "json").stdout)["intake"], "HOST_INTAKE_CORDONED")
        self.assertIn('No host "lab-c" ever joined.', self.ctl("cluster", "cordon", "lab-c", code=USAGE).stderr)

    def test_drain(self):
        self.start(lab_a=5, lab_b=0)
        self.ctl("cluster", "drain", "lab-a")
        self.assertEqual((self.intakes(), self.jobs()), ([DRAINING, OPEN], [5, 0]))
        done = self.ctl("cluster", "drain", "lab-a", "--wait", "--progress", "plain")
        self.assertIn("Host lab-a has no job.", done.stdout)
        self.assertEqual(done.stderr.splitlines(), ["lab-a has 5 jobs", "lab-a has 4 jobs", "lab-a has 2 jobs"])
        self.assertEqual((self.intakes(), self.jobs()), ([DRAINING, OPEN], [0, 5]))
        self.assertEqual(json.loads(self.ctl("cluster", "drain", "lab-a", "--wait", "-o", "json").stdout)["jobs"], "0")

    def test_drain_within_a_time(self):
        self.start(lab_a=1, lab_b=0)
        self.cluster.gives_back = False
        done = self.ctl("cluster", "drain", "lab-a", "--wait", "--timeout", "1s", code=TIMED_OUT)
        self.assertIn("after 1s the host still has 1 job; it stays DRAINING", done.stderr)
        self.assertEqual(self.intakes(), [DRAINING, OPEN])
        self.ctl("cluster", "drain", "lab-a", "--timeout", "1s", code=USAGE)

    def test_somebody_opens_the_host_meanwhile(self):
        self.start(lab_a=1, lab_b=0)
        self.cluster.gives_back = False
        self.cluster.on_list = lambda: setattr(self.cluster.hosts["lab-a"], "intake", OPEN)
        self.assertIn('Somebody has set host "lab-a" to OPEN', self.ctl("cluster", "drain", "lab-a", "--wait", code=FAILED).stderr)

    def test_an_interrupt(self):
        self.start(lab_a=1, lab_b=0)
        self.cluster.gives_back = False
        process = subprocess.Popen([BIN / "hpvmctl", "cluster", "drain", "lab-a", "--wait", "--progress", "plain"], text=True, env=self.environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stderr.readline(), "lab-a has 1 job\n")
        process.send_signal(signal.SIGINT)
        self.assertIn("`hpvmctl cluster uncordon lab-a`", process.communicate(timeout=20)[1])
        self.assertEqual(process.returncode, INTERRUPTED)


class Rebalance(WithCluster):
    def test_one_host_has_all_jobs(self):
        self.start(lab_a=9, lab_b=0, lab_c=0)
        done = self.ctl("cluster", "rebalance", "--yes")
        self.assertEqual(done.stdout, "Host lab-a gave 9 jobs back, and is open again.\n")
        self.assertEqual(self.cluster.settings, [("lab-a", DRAINING), ("lab-a", OPEN)])
        self.assertEqual(sum(self.jobs()), 9)

    def test_nothing_is_to_do(self):
        self.start(lab_a=2, lab_b=1)
        self.cluster.hosts["lab-b"].intake = CORDONED
        done = self.ctl("cluster", "rebalance", "--yes", "-o", "json")
        self.assertEqual(json.loads(done.stdout), [])
        self.assertIn("nothing is changed", done.stderr)
        self.assertEqual(self.cluster.settings, [])

    def test_it_asks_first(self):
        self.start(lab_a=9, lab_b=0)
        self.assertIn("give --yes to confirm", self.ctl("cluster", "rebalance", code=USAGE).stderr)
        for answer, code in ((b"n\n", CANCELLED), (b"\n", CANCELLED), (b"y\n", OK)):
            self.assertEqual(self.cluster.settings, [])
            parent, child = pty.openpty()
            process = subprocess.Popen([BIN / "hpvmctl", "cluster", "rebalance"], stdin=child, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True, env=self.environment)
            os.write(parent, answer)
            _, said = process.communicate(timeout=30)
            os.close(child)
            os.close(parent)
            self.assertRegex(said, r"lab-a has 9 jobs, and an open host 4\.5 on average\.\n.*start again on other hosts, and are not counted\. \[y/N\]")
            self.assertEqual(process.returncode, code, said)
        self.assertEqual(self.cluster.settings, [("lab-a", DRAINING), ("lab-a", OPEN)])

    def test_a_host_that_keeps_its_jobs_is_opened_again(self):
        self.start(lab_a=9, lab_b=9, lab_c=0, lab_d=0)
        self.cluster.gives_back = False
        done = self.ctl("cluster", "rebalance", "--yes", "--timeout", "1s", code=TIMED_OUT)
        self.assertIn("host lab-a still had 9 jobs; it is open again", done.stderr)
        self.assertEqual(self.cluster.settings, [("lab-a", DRAINING), ("lab-a", OPEN)])

    def test_what_somebody_else_sets_stays(self):
        self.start(lab_a=9, lab_b=0)
        self.cluster.gives_back = False
        self.cluster.on_list = lambda: self.cluster.settings and setattr(self.cluster.hosts["lab-a"], "intake", CORDONED)
        self.ctl("cluster", "rebalance", "--yes", code=FAILED)
        self.assertEqual(self.intakes(), [CORDONED, OPEN])


class Jobs(WithCluster):
    def setUp(self):
        super().setUp()
        for name in ("matmul.json", "matmul.wasm"):
            shutil.copy(ROOT / "examples/matmul" / name, self.folder)
        for name in ("a", "b"):
            np.save(self.folder / f"{name}.npy", np.eye(2, dtype=np.float32))

    def submit(self, *words, code=OK):
        return self.ctl("submit", "matmul.json", "--detach", "--input", "A=a.npy", "--input", "B=b.npy", *words, code=code)

    def test_needs_are_sent(self):
        self.start(lab_a=0)
        needs = ("--needs", "kind:gpu", "--needs", "label:lab=a", "--on-host", "lab-a", "--host-memory", "4GiB")
        job = self.submit(*needs).stdout.strip()
        sent = self.cluster.submitted[0].host_needs
        self.assertEqual((list(sent.words), sent.host, sent.memory_bytes), (["kind:gpu", "label:lab=a"], "lab-a", 4 << 30))
        text = self.ctl("get", job).stdout
        self.assertRegex(text, r"needs +kind:gpu, label:lab=a, the host lab-a, 4\.00 GiB of the host's memory\n")
        self.assertRegex(text, r"host +lab-b\n")
        self.submit()
        self.assertFalse(self.cluster.submitted[1].HasField("host_needs"))
        self.assertIn("reading --host-memory", self.submit("--host-memory", "lots", code=USAGE).stderr)
        self.cluster.features = []  # An older server would run the job anywhere.
        self.assertIn('does not offer "host-needs"', self.submit(*needs, code=USAGE).stderr)
        self.assertEqual(len(self.cluster.submitted), 2)

    def test_lists_have_hosts(self):
        self.start(lab_a=0)
        self.assertRegex(self.ctl("list").stdout, r"JOB +STATE +AGE +TIME +HOST +GRAPH +NAME\njob-\w+ +RUNNING .* lab-b +matmul ")
        self.assertRegex(self.ctl("jobs", "list", "-o", "wide").stdout, r"ATTEMPT +HOST +PRIORITY")
        self.assertEqual(json.loads(self.ctl("list", "-o", "json").stdout)[0]["host"], "lab-b")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
