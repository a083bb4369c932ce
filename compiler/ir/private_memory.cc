// SPDX-License-Identifier: Apache-2.0
#include "compiler/ir/private_memory.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hpvm::ir {
namespace {

constexpr uint64_t kPageBytes = 64 * 1024;

}  // namespace

PrivateMemory::PrivateMemory(PrivateMemory&& other) noexcept
    : module_(std::exchange(other.module_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      is_dirty_(std::move(other.is_dirty_)),
      dirty_(std::move(other.dirty_)) {}

PrivateMemory::~PrivateMemory() {
  if (data_ != nullptr) {
    munmap(data_, module_->memory_bytes_max);
  }
}

Status PrivateMemory::Map(const Module& module) {
  module_ = &module;
  bytes_ = module.memory_bytes;
  if (module.memory_bytes_max == 0) {
    return absl::OkStatus();
  }
  void* mapped = mmap(nullptr, module.memory_bytes_max, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return ResourceExhausted("The memory of an instance (" + std::to_string(module.memory_bytes_max) +
                             " bytes) cannot be mapped: " + std::string(strerror(errno)) + ".");
  }
  data_ = static_cast<uint8_t*>(mapped);
  is_dirty_.resize((module.memory_bytes_max + kGranuleBytes - 1) / kGranuleBytes);
  for (const DataSegment& segment : module.data) {
    std::copy(segment.bytes.begin(), segment.bytes.end(), data_ + segment.address);
  }
  return absl::OkStatus();
}

void PrivateMemory::MarkDirty(uint64_t granule) {
  is_dirty_[granule] = true;
  dirty_.push_back(static_cast<uint32_t>(granule));
}

void PrivateMemory::RestoreGranule(uint64_t granule) {
  const uint64_t begin = granule * kGranuleBytes;
  const uint64_t end = std::min(begin + kGranuleBytes, module_->memory_bytes_max);
  std::fill(data_ + begin, data_ + end, uint8_t{0});
  // The first segment that ends after `begin`; they are sorted and do not overlap.
  auto segment = std::partition_point(module_->data.begin(), module_->data.end(), [&](const DataSegment& s) {
    return s.address + s.bytes.size() <= begin;
  });
  for (; segment != module_->data.end() && segment->address < end; ++segment) {
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
  bytes_ = module_->memory_bytes;
}

bool PrivateMemory::Grow(uint64_t pages, uint64_t* old_pages) {
  if (pages > (module_->memory_bytes_max - bytes_) / kPageBytes) {
    return false;
  }
  *old_pages = bytes_ / kPageBytes;
  bytes_ += pages * kPageBytes;
  return true;
}

}  // namespace hpvm::ir
