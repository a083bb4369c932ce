// SPDX-License-Identifier: Apache-2.0
// The machine's processors that this process may use, and their assignment to executors.
#ifndef HPVMD_SERVER_PROCESS_PROCESSORS_H_
#define HPVMD_SERVER_PROCESS_PROCESSORS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hpvm::server {

struct Processor {
  uint32_t number = 0;  // The system's number.
  uint32_t core = 0;    // Processors with equal numbers are threads of one core.
  uint32_t node = 0;    // NUMA node.
};

// Returns the processors in this process's control group and affinity, by number. `synthetic` is a machine that hwloc
// simulates ("numa:2 core:4 pu:2"), or null for this one.
StatusOr<std::vector<Processor>> ReadProcessors(const char* synthetic = nullptr);

// "3" means the first three whole cores; "0-1,4" and "3-3" mean those processors. kInvalidArgument otherwise.
Status CheckReservedCores(std::string_view text);

// CpuPartition decides which processors executors run on. Thread-safe.
class CpuPartition {
 public:
  // `reserved` is as in CheckReservedCores; kInvalidArgument when it leaves no processors. With `by_node`, an
  // executor keeps to one NUMA node, if that has `threads` processors for it.
  static StatusOr<std::unique_ptr<CpuPartition>> Make(const std::vector<Processor>& processors,
                                                      std::string_view reserved, bool by_node, uint32_t threads);

  // The share of one executor, for its lifetime.
  class Share {
   public:
    Share(CpuPartition& plan, size_t node) : plan_(plan), node_(node) {}
    ~Share() { plan_.GiveBack(node_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    // Empty for all of the daemon's processors.
    const std::vector<uint32_t>& cpus() const { return plan_.cpus_[node_]; }

   private:
    CpuPartition& plan_;
    const size_t node_;
  };
  // Takes a share of the node with the least load for its size. The plan must outlive it.
  std::unique_ptr<Share> Take();

  // Returns the largest number of processors that one executor gets.
  uint32_t threads_max() const { return threads_max_; }
  // Returns a description such as "processors 2-15 of 16, each executor on one of 2 nodes"; empty when nothing is
  // reserved.
  const std::string& text() const { return text_; }

 private:
  CpuPartition() = default;
  void GiveBack(size_t node);

  std::vector<std::vector<uint32_t>> cpus_;  // Indexed by node; a single list when nodes do not matter.
  std::mutex mutex_;
  std::vector<uint64_t> taken_;  // Number of executors by node. Guarded by mutex_.
  uint32_t threads_max_ = 0;
  std::string text_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_PROCESS_PROCESSORS_H_
