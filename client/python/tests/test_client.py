#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs, buffers, shared memory, devices, costs, administration, through a real daemon."""

import datetime
import hashlib
import json
import time
import unittest
import warnings

import numpy as np

import support
from support import hpvm


class Runs(support.WithServer):
    def setUp(self):
        self.matmul = self.client.prepare(support.matmul())

    def test_small_and_large_arrays(self):
        rng = np.random.default_rng(1)
        for m, k, n in ((1, 1, 1), (3, 5, 7), (300, 200, 400), (900, 300, 500)):
            a, b = rng.integers(-9, 9, (m, k)).astype("f4"), rng.integers(-9, 9, (k, n)).astype("f4")
            for _ in range(3):  # The third run finds memory for its outputs.
                result = self.matmul.run(A=a, B=b)
                np.testing.assert_array_equal(result["C"], a @ b)
            self.assertTrue(result["C"].flags.writeable and result["C"].flags.owndata or result["C"].base is not None)
        self.assertEqual(self.client.tensor_path, "shared memory")

    def test_the_same_without_shared_memory(self):
        with hpvm.connect(self.server, local_memory=False) as client:
            a = np.arange(600 * 700, dtype="f4").reshape(600, 700) % 7
            result = client.prepare(support.matmul()).run(A=a, B=a.T)
            np.testing.assert_array_equal(result["C"], a @ a.T)
            self.assertIn("local_memory is False", client.tensor_path)
            self.assertEqual([buffer for buffer in client.buffers() if not buffer.registered], [])

    def test_records(self):
        result = self.matmul.run(A=np.ones((4, 4), "f4"), B=np.ones((4, 4), "f4"), placements=True, log=True)
        self.assertEqual([placement.node for placement in result.placements], ["multiply"])
        self.assertEqual(result.placements[0].device, "cpu:0")
        self.assertGreater(result.timing.total, 0)
        self.assertEqual(result.log.lines, [])
        self.assertIn("<table>", result._repr_html_())
        self.assertEqual(list(result), ["C"])
        with self.assertRaisesRegex(KeyError, "outputs are C"):
            result["D"]

    def test_facts_of_a_prepared_graph(self):
        self.assertEqual(str(self.matmul.inputs["A"]), "f32[m, k]")
        self.assertEqual(list(self.matmul.outputs), ["C"])
        self.assertEqual(self.matmul.devices, ["cpu:0"])
        self.assertIn(self.matmul.handle, [graph.handle for graph in self.client.prepared_graphs()])

    def test_outputs_go_where_they_are_wanted(self):
        a = np.ones((500, 500), "f4")
        into = np.empty((500, 500), "f4")
        for _ in range(3):
            into.fill(0)
            result = self.matmul.run(A=a, B=a, out={"C": into})
            self.assertIs(result["C"], into)
            self.assertTrue((into == 500).all())
        small = np.empty((2, 2), "f4")
        self.assertIs(self.matmul.run(A=np.ones((2, 3), "f4"), B=np.ones((3, 2), "f4"), out={"C": small})["C"], small)
        self.assertEqual(small.tolist(), [[3, 3], [3, 3]])
        self.assertEqual(dict(self.matmul.run(A=a, B=a, out={"C": hpvm.DISCARD})), {})
        for wrong in (np.empty((500, 501), "f4"), np.empty((500, 500), "f8"), np.empty((500, 1000), "f4")[:, ::2]):
            with self.assertRaisesRegex(ValueError, "the output is"):
                self.matmul.run(A=a, B=a, out={"C": wrong})
        with self.assertRaisesRegex(TypeError, "has to be an array"):
            self.matmul.run(A=a, B=a, out={"C": [1, 2]})
        self.assertEqual(self.running(), 0)

    def test_buffers_stay(self):
        a = np.arange(12, dtype="f4").reshape(3, 4)
        with self.client.buffer(a) as left, self.client.empty((3, 3)) as product:
            self.matmul.run(A=left, B=a.T, out={"C": product})
            np.testing.assert_array_equal(product.read(), a @ a.T)
            squared = self.matmul.run(A=product, B=product, out={"C": hpvm.NEW_BUFFER})["C"]
            np.testing.assert_array_equal(squared.read(), (a @ a.T) @ (a @ a.T))
            left.write(np.float32([100]), offset=4)
            self.assertEqual(left.read()[0, 1], 100)
            self.assertEqual(left.view((2, 2)).shape, (2, 2))
            self.assertEqual(self.matmul.run(A=left.view((4, 3)), B=np.ones((3, 1), "f4"))["C"].shape, (4, 1))
            with self.assertRaisesRegex(ValueError, "the buffer has 48"):
                left.view((5, 5))
            squared.delete()
            with self.assertRaisesRegex(hpvm.FailedPreconditionError, "has been deleted"):
                self.matmul.run(A=squared, B=squared)
        self.assertEqual([buffer for buffer in self.client.buffers() if not buffer.registered], [])

    def test_shared_memory_is_not_copied(self):
        a, c = self.client.shared((700, 300)), self.client.shared((700, 700))
        a.array[:] = np.arange(700 * 300).reshape(700, 300) % 5
        generation = a.publish()
        self.matmul.run(A=a, B=np.ascontiguousarray(a.array.T), out={"C": c})
        np.testing.assert_array_equal(c.array, a.array @ a.array.T)
        a.array[:] = 1
        self.assertGreater(a.publish(), generation)
        self.matmul.run(A=a, B=np.ascontiguousarray(a.array.T), out={"C": c})
        self.assertTrue((c.array == 300).all())
        kept = c.array
        c.delete()
        del c
        self.assertEqual(kept[0, 0], 300)  # The memory outlives the buffer.

    def test_inputs_with_names_of_options(self):
        document = support.matmul().to_dict()
        document["inputs"] = {"timeout": document["inputs"]["A"], "options": document["inputs"]["B"]}
        for edge, name in zip(document["edges"], document["inputs"]):
            edge["from"] = name
        modules = support.matmul().modules()
        both = {"timeout": np.ones((2, 3), "f4"), "options": np.ones((3, 4), "f4")}
        with self.client.prepare(document, modules=modules) as prepared:
            self.assertEqual(prepared.run({"timeout": both["timeout"]}, options=both["options"], timeout=30)["C"].sum(), 24)
            self.assertEqual(prepared.run_many([both])[0]["C"].sum(), 24)
            with self.assertRaises(hpvm.InvalidArgumentError) as caught:
                prepared.run(**both)
            self.assertEqual(caught.exception.message, 'The graph has the input "timeout", and run has an option of that name. Pass '
                             'the input in a mapping, before the options: run({"timeout": value}).')
            with self.assertRaisesRegex(TypeError, "The inputs are a ndarray; they have to be a mapping"):
                prepared.run(both["timeout"])
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, "inputs options, timeout, and submit has options of those names"):
                self.client.submit(prepared)
        self.assertEqual(self.client.submit(document, both, modules=modules).result(30)["C"].sum(), 24)
        for graph in (document, json.dumps(document), hpvm.Graph.from_document(document, modules=modules)):
            with self.assertRaisesRegex(hpvm.InvalidArgumentError, r'input "timeout", and submit has .* submit\(graph, {"timeout": value}'):
                self.client.submit(graph, {"options": both["options"]}, modules=modules, timeout=both["timeout"])
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, r'submit_array\(graph, array, {"timeout": value}\)'):
            self.client.submit_array(document, 2, {"options": both["options"]}, modules=modules)

    def test_symbols_repetitions_and_rotations(self):
        prepared = self.client.prepare(support.add(amount=3))
        once = prepared.run({"in": np.arange(4, dtype="i4")})
        self.assertEqual(once["out_out"].tolist(), [3, 4, 5, 6])
        often = prepared.run({"in": np.arange(4, dtype="i4")}, repeat=5, rotations={"out_out": "in"})
        self.assertEqual(often["out_out"].tolist(), [15, 16, 17, 18])
        self.assertEqual(often.repetitions, 5)

    def test_many_runs_in_one_call(self):
        results = self.client.prepare(support.trap()).run_many(
            [{"in": np.int32([1, 2])}, {"in": np.int32([1, 0])}, {"in": np.int32([5, 5])}])
        self.assertEqual([type(result).__name__ for result in results], ["RunResult", "AbortedError", "RunResult"])
        ones = np.ones((200, 200), "f4")
        results = self.matmul.run_many([{"A": ones * i, "B": ones} for i in range(40)])  # 13 MB: several calls.
        self.assertEqual([float(result["C"][0, 0]) for result in results], [200.0 * i for i in range(40)])

    def test_devices_costs_and_the_server(self):
        self.assertEqual([device.id for device in self.client.devices()], ["cpu:0"])
        self.matmul.run(A=np.ones((4, 4), "f4"), B=np.ones((4, 4), "f4"))
        kernels = {kernel.kernel for kernel in self.client.costs(self.matmul).kernels}
        self.assertEqual(kernels, {"matmul/matmul"})
        self.assertIn("durable-jobs", self.client.server_info().features)
        first = next(self.client.watch_devices(timeout=20))
        self.assertEqual([device.id for device in first], ["cpu:0"])

    def test_what_the_tenant_holds(self):
        with hpvm.connect(self.server) as other:  # A program may release what another one has left behind.
            left = self.client.buffer(np.ones(7, "f4"))
            other.delete_buffer(next(buffer for buffer in other.buffers() if buffer.id == left.id))
            with self.assertRaises(hpvm.NotFoundError):
                left.read()
            for name_of in (lambda graph: graph, lambda graph: graph.handle):
                mine = self.client.prepare(support.matmul())
                other.release_graph(name_of(next(graph for graph in other.prepared_graphs() if graph.handle == mine.handle)))
                self.assertNotIn(mine.handle, [graph.handle for graph in other.prepared_graphs()])
                with self.assertRaises(hpvm.NotFoundError):
                    other.release_graph(mine.handle)

    def test_modules(self):
        data = support.KERNELS["k"] + b"\x00\x05\x04mine"  # With a section of its own: other tests use the module itself.
        digest = self.client.put_module(data, name="kernels")
        self.assertEqual(digest, hashlib.sha256(data).hexdigest())
        (self.folder / "mine.wasm").write_bytes(data)
        self.assertEqual(self.client.put_module(self.folder / "mine.wasm"), digest)
        stored = {module.sha256: module for module in self.client.modules()}
        self.assertEqual((stored[digest].size_bytes, stored[digest].is_graph), (len(data), False))
        self.assertTrue(any(module.is_graph for module in stored.values()))
        document = support.add(amount=3).to_dict()
        with self.client.prepare(document, hashes={"k": digest}) as prepared:
            self.assertEqual(prepared.run({"in": np.int32([1])})["out_out"].tolist(), [4])
            with self.assertRaises(hpvm.FailedPreconditionError):
                self.client.delete_module(digest)
        self.assertGreaterEqual(self.client.delete_module(stored[digest]), len(data))
        self.assertNotIn(digest, [module.sha256 for module in self.client.modules()])
        with self.assertRaises(hpvm.NotFoundError):
            self.client.delete_module(digest)
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, 'module "none.wasm" cannot be read'):
            self.client.put_module("/none.wasm")

    def test_usage(self):
        usage = self.client.usage()
        self.assertEqual(usage.tenant, self.client.server_info().tenant)
        resources = {item.resource: item for item in usage.resources}
        self.assertGreaterEqual(resources["modules"].used, 1)
        self.assertGreaterEqual(resources["modules"].limit, resources["modules"].used)
        self.assertEqual(self.client.admin.usage(usage.tenant).tenant, usage.tenant)

    def test_released_graphs(self):
        with self.client.prepare(support.matmul()) as prepared:
            pass
        with self.assertRaisesRegex(hpvm.FailedPreconditionError, "has been released"):
            prepared.run(A=np.ones((1, 1), "f4"), B=np.ones((1, 1), "f4"))
        again = self.client.prepare(support.matmul())
        with hpvm.connect(self.server) as other:
            from hpvm._runs import release
            other._drive(release(other._core, again.handle, None))
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # The graph was released: the client must not prepare it again.
            with self.assertRaises(hpvm.NotFoundError):
                again.run(A=np.ones((1, 1), "f4"), B=np.ones((1, 1), "f4"))


class Administration(support.WithServer):
    config = "[auth]\ntokens = true\npeers = true\n"

    def test_accounts_and_configuration(self):
        admin, ones = self.client.admin, np.ones((1, 1), "f4")
        self.client.prepare(support.matmul()).run(A=ones, B=ones)
        yesterday = datetime.datetime.now(datetime.timezone.utc).date() - datetime.timedelta(days=1)
        end = time.monotonic() + 20
        while not any(account.runs for account in admin.accounts(first=yesterday)):  # Accounts appear within seconds.
            self.assertLess(time.monotonic(), end)
            time.sleep(0.2)
        first = (yesterday - datetime.date(1970, 1, 1)).days
        for account in admin.accounts("*", first=yesterday):
            self.assertTrue(first <= account.day <= first + 2 and account.tenant, account)
        self.assertEqual(admin.accounts("*", first=datetime.date(2001, 1, 1), last=datetime.date(2001, 12, 31)), [])
        self.assertIn("[server]\n", admin.config().toml)

    def test_administration(self):
        admin = self.client.admin
        admin.create_tenant("lab", weight=3, quota={"running-jobs": 2})
        self.assertEqual(admin.tenant("lab").weight, 3)
        self.assertIn("lab", [tenant.name for tenant in admin.tenants()])
        self.assertEqual(admin.update_tenant("lab", weight=5, quota={"running-jobs": None}).weight, 5)
        self.assertEqual([device.device.id for device in admin.overview().devices], ["cpu:0"])
        self.assertTrue(admin.set_intake(True, "a test").intake.closed)
        self.assertEqual(admin.overview().intake.reason, "a test")
        self.assertFalse(admin.set_intake(False).intake.closed)
        self.assertEqual(admin.set_device_pause("cpu:0", True, "a test").device.paused.reason, "a test")
        self.assertTrue(self.client.devices()[0].id)
        self.assertFalse(admin.set_device_pause("cpu:0", False).device.HasField("paused"))
        for call in (admin.hosts, lambda: admin.set_host_intake("lab-a", "draining")):
            with self.assertRaisesRegex(hpvm.FailedPreconditionError, "not part of a cluster"):
                call()
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, "intakes are open, cordoned"):
            admin.set_host_intake("lab-a", "closed")
        made = admin.create_token("lab", name="a test's", lifetime=60)
        self.assertNotIn(made.secret, repr(made))
        with hpvm.connect(self.server, credentials=hpvm.Credentials(token=made.secret)) as theirs:
            self.assertEqual(theirs.server_info().tenant, "lab")
            with self.assertRaises(hpvm.PermissionDeniedError):
                theirs.admin.create_tenant("other")
        self.assertEqual([token.id for token in admin.tokens("lab")], [made.token.id])
        admin.revoke_token(made.token.id)
        with self.assertRaises(hpvm.UnauthenticatedError):
            hpvm.connect(self.server, credentials=hpvm.Credentials(token=made.secret)).server_info()
        with self.assertRaises(hpvm.AlreadyExistsError):
            admin.create_tenant("lab")
        self.assertTrue(any("lab" in str(record) for record in admin.audit()))
        with self.assertRaisesRegex(hpvm.InvalidArgumentError, "roles are user"):
            admin.create_token("lab", role="root")


if __name__ == "__main__":
    support.main()
