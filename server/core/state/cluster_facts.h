// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_CORE_STATE_CLUSTER_FACTS_H_
#define HPVMD_SERVER_CORE_STATE_CLUSTER_FACTS_H_

#include <cstdint>

namespace hpvm::server {

// A host's knowledge of its cluster, as the database had it a few seconds ago.
struct ClusterFacts {
  bool database_answers = false;  // The other facts are the last answer's.
  // Hosts that have a lease, that lost it, and that ended it in order.
  uint64_t hosts_live = 0, hosts_lost = 0, hosts_left = 0;
  uint64_t running = 0, running_here = 0;  // Claimed jobs, of all hosts and of this one.
  bool runs_jobs = false;                  // The host's role is not "api".
  bool has_lease = false;                  // This host's.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_CLUSTER_FACTS_H_
