// SPDX-License-Identifier: Apache-2.0
// Executes one run: converts the message's ranges to the engine's bindings and back. No threads, no socket.
#ifndef HPVMD_EXECUTOR_RUN_JOB_H_
#define HPVMD_EXECUTOR_RUN_JOB_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/contract/host_block.h"
#include "base/io/memfd.h"
#include "engine/engine.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {

// A memory shared by the daemon, mapped whole. Shared by the table and the runs that use it.
struct SharedMemory {
  SharedMemory(Mapping mapped, bool is_writable)
      : mapping(std::move(mapped)),
        writable(is_writable),
        block(std::make_shared<HostBlock>(mapping.data(), mapping.size(), is_writable)) {}
  ~SharedMemory() { block->Close(); }  // Plans may hold it longer.
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  const Mapping mapping;
  const bool writable;
  const std::shared_ptr<HostBlock> block;
};

// Lines that kernels of a run have printed and that have not been sent yet. Printing threads add them, another takes
// them.
class LiveLines {
 public:
  // Returns true when there were none before. Returns false after Close.
  bool Add(const engine::RunLog::Line& line);
  // Passes the current lines to `send`, as a log that is fit to be sent, unless closed. After Close no call of `send`
  // is made or in progress.
  void Take(const std::function<void(v1::RunLog)>& send);
  void Close();

 private:
  std::mutex mutex_;
  // Guarded by mutex_; at most as many as a log has, since the engine reports no more.
  std::vector<engine::RunLog::Line> lines_;
  bool is_closed_ = false;  // Guarded by mutex_.
};

// A run with everything it refers to, so that forgetting a memory or releasing a handle does not affect it.
struct RunJob {
  internal::Run message;
  std::vector<uint8_t> body;  // Inline inputs, used in place.
  std::shared_ptr<engine::PreparedGraph> graph;
  std::map<uint64_t, std::shared_ptr<SharedMemory>> memories;
  std::atomic<uint32_t> stop{0};
  LiveLines live;
  // Called from printing threads when `live` has new lines. Optional.
  std::function<void()> on_live;
  Time received{0};
  Time deadline = kNever;
};

// Memory for inline outputs, one block after the other, reused from run to run of a thread.
class OutputArena {
 public:
  void Clear();
  // Aligned to 64 bytes; valid until Clear.
  uint8_t* Allocate(uint64_t bytes);
  // Returns the offset in Body() of a result of Allocate.
  uint64_t OffsetOf(const uint8_t* data) const;
  // Returns everything allocated, in order; copies it only if it is not in one block.
  std::span<const uint8_t> Body();
  // Returns where the next allocation would end.
  uint64_t EndAfter(uint64_t bytes) const;

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> storage;
    uint8_t* begin = nullptr;  // Aligned.
    uint64_t bytes = 0, used = 0;
    uint64_t offset = 0;  // Offset of `begin` in Body().
  };
  std::vector<Block> blocks_;
  std::vector<uint8_t> gathered_;
};

// The devices that Ready listed.
struct DeviceIndices {
  std::map<std::string, uint32_t> by_id;  // Index in Ready's devices and in EngineOptions::devices.
  std::vector<uint32_t> entries;          // Indexed likewise: entry in the grant page.
};

// Runs the job on the calling thread. `done` receives the answer; the returned body belongs to `arena` until its next
// use.
std::span<const uint8_t> ExecuteRun(engine::Engine& engine, RunJob& job, const DeviceIndices& devices, Time now,
                                    OutputArena& arena, internal::RunDone* done);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_RUN_JOB_H_
