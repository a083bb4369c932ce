// SPDX-License-Identifier: Apache-2.0
// From what a call shows to who makes it. Without gRPC: a call's facts are an argument.
//
// What is shown must be right: a caller with a bad token is refused even if its certificate would do. Without
// credentials configured ("open"), whoever reaches the daemon's addresses is believed.
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

// Where a call comes from, as gRPC says it: "unix:/path", "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711".
struct PeerAddress {
  explicit PeerAddress(std::string_view peer);
  bool is_unix = false, is_loopback = false;
  // Without the port: what failures are counted by.
  std::string host;
};

// Views last as long as the call.
struct CallFacts {
  std::string_view peer;
  std::vector<std::string_view> authorization;      // Values of that metadata, in order.
  std::vector<std::string_view> certificate_names;  // Common names of a certificate that TLS has verified.
  bool is_encrypted = false;
  std::vector<std::string_view> wanted_tenants;  // Values of the metadata hpvm-tenant.
};

// Whether any [auth] key asks for credentials.
bool AsksForCredentials(const Config& config);

// Any thread.
class Authenticator {
 public:
  // Borrows the directory and the mint. Of `config` what needs a restart.
  Authenticator(const Config& config, const Directory& directory, const TicketMint& mint, const Clock& clock)
      : tokens_(config.auth_tokens),
        certificates_(config.auth_certificates),
        peers_(config.auth_peers),
        directory_(directory),
        mint_(mint),
        clock_(clock) {}

  // kUnauthenticated, saying as much as the caller knows already. The tenant is the caller's own.
  StatusOr<Principal> Authenticate(const CallFacts& facts, const Config& config) const;
  // In whose name the call acts: the caller's own tenant, or another for administrators. kPermissionDenied,
  // kNotFound, kInvalidArgument.
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
