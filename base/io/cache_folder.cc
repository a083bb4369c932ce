// SPDX-License-Identifier: Apache-2.0
#include "base/io/cache_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"

namespace hpvm {
namespace {

// Age after which a partial file is considered abandoned by a process that was killed while writing.
constexpr int64_t kPartialAgeNs = 3600ll * 1'000'000'000;
constexpr size_t kBuildDigits = 16;

Sha256 TagOf(const Sha256& name, const std::string& suffix, CacheFolder::Key key, std::span<const uint8_t> bytes) {
  Hasher hasher;
  hasher.Add(name.bytes);
  hasher.AddField(suffix);
  hasher.Add(bytes);
  return HmacOf(key, hasher.Finish().bytes);
}

}  // namespace

CacheFolder::CacheFolder(Options options)
    : options_(std::move(options)), prefix_(ToHex(options_.build).substr(0, kBuildDigits) + "-") {
  if (options_.folder.empty()) {
    return;
  }
  folder_.reset(open(options_.folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.valid()) {
    std::fprintf(stderr, "%s: opening the cache %s: %s; nothing is cached\n", options_.program.c_str(),
                 options_.folder.c_str(), std::strerror(errno));
    return;
  }
  MakeRoom(0);
}

void CacheFolder::Warn(const char* doing, const std::string& file) const {
  std::fprintf(stderr, "%s: %s the cached file %s: %s\n", options_.program.c_str(), doing, file.c_str(),
               std::strerror(errno));
}

std::optional<std::vector<uint8_t>> CacheFolder::Read(const Sha256& name, const std::string& suffix, Key key,
                                                      uint64_t bytes_max) {
  if (!folder_.valid()) {
    return std::nullopt;
  }
  const std::string file = FileOf(name, suffix);
  UniqueFd fd(openat(folder_.get(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return std::nullopt;
  }
  Sha256 tag;
  const uint64_t size = S_ISREG(info.st_mode) && info.st_size > 0 ? static_cast<uint64_t>(info.st_size) : 0;
  if (size >= tag.bytes.size() && size - tag.bytes.size() <= bytes_max) {
    std::vector<uint8_t> bytes(size - tag.bytes.size());
    if (ReadAt(fd.get(), 0, tag.bytes).ok() && ReadAt(fd.get(), tag.bytes.size(), bytes).ok() &&
        ConstantTimeEqual(tag, TagOf(name, suffix, key, bytes))) {
      futimens(fd.get(), nullptr);
      return bytes;
    }
  }
  RemoveBad(file);
  return std::nullopt;
}

void CacheFolder::Write(const Sha256& name, const std::string& suffix, Key key, std::span<const uint8_t> bytes) {
  const Sha256 tag = TagOf(name, suffix, key, bytes);
  const uint64_t size = tag.bytes.size() + bytes.size();
  if (!folder_.valid() || size > options_.bytes_max) {
    return;
  }
  MakeRoom(size);
  const std::string file = FileOf(name, suffix);
  const std::string partial = options_.partial + std::to_string(SystemRng().Next()) + "-" + std::to_string(stored_++);
  UniqueFd fd(openat(folder_.get(), partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    Warn("creating", file);
    return;
  }
  // Not synced: after a machine crash, the tag reveals a damaged file.
  if (!WriteAll(fd.get(), tag.bytes) || !WriteAll(fd.get(), bytes) ||
      renameat(folder_.get(), partial.c_str(), folder_.get(), file.c_str()) != 0) {
    Warn("writing", file);
    unlinkat(folder_.get(), partial.c_str(), 0);
  }
}

void CacheFolder::RemoveBad(const std::string& file) {
  std::fprintf(stderr, "%s: removing the cached file %s: it is damaged or belongs to another key\n",
               options_.program.c_str(), file.c_str());
  unlinkat(folder_.get(), file.c_str(), 0);
}

std::vector<CacheFolder::File> CacheFolder::List() const {
  std::vector<File> files;
  UniqueFd fd(openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* directory = fd.valid() ? fdopendir(fd.get()) : nullptr;
  if (directory == nullptr) {
    return files;
  }
  fd.release();  // The stream owns it now.
  while (const dirent* entry = readdir(directory)) {
    File file;
    file.name = entry->d_name;
    file.is_partial = file.name.starts_with(options_.partial);
    file.is_of_this_build = file.name.starts_with(prefix_);
    const bool is_ours =
        file.is_partial || std::any_of(options_.suffixes.begin(), options_.suffixes.end(),
                                       [&](const std::string& suffix) { return file.name.ends_with(suffix); });
    struct stat info {};
    if (is_ours && fstatat(folder_.get(), file.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      file.bytes = static_cast<uint64_t>(info.st_size);
      file.modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
      files.push_back(std::move(file));
    }
  }
  closedir(directory);
  return files;
}

// Removes files written by other builds, then the least recently used files until `bytes` more fit. It lists the folder
// each time, since other processes may write here too; files are few, as each stands for tens of milliseconds of work.
void CacheFolder::MakeRoom(uint64_t bytes) {
  std::vector<File> files = List();
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tuple(a.is_of_this_build, a.modified_ns) < std::tuple(b.is_of_this_build, b.modified_ns);
  });
  uint64_t total = 0;
  for (const File& file : files) {
    total += file.bytes;
  }
  const int64_t now_ns = RealClock().WallNs();
  size_t purged = 0, others = 0;
  for (const File& file : files) {
    const bool is_other = !file.is_partial && !file.is_of_this_build;
    const bool is_stale = file.is_partial ? now_ns - file.modified_ns > kPartialAgeNs : is_other && purged < kPurgedMax;
    const bool is_over = !file.is_partial && total + bytes > options_.bytes_max;
    others += is_other ? 1 : 0;
    if ((is_stale || is_over) && unlinkat(folder_.get(), file.name.c_str(), 0) == 0) {
      total -= file.bytes;
      purged += is_other ? 1 : 0;
    }
  }
  if (purged > 0) {
    std::fprintf(stderr, "%s: removed %zu files from the cache that other builds wrote; %zu are left\n",
                 options_.program.c_str(), purged, others - purged);
  }
}

}  // namespace hpvm
