// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/machine/cluster_hosts.h"

#include "client/ctl/text/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace hpvm::ctl {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

v1::Host HostWith(const std::string& name, uint64_t jobs, v1::HostIntake intake = v1::HOST_INTAKE_OPEN,
                  v1::Host::State state = v1::Host::STATE_LIVE) {
  v1::Host host;
  host.set_name(name);
  host.set_state(state);
  host.set_intake(intake);
  host.set_jobs(jobs);
  host.set_memory_bytes(uint64_t{64} << 30);
  host.set_version("1.2.0");
  return host;
}

std::vector<std::string> TooMany(const std::vector<v1::Host>& hosts) {
  std::vector<std::string> names;
  for (const v1::Host& host : HostsWithTooMany(hosts)) {
    names.push_back(host.name());
  }
  return names;
}

TEST(ClusterHostsTest, Rows) {
  v1::Host a = HostWith("lab-a", 3), b = HostWith("lab-b", 0, v1::HOST_INTAKE_DRAINING, v1::Host::STATE_LOST);
  a.set_is_self(true);
  a.set_address("lab-a:50061");
  a.set_memory_used_bytes(uint64_t{4} << 30);
  for (const char* word : {"kind:cpu", "device:cpu:0", "label:lab=a", "label:rack=7"}) {
    a.add_words(word);
  }
  b.clear_memory_bytes();
  b.clear_version();
  const auto narrow = HostRows({a, b}, false);
  EXPECT_THAT(narrow[0], ElementsAre("", "HOST", "STATE", "INTAKE", "JOBS", "MEMORY", "VERSION", "ADDRESS", "WORDS"));
  EXPECT_THAT(narrow[1], ElementsAre("*", "lab-a", "LIVE", "OPEN", "3", "4.00 GiB of 64.0 GiB", "1.2.0", "lab-a:50061",
                                     "kind:cpu, device:cpu:0, label:lab=a and 1 more"));
  EXPECT_THAT(narrow[2], ElementsAre("", "lab-b", "LOST", "DRAINING", "0", "-", "-", "-", "-"));
  EXPECT_EQ(HostRows({a}, true)[1].back(), "kind:cpu, device:cpu:0, label:lab=a, label:rack=7");
  // One long word is shown whole.
  a.clear_words();
  a.add_words(std::string(255, 'w'));
  EXPECT_EQ(HostRows({a}, false)[1].back(), std::string(255, 'w'));
}

TEST(ClusterHostsTest, SummaryOfACluster) {
  std::vector<v1::Host> hosts = {HostWith("lab-a", 3), HostWith("lab-b", 1, v1::HOST_INTAKE_CORDONED),
                                 HostWith("lab-c", 2, v1::HOST_INTAKE_OPEN, v1::Host::STATE_LOST)};
  hosts[1].set_is_self(true);
  hosts[2].set_version("1.1.0");  // It is not live, so its version makes no difference.
  EXPECT_THAT(SummaryText(hosts), AllOf(HasSubstr("2 LIVE, 1 LOST"), HasSubstr("1 OPEN, 1 CORDONED"),
                                        HasSubstr("6 jobs claimed"), HasSubstr("0 B of 128 GiB"), HasSubstr("lab-b"),
                                        HasSubstr("version  1.2.0"), Not(HasSubstr("differ"))));
  hosts[0].set_version("1.3.0");
  EXPECT_THAT(SummaryText(hosts), HasSubstr("they differ: 1.2.0 (lab-b), 1.3.0 (lab-a)"));
  const nlohmann::ordered_json json = SummaryJson(hosts);
  EXPECT_EQ(json["self"], "lab-b");
  EXPECT_EQ(json["hosts"]["LIVE"], 2);
  EXPECT_EQ(json["intake"]["CORDONED"], 1);
  EXPECT_EQ(json["jobs"], 6);
  EXPECT_EQ(json["versions"]["1.3.0"][0], "lab-a");
  EXPECT_THAT(SummaryText({}), HasSubstr("0 jobs claimed"));
}

TEST(ClusterHostsTest, SentencesSayWhatHappens) {
  EXPECT_EQ(IntakeSentences(HostWith("a", 1)), "Host a takes jobs again.");
  EXPECT_THAT(IntakeSentences(HostWith("a", 1, v1::HOST_INTAKE_CORDONED)),
              AllOf(HasSubstr("(1 job) goes on"), HasSubstr("`hpvmctl cluster uncordon a`")));
  EXPECT_THAT(IntakeSentences(HostWith("a", 2, v1::HOST_INTAKE_DRAINING)),
              HasSubstr("gives back what it has (2 jobs)"));
  EXPECT_THAT(IntakeSentences(HostWith("a", 2, v1::HOST_INTAKE_OPEN, v1::Host::STATE_LEFT)),
              HasSubstr("The host is LEFT; the setting waits for it."));
}

// Hosts that are not live or take no jobs neither count nor give back theirs.
TEST(ClusterHostsTest, HostsThatHoldTooMany) {
  EXPECT_THAT(TooMany({}), ElementsAre());
  EXPECT_THAT(TooMany({HostWith("a", 100)}), ElementsAre());
  EXPECT_THAT(TooMany({HostWith("a", 2), HostWith("b", 0)}), ElementsAre());  // Just one more than the average.
  EXPECT_THAT(TooMany({HostWith("a", 3), HostWith("b", 0)}), ElementsAre("a"));
  EXPECT_THAT(TooMany({HostWith("a", 9), HostWith("b", 8), HostWith("c", 0)}), ElementsAre("a", "b"));
  EXPECT_THAT(
      TooMany({HostWith("a", 9, v1::HOST_INTAKE_CORDONED), HostWith("b", 9, v1::HOST_INTAKE_DRAINING),
               HostWith("c", 9, v1::HOST_INTAKE_OPEN, v1::Host::STATE_LOST), HostWith("d", 5), HostWith("e", 5)}),
      ElementsAre());
}

// Unknown values of a newer server are shown.
TEST(ClusterHostsTest, UnknownValues) {
  const v1::Host host = HostWith("a", 1, static_cast<v1::HostIntake>(7), static_cast<v1::Host::State>(9));
  EXPECT_EQ(HostRows({host}, false)[1][2], "STATE 9");
  EXPECT_THAT(IntakeSentences(host), HasSubstr("INTAKE 7"));
  EXPECT_EQ(FindHost({host}, "b"), nullptr);
  EXPECT_NE(FindHost({host}, "a"), nullptr);
}

}  // namespace
}  // namespace hpvm::ctl
