// SPDX-License-Identifier: Apache-2.0
// Which launches of a submission are timed each by itself, and which share what they took together: a measurement costs
// about as much as a small launch, so long lists are measured in groups of neighbours.
//
// The share of a launch in a group of different ones says nothing of that launch. So of a long list with different
// launches a few neighbours are timed alone, others in each submission, until all have been.
#ifndef HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_
#define HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_

#include <cstddef>

#include "backends/contract/device.h"

namespace hpvm::gpu {

// Whether both run the same kernel over the same instances, and so are expected to take as long.
bool AreAlike(const DispatchCommand& a, const DispatchCommand& b);

class TimedGroups {
 public:
  // Launches in a row that are timed alone, at most, of a long list that needs it.
  static constexpr size_t kSampled = 32;

  // `length`: launches of a group; 1: all are timed alone. `commands` may be null and is not kept.
  TimedGroups(const CommandList* commands, size_t length);

  size_t length() const { return length_; }
  // Whether launch `index` of the submission, counted from 0, is the first and the last of its group.
  bool Begins(size_t index) const { return index == 0 || Ends(index - 1); }
  bool Ends(size_t index) const;

 private:
  bool IsSampled(size_t index) const { return index >= sampled_begin_ && index < sampled_end_; }

  const size_t length_;
  size_t launches_ = 0;
  size_t sampled_begin_ = 0, sampled_end_ = 0;
};

// How many launches a submission has.
size_t CountLaunches(const CommandList* commands);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_TIMED_GROUPS_H_
