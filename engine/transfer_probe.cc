// SPDX-License-Identifier: Apache-2.0
#include "engine/transfer_probe.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/plan.h"

namespace hpvm::engine {
namespace {

constexpr uint64_t kSmallBytes = 4 * 1024;
constexpr uint64_t kLargeBytes = 1024 * 1024;
constexpr int kChain = 8;
// A driver that needs longer for a megabyte has other problems.
constexpr Duration kPatience = std::chrono::milliseconds(50);

constexpr SlotIndex kHost = 0, kDevice = 1;

class Probe {
 public:
  Probe(Device& device, const Clock& clock, Duration most)
      : device_(device), clock_(clock), end_(clock.Now() + most), used_(std::make_unique<ProbeRemains>()) {}

  Status Open() {
    used_->memory.resize(kLargeBytes);
    used_->host = MakeHostView(used_->memory.data(), used_->memory.size());
    HPVMD_ASSIGN_OR_RETURN(used_->device, device_.Allocate({.bytes = kLargeBytes}));
    used_->timeline = device_.CreateTimeline();
    return absl::OkStatus();
  }

  // Returns the least of three, because the first copy of a kind may set things up. Nothing on failure or timeout.
  std::optional<double> Least(bool is_up, uint64_t bytes, int copies) {
    std::optional<double> least;
    for (int i = 0; i < 3 && is_usable_ && clock_.Now() < end_; ++i) {
      const std::optional<double> ns = Copy(is_up, bytes, copies);
      least = !ns.has_value() ? least : least.has_value() ? std::min(*least, *ns) : *ns;
    }
    return least;
  }

  // Returns null unless the driver may still be using the objects.
  std::unique_ptr<ProbeRemains> TakeRemains() { return is_usable_ ? nullptr : std::move(used_); }

 private:
  std::optional<double> Copy(bool is_up, uint64_t bytes, int copies) {
    used_->commands.commands.assign(
        static_cast<size_t>(copies),
        CopyCommand{.source = is_up ? kHost : kDevice, .target = is_up ? kDevice : kHost, .bytes = bytes});
    used_->table = {used_->host.get(), used_->device.get()};
    used_->signal = {used_->timeline.get(), ++value_};
    Submission submission;
    submission.commands = &used_->commands;
    submission.buffers = used_->table;
    submission.signals = {&used_->signal, 1};
    const Time begin = clock_.Now();
    is_usable_ = device_.Submit(submission).ok() && used_->timeline->Wait(value_, RealClock().Now() + kPatience).ok();
    if (!is_usable_) {
      return std::nullopt;
    }
    return static_cast<double>((clock_.Now() - begin).count());
  }

  Device& device_;
  const Clock& clock_;
  const Time end_;
  std::unique_ptr<ProbeRemains> used_;
  uint64_t value_ = 0;
  bool is_usable_ = true;
};

void Take(Probe& probe, bool is_up, double known_bytes_per_second, scheduler::TransferLine* line) {
  const std::optional<double> one = probe.Least(is_up, kSmallBytes, 1);
  const std::optional<double> chain = probe.Least(is_up, kSmallBytes, kChain);
  if (!one.has_value() || !chain.has_value()) {
    return;
  }
  // Nobody waits for uploads: an upload costs as much as one more copy in a queue. Somebody waits for downloads.
  const double queued = std::max((*chain - *one) / (kChain - 1), 0.0);
  line->start_ns = is_up ? queued : std::max(*one, queued);
  line->is_estimate = false;
  if (known_bytes_per_second > 0) {
    return;
  }
  if (const std::optional<double> large = probe.Least(is_up, kLargeBytes, 1); large.has_value()) {
    const double moving_ns = std::max(*large - *one, *large / 20);
    line->bytes_per_second = static_cast<double>(kLargeBytes - kSmallBytes) / std::max(moving_ns, 1.0) * 1e9;
  } else {
    line->is_estimate = true;
  }
}

}  // namespace

DeviceTransfers EstimateTransfers(const DeviceInfo& info) {
  DeviceTransfers transfers{.up = scheduler::LinkEstimate(), .down = scheduler::LinkEstimate()};
  if (info.upload_bytes_per_second > 0) {
    transfers.up.bytes_per_second = info.upload_bytes_per_second;
  }
  if (info.download_bytes_per_second > 0) {
    transfers.down.bytes_per_second = info.download_bytes_per_second;
  }
  return transfers;
}

DeviceTransfers MeasureTransfers(Device& device, const Clock& clock, Duration most,
                                 std::vector<std::unique_ptr<ProbeRemains>>* remains) {
  DeviceTransfers transfers = EstimateTransfers(device.info());
  Probe probe(device, clock, most);
  if (!probe.Open().ok()) {
    return transfers;
  }
  Take(probe, true, device.info().upload_bytes_per_second, &transfers.up);
  Take(probe, false, device.info().download_bytes_per_second, &transfers.down);
  if (std::unique_ptr<ProbeRemains> left = probe.TakeRemains(); left != nullptr) {
    remains->push_back(std::move(left));
  }
  return transfers;
}

}  // namespace hpvm::engine
