// SPDX-License-Identifier: Apache-2.0
// A minimal gRPC server in a separate process: peers "grpc_minimal" and "grpc_stream", which are synchronous, and
// "grpc_callback".
#ifndef HPVMD_BENCH_SERVICE_PEER_SERVER_H_
#define HPVMD_BENCH_SERVICE_PEER_SERVER_H_

#include <string>

namespace hpvm::bench {

// Serves at `endpoint` ("unix:/path") until SIGTERM. The entire main of the peer process. Returns an exit code.
int ServePeer(const std::string& endpoint);

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_PEER_SERVER_H_
