// SPDX-License-Identifier: Apache-2.0
// Tickets identify a local process by its user id. The server answers on a socket beside its own with a line that
// proves to that same server, for a limited time, who asked.
#ifndef HPVMD_CLIENT_TICKET_H_
#define HPVMD_CLIENT_TICKET_H_

#include <memory>
#include <string>

#include "client/bearer.h"

#include "base/clock.h"
#include "base/status.h"

namespace hpvm {

struct Ticket {
  std::string text;      // Empty when the server has no such socket and needs none.
  Duration lifetime{0};  // 0 when the server does not state it.
};
// Connects to `path` and reads one line: "hpvmt_… SECONDS" or "error: why". kUnavailable when no line arrives
// `within`, kUnauthenticated with the server's reason.
StatusOr<Ticket> FetchTicket(const std::string& path, Duration within);

// The ticket is fetched when first needed, again before it expires, and when it is refused. `clock` must outlive the
// bearer.
std::unique_ptr<Bearer> MakeTicketBearer(std::string path, const Clock& clock);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_TICKET_H_
