// SPDX-License-Identifier: Apache-2.0
#include "backends/contract/copy_meter.h"

#include "base/clock.h"

namespace hpvm {
namespace {

// A copy counts as alone, or as concurrent, when all but one in kOdd of its pieces do.
constexpr uint64_t kOdd = 10;

int64_t NowNs() { return RealClock().Now().count(); }

}  // namespace

void CopyMeter::Note(CopySums::Flow CopySums::*kind, uint64_t bytes, int64_t ns) {
  {
    std::lock_guard lock(mutex_);
    (sums_.*kind).bytes += bytes;
    (sums_.*kind).ns += ns;
  }
  copies_.fetch_add(1, std::memory_order_release);
}

CopyFlow::CopyFlow(CopyMeter& meter, bool is_up, uint64_t bytes, uint64_t staging_bytes, uint32_t threads)
    : meter_(meter),
      is_up_(is_up),
      is_large_(bytes >= kBytesMin),
      threads_(threads),
      bytes_(bytes),
      staging_bytes_(staging_bytes) {
  if (is_large_) {
    busy_threads_.fetch_add(threads_, std::memory_order_relaxed);
    flowing_.fetch_add(1, std::memory_order_relaxed);
    epoch_.fetch_add(1, std::memory_order_relaxed);
  }
}

void CopyFlow::Moved(uint64_t bytes) {
  if (!is_large_) {
    return;
  }
  moved_ += bytes;
  const uint64_t by_all = moved_by_all_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (begin_ns_ != 0) {
    ++pieces_;
    shared_pieces_ += flowing_.load(std::memory_order_relaxed) > 1 ? 1 : 0;
  } else if (moved_ >= staging_bytes_) {
    begin_ns_ = NowNs();
    begin_moved_ = moved_;
    begin_by_all_ = by_all;
  }
}

CopyFlow::~CopyFlow() {
  if (!is_large_) {
    return;
  }
  const uint64_t bytes = moved_ - begin_moved_;
  if (begin_ns_ != 0 && moved_ == bytes_ && bytes >= kBytesMin) {
    const int64_t ns = NowNs() - begin_ns_;
    if (shared_pieces_ * kOdd <= pieces_) {
      meter_.Note(is_up_ ? &CopySums::up : &CopySums::down, bytes, ns);
    } else if ((pieces_ - shared_pieces_) * kOdd <= pieces_) {
      meter_.Note(&CopySums::together, moved_by_all_.load(std::memory_order_relaxed) - begin_by_all_, ns);
    }
  }
  busy_threads_.fetch_sub(threads_, std::memory_order_relaxed);
  flowing_.fetch_sub(1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hpvm
