// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/ring_calls.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "server/core/state/request_options.h"
#include "server/rpc/called_run.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

constexpr char kPath[] = "/hpvm.v1.Hpvm/OpenRing";
// Maximum number of runs of one ring in progress.
constexpr size_t kCallsMax = 256;
// A smaller response is not counted as memory of requests and responses: there are at most kCallsMax of them, besides
// the ring's unsent output.
constexpr uint64_t kSmallResponse = 16 * limits::kKiB;

class OpenRingCall;

// A run that came by ring. It owns its messages, and lives until its response is on its way and the core has released
// it.
class RingRun final : public CalledRun {
 public:
  RingRun(const RingParts& parts, std::shared_ptr<OpenRingCall> ring, uint64_t id)
      : CalledRun(parts.core, request_, response_),
        ring_(std::move(ring)),
        id_(id),
        record_(parts.witnesses, MethodAt("/hpvm.v1.Hpvm/", "Run").path, MessagesOf("/hpvm.v1.Hpvm/Run")) {}

  // Returns false when the bytes are not a request.
  bool Parse(std::span<const uint8_t> bytes) {
    if (!request_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return false;
    }
    record_.OnRequest(&request_);
    return true;
  }
  void SetCaller(const Caller& caller) { record_.SetCaller(caller); }
  // Refuses the run before it begins.
  void Refuse(const Status& why);
  void Answer(const Outcome& outcome) override;

 private:
  const std::shared_ptr<OpenRingCall> ring_;
  const uint64_t id_;
  v1::RunRequest request_;
  v1::RunResponse response_;
  CallRecord record_;
};

class OpenRingCall final : public grpc::ServerWriteReactor<v1::OpenRingResponse>,
                           public SelfOwned<OpenRingCall>,
                           public ClientRing::Calls {
 public:
  explicit OpenRingCall(const RingParts& parts) : parts_(parts), ends_at_(RealClock().Now() + parts.age_max) {}
  void Begin() {}

  void Start(const grpc::CallbackServerContext& context, const StatusOr<TenantRef>& tenant,
             const v1::OpenRingRequest& request) {
    const Status opened = tenant.ok() ? Open(context, *tenant, request) : tenant.status();
    if (!opened.ok()) {
      Finish(ToGrpc(opened));
      return;
    }
    {
      std::lock_guard lock(mutex_);
      is_open_ = true;
      is_writing_ = true;
      message_.set_calls_max(kCallsMax);
    }
    ring_->Begin(shared_from_this());
    StartWrite(&message_);
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(kPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      is_writing_ = false;
    }
    if (!ok) {
      ring_->End(Cancelled("The client went away."));
    }
    Pump();
  }

  void OnCancel() override {
    const Callback watched(kPath, tenant_);
    if (ring_ != nullptr) {
      ring_->End(Cancelled("The client went away."));
    }
  }

  void OnDone() override { ReleaseSelf(); }

  // --- The ring, on the hub's thread ---
  Status OnFrame(Frame& frame) override;
  bool HasRoom() override {
    std::lock_guard lock(mutex_);
    return runs_.empty() || response_bytes_max_ < kSmallResponse ||
           parts_.admission.HasRoom(tenant_->name, response_bytes_max_ * (runs_.size() + 1));
  }
  Status OnSecond() override {
    const Status known = parts_.gate.Recheck(shown_, kRun);
    {
      std::lock_guard lock(mutex_);
      // Runs in progress continue, as they do over gRPC.
      if (!known.ok() && runs_.empty()) {
        return known;
      }
      if (is_writing_ || message_.ends() || (known.ok() && RealClock().Now() < ends_at_)) {
        return absl::OkStatus();
      }
      is_writing_ = true;
      message_.set_ends(true);
    }
    StartWrite(&message_);
    return absl::OkStatus();
  }
  void OnEnd(const Status& why) override {
    std::vector<std::shared_ptr<RingRun>> left;
    {
      std::lock_guard lock(mutex_);
      why_ended_ = why;
      for (const auto& [id, run] : runs_) {
        left.push_back(run);
      }
    }
    for (const auto& run : left) {
      run->Cancel();
    }
    Pump();
  }

  // --- Its runs, from any thread ---
  void OnAnswer(uint64_t id, const v1::RunResponse& response, bool is_refused) {
    const std::string body = response.SerializeAsString();
    {
      std::lock_guard lock(mutex_);
      runs_.erase(id);
      response_bytes_max_ = std::max<uint64_t>(response_bytes_max_, body.size());
    }
    Send(id, body, is_refused);
    Pump();
  }

 private:
  static constexpr const MethodFacts& kRun = MethodAt("/hpvm.v1.Hpvm/", "Run");

  Status Open(const grpc::CallbackServerContext& context, const TenantRef& tenant, const v1::OpenRingRequest& request) {
    if (parts_.local.inbox == nullptr || parts_.local.hub == nullptr) {
      return Unimplemented("The server listens on no Unix socket, which a ring needs.");
    }
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    tenant_ = tenant;
    HPVMD_ASSIGN_OR_RETURN(shown_, Gate::Look(context));
    HPVMD_ASSIGN_OR_RETURN(std::shared_ptr<RingTurn> turn, parts_.places->Take(tenant->name));
    HPVMD_ASSIGN_OR_RETURN(memory_, parts_.core.graphs().HoldHostBytes(*tenant, kRingPairBytes));
    HPVMD_ASSIGN_OR_RETURN(std::vector<UniqueFd> fds, parts_.local.inbox->Take(request.ticket(), 2));
    const ClientRing::Options options{
        .parts = parts_.local, .observer = &parts_.core.observer(), .stall_max = parts_.stall_max};
    StatusOr<std::shared_ptr<ClientRing>> ring = ClientRing::Make(options, std::move(turn), fds);
    parts_.local.inbox->Drop(std::move(fds));  // Empty if the ring has taken them.
    HPVMD_ASSIGN_OR_RETURN(ring_, std::move(ring));
    return absl::OkStatus();
  }

  void Send(uint64_t id, std::string_view body, bool is_refused) {
    v1::RingReply head;
    head.set_id(id);
    head.set_refused(is_refused);
    do {
      const std::string_view part = body.substr(0, ClientRing::kBodyBytesMax);
      body.remove_prefix(part.size());
      head.set_more(!body.empty());
      ring_->Send(head.SerializeAsString(), part);
    } while (!body.empty());
  }

  // Ends the call when the ring and its runs have ended. Thread-safe.
  void Pump() {
    {
      std::lock_guard lock(mutex_);
      if (!is_open_ || why_ended_.ok() || is_writing_ || !runs_.empty()) {
        return;
      }
      is_open_ = false;
    }
    memory_.Release();
    Finish(ToGrpc(why_ended_));
  }

  const RingParts& parts_;
  const Time ends_at_;
  TenantRef tenant_;
  Shown shown_;
  scheduler::Lease memory_;
  std::shared_ptr<ClientRing> ring_;  // Set before anything but the first call.

  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<RingRun>> runs_;  // In progress, by the client's ids.
  uint64_t response_bytes_max_ = 0;                              // Largest response so far.
  v1::OpenRingResponse message_;                                 // Being written while is_writing_.
  Status why_ended_;
  bool is_open_ = false, is_writing_ = false;
};

void RingRun::Refuse(const Status& why) {
  record_.End(why);
  *response_.mutable_error() = ToMessage(why);
  ring_->OnAnswer(id_, response_, /*is_refused=*/true);
}

void RingRun::Answer(const Outcome& outcome) {
  if (outcome.ok()) {
    record_.OnResponse(&response_);
  }
  record_.End(outcome.status);
  if (!outcome.ok()) {
    response_.Clear();
    *response_.mutable_error() = ToMessage(outcome);
  }
  ReleaseTicket();
  ring_->OnAnswer(id_, response_, /*is_refused=*/false);
}

Status OpenRingCall::OnFrame(Frame& frame) {
  v1::RingCall head;
  if (!head.ParseFromString(frame.head)) {
    return InvalidArgument("A frame's head is not a RingCall.");
  }
  std::shared_ptr<RingRun> run;
  {
    std::lock_guard lock(mutex_);
    const auto found = runs_.find(head.id());
    if (head.cancel()) {
      run = found == runs_.end() ? nullptr : found->second;
    } else if (found != runs_.end()) {
      return InvalidArgument("A call has the id of another one that is in progress (" + std::to_string(head.id()) +
                             ").");
    } else if (runs_.size() >= kCallsMax) {
      return InvalidArgument("The ring has more calls in progress than OpenRingResponse.calls_max (" +
                             std::to_string(kCallsMax) + ").");
    } else {
      run = std::make_shared<RingRun>(parts_, shared_from_this(), head.id());
      runs_.emplace(head.id(), run);
    }
  }
  if (head.cancel()) {
    if (run != nullptr) {
      run->Cancel();
    }
    return absl::OkStatus();
  }
  if (!run->Parse(frame.body)) {
    run->Refuse(InvalidArgument("The body of a RingCall is not a RunRequest."));
    return absl::OkStatus();
  }
  StatusOr<Gate::Entry> entry = parts_.gate.Enter(shown_, kRun, frame.body.size());
  if (!entry.ok()) {
    run->Refuse(entry.status());
    return absl::OkStatus();
  }
  run->SetCaller({std::move(entry->principal), entry->tenant->name});
  run->Start(parts_.admission, entry->tenant, run);
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<RingTurn>> RingQuota::Take(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  if (count_ >= kMax) {
    return ResourceExhausted("The server has " + std::to_string(kMax) + " rings, which is the limit.");
  }
  OfTenant& of_tenant = tenants_[tenant];
  if (of_tenant.count >= kOfTenantMax) {
    return ResourceExhausted("The tenant has " + std::to_string(kOfTenantMax) + " rings, which is the limit.");
  }
  if (of_tenant.turn == nullptr) {
    of_tenant.turn = std::make_shared<RingTurn>(RingTurn{.tenant = tenant});
  }
  ++count_;
  ++of_tenant.count;
  return std::shared_ptr<RingTurn>(of_tenant.turn.get(), [self = shared_from_this(), turn = of_tenant.turn](RingTurn*) {
    self->GiveBack(turn->tenant);
  });
}

void RingQuota::GiveBack(const std::string& tenant) {
  std::lock_guard lock(mutex_);
  --count_;
  if (const auto found = tenants_.find(tenant); --found->second.count == 0) {
    tenants_.erase(found);
  }
}

grpc::ServerWriteReactor<v1::OpenRingResponse>* StartOpenRing(const RingParts& parts,
                                                              const grpc::CallbackServerContext& context,
                                                              const StatusOr<TenantRef>& tenant,
                                                              const v1::OpenRingRequest& request) {
  OpenRingCall* call = OpenRingCall::Create(parts);
  call->Start(context, tenant, request);
  return call;
}

}  // namespace hpvm::server
