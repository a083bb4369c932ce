// SPDX-License-Identifier: Apache-2.0
// What the kernel says of this process, of files and of disks, as families.
#ifndef HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_
#define HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_

#include <string>

#include "server/observe/families.h"

namespace hpvm::server {

// process_*, under the names that Prometheus' client libraries agree on.
void DescribeProcess(Families& families);
// Sizes of the job store's files in `store_folder`, and of the disk that `state_dir` is on.
void DescribeDisk(Families& families, const std::string& store_folder, const std::string& state_dir);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_OBSERVE_PROCESS_METRICS_H_
