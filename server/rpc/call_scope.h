// SPDX-License-Identifier: Apache-2.0
// The record of each call that comes by gRPC. gRPC makes a scope for each, which travels with the call's context; the
// gate says who calls. Only .cc files that need gRPC include this.
#ifndef HPVMD_SERVER_RPC_CALL_SCOPE_H_
#define HPVMD_SERVER_RPC_CALL_SCOPE_H_

#include <grpcpp/grpcpp.h>

#include "server/rpc/call_record.h"

namespace hpvm::server {

class CallScope;

// What makes calls' scopes, and their contexts, which hold them. Outlives the server.
struct CallScopes {
  CallWitnesses witnesses;

  // Before it is built.
  void AddTo(grpc::ServerBuilder& builder) const;
};

// Names the caller of a call that is in progress, on a server that has scopes. Without effect for one that is not
// written down.
void SetCaller(const grpc::CallbackServerContext& context, const Caller& caller);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_CALL_SCOPE_H_
