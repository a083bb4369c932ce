// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/kernel_il/address_spaces.h"

#include <spirv/unified1/spirv.hpp>

namespace hpvm::kernel_il {
namespace {

uint32_t WordAt(const std::vector<uint8_t>& bytes, size_t word) {
  const uint8_t* at = bytes.data() + word * 4;
  return static_cast<uint32_t>(at[0]) | static_cast<uint32_t>(at[1]) << 8 | static_cast<uint32_t>(at[2]) << 16 |
         static_cast<uint32_t>(at[3]) << 24;
}

}  // namespace

std::vector<uint8_t> ConstantsToGlobal(std::span<const uint8_t> spirv) {
  constexpr size_t kHeaderWords = 5;
  std::vector<uint8_t> bytes(spirv.begin(), spirv.end());
  const size_t words = bytes.size() / 4;
  for (size_t at = kHeaderWords; at < words;) {
    const uint32_t first = WordAt(bytes, at);
    const uint32_t opcode = first & 0xffff, count = first >> 16;
    if (count == 0 || count > words - at) {
      break;  // The reader has refused such a module.
    }
    const size_t storage = opcode == spv::OpTypePointer && count == 4 ? at + 2
                           : opcode == spv::OpVariable && count >= 4  ? at + 3
                                                                      : 0;
    if (storage != 0 && WordAt(bytes, storage) == spv::StorageClassUniformConstant) {
      bytes[storage * 4] = static_cast<uint8_t>(spv::StorageClassCrossWorkgroup);
    }
    at += count;
  }
  return bytes;
}

}  // namespace hpvm::kernel_il
