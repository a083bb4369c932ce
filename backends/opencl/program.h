// SPDX-License-Identifier: Apache-2.0
// Builds programs from code through the driver.
#ifndef HPVMD_BACKENDS_OPENCL_PROGRAM_H_
#define HPVMD_BACKENDS_OPENCL_PROGRAM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/opencl/platform.h"
#include "compiler/api/gpu_code.h"

namespace hpvm::opencl {

StatusOr<Context> CreateContext(const Found& found);

// `format` kBitstream: a binary from BinaryOf. Returns kInvalidArgument, with the driver's log, when the driver refuses
// the code; kFailedPrecondition when the device does not take code of that form. `log` (may be null) receives the
// driver's output for accepted code. Thread-safe.
StatusOr<Program> BuildProgram(const Found& found, cl_context context, GpuFormat format, std::span<const uint8_t> code,
                               const std::string& options, std::string* log);
StatusOr<std::vector<uint8_t>> BinaryOf(cl_program program);
// Returns DriverIdentity of an OpenCL device.
StatusOr<std::string> IdentityOf(const std::string& device);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PROGRAM_H_
