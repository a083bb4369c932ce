// SPDX-License-Identifier: Apache-2.0
// Submission of jobs, for every command that makes them.
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

// AfterwardsOptions says what a command does with a job after submitting it.
struct AfterwardsOptions {
  bool detach = false;
  std::string id_file;
};

// SubmitArguments holds one job, or one array, as words.
struct SubmitArguments {
  GraphOptions graph;
  std::string name;
  std::vector<std::string> after;
  std::string array;
  std::string array_symbol;
  uint32_t attempts = 0;
  bool held = false;
  std::string wait_max, run_max, device_time_max;
  std::vector<std::string> needs;  // Words of the host.
  std::string host, host_memory;
};

// PreparedJob is a job that was read and checked, and the place of its words.
struct PreparedJob {
  std::string where;  // "line 3", for messages.
  std::string graph;  // The graph's name.
  SubmitItem item;
  std::map<std::string, std::string> output_files;
};

// Reads and checks everything, and sends nothing. Chooses a random key when there is none, so that the caller can
// name it whatever happens.
StatusOr<PreparedJob> PrepareJob(const SubmitArguments& arguments);

// Submits the jobs in as few calls as their sizes and arrays allow, and does `afterwards` with them. A refused job is
// reported, and the others continue; `code` is then its exit code, otherwise the one of the jobs' ends. `key` finds
// the jobs again after an interruption.
Status SubmitAll(const Globals& globals, std::vector<PreparedJob> jobs, const std::string& key,
                 const AfterwardsOptions& afterwards, ExitCode* code);

// Submits one job, or one array.
Status SubmitOne(const Globals& globals, PreparedJob job, const AfterwardsOptions& afterwards, ExitCode* code);

// Adds the options, for commands that make jobs in other ways.
void AddAfterwards(CLI::App& command, AfterwardsOptions& options, std::string& key);
// Checks that the file can be written before there is a job whose id it should hold.
Status CheckIdFile(const std::string& file);
Status WriteIdFile(const std::string& file, const std::string& id);
// Makes Ctrl-C name the key, because before a response nobody knows whether the job exists.
void SayKeyWhenInterrupted(const std::string& key);
Status WithKey(const Status& status, const std::string& key);
// Follows the submitted job, or prints its id.
Status Afterwards(const Globals& globals, Client& client, const v1::SubmitResponse& submitted,
                  const AfterwardsOptions& options, const FollowOptions& follow, ExitCode* code);

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_JOB_SUBMIT_H_
