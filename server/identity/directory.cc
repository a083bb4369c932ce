// SPDX-License-Identifier: Apache-2.0
#include "server/identity/directory.h"

#include <algorithm>
#include <utility>

#include "server/config/config.h"
#include "server/identity/tenant_rules.h"
#include "server/identity/token.h"
#include "server/process/log.h"
#include "server/process/object_id.h"

namespace hpvm::server {
namespace {

// Number of expired or revoked tokens that each tenant keeps, so that administrators can see what became of them.
constexpr size_t kInvalidTokensMax = 100;

// Number of times that a change is tried when other daemons change the store, too.
constexpr int kChangeTriesMax = 10;

const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const StatusOr<T>& result) {
  return result.status();
}

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
  std::lock_guard lock(directory->write_mutex_);
  HPVMD_RETURN_IF_ERROR(directory->LoadAll());
  return directory;
}

Status Directory::LoadAll() {
  const Time before = options_.clock->Now();
  HPVMD_ASSIGN_OR_RETURN(IdentityContents contents, options_.database->Load());
  auto snapshot = std::make_shared<Snapshot>();
  for (v1::Tenant& tenant : contents.tenants) {
    auto record = std::make_shared<const v1::Tenant>(std::move(tenant));
    snapshot->tenants.emplace(record->name(), record);
  }
  for (StoredToken& token : contents.tokens) {
    auto record = std::make_shared<const StoredToken>(std::move(token));
    snapshot->tokens.emplace(record->token.id(), record);
  }
  ApplyUnstoredRevocations(*snapshot);
  NoteGone(*snapshot);
  Publish(std::move(snapshot));
  confirmed_ = before;
  return absl::OkStatus();
}

void Directory::NoteGone(const Snapshot& next) {
  const SnapshotRef now = snapshot();
  for (const auto& [name, tenant] : now->tenants) {
    const auto found = next.tenants.find(name);
    const bool is_another =
        found == next.tenants.end() || found->second->created_unix_ns() != tenant->created_unix_ns();
    if (!tenant->deleting() && (is_another || found->second->deleting())) {
      gone_.push_back(name);
    }
  }
}

std::vector<std::string> Directory::TakeGone() {
  std::lock_guard lock(write_mutex_);
  return std::exchange(gone_, {});
}

// A token that this daemon refuses is not accepted again because the store does not know that it was revoked.
void Directory::ApplyUnstoredRevocations(Snapshot& snapshot) {
  std::erase_if(unstored_revocations_, [&](const auto& revocation) {
    const auto found = snapshot.tokens.find(revocation.first);
    if (found == snapshot.tokens.end() || found->second->token.revoked_unix_ns() != 0) {
      return true;
    }
    auto record = std::make_shared<StoredToken>(*found->second);
    record->token.set_revoked_unix_ns(revocation.second);
    found->second = std::move(record);
    return false;
  });
}

void Directory::StoreRevocations() {
  const SnapshotRef now = snapshot();
  while (!unstored_revocations_.empty()) {
    const auto first = unstored_revocations_.begin();
    const auto found = now->tokens.find(first->first);
    if (found != now->tokens.end() && !options_.database->Put(*found->second, {}).ok()) {
      return;  // The next refresh tries again.
    }
    unstored_revocations_.erase(first);
  }
}

StatusOr<bool> Directory::Refresh() {
  std::lock_guard lock(write_mutex_);
  if (options_.database == nullptr) {
    return false;
  }
  StatusOr<bool> changed = LoadChanges();
  NoteRefresh(changed.status());
  if (changed.ok()) {
    StoreRevocations();
  }
  return changed;
}

void Directory::NoteRefresh(const Status& refreshed) {
  if (refreshed.ok() == !refresh_fails_) {
    return;
  }
  refresh_fails_ = !refreshed.ok();
  if (refresh_fails_) {
    LogWarning("The cluster's tenants and tokens cannot be confirmed", {{"error", Message(refreshed)}});
  } else {
    LogInfo("The cluster's tenants and tokens are confirmed again");
  }
}

StatusOr<bool> Directory::LoadChanges() {
  const Time before = options_.clock->Now();
  HPVMD_ASSIGN_OR_RETURN(const bool is_current, options_.database->IsCurrent());
  if (is_current) {
    confirmed_ = before;
    return false;
  }
  HPVMD_RETURN_IF_ERROR(LoadAll());
  return true;
}

Status Directory::CheckFresh() const {
  const Duration age = options_.clock->Now() - confirmed_.load();
  if (options_.stale_after == Duration{0} || age <= options_.stale_after) {
    return absl::OkStatus();
  }
  return Unavailable("The cluster's database cannot be reached; identities were last confirmed " +
                     std::to_string(age / std::chrono::seconds(1)) + " s ago and are accepted for at most " +
                     std::to_string(options_.stale_after / std::chrono::seconds(1)) + " s.");
}

template <typename Change>
auto Directory::Changing(const Change& change) {
  std::lock_guard lock(write_mutex_);
  for (int tries = 1;; ++tries) {
    auto result = change();
    if (!absl::IsAborted(StatusOf(result)) || tries == kChangeTriesMax) {
      return result;
    }
    if (Status loaded = LoadAll(); !loaded.ok()) {
      return decltype(result)(std::move(loaded));
    }
  }
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
  snapshot.gids.clear();
  snapshot.certificates.clear();
  for (const auto& [id, record] : snapshot.tokens) {
    snapshot.tokens_by_hash.emplace(record->secret_hash, record);
  }
  for (const auto& [name, tenant] : snapshot.tenants) {
    for (const uint32_t uid : tenant->uids()) {
      snapshot.uids.emplace(uid, name);
    }
    for (const uint32_t gid : tenant->gids()) {
      snapshot.gids.emplace(gid, name);
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

std::optional<std::string> Directory::TenantOfGid(uint32_t gid) const {
  const SnapshotRef now = snapshot();
  const auto found = now->gids.find(gid);
  return found == now->gids.end() ? std::nullopt : std::optional(found->second);
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
      return InvalidArgument("User id " + std::to_string(uid) + " is the daemon's own, which is an administrator.");
    }
    if (const auto found = snapshot.uids.find(uid); found != snapshot.uids.end() && found->second != tenant.name()) {
      return AlreadyExists("User id " + std::to_string(uid) + " belongs to tenant \"" + found->second + "\" already.");
    }
  }
  for (const uint32_t gid : tenant.gids()) {
    if (const auto found = snapshot.gids.find(gid); found != snapshot.gids.end() && found->second != tenant.name()) {
      return AlreadyExists("Group id " + std::to_string(gid) + " belongs to tenant \"" + found->second + "\" already.");
    }
  }
  for (const std::string& name : tenant.certificate_names()) {
    const auto found = snapshot.certificates.find(name);
    if (found != snapshot.certificates.end() && found->second != tenant.name()) {
      return AlreadyExists("The certificate name \"" + name + "\" belongs to tenant \"" + found->second +
                           "\" already.");
    }
  }
  return absl::OkStatus();
}

Status Directory::Keep(v1::Tenant tenant) {
  if (options_.database != nullptr) {
    HPVMD_RETURN_IF_ERROR(options_.database->Put(tenant, /*without_tokens=*/false));
  }
  auto next = std::make_shared<Snapshot>(*snapshot());
  const std::string name = tenant.name();
  next->tenants[name] = std::make_shared<const v1::Tenant>(std::move(tenant));
  Publish(std::move(next));
  return absl::OkStatus();
}

Status Directory::EnsureTenant(const std::string& name) {
  return Changing([&]() -> Status {
    if (FindTenant(name) != nullptr) {
      return absl::OkStatus();
    }
    v1::Tenant tenant;
    tenant.set_name(name);
    tenant.set_weight(kWeightDefault);
    tenant.set_created_unix_ns(options_.clock->WallNs());
    return Keep(std::move(tenant));
  });
}

StatusOr<v1::Tenant> Directory::CreateTenant(v1::Tenant tenant, uint64_t tenants_max) {
  tenant.set_weight(tenant.weight() == 0 ? kWeightDefault : tenant.weight());
  tenant.set_created_unix_ns(options_.clock->WallNs());
  tenant.clear_deleting();
  HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
  return Changing([&]() -> StatusOr<v1::Tenant> {
    const SnapshotRef now = snapshot();
    if (const auto found = now->tenants.find(tenant.name()); found != now->tenants.end()) {
      return AlreadyExists(
          "There is a tenant \"" + tenant.name() + "\" already" +
          (found->second->deleting() ? "; it is being deleted, and its name is free once it is gone." : "."));
    }
    if (now->tenants.size() >= tenants_max) {
      return ResourceExhausted("There are " + std::to_string(now->tenants.size()) +
                               " tenants, which is the limit (tenants.max).");
    }
    HPVMD_RETURN_IF_ERROR(CheckFree(*now, tenant));
    HPVMD_RETURN_IF_ERROR(Keep(tenant));
    return tenant;
  });
}

StatusOr<v1::Tenant> Directory::UpdateTenant(const v1::UpdateTenantRequest& update) {
  HPVMD_RETURN_IF_ERROR(CheckUpdate(update));
  return Changing([&]() -> StatusOr<v1::Tenant> {
    const SnapshotRef now = snapshot();
    HPVMD_ASSIGN_OR_RETURN(const TenantRecordRef record, FindChangeable(*now, update.name()));
    v1::Tenant tenant = *record;
    ApplyUpdate(update, &tenant);
    HPVMD_RETURN_IF_ERROR(CheckTenant(tenant));
    HPVMD_RETURN_IF_ERROR(CheckFree(*now, tenant));
    HPVMD_RETURN_IF_ERROR(Keep(tenant));
    return tenant;
  });
}

StatusOr<TenantRecordRef> Directory::FindChangeable(const Snapshot& snapshot, const std::string& name) {
  const auto found = snapshot.tenants.find(name);
  if (found == snapshot.tenants.end()) {
    return NoTenant(name);
  }
  if (found->second->deleting()) {
    return FailedPrecondition("The tenant \"" + name + "\" is being deleted.");
  }
  return found->second;
}

StatusOr<v1::Tenant> Directory::BeginDelete(const std::string& name, std::string_view tenants_default) {
  return Changing([&]() -> StatusOr<v1::Tenant> {
    const SnapshotRef now = snapshot();
    const auto found = now->tenants.find(name);
    if (found == now->tenants.end()) {
      return NoTenant(name);
    }
    v1::Tenant tenant = *found->second;
    if (tenant.deleting()) {
      return tenant;
    }
    if (name == tenants_default) {
      return FailedPrecondition("The tenant \"" + name +
                                "\" is the default one (tenants.default), which always exists.");
    }
    if (!tenant.disabled()) {
      return FailedPrecondition("The tenant \"" + name +
                                "\" is not disabled; disable it first, so that nothing of it runs.");
    }
    tenant.set_deleting(true);
    tenant.set_disabled_reason("It is being deleted.");
    tenant.clear_uids();
    tenant.clear_gids();
    tenant.clear_certificate_names();
    auto next = std::make_shared<Snapshot>(*now);
    std::erase_if(next->tokens, [&](const auto& token) { return token.second->token.tenant() == name; });
    if (options_.database != nullptr) {
      HPVMD_RETURN_IF_ERROR(options_.database->Put(tenant, /*without_tokens=*/true));
    }
    next->tenants[name] = std::make_shared<const v1::Tenant>(tenant);
    Publish(std::move(next));
    return tenant;
  });
}

Status Directory::ForgetTenant(const std::string& name) {
  return Changing([&]() -> Status {
    const SnapshotRef now = snapshot();
    const auto found = now->tenants.find(name);
    if (found == now->tenants.end() || !found->second->deleting()) {
      return absl::OkStatus();
    }
    if (options_.database != nullptr) {
      HPVMD_RETURN_IF_ERROR(options_.database->Forget(name));
    }
    auto next = std::make_shared<Snapshot>(*now);
    next->tenants.erase(name);
    Publish(std::move(next));
    return absl::OkStatus();
  });
}

std::vector<std::string> Directory::Deleting() const {
  std::vector<std::string> names;
  for (const auto& [name, tenant] : snapshot()->tenants) {
    if (tenant->deleting()) {
      names.push_back(name);
    }
  }
  return names;
}

std::vector<TenantRecordRef> Directory::ListTenants(std::string_view after, size_t count_max) const {
  const SnapshotRef now = snapshot();
  std::vector<TenantRecordRef> listed;
  for (auto at = now->tenants.upper_bound(after); at != now->tenants.end() && listed.size() < count_max; ++at) {
    listed.push_back(at->second);
  }
  return listed;
}

// Returns the ids of the tenant's tokens that are no longer valid, except the newest kInvalidTokensMax; counts the
// valid tokens in `valid`.
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

StatusOr<Directory::NewToken> Directory::CreateToken(const TokenSpec& spec) {
  HPVMD_RETURN_IF_ERROR(CheckNote("token's name", spec.name));
  if (spec.lifetime_ns > kTokenLifetimeMaxNs) {
    return InvalidArgument("The token's lifetime (" + std::to_string(spec.lifetime_ns) +
                           " ns) is larger than the limit (10 years).");
  }
  return Changing([&]() -> StatusOr<NewToken> {
    const SnapshotRef now = snapshot();
    HPVMD_RETURN_IF_ERROR(FindChangeable(*now, spec.tenant).status());
    size_t valid = 0;
    const std::vector<std::string> forget = TokensToForget(*now, spec.tenant, &valid);
    if (valid >= kTokensPerTenantMax) {
      return ResourceExhausted("The tenant has " + std::to_string(valid) +
                               " valid tokens, which is the limit; revoke some first.");
    }
    NewToken made;
    made.secret = NewTokenSecret(*options_.rng);
    const int64_t now_ns = options_.clock->WallNs();
    made.token.set_id(NewObjectId("tok", *options_.rng));
    made.token.set_tenant(spec.tenant);
    made.token.set_role(ToMessage(spec.role));
    made.token.set_name(spec.name);
    made.token.set_created_by(spec.created_by);
    made.token.set_created_unix_ns(now_ns);
    made.token.set_expires_unix_ns(
        now_ns + static_cast<int64_t>(spec.lifetime_ns == 0 ? kTokenLifetimeDefaultNs : spec.lifetime_ns));
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
  });
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
  return Changing([&]() -> Status {
    const SnapshotRef now = snapshot();
    const auto found = now->tokens.find(id);
    if (found == now->tokens.end()) {
      return NotFound("There is no such token.");
    }
    const std::string name(id);
    const bool was_revoked = found->second->token.revoked_unix_ns() != 0;
    if (was_revoked && !unstored_revocations_.contains(name)) {
      return absl::OkStatus();
    }
    auto record = std::make_shared<StoredToken>(*found->second);
    if (!was_revoked) {
      record->token.set_revoked_unix_ns(std::max<int64_t>(1, options_.clock->WallNs()));
    }
    const Status kept = options_.database != nullptr ? options_.database->Put(*record, {}) : absl::OkStatus();
    if (kept.ok()) {
      unstored_revocations_.erase(name);
    } else {
      unstored_revocations_[name] = record->token.revoked_unix_ns();
    }
    // The token is refused from now on even if the write failed; the store only decides whether that outlives the
    // daemon, and whether other hosts know it.
    auto next = std::make_shared<Snapshot>(*now);
    next->tokens[name] = std::move(record);
    Publish(std::move(next));
    return kept.ok() ? kept
                     : While(kept,
                             "revoking a token, which this daemon refuses until it ends, but which is perhaps accepted "
                             "after that, and by other hosts of a cluster");
  });
}

}  // namespace hpvm::server
