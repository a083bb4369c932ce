// SPDX-License-Identifier: Apache-2.0
// One call from its first byte to its status: how long it took, its span, who made it, and what is written down of it.
// gRPC makes a scope for each call; the gate says who calls. Only .cc files that need gRPC include this.
#ifndef HPVMD_SERVER_RPC_CALL_SCOPE_H_
#define HPVMD_SERVER_RPC_CALL_SCOPE_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

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

// The scopes of calls in progress whose end will be written down, by gRPC's name for them. Any thread.
class CallScopes {
 public:
  // Borrows all of them; they outlive the server.
  CallScopes(Observer& observer, const Clock& clock, AuditLog& audit)
      : observer_(observer), clock_(clock), audit_(audit) {}
  // Names the caller of that context. Without effect for one that is not written down.
  void SetCaller(const grpc::ServerContextBase* context, const Caller& caller);
  // The factory with which gRPC makes scopes. Borrows this.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CreateFactory();

 private:
  friend class CallScope;
  Observer& observer_;
  const Clock& clock_;
  AuditLog& audit_;  // To wait for; what it holds comes through the observer.
  std::mutex mutex_;
  std::unordered_map<const grpc::ServerContextBase*, CallScope*> scopes_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_SCOPE_H_
