// SPDX-License-Identifier: Apache-2.0
// Quotas as people write and read them.
#ifndef HPVMD_CLIENT_CTL_TEXT_QUOTA_WORDS_H_
#define HPVMD_CLIENT_CTL_TEXT_QUOTA_WORDS_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hpvm/v1/admin.pb.h"

namespace hpvm::ctl {

// What tenants have quotas of, as the server has it (compared by a test).
struct QuotaResource {
  std::string_view name;
  v1::ResourceUsage::Unit unit;
  uint64_t period_ns;  // What is spent is earned anew in this time; 0: it is held and given back.
};
std::span<const QuotaResource> QuotaResources();
// "device-seconds, device-bytes, ..."
std::string QuotaResourceNames();

// "512MiB", "1.5GiB", "2GB", "4096". A letter alone ("2G") is binary.
StatusOr<uint64_t> ParseBytes(const std::string& text);

// "device-bytes=2GiB", "device-seconds=1h", "requests=100", "requests=100/s"; "0" and "none": no limit. Several times:
// each resource once.
StatusOr<std::map<std::string, uint64_t>> ParseQuotas(const std::vector<std::string>& words);
// kInvalidArgument for a name that is no resource's, with the nearest.
Status CheckQuotaResource(std::string_view name);

// "2.00 GiB", "1.50 h", "100"; with a period "100 / s", "1.00 h / h".
std::string QuotaText(uint64_t value, v1::ResourceUsage::Unit unit);
std::string QuotaLimitText(uint64_t limit, v1::ResourceUsage::Unit unit, uint64_t period_ns);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_QUOTA_WORDS_H_
