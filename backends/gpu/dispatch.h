// SPDX-License-Identifier: Apache-2.0
// What a dispatch brings to a launch on a GPU: sizes, scalars, buffers and virtual addresses, checked against the
// kernel's parameters.
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
  std::vector<Buffer*> buffers;  // One a parameter; null for scalars.
  // Virtual addresses, for kernels that have an argument of them; else empty and 0.
  std::vector<uint64_t> base;
  uint64_t group_base = 0;
};

// The launch and the box of it that runs; kInternal when that is no box of whole groups inside it.
Status ReadBox(const DispatchCommand& dispatch, LaunchFacts* facts);

class LaunchReader {
 public:
  // `artifact` is borrowed.
  explicit LaunchReader(const Artifact& artifact);
  // Fills `inputs`, whose storage is used again. kInternal when the arguments do not fit the parameters, because
  // callers have validated them; kInvalidArgument when the buffers do not fit the kernel's address type. What was known
  // of the words that the dispatch may write is forgotten (known_words.h).
  Status Read(const DispatchCommand& dispatch, const Submission& submission, LaunchInputs* inputs) const;

 private:
  Status ReadArgument(size_t index, const DispatchArgument& argument, const Submission& submission,
                      LaunchInputs* inputs) const;
  Status AssignAddresses(LaunchInputs* inputs) const;
  void ReadWords(LaunchInputs* inputs) const;
  void ForgetWritten(const LaunchInputs& inputs) const;
  bool IsWritten(const LaunchInputs& inputs, size_t index) const;

  const Artifact& artifact_;
  ir::Module outline_;  // What addresses depend on.
  bool has_addresses_ = false;
  std::vector<uint32_t> words_;  // Parameters whose words some variant asks for.
};

// The buffer of a slot, of which the view is a part; kInternal when it is not.
StatusOr<Buffer*> ViewedBuffer(const Submission& submission, SlotIndex slot, uint64_t offset, uint64_t bytes);
// Notes which variant runs most of the dispatch, for who times the submission: that of its first part.
void NoteVariant(const Chosen& chosen, const DispatchCommand& dispatch, const Submission& submission);
// Whether no instance runs.
bool IsEmpty(const DispatchCommand& dispatch);

}  // namespace hpvm::gpu

#endif  // HPVMD_BACKENDS_GPU_DISPATCH_H_
