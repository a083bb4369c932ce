// SPDX-License-Identifier: Apache-2.0
// Who there is: tenants and their tokens, in memory for every call and in a database for every start.
//
// Any thread. Reads look at a snapshot that never changes; a write is checked, put on disk and then seen by whoever
// asks next, so a token that was revoked is refused from the moment that the call which revoked it returns.
#ifndef HPVMD_SERVER_IDENTITY_DIRECTORY_H_
#define HPVMD_SERVER_IDENTITY_DIRECTORY_H_

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"
#include "hpvm/v1/admin.pb.h"
#include "server/config/tenant_policy.h"
#include "server/identity/identity_database.h"
#include "server/identity/principal.h"

namespace hpvm::server {

using TenantRecordRef = std::shared_ptr<const v1::Tenant>;
using TokenRecordRef = std::shared_ptr<const StoredToken>;

struct DirectoryOptions {
  std::unique_ptr<IdentityDatabase> database;  // Null: nothing is kept.
  const Clock* clock = nullptr;                // Borrowed; lives longer.
  Rng* rng = nullptr;                          // Borrowed; lives longer. Used under the mutex.
  // No credentials are asked for: tenants that nobody made exist all the same.
  bool is_open = true;
  // User ids that administer: root's and the daemon's. No tenant may have them.
  std::vector<uint32_t> administrators = {0};
};

class Directory final : public TenantPolicies {
 public:
  // Reads the database.
  static StatusOr<std::unique_ptr<Directory>> Open(DirectoryOptions options);

  // The default tenant exists from now on.
  Status EnsureTenant(const std::string& name);

  // --- For each call; in memory ---
  TenantPolicyRef Find(std::string_view name, const Config& config) const override;
  // Null: there is none.
  TenantRecordRef FindTenant(std::string_view name) const;
  // Of any age; null: there is none. The comparison takes the same time whatever the secret is.
  TokenRecordRef FindToken(const Sha256& secret_hash) const;
  TokenRecordRef FindTokenById(std::string_view id) const;
  std::optional<std::string> TenantOfUid(uint32_t uid) const;
  std::optional<std::string> TenantOfCertificate(std::string_view name) const;
  bool is_open() const { return options_.is_open; }
  bool IsAdministrator(uint32_t uid) const;

  // --- Administration; on disk when these return ---
  // kAlreadyExists for a name that is taken, a user id or a certificate name that is another tenant's.
  StatusOr<v1::Tenant> CreateTenant(v1::Tenant tenant, uint64_t tenants_max);
  StatusOr<v1::Tenant> UpdateTenant(const v1::UpdateTenantRequest& update);
  // By name, from the first after `after`.
  std::vector<TenantRecordRef> ListTenants(std::string_view after, size_t count_max) const;

  struct NewToken {
    v1::Token token;
    std::string secret;  // Nowhere else.
  };
  struct TokenWish {
    std::string tenant, name, created_by;
    Role role = Role::kUser;
    uint64_t lifetime_ns = 0;  // 0: the default.
  };
  // kResourceExhausted at the tenant's limit of tokens that are valid; those that are not make room.
  StatusOr<NewToken> CreateToken(const TokenWish& wish);
  // The newest first.
  std::vector<v1::Token> ListTokens(std::string_view tenant) const;
  Status RevokeToken(std::string_view id);

 private:
  struct Snapshot {
    std::map<std::string, TenantRecordRef, std::less<>> tenants;
    std::map<std::string, TokenRecordRef, std::less<>> tokens;  // By id.
    std::unordered_map<Sha256, TokenRecordRef> tokens_by_hash;
    std::unordered_map<uint32_t, std::string> uids;
    std::map<std::string, std::string, std::less<>> certificates;
  };
  using SnapshotRef = std::shared_ptr<const Snapshot>;

  explicit Directory(DirectoryOptions options) : options_(std::move(options)) {}
  SnapshotRef snapshot() const;
  void Publish(std::shared_ptr<Snapshot> next);
  static void Index(Snapshot& snapshot);
  Status CheckFree(const Snapshot& snapshot, const v1::Tenant& tenant) const;
  // With write_mutex_ held.
  Status Keep(v1::Tenant tenant);
  std::vector<std::string> TokensToForget(const Snapshot& snapshot, std::string_view tenant, size_t* valid) const;

  DirectoryOptions options_;
  std::mutex write_mutex_;    // One write at a time, with its sync.
  mutable std::mutex mutex_;  // Of the pointer only.
  SnapshotRef snapshot_ = std::make_shared<const Snapshot>();
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_DIRECTORY_H_
