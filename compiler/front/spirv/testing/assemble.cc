// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/spirv/testing/assemble.h"

#include "base/status.h"

#include <spirv-tools/libspirv.hpp>

namespace hpvm::spirv {

std::vector<uint8_t> Assemble(const std::string& text, int minor) {
  constexpr spv_target_env kEnvironments[] = {SPV_ENV_UNIVERSAL_1_0, SPV_ENV_UNIVERSAL_1_1, SPV_ENV_UNIVERSAL_1_2,
                                              SPV_ENV_UNIVERSAL_1_3, SPV_ENV_UNIVERSAL_1_4, SPV_ENV_UNIVERSAL_1_5,
                                              SPV_ENV_UNIVERSAL_1_6};
  const spvtools::SpirvTools tools(kEnvironments[minor]);
  std::vector<uint32_t> words;
  HPVMD_CHECK(tools.Assemble(text, &words, spvtools::SpirvTools::kDefaultAssembleOption));
  std::vector<uint8_t> bytes;
  for (const uint32_t word : words) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(word >> shift));
    }
  }
  return bytes;
}

GpuTarget FullTarget() {
  GpuTarget target;
  target.has_int64 = target.has_fp64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_int64_atomics = target.exact_divide = target.keeps_denormals = true;
  target.group_size_max = 1024;
  target.group_extent_max = {1024, 1024, 64};
  target.group_count_max = {1u << 30, 65535, 65535};
  target.local_bytes_max = 32 * 1024;
  target.buffer_bytes_max = uint64_t{1} << 32;
  target.buffers_max = 64;
  target.push_bytes_max = 128;
  target.subgroup_size = 32;
  target.api_version = 12;
  target.kernel_il = GpuFormat::kPtx;
  target.ptx_arch = "sm_90";
  return target;
}

}  // namespace hpvm::spirv
