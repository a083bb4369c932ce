// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_PROCESSOR_TIME_H_
#define HPVMD_BASE_PROCESSOR_TIME_H_

#include "base/clock.h"

namespace hpvm {

// Returns the processor time of a process of this user so far, summed over its threads; 0 when there is no such
// process.
Duration ProcessorTimeOf(int pid);

}  // namespace hpvm

#endif  // HPVMD_BASE_PROCESSOR_TIME_H_
