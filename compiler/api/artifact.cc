// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact.h"

#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "base/unchecked.h"
#include "compiler/api/artifact_bounds.h"
#include "compiler/api/artifact_work.h"
#include "compiler/api/wire.h"
#include "proto/internal/builder.pb.h"

namespace hpvm {
namespace {

constexpr uint32_t kMagic = 0x41565048;  // "HPVA".
constexpr size_t kTagOffset = 8;
constexpr size_t kFieldsOffset = kTagOffset + 32;
// More than limits::kGpuVariantsMax variants with all their arguments.
constexpr size_t kGpuCodeBytesMax = limits::kMiB;
// Shapes that compiler/pass/gang/gang_plan.h knows.
constexpr uint32_t kVariantLanesMax = 64, kVariantColumnsMax = 8, kVariantRowsMax = 16;

void WriteParams(const std::vector<ir::KernelParam>& params, WireWriter& out) {
  out.U32(static_cast<uint32_t>(params.size()));
  for (const ir::KernelParam& param : params) {
    out.Text(param.name);
    out.U8(param.is_buffer);
    out.U8(param.is_writable);
    out.U8(param.is_read);
    out.U8(static_cast<uint8_t>(param.type));
  }
}

std::vector<ir::KernelParam> ReadParams(WireReader& in) {
  std::vector<ir::KernelParam> params(in.Count(8));
  if (params.size() > limits::kKernelParamsMax) {
    in.Fail();
    params.clear();
  }
  for (ir::KernelParam& param : params) {
    param.name = in.Text();
    param.is_buffer = in.Flag();
    param.is_writable = in.Flag();
    param.is_read = in.Flag();
    uint8_t type = in.U8();
    if (type > static_cast<uint8_t>(ir::Type::kF64)) {
      in.Fail();
      break;
    }
    param.type = static_cast<ir::Type>(type);
  }
  return params;
}

// Segments must be sorted, apart, and inside [0, limit): the runner copies them without a further look.
std::vector<ir::DataSegment> ReadData(WireReader& in, uint64_t limit) {
  std::vector<ir::DataSegment> data(in.Count(12));
  uint64_t end = 0;
  for (ir::DataSegment& segment : data) {
    segment.address = in.U64();
    std::span<const uint8_t> bytes = in.Bytes();
    if (!in.ok() || segment.address < end || segment.address > limit || bytes.size() > limit - segment.address) {
      in.Fail();
      break;
    }
    segment.bytes.assign(bytes.begin(), bytes.end());
    end = segment.address + bytes.size();
  }
  return data;
}

std::vector<std::string> ReadTexts(WireReader& in) {
  std::vector<std::string> texts(in.Count(4));
  for (std::string& text : texts) {
    text = in.Text();
  }
  return texts;
}

void WriteTexts(const std::vector<std::string>& texts, WireWriter& out) {
  out.U32(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) {
    out.Text(text);
  }
}

void WriteData(const std::vector<ir::DataSegment>& data, WireWriter& out) {
  out.U32(static_cast<uint32_t>(data.size()));
  for (const ir::DataSegment& segment : data) {
    out.U64(segment.address);
    out.Bytes(segment.bytes);
  }
}

// One list of types a format; serialised beside the formats, so that their number is the same by construction.
void WriteFormats(const Artifact& artifact, WireWriter& out) {
  WriteTexts(artifact.formats, out);
  HPVMD_CHECK(artifact.format_types.size() == artifact.formats.size());
  for (const std::vector<ir::Type>& types : artifact.format_types) {
    out.U32(static_cast<uint32_t>(types.size()));
    for (ir::Type type : types) {
      out.U8(static_cast<uint8_t>(type));
    }
  }
}

void ReadFormats(WireReader& in, Artifact& artifact) {
  artifact.formats = ReadTexts(in);
  artifact.format_types.resize(artifact.formats.size());
  for (std::vector<ir::Type>& types : artifact.format_types) {
    types.resize(in.Count(1));
    for (ir::Type& type : types) {
      uint8_t value = in.U8();
      if (value > static_cast<uint8_t>(ir::Type::kF64)) {
        in.Fail();
      }
      type = static_cast<ir::Type>(in.ok() ? value : 0);
    }
  }
}

void WriteLines(const std::vector<SourceLine>& lines, WireWriter& out) {
  out.U32(static_cast<uint32_t>(lines.size()));
  for (const SourceLine& line : lines) {
    out.U32(line.offset);
    out.U32(line.file);
    out.U32(line.line);
    out.U32(line.column);
  }
}

// Offsets must rise, so that readers can search; a line that is known must name one of the files.
std::vector<SourceLine> ReadLines(WireReader& in, size_t files) {
  std::vector<SourceLine> lines(in.Count(16));
  const SourceLine* previous = nullptr;
  for (SourceLine& line : lines) {
    line = {in.U32(), in.U32(), in.U32(), in.U32()};
    if ((previous != nullptr && line.offset <= previous->offset) || (line.line != 0 && line.file >= files)) {
      in.Fail();
      break;
    }
    previous = &line;
  }
  return lines;
}

void WriteVariants(const std::vector<CpuVariant>& variants, WireWriter& out) {
  out.U32(static_cast<uint32_t>(variants.size()));
  for (const CpuVariant& variant : variants) {
    out.U8(static_cast<uint8_t>(variant.unit));
    out.U32(variant.lanes);
    out.U32(variant.columns);
    out.U32(variant.rows);
    out.U8(variant.needs_proof);
    out.U64(variant.entry_offset);
    out.U64(variant.value_bytes);
  }
}

std::vector<CpuVariant> ReadVariants(WireReader& in) {
  std::vector<CpuVariant> variants(in.Count(30));
  for (CpuVariant& variant : variants) {
    variant.unit = static_cast<CpuVariant::Unit>(in.U8());
    variant.lanes = in.U32();
    variant.columns = in.U32();
    variant.rows = in.U32();
    variant.needs_proof = in.Flag();
    variant.entry_offset = in.U64();
    variant.value_bytes = in.U64();
  }
  return variants;
}

void WriteRemarks(const std::vector<KernelRemark>& remarks, WireWriter& out) {
  const size_t count = std::min<size_t>(remarks.size(), limits::kRemarksMax);
  out.U32(static_cast<uint32_t>(count));
  for (const KernelRemark& remark : std::span(remarks).first(count)) {
    out.U8(static_cast<uint8_t>(remark.kind));
    out.U32(remark.source);
    out.Text(std::string_view(remark.text).substr(0, limits::kRemarkBytesMax));
  }
}

std::vector<KernelRemark> ReadRemarks(WireReader& in) {
  std::vector<KernelRemark> remarks(in.Count(9));
  for (KernelRemark& remark : remarks) {
    const uint8_t kind = in.U8();
    if (kind < static_cast<uint8_t>(KernelRemark::Kind::kShape) ||
        kind > static_cast<uint8_t>(KernelRemark::Kind::kCall) || remarks.size() > limits::kRemarksMax) {
      in.Fail();
      break;
    }
    remark.kind = static_cast<KernelRemark::Kind>(kind);
    remark.source = in.U32();
    remark.text = in.Text();
  }
  return remarks;
}

GpuCode ReadGpu(WireReader& in) {
  const std::string bytes = in.Text();
  const auto read = [&]() -> StatusOr<GpuCode> {
    HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::GpuCode>(bytes));
    return std::move(said).Open(GetGpuCode);
  };
  StatusOr<GpuCode> code = bytes.size() > kGpuCodeBytesMax ? InvalidArgument("too long") : read();
  if (!code.ok()) {
    in.Fail();
  }
  return code.ok() ? *std::move(code) : GpuCode{};
}

Artifact ReadFields(WireReader& in) {
  Artifact artifact;
  artifact.kind = static_cast<ArtifactKind>(in.U8());
  artifact.module_name = in.Text();
  artifact.entry = in.Text();
  artifact.target = in.Text();
  artifact.params = ReadParams(in);
  artifact.is_memory64 = in.Flag();
  artifact.uses_barrier = in.Flag();
  artifact.uses_group_memory = in.Flag();
  artifact.memory_bytes = in.U64();
  artifact.memory_bytes_max = in.U64();
  artifact.data = ReadData(in, artifact.memory_bytes);
  artifact.globals.resize(in.Count(8));
  for (uint64_t& bits : artifact.globals) {
    bits = in.U64();
  }
  artifact.state_bytes = in.U64();
  artifact.state = ReadData(in, artifact.state_bytes);
  ReadFormats(in, artifact);
  artifact.has_separate_buffers = in.Flag();
  artifact.function_names = ReadTexts(in);
  artifact.files = ReadTexts(in);
  artifact.lines = ReadLines(in, artifact.files.size());
  std::span<const uint8_t> code = in.Bytes();
  artifact.code.assign(code.begin(), code.end());
  artifact.entry_offset = in.U64();
  artifact.variants = ReadVariants(in);
  artifact.gpu = ReadGpu(in);
  artifact.bounds = ReadBounds(in);
  artifact.work = ReadWork(in);
  artifact.remarks = ReadRemarks(in);
  artifact.listing = in.Text();
  artifact.fast_math = in.Flag();
  artifact.read_only_bytes = in.U64();
  artifact.read_ns = in.U64();
  artifact.pass_ns = in.U64();
  artifact.emit_ns = in.U64();
  return artifact;
}

// What the runner multiplies, divides by and jumps to.
bool IsVariant(const CpuVariant& variant, const Artifact& artifact) {
  const bool is_power = variant.lanes != 0 && (variant.lanes & (variant.lanes - 1)) == 0;
  if (!is_power || variant.lanes > kVariantLanesMax || variant.columns < 1 || variant.columns > kVariantColumnsMax ||
      variant.rows < 1 || variant.rows > kVariantRowsMax || variant.entry_offset >= artifact.code.size()) {
    return false;
  }
  const bool is_gang = variant.columns == 1 && variant.rows == 1;
  switch (variant.unit) {
    case CpuVariant::Unit::kInstance:
      return is_gang && variant.lanes == 1 && variant.value_bytes == 0;
    case CpuVariant::Unit::kTile:
      return variant.value_bytes == 0;
    case CpuVariant::Unit::kGroup:
      return is_gang && variant.value_bytes <= limits::kGroupLaneBytesMax;
  }
  return false;
}

Status CheckVariants(const Artifact& artifact) {
  if (artifact.variants.size() > limits::kCpuVariantsMax) {
    return InvalidArgument("The artifact's variants (" + std::to_string(artifact.variants.size()) +
                           ") are more than the limit (" + std::to_string(limits::kCpuVariantsMax) + ").");
  }
  for (size_t i = 0; i < artifact.variants.size(); ++i) {
    if (!IsVariant(artifact.variants[i], artifact)) {
      return InvalidArgument("The artifact's variant " + std::to_string(i) + " is malformed.");
    }
  }
  HPVMD_RETURN_IF_ERROR(ValidateBounds(artifact.bounds, artifact.params));
  return ValidateWork(artifact.work, artifact.bounds);
}

Status CheckFields(const Artifact& artifact) {
  if (Find(artifact.kind) == nullptr) {
    return InvalidArgument("The artifact's kind (" + std::to_string(static_cast<int>(artifact.kind)) +
                           ") is none of those known.");
  }
  const bool is_gpu = IsGpuCode(artifact.kind);
  if (is_gpu != (artifact.gpu.format != GpuFormat::kNone)) {
    return InvalidArgument("The artifact's kind (" + std::to_string(static_cast<int>(artifact.kind)) +
                           ") and its program's form (" + std::to_string(static_cast<int>(artifact.gpu.format)) +
                           ") do not go together.");
  }
  HPVMD_RETURN_IF_ERROR(ValidateGpuCode(artifact.gpu, artifact.params.size()));
  if (artifact.memory_bytes > artifact.memory_bytes_max) {
    return InvalidArgument("The artifact's memory (" + std::to_string(artifact.memory_bytes) +
                           " bytes) is larger than its own maximum (" + std::to_string(artifact.memory_bytes_max) +
                           ").");
  }
  if (artifact.state_bytes > limits::kModuleStateBytesMax) {
    return InvalidArgument("The artifact's state (" + std::to_string(artifact.state_bytes) +
                           " bytes an instance) is larger than the limit (" +
                           std::to_string(limits::kModuleStateBytesMax) + ").");
  }
  if (artifact.kind == ArtifactKind::kCpuImage && artifact.entry_offset >= artifact.code.size()) {
    return InvalidArgument("The artifact's entry (offset " + std::to_string(artifact.entry_offset) +
                           ") lies outside its code (" + std::to_string(artifact.code.size()) + " bytes).");
  }
  return CheckVariants(artifact);
}

// The operands of a format's prints; all prints of one format agree (the verifier says so).
std::vector<std::vector<ir::Type>> FormatTypes(const ir::Module& module) {
  std::vector<std::vector<ir::Type>> types(module.formats.size());
  for (const ir::Function& function : module.functions) {
    for (const ir::Op& op : function.ops) {
      if (op.code != ir::Opcode::kPrint || op.imm >= types.size()) {
        continue;
      }
      std::vector<ir::Type>& operands = types[op.imm];
      operands.clear();
      for (ir::ValueId operand : function.operands_of(op)) {
        operands.push_back(function.type_of(operand));
      }
    }
  }
  return types;
}

}  // namespace

Artifact DescribeModule(const ir::Module& module) {
  Artifact artifact;
  artifact.module_name = module.name;
  artifact.entry = module.function(module.entry).name;
  artifact.params = module.params;
  artifact.is_memory64 = module.is_memory64;
  artifact.uses_barrier = module.uses_barrier;
  artifact.uses_group_memory = module.uses_group_memory;
  artifact.memory_bytes = module.memory_bytes;
  artifact.memory_bytes_max = module.memory_bytes_max;
  artifact.data = module.data;
  for (const ir::Global& global : module.globals) {
    artifact.globals.push_back(global.init);
  }
  artifact.state_bytes = module.state_bytes;
  artifact.state = module.state;
  artifact.formats = module.formats;
  artifact.format_types = FormatTypes(module);
  artifact.has_separate_buffers = module.has_separate_buffers;
  for (const ir::Function& function : module.functions) {
    artifact.function_names.push_back(function.name);
  }
  return artifact;
}

std::vector<uint8_t> Serialize(const Artifact& artifact, const ArtifactKey& key) {
  WireWriter out;
  out.bytes().reserve(artifact.code.size() + 4096);
  out.U32(kMagic);
  out.U32(kArtifactFormatVersion);
  const std::array<uint8_t, 32> no_tag{};
  out.Raw(no_tag.data(), no_tag.size());
  out.U8(static_cast<uint8_t>(artifact.kind));
  out.Text(artifact.module_name);
  out.Text(artifact.entry);
  out.Text(artifact.target);
  WriteParams(artifact.params, out);
  out.U8(artifact.is_memory64);
  out.U8(artifact.uses_barrier);
  out.U8(artifact.uses_group_memory);
  out.U64(artifact.memory_bytes);
  out.U64(artifact.memory_bytes_max);
  WriteData(artifact.data, out);
  out.U32(static_cast<uint32_t>(artifact.globals.size()));
  for (uint64_t bits : artifact.globals) {
    out.U64(bits);
  }
  out.U64(artifact.state_bytes);
  WriteData(artifact.state, out);
  WriteFormats(artifact, out);
  out.U8(artifact.has_separate_buffers);
  WriteTexts(artifact.function_names, out);
  WriteTexts(artifact.files, out);
  WriteLines(artifact.lines, out);
  out.Bytes(artifact.code);
  out.U64(artifact.entry_offset);
  WriteVariants(artifact.variants, out);
  out.Text(MessageOf(artifact.gpu).SerializeAsString());
  WriteBounds(artifact.bounds, out);
  WriteWork(artifact.work, out);
  WriteRemarks(artifact.remarks, out);
  out.Text(artifact.listing);
  out.U8(artifact.fast_math);
  out.U64(artifact.read_only_bytes);
  out.U64(artifact.read_ns);
  out.U64(artifact.pass_ns);
  out.U64(artifact.emit_ns);
  TagArtifact(out.bytes(), key);
  return std::move(out.bytes());
}

void TagArtifact(std::span<uint8_t> bytes, const ArtifactKey& key) {
  HPVMD_CHECK(bytes.size() >= kFieldsOffset);
  Sha256 tag = HmacOf(key, bytes.subspan(kFieldsOffset));
  std::copy(tag.bytes.begin(), tag.bytes.end(), bytes.begin() + kTagOffset);
}

StatusOr<Artifact> ParseArtifact(std::span<const uint8_t> bytes, const ArtifactKey& key) {
  WireReader in(bytes);
  if (bytes.size() > limits::kArtifactBytesMax) {
    return InvalidArgument("The artifact (" + std::to_string(bytes.size()) + " bytes) is larger than the limit (" +
                           std::to_string(limits::kArtifactBytesMax) + ").");
  }
  if (bytes.size() < kFieldsOffset || in.U32() != kMagic) {
    return InvalidArgument("The bytes (" + std::to_string(bytes.size()) + ") are not an artifact.");
  }
  if (uint32_t version = in.U32(); version != kArtifactFormatVersion) {
    return InvalidArgument("The artifact's format (" + std::to_string(version) + ") is not the one known (" +
                           std::to_string(kArtifactFormatVersion) + ").");
  }
  Sha256 tag;
  std::span<const uint8_t> found = in.Raw(32);
  std::copy(found.begin(), found.end(), tag.bytes.begin());
  if (!ConstantTimeEqual(tag, HmacOf(key, bytes.subspan(kFieldsOffset)))) {
    return InvalidArgument("The artifact's tag is not that of this executor's compiler.");
  }
  Artifact artifact = ReadFields(in);
  if (!in.AtEnd()) {
    return InvalidArgument("The artifact's fields are cut short, malformed or followed by other bytes.");
  }
  HPVMD_RETURN_IF_ERROR(CheckFields(artifact));
  return artifact;
}

}  // namespace hpvm
