// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/compile.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "compiler/api/source_text.h"
#include "compiler/back/back_ends.h"
#include "compiler/debug/source_info.h"
#include "compiler/driver/compile_native.h"
#include "compiler/driver/explain.h"
#include "compiler/driver/infer_params.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/text/text.h"
#include "compiler/pass/check_barriers.h"
#include "compiler/pass/count_work.h"
#include "compiler/pass/cut_panics.h"
#include "compiler/pass/find_bounds.h"
#include "compiler/pass/pipeline.h"

namespace hpvm::compile {
namespace {

#ifdef NDEBUG
constexpr bool kVerifyEach = false;
#else
constexpr bool kVerifyEach = true;
#endif

uint64_t NsSince(Time begin) { return static_cast<uint64_t>((RealClock().Now() - begin).count()); }

// The interpreter is the reference for other targets: it computes exactly, whatever a node says.
bool IsFast(const CompileRequest& request) { return request.fast_math && request.target != ArtifactKind::kInterp; }

Artifact InterpArtifact(const ir::Module& module) {
  Artifact artifact = DescribeModule(module);
  artifact.kind = ArtifactKind::kInterp;
  // The text contains the data and the state; only printed strings are looked up in the artifact's data.
  if (artifact.formats.empty()) {
    artifact.data.clear();
  }
  artifact.state.clear();
  std::string text = ir::Print(module);
  artifact.code.assign(text.begin(), text.end());
  return artifact;
}

// Source lines are looked up only when there is a diagnostic.
void RefuseBarriers(const CompileRequest& request, std::span<const uint8_t> bytes, const ir::Module& module,
                    Diagnostics* diagnostics) {
  const std::string place = "module \"" + request.module_name + "\"";
  Diagnostics found, unused;
  pass::CheckBarriers(module, place, found);
  if (found.empty()) {
    return;
  }
  Artifact outline = DescribeModule(module);
  outline.module_name = request.module_name;
  debug::AddSourceInfo(bytes, module, {}, &outline, &unused);
  if (!outline.lines.empty()) {
    found.clear();
    pass::CheckBarriers(module, place, found, [&](uint32_t source) { return PlaceOf(outline, source); });
  }
  diagnostics->insert(diagnostics->end(), found.begin(), found.end());
}

// Returns the request with inferred parameters instead of none.
std::optional<CompileRequest> WithParams(const CompileRequest& request, std::span<const uint8_t> bytes,
                                         Diagnostics* diagnostics) {
  wasm::ReadOutcome read = wasm::ReadWasm(
      bytes, {.entry = request.entry, .params = {}, .module_name = request.module_name, .takes_any_params = true});
  if (!read.module.has_value()) {
    *diagnostics = std::move(read.diagnostics);
    return std::nullopt;
  }
  StatusOr<std::vector<ParamSpec>> params = InferParams(*std::move(read.module), request.abi);
  if (!params.ok()) {
    AddError(request, Message(params.status()), *diagnostics);
    return std::nullopt;
  }
  CompileRequest known = request;
  known.params = *std::move(params);
  known.infers_params = false;
  return known;
}

cpu::CpuText TextOf(Listing listing) {
  return listing == Listing::kLlvm ? cpu::CpuText::kLlvm : cpu::CpuText::kAssembly;
}

// Emits the image, and the requested text. A processor for which only text can be made gets no image.
StatusOr<Artifact> EmitExplained(const CompileRequest& request, const ir::Module& module, const cpu::CpuTarget& target,
                                 KernelReport report) {
  const cpu::CpuOptions options{.fast_math = request.fast_math, .report = &report};
  const bool has_image = target.level != "aarch64";
  StatusOr<Artifact> artifact = has_image ? cpu::EmitCpuImage(module, target, options) : InterpArtifact(module);
  if (!artifact.ok()) {
    return artifact.status();
  }
  artifact->target = target.level;
  if (request.listing == Listing::kIr) {
    artifact->listing = ir::Print(module);
  }
  if (!has_image || request.listing == Listing::kLlvm || request.listing == Listing::kAssembly) {
    // The report was made with the image.
    const cpu::CpuOptions quiet{.fast_math = request.fast_math, .report = has_image ? nullptr : &report};
    HPVMD_ASSIGN_OR_RETURN(std::string text, cpu::EmitCpuText(module, target, TextOf(request.listing), quiet));
    if (request.listing == Listing::kLlvm || request.listing == Listing::kAssembly) {
      artifact->listing = std::move(text);
    }
  }
  const ir::BoundsProgram bounds = has_image ? artifact->bounds : pass::FindBounds(module);
  ExplainBounds(module, bounds, &report);
  ExplainParts(module, bounds, &report);
  ExplainCalls(module, &report);
  SortReport(&report);
  artifact->remarks = std::move(report.remarks);
  return artifact;
}

StatusOr<Artifact> EmitForHost(const CompileRequest& request, const ir::Module& module, const cpu::CpuTarget& target,
                               KernelReport report) {
  if (request.target == ArtifactKind::kInterp) {
    return InterpArtifact(module);
  }
  if (request.explain) {
    return EmitExplained(request, module, request.level.empty() ? target : cpu::CpuTarget{request.level},
                         std::move(report));
  }
  return cpu::EmitCpuImage(module, target, {.fast_math = request.fast_math});
}

// Returns nothing when `diagnostics` has an error.
std::optional<Artifact> EmitGpu(const CompileRequest& request, const ir::Module& module, KernelReport* report,
                                Diagnostics& diagnostics) {
  const gpu::BackEnd* const back = gpu::FindBackEnd(request.target);
  if (back == nullptr) {
    AddError(request, "This compiler was built without the back end for the device.", diagnostics);
    return std::nullopt;
  }
  return back->emit(module, request.gpu, {.fast_math = request.fast_math, .report = report}, diagnostics);
}

// Refuses texts that exist only for processors.
Status CheckListing(const CompileRequest& request) {
  if (request.listing == Listing::kLlvm || request.listing == Listing::kAssembly) {
    return InvalidArgument(
        "LLVM IR and assembly exist for the host's processor only; for a GPU ask for the kernel IR (ir) or the text "
        "that its driver gets (device).");
  }
  return absl::OkStatus();
}

std::optional<Artifact> EmitForGpu(const CompileRequest& request, const ir::Module& module, KernelReport report,
                                   Diagnostics& diagnostics) {
  if (Status allowed = CheckListing(request); !allowed.ok()) {
    AddError(request, Message(allowed), diagnostics);
    return std::nullopt;
  }
  std::optional<Artifact> artifact = EmitGpu(request, module, request.explain ? &report : nullptr, diagnostics);
  if (!artifact.has_value() || !request.explain) {
    return artifact;
  }
  if (request.listing == Listing::kIr) {
    artifact->listing = ir::Print(module);
  } else if (Status listed = AddDeviceListing(request, *artifact); !listed.ok()) {
    AddError(request, Message(listed), diagnostics);
    return std::nullopt;
  }
  ExplainBounds(module, artifact->bounds, &report);
  ExplainParts(module, artifact->bounds, &report);
  ExplainVariants(artifact->gpu, &report);
  SortReport(&report);
  artifact->remarks = std::move(report.remarks);
  return artifact;
}

std::optional<Artifact> EmitFor(const CompileRequest& request, const ir::Module& module, const cpu::CpuTarget& target,
                                KernelReport report, Diagnostics& diagnostics) {
  if (IsGpuCode(request.target)) {
    return EmitForGpu(request, module, std::move(report), diagnostics);
  }
  StatusOr<Artifact> artifact = EmitForHost(request, module, target, std::move(report));
  if (!artifact.ok()) {
    AddError(request, Message(artifact.status()), diagnostics);
    return std::nullopt;
  }
  return *std::move(artifact);
}

Status RunPipeline(const CompileRequest& request, ir::Module& module, KernelReport* report) {
  const pass::PipelineOptions options{.verify_each = kVerifyEach,
                                      .report = report,
                                      .unrolls_nests = !request.gpu.is_processor,
                                      .fast_math = IsFast(request)};
  if (request.target == ArtifactKind::kCpuImage) {
    return pass::RunCpuPipeline(module, options);
  }
  return IsGpuCode(request.target) ? pass::RunGpuPipeline(module, options) : absl::OkStatus();
}

// Adds the facts that schedulers need. They are the same for every device, so an interpreter's module goes through the
// processor's passes for them; the artifact's own module is not changed.
Status AddFacts(const CompileRequest& request, const ir::Module& module, Artifact* artifact) {
  const bool is_raw = request.target == ArtifactKind::kInterp;
  ir::Module copy;
  if (is_raw) {
    copy = module;
    HPVMD_RETURN_IF_ERROR(pass::RunCpuPipeline(copy, {.verify_each = kVerifyEach}));
  }
  const ir::Module& cleaned = is_raw ? copy : module;
  pass::BoundsTrace trace;
  artifact->bounds = pass::FindBounds(cleaned, &trace);  // The back end found the same if it needed bounds.
  artifact->work = pass::FindWork(cleaned, trace);
  return absl::OkStatus();
}

CompileResult CompileWasm(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget& target) {
  KernelReport report;
  FrontResult front = PrepareModule(request, bytes, request.explain ? &report : nullptr);
  CompileResult result;
  result.diagnostics = std::move(front.diagnostics);
  if (!front.module.has_value()) {
    return result;
  }
  const Time begin = RealClock().Now();
  std::optional<Artifact> artifact = EmitFor(request, *front.module, target, std::move(report), result.diagnostics);
  if (!artifact.has_value()) {
    return result;
  }
  if (Status added = AddFacts(request, *front.module, &*artifact); !added.ok()) {
    AddError(request, Message(added), result.diagnostics);
    return result;
  }
  artifact->module_name = request.module_name;
  artifact->entry = request.entry;
  artifact->fast_math = IsFast(request);
  debug::AddSourceInfo(bytes, *front.module, front.places, &*artifact, &result.diagnostics);
  artifact->read_ns = front.read_ns;
  artifact->pass_ns = front.pass_ns;
  if (artifact->emit_ns == 0 && IsGpuCode(request.target)) {
    artifact->emit_ns = NsSince(begin);
  }
  result.artifact = *std::move(artifact);
  return result;
}

// The readers of modules, by form. kNone: WebAssembly, for every device.
struct FrontEnd {
  GpuFormat form;
  CompileResult (*compile)(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget& target);
};
constexpr std::array<FrontEnd, 5> kFrontEnds = {{
    {GpuFormat::kNone, CompileWasm},
    {GpuFormat::kSpirvKernel, CompileSpirvKernel},
    {GpuFormat::kSpirvShader, CompileSpirvShader},
    {GpuFormat::kOpenClC, CompileOpenClC},
    {GpuFormat::kBitstream, CompileBitstream},
}};

// Returns null when modules of the kind do not run on the family.
const FrontEnd* FindFrontEnd(const ModuleKindRow& kind, const FamilyRow& family) {
  const auto form = std::ranges::find_if(kind.forms, [&](const NativeForm& form) { return Takes(family, form); });
  const bool is_portable = kind.forms.empty();
  return !is_portable && form == kind.forms.end()
             ? nullptr
             : FindRow(kFrontEnds, is_portable ? GpuFormat::kNone : form->format, &FrontEnd::form);
}

// Returns "SPIR-V runs on OpenCL devices (kernels) and Vulkan devices (compute shaders) only; this compile is for ..."
std::string RunsElsewhere(const ModuleKindRow& kind, const FamilyRow& target) {
  std::string where;
  for (const FamilyRow& family : kFamilyRows) {
    for (const NativeForm& form : kind.forms) {
      if (Takes(family, form)) {
        where += std::string(where.empty() ? " on " : " and ") + (form.is_for_fpgas ? "FPGA-class " : "") +
                 std::string(family.devices) + (form.programs.empty() ? "" : " (" + std::string(form.programs) + ")");
      }
    }
  }
  return std::string(kind.runs) + where + " only; this compile is for " + std::string(target.device) + ".";
}

}  // namespace

FrontResult PrepareModule(const CompileRequest& request, std::span<const uint8_t> bytes, KernelReport* report) {
  FrontResult result;
  if (request.infers_params && request.module_kind == ModuleKind::kWasm) {
    const std::optional<CompileRequest> known = WithParams(request, bytes, &result.diagnostics);
    return known.has_value() ? PrepareModule(*known, bytes, report) : result;
  }
  if (request.module_kind != ModuleKind::kWasm) {
    AddError(request, "Only WebAssembly modules have a kernel IR; this one is native to its device.",
             result.diagnostics);
    return result;
  }
  Time begin = RealClock().Now();
  wasm::ReadOutcome read = wasm::ReadWasm(bytes, {.entry = request.entry,
                                                  .params = request.params,
                                                  .abi = request.abi,
                                                  .module_name = request.module_name,
                                                  .fast_math = IsFast(request),
                                                  .device_math = IsGpuCode(request.target) && request.gpu.device_math});
  result.read_ns = NsSince(begin);
  result.diagnostics = std::move(read.diagnostics);
  if (!read.module.has_value()) {
    return result;
  }
  begin = RealClock().Now();
  result.places = pass::CutPanics(*read.module);
  RefuseBarriers(request, bytes, *read.module, &result.diagnostics);
  if (HasErrors(result.diagnostics)) {
    return result;
  }
  if (Status passed = RunPipeline(request, *read.module, report); !passed.ok()) {
    AddError(request, Message(passed), result.diagnostics);
    return result;
  }
  result.pass_ns = NsSince(begin);
  result.module = std::move(read.module);
  return result;
}

CompileResult CompileModule(const CompileRequest& request, std::span<const uint8_t> bytes,
                            const cpu::CpuTarget& target) {
  CompileResult result;
  const ModuleKindRow* const kind = Find(request.module_kind);
  const FamilyRow* const family = Find(request.target);
  if (kind == nullptr || family == nullptr) {
    AddError(request, "The module's kind (" + std::to_string(static_cast<int>(request.module_kind)) + ") is not known.",
             result.diagnostics);
    return result;
  }
  if (const FrontEnd* const front = FindFrontEnd(*kind, *family); front != nullptr) {
    return front->compile(request, bytes, target);
  }
  AddError(request, RunsElsewhere(*kind, *family), result.diagnostics);
  return result;
}

}  // namespace hpvm::compile
