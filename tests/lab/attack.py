# SPDX-License-Identifier: Apache-2.0
"""The list of attacks and their verdicts. An attack is a function of a Session with the decorator below, or a line of a table."""

import dataclasses
import os
import re
import time
import urllib.parse

ATTACKS = []
REFUSED, KILLED, TOOK, ODD, ABSENT = "refused", "killed", "took", "odd", "absent"
NEED_PATH = ("read", "write", "list", "stat", "link", "remove", "rename", "chmod", "inotify")
REPORT = re.compile(r"lab\[(.*)\]", re.S)

# Known, open holes: shown, but not counted. In the long form a hole that is closed counts as a failure until its line here is removed.
KNOWN = {}


@dataclasses.dataclass
class Attack:
    name: str
    threat: str          # The row of the threat table.
    run: object          # Returns a Session's Result, or a list of complaints.
    level: int           # The attack must fail from this sandbox level on.
    group: str           # native: tried at each level; other groups once.
    brief: bool          # Part of the short form.
    core: bool = False   # Also part of the short form at the lower levels, or over TCP and TLS.


@dataclasses.dataclass
class Result:
    kind: str
    text: str = ""


def attack(threat, level=0, group="api", brief=True, name=None):
    """Registers a function; the docstring describes the attack."""
    def register(run):
        ATTACKS.append(Attack(name or run.__name__.replace("_", " "), threat, run, level, group, brief))
        return run
    return register


def native(threat, level, name, probe, brief=True, core=False, **arguments):
    """Registers one line of a table: a probe of the payload, with the session's facts in its arguments ("{n_pid}")."""
    def run(session):
        said = {key: str(value).format_map(session.facts) for key, value in arguments.items()}
        # A missing target would be refused for the wrong reason.
        path = said.get("path", "")
        if probe in NEED_PATH and not os.path.exists(path):
            return Result(ODD if path.startswith(str(session.target.folder)) else ABSENT, f"{path} is not there")
        return session.strike(probe, **said)
    ATTACKS.append(Attack(name, threat, run, level, "native", brief, core))


def verdict(answer):
    """Returns the verdict on a strike's answer."""
    message = urllib.parse.unquote(answer.message)
    report = REPORT.search(message)
    if report is not None:
        kind = report.group(1).split(":")[0]
        return Result({"took": TOOK, "refused": REFUSED}.get(kind, ODD), report.group(1))
    if answer.code in ("UNAVAILABLE", "ABORTED", "INTERNAL", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"):
        return Result(KILLED, f"{answer.code} {message}")
    return Result(ODD, f"{answer.code} {message}")


def eventually(condition, seconds=5.0, pause=0.02):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
