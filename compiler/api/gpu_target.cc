// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_target.h"

#include <algorithm>

#include "base/unchecked.h"
#include "proto/internal/builder.pb.h"

namespace hpvm {
namespace {

constexpr int kDimensions = 3;
constexpr size_t kArchBytesMax = 16;

}  // namespace

internal::GpuTarget MessageOf(const GpuTarget& target) {
  internal::GpuTarget message;
  message.set_has_int64(target.has_int64);
  message.set_has_fp64(target.has_fp64);
  message.set_has_8_bit_storage(target.has_8_bit_storage);
  message.set_has_16_bit_storage(target.has_16_bit_storage);
  message.set_has_int64_atomics(target.has_int64_atomics);
  message.set_exact_divide(target.exact_divide);
  message.set_keeps_denormals(target.keeps_denormals);
  message.set_keeps_nan_and_zero(target.keeps_nan_and_zero);
  message.set_rounds_to_even(target.rounds_to_even);
  message.set_is_processor(target.is_processor);
  message.set_group_size_max(target.group_size_max);
  message.mutable_group_extent_max()->Add(target.group_extent_max.begin(), target.group_extent_max.end());
  message.mutable_group_count_max()->Add(target.group_count_max.begin(), target.group_count_max.end());
  message.set_local_bytes_max(target.local_bytes_max);
  message.set_buffer_bytes_max(target.buffer_bytes_max);
  message.set_buffers_max(target.buffers_max);
  message.set_push_bytes_max(target.push_bytes_max);
  message.set_subgroup_size(target.subgroup_size);
  message.set_api_version(target.api_version);
  message.set_kernel_il(static_cast<uint32_t>(target.kernel_il));
  message.set_ptx_arch(target.ptx_arch);
  return message;
}

StatusOr<GpuTarget> GetGpuTarget(const internal::GpuTarget& message) {
  if (message.kernel_il() > static_cast<uint32_t>(GpuFormat::kSpirBitcode) ||
      message.kernel_il() == static_cast<uint32_t>(GpuFormat::kOpenClC) || message.ptx_arch().size() > kArchBytesMax ||
      message.group_extent_max_size() != kDimensions || message.group_count_max_size() != kDimensions) {
    return InvalidArgument("The description of a GPU is malformed.");
  }
  GpuTarget target;
  target.has_int64 = message.has_int64();
  target.has_fp64 = message.has_fp64();
  target.has_8_bit_storage = message.has_8_bit_storage();
  target.has_16_bit_storage = message.has_16_bit_storage();
  target.has_int64_atomics = message.has_int64_atomics();
  target.exact_divide = message.exact_divide();
  target.keeps_denormals = message.keeps_denormals();
  target.keeps_nan_and_zero = message.keeps_nan_and_zero();
  target.rounds_to_even = message.rounds_to_even();
  target.is_processor = message.is_processor();
  target.group_size_max = message.group_size_max();
  std::copy_n(message.group_extent_max().begin(), kDimensions, target.group_extent_max.begin());
  std::copy_n(message.group_count_max().begin(), kDimensions, target.group_count_max.begin());
  target.local_bytes_max = message.local_bytes_max();
  target.buffer_bytes_max = message.buffer_bytes_max();
  target.buffers_max = message.buffers_max();
  target.push_bytes_max = message.push_bytes_max();
  target.subgroup_size = message.subgroup_size();
  target.api_version = message.api_version();
  target.kernel_il = static_cast<GpuFormat>(message.kernel_il());
  target.ptx_arch = message.ptx_arch();
  return target;
}

std::string BytesOf(const GpuTarget& target) { return MessageOf(target).SerializeAsString(); }

StatusOr<GpuTarget> ParseGpuTarget(std::string_view bytes) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::GpuTarget>(bytes));
  return std::move(said).Open(GetGpuTarget);
}

}  // namespace hpvm
