# SPDX-License-Identifier: Apache-2.0
"""Results of runs."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional

from hpvm.v1 import record_pb2


class Placement(NamedTuple):
    """A range of a node's instances on a device. Times are in seconds since the run began."""
    node: str
    device: str
    start: float
    end: float
    total: float  # Sum over all repetitions.
    runs: int
    first_instance: int
    instance_count: int  # 0: all of them.
    math: str  # "exact" or "fast"; "" for a native module, whose compiler decides.
    variant: str  # The variant of the kernel that ran.
    is_estimate: bool

    @classmethod
    def of(cls, message: record_pb2.NodePlacement) -> "Placement":
        return cls(message.node, message.device, message.start_ns / 1e9, message.end_ns / 1e9, message.total_ns / 1e9,
                   message.runs, message.first_instance, message.instance_count, message.math, message.variant,
                   message.is_estimate)


class Timing(NamedTuple):
    """Durations in seconds."""
    queue: float  # Waiting time in the daemon's queue.
    bind: float
    copy_in: float
    run: float
    copy_out: float
    total: float  # From the daemon's receipt to its reply.

    @classmethod
    def of(cls, message: record_pb2.RunTiming) -> "Timing":
        return cls(message.queue_ns / 1e9, message.bind_ns / 1e9, message.copy_in_ns / 1e9, message.run_ns / 1e9,
                   message.copy_out_ns / 1e9, message.total_ns / 1e9)


class Log(NamedTuple):
    """The output that kernels printed (hpvm_print), and findings of checks."""
    lines: List[str]
    lines_dropped: int
    findings: List[str]

    @classmethod
    def of(cls, message: record_pb2.RunLog) -> "Log":
        lines = [f"{line.node}({line.instance.x}, {line.instance.y}, {line.instance.z}): {line.text}" for line in message.lines]
        findings = [f'node "{finding.node}": {finding.message}' for finding in message.findings]
        return cls(lines, message.lines_dropped, findings)


def placement_table(placements: List[Placement]) -> str:
    """Returns a table in HTML for notebooks."""
    import html  # Only notebooks need it.
    rows = "".join(
        f"<tr><td>{html.escape(p.node)}</td><td>{html.escape(p.device)}</td><td>{p.total * 1e3:.3f}</td><td>{p.runs}</td>"
        f"<td>{html.escape(p.variant)}</td></tr>" for p in placements)
    return ("<table><thead><tr><th>node</th><th>device</th><th>ms</th><th>runs</th><th>variant</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>")


class RunResult(Mapping[str, Any]):
    """The outputs of a run, by name, and its record.

    An output is a numpy array (bf16: uint16 with the same bits, or ml_dtypes.bfloat16 if that is imported), or a Buffer
    if `out=` asked for it. `torch.from_dlpack(result["C"])` takes an array over without a copy."""

    def __init__(self, outputs: Dict[str, Any], record: Any, log: Optional[Log] = None) -> None:
        self._outputs = outputs
        self._record = record  # A RunResponse.
        #: The log with `log=True`, else None.
        self.log = log
        #: True if the server has restarted since the graph was prepared, so that the client prepared it again.
        self.prepared_again = False

    @property
    def timing(self) -> Timing:
        return Timing.of(self._record.timing)

    @property
    def placements(self) -> List[Placement]:
        """The devices on which each node ran, with `placements=True`."""
        return [Placement.of(placement) for placement in self._record.placements]

    @property
    def nodes_run(self) -> int:
        return int(self._record.nodes_run)

    @property
    def repetitions(self) -> int:
        return int(self._record.repetitions)

    @property
    def converged(self) -> bool:
        """True if `until` ended the repetitions."""
        return bool(self._record.converged)

    @property
    def moved_bytes(self) -> int:
        """Bytes moved between host memory and devices."""
        return int(self._record.traffic.moved_bytes)

    @property
    def lost_devices(self) -> int:
        """The number of devices that failed during the run, which went on without them."""
        return int(self._record.traffic.lost_devices)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._outputs[name]
        except KeyError:
            raise KeyError(f"{name!r} is not an output of this run; outputs are {', '.join(self._outputs)}.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __repr__(self) -> str:
        def describe(value: Any) -> str:
            return f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
        outputs = ", ".join(f"{name}: {describe(value)}" for name, value in self._outputs.items())
        return f"RunResult({{{outputs}}}, {self.timing.total * 1e3:.3f} ms)"

    def _repr_html_(self) -> str:
        import html
        table = placement_table(self.placements) if self.placements else ""
        return f"<pre>{html.escape(repr(self))}</pre>{table}"
