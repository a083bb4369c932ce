// SPDX-License-Identifier: Apache-2.0
#include "server/memory/blob_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "base/bytes.h"
#include "base/io/memfd.h"

namespace hpvm::server {
namespace {

StatusOr<UniqueFd> CreateBlobMemfd(uint64_t bytes) {
  UniqueFd fd(memfd_create("hpvm-blob", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return FromErrno(errno, "Creating shared memory");
  }
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return FromErrno(errno, "Sizing shared memory to " + std::to_string(bytes) + " bytes");
  }
  return fd;
}

}  // namespace

StatusOr<Sha256> ParseSha256(std::string_view what, std::string_view hex) {
  const std::optional<Sha256> hash = Sha256FromHex(hex);
  if (!hash.has_value()) {
    return InvalidArgument("The " + std::string(what) + "'s sha256 (\"" + std::string(hex.substr(0, 80)) +
                           "\") is not 64 lower-case hexadecimal digits.");
  }
  return *hash;
}

StatusOr<std::unique_ptr<BlobUpload>> BlobUpload::Start(std::string_view what, std::string_view sha256_hex,
                                                        uint64_t size_bytes, uint64_t size_bytes_max, uint32_t kind,
                                                        std::string_view name) {
  HPVMD_ASSIGN_OR_RETURN(const Sha256 hash, ParseSha256(what, sha256_hex));
  if (size_bytes == 0) {
    return InvalidArgument("The " + std::string(what) + " is empty (0 bytes).");
  }
  if (size_bytes > size_bytes_max) {
    return ResourceExhausted("The " + std::string(what) + "'s size (" + std::to_string(size_bytes) +
                             ") is larger than the limit (" + std::to_string(size_bytes_max) + ").");
  }
  if (name.size() > 255) {
    return InvalidArgument("The " + std::string(what) + "'s name has " + std::to_string(name.size()) +
                           " bytes; the limit is 255.");
  }
  std::unique_ptr<BlobUpload> upload(new BlobUpload());
  upload->what_ = what;
  upload->blob_ = std::make_unique<Blob>();
  upload->blob_->hash = hash;
  upload->blob_->size_bytes = size_bytes;
  upload->blob_->kind = kind;
  upload->blob_->name = name;
  HPVMD_ASSIGN_OR_RETURN(upload->blob_->fd, CreateBlobMemfd(size_bytes));
  return upload;
}

Status BlobUpload::Add(std::string_view data) {
  if (data.size() > blob_->size_bytes - received_) {
    return InvalidArgument("The " + what_ + " has more bytes than its header says (" +
                           std::to_string(blob_->size_bytes) + ").");
  }
  HPVMD_RETURN_IF_ERROR(WriteAt(blob_->fd.get(), received_, BytesOf(data)));
  hasher_.Add(data);
  received_ += data.size();
  return absl::OkStatus();
}

StatusOr<BlobRef> BlobUpload::Finish() {
  if (received_ != blob_->size_bytes) {
    return InvalidArgument("The " + what_ + " ends after " + std::to_string(received_) + " of " +
                           std::to_string(blob_->size_bytes) + " bytes.");
  }
  if (const Sha256 got = hasher_.Finish(); got != blob_->hash) {
    return InvalidArgument("The " + what_ + "'s bytes have the SHA-256 " + ToHex(got) + ", its header says " +
                           ToHex(blob_->hash) + ".");
  }
  if (fcntl(blob_->fd.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    return FromErrno(errno, "Sealing shared memory");
  }
  return BlobRef(std::move(blob_));
}

StatusOr<BlobRef> BlobStore::Find(const Sha256& hash) {
  const auto found = blobs_.find(hash);
  if (found == blobs_.end()) {
    return NotFound("No " + what_ + " with the SHA-256 " + ToHex(hash) + " was uploaded.");
  }
  Use(found->second);
  return found->second.blob.Lend();
}

void BlobStore::Use(Entry& entry) {
  entry.used = ++uses_;
  entry.used_at = clock_ == nullptr ? Time{0} : clock_->Now();
}

StatusOr<BlobRef> BlobStore::Insert(BlobRef blob, const std::function<bool()>& let_go) {
  const auto drop = [&] { return DropOne() || (let_go && let_go()); };
  if (const auto found = blobs_.find(blob->hash); found != blobs_.end()) {
    return found->second.blob.Lend();
  }
  while (blob->size_bytes > bytes_max_ || bytes_ > bytes_max_ - blob->size_bytes) {  // The limit may have shrunk.
    if (!drop()) {
      return ResourceExhausted("The " + what_ + " (" + std::to_string(blob->size_bytes) +
                               " bytes) does not fit: the blobs in use take " + std::to_string(bytes_) + " bytes of " +
                               std::to_string(bytes_max_) + ".");
    }
  }
  while (account_.Room(scheduler::Resource::kModules) == 0 && drop()) {
  }
  scheduler::Lease module;
  if (const auto refusal = account_.Take(scheduler::Resource::kModules, 1, &module)) {
    return ToStatus(*refusal);
  }
  bytes_ += blob->size_bytes;
  const Sha256 hash = blob->hash;
  Entry& entry = blobs_[hash];
  entry = {Lendable(std::move(blob)), 0, Time{0}, clock_ == nullptr ? 0 : clock_->WallNs(), std::move(module)};
  Use(entry);
  return entry.blob.Lend();
}

void BlobStore::ForEach(const std::function<void(const Blob&)>& visit) const {
  for (const auto& [hash, entry] : blobs_) {
    visit(*entry.blob);
  }
}

std::vector<BlobRef> BlobStore::TakeUnused(size_t count_max) {
  std::vector<BlobRef> taken;
  for (auto at = blobs_.begin(); at != blobs_.end() && taken.size() < count_max;) {
    if (at->second.blob.is_lent()) {
      ++at;
      continue;
    }
    bytes_ -= at->second.blob->size_bytes;
    taken.push_back(at->second.blob.Lend());
    at = blobs_.erase(at);
  }
  return taken;
}

StatusOr<BlobRef> BlobStore::Remove(const Sha256& hash) {
  const auto found = blobs_.find(hash);
  if (found == blobs_.end()) {
    return NotFound("No " + what_ + " with the SHA-256 " + ToHex(hash) + " is stored.");
  }
  if (found->second.blob.is_lent()) {
    return FailedPrecondition("The " + what_ + " is in use: by a prepared graph (release it), a run or a job.");
  }
  bytes_ -= found->second.blob->size_bytes;
  BlobRef blob = found->second.blob.Lend();
  blobs_.erase(found);
  return blob;
}

std::vector<BlobStore::Listed> BlobStore::After(const std::optional<Sha256>& hash, size_t count_max) const {
  std::vector<Listed> listed;
  for (auto at = hash.has_value() ? blobs_.upper_bound(*hash) : blobs_.begin();
       at != blobs_.end() && listed.size() < count_max; ++at) {
    listed.push_back(
        {at->second.blob.get(), at->second.created_unix_ns, at->second.used_at, at->second.blob.is_lent()});
  }
  return listed;
}

bool BlobStore::DropOne() {
  auto oldest = blobs_.end();
  for (auto it = blobs_.begin(); it != blobs_.end(); ++it) {
    if (!it->second.blob.is_lent() && (oldest == blobs_.end() || it->second.used < oldest->second.used)) {
      oldest = it;
    }
  }
  if (oldest == blobs_.end()) {
    return false;
  }
  bytes_ -= oldest->second.blob->size_bytes;
  blobs_.erase(oldest);
  return true;
}

}  // namespace hpvm::server
