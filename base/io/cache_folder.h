// SPDX-License-Identifier: Apache-2.0
// Files that can be made again, in a folder of bounded size: what compilers and drivers built. Nothing that goes wrong
// here is an error of its user's: it costs a line on stderr.
//
// Each file begins with a tag, by its user's key, of its name, its kind and its content: what another wrote, what was
// damaged, and what was put in another file's place is removed and never served.
//
// Several processes may share a folder: files appear whole (written aside, then renamed) and are never changed. What
// was used longest ago is removed first. A file's name tells which build of the program wrote it; files of other builds
// are not read, and are removed, at most kPurgedMax of them each time the folder is opened or written to. Two builds
// that use one folder at the same time therefore make each other's files again and again, and never serve them.
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
    std::string folder;  // Empty, or one that cannot be opened: nothing is kept.
    uint64_t bytes_max = 0;
    Sha256 build;                       // base/io/build_id.h.
    std::vector<std::string> suffixes;  // Of the files that are this user's; others are left alone.
    std::string partial;                // What names of files being written begin with; no other user's do.
    std::string program;                // For stderr.
  };
  explicit CacheFolder(Options options);

  // Nothing when there is no such file, or it had to be removed: its tag is wrong, or it has more than `bytes_max`. The
  // time of its use is now.
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
  std::string prefix_;  // Of this build's files.
  UniqueFd folder_;
  uint64_t stored_ = 0;  // For the names of files being written.
};

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_CACHE_FOLDER_H_
