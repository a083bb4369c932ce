// SPDX-License-Identifier: Apache-2.0
// Job files: in one JSON document what a command line of `hpvmctl submit` says (schemas/job.schema.json, docs/CLI.md).
#ifndef HPVMD_CLIENT_CTL_JOB_JOB_FILE_H_
#define HPVMD_CLIENT_CTL_JOB_JOB_FILE_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/job/submit.h"

#include "base/status.h"

namespace hpvm::ctl {

struct JobFile {
  // Words as on the command line; files as the job file names them.
  SubmitArguments job;
  std::map<std::string, std::string> modules;  // Files by the names of the graph's modules.
};

// kInvalidArgument lists every fault with its place, a JSON pointer; names that are not known come with their nearest
// neighbours. `file` is for messages. Opens no file.
StatusOr<JobFile> ParseJobFile(const std::string& file, std::string_view text);

// The same from a file. What it names lies beside it or below, or is one of `allow_files` (kInvalidArgument otherwise);
// afterwards the words name files for this process's folder.
StatusOr<SubmitArguments> ReadJobFile(const std::string& file, const std::vector<std::string>& allow_files);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_JOB_FILE_H_
