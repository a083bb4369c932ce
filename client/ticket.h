// SPDX-License-Identifier: Apache-2.0
// Tickets: how a local process is known by its user id. The server answers on a socket beside its own with a line that
// proves for a while, to that server, who asked.
#ifndef HPVMD_CLIENT_TICKET_H_
#define HPVMD_CLIENT_TICKET_H_

#include <memory>
#include <string>

#include "client/bearer.h"

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

struct Ticket {
  std::string text;      // Empty: the server has no such socket, and wants none.
  Duration lifetime{0};  // 0: it does not say.
};
// Connects to `path` and reads one line: "hpvmt_… SECONDS" or "error: why". kUnavailable when no line comes `within`,
// kUnauthenticated with the server's reason.
StatusOr<Ticket> FetchTicket(const std::string& path, Duration within);

// Fetched when first needed, again before it expires, and when it is refused. `clock` outlives it.
std::unique_ptr<Bearer> MakeTicketBearer(std::string path, const Clock& clock);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_TICKET_H_
