// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/gpu_code.h"

#include <algorithm>

#include "base/limits.h"
#include "proto/internal/builder.pb.h"

namespace hpvm {
namespace {

using Kind = GpuArgument::Kind;
using Triple = std::array<uint32_t, 3>;

template <typename Field>
void Set(const Triple& values, Field* field) {
  field->Add(values.begin(), values.end());
}

template <typename Field>
bool Get(const Field& field, Triple* values) {
  if (field.size() != static_cast<int>(values->size())) {
    return false;
  }
  std::copy(field.begin(), field.end(), values->begin());
  return true;
}

void Set(const GpuVariant& variant, internal::GpuVariant* message) {
  message->set_entry(variant.entry);
  Set(variant.tile, message->mutable_tile());
  message->set_needs_proof(variant.needs_proof);
  message->set_needs_alignment(variant.needs_alignment);
  for (const GpuFactor& factor : variant.factors) {
    internal::GpuFactor* said = message->add_factors();
    said->set_param(factor.param);
    said->set_log2(factor.log2);
  }
  message->set_can_trap(variant.can_trap);
  Set(variant.group, message->mutable_group());
  Set(variant.group_constant, message->mutable_group_constant());
  message->set_local_bytes(variant.local_bytes);
  message->set_push_bytes(variant.push_bytes);
  message->set_facts_set(variant.facts_set);
  message->set_facts_binding(variant.facts_binding);
  for (const GpuArgument& argument : variant.arguments) {
    internal::GpuArgument* said = message->add_arguments();
    said->set_kind(static_cast<uint32_t>(argument.kind));
    said->set_index(argument.index);
    said->set_bytes(argument.bytes);
    said->set_is_writable(argument.is_writable);
    said->set_set(argument.set);
    said->set_binding(argument.binding);
    said->set_offset(argument.offset);
  }
}

bool Get(const internal::GpuVariant& message, GpuVariant* variant) {
  variant->entry = message.entry();
  variant->needs_proof = message.needs_proof();
  variant->needs_alignment = message.needs_alignment();
  for (const internal::GpuFactor& factor : message.factors()) {
    if (factor.log2() >= 64) {
      return false;
    }
    variant->factors.push_back({factor.param(), static_cast<uint8_t>(factor.log2())});
  }
  variant->can_trap = message.can_trap();
  variant->local_bytes = message.local_bytes();
  variant->push_bytes = message.push_bytes();
  variant->facts_set = message.facts_set();
  variant->facts_binding = message.facts_binding();
  for (const internal::GpuArgument& argument : message.arguments()) {
    if (argument.kind() < static_cast<uint32_t>(Kind::kBuffer) ||
        argument.kind() > static_cast<uint32_t>(Kind::kGroupBase) || argument.bytes() > UINT8_MAX) {
      return false;
    }
    variant->arguments.push_back({static_cast<Kind>(argument.kind()), argument.index(),
                                  static_cast<uint8_t>(argument.bytes()), argument.is_writable(), argument.set(),
                                  argument.binding(), argument.offset()});
  }
  return Get(message.tile(), &variant->tile) && Get(message.group(), &variant->group) &&
         Get(message.group_constant(), &variant->group_constant);
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

internal::GpuCode MessageOf(const GpuCode& code) {
  internal::GpuCode message;
  message.set_format(static_cast<uint32_t>(code.format));
  message.set_is_native(code.is_native);
  message.set_options(code.options);
  message.set_private_bytes(code.private_bytes);
  for (const GpuVariant& variant : code.variants) {
    Set(variant, message.add_variants());
  }
  return message;
}

StatusOr<GpuCode> GetGpuCode(const internal::GpuCode& message) {
  const Status malformed = InvalidArgument("The description of code for a GPU is malformed.");
  if (message.format() > static_cast<uint32_t>(GpuFormat::kBitstream)) {
    return malformed;
  }
  GpuCode code;
  code.format = static_cast<GpuFormat>(message.format());
  code.is_native = message.is_native();
  code.options = message.options();
  code.private_bytes = message.private_bytes();
  for (const internal::GpuVariant& variant : message.variants()) {
    if (!Get(variant, &code.variants.emplace_back())) {
      return malformed;
    }
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
