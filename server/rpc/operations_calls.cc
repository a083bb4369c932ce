// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/operations_calls.h"

#include <string>
#include <utility>

#include "base/thread_watch.h"
#include "hpvm/v1/operations.grpc.pb.h"
#include "server/accounts/account_list.h"
#include "server/accounts/accounts.h"
#include "server/config/config_print.h"
#include "server/core/state/request_options.h"
#include "server/identity/directory.h"
#include "server/rpc/calls.h"
#include "server/rpc/gate.h"
#include "server/rpc/service.h"

namespace hpvm::server {
namespace {

Status NoTenant(std::string_view name) {
  return NotFound("There is no tenant \"" + std::string(name.substr(0, 63)) + "\".");
}

// A method of this service; does not compile for one that is not in the table.
consteval const MethodFacts& Method(std::string_view name) { return MethodAt("/hpvm.v1.Operations/", name); }

class OperationsService final : public v1::Operations::CallbackService {
 public:
  OperationsService(Core& core, Gate& gate, const Access& access) : core_(core), gate_(gate), access_(access) {}

  using Context = grpc::CallbackServerContext;

  // Reads a disk: in the turn of the caller's tenant, on a thread for that.
  grpc::ServerUnaryReactor* ListAccounts(Context* context, const v1::ListAccountsRequest* request,
                                         v1::ListAccountsResponse* response) override {
    const WatchedItem item("grpc", Method("ListAccounts").path.data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const StatusOr<Caller> caller = Enter(*context, Method("ListAccounts"), *request);
    StatusOr<AccountQuery> query = caller.ok() ? QueryFor(*caller, *request) : caller.status();
    if (!query.ok()) {
      reactor->Finish(ToGrpc(query.status()));
      return reactor;
    }
    core_.PostRead(caller->tenant, [this, reactor, query = *std::move(query), response] {
      reactor->Finish(ToGrpc(server::ListAccounts(access_.accounts_file, query, response)));
      return FairQueue::Step::kDone;
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* GetConfig(Context* context, const v1::GetConfigRequest* request,
                                      v1::GetConfigResponse* response) override {
    const WatchedItem item("grpc", Method("GetConfig").path.data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const Status status = Enter(*context, Method("GetConfig"), *request).status();
    if (status.ok()) {
      ConfigFacts facts = access_.config->Get();
      response->set_toml(std::move(facts.toml));
      response->set_sha256(std::move(facts.sha256));
      response->set_file(std::move(facts.file));
      response->set_loaded_unix_ns(facts.loaded_unix_ns);
      for (std::string& key : facts.awaiting_restart) {
        response->add_awaiting_restart(std::move(key));
      }
    }
    reactor->Finish(ToGrpc(status));
    return reactor;
  }

 private:
  // Who calls, if the call may be made.
  template <typename Request>
  StatusOr<Caller> Enter(const Context& context, const MethodFacts& method, const Request& request) {
    HPVMD_ASSIGN_OR_RETURN(Caller caller, gate_.Identify(context, method));
    WatchedItem::SetCurrentTenant(caller.tenant);
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    return caller;
  }

  // Of the caller's tenant; of others for administrators only. Tenants that are gone may have accounts.
  StatusOr<AccountQuery> QueryFor(const Caller& caller, const v1::ListAccountsRequest& request) const {
    const bool is_own = request.tenant().empty() || request.tenant() == caller.tenant;
    const bool is_all = request.tenant() == "*";
    const bool may_see = is_own || caller.principal.role == Role::kAdmin;
    if (!may_see || (!is_own && !is_all && !IsTenantName(request.tenant()))) {
      return NoTenant(request.tenant());
    }
    return QueryOf(request, is_all ? "" : is_own ? caller.tenant : request.tenant(), DayOf(core_.clock().WallNs()));
  }

  Core& core_;
  Gate& gate_;
  const Access& access_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateOperationsService(Core& core, Gate& gate, const Access& access) {
  return std::make_unique<OperationsService>(core, gate, access);
}

}  // namespace hpvm::server
