// SPDX-License-Identifier: Apache-2.0
// A client whose peer sends both correct and incorrect messages.
#include "builder/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <thread>

namespace hpvm::builder {
namespace {

using Kind = BuildMessage::SaysCase;
constexpr FrameLimits kLimits = {.head_bytes_max = 4096, .body_bytes_max = 4096, .fds_max = 0};

class BuildClientTest : public ::testing::Test {
 protected:
  BuildClientTest() {
    auto ends = CreateSocketPair();
    HPVMD_CHECK(ends.ok());
    peer_ = std::move(ends->second);
    client_ = std::make_unique<BuildClient>(std::move(ends->first), BuildHello{},
                                            BuildClient::Options{kLimits, "The peer", [this] { return NextNote(); }});
    HPVMD_CHECK(ReadHello(Next()).ok());
  }

  Frame Next() {
    StatusOr<Frame> frame = ReceiveFrame(peer_.get(), kLimits, RealClock().Now() + std::chrono::seconds(20));
    return frame.ok() ? *std::move(frame) : Frame{};
  }
  Kind NextKind() { return ReadMessage(Next()).value_or(BuildMessage()).says_case(); }
  void Say(const std::string& head, std::span<const uint8_t> body = {}) {
    EXPECT_TRUE(SendFrame(peer_.get(), head, body, {}).ok());
  }
  std::optional<std::string> NextNote() {
    return notes_ == 0 ? std::nullopt : std::optional(std::string(notes_--, 'n'));
  }

  std::atomic<uint32_t> notes_{0};
  UniqueFd peer_;
  std::unique_ptr<BuildClient> client_;
};

// Each caller gets its own answer, in whatever order answers arrive; an answer without a caller is ignored.
TEST_F(BuildClientTest, AnswersFindTheirCallers) {
  std::array<StatusOr<BuildClient::Answer>, 3> answers;
  std::vector<std::thread> callers;
  for (uint8_t i = 0; i < 3; ++i) {
    callers.emplace_back([&, i] {
      const uint8_t payload[] = {i};
      answers[i] = client_->Build({.payload = std::string(1, static_cast<char>(i)), .body = payload, .fds = {}});
    });
  }
  std::vector<std::pair<uint64_t, std::vector<uint8_t>>> requests;
  for (int i = 0; i < 3; ++i) {
    const Frame frame = Next();
    const StatusOr<BuildMessage> message = ReadMessage(frame);
    ASSERT_TRUE(message.ok() && message->has_request());
    requests.insert(requests.begin(), {message->id(), frame.body});
  }
  Say(AnswerHead(4711, {}));
  for (const auto& [id, body] : requests) {
    Say(AnswerHead(id, {body.begin(), body.end()}), body);
  }
  for (size_t i = 0; i < 3; ++i) {
    callers[i].join();
    ASSERT_TRUE(answers[i].ok()) << answers[i].status();
    EXPECT_EQ(answers[i]->payload, std::string(1, static_cast<char>(i)));
    EXPECT_EQ(answers[i]->body, std::vector<uint8_t>{static_cast<uint8_t>(i)});
  }
}

// A caller that no longer needs the answer gets none, and the peer is told; a request not yet sent is not sent.
TEST_F(BuildClientTest, PatienceEnds) {
  std::atomic<uint32_t> stop{0};
  Status cancelled;
  std::thread caller(
      [&] { cancelled = client_->Build({.payload = {}, .body = {}, .fds = {}, .stop = &stop}).status(); });
  EXPECT_EQ(NextKind(), BuildMessage::kRequest);
  stop = 1;
  EXPECT_EQ(NextKind(), BuildMessage::kCancel);
  caller.join();
  EXPECT_TRUE(absl::IsCancelled(cancelled)) << cancelled;
  EXPECT_TRUE(absl::IsCancelled(client_->Build({.payload = {}, .body = {}, .fds = {}, .stop = &stop}).status()));
  const Status late =
      client_
          ->Build({.payload = {}, .body = {}, .fds = {}, .deadline = RealClock().Now() + std::chrono::milliseconds(30)})
          .status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(NextKind(), BuildMessage::kRequest);
  EXPECT_EQ(NextKind(), BuildMessage::kCancel);
}

// Notes are sent when nothing else is, and with the next message.
TEST_F(BuildClientTest, NotesAreSent) {
  notes_ = 2;
  client_->SendNotes();
  EXPECT_EQ(NextKind(), BuildMessage::kNote);
  EXPECT_EQ(NextKind(), BuildMessage::kNote);
  notes_ = 1;
  std::thread caller([&] { client_->Build({.payload = {}, .body = {}, .fds = {}}).IgnoreError(); });
  EXPECT_EQ(NextKind(), BuildMessage::kNote);
  EXPECT_EQ(NextKind(), BuildMessage::kRequest);
  peer_.reset();
  caller.join();
}

// Bytes that are not an answer end the connection, for waiting and for later requests.
TEST_F(BuildClientTest, NonsenseEndsTheConnection) {
  Status first;
  std::thread caller([&] { first = client_->Build({.payload = {}, .body = {}, .fds = {}}).status(); });
  EXPECT_EQ(NextKind(), BuildMessage::kRequest);
  BuildMessage request;
  request.set_id(1);
  request.set_request("");
  Say(HeadOf(request));
  caller.join();
  EXPECT_TRUE(absl::IsUnavailable(first)) << first;
  EXPECT_EQ(Message(first), "The peer is gone: The peer sent a message that is not an answer.");
  EXPECT_TRUE(absl::IsUnavailable(client_->Build({.payload = {}, .body = {}, .fds = {}}).status()));
}

// An answer whose payload its user refuses also ends the connection.
TEST_F(BuildClientTest, ItsUserMayCloseIt) {
  EXPECT_TRUE(absl::IsUnavailable(client_->Close(InvalidArgument("The answer is malformed."))));
  EXPECT_TRUE(absl::IsUnavailable(client_->Build({.payload = {}, .body = {}, .fds = {}}).status()));
}

}  // namespace
}  // namespace hpvm::builder
