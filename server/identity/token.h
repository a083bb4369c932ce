// SPDX-License-Identifier: Apache-2.0
// Secrets that callers present: tokens, which tenants keep for long, and tickets, which local processes get for their
// user id and group. Pure.
//
// A token is "hpvm_" and 64 hexadecimal digits: 256 random bits, so that its plain SHA-256 may be stored (a slow hash
// protects secrets that can be guessed, and this one cannot). A ticket is "hpvmt_" and hexadecimal digits: the user id,
// the group id by which the user belongs to a tenant, and the time of expiry, authenticated (HMAC) with a key that
// lives as long as the daemon.
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

// Returns the credential after "Bearer " (in any case) in the metadata `authorization`; nothing for other schemes, and
// for credentials that are empty, have a byte that is not printable ASCII, or have more than 512 bytes.
std::optional<std::string_view> BearerOf(std::string_view authorization);

std::string NewTokenSecret(Rng& rng);
// Returns nothing when the secret does not have a token's form.
std::optional<Sha256> HashOfTokenSecret(std::string_view secret);

bool IsTicket(std::string_view credential);

// The user of a process on this machine.
struct LocalUser {
  uint32_t uid = 0;
  std::optional<uint32_t> gid;  // The user's group that decides the tenant, when the user id does not.
};

// TicketMint issues and checks tickets. Thread-safe.
class TicketMint {
 public:
  static constexpr Duration kLifetime = std::chrono::hours(1);

  explicit TicketMint(Rng& rng);
  std::string Issue(const LocalUser& user, Time now) const;
  // Returns kUnauthenticated for tickets that this mint did not issue or that have expired.
  StatusOr<LocalUser> Check(std::string_view ticket, Time now) const;

 private:
  std::array<uint8_t, 32> key_;
};

Status Unauthenticated(std::string_view message);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_TOKEN_H_
