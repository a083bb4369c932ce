// SPDX-License-Identifier: Apache-2.0
// Metrics of this process, files and disks from the kernel, as families.
#ifndef HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_
#define HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_

#include <string>

#include "server/observe/families.h"

namespace hpvm::server {

// Adds process_*, under the names that Prometheus' client libraries use.
void DescribeProcess(Families& families);
// Adds the sizes of the job store's files in `store_folder`, and of the disk that holds `state_dir`.
void DescribeDisk(Families& families, const std::string& store_folder, const std::string& state_dir);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_
