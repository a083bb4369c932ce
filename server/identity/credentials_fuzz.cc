// SPDX-License-Identifier: Apache-2.0
// Fuzzes authentication with the facts of a hostile client's call: authorization metadata, certificate names, addresses
// and the tenant that the call wants to act for. A caller is admitted only with an issued token, ticket or certificate
// name, complete and in the right form.
//
// In the input the byte 0xff followed by a digit stands for a secret, so that the bytes around a valid secret are
// fuzzed too: 0 a user's token, 1 an administrator's token, 2 a revoked token, 3 an expired token, 4 a user's ticket, 5
// root's ticket, 6 an expired ticket, 7 another daemon's ticket, 8 the certificate's name, 9 the tenant's name.
#include <stddef.h>

#include <string>
#include <vector>

#include "server/identity/authenticator.h"

namespace hpvm::server {
namespace {

constexpr uint32_t kUid = 1'000;

struct World {
  World() {
    DirectoryOptions options;
    options.clock = &clock;
    options.rng = &rng;
    options.is_open = false;
    directory = *Directory::Open(std::move(options));
    for (const char* name : {"local", "blue", "red"}) {
      v1::Tenant tenant;
      tenant.set_name(name);
      tenant.set_weight(100);
      if (tenant.name() == "blue") {
        tenant.add_uids(kUid);
        tenant.add_certificate_names("blue.example");
      }
      HPVMD_CHECK(directory->CreateTenant(tenant, 10).ok());
    }
    const auto token = [this](Role role, uint64_t lifetime_ns) {
      return *directory->CreateToken({"blue", "", "", role, lifetime_ns});
    };
    const Directory::NewToken expired = token(Role::kUser, 1);
    const Directory::NewToken revoked = token(Role::kUser, 0);
    HPVMD_CHECK(directory->RevokeToken(revoked.token.id()).ok());
    const std::string late = mint.Issue({kUid, std::nullopt}, clock.Now());
    clock.Advance(TicketMint::kLifetime);
    secrets = {token(Role::kUser, 0).secret,
               token(Role::kAdmin, 0).secret,
               revoked.secret,
               expired.secret,
               mint.Issue({kUid, std::nullopt}, clock.Now()),
               mint.Issue({0, std::nullopt}, clock.Now()),
               late,
               TicketMint(rng).Issue({kUid, std::nullopt}, clock.Now()),
               "blue.example",
               "blue"};
  }
  ManualClock clock;
  SeededRng rng{1};
  TicketMint mint{rng};
  std::unique_ptr<Directory> directory;
  std::vector<std::string> secrets;
};

std::string Fill(std::string_view text, const World& world) {
  std::string filled;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\xff' && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') {
      filled += world.secrets[static_cast<size_t>(text[++i] - '0')];
    } else {
      filled += text[i];
    }
  }
  return filled;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return text;
}

// Returns true when the documented rules, implemented here independently of the code, admit this caller.
bool HasProof(const World& world, const CallFacts& facts, const Config& config, const Principal& got) {
  if (facts.authorization.size() == 1) {
    const std::string shown(facts.authorization[0]);
    const auto shows = [&](size_t secret) {
      return shown.size() == 7 + world.secrets[secret].size() && Lower(shown.substr(0, 7)) == "bearer " &&
             shown.substr(7) == world.secrets[secret];
    };
    const bool is_safe = facts.is_encrypted || facts.peer.starts_with("unix") || facts.peer.starts_with("ipv4:127.") ||
                         facts.peer.find("::1") != std::string_view::npos;
    return (config.auth_tokens && is_safe && shows(0) && got.role == Role::kUser && got.tenant == "blue") ||
           (config.auth_tokens && is_safe && shows(1) && got.role == Role::kAdmin && got.tenant == "blue") ||
           (config.auth_peers && facts.peer.starts_with("unix") && shows(4) && got.role == Role::kUser &&
            got.tenant == "blue") ||
           (config.auth_peers && facts.peer.starts_with("unix") && shows(5) && got.role == Role::kAdmin);
  }
  return facts.authorization.empty() && config.auth_certificates && facts.certificate_names.size() == 1 &&
         facts.certificate_names[0] == "blue.example" && got.role == Role::kUser && got.tenant == "blue";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World& world = *new World();
  if (size < 2) {
    return 0;
  }
  Config config;
  config.auth_tokens = (data[0] & 1) != 0;
  config.auth_certificates = (data[0] & 2) != 0;
  config.auth_peers = (data[0] & 4) != 0 || (data[0] & 3) == 0;
  // The first line is the peer's address. Each further line is A… (authorization), C… (certificate name) or T…
  // (tenant).
  std::vector<std::string> lines(1);
  for (const char c : std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1)) {
    if (c == '\n' && lines.size() < 16) {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  for (std::string& line : lines) {
    line = Fill(line, world);
  }
  CallFacts facts;
  facts.is_encrypted = (data[0] & 8) != 0;
  facts.peer = lines[0];
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::string_view value = std::string_view(lines[i]).substr(lines[i].empty() ? 0 : 1);
    switch (lines[i].empty() ? '\0' : lines[i][0]) {
      case 'A':
        facts.authorization.push_back(value);
        break;
      case 'C':
        facts.certificate_names.push_back(value);
        break;
      case 'T':
        facts.wanted_tenants.push_back(value);
        break;
      default:
        break;
    }
  }
  const Authenticator authenticator(config, *world.directory, world.mint, world.clock);
  const StatusOr<Principal> got = authenticator.Authenticate(facts, config);
  if (!got.ok()) {
    HPVMD_CHECK(got.status().code() == absl::StatusCode::kUnauthenticated);
    // No answer repeats a secret.
    for (size_t i = 0; i < 8; ++i) {
      HPVMD_CHECK(Message(got.status()).find(world.secrets[i]) == std::string::npos);
    }
    return 0;
  }
  HPVMD_CHECK(HasProof(world, facts, config, *got));
  const StatusOr<std::string> tenant = authenticator.ActsFor(*got, facts, config);
  if (tenant.ok() && *tenant != got->tenant) {
    HPVMD_CHECK(got->role == Role::kAdmin && facts.wanted_tenants.size() == 1 && *tenant == facts.wanted_tenants[0]);
    HPVMD_CHECK(world.directory->FindTenant(*tenant) != nullptr);
  }
  return 0;
}

}  // namespace hpvm::server
