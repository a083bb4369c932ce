// SPDX-License-Identifier: Apache-2.0
#include "bench/service/ring_echo.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <utility>

#include "base/io/memfd.h"
#include "base/io/ring.h"

namespace hpvm::bench {
namespace {

constexpr FrameLimits kLimits = {
    .head_bytes_max = kRingFrameBytesMax, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};
constexpr size_t kWaitingMax = 64;

// Relay forwards frames from one ring to another; frames without room in the second wait, up to a limit.
class Relay {
 public:
  Relay(RingMemory& from, RingMemory& to) : from_(from, kLimits), to_(to) {}

  // Moves as many frames as possible; returns true when there were any. `wake` is called once if the other side
  // sleeps.
  template <typename Wake>
  bool Move(const Wake& wake) {
    bool did = false;
    for (size_t i = 0; i < kWaitingMax; ++i) {
      if (waiting_.size() < kWaitingMax && from_.Next(&frame_).value() == RingConsumer::Got::kFrame) {
        waiting_.push_back(std::move(frame_));
      }
      if (waiting_.empty() || !to_.Put(waiting_.front().head, waiting_.front().body).value()) {
        break;
      }
      waiting_.pop_front();
      did = true;
    }
    if (did && to_.MustWake()) {
      wake();
    }
    return did;
  }
  bool empty() const { return waiting_.empty() && from_.empty(); }
  bool BeginSleep() { return waiting_.empty() && from_.BeginSleep(); }
  void EndSleep() { from_.EndSleep(); }
  void Wait() { from_.Wait(std::chrono::seconds(10)); }
  void WakeByFutex() { to_.Wake(); }

 private:
  RingConsumer from_;
  RingProducer to_;
  Frame frame_;
  std::deque<Frame> waiting_;
};

// Polls for up to `spin`; returns true when something came.
template <typename Empty>
bool Spin(Duration spin, const Empty& is_empty) {
  if (spin == Duration(0)) {
    return false;
  }
  const Time until = RealClock().Now() + spin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (!is_empty()) {
        return true;
      }
      __builtin_ia32_pause();
    }
  } while (RealClock().Now() < until);
  return false;
}

Mapping MapRings(int fd) { return *Mapping::Map(fd, kRingPairBytes, Mapping::Access::kReadWrite); }
RingPairMemory& RingsAt(const Mapping& mapping) { return *reinterpret_cast<RingPairMemory*>(mapping.data()); }

}  // namespace

int ServeRingMiddle(const std::vector<int>& words) {
  const Duration spin = std::chrono::microseconds(words[0]);
  const std::vector<int> fds(words.begin() + 1, words.end());
  const Mapping caller = MapRings(fds[0]), worker = MapRings(fds[2]);
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  for (const int bell : {fds[1], fds[3]}) {
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {}};
    HPVMD_CHECK(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, bell, &event) == 0);
  }
  Relay in(RingsAt(caller).to_server, RingsAt(worker).to_server);
  Relay out(RingsAt(worker).to_client, RingsAt(caller).to_client);
  while (true) {
    const bool did_in = in.Move([&] { in.WakeByFutex(); });
    const bool did_out = out.Move([&] { out.WakeByFutex(); });
    if (did_in || did_out || Spin(spin, [&] { return in.empty() && out.empty(); })) {
      continue;
    }
    if (in.BeginSleep()) {
      if (out.BeginSleep()) {
        epoll_event events[2];
        epoll_wait(epoll.get(), events, 2, -1);
        out.EndSleep();
      }
      in.EndSleep();
    }
  }
}

int ServeRingWorker(const std::vector<int>& words) {
  const Duration spin = std::chrono::microseconds(words[0]);
  const std::vector<int> fds(words.begin() + 1, words.end());
  const Mapping rings = MapRings(fds[0]);
  Relay back(RingsAt(rings).to_server, RingsAt(rings).to_client);
  const auto ring = [&] {
    const uint64_t one = 1;
    HPVMD_CHECK(write(fds[1], &one, sizeof(one)) == static_cast<ssize_t>(sizeof(one)));
  };
  while (true) {
    if (!back.Move(ring) && !Spin(spin, [&] { return back.empty(); }) && back.BeginSleep()) {
      back.Wait();
      back.EndSleep();
    }
  }
}

StatusOr<std::unique_ptr<RingEcho>> RingEcho::Start(Duration spin) {
  auto echo = std::make_unique<RingEcho>();
  HPVMD_ASSIGN_OR_RETURN(echo->caller_, RingCaller::Make(spin));
  HPVMD_ASSIGN_OR_RETURN(echo->worker_memory_, CreateSealedMemfd("ring-worker", kRingPairBytes));
  echo->worker_bell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const std::vector<int> fds = {echo->caller_->memory_fd(), echo->caller_->bell_fd(), echo->worker_memory_.get(),
                                echo->worker_bell_.get()};
  const auto start = [&](const char* name, size_t from) -> Status {
    std::vector<std::string> command = {ProgramFolder() + "/hpvm-bench", name,
                                        std::to_string(spin / std::chrono::microseconds(1))};
    for (size_t i = from; i < fds.size(); ++i) {
      fcntl(fds[i], F_SETFD, 0);  // Until the child has it.
      command.push_back(std::to_string(fds[i]));
    }
    StatusOr<Process> process = Process::Start(command);
    for (const int fd : fds) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    HPVMD_RETURN_IF_ERROR(process.status());
    echo->processes_.push_back(*std::move(process));
    return absl::OkStatus();
  };
  HPVMD_RETURN_IF_ERROR(start("serve-ring-middle", 0));
  HPVMD_RETURN_IF_ERROR(start("serve-ring-worker", 2));
  echo->caller_->Begin(256);
  return echo;
}

}  // namespace hpvm::bench
