// SPDX-License-Identifier: Apache-2.0
#include "bench/cpu/cpu_watch.h"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace hpvm::bench {
namespace {

std::string Describe(const std::vector<CpuVariant>& variants, uint32_t index) {
  if (index >= variants.size()) {
    return "instances";
  }
  const CpuVariant& v = variants[index];
  std::string shape = std::to_string(v.lanes);
  if (v.columns * v.rows > 1) {
    shape += "x" + std::to_string(v.columns) + "x" + std::to_string(v.rows);
  }
  shape += v.is_along_y ? " along y" : v.is_for_edges ? " for edges" : "";
  const char* unit = v.unit == CpuVariant::Unit::kGroup  ? "group "
                     : v.unit == CpuVariant::Unit::kTile ? "tile "
                                                         : "instance ";
  return unit + shape + (v.needs_proof ? "" : " checked");
}

}  // namespace

// Forwards all calls.
class WatchedDevice final : public Device {
 public:
  WatchedDevice(VariantWatch& watch, std::unique_ptr<Device> device)
      : Device(device->hub()), watch_(watch), device_(std::move(device)) {}
  const DeviceInfo& info() const override { return device_->info(); }
  Support Supports(const KernelNeeds& needs) const override { return device_->Supports(needs); }
  StatusOr<std::unique_ptr<Executable>> Load(Artifact artifact, const Patience&) override {
    {
      const std::lock_guard lock(watch_.mutex_);
      // A unique name: the same kernel with and without fast math must not share one, and no measurement may exist
      // for it.
      artifact.name = HashOf(std::to_string(watch_.kernels_.size()));
      artifact.tuning = {};
      watch_.kernels_[artifact.name] = {.variants = artifact.variants, .tuning = {}};
      watch_.last_loaded_ = artifact.name;
    }
    return device_->Load(std::move(artifact));
  }
  StatusOr<std::unique_ptr<Buffer>> Allocate(const BufferSpec& spec) override { return device_->Allocate(spec); }
  Status Submit(const Submission& submission) override { return device_->Submit(submission); }

 private:
  VariantWatch& watch_;
  std::unique_ptr<Device> device_;
};

std::unique_ptr<Device> VariantWatch::Wrap(std::unique_ptr<Device> device) {
  return std::make_unique<WatchedDevice>(*this, std::move(device));
}

void VariantWatch::Keep(const Sha256& name, std::span<const uint8_t> record) {
  StatusOr<TuningRecord> tuning = DecodeTuning(record);
  if (tuning.ok()) {
    const std::lock_guard lock(mutex_);
    kernels_[name].tuning = *std::move(tuning);
  }
}

Sha256 VariantWatch::last_loaded() {
  const std::lock_guard lock(mutex_);
  return last_loaded_;
}

bool VariantWatch::HasSettled(const Sha256& name) {
  const std::lock_guard lock(mutex_);
  return kernels_[name].variants.empty() || !kernels_[name].tuning.classes.empty();
}

std::string VariantWatch::Chosen(const Sha256& name) {
  const std::lock_guard lock(mutex_);
  const Kernel& kernel = kernels_[name];
  if (kernel.variants.empty()) {
    return "instances";
  }
  if (kernel.tuning.classes.empty()) {
    return "not settled";
  }
  const TuningClass& tuning = kernel.tuning.classes.back();
  std::string text = Describe(kernel.variants, tuning.winner), others;
  for (uint32_t i = 0; i < tuning.instance_ns.size(); ++i) {
    if (tuning.instance_ns[i] > 0) {
      char figure[32];
      std::snprintf(figure, sizeof(figure), " %.3g", tuning.instance_ns[i]);
      others += (others.empty() ? "" : ", ") + Describe(kernel.variants, i) + figure;
    }
  }
  return text + " (ns: " + others + ")";
}

}  // namespace hpvm::bench
