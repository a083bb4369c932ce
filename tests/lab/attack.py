# SPDX-License-Identifier: Apache-2.0
"""The list of attacks and what one came to. An attack is a function of a Session with the decorator below, or a line of a table."""

import dataclasses
import re
import time
import urllib.parse

import calls

ATTACKS = []
REFUSED, KILLED, TOOK, ODD = "refused", "killed", "took", "odd"
STRIKE = calls.document("strike", (("attack", "in", "u8"), ("report", "out", "u8")))
REPORT = re.compile(r"lab\[(.*)\]", re.S)


@dataclasses.dataclass
class Attack:
    name: str
    threat: str          # The row of the threat table.
    run: object          # A Session's Result, or a list of complaints.
    level: int           # From this sandbox level on it must fail.
    group: str           # native: at each level; others once.
    brief: bool          # Part of the short form.
    core: bool = False   # Native: also of the short form at the lower levels.


@dataclasses.dataclass
class Result:
    kind: str
    text: str = ""


def attack(threat, level=0, group="api", brief=True, name=None):
    """Registers a function; the docstring says what it tries."""
    def register(run):
        ATTACKS.append(Attack(name or run.__name__.replace("_", " "), threat, run, level, group, brief))
        return run
    return register


def native(threat, level, name, probe, brief=True, core=False, **arguments):
    """One line of a table: a probe of the payload, with the session's facts in its arguments ("{n_pid}")."""
    def run(session):
        return session.strike(probe, **{key: str(value).format(**session.facts) for key, value in arguments.items()})
    ATTACKS.append(Attack(name, threat, run, level, "native", brief, core))


def verdict(answer):
    """What a strike's answer says."""
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
