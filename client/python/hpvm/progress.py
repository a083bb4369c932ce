# SPDX-License-Identifier: Apache-2.0
"""Bars of progress: tqdm's where it is installed, else a line on standard error where that is a terminal."""

from __future__ import annotations

import sys
from typing import Any

from hpvm.v1 import job_pb2


class Progress:
    """A bar, or nothing when it is not wanted."""

    def __init__(self, is_wanted: bool, label: str) -> None:
        self._is_wanted, self._label = is_wanted, label
        self._bar: Any = None
        self._line = ""

    def __enter__(self) -> "Progress":
        if self._is_wanted:
            try:
                from tqdm.auto import tqdm
                self._bar = tqdm(desc=self._label, unit="node", leave=True)
            except Exception:  # Not installed, or not for this place.
                self._bar = None
        return self

    def event(self, event: job_pb2.JobEvent) -> None:
        """What happens to a job."""
        if event.HasField("progress"):
            self.update(event.progress.nodes_run, event.progress.nodes_total)
        elif event.HasField("job"):
            state = job_pb2.JobState.Name(event.job.state).removeprefix("JOB_STATE_").lower()
            if event.job.nodes_total:
                self.update(event.job.nodes_run, event.job.nodes_total, state)
            elif self._bar is not None:
                self._bar.set_postfix_str(state)

    def update(self, count: int, total: int, state: str = "") -> None:
        """So much of `total` is done; a total of 0 is unknown."""
        if self._bar is not None:
            if total:
                self._bar.total = total
            self._bar.n = count
            if state:
                self._bar.set_postfix_str(state, refresh=False)
            self._bar.refresh()
        elif self._is_wanted and sys.stderr.isatty():
            line = f"\r{self._label}: {count} of {total or '?'} {state}"
            sys.stderr.write(line.ljust(len(self._line)))
            sys.stderr.flush()
            self._line = line

    def __exit__(self, *what: Any) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._line:
            sys.stderr.write("\n")
