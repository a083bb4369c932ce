// SPDX-License-Identifier: Apache-2.0
// Inputs of a launch on a GPU, taken from a dispatch: sizes, scalars, buffers and virtual addresses, checked against
// the kernel's parameters.
#ifndef HPVMD_BACKENDS_GPU_DISPATCH_H_
#define HPVMD_BACKENDS_GPU_DISPATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "backends/contract/device.h"
#include "backends/gpu/launch.h"

namespace hpvm::gpu {

struct LaunchInputs {
  LaunchFacts facts;
  std::vector<Buffer*> buffers;  // One per parameter; null for scalars.
  // Virtual addresses, for kernels that have an argument of them; otherwise empty and 0.
  std::vector<uint64_t> base;
  uint64_t group_base = 0;
};

// Reads the launch and its running box; returns kInternal when that is not a box of whole groups inside the launch.
Status ReadBox(const DispatchCommand& dispatch, LaunchFacts* facts);

class LaunchReader {
 public:
  // `artifact` is borrowed.
  explicit LaunchReader(const Artifact& artifact);
  // Fills `inputs`, whose storage is reused. Returns kInternal when the arguments do not fit the parameters, because
  // callers have validated them; kInvalidArgument when the buffers do not fit the kernel's address type. Forgets known
  // words that the dispatch may write (known_words.h).
  Status Read(const DispatchCommand& dispatch, const Submission& submission, LaunchInputs* inputs) const;

 private:
  Status ReadArgument(size_t index, const DispatchArgument& argument, const Submission& submission,
                      LaunchInputs* inputs) const;
  Status AssignAddresses(LaunchInputs* inputs) const;
  void ReadWords(LaunchInputs* inputs) const;
  void ForgetWritten(const LaunchInputs& inputs) const;
  bool IsWritten(const LaunchInputs& inputs, size_t index) const;

  const Artifact& artifact_;
  ir::Module outline_;  // The part of the module on which addresses depend.
  bool has_addresses_ = false;
  std::vector<uint32_t> words_;  // Parameters whose words some variant needs.
};

// Returns the buffer of a slot that contains the view; kInternal when it does not.
StatusOr<Buffer*> ViewedBuffer(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes);
// Records which variant runs most of the dispatch, for timing of the submission: that of its first part.
void NoteVariant(const Chosen& chosen, const DispatchCommand& dispatch, const Submission& submission);
// Returns true when no instance runs.
bool IsEmpty(const DispatchCommand& dispatch);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_DISPATCH_H_
