// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/timeline.h"

#include <algorithm>

#include "client/ctl/text/job_text.h"
#include "client/ctl/text/text.h"
#include "client/status/status.h"

#include "base/status.h"

namespace hpvm::ctl {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string Span(int64_t from_ns, int64_t to_ns) {
  return DurationText(static_cast<uint64_t>(std::max<int64_t>(0, to_ns - from_ns)));
}

std::string AttemptText(const v1::Job& job) {
  return "attempt " + std::to_string(job.attempt()) +
         (job.attempts_max() == 0 ? "" : " of " + std::to_string(job.attempts_max()));
}

std::string PhaseName(v1::JobEvent::Phase phase) {
  switch (phase) {
    case v1::JobEvent::PHASE_PREPARE:
      return "prepare";
    case v1::JobEvent::PHASE_BIND:
      return "bindings";
    case v1::JobEvent::PHASE_COPY_IN:
      return "copies in";
    case v1::JobEvent::PHASE_RUN:
      return "compute";
    case v1::JobEvent::PHASE_COPY_OUT:
      return "copies out";
    default:
      return "phase " + std::to_string(phase);
  }
}

// Stretch is the time from one change of the job's state to the next.
struct Stretch {
  int64_t begin_ns = 0;
  v1::Job job;  // The job in that state.
  std::vector<v1::JobEvent::PhaseChange> phases;
};

// `is_before`: the graph was prepared before the job, for its submission or for an earlier job.
std::string PrepareText(const v1::PrepareTiming& prepare, bool is_before) {
  return std::string("prepare") + (is_before ? ", before it ran" : "") + ": parse " + DurationText(prepare.parse_ns()) +
         ", compile " + DurationText(prepare.compile_ns()) + " (" + std::to_string(prepare.compiled()) + " compiled, " +
         std::to_string(prepare.from_cache()) + " from cache), load " + DurationText(prepare.load_ns());
}

void AddPhases(const Stretch& stretch, int64_t lasted_ns, const v1::Job& job, Rows* rows) {
  const auto add = [&](uint64_t took_ns, const std::string& what) {
    if (took_ns != 0) {  // A failed run does not report the durations of its phases.
      rows->push_back({"", DurationText(took_ns), "  " + what});
    }
  };
  const v1::RunTiming& timing = job.timing();
  const bool is_known =
      stretch.job.attempt() == job.attempt() && HasEnded(job) && (timing.run_ns() != 0 || timing.total_ns() != 0);
  if (is_known) {
    const v1::PrepareTiming& prepare = job.prepare();
    const uint64_t prepare_ns = prepare.parse_ns() + prepare.compile_ns() + prepare.load_ns();
    add(prepare_ns, PrepareText(prepare, prepare_ns > static_cast<uint64_t>(lasted_ns)));
    add(timing.copy_in_ns(), "copies in");
    add(timing.run_ns(), "compute");
    add(timing.copy_out_ns(), "copies out");
    return;
  }
  for (const v1::JobEvent::PhaseChange& phase : stretch.phases) {
    add(phase.duration_ns(), PhaseName(phase.phase()));
  }
}

std::string LostText(const v1::Job& job, uint32_t attempt) {
  for (const v1::LostAttempt& lost : job.lost_attempts()) {
    if (lost.attempt() == attempt) {
      const std::string why = Message(FromProto(lost.error()));
      return ", lost: " + why.substr(0, why.find('\n'));
    }
  }
  return "";
}

std::string WhatText(const v1::Job& then, const v1::Job& job) {
  switch (then.state()) {
    case v1::JOB_STATE_ACCEPTED:
      return then.waits_for().empty() ? "waited for other jobs" : "waited: " + then.waits_for();
    case v1::JOB_STATE_QUEUED:
      return "waited for its turn";
    case v1::JOB_STATE_RUNNING:
      return AttemptText(then) + LostText(job, then.attempt());
    default:
      break;
  }
  const std::string why = then.error().code() == 0 ? "" : Message(FromProto(then.error()));
  return StateText(then.state()) + (why.empty() ? "" : ": " + why.substr(0, why.find('\n')));
}

// Derives the states from the job itself when no event of them is left.
std::vector<Stretch> FromJob(const v1::Job& job) {
  std::vector<Stretch> stretches;
  const auto add = [&](int64_t begin_ns, v1::JobState state) {
    stretches.push_back({begin_ns, job, {}});
    stretches.back().job.set_state(state);
  };
  if (job.started_unix_ns() != 0) {
    add(job.created_unix_ns(), v1::JOB_STATE_QUEUED);
    add(job.started_unix_ns(), v1::JOB_STATE_RUNNING);
  } else {
    add(job.created_unix_ns(), HasEnded(job) ? v1::JOB_STATE_QUEUED : job.state());
  }
  if (HasEnded(job)) {
    add(job.ended_unix_ns(), job.state());
  }
  return stretches;
}

std::vector<Stretch> FromEvents(const v1::Job& job, const std::vector<v1::JobEvent>& events) {
  std::vector<Stretch> stretches;
  for (const v1::JobEvent& event : events) {
    if (event.has_job()) {
      const v1::Job& now = event.job();
      const bool is_same = !stretches.empty() && stretches.back().job.state() == now.state() &&
                           stretches.back().job.attempt() == now.attempt();
      if (is_same) {
        stretches.back().job = now;
      } else {
        stretches.push_back({event.time_unix_ns(), now, {}});
      }
    } else if (event.has_phase() && !stretches.empty()) {
      stretches.back().phases.push_back(event.phase());
    }
  }
  // After a restart the server reports only the last state.
  const bool is_whole = !stretches.empty() && !HasEnded(stretches.front().job);
  return is_whole ? stretches : FromJob(job);
}

}  // namespace

std::string EventText(const v1::JobEvent& event) {
  if (event.has_job()) {
    const v1::Job& job = event.job();
    std::string text = StateText(job.state());
    text += job.state() == v1::JOB_STATE_RUNNING && job.attempt() > 1 ? ", " + AttemptText(job) : "";
    text += job.waits_for().empty() ? "" : ": " + job.waits_for();
    return text;
  }
  if (event.has_placement()) {
    const v1::NodePlacement& placement = event.placement();
    return placement.node() + " on " + placement.device() + ", " +
           DurationText(placement.end_ns() - std::min(placement.start_ns(), placement.end_ns()));
  }
  if (event.has_phase()) {
    return PhaseName(event.phase().phase()) + " took " + DurationText(event.phase().duration_ns());
  }
  if (event.has_log()) {
    const int lines = event.log().lines_size();
    return "printed " + std::to_string(lines) + (lines == 1 ? " line: " : " lines, the last: ") +
           (lines == 0 ? "" : event.log().lines(lines - 1).text());
  }
  return std::to_string(event.progress().nodes_run()) + " of " + std::to_string(event.progress().nodes_total()) +
         " nodes";
}

Rows TimelineRows(const v1::Job& job, const std::vector<v1::JobEvent>& events, int64_t now_ns) {
  Rows rows = {{"AFTER", "TOOK", "WHAT"}, {"0 ns", "-", "submitted at " + TimeText(job.created_unix_ns())}};
  const std::vector<Stretch> stretches = FromEvents(job, events);
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& stretch = stretches[i];
    const bool is_end = HasEnded(stretch.job);
    const bool is_now = i + 1 == stretches.size() && !is_end;
    const int64_t end_ns = is_now || is_end ? now_ns : stretches[i + 1].begin_ns;
    const int64_t shortest_ns = 1000;  // Shorter stays are not shown as waits.
    const bool is_wait = stretch.job.state() == v1::JOB_STATE_ACCEPTED || stretch.job.state() == v1::JOB_STATE_QUEUED;
    if (is_wait && !is_now && end_ns - stretch.begin_ns < shortest_ns) {
      continue;
    }
    rows.push_back({Span(job.created_unix_ns(), stretch.begin_ns),
                    is_end ? "-" : Span(stretch.begin_ns, end_ns) + (is_now ? " so far" : ""),
                    WhatText(stretch.job, job)});
    if (stretch.job.state() == v1::JOB_STATE_RUNNING) {
      AddPhases(stretch, std::max<int64_t>(0, end_ns - stretch.begin_ns), job, &rows);
    }
  }
  return rows;
}

std::vector<v1::NodePlacement> PlacementsOf(const std::vector<v1::JobEvent>& events) {
  std::vector<v1::NodePlacement> placements;
  uint32_t attempt = 0;
  for (const v1::JobEvent& event : events) {
    if (event.has_placement()) {
      placements.push_back(event.placement());
    } else if (event.has_job() && event.job().attempt() != attempt) {
      attempt = event.job().attempt();
      placements.clear();  // Placements of a lost attempt are dropped.
    }
  }
  return placements;
}

std::string NowText(const v1::Job& job, int64_t now_ns) {
  if (HasEnded(job)) {
    return "";
  }
  if (job.not_before_unix_ns() > now_ns) {
    return job.waits_for() + " It comes in " + Span(now_ns, job.not_before_unix_ns()) + ".";
  }
  if (!job.waits_for().empty()) {
    return job.waits_for();
  }
  switch (job.state()) {
    case v1::JOB_STATE_ACCEPTED:
      return "The job is stored and will be queued.";
    case v1::JOB_STATE_QUEUED:
      return "The job waits for its turn: other jobs of this tenant, or of other tenants, go first.";
    default:
      break;
  }
  std::string text = "The job runs, " + AttemptText(job) + ", for " + Span(job.started_unix_ns(), now_ns);
  if (job.nodes_total() != 0) {
    text += ": " + std::to_string(job.nodes_run()) + " of " + std::to_string(job.nodes_total()) + " nodes";
  }
  return text + ".";
}

std::string NextStepNow(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_ACCEPTED && !job.after().empty() && job.attempt() == 0) {
    const std::string& first = job.after(0).job_id();
    return first.starts_with("array-") ? "`hpvmctl list --array " + first + "` lists what it waits for."
                                       : "`hpvmctl describe " + first + "` describes the job that it waits for.";
  }
  if (job.state() == v1::JOB_STATE_QUEUED) {
    return "`hpvmctl list --state live` lists the jobs that run and wait; `hpvmctl wait " + job.id() +
           "` follows this job.";
  }
  if (!HasEnded(job)) {
    return "`hpvmctl wait " + job.id() + "` follows it, `hpvmctl cancel " + job.id() + "` ends it.";
  }
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    return NextStep(job);
  }
  if (job.dropped()) {
    return "The outputs of the job were dropped to make room: submit the job again.";
  }
  std::string outputs;
  for (const v1::OutputValue& output : job.outputs()) {
    outputs += output.has_stored() ? " --output " + output.name() + "=" + output.name() + ".npy" : "";
  }
  return outputs.empty() ? "" : "`hpvmctl wait " + job.id() + outputs + "` fetches its outputs.";
}

}  // namespace hpvm::ctl
