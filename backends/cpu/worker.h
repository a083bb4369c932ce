// SPDX-License-Identifier: Apache-2.0
// Worker runs parts of a dispatch for one participant.
#ifndef HPVMD_BACKENDS_CPU_WORKER_H_
#define HPVMD_BACKENDS_CPU_WORKER_H_

#include <memory>

#include "backends/cpu/executable.h"
#include "backends/cpu/group.h"

namespace hpvm::cpu {

class Worker {
 public:
  virtual ~Worker() = default;
  // Runs units [begin, end): of the variant, or groups for kernels whose instances interact. Returns false, with `trap`
  // filled, when an instance trapped.
  virtual StatusOr<bool> Run(const Variant& variant, uint64_t begin, uint64_t end, ir::TrapReport* trap) = 0;
};

class InstanceWorker final : public Worker {
 public:
  InstanceWorker(CpuExecutable& executable, const CpuLaunch& launch, Lane* lane)
      : executable_(executable), lane_(lane) {
    Bind(*lane_, launch);
  }
  ~InstanceWorker() override { executable_.lanes().Give(lane_); }
  StatusOr<bool> Run(const Variant& variant, uint64_t begin, uint64_t end, ir::TrapReport* trap) override {
    StatusOr<bool> done = Call(*lane_, variant.entry, begin, end);
    if (done.ok() && !*done) {
      *trap = TrapOf(lane_->context);
    }
    return done;
  }

 private:
  CpuExecutable& executable_;
  Lane* const lane_;
};

class GroupWorker final : public Worker {
 public:
  GroupWorker(CpuExecutable& executable, const CpuLaunch& launch, std::unique_ptr<GroupRunner> runner)
      : executable_(executable), launch_(launch), runner_(std::move(runner)) {}
  ~GroupWorker() override { executable_.GiveGroupRunner(std::move(runner_)); }
  StatusOr<bool> Run(const Variant& variant, uint64_t begin, uint64_t end, ir::TrapReport* trap) override;

 private:
  CpuExecutable& executable_;
  const CpuLaunch& launch_;
  std::unique_ptr<GroupRunner> runner_;
};

// The content of a dispatch: slices that each variant can run by itself, and the units in which variants count them.
class Work {
 public:
  // `box` is the whole launch, or the core (CutBox) of a part of one; not empty. For kernels with groups the launch's
  // own part applies.
  Work(CpuExecutable& executable, const CpuLaunch& launch, const Box& box, backends::VariantMask mask);

  uint64_t slices() const { return has_groups_ ? groups_ : slices_.count(); }
  uint64_t instances() const { return instances_; }
  uint64_t SliceInstances(uint64_t begin, uint64_t end) const;
  StatusOr<bool> RunSlices(Worker& worker, const Variant& variant, uint64_t begin, uint64_t end,
                           ir::TrapReport* trap) const;
  // The smallest part of a slice that can be run by itself, and the rest of the slice.
  uint64_t CornerInstances(uint64_t slice) const;
  StatusOr<bool> RunCorner(Worker& worker, const Variant& variant, uint64_t slice, ir::TrapReport* trap) const;
  StatusOr<bool> RunRest(Worker& worker, const Variant& variant, uint64_t slice, ir::TrapReport* trap) const;

 private:
  StatusOr<bool> RunBox(Worker& worker, const Variant& variant, const Box& box, ir::TrapReport* trap) const;

  const bool has_groups_;
  const uint64_t groups_, group_instances_, instances_;
  const backends::Extent extent_;
  const Slices slices_;  // Unused with groups.
};

}  // namespace hpvm::cpu

#endif  // HPVMD_BACKENDS_CPU_WORKER_H_
