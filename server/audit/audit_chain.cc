// SPDX-License-Identifier: Apache-2.0
#include "server/audit/audit_chain.h"

#include <algorithm>
#include <charconv>

#include "base/hash.h"

namespace hpvm::server {
namespace {

constexpr size_t kHexDigits = 64;
constexpr std::string_view kHashKey = ",\"hash\":\"", kLineEnd = "\"}";
constexpr size_t kSealBytes = kHashKey.size() + kHexDigits + kLineEnd.size();
constexpr std::string_view kFilePrefix = "audit-", kFileSuffix = ".jsonl";

bool Take(std::string_view& rest, std::string_view expected) {
  if (!rest.starts_with(expected)) {
    return false;
  }
  rest.remove_prefix(expected.size());
  return true;
}

// Parses digits without leading zeros, from 1 on; the largest number is rejected, because it has no successor.
std::optional<uint64_t> TakeNumber(std::string_view& rest) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (error != std::errc() || rest.front() == '0' || number == UINT64_MAX) {
    return std::nullopt;
  }
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return number;
}

bool IsHex(std::string_view text) {
  return text.size() == kHexDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsControl(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; }

}  // namespace

const std::string& AuditOrigin() {
  static const auto* const zeros = new std::string(kHexDigits, '0');  // Never destroyed.
  return *zeros;
}

std::string AuditFileName(uint64_t first_sequence) {
  return std::string(kFilePrefix) + std::to_string(first_sequence) + std::string(kFileSuffix);
}

std::optional<uint64_t> AuditFileFirst(std::string_view name) {
  std::optional<uint64_t> first;
  if (Take(name, kFilePrefix) && !name.empty()) {
    first = TakeNumber(name);
  }
  return name == kFileSuffix ? first : std::nullopt;
}

std::optional<AuditLine> ParseAuditLine(std::string_view line) {
  if (line.size() > kAuditLineBytesMax || line.size() < kSealBytes ||
      std::any_of(line.begin(), line.end(), IsControl)) {
    return std::nullopt;
  }
  AuditLine parsed;
  parsed.body = line.substr(0, line.size() - kSealBytes);
  std::string_view seal = line.substr(line.size() - kSealBytes);
  if (!Take(seal, kHashKey) || seal.substr(kHexDigits) != kLineEnd) {
    return std::nullopt;
  }
  parsed.hash = seal.substr(0, kHexDigits);
  std::string_view rest = parsed.body;
  if (!Take(rest, "{\"seq\":") || rest.empty()) {
    return std::nullopt;
  }
  const std::optional<uint64_t> sequence = TakeNumber(rest);
  if (!sequence.has_value() || !Take(rest, ",\"time\":\"")) {
    return std::nullopt;
  }
  parsed.sequence = *sequence;
  rest.remove_prefix(std::min(rest.size(), rest.find('"')));
  if (!Take(rest, "\",\"prev\":\"")) {
    return std::nullopt;
  }
  parsed.previous = rest.substr(0, kHexDigits);
  if (!IsHex(parsed.previous) || !IsHex(parsed.hash) || !rest.substr(kHexDigits).starts_with("\",")) {
    return std::nullopt;
  }
  return parsed;
}

std::string HashOfAuditBody(std::string_view body) { return ToHex(HashOf(body)); }

std::string SealAuditLine(std::string body) {
  const std::string hash = HashOfAuditBody(body);
  body += kHashKey;
  body += hash;
  body += kLineEnd;
  return body;
}

void AuditVerifier::Expect(uint64_t sequence, std::string_view hash) {
  expected_ = sequence;
  expected_hash_ = hash;
}

std::string AuditVerifier::Place() const {
  return head_.last == 0 ? "The first line" : "The line after record " + std::to_string(head_.last);
}

Status AuditVerifier::BeginFile(std::string_view name) {
  const std::optional<uint64_t> first = AuditFileFirst(name);
  if (!first.has_value()) {
    return DataLoss("The file name \"" + std::string(name) + "\" is not the name of an audit file.");
  }
  if (head_.last != 0 && *first != head_.last + 1) {
    return DataLoss("The file \"" + std::string(name) + "\" does not follow record " + std::to_string(head_.last) +
                    ".");
  }
  if (!unfinished_.empty()) {
    return DataLoss(Place() + " is incomplete: it has no line end.");
  }
  file_first_ = *first;
  return absl::OkStatus();
}

Status AuditVerifier::Push(std::string_view line) {
  const std::optional<AuditLine> parsed = ParseAuditLine(line);
  if (!parsed.has_value()) {
    return DataLoss(Place() + " is not an audit record.");
  }
  const std::string record = "Record " + std::to_string(parsed->sequence);
  if (HashOfAuditBody(parsed->body) != parsed->hash) {
    return DataLoss(record + " was changed: its hash is not that of its text.");
  }
  const uint64_t next = head_.last != 0 ? head_.last + 1 : file_first_;
  if (next != 0 && parsed->sequence != next) {
    return DataLoss(record + " stands where record " + std::to_string(next) + " should.");
  }
  const std::string& previous = parsed->sequence == 1 ? AuditOrigin() : head_.hash;
  if ((head_.last != 0 || parsed->sequence == 1) && parsed->previous != previous) {
    return DataLoss(record + " does not continue the record before it: one of the two was replaced.");
  }
  if (parsed->sequence == expected_ && parsed->hash != expected_hash_) {
    return DataLoss(record + " has another hash (" + std::string(parsed->hash) + ") than expected (" + expected_hash_ +
                    "): the record was written anew from here or from earlier on.");
  }
  head_.first = head_.first == 0 ? parsed->sequence : head_.first;
  head_.last = parsed->sequence;
  head_.hash = parsed->hash;
  file_first_ = 0;
  return absl::OkStatus();
}

Status AuditVerifier::PushBytes(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (unfinished_.size() + part.size() > kAuditLineBytesMax) {
      return DataLoss(Place() + " is not an audit record: it is longer than " + std::to_string(kAuditLineBytesMax) +
                      " bytes.");
    }
    unfinished_ += part;
    if (end == std::string_view::npos) {
      break;
    }
    HPVMD_RETURN_IF_ERROR(Push(unfinished_));
    unfinished_.clear();
    bytes.remove_prefix(end + 1);
  }
  return absl::OkStatus();
}

Status AuditVerifier::Finish() const {
  if (!unfinished_.empty()) {
    return DataLoss(Place() + " is incomplete: it has no line end.");
  }
  if (expected_ != 0 && (head_.last < expected_ || head_.first > expected_)) {
    return DataLoss("Record " + std::to_string(expected_) + " is expected, but the stored records go from " +
                    std::to_string(head_.first) + " to " + std::to_string(head_.last) + ".");
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
