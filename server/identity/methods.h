// SPDX-License-Identifier: Apache-2.0
// Which role each method needs: one table. A method that is not in it is refused, and a handler that names one does not
// compile; a test compares the table with the services' descriptors.
#ifndef HPVMD_SERVER_IDENTITY_METHODS_H_
#define HPVMD_SERVER_IDENTITY_METHODS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "server/identity/principal.h"

namespace hpvm::server {

// What a call leaves behind, and with it whether the audit has it.
enum class Change : uint8_t {
  kNone,     // Reads: recorded only when their credential is refused.
  kState,    // Each is recorded, when it ends.
  kBuffers,  // Recorded when it publishes into buffers; else it leaves nothing.
};

struct MethodFacts {
  std::string_view path;  // As on the wire.
  Role role_min = Role::kAdmin;
  Change change = Change::kState;
};

inline constexpr MethodFacts kMethods[] = {
    {"/hpvm.v1.Hpvm/ServerInfo", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ListDevices", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ListCosts", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/PutModule", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/PutGraph", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/PrepareGraph", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/ReleaseGraph", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/ListGraphs", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/Run", Role::kUser, Change::kBuffers},
    {"/hpvm.v1.Hpvm/Stream", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/Submit", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/GetJob", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/WatchJob", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ListJobs", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/CancelJob", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/RetryJob", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/FetchOutput", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/CreateBuffer", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/WriteBuffer", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/ReadBuffer", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/DeleteBuffer", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/ListBuffers", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/RegisterBuffer", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/PublishBuffer", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/RunMany", Role::kUser, Change::kBuffers},
    {"/hpvm.v1.Hpvm/SubmitMany", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/WatchJobs", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/WatchDevices", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/OpenRing", Role::kUser, Change::kState},
    // Of other tenants than the caller's, each of these is for administrators (admin_calls.cc).
    {"/hpvm.v1.Admin/CreateTenant", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Admin/ListTenants", Role::kAdmin, Change::kNone},
    {"/hpvm.v1.Admin/GetTenant", Role::kUser, Change::kNone},
    {"/hpvm.v1.Admin/UpdateTenant", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Admin/CreateToken", Role::kOperator, Change::kState},
    {"/hpvm.v1.Admin/ListTokens", Role::kOperator, Change::kNone},
    {"/hpvm.v1.Admin/RevokeToken", Role::kOperator, Change::kState},
    {"/hpvm.v1.Admin/GetUsage", Role::kUser, Change::kNone},
    {"/hpvm.v1.Admin/ReadAudit", Role::kOperator, Change::kNone},
    {"/hpvm.v1.Operations/GetOverview", Role::kUser, Change::kNone},
    {"/hpvm.v1.Operations/SetIntake", Role::kAdmin, Change::kState},
};

// Null: not in the table.
constexpr const MethodFacts* FindMethod(std::string_view path) {
  for (const MethodFacts& method : kMethods) {
    if (method.path == path) {
      return &method;
    }
  }
  return nullptr;
}

// `service` with its slashes. Does not compile for a method that is not in the table.
consteval const MethodFacts& MethodAt(std::string_view service, std::string_view name) {
  for (const MethodFacts& method : kMethods) {
    if (method.path.starts_with(service) && method.path.substr(service.size()) == name) {
      return method;
    }
  }
  return *FindMethod("");  // No constant expression.
}

// "user", "operator", "admin".
std::string_view NameOf(Role role);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_METHODS_H_
