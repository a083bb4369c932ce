// SPDX-License-Identifier: Apache-2.0
// The hub's thread: sockets, ends of processes, timers and posted work, one at a time. Beside it a thread that starts
// processes, which takes milliseconds and would hold up everybody's answers.
#ifndef HPVMD_SUPERVISOR_EXECUTOR_HUB_H_
#define HPVMD_SUPERVISOR_EXECUTOR_HUB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fair_queue.h"
#include "base/io/fd.h"
#include "supervisor/executor_link.h"

namespace hpvm::supervisor {

// What a link watches; the hub's thread calls it.
class HubSource {
 public:
  enum class Event : uint8_t { kSocket, kExit, kStderr };
  virtual ~HubSource() = default;
  virtual void OnEvent(Event event, uint32_t epoll_events) = 0;
  virtual void OnTimer(uint64_t tag) = 0;
};

class ExecutorHub::Core {
 public:
  static StatusOr<std::unique_ptr<Core>> Create();
  ~Core();

  // Runs `work` on the hub's thread, after what was posted before. Any thread.
  void Post(std::function<void()> work);
  // Runs it there and waits; at once when this is the hub's thread.
  void RunAndWait(const std::function<void()>& work);
  // Runs it on the thread that starts processes, which lives as long as this, and waits. Any thread but that one; the
  // hub's only where nobody else uses the hub.
  void SpawnAndWait(const std::function<void()>& work);
  bool IsHubThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Sources are known by id, so that an event that was already under way for a removed one is dropped. Hub's thread
  // only. One that has been removed during its own event may be destroyed once work that was posted after that has run.
  uint64_t Add(HubSource* source);
  void Remove(uint64_t source);
  Status Watch(uint64_t source, HubSource::Event event, int fd, uint32_t epoll_events);
  // Any thread.
  void Rewatch(uint64_t source, HubSource::Event event, int fd, uint32_t epoll_events);
  void Unwatch(int fd);

  // Calls source->OnTimer(tag) at `when`, unless the source is removed before. Any thread.
  void StartTimer(Time when, uint64_t source, uint64_t tag);

 private:
  struct Timer {
    uint64_t source;
    uint64_t tag;
  };

  Core() = default;
  void Loop();
  void Wake();
  int TimeoutMs();
  void RunPosted();
  void FireTimers();

  UniqueFd epoll_, wake_;
  FairQueue spawns_{"spawns", "process", 1};
  std::thread thread_;
  std::unordered_map<uint64_t, HubSource*> sources_;  // Hub's thread only.
  uint64_t next_source_ = 1;
  bool stopping_ = false;  // Hub's thread only.
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // Guarded by mutex_, as below.
  bool woken_ = false;
  std::multimap<Time, Timer> timers_;
};

}  // namespace hpvm::supervisor

#endif  // HPVMD_SUPERVISOR_EXECUTOR_HUB_H_
