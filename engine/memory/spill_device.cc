// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/spill_device.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "backends/shared/lane_thread.h"
#include "engine/memory/spill_file.h"

namespace hpvm::engine {
namespace {

class SpillBuffer final : public Buffer {
 public:
  SpillBuffer(std::shared_ptr<SpillFile> file, uint64_t offset, uint64_t bytes)
      : file_(std::move(file)), offset_(offset), bytes_(bytes) {}
  ~SpillBuffer() override { file_->GiveBack(offset_, bytes_); }
  uint64_t bytes() const override { return bytes_; }
  uint8_t* host() override { return nullptr; }
  uint64_t offset() const { return offset_; }

 private:
  const std::shared_ptr<SpillFile> file_;  // Shared, because buffers may outlive the device.
  const uint64_t offset_, bytes_;
};

// Executes the submissions of the file.
class SpillCopier {
 public:
  explicit SpillCopier(const SpillFile& file) : file_(file) {}

  Status Run(const Submission& submission) const {
    for (const Command& command : submission.commands->commands) {
      if (const auto* copy = std::get_if<CopyCommand>(&command)) {
        HPVMD_RETURN_IF_ERROR(Copy(*copy, submission));
      } else if (const auto* fill = std::get_if<FillCommand>(&command)) {
        HPVMD_RETURN_IF_ERROR(Fill(*fill, submission));
      } else {
        return Internal("The spill file was given a launch.");
      }
    }
    return absl::OkStatus();
  }

 private:
  Status Copy(const CopyCommand& copy, const Submission& submission) const {
    HPVMD_ASSIGN_OR_RETURN(Buffer * source, View(submission, copy.source, copy.source_offset, copy.bytes));
    HPVMD_ASSIGN_OR_RETURN(Buffer * target, View(submission, copy.target, copy.target_offset, copy.bytes));
    const auto* from = dynamic_cast<const SpillBuffer*>(source);
    const auto* to = dynamic_cast<const SpillBuffer*>(target);
    if ((from == nullptr) == (to == nullptr)) {
      return Internal("A copy for the spill file is not between the spill file and host memory.");
    }
    return from != nullptr ? file_.Read(from->offset() + copy.source_offset, target->host() + copy.target_offset,
                                        copy.bytes, submission.stop)
                           : file_.Write(to->offset() + copy.target_offset, source->host() + copy.source_offset,
                                         copy.bytes, submission.stop);
  }

  Status Fill(const FillCommand& fill, const Submission& submission) const {
    HPVMD_ASSIGN_OR_RETURN(Buffer * target, View(submission, fill.target, fill.offset, fill.bytes));
    const auto* to = dynamic_cast<const SpillBuffer*>(target);
    return to == nullptr ? Internal("A fill for the spill file is of other memory.")
                         : file_.Fill(to->offset() + fill.offset, fill.bytes, fill.value, submission.stop);
  }

  static StatusOr<Buffer*> View(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes) {
    Buffer* buffer = slot < submission.buffers.size() ? submission.buffers[slot] : nullptr;
    if (buffer == nullptr || offset > buffer->bytes() || bytes > buffer->bytes() - offset) {
      return Internal("View at byte " + std::to_string(offset) + " of " + std::to_string(bytes) +
                      " bytes does not fit buffer slot " + std::to_string(slot) + ".");
    }
    return buffer;
  }

  const SpillFile& file_;
};

class SpillDevice final : public Device {
 public:
  SpillDevice(Hub& hub, int fd, uint64_t bytes_max)
      : Device(hub),
        file_(std::make_shared<SpillFile>(fd, bytes_max)),
        copier_(*file_),
        lanes_{backends::LaneThread(Runner()), backends::LaneThread(Runner()), backends::LaneThread(Runner())} {
    info_.id = info_.silicon = kSpillId;
    info_.name = "spill file";
    info_.memory_bytes = info_.allocation_bytes_max = file_->bytes_max();
    info_.bytes_per_second = info_.upload_bytes_per_second = info_.download_bytes_per_second = 1e9;
    info_.has_copy_lanes = true;
  }

  const DeviceInfo& info() const override { return info_; }
  Support Supports(const KernelNeeds&) const override { return {false, "The spill file only stores data."}; }
  StatusOr<std::unique_ptr<Executable>> Load(Artifact, const Patience&) override {
    return Internal("The spill file runs no kernels.");
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override {
    HPVMD_CHECK(spec.import == nullptr && !spec.is_exported && spec.shared == nullptr);
    HPVMD_ASSIGN_OR_RETURN(const uint64_t offset, file_->Take(spec.bytes));
    return std::make_unique<SpillBuffer>(file_, offset, spec.bytes);
  }
  Status Submit(const Submission& submission) override {
    return lanes_[static_cast<size_t>(submission.lane)].Submit(submission);
  }

 private:
  backends::LaneThread::Runner Runner() const {
    return [this](const Submission& submission) { return copier_.Run(submission); };
  }

  const std::shared_ptr<SpillFile> file_;
  const SpillCopier copier_;
  DeviceInfo info_;
  std::array<backends::LaneThread, kLanes> lanes_;
};

}  // namespace

StatusOr<std::unique_ptr<Device>> CreateSpillDevice(Hub& hub, int fd, uint64_t bytes_max) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) {
    return Unavailable(std::string("The spill file cannot be used: ") + std::strerror(errno) + ".");
  }
  return std::make_unique<SpillDevice>(hub, own, bytes_max);
}

}  // namespace hpvm::engine
