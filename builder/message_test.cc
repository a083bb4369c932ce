// SPDX-License-Identifier: Apache-2.0
#include "builder/message.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace hpvm::builder {
namespace {

Frame FrameOf(std::string head) {
  Frame frame;
  frame.head = std::move(head);
  return frame;
}

Frame FrameWith(const std::function<void(BuildMessage&)>& fill) {
  BuildMessage message;
  fill(message);
  return FrameOf(HeadOf(std::move(message)));
}

// A reader gets the kind, request and payload that were written.
TEST(BuildMessageTest, KeepsWhatItHolds) {
  const std::string payload("\1\0\377", 3);
  const StatusOr<BuildMessage> request = ReadMessage(FrameWith([&](BuildMessage& message) {
    message.set_id(0x123456789abcdef0);
    message.set_request(payload);
  }));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->has_request());
  EXPECT_EQ(request->id(), 0x123456789abcdef0u);
  EXPECT_EQ(request->request(), payload);
  const StatusOr<BuildMessage> answer = ReadMessage(FrameOf(AnswerHead(7, payload)));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_TRUE(answer->has_answer());
  EXPECT_EQ(answer->id(), 7u);
  EXPECT_EQ(answer->answer(), payload);
  EXPECT_EQ(ReadMessage(FrameWith([&](BuildMessage& message) { message.set_note(payload); }))->note(), payload);
}

// Truncated messages, other versions, non-messages, and cancellations with contents or without a request are refused.
TEST(BuildMessageTest, RefusesMalformedOnes) {
  const Frame cancel = FrameWith([](BuildMessage& message) {
    message.set_id(7);
    message.mutable_cancel();
  });
  ASSERT_TRUE(ReadMessage(cancel).ok());
  EXPECT_EQ(ReadMessage(cancel)->id(), 7u);
  for (size_t size = 0; size < cancel.head.size(); ++size) {
    EXPECT_FALSE(ReadMessage(FrameOf(cancel.head.substr(0, size))).ok()) << size;
  }
  EXPECT_FALSE(ReadMessage(FrameOf(cancel.head + '\0')).ok());
  Frame with_body = FrameOf(cancel.head);
  with_body.body = {1};
  EXPECT_FALSE(ReadMessage(with_body).ok());
  EXPECT_FALSE(ReadMessage(FrameWith([](BuildMessage& message) { message.mutable_cancel(); })).ok());
  EXPECT_FALSE(ReadMessage(FrameWith([](BuildMessage& message) { message.set_request("r"); })).ok());
  EXPECT_FALSE(ReadMessage(FrameWith([](BuildMessage& message) { message.set_id(1); })).ok());
  BuildMessage other_version;
  ASSERT_TRUE(other_version.ParseFromString(cancel.head));
  other_version.set_version(other_version.version() + 1);
  EXPECT_FALSE(ReadMessage(FrameOf(other_version.SerializeAsString())).ok());
  EXPECT_FALSE(ReadMessage(FrameOf("nonsense")).ok());
}

// The first message has a complete key, a folder that is a valid path, and nothing else.
TEST(BuildMessageTest, HellosHoldAKeyAndAFolder) {
  BuildHello hello;
  hello.key.fill(9);
  hello.cache_folder = "/some/folder";
  const std::string head = HeadOf(hello);
  StatusOr<BuildHello> read = ReadHello(FrameOf(head));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->key, hello.key);
  EXPECT_EQ(read->cache_folder, hello.cache_folder);
  for (size_t size = 0; size < head.size(); ++size) {
    EXPECT_FALSE(ReadHello(FrameOf(head.substr(0, size))).ok()) << size;
  }
  for (const size_t size : {0, 31, 33}) {
    EXPECT_FALSE(ReadHello(FrameWith([&](BuildMessage& message) {
                   message.mutable_hello()->set_key(std::string(size, 'k'));
                 })).ok())
        << size;
  }
  hello.cache_folder.assign(4097, 'x');
  EXPECT_FALSE(ReadHello(FrameOf(HeadOf(hello))).ok());
  Frame with_body = FrameOf(head);
  with_body.body = {1};
  EXPECT_FALSE(ReadHello(with_body).ok());
  EXPECT_FALSE(ReadHello(FrameOf(AnswerHead(1, std::string(32, 'k')))).ok());
}

}  // namespace
}  // namespace hpvm::builder
