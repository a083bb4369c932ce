// SPDX-License-Identifier: Apache-2.0
// Fuzzes administrators' requests: tenants are created, changed and given tokens in any order. Every accepted request
// keeps the rules that the rest of the daemon relies on, and no user id, group id or certificate name belongs to two
// tenants.
//
// The input is a sequence of messages: for each a byte for its kind, two bytes of length, and the serialized message.
#include <stddef.h>

#include <set>
#include <string>

#include "server/identity/directory.h"
#include "server/identity/tenant_rules.h"

namespace hpvm::server {
namespace {

void CheckAll(const Directory& directory, const Config& config) {
  std::set<uint32_t> uids, gids;
  std::set<std::string> certificates;
  for (const TenantRecordRef& tenant : directory.ListTenants("", 1'000)) {
    HPVMD_CHECK(IsTenantName(tenant->name()) && tenant->weight() >= 1 && tenant->weight() <= kWeightMax);
    HPVMD_CHECK(tenant->sandbox_level_min() <= 4 && tenant->disabled_reason().size() <= kNoteBytesMax);
    const TenantPolicyRef policy = directory.Find(tenant->name(), config);
    HPVMD_CHECK(policy != nullptr && policy->name == tenant->name() && policy->disabled == tenant->disabled());
    HPVMD_CHECK(policy->sandbox_level_min >= config.executor_sandbox_min && policy->MayUse("cpu"));
    for (const uint32_t uid : tenant->uids()) {
      HPVMD_CHECK(uid != 0 && uids.insert(uid).second && directory.TenantOfUid(uid) == tenant->name());
      HPVMD_CHECK(!directory.IsAdministrator(uid));
    }
    for (const uint32_t gid : tenant->gids()) {
      HPVMD_CHECK(gid != 0 && gids.insert(gid).second && directory.TenantOfGid(gid) == tenant->name());
    }
    for (const std::string& name : tenant->certificate_names()) {
      HPVMD_CHECK(!name.empty() && certificates.insert(name).second);
      HPVMD_CHECK(directory.TenantOfCertificate(name) == tenant->name());
    }
    size_t tokens = 0;
    for (const v1::Token& token : directory.ListTokens(tenant->name())) {
      HPVMD_CHECK(token.tenant() == tenant->name() && token.expires_unix_ns() > token.created_unix_ns());
      ++tokens;
    }
    HPVMD_CHECK(tokens <= 2 * kTokensPerTenantMax);
  }
}

void Play(Directory& directory, uint8_t kind, const std::string& bytes, const Config& config) {
  v1::CreateTenantRequest create;
  v1::UpdateTenantRequest update;
  v1::CreateTokenRequest token;
  v1::RevokeTokenRequest revoke;
  switch (kind % 4) {
    case 0:
      if (create.ParseFromString(bytes)) {
        directory.CreateTenant(create.tenant(), 8).status().IgnoreError();
      }
      break;
    case 1:
      if (update.ParseFromString(bytes)) {
        directory.UpdateTenant(update).status().IgnoreError();
      }
      break;
    case 2:
      if (const bool is_one = token.ParseFromString(bytes); is_one) {
        const StatusOr<Role> role = RoleOf(token.role());
        const auto made = directory.CreateToken(
            {token.tenant(), token.name(), "admin", role.value_or(Role::kUser), token.lifetime_ns()});
        HPVMD_CHECK(!made.ok() || directory.FindTokenById(made->token.id()) != nullptr);
      }
      break;
    default:
      if (revoke.ParseFromString(bytes)) {
        const Status status = directory.RevokeToken(revoke.id());
        const TokenRecordRef found = directory.FindTokenById(revoke.id());
        HPVMD_CHECK(status.ok() == (found != nullptr) && (found == nullptr || found->token.revoked_unix_ns() != 0));
      }
      break;
  }
  CheckAll(directory, config);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Config& config = *new Config();
  ManualClock clock;
  SeededRng rng(1);
  DirectoryOptions options;
  options.clock = &clock;
  options.rng = &rng;
  options.is_open = size % 2 == 0;
  const std::unique_ptr<Directory> directory = *Directory::Open(std::move(options));
  HPVMD_CHECK(directory->EnsureTenant("local").ok());
  for (int count = 0; size >= 3 && count < 16; ++count) {
    const size_t length = std::min<size_t>(data[1] | size_t{data[2]} << 8, size - 3);
    Play(*directory, data[0], std::string(reinterpret_cast<const char*>(data) + 3, length), config);
    clock.Advance(std::chrono::seconds(1));
    data += 3 + length;
    size -= 3 + length;
  }
  return 0;
}

}  // namespace hpvm::server
