// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/program.h"

#include <algorithm>

namespace hpvm::opencl {
namespace {

// Part of a log that is passed on: the first errors and their places.
constexpr size_t kLogBytesMax = 8 * 1024;

// Drivers that compile from a file name the temporary file on the host: "/tmp/x.cl:2:10" becomes "source:2:10".
std::string WithoutPaths(std::string_view log) {
  std::string text;
  for (size_t at = 0; at < log.size();) {
    const bool begins =
        log[at] == '/' && (at == 0 || std::string_view(" \t\n'\"(").find(log[at - 1]) != std::string_view::npos);
    const size_t end = begins ? std::min(log.find_first_of(" \t\n'\":()", at), log.size()) : at;
    if (begins && end + 1 < log.size() && log[end] == ':' && log[end + 1] >= '0' && log[end + 1] <= '9') {
      text += "source";
      at = end;
      continue;
    }
    text += log[at++];
  }
  return text;
}

std::string LogOf(const Found& found, cl_program program) {
  size_t bytes = 0;
  if (clGetProgramBuildInfo(program, found.device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &bytes) != CL_SUCCESS ||
      bytes == 0) {
    return "";
  }
  std::string log(bytes, '\0');
  if (clGetProgramBuildInfo(program, found.device, CL_PROGRAM_BUILD_LOG, bytes, log.data(), nullptr) != CL_SUCCESS) {
    return "";
  }
  log.resize(std::min(log.find('\0'), log.size()));
  for (char& c : log) {
    if (static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') {
      c = ' ';
    }
  }
  const size_t first = log.find_first_not_of(" \n\t");
  log.erase(0, std::min(first, log.size()));
  log.erase(log.find_last_not_of(" \n\t") + 1);
  log = WithoutPaths(log);
  if (log.size() > kLogBytesMax) {
    log.resize(kLogBytesMax);
    log += " ...";
  }
  return log;
}

std::string_view FormName(GpuFormat format) {
  switch (format) {
    case GpuFormat::kOpenClC:
      return "OpenCL C";
    case GpuFormat::kSpirvKernel:
      return "kernel-flavoured SPIR-V";
    case GpuFormat::kPtx:
      return "PTX";
    case GpuFormat::kSpirBitcode:
      return "SPIR bitcode";
    case GpuFormat::kBitstream:
      return "program binary";
    default:
      return "code of an unknown form";
  }
}

Program FromBinary(const Found& found, cl_context context, std::span<const uint8_t> code, cl_int* error) {
  const unsigned char* data = code.data();
  const size_t bytes = code.size();
  cl_int binary_status = CL_SUCCESS;
  Program program(clCreateProgramWithBinary(context, 1, &found.device, &bytes, &data, &binary_status, error));
  if (*error == CL_SUCCESS && binary_status != CL_SUCCESS) {
    *error = binary_status;
  }
  return program;
}

StatusOr<Program> CreateProgram(const Found& found, cl_context context, GpuFormat format,
                                std::span<const uint8_t> code) {
  cl_int error = CL_SUCCESS;
  Program program;
  switch (format) {
    case GpuFormat::kOpenClC: {
      const auto* text = reinterpret_cast<const char*>(code.data());
      const size_t bytes = code.size();
      program = Program(clCreateProgramWithSource(context, 1, &text, &bytes, &error));
      break;
    }
    case GpuFormat::kSpirvKernel:
      if (found.create_with_il == nullptr) {
        return FailedPrecondition("Device \"" + found.info.id + "\" takes no SPIR-V.");
      }
      program = Program(found.create_with_il(context, code.data(), code.size(), &error));
      break;
    case GpuFormat::kPtx:
    case GpuFormat::kSpirBitcode:
    case GpuFormat::kBitstream:
      program = FromBinary(found, context, code, &error);
      break;
    default:
      return FailedPrecondition("Device \"" + found.info.id + "\" takes no " + std::string(FormName(format)) + ".");
  }
  if (error == CL_SUCCESS && program) {
    return program;
  }
  const Status status = FromCl(error, "Creating a program of " + std::string(FormName(format)));
  if (status.code() == absl::StatusCode::kResourceExhausted || error == CL_INVALID_CONTEXT) {
    return status;
  }
  return InvalidArgument("The driver of device \"" + found.info.id + "\" refuses the " + std::string(FormName(format)) +
                         " with " + ErrorName(error) + ".");
}

std::string OptionsFor(GpuFormat format, const std::string& options) {
  switch (format) {
    case GpuFormat::kOpenClC:
      return options + (options.empty() ? "" : " ") + "-cl-kernel-arg-info";
    case GpuFormat::kSpirBitcode:
      return options + (options.empty() ? "" : " ") + "-x spir -spir-std=1.2";
    case GpuFormat::kBitstream:
      return "";  // The options are in the binary.
    default:
      return options;
  }
}

Status Refusal(const Found& found, cl_int error, GpuFormat format, const std::string& options, const std::string& log) {
  switch (error) {
    case CL_OUT_OF_HOST_MEMORY:
    case CL_OUT_OF_RESOURCES:
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
      return FromCl(error, "Building a program");
    case CL_COMPILER_NOT_AVAILABLE:
      return FailedPrecondition("The driver of device \"" + found.info.id + "\" has no compiler.");
    case CL_INVALID_BUILD_OPTIONS:
      return InvalidArgument("The driver of device \"" + found.info.id + "\" refuses the build options \"" + options +
                             "\"" + (log.empty() ? "." : ":\n" + log));
    default:
      return InvalidArgument("The driver of device \"" + found.info.id + "\" refuses the " +
                             std::string(FormName(format)) +
                             (log.empty() ? " with " + ErrorName(error) + "." : ":\n" + log));
  }
}

}  // namespace

StatusOr<Context> CreateContext(const Found& found) {
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int error = CL_SUCCESS;
  Context context(clCreateContext(properties, 1, &found.device, nullptr, nullptr, &error));
  if (!context) {
    // A device without room for a context will have some when others are gone; any other failure means that the driver
    // does not start.
    const Status status = FromCl(error, "Opening device \"" + found.info.id + "\"");
    return status.code() == absl::StatusCode::kResourceExhausted ? status : Unavailable(Message(status));
  }
  return context;
}

StatusOr<Program> BuildProgram(const Found& found, cl_context context, GpuFormat format, std::span<const uint8_t> code,
                               const std::string& options, std::string* log) {
  if (code.empty()) {
    return InvalidArgument("There is no code to build for device \"" + found.info.id + "\".");
  }
  if (options.find('\0') != std::string::npos) {
    return InvalidArgument("The build options contain a zero byte.");
  }
  HPVMD_ASSIGN_OR_RETURN(Program program, CreateProgram(found, context, format, code));
  const std::string all = OptionsFor(format, options);
  const cl_int error = clBuildProgram(program.get(), 1, &found.device, all.c_str(), nullptr, nullptr);
  const std::string said = LogOf(found, program.get());
  if (error != CL_SUCCESS) {
    return Refusal(found, error, format, options, said);
  }
  if (log != nullptr) {
    *log = said;
  }
  return program;
}

StatusOr<std::vector<uint8_t>> BinaryOf(cl_program program) {
  size_t bytes = 0;
  HPVMD_RETURN_IF_ERROR(FromCl(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, nullptr),
                               "Asking for the size of a program binary"));
  if (bytes == 0) {
    return Unavailable("The driver keeps no binary of the program.");
  }
  std::vector<uint8_t> binary(bytes);
  unsigned char* to = binary.data();
  HPVMD_RETURN_IF_ERROR(
      FromCl(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(to), &to, nullptr), "Reading a program binary"));
  return binary;
}

}  // namespace hpvm::opencl
