// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/quota_words.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "scheduler/share/resource.h"

namespace hpvm::ctl {
namespace {

using testing::HasSubstr;
using Usage = v1::ResourceUsage;

// The words match the server's: the same names, units and periods, in the same order.
TEST(QuotaWords, AreTheServers) {
  ASSERT_EQ(QuotaResources().size(), scheduler::kResourceCount);
  for (size_t i = 0; i < scheduler::kResourceCount; ++i) {
    const scheduler::ResourceFacts& facts = scheduler::Resources()[i];
    EXPECT_EQ(QuotaResources()[i].name, facts.name);
    EXPECT_EQ(static_cast<int>(QuotaResources()[i].unit), static_cast<int>(facts.unit) + 1) << facts.name;
    EXPECT_EQ(QuotaResources()[i].period_ns, static_cast<uint64_t>(facts.period.count())) << facts.name;
  }
}

TEST(QuotaWords, AreParsed) {
  struct Case {
    const char* word;
    const char* name;
    uint64_t value;
  };
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  const Case cases[] = {
      {"device-bytes=2GiB", "device-bytes", 2 * kGiB},
      {"host-bytes=1.5G", "host-bytes", kGiB + kGiB / 2},
      {"disk-bytes=2GB", "disk-bytes", 2'000'000'000},
      {"disk-bytes=4096", "disk-bytes", 4096},
      {"device-seconds=1h", "device-seconds", 3'600'000'000'000},
      {"compile-seconds=90", "compile-seconds", 90'000'000'000},
      {"device-seconds=30m/h", "device-seconds", 1'800'000'000'000},
      {"requests=100", "requests", 100},
      {"requests=100/s", "requests", 100},
      {"request-bytes=10MiB/s", "request-bytes", 10 << 20},
      {"modules=0", "modules", 0},
      {"modules=none", "modules", 0},
      {"device-bytes=none", "device-bytes", 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.word);
    const auto quotas = ParseQuotas({c.word});
    ASSERT_TRUE(quotas.ok()) << quotas.status();
    EXPECT_EQ(quotas->size(), 1u);
    EXPECT_EQ(quotas->at(c.name), c.value);
  }
}

TEST(QuotaWords, WrongOnesSayWhatIsWanted) {
  struct Case {
    std::vector<std::string> words;
    const char* want;
  };
  const Case cases[] = {
      {{"device-byte=2GiB"}, "did you mean \"device-bytes\"?"},
      {{"memory=2GiB"}, "There are device-seconds, device-bytes"},
      {{"device-bytes"}, "RESOURCE=VALUE"},
      {{"device-bytes="}, "RESOURCE=VALUE"},
      {{"device-bytes=2Gib"}, "with a unit"},
      {{"device-bytes=-1"}, "with a unit"},
      {{"device-bytes=1e300"}, "with a unit"},
      {{"device-bytes=nan"}, "with a unit"},
      {{"device-bytes=inf"}, "with a unit"},
      {{"device-bytes=0.1"}, "with a unit"},
      {{"device-bytes=1GiB/s"}, "held, not spent"},
      {{"requests=100/h"}, "counted as \"/s\""},
      {{"requests=1.5"}, "whole number"},
      {{"requests=1GiB"}, "whole number"},
      {{"requests=99999999999999999999"}, "whole number"},
      {{"device-seconds=1GiB"}, "duration"},
      {{"modules=1", "modules=2"}, "given twice"},
      {{"device-bytes=\x1b[31m"}, "\\x1b[31m"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.words.front());
    const Status status = ParseQuotas(c.words).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(c.want));
  }
}

TEST(QuotaWords, AreWritten) {
  EXPECT_EQ(QuotaText(2ull << 30, Usage::UNIT_BYTES), "2.00 GiB");
  EXPECT_EQ(QuotaText(100, Usage::UNIT_COUNT), "100");
  EXPECT_EQ(QuotaText(0, Usage::UNIT_NANOSECONDS), "0 s");
  EXPECT_EQ(QuotaText(1'500'000'000, Usage::UNIT_NANOSECONDS), "1.50 s");
  EXPECT_EQ(QuotaText(1'800'000'000'000, Usage::UNIT_NANOSECONDS), "30.0 min");
  EXPECT_EQ(QuotaText(5'400'000'000'000, Usage::UNIT_NANOSECONDS), "1.50 h");
  EXPECT_EQ(QuotaLimitText(0, Usage::UNIT_BYTES, 0), "none");
  EXPECT_EQ(QuotaLimitText(100, Usage::UNIT_COUNT, 1'000'000'000), "100 / s");
  EXPECT_EQ(QuotaLimitText(3'600'000'000'000, Usage::UNIT_NANOSECONDS, 3'600'000'000'000), "1.00 h / h");
}

}  // namespace
}  // namespace hpvm::ctl
