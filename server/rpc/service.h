// SPDX-License-Identifier: Apache-2.0
// GrpcServer is the gRPC server around the core.
#ifndef HPVMD_SERVER_RPC_SERVICE_H_
#define HPVMD_SERVER_RPC_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "server/config/config.h"
#include "server/process/intake_file.h"

namespace grpc {
class ServerBuilder;
}

namespace hpvm::server {

class AuditLog;
class Authenticator;
class ConfigInForce;
class Core;
class Directory;
class HostAdmin;
class Observer;
struct LocalCallers;

// Objects for authentication, the audit, and operators' requests. Borrowed; must outlive the server.
struct Access {
  Directory* directory = nullptr;
  const Authenticator* authenticator = nullptr;
  AuditLog* audit = nullptr;
  std::string accounts_file;              // Tenants' usage (server/accounts).
  const ConfigInForce* config = nullptr;  // The server's information about its configuration.
  // Stores durably whether the server accepts new work; blocks. kUnavailable when that failed.
  std::function<Status(const Intake&)> keep_intake = [](const Intake&) { return absl::OkStatus(); };
  HostAdmin* hosts = nullptr;  // Null: the server is not part of a cluster.
};

// Listening sockets, hpvm.v1, grpc.health.v1 and, when configured, reflection.
class GrpcServer {
 public:
  // Returns a server that serves. With an empty `local` no memory is shared with clients. kUnavailable naming the
  // address that cannot be bound.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(Core& core, const std::vector<ListenAddress>& addresses,
                                                     const Access& access, const LocalCallers& local);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Returns the addresses as clients would write them, with the actual ports.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Sets grpc.health.v1: the name "" says whether the daemon is live, "hpvm.Ready" and "hpvm.v1.Hpvm" whether it
  // accepts work. At first it is live and not ready.
  void SetHealth(bool live, bool ready);
  // Reports not ready from now on, whatever SetHealth says; calls continue.
  void AnnounceEnd();
  // Accepts no new calls; cuts off those in progress after `grace`.
  void Shutdown(Duration grace);

 private:
  struct Parts;  // gRPC's objects, which this header hides.
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
