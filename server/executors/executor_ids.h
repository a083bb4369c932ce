// SPDX-License-Identifier: Apache-2.0
// ExecutorIds assigns user ids to executors, one each: from the ids that the configuration names, or, where it names
// none and the daemon may change ids, from a block that nothing else on the machine uses.
//
// The ids are assigned cyclically in an order that is drawn at the start, so that an id rests between two processes
// and tells a process nothing about the number of others.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_IDS_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_IDS_H_

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"

namespace hpvm::server {

// Returns the first folder on the way to `path` that only its owner may pass; empty when there is none.
std::string ImpassableFolder(const std::string& path);

// Thread-safe.
class ExecutorIds {
 public:
  // Follows config.executor_uid_first and executor_uid_count, as far as this process may; logs the ids, or why there
  // are none. `program` is the program of the executors: with ids of their own they must be able to reach it and the
  // state folder.
  ExecutorIds(const Config& config, const std::string& state_folder, const std::string& program, Rng& rng);

  // Returns true when executors have ids of their own; otherwise they keep the daemon's.
  bool any() const { return !order_.empty(); }
  // Called only if any(). kResourceExhausted when all ids are taken.
  StatusOr<uint32_t> Take();
  void GiveBack(uint32_t uid);

 private:
  void Draw(uint32_t first, uint32_t count, Rng& rng);

  std::vector<uint32_t> order_;
  std::mutex mutex_;
  std::set<uint32_t> taken_;  // This and all following members are guarded by mutex_.
  size_t next_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_IDS_H_
