// SPDX-License-Identifier: Apache-2.0
#include "server/process/processors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

namespace hpvm::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Two nodes of four cores with two threads each: threads of a core are adjacent, as hwloc numbers them.
std::vector<Processor> Large() { return *ReadProcessors("numa:2 core:4 pu:2"); }

TEST(ProcessorsTest, ReadsTheMachine) {
  cpu_set_t affinity;
  ASSERT_EQ(sched_getaffinity(0, sizeof affinity, &affinity), 0);
  const auto processors = ReadProcessors();
  ASSERT_TRUE(processors.ok()) << processors.status();
  EXPECT_EQ(processors->size(), static_cast<size_t>(CPU_COUNT(&affinity)));
  // Processors that the process itself may not use are not listed.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processors->back().number, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto fewer = ReadProcessors();
  ASSERT_EQ(sched_setaffinity(0, sizeof affinity, &affinity), 0);
  ASSERT_TRUE(fewer.ok());
  ASSERT_EQ(fewer->size(), 1u);
  EXPECT_EQ(fewer->front().number, processors->back().number);
}

TEST(ProcessorsTest, KnowsCoresAndNodes) {
  const std::vector<Processor> large = Large();
  ASSERT_EQ(large.size(), 16u);
  EXPECT_EQ(large[7].node, 0u);
  EXPECT_EQ(large[8].node, 1u);
  EXPECT_EQ(large[2].core, large[3].core);
  EXPECT_NE(large[1].core, large[2].core);
  EXPECT_FALSE(ReadProcessors("nonsense:0").ok());
}

TEST(ProcessorsTest, ReservesWholeCoresOrWhatIsNamed) {
  const auto plan_of = [](const char* reserved) { return *CpuPartition::Make(Large(), reserved, false, 0); };
  EXPECT_THAT(plan_of("0")->Take()->cpus(), IsEmpty());  // Nothing is reserved.
  EXPECT_EQ(plan_of("0")->text(), "");
  const auto two = plan_of("2");
  EXPECT_THAT(two->Take()->cpus(), ElementsAre(4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(two->text(), "processors 4-15 of 16");
  EXPECT_EQ(two->threads_max(), 12u);
  EXPECT_THAT(plan_of("0-12,14")->Take()->cpus(), ElementsAre(13, 15));
  EXPECT_THAT(plan_of("0-12,14")->text(), HasSubstr("processors 13,15 of 16"));
  for (const char* all : {"8", "100", "0-15"}) {
    EXPECT_THAT(Message(CpuPartition::Make(Large(), all, false, 0).status()), HasSubstr("none of the 16 processors"));
  }
  for (const char* bad : {"", "-1", "1-", "2-1", "1,", "x", "0-5000", "99999999999", "1 "}) {
    EXPECT_EQ(CheckReservedCores(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST(ProcessorsTest, ExecutorsGoToTheNodeThatHasLeastToDo) {
  const auto plan = *CpuPartition::Make(Large(), "1", true, 4);
  EXPECT_EQ(plan->text(), "processors 2-15 of 16, each executor on one of 2 nodes");
  auto first = plan->Take();
  const auto second = plan->Take();
  EXPECT_THAT(first->cpus(), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(second->cpus(), ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_EQ(plan->Take()->cpus().front(), 8u);  // The larger node has room for more.
  first.reset();
  EXPECT_EQ(plan->Take()->cpus().front(), 2u);
  // With too many threads for one node, or with a single node, the share is all processors.
  EXPECT_EQ((*CpuPartition::Make(Large(), "1", true, 9))->Take()->cpus().size(), 14u);
  EXPECT_THAT((*CpuPartition::Make(*ReadProcessors("numa:1 core:4 pu:1"), "0", true, 0))->Take()->cpus(), IsEmpty());
}

}  // namespace
}  // namespace hpvm::server
