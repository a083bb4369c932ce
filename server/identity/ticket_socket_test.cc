// SPDX-License-Identifier: Apache-2.0
#include "server/identity/ticket_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

class TicketSocketTest : public ::testing::Test {
 protected:
  TicketSocketTest() {
    char folder[] = "/tmp/hpvmd-ticket-test-XXXXXX";
    folder_ = mkdtemp(folder);
    path_ = folder_ + "/s";
    Start();
  }
  ~TicketSocketTest() override {
    socket_.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start(mode_t mode = 0600) {
    socket_.reset();
    auto made = TicketSocket::Start({path_}, mode, [](uint32_t uid) { return "uid " + std::to_string(uid); });
    ASSERT_TRUE(made.ok()) << made.status();
    socket_ = *std::move(made);
  }

  UniqueFd Connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (path_ + ".auth").copy(address.sun_path, sizeof(address.sun_path) - 1);
    const timeval patience{10, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static std::string ReadAll(const UniqueFd& fd) {
    std::string text;
    char bytes[256];
    for (ssize_t got = read(fd.get(), bytes, sizeof(bytes)); got > 0; got = read(fd.get(), bytes, sizeof(bytes))) {
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }

  const std::string mine_ = "uid " + std::to_string(getuid()) + "\n";
  std::string folder_, path_;
  std::unique_ptr<TicketSocket> socket_;
};

TEST_F(TicketSocketTest, AnswersOneLineForThePeersUserId) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAll(Connect()), mine_);
  }
}

// What a peer sends is not read, and it gets its line all the same.
TEST_F(TicketSocketTest, ReadsNothing) {
  const UniqueFd fd = Connect();
  EXPECT_EQ(ReadAll(fd), mine_);
}

// Peers that never read, and hold their connections, make nobody wait.
TEST_F(TicketSocketTest, SlowPeersMakeNobodyWait) {
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(Connect());
  }
  EXPECT_EQ(ReadAll(Connect()), mine_);
  // They have their lines, whenever they like.
  for (const UniqueFd& fd : slow) {
    EXPECT_EQ(ReadAll(fd), mine_);
  }
}

// Peers that leave at once, thousands of them.
TEST_F(TicketSocketTest, PeersThatLeaveAreForgotten) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  for (int i = 0; i < 3'000; ++i) {
    Connect();
  }
  EXPECT_EQ(ReadAll(Connect()), mine_);
  EXPECT_LE(descriptors(), before + 1);
}

TEST_F(TicketSocketTest, HasTheServicesPermissionsAndLeavesNothing) {
  struct stat info;
  ASSERT_EQ(lstat((path_ + ".auth").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  Start(0666);
  ASSERT_EQ(lstat((path_ + ".auth").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  socket_.reset();
  EXPECT_NE(lstat((path_ + ".auth").c_str(), &info), 0);
}

// A file that is no socket stays, and one that another daemon answers on too.
TEST_F(TicketSocketTest, TakesNobodysPlace) {
  const auto start = [this] {
    return TicketSocket::Start({path_}, 0600, [](uint32_t) { return std::string(); }).status().code();
  };
  EXPECT_EQ(start(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReadAll(Connect()), mine_);
  socket_.reset();
  std::filesystem::create_directory(path_ + ".auth");
  EXPECT_EQ(start(), absl::StatusCode::kFailedPrecondition);
}

TEST(TicketLineTest, SaysWhoGetsATicket) {
  ManualClock clock;
  SeededRng rng(1);
  DirectoryOptions options;
  options.clock = &clock;
  options.rng = &rng;
  options.administrators = {0, 77};
  const std::unique_ptr<Directory> directory = *Directory::Open(std::move(options));
  v1::Tenant ann;
  ann.set_name("ann");
  ann.add_uids(1000);
  ASSERT_TRUE(directory->CreateTenant(ann, 10).ok());
  const TicketMint mint(rng);
  for (const uint32_t uid : {0u, 77u, 1000u}) {
    const std::string line = TicketLineFor(uid, *directory, mint, clock.Now());
    ASSERT_TRUE(line.ends_with(" 3600")) << line;
    EXPECT_EQ(*mint.Check(line.substr(0, line.size() - 5), clock.Now()), uid);
    EXPECT_LT(line.size(), 200u);
  }
  EXPECT_THAT(TicketLineFor(1001, *directory, mint, clock.Now()),
              HasSubstr("error: User id 1001 belongs to no tenant"));
}

}  // namespace
}  // namespace hpvm::server
