// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/compile_message.h"

#include <algorithm>
#include <tuple>

#include "base/device_family.h"
#include "base/diagnostic_list.h"
#include "base/module_kind.h"
#include "base/unchecked.h"
#include "compiler/api/cost_record.h"
#include "compiler/api/tuning_record.h"
#include "compiler/api/wire.h"

namespace hpvm {

static auto FieldsOf(ParamSpec& p) { return std::tie(p.name, p.is_buffer, p.is_writable, p.scalar, p.is_read); }
static auto FieldsOf(SpecialisationConstant& c) { return std::tie(c.id, c.is_float, c.bits); }
static auto FieldsOf(ZygoteRequest& request) {
  CompileRequest& c = request.compile;
  return std::tie(request.remaining_ns, c.module_kind, c.module_name, c.module_hash, c.entry, c.params, c.infers_params,
                  c.abi, c.target, c.gpu, c.fast_math, c.options, c.constants, c.explain, c.listing, c.level);
}

namespace {

constexpr size_t kHashBytes = sizeof(Sha256::bytes);

Status Malformed(const char* what) {
  return InvalidArgument(std::string("The compiler connection's ") + what + " message is malformed.");
}

// Only explained compiles, whose artifacts are not kept, may request listings, inferred parameters and CPU levels. A
// GPU level needs no explanation, because the GPU's properties are part of an artifact's name in any case.
bool IsExplainConsistent(const CompileRequest& request) {
  constexpr size_t kLevelBytesMax = 32;
  return request.listing <= Listing::kDevice && request.level.size() <= kLevelBytesMax &&
         (request.explain || (request.listing == Listing::kNone && !request.infers_params &&
                              (request.level.empty() || IsGpuCode(request.target))));
}

bool IsWellFormed(const CompileRequest& request) {
  const bool are_params =
      std::ranges::all_of(request.params, [](const ParamSpec& param) { return param.scalar <= ir::Type::kF64; });
  return are_params && IsExplainConsistent(request) && Find(request.module_kind) != nullptr &&
         request.params.size() <= limits::kKernelParamsMax && request.abi <= Abi::kHpvmWeb &&
         request.options.size() <= limits::kBuildOptionsBytesMax &&
         request.constants.size() <= limits::kSpecialisationConstantsMax && Find(request.target) != nullptr &&
         IsWellFormed(request.gpu);
}

}  // namespace

std::string PayloadOf(const ZygoteRequest& request) { return std::string(TextOf(WireBytes(request))); }

StatusOr<ZygoteRequest> ReadCompileRequest(std::string_view payload) {
  ZygoteRequest request;
  if (!ReadWire(BytesOf(payload), request) || !IsWellFormed(request.compile)) {
    return Malformed("request");
  }
  return request;
}

StatusOr<internal::CompileAnswer> ReadCompileAnswer(std::string_view payload) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::CompileAnswer>(payload));
  return std::move(said).Open([](internal::CompileAnswer answer) -> StatusOr<internal::CompileAnswer> {
    const bool has_ended = answer.end() != internal::CompileAnswer::END_ITSELF;
    if (!internal::CompileAnswer::End_IsValid(answer.end()) || answer.tuning().size() > kTuningBytesMax ||
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
        note.has_costs() ? DecodeCosts(BytesOf(note.costs())).ok() : DecodeTuning(BytesOf(note.tuning())).ok();
    if (note.name().size() != kHashBytes || !is_record) {
      return Malformed("note");
    }
    return note;
  });
}

void SetDiagnostics(const Diagnostics& diagnostics, internal::CompileAnswer* answer) {
  // An answer's head holds a hundred of these with room to spare.
  constexpr size_t kTextBytesMax = 4096;
  uint64_t omitted = 0;  // A hundred diagnostics suffice for one module.
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
