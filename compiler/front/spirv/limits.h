// SPDX-License-Identifier: Apache-2.0
// Limits on a tenant's SPIR-V. It goes to SPIRV-Tools, to a translator and to drivers' compilers, none of which
// bounds the work that a small module causes. Each limit is a few times what compilers generate for real kernels.
#ifndef HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_
#define HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_

#include <cstdint>

namespace hpvm::spirv::limits {

inline constexpr uint64_t kBytesMax = 4 * 1024 * 1024;
// SPIRV-Tools allocates arrays as long as the highest id.
inline constexpr uint32_t kIdsMax = 100'000;
// Names of entry points, functions and members.
inline constexpr uint32_t kNameBytesMax = 1024;
// Nesting of types and of control-flow constructs: later stages recurse on both.
inline constexpr uint32_t kTypeDepthMax = 32;
inline constexpr uint32_t kNestingMax = 200;
inline constexpr uint32_t kMembersMax = 1024;
inline constexpr uint32_t kSwitchCasesMax = 4096;
// Size of a value that an instruction computes: drivers split it into scalars.
inline constexpr uint64_t kValueBytesMax = 4 * 1024;
// Size of constants and variables outside functions, which drivers write out in full.
inline constexpr uint64_t kConstantBytesMax = 1024 * 1024;
// Function and Private storage of all functions together; each work item has its own copy.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
// Number of instructions of an entry point when each call counts as its callee's instructions, as drivers inline: in
// a chain of functions that each call the next one twice, the number doubles at each step.
inline constexpr uint64_t kInlinedInstructionsMax = 2'000'000;
// All devices have little space for push constants; arrays in them are passed element by element.
inline constexpr uint32_t kPushValuesMax = 256;

}  // namespace hpvm::spirv::limits

#endif  // HPVMD_COMPILER_FRONT_SPIRV_LIMITS_H_
