// SPDX-License-Identifier: Apache-2.0
// Load is the load of one tenant: threads that submit, query, cancel and fetch, and, once the daemon is no longer
// disturbed, a round that determines the outcome of every job.
#ifndef HPVMD_TESTS_CHAOS_LOAD_H_
#define HPVMD_TESTS_CHAOS_LOAD_H_

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/chaos/connection.h"
#include "tests/chaos/journal.h"
#include "tests/chaos/work.h"

namespace hpvm::chaos {

struct LoadOptions {
  std::string endpoint, tenant, journal, module;
  uint64_t seed = 1;
  int threads = 3;
  int live_max = 60;     // Maximum number of jobs not seen to end; nothing is submitted beyond it.
  int pause_us = 4'000;  // Between two calls of a thread, on average.
};

class Load {
 public:
  // Continues where an earlier process with this journal ended.
  static StatusOr<std::unique_ptr<Load>> Start(const LoadOptions& options);
  ~Load();

  void Go();
  // Waits for calls in progress.
  void Pause();
  // Follows every job of the journal to its end, fetches its outputs, and lists the daemon's jobs. Returns false when
  // `within` was not enough.
  bool Verify(Duration within);
  Connection& connection() { return *connection_; }

 private:
  // A key and its outcome.
  struct Tracked {
    Work work;
    bool is_acknowledged = false, is_refused = false, is_sent = false;
    std::vector<std::string> ids;
    size_t ended = 0;
  };

  Load(const LoadOptions& options, Journal journal);
  void Replay(const std::string& path);
  void Loop(uint64_t seed);
  void Step(Rng& rng);
  // Sends a key for the first time or again, and records the outcome.
  void Send(size_t index);
  void SubmitNew(Rng& rng);
  void Look(Rng& rng);
  void Saw(const v1::Job& job, int64_t start_ns, const char* how);
  void Fetch(const Work& work, const std::string& id);
  void RunNow(Rng& rng);
  std::string RandomId(Rng& rng);
  // The steps of Verify, each over all keys since the last round.
  void ForEach(const std::function<void(size_t)>& each, Time deadline);
  bool Settle(size_t index, Time deadline);
  void ListAll(Time deadline);

  const LoadOptions options_;
  Journal journal_;
  std::unique_ptr<Connection> connection_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Since the last round; this and the following members are guarded by mutex_.
  std::vector<std::unique_ptr<Tracked>> tracked_;
  std::map<std::string, std::pair<Tracked*, bool>> by_id_;  // The flag says whether it was seen to end.
  std::vector<std::string> old_ids_;  // Some jobs of earlier rounds, which must not change any more.
  uint64_t next_key_ = 0;
  int live_ = 0, busy_ = 0;
  bool is_paused_ = true, stop_ = false;
  int64_t round_unix_ns_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace hpvm::chaos

#endif  // HPVMD_TESTS_CHAOS_LOAD_H_
