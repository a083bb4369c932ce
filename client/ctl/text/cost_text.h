// SPDX-License-Identifier: Apache-2.0
// Text for records of costs.
#ifndef HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_
#define HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_

#include <string>

#include "hpvm/v1/record.pb.h"

namespace hpvm::ctl {

// Returns tables; values that are still estimates are marked with "~".
std::string CostText(const google::protobuf::RepeatedPtrField<v1::KernelCost>& kernels, bool has_more);
std::string CostText(const google::protobuf::RepeatedPtrField<v1::TransferCost>& transfers);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_TEXT_COST_TEXT_H_
