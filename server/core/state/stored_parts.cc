// SPDX-License-Identifier: Apache-2.0
#include "server/core/state/stored_parts.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/io/memfd.h"
#include "server/jobs/stored_request.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20, kStepBytes = 4 << 20;
// Limit on small files, each of which costs an open.
constexpr int kFilesPerStep = 64;

}  // namespace

StatusOr<bool> StoredPartsReader::Step() {
  if (!has_request_) {
    HPVMD_RETURN_IF_ERROR(ReadRequest());
    has_request_ = true;
    return wanted_.empty();
  }
  uint64_t bytes = 0;
  for (int files = 0; !wanted_.empty() && files < kFilesPerStep && bytes < kStepBytes;) {
    const Wanted& wanted = wanted_.front();
    if (file_ == nullptr) {
      const bool is_input = wanted.kind == Wanted::Kind::kInput;
      if (const BlobRef known = is_input ? nullptr : memory_.find(wanted.kind == Wanted::Kind::kModule, wanted.hash)) {
        Put(wanted, known);
        wanted_.pop_front();
        ++files;
        continue;
      }
      HPVMD_RETURN_IF_ERROR(Open(wanted));
    }
    HPVMD_ASSIGN_OR_RETURN(const uint64_t got, ReadPiece(wanted));
    bytes += got;
    if (offset_ == wanted.bytes) {
      HPVMD_RETURN_IF_ERROR(Finish(wanted));
      wanted_.pop_front();
      ++files;
    }
  }
  return wanted_.empty();
}

Status StoredPartsReader::ReadRequest() {
  HPVMD_ASSIGN_OR_RETURN(*parts_.stored,
                         ReadWholeRequest(jobs_.database(), jobs_.blobs(), parts_.tenant->name, parts_.id));
  const v1::GraphReference& graph = parts_.stored->request().document();
  HPVMD_ASSIGN_OR_RETURN(Wanted document, BlobOf(graph.graph_sha256()));
  wanted_.push_back(std::move(document));
  for (const v1::ModuleBinding& module : graph.modules()) {
    HPVMD_ASSIGN_OR_RETURN(Wanted wanted, BlobOf(module.sha256()));
    wanted.kind = Wanted::Kind::kModule;
    wanted.name = module.name();
    wanted_.push_back(std::move(wanted));
  }
  for (const internal::StoredInput& input : parts_.stored->inputs()) {
    if (input.size_bytes() == 0) {
      continue;
    }
    const std::optional<Sha256> hash = Sha256FromRaw(input.sha256());
    if (!hash.has_value()) {
      return DataLoss("The stored input " + std::to_string(input.index()) + " has no hash.");
    }
    wanted_.push_back({Wanted::Kind::kInput, "", input.index(), *hash, input.size_bytes()});
  }
  return absl::OkStatus();
}

StatusOr<StoredPartsReader::Wanted> StoredPartsReader::BlobOf(const std::string& hex) const {
  const std::optional<Sha256> hash = Sha256FromHex(hex);
  for (const internal::StoredBlob& blob : parts_.blobs) {
    if (hash.has_value() && Sha256FromRaw(blob.sha256()) == hash) {
      return Wanted{.hash = *hash, .bytes = blob.size_bytes()};
    }
  }
  return DataLoss("The job's row does not name the bytes with the SHA-256 " + hex.substr(0, 64) + ".");
}

Status StoredPartsReader::Open(const Wanted& wanted) {
  Tenant& tenant = *parts_.tenant;
  if (wanted.kind == Wanted::Kind::kInput) {
    HPVMD_ASSIGN_OR_RETURN(segment_, tenant.pool.Acquire(wanted.bytes, /*zero=*/false));
    hasher_.emplace();
  } else {
    HPVMD_ASSIGN_OR_RETURN(upload_,
                           BlobUpload::Start(wanted.kind == Wanted::Kind::kModule ? "module" : "graph document",
                                             ToHex(wanted.hash), wanted.bytes, wanted.bytes, 0, ""));
    upload_->PayWith(tenant.account.TakeAnyway(scheduler::Resource::kHostBytes, wanted.bytes));
  }
  StatusOr<std::unique_ptr<DiskFile>> file = jobs_.blobs().Open(tenant.name, wanted.hash, wanted.bytes);
  if (!file.ok()) {
    return absl::IsNotFound(file.status()) ? DataLoss(Message(file.status())) : file.status();
  }
  file_ = *std::move(file);
  offset_ = 0;
  return absl::OkStatus();
}

StatusOr<uint64_t> StoredPartsReader::ReadPiece(const Wanted& wanted) {
  piece_.resize(std::min(kPieceBytes, wanted.bytes - offset_));
  HPVMD_ASSIGN_OR_RETURN(const size_t got, file_->ReadAt(offset_, piece_));
  if (got != piece_.size()) {
    return DataLoss("The blob " + ToHex(wanted.hash) + " ends after " + std::to_string(offset_ + got) + " of " +
                    std::to_string(wanted.bytes) + " bytes.");
  }
  if (wanted.kind == Wanted::Kind::kInput) {
    hasher_->Add(std::span<const uint8_t>(piece_));
    HPVMD_RETURN_IF_ERROR(WriteAt(segment_->fd.get(), offset_, piece_));
  } else {
    HPVMD_RETURN_IF_ERROR(upload_->Add({reinterpret_cast<const char*>(piece_.data()), piece_.size()}));
  }
  offset_ += got;
  return got;
}

Status StoredPartsReader::Finish(const Wanted& wanted) {
  file_.reset();
  const Status damaged = DataLoss("The blob " + ToHex(wanted.hash) + " is damaged: its bytes have another hash.");
  if (wanted.kind == Wanted::Kind::kInput) {
    if (hasher_->Finish() != wanted.hash) {
      return damaged;
    }
    parts_.segments[wanted.index] = std::move(segment_);
    return absl::OkStatus();
  }
  StatusOr<BlobRef> blob = std::exchange(upload_, nullptr)->Finish();
  if (!blob.ok()) {
    return absl::IsInvalidArgument(blob.status()) ? damaged : blob.status();
  }
  Put(wanted, memory_.keep(wanted.kind == Wanted::Kind::kModule, *std::move(blob)));
  return absl::OkStatus();
}

void StoredPartsReader::Put(const Wanted& wanted, BlobRef blob) {
  if (wanted.kind == Wanted::Kind::kModule) {
    parts_.modules[wanted.name] = std::move(blob);
  } else {
    parts_.document = std::move(blob);
  }
}

}  // namespace hpvm::server
