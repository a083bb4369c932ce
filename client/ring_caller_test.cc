// SPDX-License-Identifier: Apache-2.0
// Tests of the calling end of rings, against a server in this process that does what the test says.
#include "client/ring_caller.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <functional>
#include <stop_token>
#include <thread>

#include "gtest/gtest.h"

#include "base/bytes.h"
#include "hpvm/v1/ring.pb.h"

namespace hpvm {
namespace {

using std::chrono::milliseconds;

std::string TextOf(const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); }

// Takes frames on a thread of its own, woken by the bell.
class FakeServer {
 public:
  using OnCall = std::function<void(FakeServer&, const v1::RingCall&, const std::string& body)>;

  FakeServer(const RingCaller& caller, OnCall on_call)
      : memory_fd_(fcntl(caller.memory_fd(), F_DUPFD_CLOEXEC, 0)),
        bell_(fcntl(caller.bell_fd(), F_DUPFD_CLOEXEC, 0)),
        on_call_(std::move(on_call)),
        thread_([this] { Loop(); }) {}
  ~FakeServer() {
    stops_ = true;
    const uint64_t one = 1;
    EXPECT_EQ(write(bell_.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    thread_.join();
  }

  void Answer(uint64_t id, std::string_view body, bool more = false, bool refused = false) {
    v1::RingReply head;
    head.set_id(id);
    head.set_more(more);
    head.set_refused(refused);
    Send(head.SerializeAsString(), body);
  }
  void Send(const std::string& head, std::string_view body) {
    while (!*producer_.Put(head, BytesOf(body))) {
      usleep(100);  // The bell would tell; a test can poll.
    }
    if (producer_.MustWake()) {
      producer_.Wake();
    }
  }
  RingPairMemory& memory() { return *reinterpret_cast<RingPairMemory*>(mapping_.data()); }

 private:
  static constexpr FrameLimits kLimits = {
      .head_bytes_max = kRingFrameBytesMax, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};

  void Loop() {
    Frame frame;
    while (!stops_) {
      if (*consumer_.Next(&frame) == RingConsumer::Got::kFrame) {
        v1::RingCall head;
        EXPECT_TRUE(head.ParseFromString(frame.head));
        on_call_(*this, head, TextOf(frame.body));
      } else if (consumer_.BeginSleep()) {
        pollfd waits{bell_.get(), POLLIN, 0};
        EXPECT_EQ(poll(&waits, 1, 20'000), 1) << "Nobody rang.";
        uint64_t count = 0;
        EXPECT_EQ(read(bell_.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
        consumer_.EndSleep();
      }
    }
  }

  const UniqueFd memory_fd_, bell_;
  Mapping mapping_ = *Mapping::Map(memory_fd_.get(), kRingPairBytes, Mapping::Access::kReadWrite);
  RingConsumer consumer_{memory().to_server, kLimits};
  RingProducer producer_{memory().to_client};
  const OnCall on_call_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

class RingCallerTest : public ::testing::TestWithParam<Duration> {
 protected:
  std::unique_ptr<RingCaller> caller_ = *RingCaller::Make(GetParam());
};

void Echo(FakeServer& server, const v1::RingCall& call, const std::string& body) {
  if (!call.cancel()) {
    server.Answer(call.id(), body);
  }
}

TEST_P(RingCallerTest, SendsNothingBeforeTheServerHasIt) {
  EXPECT_FALSE(caller_->Call("x", kNever)->has_value());
  EXPECT_EQ(caller_->counts().calls, 0u);
}

// A cancelled leader and a cancelled waiter both end soon, the other side is told, and the other calls continue.
TEST_P(RingCallerTest, CancelledCallsEnd) {
  std::atomic<int> cancels{0}, calls{0};
  FakeServer server(*caller_, [&](FakeServer& self, const v1::RingCall& call, const std::string& body) {
    if (call.cancel()) {
      ++cancels;
    } else if (body == "echo") {
      self.Answer(call.id(), body);
    } else {
      ++calls;
    }
  });
  caller_->Begin(8);
  constexpr int kThreads = 4;
  std::stop_source stops[kThreads];
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (std::stop_source& stop : stops) {
    threads.emplace_back([&] {
      const auto answer = caller_->Call("silence", kNever, stop.get_token());
      EXPECT_TRUE(absl::IsCancelled(answer.status())) << answer.status();
      ++ended;
    });
  }
  while (calls < kThreads) {
    std::this_thread::yield();
  }
  for (int i = 0; i < kThreads; ++i) {  // The first thread to start leads.
    const Time begin = RealClock().Now();
    stops[i].request_stop();
    while (ended <= i && RealClock().Now() - begin < std::chrono::seconds(10)) {
      std::this_thread::yield();
    }
    EXPECT_LT(RealClock().Now() - begin, milliseconds(100));
    EXPECT_TRUE(caller_->Call("echo", kNever)->has_value());
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  // A call that starts after its cancellation is cut short at once.
  EXPECT_TRUE(absl::IsCancelled(caller_->Call("silence", kNever, stops[0].get_token()).status()));
  for (int i = 0; i < 1'000 && cancels < kThreads + 1; ++i) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(cancels, kThreads + 1);
}

// Started calls beside waiting threads: each gets its own response, once, whichever thread reads it.
TEST_P(RingCallerTest, StartedCallsEnd) {
  FakeServer server(*caller_, Echo);
  caller_->Begin(64);
  std::atomic<int> right{0}, wrong{0};
  std::vector<std::thread> threads;
  std::atomic<bool> stops{false};
  for (int thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&] {
      while (!stops) {
        const auto answer = caller_->Call("waits", kNever);
        wrong += answer.ok() && (!answer->has_value() || TextOf((*answer)->body) == "waits") ? 0 : 1;
      }
    });
  }
  constexpr int kCalls = 5'000;
  for (int i = 0; i < kCalls;) {
    const std::string body = std::to_string(i);
    const auto id = caller_->Start(body, [&, body](const StatusOr<RingCaller::Answer>& answer) {
      ++(answer.ok() && TextOf(answer->body) == body ? right : wrong);
    });
    if (id.has_value()) {
      ++i;
    } else {
      std::this_thread::yield();  // The ring is full at the moment.
    }
    if (i == kCalls / 2) {
      stops = true;  // From here on only the caller's own thread reads.
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const Time begin = RealClock().Now();
  while (right + wrong < kCalls && RealClock().Now() - begin < std::chrono::seconds(20)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(right, kCalls);
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(caller_->IsIdle());
}

// Started calls that are cancelled, ended with the ring, or destroyed with it are each told so once.
TEST_P(RingCallerTest, StartedCallsAreCancelled) {
  std::atomic<int> cancels{0};
  FakeServer server(
      *caller_, [&](FakeServer&, const v1::RingCall& call, const std::string&) { cancels += call.cancel() ? 1 : 0; });
  caller_->Begin(64);
  std::vector<absl::StatusCode> codes(4, absl::StatusCode::kOk);
  std::vector<uint64_t> ids;
  for (size_t i = 0; i < codes.size(); ++i) {
    ids.push_back(*caller_->Start("silence", [&codes, i](const StatusOr<RingCaller::Answer>& answer) {
      EXPECT_EQ(codes[i], absl::StatusCode::kOk);
      codes[i] = answer.status().code();
    }));
  }
  caller_->Cancel(ids[0]);
  caller_->Cancel(ids[0]);
  caller_->Cancel(12'345);
  EXPECT_EQ(codes[0], absl::StatusCode::kCancelled);
  EXPECT_EQ(codes[1], absl::StatusCode::kOk);
  std::thread other([&] { caller_->Cancel(ids[1]); });
  other.join();
  EXPECT_EQ(codes[1], absl::StatusCode::kCancelled);
  const Time begin = RealClock().Now();
  while (cancels < 2 && RealClock().Now() - begin < std::chrono::seconds(20)) {
    std::this_thread::yield();
  }
  EXPECT_EQ(cancels, 2);
  caller_->End(DataLoss("The test ends it."));
  EXPECT_EQ(codes[3], absl::StatusCode::kDataLoss);
  EXPECT_FALSE(caller_->Start("late", [](const StatusOr<RingCaller::Answer>&) { ADD_FAILURE(); }).has_value());
}

// Destroying a caller does not wait for its own sleeping thread.
TEST_P(RingCallerTest, ItsOwnThreadEndsWithIt) {
  std::atomic<int> ended{0};
  {
    FakeServer server(*caller_, [](FakeServer&, const v1::RingCall&, const std::string&) {});
    caller_->Begin(8);
    ASSERT_TRUE(caller_->Start("silence", [&](const StatusOr<RingCaller::Answer>&) { ++ended; }).has_value());
    std::this_thread::sleep_for(milliseconds(50));
    const Time begin = RealClock().Now();
    caller_->Stop();
    EXPECT_LT(RealClock().Now() - begin, std::chrono::seconds(5));
  }
  EXPECT_EQ(ended, 1);
}

TEST_P(RingCallerTest, AnswersOneThread) {
  FakeServer server(*caller_, Echo);
  caller_->Begin(8);
  for (int i = 0; i < 3'000; ++i) {
    const auto answer = caller_->Call(std::to_string(i), kNever);
    ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
    ASSERT_EQ(TextOf((*answer)->body), std::to_string(i));
  }
  EXPECT_EQ(caller_->counts().wakes, 0u);  // No thread but the caller itself.
  EXPECT_TRUE(caller_->IsIdle());
}

TEST_P(RingCallerTest, AnswersEachOfManyThreads) {
  FakeServer server(*caller_, Echo);
  caller_->Begin(64);
  std::atomic<uint64_t> answered{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 500; ++i) {
          const std::string body = std::to_string(thread) + " " + std::to_string(i) + std::string(100 * thread, 'x');
          const auto answer = caller_->Call(body, kNever);
          ASSERT_TRUE(answer.ok()) << answer.status();
          ASSERT_TRUE(answer->has_value());
          ASSERT_EQ(TextOf((*answer)->body), body);
          ++answered;
        }
      });
    }
  }
  EXPECT_EQ(answered.load(), 16u * 500);
  EXPECT_TRUE(caller_->IsIdle());
}

TEST_P(RingCallerTest, PutsPartsTogether) {
  FakeServer server(*caller_, [](FakeServer& at, const v1::RingCall& call, const std::string& body) {
    for (int part = 0; part < 20; ++part) {
      at.Answer(call.id(), std::string(50'000, static_cast<char>('a' + part)), /*more=*/true);
    }
    at.Answer(call.id(), body, /*more=*/false, /*refused=*/true);
  });
  caller_->Begin(8);
  const auto answer = caller_->Call("end", kNever);
  ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
  EXPECT_EQ((*answer)->body.size(), 20u * 50'000 + 3);
  EXPECT_EQ((*answer)->body[19 * 50'000], 't');
  EXPECT_TRUE((*answer)->is_refused);
}

TEST_P(RingCallerTest, TellsTheServerThatTimeIsUp) {
  std::atomic<uint64_t> cancelled{0};
  std::atomic<bool> answers{false};
  FakeServer server(*caller_, [&](FakeServer& at, const v1::RingCall& call, const std::string& body) {
    if (call.cancel()) {
      cancelled = call.id();
      at.Answer(call.id(), "late");
    } else if (answers) {
      at.Answer(call.id(), body);
    }
  });
  caller_->Begin(8);
  const auto late = caller_->Call("x", RealClock().Now() + milliseconds(30));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  answers = true;
  const auto next = caller_->Call("next", kNever);
  ASSERT_TRUE(next.ok() && next->has_value()) << next.status();
  EXPECT_EQ(TextOf((*next)->body), "next");
  EXPECT_EQ(cancelled.load(), 1u);
  EXPECT_TRUE(caller_->IsIdle());
}

// A leader whose time is up passes the lead on, and the others get their responses.
TEST_P(RingCallerTest, ALeaderWhoseTimeIsUpPassesOn) {
  std::atomic<uint64_t> second{0};
  FakeServer server(*caller_, [&](FakeServer& at, const v1::RingCall& call, const std::string& body) {
    if (body == "second") {
      second = call.id();
    } else if (body == "third") {
      at.Answer(second.load(), "late answer");
      at.Answer(call.id(), "third");
    }
  });
  caller_->Begin(8);
  std::jthread first([&] {
    EXPECT_EQ(caller_->Call("first", RealClock().Now() + milliseconds(60)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  });
  usleep(10'000);
  std::jthread waits([&] {
    const auto answer = caller_->Call("second", kNever);
    ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
    EXPECT_EQ(TextOf((*answer)->body), "late answer");
  });
  first.join();
  const auto answer = caller_->Call("third", kNever);
  ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
  EXPECT_EQ(TextOf((*answer)->body), "third");
}

TEST_P(RingCallerTest, ItsEndIsEverybodysAnswer) {
  FakeServer server(*caller_, [](FakeServer&, const v1::RingCall&, const std::string&) {});
  caller_->Begin(64);
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&] {
        const auto answer = caller_->Call("x", kNever);
        failed += Message(answer.status()) == "gone" ? 1 : 0;
      });
    }
    while (caller_->counts().calls < 8) {
      usleep(1'000);
    }
    usleep(20'000);  // All sleep, one of them as the leader.
    caller_->End(Unavailable("gone"));
    caller_->End(Unavailable("again"));
  }
  EXPECT_EQ(failed.load(), 8);
  EXPECT_FALSE(caller_->Call("late", kNever)->has_value());
}

TEST_P(RingCallerTest, SendsNoMoreThanThereIsRoomFor) {
  std::atomic<bool> waits{true};
  FakeServer server(*caller_, [&](FakeServer& at, const v1::RingCall& call, const std::string& body) {
    while (waits) {
      usleep(1'000);
    }
    Echo(at, call, body);
  });
  caller_->Begin(3);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&] { EXPECT_TRUE(caller_->Call(std::string(60'000, 'x'), kNever)->has_value()); });
  }
  while (caller_->counts().calls < 3) {
    usleep(1'000);
  }
  EXPECT_FALSE(caller_->Call("x", kNever)->has_value());  // Exceeds the server's limit of calls.
  caller_->Begin(64);
  for (int i = 0; i < 2; ++i) {
    caller_->Call(std::string(60'000, 'x'), RealClock().Now()).status().IgnoreError();
  }
  EXPECT_FALSE(caller_->Call(std::string(60'000, 'x'), kNever)->has_value());  // Exceeds the room in the ring.
  EXPECT_GT(caller_->counts().full, 0u);
  EXPECT_FALSE(caller_->Call(std::string(100'000, 'x'), kNever)->has_value());  // Exceeds the size of any frame.
  waits = false;
}

TEST_P(RingCallerTest, AServerThatLiesIsLeft) {
  const std::function<void(FakeServer&, const v1::RingCall&)> lies[] = {
      [](FakeServer& at, const v1::RingCall& call) { at.Answer(call.id() + 1, "of nobody"); },
      [](FakeServer& at, const v1::RingCall&) { at.Send("\xff\xff no head", ""); },
      [](FakeServer& at, const v1::RingCall&) {
        at.memory().to_client.written.store(0x7fffffff);
        at.memory().to_client.asleep.store(0);
        RingProducer(at.memory().to_client).Wake();
      },
  };
  for (const auto& lie : lies) {
    const std::unique_ptr<RingCaller> caller = *RingCaller::Make(GetParam());
    FakeServer server(*caller, [&](FakeServer& at, const v1::RingCall& call, const std::string&) { lie(at, call); });
    caller->Begin(8);
    const auto answer = caller->Call("x", RealClock().Now() + std::chrono::seconds(20));
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kDataLoss) << answer.status();
    EXPECT_FALSE(caller->Call("late", kNever)->has_value());
  }
}

INSTANTIATE_TEST_SUITE_P(Spins, RingCallerTest,
                         ::testing::Values(Duration(0), Duration(std::chrono::microseconds(50))));

}  // namespace
}  // namespace hpvm
