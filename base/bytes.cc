// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace hpvm {

std::string ToHex(std::span<const uint8_t> bytes) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string HexOfNumber(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

bool ReadHex(std::string_view hex, std::span<uint8_t> into) {
  if (hex.size() != 2 * into.size()) {
    return false;
  }
  // The library reads other characters as zeros and accepts upper-case digits; the comparison rejects both.
  const std::string bytes = absl::HexStringToBytes({hex.data(), hex.size()});
  if (ToHex(BytesOf(bytes)) != hex) {
    return false;
  }
  std::copy(bytes.begin(), bytes.end(), into.begin());
  return true;
}

}  // namespace hpvm
