// SPDX-License-Identifier: Apache-2.0
// Table of the role that each method needs. A method that is not in the table is refused, and a handler that names one
// does not compile; a test compares the table with the services' descriptors.
#ifndef HPVMD_SERVER_IDENTITY_METHODS_H_
#define HPVMD_SERVER_IDENTITY_METHODS_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "server/identity/principal.h"

namespace hpvm::server {

// The kind of state that a method changes, which decides whether the audit records its calls.
enum class Change : uint8_t {
  kNone,     // Reads only: a call is recorded only when its credential is refused.
  kState,    // Every call is recorded when it ends.
  kBuffers,  // A call is recorded when it publishes into buffers; otherwise it changes nothing.
};

struct MethodFacts {
  std::string_view path;  // As in gRPC's :path header.
  Role role_min = Role::kAdmin;
  Change change = Change::kState;
};

inline constexpr MethodFacts kMethods[] = {
    {"/hpvm.v1.Hpvm/ServerInfo", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ListDevices", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ListCosts", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/PutModule", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/PutGraph", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/ListModules", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/DeleteModule", Role::kUser, Change::kState},
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
    {"/hpvm.v1.Hpvm/SetJobHold", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/RetryJob", Role::kUser, Change::kState},
    {"/hpvm.v1.Hpvm/FetchOutput", Role::kUser, Change::kNone},
    {"/hpvm.v1.Hpvm/ExportJob", Role::kUser, Change::kNone},
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
    // For tenants other than the caller's, each of these methods needs an administrator (admin_calls.cc).
    {"/hpvm.v1.Admin/CreateTenant", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Admin/ListTenants", Role::kAdmin, Change::kNone},
    {"/hpvm.v1.Admin/GetTenant", Role::kUser, Change::kNone},
    {"/hpvm.v1.Admin/UpdateTenant", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Admin/DeleteTenant", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Admin/CreateToken", Role::kOperator, Change::kState},
    {"/hpvm.v1.Admin/ListTokens", Role::kOperator, Change::kNone},
    {"/hpvm.v1.Admin/RevokeToken", Role::kOperator, Change::kState},
    {"/hpvm.v1.Admin/GetUsage", Role::kUser, Change::kNone},
    {"/hpvm.v1.Admin/ReadAudit", Role::kOperator, Change::kNone},
    {"/hpvm.v1.Operations/GetOverview", Role::kUser, Change::kNone},
    {"/hpvm.v1.Operations/SetIntake", Role::kAdmin, Change::kState},
    {"/hpvm.v1.Operations/SetDevicePause", Role::kAdmin, Change::kState},
    // For tenants other than the caller's, ListAccounts needs an administrator, too (operations_calls.cc).
    {"/hpvm.v1.Operations/ListAccounts", Role::kUser, Change::kNone},
    {"/hpvm.v1.Operations/GetConfig", Role::kAdmin, Change::kNone},
    {"/hpvm.v1.Operations/ListHosts", Role::kOperator, Change::kNone},
    {"/hpvm.v1.Operations/SetHostIntake", Role::kAdmin, Change::kState},
};

// Returns null when the method is not in the table.
constexpr const MethodFacts* FindMethod(std::string_view path) {
  for (const MethodFacts& method : kMethods) {
    if (method.path == path) {
      return &method;
    }
  }
  return nullptr;
}

// `service` includes its slashes ("/hpvm.v1.Hpvm/"). Does not compile for a method that is not in the table.
consteval const MethodFacts& MethodAt(std::string_view service, std::string_view name) {
  for (const MethodFacts& method : kMethods) {
    if (method.path.starts_with(service) && method.path.substr(service.size()) == name) {
      return method;
    }
  }
  return *FindMethod("");  // Dereferences null, which is not a constant expression: the call does not compile.
}

// Returns "user", "operator" or "admin".
std::string_view NameOf(Role role);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_METHODS_H_
