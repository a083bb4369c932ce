// SPDX-License-Identifier: Apache-2.0
// Directory keeps the tenants and their tokens: in memory for calls, and in a database that is read at start.
//
// Thread-safe. Readers use an immutable snapshot. A write is checked, stored on disk and then published to all later
// reads, so a revoked token is refused from the moment that the call which revoked it returns.
#ifndef HPVMD_SERVER_IDENTITY_DIRECTORY_H_
#define HPVMD_SERVER_IDENTITY_DIRECTORY_H_

#include <atomic>
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
#include "server/identity/identity_store.h"
#include "server/identity/principal.h"

namespace hpvm::server {

using TenantRecordRef = std::shared_ptr<const v1::Tenant>;
using TokenRecordRef = std::shared_ptr<const StoredToken>;

struct DirectoryOptions {
  std::unique_ptr<IdentityStore> database;  // When null, nothing is stored on disk.
  const Clock* clock = nullptr;             // Borrowed; outlives the directory.
  Rng* rng = nullptr;                       // Borrowed; outlives the directory. Used with write_mutex_ held.
  // True when the daemon asks for no credentials: tenants may then exist without having been created.
  bool is_open = true;
  // Time for which the contents count after they were last known to be those of the store. 0: always, as no other
  // daemon changes them.
  Duration stale_after{0};
  // User ids of administrators: root's and the daemon's. No tenant may have them.
  std::vector<uint32_t> administrators = {0};
};

class Directory final : public TenantPolicies {
 public:
  // Reads the database.
  static StatusOr<std::unique_ptr<Directory>> Open(DirectoryOptions options);

  // Creates the tenant, which is the default one, unless it exists.
  Status EnsureTenant(const std::string& name);
  // Reads the store again if another daemon has changed it; returns true when it has. Also stores revocations that
  // could not be stored before. Logs when it begins to fail, and when it no longer does.
  StatusOr<bool> Refresh();
  // kUnavailable when the contents are older than DirectoryOptions::stale_after.
  Status CheckFresh() const;

  // --- Lookups for each call, in memory ---
  TenantPolicyRef Find(std::string_view name, const Config& config) const override;
  // Returns null when there is none.
  TenantRecordRef FindTenant(std::string_view name) const;
  // Returns the token, even one that has expired or was revoked; null when there is none. The comparison of hashes
  // takes constant time.
  TokenRecordRef FindToken(const Sha256& secret_hash) const;
  TokenRecordRef FindTokenById(std::string_view id) const;
  std::optional<std::string> TenantOfUid(uint32_t uid) const;
  std::optional<std::string> TenantOfGid(uint32_t gid) const;
  std::optional<std::string> TenantOfCertificate(std::string_view name) const;
  bool is_open() const { return options_.is_open; }
  bool IsAdministrator(uint32_t uid) const;

  // --- Administration; changes are on disk when these return ---
  // Returns kAlreadyExists when the name is taken, or when a user id, group id or certificate name is another tenant's.
  StatusOr<v1::Tenant> CreateTenant(v1::Tenant tenant, uint64_t tenants_max);
  StatusOr<v1::Tenant> UpdateTenant(const v1::UpdateTenantRequest& update);
  // Removes the tenant's tokens, user ids, group ids and certificate names, and marks its record `deleting` until
  // ForgetTenant. A repeated call returns the same answer. Returns kFailedPrecondition when the tenant is not disabled,
  // or is the default one.
  StatusOr<v1::Tenant> BeginDelete(const std::string& name, std::string_view tenants_default);
  // Removes the record. OK without an effect when the tenant is not being deleted: another host has forgotten it.
  Status ForgetTenant(const std::string& name);
  // Returns the tenants that other hosts began to delete, or deleted, since the last call.
  std::vector<std::string> TakeGone();
  // Returns the names of the tenants that are being deleted.
  std::vector<std::string> Deleting() const;
  // Returns at most `count_max` tenants in order of their names, from the first one after `after`.
  std::vector<TenantRecordRef> ListTenants(std::string_view after, size_t count_max) const;

  struct NewToken {
    v1::Token token;
    std::string secret;  // The only copy; the directory stores its hash.
  };
  struct TokenSpec {
    std::string tenant, name, created_by;
    Role role = Role::kUser;
    uint64_t lifetime_ns = 0;  // 0 for the default, kTokenLifetimeDefaultNs.
  };
  // Returns kResourceExhausted at the limit on the tenant's valid tokens. Removes old tokens that are no longer valid.
  StatusOr<NewToken> CreateToken(const TokenSpec& spec);
  // Returns the tenant's tokens, the newest first.
  std::vector<v1::Token> ListTokens(std::string_view tenant) const;
  // After an error this daemon refuses the token all the same, and a repeated call tries to store that again.
  Status RevokeToken(std::string_view id);

 private:
  struct Snapshot {
    std::map<std::string, TenantRecordRef, std::less<>> tenants;
    std::map<std::string, TokenRecordRef, std::less<>> tokens;  // Keyed by id.
    std::unordered_map<Sha256, TokenRecordRef> tokens_by_hash;
    std::unordered_map<uint32_t, std::string> uids, gids;
    std::map<std::string, std::string, std::less<>> certificates;
  };
  using SnapshotRef = std::shared_ptr<const Snapshot>;

  explicit Directory(DirectoryOptions options) : options_(std::move(options)) {}
  // Makes a change, with write_mutex_ held; again, after the store was read again, when another daemon was faster.
  template <typename Change>
  auto Changing(const Change& change);
  // The caller of these holds write_mutex_.
  Status LoadAll();
  StatusOr<bool> LoadChanges();
  void ApplyUnstoredRevocations(Snapshot& snapshot);
  void NoteGone(const Snapshot& next);
  void StoreRevocations();
  void NoteRefresh(const Status& refreshed);
  SnapshotRef snapshot() const;
  void Publish(std::shared_ptr<Snapshot> next);
  static void Index(Snapshot& snapshot);
  Status CheckFree(const Snapshot& snapshot, const v1::Tenant& tenant) const;
  // Stores the tenant and publishes it. The caller holds write_mutex_.
  Status Keep(v1::Tenant tenant);
  static StatusOr<TenantRecordRef> FindChangeable(const Snapshot& snapshot, const std::string& name);
  std::vector<std::string> TokensToForget(const Snapshot& snapshot, std::string_view tenant, size_t* valid) const;

  DirectoryOptions options_;
  std::mutex write_mutex_;    // Held for each write and its sync to disk.
  mutable std::mutex mutex_;  // Guards the pointer snapshot_ only.
  SnapshotRef snapshot_ = std::make_shared<const Snapshot>();
  // Times of revocations that could not be stored, by token. Guarded by write_mutex_, as the next two.
  std::map<std::string, int64_t, std::less<>> unstored_revocations_;
  std::vector<std::string> gone_;  // For TakeGone.
  bool refresh_fails_ = false;
  std::atomic<Time> confirmed_{Time(0)};  // When the contents were last known to be the store's.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_DIRECTORY_H_
