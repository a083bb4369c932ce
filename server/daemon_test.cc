// SPDX-License-Identifier: Apache-2.0
// Tests of the daemon's lifecycle: start, reload, stop. Calls and jobs are tested in service_test.cc and the core's
// tests.
#include "server/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/io/fd.h"
#include "server/identity/ticket_socket.h"
#include "server/jobs/testing/job_writes.h"

namespace hpvm::server {
namespace {

using ::testing::HasSubstr;

class DaemonTest : public ::testing::Test {
 protected:
  DaemonTest() {
    char folder[] = "/tmp/hpvmd-daemon-test-XXXXXX";
    folder_ = mkdtemp(folder);
    config_.server_listen = "unix:" + folder_ + "/s";
    config_.server_state_dir = folder_ + "/state";
    config_.tenants_from_metadata = true;
    config_.executor_path = "/bin/false";  // Any executable file; nothing here needs an executor.
    config_.devices_backends = "cpu";
    config_.log_level = "error";
    config_.server_drain_ms = 100;
  }
  ~DaemonTest() override { std::filesystem::remove_all(folder_); }

  static void End(std::unique_ptr<Daemon>& daemon) {
    daemon->Stop([] { return true; });
    daemon.reset();
  }
  static v1::ServerInfoResponse InfoOf(Daemon& daemon) {
    v1::ServerInfoResponse info;
    const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant("ann");
    EXPECT_TRUE(tenant.ok()) << tenant.status();
    daemon.core().ServerInfo(**tenant, &info);
    return info;
  }

  std::string folder_;
  Config config_;
};

// Two daemons never share a folder; the next may have it when the first has ended.
TEST_F(DaemonTest, OneDaemonAFolder) {
  auto first = Daemon::Start(config_);
  ASSERT_TRUE(first.ok()) << first.status();
  Config second = config_;
  second.server_listen = "unix:" + folder_ + "/s2";
  const auto refused = Daemon::Start(second);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused.status()), HasSubstr("in use by another hpvmd"));
  End(*first);
  auto again = Daemon::Start(second);
  ASSERT_TRUE(again.ok()) << again.status();
  End(*again);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/s2"));  // The socket file is removed with its daemon.
}

bool CanConnect(const std::string& path) {
  const UniqueFd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// A client that connects as early as possible also gets its ticket: ticket sockets are open before the service.
TEST_F(DaemonTest, TicketsAreThereWhenTheServiceIs) {
  config_.auth_peers = true;
  const std::string path = folder_ + "/s";
  std::atomic<bool> has_ended{false};
  std::atomic<bool> had_tickets{false};
  std::thread client([&] {
    while (!CanConnect(path)) {
      if (has_ended) {
        return;
      }
    }
    had_tickets = CanConnect(path + kTicketSocketSuffix);
  });
  auto daemon = Daemon::Start(config_);
  has_ended = !daemon.ok();
  client.join();
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_TRUE(had_tickets);
  End(*daemon);
}

// A start that fails half way leaves nothing that disturbs the next one.
TEST_F(DaemonTest, FailedStartCanBeRepeated) {
  Config wrong = config_;
  wrong.server_listen = "unix:" + folder_ + "/missing/s";
  EXPECT_FALSE(Daemon::Start(wrong).ok());
  wrong = config_;
  wrong.executor_path = folder_ + "/nothing";
  EXPECT_FALSE(Daemon::Start(wrong).ok());
  std::filesystem::create_directories(config_.server_state_dir);
  std::ofstream(config_.server_state_dir + "/jobs.db") << "this is no database, but long enough to be looked at";
  EXPECT_FALSE(Daemon::Start(config_).ok());
  std::filesystem::remove(config_.server_state_dir + "/jobs.db");
  auto daemon = Daemon::Start(config_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  End(*daemon);
}

// Changeable keys change at once, also for known tenants; keys that need a restart stay.
TEST_F(DaemonTest, ReloadTakesEffect) {
  auto daemon = *Daemon::Start(config_);
  EXPECT_EQ(InfoOf(*daemon).limits().queued_jobs_max(), config_.jobs_queued_per_tenant_max);
  Config next = config_;
  next.tenants_max = 1;
  next.jobs_queued_per_tenant_max = 7;
  next.jobs_deadline_default_ms = 1'234;
  next.jobs_array_max = 3;
  next.limits_buffers_max = 5;
  next.limits_module_bytes_max = 12'345;
  next.server_drain_ms = 77;
  next.executor_cpu_threads = 3;
  next.server_state_dir = "/elsewhere";
  ASSERT_TRUE(daemon->Reload(next).ok());
  const v1::Limits limits = InfoOf(*daemon).limits();
  EXPECT_EQ(limits.queued_jobs_max(), 7u);
  EXPECT_EQ(limits.job_deadline_default_ns(), 1'234'000'000u);
  EXPECT_EQ(limits.job_array_max(), 3u);
  EXPECT_EQ(limits.buffers_max(), 5u);
  EXPECT_EQ(limits.module_bytes_max(), 12'345u);
  EXPECT_EQ(daemon->core().tenants().FindTenant("bob").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(daemon->core().config()->server_drain_ms, 77u);
  EXPECT_EQ(daemon->core().config()->executor_cpu_threads, config_.executor_cpu_threads);
  EXPECT_EQ(daemon->core().config()->server_state_dir, config_.server_state_dir);
  // The tenant's buffers have the new limit, not the one at the tenant's first use.
  const StatusOr<TenantRef> ann = daemon->core().tenants().FindTenant("ann");
  v1::CreateBufferRequest request;
  request.set_type(v1::ELEMENT_TYPE_I32);
  request.add_shape(4);
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(daemon->core().buffers().CreateBuffer(**ann, request).ok());
  }
  EXPECT_EQ(daemon->core().buffers().CreateBuffer(**ann, request).status().code(),
            absl::StatusCode::kResourceExhausted);
  End(daemon);
}

// Any fault, in the file or between its values, leaves everything unchanged.
TEST_F(DaemonTest, BrokenReloadChangesNothing) {
  auto daemon = *Daemon::Start(config_);
  const std::shared_ptr<const Config> before = daemon->core().config();
  EXPECT_FALSE(daemon->Reload(InvalidArgument("jobs.kept_max: The value (0) is smaller than …")).ok());
  Config next = config_;
  next.jobs_queued_per_tenant_max = 5;
  next.jobs_running_max = 1;  // Below jobs.running_per_tenant_max.
  const Status refused = daemon->Reload(next);
  EXPECT_THAT(Message(refused), HasSubstr("(16) is larger than jobs.running_max (1)"));
  EXPECT_EQ(daemon->core().config(), before);
  EXPECT_EQ(InfoOf(*daemon).limits().queued_jobs_max(), config_.jobs_queued_per_tenant_max);
  End(daemon);
}

// An idle daemon ends at once, whatever time it may give to work in progress.
TEST_F(DaemonTest, IdleDaemonEndsAtOnce) {
  config_.server_drain_ms = 60'000;
  auto daemon = *Daemon::Start(config_);
  const Time start = RealClock().Now();
  daemon->Stop(nullptr);
  daemon.reset();
  EXPECT_LT(RealClock().Now() - start, std::chrono::seconds(5));
}

// With ten thousand queued jobs, clients are served within a second on an idle machine; here the bound is loose, and
// the time is printed.
TEST_F(DaemonTest, StartsWithTenThousandJobs) {
  constexpr int kJobs = 10'000;
  std::filesystem::create_directories(config_.server_state_dir);
  {
    auto jobs = *OpenLocalJobStore(config_.server_state_dir, nullptr);
    for (int i = 0; i < kJobs; ++i) {
      jobs->Write(MakeInsert("ann", "job-" + std::to_string(i), "", RealClock().WallNs()),
                  [](const WriteResult& result) { EXPECT_TRUE(result.status.ok()) << result.status; });
    }
  }
  const Time start = RealClock().Now();
  auto daemon = Daemon::Start(config_);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(RealClock().Now() - start).count();
  std::printf("serving after %lld ms with %d jobs\n", static_cast<long long>(ms), kJobs);
  EXPECT_LT(ms, 5'000);
  // The first jobs to start fail, because their requests are made up.
  const CoreSnapshot snapshot = (*daemon)->core().Snapshot(false);
  const uint64_t live = snapshot.jobs_accepted + snapshot.jobs_queued + snapshot.jobs_running;
  EXPECT_LE(live, static_cast<uint64_t>(kJobs));
  EXPECT_GE(live, static_cast<uint64_t>(kJobs - kJobs / 10));
  End(*daemon);
}

}  // namespace
}  // namespace hpvm::server
