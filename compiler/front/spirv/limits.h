// SPDX-License-Identifier: Apache-2.0
// What a tenant's SPIR-V may have at most: it goes to SPIRV-Tools, to a translator, and to drivers' compilers, none of
// which bounds what a small module makes it do. Each is a few times what compilers make of real kernels.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_
#define HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_

#include <cstdint>

namespace hpvm::spirv::limits {

inline constexpr uint64_t kBytesMax = 4 * 1024 * 1024;
// Tools keep arrays as long as the highest id.
inline constexpr uint32_t kIdsMax = 100'000;
// Entry points, functions' names, members' names.
inline constexpr uint32_t kNameBytesMax = 1024;
// Of types within types, and of control-flow constructs: later stages recurse on both.
inline constexpr uint32_t kTypeDepthMax = 32;
inline constexpr uint32_t kNestingMax = 200;
inline constexpr uint32_t kMembersMax = 1024;
inline constexpr uint32_t kSwitchCasesMax = 4096;
// Of a value that an instruction computes: drivers split it into its scalars.
inline constexpr uint64_t kValueBytesMax = 4 * 1024;
// Constants and variables outside functions, which drivers write out in full.
inline constexpr uint64_t kConstantBytesMax = 1024 * 1024;
// Function and Private storage of all functions together: each work item has it.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
// Instructions of an entry point when every call stands for its callee, as drivers inline: a chain of functions that
// call the next one twice doubles with each.
inline constexpr uint64_t kInlinedInstructionsMax = 2'000'000;
// Push constants are small everywhere; arrays in them are passed element by element.
inline constexpr uint32_t kPushValuesMax = 256;

}  // namespace hpvm::spirv::limits

#endif  // HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_
