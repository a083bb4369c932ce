// SPDX-License-Identifier: Apache-2.0
#define CL_TARGET_OPENCL_VERSION 120
#include "compiler/back/opencl/testing/program_runner.h"

#include <CL/cl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "compiler/ir/grid.h"

namespace hpvm::opencl::testing {
namespace {

struct Setup {
  cl_device_id device = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  GpuTarget target;
  std::string name;
};

template <typename T>
T Ask(cl_device_id device, cl_device_info what) {
  T value{};
  clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

std::string AskText(cl_device_id device, cl_device_info what) {
  char text[4096] = {};
  clGetDeviceInfo(device, what, sizeof(text) - 1, text, nullptr);
  return text;
}

Setup* Make() {
  cl_platform_id platform = nullptr;
  cl_uint count = 0;
  auto* setup = new Setup;
  if (clGetPlatformIDs(1, &platform, &count) != CL_SUCCESS || count == 0 ||
      clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &setup->device, &count) != CL_SUCCESS) {
    std::fprintf(stderr, "There is no OpenCL device; what needs one is skipped.\n");
    return setup;
  }
  setup->context = clCreateContext(nullptr, 1, &setup->device, nullptr, nullptr, nullptr);
  setup->queue = clCreateCommandQueue(setup->context, setup->device, 0, nullptr);
  const std::string extensions = AskText(setup->device, CL_DEVICE_EXTENSIONS);
  GpuTarget& target = setup->target;
  target.has_int64 = target.has_8_bit_storage = target.has_16_bit_storage = true;
  target.has_fp64 = extensions.find("cl_khr_fp64") != std::string::npos;
  target.has_int64_atomics = extensions.find("cl_khr_int64_extended_atomics") != std::string::npos;
  const auto config = Ask<cl_device_fp_config>(setup->device, CL_DEVICE_SINGLE_FP_CONFIG);
  target.exact_divide = (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  target.keeps_denormals = (config & CL_FP_DENORM) != 0;
  target.local_bytes_max = Ask<cl_ulong>(setup->device, CL_DEVICE_LOCAL_MEM_SIZE);
  target.group_size_max = static_cast<uint32_t>(Ask<size_t>(setup->device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  target.buffers_max = 64;
  target.is_processor = Ask<cl_device_type>(setup->device, CL_DEVICE_TYPE) == CL_DEVICE_TYPE_CPU;
  target.api_version = 120;
  setup->name = AskText(setup->device, CL_DEVICE_NAME);
  return setup;
}

// Created once and never destroyed, because some drivers fail when destroyed at process exit.
Setup& Shared() {
  static Setup* const setup = Make();
  return *setup;
}

// Tests may claim buffers that are far larger than the existing bytes.
uint64_t Held(const ir::Argument& argument) { return argument.bytes > uint64_t{1} << 30 ? 8 : argument.bytes; }

uint64_t ValueOf(const GpuArgument& argument, const ir::Launch& launch, const ir::AddressSpace& space,
                 const ir::Triple& first, uint64_t start) {
  switch (argument.kind) {
    case GpuArgument::Kind::kBufferBytes:
      return launch.arguments[argument.index].bytes;
    case GpuArgument::Kind::kBufferStart:
      return start;
    case GpuArgument::Kind::kBufferBase:
      return space.base[argument.index];
    case GpuArgument::Kind::kScalar:
      return launch.arguments[argument.index].scalar;
    case GpuArgument::Kind::kFirst:
      return first[argument.index];
    case GpuArgument::Kind::kExtent:
      return launch.extent[argument.index];
    case GpuArgument::Kind::kGroup:
      return launch.group[argument.index];
    case GpuArgument::Kind::kGroupBase:
      return space.group_base;
    default:
      return 0;  // kTrapIndex: the only record.
  }
}

}  // namespace

struct ProgramRunner::Impl {
  Artifact artifact;
  cl_program program = nullptr;
  std::vector<cl_kernel> kernels;  // One per variant; created on first use.

  ~Impl() {
    for (cl_kernel kernel : kernels) {
      if (kernel != nullptr) {
        clReleaseKernel(kernel);
      }
    }
    if (program != nullptr) {
      clReleaseProgram(program);
    }
  }
};

ProgramRunner::ProgramRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProgramRunner::ProgramRunner(ProgramRunner&&) noexcept = default;
ProgramRunner::~ProgramRunner() = default;

bool HasOpenClDevice(GpuTarget* target, std::string* name) {
  *target = Shared().target;
  *name = Shared().name;
  return Shared().queue != nullptr;
}

StatusOr<ProgramRunner> ProgramRunner::Build(const Artifact& artifact, const std::array<uint32_t, 3>& group) {
  Setup& setup = Shared();
  auto impl = std::make_unique<Impl>();
  impl->artifact = artifact;
  const std::string text(artifact.code.begin(), artifact.code.end());
  const char* source = text.c_str();
  impl->program = clCreateProgramWithSource(setup.context, 1, &source, nullptr, nullptr);
  std::string options = artifact.gpu.options;
  for (size_t d = 0; group[0] != 0 && d < 3; ++d) {
    options += std::string(" -DGROUP_") + "XYZ"[d] + "=" + std::to_string(group[d]);
  }
  if (clBuildProgram(impl->program, 1, &setup.device, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
    std::string log(1 << 16, '\0');
    clGetProgramBuildInfo(impl->program, setup.device, CL_PROGRAM_BUILD_LOG, log.size() - 1, log.data(), nullptr);
    return Internal("The program does not build:\n" + std::string(log.c_str()) + "\n" + text);
  }
  impl->kernels.resize(artifact.gpu.variants.size());
  return ProgramRunner(std::move(impl));
}

StatusOr<ir::TrapReport> ProgramRunner::Run(const ir::Launch& launch, const ir::AddressSpace& space, uint32_t variant,
                                            uint64_t start) {
  Setup& setup = Shared();
  const GpuVariant& form = impl_->artifact.gpu.variants[variant];
  cl_kernel& kernel = impl_->kernels[variant];
  if (kernel == nullptr) {
    kernel = clCreateKernel(impl_->program, form.entry.c_str(), nullptr);
  }
  if (kernel == nullptr) {
    return Internal("There is no kernel " + form.entry + ".");
  }
  const auto& params = impl_->artifact.params;
  std::vector<cl_mem> memory(params.size());
  for (size_t k = 0; k < params.size(); ++k) {
    if (params[k].is_buffer) {
      const uint64_t bytes = Held(launch.arguments[k]);
      memory[k] = clCreateBuffer(setup.context, CL_MEM_READ_WRITE, start + (bytes + 7) / 8 * 8 + 8, nullptr, nullptr);
      if (bytes != 0) {
        clEnqueueWriteBuffer(setup.queue, memory[k], CL_TRUE, start, bytes, launch.arguments[k].data, 0, nullptr,
                             nullptr);
      }
    }
  }
  GpuTrapRecord record;
  cl_mem traps =
      clCreateBuffer(setup.context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(record), &record, nullptr);
  cl_int error = CL_SUCCESS;
  // Runs groups one by one, because the last ones may be partial.
  const bool by_groups = impl_->artifact.uses_barrier || impl_->artifact.uses_group_memory;
  uint64_t parts = launch.instances() == 0 ? 0 : 1;
  for (int d = 0; by_groups && d < 3; ++d) {
    parts *= (launch.extent[d] + launch.group[d] - 1) / launch.group[d];
  }
  for (uint64_t part = 0; part < parts && error == CL_SUCCESS; ++part) {
    ir::Box box{{}, launch.extent};
    if (by_groups) {
      box = ir::BoxOfGroup(launch, part);
    }
    for (cl_uint i = 0; i < form.arguments.size() && error == CL_SUCCESS; ++i) {
      const GpuArgument& argument = form.arguments[i];
      if (argument.kind == GpuArgument::Kind::kBuffer || argument.kind == GpuArgument::Kind::kTrapRecord) {
        cl_mem& passed = argument.kind == GpuArgument::Kind::kBuffer ? memory[argument.index] : traps;
        error = clSetKernelArg(kernel, i, sizeof(cl_mem), &passed);
      } else {
        const uint64_t value = ValueOf(argument, launch, space, box.origin, start);
        error = clSetKernelArg(kernel, i, argument.bytes, &value);
      }
    }
    size_t global[3], local[3];
    for (int d = 0; d < 3; ++d) {
      global[d] = box.size[d] / form.tile[d];
      local[d] = by_groups ? global[d] : 1;
    }
    if (error == CL_SUCCESS) {
      error = clEnqueueNDRangeKernel(setup.queue, kernel, 3, nullptr, global, local, 0, nullptr, nullptr);
    }
  }
  clEnqueueReadBuffer(setup.queue, traps, CL_TRUE, 0, sizeof(record), &record, 0, nullptr, nullptr);
  for (size_t k = 0; k < params.size(); ++k) {
    if (params[k].is_buffer) {
      if (Held(launch.arguments[k]) != 0) {
        clEnqueueReadBuffer(setup.queue, memory[k], CL_TRUE, start, Held(launch.arguments[k]), launch.arguments[k].data,
                            0, nullptr, nullptr);
      }
      clReleaseMemObject(memory[k]);
    }
  }
  clReleaseMemObject(traps);
  if (error != CL_SUCCESS) {
    return Internal("OpenCL error " + std::to_string(error) + ".");
  }
  ir::TrapReport report;
  if (record.state != 0) {
    report.code = static_cast<ir::TrapCode>(record.code & 0xffff);
    report.instance = {record.instance[0], record.instance[1], record.instance[2]};
    report.function = record.function;
    report.source = record.source;
    report.address = record.address;
    report.bytes = record.code >> 16;
  }
  return report;
}

}  // namespace hpvm::opencl::testing
