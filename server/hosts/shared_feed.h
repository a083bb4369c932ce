// SPDX-License-Identifier: Apache-2.0
// SharedFeed reports changes of the cluster's jobs to the clients of this host that watch them.
//
// While clients watch a tenant's jobs, the feed reads the tenant's events from the store, when the database says that
// there are some, and otherwise each second. Where it cannot know what it missed (it begins, or the store has forgotten
// events), it tells the core so (JobClaims::TellGap) and reads the jobs that are followed one by one.
#ifndef HPVMD_SERVER_HOSTS_SHARED_FEED_H_
#define HPVMD_SERVER_HOSTS_SHARED_FEED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/round_thread.h"
#include "server/cluster/cluster_store.h"
#include "server/core/jobs/job_claims.h"

namespace hpvm::server {

// Thread-safe.
class SharedFeed {
 public:
  // Borrows both.
  SharedFeed(cluster::ClusterStore& store, JobClaims& claims);
  // Waits for a round in progress.
  ~SharedFeed() { thread_.Stop(); }

  void SetWatched(const std::string& tenant, bool is_watched);
  // There are events of that tenant, or, when it is empty, of any.
  void Wake(const std::string& tenant);

 private:
  struct Watched {
    std::optional<uint64_t> cursor;  // Unset: the feed has to begin.
    bool is_due = true;
  };
  Duration Round();
  // Returns false when there is more to read at once.
  StatusOr<bool> Read(const std::string& tenant);
  Status Begin(const std::string& tenant);
  void SetCursor(const std::string& tenant, std::optional<uint64_t> cursor);

  cluster::ClusterStore& store_;
  JobClaims& claims_;
  std::mutex mutex_;
  std::map<std::string, Watched> tenants_;
  bool is_failing_ = false;  // The last round could not read. Used by the thread only.
  RoundThread thread_;       // Last: it uses the others.
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_SHARED_FEED_H_
