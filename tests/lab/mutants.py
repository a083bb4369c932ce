# SPDX-License-Identifier: Apache-2.0
"""Promises broken on purpose: for each of these the lab must report a failure."""

import dataclasses
import os
import signal

import target as targets


def nothing(_):
    pass


@dataclasses.dataclass
class Mutant:
    prepare: object = nothing   # Changes the setting.
    corrupt: object = nothing   # Changes the session.


def no_sandbox(setting):
    setting.sandbox_max = 0


def claim_level(session):
    session.level = 4


def hand_out_secret(session):
    """The attacker finds the neighbour's secret in every answer."""
    session.secret = b"lab"


def no_owner_check(session):
    """The attacker is treated as the neighbour, as if ids were looked up without the tenant."""
    session.thief = targets.NEIGHBOUR


def neighbour_killed(session):
    """The neighbour's executor dies with the attacker's."""
    inner = session.strike

    def strike(probe, **more):
        result = inner(probe, **more)
        os.kill(session.target.executor_of(targets.NEIGHBOUR), signal.SIGKILL)
        return result
    session.strike = strike


def log_forged(session):
    """A caller's text appears unescaped in the log."""
    with session.target.log.open("ab") as log:
        log.write(b"\nlab-injected\x1b[2J\n")


def daemon_killed(session):
    inner = session.strike

    def strike(probe, **more):
        session.target.process.kill()
        return inner(probe, **more)
    session.strike = strike


MUTANTS = {"no_sandbox": Mutant(no_sandbox, claim_level), "leak": Mutant(corrupt=hand_out_secret),
           "no_owner_check": Mutant(corrupt=no_owner_check),
           "neighbour_killed": Mutant(corrupt=neighbour_killed), "daemon_killed": Mutant(corrupt=daemon_killed), "log_forged": Mutant(corrupt=log_forged)}
