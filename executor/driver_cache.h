// SPDX-License-Identifier: Apache-2.0
// What drivers built, in a folder: one file a result, tagged with the tenant's key as the compiler's artifacts are, so
// that nothing is handed to a driver that did not come from here (drivers abort on damaged binaries). Nothing that goes
// wrong here fails a build.
//
// Several processes of one tenant may share the folder: files appear whole and never change; the oldest are removed.
#ifndef HPVMD_EXECUTOR_DRIVER_CACHE_H_
#define HPVMD_EXECUTOR_DRIVER_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backends/driver_builder.h"
#include "base/fd.h"
#include "base/hash.h"
#include "compiler/artifact.h"
#include "executor/driver_wire.h"

namespace hpvm {

class DriverCache {
 public:
  // An empty folder name, or a folder that cannot be opened, gives a cache that holds nothing.
  DriverCache(const std::string& folder, uint64_t bytes_max);

  // Of everything that the result depends on: the driver, the request and the code.
  static Sha256 NameOf(const DriverRequest& request);

  // A file whose tag is wrong is removed.
  std::optional<DriverBinary> Find(const Sha256& name, const ArtifactKey& key);
  void Store(const Sha256& name, const ArtifactKey& key, const DriverBinary& binary);

 private:
  void MakeRoom(uint64_t bytes);

  UniqueFd folder_;
  const uint64_t bytes_max_;
  uint64_t stored_ = 0;  // For the names of files being written.
};

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_DRIVER_CACHE_H_
