// SPDX-License-Identifier: Apache-2.0
// ExecutorHoldings records what one executor holds of the daemon's: modules, and memory that it maps. Each is sent
// once, on first use; beyond the protocol's limits the least recently used are released. Not locked: the link's mutex
// guards it.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_HOLDINGS_H_
#define HPVMD_SUPERVISOR_EXECUTOR_HOLDINGS_H_

#include <functional>
#include <list>
#include <span>
#include <unordered_map>
#include <utility>

#include "supervisor/executor_process.h"

namespace hpvm::supervisor {

// RecentKeys holds a bounded set of keys in the order of last use; evicted keys must be released at the other side.
template <typename Key>
class RecentKeys {
 public:
  // Returns true when the key was present.
  bool Touch(const Key& key, uint64_t weight = 1) {
    const auto found = places_.find(key);
    if (found != places_.end()) {
      order_.splice(order_.end(), order_, found->second);
      return true;
    }
    places_.emplace(key, order_.insert(order_.end(), {key, weight}));
    weight_ += weight;
    return false;
  }
  bool Erase(const Key& key) {
    const auto found = places_.find(key);
    if (found == places_.end()) {
      return false;
    }
    weight_ -= found->second->second;
    order_.erase(found->second);
    places_.erase(found);
    return true;
  }
  const Key& oldest() const { return order_.front().first; }
  size_t size() const { return places_.size(); }
  uint64_t weight() const { return weight_; }

 private:
  std::list<std::pair<Key, uint64_t>> order_;
  std::unordered_map<Key, typename std::list<std::pair<Key, uint64_t>>::iterator> places_;
  uint64_t weight_ = 0;
};

class ExecutorHoldings {
 public:
  // Sends a message with its body and descriptors; `more`: another follows at once.
  using Send = std::function<Status(const internal::Envelope&, std::span<const uint8_t> body, std::span<const int> fds,
                                    bool more)>;

  Status PutModules(const PrepareInput& input, const Send& send);
  Status ShareMemories(const RunInput& input, const Send& send);
  // Returns false when it does not hold that memory.
  bool Forget(uint64_t memory_id) { return memories_.Erase(memory_id); }

 private:
  Status PutModule(const ModuleInput& module, const Send& send);
  Status ShareMemory(const MemorySlice& slice, const Send& send);

  RecentKeys<Sha256> modules_;
  RecentKeys<uint64_t> memories_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_HOLDINGS_H_
