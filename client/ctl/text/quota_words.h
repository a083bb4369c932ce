// SPDX-License-Identifier: Apache-2.0
// Quotas in the form that people write and read.
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

// QuotaResource is a resource that has quotas, as the server defines it (a test compares both).
struct QuotaResource {
  std::string_view name;
  v1::ResourceUsage::Unit unit;
  uint64_t period_ns;  // Consumption is refilled in this time; 0 for resources that are held and returned.
};
std::span<const QuotaResource> QuotaResources();
// Returns "device-seconds, device-bytes, ..."
std::string QuotaResourceNames();

// Parses "512MiB", "1.5GiB", "2GB" or "4096". A letter alone ("2G") is binary.
StatusOr<uint64_t> ParseBytes(const std::string& text);

// Parses "device-bytes=2GiB", "device-seconds=1h", "requests=100", "requests=100/s"; "0" and "none" mean no limit.
// Each resource may be named once.
StatusOr<std::map<std::string, uint64_t>> ParseQuotas(const std::vector<std::string>& words);
// kInvalidArgument for a name that is not a resource, with the most similar name.
Status CheckQuotaResource(std::string_view name);

// Returns "2.00 GiB", "1.50 h" or "100"; with a period "100 / s" or "1.00 h / h".
std::string QuotaText(uint64_t value, v1::ResourceUsage::Unit unit);
std::string QuotaLimitText(uint64_t limit, v1::ResourceUsage::Unit unit, uint64_t period_ns);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_QUOTA_WORDS_H_
