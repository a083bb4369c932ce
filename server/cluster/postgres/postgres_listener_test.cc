// SPDX-License-Identifier: Apache-2.0
#include "server/cluster/postgres/postgres_listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/cluster/postgres/testing/postgres_server.h"

namespace hpvm::server::cluster {
namespace {

using Notices = std::vector<std::pair<std::string, std::string>>;

// Keeps the calls of a listener, in their order.
class Heard {
 public:
  PostgresListener::Callbacks callbacks() {
    return {.on_notice =
                [this](const std::string& channel, const std::string& payload) {
                  const std::lock_guard lock(mutex_);
                  notices_.emplace_back(channel, payload);
                  changed_.notify_all();
                },
            .on_gap =
                [this] {
                  const std::lock_guard lock(mutex_);
                  ++gaps_;
                  changed_.notify_all();
                }};
  }
  bool WaitForGaps(int count) {
    return Wait([this, count] { return gaps_ >= count; });
  }
  bool WaitForNotices(size_t count) {
    return Wait([this, count] { return notices_.size() >= count; });
  }
  Notices notices() {
    const std::lock_guard lock(mutex_);
    return notices_;
  }
  int gaps() {
    const std::lock_guard lock(mutex_);
    return gaps_;
  }

 private:
  bool Wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), condition);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  Notices notices_;
  int gaps_ = 0;
};

class PostgresListenerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!PostgresServer::IsInstalled()) {
      GTEST_SKIP() << "PostgreSQL is not installed.";
    }
    auto server = PostgresServer::Shared();
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *server;
    ASSERT_TRUE(server_->CreateDatabase("listener_test").ok());
    options_.dsn = server_->dsn("listener_test");
  }

  std::unique_ptr<PostgresListener> Listen(std::vector<std::string> channels) {
    auto listener = PostgresListener::Start(options_, std::move(channels), heard_.callbacks());
    EXPECT_TRUE(listener.ok()) << listener.status();
    return *std::move(listener);
  }
  std::unique_ptr<PostgresSession> Open() {
    auto session = PostgresSession::Open(options_);
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  PostgresServer* server_ = nullptr;
  PostgresOptions options_;
  Heard heard_;
};

TEST_F(PostgresListenerTest, HearsWhatIsCommitted) {
  const auto listener = Listen({"jobs", "An odd \"name\""});
  ASSERT_TRUE(heard_.WaitForGaps(1));
  EXPECT_TRUE(listener->status().ok());
  auto session = Open();
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Notify("jobs", "undone").ok());
  session->Rollback();
  ASSERT_TRUE(session->Begin().ok());
  ASSERT_TRUE(session->Notify("jobs", "it's \"a\"").ok());
  ASSERT_TRUE(session->Notify("An odd \"name\"", "").ok());
  ASSERT_TRUE(session->Notify("elsewhere", "x").ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(heard_.notices().empty());
  ASSERT_TRUE(session->Commit().ok());
  ASSERT_TRUE(session->Notify("jobs", "last").ok());
  ASSERT_TRUE(heard_.WaitForNotices(3));
  EXPECT_EQ(heard_.notices(), (Notices{{"jobs", "it's \"a\""}, {"An odd \"name\"", ""}, {"jobs", "last"}}));
}

// A notice wakes the listener: it does not ask at times.
TEST_F(PostgresListenerTest, HearsAtOnce) {
  const auto listener = Listen({"jobs"});
  ASSERT_TRUE(heard_.WaitForGaps(1));
  auto session = Open();
  const auto start = std::chrono::steady_clock::now();
  constexpr int kCount = 50;
  for (int number = 1; number <= kCount; ++number) {
    ASSERT_TRUE(session->Notify("jobs", std::to_string(number)).ok());
    ASSERT_TRUE(heard_.WaitForNotices(number));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kCount * std::chrono::milliseconds(50));
}

TEST_F(PostgresListenerTest, SaysThatItMayHaveMissedSomeAfterARestart) {
  const auto listener = Listen({"jobs"});
  ASSERT_TRUE(heard_.WaitForGaps(1));
  server_->StopFast();
  while (listener->status().ok()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(listener->status().code(), absl::StatusCode::kUnavailable) << listener->status();
  ASSERT_TRUE(server_->Start().ok());
  ASSERT_TRUE(heard_.WaitForGaps(2));
  EXPECT_TRUE(listener->status().ok());
  ASSERT_TRUE(Open()->Notify("jobs", "after").ok());
  ASSERT_TRUE(heard_.WaitForNotices(1));
  server_->Kill();
  ASSERT_TRUE(server_->Start().ok());
  ASSERT_TRUE(heard_.WaitForGaps(3));
}

TEST_F(PostgresListenerTest, SaysWhyItDoesNotListen) {
  options_.dsn = server_->dsn("nowhere");
  const auto listener = Listen({"jobs"});
  while (listener->status().code() != absl::StatusCode::kFailedPrecondition) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(heard_.gaps(), 0);
}

// A listener ends at once while it listens, pauses, or waits for a server that does not answer.
TEST_F(PostgresListenerTest, EndsAtOnce) {
  char folder[] = "/tmp/hpvmd-silent-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const UniqueFd silent(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ""};
  const std::string path = std::string(folder) + "/.s.PGSQL.5432";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(silent.get(), 10), 0);
  for (const std::string& dsn : {server_->dsn("listener_test"), std::string("host=/nowhere user=a"),
                                 "user=a port=5432 host=" + std::string(folder)}) {
    options_.dsn = dsn;
    auto listener = Listen({"jobs"});
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const auto start = std::chrono::steady_clock::now();
    listener.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1)) << dsn;
  }
  options_.connect_timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(PostgresSession::Open(options_).status().code(), absl::StatusCode::kUnavailable);
  unlink(path.c_str());
  rmdir(folder);
}

}  // namespace
}  // namespace hpvm::server::cluster
