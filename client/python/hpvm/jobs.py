# SPDX-License-Identifier: Apache-2.0
"""Jobs as futures."""

from __future__ import annotations

import enum
import logging
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from hpvm import _jobs, errors
from hpvm._runs import deadline_of
from hpvm.progress import Progress
from hpvm.results import Log, Timing
from hpvm.v1 import job_pb2

_log = logging.getLogger("hpvm")
_LOOKS_EVERY_S = 0.5  # Interval of checks for a client that was closed.


class JobState(enum.IntEnum):
    """The state of a job. docs/JOBS.md explains each."""
    UNKNOWN = 0
    ACCEPTED = 1
    QUEUED = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    EXPIRED = 7
    DEAD = 8

    @property
    def has_ended(self) -> bool:
        return self >= JobState.SUCCEEDED


class JobFacts:
    """The state of a job as last seen."""

    def __init__(self, message: job_pb2.Job) -> None:
        self._message = message

    @property
    def id(self) -> str:
        return str(self._message.id)

    @property
    def name(self) -> str:
        return str(self._message.name)

    @property
    def state(self) -> JobState:
        """The state last seen; `refresh` updates it."""
        return JobState(self._message.state) if self._message.state in JobState._value2member_map_ else JobState.UNKNOWN

    @property
    def labels(self) -> Dict[str, str]:
        return dict(self._message.labels)

    @property
    def array_id(self) -> str:
        """The id of the array to which the job belongs; "" outside of arrays."""
        return str(self._message.array_id)

    @property
    def array_index(self) -> int:
        return int(self._message.array_index)

    @property
    def attempt(self) -> int:
        return int(self._message.attempt)

    @property
    def held(self) -> bool:
        """True while `hold` keeps the job from starting, as last seen."""
        return self._message.HasField("hold")

    @property
    def hold_reason(self) -> str:
        """The reason that `hold` was given; "" without one."""
        return str(self._message.hold.reason)

    @property
    def host(self) -> str:
        """In a cluster: the host that runs the job, or ran its last attempt; "" before, and without a cluster."""
        return str(self._message.host)

    @property
    def log(self) -> Log:
        """The output that the job's kernels printed."""
        return Log.of(self._message.log)

    @property
    def timing(self) -> Timing:
        return Timing.of(self._message.timing)

    @property
    def message(self) -> job_pb2.Job:
        """The server's message about the job, with all its fields."""
        return self._message

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobFacts) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<{type(self).__name__} {self.id}{name} {self.state.name}>"


class Job(JobFacts):
    """A job on the server, as a future. Dropping it changes nothing: the job goes on."""

    def __init__(self, client: Any, message: job_pb2.Job) -> None:
        super().__init__(message)
        self._client = client

    def _core(self) -> Any:
        return self._client._core

    def refresh(self, *, timeout: Optional[float] = None) -> "Job":
        """Asks the server for the job's present state."""
        self._message = self._client._drive(_jobs.get(self._core(), self.id, deadline_of(timeout)))
        return self

    def done(self) -> bool:
        """Returns true if the job has ended, in whatever state. Asks the server until the end is known."""
        return self.state.has_ended or self.refresh().state.has_ended

    def running(self) -> bool:
        return self.refresh().state == JobState.RUNNING

    def cancelled(self) -> bool:
        return self.done() and self.state == JobState.CANCELLED

    def wait(self, timeout: Optional[float] = None, *, progress: bool = False) -> "Job":
        """Waits until the job has ended, in whatever state. Raises DeadlineExceededError when `timeout` seconds pass
        first; the job goes on. `progress` shows a bar: tqdm's if it is installed."""
        if self.state.has_ended:
            return self
        with Progress(progress, self.name or self.id) as bar:
            self._message = self._client._drive(_jobs.wait(self._core(), self.id, bar.event, deadline_of(timeout)))
        return self

    def result(self, timeout: Optional[float] = None, *, progress: bool = False) -> Mapping[str, Any]:
        """Returns the outputs as numpy arrays, by name; raises the job's failure. Waits until the job has ended."""
        deadline = deadline_of(timeout)
        failure = self.exception(timeout, progress=progress)
        if failure is not None:
            raise failure
        return self._client._drive(_jobs.outputs_of(self._core(), self._message, deadline))  # type: ignore[no-any-return]

    def exception(self, timeout: Optional[float] = None, *, progress: bool = False) -> Optional[errors.HpvmError]:
        """Returns the reason why the job did not succeed; None when it did. Waits until the job has ended."""
        self.wait(timeout, progress=progress)
        if not self._message.HasField("timing") and not self._message.graph_sha256:
            self.refresh()
        return _jobs.failure_of(self._message)

    def output(self, name: str, *, timeout: Optional[float] = None) -> Any:
        """Returns one output of a job that succeeded."""
        return self._client._drive(_jobs.fetch(self._core(), self.id, name, deadline_of(timeout)))

    def cancel(self, *, timeout: Optional[float] = None) -> bool:
        """Asks the server to cancel the job; returns False when it has ended already. A job that is just ending may
        still succeed."""
        if self.done():
            return False
        self._message = self._client._drive(_jobs.cancel(self._core(), self.id, deadline_of(timeout)))
        return True

    def hold(self, reason: str = "", *, timeout: Optional[float] = None) -> bool:
        """Keeps a job that has not started from starting, until `release`. Its deadline goes on. Returns False when it
        was held already (an administrator's hold replaces the tenant's own); raises FailedPreconditionError when it
        runs or has ended. `reason`: for people; at most 255 bytes."""
        return self._set_hold(True, reason, timeout)

    def release(self, *, timeout: Optional[float] = None) -> bool:
        """Lets a held job start. Returns False when it was not held. Raises PermissionDeniedError when an administrator
        holds it and the caller is none."""
        return self._set_hold(False, "", timeout)

    def _set_hold(self, held: bool, reason: str, timeout: Optional[float]) -> bool:
        response = self._client._drive(_jobs.set_hold(self._core(), self.id, held, reason, deadline_of(timeout)))
        self._message = response.job
        return bool(response.changed)

    def retry(self, *, key: str = "", timeout: Optional[float] = None) -> "Job":
        """Submits this finished job again with the same graph, inputs and options."""
        return Job(self._client, self._client._drive(_jobs.retry(self._core(), self.id, key, deadline_of(timeout))))

    def add_done_callback(self, callback: Callable[["Job"], None]) -> None:
        """Calls `callback(job)` when the job has ended, from a thread of the client; at once if it has ended already.
        The callback also runs when the end can no longer be learnt: the job is no longer stored, or no server answered
        for the client's patience; then `result` raises that failure. It does not run when the client is closed.
        Exceptions of callbacks are logged. All callbacks of a client share one watch."""
        if self.state.has_ended:
            run_callback(callback, self)
        else:
            self._client._watcher.add(self, callback)


def run_callback(callback: Callable[[Job], None], job: Job) -> None:
    try:
        callback(job)
    except Exception:
        _log.exception("A callback of %r raised.", job)


def as_completed(jobs: Sequence[Job], timeout: Optional[float] = None) -> Iterator[Job]:
    """Yields the jobs in the order in which they end."""
    import queue
    ended: "queue.Queue[Job]" = queue.Queue()
    deadline = deadline_of(timeout)
    for job in jobs:
        job.add_done_callback(ended.put)
    for count in range(len(jobs)):
        while True:
            left = _LOOKS_EVERY_S if deadline is None else min(_LOOKS_EVERY_S, deadline - time.monotonic())
            try:
                yield ended.get(timeout=max(0.001, left))
                break
            except queue.Empty:
                for job in jobs:
                    job._client._channel.check_open()  # Raises ClosedError: no further ends will be reported.
                if deadline is not None and time.monotonic() >= deadline:
                    raise errors.DeadlineExceededError(
                        f"{count} of {len(jobs)} jobs had ended after {timeout:g} s; the other jobs go on.") from None


def wait_all(jobs: Sequence[Job], timeout: Optional[float] = None, *, progress: bool = False) -> List[Job]:
    """Waits until all jobs have ended, in whatever state."""
    with Progress(progress, f"{len(jobs)} jobs") as bar:
        for count, _ in enumerate(as_completed(jobs, timeout)):
            bar.update(count + 1, len(jobs))
    return list(jobs)
