// SPDX-License-Identifier: Apache-2.0
#include "base/io/ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hpvm {
namespace {

constexpr FrameLimits kLimits{.head_bytes_max = 1024, .body_bytes_max = kRingFrameBytesMax, .fds_max = 0};

class RingTest : public testing::Test {
 protected:
  std::unique_ptr<RingMemory> memory_ = std::make_unique<RingMemory>();
  RingProducer producer_{*memory_};
  RingConsumer consumer_{*memory_, kLimits};
  Frame frame_;
};

std::vector<uint8_t> Pattern(SeededRng& rng, size_t bytes) {
  std::vector<uint8_t> made(bytes);
  for (uint8_t& byte : made) {
    byte = static_cast<uint8_t>(rng.Next());
  }
  return made;
}

TEST_F(RingTest, FramesComeInOrderAndWholeWhereverTheRingEnds) {
  SeededRng rng(1);
  // Frame sizes whose sum exceeds the ring's size many times, at every offset of a frame.
  for (int i = 0; i < 2000; ++i) {
    const std::vector<uint8_t> body = Pattern(rng, rng.Next() % 5000);
    const std::string head(rng.Next() % 100, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(*producer_.Put(head, body));
    ASSERT_TRUE(*producer_.PutMark());
    ASSERT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kFrame);
    EXPECT_EQ(frame_.head, head);
    EXPECT_EQ(frame_.body, body);
    ASSERT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kMark);
    ASSERT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kNothing);
    EXPECT_TRUE(consumer_.empty());
  }
}

TEST_F(RingTest, AFullRingTakesNothingAndAsksForRoomOnce) {
  const std::vector<uint8_t> body(kRingFrameBytesMax - sizeof(FrameHeader));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(*producer_.Put("", body));
  }
  EXPECT_FALSE(*producer_.Put("", body));
  EXPECT_FALSE(*producer_.Put("x"));
  ASSERT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kFrame);
  EXPECT_FALSE(consumer_.MustWakeProducer());  // Three quarters are full.
  ASSERT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kFrame);
  EXPECT_TRUE(consumer_.MustWakeProducer());
  EXPECT_FALSE(consumer_.MustWakeProducer());
  EXPECT_TRUE(*producer_.Put("", body));
}

TEST_F(RingTest, AFrameThatIsTooLargeIsRefusedAndTheRingGoesOn) {
  const std::vector<uint8_t> body(kRingFrameBytesMax - sizeof(FrameHeader) + 1);
  EXPECT_EQ(producer_.Put("", body).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(*producer_.Put("x"));
  EXPECT_EQ(*consumer_.Next(&frame_), RingConsumer::Got::kFrame);
  EXPECT_EQ(frame_.head, "x");
}

TEST_F(RingTest, OneWakeForEachSleep) {
  EXPECT_FALSE(producer_.MustWake());
  ASSERT_TRUE(consumer_.BeginSleep());
  ASSERT_TRUE(*producer_.Put("x"));
  EXPECT_TRUE(producer_.MustWake());
  EXPECT_FALSE(producer_.MustWake());
  EXPECT_FALSE(consumer_.BeginSleep());  // There is a frame to take.
  EXPECT_FALSE(producer_.MustWake());
}

// A hostile peer writes arbitrary positions.
TEST_F(RingTest, ImpossiblePositionsEndTheConnection) {
  memory_->written.store(kRingBytes + kRingBytes / 2);
  EXPECT_EQ(consumer_.Next(&frame_).status().code(), absl::StatusCode::kInvalidArgument);
  memory_->written.store(8);  // Less than a header.
  EXPECT_EQ(consumer_.Next(&frame_).status().code(), absl::StatusCode::kInvalidArgument);
  memory_->taken.store(4096);  // More than was ever put.
  EXPECT_EQ(producer_.Put("x").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RingTest, LyingHeadersEndTheConnection) {
  const FrameHeader lies[] = {{kFrameMagic + 7, 0, 0, 0},
                              {kFrameMagic, 2000, 0, 0},                // Above the limit.
                              {kFrameMagic, 0, UINT32_MAX, 0},          // As above.
                              {kFrameMagic, 64, 0, 0},                  // More bytes than are present.
                              {kFrameMagic, 0, kRingFrameBytesMax, 0},  // Too large with its header.
                              {kFrameMagic, 0, 0, 1}};                  // Shared memory carries no descriptors.
  for (const FrameHeader& lie : lies) {
    memory_->written.store(sizeof(lie));
    std::memcpy(memory_->bytes, &lie, sizeof(lie));
    RingConsumer consumer(*memory_, kLimits);
    EXPECT_EQ(consumer.Next(&frame_).status().code(), absl::StatusCode::kInvalidArgument) << lie.head_bytes;
  }
}

// Random bytes replace everything that the peer writes, while frames are taken: any result is allowed but a crash or
// bytes from outside the ring.
TEST_F(RingTest, ARewrittenRingIsSurvived) {
  SeededRng rng(7);
  for (int round = 0; round < 3000; ++round) {
    RingConsumer consumer(*memory_, kLimits);
    memory_->written.store(static_cast<uint32_t>(rng.Next() % (kRingBytes + 64)));
    for (int i = 0; i < 16; ++i) {
      const FrameHeader header{rng.Next() % 4 == 0 ? kFrameMagic + 1 : kFrameMagic,
                               static_cast<uint32_t>(rng.Next() % 1100), static_cast<uint32_t>(rng.Next() % 70000),
                               static_cast<uint32_t>(rng.Next() % 16 == 0)};
      std::memcpy(memory_->bytes + rng.Next() % (kRingBytes / 16) * 16, &header, sizeof(header));
    }
    while (true) {
      const StatusOr<RingConsumer::Got> got = consumer.Next(&frame_);
      if (!got.ok() || *got == RingConsumer::Got::kNothing) {
        break;
      }
      EXPECT_LE(frame_.head.size(), kLimits.head_bytes_max);
      EXPECT_LE(frame_.body.size(), kRingFrameBytesMax);
    }
  }
}

// Two threads sleep whenever they can: a missed wake-up shows as a round that takes the whole time limit.
TEST_F(RingTest, NoWakeIsMissed) {
  auto back_memory = std::make_unique<RingMemory>();
  constexpr int kRounds = 20'000;
  constexpr Duration kLimit = std::chrono::seconds(20);
  std::atomic<bool> late{false};
  const auto take = [&](RingConsumer& consumer, Frame* frame) {
    const Time begin = RealClock().Now();
    while (*consumer.Next(frame) == RingConsumer::Got::kNothing) {
      if (consumer.BeginSleep()) {
        consumer.Wait(kLimit);
        consumer.EndSleep();
      }
    }
    if (RealClock().Now() - begin >= kLimit) {
      late = true;
    }
  };
  const auto put = [](RingProducer& producer, std::string_view head) {
    ASSERT_TRUE(*producer.Put(head));
    if (producer.MustWake()) {
      producer.Wake();
    }
  };
  std::thread echo([&] {
    RingProducer back(*back_memory);
    Frame frame;
    for (int i = 0; i < kRounds; ++i) {
      take(consumer_, &frame);
      put(back, frame.head);
    }
  });
  RingConsumer answers(*back_memory, kLimits);
  for (int i = 0; i < kRounds; ++i) {
    const std::string head = std::to_string(i);
    put(producer_, head);
    take(answers, &frame_);
    EXPECT_EQ(frame_.head, head);
  }
  echo.join();
  EXPECT_FALSE(late);
}

// A producer runs ahead, and the consumer tells it of room.
TEST_F(RingTest, AFastProducerWaitsForRoom) {
  constexpr uint64_t kFrames = 5000;
  std::atomic<uint32_t> bell{0};
  std::thread consumer([&] {
    Frame frame;
    SeededRng rng(3);
    for (uint64_t i = 0; i < kFrames;) {
      const RingConsumer::Got got = *consumer_.Next(&frame);
      if (got == RingConsumer::Got::kFrame) {
        EXPECT_EQ(frame.body.size(), rng.Next() % 3000) << i;
        ++i;
      }
      if (consumer_.MustWakeProducer()) {
        bell.fetch_add(1);
      }
    }
  });
  SeededRng rng(3);
  for (uint64_t i = 0; i < kFrames; ++i) {
    const std::vector<uint8_t> body(rng.Next() % 3000);
    while (true) {
      const uint32_t before = bell.load();
      if (*producer_.Put("", body)) {
        break;
      }
      while (bell.load() == before) {
        std::this_thread::yield();
      }
    }
  }
  consumer.join();
}

}  // namespace
}  // namespace hpvm
