#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Harness check: every seeded bug must be caught by the simulation.

    tests/sim/mutants.py BIN [--seeds N] [--seconds S] [--table FILE] [NAME ...]

BIN is the hpv-sim of a copy that tests/mutants/patched.py made, built with the preset mutants. Each bug of
tests/mutants/system, except those of plans, runs until a checker complains; exit 1 when one is not caught. The prefix
of a name says in which worlds: cluster_sql_ in those of a cluster whose store is on SQLite, cluster_ in those of a
cluster whose store is the model, others in those of the daemon's core, then of its store. ELSEWHERE lists bugs that the
simulation does not contain or show, and names the test that catches each:

    HPVMD_MUTANT=cluster_sql_idle_credit FOLDER/build/mutants/tests/cluster_test
"""
import argparse
import pathlib
import re
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mutants"))
import seeded  # noqa: E402

ELSEWHERE = {
    # No simulated disk changes bytes that it has stored.
    "store_sum_ignored": "sqlite_job_database_test",
    # Worlds check that balances match use; the model checks what a balance allows and whose it is.
    "ledger_refusal_uncounted": "ledger_test",
    "ledger_limit_off_by_one": "ledger_test",
    "ledger_charge_another": "ledger_test",
    # States that worlds seldom reach.
    "core_output_bytes_leak": "core_job_test",
    "core_lost_wakeup": "core_job_test",
    "core_cancel_lost_while_starting": "core_job_test",
    # Worlds have no watchers.
    "core_watch_history_unbounded": "job_watch_test",
    "core_watch_gap_unseen": "job_watch_test",
    # Worlds of a cluster do not look at shares, orders, memory, pages of tenants, what a watcher no longer gets, or how
    # a deadline passes.
    "cluster_sql_idle_credit": "cluster_test",
    "cluster_sql_least_clock_of_page": "cluster_test",
    "cluster_sql_repeated_finish_charged": "cluster_test",
    "cluster_sql_priority_reversed": "cluster_test",
    "cluster_sql_heads_unsorted": "cluster_test",
    "cluster_sql_memory_in_use_ignored": "cluster_test",
    "cluster_sql_memory_of_claim_ignored": "cluster_test",
    "cluster_sql_claim_reads_one_page": "cluster_test",
    "cluster_sql_page_claimed_twice": "cluster_test",
    "cluster_sql_page_skips_equal_clocks": "cluster_test",
    "cluster_sql_events_dropped_early": "cluster_test",
    "cluster_sql_watch_hides_gaps": "cluster_test",
    "cluster_sql_late_jobs_expired": "cluster_test",
    "cluster_sql_renewal_hides_deadlines": "cluster_test",
    "cluster_sql_last_attempt_unsaid": "cluster_test",
    # Runs of worlds stop however they are told to, and none is put back; agents are never paused.
    "cluster_stopped_again_untold": "cluster_test",
    "cluster_drain_unheard": "cluster_test",
    "cluster_put_back_is_lost": "cluster_test",
    "cluster_paused_claims": "cluster_test",
    "cluster_sql_drain_untold": "cluster_test",
    # Hosts of worlds are not opened again while an answer is on its way, and their tenants are not deleted.
    "cluster_late_drain_heard": "cluster_test",
    "cluster_sql_purge_spares_waiting": "cluster_test",
    "cluster_sql_purge_spares_running": "cluster_test",
    "cluster_sql_purge_keeps_events": "cluster_test",
    "cluster_sql_purge_ends_early": "cluster_test",
    # Nobody in a world asks for this, or looks at it.
    "cluster_refused_record_repeated": "cluster_test",
    "cluster_results_in_lists": "cluster_test",
    "cluster_sql_list_unbounded": "cluster_test",
    "cluster_sql_list_ends_early": "cluster_test",
    "cluster_sql_watch_unbounded": "cluster_test",
    "cluster_sql_watch_more_untold": "cluster_test",
    "cluster_hash_of_batch_ignored": "cluster_test",
    "cluster_sql_hash_ignored": "cluster_test",
    "cluster_sql_hold_text_lost": "cluster_test",
    "cluster_sql_hold_text_kept": "cluster_test",
    "cluster_sql_newest_from_the_first": "cluster_test",
    # A job starts or ends a little earlier or later, or is tried too often, which no checker forbids.
    "cluster_sql_prefers_ignored": "cluster_test",
    "cluster_sql_prefers_the_lost": "cluster_test",
    "cluster_sql_delay_ignored": "cluster_test",
    # Worlds hold no jobs, and are over before any is forgotten.
    "cluster_sql_hold_ignored": "cluster_test",
    # The simulated database loses nothing.
    "cluster_sql_fence_of_another_host": "cluster_test",
    "cluster_sql_forgotten_early": "cluster_test",
    "cluster_sql_sweep_losses_free": "cluster_test",
    "cluster_sql_leave_counts": "cluster_test",
    # An agent asks once more, or ignores the answer.
    "cluster_sql_claim_repeated": "cluster_test",
    "cluster_sql_claim_settled": "cluster_test",
    "cluster_sql_settled_goes_back": "cluster_test",
    "cluster_sql_repeated_finish_refused": "cluster_test",
    "cluster_sql_renewal_hides_lost": "cluster_test",
    "cluster_sql_expired_lease_renewed": "cluster_test",
    # The clients of worlds do not do this.
    "cluster_sql_another_request_taken": "cluster_test",
    "cluster_sql_disabled_tenants_submit": "cluster_test",
    "cluster_sql_waiting_max_of_each": "cluster_test",
    "cluster_sql_needs_never_dropped": "cluster_test",
    "cluster_sql_ready_after_first": "cluster_test",
    "cluster_sql_later_dependencies_uncounted": "cluster_test",
    "cluster_sql_ids_of_repeats_kept": "cluster_test",
    # The clock of worlds does not leap.
    "cluster_sql_clock_offset_kept": "cluster_test",
    "cluster_sql_clock_unbounded": "cluster_test",
    # Worlds have one connection, and no batch that is refused after it was checked.
    "cluster_sql_take_back_unchecked": "live_store_test",
    "cluster_sql_try_keeps_counters": "live_store_test",
    "cluster_sql_try_keeps_needs": "live_store_test",
    "cluster_sql_try_keeps_rows": "live_store_test",
}

# The options of hpv-sim for each kind of world, and the worlds of bugs by the first prefix that their names have.
OPTIONS = {"core": (), "store": ("--store",), "cluster": ("--cluster",), "cluster on SQLite": ("--cluster", "--sqlite")}
WORLDS = {"cluster_sql_": ("cluster on SQLite",), "cluster_": ("cluster",), "": ("core", "store")}


def run(binary, name, seeds, seconds):
    """Returns the checker that complained, and after how many seeds; or None."""
    total, start = 0, time.monotonic()
    for worlds in next(worlds for prefix, worlds in WORLDS.items() if name.startswith(prefix)):
        command = [binary, "--seeds", f"0..{seeds - 1}", "--seconds", str(seconds), "--failures", "1", "--mutant", name,
                   *OPTIONS[worlds]]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            return "time", worlds, total, time.monotonic() - start
        counted = re.search(r"(\d+) seeds, \d+ failed", done.stdout)
        total += int(counted.group(1)) if counted else 0
        if done.returncode != 0:
            complaint = re.search(r"FAILED seed \d+.*\n\s+([a-z ]+): ", done.stdout)
            checker = complaint.group(1) if complaint else f"the program ended with {done.returncode}"
            return checker, worlds, total, time.monotonic() - start
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--table", help="also write a table in Markdown to this file")
    options = parser.parse_intermixed_args()  # Names may follow options.
    sources = {name: file for name, file in seeded.system_bugs().items() if not name.startswith("plan_")}
    chosen = options.names or sorted(sources)
    rows, missed = [], 0
    for name in chosen:
        if name in ELSEWHERE:
            rows.append((name, sources.get(name, ""), ELSEWHERE[name], ""))
            continue
        caught = run(options.binary, name, options.seeds, options.seconds)
        if caught is None:
            missed += 1
            print(f"{name}: NOT CAUGHT", flush=True)
            rows.append((name, sources.get(name, ""), "NOT CAUGHT", ""))
        else:
            checker, worlds, seeds, took = caught
            print(f"{name}: caught by \"{checker}\" ({worlds}) after {seeds} seeds, {took:.1f} s", flush=True)
            rows.append((name, sources.get(name, ""), f"{checker} ({worlds})", str(seeds)))
    if options.table:
        seeded.write_table(options.table, ("Seeded bug", "Where", "Caught by", "Seeds"), rows)
    return seeded.finish(len(chosen), missed)


if __name__ == "__main__":
    sys.exit(main())
