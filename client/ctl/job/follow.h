// SPDX-License-Identifier: Apache-2.0
// Following jobs to their ends: progress on standard error, the report on standard output, outputs into files. A server
// that restarts meanwhile does not end it (--patience).
#ifndef HPVMD_CLIENT_CTL_JOB_FOLLOW_H_
#define HPVMD_CLIENT_CTL_JOB_FOLLOW_H_

#include <map>
#include <string>
#include <vector>

#include "client/ctl/command.h"

#include "hpvm/client.h"

namespace hpvm::ctl {

struct FollowOptions {
  // Output -> file; "{index}" and "{job}" in its name become the job's.
  std::map<std::string, std::string> output_files;
  // The same of single jobs, by id, besides those for all.
  std::map<std::string, std::map<std::string, std::string>> output_files_of;
  Duration timeout = kNever;
};

// What Ctrl-C says from now on; the process then exits with kInterrupted. `text` is cut at 1 KiB.
void SayWhenInterrupted(const std::string& text);

// Ctrl-C leaves the job running and says how to come back (kInterrupted). A status when the call failed; a job that
// failed is reported here and gives its exit code, and so does a timeout (kTimedOut).
StatusOr<ExitCode> FollowJob(const Globals& globals, Client& client, const std::string& id,
                             const FollowOptions& options);

// Several jobs; `title`, an array's id or the jobs' ids, is what Ctrl-C names. The exit code is that of the first, in
// their order, that did not succeed.
StatusOr<ExitCode> FollowAll(const Globals& globals, Client& client, const std::string& title,
                             const std::vector<std::string>& ids, const FollowOptions& options);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_FOLLOW_H_
