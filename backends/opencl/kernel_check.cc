// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/kernel_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace hpvm::opencl {
namespace {

using Kind = GpuArgument::Kind;

std::string ArgumentText(cl_kernel kernel, cl_uint index, cl_kernel_arg_info what) {
  size_t bytes = 0;
  if (clGetKernelArgInfo(kernel, index, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) {
    return "";
  }
  std::string text(bytes, '\0');
  if (clGetKernelArgInfo(kernel, index, what, bytes, text.data(), nullptr) != CL_SUCCESS) {
    return "";
  }
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

// Returns the size of a scalar type; nullopt for names that OpenCL does not define.
std::optional<uint32_t> BytesOf(std::string_view type) {
  struct Row {
    std::string_view name;
    uint32_t bytes;
  };
  static constexpr Row kRows[] = {{"char", 1},  {"uchar", 1},  {"unsigned char", 1},  {"bool", 1},
                                  {"short", 2}, {"ushort", 2}, {"unsigned short", 2}, {"half", 2},
                                  {"int", 4},   {"uint", 4},   {"unsigned int", 4},   {"float", 4},
                                  {"long", 8},  {"ulong", 8},  {"unsigned long", 8},  {"double", 8}};
  for (const Row& row : kRows) {
    if (row.name == type) {
      return row.bytes;
    }
  }
  return std::nullopt;
}

// Returns the name of the parameter behind an argument, for messages.
std::string ParamText(const GpuArgument& argument, const Artifact& artifact) {
  if (argument.kind == Kind::kTrapRecord) {
    return "the buffer of trap records";
  }
  const bool has_param = argument.kind == Kind::kBuffer || argument.kind == Kind::kScalar;
  if (!has_param || argument.index >= artifact.params.size()) {
    return "a number of the launch";
  }
  const ir::KernelParam& param = artifact.params[argument.index];
  return (param.is_buffer ? "buffer \"" : "scalar \"") + param.name + "\"";
}

bool IsMemory(const GpuArgument& argument) {
  return argument.kind == Kind::kBuffer || argument.kind == Kind::kTrapRecord;
}

std::string_view SpaceName(cl_kernel_arg_address_qualifier space) {
  switch (space) {
    case CL_KERNEL_ARG_ADDRESS_GLOBAL:
      return "global";
    case CL_KERNEL_ARG_ADDRESS_CONSTANT:
      return "constant";
    case CL_KERNEL_ARG_ADDRESS_LOCAL:
      return "local";
    default:
      return "private";
  }
}

// Returns why `argument` cannot be passed as the kernel's argument, from "is" on; empty when it can.
std::string Misfit(const GpuArgument& argument, cl_kernel_arg_address_qualifier space, const std::string& type) {
  const bool is_pointer = type.ends_with('*');
  if (IsMemory(argument)) {
    const bool is_global = space == CL_KERNEL_ARG_ADDRESS_GLOBAL || space == CL_KERNEL_ARG_ADDRESS_CONSTANT;
    if (is_global && (is_pointer || type.empty())) {
      return "";
    }
    return is_pointer ? "points to " + std::string(SpaceName(space)) + " memory, but a buffer is global or constant"
                      : "is of type \"" + type + "\" and takes no buffer";
  }
  if (is_pointer || space == CL_KERNEL_ARG_ADDRESS_LOCAL) {
    return "points to " + std::string(SpaceName(space)) + " memory and takes no scalar";
  }
  const std::optional<uint32_t> bytes = BytesOf(type);
  if (!bytes.has_value() || *bytes == argument.bytes) {
    return "";
  }
  return "is of type \"" + type + "\" (" + std::to_string(*bytes) + (*bytes == 1 ? " byte)" : " bytes)") +
         ", but is given " + std::to_string(argument.bytes) + " bytes";
}

Status CheckArgument(cl_kernel kernel, cl_uint index, const GpuArgument& argument, const Artifact& artifact) {
  cl_kernel_arg_address_qualifier space = 0;
  if (clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof(space), &space, nullptr) ==
      CL_SUCCESS) {
    const std::string wrong = Misfit(argument, space, ArgumentText(kernel, index, CL_KERNEL_ARG_TYPE_NAME));
    if (!wrong.empty()) {
      const std::string name = ArgumentText(kernel, index, CL_KERNEL_ARG_NAME);
      return InvalidArgument("Argument " + std::to_string(index) + (name.empty() ? "" : " (\"" + name + "\")") +
                             " of kernel \"" + artifact.entry + "\" " + wrong + "; the graph passes " +
                             ParamText(argument, artifact) + " there.");
    }
  }
  // Drivers that give no information on arguments still check their sizes.
  const std::array<uint8_t, 8> zeros{};
  const size_t bytes = IsMemory(argument) ? sizeof(cl_mem) : argument.bytes;
  const cl_int error = clSetKernelArg(kernel, index, bytes, zeros.data());
  if (error == CL_INVALID_ARG_SIZE || error == CL_INVALID_ARG_VALUE) {
    return InvalidArgument("Argument " + std::to_string(index) + " of kernel \"" + artifact.entry + "\" does not fit " +
                           ParamText(argument, artifact) + ", which the graph passes there (" + ErrorName(error) +
                           ").");
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckKernel(cl_kernel kernel, const GpuVariant& variant, const Artifact& artifact) {
  cl_uint count = 0;
  HPVMD_RETURN_IF_ERROR(FromCl(clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count, nullptr),
                               "Asking for the arguments of kernel \"" + artifact.entry + "\""));
  if (count != variant.arguments.size()) {
    return InvalidArgument("Kernel \"" + artifact.entry + "\" takes " + std::to_string(count) +
                           (count == 1 ? " argument" : " arguments") + "; the graph passes " +
                           std::to_string(variant.arguments.size()) + ".");
  }
  for (cl_uint i = 0; i < count; ++i) {
    HPVMD_RETURN_IF_ERROR(CheckArgument(kernel, i, variant.arguments[i], artifact));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::opencl
