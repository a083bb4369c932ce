// SPDX-License-Identifier: Apache-2.0
// IdentityDatabase stores tenants and tokens in one SQLite file, which is written seldom and read at start.
//
// Every write is on disk when it returns. After a write whose outcome is unknown (kDataLoss) every later write fails,
// until the file has been opened again.
#ifndef HPVMD_SERVER_IDENTITY_IDENTITY_DATABASE_H_
#define HPVMD_SERVER_IDENTITY_IDENTITY_DATABASE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "hpvm/v1/admin.pb.h"
#include "server/identity/identity_store.h"

namespace hpvm::server {

class SqliteConnection;

class IdentityDatabase final : public IdentityStore {
 public:
  // Opens the file, and creates it with mode 0600 when it is missing. Returns kFailedPrecondition for another
  // application's file, or a later release's. `vfs` is for tests; when empty, SQLite's default is used.
  static StatusOr<std::unique_ptr<IdentityDatabase>> Open(const std::string& path, Disk& disk = RealDisk(),
                                                          const std::string& vfs = "");
  ~IdentityDatabase() override;
  IdentityDatabase(const IdentityDatabase&) = delete;
  IdentityDatabase& operator=(const IdentityDatabase&) = delete;

  StatusOr<IdentityContents> Load() override;
  Status Put(const v1::Tenant& tenant, bool without_tokens = false) override;
  Status Forget(const std::string& tenant) override;
  // Renames the tenant, also in its tokens. Returns kNotFound or kAlreadyExists.
  Status Rename(const std::string& tenant, const std::string& name);
  Status Put(const StoredToken& token, const std::vector<std::string>& forget_ids = {}) override;

 private:
  // The caller runs both within Transact.
  Status PutRow(const v1::Tenant& tenant);
  Status PutRow(const StoredToken& token);
  explicit IdentityDatabase(std::unique_ptr<SqliteConnection> connection);
  Status Migrate();
  template <typename Change>
  Status Transact(Change change);

  std::unique_ptr<SqliteConnection> connection_;
  Status failure_;
};

// Copies a consistent state of FOLDER/identity.sqlite into the folder `to`, even while a daemon uses the file. Does
// nothing when there is no such file.
Status BackUpIdentity(const std::string& folder, const std::string& to);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_IDENTITY_DATABASE_H_
