// SPDX-License-Identifier: Apache-2.0
// One thread for many sources: descriptors, bells, timers and posted work, one at a time. What a source does in its
// turn is short, however much its peer has sent: a source with more to do gets another turn after the others.
//
// A bell is an eventfd that a peer writes to, watched edge-triggered (EPOLLIN | EPOLLET) and never read: each write is
// an event, and a peer that writes without end has only events.
//
// A source that shares memory with its peer can be kept awake: it gets turns without events, and its peer rings no
// bell. It falls asleep when nothing has come for as long as the thread spins.
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

// A hub calls its sources on its thread.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Something happened to the descriptor that is watched as `kind`.
  virtual void OnEvent(uint8_t kind, uint32_t epoll_events) = 0;
  virtual void OnTimer(uint64_t tag) = 0;
  // A turn of a source that is kept awake: does some of what there is to do. False when there was nothing.
  virtual bool OnTurn() { return false; }
  // Tells the peer that it has to ring from now on. False when something came just before; then it was not told. Adds
  // and removes no source.
  virtual bool BeginSleep() { return true; }
};

class EventHub {
 public:
  // `spin`: how long the thread looks again before it sleeps, while sources are awake.
  static StatusOr<std::unique_ptr<EventHub>> Create(Duration spin = Duration(0));
  ~EventHub();
  EventHub(const EventHub&) = delete;
  EventHub& operator=(const EventHub&) = delete;

  // Runs `work` on the hub's thread, after what was posted before. Any thread.
  void Post(std::function<void()> work);
  // Runs it there and waits; at once when this is the hub's thread.
  void RunAndWait(const std::function<void()>& work);
  bool IsHubThread() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Sources are known by id, so that an event that was already under way for a removed one is dropped. Hub's thread
  // only. One that has been removed during its own event may be destroyed once work that was posted after that has run.
  uint64_t Add(EventSource* source);
  void Remove(uint64_t source);
  // Gives the source turns until BeginSleep of it is true. Hub's thread only.
  void KeepAwake(uint64_t source);
  // `epoll_events` as epoll_ctl takes them. Any thread.
  Status Watch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events);
  void Rewatch(uint64_t source, uint8_t kind, int fd, uint32_t epoll_events);
  void Unwatch(int fd);

  // Calls source->OnTimer(tag) at `when`, unless the source is removed before. Any thread.
  void StartTimer(Time when, uint64_t source, uint64_t tag);

 private:
  struct Source {
    EventSource* source;
    bool is_awake = false;  // It is in awake_.
  };
  struct Timer {
    uint64_t source;
    uint64_t tag;
  };

  explicit EventHub(Duration spin) : spin_(spin) {}
  void Loop();
  void Wake();
  // Waits for events, at most as long as BeginWait says, and tells them.
  void TakeEvents(bool may_sleep);
  // How long to wait, in milliseconds; -1: until something happens.
  int BeginWait(bool may_sleep);
  bool GiveTurns();
  bool LetSleep();
  void RunPosted();
  void FireTimers();

  const Duration spin_;
  UniqueFd epoll_, wake_;
  std::thread thread_;
  // The hub's thread only.
  std::unordered_map<uint64_t, Source> sources_;
  uint64_t next_source_ = 1;
  std::vector<uint64_t> awake_;
  bool stopping_ = false;
  // Something is posted, or a timer was set that comes first: the thread must not sleep. Written under mutex_.
  std::atomic<bool> has_news_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // Guarded by mutex_, as below.
  bool is_asleep_ = false;                     // In a wait that only an event ends.
  std::multimap<Time, Timer> timers_;
};

// Has `post` post `work` and waits until it has run.
void AwaitPosted(const std::function<void(std::function<void()>)>& post, const std::function<void()>& work);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_EVENT_HUB_H_
