// SPDX-License-Identifier: Apache-2.0
#include "server/identity/token.h"

#include <algorithm>
#include <span>

namespace hpvm::server {
namespace {

constexpr std::string_view kTokenPrefix = "hpvm_", kTicketPrefix = "hpvmt_";
constexpr size_t kSecretDigits = 64;
constexpr size_t kCredentialBytesMax = 512;
// A version, the user id, the expiry; then the code over them.
constexpr uint8_t kTicketVersion = 1;
constexpr size_t kClaimBytes = 1 + 4 + 8, kCodeBytes = 32;
uint64_t ReadNumber(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (const uint8_t byte : bytes) {
    value = value << 8 | byte;
  }
  return value;
}

std::array<uint8_t, kClaimBytes> ClaimOf(uint32_t uid, uint64_t expires_ns) {
  std::array<uint8_t, kClaimBytes> claim;
  claim[0] = kTicketVersion;
  for (size_t i = 0; i < 4; ++i) {
    claim[1 + i] = static_cast<uint8_t>(uid >> (24 - 8 * i));
  }
  for (size_t i = 0; i < 8; ++i) {
    claim[5 + i] = static_cast<uint8_t>(expires_ns >> (56 - 8 * i));
  }
  return claim;
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

std::string TicketMint::Issue(uint32_t uid, Time now) const {
  const auto claim = ClaimOf(uid, static_cast<uint64_t>((now + kLifetime).count()));
  return std::string(kTicketPrefix) + ToHex(claim) + ToHex(HmacOf(key_, claim));
}

StatusOr<uint32_t> TicketMint::Check(std::string_view ticket, Time now) const {
  std::array<uint8_t, kClaimBytes + kCodeBytes> bytes;
  if (!IsTicket(ticket) || !ReadHex(ticket.substr(kTicketPrefix.size()), bytes)) {
    return Unauthenticated("The ticket has not the form of one.");
  }
  const std::span<const uint8_t> claim(bytes.data(), kClaimBytes);
  Sha256 code;
  std::copy(bytes.begin() + kClaimBytes, bytes.end(), code.bytes.begin());
  if (!ConstantTimeEqual(code, HmacOf(key_, claim)) || claim[0] != kTicketVersion) {
    return Unauthenticated("The ticket is none of this daemon's; one of an earlier daemon has to be fetched again.");
  }
  if (static_cast<uint64_t>(now.count()) >= ReadNumber(claim.subspan(5, 8))) {
    return Unauthenticated("The ticket has expired; fetch another.");
  }
  return static_cast<uint32_t>(ReadNumber(claim.subspan(1, 4)));
}

}  // namespace hpvm::server
