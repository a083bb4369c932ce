// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/page_token.h"

#include <cstring>

#include "base/bytes.h"

namespace hpvm::server {
namespace {

// Lengths in hexadecimal digits: a tag of 16 bytes that authenticates the tenant, then the masked number.
constexpr size_t kTagDigits = 32, kNumberDigits = 16;

// Parses the output of HexOfNumber; returns any number for other text, whose tag does not match then.
uint64_t NumberOf(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    value = value << 4 | static_cast<uint64_t>(c >= 'a' ? c - 'a' + 10 : c - '0');
  }
  return value;
}

}  // namespace

PageTokens::PageTokens(const Sha256& key)
    : tag_key_(HmacOf(key.bytes, BytesOf("page token tag"))),
      mask_key_(HmacOf(key.bytes, BytesOf("page token mask"))) {}

Sha256 PageTokens::TagOf(std::string_view tenant, uint64_t sequence) const {
  return HmacOf(tag_key_.bytes, BytesOf(HexOfNumber(sequence) + std::string(tenant)));
}

uint64_t PageTokens::MaskOf(std::string_view tag) const {
  const Sha256 hash = HmacOf(mask_key_.bytes, BytesOf(tag));
  uint64_t mask = 0;
  std::memcpy(&mask, hash.bytes.data(), sizeof(mask));
  return mask;
}

// The number is masked by a value derived from its tag, and the tag is checked after unmasking: the same number gives
// the same token each time, and no two numbers share a mask.
std::string PageTokens::Seal(std::string_view tenant, uint64_t sequence) const {
  const std::string tag = ToHex(TagOf(tenant, sequence)).substr(0, kTagDigits);
  return tag + HexOfNumber(sequence ^ MaskOf(tag));
}

StatusOr<uint64_t> PageTokens::Open(std::string_view tenant, std::string_view token) const {
  if (token.size() == kTagDigits + kNumberDigits) {
    const std::string_view tag = token.substr(0, kTagDigits);
    const uint64_t sequence = NumberOf(token.substr(kTagDigits)) ^ MaskOf(tag);
    // Both sides are hashed, so that the time of the comparison does not reveal how much was right.
    if (HashOf(Seal(tenant, sequence)) == HashOf(token)) {
      return sequence;
    }
  }
  return InvalidArgument("The page token is not one that this server gave to this tenant; begin with the first page.");
}

}  // namespace hpvm::server
