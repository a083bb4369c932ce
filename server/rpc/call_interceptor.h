// SPDX-License-Identifier: Apache-2.0
// Sees every gRPC call: counts it, and makes the span of those that do work. Only .cc files that need gRPC include
// this.
#ifndef HPVMD_SERVER_RPC_CALL_INTERCEPTOR_H_
#define HPVMD_SERVER_RPC_CALL_INTERCEPTOR_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "base/clock.h"
#include "server/events/call_hooks.h"

namespace hpvm {

// `clock` lives longer than the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> CreateCallInterceptor(const CallHooks& hooks,
                                                                                             const Clock& clock);

}  // namespace hpvm

#endif  // HPVMD_SERVER_RPC_CALL_INTERCEPTOR_H_
