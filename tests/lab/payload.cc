// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "engine/engine.h"

// Gives access to the number of the current run and the channel to the daemon, all that is needed of the runner's
// internals. tests/lab/CMakeLists.txt compiles executor/runner.cc with that name, too.
#define private public
#define UseRing BrokenUseRing
#include "base/io/ring_channel.h"
#undef UseRing
#include "executor/runner.h"
#undef private
#include "tests/lab/payload.h"

namespace hpvm {
namespace {

RingChannelWriter* writer = nullptr;
RingMemory* to_daemon = nullptr;

}  // namespace

// Replaces UseRing.
void RingChannelWriter::BrokenUseRing(RingMemory& ring, int bell) {
  ring_.emplace(ring);
  bell_ = bell;
  writer = this;
  to_daemon = &ring;
}

}  // namespace hpvm

namespace hpvm::lab {
namespace {

constexpr char kInput[] = "attack";

// Inline, or in memory that the daemon shares.
std::string AttackText(const executor::RunJob& job) {
  for (const internal::Binding& input : job.message.inputs()) {
    if (input.name() != kInput) {
      continue;
    }
    std::span<const uint8_t> bytes;
    if (input.has_body()) {
      bytes = std::span(job.body).subspan(input.body().offset(), input.body().bytes());
    } else if (const auto found = job.memories.find(input.memory().memory_id()); found != job.memories.end()) {
      bytes = found->second->mapping.span().subspan(input.memory().offset(), input.memory().bytes());
    }
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  return "";
}

std::map<std::string, std::string> Arguments(const std::string& text) {
  std::map<std::string, std::string> arguments;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    if (const size_t equals = line.find('='); equals != std::string::npos) {
      arguments[line.substr(0, equals)] = line.substr(equals + 1);
    }
    at = end + 1;
  }
  return arguments;
}

std::string RunProbe(Task& task) {
  const std::string name = task.Text("probe");
  for (const auto& probes :
       {FileProbes(), ProcessProbes(), KernelProbes(), ResourceProbes(), ProtocolProbes(), CrashProbes()}) {
    for (const NamedProbe& probe : probes) {
      if (name == probe.name) {
        return probe.run(task);
      }
    }
  }
  return "unknown: " + name;
}

}  // namespace

std::string Task::Text(const char* name) const {
  const auto found = arguments.find(name);
  return found == arguments.end() ? "" : found->second;
}

int64_t Task::Number(const char* name) const { return atoll(Text(name).c_str()); }

RingPairMemory& DaemonRings() { return *reinterpret_cast<RingPairMemory*>(to_daemon); }
int DaemonBell() { return writer->bell_; }
RingChannelWriter& DaemonWriter() { return *writer; }
void PutDaemonMark() {
  writer->ring_->PutMark().IgnoreError();
  writer->WakePeer();
}

std::string Took(const std::string& what) { return "took: " + what; }

std::string Refused() {
  const int error = errno;
  const char* name = strerrorname_np(error);
  return std::string("refused: ") + (name != nullptr ? name : std::to_string(error));
}

std::string Outcome(long result) { return result < 0 ? Refused() : Took(std::to_string(result)); }

}  // namespace hpvm::lab

namespace hpvm::executor {

// Replaces ExecuteRun: tests/lab/CMakeLists.txt compiles executor/runner.cc with that name.
std::span<const uint8_t> BrokenExecuteRun(engine::Engine& engine, RunJob& job, const DeviceIndices& devices, Time now,
                                          OutputArena& arena, internal::RunDone* done);

std::span<const uint8_t> BrokenExecuteRun(engine::Engine& engine, RunJob& job, const DeviceIndices& devices, Time now,
                                          OutputArena& arena, internal::RunDone* done) {
  const std::string text = lab::AttackText(job);
  if (text.find("probe=") == std::string::npos) {
    return ExecuteRun(engine, job, devices, now, arena, done);
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  const auto* owner = reinterpret_cast<const Runner::Job*>(reinterpret_cast<const char*>(&job) -
                                                           offsetof(Runner::Job, run));
#pragma GCC diagnostic pop
  lab::Task task{lab::Arguments(text), job, owner->id, done};
  const std::string report = lab::RunProbe(task);
  if (task.run_kernel) {
    return ExecuteRun(engine, job, devices, now, arena, done);
  }
  if (!task.keep_answer) {
    SetStatus(Aborted("lab[" + CleanText(report, 12'000, false) + "]"), done->mutable_status());
  }
  arena.Clear();
  return {};
}

}  // namespace hpvm::executor
