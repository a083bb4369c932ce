# SPDX-License-Identifier: Apache-2.0
"""Progress bars: tqdm's if it is installed, else a line on standard error if that is a terminal."""

from __future__ import annotations

import sys
from typing import Any

from hpvm.v1 import job_pb2


class Progress:
    """A progress bar, or nothing when none is wanted."""

    def __init__(self, is_wanted: bool, label: str) -> None:
        self._is_wanted, self._label = is_wanted, label
        self._bar: Any = None
        self._line = ""

    def __enter__(self) -> "Progress":
        if self._is_wanted:
            try:
                from tqdm.auto import tqdm
                self._bar = tqdm(desc=self._label, unit="node", leave=True)
            except Exception:  # tqdm is not installed, or does not work here.
                self._bar = None
        return self

    def event(self, event: job_pb2.JobEvent) -> None:
        """Shows an event of a job."""
        if event.HasField("progress"):
            self.update(event.progress.nodes_run, event.progress.nodes_total)
        elif event.HasField("job"):
            state = job_pb2.JobState.Name(event.job.state).removeprefix("JOB_STATE_").lower()
            if event.job.nodes_total:
                self.update(event.job.nodes_run, event.job.nodes_total, state)
            elif self._bar is not None:
                self._bar.set_postfix_str(state)

    def update(self, count: int, total: int, state: str = "") -> None:
        """Shows that `count` of `total` is done; a total of 0 is unknown."""
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
