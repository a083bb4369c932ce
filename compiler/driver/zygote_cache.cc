// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/zygote_cache.h"

#include <algorithm>

#include "base/limits.h"
#include "compiler/api/cost_record.h"
#include "compiler/api/learnt.h"

namespace hpvm {
namespace {

constexpr char kSuffix[] = ".hpva";
constexpr char kLearntSuffix[] = ".hpvl";
constexpr char kCostsSuffix[] = ".hpvc";

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

Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, const Sha256& build) {
  Hasher hasher;
  auto number = [&](uint64_t value) { hasher.Add({reinterpret_cast<const uint8_t*>(&value), sizeof(value)}); };
  hasher.Add(build.bytes);
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

ArtifactCache::ArtifactCache(const std::string& folder, uint64_t bytes_max, const Sha256& build)
    : files_({.folder = folder,
              .bytes_max = bytes_max,
              .build = build,
              .suffixes = {kSuffix, kLearntSuffix, kCostsSuffix},
              .partial = ".partial-",
              .program = "hpvm-compiler"}) {}

std::optional<std::vector<uint8_t>> ArtifactCache::Find(const Sha256& name, const ArtifactKey& key) {
  std::optional<std::vector<uint8_t>> bytes = files_.Read(name, kSuffix, limits::kArtifactBytesMax);
  if (bytes && !ParseArtifact(*bytes, key).ok()) {
    files_.RemoveBad(name, kSuffix);
    return std::nullopt;
  }
  return bytes;
}

void ArtifactCache::Store(const Sha256& name, const std::vector<uint8_t>& bytes) { files_.Write(name, kSuffix, bytes); }

std::vector<uint8_t> ArtifactCache::FindRecord(Record kind, const Sha256& name, const ArtifactKey& key) {
  const size_t bytes_max = kind == Record::kCosts ? kCostRecordBytesMax : kLearntBytesMax;
  std::optional<std::vector<uint8_t>> bytes = files_.Read(name, SuffixOf(kind), bytes_max + sizeof(Sha256));
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
  files_.RemoveBad(name, SuffixOf(kind));
  return {};
}

void ArtifactCache::StoreRecord(Record kind, const Sha256& name, const ArtifactKey& key,
                                std::span<const uint8_t> record) {
  const Sha256 tag = RecordTag(kind, name, key, record);
  std::vector<uint8_t> bytes(tag.bytes.begin(), tag.bytes.end());
  bytes.insert(bytes.end(), record.begin(), record.end());
  files_.Write(name, SuffixOf(kind), bytes);
}

}  // namespace hpvm
