// SPDX-License-Identifier: Apache-2.0
// Metrics of the daemon's state at the moment of a scrape, as families.
#ifndef HPVMD_SERVER_OBSERVE_SNAPSHOT_METRICS_H_
#define HPVMD_SERVER_OBSERVE_SNAPSHOT_METRICS_H_

#include <functional>
#include <string_view>

#include "server/observe/families.h"
#include "server/observe/watch.h"

namespace hpvm::server {

// `label_of` returns the label of a tenant's name.
void DescribeView(Families& families, const Watch::View& view,
                  const std::function<std::string_view(std::string_view)>& label_of);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_SNAPSHOT_METRICS_H_
