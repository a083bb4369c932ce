// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_
#define HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_

#include <string>
#include <vector>

#include "base/status.h"

namespace hpvm::ctl {

// Rewrites a valid document so that its nodes run only on these devices: "opencl:0", a family ("opencl") or a kind
// ("gpu"). A node's own restriction still holds: kInvalidArgument names a node that would have no device left.
Status RestrictDevices(const std::vector<std::string>& devices, std::string* document);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_GRAPH_DEVICES_H_
