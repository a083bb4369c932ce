// SPDX-License-Identifier: Apache-2.0
// Principal is an authenticated caller.
#ifndef HPVMD_SERVER_IDENTITY_PRINCIPAL_H_
#define HPVMD_SERVER_IDENTITY_PRINCIPAL_H_

#include <cstdint>
#include <string>

namespace hpvm::server {

// Roles, in order of increasing permissions.
enum class Role : uint8_t { kUser = 1, kOperator = 2, kAdmin = 3 };

struct Principal {
  std::string tenant;
  Role role = Role::kUser;
  // The caller's name in the audit and the log, never a secret: "token tok-…", "certificate cn=…", "uid 1000", "anyone
  // (unix)".
  std::string who;
  // The peer's address as gRPC reports it; for the audit.
  std::string peer;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_PRINCIPAL_H_
