// SPDX-License-Identifier: Apache-2.0
// HostAdmin is what the calls about hosts need of a cluster.
#ifndef HPVMD_SERVER_RPC_HOST_ADMIN_H_
#define HPVMD_SERVER_RPC_HOST_ADMIN_H_

#include <functional>
#include <string>

#include "hpvm/v1/operations.pb.h"
#include "server/core/state/outcome.h"

namespace hpvm::server {

// Thread-safe. No call waits for the cluster's database. `done` is called once, on any thread, also before the call
// returns; what is filled stays valid until then, and the server does not end before.
class HostAdmin {
 public:
  virtual ~HostAdmin() = default;
  using Done = std::function<void(const Outcome&)>;

  // Fills every host that has joined, by name.
  virtual void List(v1::ListHostsResponse* response, Done done) = 0;
  // Stores the setting durably, and fills the host with it. `intake` is a known value. kNotFound when no host of that
  // name ever joined.
  virtual void SetIntake(const std::string& host, v1::HostIntake intake, v1::Host* host_out, Done done) = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_RPC_HOST_ADMIN_H_
