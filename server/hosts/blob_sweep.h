// SPDX-License-Identifier: Apache-2.0
// BlobSweep removes files from the folder that the hosts of a cluster share, when no job needs them.
//
// Method: mark and sweep, tenant by tenant, by each host at times of its own. A file is removed when it has not been
// used for `keep_unused` and no job of the tenant names it, in two sweeps that are at least `between` apart. A host
// that stores a job marks its files as used before the job's row is written (BlobFolder::SetShared), so a file that a
// new job needs is young when the second sweep opens it.
#ifndef HPVMD_SERVER_HOSTS_BLOB_SWEEP_H_
#define HPVMD_SERVER_HOSTS_BLOB_SWEEP_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io/disk.h"
#include "base/status.h"
#include "server/cluster/cluster_store.h"

namespace hpvm::server {

struct BlobSweepOptions {
  std::string folder;
  Duration keep_unused = std::chrono::hours(24);
  Duration between = std::chrono::minutes(10);
};

// Used by one thread.
class BlobSweep {
 public:
  // Borrows all of them. Times of files are compared with the clock's WallNs.
  BlobSweep(BlobSweepOptions options, cluster::ClusterStore& store, Disk& disk, const Clock& clock)
      : options_(std::move(options)), store_(store), disk_(disk), clock_(clock) {}

  // Looks at all files, and waits for the store. Returns how many it removed, or the first error, which leaves the
  // other files of its tenant alone.
  StatusOr<uint64_t> Run();

 private:
  using Used = std::set<std::string>;  // Names of files.
  StatusOr<Used> FindUsed(const std::string& tenant);
  Status SweepTenant(const std::string& tenant);
  Status SweepFolder(const std::string& folder, const Used& used);
  // Returns true when the file was not changed within keep_unused.
  StatusOr<bool> IsOld(const std::string& path);

  const BlobSweepOptions options_;
  cluster::ClusterStore& store_;
  Disk& disk_;
  const Clock& clock_;
  std::map<std::string, Time> unused_;  // Paths that a sweep found unused, and when it first did.
  std::map<std::string, Time> seen_;    // The same of the sweep in progress.
  uint64_t removed_ = 0;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_HOSTS_BLOB_SWEEP_H_
