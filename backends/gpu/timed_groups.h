// SPDX-License-Identifier: Apache-2.0
// TimedGroups decides which launches of a submission are timed individually, and which share their total time: a
// measurement costs about as much as a small launch, so long lists are measured in groups of neighbours.
//
// A launch's share in a group of different launches does not measure that launch. In a long list with different
// launches, therefore, a few neighbours are timed individually, other ones in each submission, until all have been.
#ifndef HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_
#define HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_

#include <cstddef>

#include "backends/contract/device.h"

namespace hpvm::gpu {

// Returns true when both run the same kernel over the same instances, and are therefore expected to take equally long.
bool AreAlike(const DispatchCommand& a, const DispatchCommand& b);

class TimedGroups {
 public:
  // Maximum number of consecutive launches that are timed individually in a long list.
  static constexpr size_t kSampled = 32;

  // `length` is the number of launches in a group; 1: all are timed individually. `commands` may be null and is not
  // kept.
  TimedGroups(const CommandList* commands, size_t length);

  size_t length() const { return length_; }
  // Return whether launch `index` of the submission, counted from 0, is the first or the last of its group.
  bool Begins(size_t index) const { return index == 0 || Ends(index - 1); }
  bool Ends(size_t index) const;

 private:
  bool IsSampled(size_t index) const { return index >= sampled_begin_ && index < sampled_end_; }

  const size_t length_;
  size_t launches_ = 0;
  size_t sampled_begin_ = 0, sampled_end_ = 0;
};

// Returns the number of launches in a submission.
size_t CountLaunches(const CommandList* commands);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_
