# SPDX-License-Identifier: Apache-2.0
"""Runs a daemon for a long time while executors, compilers and clients are killed and configurations change: its use of
resources must not grow."""

import os
import pathlib
import statistics
import time

SAMPLE_SECONDS = 5
VERIFY_EVERY_SECONDS = 60
# The beginning is not judged: caches fill (SQLite's page cache alone takes 32 MiB), and retention begins to drop jobs.
WARM_UP_SHARE = 0.25
WARM_UP_SECONDS = 300
# Fewer samples give no meaningful slope.
SAMPLES_MIN = 24
RETENTION = {"jobs.kept_ms": 150_000, "jobs.kept_max": 20_000}


def slope(points):
    """Returns the Theil-Sen slope, the median of the slopes between all pairs, which is robust against single peaks."""
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(points) for x2, y2 in points[i + 1:] if x2 > x1]
    return statistics.median(slopes) if slopes else 0.0


def growth(points):
    """Returns (growth by the slope over the time of the points, noise as the median deviation from that line)."""
    if len(points) < 4:
        return 0.0, 0.0
    rate = slope(points)
    base = statistics.median(y - rate * x for x, y in points)
    noise = statistics.median(abs(y - rate * x - base) for x, y in points)
    return rate * (points[-1][0] - points[0][0]), noise


# Growth allowed over the judged time, beyond three times the noise of the samples. A leak of one object a job
# would show as hundreds: some tens of jobs end each second. Memory: an allocator's arenas settle within a few MiB.
TOLERANCE = {"daemon KiB": 4096, "daemon descriptors": 4, "daemon threads": 4, "executors KiB": 8192, "executor descriptors": 4,
             "processes": 2, "zombies": 0.5, "state files but blobs": 4, "WAL KiB": 4096}


def judge(samples):
    """Returns a text for each value that grows; `samples`: [(seconds, {name: value})]."""
    warm = max(WARM_UP_SECONDS, WARM_UP_SHARE * (samples[-1][0] - samples[0][0])) if samples else 0
    judged = [s for s in samples if s[0] >= samples[0][0] + warm]
    if len(judged) < SAMPLES_MIN:
        return [], [f"{len(judged)} samples after the first {warm:.0f} s: too few to judge growth by"]
    problems, report = [], []
    for name, tolerance in TOLERANCE.items():
        points = [(at, values[name]) for at, values in judged if values.get(name) is not None]
        grown, noise = growth(points)
        limit = tolerance + 3 * noise
        values = [y for _, y in points] or [0]
        report.append(f"{name}: {min(values):.0f} to {max(values):.0f}, grows by {grown:+.1f} (limit {limit:.1f})")
        if grown > limit:
            problems.append(f"{name} grows by {grown:.1f} in {judged[-1][0] - judged[0][0]:.0f} s; the limit is {limit:.1f}")
    return problems, report


def status_kib(pid, field):
    try:
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:   # Only root may read an executor's descriptors.
        return None


def sample(daemon):
    pid = daemon.process.pid
    family = daemon.family()
    executors = [p.pid for p in daemon.executors()]
    shown = [d for d in map(descriptors, executors) if d is not None]
    files = [p for p in daemon.state.rglob("*") if p.is_file() and "blobs" not in p.parts and "cache" not in p.parts]
    wal = daemon.state / "jobs.db-wal"
    return {
        "daemon KiB": status_kib(pid, "RssAnon"), "daemon descriptors": descriptors(pid),
        "daemon threads": status_kib(pid, "Threads"),
        "executors KiB": max([status_kib(p, "RssAnon") for p in executors], default=0),
        "executor descriptors": max(shown) if shown else None,
        "processes": len(family), "zombies": sum(p.state == "Z" for p in family),
        "state files but blobs": len(files), "WAL KiB": wal.stat().st_size / 1024 if wal.exists() else 0,
    }


def run(chaos, minutes):
    """Runs the soak; `chaos` is the object of chaos.py, with its daemon and clients running."""
    chaos.values.update(RETENTION)
    for history in chaos.histories.values():
        history.forgets = True
    chaos.drain("before the soak")
    chaos.start_daemon()
    chaos.go()
    end = time.monotonic() + 60 * minutes
    next_sample = next_verify = time.monotonic()
    next_verify += VERIFY_EVERY_SECONDS
    samples = []
    while time.monotonic() < end:
        roll = chaos.random.random()
        if roll < 0.30:
            chaos.kill_child(chaos.daemon.executors, "executor")
        elif roll < 0.40:
            chaos.kill_child(chaos.daemon.compilers, "compiler")
        elif roll < 0.42:
            chaos.kill_client()
        elif roll < 0.50:
            chaos.reload(is_broken=chaos.random.random() < 0.5)
        time.sleep(chaos.random.uniform(0.2, 1.0))
        if not chaos.daemon.is_alive():
            chaos.problem(f"the daemon ended by itself with {chaos.daemon.process.returncode}: {chaos.daemon.tail()}")
            return
        if time.monotonic() >= next_sample:
            next_sample += SAMPLE_SECONDS
            samples.append((time.monotonic(), sample(chaos.daemon)))
        if time.monotonic() >= next_verify:
            next_verify = time.monotonic() + VERIFY_EVERY_SECONDS
            chaos.resume_stopped()
            chaos.verify()
            chaos.say(f"soak: {samples[-1][1]}")
            chaos.go()
    chaos.resume_stopped()
    chaos.pause()
    problems, report = judge(samples)
    for text in report:
        chaos.say("soak: " + text)
    for text in problems:
        chaos.problem("soak: " + text)
