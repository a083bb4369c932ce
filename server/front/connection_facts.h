// SPDX-License-Identifier: Apache-2.0
// What is known of a client's connection. Found out when it is accepted and in its TLS handshake, and kept in one place
// until it is closed: by whoever has it then, at last by its Session.
#ifndef HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_
#define HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"

namespace hpvm::server {

// Who is at the other end.
struct ConnectionFacts {
  std::string peer;  // As gRPC would say it: "unix:", "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711".
  std::string who;   // Whose limits hold for it: an address, or "uid 1000".
  bool is_unix = false;
  Time accepted{0};
  bool is_encrypted = false;
  // Of a certificate that TLS has verified; one that is empty where it has none.
  std::vector<std::string> certificate_names;
};

// One of the connections that may be; free again when it is destroyed, on any thread.
using ConnectionPlace = std::shared_ptr<const void>;

struct AcceptedConnection {
  ConnectionFacts facts;
  ConnectionPlace place;  // Before the descriptor, which is closed when the place becomes free.
  UniqueFd fd;            // Does not block.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_
