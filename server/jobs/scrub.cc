// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/scrub.h"

#include <algorithm>
#include <span>

namespace hpvm::server {
namespace {

// Bound on the remembered blobs; beyond it, blobs that jobs share are read again.
constexpr size_t kSeenMax = 1'000'000;

}  // namespace

Scrub::Scrub(JobDatabase& database, BlobFolder& blobs, OnDamage on_damage)
    : database_(database), blobs_(blobs), on_damage_(std::move(on_damage)) {}

Scrub::~Scrub() = default;

StatusOr<uint64_t> Scrub::Step(uint64_t bytes_max) {
  if (!waiting_.empty()) {
    return StepBlob(bytes_max);
  }
  if (!are_rows_done_) {
    return StepRows(bytes_max);
  }
  are_rows_done_ = false;
  next_row_ = 0;
  seen_.clear();
  return 0;
}

StatusOr<uint64_t> Scrub::StepRows(uint64_t bytes_max) {
  StatusOr<ScrubbedRows> rows = database_.Scrub(next_row_, bytes_max);
  if (!rows.ok()) {
    are_rows_done_ = true;  // SQLite's pages have a structure, too: nothing is found after a broken one.
    return rows.status();
  }
  next_row_ = rows->next;
  are_rows_done_ = rows->next == 0;
  for (const JobDamage& damage : rows->damage) {
    Tell(damage);
  }
  for (const StoredJob& job : rows->jobs) {
    AddBlobsOf(job);
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t mended, database_.MendKeys(rows->keyless));
  mended_keys_ += mended;
  return std::max<uint64_t>(1, rows->bytes);
}

void Scrub::AddBlobsOf(const StoredJob& job) {
  for (const internal::StoredBlob& named : job.blobs()) {
    const std::optional<Sha256> hash = Sha256FromRaw(named.sha256());
    if (!hash.has_value()) {
      continue;  // No release writes such a hash.
    }
    const BlobName name(job.tenant(), *hash);
    if (seen_.size() >= kSeenMax) {
      seen_.clear();
    }
    const auto [seen, is_new] = seen_.try_emplace(name, true);
    if (!seen->second) {
      TellOf(name, job.job().id());
    } else if (is_new) {
      waiting_.push_back({name, named.size_bytes(), {job.job().id()}});
    } else if (const auto same =
                   std::find_if(waiting_.begin(), waiting_.end(), [&](const Blob& blob) { return blob.name == name; });
               same != waiting_.end()) {
      same->jobs.push_back(job.job().id());
    }
  }
}

StatusOr<uint64_t> Scrub::StepBlob(uint64_t bytes_max) {
  const Blob& blob = waiting_.front();
  if (file_ == nullptr) {
    StatusOr<std::unique_ptr<DiskFile>> file = blobs_.Open(blob.name.first, blob.name.second, blob.size_bytes);
    if (!file.ok()) {
      HPVMD_RETURN_IF_ERROR(Judge(file.status()));
      return 1;
    }
    file_ = *std::move(file);
    hasher_.emplace();
    at_ = 0;
  }
  piece_.resize(std::min(std::max<uint64_t>(bytes_max, 1), blob.size_bytes - at_));
  const StatusOr<size_t> got = file_->ReadAt(at_, piece_);
  if (!got.ok()) {
    HPVMD_RETURN_IF_ERROR(Judge(got.status()));
    return 1;
  }
  hasher_->Add(std::span<const uint8_t>(piece_.data(), *got));
  at_ += *got;
  if (at_ >= blob.size_bytes || *got == 0) {
    const bool is_sound = hasher_->Finish() == blob.name.second;
    HPVMD_RETURN_IF_ERROR(Judge(is_sound ? absl::OkStatus() : DataLoss("The blob's bytes have another hash.")));
  }
  return std::max<uint64_t>(1, *got);
}

// Ends the check of the first waiting blob.
Status Scrub::Judge(const Status& status) {
  const Blob blob = std::move(waiting_.front());
  waiting_.pop_front();
  file_.reset();
  if (status.ok() || (absl::IsNotFound(status) && !IsNeeded(blob.name))) {
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(status) && !absl::IsDataLoss(status)) {
    return status;  // The error does not tell the state of the blob.
  }
  seen_[blob.name] = false;
  for (const std::string& job : blob.jobs) {
    TellOf(blob.name, job);
  }
  return absl::OkStatus();
}

bool Scrub::IsNeeded(const BlobName& name) {
  const StatusOr<bool> used = database_.UsesBlob(name.first, name.second);
  return used.ok() && *used;
}

void Scrub::TellOf(const BlobName& name, const std::string& job) {
  Tell({name.first, job,
        DataLoss("The file " + ToHex(name.second) + " of the store, which the job needs, is damaged.")});
}

void Scrub::Tell(const JobDamage& damage) {
  if (told_.emplace(damage.tenant, damage.id).second && on_damage_) {
    on_damage_(damage);
  }
}

}  // namespace hpvm::server
