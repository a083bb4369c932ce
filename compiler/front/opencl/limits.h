// SPDX-License-Identifier: Apache-2.0
// What a tenant's OpenCL C may have at most.
#ifndef HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_
#define HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_

#include <cstdint>

namespace hpvm::opencl::limits {

// The largest hand-written kernels known to us have a tenth of it; drivers take seconds for what is longer.
inline constexpr uint64_t kTextBytesMax = 1024 * 1024;
// Words among the build options, each of which drivers scan for.
inline constexpr uint32_t kOptionsMax = 256;

// Variables of one function, which drivers for processors put on a stack that a work item has to itself.
inline constexpr uint64_t kPrivateBytesMax = 64 * 1024;
// Tables of one text, which become a part of the program.
inline constexpr uint64_t kConstantBytesMax = 4 * 1024 * 1024;

}  // namespace hpvm::opencl::limits

#endif  // HPVMD_COMPILER_FRONT_OPENCL_LIMITS_H_
