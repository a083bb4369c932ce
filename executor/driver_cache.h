// SPDX-License-Identifier: Apache-2.0
// What drivers built, in a folder: one file a result, tagged with the tenant's key as the compiler's artifacts are, so
// that nothing is handed to a driver that did not come from here (drivers abort on damaged binaries). Nothing that goes
// wrong here fails a build.
//
// The folder is one of base/io/cache_folder.h; this program's build is part of every name, since it chooses what
// drivers are asked for.
#ifndef HPVMD_EXECUTOR_DRIVER_CACHE_H_
#define HPVMD_EXECUTOR_DRIVER_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backends/contract/driver_builder.h"
#include "base/hash.h"
#include "base/io/cache_folder.h"
#include "compiler/api/artifact.h"
#include "executor/driver_wire.h"

namespace hpvm {

class DriverCache {
 public:
  // An empty folder name gives a cache that holds nothing. Before any driver is loaded, whose own name is in requests.
  DriverCache(const std::string& folder, uint64_t bytes_max);

  // Of everything that the result depends on: this build, the driver, the request and the code.
  Sha256 NameOf(const DriverRequest& request) const;

  // A file whose tag is wrong is removed.
  std::optional<DriverBinary> Find(const Sha256& name, const ArtifactKey& key);
  void Store(const Sha256& name, const ArtifactKey& key, const DriverBinary& binary);

 private:
  const Sha256 build_;
  const uint64_t bytes_max_;  // Of one file.
  CacheFolder files_;
};

}  // namespace hpvm

#endif  // HPVMD_EXECUTOR_DRIVER_CACHE_H_
