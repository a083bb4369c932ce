// SPDX-License-Identifier: Apache-2.0
// RingCaller is the calling end of a pair of rings (base/io/ring.h; frames as in hpvm/v1/ring.proto), for any number
// of threads. Each thread puts its call and waits; one of the waiting threads, the leader, reads the responses of all
// and wakes the others. So a single thread gets its response without a thread in between, and many threads need no
// extra reader. Calls that no thread waits for are read by a thread of this object while no other thread reads.
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

// Thread-safe, except where noted. Must outlive every Call.
class RingCaller {
 public:
  ~RingCaller() { Stop(); }
  RingCaller(const RingCaller&) = delete;
  RingCaller& operator=(const RingCaller&) = delete;

  // Largest body of a call.
  static constexpr size_t kBodyBytesMax = kRingFrameBytesMax - 1'024;

  // `spin` is the time that a thread polls for a response before it sleeps.
  static StatusOr<std::unique_ptr<RingCaller>> Make(Duration spin);
  // Descriptors for the other side. Owned by this object.
  int memory_fd() const { return memory_fd_.get(); }
  int bell_fd() const { return bell_.get(); }
  // Called when the other side has the descriptors and accepts `calls_max` calls at a time. Nothing is sent before
  // that; after Begin(0) nothing new is sent.
  void Begin(size_t calls_max);

  struct Answer {
    bool is_refused = false;  // The other side did not look at the call.
    std::vector<uint8_t> body;
  };
  // Blocks until there is a response. Returns nothing when the call was not sent, because the ring is full or has
  // ended; kDeadlineExceeded (RealClock) or, when `stop` was requested, kCancelled, after which the other side is
  // told to give up; the ring's end if that came first.
  StatusOr<std::optional<Answer>> Call(std::string_view body, Time deadline, const std::stop_token& stop = {});
  // Called once with a call's result, by the thread that reads its response or ends it. Must be short, and take no
  // lock that is held around a method of this class.
  using Done = std::function<void(StatusOr<Answer>)>;
  // Starts a call and returns its id, for Cancel. Returns nothing when the call was not sent, as with Call; then
  // `done` is not called.
  std::optional<uint64_t> Start(std::string_view body, Done done);
  // Passes kCancelled to `done` now, unless it has been called or is being called, and tells the other side to give
  // up.
  void Cancel(uint64_t id);
  // Called when the other side is gone or is to be left alone: calls in progress fail with `why`. The first reason
  // counts.
  void End(const Status& why);
  // Ends the ring and waits until no `Done` is being called. Must not be called from one.
  void Stop();
  // Returns true when no call is in progress.
  bool IsIdle() const;

  // Totals since the beginning.
  struct Counts {
    uint64_t calls = 0, bells = 0, sleeps = 0, wakes = 0, leads = 0, full = 0;
  };
  Counts counts() const;

 private:
  // A thread in Call. Its word changes once from kWaits, under the mutex, except for kLeads, which the thread itself
  // takes back, and kStops, which kDone may follow.
  struct Waiter {
    enum : uint32_t { kWaits, kLeads, kStops, kDone };
    std::atomic<uint32_t> word{kWaits};
    std::atomic<bool> is_stopped{false};
    Status status;
    Answer answer;
    Done done = nullptr;  // Set for a started call, which no thread waits for.
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
  // Used by the leader only.
  RingConsumer consumer_;
  Frame frame_;

  mutable std::mutex mutex_;
  RingProducer producer_;  // This and the following members are guarded by mutex_.
  size_t calls_max_ = 0;
  uint64_t next_id_ = 1;
  std::unordered_map<uint64_t, Waiter*> calls_;  // In progress; null when nobody waits for the response any more.
  std::unordered_map<uint64_t, std::unique_ptr<Waiter>> started_;  // The entries of calls_ that no thread waits for.
  bool has_leader_ = false;
  bool stops_ = false;
  std::condition_variable readers_turn_;
  std::thread reader_;
  Waiter reading_;  // The reader thread's: never done, stopped by the destructor.
  Status over_;
  uint64_t full_ = 0;
  std::atomic<uint64_t> bells_{0}, sleeps_{0}, wakes_{0}, leads_{0};
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_RING_CALLER_H_
