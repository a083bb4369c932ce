// SPDX-License-Identifier: Apache-2.0
// Secrets that callers show: tokens, which tenants keep for long, and tickets, which local processes get for their user
// id. Pure.
//
// A token is "hpvm_" and 64 hexadecimal digits: 256 random bits, so that its SHA-256 may be stored as it is (nobody
// guesses what a slow hash would protect). A ticket is "hpvmt_" and hexadecimal digits: user id and time of expiry,
// under a key that lives as long as the daemon does.
#ifndef HPVMD_SERVER_IDENTITY_TOKEN_H_
#define HPVMD_SERVER_IDENTITY_TOKEN_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/hash.h"
#include "base/status.h"

namespace hpvm::server {

// What follows "Bearer " (in any case) in the metadata `authorization`; nothing for other schemes, empty values, and
// what has blanks or is longer than any credential of ours.
std::optional<std::string_view> BearerOf(std::string_view authorization);

std::string NewTokenSecret(Rng& rng);
// Nothing for what has not a token's form.
std::optional<Sha256> HashOfTokenSecret(std::string_view secret);

bool IsTicket(std::string_view credential);

// Any thread.
class TicketMint {
 public:
  static constexpr Duration kLifetime = std::chrono::hours(1);

  explicit TicketMint(Rng& rng);
  std::string Issue(uint32_t uid, Time now) const;
  // The user id. kUnauthenticated for what this mint did not issue, and for what has expired.
  StatusOr<uint32_t> Check(std::string_view ticket, Time now) const;

 private:
  std::array<uint8_t, 32> key_;
};

Status Unauthenticated(std::string_view message);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TOKEN_H_
