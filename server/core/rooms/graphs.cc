// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/graphs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/failpoint.h"
#include "proto/internal/protocol.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

// Number of unused preparations that are kept, because a Submit of the same document would find them.
constexpr size_t kIdlePreparationsMax = 32;
// A late prepare is answered by the executor; an executor that exceeds the limit by more than this does not answer at
// all.
constexpr Duration kPrepareGrace = std::chrono::seconds(2);

supervisor::BytesSource SourceOf(const Blob& blob) {
  return {.bytes = {}, .fd = blob.fd.get(), .fd_bytes = blob.size_bytes};
}

// Returns the native modules of the graph, each once per device. The executor reports the nodes.
std::vector<NativeUse> NativeUsesOf(const Preparation& preparation,
                                    const google::protobuf::RepeatedPtrField<internal::NativeNode>& nodes) {
  std::set<NativeUse> uses;
  for (const internal::NativeNode& node : nodes) {
    const auto named = std::find_if(preparation.modules.begin(), preparation.modules.end(),
                                    [&](const NamedBlob& module) { return module.name == node.module(); });
    // A module in the document itself has no hash of its own, and is identified by the preparation's key.
    const std::string module =
        named != preparation.modules.end() ? ToHex(named->blob->hash) : preparation.key + " " + node.module();
    for (const std::string& device : node.devices()) {
      uses.insert({module, device, node.module()});
    }
  }
  return {uses.begin(), uses.end()};
}

}  // namespace

v1::PrepareTiming TakeTiming(Preparation& preparation) {
  v1::PrepareTiming& kept = *preparation.summary.mutable_timing();
  v1::PrepareTiming taken = kept;
  kept.Clear();
  kept.set_from_cache(taken.compiled() + taken.from_cache());
  return taken;
}

bool Graphs::HasBlob(Tenant& tenant, BlobKind kind, const Sha256& hash) {
  CoreScope scope(monitor_);
  return (kind == BlobKind::kModule ? tenant.modules : tenant.graphs).Find(hash).ok();
}

Status Graphs::BeginUpload(Tenant& tenant) {
  CoreScope scope(monitor_);
  Status admitted = shutdown_.RefuseWork();
  if (admitted.ok() && tenant.uploads >= config_->limits_uploads_max) {
    admitted = ResourceExhausted("The tenant has " + std::to_string(config_->limits_uploads_max) +
                                 " uploads in progress, which is the limit (limits.uploads_max).");
  }
  if (!admitted.ok()) {
    options_.observer->On(events::Rejected{tenant.name, "upload", admitted});
    return admitted;
  }
  ++tenant.uploads;
  return absl::OkStatus();
}

void Graphs::EndUpload(Tenant& tenant) {
  CoreScope scope(monitor_);
  --tenant.uploads;
}

Status Graphs::BeginDownload(Tenant& tenant) {
  CoreScope scope(monitor_);
  if (tenant.downloads >= config_->limits_uploads_max) {
    Status refused = ResourceExhausted("The tenant has " + std::to_string(config_->limits_uploads_max) +
                                       " downloads in progress, which is the limit (limits.uploads_max).");
    options_.observer->On(events::Rejected{tenant.name, "download", refused});
    return refused;
  }
  ++tenant.downloads;
  return absl::OkStatus();
}

void Graphs::EndDownload(Tenant& tenant) {
  CoreScope scope(monitor_);
  --tenant.downloads;
}

StatusOr<BlobRef> Graphs::InsertBlob(Tenant& tenant, BlobKind kind, BlobRef blob) {
  CoreScope scope(monitor_);
  return (kind == BlobKind::kModule ? tenant.modules : tenant.graphs).Insert(std::move(blob), [&] {
    return DropOnePreparation(scope, tenant);
  });
}

StatusOr<PreparationRef> Graphs::FindPreparation(CoreScope& scope, Tenant& tenant, const std::string& graph_sha256,
                                                 bool check,
                                                 const google::protobuf::RepeatedPtrField<v1::ModuleBinding>& modules) {
  HPVMD_ASSIGN_OR_RETURN(const Sha256 graph_hash, ParseSha256("graph document", graph_sha256));
  HPVMD_ASSIGN_OR_RETURN(BlobRef document, tenant.graphs.Find(graph_hash));
  NamedBlobs named;
  for (const v1::ModuleBinding& module : modules) {
    HPVMD_ASSIGN_OR_RETURN(const Sha256 hash, ParseSha256("module \"" + module.name() + "\"", module.sha256()));
    HPVMD_ASSIGN_OR_RETURN(BlobRef blob, tenant.modules.Find(hash));
    if (!named.emplace(module.name(), std::move(blob)).second) {
      return InvalidArgument("The module \"" + module.name() + "\" is bound twice.");
    }
  }
  return MakePreparation(scope, tenant, check, std::move(document), std::move(named), /*is_limited=*/true);
}

StatusOr<PreparationRef> Graphs::MakePreparation(CoreScope& scope, Tenant& tenant, bool check, BlobRef document,
                                                 NamedBlobs named, bool is_limited) {
  Hasher hasher;
  hasher.AddField(ToHex(document->hash));
  for (const auto& [name, blob] : named) {
    hasher.AddField(name);
    hasher.AddField(ToHex(blob->hash));
  }
  hasher.AddField(check ? "check" : "");
  std::string key = ToHex(hasher.Finish());
  Lendable<Preparation>& kept = tenant.preparations[key];
  if (kept.get() == nullptr) {
    kept = Lendable(std::make_shared<Preparation>());
    kept->key = std::move(key);
    kept->check = check;
    kept->document = std::move(document);
    for (auto& [name, blob] : named) {
      kept->modules.push_back({name, std::move(blob)});
    }
    kept->link_handle = tenant.next_link_handle++;
  }
  kept->used = ++tenant.uses;
  PreparationRef preparation = kept.Lend();  // Keeps this one while others are dropped below.
  DropIdlePreparations(scope, tenant, kIdlePreparationsMax);
  if (tenant.preparations.size() > config_->limits_prepared_graphs_max) {
    DropIdlePreparations(scope, tenant, 0);
  }
  if (is_limited && tenant.preparations.size() > config_->limits_prepared_graphs_max) {
    YieldHandle(scope, tenant);
  }
  if (is_limited && tenant.preparations.size() > config_->limits_prepared_graphs_max) {
    tenant.preparations.erase(preparation->key);
    return ResourceExhausted("The tenant has " + std::to_string(config_->limits_prepared_graphs_max) +
                             " prepared graphs, which is the limit (limits.prepared_graphs_max); release some.");
  }
  return preparation;
}

void Graphs::DropIdlePreparations(CoreScope& scope, Tenant& tenant, size_t keep) {
  std::vector<std::pair<uint64_t, Preparation*>> idle;  // Sorted by last use.
  for (const auto& [key, preparation] : tenant.preparations) {
    if (!preparation.is_lent()) {
      idle.emplace_back(preparation->used, preparation.get());
    }
  }
  if (idle.size() <= keep) {
    return;
  }
  std::sort(idle.begin(), idle.end());
  idle.resize(idle.size() - keep);
  for (const auto& [used, preparation] : idle) {
    DropPreparation(scope, tenant, *preparation);
  }
}

bool Graphs::DropOnePreparation(CoreScope& scope, Tenant& tenant) {
  Preparation* oldest = nullptr;
  for (const auto& [key, preparation] : tenant.preparations) {
    if (!preparation.is_lent() && (oldest == nullptr || preparation->used < oldest->used)) {
      oldest = preparation.get();
    }
  }
  if (oldest != nullptr) {
    DropPreparation(scope, tenant, *oldest);
  }
  return oldest != nullptr;
}

void Graphs::DropPreparation(CoreScope& scope, Tenant& tenant, Preparation& preparation) {
  if (preparation.ready_epoch == tenant.executor.epoch && tenant.executor.port != nullptr) {
    scope.Defer([port = tenant.executor.port, handle = preparation.link_handle] { port->Release(handle); });
  }
  // Deferred, because releasing the last pin of a file may look the file up and remove it, which must not happen under
  // the mutex.
  scope.Defer([pins = std::exchange(preparation.stored, {})] {});
  tenant.preparations.erase(std::string(preparation.key));
}

void Graphs::WithPrepared(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation, Waiter then,
                          std::function<bool()> is_wanted) {
  ExecutorSlot& slot = tenant->executor;
  slot.last_used = options_.clock->Now();
  if (slot.state == ExecutorSlot::State::kUp && preparation->ready_epoch == slot.epoch) {
    then(scope, Outcome());
    return;
  }
  preparation->waits.push_back({std::move(then), std::move(is_wanted)});
  if (preparation->waits.size() > 1) {
    return;  // An earlier caller has asked already.
  }
  preparation->sending = std::make_shared<Sending>();
  ++tenant->active;
  executors_.WithExecutor(scope, tenant, [this, tenant, preparation](CoreScope& inner, const Outcome& outcome) {
    if (outcome.ok()) {
      SendPrepare(inner, tenant, preparation);
      return;
    }
    --tenant->active;
    preparation->sending.reset();
    for (const Preparation::Wait& wait : std::exchange(preparation->waits, {})) {
      wait.then(inner, outcome);
    }
  });
}

void Graphs::StopUnwanted(CoreScope& scope, Preparation& preparation) {
  const auto is_wanted = [](const Preparation::Wait& wait) { return !wait.is_wanted || wait.is_wanted(); };
  if (preparation.waits.empty() || std::any_of(preparation.waits.begin(), preparation.waits.end(), is_wanted)) {
    return;
  }
  Sending::Stop(scope, preparation.sending, Cancelled("Nobody waits for the graph any more."));
}

void Graphs::SendPrepare(CoreScope& scope, const TenantRef& tenant, const PreparationRef& preparation) {
  const uint64_t epoch = tenant->executor.epoch;
  const std::shared_ptr<Sending> sending = preparation->sending;
  sending->sent = options_.clock->Now();
  sending->port = tenant->executor.port;
  sending->epoch = epoch;
  const Duration within = std::chrono::milliseconds(config_->executor_prepare_ms_max);
  const Time late = options_.clock->Now() + within + kPrepareGrace;
  sending->timers.push_back(monitor_.AddTimer(scope, late, [this, tenant, epoch](CoreScope& inner) {
    if (tenant->executor.epoch == epoch) {
      executors_.KillExecutor(inner, *tenant,
                              "Preparing a graph took longer than its limit (" +
                                  std::to_string(config_->executor_prepare_ms_max) + " ms).");
    }
  }));
  scope.Defer([this, tenant, preparation, sending, within, port = sending->port] {
    if (const Status sent = HPVMD_FAILPOINT("core.prepare.send"); !sent.ok()) {
      OnPrepared(tenant, preparation, sent);
      return;
    }
    supervisor::PrepareInput input;
    input.handle = preparation->link_handle;
    input.document = SourceOf(*preparation->document);
    for (const NamedBlob& module : preparation->modules) {
      input.modules.push_back({module.name, module.blob->hash, SourceOf(*module.blob)});
    }
    input.within = within;
    input.check = preparation->check;
    const supervisor::RequestId id =
        port->Prepare(input, [this, tenant, preparation](StatusOr<internal::Prepared> reply) {
          OnPrepared(tenant, preparation, std::move(reply));
        });
    sending->OnSent(*port, 0, id);
  });
}

void Graphs::OnPrepared(const TenantRef& tenant, const PreparationRef& preparation,
                        StatusOr<internal::Prepared> reply) {
  if (const Status received = HPVMD_FAILPOINT("core.prepare.reply"); !received.ok()) {
    reply = received;
  }
  CoreScope scope(monitor_);
  const std::shared_ptr<Sending> sending = std::exchange(preparation->sending, nullptr);
  const uint64_t epoch = sending->epoch;
  monitor_.DropTimer(sending->timers.front());
  --tenant->active;
  if (absl::IsUnavailable(reply.status()) && executors_.ReplaceDeadSpare(scope, *tenant, epoch)) {
    for (Preparation::Wait& wait : std::exchange(preparation->waits, {})) {
      WithPrepared(scope, tenant, preparation, std::move(wait.then), std::move(wait.is_wanted));
    }
    return;
  }
  Outcome outcome;
  const Status failed = reply.ok() ? GetStatus(reply->status()) : reply.status();
  if (absl::IsDeadlineExceeded(failed)) {  // The limit that was sent with it.
    outcome = Later(ResourceExhausted(
        "Preparing the graph was given up after " + std::to_string(config_->executor_prepare_ms_max) +
        " ms, this server's limit (executor.prepare_ms_max). The server may be too busy; trying again may help."));
  } else if (!failed.ok()) {
    outcome = LaterIfUnavailable(While(failed, "preparing the graph"));
    if (absl::IsUnavailable(failed)) {
      devices_.FenceDevices(scope, tenant->executor.profile, "An executor ended while it prepared a graph.",
                            Message(outcome.status));
    }
  } else if (!reply->has_summary()) {
    outcome = RejectedBy(reply->diagnostics());  // The diagnostics contain errors then: protocol.cc.
  } else {
    preparation->ready_epoch = epoch;
    if (!preparation->validated) {
      preparation->validated = true;
      preparation->summary = std::move(*reply->mutable_summary());
      preparation->needs = std::move(*reply->mutable_needs());
      preparation->native = NativeUsesOf(*preparation, reply->native_nodes());
      for (std::string& sentence : devices_.table().DefectNotes(reply->native_nodes())) {
        preparation->summary.add_defects(std::move(sentence));
      }
      preparation->warnings = std::move(*reply->mutable_diagnostics());
    }
  }
  if (reply.ok()) {
    quotas_.ChargeCompileTime(*tenant, reply->compile_cpu_ns(), options_.clock->Now() - sending->sent);
  }
  options_.observer->On(events::Prepared{tenant->name, preparation->summary.timing(), outcome.status});
  // The executor may have been killed while the answer was on its way; what it had prepared is gone then.
  const bool is_gone = tenant->executor.state != ExecutorSlot::State::kUp || tenant->executor.epoch != epoch;
  // The preparation was stopped when no caller wanted it, and then another caller asked for it.
  const bool was_stopped = sending->stop.load() && absl::IsCancelled(failed);
  for (Preparation::Wait& wait : std::exchange(preparation->waits, {})) {
    const bool is_wanted = !wait.is_wanted || wait.is_wanted();
    if (outcome.ok() ? is_gone : was_stopped && is_wanted) {
      WithPrepared(scope, tenant, preparation, std::move(wait.then), std::move(wait.is_wanted));
    } else {
      wait.then(scope, outcome);
    }
  }
}

uint64_t Graphs::PrepareGraph(const TenantRef& tenant, const v1::PrepareGraphRequest& request,
                              v1::PrepareGraphResponse* response, std::function<void(const Outcome&)> done) {
  CoreScope scope(monitor_);
  Status admitted = shutdown_.RefuseWork();
  if (tenant->handles.size() >= config_->limits_prepared_graphs_max) {
    YieldHandle(scope, *tenant);
  }
  if (admitted.ok() && tenant->handles.size() >= config_->limits_prepared_graphs_max) {
    admitted = ResourceExhausted(
        "The tenant holds " + std::to_string(config_->limits_prepared_graphs_max) +
        " prepared graphs, which is the limit (limits.prepared_graphs_max); release some (ListGraphs names them).");
  }
  StatusOr<PreparationRef> preparation =
      admitted.ok() ? FindPreparation(scope, *tenant, request.graph_sha256(), request.check(), request.modules())
                    : admitted;
  const Outcome refused =
      preparation.ok() ? quotas_.AdmitCompile(*tenant, **preparation) : LaterIfUnavailable(preparation.status());
  if (!refused.ok()) {
    options_.observer->On(events::Rejected{tenant->name, "prepare", refused.status});
    scope.Defer([done = std::move(done), refused] { done(refused); });
    return 0;
  }
  auto call = std::make_shared<Execution>();
  call->key = next_prepare_++;
  call->tenant = tenant;
  call->preparation = *preparation;
  call->done = [done = std::move(done)](const RunOutcome& outcome) { done(outcome.outcome); };
  preparing_.emplace(call->key, call);
  // The call was not cancelled since.
  const auto is_wanted = [call] { return call->phase == Execution::Phase::kPreparing; };
  WithPrepared(
      scope, tenant, call->preparation,
      [this, call, response, is_wanted](CoreScope& inner, const Outcome& outcome) {
        if (is_wanted() && outcome.ok()) {
          response->set_handle(AddHandle(inner, call->tenant, call->preparation));
          *response->mutable_summary() = call->preparation->summary;
          *response->mutable_summary()->mutable_timing() = TakeTiming(*call->preparation);
          *response->mutable_diagnostics() = call->preparation->warnings;
        }
        FinishPrepare(inner, *call, outcome);
      },
      is_wanted);
  return call->key;
}

void Graphs::FinishPrepare(CoreScope& scope, Execution& call, const Outcome& outcome) {
  if (std::exchange(call.phase, Execution::Phase::kDone) != Execution::Phase::kDone) {
    preparing_.erase(call.key);
    scope.Defer([done = std::exchange(call.done, nullptr), outcome] { done(outcome); });
  }
}

void Graphs::CancelPrepare(uint64_t id) {
  CoreScope scope(monitor_);
  const auto found = preparing_.find(id);
  if (found == preparing_.end()) {
    return;
  }
  const ExecutionRef call = found->second;
  FinishPrepare(scope, *call, Cancelled("Preparing the graph was cancelled."));
  StopUnwanted(scope, *call->preparation);
}

Status Graphs::ReleaseGraph(Tenant& tenant, std::string_view handle) {
  CoreScope scope(monitor_);
  if (tenant.handles.erase(std::string(handle)) == 0) {
    return NotFound("There is no prepared graph \"" + std::string(handle.substr(0, 80)) + "\".");
  }
  DropIdlePreparations(scope, tenant, kIdlePreparationsMax);
  return absl::OkStatus();
}

StatusOr<PreparationRef> Graphs::FindHandle(Tenant& tenant, std::string_view handle) {
  CoreScope scope(monitor_);
  HPVMD_RETURN_IF_ERROR(shutdown_.RefuseWork());
  return UseHandle(tenant, handle);
}

// Drops modules and documents that no prepared graph uses first.
void Graphs::MakeRoom(CoreScope& scope, Tenant& tenant, uint64_t host_bytes) {
  while (tenant.account.Room(scheduler::Resource::kHostBytes) < host_bytes &&
         (tenant.modules.DropOne() || tenant.graphs.DropOne() || DropOnePreparation(scope, tenant))) {
  }
}

StatusOr<scheduler::Lease> Graphs::HoldHostBytes(Tenant& tenant, uint64_t bytes) {
  CoreScope scope(monitor_);
  MakeRoom(scope, tenant, bytes);
  scheduler::Lease lease;
  if (const auto refusal = tenant.account.Take(scheduler::Resource::kHostBytes, bytes, &lease)) {
    const Status refused = ToStatus(*refusal);
    options_.observer->On(events::Rejected{tenant.name, "upload", refused});
    return refused;
  }
  return lease;
}

}  // namespace hpvm::server
