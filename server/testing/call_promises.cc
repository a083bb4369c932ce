// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_promises.h"

#include <algorithm>
#include <utility>

#include "server/jobs/rows/job_database.h"

namespace hpvm::server::testing {
namespace {

using absl::StatusCode;

struct IdForm {
  std::string_view prefix;
  size_t digits;
};
constexpr std::array<IdForm, 4> kIdForms = {{{"graph-", 32}, {"buf-", 32}, {"job-", 44}, {"array-", 44}}};

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// base/status.h; kInternal and kUnknown are the daemon's own bugs.
bool IsDocumented(StatusCode code, ActionKind kind) {
  const bool is_run = kind == ActionKind::kRun || kind == ActionKind::kStreamItem;
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kFailedPrecondition:
    case StatusCode::kResourceExhausted:
    case StatusCode::kPermissionDenied:
    case StatusCode::kUnavailable:
    case StatusCode::kUnimplemented:
      return true;
    case StatusCode::kAlreadyExists:
      return kind == ActionKind::kSubmit || kind == ActionKind::kSubmitArray || kind == ActionKind::kRetryJob;
    case StatusCode::kAborted:
      return is_run || kind == ActionKind::kFinishWrite;
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kDataLoss:
      return is_run;
    case StatusCode::kCancelled:
      return is_run || kind == ActionKind::kPrepareGraph;
    case StatusCode::kOutOfRange:
      return kind == ActionKind::kWriteBuffer || kind == ActionKind::kReadBuffer;
    default:
      return false;
  }
}

// Examines the first line: the following ones say what was being done.
bool IsSentence(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.size() > 2 && (line.back() == '.' || line.back() == ':') && line.front() != ' ';
}

std::string NumberOf(const CallPromises::Call& call) {
  return "Call " + std::to_string(call.number) + " (" + std::string(NameOf(call.kind)) + " of " +
         std::string(kTenantNames[call.tenant]) + ")";
}

}  // namespace

std::vector<std::string> IdsIn(std::string_view text) {
  std::vector<std::string> ids;
  for (const IdForm& form : kIdForms) {
    for (size_t at = text.find(form.prefix); at != std::string_view::npos; at = text.find(form.prefix, at + 1)) {
      const std::string_view id = text.substr(at, form.prefix.size() + form.digits);
      if (id.size() == form.prefix.size() + form.digits &&
          std::all_of(id.begin() + static_cast<ptrdiff_t>(form.prefix.size()), id.end(), IsHexDigit)) {
        ids.emplace_back(id);
      }
    }
  }
  return ids;
}

void CallPromises::Break(std::string sentence) {
  if (broken_.empty()) {
    broken_ = std::move(sentence);
  }
}

void CallPromises::Expect(bool holds, std::string_view sentence) {
  if (!holds) {
    Break(std::string(sentence));
  }
}

CallPromises::CallRef CallPromises::Begin(ActionKind kind, size_t tenant, std::string asked) {
  auto call = std::make_shared<Call>(Call{kind, tenant, ++calls_, std::move(asked)});
  open_[call->number] = call;
  return call;
}

void CallPromises::Answer(Call& call, const Outcome& outcome, std::string_view answer) {
  if (std::exchange(call.is_answered, true)) {
    Break(NumberOf(call) + " was answered a second time: " + outcome.status.ToString());
    return;
  }
  open_.erase(call.number);
  Count(call.kind, outcome.ok());
  if (outcome.ok()) {
    CheckAsked(call);
  } else {
    CheckRefusal(call, outcome);
  }
  CheckOwners(call, answer);
  CheckOwners(call, Message(outcome.status));
  if (outcome.detail.has_value()) {
    CheckOwners(call, outcome.detail->SerializeAsString());
  }
}

void CallPromises::AnswerNow(ActionKind kind, size_t tenant, std::string asked, const Outcome& outcome,
                             std::string_view answer) {
  Answer(*Begin(kind, tenant, std::move(asked)), outcome, answer);
}

void CallPromises::ExpectNoneOpen(std::string_view when) {
  for (const auto& [number, call] : open_) {
    Break(NumberOf(*call) + " has no answer " + std::string(when) + ".");
  }
}

void CallPromises::CheckRefusal(const Call& call, const Outcome& outcome) {
  Expect(IsDocumented(outcome.status.code(), call.kind),
         NumberOf(call) + " was refused with a code that is not documented: " + outcome.status.ToString());
  Expect(IsSentence(Message(outcome.status)),
         NumberOf(call) + " was refused without a sentence: " + outcome.status.ToString());
}

// Checks that no call acts on, or reports about, another tenant's object. As a page token an id is a position among
// the caller's own objects.
void CallPromises::CheckAsked(const Call& call) {
  if (call.kind == ActionKind::kListGraphs || call.kind == ActionKind::kListBuffers) {
    return;
  }
  for (const std::string& id : IdsIn(call.asked)) {
    const auto found = owners_.find(id);
    Expect(found == owners_.end() || found->second == call.tenant,
           NumberOf(call) + " was accepted, and names " + id + ", which belongs to another tenant.");
  }
}

void CallPromises::CheckOwners(const Call& call, std::string_view answer) {
  for (const std::string& id : IdsIn(answer)) {
    if (call.asked.find(id) != std::string::npos) {
      continue;
    }
    const size_t owner = owners_.emplace(id, call.tenant).first->second;
    Expect(owner == call.tenant, NumberOf(call) + " was told of " + id + ", which belongs to another tenant.");
  }
  for (size_t i = 0; i < kTenantNames.size(); ++i) {
    Expect(i == call.tenant || answer.find(kTenantNames[i]) == std::string_view::npos,
           NumberOf(call) + " was told of the tenant " + std::string(kTenantNames[i]) + ".");
  }
}

void CallPromises::ExpectOwnBytes(size_t tenant, std::string_view bytes, std::string_view place) {
  for (size_t i = 0; i < kTenantNames.size(); ++i) {
    Expect(i == tenant || bytes.find(static_cast<char>(LetterOf(i))) == std::string_view::npos,
           std::string(place) + " of " + std::string(kTenantNames[tenant]) + " holds bytes of another tenant.");
  }
}

void CallPromises::OnJob(size_t tenant, const v1::Job& job) {
  KnownJob& known = jobs_[job.id()];
  const std::string name = "Job " + job.id() + " of " + std::string(kTenantNames[tenant]);
  Expect(known.end == v1::JOB_STATE_UNSPECIFIED || known.end == job.state(),
         name + " was " + v1::JobState_Name(known.end) + " and is " + v1::JobState_Name(job.state()) + ".");
  Expect(job.attempt() >= known.attempt, name + " had attempt " + std::to_string(known.attempt) + " and has attempt " +
                                             std::to_string(job.attempt()) + ".");
  known.attempt = job.attempt();
  known.end = IsTerminal(job.state()) ? job.state() : known.end;
  CheckError(job);
}

void CallPromises::CheckError(const v1::Job& job) {
  const auto code = static_cast<StatusCode>(job.error().code());
  const bool is_failed = IsTerminal(job.state()) && job.state() != v1::JOB_STATE_SUCCEEDED;
  if (!is_failed || job.dropped()) {
    return;
  }
  Expect(IsSentence(job.error().message()), "Job " + job.id() + " ended without a sentence: " + job.error().message());
  Expect(code != StatusCode::kOk && code != StatusCode::kUnknown && code != StatusCode::kInternal,
         "Job " + job.id() + " ended with code " + std::to_string(job.error().code()) + ": " + job.error().message());
}

void CallPromises::OnAcknowledged(size_t tenant, const std::string& id) {
  Expect(!id.empty(), "A submission was acknowledged without an id.");
  acknowledged_[id] = tenant;
}

void CallPromises::OnKey(size_t tenant, const std::string& key, const std::string& id) {
  const std::string& first = keys_.emplace(std::pair(tenant, key), id).first->second;
  Expect(first == id, "Key " + key + " stood for " + first + " and stands for " + id + ".");
}

void CallPromises::OnFound(size_t tenant, const std::string& id, const Status& status, const v1::Job& job) {
  if (status.ok()) {
    OnJob(tenant, job);
  } else {
    Expect(forgotten_.contains(id), "Job " + id + " was acknowledged and is lost: " + status.ToString());
  }
}

std::string CallPromises::ForeignId(size_t tenant, std::string_view kind, size_t number) const {
  std::vector<std::string_view> foreign;
  for (const auto& [id, owner] : owners_) {
    if (owner != tenant && id.starts_with(kind)) {
      foreign.push_back(id);
    }
  }
  return foreign.empty() ? "" : std::string(foreign[number % foreign.size()]);
}

void CallPromises::Count(ActionKind kind, bool is_accepted) {
  Counts& counts = counts_[static_cast<size_t>(kind)];
  ++(is_accepted ? counts.accepted : counts.refused);
}

}  // namespace hpvm::server::testing
