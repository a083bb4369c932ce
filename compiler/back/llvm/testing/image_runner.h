// SPDX-License-Identifier: Apache-2.0
// Runs CPU images in a test, as simply as the contract allows.
#ifndef HPVMD_COMPILER_BACK_LLVM_TESTING_IMAGE_RUNNER_H_
#define HPVMD_COMPILER_BACK_LLVM_TESTING_IMAGE_RUNNER_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/api/artifact.h"
#include "compiler/ir/cpu_abi.h"
#include "compiler/ir/launch.h"

namespace hpvm::cpu::testing {

// The results of a launch.
struct ImageRun {
  ir::TrapReport trap;
  uint32_t restores = 0;
  uint64_t dirty_count = 0;     // At the end.
  std::vector<uint8_t> memory;  // Module memory at the end.
};

// ImageRunner maps an image as the runner does. Not thread-safe.
class ImageRunner {
 public:
  explicit ImageRunner(const Artifact& artifact) : artifact_(artifact) {
    bytes_ = (artifact.code.size() + 4095) / 4096 * 4096;
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HPVMD_CHECK(mapped != MAP_FAILED);
    std::memcpy(mapped, artifact.code.data(), artifact.code.size());
    HPVMD_CHECK(mprotect(mapped, bytes_, PROT_READ | PROT_EXEC) == 0);
    image_ = static_cast<uint8_t*>(mapped);
    memory_.resize(artifact.memory_bytes_max + 1);
    uint64_t granules = artifact.memory_bytes_max / ir::kDirtyGranuleBytes + 64;
    dirty_bits_.resize(granules / 64 + 1);
    dirty_list_.resize(granules);
    group_memory_.resize(ir::kGroupMemoryBytesMax);
  }
  ~ImageRunner() { munmap(image_, bytes_); }
  ImageRunner(const ImageRunner&) = delete;
  ImageRunner& operator=(const ImageRunner&) = delete;

  // The module's reference types, for calls of other modules through Launch::host.
  std::vector<ir::FunctionType> reference_types;
  // The result of barriers; 0 lets instances pass.
  uint32_t barrier_code = 0;
  uint32_t barriers = 0;

  // Runs instances [begin, end) in one call of the entry.
  ImageRun Run(const ir::Launch& launch, const ir::AddressSpace& space, uint64_t begin, uint64_t end) {
    Prepare(launch, space);
    return Call(artifact_.entry_offset, begin, end);
  }

  // Runs the whole launch by a variant (Artifact::variants). It does so as the runner does, except that it requires no
  // proof: groups one by one in zeroed group memory, tiles in one call or, with `tiles_a_call`, that many per call.
  ImageRun RunVariant(const ir::Launch& launch, const ir::AddressSpace& space, const CpuVariant& variant,
                      uint64_t tiles_a_call = 0) {
    Prepare(launch, space);
    const uint64_t units = Units(launch, variant);
    const bool is_group = variant.unit == CpuVariant::Unit::kGroup;
    if (is_group) {
      // Rows of lanes along x are padded to whole vectors.
      const uint64_t padded = (launch.group[0] + variant.lanes - 1) / variant.lanes * variant.lanes;
      group_values_.resize(variant.value_bytes * padded * launch.group[1] * launch.group[2] / 64 + 2);
      context_.group_values = group_values_.data()->bytes;
    }
    const uint64_t step = is_group ? 1 : tiles_a_call != 0 ? tiles_a_call : units;
    ImageRun run;
    for (uint64_t begin = 0; begin < units && run.trap.code == ir::TrapCode::kNone; begin += step) {
      if (is_group) {
        std::fill(group_memory_.begin(), group_memory_.end(), uint8_t{0});
        context_.group_memory_used = 0;
      }
      run = Call(variant.entry_offset, begin, std::min(units, begin + step));
    }
    return run;
  }

  // Returns the number of units of a launch.
  static uint64_t Units(const ir::Launch& launch, const CpuVariant& variant) {
    auto parts = [](uint64_t whole, uint64_t part) { return (whole + part - 1) / part; };
    const auto& [x, y, z] = launch.extent;
    switch (variant.unit) {
      case CpuVariant::Unit::kTile:
        return parts(x, variant.width()) * parts(y, variant.height()) * z;
      case CpuVariant::Unit::kGroup:
        return parts(x, launch.group[0]) * parts(y, launch.group[1]) * parts(z, launch.group[2]);
      default:
        return x * y * z;
    }
  }

  const Artifact& artifact() const { return artifact_; }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };

  // Sets up the context for a launch.
  void Prepare(const ir::Launch& launch, const ir::AddressSpace& space) {
    arguments_.clear();
    for (size_t k = 0; k < launch.arguments.size(); ++k) {
      const ir::Argument& argument = launch.arguments[k];
      bool is_buffer = artifact_.params[k].is_buffer;
      arguments_.push_back({argument.data, is_buffer ? argument.bytes : 0, is_buffer ? space.base[k] : argument.scalar,
                            !is_buffer                        ? ir::kCpuScalar
                            : artifact_.params[k].is_writable ? 1u
                                                              : 0u});
    }
    context_ = {};
    context_.arguments = arguments_.data();
    context_.argument_count = space.separate ? 0 : arguments_.size();
    context_.memory = memory_.data();
    context_.memory_bytes_max = artifact_.memory_bytes_max;
    context_.dirty_bits = dirty_bits_.data();
    context_.dirty_list = dirty_list_.data();
    globals_ = artifact_.globals;
    context_.globals = globals_.data();
    state_.resize(artifact_.state_bytes);
    context_.state = state_.data();
    context_.stop = launch.stop != nullptr ? reinterpret_cast<const uint32_t*>(launch.stop) : &go_;
    std::copy(launch.extent.begin(), launch.extent.end(), context_.extent);
    std::copy(launch.group.begin(), launch.group.end(), context_.group);
    context_.group_memory = group_memory_.data();
    context_.group_memory_base = space.group_base;
    context_.group_memory_bytes_max = ir::kGroupMemoryBytesMax;
    context_.restore = [](ir::CpuContext* context) { static_cast<ImageRunner*>(context->runner)->Restore(); };
    context_.barrier = [](ir::CpuContext* context, uint64_t) {
      auto* runner = static_cast<ImageRunner*>(context->runner);
      ++runner->barriers;
      return runner->barrier_code;
    };
    context_.print = [](ir::CpuContext* context, uint32_t format, const uint64_t* values) {
      static_cast<ImageRunner*>(context->runner)->Print(format, values);
    };
    context_.host = [](ir::CpuContext* context, uint32_t reference, uint32_t type, uint64_t* values) {
      return static_cast<ImageRunner*>(context->runner)->CallHost(reference, type, values);
    };
    context_.runner = this;
    launch_ = &launch;
    std::fill(memory_.begin(), memory_.end(), uint8_t{0});
    std::fill(dirty_bits_.begin(), dirty_bits_.end(), 0);
    InitialiseState();
    Initialise();
    restores_ = 0;
  }

  ImageRun Call(uint64_t entry_offset, uint64_t begin, uint64_t end) {
    // The test's own stack is used: the kernel may use half a mebibyte below this frame.
    context_.stack_limit = reinterpret_cast<uint64_t>(__builtin_frame_address(0)) - 512 * 1024;
    auto entry = reinterpret_cast<ir::CpuEntry>(image_ + entry_offset);
    uint32_t outcome = entry(&context_, begin, end);
    ImageRun run;
    run.restores = restores_;
    run.dirty_count = context_.dirty_count;
    run.memory.assign(memory_.begin(), memory_.begin() + static_cast<ptrdiff_t>(context_.memory_bytes));
    if (outcome != ir::kCpuDone) {
      run.trap = {static_cast<ir::TrapCode>(context_.trap_code),
                  {context_.trap_instance[0], context_.trap_instance[1], context_.trap_instance[2]},
                  context_.trap_function,
                  context_.trap_source,
                  context_.trap_address,
                  context_.trap_bytes};
    }
    return run;
  }

  void Print(uint32_t format, const uint64_t* values) {
    if (launch_->print != nullptr) {
      launch_->print->Print({values[0], values[1], values[2]}, format,
                            {values + 3, artifact_.format_types[format].size()});
    }
  }

  uint32_t CallHost(uint32_t reference, uint32_t type, uint64_t* values) {
    const ir::FunctionType& signature = reference_types[type];
    size_t count = std::max(signature.params.size(), signature.results.size());
    return static_cast<uint32_t>(launch_->host->Call(reference, type, {values, count}));
  }

  void Initialise() {
    for (const ir::DataSegment& segment : artifact_.data) {
      std::memcpy(memory_.data() + segment.address, segment.bytes.data(), segment.bytes.size());
    }
    context_.memory_bytes = artifact_.memory_bytes;
    context_.dirty_count = 0;
    context_.state_written = 0;
    std::copy(artifact_.globals.begin(), artifact_.globals.end(), globals_.begin());
  }

  void InitialiseState() {
    std::fill(state_.begin(), state_.end(), uint8_t{0});
    for (const ir::DataSegment& segment : artifact_.state) {
      std::copy(segment.bytes.begin(), segment.bytes.end(), state_.begin() + static_cast<ptrdiff_t>(segment.address));
    }
  }

  // Clears only the recorded granules: a store that was not recorded stays visible to the next instance.
  void Restore() {
    ++restores_;
    if (context_.state_written != 0) {
      InitialiseState();
    }
    for (uint64_t i = 0; i < context_.dirty_count; ++i) {
      uint32_t granule = dirty_list_[i];
      dirty_bits_[granule / 64] &= ~(uint64_t{1} << (granule % 64));
      std::memset(memory_.data() + granule * ir::kDirtyGranuleBytes, 0, ir::kDirtyGranuleBytes);
    }
    Initialise();
  }

  static constexpr uint32_t go_ = 0;

  Artifact artifact_;
  std::vector<ir::CpuArgument> arguments_;
  std::vector<Line> group_values_;
  const ir::Launch* launch_ = nullptr;  // Set while one runs.
  uint8_t* image_ = nullptr;
  size_t bytes_ = 0;
  ir::CpuContext context_{};
  std::vector<uint8_t> memory_;
  std::vector<uint64_t> dirty_bits_;
  std::vector<uint32_t> dirty_list_;
  std::vector<uint64_t> globals_;
  std::vector<uint8_t> state_;
  std::vector<uint8_t> group_memory_;
  uint32_t restores_ = 0;
};

}  // namespace hpvm::cpu::testing

#endif  // HPVMD_COMPILER_BACK_LLVM_TESTING_IMAGE_RUNNER_H_
