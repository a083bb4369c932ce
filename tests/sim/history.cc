// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/history.h"

#include <algorithm>
#include <set>

namespace hpvm::server::sim {
namespace {

// Facts about a finished job that every reader must get alike.
std::string TerminalText(const v1::Job& job) {
  std::string text = v1::JobState_Name(job.state()) + " attempt " + std::to_string(job.attempt()) + " ended " +
                     std::to_string(job.ended_unix_ns()) + " error " + std::to_string(job.error().code()) + " " +
                     job.error().message();
  if (!job.dropped()) {
    for (const v1::OutputValue& output : job.outputs()) {
      text += " " + output.name() + ":" + std::to_string(output.value_case()) + ":" +
              std::to_string(output.stored().size_bytes()) + output.buffer().buffer_id();
    }
  }
  return text;
}

bool IsRetryable(const Outcome& outcome) {
  return absl::IsUnavailable(outcome.status) || absl::IsResourceExhausted(outcome.status) ||
         absl::IsDataLoss(outcome.status);
}

}  // namespace

Submission& History::NewSubmission() {
  Submission& submission = submissions_.emplace_back();
  submission.number = submissions_.size();
  return submission;
}

void History::OnSubmitted(Submission& submission, const Outcome& outcome, const v1::SubmitResponse& response) {
  context_.trace.Add("answer", "submission " + std::to_string(submission.number) + ": " +
                                   (outcome.ok() ? Short(response.job().id()) + (response.existed() ? " existed" : "")
                                                 : std::string(outcome.status.message()).substr(0, 90)));
  if (!outcome.ok()) {
    CheckRefusal(submission, outcome);
    return;
  }
  context_.Check(!submission.graph.is_invalid || !submission.retry_of.empty(), "validation",
                 [&] { return "A wrong graph became job " + response.job().id() + "."; });
  CheckKey(submission, response);
  CheckIds(submission, response);
  if (!response.existed() || response.job().created_unix_ns() != 0) {
    Look(submission.tenant, response.job());
  }
}

void History::CheckKey(Submission& submission, const v1::SubmitResponse& response) {
  if (submission.key.empty()) {
    context_.Check(!response.existed(), "idempotency", [] { return "A submit without a key met an earlier job."; });
    return;
  }
  const auto [known, is_new] = keys_.try_emplace({submission.tenant, submission.key}, &submission);
  context_.Check(known->second == &submission, "idempotency", [&] {
    return "The key \"" + submission.key + "\" was taken for submissions " + std::to_string(known->second->number) +
           " and " + std::to_string(submission.number) + ", which differ.";
  });
  context_.Check(response.existed() || !std::exchange(submission.was_new, true), "idempotency",
                 [&] { return "The key \"" + submission.key + "\" made a job twice."; });
}

void History::CheckIds(Submission& submission, const v1::SubmitResponse& response) {
  std::vector<std::string> ids(response.array_job_ids().begin(), response.array_job_ids().end());
  const std::string& array_id = response.job().array_id();
  if (!submission.is_array) {
    context_.Check(ids.empty() && array_id.empty(), "arrays", [] { return "A single job was answered as an array."; });
    ids = {response.job().id()};
  } else if (response.job().created_unix_ns() == 0 || ids.empty()) {
    // Older than the retention: only some ids are returned.
    context_.Check(model_.WasForgotten(response.job().id()), "arrays",
                   [&] { return "An array's elements are not told: " + array_id + "."; });
    return;
  }
  if (response.existed() && ids.size() < submission.count) {
    CheckSomeAreTold(submission, array_id, ids);
    return;
  }
  context_.Check(ids.size() == submission.count, "arrays", [&] {
    return std::to_string(ids.size()) + " jobs came of a submit of " + std::to_string(submission.count) + ".";
  });
  if (submission.acknowledged()) {
    context_.Check(ids == submission.ids, "idempotency", [&] {
      return "Submission " + std::to_string(submission.number) + " is " + submission.ids[0] + " and " + ids[0] + ".";
    });
    return;
  }
  submission.ids = ids;
  submission.array_id = array_id;
  for (size_t i = 0; i < ids.size(); ++i) {
    const uint64_t index = submission.first + i * submission.step;
    const bool is_new = owners_.try_emplace(ids[i], Owner{submission.tenant, &submission, index}).second;
    context_.Check(is_new, "idempotency", [&] { return "Two submits were answered with " + ids[i] + "."; });
    const Row* row = model_.Find(ids[i]);
    context_.Check((row != nullptr && row->tenant == submission.tenant) || model_.WasForgotten(ids[i]), "durability",
                   [&] { return "Job " + ids[i] + " was acknowledged before it was committed."; });
  }
}

// Checks a repeated response for an array, which no longer names elements older than the retention.
void History::CheckSomeAreTold(const Submission& submission, const std::string& array_id,
                               const std::vector<std::string>& ids) {
  std::set<std::string> missing(submission.ids.begin(), submission.ids.end());
  for (const std::string& id : ids) {
    context_.Check(missing.erase(id) > 0 || !submission.acknowledged(), "idempotency", [&] {
      return "Submission " + std::to_string(submission.number) + " is told of " + id + ", which is not its.";
    });
  }
  for (const std::string& id : missing) {
    context_.Check(model_.WasForgotten(id), "arrays",
                   [&] { return "Element " + id + " of " + array_id + " is stored, and is not told."; });
  }
  context_.Check(model_.ElementsOf(array_id).size() <= ids.size(), "arrays",
                 [&] { return "Elements of " + array_id + " are stored, and are not told."; });
}

void History::CheckRefusal(const Submission& submission, const Outcome& outcome) {
  const absl::StatusCode code = outcome.status.code();
  if (code == absl::StatusCode::kAlreadyExists) {
    const auto known = keys_.find({submission.tenant, submission.key});
    context_.Check(known == keys_.end() || known->second != &submission, "idempotency", [&] {
      return "The key \"" + submission.key +
             "\" is refused to the request that it stands for: " + submission.request.ShortDebugString().substr(0, 400);
    });
    return;
  }
  const auto known = keys_.find({submission.tenant, submission.key});
  const bool has_acknowledged_key = !submission.key.empty() && known != keys_.end() && known->second == &submission;
  // Handles and buffers are lost with the daemon, and jobs that are no longer stored cannot be waited for or retried.
  const bool is_plain =
      submission.incarnation == 0 && submission.retry_of.empty() && submission.request.after().empty();
  if (code == absl::StatusCode::kInvalidArgument) {
    context_.Check(submission.graph.is_invalid || !is_plain, "validation", [&] {
      return "Submission " + std::to_string(submission.number) +
             " was found wrong: " + std::string(outcome.status.message());
    });
    return;
  }
  context_.Check(
      IsRetryable(outcome) || code == absl::StatusCode::kNotFound || code == absl::StatusCode::kInternal ||
          code == absl::StatusCode::kDeadlineExceeded || (!is_plain && code == absl::StatusCode::kFailedPrecondition),
      "validation", [&] {
        return "Submission " + std::to_string(submission.number) + " was answered with " + outcome.status.ToString();
      });
  context_.Check(!has_acknowledged_key || IsRetryable(outcome) || code == absl::StatusCode::kNotFound, "idempotency",
                 [&] { return "A known key was answered with " + outcome.status.ToString(); });
}

void History::OnJob(const std::string& tenant, const std::string& id, const Status& status, const v1::Job& job) {
  const auto owner = owners_.find(id);
  const bool is_own = owner != owners_.end() && owner->second.tenant == tenant;
  if (status.ok()) {
    const Row* row = model_.Find(id);
    context_.Check((row == nullptr || row->tenant == tenant) && job.id() == id, "owners", [&] {
      return tenant + " was shown job " + job.id() + (row != nullptr ? " of " + row->tenant : "") + ".";
    });
    Look(tenant, job);
    return;
  }
  context_.Check(!absl::IsNotFound(status) || !is_own || model_.WasForgotten(id), "durability",
                 [&] { return "Job " + id + " was acknowledged and is not there: " + status.ToString(); });
}

void History::Look(const std::string& tenant, const v1::Job& job) {
  Seen& seen = seen_[job.id()];
  const Row* row = model_.Find(job.id());
  context_.trace.Add("shown", Short(job.id()) + " " + v1::JobState_Name(job.state()).substr(10) + " attempt " +
                                  std::to_string(job.attempt()) + (job.cancel_requested() ? " cancelled" : ""));
  context_.Check(row != nullptr || model_.WasForgotten(job.id()), "durability",
                 [&] { return "Job " + job.id() + " is shown and was never committed."; });
  context_.Check(job.attempt() >= seen.attempt, "states", [&] {
    return "Job " + job.id() + " was shown with attempt " + std::to_string(seen.attempt) + ", then with " +
           std::to_string(job.attempt()) + ".";
  });
  context_.Check(row == nullptr || job.attempt() <= row->attempt, "states", [&] {
    return "Job " + job.id() + " is shown with an attempt that is not on disk: " + Describe(*row) + ".";
  });
  context_.Check(job.cancel_requested() || !seen.cancel_requested, "cancel",
                 [&] { return "The wish to cancel job " + job.id() + " was forgotten."; });
  seen.attempt = job.attempt();
  // A request to cancel may be shown before it is on disk; afterwards it must stay.
  seen.cancel_requested |= job.cancel_requested() && row != nullptr && row->cancel_requested;
  if (!IsTerminal(job.state())) {
    context_.Check(seen.terminal.empty(), "states", [&] {
      return "Job " + job.id() + " was shown as ended (" + seen.terminal + "), then as " +
             v1::JobState_Name(job.state()) + ".";
    });
    return;
  }
  context_.Check(row == nullptr || row->state == job.state(), "states", [&] {
    return "Job " + job.id() + " is shown as " + v1::JobState_Name(job.state()) + "; on disk is " + Describe(*row);
  });
  const std::string text = TerminalText(job);
  if (seen.terminal.empty()) {
    seen.terminal = text;
  }
  context_.Check(job.dropped() ? seen.terminal.starts_with(text) : seen.terminal == text, "states",
                 [&] { return "Job " + job.id() + " ended as \"" + seen.terminal + "\" and as \"" + text + "\"."; });
}

void History::OnCancelled(const std::string& tenant, const std::string& id, const Status& status) {
  const auto owner = owners_.find(id);
  const bool is_own = owner != owners_.end() && owner->second.tenant == tenant;
  if (!status.ok()) {
    context_.Check(!absl::IsNotFound(status) || !is_own || model_.WasForgotten(id), "durability",
                   [&] { return "Cancelling an acknowledged job: " + status.ToString(); });
    return;
  }
  const auto check = [&](const Row* row) {
    context_.Check(row == nullptr || row->tenant == tenant, "owners",
                   [&] { return tenant + " cancelled a job of " + row->tenant + "."; });
    context_.Check(row == nullptr || IsTerminal(row->state) || row->cancel_requested, "cancel",
                   [&] { return "Cancelling was answered before the wish was on disk: " + Describe(*row) + "."; });
    if (row != nullptr && !IsTerminal(row->state)) {
      seen_[row->id].cancel_requested = true;
    }
  };
  check(model_.Find(id));
  for (const Row* row : model_.ElementsOf(id)) {
    check(row);
  }
}

void History::OnList(const std::string& tenant, const v1::ListJobsResponse& response) {
  uint64_t last = UINT64_MAX;
  for (const v1::Job& job : response.jobs()) {
    const Row* row = model_.Find(job.id());
    context_.Check(row == nullptr || row->tenant == tenant, "owners",
                   [&] { return tenant + " was listed job " + job.id() + " of " + row->tenant + "."; });
    context_.Check(row == nullptr || row->sequence < last, "lists",
                   [&] { return "Job " + job.id() + " is listed after an older one."; });
    last = row == nullptr ? last : row->sequence;
    Seen& seen = seen_[job.id()];
    context_.Check(seen.terminal.empty() || IsTerminal(job.state()), "states", [&] {
      return "Job " + job.id() + " was shown as ended (" + seen.terminal + "), then listed as " +
             v1::JobState_Name(job.state()) + ".";
    });
  }
}

const Submission* History::SubmissionOf(const std::string& id) const {
  const auto owner = owners_.find(id);
  return owner == owners_.end() ? nullptr : owner->second.submission;
}

std::string History::ExpectedOutput(const Submission& submission, const std::string& id, uint32_t output) const {
  GraphInputs inputs = submission.inputs;
  if (submission.graph.has_index) {
    inputs["i"] = IndexBytes(owners_.at(id).index);
  }
  return OutputOf(submission.graph, inputs, output);
}

void History::OnOutput(const std::string& tenant, const std::string& id, const std::string& name, const Status& status,
                       const std::string& bytes) {
  const Submission* submission = SubmissionOf(id);
  if (submission == nullptr) {
    return;
  }
  const Row* row = model_.Find(id);
  if (!status.ok()) {
    const bool is_kept = row != nullptr && row->state == v1::JOB_STATE_SUCCEEDED && !row->dropped;
    const bool has_it = name == "y" ? submission->buffer.empty() : submission->graph.outputs > 1;
    context_.Check(tenant != submission->tenant || !is_kept || !has_it || absl::IsUnavailable(status) ||
                       context_.plan.read_errors > 0 || seen_[id].terminal.empty(),
                   "results", [&] { return "Output " + name + " of " + Describe(*row) + ": " + status.ToString(); });
    return;
  }
  context_.Check(tenant == submission->tenant, "owners",
                 [&] { return tenant + " fetched an output of " + submission->tenant + "'s job " + id + "."; });
  context_.Check(bytes == ExpectedOutput(*submission, id, name == "y" ? 0 : 1), "results", [&] {
    return "Output " + name + " of job " + id + " has " + std::to_string(bytes.size()) + " wrong bytes.";
  });
}

std::vector<std::pair<std::string, std::string>> History::Acknowledged() const {
  std::vector<std::pair<std::string, std::string>> jobs;
  for (const auto& [id, owner] : owners_) {
    jobs.emplace_back(owner.tenant, id);
  }
  return jobs;
}

void History::CheckEnds() {
  for (const auto& [id, row] : model_.rows()) {
    context_.Check(IsTerminal(row.state), "liveness",
                   [&, &row = row] { return "A job never ends: " + Describe(row) + ": " + row.error; });
    CheckDependencies(row);
  }
}

void History::CheckDependencies(const Row& row) {
  for (const v1::JobDependency& dependency : row.after) {
    for (const Row* other : model_.UnitRows(dependency.job_id())) {
      const bool succeeded = other->state == v1::JOB_STATE_SUCCEEDED;
      const bool holds = dependency.condition() == v1::JobDependency::CONDITION_ENDED ||
                         succeeded == (dependency.condition() != v1::JobDependency::CONDITION_FAILED);
      context_.Check(holds || row.attempt == 0, "dependencies", [&] {
        return Describe(row) + " ran after " + Describe(*other) + ", against condition " +
               std::to_string(dependency.condition()) + ".";
      });
    }
  }
}

}  // namespace hpvm::server::sim
