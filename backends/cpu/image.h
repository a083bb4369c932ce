// SPDX-License-Identifier: Apache-2.0
// Image is machine code in memory: written, then protected; never both writable and executable.
#ifndef HPVMD_BACKENDS_CPU_IMAGE_H_
#define HPVMD_BACKENDS_CPU_IMAGE_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compiler/api/artifact.h"
#include "compiler/ir/cpu_abi.h"

namespace hpvm::cpu {

class Image {
 public:
  Image() = default;
  // Copies the code of a kCpuImage artifact. Returns kInvalidArgument when an entry lies outside, kFailedPrecondition
  // when this machine lacks a feature that the image needs.
  static StatusOr<Image> Map(const Artifact& artifact);
  Image(Image&& other) noexcept;
  Image& operator=(Image&& other) noexcept;
  ~Image();

  ir::CpuEntry entry() const { return entry_; }
  // The entries of Artifact::variants, then entry().
  std::span<const ir::CpuEntry> entries() const { return entries_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
  ir::CpuEntry entry_ = nullptr;
  std::vector<ir::CpuEntry> entries_;
};

// Returns OK when this machine has everything in `target`: a comma-separated list of the names that Artifact::target
// uses, each a psABI level ("x86-64-v3") or a feature, with or without a leading '+'. Names that start with '-' are
// ignored. An unknown name counts as missing.
Status CheckTarget(std::string_view target);

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_IMAGE_H_
