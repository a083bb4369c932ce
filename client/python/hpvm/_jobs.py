# SPDX-License-Identifier: Apache-2.0
"""The steps of operations on jobs."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from hpvm import _arrays, _memory, _wire, errors
from hpvm._channel import Pause, Steps
from hpvm._core import Core, Retries, new_key, request_options
from hpvm._runs import INLINE_BYTES_MAX, INLINE_TOTAL_BYTES_MAX, is_buffer
from hpvm.v1 import job_pb2, tensor_pb2

if TYPE_CHECKING:
    from hpvm.jobs import Job

_CONDITIONS = {"succeeded": 1, "ended": 2, "failed": 3}


@dataclasses.dataclass
class SubmitOptions:
    """Options of a job besides its graph and inputs."""
    name: str = ""  # For people.
    symbols: Mapping[str, int] = dataclasses.field(default_factory=dict)
    repeat: int = 1
    rotations: Mapping[str, str] = dataclasses.field(default_factory=dict)
    until: str = ""
    deadline: Optional[float] = None  # Seconds.
    priority: int = 0
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    key: str = ""  # The idempotency key; "": a random key.
    #: Jobs that must end first: jobs, ids, or pairs of these with "succeeded" (the default), "ended" or "failed".
    after: Sequence[Any] = ()
    attempts_max: int = 0  # Attempts that may be lost with executors and servers; 0: the server's default.
    traceparent: str = ""
    held: bool = False  # The job does not start until `Job.release`.
    #: Words that the host must have, in a cluster: "kind:gpu", "label:lab=a". The job waits while no host has them all.
    needs: Sequence[str] = ()
    host: str = ""  # The only host of a cluster that may run the job; "": any.
    memory: int = 0  # Bytes of the host's memory that other jobs have not claimed.

    def request(self) -> job_pb2.SubmitRequest:
        request = job_pb2.SubmitRequest(
            options=request_options(deadline=self.deadline, priority=self.priority, labels=self.labels,
                                    key=self.key or new_key(), traceparent=self.traceparent),
            symbols=dict(self.symbols), repeat=self.repeat, until=self.until, name=self.name, held=self.held)
        for output, source in self.rotations.items():
            request.rotations.add(output=output, input=source)
        for item in self.after:
            job, condition = item if isinstance(item, tuple) else (item, "succeeded")
            if condition not in _CONDITIONS:
                raise ValueError(f"A job cannot come after another's {condition!r}; conditions are {', '.join(_CONDITIONS)}.")
            request.after.add(job_id=getattr(job, "id", job), condition=_CONDITIONS[condition])  # type: ignore[arg-type]
        if self.attempts_max:
            request.retry.attempts_max = self.attempts_max
        if isinstance(self.needs, str):
            raise ValueError(f"needs is a list of words, and not the text {self.needs!r}.")
        if self.needs or self.host or self.memory:
            request.host_needs.CopyFrom(job_pb2.HostNeeds(words=self.needs, host=self.host, memory_bytes=self.memory))
        return request


@dataclasses.dataclass
class ArrayOptions:
    """The indices of an array of jobs."""
    first: int
    last: int
    step: int
    symbol: str
    running_max: int
    index_inputs: Sequence[str]

    @classmethod
    def of(cls, array: Union[range, int], symbol: str, running_max: int, index_inputs: Sequence[str]) -> "ArrayOptions":
        indices = range(array) if isinstance(array, int) else array
        if len(indices) == 0 or indices.step < 1 or indices.start < 0:
            raise ValueError(f"{array!r} is not an array of jobs: it has to have at least one index, and its indices have to rise and not be below 0.")
        return cls(indices.start, indices[-1], indices.step, symbol, running_max, index_inputs)


def stub_of(job_id: str) -> job_pb2.Job:
    """Returns a job of which only the id is known yet."""
    return job_pb2.Job(id=job_id)


def _bind(core: Core, inputs: Mapping[str, Any], created: List[str],
          deadline: Optional[float]) -> "Steps[List[Tuple[str, Any]]]":
    """Binds each input inline or in a buffer; returns the parts of the message."""
    parts: List[Any] = []
    total = 0
    for name, value in inputs.items():
        if is_buffer(value):
            parts.append((name, value._hpvm_view()))
            continue
        array, number = _arrays.as_tensor(value, f"Input {name!r}")
        if array.nbytes <= INLINE_BYTES_MAX and total + array.nbytes <= INLINE_TOTAL_BYTES_MAX:
            total += array.nbytes
            parts.append((name, (array, number)))
            continue
        buffer = yield from _memory.create(core, number, array.shape, deadline)
        created.append(buffer.id)
        yield from _memory.write(core, buffer.id, _arrays.view_of(array), 0, deadline)
        parts.append((name, buffer.id))
    return parts


def _put_bindings(request: job_pb2.SubmitRequest, parts: List[Tuple[str, Any]]) -> None:
    for name, what in parts:
        binding = request.inputs.add(name=name)
        if isinstance(what, str):
            binding.buffer.buffer_id = what
        elif isinstance(what, tuple):
            array, number = what
            binding.tensor.type = number
            binding.tensor.shape.extend(array.shape)
            binding.tensor.data = bytes(_arrays.view_of(array))
        else:
            binding.buffer.CopyFrom(what)


def submit(core: Core, documents: Tuple[str, Mapping[str, bytes], Mapping[str, str]], inputs: Mapping[str, Any],
           options: SubmitOptions, spread: Optional[ArrayOptions],
           deadline: Optional[float]) -> "Steps[job_pb2.SubmitResponse]":
    """Submits one job, or an array of jobs. After a restart the server receives everything again under the same key."""
    request = options.request()
    if spread is not None:
        request.array.CopyFrom(job_pb2.JobArray(first=spread.first, last=spread.last, step=spread.step,
                                                running_max=spread.running_max, symbol=spread.symbol))

    def once() -> "Steps[job_pb2.SubmitResponse]":
        created: List[str] = []
        try:
            request.document.CopyFrom((yield from core.put_graph(*documents, deadline)))
            del request.inputs[:]
            _put_bindings(request, (yield from _bind(core, inputs, created, deadline)))
            for name in spread.index_inputs if spread is not None else ():
                request.inputs.add(name=name, array_index=True)
            return (yield from core.once("Submit", request, job_pb2.SubmitResponse, deadline))
        finally:
            if created:  # Jobs keep the buffers that they need.
                yield from _memory.delete_all(core, created, time.monotonic() + 5)

    for tries in range(2):
        try:
            return (yield from core.keep_trying(once, deadline))
        except errors.NotFoundError:
            if tries == 1:
                raise
    raise AssertionError("not reached")


def get(core: Core, job_id: str, deadline: Optional[float]) -> "Steps[job_pb2.Job]":
    request = job_pb2.GetJobRequest(job_id=job_id)
    return (yield from core.call("GetJob", request, job_pb2.GetJobResponse, deadline)).job


def list_jobs(core: Core, states: Sequence[int], labels: Optional[Mapping[str, str]], array: str, count_max: Optional[int],
              deadline: Optional[float]) -> "Steps[List[job_pb2.Job]]":
    request = job_pb2.ListJobsRequest(states=states, labels=labels or {}, array_id=array)  # type: ignore[arg-type]
    return (yield from core.pages("ListJobs", request, job_pb2.ListJobsResponse, "jobs", deadline, count_max))


def cancel(core: Core, job_id: str, deadline: Optional[float]) -> "Steps[job_pb2.Job]":
    request = job_pb2.CancelJobRequest(job_id=job_id)
    return (yield from core.call("CancelJob", request, job_pb2.CancelJobResponse, deadline)).job


def retry(core: Core, job_id: str, key: str, deadline: Optional[float]) -> "Steps[job_pb2.Job]":
    request = job_pb2.RetryJobRequest(options=request_options(key=key or new_key()), job_id=job_id)
    return (yield from core.call("RetryJob", request, job_pb2.SubmitResponse, deadline)).job


def set_hold(core: Core, job_id: str, held: bool, reason: str,
             deadline: Optional[float]) -> "Steps[job_pb2.SetJobHoldResponse]":
    request = job_pb2.SetJobHoldRequest(job_id=job_id, held=held, reason=reason)
    return (yield from core.call("SetJobHold", request, job_pb2.SetJobHoldResponse, deadline))


def has_ended(state: int) -> bool:
    return job_pb2.JOB_STATE_SUCCEEDED <= state <= job_pb2.JOB_STATE_DEAD


def wait(core: Core, job_id: str, on_event: Optional[Callable[[job_pb2.JobEvent], None]],
         deadline: Optional[float]) -> "Steps[job_pb2.Job]":
    """Waits until the job has ended. The job survives the server, so that the wait goes on over an outage."""
    retries = Retries(core.options)
    after = 0
    ended = False

    def take(message: bytes) -> Optional[bool]:
        nonlocal after, ended
        event = job_pb2.JobEvent.FromString(message)
        retries.answered()
        after = max(after, event.sequence)
        if on_event is not None:
            on_event(event)
        if event.HasField("job") and has_ended(event.job.state):
            ended = True
            return False
        return None

    while not ended:
        try:
            yield from core.download("WatchJob", job_pb2.WatchJobRequest(job_id=job_id, after_sequence=after), take, deadline)
            job = yield from get(core, job_id, deadline)
            ended = has_ended(job.state)
        except errors.HpvmError as failure:
            delay = retries.after(failure) if errors.may_retry(failure) else None
            if delay is None:
                raise
            after = 0  # A restarted server counts its events anew.
            yield Pause(delay)
    return (yield from get(core, job_id, deadline))


def fetch(core: Core, job_id: str, name: str, deadline: Optional[float]) -> "Steps[np.ndarray[Any, Any]]":
    """Returns one output of a job that succeeded. Resumes where a broken stream ended."""
    array: Optional[np.ndarray[Any, Any]] = None
    filled = 0

    def take(message: bytes) -> None:
        nonlocal array, filled
        head = _wire.last_bytes(message, 1)
        if array is None and len(head) > 0:
            stored = tensor_pb2.StoredOutput.FromString(bytes(head))
            array = _memory.empty_of(stored.type, tuple(stored.shape))
        part = _wire.last_bytes(message, 2)
        if len(part) > 0:
            into = _arrays.view_of(array) if array is not None else memoryview(b"")
            if len(part) > len(into) - filled:
                raise errors.DataLossError(f'The server sent more than output "{name}" has.')
            into[filled:filled + len(part)] = part
            filled += len(part)

    def once() -> "Steps[None]":
        yield from core.download("FetchOutput", job_pb2.FetchOutputRequest(job_id=job_id, name=name, offset=filled), take, deadline)

    yield from core.keep_trying(once, deadline)
    if array is None or filled != array.nbytes:
        raise errors.DataLossError(f'The server sent {filled} bytes of output "{name}", which is not all of it.')
    return array




def outputs_of(core: Core, job: job_pb2.Job, deadline: Optional[float]) -> "Steps[Dict[str, np.ndarray[Any, Any]]]":
    """Returns all outputs of a job that succeeded."""
    outputs = {}
    for value in job.outputs:
        if value.HasField("tensor"):
            outputs[value.name] = _arrays.from_bytes(value.tensor.data, value.tensor.type, tuple(value.tensor.shape))
        else:
            outputs[value.name] = yield from fetch(core, job.id, value.name, deadline)
    return outputs


def failure_of(job: job_pb2.Job) -> Optional[errors.HpvmError]:
    """Returns the reason why a job that has ended did not succeed; None when it did."""
    if job.state == job_pb2.JOB_STATE_SUCCEEDED:
        return None
    failure = errors.from_status(job.error)
    if failure is None:
        state = job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_")
        failure = errors.make(1 if job.state == job_pb2.JOB_STATE_CANCELLED else 2, f"The job ended as {state}.")
    failure.job_id = job.id
    return failure
