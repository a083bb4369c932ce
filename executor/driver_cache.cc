// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_cache.h"

#include <algorithm>
#include <vector>

#include "base/io/build_id.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace {

constexpr char kSuffix[] = ".hpvd";
constexpr uint64_t kFileBytesMax = limits::kArtifactBytesMax + 2 * kDriverLogBytesMax;

Sha256 TagOf(const Sha256& name, const ArtifactKey& key, std::span<const uint8_t> content) {
  std::vector<uint8_t> tagged(name.bytes.begin(), name.bytes.end());
  tagged.insert(tagged.end(), content.begin(), content.end());
  return HmacOf(key, tagged);
}

}  // namespace

DriverCache::DriverCache(const std::string& folder, uint64_t bytes_max)
    : build_(BuildIdentityOf(MappedObjects())),
      bytes_max_(std::min(bytes_max, kFileBytesMax)),
      files_({.folder = folder,
              .bytes_max = bytes_max,
              .build = build_,
              .suffixes = {kSuffix},
              .partial = ".driver-",
              .program = "hpvm-executor"}) {}

Sha256 DriverCache::NameOf(const DriverRequest& request) const {
  DriverRequest keyed = request;
  keyed.id = 1;  // Which request it is does not matter.
  Hasher hasher;
  hasher.Add(build_.bytes);
  hasher.Add(EncodeDriverRequest(keyed));
  hasher.Add(request.build.code);
  return hasher.Finish();
}

std::optional<DriverBinary> DriverCache::Find(const Sha256& name, const ArtifactKey& key) {
  const std::optional<std::vector<uint8_t>> bytes = files_.Read(name, kSuffix, kFileBytesMax);
  if (!bytes) {
    return std::nullopt;
  }
  Sha256 tag;
  if (bytes->size() > tag.bytes.size()) {
    std::copy_n(bytes->begin(), tag.bytes.size(), tag.bytes.begin());
    const std::span<const uint8_t> content = std::span<const uint8_t>(*bytes).subspan(tag.bytes.size());
    if (ConstantTimeEqual(tag, TagOf(name, key, content))) {
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
  files_.RemoveBad(name, kSuffix);
  return std::nullopt;
}

void DriverCache::Store(const Sha256& name, const ArtifactKey& key, const DriverBinary& binary) {
  WireWriter out;
  out.Text(binary.log);
  out.Bytes(binary.bytes);
  const Sha256 tag = TagOf(name, key, out.bytes());
  std::vector<uint8_t> bytes(tag.bytes.begin(), tag.bytes.end());
  bytes.insert(bytes.end(), out.bytes().begin(), out.bytes().end());
  if (bytes.size() <= bytes_max_) {
    files_.Write(name, kSuffix, bytes);
  }
}

}  // namespace hpvm
