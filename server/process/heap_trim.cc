// SPDX-License-Identifier: Apache-2.0
#include "server/process/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace hpvm::server {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(10);

}  // namespace

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0, resident = 0;
  file >> pages >> resident;
  return file ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

bool HeapTrimRule::IsDue(Time now, uint64_t resident_bytes) const {
  if (resident_bytes < limits_.resident_bytes_min) {
    return false;
  }
  return !last_.has_value() || now - last_->when >= limits_.again_after ||
         resident_bytes > last_->resident_bytes + last_->resident_bytes / 4;
}

void HeapTrimRule::OnTrimmed(Time now, uint64_t resident_bytes) { last_ = {now, resident_bytes}; }

std::unique_ptr<RoundThread> StartHeapTrim() {
  const auto look = [rule = HeapTrimRule(HeapTrimRule::Limits())]() mutable {
    if (rule.IsDue(RealClock().Now(), ResidentBytes())) {
      malloc_trim(0);
      rule.OnTrimmed(RealClock().Now(), ResidentBytes());
    }
    return kLookEvery;
  };
  return std::make_unique<RoundThread>(look, kLookEvery);
}

}  // namespace hpvm::server
