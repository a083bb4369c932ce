// SPDX-License-Identifier: Apache-2.0
// The grant page's layout is in base/, because the daemon writes it and may not include backends/.
#ifndef HPVMD_BACKENDS_CONTRACT_GRANT_H_
#define HPVMD_BACKENDS_CONTRACT_GRANT_H_

#include "base/grant.h"

#endif  // HPVMD_BACKENDS_CONTRACT_GRANT_H_
