// SPDX-License-Identifier: Apache-2.0
// Authenticator derives a call's principal from the credentials that the call presents. It does not depend on gRPC: the
// facts about a call are an argument.
//
// Every presented credential must be valid: a caller with a bad token is refused even if its certificate would suffice.
// When no credentials are configured (an "open" daemon), every caller that reaches the daemon's addresses is admitted.
#ifndef HPVMD_SERVER_IDENTITY_AUTHENTICATOR_H_
#define HPVMD_SERVER_IDENTITY_AUTHENTICATOR_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/identity/directory.h"
#include "server/identity/principal.h"
#include "server/identity/token.h"

namespace hpvm::server {

// The address of a call's peer as gRPC reports it: "unix:/path", "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711".
struct PeerAddress {
  explicit PeerAddress(std::string_view peer);
  bool is_unix = false, is_loopback = false;
  // The address without the port; failures are counted by this key.
  std::string host;
};

// CallFacts holds what a call presents. The views are valid as long as the call.
struct CallFacts {
  std::string_view peer;
  std::vector<std::string_view> authorization;      // Values of the metadata authorization, in order.
  std::vector<std::string_view> certificate_names;  // Common names of a certificate that TLS has verified.
  bool is_encrypted = false;
  std::vector<std::string_view> wanted_tenants;  // Values of the metadata hpvm-tenant.
};

// Returns true when any [auth] key asks for credentials.
bool AsksForCredentials(const Config& config);

// Authenticator is thread-safe.
class Authenticator {
 public:
  // Borrows the directory, the mint and the clock. Reads from `config` only the keys whose change needs a restart.
  Authenticator(const Config& config, const Directory& directory, const TicketMint& mint, const Clock& clock)
      : tokens_(config.auth_tokens),
        certificates_(config.auth_certificates),
        peers_(config.auth_peers),
        directory_(directory),
        mint_(mint),
        clock_(clock) {}

  // Returns the caller with its own tenant. Returns kUnauthenticated with a message that reveals only what the caller
  // already knows; kUnavailable when the directory is too old (Directory::CheckFresh).
  StatusOr<Principal> Authenticate(const CallFacts& facts, const Config& config) const;
  // Returns the tenant on whose behalf the call acts: the caller's own, or another one for administrators. Returns
  // kPermissionDenied, kNotFound or kInvalidArgument otherwise.
  StatusOr<std::string> ActsFor(const Principal& principal, const CallFacts& facts, const Config& config) const;

 private:
  StatusOr<Principal> OfBearer(std::string_view authorization, const PeerAddress& address, bool is_encrypted,
                               const Config& config) const;
  StatusOr<Principal> OfToken(std::string_view secret) const;
  StatusOr<Principal> OfTicket(std::string_view ticket, const Config& config) const;
  StatusOr<Principal> OfCertificate(const std::vector<std::string_view>& names) const;
  Status WhatIsMissing(const PeerAddress& address) const;

  const bool tokens_, certificates_, peers_;
  const Directory& directory_;
  const TicketMint& mint_;
  const Clock& clock_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_AUTHENTICATOR_H_
