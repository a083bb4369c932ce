// SPDX-License-Identifier: Apache-2.0
// Whether a kernel takes the arguments that an artifact says it does.
#ifndef HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_
#define HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_

#include "backends/opencl/cl.h"
#include "compiler/api/artifact.h"

namespace hpvm::opencl {

// kInvalidArgument with a sentence that names the kernel's argument and the graph's parameter. What the driver does not
// tell of a kernel is not looked at.
Status CheckKernel(cl_kernel kernel, const GpuVariant& variant, const Artifact& artifact);

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_KERNEL_CHECK_H_
