// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/service.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/io/memfd.h"
#include "base/limits.h"
#include "builder/client.h"
#include "compiler/api/compile_message.h"
#include "compiler/api/cost_record.h"

namespace hpvm {
namespace {

// Maximum number of unsent records; kernels settle one by one.
constexpr size_t kKeptMax = 256;

CompileOutcome Refused(const CompileRequest& request, std::string message) {
  CompileOutcome outcome;
  outcome.diagnostics.push_back({Severity::kError, "module \"" + request.module_name + "\"", {}, std::move(message)});
  return outcome;
}

class ZygoteClient final : public CompilerService {
 public:
  ZygoteClient(UniqueFd socket, const ArtifactKey& key, const std::string& cache_folder)
      : key_(key),
        client_(std::move(socket), {key, cache_folder},
                {.limits = kZygoteFrameLimits, .peer = "The compiler process", .next_note = [this] {
                   return NextKept();
                 }}) {}

  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override {
    const Time begin = RealClock().Now();
    if (request.module.empty() || request.module.size() > limits::kModuleBytesMax) {
      return Refused(request, "The module's size (" + std::to_string(request.module.size()) + " bytes) is not in [1, " +
                                  std::to_string(limits::kModuleBytesMax) + "].");
    }
    UniqueFd made;
    if (request.module_memfd < 0) {
      HPVMD_ASSIGN_OR_RETURN(made, CreateSealedMemfd("hpvm-module", request.module.size()));
      HPVMD_RETURN_IF_ERROR(WriteAt(made.get(), 0, request.module));
    }
    const int fds[] = {request.module_memfd < 0 ? made.get() : request.module_memfd};
    ZygoteRequest message;
    message.compile = request;
    message.remaining_ns =
        deadline == kNever ? 0 : static_cast<uint64_t>(std::max(Duration(1), deadline - RealClock().Now()).count());
    HPVMD_ASSIGN_OR_RETURN(
        builder::BuildClient::Answer answer,
        client_.Build(
            {.payload = PayloadOf(message), .body = {}, .fds = fds, .deadline = deadline, .stop = request.stop}));
    const StatusOr<internal::CompileAnswer> response = ReadCompileAnswer(answer.payload);
    if (!response.ok()) {
      return client_.Close(response.status());
    }
    if (response->end() == internal::CompileAnswer::END_DEADLINE) {
      return DeadlineExceeded(response->diagnostics(0).message());
    }
    CompileOutcome outcome;
    if (response->end() == internal::CompileAnswer::END_LIMIT) {
      outcome.limit = ResourceExhausted(response->diagnostics(0).message());
    }
    outcome.diagnostics = GetDiagnostics(*response);
    outcome.from_cache = response->from_cache();
    outcome.cpu = Duration(static_cast<int64_t>(std::min<uint64_t>(response->cpu_ns(), INT64_MAX)));
    if (response->has_artifact()) {
      HPVMD_ASSIGN_OR_RETURN(outcome.artifact, ParseArtifact(answer.body, key_));
      outcome.artifact->name = GetHash(response->name());
      outcome.artifact->tuning.assign(response->tuning().begin(), response->tuning().end());
      outcome.artifact->costs.assign(response->costs().begin(), response->costs().end());
    } else if (!HasErrors(outcome.diagnostics)) {
      return Internal("The compiler answered with neither an artifact nor an error.");
    }
    outcome.elapsed = RealClock().Now() - begin;
    return outcome;
  }
  void Keep(const Sha256& name, std::span<const uint8_t> record) override {
    if (record.size() <= kTuningBytesMax) {
      Keep(name, /*is_costs=*/false, record);
    }
  }
  void KeepCosts(const Sha256& name, std::span<const uint8_t> record) override {
    if (record.size() <= kCostRecordBytesMax) {
      Keep(name, /*is_costs=*/true, record);
    }
  }

 private:
  void Keep(const Sha256& name, bool is_costs, std::span<const uint8_t> record) {
    {
      std::lock_guard lock(kept_mutex_);
      if (kept_.size() >= kKeptMax) {
        return;
      }
      kept_[{name, is_costs}].assign(record.begin(), record.end());
    }
    client_.SendNotes();
  }
  std::optional<std::string> NextKept() {
    std::lock_guard lock(kept_mutex_);
    if (kept_.empty()) {
      return std::nullopt;
    }
    const auto record = kept_.extract(kept_.begin());
    const auto& [name, is_costs] = record.key();
    internal::CompileNote note;
    SetHash(name, note.mutable_name());
    *(is_costs ? note.mutable_costs() : note.mutable_tuning()) = {record.mapped().begin(), record.mapped().end()};
    return note.SerializeAsString();
  }

  const ArtifactKey key_;
  std::mutex kept_mutex_;
  // Unsent records, by name and by whether they are costs; sent as soon as the connection takes them without waiting.
  // Guarded by kept_mutex_.
  std::map<std::pair<Sha256, bool>, std::vector<uint8_t>> kept_;
  builder::BuildClient client_;
};

}  // namespace

std::unique_ptr<CompilerService> ConnectCompiler(UniqueFd socket, const ArtifactKey& key,
                                                 const std::string& cache_folder) {
  return std::make_unique<ZygoteClient>(std::move(socket), key, cache_folder);
}

}  // namespace hpvm
