// SPDX-License-Identifier: Apache-2.0
#include "backends/interp/device.h"

#include <utility>

#include "backends/shared/host_buffer.h"
#include "backends/shared/host_queue.h"
#include "backends/shared/launch_part.h"
#include "base/limits.h"
#include "compiler/api/source_text.h"
#include "compiler/ir/check.h"
#include "compiler/ir/interpret/interpret.h"
#include "compiler/ir/text/text.h"

namespace hpvm {
namespace {

class InterpExecutable final : public Executable {
 public:
  InterpExecutable(Artifact artifact, ir::Interpreter interpreter)
      : artifact_(std::move(artifact)), interpreter_(std::move(interpreter)) {}
  const Artifact& artifact() const override { return artifact_; }
  const ir::Interpreter& interpreter() const { return interpreter_; }

 private:
  const Artifact artifact_;
  const ir::Interpreter interpreter_;
};

Status CheckParams(const Artifact& artifact, const ir::Module& module) {
  bool same = artifact.params.size() == module.params.size();
  for (size_t i = 0; same && i < module.params.size(); ++i) {
    const ir::KernelParam& a = artifact.params[i];
    const ir::KernelParam& b = module.params[i];
    same = a.is_buffer == b.is_buffer && a.is_writable == b.is_writable && a.type == b.type;
  }
  return same ? absl::OkStatus()
              : InvalidArgument("The parameters of kernel \"" + artifact.entry + "\" differ from those of its code.");
}

Finding Describe(const ir::Finding& found, uint32_t node, const InterpExecutable& executable) {
  const Artifact& artifact = executable.artifact();
  const auto place = [&](uint32_t source) { return PlaceOf(artifact, source); };
  Finding finding;
  finding.node = node;
  finding.kind = ir::Name(found.kind);
  finding.message = ir::ToString(found, executable.interpreter().module(), place);
  finding.instances.push_back(found.first.instance);
  if (found.second.has_value()) {
    finding.instances.push_back(found.second->instance);
  }
  if (found.memory == ir::FindingMemory::kBuffer && found.param < artifact.params.size()) {
    finding.buffer = artifact.params[found.param].name;
  }
  finding.place = place(found.first.source);
  finding.count = found.count;
  return finding;
}

void Report(const ir::Checker& checker, uint32_t node, const InterpExecutable& executable, LaunchLog& log) {
  for (const ir::Finding& found : checker.findings()) {
    log.AddFinding(Describe(found, node, executable));
  }
  log.DropFindings(checker.dropped());
  if (!checker.is_complete()) {
    log.SetCheckIncomplete();
  }
}

// Runs row by row: units of a launch are numbered x fastest. A checked launch is also checked row by row.
StatusOr<ir::TrapReport> RunPart(const ir::Interpreter& interpreter, const ir::Launch& launch,
                                 const backends::LaunchPart& part) {
  std::array<uint64_t, 3> from = part.from, to = part.to, units = launch.extent;
  if (ir::RunsByGroups(interpreter.module())) {
    for (size_t d = 0; d < 3; ++d) {
      const uint64_t group = launch.group[d];
      from[d] /= group;
      to[d] = (to[d] + group - 1) / group;
      units[d] = (units[d] + group - 1) / group;
    }
  }
  for (uint64_t z = from[2]; z < to[2]; ++z) {
    for (uint64_t y = from[1]; y < to[1]; ++y) {
      const uint64_t row = (z * units[1] + y) * units[0];
      HPVMD_ASSIGN_OR_RETURN(const ir::TrapReport trap,
                             interpreter.Run(launch, {.begin = row + from[0], .end = row + to[0]}));
      if (trap.code != ir::TrapCode::kNone) {
        return trap;
      }
    }
  }
  return ir::TrapReport{};
}

class InterpDevice final : public Device, private backends::CommandTarget {
 public:
  explicit InterpDevice(Hub& hub) : Device(hub), queue_(hub, *this) {
    info_.id = "interp:0";
    info_.kind = DeviceKind::kInterp;
    info_.artifact_kind = ArtifactKind::kInterp;
    info_.name = "Reference interpreter";
    info_.silicon = "cpu";
    info_.memory_bytes = 16 * limits::kGiB;
    info_.allocation_bytes_max = info_.memory_bytes;
    info_.host_visible = true;
    info_.runs_inline = true;
    info_.checks = true;
  }

  const DeviceInfo& info() const override { return info_; }

  Support Supports(const KernelNeeds& needs) const override {
    if (needs.kind != ArtifactKind::kInterp) {
      return {false, "The interpreter runs kernel IR only."};
    }
    return {};
  }

  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience&) override {
    if (artifact.kind != ArtifactKind::kInterp) {
      return InvalidArgument("The artifact of kernel \"" + artifact.entry + "\" is not kernel IR.");
    }
    const std::string_view text(reinterpret_cast<const char*>(artifact.code.data()), artifact.code.size());
    HPVMD_ASSIGN_OR_RETURN(ir::Module module, ir::ParseModule(text));
    HPVMD_RETURN_IF_ERROR(CheckParams(artifact, module));
    HPVMD_ASSIGN_OR_RETURN(ir::Interpreter interpreter, ir::Interpreter::Create(std::move(module)));
    return std::make_unique<InterpExecutable>(std::move(artifact), std::move(interpreter));
  }

  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    return backends::AllocateHostBuffer(spec, info_.allocation_bytes_max);
  }
  Status Submit(const Submission& submission) override {
    queue_.Submit(submission);
    return absl::OkStatus();
  }

 private:
  Status Run(const Command& command, const Submission& submission, backends::CommandRecord* record) override {
    if (const auto* copy = std::get_if<CopyCommand>(&command)) {
      return backends::RunCopy(*copy, submission);
    }
    if (const auto* fill = std::get_if<FillCommand>(&command)) {
      return backends::RunFill(*fill, submission);
    }
    return Dispatch(std::get<DispatchCommand>(command), submission, record);
  }

  Status Dispatch(const DispatchCommand& dispatch, const Submission& submission, backends::CommandRecord* record) {
    HPVMD_RETURN_IF_ERROR(backends::CheckDispatch(dispatch, submission));
    const auto& executable = static_cast<const InterpExecutable&>(*dispatch.executable);
    HPVMD_ASSIGN_OR_RETURN(const backends::LaunchPart part, backends::PartOf(dispatch, submission));
    if (part.is_empty) {
      return absl::OkStatus();
    }
    ir::Launch launch;
    launch.extent = part.extent;
    launch.group = dispatch.group;
    launch.stop = submission.stop;
    LaunchPrinter printer(submission.log, dispatch.node, executable.artifact());
    launch.print = &printer;
    ir::CheckOptions options{.is_output = std::vector<bool>(dispatch.argument_count),
                             .findings_max = limits::kFindingsMax,
                             .record_bytes_max = limits::kCheckRecordBytesMax};
    for (uint32_t i = 0; i < dispatch.argument_count; ++i) {
      const DispatchArgument& argument = submission.commands->arguments[dispatch.first_argument + i];
      if (argument.is_buffer) {
        uint8_t* data = submission.buffers[argument.slot]->host() + argument.offset;
        launch.arguments.push_back({data, argument.bytes, 0});
        options.is_output[i] = argument.is_output;
      } else {
        const uint64_t bits = argument.slot == kNoSlot ? argument.scalar : submission.scalars[argument.slot];
        launch.arguments.push_back({nullptr, 0, bits});
      }
    }
    ir::Checker checker(std::move(options));
    launch.checker = submission.check ? &checker : nullptr;
    HPVMD_ASSIGN_OR_RETURN(record->trap, part.is_whole ? executable.interpreter().Run(launch)
                                                       : RunPart(executable.interpreter(), launch, part));
    if (submission.check && submission.log != nullptr) {
      Report(checker, dispatch.node, executable, *submission.log);
    }
    if (record->trap.code != ir::TrapCode::kNone) {
      return backends::TrapStatus(record->trap, DescribeTrap(record->trap, executable.artifact()));
    }
    return absl::OkStatus();
  }

  DeviceInfo info_;
  backends::HostQueue queue_;  // Last member, so that it stops before the members that it uses are destroyed.
};

}  // namespace

std::unique_ptr<Device> CreateInterpDevice(Hub& hub) { return std::make_unique<InterpDevice>(hub); }

const DeviceFamily kInterpFamily = {
    .name = "interp",
    .open = [](std::string_view, Hub& hub, const DeviceOptions&) -> StatusOr<std::unique_ptr<Device>> {
      return CreateInterpDevice(hub);
    }};

}  // namespace hpvm
