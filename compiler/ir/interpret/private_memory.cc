// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/interpret/private_memory.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hpvm::ir {
namespace {

constexpr uint64_t kPageBytes = 64 * 1024;
uint8_t no_bytes = 0;  // The address of memories of 0 bytes; never accessed.

}  // namespace

PrivateMemory::PrivateMemory(PrivateMemory&& other) noexcept
    : initial_(other.initial_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_),
      bytes_initial_(other.bytes_initial_),
      bytes_max_(other.bytes_max_),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      is_dirty_(std::move(other.is_dirty_)),
      dirty_(std::move(other.dirty_)) {}

PrivateMemory::~PrivateMemory() {
  if (mapped_bytes_ != 0) {
    munmap(data_, mapped_bytes_);
  }
}

Status PrivateMemory::Map(std::span<const DataSegment> initial, uint64_t bytes, uint64_t bytes_max) {
  initial_ = initial;
  bytes_ = bytes_initial_ = bytes;
  bytes_max_ = bytes_max;
  data_ = &no_bytes;
  if (bytes_max == 0) {
    return absl::OkStatus();
  }
  void* mapped = mmap(nullptr, bytes_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return ResourceExhausted("The memory of an instance (" + std::to_string(bytes_max) +
                             " bytes) cannot be mapped: " + std::string(strerror(errno)) + ".");
  }
  data_ = static_cast<uint8_t*>(mapped);
  mapped_bytes_ = bytes_max;
  is_dirty_.resize((bytes_max + kGranuleBytes - 1) / kGranuleBytes);
  for (const DataSegment& segment : initial) {
    std::copy(segment.bytes.begin(), segment.bytes.end(), data_ + segment.address);
  }
  return absl::OkStatus();
}

void PrivateMemory::Borrow(uint8_t* data, uint64_t bytes, uint64_t bytes_max) {
  data_ = data == nullptr ? &no_bytes : data;
  bytes_ = bytes_initial_ = bytes;
  bytes_max_ = bytes_max;
  is_dirty_.assign((bytes_max + kGranuleBytes - 1) / kGranuleBytes, true);
}

void PrivateMemory::MarkDirty(uint64_t granule) {
  is_dirty_[granule] = true;
  dirty_.push_back(static_cast<uint32_t>(granule));
}

void PrivateMemory::RestoreGranule(uint64_t granule) {
  const uint64_t begin = granule * kGranuleBytes;
  const uint64_t end = std::min(begin + kGranuleBytes, bytes_max_);
  std::fill(data_ + begin, data_ + end, uint8_t{0});
  // Finds the first segment that ends after `begin`; segments are sorted and do not overlap.
  auto segment = std::partition_point(initial_.begin(), initial_.end(),
                                      [&](const DataSegment& s) { return s.address + s.bytes.size() <= begin; });
  for (; segment != initial_.end() && segment->address < end; ++segment) {
    const uint64_t from = std::max(begin, segment->address);
    const uint64_t to = std::min<uint64_t>(end, segment->address + segment->bytes.size());
    if (from < to) {
      std::copy_n(segment->bytes.data() + (from - segment->address), to - from, data_ + from);
    }
  }
}

void PrivateMemory::Restore() {
  for (const uint32_t granule : dirty_) {
    RestoreGranule(granule);
    is_dirty_[granule] = false;
  }
  dirty_.clear();
  bytes_ = bytes_initial_;
}

bool PrivateMemory::Grow(uint64_t pages, uint64_t* old_pages) {
  if (pages > (bytes_max_ - bytes_) / kPageBytes) {
    return false;
  }
  *old_pages = bytes_ / kPageBytes;
  bytes_ += pages * kPageBytes;
  return true;
}

}  // namespace hpvm::ir
