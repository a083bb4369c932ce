// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/attempts.h"

#include <algorithm>

namespace hpvm::server::sim {
namespace {

// Time from a commit until the core knows of it.
constexpr Duration kAnswerWithin = std::chrono::milliseconds(50);
// Time between a fault and the commit that reports it, in worlds with a fast disk.
constexpr Duration kFaultWindow = std::chrono::seconds(30);

bool EndedAs(const Row& row, v1::JobDependency::Condition condition) {
  switch (condition) {
    case v1::JobDependency::CONDITION_ENDED:
      return IsTerminal(row.state);
    case v1::JobDependency::CONDITION_FAILED:
      return IsTerminal(row.state) && row.state != v1::JOB_STATE_SUCCEEDED;
    default:
      return row.state == v1::JOB_STATE_SUCCEEDED;
  }
}

}  // namespace

Attempts::Attempts(Context& context, StoreModel& model) : context_(context), model_(model) {
  model_.SetOnChange([this](const Row* before, const Row& after) { OnChange(before, after); });
}

uint64_t Attempts::OnStart(const std::string& tenant, uint64_t token, uint64_t index) {
  const Key key(token, index);
  const uint64_t id = next_++;
  const std::string writer = WriterOf(key);
  live_[id] = {key, tenant, writer};
  if (token < kVolatileTokens) {
    ++history_[key].effective;
    wrote_.insert(writer);
    CheckStart(key);
  }
  return id;
}

std::string Attempts::WriterOf(const Key& key) const {
  std::string writer;
  for (const Row* row : model_.RowsOf(key.first)) {
    if (row->index == key.second && row->in_place && row->state == v1::JOB_STATE_RUNNING &&
        row->lease == model_.lease() && wrote_.count(row->id) == 0) {
      if (!writer.empty()) {
        return "";
      }
      writer = row->id;
    }
  }
  return writer;
}

void Attempts::CheckStart(const Key& key) {
  const StoreModel::Gone gone = model_.GoneOf(key.first, key.second);
  uint64_t running = 0, attempts = gone.attempts, in_place = gone.in_place, rows = gone.rows;
  bool is_cancelled = false;
  for (const Row* row : model_.RowsOf(key.first)) {
    if (row->index != key.second) {
      continue;
    }
    ++rows;
    running += row->state == v1::JOB_STATE_RUNNING && row->lease == model_.lease() ? 1 : 0;
    attempts += row->attempt;
    in_place += row->in_place ? 1 : 0;
    // The commit's callback reaches the core a moment later.
    is_cancelled |= row->state == v1::JOB_STATE_RUNNING && row->cancel_requested &&
                    row->changed + kAnswerWithin < context_.clock.Now();
  }
  const auto live = static_cast<uint64_t>(
      std::count_if(live_.begin(), live_.end(), [&](const auto& run) { return run.second.key == key; }));
  const auto text = [&](std::string_view what) {
    return "Submit " + std::to_string(key.first) + "[" + std::to_string(key.second) + "]: " + std::string(what);
  };
  context_.Check(running > 0, "attempts", [&] { return text("a run began without an attempt on disk."); });
  context_.Check(!is_cancelled || running != 1, "cancel",
                 [&] { return text("a run began long after the wish to cancel it."); });
  context_.Check(live <= running, "attempts", [&] {
    return text(std::to_string(live) + " runs at a time for " + std::to_string(running) + " running jobs.");
  });
  context_.Check(history_[key].effective <= attempts, "attempts", [&] {
    return text(std::to_string(history_[key].effective) + " runs for " + std::to_string(attempts) + " attempts.");
  });
  context_.Check(in_place < rows || in_place == 0 || history_[key].effective <= rows, "in place",
                 [&] { return text("a job that writes what it reads ran again."); });
}

// Jobs that wait for their first attempt were admitted: never more than the limit.
void Attempts::CheckQueue(const Row& added) {
  const auto& rows = model_.rows();
  const auto waiting = static_cast<uint64_t>(std::count_if(rows.begin(), rows.end(), [&](const auto& other) {
    const Row& row = other.second;
    return row.tenant == added.tenant && row.state == v1::JOB_STATE_ACCEPTED && row.attempt == 0;
  }));
  context_.Check(waiting < context_.queued_per_tenant_max, "quotas", [&] {
    return added.tenant + " has more jobs waiting than the limit of " + std::to_string(context_.queued_per_tenant_max) +
           ".";
  });
}

void Attempts::OnEnd(uint64_t id, Fate fate) {
  const auto found = live_.find(id);
  if (found == live_.end()) {
    return;
  }
  History& history = history_[found->second.key];
  history.last = fate;
  history.any_done |= fate == Fate::kDone;
  history.any_trapped |= fate == Fate::kTrapped;
  history.any_lost |= fate == Fate::kLost;
  history.any_broken |= fate == Fate::kBroken;
  history.any_other |= fate == Fate::kOther;
  if (fate == Fate::kNoMemory) {
    history.effective -= history.effective > 0 ? 1 : 0;
    wrote_.erase(found->second.writer);
  }
  live_.erase(found);
}

void Attempts::OnDaemonEnd(bool drained) {
  for (const auto& [id, run] : live_) {
    history_[run.key].last = drained ? Fate::kStopped : Fate::kLost;
  }
  live_.clear();
  has_restarted_ = true;
}

void Attempts::OnDaemonStart() { draining_ = false; }

bool Attempts::IsFulfilled(const v1::JobDependency& dependency) const {
  const std::vector<const Row*> rows = model_.UnitRows(dependency.job_id());
  return std::all_of(rows.begin(), rows.end(), [&](const Row* row) { return EndedAs(*row, dependency.condition()); });
}

bool Attempts::IsPossible(const v1::JobDependency& dependency) const {
  const std::vector<const Row*> rows = model_.UnitRows(dependency.job_id());
  return !rows.empty() && std::all_of(rows.begin(), rows.end(), [&](const Row* row) {
    return !IsTerminal(row->state) || EndedAs(*row, dependency.condition());
  });
}

Time Attempts::LastChange(const v1::JobDependency& dependency) const {
  Time last{0};
  for (const Row* row : model_.UnitRows(dependency.job_id())) {
    last = std::max(last, row->changed);
  }
  return last;
}

bool Attempts::WaitsForNothing(const Row& row) const {
  const auto is_fulfilled = [&](const v1::JobDependency& dependency) { return IsFulfilled(dependency); };
  // A job that is no longer stored may have ended either way.
  const auto is_hopeless = [&](const v1::JobDependency& dependency) {
    return !model_.UnitRows(dependency.job_id()).empty() && !IsPossible(dependency);
  };
  return row.state == v1::JOB_STATE_ACCEPTED && (std::all_of(row.after.begin(), row.after.end(), is_fulfilled) ||
                                                 std::any_of(row.after.begin(), row.after.end(), is_hopeless));
}

void Attempts::CheckDependencies(const Row& row) {
  for (const v1::JobDependency& dependency : row.after) {
    context_.Check(IsFulfilled(dependency), "dependencies", [&] {
      return Describe(row) + " started before " + dependency.job_id() + " was as asked (condition " +
             std::to_string(dependency.condition()) + ").";
    });
  }
}

void Attempts::CheckCompany(const Row& row) {
  if (row.array_running_max == 0) {
    return;
  }
  const std::vector<const Row*> rows = model_.ElementsOf(row.array_id);
  const auto running = static_cast<uint64_t>(std::count_if(rows.begin(), rows.end(), [&](const Row* other) {
    // Runs of an earlier daemon have ended with it, whatever is on disk.
    return other->state == v1::JOB_STATE_RUNNING && other->lease == model_.lease();
  }));
  context_.Check(running <= row.array_running_max, "arrays", [&] {
    return std::to_string(running) + " elements of " + row.array_id + " run; its limit is " +
           std::to_string(row.array_running_max) + ".";
  });
}

void Attempts::OnChange(const Row* before, const Row& after) {
  context_.trace.Add("commit", (before == nullptr ? "new " : "") + Describe(after));
  if (before == nullptr) {
    CheckQueue(after);
    if (!after.retry_of.empty()) {
      const Row* earlier = model_.Find(after.retry_of);
      context_.Check(earlier == nullptr || IsTerminal(earlier->state), "states",
                     [&] { return Describe(*earlier) + " was retried."; });
    }
    return;
  }
  cancel_stored_ |= after.state == v1::JOB_STATE_RUNNING && after.cancel_requested && !before->cancel_requested;
  if (after.state == v1::JOB_STATE_RUNNING && before->state != v1::JOB_STATE_RUNNING) {
    CheckDependencies(after);
    CheckCompany(after);
    context_.Check(!before->cancel_requested, "cancel",
                   [&] { return "An attempt began although the wish to cancel is on disk: " + Describe(after) + "."; });
  }
  const History& history = history_[{after.token, after.index}];
  if (before->state == v1::JOB_STATE_RUNNING && after.state == v1::JOB_STATE_ACCEPTED) {
    const bool is_older = before->lease < model_.lease();
    const auto fault = start_faults_.find(after.tenant);
    const bool had_fault = fault != start_faults_.end() && fault->second + kFaultWindow >= before->changed;
    // Attempts that were not on disk yet when the daemon stopped are repeated.
    const bool is_broken_off = draining_ && after.spent < before->spent;
    context_.Check(
        (history.last != Fate::kTrapped && history.last != Fate::kDone) || is_older || had_fault || is_broken_off,
        "retries", [&] { return "A job that failed by itself is to run again: " + Describe(after) + "."; });
    context_.Check(after.spent < before->spent || is_older || history.last == Fate::kLost || had_fault, "retries",
                   [&] { return "An attempt was spent that no fault had cost: " + Describe(after) + "."; });
    // Only its own runs count: writes of an earlier job were accepted by the client that asked for the retry.
    context_.Check(wrote_.count(after.id) == 0, "in place",
                   [&] { return "A job that writes what it reads is to run again: " + Describe(after) + "."; });
  }
  if (IsTerminal(after.state)) {
    CheckEnd(*before, after);
  }
}

bool Attempts::MayBeLate(const Row& row) const {
  // Time from the receipt of a submit to its row, which validating its graph takes.
  constexpr int64_t kSlackNs = 2'000'000'000;
  // A jump of the wall clock, or a restart after one, changes which jobs are late.
  return row.deadline_unix_ns != 0 &&
         (context_.plan.jump_every > Duration{0} || context_.clock.WallNs() + kSlackNs >= row.deadline_unix_ns);
}

void Attempts::CheckEnd(const Row& before, const Row& after) {
  const History& history = history_[{after.token, after.index}];
  const auto check = [&](bool holds, std::string_view what) {
    context_.Check(holds, "causes", [&] { return std::string(what) + " " + Describe(after) + ": " + after.error; });
  };
  switch (after.state) {
    case v1::JOB_STATE_SUCCEEDED:
      check(history.any_done, "A job succeeded though no run of it did.");
      break;
    case v1::JOB_STATE_CANCELLED:
      check(cancels_.count(after.id) != 0 || cancels_.count(after.array_id) != 0,
            "A job was cancelled that nobody asked to cancel.");
      break;
    case v1::JOB_STATE_EXPIRED:
      check(MayBeLate(after), "A job expired before its deadline.");
      break;
    case v1::JOB_STATE_DEAD:
      check(history.any_lost || has_restarted_ || start_faults_.count(after.tenant) != 0, "A job died of nothing.");
      break;
    default:
      CheckFailure(after, history);
      break;
  }
}

void Attempts::CheckFailure(const Row& after, const History& history) {
  const Plan& plan = context_.plan;
  bool explained = false;
  switch (static_cast<absl::StatusCode>(after.error_code)) {
    case absl::StatusCode::kAborted:
      explained = history.any_trapped;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      explained = MayBeLate(after);
      break;
    case absl::StatusCode::kFailedPrecondition:
      explained = after.attempt == 0 &&
                  std::any_of(after.after.begin(), after.after.end(),
                              [&](const v1::JobDependency& dependency) { return !IsPossible(dependency); });
      break;
    case absl::StatusCode::kDataLoss:
      explained = has_restarted_ || plan.read_errors > 0 || plan.write_errors > 0;
      break;
    case absl::StatusCode::kInternal:
      explained = history.any_broken || plan.garbage > 0;
      break;
    case absl::StatusCode::kResourceExhausted:
      explained = true;  // Quotas have checks of their own.
      break;
    case absl::StatusCode::kUnavailable:
      explained = after.in_place;
      break;
    case absl::StatusCode::kNotFound:
      explained = !after.retry_of.empty();  // Its buffer was deleted meanwhile.
      break;
    default:
      explained = history.any_other;
      break;
  }
  context_.Check(explained, "causes",
                 [&] { return "A job failed without a cause: " + Describe(after) + ": " + after.error; });
}

}  // namespace hpvm::server::sim
