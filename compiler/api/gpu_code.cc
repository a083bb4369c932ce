// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_code.h"

#include "base/limits.h"

namespace hpvm {
namespace {

constexpr size_t kArgumentBytes = 19, kFactorBytes = 5, kVariantBytes = 71;  // The least that one takes.

using Kind = GpuArgument::Kind;

void WriteTriple(const std::array<uint32_t, 3>& values, WireWriter& out) {
  for (const uint32_t value : values) {
    out.U32(value);
  }
}

std::array<uint32_t, 3> ReadTriple(WireReader& in) {
  std::array<uint32_t, 3> values{};
  for (uint32_t& value : values) {
    value = in.U32();
  }
  return values;
}

void WriteArgument(const GpuArgument& argument, WireWriter& out) {
  out.U8(static_cast<uint8_t>(argument.kind));
  out.U32(argument.index);
  out.U8(argument.bytes);
  out.U8(argument.is_writable);
  out.U32(argument.set);
  out.U32(argument.binding);
  out.U32(argument.offset);
}

GpuArgument ReadArgument(WireReader& in) {
  GpuArgument argument;
  const uint8_t kind = in.U8();
  if (kind < static_cast<uint8_t>(Kind::kBuffer) || kind > static_cast<uint8_t>(Kind::kGroupBase)) {
    in.Fail();
    return argument;
  }
  argument.kind = static_cast<Kind>(kind);
  argument.index = in.U32();
  argument.bytes = in.U8();
  argument.is_writable = in.Flag();
  argument.set = in.U32();
  argument.binding = in.U32();
  argument.offset = in.U32();
  return argument;
}

GpuVariant ReadVariant(WireReader& in) {
  GpuVariant variant;
  variant.entry = in.Text();
  variant.tile = ReadTriple(in);
  variant.needs_proof = in.Flag();
  variant.needs_alignment = in.Flag();
  variant.factors.resize(in.Count(kFactorBytes));
  for (GpuFactor& factor : variant.factors) {
    factor.param = in.U32();
    factor.log2 = in.U8();
  }
  variant.can_trap = in.Flag();
  variant.group = ReadTriple(in);
  variant.group_constant = ReadTriple(in);
  variant.local_bytes = in.U64();
  variant.push_bytes = in.U32();
  variant.facts_set = in.U32();
  variant.facts_binding = in.U32();
  variant.arguments.resize(in.Count(kArgumentBytes));
  for (GpuArgument& argument : variant.arguments) {
    argument = ReadArgument(in);
  }
  return variant;
}

bool NamesParam(Kind kind) {
  return kind == Kind::kBuffer || kind == Kind::kBufferBytes || kind == Kind::kBufferStart ||
         kind == Kind::kBufferBase || kind == Kind::kScalar;
}

bool NamesDimension(Kind kind) { return kind == Kind::kFirst || kind == Kind::kExtent || kind == Kind::kGroup; }

bool IsArgument(const GpuArgument& argument, const GpuVariant& variant, bool is_shader, size_t params) {
  if ((NamesParam(argument.kind) && argument.index >= params) ||
      (NamesDimension(argument.kind) && argument.index >= 3)) {
    return false;
  }
  if (argument.bytes != 4 && argument.bytes != 8) {
    return false;
  }
  const bool is_value = argument.kind != Kind::kBuffer && argument.kind != Kind::kTrapRecord;
  return !is_shader || !is_value ||
         (argument.offset % argument.bytes == 0 && argument.offset <= variant.push_bytes &&
          variant.push_bytes - argument.offset >= argument.bytes);
}

bool IsVariant(const GpuVariant& variant, bool is_shader, size_t params) {
  uint64_t group = 1;
  for (int d = 0; d < 3; ++d) {
    if (variant.tile[d] < 1 || variant.tile[d] > limits::kGpuTileMax || variant.group[d] > 1024 ||
        (variant.group[d] == 0) != (variant.group[0] == 0)) {
      return false;
    }
    group *= variant.group[d];
  }
  if (group > 1024 || variant.entry.empty() || variant.arguments.size() > limits::kGpuArgumentsMax ||
      variant.push_bytes > limits::kGpuArgumentsMax * 8) {
    return false;
  }
  for (const GpuFactor& factor : variant.factors) {
    if (factor.param >= params || factor.log2 >= 64) {
      return false;
    }
  }
  for (const GpuArgument& argument : variant.arguments) {
    if (!IsArgument(argument, variant, is_shader, params)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void WriteGpuCode(const GpuCode& code, WireWriter& out) {
  out.U8(static_cast<uint8_t>(code.format));
  out.U8(code.is_native);
  out.Text(code.options);
  out.U64(code.private_bytes);
  out.U32(static_cast<uint32_t>(code.variants.size()));
  for (const GpuVariant& variant : code.variants) {
    out.Text(variant.entry);
    WriteTriple(variant.tile, out);
    out.U8(variant.needs_proof);
    out.U8(variant.needs_alignment);
    out.U32(static_cast<uint32_t>(variant.factors.size()));
    for (const GpuFactor& factor : variant.factors) {
      out.U32(factor.param);
      out.U8(factor.log2);
    }
    out.U8(variant.can_trap);
    WriteTriple(variant.group, out);
    WriteTriple(variant.group_constant, out);
    out.U64(variant.local_bytes);
    out.U32(variant.push_bytes);
    out.U32(variant.facts_set);
    out.U32(variant.facts_binding);
    out.U32(static_cast<uint32_t>(variant.arguments.size()));
    for (const GpuArgument& argument : variant.arguments) {
      WriteArgument(argument, out);
    }
  }
}

GpuCode ReadGpuCode(WireReader& in) {
  GpuCode code;
  const uint8_t format = in.U8();
  if (format > static_cast<uint8_t>(GpuFormat::kBitstream)) {
    in.Fail();
    return code;
  }
  code.format = static_cast<GpuFormat>(format);
  code.is_native = in.Flag();
  code.options = in.Text();
  code.private_bytes = in.U64();
  code.variants.resize(in.Count(kVariantBytes));
  for (GpuVariant& variant : code.variants) {
    variant = ReadVariant(in);
  }
  return code;
}

Status ValidateGpuCode(const GpuCode& code, size_t params) {
  if (code.format == GpuFormat::kNone) {
    return code == GpuCode{} ? absl::OkStatus() : InvalidArgument("The artifact has variants for a GPU without code.");
  }
  if (code.variants.empty() || code.variants.size() > limits::kGpuVariantsMax) {
    return InvalidArgument("The artifact's variants for a GPU (" + std::to_string(code.variants.size()) +
                           ") are none or more than the limit (" + std::to_string(limits::kGpuVariantsMax) + ").");
  }
  if (code.options.size() > limits::kBuildOptionsBytesMax) {
    return InvalidArgument("The artifact's build options (" + std::to_string(code.options.size()) +
                           " bytes) are longer than the limit (" + std::to_string(limits::kBuildOptionsBytesMax) +
                           " bytes).");
  }
  for (size_t i = 0; i < code.variants.size(); ++i) {
    if (!IsVariant(code.variants[i], code.format == GpuFormat::kSpirvShader, params)) {
      return InvalidArgument("The artifact's variant " + std::to_string(i) + " for a GPU is malformed.");
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm
