// SPDX-License-Identifier: Apache-2.0
#include "hpvm/local_engine.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <utility>

#include "client/local/executor_files.h"
#include "client/status/status.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/diagnostic.h"
#include "base/hash.h"
#include "base/io/memfd.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_link.h"

namespace hpvm {
namespace {

constexpr char kHandlePrefix[] = "local-";

// Answer waits for the response that a link's callback delivers.
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

// Returns the time limit for the process: the work's own deadline or the call's, whichever is sooner; 0 for none.
Duration WithinOf(const CallOptions& call) {
  const Duration deadline(static_cast<int64_t>(std::min<uint64_t>(call.request.deadline_ns(), INT64_MAX)));
  if (call.timeout == kNever) {
    return deadline;
  }
  const Duration timeout = std::max(call.timeout, Duration(1));
  return deadline == Duration(0) ? timeout : std::min(deadline, timeout);
}

std::stop_token StopOf(const CallOptions& call) {
  return call.cancel.has_value() ? call.cancel->token() : std::stop_token();
}

}  // namespace

struct [[gnu::visibility("hidden")]] LocalEngine::Process {
  // Memory of one run, which the process releases together with it.
  class Memory {
   public:
    explicit Memory(Process& process) : process_(process) {}
    ~Memory() {
      for (const auto& [id, fd] : fds_) {
        process_.link->Forget(id);
      }
    }
    StatusOr<supervisor::MemorySlice> Make(uint64_t bytes) {
      HPVMD_ASSIGN_OR_RETURN(UniqueFd fd, CreateSealedMemfd("hpvm-tensor", bytes));
      const uint64_t id = ++process_.memories;
      const int number = fd.get();
      fds_.emplace_back(id, std::move(fd));
      return supervisor::MemorySlice{id, number, bytes, true, 0, bytes};
    }

   private:
    Process& process_;
    std::vector<std::pair<uint64_t, UniqueFd>> fds_;
  };

  // Sends a request and waits for the response; a cancellation makes the process stop the work.
  template <typename T, typename Send>
  StatusOr<T> Ask(const CallOptions& call, const Send& send) {
    const std::stop_token stop = StopOf(call);
    if (stop.stop_requested()) {
      return Cancelled("The caller cancelled the call.");
    }
    Answer<T> answer;
    const supervisor::RequestId id = send(answer.Callback());
    const std::stop_callback on_stop(stop, [this, id] {
      if (id != 0) {
        link->Cancel(id);
      }
    });
    return answer.Wait();
  }

  StatusOr<uint64_t> Find(const std::string& handle) {
    const std::lock_guard lock(mutex);
    uint64_t number = 0;
    const std::string_view digits = std::string_view(handle).substr(std::min(sizeof(kHandlePrefix) - 1, handle.size()));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (!handle.starts_with(kHandlePrefix) || error != std::errc() || end != digits.data() + digits.size() ||
        !handles.contains(number)) {
      return NotFound("There is no prepared graph \"" + handle + "\".");
    }
    return number;
  }

  Status BindInputs(const std::map<std::string, Tensor>& inputs, Memory* memory, supervisor::RunInput* input);
  // Large outputs need memory that exists before the run.
  Status BindOutputs(const internal::RunDone& sizes, Memory* memory, supervisor::RunInput* input);
  StatusOr<RunOutcome> Take(const supervisor::RunReply& reply, const supervisor::RunInput& input);

  std::unique_ptr<supervisor::ExecutorHub> hub;
  std::unique_ptr<supervisor::ExecutorLink> link;  // After the hub, so destroyed first.
  supervisor::ExecutorReady ready;
  std::atomic<uint64_t> memories{0};
  std::mutex mutex;
  uint64_t next_handle = 1;    // This and the following members are guarded by mutex.
  std::set<uint64_t> handles;  // Prepared and not yet released.
};

LocalEngine::LocalEngine(std::unique_ptr<Process> process) : process_(std::move(process)) {}
LocalEngine::~LocalEngine() = default;

StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Start(const LocalEngineOptions& options) {
  auto process = std::make_unique<Process>();
  supervisor::ExecutorOptions start;
  start.standalone = true;
  start.program = options.program;
  if (start.program.empty()) {
    HPVMD_ASSIGN_OR_RETURN(start.program, ExecutorProgram());
  }
  if (const std::optional<LocalCache> cache = OpenLocalCache(options.cache_folder)) {
    start.hello.set_cache_folder(cache->folder);
    start.hello.set_artifact_key(cache->key.data(), cache->key.size());
  }
  if (!options.devices.empty()) {
    start.hello.mutable_backends()->Assign(options.devices.begin(), options.devices.end());
  }
  start.stderr_fd = options.stderr_fd;
  start.ready_within = options.start_timeout;
  HPVMD_ASSIGN_OR_RETURN(process->hub, supervisor::ExecutorHub::Create());
  HPVMD_ASSIGN_OR_RETURN(process->link, supervisor::ExecutorLink::Start(*process->hub, start));
  HPVMD_ASSIGN_OR_RETURN(process->ready, While(process->link->WaitReady(RealClock().Now() + options.start_timeout),
                                               "starting " + start.program));
  return std::unique_ptr<LocalEngine>(new LocalEngine(std::move(process)));
}

std::vector<v1::Device> LocalEngine::ListDevices() const {
  std::vector<v1::Device> devices;
  for (const internal::DeviceReport& report : process_->ready.said.devices()) {
    devices.push_back(report.device());
  }
  return devices;
}

StatusOr<Prepared> LocalEngine::Prepare(std::string_view document, const Modules& modules, const CallOptions& call,
                                        const PrepareOptions& options) {
  supervisor::PrepareInput input;
  input.within = WithinOf(call);
  input.check = options.check;
  input.document.bytes = BytesOf(document);
  if (!modules.hashes.empty()) {
    return NotFound("Module \"" + modules.hashes.begin()->first +
                    "\" is named by its hash, which only a server can look up; name a file to run it here.");
  }
  for (const auto& [name, bytes] : modules.bytes) {
    input.modules.push_back({name, HashOf(bytes), {bytes, -1, 0}});
  }
  {
    const std::lock_guard lock(process_->mutex);
    input.handle = process_->next_handle++;
  }
  HPVMD_ASSIGN_OR_RETURN(internal::Prepared reply, process_->Ask<internal::Prepared>(call, [&](auto done) {
    return process_->link->Prepare(input, std::move(done));
  }));
  HPVMD_RETURN_IF_ERROR(GetStatus(reply.status()));
  if (!reply.has_summary()) {
    HPVMD_RETURN_IF_ERROR(WithDiagnostics(ToStatus(GetDiagnostics(reply.diagnostics())), reply.diagnostics()));
    return Internal("The executor gave neither a summary nor a reason.");
  }
  const std::lock_guard lock(process_->mutex);
  process_->handles.insert(input.handle);
  return Prepared{kHandlePrefix + std::to_string(input.handle), std::move(*reply.mutable_summary()),
                  std::move(*reply.mutable_diagnostics())};
}

StatusOr<Prepared> LocalEngine::Prepare(const Graph& graph, const CallOptions& call, const PrepareOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, graph.document());
  HPVMD_ASSIGN_OR_RETURN(const Modules modules, graph.modules());
  return Prepare(document, modules, call, options);
}

Status LocalEngine::Release(const std::string& handle, const CallOptions&) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t number, process_->Find(handle));
  {
    const std::lock_guard lock(process_->mutex);
    process_->handles.erase(number);
  }
  process_->link->Release(number);
  return absl::OkStatus();
}

StatusOr<RunOutcome> LocalEngine::Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                                      const RunOptions& options) {
  if (!options.input_buffers.empty() || !options.output_buffers.empty()) {
    return InvalidArgument("Only a server has buffers; give a local engine tensors.");
  }
  supervisor::RunInput input;
  HPVMD_ASSIGN_OR_RETURN(input.handle, process_->Find(handle));
  input.symbols = options.symbols;
  options.repetition.Put(&input.options);
  input.options.set_node_records_max(options.placements_max);
  input.options.set_log(options.log != nullptr);
  input.within = WithinOf(options.call);
  Process::Memory memory(*process_);
  HPVMD_RETURN_IF_ERROR(process_->BindInputs(inputs, &memory, &input));
  const auto ask = [&] {
    return process_->Ask<supervisor::RunReply>(options.call,
                                               [&](auto done) { return process_->link->Run(input, std::move(done)); });
  };
  HPVMD_ASSIGN_OR_RETURN(supervisor::RunReply reply, ask());
  if (reply.done.needs_memory()) {
    HPVMD_RETURN_IF_ERROR(process_->BindOutputs(reply.done, &memory, &input));
    HPVMD_ASSIGN_OR_RETURN(reply, ask());
  }
  if (options.log != nullptr) {
    *options.log = reply.done.log();
  }
  HPVMD_RETURN_IF_ERROR(reply.status());
  return process_->Take(reply, input);
}

Status LocalEngine::Process::BindInputs(const std::map<std::string, Tensor>& inputs, Memory* memory,
                                        supervisor::RunInput* input) {
  uint64_t inline_bytes = 0;
  for (const auto& [name, tensor] : inputs) {
    supervisor::InputTensor bound{name, tensor.type, tensor.shape, tensor.data, std::nullopt};
    const uint64_t bytes = tensor.data.size();
    if (bytes > limits::kInlineTensorBytesMax || inline_bytes + bytes > kInlineBytesMax) {
      HPVMD_ASSIGN_OR_RETURN(bound.memory, memory->Make(bytes));
      bound.bytes = {};
      HPVMD_RETURN_IF_ERROR(WriteAt(bound.memory->fd, 0, tensor.data));
    } else {
      inline_bytes += bytes;
    }
    input->inputs.push_back(std::move(bound));
  }
  return absl::OkStatus();
}

Status LocalEngine::Process::BindOutputs(const internal::RunDone& sizes, Memory* memory, supervisor::RunInput* input) {
  for (const internal::OutputTensor& output : sizes.outputs()) {
    if (output.bytes() <= limits::kInlineTensorBytesMax) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const supervisor::MemorySlice slice, memory->Make(output.bytes()));
    input->outputs.push_back({output.name(), supervisor::OutputTarget::Kind::kMemory, slice});
  }
  return absl::OkStatus();
}

StatusOr<RunOutcome> LocalEngine::Process::Take(const supervisor::RunReply& reply, const supervisor::RunInput& input) {
  const internal::RunDone& done = reply.done;
  RunOutcome outcome;
  for (const internal::OutputTensor& output : done.outputs()) {
    const std::span<const uint8_t> data = reply.DataOf(output);
    Tensor tensor{static_cast<ElementType>(output.type()),
                  {output.shape().begin(), output.shape().end()},
                  {data.begin(), data.end()}};
    const auto target = std::find_if(input.outputs.begin(), input.outputs.end(),
                                     [&](const supervisor::OutputTarget& one) { return one.name == output.name(); });
    if (target != input.outputs.end()) {
      tensor.data.resize(output.bytes());
      HPVMD_RETURN_IF_ERROR(ReadAt(target->memory.fd, 0, tensor.data));
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

}  // namespace hpvm
