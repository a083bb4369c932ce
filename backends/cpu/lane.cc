// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/lane.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/limits.h"

namespace hpvm::cpu {
namespace {

using ir::kDirtyGranuleBytes;

void RestoreLane(ir::CpuContext* context) { static_cast<Lane*>(context->runner)->Restore(); }

void PrintFromLane(ir::CpuContext* context, uint32_t format, const uint64_t* values) {
  static_cast<Lane*>(context->runner)->Print(format, values);
}

Status CheckSegment(const ir::DataSegment& segment, uint64_t bytes, const char* of) {
  if (segment.address <= bytes && segment.bytes.size() <= bytes - segment.address) {
    return absl::OkStatus();
  }
  return InvalidArgument("Data segment at " + std::to_string(segment.address) + " of " +
                         std::to_string(segment.bytes.size()) + " bytes lies outside " + of + " (" +
                         std::to_string(bytes) + " bytes).");
}

// Maps the kernel's state before its first instruction.
StatusOr<Pages> MapState(const Artifact& artifact) {
  if (artifact.state_bytes > limits::kModuleMemoryBytesMax) {
    return ResourceExhausted("The kernel's state (" + std::to_string(artifact.state_bytes) +
                             " bytes) is larger than the limit (" + std::to_string(limits::kModuleMemoryBytesMax) +
                             ").");
  }
  HPVMD_ASSIGN_OR_RETURN(Pages state, Pages::Map(artifact.state_bytes));
  for (const ir::DataSegment& segment : artifact.state) {
    HPVMD_RETURN_IF_ERROR(CheckSegment(segment, artifact.state_bytes, "the kernel's state"));
    if (!segment.bytes.empty()) {
      std::memcpy(state.data() + segment.address, segment.bytes.data(), segment.bytes.size());
    }
  }
  return state;
}

}  // namespace

StatusOr<Pages> Pages::Map(uint64_t bytes) {
  Pages pages;
  if (bytes == 0) {
    return pages;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("Memory for a kernel's module memory (" + std::to_string(bytes) +
                             " bytes) is not available.");
  }
  pages.data_ = static_cast<uint8_t*>(data);
  pages.bytes_ = bytes;
  return pages;
}

Pages::Pages(Pages&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pages::~Pages() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

StatusOr<InitialState> InitialState::From(const Artifact& artifact) {
  InitialState state;
  state.memory_bytes = artifact.memory_bytes;
  state.memory_bytes_max = artifact.memory_bytes_max;
  state.globals = artifact.globals;
  for (const std::vector<ir::Type>& types : artifact.format_types) {
    state.print_operands.push_back(static_cast<uint32_t>(types.size()));
  }
  if (state.memory_bytes > state.memory_bytes_max || state.memory_bytes_max % kDirtyGranuleBytes != 0) {
    return InvalidArgument("Module memory (" + std::to_string(state.memory_bytes) + " of at most " +
                           std::to_string(state.memory_bytes_max) + " bytes) is malformed.");
  }
  if (state.memory_bytes_max > limits::kModuleMemoryBytesMax) {
    return ResourceExhausted("Module memory (" + std::to_string(state.memory_bytes_max) +
                             " bytes) is larger than the limit (" +
                             std::to_string(limits::kModuleMemoryBytesMax) + ").");
  }
  HPVMD_ASSIGN_OR_RETURN(state.state, MapState(artifact));
  uint64_t low = state.memory_bytes, high = 0;
  for (const ir::DataSegment& segment : artifact.data) {
    HPVMD_RETURN_IF_ERROR(CheckSegment(segment, state.memory_bytes, "module memory"));
    low = std::min(low, segment.address);
    high = std::max(high, segment.address + segment.bytes.size());
  }
  if (high <= low) {
    return state;
  }
  state.data_begin = low / kDirtyGranuleBytes * kDirtyGranuleBytes;
  state.data_end = (high + kDirtyGranuleBytes - 1) / kDirtyGranuleBytes * kDirtyGranuleBytes;
  HPVMD_ASSIGN_OR_RETURN(state.data, Pages::Map(state.data_end - state.data_begin));
  for (const ir::DataSegment& segment : artifact.data) {
    if (!segment.bytes.empty()) {
      std::memcpy(state.data.data() + (segment.address - state.data_begin), segment.bytes.data(), segment.bytes.size());
    }
  }
  return state;
}

StatusOr<std::unique_ptr<Lane>> Lane::Create(const InitialState& initial) {
  std::unique_ptr<Lane> lane(new Lane(initial));
  const uint64_t granules = initial.memory_bytes_max / kDirtyGranuleBytes;
  const uint64_t bit_bytes = (granules + 63) / 64 * 8;
  const uint64_t state_granules = (initial.state.bytes() + kDirtyGranuleBytes - 1) / kDirtyGranuleBytes;
  const uint64_t bits_at = initial.memory_bytes_max + state_granules * kDirtyGranuleBytes;
  HPVMD_ASSIGN_OR_RETURN(lane->pages_, Pages::Map(bits_at + bit_bytes + granules * sizeof(uint32_t)));
  lane->globals_ = initial.globals;
  ir::CpuContext& context = lane->context;
  context.memory = lane->pages_.data();
  context.memory_bytes = initial.memory_bytes;
  context.memory_bytes_max = initial.memory_bytes_max;
  context.state = context.memory + initial.memory_bytes_max;
  context.dirty_bits = reinterpret_cast<uint64_t*>(context.memory + bits_at);
  context.dirty_list = reinterpret_cast<uint32_t*>(context.memory + bits_at + bit_bytes);
  context.globals = lane->globals_.data();
  context.restore = RestoreLane;
  context.print = PrintFromLane;
  context.runner = lane.get();
  if (initial.data.bytes() != 0) {
    std::memcpy(context.memory + initial.data_begin, initial.data.data(), initial.data.bytes());
  }
  if (initial.state.bytes() != 0) {
    std::memcpy(context.state, initial.state.data(), initial.state.bytes());
  }
  return lane;
}

void Lane::Restore() {
  for (uint64_t i = 0; i < context.dirty_count; ++i) {
    const uint64_t granule = context.dirty_list[i];
    const uint64_t address = granule * kDirtyGranuleBytes;
    context.dirty_bits[granule / 64] &= ~(uint64_t{1} << (granule % 64));
    if (address >= initial_.data_begin && address < initial_.data_end) {
      std::memcpy(context.memory + address, initial_.data.data() + (address - initial_.data_begin), kDirtyGranuleBytes);
    } else {
      std::memset(context.memory + address, 0, kDirtyGranuleBytes);
    }
  }
  context.dirty_count = 0;
  context.memory_bytes = initial_.memory_bytes;
  if (context.state_written != 0) {
    if (initial_.state.bytes() != 0) {
      std::memcpy(context.state, initial_.state.data(), initial_.state.bytes());
    }
    context.state_written = 0;
  }
  for (size_t i = 0; i < globals_.size(); ++i) {
    globals_[i] = initial_.globals[i];
  }
}

void Lane::Print(uint32_t format, const uint64_t* values) {
  if (print != nullptr && format < initial_.print_operands.size()) {
    print->Print({values[0], values[1], values[2]}, format, {values + 3, initial_.print_operands[format]});
  }
}

LaneCache::~LaneCache() {
  for (uint32_t i = 0; i < slot_count_; ++i) {
    delete slots_[i].lane.load(std::memory_order_acquire);
  }
  while (free_ != nullptr) {
    delete std::exchange(free_, free_->next_free);
  }
}

StatusOr<Lane*> LaneCache::TakeSlow() {
  {
    std::lock_guard lock(mutex_);
    if (free_ != nullptr) {
      return std::exchange(free_, free_->next_free);
    }
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Lane> lane, Lane::Create(initial_));
  return lane.release();
}

void LaneCache::GiveSlow(Lane* lane) {
  std::lock_guard lock(mutex_);
  lane->next_free = free_;
  free_ = lane;
}

}  // namespace hpvm::cpu
