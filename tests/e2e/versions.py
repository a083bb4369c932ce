#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests hpvmctl with servers of other releases: a proxy imitates them, in front of the real daemon.

An older server lacks the newer calls and leaves the newer fields out; a newer server adds fields to each answer that this client does not know.

    versions.py BIN_FOLDER [TestCase.test ...]
"""

import json
import sys
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

from e2e import FAILED, HERE, OK, USAGE  # noqa: E402
from jobs import WithDaemon, add  # noqa: E402

# Calls of the first release; all others came later.
FIRST = set("ServerInfo ListDevices ListCosts PutModule PutGraph PrepareGraph ReleaseGraph ListGraphs Run Stream Submit GetJob WatchJob ListJobs CancelJob RetryJob "
            "FetchOutput CreateBuffer WriteBuffer ReadBuffer DeleteBuffer ListBuffers CreateTenant ListTenants GetTenant UpdateTenant CreateToken ListTokens RevokeToken "
            "GetUsage ReadAudit".split())
CLIENT_STREAMS, SERVER_STREAMS = {"PutModule", "PutGraph", "WriteBuffer", "Stream"}, {"WatchJob", "FetchOutput", "ReadBuffer", "Stream", "RunMany", "WatchJobs",
                                                                                     "WatchDevices", "OpenRing", "ReadAudit", "ExportJob"}
# A text, a message and a number in unassigned fields.
TOMORROW = b"\xd2\xb8\x02\x03new" + b"\xda\xb8\x02\x02\x08\x01" + b"\xe0\xb8\x02\x07"


def same(data):
    return data


class OtherRelease(grpc.GenericRpcHandler if REASON is None else object):
    def __init__(self, target, knows, change):
        self.channel = grpc.insecure_channel(target)
        self.knows, self.change = knows, change

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        if not self.knows(name):  # A server of gRPC's C++ library that was built without the call answers in the same way.
            return grpc.unary_unary_rpc_method_handler(lambda request, context: context.abort(grpc.StatusCode.UNIMPLEMENTED, ""))
        takes, gives = name in CLIENT_STREAMS, name in SERVER_STREAMS
        kind = ("stream" if takes else "unary") + "_" + ("stream" if gives else "unary")
        call = getattr(self.channel, kind)(details.method, request_serializer=same, response_deserializer=same)

        def forward(request, context):
            metadata = [item for item in context.invocation_metadata() if not item[0].startswith(("grpc-", "user-agent", ":"))]
            try:
                answer = call(request, metadata=metadata)
                return map(self.change, answer) if gives else self.change(answer)
            except grpc.RpcError as error:
                context.set_trailing_metadata(tuple(error.trailing_metadata() or ()))
                context.abort(error.code(), error.details())

        return getattr(grpc, f"{kind}_rpc_method_handler")(forward, request_deserializer=same, response_serializer=same)


class Versions(WithDaemon):
    files = ("kernels.wasm",)

    def setUp(self):
        (self.folder / "add.json").write_text(json.dumps(add()))
        np.save(self.folder / "in.npy", np.arange(4, dtype=np.int32))

    def release(self, knows, change):
        server = grpc.server(futures.ThreadPoolExecutor(8))
        server.add_generic_rpc_handlers((OtherRelease(self.daemon.server, knows, change),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)
        return f"127.0.0.1:{port}"

    def ctl(self, server, *arguments, code=OK):
        done = self.daemon.ctl("--server", server, *arguments)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def work_through(self, server):
        """Does the work that every release offers."""
        graph, inputs = self.folder / "add.json", ("--input", f"in={self.folder}/in.npy")
        out = self.folder / "out.npy"
        self.ctl(server, "submit", graph, *inputs, "--output", f"out_out={out}")
        np.testing.assert_array_equal(np.load(out), [1, 2, 3, 4])
        self.ctl(server, "run", graph, *inputs)
        job = self.ctl(server, "submit", "-d", graph, *inputs).stdout.strip()
        self.ctl(server, "wait", job)
        for command in (("list",), ("get", job), ("describe", job), ("events", job), ("logs", job), ("devices",), ("quota",), ("whoami",), ("graph", "list"),
                        ("buffer", "list"), ("tenant", "list"), ("costs",), ("version",), ("cancel", job), ("doctor",)):
            done = self.daemon.ctl("--server", server, *command)
            self.assertIn(done.returncode, (OK, FAILED) if command == ("doctor",) else (OK,), f"{command}\n{done.stdout}{done.stderr}")
        return job

    def test_an_older_server(self):
        """An older server does the work that it knows, and refuses unknown calls by name, with nothing left half done."""
        server = self.release(lambda name: name in FIRST, same)
        job = self.work_through(server)
        for command in (("top", "--once"), ("cordon",), ("drain",), ("readmit",), ("usage",), ("server", "config"), ("module", "list"), ("mem",), ("tenant", "delete", "x", "--yes")):
            done = self.daemon.ctl("--server", server, *command)
            self.assertNotEqual(done.returncode, OK, command)
            self.assertIn("older release", done.stderr, command)
        target = self.folder / "old.hpvm"
        self.assertIn("older release", self.daemon.ctl("--server", server, "bundle", job, "--output", target).stderr)
        self.assertFalse(target.exists())

    def test_a_newer_server(self):
        """Unknown fields change nothing, in text and in JSON."""
        server = self.release(lambda name: True, lambda data: data + TOMORROW)
        job = self.work_through(server)
        for command in (("top", "--once"), ("usage",), ("server", "config"), ("module", "list"), ("mem",), ("list", "-o", "json"), ("describe", job)):
            self.ctl(server, *command)
        self.ctl(server, "bundle", job, "--output", self.folder / "new.hpvm")

    def test_a_server_that_speaks_something_else(self):
        server = self.release(lambda name: True, lambda data: b"\xff" + data)
        done = self.daemon.ctl("--server", server, "list")
        self.assertNotEqual(done.returncode, OK)
        self.assertNotIn("Traceback", done.stderr)
        self.assertTrue(done.stderr.startswith("hpvmctl: "), done.stderr)


del WithDaemon  # This class is no test of this file.

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
