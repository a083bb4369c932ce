// SPDX-License-Identifier: Apache-2.0
// The calling end of a pair of rings (base/io/ring.h; frames as hpvm/v1/ring.proto has them), for any number of
// threads. Each puts its call and waits; one of those that wait reads the answers of all, and wakes the others. So a
// single thread's answer comes to it without another thread between, and many threads need none of their own. Calls
// that nobody waits for have a thread of this one's, which reads while none of the others does.
#ifndef HPVMD_CLIENT_RING_CALLER_H_
#define HPVMD_CLIENT_RING_CALLER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"
#include "base/io/ring.h"
#include "base/status.h"

namespace hpvm {

// Any thread, but for what says otherwise. Outlives every Call.
class RingCaller {
 public:
  ~RingCaller() { Stop(); }
  RingCaller(const RingCaller&) = delete;
  RingCaller& operator=(const RingCaller&) = delete;

  // The largest body of a call.
  static constexpr size_t kBodyBytesMax = kRingFrameBytesMax - 1'024;

  // `spin`: how long a thread looks for an answer before it sleeps.
  static StatusOr<std::unique_ptr<RingCaller>> Make(Duration spin);
  // For the other side. Owned by this.
  int memory_fd() const { return memory_fd_.get(); }
  int bell_fd() const { return bell_.get(); }
  // The other side has them, and takes so many calls at a time. Before that nothing is sent, and nothing new after 0.
  void Begin(size_t calls_max);

  struct Answer {
    bool is_refused = false;  // Nothing of the call was looked at.
    std::vector<uint8_t> body;
  };
  // Blocks until there is an answer. None: nothing was sent, since there is no room just now, or the ring has ended.
  // kDeadlineExceeded (RealClock) and, when `stop` was asked for, kCancelled, after which the other side is told to
  // give up; the ring's end when that came first.
  StatusOr<std::optional<Answer>> Call(std::string_view body, Time deadline, const std::stop_token& stop = {});
  // Called once with a call's end, by whichever thread reads its answer or ends it: short, and takes no lock that is
  // held around a method of this.
  using Done = std::function<void(StatusOr<Answer>)>;
  // Begins a call and returns its id, for Cancel. None: nothing was sent, as with Call, and `done` is not called.
  std::optional<uint64_t> Start(std::string_view body, Done done);
  // `done` gets kCancelled now, unless it has been called or is being called, and the other side is told to give up.
  void Cancel(uint64_t id);
  // The other side is gone, or is to be left alone: what is in progress fails with that. The first reason counts.
  void End(const Status& why);
  // Ends it, and waits until no `Done` is being called. Not in one.
  void Stop();
  // Nothing is in progress.
  bool IsIdle() const;

  // Since the beginning.
  struct Counts {
    uint64_t calls = 0, bells = 0, sleeps = 0, wakes = 0, leads = 0, full = 0;
  };
  Counts counts() const;

 private:
  // A thread in Call. Its word changes once from kWaits, under the mutex, but for kLeads, which it takes back itself,
  // and for kStops, which kDone may follow.
  struct Waiter {
    enum : uint32_t { kWaits, kLeads, kStops, kDone };
    std::atomic<uint32_t> word{kWaits};
    std::atomic<bool> is_stopped{false};
    Status status;
    Answer answer;
    Done done = nullptr;  // Of a call that was started; no thread waits for it.
  };

  RingCaller(UniqueFd memory, Mapping mapping, UniqueFd bell, Duration spin);
  RingPairMemory& memory() { return *reinterpret_cast<RingPairMemory*>(mapping_.data()); }
  void RingBell();
  bool Put(std::string_view body, uint64_t* id);
  bool PutCancel(uint64_t id);
  bool HasStarted() const;
  void Read();
  void Lead(const Waiter& waiter, Time deadline);
  void Sleep(const Waiter& waiter, Time deadline);
  bool TakeSome(const Waiter& leader);
  Status Dispatch(Frame& frame, const Waiter& leader);
  void PassOn(const Waiter& from);
  void Stop(Waiter& waiter);
  void WakeLeader();
  StatusOr<std::optional<Answer>> Abandon(uint64_t id, Waiter& waiter);

  const UniqueFd memory_fd_;
  Mapping mapping_;
  const UniqueFd bell_;
  const Duration spin_;
  std::atomic<bool> is_over_{false};
  // Of whoever leads.
  RingConsumer consumer_;
  Frame frame_;

  mutable std::mutex mutex_;
  RingProducer producer_;  // Guarded by mutex_, as below.
  size_t calls_max_ = 0;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Waiter*> calls_;  // In progress; null: nobody waits for its answer any more.
  std::unordered_map<uint64_t, std::unique_ptr<Waiter>> started_;  // Those of calls_ that no thread waits for.
  bool has_leader_ = false;
  bool stops_ = false;
  std::condition_variable readers_turn_;
  std::thread reader_;
  Waiter reading_;  // The reader's: never done, stopped by the destructor.
  Status over_;
  uint64_t full_ = 0;
  std::atomic<uint64_t> bells_{0}, sleeps_{0}, wakes_{0}, leads_{0};
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_RING_CALLER_H_
