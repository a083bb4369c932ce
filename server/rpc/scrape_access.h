// SPDX-License-Identifier: Apache-2.0
// Who may see metrics that name tenants: a scraper with the secret of metrics.token_file, or an administrator with a
// token. Everybody else on the machine sees sums.
#ifndef HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_
#define HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/config/config.h"
#include "server/identity/authenticator.h"

namespace hpvm::server {

// The secret of that file; kInvalidArgument when it is too short to be one. Read at each use, so that it may be
// replaced while the daemon runs.
StatusOr<std::string> ReadScrapeSecret(const std::string& path);

// `authorization` is the field of an HTTP request; empty: there was none. Where no credentials are configured at all
// (`is_open`) nobody has any, and everybody sees everything unless there is a token file. kUnauthenticated for wrong
// ones.
StatusOr<bool> MaySeeTenants(std::string_view authorization, const Config& config, const Authenticator& authenticator,
                             bool is_open);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_
