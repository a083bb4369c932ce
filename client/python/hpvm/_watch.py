# SPDX-License-Identifier: Apache-2.0
"""Streams of changes, which continue after the server restarts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import grpc

from hpvm import errors
from hpvm._channel import Channel
from hpvm._core import Core, Retries
from hpvm._jobs import has_ended
from hpvm.v1 import job_pb2, record_pb2, service_pb2

if TYPE_CHECKING:
    from hpvm.jobs import Job


class JobChange(NamedTuple):
    """A change of a job. `job` is its present state; None when the job is no longer stored or has left the requested
    states: then `gone_id` names it."""
    job: Any
    gone_id: str
    time: float  # Seconds since 1970; 0 in the first list.
    is_listed: bool  # True for a job of the first list, which has not changed.


class JobsWatch:
    """The position of a watch of jobs. Not thread-safe."""

    METHOD = "WatchJobs"

    def __init__(self, core: Core, states: Sequence[int], labels: Optional[Mapping[str, str]], array: str) -> None:
        self._request = job_pb2.WatchJobsRequest(states=states, labels=labels or {}, array_id=array)  # type: ignore[arg-type]
        self._is_listing = False
        self._seen: Dict[str, int] = {}  # Changes that were reported, so that a list after an outage reports nothing twice.

    def request(self) -> bytes:
        return self._request.SerializeToString()

    def changes(self, message: bytes, make: Callable[[job_pb2.Job], Any]) -> Iterator[JobChange]:
        response = job_pb2.WatchJobsResponse.FromString(message)
        self._is_listing = self._is_listing or response.list_begins
        for change in response.changes:
            if change.HasField("job"):
                if self._seen.get(change.job.id) == change.job.change and change.job.change:
                    continue
                self._seen[change.job.id] = change.job.change
                if has_ended(change.job.state):
                    self._forget()
                yield JobChange(make(change.job), "", change.time_unix_ns / 1e9, self._is_listing)
            else:
                self._seen.pop(change.gone_job_id, None)
                yield JobChange(None, change.gone_job_id, change.time_unix_ns / 1e9, self._is_listing)
        if response.list_ends:
            self._is_listing = False
        if response.cursor:
            self._request.cursor = response.cursor

    def _forget(self) -> None:
        if len(self._seen) > 100_000:
            for job_id in list(self._seen)[:50_000]:
                del self._seen[job_id]


class DevicesWatch:
    """The position of a watch of devices. Not thread-safe."""

    METHOD = "WatchDevices"

    def __init__(self) -> None:
        self._request = service_pb2.WatchDevicesRequest()
        self._last: Optional[bytes] = None

    def request(self) -> bytes:
        return self._request.SerializeToString()

    def devices(self, message: bytes) -> Optional[List[record_pb2.Device]]:
        """Returns the devices; None when nothing about them is new."""
        response = service_pb2.WatchDevicesResponse.FromString(message)
        self._request.cursor = response.cursor
        now = response.now.SerializeToString(deterministic=True)
        if now == self._last:
            return None
        self._last = now
        return list(response.now.devices)


class Outages:
    """Decides whether a watch continues after a failure, and how soon."""

    def __init__(self, core: Core) -> None:
        self._retries = Retries(core.options)

    def answered(self) -> None:
        self._retries.answered()

    def pause_after(self, failure: errors.HpvmError) -> float:
        delay = self._retries.after(failure) if errors.may_retry(failure) else None
        if delay is None:
            raise failure
        return delay


def follow(channel: Channel, core: Core, watch: Any, deadline: Optional[float],
           on_call: Optional[Callable[[Any], None]] = None) -> Iterator[bytes]:
    """Yields the messages of a watch, and continues after outages."""
    outages = Outages(core)
    while True:
        _, metadata = channel.drive(core.sign())
        with channel.stream("/hpvm.v1.Hpvm/" + watch.METHOD, watch.request(), deadline, metadata) as call:
            if on_call is not None:
                on_call(call)
            try:
                for message in call:
                    outages.answered()
                    yield message
                pause = 0.05  # The server ended the watch in order.
            except grpc.RpcError as error:
                pause = outages.pause_after(channel.explain(error))
        if deadline is not None and time.monotonic() + pause >= deadline:
            raise errors.DeadlineExceededError("The watch's timeout passed.")
        time.sleep(pause)


class JobWatcher:
    """Calls the callbacks of jobs that have ended, from one thread that watches all jobs of the tenant. The thread
    lives while callbacks are waiting. Thread-safe."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._waiting: Dict[str, List[Tuple[Any, Callable[[Any], None]]]] = {}
        self._call: Any = None
        self._thread: Optional[threading.Thread] = None

    def add(self, job: "Job", callback: Callable[["Job"], None]) -> None:
        with self._lock:
            self._waiting.setdefault(job.id, []).append((job, callback))
            if self._thread is not None and self._thread.is_alive():
                is_first_of_it = len(self._waiting[job.id]) == 1
            else:
                is_first_of_it = False
                self._thread = threading.Thread(target=self._watch, name="hpvm-jobs", daemon=True)
                self._thread.start()
        if is_first_of_it and job.done():  # The job may have ended before the watch saw it.
            self._ended(job.id, job.message)

    def stop(self) -> None:
        with self._lock:
            self._waiting.clear()
            call = self._call
        if call is not None:
            call.cancel()

    def _ended(self, job_id: str, message: Optional[job_pb2.Job]) -> None:
        """Runs the job's callbacks. Without a message the client cannot tell how the job ended, and the job keeps the
        state last seen."""
        from hpvm.jobs import run_callback
        with self._lock:
            callbacks = self._waiting.pop(job_id, [])
        for job, callback in callbacks:
            job._message = message if message is not None else job._message
            run_callback(callback, job)

    def _set_call(self, call: Any) -> None:
        with self._lock:
            self._call = call

    def _watch(self) -> None:
        watch = JobsWatch(self._client._core, (), None, "")
        try:
            for response in follow(self._client._channel, self._client._core, watch, None, self._set_call):
                for change in watch.changes(response, lambda message: message):
                    if change.job is not None and has_ended(change.job.state):
                        self._ended(change.job.id, change.job)
                    elif change.job is None:
                        self._ended(change.gone_id, None)  # The job is no longer stored.
                with self._lock:
                    if not self._waiting:
                        self._thread = None
                        return
        except errors.HpvmError as failure:
            self._give_up(failure)

    def _give_up(self, failure: errors.HpvmError) -> None:
        """Ends the watch: the server has been gone for longer than the client's patience, or the client was closed."""
        with self._lock:
            job_ids = list(self._waiting)
            self._thread = None
        if not isinstance(failure, errors.ClosedError):
            for job_id in job_ids:
                self._ended(job_id, None)
