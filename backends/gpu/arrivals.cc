// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/arrivals.h"

#include <algorithm>

namespace hpvm::gpu {

Arrivals::~Arrivals() {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (i < begun_) {
      ring_.copier().Finish(pieces_[i].slot->task);
    }
    ring_.Release(*pieces_[i].slot);
  }
}

Status Arrivals::Download(uint8_t* target, uint64_t bytes, const StagingRing::TakeSlot& take,
                          const StagingRing::Submit& submit) {
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t piece = std::min(ring_.slot_bytes(), bytes - at);
    HPVMD_ASSIGN_OR_RETURN(StagingSlot* const slot, take());
    if (Status status = submit(*slot, at, piece); !status.ok()) {
      ring_.Release(*slot);
      return status;
    }
    pieces_.push_back({slot, target + at, piece, at == 0 ? bytes : 0});
    at += piece;
  }
  return absl::OkStatus();
}

bool Arrivals::Touches(const uint8_t* data, uint64_t bytes) const {
  return std::ranges::any_of(
      pieces_, [&](const Piece& piece) { return piece.target < data + bytes && data < piece.target + piece.bytes; });
}

// Starts the copies of all slots with which the device is done, and that of the first one in any case.
Status Arrivals::BeginCopies() {
  while (begun_ < pieces_.size()) {
    const Piece& piece = pieces_[begun_];
    if (begun_ != 0 && !ring_.driver().IsOver(*piece.slot)) {
      break;
    }
    HPVMD_RETURN_IF_ERROR(ring_.driver().Await(*piece.slot));
    HPVMD_RETURN_IF_ERROR(may_write_());
    // With an H200, eight threads empty slots at 45 GB/s through the caches, and at 53 GB/s bypassing them.
    ring_.copier().Start(
        piece.slot->task,
        {.target = piece.target, .source = piece.slot->data, .bytes = piece.bytes, .is_streamed = true});
    ++begun_;
  }
  return absl::OkStatus();
}

Status Arrivals::FreeOne() {
  HPVMD_RETURN_IF_ERROR(BeginCopies());
  const Piece piece = pieces_.front();
  if (piece.copy_bytes != 0) {
    // Before its first piece the copy may have waited for the kernel that produces its data.
    flow_.reset(new CopyFlow(ring_.copier().Flow(/*is_up=*/false, piece.copy_bytes, /*staging_bytes=*/1)));
    flow_left_ = piece.copy_bytes;
  }
  ring_.copier().Finish(piece.slot->task);
  pieces_.pop_front();
  --begun_;
  ring_.Release(*piece.slot);
  flow_->Moved(piece.bytes);
  flow_left_ -= piece.bytes;
  if (flow_left_ == 0) {
    flow_.reset();
  }
  return absl::OkStatus();
}

StatusOr<StagingSlot*> Arrivals::Take() {
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(StagingSlot* const slot, ring_.TryTake());
    if (slot != nullptr) {
      return slot;
    }
    if (pieces_.empty()) {
      return ring_.Take();
    }
    HPVMD_RETURN_IF_ERROR(FreeOne());
  }
}

Status Arrivals::Finish() {
  while (!pieces_.empty()) {
    HPVMD_RETURN_IF_ERROR(FreeOne());
  }
  return absl::OkStatus();
}

}  // namespace hpvm::gpu
