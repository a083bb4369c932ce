// SPDX-License-Identifier: Apache-2.0
// From code to a program that the driver has built.
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

// `format` kBitstream: a binary as BinaryOf gives it. kInvalidArgument when the driver refuses the code, with its log;
// kFailedPrecondition when the device takes no code of that form. `log` (may be null) gets what the driver says of code
// that it takes. Any thread.
StatusOr<Program> BuildProgram(const Found& found, cl_context context, GpuFormat format, std::span<const uint8_t> code,
                               const std::string& options, std::string* log);
StatusOr<std::vector<uint8_t>> BinaryOf(cl_program program);
// What DriverIdentity says of an OpenCL device.
StatusOr<std::string> IdentityOf(const std::string& device);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_PROGRAM_H_
