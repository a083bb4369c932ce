// SPDX-License-Identifier: Apache-2.0
// Tests of the front with a stand-in for gRPC, which reads and writes its connections as gRPC does.
#include "server/front/front.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/front/session_table.h"
#include "server/testing/test_certificates.h"

namespace hpvm::server {
namespace {

using std::chrono::milliseconds;

const std::string kSettings("\0\0\0\4\0\0\0\0\0", 9),
    kPing(
        "\0\0\x08\6\0\0\0\0\0"
        "12345678",
        17),
    kPreface(kHttp2Preface);

class Ends final : public Observer {
 public:
  void On(const Event& event) override { Dispatch(*this, event); }
  void Take(const events::ConnectionEnded& event) {
    std::lock_guard lock(mutex_);
    ++counts_[std::string(event.reason)];
  }
  int of(const std::string& reason) {
    std::lock_guard lock(mutex_);
    return counts_[reason];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

bool Eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 10'000 && !holds(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return holds();
}

class FrontTest : public ::testing::Test {
 protected:
  // Returns a pair of sockets: the client's end, and the accepted one.
  std::pair<UniqueFd, UniqueFd> Connect() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    EXPECT_EQ(fcntl(fds[1], F_SETFL, O_NONBLOCK), 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
  }
  void TakeUnix(UniqueFd fd) { front_->Take({UnixFacts(), place_, std::move(fd)}); }
  void TakeTcp(UniqueFd fd) {
    ConnectionFacts facts;
    facts.peer = "ipv4:192.0.2.1:4711";
    facts.who = "192.0.2.1";
    facts.accepted = RealClock().Now();
    front_->Take({std::move(facts), place_, std::move(fd)});
  }
  // Returns a client that has sent enough for gRPC to get its connection, as given_.back().
  UniqueFd ConnectAndGreet() {
    auto [client, accepted] = Connect();
    const size_t before = given();
    TakeUnix(std::move(accepted));
    Say(client, kPreface + kSettings);
    EXPECT_TRUE(Eventually([&] { return given() == before + 1; }));
    return std::move(client);
  }
  static ConnectionFacts UnixFacts() {
    ConnectionFacts facts;
    facts.peer = "unix:";
    facts.who = "uid 1";
    facts.is_unix = true;
    facts.accepted = RealClock().Now();
    return facts;
  }
  void Start(std::unique_ptr<TlsWatch> tls = nullptr) {
    front_ = std::make_unique<Front>(
        options_, std::move(tls),
        [this](UniqueFd fd) {
          std::lock_guard lock(mutex_);
          given_.push_back(std::move(fd));
        },
        ends_);
    const Status started = front_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  size_t given() {
    std::lock_guard lock(mutex_);
    return given_.size();
  }
  // Reads as gRPC does: all available bytes; "closed" at the end, "" for none at the moment.
  static std::string Read(int fd) {
    std::array<char, 4096> bytes;
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t count = recvmsg(fd, &message, 0);
    return count > 0                      ? std::string(bytes.data(), static_cast<size_t>(count))
           : count < 0 && errno == EAGAIN ? ""
                                          : "closed";
  }
  static ssize_t Write(int fd, const std::string& text) {
    iovec piece{const_cast<char*>(text.data()), text.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    return sendmsg(fd, &message, MSG_NOSIGNAL);
  }
  static std::string PeerName(int fd) {
    sockaddr_un name{};
    socklen_t size = sizeof(name);
    EXPECT_EQ(getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size), 0);
    const size_t head = offsetof(sockaddr_un, sun_path) + 1;
    return size <= head ? "" : "unix-abstract:" + std::string(name.sun_path + 1, size - head);
  }
  static void Say(const UniqueFd& fd, const std::string& text) {
    EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  static bool IsClosed(const UniqueFd& fd) {
    pollfd waiting{fd.get(), POLLIN, 0};
    std::array<char, 4096> bytes;
    while (poll(&waiting, 1, 10'000) == 1) {
      if (read(fd.get(), bytes.data(), bytes.size()) <= 0) {
        return true;
      }
    }
    return false;
  }

  FrontOptions options_;
  Ends ends_;
  std::mutex mutex_;
  const std::shared_ptr<int> place_ = std::make_shared<int>(0);
  std::vector<UniqueFd> given_;
  std::unique_ptr<Front> front_;
};

// gRPC gets the client's bytes, and the client gRPC's.
TEST_F(FrontTest, GivesWhatSpeaksHttp2) {
  Start();
  auto [client, accepted] = Connect();
  TakeUnix(std::move(accepted));
  Say(client, kPreface.substr(0, 10));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(given(), 0u);
  Say(client, kPreface.substr(10) + kSettings);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const int fd = given_[0].get();
  EXPECT_EQ(Read(fd), kPreface + kSettings);
  EXPECT_EQ(Read(fd), "");
  EXPECT_EQ(Write(fd, kSettings), 9);
  char bytes[16];
  EXPECT_EQ(read(client.get(), bytes, sizeof(bytes)), 9);
  client.reset();
  EXPECT_EQ(Read(fd), "closed");
}

TEST_F(FrontTest, WhatIsNotHttp2DoesNotGetToGrpc) {
  Start();
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n"), std::string("\x16\x03\x01"), kPreface.substr(0, 23) + "x"}) {
    auto [client, accepted] = Connect();
    TakeUnix(std::move(accepted));
    Say(client, text);
    pollfd waiting{client.get(), POLLIN, 0};
    char byte = 0;
    EXPECT_EQ(poll(&waiting, 1, 10'000), 1);
    EXPECT_EQ(read(client.get(), &byte, 1), 0) << "ended, not broken: " << strerror(errno);
  }
  EXPECT_EQ(given(), 0u);
  EXPECT_EQ(ends_.of("preface"), 3);
}

// The first bytes, or the handshake, have a time limit.
TEST_F(FrontTest, SilenceEnds) {
  options_.handshake_max = milliseconds(200);
  Start();
  auto [silent, first] = Connect();
  auto [slow, second] = Connect();
  TakeUnix(std::move(first));
  TakeUnix(std::move(second));
  Say(slow, kPreface.substr(0, 23));
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(slow));
  EXPECT_EQ(ends_.of("silent"), 2);
  EXPECT_EQ(given(), 0u);
}

// Bytes before a fault reach gRPC; none do from the fault on, and the client is told why.
TEST_F(FrontTest, ALimitEndsTheConnection) {
  options_.frames.control_frames_per_second = 10;
  Start();
  UniqueFd client = ConnectAndGreet();
  ASSERT_EQ(given(), 1u);
  const int fd = given_[0].get();
  EXPECT_EQ(Read(fd), kPreface + kSettings);
  for (int i = 0; i < 10; ++i) {
    Say(client, kPing);
  }
  EXPECT_EQ(Read(fd), "closed");
  EXPECT_EQ(Read(fd), "closed");
  EXPECT_EQ(ends_.of("control_frames"), 1);
  std::array<unsigned char, 32> goodbye{};
  ASSERT_EQ(read(client.get(), goodbye.data(), goodbye.size()), 17);
  EXPECT_EQ(goodbye[3], 7);    // GOAWAY.
  EXPECT_EQ(goodbye[16], 11);  // ENHANCE_YOUR_CALM.
  EXPECT_TRUE(IsClosed(client));
}

// Output for a client that reads nothing is not kept for ever.
TEST_F(FrontTest, StalledClientsEnd) {
  options_.frames.stall_max = milliseconds(200);
  Start();
  UniqueFd client = ConnectAndGreet();
  ASSERT_EQ(given(), 1u);
  const int fd = given_[0].get();
  Read(fd);
  const std::string data(100'000, '\0');
  while (Write(fd, data) > 0) {
  }
  EXPECT_TRUE(Eventually([&] { return ends_.of("stalled") == 1; }));
  EXPECT_EQ(Read(fd), "closed");
}

// A client that does not authenticate keeps no place, however busy it looks; on Unix sockets the kernel identifies
// it.
TEST_F(FrontTest, UnknownOnesEnd) {
  options_.frames.unknown_max = milliseconds(1'000);
  Start();
  std::vector<UniqueFd> clients;
  for (size_t i = 0; i < 3; ++i) {
    auto [client, accepted] = Connect();
    i == 2 ? TakeUnix(std::move(accepted)) : TakeTcp(std::move(accepted));
    Say(client, kPreface + kSettings);
    ASSERT_TRUE(Eventually([&] { return given() == i + 1; }));
    clients.push_back(std::move(client));
  }
  SessionTable::Get().Find(PeerName(given_[0].get()))->MarkKnown();
  EXPECT_TRUE(IsClosed(clients[1]));
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_EQ(ends_.of("unknown"), 1);
  for (const size_t i : {0, 2}) {
    pollfd waiting{clients[i].get(), POLLIN, 0};
    EXPECT_EQ(poll(&waiting, 1, 0), 0) << i;
  }
}

// A connection has its place for as long as its descriptor is open: at the front, and then in gRPC.
TEST_F(FrontTest, PlacesAreHeldUntilTheEnd) {
  Start();
  auto [client, accepted] = Connect();
  TakeUnix(std::move(accepted));
  EXPECT_EQ(place_.use_count(), 2);
  Say(client, kPreface + kSettings);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  EXPECT_EQ(place_.use_count(), 2);
  client.reset();
  Read(given_[0].get());
  EXPECT_EQ(place_.use_count(), 2);
  given_.clear();
  EXPECT_EQ(place_.use_count(), 1);
  auto [other, second] = Connect();
  TakeUnix(std::move(second));
  Say(other, "garbage");
  EXPECT_TRUE(IsClosed(other));
  EXPECT_TRUE(Eventually([&] { return place_.use_count() == 1; }));
}

// gRPC's name for a connection is ours, whatever name the client's own socket has.
TEST_F(FrontTest, NobodyIsTakenForAnother) {
  Start();
  auto [first_client, first] = Connect();
  TakeUnix(std::move(first));
  Say(first_client, kPreface);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const std::string first_name = PeerName(given_[0].get());
  const std::shared_ptr<const Session> session = SessionTable::Get().Find(first_name);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->facts().peer, "unix:");
  EXPECT_FALSE(session->facts().is_encrypted);

  // A client whose socket is bound to another connection's name.
  auto [forger, second] = Connect();
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = first_name.substr(first_name.find(':') + 1);
  text.copy(name.sun_path + 1, sizeof(name.sun_path) - 1);
  ASSERT_EQ(bind(forger.get(), reinterpret_cast<sockaddr*>(&name),
                 static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())),
            0);
  EXPECT_EQ(PeerName(second.get()), first_name) << "before the front has it";
  TakeUnix(std::move(second));
  Say(forger, kPreface);
  ASSERT_TRUE(Eventually([&] { return given() == 2; }));
  const std::string second_name = PeerName(given_[1].get());
  EXPECT_NE(second_name, first_name);
  EXPECT_NE(SessionTable::Get().Find(second_name), nullptr);
  // An ended connection has no session, and its number is never used again.
  given_.clear();
  EXPECT_EQ(SessionTable::Get().Find(first_name), nullptr);
  EXPECT_EQ(SessionTable::Get().Find(second_name), nullptr);
  for (const std::string& other : {std::string("unix:"), std::string("ipv4:127.0.0.1:1"), first_name + "x",
                                   std::string("unix-abstract:hpvmd-connection-"),
                                   std::string("unix-abstract:hpvmd-connection-99999999999999999999999")}) {
    EXPECT_EQ(SessionTable::Get().Find(other), nullptr) << other;
  }
}

// Descriptors that are not connections of clients behave as ever, also those that had been one.
TEST_F(FrontTest, OtherDescriptorsAreLeftAlone) {
  Start();
  auto [client, accepted] = Connect();
  const int number = accepted.get();
  TakeUnix(std::move(accepted));
  Say(client, kPreface);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  given_.clear();
  EXPECT_EQ(SessionTable::At(number), nullptr);
  auto [left, right] = Connect();
  EXPECT_EQ(Write(left.get(), "garbage"), 7);
  EXPECT_EQ(Read(right.get()), "garbage");
  EXPECT_EQ(PeerName(right.get()), "");
}

// Operations of a child on its copies of descriptors do not affect the parent, and vice versa.
TEST_F(FrontTest, ForkedChildrenBeginWithoutConnections) {
  Start();
  auto [client, accepted] = Connect();
  TakeUnix(std::move(accepted));
  Say(client, kPreface);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const int fd = given_[0].get();
  EXPECT_EQ(Read(fd), kPreface);
  const std::string name = PeerName(fd);
  const auto child_ends_well = [&](const std::function<bool()>& child) {
    const pid_t pid = fork();
    if (pid == 0) {
      _exit(child() ? 0 : 1);
    }
    int status = -1;
    return waitpid(pid, &status, 0) == pid && status == 0;
  };
  EXPECT_TRUE(child_ends_well([&] {
    return SessionTable::At(fd) == nullptr && SessionTable::Get().size() == 0 &&
           SessionTable::Get().Find(name) == nullptr && PeerName(fd).empty() && close(fd) == 0 &&
           fcntl(fd, F_GETFD) < 0;
  }));
  // A child with connections of its own.
  EXPECT_TRUE(child_ends_well([&] {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
      return false;
    }
    auto session =
        std::make_shared<Session>(fds[1], UnixFacts(), nullptr, FrameLimits(), std::make_shared<PeerCalls>(10, 10),
                                  nullptr, [](const Session&, FrameFault) {});
    return SessionTable::Get().Add(session) && Write(fds[0], kPreface + kSettings) > 0 &&
           Read(fds[1]) == kPreface + kSettings && session->is_counted() && close(fds[1]) == 0 &&
           SessionTable::At(fds[1]) == nullptr;
  }));
  EXPECT_EQ(SessionTable::At(fd), SessionTable::Get().Find(name).get());
  Say(client, kSettings);
  EXPECT_EQ(Read(fd), kSettings);
}

// Executors are started like this: the child shares memory until it executes another program, and closes what it
// inherits.
TEST_F(FrontTest, ProgramsThatAreStartedTakeNoConnection) {
  Start();
  auto [client, accepted] = Connect();
  TakeUnix(std::move(accepted));
  Say(client, kPreface);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const int fd = given_[0].get();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addclose(&actions, fd);
  posix_spawn_file_actions_adddup2(&actions, client.get(), fd);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  char name[] = "/bin/true";
  char* arguments[] = {name, nullptr};
  pid_t pid = -1;
  ASSERT_EQ(posix_spawn(&pid, name, &actions, nullptr, arguments, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Read(fd), kPreface);

#ifndef HPVMD_TSAN  // ThreadSanitizer takes such a child for a fork, and itself for the child.
  // The same with a function of the program's own that is found by the name close.
  static int closed;
  closed = fd;
  alignas(16) static std::array<char, 64 << 10> stack;
  pid = clone(
      [](void*) {
        close(closed);
        return static_cast<int>(syscall(SYS_exit_group, 0));
      },
      stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, nullptr);
  ASSERT_GT(pid, 0);
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
#endif
  EXPECT_NE(SessionTable::At(fd), nullptr);
  Say(client, kSettings);
  EXPECT_EQ(Read(fd), kSettings);
}

// Threads open, use and close connections of clients and other sockets at once, so that each gets descriptors that
// others had; forks come in between.
TEST_F(FrontTest, DescriptorsThatAreReusedAreWhatTheyAreNow) {
  const auto peer = std::make_shared<PeerCalls>(1'000'000, 1'000'000);
  const size_t before = SessionTable::Get().size();
  std::atomic<int> running{4};
  const auto client = [&] {
    for (int i = 0; i < 500; ++i) {
      auto [own, other] = Connect();
      const int fd = other.get();
      auto session = std::make_shared<Session>(fd, UnixFacts(), nullptr, FrameLimits(), peer, nullptr,
                                               [](const Session&, FrameFault) {});
      ASSERT_TRUE(SessionTable::Get().Add(session));
      ASSERT_EQ(Write(own.get(), kPreface + kSettings), 33);
      ASSERT_EQ(Read(fd), kPreface + kSettings);
      ASSERT_TRUE(session->is_counted());
      ASSERT_EQ(SessionTable::Get().Find(PeerName(fd)), session);
      ASSERT_EQ(Write(fd, kSettings), 9);
      ASSERT_EQ(Read(own.get()), kSettings);
    }
    --running;
  };
  const auto stranger = [&] {
    for (int i = 0; i < 500; ++i) {
      auto [left, right] = Connect();
      ASSERT_EQ(PeerName(right.get()), "");
      ASSERT_EQ(Write(left.get(), "garbage"), 7);
      ASSERT_EQ(Read(right.get()), "garbage");
    }
    --running;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back(client);
    threads.emplace_back(stranger);
  }
  while (running.load() > 0) {
    SessionTable::Get().EndLate(RealClock().Now());
    const pid_t pid = fork();
    if (pid == 0) {
      _exit(SessionTable::Get().size() == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0);
    std::this_thread::sleep_for(milliseconds(2));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(SessionTable::Get().size(), before);
}

// A descriptor that was closed unnoticed belongs to its new owner when it is reused.
TEST_F(FrontTest, ADescriptorBelongsToWhoeverHasItLast) {
  const auto peer = std::make_shared<PeerCalls>(10, 10);
  const auto session_of = [&](int fd) {
    return std::make_shared<Session>(fd, UnixFacts(), place_, FrameLimits(), peer, nullptr,
                                     [](const Session&, FrameFault) {});
  };
  auto [client, first] = Connect();
  const int fd = first.get();
  ASSERT_TRUE(SessionTable::Get().Add(session_of(fd)));
  const std::string name = PeerName(fd);
  auto [other, second] = Connect();
  ASSERT_EQ(dup3(second.get(), fd, O_CLOEXEC), fd);
  const auto last = session_of(fd);
  ASSERT_TRUE(SessionTable::Get().Add(last));
  EXPECT_EQ(SessionTable::At(fd), last.get());
  EXPECT_EQ(SessionTable::Get().Find(name), nullptr);
  EXPECT_EQ(place_.use_count(), 2);
  first.reset();
  EXPECT_EQ(SessionTable::At(fd), nullptr);
}

// TLS over TCP, with certificates.
class TlsFrontTest : public FrontTest {
 protected:
  TlsFrontTest() : authority_("the authority") {
    const CertifiedKey server = authority_.Issue({"hpvmd", -3'600, 3'600, "127.0.0.1"});
    char folder[] = "/tmp/hpvmd-front-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.tls_certificate = Write(folder_ + "/server.pem", server.certificate);
    config_.tls_key = Write(folder_ + "/server.key", server.key);
    config_.tls_client_ca = Write(folder_ + "/ca.pem", authority_.certificate());
    config_.tls_client_certificates = options_.client_certificates = "optional";
  }
  ~TlsFrontTest() override { std::filesystem::remove_all(folder_); }

  static std::string Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
    return path;
  }
  void StartTls() {
    StatusOr<std::unique_ptr<TlsWatch>> watch = WatchTls(config_, ends_);
    ASSERT_TRUE(watch.ok()) << watch.status();
    Start(*std::move(watch));
  }
  // Returns a client that has connected; null when the handshake fails.
  SslPtr Handshake(int fd, const CertifiedKey* own = nullptr, const std::string& protocol = "\2h2") {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    if (own != nullptr) {
      Write(folder_ + "/own.pem", own->certificate);
      Write(folder_ + "/own.key", own->key);
      SSL_CTX_use_certificate_file(context_.get(), (folder_ + "/own.pem").c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context_.get(), (folder_ + "/own.key").c_str(), SSL_FILETYPE_PEM);
    }
    SslPtr ssl(SSL_new(context_.get()));
    SSL_set_fd(ssl.get(), fd);
    SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(protocol.data()),
                        static_cast<unsigned>(protocol.size()));
    return SSL_connect(ssl.get()) == 1 ? std::move(ssl) : nullptr;
  }

  Config config_;
  std::string folder_;
  TestAuthority authority_;
  SslContext context_;
};

TEST_F(TlsFrontTest, DecryptsAndEncryptsWhatIsLarge) {
  StartTls();
  const CertifiedKey own = authority_.Issue({"ann's laptop"});
  auto [client, accepted] = Connect();
  TakeTcp(std::move(accepted));
  const SslPtr ssl = Handshake(client.get(), &own);
  ASSERT_NE(ssl, nullptr);
  EXPECT_EQ(SSL_write(ssl.get(), (kPreface + kSettings).data(), 33), 33);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const int fd = given_[0].get();
  EXPECT_EQ(Read(fd), kPreface + kSettings);
  EXPECT_EQ(Read(fd), "");
  const auto session = SessionTable::Get().Find(PeerName(fd));
  ASSERT_NE(session, nullptr);
  EXPECT_TRUE(session->facts().is_encrypted);
  EXPECT_EQ(session->facts().certificate_names, std::vector<std::string>{"ann's laptop"});

  // More than the socket takes at once, in pieces of all sizes; the reader begins late.
  std::string data;
  for (size_t i = 0; i < 3'000'000; ++i) {
    data += static_cast<char>(i * i >> 7);
  }
  std::string got;
  std::thread reader([&] {
    std::this_thread::sleep_for(milliseconds(50));
    std::array<char, 5'000> bytes;
    while (got.size() < data.size()) {
      const int count = SSL_read(ssl.get(), bytes.data(), bytes.size());
      if (count <= 0) {
        break;
      }
      got.append(bytes.data(), static_cast<size_t>(count));
    }
  });
  size_t waits = 0;
  for (size_t at = 0; at < data.size();) {
    // Two pieces, like a frame's header and contents from gRPC.
    const size_t first = std::min<size_t>(9 + at % 50'000, data.size() - at);
    iovec pieces[2] = {{data.data() + at, first},
                       {data.data() + at + first, std::min<size_t>(200'000, data.size() - at - first)}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    const ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (count < 0) {
      ASSERT_EQ(errno, EAGAIN);
      ++waits;
      pollfd room{fd, POLLOUT, 0};
      poll(&room, 1, 1'000);
    } else {
      at += static_cast<size_t>(count);
    }
  }
  reader.join();
  EXPECT_TRUE(got == data);
  EXPECT_GT(waits, 0u);
}

TEST_F(TlsFrontTest, RefusesWhoIsNotVerified) {
  StartTls();
  TestAuthority foreign("the authority");
  const CertifiedKey forged = foreign.Issue({"ann's laptop"});
  auto [client, accepted] = Connect();
  TakeTcp(std::move(accepted));
  const SslPtr ssl = Handshake(client.get(), &forged);  // A TLS 1.3 client learns of the refusal only afterwards.
  EXPECT_TRUE(Eventually([&] { return ends_.of("handshake") == 1; }));
  auto [plain, second] = Connect();
  TakeTcp(std::move(second));
  Say(plain, kPreface + kSettings);
  EXPECT_TRUE(IsClosed(plain));
  auto [old, third] = Connect();
  TakeTcp(std::move(third));
  EXPECT_EQ(Handshake(old.get(), nullptr, "\x8http/1.1"), nullptr);
  EXPECT_TRUE(Eventually([&] { return ends_.of("handshake") == 3; }));
  EXPECT_EQ(given(), 0u);
}

// Clients that stop in the middle of a handshake, or do it byte by byte, delay nobody else's.
TEST_F(TlsFrontTest, StalledHandshakesHoldNobodyUp) {
  options_.handshake_max = milliseconds(1'500);
  StartTls();
  std::vector<UniqueFd> stalled;
  for (int i = 0; i < 100; ++i) {
    auto [client, accepted] = Connect();
    TakeTcp(std::move(accepted));
    Say(client, std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11).substr(0, static_cast<size_t>(i % 11)));
    stalled.push_back(std::move(client));
  }
  auto [client, accepted] = Connect();
  TakeTcp(std::move(accepted));
  const SslPtr ssl = Handshake(client.get());
  ASSERT_NE(ssl, nullptr);
  EXPECT_EQ(SSL_write(ssl.get(), kPreface.data(), 24), 24);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  EXPECT_TRUE(SessionTable::Get().Find(PeerName(given_[0].get()))->facts().certificate_names.empty());
  for (const UniqueFd& fd : stalled) {
    EXPECT_TRUE(IsClosed(fd));
  }
  EXPECT_EQ(ends_.of("silent"), 100);
}

// OpenSSL would keep reading for as long as new keys come.
TEST_F(TlsFrontTest, NewKeysHaveAnEnd) {
  StartTls();
  auto [client, accepted] = Connect();
  TakeTcp(std::move(accepted));
  const SslPtr ssl = Handshake(client.get());
  ASSERT_NE(ssl, nullptr);
  EXPECT_EQ(SSL_write(ssl.get(), kPreface.data(), 24), 24);
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  const int fd = given_[0].get();
  EXPECT_EQ(Read(fd), kPreface);
  const auto change_keys = [&] {
    return SSL_key_update(ssl.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1 && SSL_do_handshake(ssl.get()) == 1;
  };
  for (int i = 0; i < 90; ++i) {
    ASSERT_TRUE(change_keys());
  }
  EXPECT_EQ(SSL_write(ssl.get(), kSettings.data(), 9), 9);
  EXPECT_EQ(Read(fd), kSettings);
  std::string seen;
  for (int i = 0; i < 20 && seen != "closed"; ++i) {
    change_keys();
    seen = Read(fd);
  }
  EXPECT_EQ(seen, "closed");
}

TEST_F(TlsFrontTest, LimitsHoldBehindTls) {
  options_.frames.control_frames_per_second = 10;
  StartTls();
  auto [client, accepted] = Connect();
  TakeTcp(std::move(accepted));
  const SslPtr ssl = Handshake(client.get());
  ASSERT_NE(ssl, nullptr);
  std::string text = kPreface + kSettings;
  for (int i = 0; i < 10; ++i) {
    text += kPing;
  }
  EXPECT_EQ(SSL_write(ssl.get(), text.data(), static_cast<int>(text.size())), static_cast<int>(text.size()));
  ASSERT_TRUE(Eventually([&] { return given() == 1; }));
  EXPECT_EQ(Read(given_[0].get()), "closed");
  std::array<char, 32> goodbye{};
  EXPECT_EQ(SSL_read(ssl.get(), goodbye.data(), goodbye.size()), 17);
  EXPECT_EQ(goodbye[16], 11);
  EXPECT_EQ(ends_.of("control_frames"), 1);
}

}  // namespace
}  // namespace hpvm::server
