// SPDX-License-Identifier: Apache-2.0
// hpvm.v1.Admin: tenants, tokens, use and the audit.
//
// What one tenant may not see of another answers as what does not exist. Nothing that changes who may do what is done
// while the audit cannot be kept.
#ifndef HPVMD_SERVER_RPC_ADMIN_CALLS_H_
#define HPVMD_SERVER_RPC_ADMIN_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

namespace hpvm::server {

class Core;
class Directory;
class Gate;

// Borrows all of them; they outlive the server.
std::unique_ptr<grpc::Service> CreateAdminService(Core& core, Gate& gate, Directory& directory);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_ADMIN_CALLS_H_
