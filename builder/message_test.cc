// SPDX-License-Identifier: Apache-2.0
#include "builder/message.h"

#include <gtest/gtest.h>

#include <string>

namespace hpvm {
namespace {

using Kind = BuildMessage::Kind;

Frame FrameOf(const std::vector<uint8_t>& head) {
  Frame frame;
  frame.head.assign(head.begin(), head.end());
  return frame;
}

// A reader gets the kind, request and payload that were written.
TEST(BuildMessageTest, KeepsWhatItHolds) {
  const uint8_t payload[] = {1, 2, 3};
  for (const Kind kind : {Kind::kRequest, Kind::kAnswer, Kind::kNote}) {
    const Frame frame = FrameOf(EncodeMessage({kind, 0x123456789abcdef0, payload}));
    const StatusOr<BuildMessage> message = DecodeMessage(frame);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->kind, kind);
    EXPECT_EQ(message->id, 0x123456789abcdef0u);
    EXPECT_EQ(std::vector<uint8_t>(message->payload.begin(), message->payload.end()),
              std::vector<uint8_t>(payload, payload + 3));
  }
}

// Messages that are cut, of another version or kind, and cancellations that hold or name nothing they should are
// refused.
TEST(BuildMessageTest, RefusesMalformedOnes) {
  const std::vector<uint8_t> cancel = EncodeMessage({Kind::kCancel, 7, {}});
  ASSERT_TRUE(DecodeMessage(FrameOf(cancel)).ok());
  EXPECT_EQ(DecodeMessage(FrameOf(cancel))->id, 7u);
  for (size_t size = 0; size < cancel.size(); ++size) {
    EXPECT_FALSE(DecodeMessage(FrameOf({cancel.begin(), cancel.begin() + static_cast<ptrdiff_t>(size)})).ok()) << size;
  }
  std::vector<uint8_t> longer = cancel;
  longer.push_back(0);
  EXPECT_FALSE(DecodeMessage(FrameOf(longer)).ok());
  Frame with_body = FrameOf(cancel);
  with_body.body = {1};
  EXPECT_FALSE(DecodeMessage(with_body).ok());
  for (const Kind kind : {Kind::kRequest, Kind::kCancel}) {
    EXPECT_FALSE(DecodeMessage(FrameOf(EncodeMessage({kind, 0, {}}))).ok());
  }
  for (const uint8_t kind : {0, 6, 255}) {
    EXPECT_FALSE(DecodeMessage(FrameOf(EncodeMessage({static_cast<Kind>(kind), 1, {}}))).ok());
  }
  std::vector<uint8_t> other_version = cancel;
  other_version[0] ^= 1;
  EXPECT_FALSE(DecodeMessage(FrameOf(other_version)).ok());
  EXPECT_FALSE(DecodeMessage(FrameOf({'n', 'o', 'n', 's', 'e', 'n', 's', 'e'})).ok());
}

// The first message has a whole key, a folder that a path may be, and nothing else.
TEST(BuildMessageTest, HellosHoldAKeyAndAFolder) {
  BuildHello hello;
  hello.key.fill(9);
  hello.cache_folder = "/some/folder";
  const std::vector<uint8_t> bytes = EncodeHello(hello);
  StatusOr<BuildHello> decoded = DecodeHello(FrameOf(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->key, hello.key);
  EXPECT_EQ(decoded->cache_folder, hello.cache_folder);
  const size_t without_folder = bytes.size() - hello.cache_folder.size();
  for (size_t size = 0; size < without_folder; ++size) {
    EXPECT_FALSE(DecodeHello(FrameOf({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)})).ok()) << size;
  }
  hello.cache_folder.assign(4097, 'x');
  EXPECT_FALSE(DecodeHello(FrameOf(EncodeHello(hello))).ok());
  Frame with_body = FrameOf(bytes);
  with_body.body = {1};
  EXPECT_FALSE(DecodeHello(with_body).ok());
  EXPECT_FALSE(DecodeHello(FrameOf(EncodeMessage({Kind::kRequest, 1, hello.key}))).ok());
}

}  // namespace
}  // namespace hpvm
