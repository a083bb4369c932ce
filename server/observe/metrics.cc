// SPDX-License-Identifier: Apache-2.0
#include "server/observe/metrics.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kS = 1'000'000'000;
constexpr uint64_t kSeconds[] = {10 * kUs,  25 * kUs,    50 * kUs,  100 * kUs, 250 * kUs,   500 * kUs,
                                 1 * kMs,   2'500 * kUs, 5 * kMs,   10 * kMs,  25 * kMs,    50 * kMs,
                                 100 * kMs, 250 * kMs,   500 * kMs, 1 * kS,    2'500 * kMs, 5 * kS,
                                 10 * kS,   25 * kS,     50 * kS,   100 * kS};
constexpr uint64_t kCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1'024, 2'048, 4'096};
static_assert(std::size(kSeconds) <= Buckets::kMax && std::size(kCounts) <= Buckets::kMax);

}  // namespace

const Buckets kSecondsBuckets{kSeconds, 1e-9};
const Buckets kCountBuckets{kCounts, 1};

}  // namespace hpvm::server
