// SPDX-License-Identifier: Apache-2.0
// Ids of a tenant's objects: "buf-" and 32 hexadecimal digits, 128 random bits that nobody can guess. Ids of jobs
// begin with the time, so that rows of the same time are adjacent in a database; the same number of random bits
// follows.
#ifndef HPVMD_SERVER_PROCESS_OBJECT_ID_H_
#define HPVMD_SERVER_PROCESS_OBJECT_ID_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"

namespace hpvm::server {

inline std::string NewObjectId(std::string_view kind, Rng& rng) {
  std::string id = std::string(kind) + "-" + HexOfNumber(rng.Next());
  return id + HexOfNumber(rng.Next());
}

// Milliseconds since 1970 in 12 digits, then 32 random digits.
inline std::string NewTimedId(std::string_view kind, int64_t unix_ns, Rng& rng) {
  const std::string time = HexOfNumber(static_cast<uint64_t>(unix_ns) / 1'000'000).substr(4);
  return NewObjectId(kind, rng).insert(kind.size() + 1, time);
}

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_OBJECT_ID_H_
