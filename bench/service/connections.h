// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench connections --direct HPVMD`: the cost of limiting connections. Compares this build's daemon with
// another one that passes sockets to gRPC directly, over Unix sockets and over TLS, in pairs: one round of each right
// after the other; the order alternates from pair to pair.
#ifndef HPVMD_BENCH_SERVICE_CONNECTIONS_H_
#define HPVMD_BENCH_SERVICE_CONNECTIONS_H_

#include <string>

#include "bench/service/service.h"

namespace hpvm::bench {

struct ConnectionOptions {
  ServiceOptions service;
  std::string direct;  // The other daemon's program; its executor is beside it.
  int pairs = 15;
};

int RunConnections(const ConnectionOptions& options, const std::string& command);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_CONNECTIONS_H_
