// SPDX-License-Identifier: Apache-2.0
// Following a job to its end: progress on standard error, the report on standard output, outputs into files.
#ifndef HPVMD_CLIENT_CTL_FOLLOW_H_
#define HPVMD_CLIENT_CTL_FOLLOW_H_

#include <map>
#include <string>

#include "client/client.h"
#include "client/ctl/command.h"

namespace hpvm::ctl {

struct FollowOptions {
  std::map<std::string, std::string> output_files;  // Output -> file.
};

// Ctrl-C leaves the job running and says how to come back (kInterrupted). A status when the call failed; a job that
// failed is reported here and gives its exit code.
StatusOr<ExitCode> FollowJob(const Globals& globals, Client& client, const std::string& id,
                             const FollowOptions& options);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_FOLLOW_H_
