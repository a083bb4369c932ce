# SPDX-License-Identifier: Apache-2.0
"""Prepared graphs: validated, compiled, and ready to run again and again."""

from __future__ import annotations

import collections.abc
from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from hpvm import _arrays, _runs, errors
from hpvm._runs import RunOptions
from hpvm.results import RunResult
from hpvm.v1 import graph_pb2, job_pb2

Inputs = Mapping[str, Any]
_OPTIONS = frozenset(("inputs", *RunOptions.__slots__))


class TensorFacts(NamedTuple):
    """An input or output. The extents of `shape` are expressions of symbols."""
    type: str
    shape: Tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.type}[{', '.join(self.shape)}]"


class PreparedState:
    """The state that sync and async handles share."""

    def __init__(self, response: graph_pb2.PrepareGraphResponse, server_started: int, document: str,
                 modules: Mapping[str, bytes], hashes: Mapping[str, str], check: bool) -> None:
        self.handle, self.server_started = response.handle, server_started
        self.document, self.modules, self.hashes, self.check = document, modules, hashes, check
        self.is_released = False
        self._plain: Tuple[str, bytes] = ("", b"")
        summary = response.summary
        #: The graph's name, for people.
        self.name: str = summary.name
        self.inputs: Dict[str, TensorFacts] = {p.name: TensorFacts(_arrays.TYPE_NAMES.get(p.type, "?"), tuple(p.shape))
                                               for p in summary.inputs}
        # Inputs that no keyword argument of `run` can bind.
        self._mapping_only = [name for name in self.inputs if name in _OPTIONS]
        self.outputs: Dict[str, TensorFacts] = {p.name: TensorFacts(_arrays.TYPE_NAMES.get(p.type, "?"), tuple(p.shape))
                                                for p in summary.outputs}
        #: Symbols to which a run may give values.
        self.symbols: List[str] = list(summary.symbols)
        #: Devices that at least one node can use.
        self.devices: List[str] = list(summary.devices)
        #: Known driver defects that affect native modules of this graph.
        self.defects: List[str] = list(summary.defects)
        #: Warnings of the server.
        self.warnings = [errors.Diagnostic(item.message, item.place, "warning",
                                           item.offset if item.HasField("offset") else None)
                         for item in response.diagnostics.items]

    def plain_request(self, handle: str) -> bytes:
        """Returns a RunRequest without inputs that asks only for the outputs."""
        if self._plain[0] != handle:
            request = job_pb2.RunRequest(handle=handle, repeat=1)
            request.options.errors_in_body = True
            self._plain = (handle, request.SerializeToString())
        return self._plain[1]

    def bound(self, inputs: Optional[Inputs], arrays: Mapping[str, Any]) -> Inputs:
        """Returns the inputs of a run."""
        merged = merge(inputs, arrays)
        if self._mapping_only:
            check_bound("run", self._mapping_only, merged)
        return merged

    def handle_or_raise(self) -> str:
        if self.is_released:
            raise errors.FailedPreconditionError(f'The prepared graph "{self.name}" has been released.')
        return str(self.handle)

    def __repr__(self) -> str:
        def facts(tensors: Mapping[str, TensorFacts]) -> str:
            return ", ".join(f"{name}: {tensor}" for name, tensor in tensors.items())
        return f"{type(self).__name__}({self.name!r}, ({facts(self.inputs)}) -> ({facts(self.outputs)}))"


def merge(inputs: Optional[Inputs], arrays: Mapping[str, Any]) -> Inputs:
    """Merges the inputs of a mapping and of keyword arguments."""
    if inputs is None:
        return arrays
    if not isinstance(inputs, collections.abc.Mapping):
        raise TypeError(f"The inputs are a {type(inputs).__name__}; they have to be a mapping from names to values, or keyword "
                        'arguments. An input that is called "inputs" goes into the mapping: {"inputs": value}.')
    twice = set(inputs) & set(arrays)
    if twice:
        raise TypeError(f"The inputs {', '.join(sorted(twice))} are given twice.")
    return {**inputs, **arrays}


def check_bound(call: str, names: Iterable[str], bound: Collection[str], before: str = "") -> None:
    """Raises InvalidArgumentError when one of the inputs `names`, which have the names of options of `call`, is not bound:
    a keyword argument sets the option, not the input. `before`: the arguments before the mapping."""
    lost = [name for name in names if name not in bound]
    if lost:
        mapping = ", ".join(f'"{name}": value' for name in lost)
        if len(lost) == 1:
            what = f'The graph has the input "{lost[0]}", and {call} has an option of that name. Pass the input'
        else:
            what = f"The graph has the inputs {', '.join(lost)}, and {call} has options of those names. Pass these inputs"
        raise errors.InvalidArgumentError(f"{what} in a mapping, before the options: {call}({before}{{{mapping}}}).")


class Prepared(PreparedState):
    """A prepared graph. Thread-safe.

    It is released by `release`, at the end of a `with` block, and otherwise when the server drops graphs that are long unused."""

    def __init__(self, client: Any, *facts: Any) -> None:
        super().__init__(*facts)
        self._client = client

    def run(self, inputs: Optional[Inputs] = None, *, symbols: Optional[Mapping[str, int]] = None, repeat: int = 1,
            rotations: Optional[Mapping[str, str]] = None, until: str = "", placements: bool = False, log: bool = False,
            out: Optional[Mapping[str, Any]] = None, timeout: Optional[float] = None, deadline: Optional[float] = None,
            priority: int = 0, labels: Optional[Mapping[str, str]] = None, traceparent: str = "", **arrays: Any) -> RunResult:
        """Runs the graph: `prepared.run(A=a, B=b)["C"]`.

        inputs, **arrays: by name; numpy arrays, anything that numpy or DLPack takes, numbers, or buffers. Inputs
            that have the name of an option go into the mapping: `prepared.run({"timeout": t}, timeout=10)`.
        symbols: values of symbols that no input decides.
        repeat, rotations, until: one run repeats the graph `repeat` times; each of `rotations` hands an output of one
            repetition to an input of the next; the output `until` ends the repetitions when it is not zero.
        placements: also return where each node ran. log: also return the output that kernels printed.
        out: by output: an array to fill, a Buffer, hpvm.NEW_BUFFER or hpvm.DISCARD.
        timeout: seconds until the call is given up, with the run. deadline: seconds that the server gives the run.

        Raises an HpvmError; KeyboardInterrupt ends the run on the server, too."""
        options = RunOptions(symbols, repeat, rotations, until, placements, log, out, timeout, deadline, priority, labels,
                             traceparent)
        return self._client._drive(  # type: ignore[no-any-return]
            _runs.run(self._client._core, self._client, self, self.bound(inputs, arrays), options))

    def __call__(self, *arguments: Any, **arrays: Any) -> RunResult:
        """Calls `run`."""
        return self.run(*arguments, **arrays)

    def run_many(self, items: List[Inputs], *, symbols: Optional[Mapping[str, int]] = None, placements: bool = False,
                 log: bool = False, timeout: Optional[float] = None) -> List[Union[RunResult, errors.HpvmError]]:
        """Runs the graph once for each of `items` (inputs by name), in as few calls as their sizes allow: much
        faster than one call per run when runs are short. Returns each result, or the exception that its run raised,
        in order."""
        options = RunOptions(symbols, placements=placements, log=log, timeout=timeout)
        return self._client._drive(  # type: ignore[no-any-return]
            _runs.run_many(self._client._core, self._client, self, list(items), options))

    def release(self, *, timeout: Optional[float] = None) -> None:
        """Releases the handle. Runs in progress go on."""
        if not self.is_released:
            self.is_released = True
            self._client._drive(_runs.release(self._client._core, self.handle, _runs.deadline_of(timeout)))

    def __enter__(self) -> "Prepared":
        return self

    def __exit__(self, *what: Any) -> None:
        try:
            self.release()
        except errors.HpvmError:
            if what[0] is None:
                raise
