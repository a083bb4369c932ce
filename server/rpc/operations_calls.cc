// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/operations_calls.h"

#include <unistd.h>

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hpvm/v1/operations.grpc.pb.h"
#include "server/accounts/account_list.h"
#include "server/accounts/accounts.h"
#include "server/config/config_print.h"
#include "server/identity/directory.h"
#include "server/process/process_facts.h"
#include "server/rpc/host_admin.h"
#include "server/rpc/identified_calls.h"
#include "server/rpc/service.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kRunningMax = 1'000;
constexpr size_t kReasonBytesMax = 255;

consteval const MethodFacts& Method(std::string_view name) { return MethodAt("/hpvm.v1.Operations/", name); }

Status CheckReason(const std::string& reason) {
  return reason.size() <= kReasonBytesMax
             ? absl::OkStatus()
             : InvalidArgument("The reason has " + std::to_string(reason.size()) + " bytes; the limit is 255.");
}

void Fill(const Intake& intake, v1::Intake* shown) {
  shown->set_closed(intake.closed);
  shown->set_reason(intake.reason);
  shown->set_changed_by(intake.changed_by);
  shown->set_changed_unix_ns(intake.changed_unix_ns);
}

Status CheckIntake(v1::HostIntake intake) {
  const bool is_known = v1::HostIntake_IsValid(intake) && intake != v1::HOST_INTAKE_UNSPECIFIED;
  return is_known ? absl::OkStatus()
                  : InvalidArgument("The intake (" + std::to_string(intake) +
                                    ") is none of OPEN (1), CORDONED (2) and DRAINING (3).");
}

void AddProcess(int pid, v1::GetOverviewResponse* response) {
  const ProcessUse use = UseOf(pid);
  response->set_processor_ns(response->processor_ns() + static_cast<uint64_t>(use.processor.count()));
  response->set_memory_bytes(response->memory_bytes() + use.resident_bytes);
}

class OperationsService final : public v1::Operations::CallbackService, private IdentifiedCalls {
 public:
  OperationsService(Core& core, Gate& gate, const Access& access) : IdentifiedCalls(core, gate), access_(access) {}

  grpc::ServerUnaryReactor* GetOverview(Context* context, const v1::GetOverviewRequest* request,
                                        v1::GetOverviewResponse* response) override {
    return AnswerInTurn(context, Method("GetOverview"), *request,
                        [this, request, response](const Caller& caller) -> Status {
                          if (request->running_max() > kRunningMax) {
                            return InvalidArgument("running_max (" + std::to_string(request->running_max()) +
                                                   ") is larger than the limit (1000).");
                          }
                          return Overview(caller, request->running_max(), response);
                        });
  }

  grpc::ServerUnaryReactor* SetIntake(Context* context, const v1::SetIntakeRequest* request,
                                      v1::SetIntakeResponse* response) override {
    return Change(context, Method("SetIntake"), *request, [this, request, response](const Caller& caller) -> Status {
      HPVMD_RETURN_IF_ERROR(CheckReason(request->reason()));
      HPVMD_ASSIGN_OR_RETURN(const Intake intake, ChangeIntake([&](Intake& next) {
                               next.closed = request->closed();
                               next.reason = request->reason();
                               next.changed_by = caller.principal.who;
                               next.changed_unix_ns = core_.clock().WallNs();
                             }));
      Fill(intake, response->mutable_intake());
      const CoreSnapshot snapshot = core_.Snapshot(/*with_tenants=*/false);
      response->set_running_jobs(snapshot.jobs_running);
      response->set_running_runs(snapshot.runs);
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SetDevicePause(Context* context, const v1::SetDevicePauseRequest* request,
                                           v1::SetDevicePauseResponse* response) override {
    return Change(
        context, Method("SetDevicePause"), *request, [this, request, response](const Caller& caller) -> Status {
          HPVMD_RETURN_IF_ERROR(CheckReason(request->reason()));
          const std::string& id = request->device();
          // A device that is gone may still be resumed.
          if (!core_.devices().Find(id).has_value() && (request->paused() || !core_.intake().paused.contains(id))) {
            return NotFound("There is no device \"" + id.substr(0, 80) + "\"; `hpvmctl devices` lists them.");
          }
          HPVMD_RETURN_IF_ERROR(ChangeIntake([&](Intake& next) {
                                  if (request->paused()) {
                                    next.paused[id] = {request->reason(), caller.principal.who, core_.clock().WallNs()};
                                  } else {
                                    next.paused.erase(id);
                                  }
                                }).status());
          if (!request->paused()) {
            core_.devices().LiftFence(id);
          }
          response->mutable_device()->set_id(id);
          if (std::optional<v1::Device> device = core_.devices().Find(id)) {
            *response->mutable_device() = *std::move(device);
          }
          return absl::OkStatus();
        });
  }

  grpc::ServerUnaryReactor* ListAccounts(Context* context, const v1::ListAccountsRequest* request,
                                         v1::ListAccountsResponse* response) override {
    return AnswerInTurn(context, Method("ListAccounts"), *request,
                        [this, request, response](const Caller& caller) -> Status {
                          HPVMD_ASSIGN_OR_RETURN(const AccountQuery query, QueryFor(caller, *request));
                          return server::ListAccounts(access_.accounts_file, query, response);
                        });
  }

  grpc::ServerUnaryReactor* GetConfig(Context* context, const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override {
    return Answer(context, Method("GetConfig"), *request, [this, response](const Caller&) -> Status {
      ConfigFacts facts = access_.config->Get();
      response->set_toml(std::move(facts.toml));
      response->set_sha256(std::move(facts.sha256));
      response->set_file(std::move(facts.file));
      response->set_loaded_unix_ns(facts.loaded_unix_ns);
      for (std::string& key : facts.awaiting_restart) {
        response->add_awaiting_restart(std::move(key));
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListHosts(Context* context, const v1::ListHostsRequest* request,
                                      v1::ListHostsResponse* response) override {
    return AnswerLater(context, Method("ListHosts"), *request,
                       [this, response](const Caller& caller, const HostAdmin::Done& done) {
                         if (const Status refused = CheckHosts(caller); !refused.ok()) {
                           done(refused);
                         } else {
                           access_.hosts->List(response, done);
                         }
                       });
  }

  grpc::ServerUnaryReactor* SetHostIntake(Context* context, const v1::SetHostIntakeRequest* request,
                                          v1::SetHostIntakeResponse* response) override {
    return AnswerLater(context, Method("SetHostIntake"), *request,
                       [this, request, response](const Caller& caller, const HostAdmin::Done& done) {
                         if (const Status refused = CheckHostChange(caller, *request); !refused.ok()) {
                           done(refused);
                         } else {
                           access_.hosts->SetIntake(request->host(), request->intake(), response->mutable_host(), done);
                         }
                       });
  }

 private:
  Status CheckHosts(const Caller& caller) {
    if (access_.hosts == nullptr) {
      return FailedPrecondition("The server is not part of a cluster: its configuration names no [cluster] database.");
    }
    // Each call asks the database that all hosts share, so it counts as a request, which has a quota.
    return caller.principal.role == Role::kAdmin ? absl::OkStatus() : CountRequest(caller).status();
  }

  Status CheckHostChange(const Caller& caller, const v1::SetHostIntakeRequest& request) {
    HPVMD_RETURN_IF_ERROR(CheckHosts(caller));
    HPVMD_RETURN_IF_ERROR(CheckIntake(request.intake()));
    return CheckAudit();
  }

  // Counts a call as a request of the caller's tenant, which it returns.
  StatusOr<TenantRef> CountRequest(const Caller& caller) {
    HPVMD_ASSIGN_OR_RETURN(TenantRef own, core_.tenants().FindTenant(caller.tenant));
    HPVMD_RETURN_IF_ERROR(core_.quotas().meter().Begin(*own, 0).status);
    return own;
  }

  // Stores the changed state durably and returns it.
  StatusOr<Intake> ChangeIntake(const std::function<void(Intake&)>& change) {
    std::lock_guard lock(keeping_);  // The state stored last is the one in force.
    Intake next = core_.intake();
    change(next);
    HPVMD_RETURN_IF_ERROR(While(access_.keep_intake(next), "storing the change for the next start"));
    core_.SetIntake(next);
    return next;
  }

  // Restricted to the caller's tenant; only administrators may query others. Deleted tenants may have accounts.
  StatusOr<AccountQuery> QueryFor(const Caller& caller, const v1::ListAccountsRequest& request) const {
    const bool is_own = request.tenant().empty() || request.tenant() == caller.tenant;
    const bool is_all = request.tenant() == "*";
    const bool may_see = is_own || caller.principal.role == Role::kAdmin;
    if (!may_see || (!is_own && !is_all && !IsTenantName(request.tenant()))) {
      return NoTenant(request.tenant());
    }
    return QueryOf(request, is_all ? "" : is_own ? caller.tenant : request.tenant(), DayOf(core_.clock().WallNs()));
  }

  Status Overview(const Caller& caller, uint32_t running_max, v1::GetOverviewResponse* response) {
    const bool sees_all = caller.principal.role == Role::kAdmin;
    TenantRef own;
    if (!sees_all) {
      // Each call visits every tenant under the core's mutex, so it counts as a request, which has a quota.
      HPVMD_ASSIGN_OR_RETURN(own, CountRequest(caller));
    }
    core_.Overview(own.get(), running_max, response);
    if (!sees_all) {
      return absl::OkStatus();
    }
    AddIdleTenants(response);
    AddProcess(getpid(), response);
    for (const v1::TenantLoad& tenant : response->tenants()) {
      if (tenant.executor_pid() != 0) {
        AddProcess(static_cast<int>(tenant.executor_pid()), response);
      }
    }
    response->set_host_memory_bytes(MemoryAllowed());
    response->set_host_processors(std::thread::hardware_concurrency());
    return absl::OkStatus();
  }

  // Adds tenants without activity since the server started.
  void AddIdleTenants(v1::GetOverviewResponse* response) {
    std::set<std::string> known;
    for (const v1::TenantLoad& tenant : response->tenants()) {
      known.insert(tenant.name());
    }
    constexpr size_t kPage = 1'000;
    std::string after;
    for (bool more = true; more;) {
      const std::vector<TenantRecordRef> page = access_.directory->ListTenants(after, kPage);
      for (const TenantRecordRef& tenant : page) {
        after = tenant->name();
        if (!known.contains(after)) {
          v1::TenantLoad& load = *response->add_tenants();
          load.set_name(after);
          load.set_disabled(tenant->disabled());
          load.set_weight(tenant->weight());
        }
      }
      more = page.size() == kPage;
    }
    std::sort(response->mutable_tenants()->begin(), response->mutable_tenants()->end(),
              [](const v1::TenantLoad& a, const v1::TenantLoad& b) { return a.name() < b.name(); });
  }

  const Access& access_;
  std::mutex keeping_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateOperationsService(Core& core, Gate& gate, const Access& access) {
  return std::make_unique<OperationsService>(core, gate, access);
}

}  // namespace hpvm::server
