// SPDX-License-Identifier: Apache-2.0
// Names of a tenant's objects: "buf-" and 32 hexadecimal digits, 128 random bits that nobody can guess. Those of jobs
// begin with the time, so that rows of one time lie together in a database; as many random bits follow.
#ifndef HPVMD_SERVER_PROCESS_OBJECT_ID_H_
#define HPVMD_SERVER_PROCESS_OBJECT_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm::server {

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

// Milliseconds since 1970 in 12 digits, then 32 random ones.
inline std::string NewTimedId(std::string_view kind, int64_t unix_ns, Rng& rng) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string time(12, '0');
  uint64_t ms = static_cast<uint64_t>(unix_ns) / 1'000'000;
  for (size_t at = time.size(); at > 0; --at, ms >>= 4) {
    time[at - 1] = kDigits[ms & 15];
  }
  return NewObjectId(kind, rng).insert(kind.size() + 1, time);
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_OBJECT_ID_H_
