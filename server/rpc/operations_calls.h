// SPDX-License-Identifier: Apache-2.0
// hpvm.v1.Operations: the machine as a whole, whether it takes work, what tenants used by day, and the configuration in
// force.
//
// What one tenant may not see of another answers as what does not exist.
#ifndef HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
#define HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

namespace hpvm::server {

class Core;
class Gate;
struct Access;

// Borrows all of them, and what `access` names; they outlive the server.
std::unique_ptr<grpc::Service> CreateOperationsService(Core& core, Gate& gate, const Access& access);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
