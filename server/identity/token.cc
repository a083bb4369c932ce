// SPDX-License-Identifier: Apache-2.0
#include "server/identity/token.h"

#include <algorithm>
#include <limits>
#include <span>

namespace hpvm::server {
namespace {

constexpr std::string_view kTokenPrefix = "hpvm_", kTicketPrefix = "hpvmt_";
constexpr size_t kSecretDigits = 64;
constexpr size_t kCredentialBytesMax = 512;
// A ticket's bytes: the version, the user id, the group id and the expiry; then their HMAC.
constexpr uint8_t kTicketVersion = 2;
constexpr size_t kUidAt = 1, kGidAt = 5, kExpiryAt = 9, kClaimBytes = kExpiryAt + 8, kCodeBytes = 32;
constexpr uint32_t kNoGid = std::numeric_limits<uint32_t>::max();  // (gid_t)-1, which POSIX assigns to no group.

uint64_t ReadNumber(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (const uint8_t byte : bytes) {
    value = value << 8 | byte;
  }
  return value;
}

void WriteNumber(uint64_t value, std::span<uint8_t> bytes) {
  for (size_t i = bytes.size(); i > 0; --i, value >>= 8) {
    bytes[i - 1] = static_cast<uint8_t>(value);
  }
}

char ToLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

Status Unauthenticated(std::string_view message) { return MakeStatus(absl::StatusCode::kUnauthenticated, message); }

std::optional<std::string_view> BearerOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size() || authorization.size() > kScheme.size() + kCredentialBytesMax ||
      !std::equal(kScheme.begin(), kScheme.end(), authorization.begin(),
                  [](char a, char b) { return a == ToLower(b); })) {
    return std::nullopt;
  }
  const std::string_view credential = authorization.substr(kScheme.size());
  const bool is_plain = std::all_of(credential.begin(), credential.end(), [](char c) { return c > ' ' && c < 0x7f; });
  return is_plain ? std::optional(credential) : std::nullopt;
}

std::string NewTokenSecret(Rng& rng) {
  std::array<uint8_t, kSecretDigits / 2> bits;
  rng.Fill(bits);
  return std::string(kTokenPrefix) + ToHex(bits);
}

std::optional<Sha256> HashOfTokenSecret(std::string_view secret) {
  std::array<uint8_t, kSecretDigits / 2> bits;
  if (!secret.starts_with(kTokenPrefix) || !ReadHex(secret.substr(kTokenPrefix.size()), bits)) {
    return std::nullopt;
  }
  return HashOf(secret);
}

bool IsTicket(std::string_view credential) { return credential.starts_with(kTicketPrefix); }

TicketMint::TicketMint(Rng& rng) { rng.Fill(key_); }

std::string TicketMint::Issue(const LocalUser& user, Time now) const {
  std::array<uint8_t, kClaimBytes> claim;
  const std::span<uint8_t> bytes(claim);
  claim[0] = kTicketVersion;
  WriteNumber(user.uid, bytes.subspan(kUidAt, 4));
  WriteNumber(user.gid.value_or(kNoGid), bytes.subspan(kGidAt, 4));
  WriteNumber(static_cast<uint64_t>((now + kLifetime).count()), bytes.subspan(kExpiryAt, 8));
  return std::string(kTicketPrefix) + ToHex(claim) + ToHex(HmacOf(key_, claim));
}

StatusOr<LocalUser> TicketMint::Check(std::string_view ticket, Time now) const {
  std::array<uint8_t, kClaimBytes + kCodeBytes> bytes;
  if (!IsTicket(ticket) || !ReadHex(ticket.substr(kTicketPrefix.size()), bytes)) {
    return Unauthenticated("The ticket is malformed.");
  }
  const std::span<const uint8_t> claim(bytes.data(), kClaimBytes);
  Sha256 code;
  std::copy(bytes.begin() + kClaimBytes, bytes.end(), code.bytes.begin());
  if (!ConstantTimeEqual(code, HmacOf(key_, claim)) || claim[0] != kTicketVersion) {
    return Unauthenticated("The ticket was not issued by this daemon; after a restart of the daemon, fetch another.");
  }
  if (static_cast<uint64_t>(now.count()) >= ReadNumber(claim.subspan(kExpiryAt, 8))) {
    return Unauthenticated("The ticket has expired; fetch another.");
  }
  LocalUser user{static_cast<uint32_t>(ReadNumber(claim.subspan(kUidAt, 4))), std::nullopt};
  if (const auto gid = static_cast<uint32_t>(ReadNumber(claim.subspan(kGidAt, 4))); gid != kNoGid) {
    user.gid = gid;
  }
  return user;
}

}  // namespace hpvm::server
