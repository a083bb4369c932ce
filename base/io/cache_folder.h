// SPDX-License-Identifier: Apache-2.0
// CacheFolder stores reproducible files in a folder of bounded size: results of compilers and drivers. A failure here
// is not an error for its user; it prints a line on stderr.
//
// Each file begins with a tag, keyed by its user, over its name, kind and content: a file written by another program,
// damaged, or put in another file's place is removed and never served.
//
// Several processes may share a folder: files appear whole (written under another name, then renamed) and are never
// changed. The least recently used files are removed first. A file's name identifies the build that wrote it; files of
// other builds are not read, and are removed, at most kPurgedMax each time the folder is opened or written to. Two
// builds that use one folder at the same time therefore keep recreating each other's files, and never serve them.
#ifndef HPVMD_BASE_IO_CACHE_FOLDER_H_
#define HPVMD_BASE_IO_CACHE_FOLDER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/io/fd.h"

namespace hpvm {

class CacheFolder {
 public:
  static constexpr size_t kPurgedMax = 1000;
  using Key = std::span<const uint8_t>;

  struct Options {
    std::string folder;  // When empty or not accessible, nothing is cached.
    uint64_t bytes_max = 0;
    Sha256 build;                       // base/io/build_id.h.
    std::vector<std::string> suffixes;  // Suffixes of this user's files; other files are left alone.
    std::string partial;                // Unique prefix of the names of this user's files while they are written.
    std::string program;                // The program's name, for stderr.
  };
  explicit CacheFolder(Options options);

  // Returns nullopt when there is no such file, or it had to be removed because its tag is wrong or it exceeds
  // `bytes_max`. Marks the file as used now.
  std::optional<std::vector<uint8_t>> Read(const Sha256& name, const std::string& suffix, Key key, uint64_t bytes_max);
  void Write(const Sha256& name, const std::string& suffix, Key key, std::span<const uint8_t> bytes);

 private:
  struct File {
    std::string name;
    uint64_t bytes = 0;
    int64_t modified_ns = 0;
    bool is_partial = false;
    bool is_of_this_build = false;
  };
  std::string FileOf(const Sha256& name, const std::string& suffix) const { return prefix_ + ToHex(name) + suffix; }
  void RemoveBad(const std::string& file);
  void Warn(const char* doing, const std::string& file) const;
  std::vector<File> List() const;
  void MakeRoom(uint64_t bytes);

  Options options_;
  std::string prefix_;  // Prefix of this build's files.
  UniqueFd folder_;
  uint64_t stored_ = 0;  // Number used in the names of files being written.
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_CACHE_FOLDER_H_
