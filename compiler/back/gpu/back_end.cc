// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/gpu/back_end.h"

namespace hpvm::gpu {

GpuTarget CommonH200() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_int64_atomics = target.has_f32_atomic_add = target.has_f64_atomic_add = true;
  target.has_subgroup_sums = true;
  target.exact_divide = target.keeps_denormals = target.rounds_to_even = target.device_math = true;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {(1u << 31) - 1, 65535, 65535};
  target.local_bytes_max = 48 * 1024;
  target.buffers_max = 128;
  target.subgroup_size = 32;
  return target;
}

}  // namespace hpvm::gpu
