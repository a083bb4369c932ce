// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_client.h"

#include <algorithm>

namespace hpvm::server::testing {
namespace {

std::string MadeUpId(std::string_view kind, uint8_t number) {
  switch (number % 4) {
    case 0:
      return "";
    case 1:
      return std::string(kind) + std::string(kind == "job-" || kind == "array-" ? 44 : 32, '0');
    case 2:
      return std::string(kind);
    default:
      return std::string(200, 'x');
  }
}

}  // namespace

Outcome CallClient::Enter(uint64_t request_bytes, TenantRef* tenant) {
  HPVMD_ASSIGN_OR_RETURN(*tenant, core_->tenants().FindTenant(name()));
  return core_->quotas().meter().Begin(**tenant, request_bytes);
}

CallPromises::CallRef CallClient::Begin(ActionKind kind, std::string asked) {
  return promises_.Begin(kind, tenant_, std::move(asked));
}

void CallClient::CallNow(ActionKind kind, const std::string& asked,
                         const std::function<Outcome(Tenant&, std::string*)>& act) {
  TenantRef tenant;
  std::string answer;
  Outcome outcome = Enter(asked.size(), &tenant);
  if (outcome.ok()) {
    outcome = act(*tenant, &answer);
  }
  promises_.AnswerNow(kind, tenant_, asked, outcome, answer);
}

std::string CallClient::Pick(const std::vector<std::string>& own, std::string_view kind, uint8_t number) const {
  constexpr uint8_t kForeignFrom = 232, kMadeUpFrom = 244;
  if (number >= kMadeUpFrom || (own.empty() && number < kForeignFrom)) {
    return MadeUpId(kind, number);
  }
  return number >= kForeignFrom ? promises_.ForeignId(tenant_, kind, number)
                                : own[own.size() - 1 - number % own.size()];
}

bool CallClient::Do(const Action& action) {
  if (action.kind == ActionKind::kServerInfo || action.kind == ActionKind::kUsage) {
    Info(action.kind, action.numbers);
    return true;
  }
  return DoData(action.kind, action.numbers) || DoRuns(action.kind, action.numbers) ||
         DoJobs(action.kind, action.numbers);
}

void CallClient::Info(ActionKind kind, const Numbers& numbers) {
  CallNow(kind, "", [&](Tenant& tenant, std::string* answer) -> Outcome {
    if (kind == ActionKind::kUsage) {
      v1::GetUsageResponse usage;
      const Status status = core_->Usage(name(), &usage);
      usage.clear_tenant();
      *answer = usage.SerializeAsString();
      return status;
    }
    v1::ServerInfoResponse info;
    v1::ListDevicesResponse devices;
    core_->ServerInfo(tenant, &info);
    core_->devices().ListDevices(*core_->tenants().FindTenant(name()), &devices, [](const Outcome&) {});
    core_->Snapshot(/*with_tenants=*/numbers[0] % 2 == 0);
    core_->Health();
    *answer = info.SerializeAsString() + devices.SerializeAsString();
    return {};
  });
}

bool CallClient::DoData(ActionKind kind, const Numbers& numbers) {
  switch (kind) {
    case ActionKind::kUpload:
      UploadWhole(numbers);
      return true;
    case ActionKind::kUploadStart:
      UploadStart(numbers);
      return true;
    case ActionKind::kUploadPart:
      UploadPart(numbers);
      return true;
    case ActionKind::kUploadFinish:
    case ActionKind::kUploadAbandon:
      UploadFinish(kind, numbers);
      return true;
    case ActionKind::kCreateBuffer:
      CreateBuffer(numbers);
      return true;
    case ActionKind::kWriteBuffer:
      WriteBuffer(numbers);
      return true;
    case ActionKind::kFinishWrite:
      FinishWrite(numbers);
      return true;
    case ActionKind::kReadBuffer:
      ReadBuffer(numbers);
      return true;
    case ActionKind::kEndDownload:
      EndDownload();
      return true;
    case ActionKind::kDeleteBuffer:
      DeleteBuffer(numbers);
      return true;
    case ActionKind::kListBuffers:
      ListBuffers(numbers);
      return true;
    default:
      return false;
  }
}

bool CallClient::DoRuns(ActionKind kind, const Numbers& numbers) {
  switch (kind) {
    case ActionKind::kPrepareGraph:
      PrepareGraph(numbers);
      return true;
    case ActionKind::kCancelPrepare:
      CancelPrepare(numbers);
      return true;
    case ActionKind::kReleaseGraph:
      ReleaseGraph(numbers);
      return true;
    case ActionKind::kListGraphs:
      ListGraphs(numbers);
      return true;
    case ActionKind::kRun:
      Run(numbers);
      return true;
    case ActionKind::kCancelRun:
      CancelRun(numbers);
      return true;
    case ActionKind::kOpenStream:
      OpenAStream(numbers);
      return true;
    case ActionKind::kStreamItem:
      StreamItem(numbers);
      return true;
    case ActionKind::kCloseStream:
      CloseStream(numbers);
      return true;
    case ActionKind::kListCosts:
      ListCosts(numbers);
      return true;
    default:
      return false;
  }
}

bool CallClient::DoJobs(ActionKind kind, const Numbers& numbers) {
  switch (kind) {
    case ActionKind::kSubmit:
    case ActionKind::kSubmitArray:
      Submit(kind, numbers);
      return true;
    case ActionKind::kRetryJob:
      Retry(numbers);
      return true;
    case ActionKind::kCancelJob:
      CancelJob(numbers[1] % 4 == 0 ? Pick(arrays_, "array-", numbers[0]) : Pick(jobs_, "job-", numbers[0]));
      return true;
    case ActionKind::kSetJobHold:
      SetJobHold(numbers);
      return true;
    case ActionKind::kGetJob:
      GetJob(numbers);
      return true;
    case ActionKind::kListJobs:
      ListJobs(numbers);
      return true;
    case ActionKind::kListJobsStep:
      ListStep(numbers);
      return true;
    case ActionKind::kListJobsAbandon:
      ListAbandon();
      return true;
    case ActionKind::kWatchJob:
      WatchJob(numbers);
      return true;
    case ActionKind::kReadEvents:
      ReadEvents(numbers);
      return true;
    case ActionKind::kUnwatch:
      Unwatch(numbers);
      return true;
    case ActionKind::kFetchOutput:
      FetchOutput(numbers);
      return true;
    default:
      return false;
  }
}

void CallClient::Disconnect(bool is_heard) {
  if (is_heard) {
    Abandon();
  }
  for (const OpenList& list : lists_) {
    promises_.Abandon(*list.call);
  }
  uploads_.clear();
  writes_.clear();
  downloads_.clear();
  streams_.clear();
  lists_.clear();
  watches_.clear();
  documents_.clear();
  modules_.clear();
  handles_.clear();
  buffers_.clear();
  prepares_.clear();
  runs_.clear();
}

void CallClient::Abandon() {
  for (Upload& upload : uploads_) {
    EndUpload(upload);
  }
  for (const TenantRef& tenant : downloads_) {
    core_->graphs().EndDownload(*tenant);
  }
  for (const Watch& watch : watches_) {
    core_->job_reader().Unwatch(*watch.tenant, watch.id, watch.key);
  }
  while (!lists_.empty()) {
    ListAbandon();
  }
  for (const uint64_t id : prepares_) {
    core_->graphs().CancelPrepare(id);
  }
  for (const uint64_t id : runs_) {
    core_->runs().CancelRun(id);
  }
  uploads_.clear();
  writes_.clear();
  downloads_.clear();
  streams_.clear();
  watches_.clear();
}

void CallClient::CancelJobs(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    CancelJob(id);
  }
}

void CallClient::DropAll() {
  TenantRef tenant;
  if (!Enter(0, &tenant).ok()) {
    return;
  }
  while (!tenant->handles.empty()) {
    const std::string handle = tenant->handles.begin()->first;
    promises_.Expect(core_->graphs().ReleaseGraph(*tenant, handle).ok(),
                     "A prepared graph that is listed is not released.");
  }
  v1::ListBuffersResponse buffers;
  core_->buffers().ListBuffers(*tenant, v1::ListBuffersRequest(), &buffers).IgnoreError();
  for (const v1::Buffer& buffer : buffers.buffers()) {
    promises_.Expect(core_->buffers().DeleteBuffer(*tenant, buffer.id()).ok(),
                     "A buffer that is listed is not deleted.");
  }
}

void CallClient::FindJobs() {
  const StatusOr<TenantRef> tenant = core_->tenants().FindTenant(name(), /*also_disabled=*/true);
  for (const auto& [id, owner] : promises_.acknowledged()) {
    if (owner == tenant_ && tenant.ok()) {
      v1::Job job;
      const Status status = core_->job_reader().GetJob(**tenant, id, &job);
      promises_.OnFound(tenant_, id, status, job);
    }
  }
}

}  // namespace hpvm::server::testing
