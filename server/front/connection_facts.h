// SPDX-License-Identifier: Apache-2.0
// ConnectionFacts describes a client's connection. The facts are collected when the connection is accepted and in its
// TLS handshake, and are kept in one place until it is closed: by its current owner, in the end its Session.
#ifndef HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_
#define HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"

namespace hpvm::server {

// Identity of the peer.
struct ConnectionFacts {
  std::string peer;  // In gRPC's form: "unix:", "ipv4:127.0.0.1:4711", "ipv6:%5B::1%5D:4711".
  std::string who;   // Key of the limits that apply to it: an address, or "uid 1000".
  bool is_unix = false;
  Time accepted{0};
  bool is_encrypted = false;
  // Names of a certificate that TLS has verified; one empty name when the certificate has none.
  std::vector<std::string> certificate_names;
};

// ConnectionPlace is one of the permitted connections; destroying it, on any thread, frees the place.
using ConnectionPlace = std::shared_ptr<const void>;

struct AcceptedConnection {
  ConnectionFacts facts;
  ConnectionPlace place;  // Declared before the descriptor, which is thus closed before the place becomes free.
  UniqueFd fd;            // Non-blocking.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_CONNECTION_FACTS_H_
