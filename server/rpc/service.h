// SPDX-License-Identifier: Apache-2.0
// The gRPC server around the core.
#ifndef HPVMD_SERVER_RPC_SERVICE_H_
#define HPVMD_SERVER_RPC_SERVICE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/rpc/operations_calls.h"
#include "server/config/config.h"

namespace grpc {
class ServerBuilder;
}

namespace hpvm::server {

class AuditLog;
class Authenticator;
class Core;
class Directory;
class Observer;
struct LocalCallers;

// Who may come in, and where it is written down. Borrowed; live longer than the server.
struct Access {
  Directory* directory = nullptr;
  const Authenticator* authenticator = nullptr;
  AuditLog* audit = nullptr;
  KeepIntake keep_intake = [](const Intake&) { return absl::OkStatus(); };
};

// Listening sockets, hpvm.v1, grpc.health.v1 and, when configured, reflection.
class GrpcServer {
 public:
  // Serves when it returns. Where `local` is empty no memory is shared with clients.
  // kUnavailable naming the address that cannot be had.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(Core& core, const std::vector<ListenAddress>& addresses,
                                                     const Access& access, const LocalCallers& local);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // As clients would write them, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // grpc.health.v1: the name "" says whether the daemon lives, "hpvm.Ready" and "hpvm.v1.Hpvm" whether it takes work.
  // At first it lives, and takes no work.
  void SetHealth(bool live, bool ready);
  // It takes no more work, whatever SetHealth says; calls go on.
  void AnnounceEnd();
  // No new calls; cuts those in progress off after `grace`.
  void Shutdown(Duration grace);

 private:
  struct Parts;  // gRPC's objects, kept out of this header.
  GrpcServer();
  Status Listen(const Config& config, const std::vector<ListenAddress>& addresses, Observer& observer,
                grpc::ServerBuilder& builder);
  std::unique_ptr<Parts> parts_;
  std::atomic<bool> ends_{false};
  std::vector<std::string> addresses_;
  std::vector<std::string> socket_paths_;  // Removed at the end.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_SERVICE_H_
