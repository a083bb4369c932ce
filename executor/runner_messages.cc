// SPDX-License-Identifier: Apache-2.0
// The runner's handlers of messages. Called by the leader, except ExecutePrepare.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/diagnostic_list.h"
#include "executor/cost_list.h"
#include "executor/runner.h"

namespace hpvm::executor {
namespace {

// Diagnostics must leave room in the head for the rest of the answer.
constexpr size_t kDiagnosticBytesMax = kHeadBytesMax / 2;
// Limit of the names of nodes with fast math.
constexpr size_t kFastNodesBytesMax = kHeadBytesMax / 16;

Sha256 HashFrom(const std::string& bytes) {
  Sha256 hash;
  std::copy(bytes.begin(), bytes.end(), hash.bytes.begin());
  return hash;
}

// Maps a memfd that must have at least `bytes` bytes.
StatusOr<Mapping> MapSent(const UniqueFd& fd, uint64_t bytes, Mapping::Access access) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t size, CheckSealedMemfd(fd.get()));
  if (size < bytes) {
    return InvalidArgument("The memory (" + std::to_string(size) + " bytes) is smaller than announced (" +
                           std::to_string(bytes) + ").");
  }
  return Mapping::Map(fd.get(), bytes, access);
}

void AddDiagnostics(const Diagnostics& diagnostics, v1::Diagnostics* added) {
  uint64_t omitted = 0;
  const Diagnostics listed = Shortened(diagnostics, limits::kDiagnosticsMax, &omitted);
  size_t bytes = 0, count = 0;
  bool has_error = !HasErrors(listed);
  for (const Diagnostic& diagnostic : listed) {
    bytes += diagnostic.place.size() + diagnostic.message.size() + 16;
    // The first error is always included: without it the answer would mean success.
    const bool is_first_error = !has_error && diagnostic.severity == Severity::kError;
    if (bytes > kDiagnosticBytesMax && !is_first_error) {
      continue;
    }
    has_error |= is_first_error;
    v1::Diagnostic* item = added->add_items();
    item->set_severity(diagnostic.severity == Severity::kWarning ? v1::Diagnostic::SEVERITY_WARNING
                                                                 : v1::Diagnostic::SEVERITY_ERROR);
    item->set_place(CleanText(diagnostic.place, kTextBytesMax, false));
    if (diagnostic.offset.has_value()) {
      item->set_offset(*diagnostic.offset);
    }
    item->set_message(CleanText(diagnostic.message, kMessageTextBytesMax));
    ++count;
  }
  added->set_omitted(omitted + listed.size() - count);
}

void AddPorts(const std::vector<engine::PortSummary>& ports,
              google::protobuf::RepeatedPtrField<v1::PortSummary>* added) {
  for (const engine::PortSummary& port : ports) {
    v1::PortSummary* item = added->Add();
    item->set_name(port.name);
    item->set_type(static_cast<v1::ElementType>(port.type));
    for (const std::string& extent : port.shape) {
      item->add_shape(CleanText(extent, kTextBytesMax, false));
    }
  }
}

void SetSummary(const engine::GraphSummary& from, v1::GraphSummary* summary) {
  summary->set_name(CleanText(from.name, kTextBytesMax, false));
  AddPorts(from.inputs, summary->mutable_inputs());
  AddPorts(from.outputs, summary->mutable_outputs());
  summary->mutable_symbols()->Add(from.symbols.begin(), from.symbols.end());
  summary->set_leaf_nodes(from.leaf_nodes);
  summary->set_internal_nodes(from.internal_nodes);
  summary->set_edges(from.edges);
  summary->mutable_devices()->Add(from.devices.begin(), from.devices.end());
  summary->set_streaming(from.streaming);
  v1::PrepareTiming* timing = summary->mutable_timing();
  timing->set_parse_ns(static_cast<uint64_t>(from.parse.count()));
  timing->set_compile_ns(static_cast<uint64_t>(from.compile.count()));
  timing->set_load_ns(static_cast<uint64_t>(from.load.count()));
  timing->set_compiled(from.compiled);
  timing->set_from_cache(from.from_cache);
}

// Adds the nodes listed by name, as far as there is room.
void AddNamedNodes(const engine::GraphSummary& from, internal::Prepared* prepared) {
  size_t bytes = 0;
  for (const std::string& node : from.fast_math_nodes) {
    bytes += node.size() + 16;
    if (bytes > kFastNodesBytesMax || prepared->summary().math_size() >= static_cast<int>(kFastNodesMax)) {
      break;
    }
    v1::NodeMath* math = prepared->mutable_summary()->add_math();
    math->set_node(CleanText(node, kTextBytesMax, false));
    math->set_math("fast");
  }
  for (const engine::GraphSummary::NativeNode& node : from.native_nodes) {
    bytes += node.name.size() + node.module.size() + 32 + 16 * node.devices.size();
    if (bytes > kFastNodesBytesMax || prepared->native_nodes_size() >= static_cast<int>(kFastNodesMax)) {
      break;
    }
    internal::NativeNode* to = prepared->add_native_nodes();
    to->set_name(CleanText(node.name, kTextBytesMax, false));
    to->set_module(CleanText(node.module, kNameBytesMax, false));
    to->mutable_devices()->Add(node.devices.begin(), node.devices.end());
  }
}

// `devices` are the engine's.
void AddNeeds(const engine::GraphSummary& from, const std::vector<DeviceInfo>& devices, internal::Prepared* prepared) {
  for (const uint32_t need : from.needs) {
    std::string& ids = *prepared->add_needs();
    for (size_t device = 0; device < devices.size(); ++device) {
      if ((need >> device & 1) != 0) {
        ids += (ids.empty() ? "" : ",") + devices[device].id;
      }
    }
  }
}

// Returns OK when the daemon will accept the answer, which it checks against the protocol's limits.
Status CheckAnswer(const internal::Prepared& prepared) {
  internal::Envelope answer;
  answer.set_request_id(1);
  *answer.mutable_prepared() = prepared;
  if (const size_t bytes = answer.ByteSizeLong(); bytes > kHeadBytesMax) {
    return InvalidArgument("The graph's description has " + std::to_string(bytes) + " bytes; the limit is " +
                           std::to_string(kHeadBytesMax) + ".");
  }
  return CheckFromExecutor(Unchecked<internal::Envelope>(std::move(answer)), 0, 0, {}).status();
}

}  // namespace

// The modules that one prepare names.
class Runner::PrepareModules final : public engine::ModuleSource {
 public:
  explicit PrepareModules(Job& job) : job_(job) {}

  StatusOr<std::span<const uint8_t>> Find(const graph::Module& module) override {
    ModuleBytes* const held = Held(module);
    if (held == nullptr) {
      return NotFound("Module \"" + module.name + "\"" +
                      (module.hash.has_value() ? " (" + ToHex(*module.hash) + ")" : std::string()) +
                      " was not uploaded.");
    }
    // Checked here rather than on arrival, because hashing 64 MiB takes longer than the socket should wait.
    if (!held->checked.load()) {
      if (HashOf(held->bytes.span()) != held->hash) {
        return InvalidArgument("A module's bytes do not have the hash " + ToHex(held->hash) + ".");
      }
      held->checked.store(true);
    }
    return held->bytes.span();
  }
  int MemfdOf(const graph::Module& module) override { return Held(module)->memfd.get(); }

 private:
  // Finds a module by name, otherwise by hash; null when there is none.
  ModuleBytes* Held(const graph::Module& module) const {
    ModuleBytes* like = nullptr;
    for (const auto& [name, held] : job_.modules) {
      if (!module.hash.has_value() || *module.hash == held->hash) {
        if (name == module.name) {
          return held.get();
        }
        like = module.hash.has_value() && like == nullptr ? held.get() : like;
      }
    }
    return like;
  }

  Job& job_;
};

Status Runner::Take(Frame frame, std::shared_ptr<Job>* job) {
  using internal::Envelope;
  HPVMD_ASSIGN_OR_RETURN(Unchecked<internal::Envelope> said, ParseHead(frame.head));
  HPVMD_ASSIGN_OR_RETURN(incoming_, CheckToExecutor(std::move(said), frame.body.size(), frame.fds.size()));
  switch (incoming_.message_case()) {
    case Envelope::kPutModule:
      return PutModule(incoming_.put_module(), frame);
    case Envelope::kDropModule:
      DropModule(incoming_.drop_module());
      return absl::OkStatus();
    case Envelope::kShareMemory:
      return ShareMemory(incoming_.share_memory(), frame);
    case Envelope::kForgetMemory:
      memories_.erase(incoming_.forget_memory().memory_id());
      return absl::OkStatus();
    case Envelope::kPrepareGraph:
      return TakePrepare(frame, job);
    case Envelope::kReleaseGraph: {
      std::shared_ptr<Handle> released;  // Its buffers are freed without the mutex.
      {
        std::lock_guard lock(mutex_);
        if (const auto found = handles_.find(incoming_.release_graph().handle()); found != handles_.end()) {
          released = std::move(found->second);
          handles_.erase(found);
        }
      }
      released.reset();
      NoteUsage();
      return absl::OkStatus();
    }
    case Envelope::kRun:
      return TakeRun(frame, job);
    case Envelope::kCancel:
      Cancel(incoming_.cancel().target_id());
      return absl::OkStatus();
    case Envelope::kGrantChanged:
      TakeGrant(incoming_.request_id(), incoming_.grant_changed());
      return absl::OkStatus();
    case Envelope::kReclaim:
      // Drivers take long to free memory, so this is a separate job, which no deadline or cancellation ends.
      *job = std::make_shared<Job>();
      (*job)->id = incoming_.request_id();
      (*job)->reclaim = incoming_.reclaim();
      (*job)->started = true;
      return absl::OkStatus();
    case Envelope::kListCosts:
      AnswerCosts(incoming_.request_id(), incoming_.list_costs().handle());
      return absl::OkStatus();
    case Envelope::kShutdown:
      Flush();
      _exit(0);
    default:
      return InvalidArgument("Hello came twice.");
  }
}

Status Runner::PutModule(const internal::PutModule& put, Frame& frame) {
  const Sha256 hash = HashFrom(put.sha256());
  if (modules_.contains(hash)) {
    return InvalidArgument("PutModule: the executor holds the module already.");
  }
  if (modules_.size() >= kModulesMax || module_bytes_ + put.bytes() > kModulesBytesMax) {
    return InvalidArgument("PutModule: the number or the size of the modules held would exceed the limit (" +
                           std::to_string(kModulesBytesMax) + " bytes).");
  }
  auto module = std::make_shared<ModuleBytes>();
  module->hash = hash;
  if (put.has_body()) {
    HPVMD_ASSIGN_OR_RETURN(module->memfd, CreateSealedMemfd("hpvm-module", put.bytes()));
    const auto body = std::span<const uint8_t>(frame.body).subspan(put.body().offset(), put.body().bytes());
    HPVMD_RETURN_IF_ERROR(WriteAt(module->memfd.get(), 0, body));
  } else {
    module->memfd = std::move(frame.fds[0]);
    HPVMD_ASSIGN_OR_RETURN(const uint64_t size, CheckSealedMemfd(module->memfd.get()));
    if (size != put.bytes()) {
      return InvalidArgument("PutModule: the memory has " + std::to_string(size) + " bytes; " +
                             std::to_string(put.bytes()) + " bytes were announced.");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(module->bytes, Mapping::Map(module->memfd.get(), put.bytes(), Mapping::Access::kRead));
  module_bytes_ += put.bytes();
  modules_.emplace(hash, std::move(module));
  return absl::OkStatus();
}

void Runner::DropModule(const internal::DropModule& drop) {
  const auto found = modules_.find(HashFrom(drop.sha256()));
  if (found != modules_.end()) {
    module_bytes_ -= found->second->bytes.size();
    modules_.erase(found);
  }
}

Status Runner::ShareMemory(const internal::ShareMemory& share, Frame& frame) {
  if (memories_.size() >= kMemoriesMax || memories_.contains(share.memory_id())) {
    return InvalidArgument("ShareMemory: memory " + std::to_string(share.memory_id()) +
                           " is shared already, or too many memories are shared.");
  }
  StatusOr<Mapping> mapping =
      MapSent(frame.fds[0], share.bytes(), share.writable() ? Mapping::Access::kReadWrite : Mapping::Access::kRead);
  if (mapping.status().code() == absl::StatusCode::kInvalidArgument) {
    return mapping.status();
  }
  std::shared_ptr<SharedMemory> memory;
  if (mapping.ok()) {
    memory = std::make_shared<SharedMemory>(*std::move(mapping), share.writable());
  }
  // Memory that cannot be mapped (out of memory) fails the runs that name it, not the process.
  memories_.emplace(share.memory_id(), std::move(memory));
  return absl::OkStatus();
}

// Counts the job and starts its clock. When `may_start` is false it waits for others.
Status Runner::Admit(const std::shared_ptr<Job>& job, uint64_t within_ns, bool* may_start) {
  job->run.received = RealClock().Now();
  // More than a century counts as never.
  if (within_ns != 0 && within_ns < uint64_t{1} << 61) {
    job->run.deadline = job->run.received + Duration(static_cast<int64_t>(within_ns));
  }
  {
    std::lock_guard lock(mutex_);
    if (jobs_.size() >= kRequestsMax) {
      return ResourceExhausted("The number of waiting runs (" + std::to_string(jobs_.size()) +
                               ") has reached the limit (" + std::to_string(kRequestsMax) + ").");
    }
    if (!jobs_.emplace(job->id, job).second) {
      return InvalidArgument("Request id " + std::to_string(job->id) + " is in use.");
    }
    *may_start = job->handle == nullptr || !job->handle->busy;
    job->started = *may_start;
    if (!*may_start) {
      job->handle->waiting.push_back(job);
    } else if (job->handle != nullptr) {
      job->handle->busy = true;
    }
  }
  ArmWatch(job->run.deadline);
  return absl::OkStatus();
}

Status Runner::TakePrepare(Frame& frame, std::shared_ptr<Job>* job) {
  auto prepare = std::make_shared<Job>();
  prepare->id = incoming_.request_id();
  prepare->prepare.Swap(incoming_.mutable_prepare_graph());
  const internal::PrepareGraph& message = prepare->prepare;
  Status status;
  if (message.document_bytes() > options_.document_bytes_max) {
    status = InvalidArgument("The document (" + std::to_string(message.document_bytes()) +
                             " bytes) exceeds the limit (" + std::to_string(options_.document_bytes_max) + ").");
  } else if (message.has_document()) {
    prepare->run.body = std::move(frame.body);
    prepare->document = {reinterpret_cast<const char*>(prepare->run.body.data()) + message.document().offset(),
                         message.document().bytes()};
  } else {
    HPVMD_ASSIGN_OR_RETURN(prepare->document_mapping,
                           MapSent(frame.fds[0], message.document_bytes(), Mapping::Access::kRead));
    prepare->document = {reinterpret_cast<const char*>(prepare->document_mapping.data()), message.document_bytes()};
  }
  for (const internal::NamedModule& named : message.modules()) {
    const auto found = modules_.find(HashFrom(named.sha256()));
    if (found == modules_.end()) {
      return InvalidArgument("PrepareGraph: module \"" + named.name() + "\" was not sent with PutModule.");
    }
    prepare->modules.emplace_back(named.name(), found->second);
  }
  bool may_start = false;
  if (status.ok()) {
    status = Admit(prepare, message.deadline_ns(), &may_start);
  }
  if (!status.ok()) {
    AnswerDropped(*prepare, status);
  } else if (may_start) {
    *job = std::move(prepare);
  }
  return absl::OkStatus();
}

Status Runner::TakeRun(Frame& frame, std::shared_ptr<Job>* job) {
  auto run = std::make_shared<Job>();
  run->id = incoming_.request_id();
  run->run.message.Swap(incoming_.mutable_run());
  run->run.body = std::move(frame.body);
  const auto refer = [&](const internal::MemoryRange& range) {
    const auto found = memories_.find(range.memory_id());
    if (found != memories_.end()) {
      run->run.memories.emplace(range.memory_id(), found->second);
    }
  };
  for (const internal::Binding& input : run->run.message.inputs()) {
    if (input.has_memory()) {
      refer(input.memory());
    }
  }
  for (const internal::Target& output : run->run.message.outputs()) {
    if (output.has_memory()) {
      refer(output.memory());
    }
  }
  Status status;
  {
    std::lock_guard lock(mutex_);
    const auto found = handles_.find(run->run.message.handle());
    if (found != handles_.end()) {
      run->handle = found->second;
      run->run.graph = found->second->graph;
    }
  }
  bool may_start = false;
  if (run->handle == nullptr) {
    run->handle = std::make_shared<Handle>();  // So that the answer is a run's.
    status = NotFound("The executor does not hold graph " + std::to_string(run->run.message.handle()) + ".");
  } else {
    status = Admit(run, run->run.message.deadline_ns(), &may_start);
  }
  if (!status.ok()) {
    AnswerDropped(*run, status);
  } else if (may_start) {
    *job = std::move(run);
  }
  return absl::OkStatus();
}

void Runner::Cancel(uint64_t id) {
  std::shared_ptr<Job> dropped;
  {
    std::lock_guard lock(mutex_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
      return;
    }
    found->second->run.stop.store(1);
    if (!found->second->started) {
      dropped = found->second;
      DropWaiting(*dropped);
      jobs_.erase(found);
    }
  }
  if (dropped != nullptr) {
    AnswerDropped(*dropped, Cancelled("The run was cancelled while it waited for its turn."));
  }
}

// Work that a driver has continues, as do chunks on the processor; the device is given back when none of it is left, or
// it is granted again.
bool Runner::IsLeft(uint32_t entry) const {
  if (options_.gates == nullptr || options_.grants == nullptr || !options_.gates->contains(entry)) {
    return true;
  }
  return options_.gates->at(entry)->in_flight() == 0 ||
         options_.grants->entries[entry].state.load() == static_cast<uint32_t>(GrantState::kGranted);
}

void Runner::TakeGrant(uint64_t id, const internal::GrantChanged& changed) {
  if (IsLeft(changed.entry())) {
    AnswerGrant(id, changed);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    revoked_.emplace(id, changed);
  }
  ArmWatch(RealClock().Now());  // The watch polls.
}

void Runner::AnswerGrant(uint64_t id, const internal::GrantChanged& changed) {
  internal::Envelope answer;
  answer.set_request_id(id);
  answer.mutable_grant_ack()->set_entry(changed.entry());
  // The page's current value is what the workers read at their next chunk.
  const bool known = options_.grants != nullptr && changed.entry() < kGrantEntriesMax;
  answer.mutable_grant_ack()->set_epoch(known ? options_.grants->entries[changed.entry()].epoch.load()
                                              : changed.epoch());
  Send(answer);
}

// Devices that are in the grant page but not in the engine hold no memory.
void Runner::DescribeUsage(internal::Usage* usage) const {
  const std::vector<engine::DeviceMemory::Usage> held = options_.engine->device_memory().Measure();
  for (size_t i = 0; i < std::min(held.size(), devices_.entries.size()); ++i) {
    while (usage->device_bytes_size() <= static_cast<int>(devices_.entries[i])) {
      usage->add_device_bytes(0);
      usage->add_idle_device_bytes(0);
    }
    usage->set_device_bytes(static_cast<int>(devices_.entries[i]), std::min(held[i].bytes, kDeviceBytesMax));
    usage->set_idle_device_bytes(static_cast<int>(devices_.entries[i]), std::min(held[i].idle_bytes, kDeviceBytesMax));
  }
}

// Answers at once: a few thousand figures at most, which are in memory.
void Runner::AnswerCosts(uint64_t id, uint64_t handle) {
  std::map<uint64_t, std::shared_ptr<engine::PreparedGraph>> graphs;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [known, held] : handles_) {
      if (held->graph != nullptr && (handle == 0 || handle == known)) {
        graphs.emplace(known, held->graph);
      }
    }
  }
  internal::Envelope answer;
  answer.set_request_id(id);
  DescribeCosts(*options_.engine, graphs, answer.mutable_costs());
  Send(answer);
}

void Runner::ExecuteReclaim(const Job& job) {
  for (size_t i = 0; i < devices_.entries.size(); ++i) {
    if (devices_.entries[i] == job.reclaim->entry()) {
      options_.engine->ReclaimDevice(static_cast<uint32_t>(i), job.reclaim->bytes_max());
    }
  }
  internal::Envelope answer;
  answer.set_request_id(job.id);
  DescribeUsage(answer.mutable_usage());
  Send(answer);
}

Status Runner::PrepareGraph(Job& job, internal::Prepared* prepared) {
  {
    std::lock_guard lock(mutex_);
    if (handles_.contains(job.prepare.handle())) {
      return AlreadyExists("Handle " + std::to_string(job.prepare.handle()) + " is in use.");
    }
    if (handles_.size() >= kHandlesMax) {
      return ResourceExhausted("The number of prepared graphs (" + std::to_string(handles_.size()) +
                               ") has reached the limit (" + std::to_string(kHandlesMax) + ").");
    }
  }
  PrepareModules modules(job);
  Duration compile_cpu{0};
  StatusOr<engine::PrepareOutcome> prepare =
      options_.engine->Prepare(job.document, modules, job.run.deadline,
                               {.check = job.prepare.check(), .stop = &job.run.stop, .compile_cpu = &compile_cpu});
  prepared->set_compile_cpu_ns(static_cast<uint64_t>(compile_cpu.count()));
  HPVMD_RETURN_IF_ERROR(prepare.status());
  if (job.run.stop.load() != 0 && job.run.deadline == kNever) {
    return Cancelled("The prepare was cancelled.");
  }
  engine::PrepareOutcome outcome = *std::move(prepare);
  AddDiagnostics(outcome.diagnostics, prepared->mutable_diagnostics());
  if (outcome.graph == nullptr) {
    return absl::OkStatus();
  }
  SetSummary(outcome.summary, prepared->mutable_summary());
  AddNamedNodes(outcome.summary, prepared);
  AddNeeds(outcome.summary, options_.engine->devices(), prepared);
  // The daemon would end the process because of a description that exceeds a limit; here it is still the document's
  // fault.
  if (const Status checked = CheckAnswer(*prepared); !checked.ok()) {
    prepared->clear_summary();
    prepared->clear_native_nodes();
    prepared->clear_needs();
    AddDiagnostics(
        {{Severity::kError, "", {}, "The graph's description is too large or not valid text: " + Message(checked)}},
        prepared->mutable_diagnostics());
    return absl::OkStatus();
  }
  auto handle = std::make_shared<Handle>();
  handle->graph = std::move(outcome.graph);
  std::lock_guard lock(mutex_);
  if (!handles_.emplace(job.prepare.handle(), std::move(handle)).second) {
    prepared->clear_summary();
    prepared->clear_native_nodes();
    prepared->clear_needs();
    return AlreadyExists("Handle " + std::to_string(job.prepare.handle()) + " is in use.");
  }
  return absl::OkStatus();
}

void Runner::ExecutePrepare(Job& job) {
  internal::Envelope answer;
  answer.set_request_id(job.id);
  internal::Prepared* prepared = answer.mutable_prepared();
  const Status status = PrepareGraph(job, prepared);
  SetStatus(status, prepared->mutable_status());
  Finish(job);
  Send(answer);
  if (status.code() == absl::StatusCode::kUnavailable) {
    // The compiler process is gone and the lock-down forbids starting another: the daemon must start a new executor.
    Die(status);
  }
}

}  // namespace hpvm::executor
