// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/local.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <map>

#include "client/ctl/report.h"

#include "base/bytes.h"
#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/io/memfd.h"
#include "base/io/secret_file.h"
#include "base/limits.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;

std::string CacheFolder() {
  if (const char* cache = getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/hpvm";
  }
  const char* home = getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/hpvm" : std::string();
}

// Waits for the answer that a link's callback brings.
template <typename T>
class Answer {
 public:
  std::function<void(StatusOr<T>)> Callback() {
    return [this](StatusOr<T> value) { promise_.set_value(std::move(value)); };
  }
  StatusOr<T> Wait() { return promise_.get_future().get(); }

 private:
  std::promise<StatusOr<T>> promise_;
};

class LocalRun {
 public:
  static StatusOr<std::unique_ptr<LocalRun>> Start() {
    std::unique_ptr<LocalRun> run(new LocalRun);
    supervisor::ExecutorOptions options;
    options.standalone = true;
    HPVMD_ASSIGN_OR_RETURN(options.program, ExecutorProgram());
    if (const std::optional<LocalCache> cache = OpenLocalCache()) {
      options.hello.set_cache_folder(cache->folder);
      options.hello.set_artifact_key(cache->key.data(), cache->key.size());
    }
    options.stderr_fd = STDERR_FILENO;
    HPVMD_ASSIGN_OR_RETURN(run->hub_, supervisor::ExecutorHub::Create());
    HPVMD_ASSIGN_OR_RETURN(run->link_, supervisor::ExecutorLink::Start(*run->hub_, options));
    HPVMD_RETURN_IF_ERROR(While(run->link_->WaitReady(RealClock().Now() + std::chrono::seconds(15)).status(),
                                "starting " + options.program));
    return run;
  }

  // `within`: 0 is as long as it takes.
  StatusOr<v1::GraphSummary> Prepare(const GraphJob& job, const PrepareOptions& options, Duration within) {
    supervisor::PrepareInput input;
    input.handle = 1;
    input.within = within;
    input.check = options.check;
    input.document.bytes = BytesOf(job.document);
    if (!job.modules.hashes.empty()) {
      return NotFound("Module \"" + job.modules.hashes.begin()->first +
                      "\" is named by its hash, which only a server can look up; name a file to run it here.");
    }
    for (const auto& [name, bytes] : job.modules.bytes) {
      input.modules.push_back({name, HashOf(bytes), {bytes, -1, 0}});
    }
    Answer<internal::Prepared> answer;
    link_->Prepare(input, answer.Callback());
    HPVMD_ASSIGN_OR_RETURN(internal::Prepared reply, answer.Wait());
    HPVMD_RETURN_IF_ERROR(GetStatus(reply.status()));
    const Diagnostics diagnostics = GetDiagnostics(reply.diagnostics());
    if (!reply.has_summary()) {
      HPVMD_RETURN_IF_ERROR(ToStatus(diagnostics));
      return Internal("The executor gave neither a summary nor a reason.");
    }
    for (const Diagnostic& warning : diagnostics) {
      PrintWarning(ToString(warning));
    }
    return std::move(*reply.mutable_summary());
  }

  StatusOr<RunOutcome> Run(const GraphJob& job, const RunOptions& options) {
    supervisor::RunInput input;
    input.handle = 1;
    input.symbols = job.symbols;
    job.repetition.Put(&input.options);
    input.options.set_node_records_max(options.placements_max);
    input.options.set_log(options.log != nullptr);
    input.within = Duration(static_cast<int64_t>(options.call.request.deadline_ns()));
    HPVMD_RETURN_IF_ERROR(BindInputs(job, &input));
    HPVMD_ASSIGN_OR_RETURN(supervisor::RunReply reply, Ask(input));
    if (reply.done.needs_memory()) {
      HPVMD_RETURN_IF_ERROR(BindOutputs(reply.done, &input));
      HPVMD_ASSIGN_OR_RETURN(reply, Ask(input));
    }
    if (options.log != nullptr) {
      *options.log = reply.done.log();
    }
    HPVMD_RETURN_IF_ERROR(reply.status());
    return Take(reply);
  }

 private:
  LocalRun() = default;

  StatusOr<supervisor::RunReply> Ask(const supervisor::RunInput& input) {
    Answer<supervisor::RunReply> answer;
    link_->Run(input, answer.Callback());
    return answer.Wait();
  }

  StatusOr<supervisor::MemorySlice> NewMemory(uint64_t bytes) {
    HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("hpvm-tensor", bytes));
    memories_.push_back(std::move(fd));
    return supervisor::MemorySlice{memories_.size(), memories_.back().get(), bytes, true, 0, bytes};
  }

  Status BindInputs(const GraphJob& job, supervisor::RunInput* input) {
    for (const auto& [name, tensor] : job.inputs) {
      supervisor::InputTensor bound{name, tensor.type, tensor.shape, tensor.data, std::nullopt};
      if (tensor.data.size() > limits::kInlineTensorBytesMax) {
        HPVMD_ASSIGN_OR_RETURN(bound.memory, NewMemory(tensor.data.size()));
        bound.bytes = {};
        HPVMD_RETURN_IF_ERROR(WriteAt(bound.memory->fd, 0, tensor.data));
      }
      input->inputs.push_back(std::move(bound));
    }
    return absl::OkStatus();
  }

  // Large outputs need memory that is there before the run.
  Status BindOutputs(const internal::RunDone& sizes, supervisor::RunInput* input) {
    for (const internal::OutputTensor& output : sizes.outputs()) {
      if (output.bytes() <= limits::kInlineTensorBytesMax) {
        continue;
      }
      HPVMD_ASSIGN_OR_RETURN(supervisor::MemorySlice memory, NewMemory(output.bytes()));
      output_fds_[output.name()] = memory.fd;
      input->outputs.push_back({output.name(), supervisor::OutputTarget::Kind::kMemory, memory});
    }
    return absl::OkStatus();
  }

  StatusOr<RunOutcome> Take(const supervisor::RunReply& reply) {
    const internal::RunDone& done = reply.done;
    RunOutcome outcome;
    for (const internal::OutputTensor& output : done.outputs()) {
      const std::span<const uint8_t> data = reply.DataOf(output);
      Tensor tensor{static_cast<ElementType>(output.type()),
                    {output.shape().begin(), output.shape().end()},
                    {data.begin(), data.end()}};
      if (auto it = output_fds_.find(output.name()); it != output_fds_.end()) {
        tensor.data.resize(output.bytes());
        HPVMD_RETURN_IF_ERROR(ReadAt(it->second, 0, tensor.data));
      }
      outcome.outputs[output.name()] = std::move(tensor);
    }
    outcome.timing = done.timing();
    outcome.placements.assign(done.nodes().begin(), done.nodes().end());
    outcome.nodes_run = done.nodes_run();
    outcome.repetitions = done.repetitions();
    outcome.converged = done.converged();
    outcome.traffic = done.traffic();
    return outcome;
  }

  std::unique_ptr<supervisor::ExecutorHub> hub_;
  std::unique_ptr<supervisor::ExecutorLink> link_;  // After hub_: destroyed first.
  std::vector<UniqueFd> memories_;                  // Index + 1 is the memory's id.
  std::map<std::string, int> output_fds_;           // Borrowed from memories_.
};

}  // namespace

StatusOr<std::string> ExecutorProgram() {
  if (const char* named = getenv("HPVM_EXECUTOR"); named != nullptr) {
    return std::string(named);
  }
  std::error_code error;
  fs::path self = fs::read_symlink("/proc/self/exe", error);
  fs::path program = self.parent_path() / "hpvm-executor";
  if (error || access(program.c_str(), X_OK) != 0) {
    return NotFound("The program \"" + program.string() + "\" is not there; HPVM_EXECUTOR can name it.");
  }
  return program.string();
}

std::optional<LocalCache> OpenLocalCache() {
  const std::string folder = CacheFolder();
  std::error_code error;
  fs::create_directories(folder, error);
  if (folder.empty() || error || chmod(folder.c_str(), 0700) != 0) {
    return std::nullopt;
  }
  const StatusOr<std::array<uint8_t, 32>> key = LoadSecret(folder + "/artifact.key");
  return key.ok() ? std::optional(LocalCache{folder, *key}) : std::nullopt;
}

RunOptions WithinDeadline(RunOptions options, Duration taken) {
  if (const uint64_t deadline_ns = options.call.request.deadline_ns(); deadline_ns != 0) {
    const auto taken_ns = static_cast<uint64_t>(taken.count());
    options.call.request.set_deadline_ns(deadline_ns > taken_ns ? deadline_ns - taken_ns : 1);
  }
  return options;
}

StatusOr<LocalOutcome> RunLocally(const GraphJob& job, const RunOptions& options, const PrepareOptions& prepare) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<LocalRun> local, LocalRun::Start());
  const Time begin = RealClock().Now();
  const Duration within(static_cast<int64_t>(options.call.request.deadline_ns()));
  HPVMD_ASSIGN_OR_RETURN(const v1::GraphSummary summary, local->Prepare(job, prepare, within));
  LocalOutcome outcome;
  outcome.graph = summary.name();
  outcome.prepare = summary.timing();
  HPVMD_ASSIGN_OR_RETURN(outcome.run, local->Run(job, WithinDeadline(options, RealClock().Now() - begin)));
  return outcome;
}

}  // namespace hpvm::ctl
