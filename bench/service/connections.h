// SPDX-License-Identifier: Apache-2.0
// `hpvm-bench connections --direct HPVMD`: what limiting connections costs. This build's daemon beside another one that
// hands sockets to gRPC as they are, over Unix sockets and over TLS, in pairs: one round of each right after the other;
// who begins changes from pair to pair.
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
