// SPDX-License-Identifier: Apache-2.0
// Processors near a device, as listed in the system's files; threads bound to them.
#include "backends/gpu/near_cpus.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace hpvm::gpu {
namespace {

class NearCpusTest : public ::testing::Test {
 protected:
  ~NearCpusTest() override { std::filesystem::remove_all(folder_); }
  NearCpus Read(const std::string& list) {
    std::filesystem::create_directories(folder_ + "/0001:3b:00.1");
    std::ofstream(folder_ + "/0001:3b:00.1/local_cpulist") << list;
    return CpusNear({.domain = 1, .bus = 0x3b, .device = 0, .function = 1}, folder_);
  }
  const std::string folder_ = ::testing::TempDir() + "/near-cpus-" + std::to_string(getpid());
};

// No list here names all processors that a machine may have.
TEST_F(NearCpusTest, ReadsLists) {
  EXPECT_EQ(Read("0\n"), std::thread::hardware_concurrency() == 1 ? NearCpus() : NearCpus({0}));
  EXPECT_EQ(Read("all\n"), NearCpus());
  EXPECT_EQ(Read("3-\n"), NearCpus());
  EXPECT_EQ(Read("\n"), NearCpus());
  EXPECT_EQ(Read("0-1023\n"), NearCpus());
  EXPECT_EQ(CpusNear({.domain = 9}, folder_), NearCpus());
  const NearCpus many = Read("0-1,4,6-7\n");
  EXPECT_TRUE(many.empty() || many == NearCpus({0, 1, 4, 6, 7}));
}

TEST(StayNearTest, ThreadsStayWhereTheyMayRun) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  uint32_t last = 0;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    last = CPU_ISSET(cpu, &allowed) ? cpu : last;
  }
  const auto allowed_after = [](const NearCpus& cpus) {
    cpu_set_t after;
    std::thread([&] {
      StayNear(cpus);
      sched_getaffinity(0, sizeof after, &after);
    }).join();
    return after;
  };
  const cpu_set_t one = allowed_after({last, CPU_SETSIZE - 1});
  EXPECT_EQ(CPU_COUNT(&one), last == CPU_SETSIZE - 1 || !CPU_ISSET(CPU_SETSIZE - 1, &allowed) ? 1 : 2);
  EXPECT_TRUE(CPU_ISSET(last, &one));
  const cpu_set_t all = allowed_after({});
  EXPECT_TRUE(CPU_EQUAL(&all, &allowed));
  if (!CPU_ISSET(CPU_SETSIZE - 1, &allowed)) {
    const cpu_set_t none = allowed_after({CPU_SETSIZE - 1});
    EXPECT_TRUE(CPU_EQUAL(&none, &allowed));
  }
}

}  // namespace
}  // namespace hpvm::gpu
