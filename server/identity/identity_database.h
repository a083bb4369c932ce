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

namespace hpvm::server {

class SqliteConnection;

struct StoredToken {
  v1::Token token;
  Sha256 secret_hash;  // The secret itself is not stored.
};

struct IdentityContents {
  std::vector<v1::Tenant> tenants;
  std::vector<StoredToken> tokens;
};

// IdentityDatabase may be used by one thread at a time.
class IdentityDatabase {
 public:
  // Opens the file, and creates it with mode 0600 when it is missing. Returns kFailedPrecondition for another
  // application's file, or a later release's. `vfs` is for tests; when empty, SQLite's default is used.
  static StatusOr<std::unique_ptr<IdentityDatabase>> Open(const std::string& path, Disk& disk = RealDisk(),
                                                          const std::string& vfs = "");
  ~IdentityDatabase();
  IdentityDatabase(const IdentityDatabase&) = delete;
  IdentityDatabase& operator=(const IdentityDatabase&) = delete;

  // Returns kDataLoss with the row's name when a row is damaged, because permissions must not be guessed.
  StatusOr<IdentityContents> Load();
  // Inserts or replaces the tenant; deletes its tokens when `without_tokens`.
  Status Put(const v1::Tenant& tenant, bool without_tokens = false);
  Status Forget(const std::string& tenant);
  // Renames the tenant, also in its tokens. Returns kNotFound or kAlreadyExists.
  Status Rename(const std::string& tenant, const std::string& name);
  // Inserts or replaces the token, and deletes the tokens `forget_ids`.
  Status Put(const StoredToken& token, const std::vector<std::string>& forget_ids = {});

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
