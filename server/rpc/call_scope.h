// SPDX-License-Identifier: Apache-2.0
// CallScopes records each call that comes by gRPC. gRPC makes a scope for each call, which travels with the call's
// context; the gate provides the caller. Only .cc files that need gRPC include this header.
#ifndef HPVMD_SERVER_RPC_CALL_SCOPE_H_
#define HPVMD_SERVER_RPC_CALL_SCOPE_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call_record.h"

namespace hpvm::server {

class CallScope;

// Makes the scopes of calls, and their contexts, which hold them. Must outlive the server.
struct CallScopes {
  CallWitnesses witnesses;

  // Called before the server is built.
  void AddTo(grpc::ServerBuilder& builder) const;
};

// Sets the caller of a call in progress, on a server that has scopes. No effect for a call that is not recorded.
void SetCaller(const grpc::CallbackServerContext& context, const Caller& caller);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_SCOPE_H_
