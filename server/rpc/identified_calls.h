// SPDX-License-Identifier: Apache-2.0
// Common parts of services that are about tenants rather than run for one: the caller is identified, and its role
// determines which tenants a call may be about. Objects of another tenant that the caller may not see are reported as
// not existing.
#ifndef HPVMD_SERVER_RPC_IDENTIFIED_CALLS_H_
#define HPVMD_SERVER_RPC_IDENTIFIED_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/thread_watch.h"
#include "server/core/core.h"
#include "server/core/state/request_options.h"
#include "server/rpc/calls.h"
#include "server/rpc/gate.h"

namespace hpvm::server {

inline Status NoTenant(std::string_view name) {
  return NotFound("There is no tenant \"" + std::string(name.substr(0, 63)) + "\".");
}

class IdentifiedCalls {
 protected:
  using Context = grpc::CallbackServerContext;

  // Borrows both.
  IdentifiedCalls(Core& core, Gate& gate) : core_(core), gate_(gate) {}
  ~IdentifiedCalls() = default;

  // Returns the tenant that a request names, or the caller's. Others exist for administrators only.
  static StatusOr<std::string> Visible(const Caller& caller, const std::string& name) {
    if (name.empty() || name == caller.tenant) {
      return caller.tenant;
    }
    return caller.principal.role == Role::kAdmin ? StatusOr<std::string>(name) : NoTenant(name);
  }

  // Answers at once, on the thread that read the call.
  template <typename Request, typename Action>
  grpc::ServerUnaryReactor* Answer(Context* context, const MethodFacts& method, const Request& request, Action action) {
    const WatchedItem item("grpc", method.path.data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const StatusOr<Caller> caller = Enter(*context, method, request);
    reactor->Finish(ToGrpc(caller.ok() ? action(*caller) : caller.status()));
    return reactor;
  }

  // Begins a call that is answered later: in the turn of the caller's tenant, on a thread for that. `begin` gets the
  // function that ends the call, to be called once, on any thread. gRPC keeps request and response until then.
  template <typename Request, typename Begin>
  grpc::ServerUnaryReactor* AnswerLater(Context* context, const MethodFacts& method, const Request& request,
                                        Begin begin) {
    const WatchedItem item("grpc", method.path.data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    StatusOr<Caller> entered = Enter(*context, method, request);
    if (!entered.ok()) {
      reactor->Finish(ToGrpc(entered.status()));
      return reactor;
    }
    std::string tenant = entered->tenant;
    core_.PostRead(std::move(tenant), [reactor, caller = *std::move(entered), begin = std::move(begin)] {
      begin(caller, [reactor](const Outcome& outcome) { reactor->Finish(ToGrpc(outcome)); });
      return FairQueue::Step::kDone;
    });
    return reactor;
  }

  // Answers a call that waits for a disk, in the same turn.
  template <typename Request, typename Action>
  grpc::ServerUnaryReactor* AnswerInTurn(Context* context, const MethodFacts& method, const Request& request,
                                         Action action) {
    return AnswerLater(context, method, request,
                       [action = std::move(action)](const Caller& caller, const auto& end) { end(action(caller)); });
  }

  // Like AnswerInTurn, for a call that changes rights: refused while the audit cannot be kept.
  template <typename Request, typename Action>
  grpc::ServerUnaryReactor* Change(Context* context, const MethodFacts& method, const Request& request, Action action) {
    return AnswerInTurn(context, method, request, [this, action = std::move(action)](const Caller& caller) -> Status {
      HPVMD_RETURN_IF_ERROR(CheckAudit());
      return action(caller);
    });
  }

  // Refuses changes while the audit cannot be kept.
  Status CheckAudit() {
    const Status audit = gate_.audit().Healthy();
    return audit.ok() ? absl::OkStatus()
                      : Unavailable("The audit cannot be written (" + Message(audit) +
                                    "), and without it no tenant or token can be changed.");
  }

  Core& core_;
  Gate& gate_;

 private:
  // Returns the caller, if the call is permitted.
  template <typename Request>
  StatusOr<Caller> Enter(const Context& context, const MethodFacts& method, const Request& request) {
    HPVMD_ASSIGN_OR_RETURN(Caller caller, gate_.Identify(context, method));
    WatchedItem::SetCurrentTenant(caller.tenant);
    HPVMD_RETURN_IF_ERROR(CheckRequestOptions(request.options(), /*key_honoured=*/false));
    return caller;
  }
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_IDENTIFIED_CALLS_H_
