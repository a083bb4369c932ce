// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/artifact.h"

#include <algorithm>
#include <tuple>

#include "base/hash.h"
#include "base/limits.h"
#include "compiler/api/artifact_bounds.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace ir {

static auto FieldsOf(KernelParam& p) { return std::tie(p.name, p.is_buffer, p.is_writable, p.is_read, p.type); }
static auto FieldsOf(DataSegment& segment) { return std::tie(segment.address, segment.bytes); }
static auto FieldsOf(Term& term) { return std::tie(term.factor, term.atoms); }
static auto FieldsOf(Atom& a) { return std::tie(a.kind, a.bits, a.code, a.index, a.range, a.operands, a.contexts); }
static auto FieldsOf(Constraint& c) { return std::tie(c.is_signed, c.or_equal, c.bits, c.less, c.more); }
static auto FieldsOf(Distance& distance) { return std::tie(distance.polynomial, distance.bits); }
static auto FieldsOf(LoopEnd& end) { return std::tie(end.goes_on, end.distances, end.steady, end.next); }
static auto FieldsOf(Carried& carried) { return std::tie(carried.atom, carried.first); }
static auto FieldsOf(BoundsLoop& l) {
  return std::tie(l.trip, l.context, l.ends, l.goes_on_when, l.is_exact, l.carried);
}
static auto FieldsOf(BoundsAccess& a) {
  return std::tie(a.op, a.param, a.reach, a.is_store, a.group_bytes, a.offset, a.context, a.width, a.is_load,
                  a.reads_own, a.is_certain, a.happens_when, a.loops);
}
static auto FieldsOf(BoundsProgram& p) {
  return std::tie(p.atoms, p.constraints, p.loops, p.accesses, p.by_words, p.others, p.is_complete, p.is_separate,
                  p.is_wide);
}
static auto FieldsOf(WorkBlock& b) { return std::tie(b.operations, b.bytes, b.share, b.conditions, b.loops); }
static auto FieldsOf(WorkLoop& loop) { return std::tie(loop.bounds_loop); }
static auto FieldsOf(WorkProgram& program) { return std::tie(program.blocks, program.loops); }

}  // namespace ir

static auto FieldsOf(SourceLine& line) { return std::tie(line.offset, line.file, line.line, line.column); }
static auto FieldsOf(CpuVariant& v) {
  return std::tie(v.unit, v.lanes, v.columns, v.rows, v.is_along_y, v.is_for_edges, v.needs_proof, v.entry_offset,
                  v.value_bytes);
}
static auto FieldsOf(KernelRemark& remark) { return std::tie(remark.kind, remark.source, remark.text); }
static auto FieldsOf(Artifact& a) {
  return std::tie(a.kind, a.module_name, a.entry, a.target, a.params, a.is_memory64, a.uses_barrier,
                  a.uses_group_memory, a.memory_bytes, a.memory_bytes_max, a.data, a.globals, a.state_bytes, a.state,
                  a.formats, a.format_types, a.has_separate_buffers, a.function_names, a.files, a.lines, a.code,
                  a.entry_offset, a.variants, a.gpu, a.bounds, a.work, a.remarks, a.listing, a.fast_math,
                  a.read_only_bytes, a.read_ns, a.pass_ns, a.emit_ns);
}

namespace {

constexpr uint32_t kMagic = 0x41565048;  // "HPVA".
constexpr size_t kTagOffset = 8;
constexpr size_t kFieldsOffset = kTagOffset + 32;
// Upper bounds of the shapes in compiler/pass/gang/gang_plan.h.
constexpr uint32_t kVariantLanesMax = 64, kVariantColumnsMax = 8, kVariantRowsMax = 16;

bool IsType(ir::Type type) { return type <= ir::Type::kF64; }

// Segments must be sorted, disjoint, and inside [0, limit), because the runner copies them without further checks.
bool AreInside(const std::vector<ir::DataSegment>& data, uint64_t limit) {
  uint64_t end = 0;
  return std::ranges::all_of(data, [&](const ir::DataSegment& segment) {
    const bool fits =
        segment.address >= end && segment.address <= limit && segment.bytes.size() <= limit - segment.address;
    end = segment.address + segment.bytes.size();
    return fits;
  });
}

// Offsets must rise, so that readers can search; an entry with a known line must name one of the files.
bool AreLines(const std::vector<SourceLine>& lines, size_t files) {
  const auto falls = [](auto& a, auto& b) { return a.offset >= b.offset; };
  return std::adjacent_find(lines.begin(), lines.end(), falls) == lines.end() &&
         std::ranges::all_of(lines, [&](auto& line) { return line.line == 0 || line.file < files; });
}

bool IsRemark(const KernelRemark& remark) {
  return remark.kind >= KernelRemark::Kind::kShape && remark.kind <= KernelRemark::Kind::kCall;
}

bool IsWellFormed(const Artifact& a) {
  return a.params.size() <= limits::kKernelParamsMax &&
         std::ranges::all_of(a.params, [](auto& param) { return IsType(param.type); }) &&
         AreInside(a.data, a.memory_bytes) && AreInside(a.state, a.state_bytes) &&
         a.formats.size() == a.format_types.size() &&
         std::ranges::all_of(a.format_types, [](auto& types) { return std::ranges::all_of(types, IsType); }) &&
         AreLines(a.lines, a.files.size()) && a.remarks.size() <= limits::kRemarksMax &&
         std::ranges::all_of(a.remarks, IsRemark) && IsWellFormed(a.gpu);
}

// Checks the numbers that the runner multiplies, divides by and jumps to.
bool IsVariant(const CpuVariant& variant, const Artifact& artifact) {
  const bool is_power = variant.lanes != 0 && (variant.lanes & (variant.lanes - 1)) == 0;
  if (!is_power || variant.lanes > kVariantLanesMax || variant.columns < 1 || variant.columns > kVariantColumnsMax ||
      variant.rows < 1 || variant.rows > kVariantRowsMax || variant.entry_offset >= artifact.code.size()) {
    return false;
  }
  const bool is_gang = variant.columns == 1 && variant.rows == 1;
  const bool is_tile = variant.unit == CpuVariant::Unit::kTile;
  if ((variant.is_along_y && (!is_tile || variant.rows != 1)) || (variant.is_for_edges && !is_tile)) {
    return false;
  }
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
                           ") is not known.");
  }
  const bool is_gpu = IsGpuCode(artifact.kind);
  if (is_gpu != (artifact.gpu.format != GpuFormat::kNone)) {
    return InvalidArgument("The artifact's kind (" + std::to_string(static_cast<int>(artifact.kind)) +
                           ") and its program's form (" + std::to_string(static_cast<int>(artifact.gpu.format)) +
                           ") do not match.");
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

// Returns the operand types of each format's prints; the verifier ensures that all prints of one format agree.
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
  out(kMagic, kArtifactFormatVersion, Sha256(), artifact);
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
  uint32_t magic = 0, version = 0;
  Sha256 tag;
  in(magic, version, tag);
  if (bytes.size() < kFieldsOffset || magic != kMagic) {
    return InvalidArgument("The data (" + std::to_string(bytes.size()) + " bytes) is not an artifact.");
  }
  if (version != kArtifactFormatVersion) {
    return InvalidArgument("The artifact's format version (" + std::to_string(version) +
                           ") is not the supported version (" + std::to_string(kArtifactFormatVersion) + ").");
  }
  if (!ConstantTimeEqual(tag, HmacOf(key, bytes.subspan(kFieldsOffset)))) {
    return InvalidArgument(
        "The artifact's tag does not match this executor's compiler: another compiler made the artifact, or its bytes "
        "were changed.");
  }
  Artifact artifact;
  in(artifact);
  if (!in.AtEnd() || !IsWellFormed(artifact)) {
    return InvalidArgument("The artifact's fields are cut short, malformed or followed by other bytes.");
  }
  HPVMD_RETURN_IF_ERROR(CheckFields(artifact));
  return artifact;
}

}  // namespace hpvm
