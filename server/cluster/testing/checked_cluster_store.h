// SPDX-License-Identifier: Apache-2.0
// CheckedClusterStore is a ClusterStore that lets tests and simulations see each change. It answers each call before
// the call returns.
#ifndef HPVMD_SERVER_CLUSTER_TESTING_CHECKED_CLUSTER_STORE_H_
#define HPVMD_SERVER_CLUSTER_TESTING_CHECKED_CLUSTER_STORE_H_

#include <functional>
#include <string>

#include "server/cluster/cluster_store.h"

namespace hpvm::server::cluster {

class CheckedClusterStore : public ClusterStore {
 public:
  // Called after each insert, with `before` empty, and after each change of a job's state.
  std::function<void(const NewJob&, const JobView& before, const JobView& after)> on_change;
  // The store's counters.
  virtual size_t running(const std::string& tenant) const = 0;
  virtual size_t waiting(const std::string& tenant) const = 0;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_TESTING_CHECKED_CLUSTER_STORE_H_
