// SPDX-License-Identifier: Apache-2.0
// IdentityStore keeps tenants and tokens: in a file of one daemon (identity_database.h), or in the database of a
// cluster (server/hosts/shared_identity.h).
#ifndef HPVMD_SERVER_IDENTITY_IDENTITY_STORE_H_
#define HPVMD_SERVER_IDENTITY_IDENTITY_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "hpvm/v1/admin.pb.h"

namespace hpvm::server {

struct StoredToken {
  v1::Token token;
  Sha256 secret_hash;  // The secret itself is not stored.
};

struct IdentityContents {
  std::vector<v1::Tenant> tenants;
  std::vector<StoredToken> tokens;
};

// Returns a checksum over a row's contents and its key, which detects bytes that were changed or moved to another row.
// `secret_hash` is empty for a tenant.
int64_t SumOfIdentityRow(std::string_view key, std::string_view secret_hash, std::string_view record);

// May be used by one thread at a time. Every write is durable when it returns. kAborted: another daemon has changed the
// contents since the last Load, so the caller has to load and check again. kUnavailable: the store does not answer.
class IdentityStore {
 public:
  virtual ~IdentityStore() = default;
  // Returns kDataLoss with the row's name when a row is damaged, because permissions must not be guessed.
  virtual StatusOr<IdentityContents> Load() = 0;
  // Returns true when the contents are those of the last Load and of this store's own writes since.
  virtual StatusOr<bool> IsCurrent() { return true; }
  // Inserts or replaces the tenant; deletes its tokens when `without_tokens`.
  virtual Status Put(const v1::Tenant& tenant, bool without_tokens) = 0;
  virtual Status Forget(const std::string& tenant) = 0;
  // Inserts or replaces the token, and deletes the tokens `forget_ids`.
  virtual Status Put(const StoredToken& token, const std::vector<std::string>& forget_ids) = 0;
};

// Opens the shared store of a cluster; null where there is no cluster.
using OpenIdentityStore = std::function<StatusOr<std::unique_ptr<IdentityStore>>()>;

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_IDENTITY_STORE_H_
