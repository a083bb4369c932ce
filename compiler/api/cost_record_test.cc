// SPDX-License-Identifier: Apache-2.0
#include "compiler/api/cost_record.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/clock.h"

namespace hpvm {
namespace {

CostRecord Sample() {
  const CostRecordClass c{.size = 10,
                          .intensity = 4,
                          .samples = 7,
                          .weight = 6.25f,
                          .instances = 1000,
                          .bytes = 8000,
                          .operations = 1e5f,
                          .time_ns = 1234,
                          .variance = 99,
                          .low_ns = 1200,
                          .error = 0.5f};
  CostRecordClass other = c;
  other.size = 20;
  return {{{"cpu a processor", {c, other}}, {"opencl a card", {}}, {"vulkan a card", {other}}}};
}

// A decoded record equals the encoded one.
TEST(CostRecordTest, RoundTrip) {
  const StatusOr<CostRecord> read = DecodeCosts(EncodeCosts(Sample()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, Sample());
  EXPECT_EQ(*DecodeCosts(EncodeCosts({})), CostRecord());
}

// A record stays within its limit, and its remaining parts are complete.
TEST(CostRecordTest, KeepsToItsLimit) {
  CostRecord record;
  for (int i = 0; i < 40; ++i) {
    record.devices.push_back(
        {std::string(300, 'x'), std::vector<CostRecordClass>(100, Sample().devices[0].classes[0])});
  }
  const std::vector<uint8_t> bytes = EncodeCosts(record);
  EXPECT_LE(bytes.size(), kCostRecordBytesMax);
  const StatusOr<CostRecord> read = DecodeCosts(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_GE(read->devices.size(), 5u);
  EXPECT_EQ(read->devices[0].classes.size(), kCostRecordClassesMax);
  EXPECT_EQ(read->devices[0].device, std::string(256, 'x'));
}

// Arbitrary bytes yield a record with valid figures, or an error.
TEST(CostRecordTest, RefusesWhatIsMalformed) {
  const std::vector<uint8_t> bytes = EncodeCosts(Sample());
  for (size_t size = 1; size < bytes.size(); ++size) {
    const StatusOr<CostRecord> read = DecodeCosts(std::span(bytes).first(size));
    EXPECT_TRUE(!read.ok() || read->devices.size() < 3) << size;
  }
  SeededRng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<uint8_t> changed = bytes;
    for (uint64_t n = 1 + rng.Below(3); n > 0; --n) {
      changed[rng.Below(changed.size())] = static_cast<uint8_t>(rng.Next());
    }
    const StatusOr<CostRecord> read = DecodeCosts(changed);
    for (size_t d = 0; read.ok() && d < read->devices.size(); ++d) {
      for (const CostRecordClass& c : read->devices[d].classes) {
        EXPECT_TRUE(std::isfinite(c.time_ns) && c.time_ns >= 0 && std::isfinite(c.error) && c.error >= 0);
      }
    }
  }
  EXPECT_FALSE(DecodeCosts(std::vector<uint8_t>(kCostRecordBytesMax + 1)).ok());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0f}) {
    CostRecord record = Sample();
    record.devices[2].classes[0].error = bad;
    EXPECT_FALSE(DecodeCosts(EncodeCosts(record)).ok()) << bad;
  }
}

}  // namespace
}  // namespace hpvm
