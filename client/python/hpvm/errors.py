# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each carries the server's code, its message, and its diagnostics with their places in the document."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Type

import grpc

from hpvm.v1 import common_pb2


class Diagnostic(NamedTuple):
    """A fault that the server found.

    `place` is a JSON pointer into the graph document (RFC 6901), or an item that the message names; "" when there is
    none."""

    message: str
    place: str = ""
    severity: str = "error"  # Or "warning".
    offset: Optional[int] = None  # A byte of a module.

    def __str__(self) -> str:
        where = self.place + (f" at byte {self.offset}" if self.offset is not None else "")
        return f"{where}: {self.message}" if where else self.message


class HpvmError(Exception):
    """A call that failed. The subclass tells the kind of failure; `str()` is the whole text, diagnostics included."""

    code = "UNKNOWN"

    def __init__(self, message: str, *, diagnostics: Optional[List[Diagnostic]] = None, job_id: str = "",
                 retryable: bool = False, retry_after: float = 0.0, log: Any = None) -> None:
        super().__init__(message)
        self.message = message
        #: Diagnostics of the server, with places in the document.
        self.diagnostics: List[Diagnostic] = diagnostics or []
        #: The id of the job that failed; "" outside of jobs.
        self.job_id = job_id
        #: True if the same call may succeed later; `retry_after` is the pause in seconds.
        self.retryable = retryable
        self.retry_after = retry_after
        #: The output that the kernels had printed when a run failed (`log=True`), else None.
        self.log = log

    def __str__(self) -> str:
        lines = [self.message]
        for diagnostic in self.diagnostics:
            if diagnostic.message not in self.message:
                lines.append(str(diagnostic))
        return "\n".join(lines)

    def __reduce__(self) -> Any:  # For process pools.
        return _rebuild, (type(self), self.message, {
            "diagnostics": self.diagnostics, "job_id": self.job_id, "retryable": self.retryable,
            "retry_after": self.retry_after})


def _rebuild(kind: Type[HpvmError], message: str, facts: Dict[str, Any]) -> HpvmError:
    return kind(message, **facts)


class CancelledError(HpvmError):
    """The call, run or job was cancelled."""
    code = "CANCELLED"


class UnknownError(HpvmError):
    """The failure has no kind of its own."""


class InvalidArgumentError(HpvmError, ValueError):
    """The request, graph or module is wrong in itself."""
    code = "INVALID_ARGUMENT"


class DeadlineExceededError(HpvmError, TimeoutError):
    """The deadline has passed. A job goes on unless the deadline was its own."""
    code = "DEADLINE_EXCEEDED"


class NotFoundError(HpvmError, LookupError):
    """The job, buffer, graph or module does not exist."""
    code = "NOT_FOUND"


class AlreadyExistsError(HpvmError):
    code = "ALREADY_EXISTS"


class PermissionDeniedError(HpvmError):
    """The caller is known but lacks the permission."""
    code = "PERMISSION_DENIED"


class UnauthenticatedError(HpvmError):
    """The server does not know the caller, or the client does not trust the server."""
    code = "UNAUTHENTICATED"


class ResourceExhaustedError(HpvmError):
    """A quota or the server's memory is used up."""
    code = "RESOURCE_EXHAUSTED"


class FailedPreconditionError(HpvmError):
    """The state of the requested object does not allow the call."""
    code = "FAILED_PRECONDITION"


class AbortedError(HpvmError):
    """A kernel trapped, or work was stopped before its end."""
    code = "ABORTED"


class OutOfRangeError(HpvmError):
    code = "OUT_OF_RANGE"


class UnimplementedError(HpvmError):
    """The server lacks the requested feature."""
    code = "UNIMPLEMENTED"


class InternalError(HpvmError):
    """A fault of hpvmd itself."""
    code = "INTERNAL"


class UnavailableError(HpvmError, ConnectionError):
    """No server answers, or the server cannot answer at present."""
    code = "UNAVAILABLE"


class DataLossError(HpvmError):
    """Stored or transmitted data are damaged."""
    code = "DATA_LOSS"


class ClosedError(HpvmError):
    """The client was closed."""
    code = "CANCELLED"


class PreparedAgainWarning(UserWarning):
    """The server has restarted since the graph was prepared; the client prepared the graph again before the run."""


# Indexed by the numbers of google.rpc.Code.
_KINDS: Dict[int, Type[HpvmError]] = {
    1: CancelledError, 2: UnknownError, 3: InvalidArgumentError, 4: DeadlineExceededError, 5: NotFoundError,
    6: AlreadyExistsError, 7: PermissionDeniedError, 8: ResourceExhaustedError, 9: FailedPreconditionError,
    10: AbortedError, 11: OutOfRangeError, 12: UnimplementedError, 13: InternalError, 14: UnavailableError,
    15: DataLossError, 16: UnauthenticatedError,
}
_DETAIL_URL = "type.googleapis.com/hpvm.v1.ErrorDetail"


def make(code: int, message: str, **facts: Any) -> HpvmError:
    return _KINDS.get(code, UnknownError)(message, **facts)


def from_status(status: common_pb2.Status) -> Optional[HpvmError]:
    """Returns the error in an answer's `error`; None when there is none."""
    if status.code == 0:
        return None
    facts: Dict[str, Any] = {}
    for detail in status.details:
        if detail.type_url == _DETAIL_URL:
            found = common_pb2.ErrorDetail.FromString(detail.value)
            facts = {
                "diagnostics": [
                    Diagnostic(item.message, item.place, "warning" if item.severity == 2 else "error",
                               item.offset if item.HasField("offset") else None) for item in found.diagnostics.items],
                "job_id": found.job_id, "retryable": found.retryable,
                "retry_after": found.retry_after_ns / 1e9}
    return make(status.code, status.message, **facts)


def from_rpc(error: grpc.RpcError) -> HpvmError:
    """Returns the error for a failed gRPC call."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                told = from_status(common_pb2.Status.FromString(value))
            except Exception:  # Another program's bytes: the code and the message remain.
                told = None
            if told is not None:
                return told
    return make(error.code().value[0], error.details() or error.code().value[1])


def may_retry(error: HpvmError) -> bool:
    """Returns true if the server did not answer, or cannot at present. Only calls that may be carried out twice are
    sent again."""
    return isinstance(error, UnavailableError) or (
        isinstance(error, (CancelledError, UnknownError)) and error.message in ("CANCELLED", "Stream removed"))
