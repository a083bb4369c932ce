// SPDX-License-Identifier: Apache-2.0
// One call from its first byte to its status: how long it took, its span, who made it, and what is written down of it.
// gRPC makes a scope for each call, which travels with the call's context; the gate says who calls. Only .cc files that
// need gRPC include this.
#ifndef HPVMD_SERVER_RPC_CALL_SCOPE_H_
#define HPVMD_SERVER_RPC_CALL_SCOPE_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "base/clock.h"
#include "server/audit/audit_log.h"
#include "server/events/events.h"
#include "server/identity/principal.h"

namespace hpvm::server {

struct Caller {
  Principal principal;
  std::string tenant;  // That the call acts for.
};

class CallScope;

// What makes calls' scopes, and their contexts, which hold them. Borrows all of it; outlives the server.
struct CallScopes {
  Observer& observer;
  const Clock& clock;
  AuditLog& audit;  // To wait for; what it holds comes through the observer.

  // Before it is built.
  void AddTo(grpc::ServerBuilder& builder) const;
};

// Names the caller of a call that is in progress, on a server that has scopes. Without effect for one that is not
// written down.
void SetCaller(const grpc::CallbackServerContext& context, const Caller& caller);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_SCOPE_H_
