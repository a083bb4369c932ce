// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_
#define HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::ctl {

// A valid document whose nodes run on these devices alone: "opencl:0", a family ("opencl") or a kind ("gpu"). What a
// node says itself still holds: kInvalidArgument names one that would have no device left.
Status RestrictDevices(const std::vector<std::string>& devices, std::string* document);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_
