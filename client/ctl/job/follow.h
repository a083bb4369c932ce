// SPDX-License-Identifier: Apache-2.0
// Follows jobs to their ends: progress on standard error, the report on standard output, outputs into files. Survives
// restarts of the server (--patience).
#ifndef HPVMD_CLIENT_CTL_JOB_FOLLOW_H_
#define HPVMD_CLIENT_CTL_JOB_FOLLOW_H_

#include <map>
#include <string>
#include <vector>

#include "client/ctl/command.h"

#include "hpvm/client.h"

namespace hpvm::ctl {

struct FollowOptions {
  // Maps outputs to files; "{index}" and "{job}" in a file name become the job's.
  std::map<std::string, std::string> output_files;
  // Files for single jobs, by job id, in addition to those for all.
  std::map<std::string, std::map<std::string, std::string>> output_files_of;
  Duration timeout = kNever;
};

// Sets the text that Ctrl-C prints from now on; the process then exits with kInterrupted. `text` is cut at 1 KiB.
void SayWhenInterrupted(const std::string& text);

// Ctrl-C leaves the job running and prints how to follow it again (kInterrupted). Returns a status when the call
// failed; a failed job is reported here and gives its exit code, and so does a timeout (kTimedOut).
StatusOr<ExitCode> FollowJob(const Globals& globals, Client& client, const std::string& id,
                             const FollowOptions& options);

// Follows several jobs; `title`, an array's id or the jobs' ids, is what Ctrl-C names. Returns the exit code of the
// first job, in their order, that did not succeed.
StatusOr<ExitCode> FollowAll(const Globals& globals, Client& client, const std::string& title,
                             const std::vector<std::string>& ids, const FollowOptions& options);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_FOLLOW_H_
