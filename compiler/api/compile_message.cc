// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/compile_message.h"

#include <algorithm>

#include "base/device_family.h"
#include "base/diagnostic_list.h"
#include "base/module_kind.h"
#include "base/unchecked.h"
#include "compiler/api/cost_record.h"
#include "compiler/api/learnt.h"

namespace hpvm {
namespace {

constexpr size_t kHashBytes = sizeof(Sha256::bytes);

Status Malformed(const char* what) {
  return InvalidArgument(std::string("The compiler connection's ") + what + " message is malformed.");
}

template <typename Enum>
bool IsAtMost(uint32_t value, Enum last) {
  return value <= static_cast<uint32_t>(last);
}

std::span<const uint8_t> SpanOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Explained compiles alone may ask for some things: their artifacts are not kept. A GPU's facts are part of the name of
// an artifact, whether a request has them or they are looked up.
bool IsExplainConsistent(const internal::CompileRequest& message) {
  constexpr size_t kLevelBytesMax = 32;
  return IsAtMost(message.listing(), Listing::kDevice) && message.level().size() <= kLevelBytesMax &&
         (message.explain() || (message.listing() == 0 && !message.infers_params() &&
                                (message.level().empty() || IsGpuCode(static_cast<ArtifactKind>(message.target())))));
}

bool IsRequest(const internal::CompileRequest& message) {
  const bool are_params = std::all_of(message.params().begin(), message.params().end(),
                                      [](const auto& param) { return IsAtMost(param.scalar(), ir::Type::kF64); });
  return are_params && IsExplainConsistent(message) && message.module_hash().size() == kHashBytes &&
         message.module_kind() <= UINT8_MAX && Find(static_cast<ModuleKind>(message.module_kind())) != nullptr &&
         static_cast<size_t>(message.params_size()) <= limits::kKernelParamsMax &&
         IsAtMost(message.abi(), Abi::kHpvmWeb) && message.options().size() <= limits::kBuildOptionsBytesMax &&
         static_cast<size_t>(message.constants_size()) <= limits::kSpecialisationConstantsMax &&
         message.target() <= UINT8_MAX && Find(static_cast<ArtifactKind>(message.target())) != nullptr;
}

StatusOr<ZygoteRequest> RequestOf(const internal::CompileRequest& message) {
  StatusOr<GpuTarget> gpu = GetGpuTarget(message.gpu());
  if (!IsRequest(message) || !gpu.ok()) {
    return Malformed("request");
  }
  ZygoteRequest request;
  request.remaining_ns = message.remaining_ns();
  CompileRequest& compile = request.compile;
  compile.module_kind = static_cast<ModuleKind>(message.module_kind());
  compile.module_name = message.module_name();
  compile.module_hash = GetHash(message.module_hash());
  compile.entry = message.entry();
  for (const internal::CompileParam& param : message.params()) {
    compile.params.push_back(
        {param.name(), param.is_buffer(), param.is_writable(), static_cast<ir::Type>(param.scalar()), param.is_read()});
  }
  compile.infers_params = message.infers_params();
  compile.abi = static_cast<Abi>(message.abi());
  compile.target = static_cast<ArtifactKind>(message.target());
  compile.gpu = *std::move(gpu);
  compile.fast_math = message.fast_math();
  compile.options = message.options();
  for (const internal::CompileConstant& constant : message.constants()) {
    compile.constants.push_back({constant.id(), constant.is_float(), constant.bits()});
  }
  compile.explain = message.explain();
  compile.listing = static_cast<Listing>(message.listing());
  compile.level = message.level();
  return request;
}

}  // namespace

internal::CompileRequest MessageOf(const ZygoteRequest& request) {
  const CompileRequest& compile = request.compile;
  internal::CompileRequest message;
  message.set_remaining_ns(request.remaining_ns);
  message.set_module_kind(static_cast<uint32_t>(compile.module_kind));
  message.set_module_name(compile.module_name);
  SetHash(compile.module_hash, message.mutable_module_hash());
  message.set_entry(compile.entry);
  for (const ParamSpec& param : compile.params) {
    internal::CompileParam* said = message.add_params();
    said->set_name(param.name);
    said->set_is_buffer(param.is_buffer);
    said->set_is_writable(param.is_writable);
    said->set_is_read(param.is_read);
    said->set_scalar(static_cast<uint32_t>(param.scalar));
  }
  message.set_infers_params(compile.infers_params);
  message.set_abi(static_cast<uint32_t>(compile.abi));
  message.set_target(static_cast<uint32_t>(compile.target));
  *message.mutable_gpu() = MessageOf(compile.gpu);
  message.set_fast_math(compile.fast_math);
  message.set_options(compile.options);
  for (const SpecialisationConstant& constant : compile.constants) {
    internal::CompileConstant* said = message.add_constants();
    said->set_id(constant.id);
    said->set_is_float(constant.is_float);
    said->set_bits(constant.bits);
  }
  message.set_explain(compile.explain);
  message.set_listing(static_cast<uint32_t>(compile.listing));
  message.set_level(compile.level);
  return message;
}

StatusOr<ZygoteRequest> ReadCompileRequest(std::string_view payload) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::CompileRequest>(payload));
  return std::move(said).Open(RequestOf);
}

StatusOr<internal::CompileAnswer> ReadCompileAnswer(std::string_view payload) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::CompileAnswer>(payload));
  return std::move(said).Open([](internal::CompileAnswer answer) -> StatusOr<internal::CompileAnswer> {
    const bool has_ended = answer.end() != internal::CompileAnswer::END_ITSELF;
    if (!internal::CompileAnswer::End_IsValid(answer.end()) || answer.learnt().size() > kLearntBytesMax ||
        answer.costs().size() > kCostRecordBytesMax || (!answer.name().empty() && answer.name().size() != kHashBytes) ||
        (has_ended && (answer.has_artifact() || answer.diagnostics().empty()))) {
      return Malformed("answer");
    }
    return answer;
  });
}

StatusOr<internal::CompileNote> ReadCompileNote(std::string_view payload) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::CompileNote>(payload));
  return std::move(said).Open([](internal::CompileNote note) -> StatusOr<internal::CompileNote> {
    const bool is_record =
        note.has_costs() ? DecodeCosts(SpanOf(note.costs())).ok() : DecodeLearnt(SpanOf(note.learnt())).ok();
    if (note.name().size() != kHashBytes || !is_record) {
      return Malformed("note");
    }
    return note;
  });
}

void SetDiagnostics(const Diagnostics& diagnostics, internal::CompileAnswer* answer) {
  // An answer's head holds a hundred of these with room to spare.
  constexpr size_t kTextBytesMax = 4096;
  uint64_t omitted = 0;  // A hundred tell enough of one module.
  for (const Diagnostic& diagnostic : Shortened(diagnostics, limits::kDiagnosticsMax, &omitted)) {
    internal::CompileDiagnostic* said = answer->add_diagnostics();
    said->set_is_warning(diagnostic.severity == Severity::kWarning);
    said->set_place(diagnostic.place.substr(0, kTextBytesMax));
    if (diagnostic.offset.has_value()) {
      said->set_offset(*diagnostic.offset);
    }
    said->set_message(diagnostic.message.substr(0, kTextBytesMax));
  }
}

Diagnostics GetDiagnostics(const internal::CompileAnswer& answer) {
  Diagnostics diagnostics;
  for (const internal::CompileDiagnostic& said : answer.diagnostics()) {
    Diagnostic& diagnostic = diagnostics.emplace_back();
    diagnostic.severity = said.is_warning() ? Severity::kWarning : Severity::kError;
    diagnostic.place = said.place();
    if (said.has_offset()) {
      diagnostic.offset = said.offset();
    }
    diagnostic.message = said.message();
  }
  return diagnostics;
}

void SetHash(const Sha256& hash, std::string* bytes) { bytes->assign(hash.bytes.begin(), hash.bytes.end()); }

Sha256 GetHash(std::string_view bytes) {
  Sha256 hash;
  if (bytes.size() == kHashBytes) {
    std::copy(bytes.begin(), bytes.end(), hash.bytes.begin());
  }
  return hash;
}

}  // namespace hpvm
