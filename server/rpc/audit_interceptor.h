// SPDX-License-Identifier: Apache-2.0
// Writes calls down when they end: who, what, about which object, and how it ended. The gate has said who.
#ifndef HPVMD_SERVER_RPC_AUDIT_INTERCEPTOR_H_
#define HPVMD_SERVER_RPC_AUDIT_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace hpvm {

class Gate;

// Borrows the gate, which outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CreateAuditInterceptor(Gate& gate);

}  // namespace hpvm

#endif  // HPVMD_SERVER_RPC_AUDIT_INTERCEPTOR_H_
