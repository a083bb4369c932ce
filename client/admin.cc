// SPDX-License-Identifier: Apache-2.0
#include "hpvm/admin.h"

#include <iterator>

#include "client/connection.h"

#include "base/status.h"
#include "hpvm/v1/admin.grpc.pb.h"
#include "hpvm/v1/operations.grpc.pb.h"

namespace hpvm {

struct [[gnu::visibility("hidden")]] Admin::Stub {
  std::unique_ptr<v1::Admin::Stub> grpc;
  std::unique_ptr<v1::Operations::Stub> operations;
};

Admin::Admin(Client& client)
    : client_(client),
      stub_(std::make_unique<Stub>(Stub{v1::Admin::NewStub(client.connection_->channel),
                                        v1::Operations::NewStub(client.connection_->channel)})) {}
Admin::~Admin() = default;

StatusOr<v1::Tenant> Admin::CreateTenant(const v1::Tenant& tenant, const CallOptions& call) {
  v1::CreateTenantRequest request;
  *request.mutable_tenant() = tenant;
  HPVMD_ASSIGN_OR_RETURN(v1::CreateTenantResponse response,
                         client_.connection_->OnceOn(*stub_->grpc, &v1::Admin::Stub::CreateTenant, request, call));
  return std::move(*response.mutable_tenant());
}

StatusOr<std::vector<v1::Tenant>> Admin::ListTenants(const CallOptions& call) {
  return client_.connection_->List<v1::Tenant>(*stub_->grpc, &v1::Admin::Stub::ListTenants,
                                               &v1::ListTenantsResponse::mutable_tenants, call);
}

StatusOr<v1::Tenant> Admin::GetTenant(const std::string& name, const CallOptions& call) {
  v1::GetTenantRequest request;
  request.set_name(name);
  HPVMD_ASSIGN_OR_RETURN(v1::GetTenantResponse response,
                         client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::GetTenant, request, call));
  return std::move(*response.mutable_tenant());
}

StatusOr<v1::Tenant> Admin::UpdateTenant(const v1::UpdateTenantRequest& request, const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(v1::UpdateTenantResponse response,
                         client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::UpdateTenant, request, call));
  return std::move(*response.mutable_tenant());
}

StatusOr<v1::Tenant> Admin::DeleteTenant(const std::string& name, const CallOptions& call) {
  v1::DeleteTenantRequest request;
  request.set_name(name);
  HPVMD_ASSIGN_OR_RETURN(v1::DeleteTenantResponse response,
                         client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::DeleteTenant, request, call));
  return std::move(*response.mutable_tenant());
}

StatusOr<v1::CreateTokenResponse> Admin::CreateToken(const v1::CreateTokenRequest& request, const CallOptions& call) {
  return client_.connection_->OnceOn(*stub_->grpc, &v1::Admin::Stub::CreateToken, request, call);
}

StatusOr<std::vector<v1::Token>> Admin::ListTokens(const std::string& tenant, const CallOptions& call) {
  v1::ListTokensRequest request;
  request.set_tenant(tenant);
  HPVMD_ASSIGN_OR_RETURN(const v1::ListTokensResponse response,
                         client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::ListTokens, request, call));
  return std::vector<v1::Token>(response.tokens().begin(), response.tokens().end());
}

Status Admin::RevokeToken(const std::string& id, const CallOptions& call) {
  v1::RevokeTokenRequest request;
  request.set_id(id);
  return client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::RevokeToken, request, call).status();
}

StatusOr<v1::GetUsageResponse> Admin::GetUsage(const std::string& tenant, const CallOptions& call) {
  v1::GetUsageRequest request;
  request.set_tenant(tenant);
  return client_.connection_->CallOn(*stub_->grpc, &v1::Admin::Stub::GetUsage, request, call);
}

StatusOr<v1::GetOverviewResponse> Admin::GetOverview(uint32_t running_max, const CallOptions& call) {
  v1::GetOverviewRequest request;
  request.set_running_max(running_max);
  return client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::GetOverview, request, call);
}

StatusOr<v1::SetIntakeResponse> Admin::SetIntake(bool closed, const std::string& reason, const CallOptions& call) {
  v1::SetIntakeRequest request;
  request.set_closed(closed);
  request.set_reason(reason);
  return client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::SetIntake, request, call);
}

StatusOr<v1::SetDevicePauseResponse> Admin::SetDevicePause(const std::string& device, bool paused,
                                                           const std::string& reason, const CallOptions& call) {
  v1::SetDevicePauseRequest request;
  request.set_device(device);
  request.set_paused(paused);
  request.set_reason(reason);
  return client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::SetDevicePause, request, call);
}

StatusOr<std::vector<v1::Account>> Admin::ListAccounts(const v1::ListAccountsRequest& request,
                                                       const CallOptions& call) {
  return client_.connection_->List<v1::Account>(*stub_->operations, &v1::Operations::Stub::ListAccounts,
                                                &v1::ListAccountsResponse::mutable_accounts, call, request);
}

StatusOr<v1::GetConfigResponse> Admin::GetConfig(const CallOptions& call) {
  return client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::GetConfig, v1::GetConfigRequest(),
                                     call);
}

StatusOr<std::vector<v1::Host>> Admin::ListHosts(const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(
      v1::ListHostsResponse response,
      client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::ListHosts, v1::ListHostsRequest(), call));
  return std::vector<v1::Host>(std::make_move_iterator(response.mutable_hosts()->begin()),
                               std::make_move_iterator(response.mutable_hosts()->end()));
}

StatusOr<v1::Host> Admin::SetHostIntake(const std::string& host, v1::HostIntake intake, const CallOptions& call) {
  v1::SetHostIntakeRequest request;
  request.set_host(host);
  request.set_intake(intake);
  HPVMD_ASSIGN_OR_RETURN(
      v1::SetHostIntakeResponse response,
      client_.connection_->CallOn(*stub_->operations, &v1::Operations::Stub::SetHostIntake, request, call));
  return std::move(*response.mutable_host());
}

Status Admin::ReadAudit(const v1::ReadAuditRequest& request, const std::function<bool(std::string_view)>& on_record,
                        const CallOptions& call) {
  v1::ReadAuditRequest sent = request;
  *sent.mutable_options() = call.request;
  bool stopped = false;
  const Status ended = client_.connection_->Attempt(call, [&](grpc::ClientContext& context) {
    std::unique_ptr<grpc::ClientReader<v1::ReadAuditResponse>> reader = stub_->grpc->ReadAudit(&context, sent);
    v1::ReadAuditResponse part;
    while (!stopped && reader->Read(&part)) {
      for (const std::string& record : part.records()) {
        stopped = stopped || !on_record(record);
      }
    }
    if (stopped) {
      context.TryCancel();
    }
    return FromGrpc(reader->Finish());
  });
  return stopped ? absl::OkStatus() : ended;
}

}  // namespace hpvm
