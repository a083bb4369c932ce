// SPDX-License-Identifier: Apache-2.0
// Names of a tenant's objects: "job-" and 32 hexadecimal digits, 128 random bits that nobody can guess.
#ifndef HPVMD_SERVER_OBJECT_ID_H_
#define HPVMD_SERVER_OBJECT_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm {

inline std::string NewObjectId(std::string_view kind, Rng& rng) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string id(kind);
  id += '-';
  for (int word = 0; word < 2; ++word) {
    const uint64_t bits = rng.Next();
    for (int shift = 60; shift >= 0; shift -= 4) {
      id += kDigits[(bits >> shift) & 15];
    }
  }
  return id;
}

}  // namespace hpvm

#endif  // HPVMD_SERVER_OBJECT_ID_H_
