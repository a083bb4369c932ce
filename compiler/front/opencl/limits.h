// SPDX-License-Identifier: Apache-2.0
// Limits on a tenant's OpenCL C.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_

#include <cstdint>

namespace hpvm::opencl::limits {

// The largest hand-written kernels known to us have a tenth of this size; drivers take seconds to compile longer
// texts.
inline constexpr uint64_t kTextBytesMax = 1024 * 1024;
// Number of build options; drivers scan for each of them.
inline constexpr uint32_t kOptionsMax = 256;

// Bytes of the variables of one function, which CPU drivers put on a stack that each work item has to itself.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
// Bytes of constant tables in one text; the tables become a part of the program.
inline constexpr uint64_t kConstantBytesMax = 4 * 1024 * 1024;

}  // namespace hpvm::opencl::limits

#endif  // HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_
