// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/clock.h"
#include "base/memfd.h"
#include "compiler/wire.h"

namespace hpvm {
namespace {

constexpr char kSuffix[] = ".hpvd";
constexpr char kPartial[] = ".driver-";
constexpr uint64_t kFileBytesMax = limits::kArtifactBytesMax + 2 * kDriverLogBytesMax;
// Left by a process that was killed while it wrote.
constexpr int64_t kPartialAgeNs = 3600ll * 1'000'000'000;

Sha256 TagOf(const Sha256& name, const ArtifactKey& key, std::span<const uint8_t> content) {
  std::vector<uint8_t> tagged(name.bytes.begin(), name.bytes.end());
  tagged.insert(tagged.end(), content.begin(), content.end());
  return HmacOf(key, tagged);
}

bool WriteAll(int fd, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return true;
}

struct File {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
};

std::vector<File> List(int folder) {
  std::vector<File> files;
  UniqueFd fd(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* directory = fd.valid() ? fdopendir(fd.get()) : nullptr;
  if (directory == nullptr) {
    return files;
  }
  fd.release();  // The stream's now.
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    struct stat info {};
    if ((name.ends_with(kSuffix) || name.starts_with(kPartial)) &&
        fstatat(folder, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      files.push_back(
          {name, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
    }
  }
  closedir(directory);
  return files;
}

}  // namespace

DriverCache::DriverCache(const std::string& folder, uint64_t bytes_max) : bytes_max_(bytes_max) {
  if (!folder.empty()) {
    folder_.reset(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }
}

Sha256 DriverCache::NameOf(const DriverRequest& request) {
  DriverRequest keyed = request;
  keyed.id = 1;  // Which request it is does not matter.
  Hasher hasher;
  hasher.Add(EncodeDriverRequest(keyed));
  hasher.Add(request.build.code);
  return hasher.Finish();
}

std::optional<DriverBinary> DriverCache::Find(const Sha256& name, const ArtifactKey& key) {
  if (!folder_.valid()) {
    return std::nullopt;
  }
  const std::string file = ToHex(name) + kSuffix;
  UniqueFd fd(openat(folder_.get(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return std::nullopt;
  }
  Sha256 tag;
  std::vector<uint8_t> bytes;
  if (S_ISREG(info.st_mode) && static_cast<uint64_t>(info.st_size) <= kFileBytesMax) {
    bytes.resize(static_cast<size_t>(info.st_size));
  }
  if (bytes.size() > tag.bytes.size() && ReadAt(fd.get(), 0, bytes).ok()) {
    std::copy_n(bytes.begin(), tag.bytes.size(), tag.bytes.begin());
    const std::span<const uint8_t> content = std::span<const uint8_t>(bytes).subspan(tag.bytes.size());
    if (ConstantTimeEqual(tag, TagOf(name, key, content))) {
      futimens(fd.get(), nullptr);  // Used now: the oldest are removed first.
      WireReader in(content);
      DriverBinary binary;
      binary.log = in.Text();
      const std::span<const uint8_t> built = in.Bytes();
      binary.bytes.assign(built.begin(), built.end());
      if (in.AtEnd()) {
        return binary;
      }
    }
  }
  unlinkat(folder_.get(), file.c_str(), 0);
  return std::nullopt;
}

void DriverCache::Store(const Sha256& name, const ArtifactKey& key, const DriverBinary& binary) {
  WireWriter out;
  out.Text(binary.log);
  out.Bytes(binary.bytes);
  const Sha256 tag = TagOf(name, key, out.bytes());
  const uint64_t bytes = tag.bytes.size() + out.bytes().size();
  if (!folder_.valid() || bytes > std::min(bytes_max_, kFileBytesMax)) {
    return;
  }
  MakeRoom(bytes);
  const std::string partial = kPartial + std::to_string(SystemRng().Next()) + "-" + std::to_string(stored_++);
  UniqueFd fd(openat(folder_.get(), partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  // Not synced: after a crash of the machine a damaged file is found by its tag.
  if (!fd.valid() || !WriteAll(fd.get(), tag.bytes) || !WriteAll(fd.get(), out.bytes()) ||
      renameat(folder_.get(), partial.c_str(), folder_.get(), (ToHex(name) + kSuffix).c_str()) != 0) {
    unlinkat(folder_.get(), partial.c_str(), 0);
  }
}

// Listed each time, since other processes may write here too; each file stands for a build of tens of milliseconds.
void DriverCache::MakeRoom(uint64_t bytes) {
  std::vector<File> files = List(folder_.get());
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.modified_ns < b.modified_ns; });
  uint64_t total = 0;
  for (const File& file : files) {
    total += file.bytes;
  }
  const int64_t now_ns = RealClock().WallNs();
  for (const File& file : files) {
    const bool is_partial = file.name.starts_with(kPartial);
    const bool goes = is_partial ? now_ns - file.modified_ns > kPartialAgeNs : total + bytes > bytes_max_;
    if (goes && unlinkat(folder_.get(), file.name.c_str(), 0) == 0) {
      total -= file.bytes;
    }
  }
}

}  // namespace hpvm
