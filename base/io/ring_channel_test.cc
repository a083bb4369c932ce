// SPDX-License-Identifier: Apache-2.0
#include "base/io/ring_channel.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/io/memfd.h"

namespace hpvm {
namespace {

constexpr FrameLimits kLimits{.head_bytes_max = 128 * 1024, .body_bytes_max = 8 << 20, .fds_max = 2};
constexpr size_t kQueuedBytesMax = 1 << 20;

// A's writer to B's reader: A queues what finds no room and sleeps by bell, B sleeps by futex.
class RingChannelTest : public testing::Test {
 protected:
  RingChannelTest() {
    auto ends = CreateSocketPair();
    HPVMD_CHECK(ends.ok() && bell_.valid());
    a_ = std::move(ends->first);
    b_ = std::move(ends->second);
    writer_.emplace(a_.get(), RingChannelWriter::Wait::kNo, kQueuedBytesMax);
    writer_->UseRing(rings_->to_client, kNoBell);
    reader_.emplace(b_.get(), rings_->to_client, bell_.get(), kLimits);
  }

  // Returns the head of the next frame once it has arrived.
  std::string TakeHead() {
    Frame frame;
    while (true) {
      const StatusOr<bool> whole = reader_->Next(&frame);
      EXPECT_TRUE(whole.ok()) << whole.status();
      if (!whole.ok() || *whole) {
        return frame.head + (frame.fds.empty() ? "" : " with " + std::to_string(frame.fds.size()));
      }
      EXPECT_TRUE(writer_->Flush().ok());
      EXPECT_TRUE(reader_->Fill().ok());
    }
  }
  bool HasNone() {
    Frame frame;
    return !*reader_->Next(&frame) && !*reader_->Fill() && !*reader_->Next(&frame);
  }
  uint64_t Rung() {
    uint64_t count = 0;
    return read(bell_.get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
  }

  std::unique_ptr<RingPairMemory> rings_ = std::make_unique<RingPairMemory>();
  UniqueFd a_, b_, bell_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::optional<RingChannelWriter> writer_;
  std::optional<RingChannelReader> reader_;
};

TEST_F(RingChannelTest, AllFramesComeInOneOrder) {
  const StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 16);
  const int fds[] = {memory->get(), memory->get()};
  const std::vector<uint8_t> large(kQueuedBytesMax - 4096, 7);  // More than the socket takes at once.
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(writer_->Send("small").ok());
    ASSERT_TRUE(writer_->Send("fds", {}, fds, /*more=*/true).ok());
    ASSERT_TRUE(writer_->Send("large", large).ok());
    ASSERT_TRUE(writer_->Send("fd", {}, {fds, 1}).ok());
    ASSERT_TRUE(writer_->Send("last", {}, {}, /*more=*/true).ok());
    EXPECT_FALSE(reader_->empty());
    EXPECT_EQ(TakeHead(), "small");
    EXPECT_EQ(TakeHead(), "fds with 2");
    EXPECT_EQ(TakeHead(), "large");
    EXPECT_EQ(TakeHead(), "fd with 1");
    EXPECT_EQ(TakeHead(), "last");
    EXPECT_TRUE(HasNone());
    EXPECT_TRUE(reader_->empty());
  }
}

TEST_F(RingChannelTest, BeforeTheRingIsUsedFramesComeByTheSocket) {
  ASSERT_TRUE(SendFrame(a_.get(), "first").ok());
  EXPECT_EQ(TakeHead(), "first");
  ASSERT_TRUE(SendFrame(a_.get(), "second").ok());
  ASSERT_TRUE(reader_->Fill().ok());
  ASSERT_TRUE(writer_->Send("third").ok());
  // The second frame came without a mark, and is not read once the ring is in use: no honest peer does both.
  EXPECT_EQ(TakeHead(), "third");
  EXPECT_TRUE(HasNone());
}

TEST_F(RingChannelTest, WhatFindsNoRoomIsKeptInOrderUpToALimit) {
  const StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 16);
  const int fds[] = {memory->get()};
  const std::vector<uint8_t> body(10'000);
  Status status;
  int sent = 0;
  for (; status.ok(); ++sent) {
    status = writer_->Send(std::to_string(sent), body, {fds, sent % 10 == 9 ? 1u : 0u});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_GT(sent, static_cast<int>(kQueuedBytesMax / 10'100));
  EXPECT_LT(sent, static_cast<int>((2 * kQueuedBytesMax + kRingBytes) / 10'000));
  EXPECT_TRUE(writer_->pending());
  EXPECT_EQ(Rung(), 0u);
  for (int i = 0; i + 1 < sent; ++i) {
    EXPECT_EQ(TakeHead(), std::to_string(i) + (i % 10 == 9 ? " with 1" : ""));
  }
  EXPECT_TRUE(HasNone());
  EXPECT_GE(Rung(), 1u);  // The writer was told about the room.
  EXPECT_FALSE(writer_->pending());
  ASSERT_TRUE(writer_->Send("again").ok());
  EXPECT_EQ(TakeHead(), "again");
}

// The reader's side of the other direction: it waits for room, and for the frames of a peer that sleeps by futex.
TEST_F(RingChannelTest, AWriterThatWaitsIsWokenByFutex) {
  RingChannelWriter back(b_.get(), RingChannelWriter::Wait::kYes, SIZE_MAX);
  back.UseRing(rings_->to_server, bell_.get());
  RingChannelReader answers(a_.get(), rings_->to_server, kNoBell, kLimits);
  constexpr int kFrames = 2000;
  std::thread writing([&] {
    const std::vector<uint8_t> small(5000), large(100'000);
    for (int i = 0; i < kFrames; ++i) {
      ASSERT_TRUE(back.Send(std::to_string(i), i % 50 == 0 ? large : small).ok());
    }
  });
  Frame frame;
  for (int i = 0; i < kFrames;) {
    const StatusOr<bool> whole = answers.Next(&frame);
    ASSERT_TRUE(whole.ok()) << whole.status();
    if (*whole) {
      ASSERT_EQ(frame.head, std::to_string(i));
      ASSERT_EQ(frame.body.size(), i % 50 == 0 ? 100'000u : 5000u);
      ++i;
    } else if (!*answers.Fill()) {
      answers.BeginSleep();
      std::this_thread::yield();
    }
  }
  writing.join();
  EXPECT_GE(Rung(), 1u);
}

// A writer flushes whenever it has nothing else to do. A peer that has taken everything and sleeps is not woken.
TEST_F(RingChannelTest, NothingNewWakesNobody) {
  RingChannelWriter writer(b_.get(), RingChannelWriter::Wait::kYes, kQueuedBytesMax);
  writer.UseRing(rings_->to_server, bell_.get());
  RingConsumer consumer(rings_->to_server, kLimits);
  Frame frame;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(consumer.BeginSleep());
    ASSERT_TRUE(writer.Send("x").ok());
    EXPECT_EQ(Rung(), 1u);
    ASSERT_EQ(*consumer.Next(&frame), RingConsumer::Got::kFrame);
    ASSERT_TRUE(consumer.BeginSleep());
    EXPECT_TRUE(writer.Flush().ok());
    EXPECT_EQ(Rung(), 0u);
    ASSERT_TRUE(writer.Send("kept", {}, {}, /*more=*/true).ok());
    EXPECT_EQ(Rung(), 0u);
    EXPECT_TRUE(writer.Flush().ok());
    EXPECT_EQ(Rung(), 1u);
    ASSERT_EQ(*consumer.Next(&frame), RingConsumer::Got::kFrame);
  }
}

TEST_F(RingChannelTest, AReaderSleepsUntilAFrameComes) {
  for (const Duration spin : {Duration(0), Duration(std::chrono::microseconds(50))}) {
    std::thread writing([&] {
      for (int i = 0; i < 3000; ++i) {
        ASSERT_TRUE(writer_->Send("x", {}, {}, /*more=*/i % 3 != 0).ok());
        if (i % 3 == 2) {
          ASSERT_TRUE(writer_->Flush().ok());
          EXPECT_FALSE(writer_->pending());
        }
      }
    });
    Frame frame;
    for (int i = 0; i < 3000;) {
      if (*reader_->Next(&frame)) {
        ++i;
      } else {
        ASSERT_TRUE(reader_->Wait(spin).ok());
      }
    }
    writing.join();
  }
}

TEST_F(RingChannelTest, APeerThatGoesEndsAWait) {
  RingProducer(rings_->to_client).PutMark().IgnoreError();
  a_.reset();
  Frame frame;
  EXPECT_FALSE(*reader_->Next(&frame));
  EXPECT_EQ(reader_->Wait(Duration(0)).code(), absl::StatusCode::kUnavailable);
  // Also while waiting for room.
  RingChannelWriter back(b_.get(), RingChannelWriter::Wait::kYes, SIZE_MAX);
  back.UseRing(rings_->to_server, bell_.get());
  const std::vector<uint8_t> body(kRingFrameBytesMax / 2);
  Status status;
  for (int i = 0; i < 10 && status.ok(); ++i) {
    status = back.Send("x", body);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

TEST_F(RingChannelTest, APeerThatLiesEndsTheConnection) {
  rings_->to_client.taken.store(4096);  // More than was ever put.
  EXPECT_EQ(writer_->Send("x").code(), absl::StatusCode::kInvalidArgument);
  rings_->to_client.written.store(8);
  Frame frame;
  EXPECT_EQ(reader_->Next(&frame).status().code(), absl::StatusCode::kInvalidArgument);
}

// A frame behind a mark violates the limits.
TEST_F(RingChannelTest, AMarkedFrameKeepsTheLimits) {
  const StatusOr<UniqueFd> memory = CreateSealedMemfd("test", 16);
  const int fds[] = {memory->get(), memory->get(), memory->get()};
  ASSERT_TRUE(writer_->Send("x", {}, fds).ok());
  Frame frame;
  ASSERT_FALSE(*reader_->Next(&frame));
  ASSERT_TRUE(reader_->Fill().ok());
  EXPECT_EQ(reader_->Next(&frame).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hpvm
