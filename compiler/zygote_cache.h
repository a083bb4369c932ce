// SPDX-License-Identifier: Apache-2.0
// Tagged artifacts in a folder, so that a module is compiled once, and beside them what devices have learnt of them.
// Nothing that goes wrong here fails a compile: it costs a line on stderr.
//
// Several zygotes of one tenant may share a folder: files appear whole (written aside, then renamed) and are never
// changed.
#ifndef HPVMD_COMPILER_ZYGOTE_CACHE_H_
#define HPVMD_COMPILER_ZYGOTE_CACHE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/hash.h"
#include "compiler/artifact.h"
#include "compiler/service.h"

namespace hpvm {

// Names what an artifact depends on; `target` names the processor's features, `compiler` this compiler's version.
Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, std::string_view compiler);

class ArtifactCache {
 public:
  // An empty folder name, or a folder that cannot be opened, gives a cache that holds nothing.
  ArtifactCache(const std::string& folder, uint64_t bytes_max);

  // The tagged bytes, or nothing. A file whose tag or form is wrong is removed.
  std::optional<std::vector<uint8_t>> Find(const Sha256& name, const ArtifactKey& key);
  void Store(const Sha256& name, const std::vector<uint8_t>& bytes);

  // The same for a record of compiler/learnt.h, or of compiler/cost_record.h; empty when there is none. Its tag covers
  // kind and name, so that one kernel's record cannot be put in another's place.
  enum class Record : uint8_t { kLearnt, kCosts };
  std::vector<uint8_t> FindRecord(Record kind, const Sha256& name, const ArtifactKey& key);
  void StoreRecord(Record kind, const Sha256& name, const ArtifactKey& key, std::span<const uint8_t> record);

 private:
  struct File {
    std::string name;
    uint64_t bytes;
    int64_t modified_ns;
  };
  // Nothing when there is no such file, no bytes when it cannot be ours; the time of its use is now.
  std::optional<std::vector<uint8_t>> ReadFile(const std::string& file, uint64_t bytes_max);
  void RemoveBad(const std::string& file);
  void WriteFile(const std::string& file, const std::vector<uint8_t>& bytes);
  std::vector<File> List();
  void MakeRoom(uint64_t bytes);

  UniqueFd folder_;
  uint64_t bytes_max_;
  uint64_t stored_ = 0;  // For the names of files being written.
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_ZYGOTE_CACHE_H_
