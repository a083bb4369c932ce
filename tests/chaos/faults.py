# SPDX-License-Identifier: Apache-2.0
"""Planted faults: each imitates, from outside, what a faulty daemon would do to its state, its processes or its callers.
chaos_faults.py runs chaos.py with each fault; none may go unnoticed."""

import os
import signal
import sqlite3
import subprocess
import zlib

SUCCEEDED, ACCEPTED = 4, 1


# --- Protocol buffers, as far as needed here: a message is a list of (field number, wire type, value) ---

def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def varint(value):
    out = bytearray()
    while True:
        out.append(value & 0x7f | (0x80 if value > 0x7f else 0))
        value >>= 7
        if not value:
            return bytes(out)


def parse(data):
    fields, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        if tag & 7 == 0:
            value, at = read_varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(tag & 7)
            if size is None:
                size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        fields.append((tag >> 3, tag & 7, value))
    return fields


def serialize(fields):
    out = b""
    for number, wire, value in fields:
        out += varint(number << 3 | wire)
        out += varint(value) if wire == 0 else (varint(len(value)) if wire == 2 else b"") + value
    return out


def row_sum(sequence, payload):
    return zlib.crc32(payload, zlib.crc32(sequence.to_bytes(8, "little")))


# --- Faults planted while no daemon runs; each returns true if it found something to change ---

def open_jobs(chaos):
    path = chaos.daemon.state / "jobs.db"
    return sqlite3.connect(path) if path.exists() else None


def finished(chaos, database):
    """Returns (sequence, id, record) of a succeeded job whose end its client has seen in this round."""
    chaos.read_journals()
    for row in database.execute("SELECT sequence, id, record FROM jobs WHERE state = ? ORDER BY sequence DESC", (SUCCEEDED,)):
        for history in chaos.histories.values():
            job = history.jobs.get(row[1])
            if job is not None and job.end is not None and not history.keys[job.key].is_judged:
                return row
    return None


def lose_job(chaos, database):
    """Imitates an acknowledged row that was never written."""
    row = finished(chaos, database)
    if row:
        for table in ("jobs", "results", "blobs"):
            database.execute(f"DELETE FROM {table} WHERE sequence = ?", row[:1])
    return row


def forget_key(chaos, database):
    """Imitates a key outside of the job's transaction: the same request makes another job.

    The job's row must lose the key as well, since the daemon restores a lost key from it."""
    key_of_job = 31
    rows = database.execute("SELECT sequence, tenant, idempotency_key, record FROM jobs WHERE idempotency_key IS NOT NULL "
                            "ORDER BY sequence DESC LIMIT 8").fetchall()
    for sequence, tenant, key, record in rows:
        record = serialize([(number, wire, serialize([field for field in parse(value) if field[0] != key_of_job]))
                            if number == 1 else (number, wire, value) for number, wire, value in parse(record)])
        database.execute("UPDATE jobs SET idempotency_key = NULL, record = ?, sum = ? WHERE sequence = ?",
                         (record, row_sum(sequence, record), sequence))
        database.execute("DELETE FROM keys WHERE tenant = ? AND idempotency_key = ?", (tenant, key))
    return rows


def run_again(chaos, database):
    """Imitates an end that is not final: a succeeded job waits again."""
    row = finished(chaos, database)
    if row:
        sequence, _, record = row
        stored = parse(record)
        job = [field for field in parse(next(value for number, _, value in stored if number == 1))
               if field[0] not in (9, 11, 12, 15)]
        job = [(number, wire, ACCEPTED if number == 3 else value) for number, wire, value in job]
        record = serialize([(number, wire, serialize(job) if number == 1 else value) for number, wire, value in stored
                            if number != 5])
        database.execute("DELETE FROM results WHERE sequence = ?", (sequence,))
        database.execute("UPDATE jobs SET state = ?, ended = NULL, attempt = 0, record = ?, sum = ? WHERE sequence = ?",
                         (ACCEPTED, record, row_sum(sequence, record), sequence))
    return row


def wrong_output(chaos, database):
    """Imitates an attempt that began with the remains of an earlier one: another output, stored soundly."""
    changed = False
    for sequence, data in database.execute("SELECT sequence, bytes FROM results ORDER BY sequence DESC LIMIT 40").fetchall():
        results = parse(data)
        for place, (number, wire, value) in enumerate(results):
            output = parse(value) if number == 1 and wire == 2 else []
            if any(field[0] == 3 for field in output):
                output = [(n, w, v[:-1] + bytes([v[-1] ^ 1]) if n == 3 and v else v) for n, w, v in output]
                results[place] = (number, wire, serialize(output))
                changed = True
        data = serialize(results)
        database.execute("UPDATE results SET bytes = ?, sum = ? WHERE sequence = ?",
                         (data, row_sum(sequence, data), sequence))
    return changed


def orphan(chaos, database):
    """Imitates an executor that outlived its daemon unseen."""
    subprocess.Popen([str(chaos.daemon.bin / "hpvm-executor"), "600"], executable="/bin/sleep", start_new_session=True)
    return True


# --- Faults planted in a running daemon ---

def leftover(chaos):
    """Imitates a stopped daemon that did not remove a file that one of its processes was writing. The folder is watched
    from outside, so that the file appears after the daemon's own sweep."""
    folder = chaos.daemon.state / "cache" / "ann"
    if folder.exists():
        (folder / ".partial-1-1").write_bytes(b"x")
        return True
    return False


def deaf(chaos):
    """Imitates an ignored SIGTERM: the daemon is suspended for longer than a drain may take."""
    os.kill(chaos.daemon.process.pid, signal.SIGSTOP)
    subprocess.Popen(["/bin/sh", "-c", f"sleep 4; kill -CONT {chaos.daemon.process.pid}"])
    return True


def crash_at_reload(chaos):
    """Imitates a reload that drops calls."""
    chaos.daemon.kill()
    chaos.daemon.start()
    return True


def ignored_reload(chaos):
    """Imitates a valid configuration without effect: the daemon reads another file than the one that is written."""
    chaos.daemon.config = chaos.daemon.config.with_name("other.toml")
    return True


# The fault, when it is planted, and a pattern of the expected problem.
FAULTS = {
    "lose_job": (lose_job, "down", "is lost"),
    # The second alternative appears when a request whose answer was lost loses its key.
    "forget_key": (forget_key, "down", "has the jobs|no key that was answered stands for it"),
    "run_again": (run_again, "down", "ended twice"),
    "wrong_output": (wrong_output, "down", "has the outputs"),
    "orphan": (orphan, "down", "lives on"),
    "leftover": (leftover, "drain", "a file is left"),
    "deaf": (deaf, "drain", "s to end; drain_ms is"),
    "crash_at_reload": (crash_at_reload, "reload", "a call failed while configurations were read again"),
    "ignored_reload": (ignored_reload, "reload", "configuration the daemon says"),
    "memory_store": (None, "", "is lost"),
}


class Fault:
    """Fault plants one of FAULTS once, as soon as there is something to change."""

    def __init__(self, name):
        self.name = name
        self.action, self.when, _ = FAULTS[name] if name else (None, "", "")
        self.is_done = self.action is None
        self.chances = 0

    def happen(self, when, chaos):
        self.chances += when == self.when
        if self.is_done or when != self.when or self.chances < 3:
            return
        if when != "down":
            self.is_done = self.action(chaos)
        else:
            database = open_jobs(chaos)
            if database is None:
                return
            with database:
                self.is_done = bool(self.action(chaos, database))
            database.close()
        if self.is_done:
            chaos.say(f"fault: {self.name}")
