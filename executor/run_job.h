// SPDX-License-Identifier: Apache-2.0
// One run: from the message's ranges to the engine's bindings and back. No threads, no socket.
#ifndef HPVMD_EXECUTOR_RUN_JOB_H_
#define HPVMD_EXECUTOR_RUN_JOB_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backends/contract/host_block.h"
#include "base/io/memfd.h"
#include "engine/engine.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {

// A memory that the daemon shared, mapped whole. Shared by the table and the runs that use it.
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

// A run with everything it refers to, so that forgetting a memory or releasing a handle does not disturb it.
struct RunJob {
  internal::Run message;
  std::vector<uint8_t> body;  // Inline inputs, used in place.
  std::shared_ptr<engine::PreparedGraph> graph;
  std::map<uint64_t, std::shared_ptr<SharedMemory>> memories;
  std::atomic<uint32_t> stop{0};
  Time received{0};
  Time deadline = kNever;
};

// Memory for inline outputs, one block after the other, reused from run to run of a thread.
class OutputArena {
 public:
  void Clear();
  // Aligned to 64 bytes; valid until Clear.
  uint8_t* Allocate(uint64_t bytes);
  // The offset in Body() of what Allocate returned.
  uint64_t OffsetOf(const uint8_t* data) const;
  // Everything allocated, in order; a copy only if it does not lie in one block.
  std::span<const uint8_t> Body();
  // What the next allocation would end at.
  uint64_t EndAfter(uint64_t bytes) const;

 private:
  struct Block {
    std::unique_ptr<uint8_t[]> storage;
    uint8_t* begin = nullptr;  // Aligned.
    uint64_t bytes = 0, used = 0;
    uint64_t offset = 0;  // Of `begin` in Body().
  };
  std::vector<Block> blocks_;
  std::vector<uint8_t> gathered_;
};

// The devices that Ready listed.
struct DeviceIndices {
  std::map<std::string, uint32_t> by_id;  // In Ready's devices, as in EngineOptions::devices.
  std::vector<uint32_t> entries;          // By that index: in the grant page.
};

// Runs it on the calling thread. `done` gets the answer; the returned body belongs to `arena` until its next use.
std::span<const uint8_t> ExecuteRun(engine::Engine& engine, RunJob& job, const DeviceIndices& devices, Time now,
                                    OutputArena& arena, internal::RunDone* done);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_RUN_JOB_H_
