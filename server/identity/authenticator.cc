// SPDX-License-Identifier: Apache-2.0
#include "server/identity/authenticator.h"

#include <algorithm>
#include <utility>

#include "server/identity/tenant_rules.h"

namespace hpvm::server {
namespace {

Status Denied(std::string_view message) { return MakeStatus(absl::StatusCode::kPermissionDenied, message); }

constexpr size_t kCertificateShownMax = 64;

// Returns a name from a certificate, made safe for logs: a trusted authority signed it, but it may still hold any
// bytes.
std::string Tamed(std::string_view text) {
  std::string tamed(text.substr(0, kCertificateShownMax));
  std::replace_if(
      tamed.begin(), tamed.end(),
      [](char c) { return static_cast<uint8_t>(c) < 0x20 || static_cast<uint8_t>(c) >= 0x7f; }, '?');
  return tamed;
}

}  // namespace

PeerAddress::PeerAddress(std::string_view peer) {
  is_unix = peer.starts_with("unix");
  if (is_unix) {
    host = "unix";
    return;
  }
  const size_t scheme = peer.find(':'), port = peer.rfind(':');
  if (scheme == std::string_view::npos || port <= scheme) {
    host = "unknown";
    return;
  }
  std::string_view name = peer.substr(scheme + 1, port - scheme - 1);
  // Removes one pair of brackets, in the forms that gRPC writes.
  for (const auto& [open, close] :
       {std::pair<std::string_view, std::string_view>{"%5B", "%5D"}, {"%5b", "%5d"}, {"[", "]"}}) {
    if (name.size() >= open.size() + close.size() && name.starts_with(open) && name.ends_with(close)) {
      name = name.substr(open.size(), name.size() - open.size() - close.size());
      break;
    }
  }
  host = std::string(name);
  is_loopback = (peer.starts_with("ipv6:") && host == "::1") ||
                (peer.starts_with("ipv4:127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

bool AsksForCredentials(const Config& config) {
  return config.auth_tokens || config.auth_certificates || config.auth_peers;
}

StatusOr<Principal> Authenticator::Authenticate(const CallFacts& facts, const Config& config) const {
  const PeerAddress address(facts.peer);
  if (!tokens_ && !certificates_ && !peers_) {
    return Principal{config.tenants_default, address.is_unix ? Role::kAdmin : Role::kUser,
                     address.is_unix ? "anyone (unix)" : "anyone (loopback)", std::string(facts.peer)};
  }
  StatusOr<Principal> principal = WhatIsMissing(address);
  if (facts.authorization.size() > 1) {
    return Unauthenticated("The call has " + std::to_string(facts.authorization.size()) +
                           " values of the metadata authorization; one is allowed.");
  }
  if (!facts.authorization.empty()) {
    principal = OfBearer(facts.authorization[0], address, facts.is_encrypted, config);
  } else if (certificates_ && !facts.certificate_names.empty()) {
    principal = OfCertificate(facts.certificate_names);
  }
  if (principal.ok()) {
    principal->peer = std::string(facts.peer);
  }
  return principal;
}

StatusOr<Principal> Authenticator::OfBearer(std::string_view authorization, const PeerAddress& address,
                                            bool is_encrypted, const Config& config) const {
  const std::optional<std::string_view> credential = BearerOf(authorization);
  if (!credential.has_value()) {
    return Unauthenticated("The metadata authorization does not have the form \"Bearer TOKEN\".");
  }
  if (IsTicket(*credential)) {
    if (!peers_ || !address.is_unix) {
      return Unauthenticated("Tickets are accepted on this daemon's Unix sockets only, with auth.peers.");
    }
    return OfTicket(*credential, config);
  }
  if (!tokens_) {
    return Unauthenticated("This daemon accepts no tokens (auth.tokens).");
  }
  if (!address.is_unix && !address.is_loopback && !is_encrypted) {
    return Unauthenticated("Tokens are accepted over TLS only, and this connection does not use TLS.");
  }
  return OfToken(*credential);
}

StatusOr<Principal> Authenticator::OfToken(std::string_view secret) const {
  HPVMD_RETURN_IF_ERROR(directory_.CheckFresh());
  const std::optional<Sha256> hash = HashOfTokenSecret(secret);
  const TokenRecordRef found = hash.has_value() ? directory_.FindToken(*hash) : nullptr;
  if (found == nullptr) {
    return Unauthenticated("The token is not known.");
  }
  // A caller that gets this far has presented the right secret, so the messages below reveal nothing to others.
  const v1::Token& token = found->token;
  if (token.revoked_unix_ns() != 0) {
    return Unauthenticated("The token (" + token.id() + ") was revoked.");
  }
  if (clock_.WallNs() >= token.expires_unix_ns()) {
    return Unauthenticated("The token (" + token.id() + ") has expired.");
  }
  HPVMD_ASSIGN_OR_RETURN(const Role role, RoleOf(token.role()));
  return Principal{token.tenant(), role, "token " + token.id(), ""};
}

StatusOr<Principal> Authenticator::OfTicket(std::string_view ticket, const Config& config) const {
  HPVMD_ASSIGN_OR_RETURN(const LocalUser user, mint_.Check(ticket, clock_.Now()));
  const std::string who = "uid " + std::to_string(user.uid);
  // This machine says who its administrators are, so they can look after a daemon whose cluster's database is away.
  if (directory_.IsAdministrator(user.uid)) {
    return Principal{config.tenants_default, Role::kAdmin, who, ""};
  }
  HPVMD_RETURN_IF_ERROR(directory_.CheckFresh());
  // Every call looks the tenant up again, so that removing a user id or a group from a tenant takes effect at once.
  std::optional<std::string> tenant = directory_.TenantOfUid(user.uid);
  if (!tenant.has_value() && user.gid.has_value()) {
    tenant = directory_.TenantOfGid(*user.gid);
  }
  if (!tenant.has_value()) {
    return Unauthenticated("User id " + std::to_string(user.uid) + " belongs to no tenant.");
  }
  return Principal{*tenant, Role::kUser, who, ""};
}

StatusOr<Principal> Authenticator::OfCertificate(const std::vector<std::string_view>& names) const {
  if (names.size() != 1 || names[0].empty()) {
    return Unauthenticated("The client's certificate has not exactly one common name.");
  }
  HPVMD_RETURN_IF_ERROR(directory_.CheckFresh());
  const std::optional<std::string> tenant = directory_.TenantOfCertificate(names[0]);
  if (!tenant.has_value()) {
    return Unauthenticated("The common name of the client's certificate (\"" + Tamed(names[0]) +
                           "\") belongs to no tenant.");
  }
  return Principal{*tenant, Role::kUser, "certificate cn=" + Tamed(names[0]), ""};
}

Status Authenticator::WhatIsMissing(const PeerAddress& address) const {
  std::string ways;
  const auto add = [&ways](std::string_view way) { ways += (ways.empty() ? "" : " or ") + std::string(way); };
  if (tokens_) {
    add("a token");
  }
  if (certificates_ && !address.is_unix) {
    add("a client certificate");
  }
  if (peers_ && address.is_unix) {
    add("a ticket from the socket beside this one");
  }
  return Unauthenticated("The call has no credentials" +
                         (ways.empty() ? std::string("; this address accepts none.") : ": it needs " + ways + "."));
}

StatusOr<std::string> Authenticator::ActsFor(const Principal& principal, const CallFacts& facts,
                                             const Config& config) const {
  if (facts.wanted_tenants.empty()) {
    return principal.tenant;
  }
  if (facts.wanted_tenants.size() > 1) {
    return InvalidArgument("The call names several tenants (" + std::to_string(facts.wanted_tenants.size()) +
                           " values of the metadata hpvm-tenant).");
  }
  const std::string_view wanted = facts.wanted_tenants[0];
  if (wanted == principal.tenant) {
    return principal.tenant;
  }
  if (!IsTenantName(wanted)) {
    return InvalidArgument("The tenant's name in the metadata hpvm-tenant (" + std::to_string(wanted.size()) +
                           " bytes) is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  const bool is_believed = directory_.is_open() && config.tenants_from_metadata;
  if (!is_believed && principal.role < Role::kAdmin) {
    return Denied("Only administrators may act for another tenant.");
  }
  if (directory_.Find(wanted, config) == nullptr) {
    return NotFound("There is no tenant \"" + std::string(wanted) + "\".");
  }
  return std::string(wanted);
}

}  // namespace hpvm::server
