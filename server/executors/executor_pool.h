// SPDX-License-Identifier: Apache-2.0
// ExecutorPool holds executor processes that wait for a tenant: started, isolated and, as far as that is possible
// without the tenant, locked down. Each serves one tenant, once; a process that is taken is replaced a moment later.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_POOL_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/round_thread.h"
#include "server/executors/executor_confinement.h"
#include "supervisor/executor_link.h"

namespace hpvm::server {

struct SpareExecutor {
  std::unique_ptr<supervisor::ExecutorLink> link;
  ExecutorConfinement* confinement = nullptr;  // Owned by the link.
  supervisor::ExecutorOptions options;         // The options with which it was started.
  std::shared_ptr<int> pid;                    // For the record in the state folder.
  std::string programs;                        // Identity of its program files.
  // Set with the reason when the process ends by itself. Guarded by the pool's mutex.
  std::shared_ptr<std::optional<Status>> end;
};

// SpareProfile describes the tenants' next executors.
struct SpareProfile {
  std::vector<std::string> backends;
  bool without_device_nodes = false;
  bool operator==(const SpareProfile&) const = default;
};

// Returns an identity of the files that `options` names, which changes with an update; empty when a file is missing.
std::string ProgramsOf(const supervisor::ExecutorOptions& options);

// Thread-safe. A thread of its own starts and ends the processes, one at a time, when none has been taken for a
// moment, so that a machine that is busy starting tenants is not disturbed.
class ExecutorPool {
 public:
  // Starts a process for a profile; `on_end` must be called (on the hub's thread) if the process ends before it is
  // greeted.
  using Start =
      std::function<StatusOr<SpareExecutor>(const SpareProfile& profile, std::function<void(const Status&)> on_end)>;
  explicit ExecutorPool(Start start);
  ~ExecutorPool();  // Ends the processes.
  ExecutorPool(const ExecutorPool&) = delete;
  ExecutorPool& operator=(const ExecutorPool&) = delete;

  // Expect sets the profile, and SetCount the number, of spare processes from now on. Other processes are ended.
  void Expect(SpareProfile profile);
  void SetCount(uint64_t count);
  // Replaces all processes, because their options have changed.
  void Renew();
  // Returns a process that can serve `options`, which is updated with the settings of the process; nothing when there
  // is none.
  std::optional<SpareExecutor> Take(supervisor::ExecutorOptions& options);
  size_t waiting() const;

 private:
  // Returns the time until the next round.
  Duration Round();
  void Sort(std::unique_lock<std::mutex>& lock);
  void StartOne(std::unique_lock<std::mutex>& lock);

  const Start start_;
  mutable std::mutex mutex_;
  std::vector<SpareExecutor> spares_;  // This and all following members are guarded by mutex_.
  SpareProfile profile_;               // Not known yet while it has no backends.
  uint64_t count_ = 0;
  uint64_t generation_ = 0;  // Counts changes of the members above.
  Time start_at_{0};         // Earliest time of the next start.
  Duration pause_{0};        // Grows while processes end by themselves.
  RoundThread thread_;       // Declared last, since it uses all other members.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_POOL_H_
