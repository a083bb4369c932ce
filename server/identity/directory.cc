// SPDX-License-Identifier: Apache-2.0
#include "server/identity/directory.h"

#include <algorithm>
#include <utility>

#include "server/config/config.h"
#include "server/identity/tenant_rules.h"
#include "server/identity/token.h"
#include "server/process/object_id.h"

namespace hpvm::server {
namespace {

// What others keep of tokens that are no longer valid, for whoever asks what became of them.
constexpr size_t kInvalidTokensMax = 100;

Status NoTenant(std::string_view name) {
  return NotFound("There is no tenant \"" + std::string(name.substr(0, 63)) + "\".");
}

bool IsValid(const v1::Token& token, int64_t now_ns) {
  return token.revoked_unix_ns() == 0 && now_ns < token.expires_unix_ns();
}

}  // namespace

StatusOr<std::unique_ptr<Directory>> Directory::Open(DirectoryOptions options) {
  std::unique_ptr<Directory> directory(new Directory(std::move(options)));
  if (directory->options_.database == nullptr) {
    return directory;
  }
  HPVMD_ASSIGN_OR_RETURN(IdentityContents contents, directory->options_.database->Load());
  auto snapshot = std::make_shared<Snapshot>();
  for (v1::Tenant& tenant : contents.tenants) {
    auto record = std::make_shared<const v1::Tenant>(std::move(tenant));
    snapshot->tenants.emplace(record->name(), record);
  }
  for (StoredToken& token : contents.tokens) {
    auto record = std::make_shared<const StoredToken>(std::move(token));
    snapshot->tokens.emplace(record->token.id(), record);
  }
  directory->Publish(std::move(snapshot));
  return directory;
}

Directory::SnapshotRef Directory::snapshot() const {
  std::lock_guard lock(mutex_);
  return snapshot_;
}

void Directory::Publish(std::shared_ptr<Snapshot> next) {
  Index(*next);
  std::lock_guard lock(mutex_);
  snapshot_ = std::move(next);
}

void Directory::Index(Snapshot& snapshot) {
  snapshot.tokens_by_hash.clear();
  snapshot.uids.clear();
  snapshot.certificates.clear();
  for (const auto& [id, record] : snapshot.tokens) {
    snapshot.tokens_by_hash.emplace(record->secret_hash, record);
  }
  for (const auto& [name, tenant] : snapshot.tenants) {
    for (const uint32_t uid : tenant->uids()) {
      snapshot.uids.emplace(uid, name);
    }
    for (const std::string& certificate : tenant->certificate_names()) {
      snapshot.certificates.emplace(certificate, name);
    }
  }
}

TenantPolicyRef Directory::Find(std::string_view name, const Config& config) const {
  if (const TenantRecordRef record = FindTenant(name)) {
    return std::make_shared<const TenantPolicy>(PolicyOf(*record, config));
  }
  const bool exists = name == config.tenants_default || (options_.is_open && config.tenants_from_metadata);
  return exists ? DefaultPolicy(name, config) : nullptr;
}

TenantRecordRef Directory::FindTenant(std::string_view name) const {
  const SnapshotRef now = snapshot();
  const auto found = now->tenants.find(name);
  return found == now->tenants.end() ? nullptr : found->second;
}

TokenRecordRef Directory::FindToken(const Sha256& secret_hash) const {
  const SnapshotRef now = snapshot();
  const auto found = now->tokens_by_hash.find(secret_hash);
  const bool is_same = found != now->tokens_by_hash.end() && ConstantTimeEqual(found->second->secret_hash, secret_hash);
  return is_same ? found->second : nullptr;
}

TokenRecordRef Directory::FindTokenById(std::string_view id) const {
  const SnapshotRef now = snapshot();
  const auto found = now->tokens.find(id);
  return found == now->tokens.end() ? nullptr : found->second;
}

std::optional<std::string> Directory::TenantOfUid(uint32_t uid) const {
  const SnapshotRef now = snapshot();
  const auto found = now->uids.find(uid);
  return found == now->uids.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Directory::TenantOfCertificate(std::string_view name) const {
  const SnapshotRef now = snapshot();
  const auto found = now->certificates.find(name);
  return found == now->certificates.end() ? std::nullopt : std::optional(found->second);
}

bool Directory::IsAdministrator(uint32_t uid) const {
  const auto& administrators = options_.administrators;
  return std::find(administrators.begin(), administrators.end(), uid) != administrators.end();
}

Status Directory::CheckFree(const Snapshot& snapshot, const v1::Tenant& tenant) const {
  for (const uint32_t uid : tenant.uids()) {
    if (IsAdministrator(uid)) {
      return InvalidArgument("User id " + std::to_string(uid) + " is the daemon's, which administers.");
    }
    if (const auto found = snapshot.uids.find(uid); found != snapshot.uids.end() && found->second != tenant.name()) {
      return AlreadyExists("User id " + std::to_string(uid) + " is tenant \"" + found->second + "\" already.");
    }
  }
  for (const std::string& name : tenant.certificate_names()) {
    const auto found = snapshot.certificates.find(name);
    if (found != snapshot.certificates.end() && found->second != tenant.name()) {
      return AlreadyExists("The certificate name \"" + name + "\" is tenant \"" + found->second + "\" already.");
    }
  }
  return absl::OkStatus();
}

Status Directory::Keep(v1::Tenant tenant) {
  if (options_.database != nullptr) {
    HPVMD_RETURN_IF_ERROR(options_.database->Put(tenant));
  }
  auto next = std::make_shared<Snapshot>(*snapshot());
  const std::string name = tenant.name();
  next->tenants[name] = std::make_shared<const v1::Tenant>(std::move(tenant));
  Publish(std::move(next));
  return absl::OkStatus();
}

Status Directory::EnsureTenant(const std::string& name) {
  std::lock_guard lock(write_mutex_);
  if (FindTenant(name) != nullptr) {
    return absl::OkStatus();
  }
  v1::Tenant tenant;
  tenant.set_name(name);
  tenant.set_weight(kWeightDefault);
  tenant.set_created_unix_ns(options_.clock->WallNs());
  return Keep(std::move(tenant));
}

StatusOr<v1::Tenant> Directory::CreateTenant(v1::Tenant tenant, uint64_t tenants_max) {
  tenant.set_weight(tenant.weight() == 0 ? kWeightDefault : tenant.weight());
  tenant.set_created_unix_ns(options_.clock->WallNs());
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  std::lock_guard lock(write_mutex_);
  const SnapshotRef now = snapshot();
  if (now->tenants.count(tenant.name()) != 0) {
    return AlreadyExists("There is a tenant \"" + tenant.name() + "\" already.");
  }
  if (now->tenants.size() >= tenants_max) {
    return ResourceExhausted("There are " + std::to_string(now->tenants.size()) +
                             " tenants, which is the limit (tenants.max).");
  }
  HPVMD_RETURN_IF_ERROR(CheckFree(*now, tenant));
  HPVMD_RETURN_IF_ERROR(Keep(tenant));
  return tenant;
}

StatusOr<v1::Tenant> Directory::UpdateTenant(const v1::UpdateTenantRequest& update) {
  HPVMD_RETURN_IF_ERROR(CheckUpdate(update));
  std::lock_guard lock(write_mutex_);
  const SnapshotRef now = snapshot();
  const auto found = now->tenants.find(update.name());
  if (found == now->tenants.end()) {
    return NoTenant(update.name());
  }
  v1::Tenant tenant = *found->second;
  ApplyUpdate(update, &tenant);
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  HPVMD_RETURN_IF_ERROR(CheckFree(*now, tenant));
  HPVMD_RETURN_IF_ERROR(Keep(tenant));
  return tenant;
}

std::vector<TenantRecordRef> Directory::ListTenants(std::string_view after, size_t count_max) const {
  const SnapshotRef now = snapshot();
  std::vector<TenantRecordRef> listed;
  for (auto at = now->tenants.upper_bound(after); at != now->tenants.end() && listed.size() < count_max; ++at) {
    listed.push_back(at->second);
  }
  return listed;
}

// Of those that are no longer valid, all but the youngest.
std::vector<std::string> Directory::TokensToForget(const Snapshot& snapshot, std::string_view tenant,
                                                   size_t* valid) const {
  const int64_t now_ns = options_.clock->WallNs();
  std::vector<std::pair<int64_t, std::string>> invalid;
  *valid = 0;
  for (const auto& [id, record] : snapshot.tokens) {
    if (record->token.tenant() != tenant) {
      continue;
    }
    if (IsValid(record->token, now_ns)) {
      ++*valid;
    } else {
      invalid.emplace_back(record->token.created_unix_ns(), id);
    }
  }
  std::sort(invalid.begin(), invalid.end());
  std::vector<std::string> forget;
  for (size_t i = 0; i + kInvalidTokensMax < invalid.size(); ++i) {
    forget.push_back(invalid[i].second);
  }
  return forget;
}

StatusOr<Directory::NewToken> Directory::CreateToken(const TokenWish& wish) {
  HPVMD_RETURN_IF_ERROR(CheckNote("token's name", wish.name));
  if (wish.lifetime_ns > kTokenLifetimeMaxNs) {
    return InvalidArgument("The token's lifetime (" + std::to_string(wish.lifetime_ns) +
                           " ns) is larger than the limit (10 years).");
  }
  std::lock_guard lock(write_mutex_);
  const SnapshotRef now = snapshot();
  if (now->tenants.count(wish.tenant) == 0) {
    return NoTenant(wish.tenant);
  }
  size_t valid = 0;
  const std::vector<std::string> forget = TokensToForget(*now, wish.tenant, &valid);
  if (valid >= kTokensPerTenantMax) {
    return ResourceExhausted("The tenant has " + std::to_string(valid) +
                             " valid tokens, which is the limit; revoke some first.");
  }
  NewToken made;
  made.secret = NewTokenSecret(*options_.rng);
  const int64_t now_ns = options_.clock->WallNs();
  made.token.set_id(NewObjectId("tok", *options_.rng));
  made.token.set_tenant(wish.tenant);
  made.token.set_role(ToMessage(wish.role));
  made.token.set_name(wish.name);
  made.token.set_created_by(wish.created_by);
  made.token.set_created_unix_ns(now_ns);
  made.token.set_expires_unix_ns(
      now_ns + static_cast<int64_t>(wish.lifetime_ns == 0 ? kTokenLifetimeDefaultNs : wish.lifetime_ns));
  auto record = std::make_shared<StoredToken>();
  record->token = made.token;
  record->secret_hash = *HashOfTokenSecret(made.secret);
  if (options_.database != nullptr) {
    HPVMD_RETURN_IF_ERROR(options_.database->Put(*record, forget));
  }
  auto next = std::make_shared<Snapshot>(*now);
  for (const std::string& id : forget) {
    next->tokens.erase(id);
  }
  next->tokens[made.token.id()] = std::move(record);
  Publish(std::move(next));
  return made;
}

std::vector<v1::Token> Directory::ListTokens(std::string_view tenant) const {
  const SnapshotRef now = snapshot();
  std::vector<v1::Token> listed;
  for (const auto& [id, record] : now->tokens) {
    if (record->token.tenant() == tenant) {
      listed.push_back(record->token);
    }
  }
  std::sort(listed.begin(), listed.end(), [](const v1::Token& a, const v1::Token& b) {
    return std::pair(b.created_unix_ns(), a.id()) < std::pair(a.created_unix_ns(), b.id());
  });
  return listed;
}

Status Directory::RevokeToken(std::string_view id) {
  std::lock_guard lock(write_mutex_);
  const SnapshotRef now = snapshot();
  const auto found = now->tokens.find(id);
  if (found == now->tokens.end()) {
    return NotFound("There is no such token.");
  }
  if (found->second->token.revoked_unix_ns() != 0) {
    return absl::OkStatus();
  }
  auto record = std::make_shared<StoredToken>(*found->second);
  record->token.set_revoked_unix_ns(std::max<int64_t>(1, options_.clock->WallNs()));
  const Status kept = options_.database != nullptr ? options_.database->Put(*record) : absl::OkStatus();
  // Refused from now on in any case; only whether that outlives the daemon hangs on the disk.
  auto next = std::make_shared<Snapshot>(*now);
  next->tokens[record->token.id()] = std::move(record);
  Publish(std::move(next));
  return kept.ok()
             ? kept
             : While(kept, "revoking a token, which is refused until the daemon ends, and after that perhaps not");
}

}  // namespace hpvm::server
