// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/quota_words.h"

#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/text.h"

#include "base/number.h"
#include "graph/diagnostic_sink.h"

namespace hpvm::ctl {
namespace {

using Usage = v1::ResourceUsage;

constexpr uint64_t kSecond = 1'000'000'000, kHour = 3600 * kSecond;
constexpr QuotaResource kResources[] = {
    {"device-seconds", Usage::UNIT_NANOSECONDS, kHour},
    {"device-bytes", Usage::UNIT_BYTES, 0},
    {"host-bytes", Usage::UNIT_BYTES, 0},
    {"disk-bytes", Usage::UNIT_BYTES, 0},
    {"compile-seconds", Usage::UNIT_NANOSECONDS, kHour},
    {"queued-jobs", Usage::UNIT_COUNT, 0},
    {"running-jobs", Usage::UNIT_COUNT, 0},
    {"modules", Usage::UNIT_COUNT, 0},
    {"requests", Usage::UNIT_COUNT, kSecond},
    {"request-bytes", Usage::UNIT_BYTES, kSecond},
    {"job-wait-seconds", Usage::UNIT_NANOSECONDS, 0},
    {"job-run-seconds", Usage::UNIT_NANOSECONDS, 0},
    {"job-device-seconds", Usage::UNIT_NANOSECONDS, 0},
};

const QuotaResource* ResourceNamed(std::string_view name) {
  const auto* found = std::find_if(std::begin(kResources), std::end(kResources),
                                   [&](const QuotaResource& resource) { return resource.name == name; });
  return found == std::end(kResources) ? nullptr : found;
}

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr ByteUnit kByteUnits[] = {
    {"", 1},
    {"B", 1},
    {"K", 1024.0},
    {"KiB", 1024.0},
    {"M", 1024.0 * 1024},
    {"MiB", 1024.0 * 1024},
    {"G", 1024.0 * 1024 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"T", 1024.0 * 1024 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {"kB", 1e3},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
};

StatusOr<uint64_t> ParseCount(const std::string& text) {
  const std::optional<uint64_t> value = ParseNumber<uint64_t>(text);
  return value.has_value() ? StatusOr<uint64_t>(*value)
                           : InvalidArgument(graph::Quoted(text) + " is not a whole number.");
}

std::string PeriodText(uint64_t period_ns) {
  return period_ns == 0 ? "" : period_ns == kSecond ? "/s" : period_ns == kHour ? "/h" : "/" + DurationText(period_ns);
}

StatusOr<uint64_t> ParseValue(std::string text, const QuotaResource& resource) {
  if (text == "none" || text == "0" || text == "unlimited") {
    return 0;
  }
  if (const size_t slash = text.find('/'); slash != std::string::npos) {
    const std::string period = PeriodText(resource.period_ns);
    if (text.substr(slash) != period) {
      return InvalidArgument(
          period.empty() ? "The resource is held, not spent: leave out \"" + text.substr(slash) + "\"."
                         : "The resource is counted as \"" + period + "\", not \"" + text.substr(slash) + "\".");
    }
    text.resize(slash);
  }
  switch (resource.unit) {
    case Usage::UNIT_BYTES:
      return ParseBytes(text);
    case Usage::UNIT_NANOSECONDS: {
      HPVMD_ASSIGN_OR_RETURN(const Duration duration, ParseDuration(text));
      return static_cast<uint64_t>(duration.count());
    }
    default:
      return ParseCount(text);
  }
}

}  // namespace

std::span<const QuotaResource> QuotaResources() { return kResources; }

std::string QuotaResourceNames() {
  std::string names;
  for (const QuotaResource& resource : kResources) {
    names += (names.empty() ? "" : ", ") + std::string(resource.name);
  }
  return names;
}

StatusOr<uint64_t> ParseBytes(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto* found = std::find_if(std::begin(kByteUnits), std::end(kByteUnits),
                                   [&](const ByteUnit& known) { return known.name == unit; });
  if (error != std::errc() || found == std::end(kByteUnits) || !(value > 0) || value * found->bytes >= 0x1p63 ||
      value * found->bytes < 1) {
    return InvalidArgument(graph::Quoted(text) +
                           " is not a positive number of bytes with a unit (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB), "
                           "such as 512MiB.");
  }
  return static_cast<uint64_t>(std::llround(value * found->bytes));
}

Status CheckQuotaResource(std::string_view name) {
  if (ResourceNamed(name) != nullptr) {
    return absl::OkStatus();
  }
  graph::NearMiss near_miss(name);
  for (const QuotaResource& resource : kResources) {
    near_miss.Offer(resource.name);
  }
  return InvalidArgument(graph::Quoted(name) + " is not a resource" + near_miss.Ending() + " There are " +
                         QuotaResourceNames() + ".");
}

StatusOr<std::map<std::string, uint64_t>> ParseQuotas(const std::vector<std::string>& words) {
  std::map<std::string, uint64_t> quotas;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals == std::string::npos || equals + 1 == word.size()) {
      return InvalidArgument("A quota is written RESOURCE=VALUE, such as device-bytes=2GiB, not " +
                             graph::Quoted(word) + ".");
    }
    HPVMD_RETURN_IF_ERROR(CheckQuotaResource(name));
    HPVMD_ASSIGN_OR_RETURN(const uint64_t value, While(ParseValue(word.substr(equals + 1), *ResourceNamed(name)),
                                                       "reading the quota " + graph::Quoted(word)));
    if (!quotas.emplace(name, value).second) {
      return InvalidArgument("The quota of " + name + " is given twice.");
    }
  }
  return quotas;
}

std::string QuotaText(uint64_t value, Usage::Unit unit) {
  if (unit == Usage::UNIT_BYTES) {
    return BytesText(value);
  }
  if (unit != Usage::UNIT_NANOSECONDS) {
    return std::to_string(value);
  }
  if (value < 600 * kSecond) {
    return value == 0 ? "0 s" : DurationText(value);
  }
  char text[64];
  const bool is_hours = value >= kHour;
  snprintf(text, sizeof(text), is_hours ? "%.2f h" : "%.1f min",
           static_cast<double>(value) / static_cast<double>(is_hours ? kHour : 60 * kSecond));
  return text;
}

std::string QuotaLimitText(uint64_t limit, Usage::Unit unit, uint64_t period_ns) {
  if (limit == 0) {
    return "none";
  }
  const std::string period = PeriodText(period_ns);
  return QuotaText(limit, unit) + (period.empty() ? "" : " / " + period.substr(1));
}

}  // namespace hpvm::ctl
