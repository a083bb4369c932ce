// SPDX-License-Identifier: Apache-2.0
// Checks that a kernel takes the arguments that an artifact declares.
#ifndef HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_
#define HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_

#include "backends/opencl/cl.h"
#include "compiler/api/artifact.h"

namespace hpvm::opencl {

// Returns kInvalidArgument with a sentence that names the kernel's argument and the graph's parameter. Properties that
// the driver does not report are not checked.
Status CheckKernel(cl_kernel kernel, const GpuVariant& variant, const Artifact& artifact);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_
