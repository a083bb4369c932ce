// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/admin_calls.h"

#include <string>
#include <utility>

#include "hpvm/v1/admin.grpc.pb.h"
#include "server/identity/directory.h"
#include "server/identity/tenant_rules.h"
#include "server/rpc/audit_read.h"
#include "server/rpc/identified_calls.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kPageDefault = 100, kPageMax = 1'000;

Status Denied(std::string_view message) { return MakeStatus(absl::StatusCode::kPermissionDenied, message); }
Status NoToken() { return NotFound("There is no such token."); }

// A method of this service; does not compile for a name that is not in the table.
consteval const MethodFacts& Method(std::string_view name) { return MethodAt("/hpvm.v1.Admin/", name); }

class AdminService final : public v1::Admin::CallbackService, private IdentifiedCalls {
 public:
  // Resumes deletions that an earlier process began.
  AdminService(Core& core, Gate& gate, Directory& directory) : IdentifiedCalls(core, gate), directory_(directory) {
    for (const std::string& name : directory.Deleting()) {
      Remove(name);
    }
  }

  grpc::ServerUnaryReactor* CreateTenant(Context* context, const v1::CreateTenantRequest* request,
                                         v1::CreateTenantResponse* response) override {
    return Change(context, Method("CreateTenant"), *request, [this, request, response](const Caller&) -> Status {
      HPVMD_ASSIGN_OR_RETURN(*response->mutable_tenant(),
                             directory_.CreateTenant(request->tenant(), core_.config()->tenants_max));
      core_.OnPolicyChanged(response->tenant().name());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListTenants(Context* context, const v1::ListTenantsRequest* request,
                                        v1::ListTenantsResponse* response) override {
    return Answer(context, Method("ListTenants"), *request, [&](const Caller&) -> Status {
      if (request->page_size() > kPageMax) {
        return InvalidArgument("The page size (" + std::to_string(request->page_size()) +
                               ") is larger than the limit (1000).");
      }
      if (!request->page_token().empty() && !IsTenantName(request->page_token())) {
        return InvalidArgument("The page token is not one that this server gave; begin with the first page.");
      }
      const size_t count = request->page_size() == 0 ? kPageDefault : request->page_size();
      const std::vector<TenantRecordRef> listed = directory_.ListTenants(request->page_token(), count + 1);
      for (const TenantRecordRef& tenant : listed) {
        if (response->tenants_size() < static_cast<int>(count)) {
          *response->add_tenants() = *tenant;
        }
      }
      if (listed.size() > count) {
        response->set_next_page_token(listed[count - 1]->name());
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* GetTenant(Context* context, const v1::GetTenantRequest* request,
                                      v1::GetTenantResponse* response) override {
    return Answer(context, Method("GetTenant"), *request, [&](const Caller& caller) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const std::string name, Visible(caller, request->name()));
      const TenantRecordRef tenant = directory_.FindTenant(name);
      if (tenant == nullptr) {
        return NoTenant(name);
      }
      *response->mutable_tenant() = *tenant;
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* UpdateTenant(Context* context, const v1::UpdateTenantRequest* request,
                                         v1::UpdateTenantResponse* response) override {
    return Change(context, Method("UpdateTenant"), *request, [this, request, response](const Caller&) -> Status {
      HPVMD_ASSIGN_OR_RETURN(*response->mutable_tenant(), directory_.UpdateTenant(*request));
      core_.OnPolicyChanged(response->tenant().name());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* DeleteTenant(Context* context, const v1::DeleteTenantRequest* request,
                                         v1::DeleteTenantResponse* response) override {
    return Change(context, Method("DeleteTenant"), *request, [this, request, response](const Caller&) -> Status {
      HPVMD_ASSIGN_OR_RETURN(*response->mutable_tenant(),
                             directory_.BeginDelete(request->name(), core_.config()->tenants_default));
      core_.OnPolicyChanged(request->name());
      Remove(request->name());
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* CreateToken(Context* context, const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override {
    return Change(context, Method("CreateToken"), *request, [this, request, response](const Caller& caller) -> Status {
      Directory::TokenSpec spec;
      HPVMD_ASSIGN_OR_RETURN(spec.tenant, Visible(caller, request->tenant()));
      HPVMD_ASSIGN_OR_RETURN(spec.role, RoleOf(request->role()));
      if (!MayGive(caller, spec.role)) {
        return Denied("A caller with the role " + std::string(NameOf(caller.principal.role)) +
                      " may create tokens with the role user only.");
      }
      spec.name = request->name();
      spec.lifetime_ns = request->lifetime_ns();
      spec.created_by = caller.principal.who;
      HPVMD_ASSIGN_OR_RETURN(Directory::NewToken made, directory_.CreateToken(spec));
      *response->mutable_token() = std::move(made.token);
      response->set_secret(std::move(made.secret));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* ListTokens(Context* context, const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override {
    return Answer(context, Method("ListTokens"), *request, [&](const Caller& caller) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const std::string name, Visible(caller, request->tenant()));
      if (directory_.FindTenant(name) == nullptr) {
        return NoTenant(name);
      }
      for (v1::Token& token : directory_.ListTokens(name)) {
        *response->add_tokens() = std::move(token);
      }
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* RevokeToken(Context* context, const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenResponse* response) override {
    return Change(context, Method("RevokeToken"), *request, [this, request, response](const Caller& caller) -> Status {
      const TokenRecordRef found = directory_.FindTokenById(request->id());
      if (found == nullptr || !Visible(caller, found->token.tenant()).ok()) {
        return NoToken();
      }
      HPVMD_ASSIGN_OR_RETURN(const Role role, RoleOf(found->token.role()));
      if (!MayGive(caller, role) && caller.principal.who != "token " + found->token.id()) {
        return Denied("A caller with the role " + std::string(NameOf(caller.principal.role)) +
                      " may revoke its own token and tokens with the role user only.");
      }
      response->set_tenant(found->token.tenant());
      return directory_.RevokeToken(request->id());
    });
  }

  grpc::ServerUnaryReactor* GetUsage(Context* context, const v1::GetUsageRequest* request,
                                     v1::GetUsageResponse* response) override {
    return Answer(context, Method("GetUsage"), *request, [&](const Caller& caller) -> Status {
      HPVMD_ASSIGN_OR_RETURN(const std::string name, Visible(caller, request->tenant()));
      return core_.Usage(name, response);
    });
  }

  grpc::ServerWriteReactor<v1::ReadAuditResponse>* ReadAudit(Context* context,
                                                             const v1::ReadAuditRequest* request) override {
    AuditQuery query;
    query.from_sequence = request->from_sequence();
    query.records_max = request->records_max();
    query.tenant = request->tenant();
    const StatusOr<Caller> caller = gate_.Identify(*context, Method("ReadAudit"));
    Status status = caller.ok() ? CheckRequestOptions(request->options(), /*key_honoured=*/false) : caller.status();
    if (status.ok() && caller->principal.role < Role::kAdmin) {
      const StatusOr<std::string> name = Visible(*caller, request->tenant());
      status = name.status();
      query.tenant = name.value_or("");
    }
    return StartReadAudit(gate_.audit(), std::move(query), status);
  }

 private:
  void Remove(const std::string& name) {
    // The core and the directory outlive this service, and the store's threads may call late.
    core_.tenant_removal().Remove(name, [&core = core_, &directory = directory_, name] {
      const Status forgotten = directory.ForgetTenant(name);
      core.OnPolicyChanged(name);
      return forgotten;
    });
  }

  static bool MayGive(const Caller& caller, Role role) {
    return caller.principal.role == Role::kAdmin || role == Role::kUser;
  }

  Directory& directory_;
};

}  // namespace

std::unique_ptr<grpc::Service> CreateAdminService(Core& core, Gate& gate, Directory& directory) {
  return std::make_unique<AdminService>(core, gate, directory);
}

}  // namespace hpvm::server
