// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_PROCESSOR_TIME_H_
#define HPVMD_BASE_PROCESSOR_TIME_H_

#include "base/clock.h"

namespace hpvm {

// What a process of this user's has used of processors so far, all its threads together; 0 when there is none such.
Duration ProcessorTimeOf(int pid);

}  // namespace hpvm

#endif  // HPVMD_BASE_PROCESSOR_TIME_H_
