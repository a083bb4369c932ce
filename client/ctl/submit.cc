// SPDX-License-Identifier: Apache-2.0
// hpvmctl submit: a job that outlives the command; followed until it ends unless --detach.
#include <signal.h>
#include <stdio.h>

#include <atomic>
#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/follow.h"
#include "client/ctl/graph_options.h"
#include "client/ctl/report.h"

namespace hpvm::ctl {
namespace {

struct Options {
  GraphOptions graph;
  bool detach = false;
  std::string name;
};

Status Submit(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(GraphJob job, LoadGraphJob(options.graph.arguments));
  HPVMD_ASSIGN_OR_RETURN(RunOptions run, ToRunOptions(options.graph, job));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(v1::SubmitResponse submitted,
                         client->Submit(job.document, job.modules, job.inputs, run, options.name));
  if (options.detach) {
    puts(submitted.job().id().c_str());
    return absl::OkStatus();
  }
  FollowOptions follow;
  follow.output_files = job.output_files;
  HPVMD_ASSIGN_OR_RETURN(*code, FollowJob(globals, *client, submitted.job().id(), follow));
  return absl::OkStatus();
}

}  // namespace

void AddSubmit(Commands commands) {
  auto options =
      std::make_shared<Options>();  // Shared by the option table and the action, which outlive this function.
  CLI::App* command = commands.app.add_subcommand("submit", "Submit a graph as a job and follow it to its end");
  AddGraphOptions(*command, options->graph);
  command->add_flag("-d,--detach", options->detach, "Print the job's id and leave it running");
  command->add_option("--name", options->name, "A name for people");
  command->add_option("--idempotency-key", options->graph.idempotency_key,
                      "Submitting again with the same key answers the first job");
  command->footer("Example:\n  hpvmctl submit matmul.json --input A=a.npy --input B=b.npy --output C=c.npy");
  command->callback([=, &globals = commands.globals, &action = commands.action] {
    action = [&globals, options] {
      ExitCode code = kOk;
      Status status = Submit(globals, *options, &code);
      return status.ok() ? code : Report(status);
    };
  });
}

}  // namespace hpvm::ctl
