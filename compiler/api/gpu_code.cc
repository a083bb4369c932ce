// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_code.h"

#include <algorithm>

#include "base/limits.h"

namespace hpvm {
namespace {

using Kind = GpuArgument::Kind;

// Shifts by 64 or more are undefined, so such a factor is invalid.
bool IsFactor(const GpuFactor& factor) { return factor.log2 < 64; }
bool HasKind(const GpuArgument& argument) {
  return argument.kind >= Kind::kBuffer && argument.kind <= Kind::kGroupBase;
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
  if (group > 1024 || variant.entry.empty() || (variant.needs_words && !variant.needs_proof) ||
      variant.arguments.size() > limits::kGpuArgumentsMax || variant.push_bytes > limits::kGpuArgumentsMax * 8) {
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

bool IsWellFormed(const GpuCode& code) {
  return code.format <= GpuFormat::kBitstream && std::ranges::all_of(code.variants, [](const GpuVariant& variant) {
           return std::ranges::all_of(variant.factors, IsFactor) && std::ranges::all_of(variant.arguments, HasKind);
         });
}

Status ValidateGpuCode(const GpuCode& code, size_t params) {
  if (code.format == GpuFormat::kNone) {
    return code == GpuCode{} ? absl::OkStatus()
                             : InvalidArgument("The artifact has variants for a GPU but no GPU code.");
  }
  if (code.variants.empty() || code.variants.size() > limits::kGpuVariantsMax) {
    return InvalidArgument("The artifact's variants for a GPU (" + std::to_string(code.variants.size()) +
                           ") must be at least 1 and at most the limit (" + std::to_string(limits::kGpuVariantsMax) +
                           ").");
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
