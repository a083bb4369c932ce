// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/machine/top_text.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hpvm::ctl {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kSecond = 1'000'000'000;

v1::GetOverviewResponse Picture(int tenants, int running) {
  v1::GetOverviewResponse now;
  now.set_started_unix_ns(1000 * kSecond);
  now.set_time_unix_ns(1010 * kSecond);
  now.set_host_processors(2);
  now.set_processor_ns(10 * kSecond);
  now.set_memory_bytes(1 << 30);
  now.set_host_memory_bytes(uint64_t{24} << 30);
  v1::DeviceLoad& device = *now.add_devices();
  device.mutable_device()->set_id("cpu:0");
  device.mutable_device()->set_name("A processor with a rather long name, 2 threads");
  device.mutable_device()->set_state(v1::Device::STATE_READY);
  device.set_busy_ns(5 * kSecond);
  device.add_holders("t0");
  for (int i = 0; i < tenants; ++i) {
    v1::TenantLoad& tenant = *now.add_tenants();
    tenant.set_name("t" + std::to_string(i));
    tenant.set_jobs_queued(i);
    tenant.set_dominant_share(i == 1 ? 0.75 : 0.1);
    tenant.set_device_ns(i * kSecond);
    tenant.set_oldest_queued_unix_ns(i == 0 ? 0 : 1005 * kSecond);
  }
  for (int i = 0; i < running; ++i) {
    v1::RunningWork& work = *now.add_running();
    work.set_tenant("t" + std::to_string(i));
    work.set_job_id("job-" + std::to_string(i));
    work.set_graph("matmul");
    work.set_state(v1::JOB_STATE_RUNNING);
    work.set_since_unix_ns(1008 * kSecond);
    work.set_nodes_run(3);
    work.set_nodes_total(7);
    work.add_devices("cpu:0");
  }
  return now;
}

size_t Columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

TEST(TopTextTest, ShowsWhoUsesWhat) {
  v1::GetOverviewResponse now = Picture(3, 1);
  const std::vector<std::string> lines = TopLines(nullptr, now, {.width = 200});
  EXPECT_THAT(lines[0], HasSubstr("up 10.0 s | 0 jobs run | 3 queued"));
  EXPECT_THAT(lines[0], HasSubstr("processor 50 % of 2 | memory 1.00 GiB of 24.0 GiB"));
  EXPECT_THAT(lines, Contains(HasSubstr("cpu:0   READY  50 %")));
  EXPECT_THAT(lines, Contains(StartsWith("job-0  t0      matmul  RUNNING  2.00 s    3/7  cpu:0")));
  // The tenant with the greatest share comes first.
  const auto heading =
      std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("TENANT"); });
  EXPECT_THAT(heading[1], StartsWith("t1"));
  EXPECT_THAT(heading[1], HasSubstr("75 %"));
}

TEST(TopTextTest, TellsDevicesThatAreClosed) {
  v1::GetOverviewResponse now = Picture(1, 0);
  v1::Device& device = *now.mutable_devices(0)->mutable_device();
  device.mutable_health()->set_fence("too hot");
  EXPECT_THAT(TopLines(nullptr, now, {.width = 200}), Contains(HasSubstr("cpu:0   FENCED")));
  device.mutable_paused()->set_reason("new fans");
  EXPECT_THAT(TopLines(nullptr, now, {.width = 200}), Contains(HasSubstr("cpu:0   PAUSED")));
}

TEST(TopTextTest, RatesAreBetweenTwoPictures) {
  const v1::GetOverviewResponse before = Picture(2, 0);
  v1::GetOverviewResponse now = before;
  now.set_time_unix_ns(before.time_unix_ns() + 2 * kSecond);
  now.mutable_devices(0)->set_busy_ns(7 * kSecond);
  now.mutable_tenants(1)->set_device_ns(2 * kSecond);
  now.set_processor_ns(14 * kSecond);
  const std::vector<std::string> lines = TopLines(&before, now, {.width = 200});
  EXPECT_THAT(lines[0], HasSubstr("processor 100 % of 2"));
  EXPECT_THAT(lines, Contains(HasSubstr("READY  100 %")));
  EXPECT_THAT(lines, Contains(testing::AllOf(StartsWith("t1"), HasSubstr("0.50"))));
  // The counters of a restarted server begin at zero.
  now.set_started_unix_ns(before.time_unix_ns() + kSecond);
  now.mutable_devices(0)->set_busy_ns(kSecond / 2);
  EXPECT_THAT(TopLines(&before, now, {.width = 200}), Contains(HasSubstr("READY  50 %")));
}

// The output never exceeds the screen, whatever its size, and what does not fit is counted.
TEST(TopTextTest, FitsEveryScreen) {
  v1::GetOverviewResponse now = Picture(60, 50);
  now.set_running_left_out(1000);
  now.mutable_intake()->set_closed(true);
  now.mutable_intake()->set_reason("new disks in all of the machines of this row");
  for (const size_t width : {20, 40, 41, 80, 132, 200}) {
    for (const size_t height : {0, 1, 10, 24, 50, 200}) {
      const std::vector<std::string> lines = TopLines(nullptr, now, {.width = width, .height = height});
      for (const std::string& line : lines) {
        EXPECT_LE(Columns(line), width) << width << "x" << height << ": " << line;
        EXPECT_THAT(line, Not(HasSubstr("\n")));
      }
      if (height > 0) {
        EXPECT_LE(lines.size(), height) << width;
      }
      if (height != 1) {
        EXPECT_THAT(lines, Contains(StartsWith("CLOSED"))) << width << "x" << height;
      }
    }
  }
  const std::vector<std::string> lines = TopLines(nullptr, now, {.width = 80, .height = 50});
  EXPECT_THAT(lines, Contains(HasSubstr(" more")));
  EXPECT_THAT(TopLines(nullptr, now, {.width = 80}), Contains("... and 1000 more"));
}

// Names from other users cannot control the terminal.
TEST(TopTextTest, NamesAreHarmless) {
  v1::GetOverviewResponse now = Picture(1, 1);
  now.mutable_running(0)->set_name("a\x1b[2Jb\nc");
  now.mutable_intake()->set_closed(true);
  now.mutable_intake()->set_reason("x\x1b[31m\ny");
  for (const std::string& line : TopLines(nullptr, now, {.width = 200})) {
    EXPECT_THAT(line, Not(HasSubstr("\x1b")));
    EXPECT_THAT(line, Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace hpvm::ctl
