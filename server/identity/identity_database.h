// SPDX-License-Identifier: Apache-2.0
// Tenants and tokens on disk: one SQLite file, written seldom and read at start.
//
// Every write is on disk when it returns. After one whose outcome nobody knows every later one fails alike, until the
// file has been opened again.
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
  Sha256 secret_hash;  // The secret itself is nowhere.
};

struct IdentityContents {
  std::vector<v1::Tenant> tenants;
  std::vector<StoredToken> tokens;
};

// One thread at a time.
class IdentityDatabase {
 public:
  // Made with mode 0600 when it is missing. kFailedPrecondition for another application's file, or a later release's.
  // `vfs` empty: SQLite's default; for tests.
  static StatusOr<std::unique_ptr<IdentityDatabase>> Open(const std::string& path, Disk& disk = RealDisk(),
                                                          const std::string& vfs = "");
  ~IdentityDatabase();
  IdentityDatabase(const IdentityDatabase&) = delete;
  IdentityDatabase& operator=(const IdentityDatabase&) = delete;

  // kDataLoss naming the row for anything damaged: who may do what is not guessed.
  StatusOr<IdentityContents> Load();
  // Insert or replace.
  Status Put(const v1::Tenant& tenant);
  Status Put(const StoredToken& token, const std::vector<std::string>& forget_ids = {});

 private:
  explicit IdentityDatabase(std::unique_ptr<SqliteConnection> connection);
  Status Migrate();
  template <typename Change>
  Status Transact(Change change);

  std::unique_ptr<SqliteConnection> connection_;
  Status failure_;
};

// Copies FOLDER/identity.sqlite, as it is at one moment, into the folder `to`; a daemon may be running on it. Nothing
// to do when there is none.
Status BackUpIdentity(const std::string& folder, const std::string& to);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_IDENTITY_DATABASE_H_
