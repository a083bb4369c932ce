#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays tests/scenario/clients.json with the Python client and with the C++ client (hpvm-scenario)."""

import json
import pathlib
import signal
import subprocess
import unittest
import warnings

import numpy as np

import support
from support import hpvm

SCENARIO = support.ROOT / "tests/scenario/clients.json"
GRAPHS = {"matmul": support.matmul, "add": support.add, "divide": support.trap, "spin": support.spin}


def array_of(value):
    return np.array(value["data"], hpvm._arrays.dtype_of(value["type"])).reshape(value["shape"])


def patched(document, changes):
    for pointer, value in changes.items():
        *path, last = pointer.strip("/").split("/")
        place = document
        for word in path:
            place = place[int(word) if isinstance(place, list) else word]
        place[int(last) if isinstance(place, list) else last] = value
    return document


class Player:
    """Executes each step; `known` has the values that steps name with "as"."""

    def __init__(self, test, client):
        self.test, self.client, self.known = test, client, {}

    def play(self, step):
        wanted = step.get("error")
        try:
            result = getattr(self, step["do"])(step)
        except hpvm.HpvmError as error:
            if wanted is None:
                raise
            self.test.assertIn(error.code, wanted["code"].split("|"))
            self.test.assertIn(wanted.get("message", ""), str(error))
            places = [diagnostic.place for diagnostic in error.diagnostics]
            for place in wanted.get("places", ()):
                self.test.assertIn(place, places)
            return
        self.test.assertIsNone(wanted, f"{step} did not fail")
        if "as" in step:
            self.known[step["as"]] = result

    def inputs(self, inputs):
        return {name: self.known[value["buffer"]] if "buffer" in value else array_of(value) for name, value in inputs.items()}

    def same(self, outputs, wanted):
        for name, value in wanted.items():
            np.testing.assert_array_equal(outputs[name], array_of(value))
            self.test.assertEqual(outputs[name].dtype, array_of(value).dtype)

    def server(self, step):
        self.test.assertLessEqual(set(step["features"]), set(self.client.server_info().features))

    def devices(self, step):
        self.test.assertEqual([device.id for device in self.client.devices()], step["ids"])

    def prepare(self, step):
        graph = GRAPHS[step["graph"]]()
        return self.client.prepare(patched(graph.to_dict(), step.get("patch", {})), modules=graph.modules())

    def run(self, step):
        out = {name: hpvm.NEW_BUFFER for name in step.get("new_buffers", {})}
        result = self.known[step["graph"]].run(self.inputs(step["inputs"]), repeat=step.get("repeat", 1),
                                               rotations=step.get("rotations"), out=out)
        self.same(result, step.get("outputs", {}))
        for name, label in step.get("new_buffers", {}).items():
            self.known[label] = result[name]
        self.test.assertEqual(result.prepared_again, step.get("prepared_again", result.prepared_again))

    def run_many(self, step):
        results = self.known[step["graph"]].run_many([self.inputs(item) for item in step["items"]])
        self.test.assertEqual([getattr(result, "code", "OK") for result in results], step["codes"])

    def buffer(self, step):
        return self.client.buffer(array_of(step["value"]))

    def shared(self, step):
        value = array_of(step["value"])
        made = self.client.shared(value.shape, value.dtype)
        made.array[...] = value
        return made

    def fill(self, step):
        self.known[step["buffer"]].array[...] = array_of(step["value"])

    def publish(self, step):
        self.test.assertGreater(self.known[step["buffer"]].publish(), 1)

    def read(self, step):
        self.same({"it": self.known[step["buffer"]].read()}, {"it": step["value"]})

    def write(self, step):
        self.known[step["buffer"]].write(array_of(step["value"]))

    def delete(self, step):
        self.known[step["buffer"]].delete()

    def submit(self, step):
        options = hpvm.SubmitOptions(name=step.get("name", ""), labels=step.get("labels", {}), key=step.get("key", ""),
                                     after=[self.known[name] for name in step.get("after", ())])
        job = self.client.submit(GRAPHS[step["graph"]](), self.inputs(step["inputs"]), options=options)
        if "same_as" in step:
            self.test.assertEqual(job.id, self.known[step["same_as"]].id)
        return job

    def wait(self, step):
        job = self.client.job(self.known[step["job"]].id)
        self.test.assertEqual(job.wait(60).state.name, step["state"])
        if "outputs" in step:
            self.same(job.result(), step["outputs"])

    def cancel(self, step):
        self.known[step["job"]].cancel()

    def retry(self, step):
        return self.known[step["job"]].retry()

    def jobs(self, step):
        self.test.assertEqual([job.name for job in self.client.jobs(labels=step["labels"])], step["names"])

    def watch_jobs(self, step):
        for change in self.client.watch_jobs(timeout=60):
            if change.job == self.known[step["job"]] and change.job.state.name == step["state"]:
                return

    def watch_devices(self, step):
        self.test.assertEqual([device.id for device in next(self.client.watch_devices(timeout=30))], step["ids"])

    def costs(self, step):
        kernels = {kernel.kernel for kernel in self.client.costs(self.known[step["graph"]]).kernels}
        self.test.assertEqual(kernels, set(step["kernels"]))

    def create_tenant(self, step):
        self.client.admin.create_tenant(step["name"], weight=step["weight"])

    def tenant(self, step):
        self.test.assertEqual(self.client.admin.tenant(step["name"]).weight, step["weight"])

    def update_tenant(self, step):
        self.client.admin.update_tenant(step["name"], weight=step["weight"])

    def create_token(self, step):
        made = self.client.admin.create_token(step["tenant"])
        self.test.assertRegex(made.secret, "^hpvm_[0-9a-f]{64}$")
        return made.token

    def tokens(self, step):
        self.test.assertEqual(len(self.client.admin.tokens(step["tenant"])), step["count"])

    def revoke_token(self, step):
        self.test.assertEqual(self.client.admin.revoke_token(self.known[step["token"]].id), "lab")

    def usage(self, step):
        names = {resource.resource for resource in self.client.admin.usage().resources}
        self.test.assertLessEqual(set(step["resources"]), names)

    def audit(self, step):
        self.test.assertTrue(any(step["names"] in json.dumps(record) for record in self.client.admin.audit()))

    def release(self, step):
        self.known[step["graph"]].release()

    def restart(self, step):
        self.test.restart()


class WithRestarts(support.WithServer):
    def restart(self):
        self.daemon.stop(signal.SIGKILL)
        type(self).start()
        support.wait_until(self.answers, what="the server")

    def answers(self):
        try:
            return bool(self.client.devices())
        except hpvm.UnavailableError:
            return False


class InPython(WithRestarts):
    def test_scenario(self):
        player = Player(self, self.client)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", hpvm.PreparedAgainWarning)
            for step in json.loads(SCENARIO.read_text()):
                with self.subTest(step):
                    player.play(step)


class InCpp(WithRestarts):
    def test_scenario(self):
        graphs = self.folder / "graphs"
        graphs.mkdir()
        for name, make in GRAPHS.items():
            make().save(pathlib.Path(graphs / f"{name}.json"), inline=True)
        program = subprocess.Popen([support.BIN / "hpvm-scenario", self.server, SCENARIO, graphs], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        for line in program.stdout:
            if line.strip() == "restart":
                self.restart()
                print("go", file=program.stdin, flush=True)
            else:
                print(line, end="")
        self.assertEqual(program.wait(60), 0)


if __name__ == "__main__":
    support.main()
