# SPDX-License-Identifier: Apache-2.0
"""Runs dataflow graphs of portable kernels on an hpvmd server.

    import hpvm, numpy as np

    client = hpvm.connect()
    matmul = client.prepare(hpvm.Graph.load("examples/matmul/matmul.json"))
    C = matmul.run(A=np.ones((2, 3), "f4"), B=np.ones((3, 4), "f4"))["C"]

docs/PYTHON.md describes the whole package. Threads may share a client. After a fork the child opens its own connection."""

import os as _os
import sys as _sys

if "grpc" not in _sys.modules:  # gRPC reads this variable once; it lets a child open its own connection after a fork.
    _os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")
# By default gRPC's epoll set outlives its connections: the child of a fork would share it with the parent, and the one
# would take the other's events. `poll` has nothing to share. gRPC reads this variable when the first channel opens.
_os.environ.setdefault("GRPC_POLL_STRATEGY", "poll")
_os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # The errors of this package carry the useful part of gRPC's log.

try:
    from hpvm.v1 import common_pb2 as _common_pb2
except ImportError as _error:
    raise ImportError("hpvm has no generated messages here; run client/python/stubs.sh to make them "
                      f"(or use the package of a build: build/release/python). {_error}") from _error

from hpvm._credentials import Credentials
from hpvm._jobs import SubmitOptions
from hpvm._runs import DISCARD, NEW_BUFFER
from hpvm._watch import JobChange
from hpvm.buffers import Buffer, SharedBuffer
from hpvm.client import Client, connect
from hpvm.errors import (AbortedError, AlreadyExistsError, CancelledError, ClosedError, DataLossError, DeadlineExceededError,
                         Diagnostic, FailedPreconditionError, HpvmError, InternalError, InvalidArgumentError, NotFoundError,
                         OutOfRangeError, PermissionDeniedError, PreparedAgainWarning, ResourceExhaustedError,
                         UnauthenticatedError, UnavailableError, UnimplementedError, UnknownError)
from hpvm.graph import Endpoint, Graph, In, InOut, Module, Node, Out, Scalar, Subgraph, Variant
from hpvm.jobs import Job, JobState, as_completed, wait_all
from hpvm.prepared import Prepared
from hpvm.results import Log, Placement, RunResult, Timing

__version__ = "0.1.0"

__all__ = [
    "AbortedError", "AlreadyExistsError", "Buffer", "CancelledError", "Client", "ClosedError", "Credentials", "DISCARD",
    "DataLossError", "DeadlineExceededError", "Diagnostic", "Endpoint", "FailedPreconditionError", "Graph", "HpvmError", "In",
    "InOut", "InternalError", "InvalidArgumentError", "Job", "JobChange", "JobState", "Log", "Module", "NEW_BUFFER", "Node",
    "NotFoundError", "Out", "OutOfRangeError", "PermissionDeniedError", "Placement", "Prepared", "PreparedAgainWarning",
    "ResourceExhaustedError", "RunResult", "Scalar", "SharedBuffer", "Subgraph", "SubmitOptions", "Timing",
    "UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError", "Variant", "aio", "as_completed", "connect",
    "wait_all",
]


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    if name == "aio":  # Only programs that use asyncio pay for the import.
        import importlib
        return importlib.import_module("hpvm.aio")
    raise AttributeError(f"module 'hpvm' has no attribute {name!r}")
