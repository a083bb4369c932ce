#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio."""

import asyncio
import time
import unittest

import numpy as np

import support
from support import hpvm

ZERO = {"out": np.zeros(1, "i4")}


class Async(support.WithServer):
    def go(self, work):
        async def main():
            async with await hpvm.aio.connect(self.server) as client:
                return await work(client)
        return asyncio.run(main())

    def running_now(self):
        return {r.resource: r.used for r in self.client.admin.usage().resources}["running-jobs"]

    def test_runs_side_by_side(self):
        async def work(client):
            async with await client.prepare(support.matmul()) as matmul:
                one = np.ones((2, 2), "f4")
                results = await asyncio.gather(*(matmul.run(A=one * i, B=one) for i in range(50)))
                self.assertEqual([float(result["C"][0, 0]) for result in results], [2.0 * i for i in range(50)])
                large = np.ones((700, 700), "f4")
                for _ in range(3):
                    results = await asyncio.gather(*(matmul.run(A=large * i, B=large) for i in range(4)))
                self.assertEqual([float(result["C"][5, 5]) for result in results], [700.0 * i for i in range(4)])
                many = await matmul.run_many([{"A": one * i, "B": one} for i in range(3)])
                self.assertEqual(float(many[2]["C"][0, 0]), 4)
        self.go(work)

    def test_inputs_with_names_of_options(self):
        document = support.add(4).to_dict()
        document["inputs"] = {"timeout": document["inputs"]["in"]}
        next(edge for edge in document["edges"] if edge["from"] == "in")["from"] = "timeout"
        one = np.int32([1])

        async def work(client):
            async with await client.prepare(document, modules=support.KERNELS) as prepared:
                self.assertEqual((await prepared.run({"timeout": one}, timeout=30))["out_out"].tolist(), [5])
                with self.assertRaisesRegex(hpvm.InvalidArgumentError, 'input "timeout", and run has an option of that name'):
                    await prepared.run(timeout=one)
                with self.assertRaisesRegex(hpvm.InvalidArgumentError, 'input "timeout", and submit has an option'):
                    await client.submit(prepared, timeout=one)
        self.go(work)

    def test_buffers(self):
        async def work(client):
            matmul = await client.prepare(support.matmul())
            async with await client.buffer(np.ones((3, 3), "f4")) as left, await client.empty((3, 3)) as out:
                await matmul.run(A=left, B=left, out={"C": out})
                self.assertTrue((await out.read() == 3).all())
                await left.write(np.full(9, 2, "f4"))
                kept = (await matmul.run(A=left.view((3, 3)), B=left, out={"C": hpvm.NEW_BUFFER}))["C"]
                self.assertTrue((await kept.read() == 12).all())
                await kept.delete()
        self.go(work)

    def test_jobs(self):
        async def work(client):
            job = await client.submit(support.add(4), {"in": np.int32([1])})
            self.assertEqual((await job)["out_out"].tolist(), [5])
            self.assertEqual(job.state, hpvm.JobState.SUCCEEDED)
            self.assertEqual((await (await client.job(job.id)).output("out_out")).tolist(), [5])
            self.assertIn(job, await client.jobs())
            endless = await client.submit(support.spin(), ZERO)
            with self.assertRaises(hpvm.DeadlineExceededError):
                await endless.wait(0.3)
            await endless.cancel()
            self.assertEqual((await endless.wait(20)).state, hpvm.JobState.CANCELLED)
            with self.assertRaises(hpvm.AbortedError):
                await (await client.submit(support.trap(), {"in": np.int32([0])}))
        self.go(work)

    def test_holding(self):
        async def work(client):
            options = hpvm.SubmitOptions(held=True)
            job = await client.submit(support.add(4), {"in": np.int32([1])}, options=options)
            self.assertTrue(job.held)
            self.assertEqual([await job.hold(), await job.hold()], [True, False])  # The first is the administrator's.
            self.assertTrue(await job.release())
            self.assertEqual((await job)["out_out"].tolist(), [5])
            job = await client.submit(support.add(4), {"in": np.int32([1])}, options=options)
            self.assertEqual((await client.hold_jobs(job.id, "a reason"), await client.release_jobs(job.id)), (1, 1))
            self.assertEqual((await job)["out_out"].tolist(), [5])
        self.go(work)

    def test_what_the_tenant_holds(self):
        async def work(client):
            digest = await client.put_module(support.KERNELS["k"])
            self.assertIn(digest, [module.sha256 for module in await client.modules()])
            mine = await client.prepare(support.add(4).to_dict(), hashes={"k": digest})
            graph = next(graph for graph in await client.prepared_graphs() if graph.handle == mine.handle)
            await client.release_graph(graph)
            kept = await client.empty((4,))
            await client.delete_buffer(kept.id)
            self.assertNotIn(kept.id, [buffer.id for buffer in await client.buffers()])
            left = {module.sha256: module for module in await client.modules()}
            if not left[digest].in_use:  # Jobs of other tests may still use it.
                self.assertGreater(await client.delete_module(left[digest]), 0)
            self.assertIn("modules", [item.resource for item in (await client.usage()).resources])
        self.go(work)

    def test_a_cancelled_task_ends_its_run(self):
        async def work(client):
            spin = await client.prepare(support.spin())
            task = asyncio.create_task(spin.run(ZERO))
            while self.running_now() == 0:
                await asyncio.sleep(0.02)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises((TimeoutError, asyncio.TimeoutError)):
                await asyncio.wait_for(spin.run(ZERO), 0.3)
            with self.assertRaises(hpvm.DeadlineExceededError):
                await spin.run(ZERO, timeout=0.3)
        self.go(work)
        support.wait_until(lambda: self.running_now() == 0, what="the end of all runs")

    def test_thousands_of_cancelled_tasks_do_not_end_the_connection(self):
        async def work(client):
            spin = await client.prepare(support.spin())
            job = await client.submit(support.busy(20), {"in": np.int32([1])})
            watched = asyncio.create_task(job.wait(60))
            for _ in range(40):
                tasks = [asyncio.create_task(spin.run(ZERO)) for _ in range(50)]
                await asyncio.sleep(0.01)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self.assertTrue(all(task.cancelled() for task in tasks))
            # A run that waits for its turn has its deadline too.
            waiting = [asyncio.create_task(spin.run(ZERO, timeout=5)) for _ in range(200)]
            with self.assertRaises(hpvm.DeadlineExceededError):
                await spin.run(ZERO, timeout=0.2)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            async with await client.prepare(support.matmul()) as matmul:
                one = np.ones((2, 2), "f4")
                self.assertEqual(float((await matmul.run(A=one, B=one))["C"][0, 0]), 2)
            await watched
        log = self.daemon.log.read_text()
        self.go(work)
        self.assertNotIn("reason=resets", self.daemon.log.read_text()[len(log):])
        support.wait_until(lambda: self.running_now() == 0, what="the end of all runs")

    def test_the_loop_is_never_held_up(self):
        async def work(client):
            busy = await client.prepare(support.busy(200))
            longest, last, done = 0.0, time.monotonic(), False

            async def tick():
                nonlocal longest, last
                while not done:
                    await asyncio.sleep(0.005)
                    longest, last = max(longest, time.monotonic() - last), time.monotonic()

            ticking = asyncio.create_task(tick())
            await busy.run({"in": np.int32([1])})
            done = True
            await ticking
            return longest
        self.assertLess(self.go(work), 0.5)

    def test_watching(self):
        async def work(client):
            job = await client.submit(support.busy(20), {"in": np.int32([1])})
            async for change in client.watch_jobs(timeout=60):
                if change.job == job and change.job.state.has_ended:
                    break
            async for devices in client.watch_devices(timeout=20):
                return [device.id for device in devices]
        self.assertEqual(self.go(work), ["cpu:0"])

    def test_closed(self):
        async def main():
            client = await hpvm.aio.connect(self.server)
            spin = await client.prepare(support.spin())
            task = asyncio.create_task(spin.run(ZERO))
            while self.running_now() == 0:
                await asyncio.sleep(0.02)
            await client.close()
            await client.close()
            with self.assertRaises(hpvm.ClosedError):
                await task
            with self.assertRaises(hpvm.ClosedError):
                await client.devices()
            with self.assertRaises(hpvm.UnavailableError):
                await hpvm.aio.connect("unix:/nowhere", connect_timeout=0.3)
        asyncio.run(main())
        support.wait_until(lambda: self.running_now() == 0, what="the end of all runs")


if __name__ == "__main__":
    support.main()
