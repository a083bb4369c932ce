// SPDX-License-Identifier: Apache-2.0
// Job files: the content of a `hpvmctl submit` command line as one JSON document (schemas/job.schema.json,
// docs/CLI.md).
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
  // Words as on the command line; file names are as in the job file.
  SubmitArguments job;
  std::map<std::string, std::string> modules;  // Files by the names of the graph's modules.
};

// Parses a job file without opening any other file. kInvalidArgument lists every error with its place, a JSON
// pointer; unknown names come with similar ones. `file` is used in messages.
StatusOr<JobFile> ParseJobFile(const std::string& file, std::string_view text);

// Reads a job file. The files that it names must lie in its folder or below, or be among `allow_files`
// (kInvalidArgument otherwise); the returned words name files relative to this process's folder.
StatusOr<SubmitArguments> ReadJobFile(const std::string& file, const std::vector<std::string>& allow_files);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_JOB_FILE_H_
