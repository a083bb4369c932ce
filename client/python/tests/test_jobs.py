#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs as futures: results, callbacks, arrays, dependencies, watches, progress, dropped jobs and failures."""

import gc
import io
import contextlib
import threading
import unittest

import numpy as np

import support
from support import hpvm

ONE = np.int32([1])


class Jobs(support.WithServer):
    config = "[jobs]\nqueued_per_tenant_max = 20000\nqueued_max = 20000\nkept_max = 20000\n"

    def submit(self, graph, **options):
        return self.client.submit(graph, {"in": ONE}, options=hpvm.SubmitOptions(**options))

    def test_results(self):
        job = self.submit(support.add(41), name="sum", labels={"of": "test"})
        self.assertEqual(job.result(30)["out_out"].tolist(), [42])
        self.assertEqual((job.state, job.name, job.labels), (hpvm.JobState.SUCCEEDED, "sum", {"of": "test"}))
        self.assertIsNone(job.exception())
        self.assertEqual(job.output("out_out").tolist(), [42])
        self.assertEqual(self.client.job(job.id).result()["out_out"].tolist(), [42])
        self.assertIn(job, self.client.jobs(labels={"of": "test"}))
        self.assertEqual(job.retry().result(30)["out_out"].tolist(), [42])
        with self.assertRaises(hpvm.NotFoundError):
            self.client.job("job-none")

    def test_large_inputs_and_outputs(self):
        a = np.arange(1 << 20, dtype="i4")
        outputs = self.client.submit(support.add(1), {"in": a}).result(60)
        np.testing.assert_array_equal(outputs["out_out"], a + 1)

    def test_failures(self):
        job = self.client.submit(support.trap(), {"in": np.int32([0])})
        failure = job.exception(30)
        self.assertIsInstance(failure, hpvm.AbortedError)
        self.assertEqual(failure.job_id, job.id)
        with self.assertRaisesRegex(hpvm.AbortedError, "trapped"):
            job.result()
        with self.assertRaises(hpvm.InvalidArgumentError):
            self.client.submit(support.add(1), {"wrong": ONE})

    def test_one_key_is_one_job(self):
        first, second = (self.submit(support.add(1), key="the-key") for _ in range(2))
        self.assertEqual(first, second)
        with self.assertRaises(hpvm.AlreadyExistsError):
            self.submit(support.add(2), key="the-key")

    def test_waiting_and_cancelling(self):
        job = self.client.submit(support.spin(), {"out": ONE * 0})
        with self.assertRaises(hpvm.DeadlineExceededError):
            job.result(timeout=0.3)
        support.wait_until(job.running, what="the job")
        self.assertFalse(job.done())
        self.assertTrue(job.cancel())
        self.assertEqual(job.wait(30).state, hpvm.JobState.CANCELLED)
        self.assertTrue(job.cancelled())
        with self.assertRaises(hpvm.CancelledError):
            job.result()
        self.assertFalse(job.cancel())

    def test_arrays_and_dependencies(self):
        before = self.submit(support.add(1))
        jobs = self.client.submit_array(support.add(0), range(5, 20, 5), {"in": ONE},
                                        options=hpvm.SubmitOptions(after=[before, (before.id, "ended")]))
        self.assertEqual(len(jobs), 3)
        self.assertEqual([job.state for job in hpvm.wait_all(jobs, 60)], [hpvm.JobState.SUCCEEDED] * 3)
        self.assertEqual([job.refresh().array_index for job in jobs], [5, 10, 15])
        self.assertEqual({job.id for job in self.client.jobs(array=jobs[0].array_id)}, {job.id for job in jobs})
        for wrong in (range(0), range(5, 0, -1), 0, range(-2, 2)):
            with self.assertRaises(ValueError):
                self.client.submit_array(support.add(0), wrong, {"in": ONE})
        with self.assertRaisesRegex(ValueError, "conditions are succeeded"):
            self.submit(support.add(1), after=[(before, "whenever")])

    def test_needs_of_hosts(self):
        sent = hpvm.SubmitOptions(needs=["kind:gpu", "label:lab=a"], host="lab-a", memory=4096).request().host_needs
        self.assertEqual((list(sent.words), sent.host, sent.memory_bytes), (["kind:gpu", "label:lab=a"], "lab-a", 4096))
        self.assertFalse(hpvm.SubmitOptions().request().HasField("host_needs"))
        with self.assertRaisesRegex(ValueError, "a list of words"):
            self.submit(support.add(1), needs="kind:gpu")
        self.assertEqual(self.submit(support.add(1)).host, "")  # The server is not part of a cluster.

    def test_holding(self):
        job = self.submit(support.add(41), held=True)
        self.assertEqual((job.held, job.hold_reason, job.state), (True, "", hpvm.JobState.ACCEPTED))
        self.assertTrue(job.hold("twice"))  # An administrator's hold replaces the tenant's own.
        self.assertFalse(job.hold("three times"))
        self.assertEqual(job.hold_reason, "twice")
        self.assertTrue(job.release())
        self.assertFalse(job.held)
        self.assertEqual(job.result(30)["out_out"].tolist(), [42])
        for call in (job.hold, job.release):
            with self.assertRaises(hpvm.FailedPreconditionError):
                call()
        first = self.submit(support.busy(300))
        job = self.submit(support.add(1), after=[first])
        self.assertTrue(job.hold("its data comes at noon"))
        self.assertEqual(self.client.job(job.id).hold_reason, "its data comes at noon")
        first.wait(60)
        self.assertTrue(self.client.job(job.id).held)
        self.assertEqual(self.client.release_jobs(job.id), 1)
        self.assertEqual(job.refresh().result(30)["out_out"].tolist(), [2])

    def test_holding_arrays(self):
        jobs = self.client.submit_array(support.add(1), 3, {"in": ONE}, options=hpvm.SubmitOptions(held=True))
        array = jobs[0].refresh().array_id
        self.assertEqual([self.client.hold_jobs(array), self.client.hold_jobs(array)], [3, 0])
        self.assertEqual(self.client.release_jobs(array), 3)
        self.assertEqual([job.state for job in hpvm.wait_all(jobs, 60)], [hpvm.JobState.SUCCEEDED] * 3)
        with self.assertRaises(hpvm.NotFoundError):
            self.client.hold_jobs("array-none")

    def test_callbacks(self):
        told, threads = [], set()

        def callback(job):
            told.append(job.id)
            threads.add(threading.current_thread())

        jobs = [self.submit(support.add(i)) for i in range(20)]
        for job in jobs:
            job.add_done_callback(callback)
            job.add_done_callback(callback)
        support.wait_until(lambda: len(told) == 40, 60, "40 callbacks")
        self.assertEqual(sorted(told), sorted([job.id for job in jobs] * 2))
        jobs[0].add_done_callback(callback)  # The job has ended, so that the callback runs at once.
        self.assertEqual(told[-1], jobs[0].id)
        old = self.client.job(jobs[1].id)
        old._message.state = 3  # The job looks as if it was last seen while it ran.
        old.add_done_callback(callback)
        support.wait_until(lambda: told[-1] == old.id and len(told) == 42, what="the late callback")

    def test_a_callback_that_raises(self):
        told = threading.Event()
        job = self.submit(support.busy(30))

        def wrong(_):
            raise RuntimeError("of the callback's own")

        with self.assertLogs("hpvm", "ERROR") as log:
            job.add_done_callback(wrong)
            job.add_done_callback(lambda _: told.set())
            self.assertTrue(told.wait(60))
        self.assertIn("of the callback's own", log.output[0])
        self.assertEqual(self.submit(support.add(1)).result(30)["out_out"].tolist(), [2])

    def test_as_completed(self):
        slow, quick = self.submit(support.busy(300)), self.submit(support.add(1))
        order = [job.id for job in hpvm.as_completed([slow, quick], 60)]
        self.assertEqual(order, [quick.id, slow.id])
        endless = self.client.submit(support.spin(), {"out": ONE * 0})
        with self.assertRaisesRegex(hpvm.DeadlineExceededError, "0 of 1 jobs had ended"):
            list(hpvm.as_completed([endless], 0.3))
        endless.cancel()

    def test_watching(self):
        earlier = self.submit(support.add(1))
        earlier.wait(30)
        seen, is_listed = [], {}
        watch = self.client.watch_jobs(timeout=60)
        first = next(watch)
        job = self.submit(support.add(1), labels={"late": "yes"})
        for change in self.until(watch, job, [first]):
            if change.job is not None:
                seen.append((change.job.id, change.job.state))
                is_listed[change.job.id] = change.is_listed
        self.assertIn((earlier.id, hpvm.JobState.SUCCEEDED), seen)
        self.assertEqual(seen[-1], (job.id, hpvm.JobState.SUCCEEDED))
        self.assertEqual(len(seen), len(set(seen)))
        self.assertTrue(is_listed[earlier.id])
        self.assertFalse(is_listed[job.id])

    @staticmethod
    def until(watch, job, changes):
        for change in watch:
            changes.append(change)
            if change.job == job and change.job.state.has_ended:
                return changes

    def test_progress(self):
        job = self.submit(support.busy(100), name="measured")
        text = io.StringIO()
        with contextlib.redirect_stderr(text):
            job.result(60, progress=True)
        self.assertIn("measured", text.getvalue())  # tqdm's bar.

    def test_ten_thousand_futures_dropped(self):
        threads = threading.active_count()
        graph = support.add(1)
        total = 0
        for _ in range(10):
            total += len(self.client.submit_array(graph, 1000, {"in": ONE}))
        self.assertEqual(total, 10_000)
        one = self.submit(graph)
        for _ in range(3):
            one.add_done_callback(lambda _: None)
        del one
        gc.collect()
        self.assertLessEqual(threading.active_count(), threads + 4)  # A future needs no thread.
        support.wait_until(lambda: not self.client.jobs(states=[hpvm.JobState.QUEUED, hpvm.JobState.RUNNING], count_max=1), 200,
                           "the end of all")
        self.assertEqual(self.submit(graph).result(30)["out_out"].tolist(), [2])


if __name__ == "__main__":
    support.main()
