// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/job_text.h"

#include <algorithm>
#include <map>
#include <optional>

#include "client/ctl/text/text.h"
#include "client/status/status.h"

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {
namespace {

constexpr size_t kGraphColumns = 14, kNameColumns = 16;
// In tables that have hosts.
constexpr size_t kGraphColumnsBeside = 10, kNameColumnsBeside = 8, kHostColumns = 10;

// Cuts the text to at most `columns` characters, never inside a UTF-8 character.
std::string Cut(std::string text, size_t columns) {
  if (text.size() <= columns) {
    return text;
  }
  size_t at = columns - 2;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) {
    --at;
  }
  return text.substr(0, at) + "..";
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

std::string NameOf(const v1::Job& job) {
  return job.array_id().empty() ? job.name() : job.name() + "[" + std::to_string(job.array_index()) + "]";
}

std::string Span(int64_t from_ns, int64_t to_ns) {
  return DurationText(static_cast<uint64_t>(std::max<int64_t>(0, to_ns - from_ns)));
}

// Returns the duration of the job's last attempt, so far if it still runs.
std::string RanText(const v1::Job& job, int64_t now_ns) {
  if (job.started_unix_ns() == 0) {
    return "-";
  }
  if (job.ended_unix_ns() != 0) {
    return Span(job.started_unix_ns(), job.ended_unix_ns());
  }
  return job.state() == v1::JOB_STATE_RUNNING ? Span(job.started_unix_ns(), now_ns) : "-";
}

// Also returns how much of that was the job's own work: in its tenant's executor a job takes turns with the tenant's
// other runs.
std::string RanTextWithOwn(const v1::Job& job, int64_t now_ns) {
  if (job.ended_unix_ns() == 0 || job.started_unix_ns() == 0) {
    return "";
  }
  const v1::RunTiming& timing = job.timing();
  const uint64_t own = timing.bind_ns() + timing.copy_in_ns() + timing.run_ns() + timing.copy_out_ns();
  return ", ran " + RanText(job, now_ns) +
         (own == 0 ? "" : ", its own work " + Span(0, static_cast<int64_t>(std::min<uint64_t>(own, INT64_MAX))));
}

std::string CodeText(const v1::Status& status) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(status.code()));
}

std::string ErrorText(const v1::Status& status) { return CodeText(status) + ": " + Message(FromProto(status)); }

// The first line is enough for a table.
std::string Why(const v1::Job& job) {
  const std::string text = job.error().code() != 0 ? ErrorText(job.error()) : job.waits_for();
  return OrDash(text.substr(0, text.find('\n')));
}

std::string LabelsText(const v1::Job& job) {
  const std::map<std::string, std::string> sorted(job.labels().begin(), job.labels().end());
  std::string text;
  for (const auto& [key, value] : sorted) {
    text += (text.empty() ? "" : ", ") + key + "=" + value;
  }
  return text;
}

std::string AttemptsText(const v1::Job& job) {
  const std::string number = std::to_string(job.attempt());
  const std::string most = std::to_string(job.attempts_max());
  if (job.attempts_max() == 0) {
    return number;
  }
  if (!job.has_attempts_counted() || job.attempts_counted() == job.attempt()) {
    return number + " of " + most;
  }
  return number + " (" + std::to_string(job.attempts_counted()) + " of " + most + " counted)";
}

std::string LimitsText(const v1::JobLimits& limits) {
  std::string text;
  const auto add = [&](const char* what, uint64_t ns) {
    if (ns != 0) {
      text += (text.empty() ? "" : ", ") + std::string(what) + " " +
              Span(0, static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX)));
    }
  };
  add("waits at most", limits.wait_ns());
  add("an attempt runs at most", limits.run_ns());
  add("takes device time of at most", limits.device_ns());
  return text;
}

std::string NeedsText(const v1::HostNeeds& needs) {
  std::string text;
  const auto add = [&](const std::string& need) { text += (text.empty() ? "" : ", ") + need; };
  for (const std::string& word : needs.words()) {
    add(word);
  }
  if (!needs.host().empty()) {
    add("the host " + needs.host());
  }
  if (needs.memory_bytes() != 0) {
    add(BytesText(needs.memory_bytes()) + " of the host's memory");
  }
  return text;
}

std::string AfterText(const v1::Job& job) {
  std::string text;
  for (const v1::JobDependency& dependency : job.after()) {
    text += (text.empty() ? "" : ", ") + dependency.job_id();
    text += dependency.condition() == v1::JobDependency::CONDITION_ENDED    ? " (ended)"
            : dependency.condition() == v1::JobDependency::CONDITION_FAILED ? " (failed)"
                                                                            : " (succeeded)";
  }
  return text;
}

std::string OutputText(const v1::OutputValue& value) {
  const auto describe = [](v1::ElementType type, const auto& shape) {
    if (type < v1::ELEMENT_TYPE_BOOL || type > v1::ELEMENT_TYPE_F64) {
      return std::string("?");
    }
    return Describe(static_cast<ElementType>(type), std::vector<uint64_t>(shape.begin(), shape.end()));
  };
  if (value.has_stored()) {
    return value.name() + ": " + describe(value.stored().type(), value.stored().shape()) + ", " +
           BytesText(value.stored().size_bytes()) + " kept with the job";
  }
  if (value.has_buffer()) {
    return value.name() + ": " + describe(value.buffer().type(), value.buffer().shape()) + " in " +
           value.buffer().buffer_id();
  }
  return value.name();
}

// Lines formats "name  value" lines; empty values are left out.
class Lines {
 public:
  void Add(const std::string& name, const std::string& value) {
    if (!value.empty()) {
      text_ += "  " + name + std::string(name.size() < 10 ? 10 - name.size() : 0, ' ') + "  " + value + "\n";
    }
  }
  void AddTime(const std::string& name, int64_t unix_ns, int64_t now_ns, const std::string& more = "") {
    if (unix_ns != 0) {
      const bool past = unix_ns <= now_ns;
      const std::string age = past ? AgeText(unix_ns, now_ns) + " ago" : "in " + AgeText(now_ns, unix_ns);
      Add(name, TimeText(unix_ns) + " (" + age + more + ")");
    }
  }
  std::string text_;
};

void AddFailure(const v1::Job& job, Lines* lines) {
  if (job.error().code() != 0) {
    const std::optional<v1::ErrorDetail> detail = DetailOf(job.error());
    lines->Add("node", detail.has_value() ? detail->node() : "");
    lines->Add("error", ErrorText(job.error()));
  }
  for (const v1::LostAttempt& lost : job.lost_attempts()) {
    lines->Add("lost", "attempt " + std::to_string(lost.attempt()) + " at " + TimeText(lost.ended_unix_ns()) + ": " +
                           ErrorText(lost.error()));
  }
}

std::string LogSummary(const v1::Job& job) {
  const uint64_t lines = static_cast<uint64_t>(job.log().lines_size()) + job.log().lines_dropped();
  return lines == 0 ? "" : std::to_string(lines) + " lines; `hpvmctl logs " + job.id() + "` shows them";
}

// Returns the next step after FAILED, by the error's code.
std::string NextStepAfter(const v1::Job& job) {
  const std::optional<v1::ErrorDetail> detail = DetailOf(job.error());
  const std::string retry = "`hpvmctl retry " + job.id() + "`";
  switch (static_cast<absl::StatusCode>(job.error().code())) {
    case absl::StatusCode::kAborted:
      return "`hpvmctl run --local --check GRAPH ...` with the same inputs looks for the fault; a kernel built with -g "
             "names its source lines.";
    case absl::StatusCode::kDeadlineExceeded:
      return "Give the job more time: `hpvmctl retry " + job.id() + " --deadline 1h`.";
    case absl::StatusCode::kResourceExhausted:
      return "The error names the limit: use smaller inputs, make room, or ask the operator to raise it; then " +
             retry + ".";
    case absl::StatusCode::kDataLoss:
      return "A buffer's contents were lost with the server or a device: write the buffer again and submit the job "
             "again.";
    case absl::StatusCode::kFailedPrecondition:
      if (!job.after().empty() && job.attempt() == 0) {
        const std::string cause = detail.has_value() && !detail->job_id().empty() ? detail->job_id() : "JOB";
        return "This job was to start after a job that ended in another state: `hpvmctl get " + cause +
               "` tells how; `hpvmctl retry " + cause +
               "` submits that job again; then submit this job again with --after and the id of the new job.";
      }
      return "No device of the server can run the graph: `hpvmctl devices` lists the devices; add a variant for one of "
             "them.";
    case absl::StatusCode::kUnavailable:
      return "The job was not tried again because it updates a buffer in place: write the buffer again, then " + retry +
             ".";
    case absl::StatusCode::kInvalidArgument:
      return "Inputs or symbols do not fit the graph: correct them and submit the job again.";
    case absl::StatusCode::kInternal:
      return "This is a fault of hpvmd itself: please report it, with the server's log.";
    default:
      return retry + " submits it again.";
  }
}

}  // namespace

bool HasEnded(const v1::Job& job) {
  return job.state() >= v1::JOB_STATE_SUCCEEDED && job.state() <= v1::JOB_STATE_DEAD;
}

std::string StateText(v1::JobState state) {
  constexpr std::string_view kPrefix = "JOB_STATE_";
  const std::string name = v1::JobState_Name(state);
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "STATE " + std::to_string(state);
}

std::string AgeText(int64_t unix_ns, int64_t now_ns) {
  const int64_t seconds = std::max<int64_t>(0, now_ns - unix_ns) / 1'000'000'000;
  return seconds < 120          ? std::to_string(seconds) + "s"
         : seconds < 2 * 3600   ? std::to_string(seconds / 60) + "m"
         : seconds < 2 * 86'400 ? std::to_string(seconds / 3600) + "h"
                                : std::to_string(seconds / 86'400) + "d";
}

namespace {

std::vector<std::string> WideRow(const v1::Job& job, int64_t now_ns) {
  return {job.id(),
          StateText(job.state()),
          TimeText(job.created_unix_ns()),
          RanText(job, now_ns),
          AttemptsText(job),
          OrDash(job.host()),
          std::to_string(job.priority()),
          OrDash(job.graph_name()),
          OrDash(NameOf(job)),
          OrDash(job.array_id()),
          OrDash(LabelsText(job)),
          Why(job)};
}

std::vector<std::string> NarrowRow(const v1::Job& job, int64_t now_ns, bool with_host) {
  std::vector<std::string> row = {job.id(), StateText(job.state()), AgeText(job.created_unix_ns(), now_ns),
                                  RanText(job, now_ns)};
  if (with_host) {
    row.push_back(Cut(OrDash(job.host()), kHostColumns));
  }
  row.push_back(Cut(OrDash(job.graph_name()), with_host ? kGraphColumnsBeside : kGraphColumns));
  row.push_back(Cut(OrDash(NameOf(job)), with_host ? kNameColumnsBeside : kNameColumns));
  return row;
}

}  // namespace

std::vector<std::vector<std::string>> JobRows(const std::vector<v1::Job>& jobs, int64_t now_ns, bool wide) {
  const bool with_tenant = std::ranges::any_of(jobs, [](const v1::Job& job) { return !job.tenant().empty(); });
  const bool with_host = std::ranges::any_of(jobs, [](const v1::Job& job) { return !job.host().empty(); });
  std::vector<std::vector<std::string>> rows;
  if (wide) {
    rows.push_back(
        {"JOB", "STATE", "CREATED", "TIME", "ATTEMPT", "HOST", "PRIORITY", "GRAPH", "NAME", "ARRAY", "LABELS", "WHY"});
  } else if (with_host) {
    rows.push_back({"JOB", "STATE", "AGE", "TIME", "HOST", "GRAPH", "NAME"});
  } else {
    rows.push_back({"JOB", "STATE", "AGE", "TIME", "GRAPH", "NAME"});
  }
  for (const v1::Job& job : jobs) {
    rows.push_back(wide ? WideRow(job, now_ns) : NarrowRow(job, now_ns, with_host));
  }
  for (size_t i = 0; with_tenant && i < rows.size(); ++i) {
    rows[i].insert(rows[i].begin(), i == 0 ? "TENANT" : OrDash(jobs[i - 1].tenant()));
  }
  return rows;
}

namespace {

Lines FactsOf(const v1::Job& job, int64_t now_ns) {
  Lines lines;
  std::string state = StateText(job.state());
  if (job.cancel_requested() && !HasEnded(job)) {
    state += ", cancellation requested";
  }
  lines.Add("state", state);
  lines.Add("waits", job.waits_for());
  if (job.has_hold()) {
    lines.AddTime("held", job.hold().since_unix_ns(), now_ns, ", by " + job.hold().by());
  }
  if (job.not_before_unix_ns() > now_ns) {
    lines.Add("next try", "in " + Span(now_ns, job.not_before_unix_ns()));
  }
  lines.Add("graph", job.graph_name());
  lines.Add("name", job.name());
  lines.Add("labels", LabelsText(job));
  lines.Add("array", job.array_id().empty() ? "" : job.array_id() + ", index " + std::to_string(job.array_index()));
  lines.Add("after", AfterText(job));
  lines.Add("retry of", job.retry_of());
  lines.Add("key", job.idempotency_key());
  lines.Add("priority", job.priority() == 0 ? "" : std::to_string(job.priority()));
  lines.Add("needs", NeedsText(job.host_needs()));
  lines.Add("host", job.host());
  lines.Add("attempt", job.attempt() == 0 ? "" : AttemptsText(job));
  lines.AddTime("created", job.created_unix_ns(), now_ns);
  lines.AddTime("started", job.started_unix_ns(), now_ns);
  lines.AddTime("ended", job.ended_unix_ns(), now_ns, RanTextWithOwn(job, now_ns));
  if (!HasEnded(job)) {
    lines.AddTime("deadline", job.deadline_unix_ns(), now_ns);
  }
  lines.Add("limits", LimitsText(job.limits()));
  if (job.nodes_total() != 0) {
    lines.Add("nodes", std::to_string(job.nodes_run()) + " of " + std::to_string(job.nodes_total()));
  }
  for (const v1::OutputValue& output : job.outputs()) {
    lines.Add("output", OutputText(output));
  }
  lines.Add("log", LogSummary(job));
  for (const std::string& sentence : job.defects()) {
    lines.Add("note", sentence);
  }
  lines.Add("dropped", job.dropped() ? "its outputs, log and request, to make room" : "");
  AddFailure(job, &lines);
  return lines;
}

}  // namespace

std::string JobFacts(const v1::Job& job, int64_t now_ns) { return job.id() + "\n" + FactsOf(job, now_ns).text_; }

std::string JobDetails(const v1::Job& job, int64_t now_ns) {
  Lines lines = FactsOf(job, now_ns);
  lines.Add("next", NextStep(job));
  return job.id() + "\n" + lines.text_;
}

std::string StateCounts(const std::vector<v1::Job>& jobs) {
  std::map<v1::JobState, size_t> counts;
  for (const v1::Job& job : jobs) {
    ++counts[job.state()];
  }
  std::string text;
  for (const auto& [state, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + StateText(state);
  }
  return text;
}

std::string FailureText(const v1::Job& job) {
  std::string text;
  if (job.error().code() != 0) {
    text = ErrorText(job.error());
  } else if (job.state() == v1::JOB_STATE_CANCELLED) {
    text = "CANCELLED: The job was cancelled.";
  } else if (job.state() == v1::JOB_STATE_EXPIRED) {
    text = "DEADLINE_EXCEEDED: The job's deadline passed before it started.";
  } else {
    text = "UNKNOWN: The server gave no reason.";
  }
  const std::optional<v1::ErrorDetail> detail = DetailOf(job.error());
  if (detail.has_value() && !detail->node().empty() && text.find("\"" + detail->node() + "\"") == std::string::npos) {
    text += "\n - In node \"" + detail->node() + "\"";
  }
  for (const v1::LostAttempt& lost : job.lost_attempts()) {
    text += "\n - Attempt " + std::to_string(lost.attempt()) + " was lost at " + TimeText(lost.ended_unix_ns()) + ": " +
            ErrorText(lost.error());
  }
  text += "\n - While running job " + job.id() + ", which is " + StateText(job.state());
  if (job.attempt() > 1) {
    text += " after " + std::to_string(job.attempt()) + " attempts";
  }
  return text + "\n -> " + NextStep(job);
}

std::string NextStep(const v1::Job& job) {
  const std::string retry = "`hpvmctl retry " + job.id() + "`";
  if (job.dropped() && HasEnded(job) && job.state() != v1::JOB_STATE_SUCCEEDED) {
    return "The request of the job was dropped to make room: submit it again.";
  }
  switch (job.state()) {
    case v1::JOB_STATE_FAILED:
      return NextStepAfter(job);
    case v1::JOB_STATE_CANCELLED:
      return retry + " submits it again.";
    case v1::JOB_STATE_EXPIRED:
      return "The job never started: give it more time (`hpvmctl retry " + job.id() +
             " --deadline 1h`) or a higher priority (--priority).";
    case v1::JOB_STATE_DEAD:
      return "Every attempt was lost with the process or device that ran it: `hpvmctl run --local GRAPH ...` with the "
             "same inputs shows whether the graph is the cause; when the cause is removed, " +
             retry + ".";
    default:
      return "";
  }
}

ExitCode ExitCodeOf(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_SUCCEEDED:
      return kOk;
    case v1::JOB_STATE_CANCELLED:
      return kCancelled;
    case v1::JOB_STATE_EXPIRED:
      return kDeadline;
    case v1::JOB_STATE_DEAD:
      return kFailed;
    default:
      break;
  }
  const auto code = static_cast<absl::StatusCode>(job.error().code());
  const bool by_dependency =
      code == absl::StatusCode::kFailedPrecondition && !job.after().empty() && job.attempt() == 0;
  // The server answered, so kUnavailable here does not mean an unreachable server.
  if (job.error().code() == 0 || by_dependency || code == absl::StatusCode::kUnavailable) {
    return kFailed;
  }
  return ExitCodeOf(MakeStatus(code, ""));
}

}  // namespace hpvm::ctl
