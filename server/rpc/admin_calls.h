// SPDX-License-Identifier: Apache-2.0
// hpvm.v1.Admin: tenants, tokens, usage and the audit.
//
// Objects of another tenant that the caller may not see are reported as not existing. Changes of rights are refused
// while the audit cannot be kept.
#ifndef HPVMD_SERVER_RPC_ADMIN_CALLS_H_
#define HPVMD_SERVER_RPC_ADMIN_CALLS_H_

#include <grpcpp/grpcpp.h>

#include <memory>

namespace hpvm::server {

class Core;
class Directory;
class Gate;

// Borrows all arguments; they must outlive the server.
std::unique_ptr<grpc::Service> CreateAdminService(Core& core, Gate& gate, Directory& directory);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_ADMIN_CALLS_H_
