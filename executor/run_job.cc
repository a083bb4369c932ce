// SPDX-License-Identifier: Apache-2.0
#include "executor/run_job.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace hpvm::executor {
namespace {

constexpr uint64_t kAlignment = 64;
// Holds an ordinary run's outputs; larger outputs get a separate block, which Clear frees.
constexpr uint64_t kFirstBlockBytes = 64 * limits::kKiB;

uint64_t AlignUp(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }

// Node records must leave room in the head for the rest of the answer.
constexpr size_t kNodeRecordBytesMax = kHeadBytesMax / 2;

// Resolves ranges of one run and owns the memory that outputs need besides the arena.
class RunBindings {
 public:
  RunBindings(RunJob& job, OutputArena& arena) : job_(job), arena_(arena) {
    for (const internal::Target& target : job.message.outputs()) {
      targets_.emplace(target.name(), &target);
    }
  }

  StatusOr<std::map<std::string, engine::Binding>> Inputs() {
    std::map<std::string, engine::Binding> inputs;
    for (const internal::Binding& input : job_.message.inputs()) {
      engine::Binding binding;
      binding.type = static_cast<ElementType>(input.type());
      binding.shape.assign(input.shape().begin(), input.shape().end());
      if (input.has_body()) {
        binding.data = job_.body.data() + input.body().offset();
        binding.bytes = input.body().bytes();
      } else {
        HPVMD_ASSIGN_OR_RETURN(const Resolved memory, Resolve(input.name(), input.memory(), false));
        binding.data = memory.bytes.data();
        binding.bytes = memory.bytes.size();
        binding.block = memory.block;
      }
      if (!inputs.emplace(input.name(), std::move(binding)).second) {
        return InvalidArgument("Input \"" + input.name() + "\" is bound twice.");
      }
    }
    return inputs;
  }

  StatusOr<engine::OutputMemory> Allocate(const std::string& name, uint64_t bytes) {
    const auto found = targets_.find(name);
    if (found != targets_.end() && found->second->has_memory()) {
      HPVMD_ASSIGN_OR_RETURN(const Resolved memory, Resolve(name, found->second->memory(), true));
      if (memory.bytes.size() < bytes) {
        needs_memory_ = true;  // The daemon guessed, or its client's buffer is too small: the daemon knows which.
        return ResourceExhausted("Output \"" + name + "\" needs " + std::to_string(bytes) + " bytes; its memory has " +
                                 std::to_string(memory.bytes.size()) + ".");
      }
      return engine::OutputMemory(memory.bytes.data(), memory.block);
    }
    if (found != targets_.end() && found->second->discard()) {
      dropped_.emplace_back(new (std::nothrow) uint8_t[std::max<uint64_t>(bytes, 1)]);
      if (dropped_.back() == nullptr) {
        return ResourceExhausted("Memory for the dropped output \"" + name + "\" (" + std::to_string(bytes) +
                                 " bytes) is not available.");
      }
      return engine::OutputMemory(dropped_.back().get());
    }
    if (bytes > job_.message.options().inline_bytes_max() || arena_.EndAfter(bytes) > kBodyBytesMax) {
      needs_memory_ = true;
      return ResourceExhausted("Output \"" + name + "\" (" + std::to_string(bytes) +
                               " bytes) is too large to be inline; the limit is " +
                               std::to_string(job_.message.options().inline_bytes_max()) + " bytes.");
    }
    uint8_t* data = arena_.Allocate(bytes);
    inline_.emplace(name, data);
    return engine::OutputMemory(data);
  }

  bool needs_memory() const { return needs_memory_; }

  void SetBodies(internal::RunDone* done) const {
    for (internal::OutputTensor& output : *done->mutable_outputs()) {
      const auto found = inline_.find(output.name());
      if (found != inline_.end()) {
        output.mutable_body()->set_offset(static_cast<uint32_t>(arena_.OffsetOf(found->second)));
        output.mutable_body()->set_bytes(static_cast<uint32_t>(output.bytes()));
      }
    }
  }

 private:
  struct Resolved {
    std::span<uint8_t> bytes;
    std::shared_ptr<HostBlock> block;
  };
  StatusOr<Resolved> Resolve(const std::string& port, const internal::MemoryRange& range, bool for_writing) {
    const auto found = job_.memories.find(range.memory_id());
    if (found == job_.memories.end() || found->second == nullptr) {
      return InvalidArgument("Port \"" + port + "\": Memory " + std::to_string(range.memory_id()) + " is not shared.");
    }
    const SharedMemory& memory = *found->second;
    // The message's check made sure that the sum does not overflow.
    if (range.offset() + range.bytes() > memory.mapping.size()) {
      return InvalidArgument("Port \"" + port + "\": The range ends at byte " +
                             std::to_string(range.offset() + range.bytes()) + " of a memory of " +
                             std::to_string(memory.mapping.size()) + " bytes.");
    }
    if (for_writing && !memory.writable) {
      return InvalidArgument("Port \"" + port + "\": The memory is read-only.");
    }
    return Resolved{memory.mapping.span().subspan(range.offset(), range.bytes()), memory.block};
  }

  RunJob& job_;
  OutputArena& arena_;
  std::map<std::string, const internal::Target*> targets_;
  std::map<std::string, const uint8_t*> inline_;
  std::vector<std::unique_ptr<uint8_t[]>> dropped_;
  bool needs_memory_ = false;
};

void DescribeNodes(const engine::RunResult& result, uint32_t records_max, const DeviceIndices& devices,
                   internal::RunDone* done) {
  size_t bytes = 0;
  for (const engine::NodeRecord& record : result.nodes) {
    bytes += record.path.size() + record.device.size() + record.variant.size() + record.whole.size() + 64;
    if (bytes > kNodeRecordBytesMax || static_cast<uint32_t>(done->nodes_size()) >= records_max) {
      break;
    }
    v1::NodePlacement* node = done->add_nodes();
    node->set_node(CleanText(record.path, kTextBytesMax, false));
    node->set_device(devices.by_id.contains(record.device) ? record.device : kCheckerName);
    node->set_start_ns(static_cast<uint64_t>(std::max<int64_t>(record.start_ns, 0)));
    node->set_end_ns(std::max(node->start_ns(), static_cast<uint64_t>(std::max<int64_t>(record.end_ns, 0))));
    node->set_math(record.fast_math ? "fast" : "exact");
    node->set_is_estimate(record.is_estimate);
    node->set_first_instance(record.first);
    node->set_instance_count(record.count);
    node->set_total_ns(static_cast<uint64_t>(std::max<int64_t>(record.total_ns, 0)));
    node->set_runs(record.runs);
    node->set_variant(CleanText(record.variant, kVariantBytesMax, false));
    node->set_whole(std::string(record.whole));
  }
}

void SetInstance(const std::array<uint64_t, 3>& from, v1::InstanceId* id) {
  id->set_x(from[0]);
  id->set_y(from[1]);
  id->set_z(from[2]);
}

// Writes a log's lines and findings as far as their texts fit; the rest is counted.
class LogWriter {
 public:
  explicit LogWriter(v1::RunLog* log) : log_(log) {}

  void AddLine(const engine::RunLog::Line& line) {
    v1::LogLine added;
    added.set_node(CleanText(line.node, kTextBytesMax, false));
    SetInstance(line.instance, added.mutable_instance());
    added.set_text(CleanText(line.text, limits::kLogLineBytesMax + 3));
    if (Take(added.node().size() + added.text().size())) {
      *log_->add_lines() = std::move(added);
    } else {
      log_->set_lines_dropped(log_->lines_dropped() + 1);
    }
  }

  void AddFinding(const engine::RunLog::Found& found) {
    v1::Finding finding;
    finding.set_node(CleanText(found.node, kTextBytesMax, false));
    finding.set_kind(CleanText(found.finding.kind, 64, false));
    finding.set_message(CleanText(found.finding.message, kTextBytesMax, false));
    finding.set_buffer(CleanText(found.finding.buffer, kNameBytesMax, false));
    finding.set_place(CleanText(found.finding.place, kTextBytesMax, false));
    finding.set_count(std::max<uint64_t>(1, found.finding.count));
    for (size_t i = 0; i < std::min<size_t>(found.finding.instances.size(), 2); ++i) {
      SetInstance(found.finding.instances[i], finding.add_instances());
    }
    if (Take(finding.node().size() + finding.kind().size() + finding.message().size() + finding.buffer().size() +
             finding.place().size())) {
      *log_->add_findings() = std::move(finding);
    } else {
      log_->set_findings_dropped(log_->findings_dropped() + 1);
    }
  }

 private:
  bool Take(size_t bytes) {
    const bool fits = bytes_ + bytes <= kLogHeadBytesMax;
    bytes_ += fits ? bytes : 0;
    return fits;
  }

  v1::RunLog* const log_;
  size_t bytes_ = 0;
};

void DescribeLog(const engine::RunLog& log, v1::RunLog* described) {
  described->set_lines_dropped(log.lines_dropped);
  described->set_findings_dropped(log.findings_dropped);
  described->set_check_incomplete(log.check_incomplete);
  LogWriter writer(described);
  for (const engine::RunLog::Found& found : log.findings) {
    writer.AddFinding(found);
  }
  for (const engine::RunLog::Line& line : log.lines) {
    writer.AddLine(line);
  }
}

}  // namespace

bool LiveLines::Add(const engine::RunLog::Line& line) {
  std::lock_guard lock(mutex_);
  if (is_closed_) {
    return false;
  }
  lines_.push_back(line);
  return lines_.size() == 1;
}

void LiveLines::Take(const std::function<void(v1::RunLog)>& send) {
  std::lock_guard lock(mutex_);
  if (is_closed_ || lines_.empty()) {
    return;
  }
  v1::RunLog log;
  LogWriter writer(&log);
  for (const engine::RunLog::Line& line : lines_) {
    writer.AddLine(line);
  }
  log.clear_lines_dropped();  // The run's own log has them.
  lines_.clear();
  if (log.lines_size() > 0) {
    send(std::move(log));
  }
}

void LiveLines::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  lines_.clear();
}

namespace {

uint64_t Count(Duration duration) { return static_cast<uint64_t>(std::max<int64_t>(duration.count(), 0)); }

// Does nothing for checked graphs, because the checker has no entry.
void DescribeDeviceTime(const engine::RunResult& result, const DeviceIndices& devices, internal::RunDone* done) {
  if (result.device_time.size() != devices.entries.size()) {
    return;
  }
  for (size_t i = 0; i < devices.entries.size(); ++i) {
    while (done->device_ns_size() <= static_cast<int>(devices.entries[i])) {
      done->add_device_ns(0);
    }
    done->set_device_ns(static_cast<int>(devices.entries[i]), Count(result.device_time[i]));
  }
}

void AddKnown(const std::vector<std::string>& ids, const DeviceIndices& devices,
              google::protobuf::RepeatedPtrField<std::string>* added) {
  for (const std::string& id : ids) {
    if (devices.by_id.contains(id)) {
      *added->Add() = id;
    }
  }
}

void DescribeShortage(const engine::DeviceShortage& shortage, const DeviceIndices& devices, internal::RunDone* done) {
  const auto refused = devices.by_id.find(shortage.device);
  if (refused != devices.by_id.end() && refused->second < devices.entries.size() &&
      done->status().code() == static_cast<uint32_t>(absl::StatusCode::kResourceExhausted)) {
    done->set_short_entry_plus_1(devices.entries[refused->second] + 1);
    done->set_short_bytes(shortage.bytes);
  }
}

// Fills in name, type, shape and size of each output.
void DescribeOutputs(const std::map<std::string, engine::Binding>& outputs,
                     google::protobuf::RepeatedPtrField<internal::OutputTensor>* described) {
  for (const auto& [name, binding] : outputs) {
    internal::OutputTensor* output = described->Add();
    output->set_name(name);
    output->set_type(static_cast<uint32_t>(binding.type));
    output->mutable_shape()->Add(binding.shape.begin(), binding.shape.end());
    output->set_bytes(TensorBytes(binding.type, binding.shape).value_or(0));
  }
}

void SetRequest(const internal::Run& message, engine::RunRequest* request) {
  for (const auto& [name, value] : message.symbols()) {
    request->symbols[name] = value;
  }
  const internal::RunOptions& options = message.options();
  request->repeat = options.repeat();
  for (const v1::Rotation& rotation : options.rotations()) {
    request->rotations.push_back({rotation.output(), rotation.input()});
  }
  request->until = options.until();
  request->device_time_max = Duration(static_cast<int64_t>(std::min<uint64_t>(options.device_ns_max(), INT64_MAX)));
  request->may_experiment = !options.is_last_chance();
  request->node_records_max = options.node_records_max();
}

void DescribeResult(const engine::RunResult& result, const engine::RunRequest& request,
                    const std::vector<std::string>& lost, const DeviceIndices& devices, internal::RunDone* done) {
  v1::RunTiming* timing = done->mutable_timing();
  timing->set_bind_ns(Count(result.bind));
  timing->set_copy_in_ns(Count(result.copy_in));
  timing->set_run_ns(Count(result.run));
  timing->set_copy_out_ns(Count(result.copy_out));
  done->set_nodes_run(result.nodes_run);
  done->set_repetitions(result.repetitions);
  done->set_converged(result.is_converged);
  AddKnown(lost, devices, done->mutable_left_devices());  // The run continued without these.
  v1::RunTraffic* traffic = done->mutable_traffic();
  traffic->set_moved_bytes(result.moved_bytes);
  traffic->set_spilled_bytes(result.spilled_bytes);
  traffic->set_lost_devices(static_cast<uint32_t>(done->left_devices_size()));
  DescribeDeviceTime(result, devices, done);
  DescribeNodes(result, request.node_records_max, devices, done);
}

}  // namespace

void OutputArena::Clear() {
  blocks_.resize(std::min<size_t>(blocks_.size(), 1));
  if (!blocks_.empty()) {
    blocks_[0].used = 0;
    if (blocks_[0].bytes != kFirstBlockBytes) {
      blocks_.clear();
    }
  }
  gathered_ = {};
}

uint8_t* OutputArena::Allocate(uint64_t bytes) {
  if (blocks_.empty() || AlignUp(blocks_.back().used) + bytes > blocks_.back().bytes) {
    Block block;
    block.bytes = std::max(bytes, kFirstBlockBytes);
    block.storage.reset(new uint8_t[block.bytes + kAlignment]);
    block.begin = reinterpret_cast<uint8_t*>(AlignUp(reinterpret_cast<uintptr_t>(block.storage.get())));
    block.offset = blocks_.empty() ? 0 : AlignUp(blocks_.back().offset + blocks_.back().used);
    blocks_.push_back(std::move(block));
  }
  Block& block = blocks_.back();
  uint8_t* data = block.begin + AlignUp(block.used);
  block.used = AlignUp(block.used) + bytes;
  return data;
}

uint64_t OutputArena::EndAfter(uint64_t bytes) const {
  return bytes + (blocks_.empty() ? 0 : AlignUp(blocks_.back().offset + blocks_.back().used));
}

uint64_t OutputArena::OffsetOf(const uint8_t* data) const {
  for (const Block& block : blocks_) {
    if (data >= block.begin && data <= block.begin + block.used) {
      return block.offset + static_cast<uint64_t>(data - block.begin);
    }
  }
  HPVMD_CHECK(false);
  return 0;
}

std::span<const uint8_t> OutputArena::Body() {
  if (blocks_.size() <= 1) {
    return blocks_.empty() ? std::span<const uint8_t>() : std::span<const uint8_t>(blocks_[0].begin, blocks_[0].used);
  }
  gathered_.assign(blocks_.back().offset + blocks_.back().used, 0);
  for (const Block& block : blocks_) {
    memcpy(gathered_.data() + block.offset, block.begin, block.used);
  }
  return gathered_;
}

std::span<const uint8_t> ExecuteRun(engine::Engine& engine, RunJob& job, const DeviceIndices& devices, Time now,
                                    OutputArena& arena, internal::RunDone* done) {
  arena.Clear();
  RunBindings bindings(job, arena);
  done->mutable_timing()->set_queue_ns(Count(now - job.received));
  StatusOr<std::map<std::string, engine::Binding>> inputs = bindings.Inputs();
  if (!inputs.ok()) {
    SetStatus(inputs.status(), done->mutable_status());
    return {};
  }
  engine::RunRequest request;
  SetRequest(job.message, &request);
  request.inputs = *std::move(inputs);
  request.allocate_output = [&bindings](const std::string& name, ElementType, const std::vector<uint64_t>&,
                                        uint64_t bytes) { return bindings.Allocate(name, bytes); };
  request.stop = &job.stop;
  request.deadline = job.deadline;
  engine::RunLog log;
  request.log = job.message.options().log() ? &log : nullptr;
  if (request.log != nullptr && job.on_live) {
    request.on_line = [&job](const engine::RunLog::Line& line) {
      if (job.live.Add(line)) {
        job.on_live();
      }
    };
  }
  std::vector<std::string> lost;
  request.lost_devices = &lost;
  engine::DeviceShortage shortage;
  request.shortage = &shortage;
  bool over_device_time = false;
  request.over_device_time = &over_device_time;
  StatusOr<engine::RunResult> result = engine.Run(*job.graph, request);
  if (request.log != nullptr) {
    DescribeLog(log, done->mutable_log());
  }
  SetStatus(result.status(), done->mutable_status());
  done->set_over_device_time(over_device_time);
  if (!result.ok() && bindings.needs_memory() && result.status().code() == absl::StatusCode::kResourceExhausted) {
    const auto shapes = engine.OutputShapes(*job.graph, request.inputs, request.symbols);
    if (shapes.ok()) {
      done->set_needs_memory(true);
      DescribeOutputs(*shapes, done->mutable_outputs());
    }
    return {};
  }
  if (!result.ok()) {
    AddKnown(lost, devices, done->mutable_lost_devices());
    DescribeShortage(shortage, devices, done);
    return {};
  }
  DescribeOutputs(result->outputs, done->mutable_outputs());
  bindings.SetBodies(done);
  DescribeResult(*result, request, lost, devices, done);
  return arena.Body();
}

}  // namespace hpvm::executor
