// SPDX-License-Identifier: Apache-2.0
// Submitting jobs, for every command that makes them.
#ifndef HPVMD_CLIENT_CTL_JOB_SUBMIT_H_
#define HPVMD_CLIENT_CTL_JOB_SUBMIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/ctl/command.h"
#include "client/ctl/graph_options.h"
#include "client/ctl/job/follow.h"

#include "hpvm/client.h"

namespace hpvm::ctl {

// The things that a command does with a job that it has made.
struct AfterwardsOptions {
  bool detach = false;
  std::string id_file;
};

// One job, or one array, as words.
struct SubmitArguments {
  GraphOptions graph;
  std::string name;
  std::vector<std::string> after;
  std::string array;
  std::string array_symbol;
  uint32_t attempts = 0;
};

// A job, read and checked, and where its words stand.
struct PreparedJob {
  std::string where;  // "line 3", for messages.
  std::string graph;  // The graph's name.
  SubmitItem item;
  std::map<std::string, std::string> output_files;
};

// Reads and checks everything, and sends nothing. Without a key a random one is chosen, so that the caller can name it
// whatever happens.
StatusOr<PreparedJob> PrepareJob(const SubmitArguments& arguments);

// Submits them in one call, or as few as their sizes and arrays allow, and does `afterwards` with them. One that is
// refused is named, and the others go on; `code` is its exit code then, else that of the jobs' ends. `key` is what
// finds them again after an interruption.
Status SubmitAll(const Globals& globals, std::vector<PreparedJob> jobs, const std::string& key,
                 const AfterwardsOptions& afterwards, ExitCode* code);

// One job, or one array.
Status SubmitOne(const Globals& globals, PreparedJob job, const AfterwardsOptions& afterwards, ExitCode* code);

// For commands that make jobs otherwise.
void AddAfterwards(CLI::App& command, AfterwardsOptions& options, std::string& key);
// A file that cannot be written is found before there is a job whose id it should hold.
Status CheckIdFile(const std::string& file);
Status WriteIdFile(const std::string& file, const std::string& id);
// Before there is an answer, nobody knows whether there is a job.
void SayKeyWhenInterrupted(const std::string& key);
Status WithKey(const Status& status, const std::string& key);
// Follows what was submitted, or prints its id.
Status Afterwards(const Globals& globals, Client& client, const v1::SubmitResponse& submitted,
                  const AfterwardsOptions& options, const FollowOptions& follow, ExitCode* code);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_SUBMIT_H_
