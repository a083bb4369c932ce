// SPDX-License-Identifier: Apache-2.0
// User ids that executors take, one each: those that the configuration names, or, where it names none and the daemon
// may give ids away, a block that nothing else on the machine uses.
//
// They are given out in an order that is drawn at the start, round and round, so that an id rests between two processes
// and tells the process that has it nothing of how many others there were.
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

// Of those on the way to `path`, the first folder that only its owner may pass; empty: none.
std::string ImpassableFolder(const std::string& path);

// Any thread.
class ExecutorIds {
 public:
  // As config.executor_uid_first and executor_uid_count ask, as far as this process may; the log says which ids, or why
  // none. `program` is what executors run: with an id of their own they must reach it and the state folder.
  ExecutorIds(const Config& config, const std::string& state_folder, const std::string& program, Rng& rng);

  // Whether executors have ids of their own. False: they keep the daemon's.
  bool any() const { return !order_.empty(); }
  // With any() only. kResourceExhausted when all are taken.
  StatusOr<uint32_t> Take();
  void GiveBack(uint32_t uid);

 private:
  void Draw(uint32_t first, uint32_t count, Rng& rng);

  std::vector<uint32_t> order_;
  std::mutex mutex_;
  std::set<uint32_t> taken_;  // Guarded by mutex_, as below.
  size_t next_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_IDS_H_
