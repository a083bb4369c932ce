// SPDX-License-Identifier: Apache-2.0
#include "backends/opencl/executable.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/opencl/kernel_check.h"
#include "backends/opencl/program.h"

namespace hpvm::opencl {
namespace {

using Kind = GpuArgument::Kind;

Status CheckForm(const Artifact& artifact) {
  if (artifact.kind != ArtifactKind::kOpenCl || artifact.gpu.format == GpuFormat::kNone ||
      artifact.gpu.format == GpuFormat::kSpirvShader) {
    return InvalidArgument("The artifact of kernel \"" + artifact.entry + "\" is not for an OpenCL device.");
  }
  return ValidateGpuCode(artifact.gpu, artifact.params.size());
}

// The reason why a module was refused is the author's concern only if the code is the author's.
Status Blame(Status status, const Artifact& artifact) {
  if (status.ok() || artifact.gpu.is_native || status.code() != absl::StatusCode::kInvalidArgument) {
    return status;
  }
  return Internal("The driver refuses code that was generated for it. " + Message(status));
}

StatusOr<Program> BuildByDriver(const Found& found, cl_context context, const Artifact& artifact,
                                const std::string& options, DriverBuilder* builder, const Patience& patience) {
  if (builder == nullptr) {
    return BuildProgram(found, context, artifact.gpu.format, artifact.code, options, nullptr);
  }
  DriverBuild build;
  build.device = found.info.id;
  build.format = artifact.gpu.format;
  build.code = artifact.code;
  build.options = options;
  for (const GpuVariant& variant : artifact.gpu.variants) {
    build.entries.push_back(variant.entry);
    if (variant.group[0] != 0) {
      build.groups.push_back(variant.group);
    }
  }
  build.variants = artifact.gpu.variants;
  HPVMD_ASSIGN_OR_RETURN(const DriverBinary binary, builder->Build(build, patience));
  return BuildProgram(found, context, GpuFormat::kBitstream, binary.bytes, "", nullptr);
}

}  // namespace

OpenClExecutable::OpenClExecutable(Artifact artifact) : artifact_(std::move(artifact)) {}

StatusOr<std::unique_ptr<OpenClExecutable>> OpenClExecutable::Load(const Found& found, cl_context context,
                                                                   Artifact artifact, const ExecutableOptions& options,
                                                                   const Patience& patience) {
  HPVMD_RETURN_IF_ERROR(CheckForm(artifact));
  std::unique_ptr<OpenClExecutable> executable(new OpenClExecutable(std::move(artifact)));
  const Status status = Blame(executable->Build(found, context, options, patience), executable->artifact_);
  if (!status.ok()) {
    return While(status, "loading kernel \"" + executable->artifact_.entry + "\"");
  }
  return executable;
}

Status OpenClExecutable::Build(const Found& found, cl_context context, const ExecutableOptions& options,
                               const Patience& patience) {
  found_ = found;
  context_ = context;
  options_ = options;
  HPVMD_ASSIGN_OR_RETURN(built_, BuildFor(artifact_.gpu.options, patience));
  reader_ = std::make_unique<gpu::LaunchReader>(artifact_);
  chooser_ = gpu::CreateChooser(artifact_, found_.info.gpu, options.forced, options.tuning);
  for (size_t i = 0; i < built_.variants.size(); ++i) {
    const GpuVariant& variant = artifact_.gpu.variants[i];
    can_trap_ |= variant.can_trap && std::ranges::any_of(variant.arguments, [](const GpuArgument& argument) {
                   return argument.kind == Kind::kTrapRecord;
                 });
    if (const uint64_t most = built_.variants[i].group_max; !CanDeclareGroups() && most < target().group_size_max) {
      chooser_->Limit(static_cast<uint32_t>(i), static_cast<uint32_t>(most));
    }
  }
  if (artifact_.gpu.format == GpuFormat::kBitstream) {
    cl_int error = CL_SUCCESS;
    queue_ = Queue(clCreateCommandQueue(context, found.device, CL_QUEUE_PROFILING_ENABLE, &error));
    HPVMD_RETURN_IF_ERROR(FromCl(error, "Creating a queue for kernel \"" + artifact_.entry + "\""));
  }
  return absl::OkStatus();
}

StatusOr<OpenClExecutable::Built> OpenClExecutable::BuildFor(const std::string& build_options,
                                                             const Patience& patience) {
  Built built;
  HPVMD_ASSIGN_OR_RETURN(built.program,
                         BuildByDriver(found_, context_, artifact_, build_options, options_.builder, patience));
  for (const GpuVariant& variant : artifact_.gpu.variants) {
    HPVMD_RETURN_IF_ERROR(CreateVariant(variant, built));
  }
  return built;
}

Status OpenClExecutable::CreateVariant(const GpuVariant& variant, Built& built) {
  cl_int error = CL_SUCCESS;
  Variant made;
  made.kernel = Kernel(clCreateKernel(built.program.get(), variant.entry.c_str(), &error));
  if (error == CL_INVALID_KERNEL_NAME) {
    return InvalidArgument("The module has no kernel \"" + variant.entry + "\".");
  }
  HPVMD_RETURN_IF_ERROR(FromCl(error, "Creating kernel \"" + variant.entry + "\""));
  HPVMD_RETURN_IF_ERROR(CheckKernel(made.kernel.get(), variant, artifact_));
  made.has_start.resize(artifact_.params.size());
  for (const GpuArgument& argument : variant.arguments) {
    if (argument.kind == Kind::kBufferStart) {
      made.has_start[argument.index] = true;
    }
  }
  made.last.resize(variant.arguments.size());
  made.is_set.resize(variant.arguments.size());
  size_t group_max = 0;
  if (clGetKernelWorkGroupInfo(made.kernel.get(), found_.device, CL_KERNEL_WORK_GROUP_SIZE, sizeof(group_max),
                               &group_max, nullptr) != CL_SUCCESS ||
      group_max == 0) {
    group_max = target().group_size_max;
  }
  made.group_max = std::min<uint64_t>(group_max, target().group_size_max);
  if (options_.undeclared_group_max != 0) {
    made.group_max = std::min<uint64_t>(made.group_max, options_.undeclared_group_max);
  }
  built.variants.push_back(std::move(made));
  return absl::OkStatus();
}

// Code from this project's compiler can declare the group (compiler/back/opencl).
bool OpenClExecutable::CanDeclareGroups() const {
  return !artifact_.gpu.is_native && artifact_.gpu.format == GpuFormat::kOpenClC &&
         (artifact_.uses_barrier || artifact_.uses_group_memory);
}

StatusOr<OpenClExecutable::Variant*> OpenClExecutable::VariantFor(const gpu::Part& part) {
  // Groups at a launch's sides are smaller, so one launch has few; a graph's group may come from a symbol.
  constexpr size_t kDeclaredMax = 16;
  const uint64_t size = uint64_t{part.group[0]} * part.group[1] * part.group[2];
  if (size <= built_.variants[part.variant].group_max || !CanDeclareGroups()) {
    return &built_.variants[part.variant];
  }
  auto found = declared_.find(part.group);
  if (found == declared_.end()) {
    std::string options = artifact_.gpu.options;
    for (size_t d = 0; d < 3; ++d) {
      options += std::string(" -DGROUP_") + "XYZ"[d] + "=" + std::to_string(part.group[d]);
    }
    StatusOr<Built> built = BuildFor(options, Patience());
    if (!built.ok()) {
      return While(Blame(built.status(), artifact_),
                   "building kernel \"" + artifact_.entry + "\" for groups of " + std::to_string(size) + " work items");
    }
    if (declared_.size() == kDeclaredMax) {
      declared_.clear();
    }
    found = declared_.emplace(part.group, *std::move(built)).first;
  }
  return &found->second.variants[part.variant];
}

// Kernels that receive the start of a view get the whole buffer; for others the view must be a separate object.
StatusOr<MemoryRef> OpenClExecutable::MemoryOf(const Variant& variant, uint32_t param,
                                               const gpu::LaunchInputs& inputs) const {
  auto& buffer = static_cast<OpenClBuffer&>(*inputs.buffers[param]);
  const gpu::LaunchFacts::Param& fact = inputs.facts.params[param];
  if (variant.has_start[param] || fact.start == 0) {
    return buffer.whole();
  }
  if (fact.start % found_.view_alignment != 0) {
    return FailedPrecondition("The view for parameter \"" + artifact_.params[param].name + "\" of kernel \"" +
                              artifact_.entry + "\" begins at byte " + std::to_string(fact.start) +
                              " of its buffer; the device needs a multiple of " +
                              std::to_string(found_.view_alignment) + " for modules of its own kind.");
  }
  return fact.value == 0 ? buffer.whole() : buffer.View(fact.start, fact.value);
}

StatusOr<cl_kernel> OpenClExecutable::Prepare(const gpu::LaunchInputs& inputs, const gpu::Part& part,
                                              const TrapTarget& traps) {
  HPVMD_ASSIGN_OR_RETURN(Variant* const chosen, VariantFor(part));
  Variant& variant = *chosen;
  const std::vector<GpuArgument>& arguments = artifact_.gpu.variants[part.variant].arguments;
  gpu::ValueSource source;
  source.facts = &inputs.facts;
  source.part = &part;
  source.base = inputs.base;
  source.group_base = inputs.group_base;
  source.trap_index = traps.index;
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    const GpuArgument& argument = arguments[i];
    const bool is_memory = argument.kind == Kind::kBuffer || argument.kind == Kind::kTrapRecord;
    MemoryRef memory;
    uint64_t bits;
    if (argument.kind == Kind::kBuffer) {
      HPVMD_ASSIGN_OR_RETURN(memory, MemoryOf(variant, argument.index, inputs));
      bits = memory.serial;
    } else if (is_memory) {
      memory = traps.records;
      bits = memory.serial;
    } else if (argument.kind == Kind::kBufferStart) {
      bits = inputs.facts.params[argument.index].start;
    } else {
      bits = gpu::ValueOf(argument, source);
    }
    if (variant.is_set[i] && variant.last[i] == bits) {
      continue;
    }
    const cl_int error = is_memory ? clSetKernelArg(variant.kernel.get(), i, sizeof(cl_mem), &memory.memory)
                                   : clSetKernelArg(variant.kernel.get(), i, argument.bytes, &bits);
    if (error != CL_SUCCESS) [[unlikely]] {
      variant.is_set[i] = false;
      return FromCl(error, "Setting argument " + std::to_string(i) + " of kernel \"" + artifact_.entry + "\"");
    }
    variant.last[i] = bits;
    variant.is_set[i] = true;
  }
  return variant.kernel.get();
}

}  // namespace hpvm::opencl
