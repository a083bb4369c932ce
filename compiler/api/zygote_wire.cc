// SPDX-License-Identifier: Apache-2.0
// What the zygote's messages hold, as bytes.
#include <algorithm>

#include "base/diagnostic_list.h"
#include "compiler/api/wire.h"
#include "compiler/api/zygote.h"

namespace hpvm {
namespace {

Status Malformed(const char* what) {
  return InvalidArgument(std::string("The compiler connection's ") + what + " message is malformed.");
}

void WriteParams(const std::vector<ParamSpec>& params, WireWriter& out) {
  out.U32(static_cast<uint32_t>(params.size()));
  for (const ParamSpec& param : params) {
    out.Text(param.name);
    out.U8(param.is_buffer);
    out.U8(param.is_writable);
    out.U8(param.is_read);
    out.U8(static_cast<uint8_t>(param.scalar));
  }
}

std::vector<ParamSpec> ReadParams(WireReader& in) {
  std::vector<ParamSpec> params(in.Count(8));
  for (ParamSpec& param : params) {
    param.name = in.Text();
    param.is_buffer = in.Flag();
    param.is_writable = in.Flag();
    param.is_read = in.Flag();
    uint8_t type = in.U8();
    if (type > static_cast<uint8_t>(ir::Type::kF64)) {
      in.Fail();
      break;
    }
    param.scalar = static_cast<ir::Type>(type);
  }
  return params;
}

void WriteHash(const Sha256& hash, WireWriter& out) { out.Raw(hash.bytes.data(), hash.bytes.size()); }
Sha256 ReadHash(WireReader& in) {
  Sha256 hash;
  const std::span<const uint8_t> bytes = in.Raw(hash.bytes.size());
  std::copy(bytes.begin(), bytes.end(), hash.bytes.begin());
  return hash;
}

std::vector<uint8_t> ReadRecord(WireReader& in, size_t bytes_max) {
  const std::span<const uint8_t> bytes = in.Bytes();
  if (bytes.size() > bytes_max) {
    in.Fail();
    return {};
  }
  return {bytes.begin(), bytes.end()};
}

// What only explained compiles may ask for: their artifacts are not kept. A GPU's facts are part of an artifact's name,
// whether a request has them or they are looked up.
bool IsExplainConsistent(const CompileRequest& compile, ArtifactKind target, uint8_t listing) {
  constexpr size_t kLevelBytesMax = 32;
  return listing <= static_cast<uint8_t>(Listing::kDevice) && compile.level.size() <= kLevelBytesMax &&
         (compile.explain || (listing == 0 && (compile.level.empty() || IsGpuCode(target)) && !compile.infers_params));
}

}  // namespace

std::vector<uint8_t> EncodeRequest(const ZygoteRequest& request) {
  const CompileRequest& compile = request.compile;
  WireWriter out;
  out.U64(request.remaining_ns);
  out.U8(static_cast<uint8_t>(compile.module_kind));
  out.Text(compile.module_name);
  WriteHash(compile.module_hash, out);
  out.Text(compile.entry);
  WriteParams(compile.params, out);
  out.U8(static_cast<uint8_t>(compile.abi));
  out.U8(static_cast<uint8_t>(compile.target));
  out.U8(compile.fast_math);
  out.U8(compile.explain);
  out.U8(compile.infers_params);
  out.U8(static_cast<uint8_t>(compile.listing));
  out.Text(compile.level);
  WriteGpuTarget(compile.gpu, out);
  out.Text(compile.options);
  out.U32(static_cast<uint32_t>(compile.constants.size()));
  for (const SpecialisationConstant& constant : compile.constants) {
    out.U32(constant.id);
    out.U8(constant.is_float);
    out.U64(constant.bits);
  }
  return std::move(out.bytes());
}

StatusOr<ZygoteRequest> DecodeRequest(std::span<const uint8_t> payload) {
  WireReader in(payload);
  ZygoteRequest request;
  CompileRequest& compile = request.compile;
  request.remaining_ns = in.U64();
  compile.module_kind = static_cast<ModuleKind>(in.U8());
  compile.module_name = in.Text();
  compile.module_hash = ReadHash(in);
  compile.entry = in.Text();
  compile.params = ReadParams(in);
  uint8_t abi = in.U8();
  uint8_t target = in.U8();
  compile.fast_math = in.Flag();
  compile.explain = in.Flag();
  compile.infers_params = in.Flag();
  uint8_t listing = in.U8();
  compile.level = in.Text();
  compile.gpu = ReadGpuTarget(in);
  compile.options = in.Text();
  compile.constants.resize(in.Count(13));
  for (SpecialisationConstant& constant : compile.constants) {
    constant.id = in.U32();
    constant.is_float = in.Flag();
    constant.bits = in.U64();
  }
  if (!in.AtEnd() || !IsExplainConsistent(compile, static_cast<ArtifactKind>(target), listing) ||
      compile.params.size() > limits::kKernelParamsMax || abi > static_cast<uint8_t>(Abi::kHpvmWeb) ||
      compile.options.size() > limits::kBuildOptionsBytesMax ||
      compile.constants.size() > limits::kSpecialisationConstantsMax ||
      Find(static_cast<ArtifactKind>(target)) == nullptr) {
    return Malformed("request");
  }
  compile.listing = static_cast<Listing>(listing);
  compile.abi = static_cast<Abi>(abi);
  compile.target = static_cast<ArtifactKind>(target);
  return request;
}

std::vector<uint8_t> EncodeResponse(const ZygoteResponse& response) {
  WireWriter out;
  out.U8(static_cast<uint8_t>(response.end));
  out.U8(response.from_cache);
  out.U8(response.has_artifact);
  out.U64(response.cpu_ns);
  WriteDiagnostics(response.diagnostics, out);
  WriteHash(response.name, out);
  out.Bytes(response.learnt);
  out.Bytes(response.costs);
  return std::move(out.bytes());
}

StatusOr<ZygoteResponse> DecodeResponse(std::span<const uint8_t> payload) {
  WireReader in(payload);
  ZygoteResponse response;
  const uint8_t end = in.U8();
  response.from_cache = in.Flag();
  response.has_artifact = in.Flag();
  response.cpu_ns = in.U64();
  response.diagnostics = ReadDiagnostics(in);
  response.name = ReadHash(in);
  response.learnt = ReadRecord(in, kLearntBytesMax);
  response.costs = ReadRecord(in, kCostRecordBytesMax);
  if (!in.AtEnd() || end > static_cast<uint8_t>(CompileEnd::kLimit) ||
      (end != 0 && (response.has_artifact || response.diagnostics.empty()))) {
    return Malformed("response");
  }
  response.end = static_cast<CompileEnd>(end);
  return response;
}

std::vector<uint8_t> EncodeKeep(const ZygoteKeep& keep) {
  WireWriter out;
  WriteHash(keep.name, out);
  out.U8(keep.is_costs);
  out.Bytes(keep.record);
  return std::move(out.bytes());
}

StatusOr<ZygoteKeep> DecodeKeep(std::span<const uint8_t> payload) {
  WireReader in(payload);
  ZygoteKeep keep;
  keep.name = ReadHash(in);
  keep.is_costs = in.Flag();
  keep.record = ReadRecord(in, keep.is_costs ? kCostRecordBytesMax : kLearntBytesMax);
  const bool is_record = keep.is_costs ? DecodeCosts(keep.record).ok() : DecodeLearnt(keep.record).ok();
  if (!in.AtEnd() || !is_record) {
    return Malformed("keep");
  }
  return keep;
}

void WriteDiagnostics(const Diagnostics& diagnostics, WireWriter& out) {
  // A response's head holds a hundred of these with room to spare.
  constexpr size_t kTextBytesMax = 4096;
  uint64_t omitted = 0;  // A hundred tell enough of one module.
  const Diagnostics listed = Shortened(diagnostics, limits::kDiagnosticsMax, &omitted);
  out.U32(static_cast<uint32_t>(listed.size()));
  for (const Diagnostic& diagnostic : listed) {
    out.U8(static_cast<uint8_t>(diagnostic.severity));
    out.Text(std::string_view(diagnostic.place).substr(0, kTextBytesMax));
    out.U8(diagnostic.offset.has_value());
    out.U64(diagnostic.offset.value_or(0));
    out.Text(std::string_view(diagnostic.message).substr(0, kTextBytesMax));
  }
}

Diagnostics ReadDiagnostics(WireReader& in) {
  Diagnostics diagnostics(in.Count(18));
  for (Diagnostic& diagnostic : diagnostics) {
    diagnostic.severity = in.Flag() ? Severity::kWarning : Severity::kError;
    diagnostic.place = in.Text();
    bool has_offset = in.Flag();
    uint64_t offset = in.U64();
    if (has_offset) {
      diagnostic.offset = offset;
    }
    diagnostic.message = in.Text();
  }
  return diagnostics;
}

}  // namespace hpvm
