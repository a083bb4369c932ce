// SPDX-License-Identifier: Apache-2.0
// Tests of the daemon's end of a ring, with clients that obey the rules and clients that do not.
#include "server/front/client_ring.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "gtest/gtest.h"

namespace hpvm::server {
namespace {

using std::chrono::milliseconds;

constexpr FrameLimits kLimits = {
    .head_bytes_max = kRingFrameBytesMax, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};

std::string TextOf(const std::vector<uint8_t>& bytes) { return std::string(bytes.begin(), bytes.end()); }

size_t Descriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// The client's side of a ring, and its correct use.
struct Client {
  UniqueFd memory_fd = *CreateSealedMemfd("ring", kRingPairBytes);
  UniqueFd bell{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Mapping mapping = *Mapping::Map(memory_fd.get(), kRingPairBytes, Mapping::Access::kReadWrite);
  RingPairMemory& memory = *reinterpret_cast<RingPairMemory*>(mapping.data());
  RingProducer producer{memory.to_server};
  RingConsumer consumer{memory.to_client, kLimits};

  void Ring() {
    const uint64_t one = 1;
    ASSERT_EQ(write(bell.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  // Returns false when there is no room.
  bool Put(std::string_view head, std::span<const uint8_t> body = {}) {
    const StatusOr<bool> put = producer.Put(head, body);
    EXPECT_TRUE(put.ok()) << put.status();
    if (put.ok() && *put && producer.MustWake()) {
      Ring();
    }
    return put.ok() && *put;
  }
  // Waits for a frame.
  std::string Take(Duration within = std::chrono::seconds(20)) {
    const Time until = RealClock().Now() + within;
    Frame frame;
    while (RealClock().Now() < until) {
      const StatusOr<RingConsumer::Got> got = consumer.Next(&frame);
      EXPECT_TRUE(got.ok()) << got.status();
      if (!got.ok()) {
        break;
      }
      if (*got == RingConsumer::Got::kFrame) {
        if (consumer.MustWakeProducer()) {
          Ring();
        }
        return frame.head + TextOf(frame.body);
      }
      if (consumer.BeginSleep()) {
        consumer.Wait(until - RealClock().Now());
        consumer.EndSleep();
      }
    }
    return "nothing came";
  }
  std::vector<UniqueFd> Fds() const {
    std::vector<UniqueFd> fds;
    fds.emplace_back(fcntl(memory_fd.get(), F_DUPFD_CLOEXEC, 0));
    fds.emplace_back(fcntl(bell.get(), F_DUPFD_CLOEXEC, 0));
    return fds;
  }
};

// Answers each frame with its own bytes.
class Echo final : public ClientRing::Calls {
 public:
  Status OnFrame(Frame& frame) override {
    const std::lock_guard lock(mutex_);
    heads_.push_back(frame.head);
    if (answers_) {
      ring->Send(frame.head, TextOf(frame.body));
    }
    return frame.head == "end" ? FailedPrecondition("It says so.") : absl::OkStatus();
  }
  bool HasRoom() override { return has_room.load(); }
  Status OnSecond() override { return is_known.load() ? absl::OkStatus() : FailedPrecondition("Not any more."); }
  void OnEnd(const Status& why) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(why_.has_value());
    if (let_go) {
      let_go();
    }
    why_ = why;
    changed_.notify_all();
  }
  Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return why_.has_value(); });
    return why_.value_or(Internal("It has not ended."));
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return why_.has_value();
  }
  std::vector<std::string> heads() {
    const std::lock_guard lock(mutex_);
    return heads_;
  }
  void SetAnswers(bool answers) {
    const std::lock_guard lock(mutex_);
    answers_ = answers;
  }

  ClientRing* ring = nullptr;
  std::function<void()> let_go;  // Called when the owner learns of the end.
  std::atomic<bool> has_room{true}, is_known{true};

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool answers_ = true;
  std::vector<std::string> heads_;
  std::optional<Status> why_;
};

class Ends final : public Observer {
 public:
  void On(const Event& event) override {
    if (const auto* ended = std::get_if<events::ConnectionEnded>(&event)) {
      const std::lock_guard lock(mutex_);
      reason_ = ended->reason;
    }
  }
  std::string reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  std::mutex mutex_;
  std::string reason_;
};

class ClientRingTest : public ::testing::Test {
 protected:
  ClientRingTest() {
    char name[] = "/tmp/hpvmd-ring-XXXXXX";
    folder_ = mkdtemp(name);
    inbox_ = *DescriptorInbox::Start({folder_ + "/sock"}, 0600, RealClock());
    options_ = {.parts = {inbox_.get(), hub_.get()}, .observer = &ends_, .stall_max = milliseconds(1'200)};
  }
  ~ClientRingTest() override {
    for (const auto& ring : rings_) {
      ring->End(Cancelled("The test is over."));
    }
    hub_->RunAndWait([] {});  // After their ends.
    rings_.clear();
    hub_.reset();
    inbox_.reset();
    std::filesystem::remove_all(folder_);
  }

  StatusOr<std::shared_ptr<ClientRing>> Make(std::vector<UniqueFd> fds) {
    return ClientRing::Make(options_, turn_, fds);
  }
  std::shared_ptr<Echo> Open(const Client& client) {
    StatusOr<std::shared_ptr<ClientRing>> ring = Make(client.Fds());
    EXPECT_TRUE(ring.ok()) << ring.status();
    auto echo = std::make_shared<Echo>();
    echo->ring = ring->get();
    rings_.push_back(*ring);
    (*ring)->Begin(echo);
    return echo;
  }

  std::string folder_;
  Ends ends_;
  std::unique_ptr<DescriptorInbox> inbox_;
  std::unique_ptr<EventHub> hub_ = *EventHub::Create();
  ClientRing::Options options_;
  const std::shared_ptr<RingTurn> turn_ = std::make_shared<RingTurn>(RingTurn{.tenant = "ann"});
  std::vector<std::shared_ptr<ClientRing>> rings_;
};

TEST_F(ClientRingTest, AnswersInOrder) {
  Client client;
  ASSERT_TRUE(client.Put("early"));  // Before the daemon reads.
  const auto echo = Open(client);
  EXPECT_EQ(client.Take(), "early");
  const std::vector<uint8_t> body(ClientRing::kBodyBytesMax, 'b');
  for (int i = 0; i < 2'000; ++i) {
    ASSERT_TRUE(client.Put(std::to_string(i), i % 50 == 0 ? body : std::span<const uint8_t>()));
    ASSERT_EQ(client.Take(), std::to_string(i) + (i % 50 == 0 ? TextOf(body) : ""));
  }
}

TEST_F(ClientRingTest, TellsWhyItEnded) {
  Client client;
  const auto echo = Open(client);
  ASSERT_TRUE(client.Put("end"));
  EXPECT_EQ(Message(echo->AwaitEnd()), "It says so.");
  EXPECT_EQ(ends_.reason(), "ring_frame");
  rings_[0]->Send("late", "");  // Without effect.
  rings_[0]->End(Internal("late"));
}

// The owner may drop the ring as soon as it knows of the end, which comes in the middle of one of the ring's turns.
TEST_F(ClientRingTest, OutlivesItsEnd) {
  Client client;
  const auto echo = Open(client);
  const std::weak_ptr<ClientRing> ring =
      rings_[0];  // Keeps the ring's reference count readable, so that a late access is noticed.
  echo->let_go = [&] { rings_.clear(); };
  ASSERT_TRUE(client.Put("end"));
  EXPECT_EQ(Message(echo->AwaitEnd()), "It says so.");
  for (int i = 0; i < 20'000 && !ring.expired(); ++i) {
    usleep(1'000);
  }
  EXPECT_TRUE(ring.expired());
}

TEST_F(ClientRingTest, EndsWhenItsOwnerSaysSo) {
  Client first, second;
  const auto left = Open(first), forgotten = Open(second);
  rings_[0]->End(Cancelled("The client went away."));
  EXPECT_EQ(Message(left->AwaitEnd()), "The client went away.");
  forgotten->is_known = false;
  EXPECT_EQ(Message(forgotten->AwaitEnd()), "Not any more.");
  EXPECT_EQ(ends_.reason(), "");  // Neither end is the client's fault.
}

TEST_F(ClientRingTest, ItsDescriptorsGo) {
  Client client;
  const size_t before = Descriptors();
  const auto echo = Open(client);
  rings_[0]->End(Cancelled("The client went away."));
  echo->AwaitEnd().IgnoreError();
  for (int tries = 0; tries < 500 && Descriptors() > before; ++tries) {
    usleep(10'000);
  }
  EXPECT_EQ(Descriptors(), before);
}

TEST_F(ClientRingTest, TakesOnlySuchMemoryAndBells) {
  const Client client;
  const auto refusal = [&](int memory, int bell) {
    std::vector<UniqueFd> fds;
    fds.emplace_back(fcntl(memory, F_DUPFD_CLOEXEC, 0));
    fds.emplace_back(fcntl(bell, F_DUPFD_CLOEXEC, 0));
    const auto made = Make(std::move(fds));
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << made.status();
    return std::string(made.status().message());
  };
  const UniqueFd small = *CreateSealedMemfd("small", 4096), large = *CreateSealedMemfd("large", 2 * kRingPairBytes);
  EXPECT_NE(refusal(small.get(), client.bell.get()).find("exactly"), std::string::npos);
  EXPECT_NE(refusal(large.get(), client.bell.get()).find("exactly"), std::string::npos);
  const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), kRingPairBytes), 0);
  EXPECT_NE(refusal(loose.get(), client.bell.get()).find("sealed"), std::string::npos);
  ASSERT_EQ(fcntl(loose.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);
  EXPECT_NE(refusal(loose.get(), client.bell.get()).find("only be read"), std::string::npos);
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd from(pipe_fds[0]), to(pipe_fds[1]);
  const UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
  for (const int bell : {from.get(), timer.get(), client.memory_fd.get()}) {
    EXPECT_EQ(refusal(client.memory_fd.get(), bell), "The second descriptor is not an eventfd.");
  }
}

TEST_F(ClientRingTest, LiesEndIt) {
  const auto ended_by = [&](const auto& lie) {
    Client client;
    const auto echo = Open(client);
    EXPECT_TRUE(client.Put("true"));
    EXPECT_EQ(client.Take(), "true");
    lie(client);
    client.Ring();
    const Status why = echo->AwaitEnd();
    EXPECT_EQ(why.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_EQ(ends_.reason(), "ring_frame");
  };
  ended_by([](Client& client) { client.memory.to_server.written = 0x7fffffff; });
  ended_by([](Client& client) { client.memory.to_server.written += 4; });
  ended_by([](Client& client) {  // A header of garbage.
    std::fill(std::begin(client.memory.to_server.bytes), std::end(client.memory.to_server.bytes), uint8_t{0xab});
    client.memory.to_server.written += 64;
  });
  ended_by([](Client& client) { ASSERT_TRUE(*client.producer.PutMark()); });
  // A client that claims to have read frames that were never sent; noticed at the next send.
  ended_by([](Client& client) {
    client.memory.to_client.taken = 0x7fffffff;
    ASSERT_TRUE(client.Put("answer me"));
  });
}

TEST_F(ClientRingTest, ABellWithoutEndEndsIt) {
  Client client;
  const auto echo = Open(client);
  while (!echo->has_ended()) {
    client.Ring();
  }
  EXPECT_EQ(echo->AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ends_.reason(), "ring_bells");
}

// Output waits here, and while there is much of it, no frames are read; then the client loses the ring.
TEST_F(ClientRingTest, AClientThatTakesNoAnswerEndsIt) {
  Client client;
  const auto echo = Open(client);
  const std::vector<uint8_t> body(60'000, 'b');
  size_t put = 0;
  while (!echo->has_ended()) {
    if (client.producer.Put("x", body).value_or(false)) {
      ++put;
      if (client.producer.MustWake()) {
        client.Ring();
      }
    } else {
      usleep(1'000);
    }
  }
  EXPECT_EQ(ends_.reason(), "ring_stalled");
  EXPECT_EQ(echo->AwaitEnd().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(put * body.size(), ClientRing::kUnsentBytesMax + 3 * kRingBytes);
}

TEST_F(ClientRingTest, GoesOnWhenTheClientHasMadeRoom) {
  Client client;
  const auto echo = Open(client);
  const std::vector<uint8_t> body(60'000, 'b');
  size_t put = 0;
  for (int idle = 0; idle < 100;) {
    const bool is_put = client.Put(std::to_string(put), body);
    put += is_put ? 1 : 0;
    idle = is_put ? 0 : idle + 1;
    usleep(is_put ? 0 : 1'000);
  }
  for (size_t i = 0; i < put; ++i) {
    ASSERT_EQ(client.Take().substr(0, std::to_string(i).size() + 1), std::to_string(i) + "b");
  }
  ASSERT_TRUE(client.Put("afterwards"));
  EXPECT_EQ(client.Take(), "afterwards");
}

TEST_F(ClientRingTest, WaitsForRoomThatItsOwnerHas) {
  Client client;
  const auto echo = Open(client);
  echo->has_room = false;
  ASSERT_TRUE(client.Put("later"));
  usleep(20'000);
  EXPECT_TRUE(echo->heads().empty());
  echo->has_room = true;
  rings_[0]->Send("something", "");
  EXPECT_EQ(client.Take(), "something");
  EXPECT_EQ(client.Take(), "later");
}

// Witness gets a turn whenever rings do, and records how many frames were read between two of its own.
class Witness final : public EventSource {
 public:
  explicit Witness(const std::vector<std::shared_ptr<Echo>>& echoes) : echoes_(echoes) {}
  void OnEvent(uint8_t, uint32_t) override {}
  void OnTimer(uint64_t) override {}
  bool OnTurn() override {
    size_t now = 0;
    for (const auto& echo : echoes_) {
      now += echo->heads().size();
    }
    most = std::max(most, now - seen);
    seen = now;
    return false;
  }
  size_t seen = 0, most = 0;

 private:
  const std::vector<std::shared_ptr<Echo>>& echoes_;
};

// However much clients send, nobody waits for more than one turn of each tenant.
TEST_F(ClientRingTest, FloodsTakeTurns) {
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::shared_ptr<Echo>> echoes;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>());
    while (clients.back()->producer.Put("x").value_or(false)) {
    }
  }
  Witness witness(echoes);
  uint64_t source = 0;
  hub_->RunAndWait([&] {
    source = hub_->Add(&witness);
    hub_->KeepAwake(source);
    for (const auto& client : clients) {
      echoes.push_back(Open(*client));
      echoes.back()->SetAnswers(false);
    }
  });
  const size_t all = 4 * kRingBytes / 32;
  size_t seen = 0;
  for (int i = 0; i < 20'000 && seen < all; ++i) {
    usleep(1'000);
    hub_->RunAndWait([&] { seen = witness.OnTurn() ? 0 : witness.seen; });
  }
  EXPECT_EQ(seen, all);
  hub_->RunAndWait([&] {
    hub_->Remove(source);
    EXPECT_GE(witness.most, 4u);
    EXPECT_LE(witness.most, ClientRing::kTurnFrames);
  });
  // The rings sleep once the hub has found nothing in them.
  size_t awake = clients.size();
  for (int i = 0; i < 20'000 && awake > 0; ++i) {
    usleep(1'000);
    hub_->RunAndWait([&] { awake = turn_->awake; });
  }
  EXPECT_EQ(awake, 0u);
}

}  // namespace
}  // namespace hpvm::server
