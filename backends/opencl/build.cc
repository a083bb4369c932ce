// SPDX-License-Identifier: Apache-2.0
// Builds programs for an OpenCL device in the process behind a DriverBuilder.
#include "backends/contract/driver_builder.h"
#include "backends/opencl/program.h"

namespace hpvm {

// DriverBuild::groups is not used: PoCL, the only driver that would need them, generates code for all group sizes when
// asked for the binary under POCL_WORK_GROUP_SPECIALIZATION=0, which builders and runners have in their environment.
StatusOr<DriverBinary> BuildForOpenCl(const DriverBuild& build) {
  HPVMD_ASSIGN_OR_RETURN(const opencl::Found found, opencl::FindDevice(build.device));
  HPVMD_ASSIGN_OR_RETURN(const opencl::Context context, opencl::CreateContext(found));
  DriverBinary result;
  HPVMD_ASSIGN_OR_RETURN(const opencl::Program program, opencl::BuildProgram(found, context.get(), build.format,
                                                                             build.code, build.options, &result.log));
  // A missing kernel is best detected here, where the source's log is.
  for (const std::string& entry : build.entries) {
    cl_int error = CL_SUCCESS;
    const opencl::Kernel kernel(clCreateKernel(program.get(), entry.c_str(), &error));
    if (!kernel && error == CL_INVALID_KERNEL_NAME) {
      return InvalidArgument("The module has no kernel \"" + entry + "\".");
    }
    HPVMD_RETURN_IF_ERROR(opencl::FromCl(error, "Creating kernel \"" + entry + "\""));
  }
  HPVMD_ASSIGN_OR_RETURN(result.bytes, opencl::BinaryOf(program.get()));
  return result;
}

namespace opencl {

StatusOr<std::string> IdentityOf(const std::string& device) {
  HPVMD_ASSIGN_OR_RETURN(const Found found, FindDevice(device));
  return PlatformText(found.platform, CL_PLATFORM_NAME) + "\n" + PlatformText(found.platform, CL_PLATFORM_VERSION) +
         "\n" + DeviceText(found.device, CL_DEVICE_NAME) + "\n" + DeviceText(found.device, CL_DRIVER_VERSION);
}

}  // namespace opencl
}  // namespace hpvm
