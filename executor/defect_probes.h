// SPDX-License-Identifier: Apache-2.0
// Finds out which known defects a device's driver shows: `hpvm-executor --probe-defects=opencl:0`.
#ifndef HPVMD_EXECUTOR_DEFECT_PROBES_H_
#define HPVMD_EXECUTOR_DEFECT_PROBES_H_

#include <string>

#include "base/status.h"

namespace hpvm::executor {

// Runs each probe of backends/gpu/known_defects.h that concerns the device in a forked process, locked down like a
// builder; if a probe kills the driver, that is its answer, and the next one gets a new process. Prints a JSON line for
// each probe, and sends the defects shown as Ready if kExecutorSocket is a socket. Processor and wall time are bounded.
// Requires that the process has one thread.
Status RunDefectProbes(const std::string& device);

}  // namespace hpvm::executor

#endif  // HPVMD_EXECUTOR_DEFECT_PROBES_H_
