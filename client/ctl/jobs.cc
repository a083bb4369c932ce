// SPDX-License-Identifier: Apache-2.0
// hpvmctl jobs list|get|logs|wait|cancel.
#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/follow.h"
#include "client/ctl/report.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string id;
  std::string output;  // "NAME=FILE".
  std::vector<std::string> outputs;
  uint32_t limit = 100;
};

Status List(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  std::vector<v1::Job> jobs;
  v1::ListJobsRequest request;
  bool more = false;
  do {
    request.set_page_size(std::min<uint32_t>(1000, options.limit - static_cast<uint32_t>(jobs.size())));
    HPVMD_ASSIGN_OR_RETURN(v1::ListJobsResponse page, client->ListJobs(request));
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
    more = !page.next_page_token().empty();
  } while (more && jobs.size() < options.limit);
  PrintJobs(jobs, globals.format);
  if (more) {
    fprintf(stderr, "hpvmctl: showing %zu jobs; there are more (--limit).\n", jobs.size());
  }
  return absl::OkStatus();
}

Status Get(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, client->GetJob(options.id));
  PrintJobs({job}, globals.format);
  return absl::OkStatus();
}

Status Logs(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, client->GetJob(options.id));
  PrintLogOf(job, globals.format);
  return absl::OkStatus();
}

Status Cancel(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, client->CancelJob(options.id));
  PrintJobs({job}, globals.format);
  return absl::OkStatus();
}

Status Wait(const Globals& globals, const Options& options, ExitCode* code) {
  FollowOptions follow;
  for (const std::string& word : options.outputs) {
    size_t at = word.find('=');
    if (at == 0 || at == std::string::npos) {
      return InvalidArgument("--output takes NAME=FILE, not \"" + word + "\".");
    }
    follow.output_files[word.substr(0, at)] = word.substr(at + 1);
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(*code, FollowJob(globals, *client, options.id, follow));
  return absl::OkStatus();
}

}  // namespace

void AddJobs(Commands commands) {
  auto options = std::make_shared<Options>();  // Shared by the option tables and actions, which outlive this function.
  CLI::App* jobs = commands.app.add_subcommand("jobs", "List, show, wait for and cancel jobs");
  jobs->require_subcommand(0, 1);
  auto add = [&](CLI::App* command, auto work) {
    command->callback([=, &globals = commands.globals, &action = commands.action] {
      if (!action) {  // The innermost command's callback comes first.
        action = [=, &globals] { return Report(work(globals, *options)); };
      }
    });
  };
  CLI::App* list = jobs->add_subcommand("list", "Newest first");
  list->add_option("--limit", options->limit, "At most this many")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  add(list, List);
  CLI::App* get = jobs->add_subcommand("get", "One job");
  get->add_option("job", options->id)->required();
  add(get, Get);
  CLI::App* logs = jobs->add_subcommand("logs", "What the kernels of a job that has ended printed");
  logs->add_option("job", options->id)->required();
  add(logs, Logs);
  CLI::App* cancel = jobs->add_subcommand("cancel", "Cancel a job; its final state tells what became of it");
  cancel->add_option("job", options->id)->required();
  add(cancel, Cancel);
  CLI::App* wait = jobs->add_subcommand("wait", "Follow a job to its end; the exit code tells how it ended");
  wait->add_option("job", options->id)->required();
  wait->add_option("-O,--output", options->outputs, "NAME=FILE for each output to write");
  wait->callback([=, &globals = commands.globals, &action = commands.action] {
    action = [=, &globals] {
      ExitCode code = kOk;
      Status status = Wait(globals, *options, &code);
      return status.ok() ? code : Report(status);
    };
  });
  add(jobs, List);
}

}  // namespace hpvm::ctl
