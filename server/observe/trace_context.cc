// SPDX-License-Identifier: Apache-2.0
#include "server/observe/trace_context.h"

#include <algorithm>
#include <set>

#include "base/bytes.h"

namespace hpvm::server {
namespace {

constexpr size_t kTraceparentBytes = 55;  // Length in version 00.
constexpr size_t kTracestateBytesMax = 512, kMembersMax = 32;

bool IsZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsLowerOrDigit(char c) { return IsLower(c) || (c >= '0' && c <= '9'); }

bool AreKeyBytes(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return IsLowerOrDigit(c) || c == '_' || c == '-' || c == '*' || c == '/'; });
}

// Matches a vendor's name, or tenant@vendor.
bool IsTracestateKey(std::string_view key) {
  const size_t at = key.find('@');
  if (at == std::string_view::npos) {
    return !key.empty() && key.size() <= 256 && IsLower(key[0]) && AreKeyBytes(key);
  }
  const std::string_view tenant = key.substr(0, at), system = key.substr(at + 1);
  return !tenant.empty() && tenant.size() <= 241 && IsLowerOrDigit(tenant[0]) && AreKeyBytes(tenant) &&
         !system.empty() && system.size() <= 14 && IsLower(system[0]) && AreKeyBytes(system);
}

bool IsTracestateValue(std::string_view value) {
  return !value.empty() && value.size() <= 256 && value.back() != ' ' &&
         std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c <= 0x7e && c != '='; });
}

std::string_view Trim(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  std::array<uint8_t, 1> version{}, flags{};
  TraceContext context;
  if (!ReadHex(text.substr(0, 2), version) || !ReadHex(text.substr(3, 32), context.trace) ||
      !ReadHex(text.substr(36, 16), context.span) || !ReadHex(text.substr(53, 2), flags)) {
    return std::nullopt;
  }
  const bool has_more = text.size() > kTraceparentBytes;
  if (version[0] == 0xff || (has_more && (version[0] == 0 || text[kTraceparentBytes] != '-')) ||
      IsZero(context.trace) || IsZero(context.span)) {
    return std::nullopt;
  }
  context.sampled = (flags[0] & 1) != 0;
  return context;
}

std::string FormatTraceparent(const TraceContext& context) {
  return "00-" + ToHex(context.trace) + "-" + ToHex(context.span) + (context.sampled ? "-01" : "-00");
}

bool IsTracestate(std::string_view text) {
  if (text.size() > kTracestateBytesMax) {
    return false;
  }
  std::set<std::string_view> keys;
  size_t members = 0;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view member = Trim(text.substr(0, comma));
    if (++members > kMembersMax) {
      return false;
    }
    if (!member.empty()) {  // Empty members are allowed.
      const size_t equals = member.find('=');
      if (equals == std::string_view::npos || !IsTracestateKey(member.substr(0, equals)) ||
          !IsTracestateValue(member.substr(equals + 1)) || !keys.insert(member.substr(0, equals)).second) {
        return false;
      }
    }
    if (comma == std::string_view::npos) {
      return !keys.empty();
    }
    text.remove_prefix(comma + 1);
  }
}

uint64_t TraceIds::Next() {
  // SplitMix64, with a state that threads advance by one atomic addition.
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;
  SeededRng at(state_.fetch_add(kStep, std::memory_order_relaxed));
  const uint64_t next = at.Next();
  return next != 0 ? next : Next();
}

TraceId TraceIds::NewTrace() {
  TraceId id;
  const uint64_t words[2] = {Next(), Next()};
  std::copy_n(reinterpret_cast<const uint8_t*>(words), id.size(), id.begin());
  return id;
}

SpanId TraceIds::NewSpan() {
  SpanId id;
  const uint64_t word = Next();
  std::copy_n(reinterpret_cast<const uint8_t*>(&word), id.size(), id.begin());
  return id;
}

}  // namespace hpvm::server
