// SPDX-License-Identifier: Apache-2.0
// What a daemon knows callers by, put together: the directory on disk, tickets, and the sockets that hand them out.
#ifndef HPVMD_SERVER_IDENTITY_IDENTITY_H_
#define HPVMD_SERVER_IDENTITY_IDENTITY_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/identity/authenticator.h"
#include "server/identity/directory.h"
#include "server/identity/ticket_socket.h"
#include "server/identity/token.h"

namespace hpvm::server {

// Any thread, but for opening.
class Identity {
 public:
  // Reads FOLDER/identity.sqlite, and makes it when it is missing. Borrows clock and rng.
  static StatusOr<std::unique_ptr<Identity>> Open(const Config& config, const std::string& folder, const Clock& clock,
                                                  Rng& rng);
  // With auth.peers: tickets beside these Unix sockets.
  Status OpenTicketSockets(const Config& config, const std::vector<std::string>& service_paths);
  // The default tenant may have another name now.
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

// Makes a token without a daemon, in the state folder of one that does not run: for the first administrator. Makes the
// tenant if it is missing.
StatusOr<Directory::NewToken> CreateTokenOffline(const Config& config, const std::string& tenant,
                                                 const std::string& role);

// Without a daemon, in the state folder of one that does not run: every token that is valid is revoked, as after a
// backup was restored in which tokens are valid that were revoked since. Returns how many.
StatusOr<uint64_t> RevokeAllTokensOffline(const Config& config);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_IDENTITY_IDENTITY_H_
