// SPDX-License-Identifier: Apache-2.0
#include "compiler/compile.h"

#include "base/clock.h"
#include "compiler/debug/place.h"
#include "compiler/debug/source_info.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/ir/text.h"
#include "compiler/pass/check_barriers.h"
#include "compiler/pass/pipeline.h"

namespace hpvm {
namespace {

#ifdef NDEBUG
constexpr bool kVerifyEach = false;
#else
constexpr bool kVerifyEach = true;
#endif

void AddError(const CompileRequest& request, std::string message, Diagnostics& diagnostics) {
  diagnostics.push_back({Severity::kError, "module \"" + request.module_name + "\"", {}, std::move(message)});
}

uint64_t NsSince(Time begin) { return static_cast<uint64_t>((RealClock().Now() - begin).count()); }

Artifact InterpArtifact(const ir::Module& module) {
  Artifact artifact = DescribeModule(module);
  artifact.kind = ArtifactKind::kInterp;
  // The text has them; printed strings are looked up in the data.
  if (artifact.formats.empty()) {
    artifact.data.clear();
  }
  artifact.state.clear();
  std::string text = ir::Print(module);
  artifact.code.assign(text.begin(), text.end());
  return artifact;
}

// Source lines are looked up only when there is something to say.
void RefuseBarriers(const CompileRequest& request, std::span<const uint8_t> bytes, const ir::Module& module,
                    Diagnostics* diagnostics) {
  const std::string place = "module \"" + request.module_name + "\"";
  Diagnostics found, unused;
  CheckBarriers(module, place, found);
  if (found.empty()) {
    return;
  }
  Artifact outline = DescribeModule(module);
  outline.module_name = request.module_name;
  AddSourceInfo(bytes, module, &outline, &unused);
  if (!outline.lines.empty()) {
    found.clear();
    CheckBarriers(module, place, found, [&](uint32_t source) { return PlaceOf(outline, source); });
  }
  diagnostics->insert(diagnostics->end(), found.begin(), found.end());
}

}  // namespace

FrontResult PrepareModule(const CompileRequest& request, std::span<const uint8_t> bytes) {
  FrontResult result;
  if (request.module_kind != ModuleKind::kWasm) {
    AddError(request,
             "The module's kind (" + std::to_string(static_cast<int>(request.module_kind)) +
                 ") cannot be compiled yet; WebAssembly (1) can.",
             result.diagnostics);
    return result;
  }
  Time begin = RealClock().Now();
  ReadOutcome read = ReadWasm(bytes, {request.entry, request.params, request.abi, request.module_name});
  result.read_ns = NsSince(begin);
  result.diagnostics = std::move(read.diagnostics);
  if (!read.module.has_value()) {
    return result;
  }
  begin = RealClock().Now();
  RefuseBarriers(request, bytes, *read.module, &result.diagnostics);
  if (HasErrors(result.diagnostics)) {
    return result;
  }
  if (request.target == ArtifactKind::kCpuImage) {
    Status passed = RunCpuPipeline(*read.module, {.verify_each = kVerifyEach});
    if (!passed.ok()) {
      AddError(request, Message(passed), result.diagnostics);
      return result;
    }
  }
  result.pass_ns = NsSince(begin);
  result.module = std::move(read.module);
  return result;
}

CompileResult CompileModule(const CompileRequest& request, std::span<const uint8_t> bytes, const CpuTarget& target) {
  FrontResult front = PrepareModule(request, bytes);
  CompileResult result;
  result.diagnostics = std::move(front.diagnostics);
  if (!front.module.has_value()) {
    return result;
  }
  StatusOr<Artifact> artifact =
      request.target == ArtifactKind::kInterp ? InterpArtifact(*front.module) : EmitCpuImage(*front.module, target);
  if (!artifact.ok()) {
    AddError(request, Message(artifact.status()), result.diagnostics);
    return result;
  }
  artifact->module_name = request.module_name;
  artifact->entry = request.entry;
  AddSourceInfo(bytes, *front.module, &*artifact, &result.diagnostics);
  artifact->read_ns = front.read_ns;
  artifact->pass_ns = front.pass_ns;
  result.artifact = *std::move(artifact);
  return result;
}

}  // namespace hpvm
