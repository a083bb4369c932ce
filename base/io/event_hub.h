// SPDX-License-Identifier: Apache-2.0
// EventHub serves many sources (descriptors, bells, timers and posted work) on one thread, one at a time. A source's
// turn is short, however much its peer has sent: a source with more to do gets another turn after the others.
//
// A bell is an eventfd that a peer writes to; it is watched edge-triggered (EPOLLIN | EPOLLET) and never read. Each
// write is an event, so a peer that writes without end causes nothing but events.
//
// A source that shares memory with its peer can be kept awake: it gets turns without events, and its peer need not ring
// the bell. It falls asleep when nothing has arrived for as long as the thread spins.
#ifndef HPVMD_BASE_IO_EVENT_HUB_H_
#define HPVMD_BASE_IO_EVENT_HUB_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"

namespace hpvm {

// A hub calls its sources on its own thread.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // An event occurred on the descriptor that is watched as `kind`.
  virtual void OnEvent(uint8_t kind, uint32_t epoll_events) = 0;
  virtual void OnTimer(uint64_t tag) = 0;
  // A turn of a source that is kept awake: does part of the pending work. Returns false when there was none.
  virtual bool OnTurn() { return false; }
  // Tells the peer that it has to ring the bell from now on. Returns false, without telling the peer, when something
  // arrived just before. Must not add or remove sources.
  virtual bool BeginSleep() { return true; }
};

class EventHub {
 public:
  // `spin` is how long the thread polls before it sleeps, while sources are awake.
  static StatusOr<std::unique_ptr<EventHub>> Create(Duration spin = Duration(0));
  ~EventHub();
  EventHub(const EventHub&) = delete;
  EventHub& operator=(const EventHub&) = delete;

  // Runs `work` on the hub's thread, after earlier posted work. Thread-safe.
  void Post(std::function<void()> work);
  // Runs `work` on the hub's thread and waits for it; runs it at once when called on that thread.
  void RunAndWait(const std::function<void()>& work);
  bool IsHubThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Sources are identified by id, so that an event already in flight for a removed source is dropped. Only on the hub's
  // thread. A source removed during its own event may be destroyed once work posted after that has run.
  uint64_t Add(EventSource* source);
  void Remove(uint64_t source);
  // Gives the source turns until its BeginSleep returns true. Only on the hub's thread.
  void KeepAwake(uint64_t source);
  // `epoll_events` as for epoll_ctl. Thread-safe.
  Status Watch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events);
  void Rewatch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events);
  void Unwatch(int fd);

  // Calls source->OnTimer(tag) at `when`, unless the source is removed before. Thread-safe.
  void StartTimer(Time when, uint64_t source, uint64_t tag);

 private:
  struct Source {
    EventSource* source;
    bool is_awake = false;  // Listed in awake_.
  };
  struct Timer {
    uint64_t source;
    uint64_t tag;
  };

  explicit EventHub(Duration spin) : spin_(spin) {}
  void Loop();
  void Wake();
  // Waits for events, at most as long as BeginWait returns, and dispatches them.
  void TakeEvents(bool may_sleep);
  // Returns how long to wait, in milliseconds; -1 means until something happens.
  int BeginWait(bool may_sleep);
  bool GiveTurns();
  bool LetSleep();
  void RunPosted();
  void FireTimers();

  const Duration spin_;
  UniqueFd epoll_, wake_;
  std::thread thread_;
  // The following members belong to the hub's thread.
  std::unordered_map<uint64_t, Source> sources_;
  uint64_t next_source_ = 1;
  std::vector<uint64_t> awake_;
  bool stopping_ = false;
  // Work was posted, or a timer was set that is due first: the thread must not sleep. Written under mutex_.
  std::atomic<bool> has_news_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // This and all following members are guarded by mutex_.
  bool is_asleep_ = false;                     // True during a wait that only an event ends.
  std::multimap<Time, Timer> timers_;
};

// Posts `work` through `post` and waits until it has run.
void AwaitPosted(const std::function<void(std::function<void()>)>& post, const std::function<void()>& work);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_EVENT_HUB_H_
