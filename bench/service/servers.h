// SPDX-License-Identifier: Apache-2.0
// A daemon and the minimal gRPC peer for the cases of `hpvm-bench overhead`.
#ifndef HPVMD_BENCH_SERVICE_SERVERS_H_
#define HPVMD_BENCH_SERVICE_SERVERS_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/processes.h"
#include "bench/service/service_daemon.h"
#include "hpvm/client.h"

namespace hpvm::bench {

// A daemon with the copy graph prepared, and a peer; both live as long as this object.
struct Servers {
  TemporaryFolder folder;
  std::vector<Process> processes;
  std::string daemon, peer, handle;
  std::unique_ptr<Client> client;

  static StatusOr<std::unique_ptr<Servers>> Start() {
    auto servers = std::make_unique<Servers>();
    servers->daemon = "unix:" + servers->folder.path() + "/hpvmd.sock";
    servers->peer = "unix:" + servers->folder.path() + "/peer.sock";
    const std::string state = servers->folder.path() + "/state";
    HPVMD_RETURN_IF_ERROR(
        servers->Add({ProgramFolder() + "/hpvmd", "--dev", "--listen", servers->daemon, "--state", state}));
    HPVMD_RETURN_IF_ERROR(servers->Add({ProgramFolder() + "/hpvm-bench", "serve-peer", servers->peer}));
    HPVMD_ASSIGN_OR_RETURN(servers->client,
                           Client::Connect({.endpoint = servers->daemon, .connect_timeout = std::chrono::seconds(20)}));
    HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> kernels, ReadBenchKernels());
    HPVMD_ASSIGN_OR_RETURN(Prepared prepared, servers->client->Prepare(GraphDocument("copy"),
                                                                       {.bytes = {{"bench", kernels}}, .hashes = {}}));
    servers->handle = prepared.handle;
    return servers;
  }

  Status Add(const std::vector<std::string>& command) {
    HPVMD_ASSIGN_OR_RETURN(Process process, Process::Start(command));
    processes.push_back(std::move(process));
    return absl::OkStatus();
  }
};

}  // namespace hpvm::bench

#endif  // HPVMD_BENCH_SERVICE_SERVERS_H_
