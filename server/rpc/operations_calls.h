// SPDX-License-Identifier: Apache-2.0
// hpvm.v1.Operations: the machine as a whole, and whether it takes work.
#ifndef HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
#define HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "base/status.h"
#include "server/process/intake_file.h"

namespace hpvm::server {

class Core;
class Directory;
class Gate;

// Makes it durable; blocks. kUnavailable: it is not.
using KeepIntake = std::function<Status(const Intake&)>;

// Borrows all of them; they outlive the server.
std::unique_ptr<grpc::Service> CreateOperationsService(Core& core, Gate& gate, Directory& directory, KeepIntake keep);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_OPERATIONS_CALLS_H_
