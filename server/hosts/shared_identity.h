// SPDX-License-Identifier: Apache-2.0
// SharedIdentity keeps the tenants and tokens of a cluster in its database.
//
// The contents have a version, which each change increments under a lock on its row. A change that was decided on
// another version than the present one is refused (kAborted), so that two hosts never give one user id, or one name, to
// two tenants. A database that fails over may lose the latest changes and give their numbers to others, so a version
// also has a random tag: a host never takes the contents that were lost for the present ones.
#ifndef HPVMD_SERVER_HOSTS_SHARED_IDENTITY_H_
#define HPVMD_SERVER_HOSTS_SHARED_IDENTITY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/cluster/sql/sql_session.h"
#include "server/config/config.h"
#include "server/identity/identity_store.h"

namespace hpvm::server {

// Channel of SqlSession::Notify that is told of each change.
inline constexpr char kIdentityChannel[] = "hpvmd_identity";

// A version of the contents.
struct IdentityVersion {
  int64_t number = -1;  // -1: none.
  int64_t tag = 0;
  bool operator==(const IdentityVersion&) const = default;
};

class SharedIdentity final : public IdentityStore {
 public:
  using Connect = std::function<StatusOr<std::unique_ptr<cluster::SqlSession>>()>;
  // Connects, and makes the tables when they are missing. Borrows `rng`. Errors: those of `connect`;
  // kFailedPrecondition for tables of a later release. When the connection is lost later, calls open it anew, or return
  // kUnavailable.
  static StatusOr<std::unique_ptr<SharedIdentity>> Open(Connect connect, Rng& rng = SystemRng());

  StatusOr<IdentityContents> Load() override;
  StatusOr<bool> IsCurrent() override;
  Status Put(const v1::Tenant& tenant, bool without_tokens) override;
  Status Forget(const std::string& tenant) override;
  Status Put(const StoredToken& token, const std::vector<std::string>& forget_ids) override;

 private:
  using Step = std::function<Status(cluster::SqlSession&)>;
  SharedIdentity(Connect connect, Rng& rng) : connect_(std::move(connect)), rng_(rng) {}
  // Begins a transaction, on a connection that is opened anew when it was lost.
  Status Begin();
  Status Transact(const Step& step);
  // Does the same for a change of version_.
  Status Change(const Step& step);
  Status Migrate();

  const Connect connect_;
  Rng& rng_;
  std::unique_ptr<cluster::SqlSession> session_;
  IdentityVersion version_;  // The version that the caller has loaded.
};

// Returns null for a configuration without a cluster. Opens a connection of its own.
OpenIdentityStore SharedIdentityOf(const Config& config);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_SHARED_IDENTITY_H_
