// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BACKENDS_OPENCL_POCL_H_
#define HPVMD_BACKENDS_OPENCL_POCL_H_

#include <cstdlib>

namespace hpvm::opencl {

// Sets the environment variables that PoCL 3.1 reads when it is loaded; call it before that, while there is one thread.
// With `keeps`, variables that are already set are kept, so that people can try other values in tests.
inline void SetPoclEnvironment(bool keeps) {
  const int overwrites = keeps ? 0 : 1;
  // Generates machine code for every group size at once, so that a loaded binary needs no compiler in the runner.
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", overwrites);
  // Runs work items in plain loops. PoCL's default declares them parallel for LLVM's vectorizer, which then moves one
  // store of a work item behind a later store of the same work item to the same place (hpvm-gpu-random, seed 1011).
  setenv("POCL_WORK_GROUP_METHOD", "loops", overwrites);
}

}  // namespace hpvm::opencl

#endif  // HPVMD_BACKENDS_OPENCL_POCL_H_
