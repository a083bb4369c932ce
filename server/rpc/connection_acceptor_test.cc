// SPDX-License-Identifier: Apache-2.0
#include "server/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hpvm::server {
namespace {

// Stands for the front and gRPC: keeps connections until it is told to close them.
class AcceptorTest : public ::testing::Test {
 protected:
  AcceptorTest() {
    char folder[] = "/tmp/hpvmd-acceptor-test-XXXXXX";
    folder_ = mkdtemp(folder);
  }
  ~AcceptorTest() override {
    acceptor_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start(uint64_t connections_max, uint64_t per_peer_max, uint64_t new_max = 1'000, uint64_t per_user_max = 1'000) {
    acceptor_ = std::make_unique<ConnectionAcceptor>(
        ConnectionLimits{connections_max, per_peer_max, new_max, per_user_max}, clock_);
    const auto take = [this](AcceptedConnection connection) {
      std::lock_guard lock(mutex_);
      taken_.push_back(std::move(connection));
    };
    ASSERT_TRUE(acceptor_->ListenUnix(folder_ + "/s", 0600, take).ok());
    const StatusOr<int> port = acceptor_->ListenTcp("127.0.0.1", "0", take);
    ASSERT_TRUE(port.ok()) << port.status();
    port_ = *port;
    ASSERT_TRUE(acceptor_->Start().ok());
  }

  UniqueFd ConnectTcp(const char* from = "127.0.0.1") const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, from, &address.sin_addr);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  UniqueFd ConnectUnix() const {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (folder_ + "/s").copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }

  // Connects as another user: the kernel reports this thread's effective id to the other side.
  UniqueFd ConnectUnixAs(uid_t user) const {
    EXPECT_EQ(chmod(folder_.c_str(), 0755), 0);
    EXPECT_EQ(chmod((folder_ + "/s").c_str(), 0666), 0);
    EXPECT_EQ(syscall(SYS_setresuid, -1, user, -1), 0);
    UniqueFd fd = ConnectUnix();
    EXPECT_EQ(syscall(SYS_setresuid, -1, 0, -1), 0);
    return fd;
  }

  // A refused connection ends at once.
  static bool IsClosed(const UniqueFd& fd) {
    pollfd waiting{fd.get(), POLLIN, 0};
    char byte = 0;
    return poll(&waiting, 1, 10'000) == 1 && read(fd.get(), &byte, 1) <= 0;
  }
  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 10'000 && !condition(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  bool HasTaken(size_t count) {
    return Eventually([&] {
      std::lock_guard lock(mutex_);
      return taken_.size() == count;
    });
  }
  // Ends a connection as gRPC does.
  void EndOne() {
    std::lock_guard lock(mutex_);
    taken_.pop_back();
  }

  ManualClock clock_;
  std::string folder_;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<AcceptedConnection> taken_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(AcceptorTest, OneAddressHasItsLimit) {
  Start(100, 3);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(ConnectTcp());
  }
  ASSERT_TRUE(HasTaken(3));
  EXPECT_TRUE(IsClosed(ConnectTcp()));
  EXPECT_EQ(acceptor_->refused(), 1u);
  // Another address, and Unix sockets, have their own limits.
  clients.push_back(ConnectTcp("127.0.0.2"));
  for (int i = 0; i < 5; ++i) {
    clients.push_back(ConnectUnix());
  }
  EXPECT_TRUE(HasTaken(9));
  EXPECT_EQ(acceptor_->connections(), 9u);
}

// A user who may open the socket cannot take every place, and administrators can connect when all others are taken.
TEST_F(AcceptorTest, OneUserHasItsLimit) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "Only root can connect as somebody else.";
  }
  Start(32, 100, 1'000, 20);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(ConnectUnixAs(65'534));
  }
  ASSERT_TRUE(HasTaken(20));
  EXPECT_TRUE(IsClosed(ConnectUnixAs(65'534)));
  for (int i = 0; i < 10; ++i) {
    clients.push_back(ConnectUnixAs(65'533));
  }
  ASSERT_TRUE(HasTaken(30));  // Two places are left, and reserved.
  EXPECT_TRUE(IsClosed(ConnectUnixAs(65'532)));
  EXPECT_TRUE(IsClosed(ConnectTcp()));
  clients.push_back(ConnectUnix());
  clients.push_back(ConnectUnix());
  ASSERT_TRUE(HasTaken(32));
  EXPECT_TRUE(IsClosed(ConnectUnix()));
}

TEST_F(AcceptorTest, AllTogetherHaveTheirLimit) {
  Start(4, 3);
  std::vector<UniqueFd> clients;
  for (const char* from : {"127.0.0.1", "127.0.0.2", "127.0.0.3"}) {
    clients.push_back(ConnectTcp(from));
  }
  clients.push_back(ConnectUnix());
  ASSERT_TRUE(HasTaken(4));
  EXPECT_TRUE(IsClosed(ConnectUnix()));
  EXPECT_TRUE(IsClosed(ConnectTcp("127.0.0.4")));
  EXPECT_EQ(acceptor_->refused(), 2u);
}

// A connection that closes makes room for another.
TEST_F(AcceptorTest, EndedConnectionsMakeRoom) {
  Start(2, 1);
  for (int i = 0; i < 50; ++i) {
    UniqueFd tcp = ConnectTcp(), local = ConnectUnix();
    ASSERT_TRUE(HasTaken(2)) << i;
    EXPECT_EQ(acceptor_->connections(), 2u);
    if (i % 2 == 0) {
      tcp.reset();
      local.reset();
    }
    EndOne();
    EndOne();
    ASSERT_TRUE(Eventually([&] { return acceptor_->connections() == 0; })) << i;
  }
  EXPECT_EQ(acceptor_->refused(), 0u);
}

// A connection whose client has gone, but that the server has not closed yet, still counts.
TEST_F(AcceptorTest, HalfEndedConnectionsCount) {
  Start(10, 1);
  ConnectTcp();
  ASSERT_TRUE(HasTaken(1));
  EXPECT_TRUE(IsClosed(ConnectTcp()));
  EndOne();
  EXPECT_TRUE(Eventually([&] { return acceptor_->connections() == 0; }));
}

// A client that reconnects repeatedly is accepted a limited number of times, over TCP or a Unix socket, and again
// after a while.
TEST_F(AcceptorTest, NewcomersHaveTheirLimit) {
  Start(100, 100, 3);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) {
      ConnectTcp();
      ConnectUnix();
      ASSERT_TRUE(HasTaken(2));
      EndOne();
      EndOne();
    }
    EXPECT_TRUE(IsClosed(ConnectTcp()));
    EXPECT_TRUE(IsClosed(ConnectUnix()));
    ConnectTcp("127.0.0.2");
    ASSERT_TRUE(HasTaken(1));
    EndOne();
    clock_.Advance(ConnectionLimits::kNewWindow);
  }
  EXPECT_EQ(acceptor_->refused(), 4u);
}

// The facts about a connection are collected here, and nowhere else.
TEST_F(AcceptorTest, SaysWhoIsThere) {
  Start(100, 100);
  clock_.Advance(std::chrono::seconds(7));
  const UniqueFd tcp = ConnectTcp("127.0.0.2");
  ASSERT_TRUE(HasTaken(1));
  const UniqueFd local = ConnectUnix();
  ASSERT_TRUE(HasTaken(2));
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(getsockname(tcp.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(taken_[0].facts.peer, "ipv4:127.0.0.2:" + std::to_string(ntohs(address.sin_port)));
  EXPECT_EQ(taken_[0].facts.who, "127.0.0.2");
  EXPECT_FALSE(taken_[0].facts.is_unix);
  EXPECT_EQ(taken_[0].facts.accepted, clock_.Now());
  EXPECT_EQ(taken_[1].facts.peer, "unix:");
  EXPECT_EQ(taken_[1].facts.who, "uid " + std::to_string(geteuid()));
  EXPECT_TRUE(taken_[1].facts.is_unix);
}

// gRPC may hold connections after the acceptor has gone.
TEST_F(AcceptorTest, PlacesOutliveTheAcceptor) {
  Start(100, 100);
  const UniqueFd client = ConnectTcp();
  ASSERT_TRUE(HasTaken(1));
  acceptor_.reset();
  EndOne();
}

TEST_F(AcceptorTest, SaysWhatItCannotListenOn) {
  ConnectionAcceptor acceptor{ConnectionLimits{}};
  const auto take = [](const AcceptedConnection&) {};
  EXPECT_FALSE(acceptor.ListenTcp("no.such.host.invalid", "1", take).ok());
  EXPECT_FALSE(acceptor.ListenTcp("192.0.2.1", "1", take).ok());
  EXPECT_FALSE(acceptor.ListenUnix(folder_ + "/nothing/s", 0600, take).ok());
}

}  // namespace
}  // namespace hpvm::server
