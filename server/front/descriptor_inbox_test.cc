// SPDX-License-Identifier: Apache-2.0
// Tests of incoming descriptors, from clients that obey the rules and clients that do not.
#include "server/front/descriptor_inbox.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "gtest/gtest.h"

#include "base/io/memfd.h"

namespace hpvm::server {
namespace {

std::string TicketOf(char letter) { return std::string(kMemoryTicketBytes, letter); }

ino_t FileOf(int fd) {
  struct stat info {};
  EXPECT_EQ(fstat(fd, &info), 0);
  return info.st_ino;
}

size_t Descriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

// The inbox's thread closes dropped descriptors within a round of a second.
void ExpectDescriptors(size_t count) {
  for (int tries = 0; tries < 500 && Descriptors() > count; ++tries) {
    usleep(10'000);
  }
  EXPECT_EQ(Descriptors(), count);
}

class DescriptorInboxTest : public ::testing::Test {
 protected:
  DescriptorInboxTest() {
    char name[] = "/tmp/hpvmd-inbox-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/sock";
    inbox_ = *DescriptorInbox::Start({path_}, 0600, clock_);
  }
  ~DescriptorInboxTest() override {
    inbox_.reset();
    std::filesystem::remove_all(folder_);
  }

  // Sends one datagram with these descriptors; returns false when the socket accepts nothing for a second.
  bool Send(std::string_view text, std::vector<int> fds) {
    const UniqueFd from(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const timeval second{1, 0};
    setsockopt(from.get(), SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (path_ + ".memory").copy(address.sun_path, sizeof(address.sun_path) - 1);
    iovec part{const_cast<char*>(text.data()), text.size()};
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = sizeof(address);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
    }
    return sendmsg(from.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }

  ManualClock clock_;
  std::string folder_, path_;
  std::unique_ptr<DescriptorInbox> inbox_;
};

TEST_F(DescriptorInboxTest, OneTicketIsOneDescriptorOnce) {
  const UniqueFd first = *CreateSealedMemfd("first", 4096), second = *CreateSealedMemfd("second", 4096);
  ASSERT_TRUE(Send(TicketOf('a'), {first.get()}));
  ASSERT_TRUE(Send(TicketOf('b'), {second.get()}));
  const StatusOr<std::vector<UniqueFd>> b = inbox_->Take(TicketOf('b'), 1);
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_EQ(FileOf(b->at(0).get()), FileOf(second.get()));
  EXPECT_EQ(FileOf(inbox_->Take(TicketOf('a'), 1)->at(0).get()), FileOf(first.get()));
  EXPECT_EQ(inbox_->Take(TicketOf('a'), 1).status().code(), absl::StatusCode::kNotFound);
}

// Two clients with one ticket: the first datagram stays.
TEST_F(DescriptorInboxTest, TheFirstOfOneTicketStays) {
  const UniqueFd first = *CreateSealedMemfd("first", 4096), second = *CreateSealedMemfd("second", 4096);
  ASSERT_TRUE(Send(TicketOf('a'), {first.get()}));
  ASSERT_TRUE(Send(TicketOf('a'), {second.get()}));
  EXPECT_EQ(FileOf(inbox_->Take(TicketOf('a'), 1)->at(0).get()), FileOf(first.get()));
  EXPECT_FALSE(inbox_->Take(TicketOf('a'), 1).ok());
}

TEST_F(DescriptorInboxTest, WrongDatagramsLeaveNothing) {
  const UniqueFd memory = *CreateSealedMemfd("memory", 4096);
  const size_t before = Descriptors();
  EXPECT_TRUE(Send(TicketOf('a'), {}));
  EXPECT_TRUE(Send(TicketOf('b'), {memory.get(), memory.get(), memory.get()}));
  EXPECT_TRUE(Send(TicketOf('c'), std::vector<int>(100, memory.get())));
  EXPECT_TRUE(Send("short", {memory.get()}));
  EXPECT_TRUE(Send(TicketOf('d') + "long", {memory.get()}));
  EXPECT_TRUE(Send("", {memory.get()}));
  for (const char letter : {'a', 'b', 'c', 'd'}) {
    EXPECT_EQ(inbox_->Take(TicketOf(letter), 1).status().code(), absl::StatusCode::kNotFound) << letter;
  }
  EXPECT_EQ(inbox_->Take("short", 1).status().code(), absl::StatusCode::kInvalidArgument);
  ExpectDescriptors(before);
}

TEST_F(DescriptorInboxTest, TwoOfOneTicketComeInTheirOrder) {
  const UniqueFd first = *CreateSealedMemfd("first", 4096), second = *CreateSealedMemfd("second", 4096);
  const size_t before = Descriptors();
  ASSERT_TRUE(Send(TicketOf('a'), {first.get(), second.get()}));
  ASSERT_TRUE(Send(TicketOf('b'), {first.get(), second.get()}));
  {
    const StatusOr<std::vector<UniqueFd>> both = inbox_->Take(TicketOf('a'), 2);
    ASSERT_TRUE(both.ok()) << both.status();
    EXPECT_EQ(FileOf(both->at(0).get()), FileOf(first.get()));
    EXPECT_EQ(FileOf(both->at(1).get()), FileOf(second.get()));
  }
  EXPECT_EQ(inbox_->Take(TicketOf('b'), 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(inbox_->Take(TicketOf('b'), 2).status().code(), absl::StatusCode::kNotFound);
  ExpectDescriptors(before);
}

// Descriptors that a call refuses are closed here, as are unclaimed ones.
TEST_F(DescriptorInboxTest, ClosesWhatIsGivenBack) {
  const UniqueFd memory = *CreateSealedMemfd("memory", 4096);
  const size_t before = Descriptors();
  ASSERT_TRUE(Send(TicketOf('a'), {memory.get()}));
  StatusOr<std::vector<UniqueFd>> taken = inbox_->Take(TicketOf('a'), 1);
  ASSERT_TRUE(taken.ok()) << taken.status();
  inbox_->Drop(*std::move(taken));
  ExpectDescriptors(before);
}

// A client that floods the socket loses its own oldest descriptors, and holds no more than the limit.
TEST_F(DescriptorInboxTest, AFloodHoldsLittle) {
  const UniqueFd memory = *CreateSealedMemfd("memory", 4096);
  const size_t before = Descriptors();
  for (int i = 0; i < 2'000; ++i) {
    std::string ticket = TicketOf('x');
    std::memcpy(ticket.data(), &i, sizeof(i));
    ASSERT_TRUE(Send(ticket, {memory.get()}));
  }
  std::string last = TicketOf('x');
  const int number = 1'999;
  std::memcpy(last.data(), &number, sizeof(number));
  EXPECT_TRUE(inbox_->Take(last, 1).ok());
  ExpectDescriptors(before + DescriptorInbox::kKeptOfOneMax - 1);  // All but the one that was taken.
}

TEST_F(DescriptorInboxTest, WhatNobodyTakesGoes) {
  const UniqueFd memory = *CreateSealedMemfd("memory", 4096);
  ASSERT_TRUE(Send(TicketOf('a'), {memory.get()}));
  EXPECT_FALSE(inbox_->Take(TicketOf('b'), 1).ok());  // The datagram has been read by now.
  clock_.Advance(DescriptorInbox::kKept);
  EXPECT_EQ(inbox_->Take(TicketOf('a'), 1).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(DescriptorInboxTest, HasTheServicesPermissionsAndLeavesNothing) {
  struct stat info {};
  ASSERT_EQ(lstat((path_ + ".memory").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(DescriptorInbox::Start({path_}, 0600, clock_).status().code(), absl::StatusCode::kUnavailable);
  inbox_.reset();
  EXPECT_NE(lstat((path_ + ".memory").c_str(), &info), 0);
}

}  // namespace
}  // namespace hpvm::server
