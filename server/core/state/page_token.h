// SPDX-License-Identifier: Apache-2.0
// Where the next page of a list begins, as clients carry it. What it holds is a number of a row, which all tenants
// share, so it is sealed: a tenant learns nothing from it, and neither another tenant's nor a made-up one is taken.
#ifndef HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_
#define HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/status.h"

namespace hpvm::server {

// Any thread.
class PageTokens {
 public:
  // Tokens are good for as long as the key stays the same.
  explicit PageTokens(const Sha256& key);

  std::string Seal(std::string_view tenant, uint64_t sequence) const;
  // kInvalidArgument for what Seal did not give that tenant.
  StatusOr<uint64_t> Open(std::string_view tenant, std::string_view token) const;

 private:
  Sha256 TagOf(std::string_view tenant, uint64_t sequence) const;
  uint64_t MaskOf(std::string_view tag) const;

  Sha256 tag_key_, mask_key_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_PAGE_TOKEN_H_
