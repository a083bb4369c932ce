// SPDX-License-Identifier: Apache-2.0
// PageTokens makes and checks tokens, which tell clients where the next page of a list begins. A token holds the
// sequence number of a row, which all tenants share, so it is sealed: a tenant learns nothing from it, and a forged
// token or another tenant's token is rejected.
#ifndef HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_
#define HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace hpvm::server {

// Thread-safe.
class PageTokens {
 public:
  // Tokens are valid for as long as the key stays the same.
  explicit PageTokens(const Sha256& key);

  std::string Seal(std::string_view tenant, uint64_t sequence) const;
  // Returns kInvalidArgument for a token that Seal did not make for that tenant.
  StatusOr<uint64_t> Open(std::string_view tenant, std::string_view token) const;

 private:
  Sha256 TagOf(std::string_view tenant, uint64_t sequence) const;
  uint64_t MaskOf(std::string_view tag) const;

  Sha256 tag_key_, mask_key_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_
