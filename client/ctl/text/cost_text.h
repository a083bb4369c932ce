// SPDX-License-Identifier: Apache-2.0
// What is known of costs, as text.
#ifndef HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_

#include <string>

#include "hpvm/v1/service.pb.h"

namespace hpvm::ctl {

// Two tables, kernels and transfers; what is still an estimate has a "~".
std::string CostText(const v1::ListCostsResponse& costs);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_
