// SPDX-License-Identifier: Apache-2.0
// ClusterAdmin answers the calls about hosts (server/rpc/host_admin.h) from the cluster's store.
#ifndef HPVMD_SERVER_CLUSTER_ADMIN_H_
#define HPVMD_SERVER_CLUSTER_ADMIN_H_

#include <string>
#include <utility>

#include "server/cluster/cluster_store.h"
#include "server/rpc/host_admin.h"

namespace hpvm::server {

class ClusterAdmin final : public HostAdmin {
 public:
  // Borrows the store. `self` is this host's name.
  ClusterAdmin(cluster::ClusterStore& store, std::string self) : store_(store), self_(std::move(self)) {}

  void List(v1::ListHostsResponse* response, Done done) override;
  void SetIntake(const std::string& host, v1::HostIntake intake, v1::Host* host_out, Done done) override;

 private:
  void Fill(const cluster::HostView& view, v1::Host* host) const;

  cluster::ClusterStore& store_;
  const std::string self_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CLUSTER_ADMIN_H_
