// SPDX-License-Identifier: Apache-2.0
// Tagged artifacts in a folder (base/io/cache_folder.h), so that a module is compiled once by each build of the
// compiler, and beside them what devices have learnt of them. Nothing that goes wrong here fails a compile.
#ifndef HPVMD_COMPILER_DRIVER_ZYGOTE_CACHE_H_
#define HPVMD_COMPILER_DRIVER_ZYGOTE_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/io/cache_folder.h"
#include "compiler/api/artifact.h"
#include "compiler/api/service.h"

namespace hpvm {

// Names what an artifact depends on; `target` names the processor's features, `build` (base/io/build_id.h) is of this
// compiler, LLVM, and whatever else of a library takes part in such a compile.
Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, const Sha256& build);

class ArtifactCache {
 public:
  // What another build of the compiler wrote is removed. An empty folder name gives a cache that holds nothing.
  ArtifactCache(const std::string& folder, uint64_t bytes_max, const Sha256& build);

  // The tagged bytes, or nothing. A file whose tag or form is wrong is removed.
  std::optional<std::vector<uint8_t>> Find(const Sha256& name, const ArtifactKey& key);
  void Store(const Sha256& name, const std::vector<uint8_t>& bytes);

  // The same for a record of compiler/api/learnt.h, or of compiler/api/cost_record.h; empty when there is none. Its tag
  // covers kind and name, so that one kernel's record cannot be put in another's place.
  enum class Record : uint8_t { kLearnt, kCosts };
  std::vector<uint8_t> FindRecord(Record kind, const Sha256& name, const ArtifactKey& key);
  void StoreRecord(Record kind, const Sha256& name, const ArtifactKey& key, std::span<const uint8_t> record);

 private:
  CacheFolder files_;
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_DRIVER_ZYGOTE_CACHE_H_
