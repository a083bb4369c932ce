// SPDX-License-Identifier: Apache-2.0
// Admin manages a server over a client's connection: tenants, tokens, usage, the audit, the machine, its
// configuration, and the hosts of a cluster. The caller's role decides which calls it may make; see hpvm/v1/admin.proto
// and hpvm/v1/operations.proto.
//
// Threads and errors are as for Client. Calls that may be carried out twice are retried as Client's are; CreateTenant
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
  // `client` must outlive this object.
  explicit Admin(Client& client);
  ~Admin();
  Admin(const Admin&) = delete;
  Admin& operator=(const Admin&) = delete;

  StatusOr<v1::Tenant> CreateTenant(const v1::Tenant& tenant, const CallOptions& call = {});
  // Returns all tenants, sorted by name.
  StatusOr<std::vector<v1::Tenant>> ListTenants(const CallOptions& call = {});
  // An empty name stands for the caller's own tenant, here and below.
  StatusOr<v1::Tenant> GetTenant(const std::string& name, const CallOptions& call = {});
  // Starts the deletion. GetTenant shows the tenant as `deleting` until it is gone.
  StatusOr<v1::Tenant> DeleteTenant(const std::string& name, const CallOptions& call = {});
  StatusOr<v1::Tenant> UpdateTenant(const v1::UpdateTenantRequest& request, const CallOptions& call = {});

  // The secret in the response is the only copy there is.
  StatusOr<v1::CreateTokenResponse> CreateToken(const v1::CreateTokenRequest& request, const CallOptions& call = {});
  StatusOr<std::vector<v1::Token>> ListTokens(const std::string& tenant, const CallOptions& call = {});
  Status RevokeToken(const std::string& id, const CallOptions& call = {});

  StatusOr<v1::GetUsageResponse> GetUsage(const std::string& tenant, const CallOptions& call = {});

  // Returns the devices, the tenants and at most `running_max` running pieces of work. For administrators of all
  // tenants.
  StatusOr<v1::GetOverviewResponse> GetOverview(uint32_t running_max, const CallOptions& call = {});
  // Stops the server from starting new work, or allows it again. The setting survives restarts.
  StatusOr<v1::SetIntakeResponse> SetIntake(bool closed, const std::string& reason, const CallOptions& call = {});
  // Stops the server from starting work on a device, or allows it again; allowing also lifts a fence that a fault of
  // the device made. The setting survives restarts. kNotFound when there is no such device.
  StatusOr<v1::SetDevicePauseResponse> SetDevicePause(const std::string& device, bool paused, const std::string& reason,
                                                      const CallOptions& call = {});
  // Returns the usage of tenants on each day that the request names, sorted by day and tenant; fetches all pages.
  StatusOr<std::vector<v1::Account>> ListAccounts(const v1::ListAccountsRequest& request, const CallOptions& call = {});
  // Returns the configuration in force. For administrators.
  StatusOr<v1::GetConfigResponse> GetConfig(const CallOptions& call = {});

  // Returns the hosts of the cluster, sorted by name. kFailedPrecondition when the server is not part of one.
  StatusOr<std::vector<v1::Host>> ListHosts(const CallOptions& call = {});
  // Sets whether a host of the cluster takes jobs, and returns the host. The setting survives restarts. kNotFound when
  // no such host ever joined.
  StatusOr<v1::Host> SetHostIntake(const std::string& host, v1::HostIntake intake, const CallOptions& call = {});

  // Passes each line to `on_record` until it returns false. The call is sent once.
  Status ReadAudit(const v1::ReadAuditRequest& request, const std::function<bool(std::string_view)>& on_record,
                   const CallOptions& call = {});

 private:
  struct Stub;  // Holds the gRPC stub, which this header hides.
  Client& client_;
  const std::unique_ptr<Stub> stub_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_ADMIN_H_
