// SPDX-License-Identifier: Apache-2.0
// Identity combines the parts by which a daemon knows its callers: the directory on disk, tickets, and the sockets that
// hand out tickets.
#ifndef HPVMD_SERVER_IDENTITY_IDENTITY_H_
#define HPVMD_SERVER_IDENTITY_IDENTITY_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/audit/audit_log.h"
#include "server/config/config.h"
#include "server/identity/authenticator.h"
#include "server/identity/directory.h"
#include "server/identity/ticket_socket.h"
#include "server/identity/token.h"

namespace hpvm::server {

class StateFolder;

// Identity is thread-safe once the ticket sockets have been opened.
class Identity {
 public:
  // Reads FOLDER/identity.sqlite, and creates it when it is missing; or `shared`, the store of a cluster. Borrows clock
  // and rng.
  static StatusOr<std::unique_ptr<Identity>> Open(const Config& config, const std::string& folder, const Clock& clock,
                                                  Rng& rng, const OpenIdentityStore& shared = nullptr);
  // Opens a ticket socket beside each of these Unix sockets when auth.peers is set.
  Status OpenTicketSockets(const Config& config, const std::vector<std::string>& service_paths);
  // Creates the default tenant, whose name the new configuration may have changed, unless it exists.
  Status Reload(const Config& config) { return directory_->EnsureTenant(config.tenants_default); }

  Directory& directory() { return *directory_; }
  const Authenticator& authenticator() const { return authenticator_; }

 private:
  Identity(const Config& config, std::unique_ptr<Directory> directory, const Clock& clock, Rng& rng)
      : clock_(clock),
        mint_(rng),
        directory_(std::move(directory)),
        authenticator_(config, *directory_, mint_, clock) {}

  const Clock& clock_;
  const TicketMint mint_;
  const std::unique_ptr<Directory> directory_;
  const Authenticator authenticator_;
  std::unique_ptr<TicketSocket> tickets_;
};

// Appends a record to the audit log for a change that was made without a daemon.
Status NoteOffline(const Config& config, const StateFolder& folder, AuditRecord record);

// Creates a token in the state folder of a daemon that is not running: for the first administrator. Returns kNotFound
// when the tenant does not exist.
StatusOr<Directory::NewToken> CreateTokenOffline(const Config& config, const std::string& tenant,
                                                 const std::string& role, const OpenIdentityStore& shared = nullptr);

// Revokes every token in the state folder of a daemon that is not running: after a backup has been restored, tokens
// that were revoked since the backup would be valid again. Returns the number of revoked tokens.
StatusOr<uint64_t> RevokeAllTokensOffline(const Config& config, const OpenIdentityStore& shared = nullptr);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_IDENTITY_H_
