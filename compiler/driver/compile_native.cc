// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/compile_native.h"

#include "base/clock.h"
#include "base/limits.h"
#include "compiler/front/opencl/opencl_front.h"
#include "compiler/front/spirv/spirv_front.h"
#if HPVMD_HAS_KERNEL_IL
#include "compiler/back/kernel_il/kernel_il.h"
#endif

namespace hpvm::compile {
void AddError(const CompileRequest& request, std::string message, Diagnostics& diagnostics) {
  diagnostics.push_back({Severity::kError, "module \"" + request.module_name + "\"", {}, std::move(message)});
}

namespace {

CompileResult Refuse(const CompileRequest& request, std::string message) {
  CompileResult result;
  AddError(request, std::move(message), result.diagnostics);
  return result;
}

uint8_t BytesOf(ir::Type type) { return type == ir::Type::kI64 || type == ir::Type::kF64 ? 8 : 4; }

// Makes one argument per parameter, in order.
GpuVariant PlainVariant(const CompileRequest& request) {
  GpuVariant variant;
  variant.entry = request.entry;
  for (const ParamSpec& param : request.params) {
    GpuArgument& argument = variant.arguments.emplace_back();
    argument.kind = param.is_buffer ? GpuArgument::Kind::kBuffer : GpuArgument::Kind::kScalar;
    argument.index = static_cast<uint32_t>(variant.arguments.size() - 1);
    argument.bytes = param.is_buffer ? 8 : BytesOf(param.scalar);
    argument.is_writable = param.is_buffer && param.is_writable;
  }
  return variant;
}

Artifact NativeArtifact(const CompileRequest& request, GpuFormat format, std::span<const uint8_t> code,
                        GpuVariant variant) {
  Artifact artifact;
  artifact.kind = request.target;
  artifact.module_name = request.module_name;
  artifact.entry = request.entry;
  for (const ParamSpec& param : request.params) {
    artifact.params.push_back({.name = param.name,
                               .is_buffer = param.is_buffer,
                               .is_writable = param.is_writable,
                               .type = param.is_buffer ? ir::Type::kI64 : param.scalar,
                               .is_read = param.is_read});
  }
  artifact.code.assign(code.begin(), code.end());
  artifact.gpu.format = format;
  artifact.gpu.is_native = true;
  variant.can_trap = false;
  artifact.gpu.variants.push_back(std::move(variant));
  return artifact;
}

std::optional<Artifact> ReadNativeSpirv(const CompileRequest& request, std::span<const uint8_t> bytes, GpuFormat format,
                                        Diagnostics& diagnostics) {
  const Time begin = RealClock().Now();
  std::optional<spirv::Program> program = spirv::ReadSpirv(bytes,
                                                           {.module_name = request.module_name,
                                                            .entry = request.entry,
                                                            .params = request.params,
                                                            .constants = request.constants,
                                                            .target = &request.gpu,
                                                            .is_shader = format == GpuFormat::kSpirvShader},
                                                           diagnostics);
  if (!program.has_value()) {
    return std::nullopt;
  }
  Artifact artifact = NativeArtifact(request, format, program->code, std::move(program->variant));
  artifact.gpu.private_bytes = program->private_bytes;
  artifact.read_ns = static_cast<uint64_t>((RealClock().Now() - begin).count());
  return artifact;
}

// Translates the kernel into the form that the device's driver takes.
Status TranslateKernel(const CompileRequest& request, Artifact& artifact) {
  if (request.gpu.kernel_il == GpuFormat::kSpirvKernel) {
    return absl::OkStatus();
  }
#if HPVMD_HAS_KERNEL_IL
  const Time begin = RealClock().Now();
  if (request.gpu.kernel_il == GpuFormat::kPtx) {
    const kernel_il::PtxOptions options{
        .entry = request.entry, .arch = request.gpu.ptx_arch, .group = artifact.gpu.variants[0].group};
    HPVMD_ASSIGN_OR_RETURN(const std::string text, kernel_il::SpirvToPtx(artifact.code, options));
    artifact.code.assign(text.begin(), text.end());
    artifact.gpu.format = GpuFormat::kPtx;
  } else {
    HPVMD_ASSIGN_OR_RETURN(artifact.code, kernel_il::SpirvToBitcode(artifact.code));
    artifact.gpu.format = GpuFormat::kSpirBitcode;
    artifact.gpu.options = "-x spir -spir-std=1.2";
  }
  artifact.emit_ns = static_cast<uint64_t>((RealClock().Now() - begin).count());
  return absl::OkStatus();
#else
  return Unimplemented("This compiler was built without the translator of SPIR-V kernels that the device needs.");
#endif
}

CompileResult Finish(const CompileRequest& request, Artifact artifact, Diagnostics diagnostics) {
  CompileResult result;
  result.diagnostics = std::move(diagnostics);
  if (Status valid = ValidateGpuCode(artifact.gpu, artifact.params.size()); !valid.ok()) {
    AddError(request, Message(valid), result.diagnostics);
  } else if (Status listed = AddDeviceListing(request, artifact); !listed.ok()) {
    AddError(request, Message(listed), result.diagnostics);
  }
  if (!HasErrors(result.diagnostics)) {
    result.artifact = std::move(artifact);
  }
  return result;
}

}  // namespace

CompileResult CompileSpirvKernel(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&) {
  if (request.gpu.kernel_il == GpuFormat::kNone) {
    return Refuse(request, "The device's driver accepts no form of SPIR-V kernels.");
  }
  CompileResult result;
  std::optional<Artifact> artifact = ReadNativeSpirv(request, bytes, GpuFormat::kSpirvKernel, result.diagnostics);
  if (!artifact.has_value()) {
    return result;
  }
  if (Status translated = TranslateKernel(request, *artifact); !translated.ok()) {
    AddError(request, Message(translated), result.diagnostics);
    return result;
  }
  return Finish(request, *std::move(artifact), std::move(result.diagnostics));
}

CompileResult CompileSpirvShader(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&) {
  CompileResult result;
  std::optional<Artifact> artifact = ReadNativeSpirv(request, bytes, GpuFormat::kSpirvShader, result.diagnostics);
  return artifact.has_value() ? Finish(request, *std::move(artifact), std::move(result.diagnostics)) : result;
}

CompileResult CompileOpenClC(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&) {
  CompileResult result;
  std::optional<opencl::Vetted> vetted = opencl::VetOpenCl(bytes,
                                                           {.module_name = request.module_name,
                                                            .entry = request.entry,
                                                            .params = request.params,
                                                            .options = request.options,
                                                            .target = &request.gpu},
                                                           result.diagnostics);
  if (!vetted.has_value()) {
    return result;
  }
  const std::span<const uint8_t> text(reinterpret_cast<const uint8_t*>(vetted->text.data()), vetted->text.size());
  Artifact artifact = NativeArtifact(request, GpuFormat::kOpenClC, text, PlainVariant(request));
  artifact.gpu.options = std::move(vetted->options);
  return Finish(request, std::move(artifact), std::move(result.diagnostics));
}

CompileResult CompileBitstream(const CompileRequest& request, std::span<const uint8_t> bytes, const cpu::CpuTarget&) {
  if (bytes.empty()) {
    return Refuse(request, "The bitstream is empty.");
  }
  return Finish(request, NativeArtifact(request, GpuFormat::kBitstream, bytes, PlainVariant(request)), {});
}

Status AddDeviceListing(const CompileRequest& request, Artifact& artifact) {
  if (request.listing == Listing::kNone) {
    return absl::OkStatus();
  }
  if (request.listing != Listing::kDevice) {
    return InvalidArgument("A module that is native to its device has only the device's text (device).");
  }
  switch (artifact.gpu.format) {
    case GpuFormat::kSpirvKernel:
    case GpuFormat::kSpirvShader: {
      HPVMD_ASSIGN_OR_RETURN(artifact.listing, spirv::Disassemble(artifact.code));
      return absl::OkStatus();
    }
    case GpuFormat::kOpenClC:
    case GpuFormat::kPtx:
      artifact.listing.assign(artifact.code.begin(), artifact.code.end());
      return absl::OkStatus();
    default:
      return InvalidArgument("A program of this form cannot be printed as text.");
  }
}

}  // namespace hpvm::compile
