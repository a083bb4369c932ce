// SPDX-License-Identifier: Apache-2.0
#include "server/identity/ticket_socket.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
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
    auto made = TicketSocket::Start({path_}, mode, [](const LocalPeer& peer) {
      EXPECT_FALSE(peer.gids.empty());
      EXPECT_EQ(peer.gids[0], getegid());
      return "uid " + std::to_string(peer.uid) + " of " + std::to_string(peer.gids.size()) + " groups";
    });
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

  const std::string mine_ =
      "uid " + std::to_string(getuid()) + " of " + std::to_string(1 + getgroups(0, nullptr)) + " groups\n";
  std::string folder_, path_;
  std::unique_ptr<TicketSocket> socket_;
};

TEST_F(TicketSocketTest, AnswersOneLineForThePeersUserId) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ReadAll(Connect()), mine_);
  }
}

// The peer has more groups than the first buffer holds.
TEST_F(TicketSocketTest, HasAllGroupsOfThePeer) {
  if (getuid() != 0) {
    GTEST_SKIP() << "Only root gives groups.";
  }
  const pid_t child = fork();
  if (child == 0) {
    std::vector<gid_t> groups(1'000);
    std::iota(groups.begin(), groups.end(), 5'000);
    if (setgroups(groups.size(), groups.data()) != 0) {
      _exit(2);
    }
    _exit(ReadAll(Connect()) == "uid 0 of 1001 groups\n" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A peer receives its line without sending anything.
TEST_F(TicketSocketTest, ReadsNothing) {
  const UniqueFd fd = Connect();
  EXPECT_EQ(ReadAll(fd), mine_);
}

// Peers that never read, and hold their connections, do not delay others.
TEST_F(TicketSocketTest, SlowPeersMakeNobodyWait) {
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(Connect());
  }
  EXPECT_EQ(ReadAll(Connect()), mine_);
  // Each slow peer can still read its line.
  for (const UniqueFd& fd : slow) {
    EXPECT_EQ(ReadAll(fd), mine_);
  }
}

// Thousands of peers that disconnect at once leave no descriptors behind.
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

// A file that is not a socket stays, and so does a socket on which another daemon answers.
TEST_F(TicketSocketTest, TakesNobodysPlace) {
  const auto start = [this] {
    return TicketSocket::Start({path_}, 0600, [](const LocalPeer&) { return std::string(); }).status().code();
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
    const std::string line = TicketLineFor({uid, {uid}}, *directory, mint, clock.Now());
    ASSERT_TRUE(line.ends_with(" 3600")) << line;
    EXPECT_EQ(mint.Check(line.substr(0, line.size() - 5), clock.Now())->uid, uid);
    EXPECT_LT(line.size(), 200u);
  }
  EXPECT_THAT(TicketLineFor({1001, {1001, 60}}, *directory, mint, clock.Now()),
              HasSubstr("error: User id 1001 belongs to no tenant"));
  // A group decides the tenant: the primary one, or the others when they all belong to one tenant.
  for (const auto& [name, gids] : std::map<std::string, std::vector<uint32_t>>{{"lab", {50, 51}}, {"shop", {60}}}) {
    v1::Tenant tenant;
    tenant.set_name(name);
    tenant.mutable_gids()->Add(gids.begin(), gids.end());
    ASSERT_TRUE(directory->CreateTenant(tenant, 10).ok());
  }
  const auto group_of = [&](const LocalPeer& peer) -> std::optional<uint32_t> {
    const std::string line = TicketLineFor(peer, *directory, mint, clock.Now());
    const StatusOr<LocalUser> user = mint.Check(line.substr(0, line.find(' ')), clock.Now());
    return user.ok() ? user->gid : std::nullopt;
  };
  EXPECT_EQ(group_of({1001, {60, 50}}), 60u);
  EXPECT_EQ(group_of({1001, {1001, 4, 51, 50}}), 51u);
  EXPECT_EQ(group_of({1000, {50}}), std::nullopt);  // The user id has a tenant.
  EXPECT_EQ(group_of({77, {50}}), std::nullopt);    // The user is an administrator.
  EXPECT_THAT(TicketLineFor({1001, {1001, 50, 60}}, *directory, mint, clock.Now()),
              HasSubstr("error: User id 1001 is in groups of more than one tenant (\"lab\", \"shop\")"));
  EXPECT_THAT(TicketLineFor({1001, {1001}}, *directory, mint, clock.Now()), HasSubstr("nor does a group of this user"));
}

}  // namespace
}  // namespace hpvm::server
