// SPDX-License-Identifier: Apache-2.0
// GpuTarget describes a device to a compile: supported types and operations, and limits. A device fills it in once
// (DeviceInfo::gpu); requests carry it to the compiler, whose cache keys include all of it.
#ifndef HPVMD_COMPILER_API_GPU_TARGET_H_
#define HPVMD_COMPILER_API_GPU_TARGET_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "base/module_kind.h"
#include "base/status.h"

namespace hpvm {

struct GpuTarget {
  // Types. An unsupported type is refused by name, or emulated (narrow accesses).
  bool has_int64 = false;
  bool has_fp64 = false;
  bool has_8_bit_storage = false;   // Loads and stores of bytes.
  bool has_16_bit_storage = false;  // Loads and stores of 16-bit words.
  bool has_int64_atomics = false;
  // A sum of floats in buffers is one atomic operation of the device. OpenCL: in PTX, also in group memory.
  bool has_f32_atomic_add = false;
  bool has_f64_atomic_add = false;
  // Work items of a subgroup can sum f32 and f64 over those that have reached the same place. OpenCL: in PTX.
  bool has_subgroup_sums = false;
  // Exactness.
  bool exact_divide = false;       // f32 division and square root can be correctly rounded.
  bool exact_fma = false;          // Vulkan: Fma on f32 is rounded once; found by trial.
  bool keeps_denormals = false;    // Denormals of f32; f64, where supported, always keeps them.
  bool keeps_nan_and_zero = true;  // Signed zeros, infinities and NaNs; Vulkan devices may lack it.
  bool rounds_to_even = false;     // Vulkan: rounding to nearest even can be asked for.
  // The functions of ir::Family::kApprox satisfy the bounds that compiler/math/device_f32.h relies on, and f32
  // products and sums can be contracted.
  bool device_math = false;
  // Limits.
  uint32_t group_size_max = 1;                        // Work items per group.
  std::array<uint32_t, 3> group_extent_max{1, 1, 1};  // In each dimension.
  std::array<uint32_t, 3> group_count_max{1, 1, 1};   // Groups per launch, in each dimension.
  uint64_t local_bytes_max = 0;                       // Group memory.
  uint64_t buffer_bytes_max = 0;                      // Bytes that one argument can address.
  uint32_t buffers_max = 0;                           // Arguments that are buffers.
  uint32_t push_bytes_max = 0;                        // Vulkan: push constants. OpenCL: bytes of all arguments.
  uint32_t subgroup_size = 1;                         // Work items that run in lockstep.
  bool is_processor = false;  // The device is the host's processor under another name (PoCL, lavapipe).
  // OpenCL: 120 or 300 and so on; Vulkan: 12, 13.
  uint32_t api_version = 0;
  // The form in which an OpenCL device accepts kernel-flavoured SPIR-V: unchanged; as PTX through
  // clCreateProgramWithBinary (NVIDIA); as SPIR bitcode with `-x spir -spir-std=1.2` (PoCL 3); or not at all.
  GpuFormat kernel_il = GpuFormat::kNone;
  std::string ptx_arch;  // "sm_90"; kPtx only.

  friend bool operator==(const GpuTarget&, const GpuTarget&) = default;
};

// For compiler/api/wire.h.
inline auto FieldsOf(GpuTarget& t) {
  return std::tie(t.has_int64, t.has_fp64, t.has_8_bit_storage, t.has_16_bit_storage, t.has_int64_atomics,
                  t.has_f32_atomic_add, t.has_f64_atomic_add, t.has_subgroup_sums, t.exact_divide, t.exact_fma,
                  t.keeps_denormals, t.keeps_nan_and_zero, t.rounds_to_even, t.device_math, t.group_size_max,
                  t.group_extent_max, t.group_count_max, t.local_bytes_max, t.buffer_bytes_max, t.buffers_max,
                  t.push_bytes_max, t.subgroup_size, t.is_processor, t.api_version, t.kernel_il, t.ptx_arch);
}
// Returns true if every field of a decoded target has a valid value.
bool IsWellFormed(const GpuTarget& target);
// Returns equal bytes for equal targets, in processes of one build.
std::string BytesOf(const GpuTarget& target);
// Returns kInvalidArgument when the bytes are not a target.
StatusOr<GpuTarget> ParseGpuTarget(std::string_view bytes);

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_GPU_TARGET_H_
