// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_target.h"

namespace hpvm {
namespace {

constexpr size_t kArchBytesMax = 16;

void WriteExtents(const std::array<uint32_t, 3>& extents, WireWriter& out) {
  for (const uint32_t extent : extents) {
    out.U32(extent);
  }
}

std::array<uint32_t, 3> ReadExtents(WireReader& in) {
  std::array<uint32_t, 3> extents{};
  for (uint32_t& extent : extents) {
    extent = in.U32();
  }
  return extents;
}

}  // namespace

void WriteGpuTarget(const GpuTarget& target, WireWriter& out) {
  for (const bool flag : {target.has_int64, target.has_fp64, target.has_8_bit_storage, target.has_16_bit_storage,
                          target.has_int64_atomics, target.exact_divide, target.keeps_denormals,
                          target.keeps_nan_and_zero, target.rounds_to_even, target.is_processor}) {
    out.U8(flag);
  }
  out.U32(target.group_size_max);
  WriteExtents(target.group_extent_max, out);
  WriteExtents(target.group_count_max, out);
  out.U64(target.local_bytes_max);
  out.U64(target.buffer_bytes_max);
  out.U32(target.buffers_max);
  out.U32(target.push_bytes_max);
  out.U32(target.subgroup_size);
  out.U32(target.api_version);
  out.U8(static_cast<uint8_t>(target.kernel_il));
  out.Text(target.ptx_arch);
}

GpuTarget ReadGpuTarget(WireReader& in) {
  GpuTarget target;
  for (bool* flag : {&target.has_int64, &target.has_fp64, &target.has_8_bit_storage, &target.has_16_bit_storage,
                     &target.has_int64_atomics, &target.exact_divide, &target.keeps_denormals,
                     &target.keeps_nan_and_zero, &target.rounds_to_even, &target.is_processor}) {
    *flag = in.Flag();
  }
  target.group_size_max = in.U32();
  target.group_extent_max = ReadExtents(in);
  target.group_count_max = ReadExtents(in);
  target.local_bytes_max = in.U64();
  target.buffer_bytes_max = in.U64();
  target.buffers_max = in.U32();
  target.push_bytes_max = in.U32();
  target.subgroup_size = in.U32();
  target.api_version = in.U32();
  target.kernel_il = static_cast<GpuFormat>(in.U8());
  target.ptx_arch = in.Text();
  if (target.kernel_il == GpuFormat::kOpenClC || target.kernel_il > GpuFormat::kSpirBitcode ||
      target.ptx_arch.size() > kArchBytesMax) {
    in.Fail();
  }
  return target;
}

}  // namespace hpvm
