// SPDX-License-Identifier: Apache-2.0
// hpvm.v1.Operations: the machine as a whole, whether it accepts work, tenants' usage by day, and the configuration
// in force.
//
// Objects of another tenant that the caller may not see are reported as not existing.
#ifndef HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
#define HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

namespace hpvm::server {

class Core;
class Gate;
struct Access;

// Borrows all arguments, and what `access` names; they must outlive the server.
std::unique_ptr<grpc::Service> CreateOperationsService(Core& core, Gate& gate, const Access& access);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
