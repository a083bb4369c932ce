// SPDX-License-Identifier: Apache-2.0
// Administration over a client's connection: tenants, tokens, use, the audit, the machine and its configuration. Which
// calls a caller may make depends on its role; see hpvm/v1/admin.proto and hpvm/v1/operations.proto.
//
// Threads and errors as for Client. Calls that may be carried out twice are sent again as Client's are; CreateTenant
// and CreateToken are sent once.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_ADMIN_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_ADMIN_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hpvm/client.h"
#include "hpvm/types.h"
#include "hpvm/v1/admin.pb.h"
#include "hpvm/v1/operations.pb.h"

namespace hpvm {

class Admin {
 public:
  // The client outlives it.
  explicit Admin(Client& client);
  ~Admin();
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  StatusOr<v1::Tenant> CreateTenant(const v1::Tenant& tenant, const CallOptions& call = {});
  // All of them, by name.
  StatusOr<std::vector<v1::Tenant>> ListTenants(const CallOptions& call = {});
  // An empty name: the caller's own, here and below.
  StatusOr<v1::Tenant> GetTenant(const std::string& name, const CallOptions& call = {});
  StatusOr<v1::Tenant> UpdateTenant(const v1::UpdateTenantRequest& request, const CallOptions& call = {});

  // The answer's secret is the only copy there is.
  StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request, const CallOptions& call = {});
  StatusOr<std::vector<v1::Token>> ListTokens(const std::string& tenant, const CallOptions& call = {});
  Status RevokeToken(const std::string& id, const CallOptions& call = {});

  StatusOr<v1::GetUsageResponse> GetUsage(const std::string& tenant, const CallOptions& call = {});

  // Devices, tenants and at most `running_max` of what runs: for administrators of all tenants.
  StatusOr<v1::GetOverviewResponse> GetOverview(uint32_t running_max, const CallOptions& call = {});
  // Lets the server start work, or nothing. It is kept over restarts.
  StatusOr<v1::SetIntakeResponse> SetIntake(bool closed, const std::string& reason, const CallOptions& call = {});
  // What tenants used on each day that the request names, by day and tenant: all pages.
  StatusOr<std::vector<v1::Account>> ListAccounts(const v1::ListAccountsRequest& request, const CallOptions& call = {});
  // The configuration in force; for administrators.
  StatusOr<v1::GetConfigResponse> GetConfig(const CallOptions& call = {});

  // `on_record` gets each line until it returns false. Sent once.
  Status ReadAudit(const v1::ReadAuditRequest& request, const std::function<bool(std::string_view)>& on_record,
                   const CallOptions& call = {});

 private:
  struct Stub;  // gRPC's, kept out of this header.
  Client& client_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_ADMIN_H_
