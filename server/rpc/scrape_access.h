// SPDX-License-Identifier: Apache-2.0
// Access to metrics that name tenants: for a scraper with the secret of metrics.token_file, or an administrator with
// a token. Other users of the machine see sums.
#ifndef HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_
#define HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_

#include <string>
#include <string_view>

#include "base/status.h"
#include "server/config/config.h"
#include "server/identity/authenticator.h"

namespace hpvm::server {

// Returns the secret of that file; kInvalidArgument when it is too short. Read at each use, so that it may be
// replaced while the daemon runs.
StatusOr<std::string> ReadScrapeSecret(const std::string& path);

// `authorization` is the field of an HTTP request; empty when missing. Without configured credentials (`is_open`),
// everybody sees everything unless there is a token file. kUnauthenticated for wrong credentials; kUnavailable when a
// cluster's tokens are too old to count.
StatusOr<bool> MaySeeTenants(std::string_view authorization, const Config& config, const Authenticator& authenticator,
                             bool is_open);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_SCRAPE_ACCESS_H_
