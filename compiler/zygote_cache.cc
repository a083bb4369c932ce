// SPDX-License-Identifier: Apache-2.0
#include "compiler/zygote_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/limits.h"
#include "base/memfd.h"
#include "compiler/cost_record.h"
#include "compiler/learnt.h"

namespace hpvm {
namespace {

constexpr char kSuffix[] = ".hpva";
constexpr char kLearntSuffix[] = ".hpvl";
constexpr char kCostsSuffix[] = ".hpvc";
constexpr char kPartial[] = ".partial-";

void Warn(const char* doing, const std::string& name) {
  std::fprintf(stderr, "hpvm-compiler: %s the cached file %s: %s\n", doing, name.c_str(), std::strerror(errno));
}

bool WriteAll(int fd, const std::vector<uint8_t>& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return false;
    }
    done += static_cast<size_t>(written);
  }
  return true;
}

bool EndsWith(const std::string& text, const char* suffix) {
  size_t size = std::strlen(suffix);
  return text.size() >= size && text.compare(text.size() - size, size, suffix) == 0;
}

const char* SuffixOf(ArtifactCache::Record kind) {
  return kind == ArtifactCache::Record::kCosts ? kCostsSuffix : kLearntSuffix;
}

Sha256 RecordTag(ArtifactCache::Record kind, const Sha256& name, const ArtifactKey& key,
                 std::span<const uint8_t> record) {
  std::vector<uint8_t> tagged(name.bytes.begin(), name.bytes.end());
  if (kind == ArtifactCache::Record::kCosts) {
    tagged.push_back('c');
  }
  tagged.insert(tagged.end(), record.begin(), record.end());
  return HmacOf(key, tagged);
}

}  // namespace

Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, std::string_view compiler) {
  Hasher hasher;
  auto number = [&](uint64_t value) { hasher.Add({reinterpret_cast<const uint8_t*>(&value), sizeof(value)}); };
  hasher.AddField(compiler);
  hasher.AddField(target);
  number(static_cast<uint64_t>(request.module_kind));
  hasher.Add(request.module_hash.bytes);
  hasher.AddField(request.module_name);  // Messages hold it.
  hasher.AddField(request.entry);
  number(request.params.size());
  for (const ParamSpec& param : request.params) {
    hasher.AddField(param.name);
    number(param.is_buffer);
    number(param.is_writable);
    number(static_cast<uint64_t>(param.scalar));
  }
  number(static_cast<uint64_t>(request.abi));
  number(static_cast<uint64_t>(request.target));
  number(request.fast_math);
  WireWriter gpu;
  WriteGpuTarget(request.gpu, gpu);
  hasher.Add(gpu.bytes());
  hasher.AddField(request.options);
  number(request.constants.size());
  for (const SpecialisationConstant& constant : request.constants) {
    number(constant.id);
    number(constant.is_float);
    number(constant.bits);
  }
  return hasher.Finish();
}

ArtifactCache::ArtifactCache(const std::string& folder, uint64_t bytes_max) : bytes_max_(bytes_max) {
  if (folder.empty()) {
    return;
  }
  folder_.reset(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.valid()) {
    std::fprintf(stderr, "hpvm-compiler: opening the cache %s: %s; nothing is kept\n", folder.c_str(),
                 std::strerror(errno));
    return;
  }
  MakeRoom(0);
}

std::optional<std::vector<uint8_t>> ArtifactCache::ReadFile(const std::string& file, uint64_t bytes_max) {
  if (!folder_.valid()) {
    return std::nullopt;
  }
  UniqueFd fd(openat(folder_.get(), file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return std::nullopt;
  }
  std::vector<uint8_t> bytes;
  if (S_ISREG(info.st_mode) && info.st_size >= 0 && static_cast<uint64_t>(info.st_size) <= bytes_max) {
    bytes.resize(static_cast<size_t>(info.st_size));
    if (!ReadAt(fd.get(), 0, bytes).ok()) {
      bytes.clear();
    }
  }
  futimens(fd.get(), nullptr);  // Used now: the oldest are removed first.
  return bytes;
}

void ArtifactCache::RemoveBad(const std::string& file) {
  std::fprintf(stderr, "hpvm-compiler: removing the cached file %s: it is damaged or of another key\n", file.c_str());
  unlinkat(folder_.get(), file.c_str(), 0);
}

std::optional<std::vector<uint8_t>> ArtifactCache::Find(const Sha256& name, const ArtifactKey& key) {
  const std::string file = ToHex(name) + kSuffix;
  std::optional<std::vector<uint8_t>> bytes = ReadFile(file, limits::kArtifactBytesMax);
  if (bytes && !ParseArtifact(*bytes, key).ok()) {
    RemoveBad(file);
    return std::nullopt;
  }
  return bytes;
}

void ArtifactCache::Store(const Sha256& name, const std::vector<uint8_t>& bytes) {
  WriteFile(ToHex(name) + kSuffix, bytes);
}

std::vector<uint8_t> ArtifactCache::FindRecord(Record kind, const Sha256& name, const ArtifactKey& key) {
  const std::string file = ToHex(name) + SuffixOf(kind);
  const size_t bytes_max = kind == Record::kCosts ? kCostRecordBytesMax : kLearntBytesMax;
  std::optional<std::vector<uint8_t>> bytes = ReadFile(file, bytes_max + sizeof(Sha256));
  if (!bytes) {
    return {};
  }
  Sha256 tag;
  if (bytes->size() >= tag.bytes.size()) {
    std::copy_n(bytes->begin(), tag.bytes.size(), tag.bytes.begin());
    std::vector<uint8_t> record(bytes->begin() + static_cast<ptrdiff_t>(tag.bytes.size()), bytes->end());
    if (ConstantTimeEqual(tag, RecordTag(kind, name, key, record))) {
      return record;
    }
  }
  RemoveBad(file);
  return {};
}

void ArtifactCache::StoreRecord(Record kind, const Sha256& name, const ArtifactKey& key,
                                std::span<const uint8_t> record) {
  const Sha256 tag = RecordTag(kind, name, key, record);
  std::vector<uint8_t> bytes(tag.bytes.begin(), tag.bytes.end());
  bytes.insert(bytes.end(), record.begin(), record.end());
  WriteFile(ToHex(name) + SuffixOf(kind), bytes);
}

void ArtifactCache::WriteFile(const std::string& file, const std::vector<uint8_t>& bytes) {
  if (!folder_.valid() || bytes.size() > bytes_max_) {
    return;
  }
  MakeRoom(bytes.size());
  const std::string partial = kPartial + std::to_string(SystemRng().Next()) + "-" + std::to_string(stored_++);
  UniqueFd fd(openat(folder_.get(), partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!fd.valid()) {
    Warn("creating", file);
    return;
  }
  // Not synced: after a crash of the machine a damaged file is found by its tag.
  if (!WriteAll(fd.get(), bytes) || renameat(folder_.get(), partial.c_str(), folder_.get(), file.c_str()) != 0) {
    Warn("writing", file);
    unlinkat(folder_.get(), partial.c_str(), 0);
  }
}

std::vector<ArtifactCache::File> ArtifactCache::List() {
  std::vector<File> files;
  int fd = openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* directory = fd < 0 ? nullptr : fdopendir(fd);
  if (directory == nullptr) {
    if (fd >= 0) {
      close(fd);
    }
    return files;
  }
  while (const dirent* entry = readdir(directory)) {
    std::string name = entry->d_name;
    struct stat info;
    bool is_ours = EndsWith(name, kSuffix) || EndsWith(name, kLearntSuffix) || EndsWith(name, kCostsSuffix) ||
                   name.starts_with(kPartial);
    if (is_ours && fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
      files.push_back(
          {name, static_cast<uint64_t>(info.st_size), info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
    }
  }
  closedir(directory);
  return files;
}

// Removes what was used longest ago until `bytes` more fit. Listed each time, since other zygotes may write here too;
// files are few, as each stands for a compile of tens of milliseconds.
void ArtifactCache::MakeRoom(uint64_t bytes) {
  constexpr int64_t kPartialAgeNs = 3600ll * 1'000'000'000;  // Left by a zygote that was killed.
  std::vector<File> files = List();
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.modified_ns < b.modified_ns; });
  uint64_t total = 0;
  for (const File& file : files) {
    total += file.bytes;
  }
  int64_t now_ns = RealClock().WallNs();
  for (const File& file : files) {
    bool is_partial = file.name.starts_with(kPartial);
    bool is_stale = is_partial && now_ns - file.modified_ns > kPartialAgeNs;
    bool is_over = !is_partial && total + bytes > bytes_max_;
    if ((is_stale || is_over) && unlinkat(folder_.get(), file.name.c_str(), 0) == 0) {
      total -= file.bytes;
    }
  }
}

}  // namespace hpvm
