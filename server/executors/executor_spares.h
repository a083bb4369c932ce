// SPDX-License-Identifier: Apache-2.0
// Executor processes that wait for a tenant: started, isolated and, where nothing of the tenant is needed for it,
// locked down. Each serves one tenant, once; what is taken is replaced a moment later.
#ifndef HPVMD_SERVER_EXECUTORS_EXECUTOR_SPARES_H_
#define HPVMD_SERVER_EXECUTORS_EXECUTOR_SPARES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/round_thread.h"
#include "server/executors/executor_place.h"
#include "supervisor/executor_link.h"

namespace hpvm::server {

struct SpareExecutor {
  std::unique_ptr<supervisor::ExecutorLink> link;
  ExecutorPlace* place = nullptr;              // The link keeps it.
  supervisor::ExecutorOptions options;         // As it was started with.
  std::shared_ptr<int> pid;                    // For the state folder's record.
  std::string programs;                        // Which files its programs were.
  std::shared_ptr<std::optional<Status>> end;  // By itself, and why. Guarded by the pool's mutex.
};

// What tenants' executors will be like.
struct SpareProfile {
  std::vector<std::string> backends;
  bool without_device_nodes = false;
  bool operator==(const SpareProfile&) const = default;
};

// Which files `options` names, so that an update of them is seen; empty when one is missing.
std::string ProgramsOf(const supervisor::ExecutorOptions& options);

// Any thread. A thread of its own starts and ends them, one at a time, when nobody has taken one for a moment: a
// machine that is busy starting tenants is left in peace.
class ExecutorSpares {
 public:
  // `start` starts one for a profile, to call `on_end` (on the hub's thread) if it ends before it is greeted.
  using Start =
      std::function<StatusOr<SpareExecutor>(const SpareProfile& profile, std::function<void(const Status&)> on_end)>;
  explicit ExecutorSpares(Start start);
  ~ExecutorSpares();  // Ends them.
  ExecutorSpares(const ExecutorSpares&) = delete;
  ExecutorSpares& operator=(const ExecutorSpares&) = delete;

  // How many wait for tenants whose executors have this profile; from now on. Others are ended.
  void Expect(SpareProfile profile);
  void SetCount(uint64_t count);
  // What they were started with has changed: all are replaced.
  void Renew();
  // One that can serve `options`, which gets what was settled with it; nothing when there is none.
  std::optional<SpareExecutor> Take(supervisor::ExecutorOptions& options);
  size_t waiting() const;

 private:
  // Answers when to look again.
  Duration Round();
  void Sort(std::unique_lock<std::mutex>& lock);
  void StartOne(std::unique_lock<std::mutex>& lock);

  const Start start_;
  mutable std::mutex mutex_;
  std::vector<SpareExecutor> spares_;  // Guarded by mutex_, as below.
  SpareProfile profile_;               // Without backends: not known yet.
  uint64_t count_ = 0;
  uint64_t generation_ = 0;  // Counts changes of the three above.
  Time start_at_{0};         // Not before.
  Duration pause_{0};        // Grows while they end by themselves.
  RoundThread thread_;       // Last: uses all of it.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_EXECUTORS_EXECUTOR_SPARES_H_
