// SPDX-License-Identifier: Apache-2.0
#include "client/ring_caller.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/io/futex.h"
#include "hpvm/v1/ring.pb.h"

namespace hpvm {
namespace {

constexpr FrameLimits kLimits = {
    .head_bytes_max = kRingFrameBytesMax, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};
// Number of frames read before the leader checks whether it is done.
constexpr int kBurst = 64;
// Upper bound of each sleep, so that no arithmetic with kNever is needed.
constexpr Duration kSleepMax = std::chrono::seconds(10);

Duration Until(Time deadline) {
  const Time now = RealClock().Now();
  return deadline <= now ? Duration(0) : deadline - now > kSleepMax ? kSleepMax : deadline - now;
}

}  // namespace

StatusOr<std::unique_ptr<RingCaller>> RingCaller::Make(Duration spin) {
  HPVMD_ASSIGN_OR_RETURN(UniqueFd memory, CreateSealedMemfd("hpvm-ring", kRingPairBytes));
  HPVMD_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Map(memory.get(), kRingPairBytes, Mapping::Access::kReadWrite));
  UniqueFd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) {
    return FromErrno(errno, "Making an eventfd");
  }
  return std::unique_ptr<RingCaller>(new RingCaller(std::move(memory), std::move(mapping), std::move(bell), spin));
}

RingCaller::RingCaller(UniqueFd memory, Mapping mapping, UniqueFd bell, Duration spin)
    : memory_fd_(std::move(memory)),
      mapping_(std::move(mapping)),
      bell_(std::move(bell)),
      spin_(spin),
      consumer_(this->memory().to_client, kLimits),
      producer_(this->memory().to_server) {}

void RingCaller::Stop() {
  End(Unavailable("The client has released the ring."));
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  reading_.is_stopped.store(true);
  readers_turn_.notify_all();
  WakeLeader();
  if (reader_.joinable()) {
    reader_.join();
  }
}

void RingCaller::Begin(size_t calls_max) {
  const std::lock_guard lock(mutex_);
  calls_max_ = calls_max;
}

void RingCaller::RingBell() {
  bells_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t one = 1;
  // The eventfd overflows after 2^64 rings, which nobody reaches.
  (void)!write(bell_.get(), &one, sizeof(one));
}

StatusOr<std::optional<RingCaller::Answer>> RingCaller::Call(std::string_view body, Time deadline,
                                                             const std::stop_token& stop) {
  Waiter waiter;
  uint64_t id = 0;
  bool rings = false, leads = false;
  {
    const std::lock_guard lock(mutex_);
    if (!Put(body, &id)) {
      return std::nullopt;
    }
    calls_.emplace(id, &waiter);
    rings = producer_.MustWake();
    leads = !std::exchange(has_leader_, true);
  }
  if (rings) {
    RingBell();
  }
  const std::stop_callback on_stop(stop, [this, &waiter] { Stop(waiter); });
  while (true) {
    if (leads) {
      Lead(waiter, deadline);
    } else {
      FutexWait(waiter.word, Waiter::kWaits, Until(deadline), FutexScope::kProcess);
    }
    uint32_t word = Waiter::kLeads;
    leads = waiter.word.compare_exchange_strong(word, Waiter::kWaits);
    if (word == Waiter::kDone) {
      HPVMD_RETURN_IF_ERROR(waiter.status);
      return std::move(waiter.answer);
    }
    if (waiter.is_stopped.load() || RealClock().Now() >= deadline) {
      if (leads) {
        PassOn(waiter);
      }
      return Abandon(id, waiter);
    }
  }
}

std::optional<uint64_t> RingCaller::Start(std::string_view body, Done done) {
  uint64_t id = 0;
  bool rings = false;
  {
    const std::lock_guard lock(mutex_);
    if (!Put(body, &id)) {
      return std::nullopt;
    }
    auto waiter = std::make_unique<Waiter>();
    waiter->done = std::move(done);
    calls_.emplace(id, waiter.get());
    started_.emplace(id, std::move(waiter));
    rings = producer_.MustWake();
    if (!reader_.joinable()) {
      reader_ = std::thread([this] { Read(); });
    }
    if (!has_leader_) {
      readers_turn_.notify_one();
    }
  }
  if (rings) {
    RingBell();
  }
  return id;
}

void RingCaller::Cancel(uint64_t id) {
  std::unique_ptr<Waiter> waiter;
  bool rings = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = started_.find(id);
    if (found == started_.end()) {
      return;
    }
    waiter = std::move(found->second);
    started_.erase(found);
    calls_[id] = nullptr;
    rings = PutCancel(id);
  }
  if (rings) {
    RingBell();
  }
  waiter->done(Cancelled("The caller cancelled the call."));
}

// Reads for calls that no thread waits for, while no waiting thread reads.
void RingCaller::Read() {
  std::unique_lock lock(mutex_);
  while (true) {
    readers_turn_.wait(lock, [this] { return stops_ || (!started_.empty() && !has_leader_); });
    if (stops_) {
      return;
    }
    has_leader_ = true;
    lock.unlock();
    leads_.fetch_add(1, std::memory_order_relaxed);
    while (!reading_.is_stopped.load() && HasStarted()) {
      if (!TakeSome(reading_)) {
        Sleep(reading_, kNever);
      }
    }
    PassOn(reading_);
    lock.lock();
  }
}

bool RingCaller::HasStarted() const {
  const std::lock_guard lock(mutex_);
  return !started_.empty();
}

// The caller holds the mutex. Tells the other side to give up; when the ring is full, the run continues to its end or
// to its own deadline. Returns true when the bell must be rung.
bool RingCaller::PutCancel(uint64_t id) {
  v1::RingCall head;
  head.set_id(id);
  head.set_cancel(true);
  const StatusOr<bool> put = producer_.Put(head.SerializeAsString());
  return put.ok() && *put && producer_.MustWake();
}

// The caller holds the mutex. Returns false when the ring is full at the moment or has ended.
bool RingCaller::Put(std::string_view body, uint64_t* id) {
  if (!over_.ok() || calls_.size() >= calls_max_) {
    return false;
  }
  *id = next_id_;
  v1::RingCall head;
  head.set_id(*id);
  const StatusOr<bool> put = producer_.Put(head.SerializeAsString(), BytesOf(body));
  if (!put.ok() || !*put) {
    ++full_;
    return false;
  }
  ++next_id_;
  return true;
}

StatusOr<std::optional<RingCaller::Answer>> RingCaller::Abandon(uint64_t id, Waiter& waiter) {
  bool rings = false;
  bool leads = false;
  {
    const std::lock_guard lock(mutex_);
    if (waiter.word.load() == Waiter::kDone) {
      HPVMD_RETURN_IF_ERROR(waiter.status);
      return std::move(waiter.answer);
    }
    leads = waiter.word.load() == Waiter::kLeads;  // The lead may just have been passed on to it.
    calls_[id] = nullptr;
    rings = PutCancel(id);
  }
  if (leads) {
    PassOn(waiter);
  }
  if (rings) {
    RingBell();
  }
  return waiter.is_stopped.load() ? Cancelled("The caller cancelled the call.")
                                  : DeadlineExceeded("The call's timeout passed.");
}

// The waiter's thread leads, or sleeps until its word changes, or is about to do either.
void RingCaller::Stop(Waiter& waiter) {
  {
    const std::lock_guard lock(mutex_);
    waiter.is_stopped.store(true);
    uint32_t word = Waiter::kWaits;
    waiter.word.compare_exchange_strong(word, Waiter::kStops);
  }
  FutexWake(waiter.word, 1, FutexScope::kProcess);
  WakeLeader();
}

void RingCaller::WakeLeader() {
  memory().to_client.asleep.store(0);
  FutexWake(memory().to_client.asleep, 1, FutexScope::kShared);
}

// Leads until the waiter's own response has arrived or its time is up; then passes the lead on.
void RingCaller::Lead(const Waiter& waiter, Time deadline) {
  leads_.fetch_add(1, std::memory_order_relaxed);
  while (true) {
    const bool took = TakeSome(waiter);
    if (waiter.word.load() == Waiter::kDone || waiter.is_stopped.load() || (!took && RealClock().Now() >= deadline)) {
      break;
    }
    if (!took) {
      Sleep(waiter, deadline);
    }
  }
  PassOn(waiter);
}

void RingCaller::Sleep(const Waiter& waiter, Time deadline) {
  if (spin_ > Duration(0)) {
    const Time until = RealClock().Now() + spin_;
    do {
      for (int i = 0; i < 32; ++i) {
        if (!consumer_.empty()) {
          return;
        }
        __builtin_ia32_pause();
      }
    } while (RealClock().Now() < until);
  }
  if (consumer_.BeginSleep()) {
    // Checked after publishing that the leader sleeps: End and Stop read that after setting their own flags.
    if (!is_over_.load() && !waiter.is_stopped.load()) {
      sleeps_.fetch_add(1, std::memory_order_relaxed);
      consumer_.Wait(Until(deadline));
    }
    consumer_.EndSleep();
  }
}

// Returns true when any frame arrived.
bool RingCaller::TakeSome(const Waiter& leader) {
  int count = 0;
  Status taken;
  while (count < kBurst && taken.ok()) {
    const StatusOr<RingConsumer::Got> got = consumer_.Next(&frame_);
    if (got.ok() && *got == RingConsumer::Got::kNothing) {
      break;
    }
    ++count;
    taken = !got.ok() ? got.status()
            : *got == RingConsumer::Got::kFrame
                ? Dispatch(frame_, leader)
                : DataLoss("The server says that a frame comes through a socket, but there is no socket.");
  }
  if (count > 0 && consumer_.MustWakeProducer()) {
    RingBell();
  }
  if (!taken.ok()) {
    End(DataLoss("The server broke the ring's rules: " + Message(taken)));
  }
  return count > 0;
}

Status RingCaller::Dispatch(Frame& frame, const Waiter& leader) {
  v1::RingReply head;
  if (!head.ParseFromString(frame.head)) {
    return InvalidArgument("A frame's head is not a RingReply.");
  }
  Waiter* done = nullptr;
  std::unique_ptr<Waiter> started;
  {
    const std::lock_guard lock(mutex_);
    const auto found = calls_.find(head.id());
    if (found == calls_.end()) {
      return over_.ok() ? InvalidArgument("An answer belongs to no call.") : absl::OkStatus();
    }
    Waiter* const waiter = found->second;
    if (waiter != nullptr) {
      std::vector<uint8_t>& body = waiter->answer.body;
      if (body.empty()) {
        body = std::move(frame.body);
      } else {
        body.insert(body.end(), frame.body.begin(), frame.body.end());
      }
      waiter->answer.is_refused = head.refused();
    }
    if (!head.more()) {
      calls_.erase(found);
      if (const auto one = started_.find(head.id()); one != started_.end()) {
        started = std::move(one->second);
        started_.erase(one);
      } else {
        done = waiter;
      }
      if (done != nullptr) {
        done->word.store(Waiter::kDone);
      }
    }
  }
  if (started != nullptr) {
    started->done(std::move(started->answer));
  }
  if (done != nullptr && done != &leader) {
    // The waiter's thread may have continued meanwhile; then the address means nothing, and nobody waits there.
    wakes_.fetch_add(1, std::memory_order_relaxed);
    FutexWake(done->word, 1, FutexScope::kProcess);
  }
  return absl::OkStatus();
}

// Passes the lead to another waiter, if there is one.
void RingCaller::PassOn(const Waiter& from) {
  Waiter* next = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, waiter] : calls_) {
      if (waiter != nullptr && waiter != &from && !waiter->done && waiter->word.load() == Waiter::kWaits) {
        next = waiter;
        next->word.store(Waiter::kLeads);
        break;
      }
    }
    has_leader_ = next != nullptr;
    if (!has_leader_ && !started_.empty()) {
      readers_turn_.notify_one();
    }
  }
  if (next != nullptr) {
    wakes_.fetch_add(1, std::memory_order_relaxed);
    FutexWake(next->word, 1, FutexScope::kProcess);
  }
}

void RingCaller::End(const Status& why) {
  std::vector<Waiter*> failed;
  std::unordered_map<uint64_t, std::unique_ptr<Waiter>> started;
  {
    const std::lock_guard lock(mutex_);
    if (!over_.ok()) {
      return;
    }
    over_ = why;
    started = std::exchange(started_, {});
    for (const auto& [id, waiter] : calls_) {
      if (waiter != nullptr && !waiter->done) {
        waiter->status = why;
        waiter->word.store(Waiter::kDone);
        failed.push_back(waiter);
      }
    }
    calls_.clear();
  }
  for (const Waiter* waiter : failed) {
    FutexWake(waiter->word, 1, FutexScope::kProcess);
  }
  // The leader sleeps elsewhere.
  is_over_.store(true);
  WakeLeader();
  for (const auto& [id, waiter] : started) {
    waiter->done(why);
  }
}

bool RingCaller::IsIdle() const {
  const std::lock_guard lock(mutex_);
  return calls_.empty();
}

RingCaller::Counts RingCaller::counts() const {
  const std::lock_guard lock(mutex_);
  return {.calls = next_id_ - 1,
          .bells = bells_.load(),
          .sleeps = sleeps_.load(),
          .wakes = wakes_.load(),
          .leads = leads_.load(),
          .full = full_};
}

}  // namespace hpvm
