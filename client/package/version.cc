// SPDX-License-Identifier: Apache-2.0
#include "hpvm/version.h"

namespace hpvm {

const char* Version() { return HPVMD_VERSION; }

}  // namespace hpvm
