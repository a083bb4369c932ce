// SPDX-License-Identifier: Apache-2.0
// hpvmctl list|get|wait|cancel|hold|release|logs, also below `hpvmctl jobs`.
#include <stdio.h>

#include <algorithm>
#include <memory>

#include "client/ctl/job/follow.h"
#include "client/ctl/job/live_log.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/text.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::vector<std::string> ids;
  std::vector<std::string> outputs;  // "NAME=FILE".
  std::vector<std::string> states, labels;
  std::string array;
  std::string reason;
  std::string timeout;
  uint32_t limit = 100;
  bool all = false;
  bool all_tenants = false;
  bool watch = false;
  bool follow = false;
};

bool IsArray(const std::string& id) { return id.starts_with("array-"); }

// Returns the jobs that the words name; an array is replaced by its elements.
StatusOr<std::vector<std::string>> JobsOf(Client& client, const std::vector<std::string>& words) {
  std::vector<std::string> ids;
  for (const std::string& word : words) {
    if (!IsArray(word)) {
      ids.push_back(word);
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> elements, client.ArrayJobs(word));
    ids.insert(ids.end(), elements.begin(), elements.end());
  }
  return ids;
}

StatusOr<v1::ListJobsRequest> RequestOf(const Options& options) {
  v1::ListJobsRequest request;
  for (const std::string& word : options.states) {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::JobState> states, ParseStates(word));
    for (const v1::JobState state : states) {
      request.add_states(state);
    }
  }
  for (const std::string& word : options.labels) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(word, "--label", true));
    (*request.mutable_labels())[pair.first] = pair.second;
  }
  request.set_array_id(options.array);
  request.set_all_tenants(options.all_tenants);
  return request;
}

// Prints a line for each current job, the oldest first, and for each change, until interrupted.
Status WatchList(const Globals& globals, Client& client, const v1::ListJobsRequest& request, uint64_t jobs_max) {
  WatchJobsOptions watch;
  *watch.filter.mutable_states() = request.states();
  *watch.filter.mutable_labels() = request.labels();
  watch.filter.set_array_id(request.array_id());
  watch.filter.set_list_max(jobs_max == UINT32_MAX ? 0 : static_cast<uint32_t>(jobs_max));
  bool with_heading = true;
  return client.WatchJobs(watch, [&](const v1::JobChange& change) {
    if (change.has_job()) {
      PrintJobLine(change.job(), globals.format, with_heading);
      with_heading = false;
    }
    return true;
  });
}

Status List(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const v1::ListJobsRequest request, RequestOf(options));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  const uint64_t jobs_max = options.all ? UINT32_MAX : options.limit;
  if (options.watch && options.all_tenants) {
    return InvalidArgument(
        "--watch shows the jobs of one tenant, and --all-tenants the jobs of all: give only one of them.");
  }
  if (options.watch) {
    return WatchList(globals, *client, request, jobs_max);
  }
  bool more = false;
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, client->ListAllJobs(request, jobs_max, &more));
  if (options.all_tenants && !jobs.empty() && jobs.front().tenant().empty()) {
    return Unimplemented("The server does not list the jobs of all tenants at once; its release is older.");
  }
  PrintJobs(jobs, globals.format);
  if (more) {
    fprintf(stderr, "hpvmctl: showing %zu jobs; there are more (--limit, --all).\n", jobs.size());
  }
  return absl::OkStatus();
}

Status Get(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  std::vector<v1::Job> jobs;
  bool has_array = false;
  for (const std::string& id : options.ids) {
    if (IsArray(id)) {
      has_array = true;
      v1::ListJobsRequest request;
      request.set_array_id(id);
      HPVMD_ASSIGN_OR_RETURN(std::vector<v1::Job> elements, client->ListAllJobs(request, UINT32_MAX));
      if (elements.empty()) {
        return NotFound("There is no array \"" + id + "\".");
      }
      std::sort(elements.begin(), elements.end(),
                [](const v1::Job& a, const v1::Job& b) { return a.array_index() < b.array_index(); });
      fprintf(stderr, "%s: %s\n", Printable(id).c_str(), StateCounts(elements).c_str());
      jobs.insert(jobs.end(), elements.begin(), elements.end());
    } else {
      HPVMD_ASSIGN_OR_RETURN(jobs.emplace_back(), client->GetJob(id));
    }
  }
  if (has_array || globals.format == Format::kWide) {
    PrintJobs(jobs, globals.format);
  } else {
    PrintJobsInFull(jobs, globals.format);
  }
  return absl::OkStatus();
}

// Prints lines as kernels print them, and at the end the lines of the job's log that were not shown, so that each
// line of the log appears once. Lines of a lost attempt stay on the screen, followed by the next attempt's.
StatusOr<v1::Job> FollowLog(const Globals& globals, Client& client, const std::string& id) {
  LiveLog live;
  WaitOptions wait;
  uint32_t attempt = 0;
  wait.on_event = [&](const v1::JobEvent& event) {
    if (event.has_job() && event.job().attempt() != attempt) {
      if (attempt != 0 && !live.empty()) {
        fprintf(stderr, "hpvmctl: attempt %u was lost; its lines are above, and attempt %u follows.\n", attempt,
                event.job().attempt());
      }
      attempt = event.job().attempt();
      live.Clear();
    }
    if (event.has_log() && globals.format != Format::kJson) {
      v1::Job said;
      *said.mutable_log() = event.log();
      PrintLogOf(said, globals.format);
      fflush(stdout);
      live.Add(event.log());
    }
  };
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, client.WaitJob(id, wait));
  live.RemoveFrom(job.mutable_log());
  return job;
}

Status Logs(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> ids, JobsOf(*client, options.ids));
  if (options.follow) {
    SayWhenInterrupted("\nhpvmctl: the job goes on; `hpvmctl logs -f " + options.ids.front() + "` follows it again.\n");
  }
  for (const std::string& id : ids) {
    // Lines of several jobs could not be told apart, so the jobs are shown one after the other.
    const bool is_live = options.follow && ids.size() == 1;
    HPVMD_ASSIGN_OR_RETURN(const v1::Job job, is_live          ? FollowLog(globals, *client, id)
                                              : options.follow ? client->WaitJob(id)
                                                               : client->GetJob(id));
    if (ids.size() > 1 && globals.format != Format::kJson) {
      printf("--- %s [%llu]\n", Printable(id).c_str(), static_cast<unsigned long long>(job.array_index()));
    }
    PrintLogOf(job, globals.format);
    if (!HasEnded(job)) {
      fprintf(stderr, "hpvmctl: job %s is %s; its log can be read when the job has ended (-f waits for that).\n",
              Printable(id).c_str(), StateText(job.state()).c_str());
    } else if (job.dropped()) {
      fprintf(stderr, "hpvmctl: the log of job %s was dropped to make room.\n", Printable(id).c_str());
    }
  }
  return absl::OkStatus();
}

Status Cancel(const Globals& globals, const Options& options) {
  // `hpvmctl cancel $(hpvmctl list --state live -o name)` without live jobs succeeds.
  if (options.ids.empty()) {
    fputs("hpvmctl: no job was named, so none is cancelled; `hpvmctl list --state live` lists the jobs that can be.\n",
          stderr);
    if (globals.format == Format::kJson) {
      PrintJobs({}, globals.format);
    }
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  std::vector<v1::Job> jobs;
  for (const std::string& id : options.ids) {
    HPVMD_ASSIGN_OR_RETURN(v1::CancelJobResponse answer, While(client->CancelJob(id), "cancelling " + id));
    if (IsArray(id)) {
      fprintf(stderr, "%s: %u jobs had not ended and are cancelled\n", Printable(id).c_str(), answer.cancelled());
      v1::ListJobsRequest request;
      request.set_array_id(id);
      HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> elements, client->ListAllJobs(request, UINT32_MAX));
      jobs.insert(jobs.end(), elements.begin(), elements.end());
      continue;
    }
    if (answer.cancelled() == 0 && HasEnded(answer.job())) {
      fprintf(stderr, "hpvmctl: job %s had already ended as %s.\n", Printable(id).c_str(),
              StateText(answer.job().state()).c_str());
    }
    jobs.push_back(std::move(*answer.mutable_job()));
  }
  PrintJobs(jobs, globals.format);
  return absl::OkStatus();
}

// Holds or releases jobs and arrays, and prints their new state.
Status SetHold(const Globals& globals, const Options& options, bool held, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  std::vector<v1::Job> jobs;
  for (const std::string& id : options.ids) {
    StatusOr<v1::SetJobHoldResponse> answered =
        While(client->SetJobHold(id, held, options.reason), (held ? "holding " : "releasing ") + id);
    if (absl::IsFailedPrecondition(answered.status())) {
      *code = kUsage;  // The job runs or has ended: kFailedPrecondition has another exit code elsewhere.
      Report(answered.status());
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(v1::SetJobHoldResponse answer, std::move(answered));
    if (!IsArray(id)) {
      jobs.push_back(std::move(*answer.mutable_job()));
      continue;
    }
    fprintf(stderr, "%s: %u jobs %s now and were not before\n", Printable(id).c_str(), answer.changed(),
            held ? "are held" : "are released");
    v1::ListJobsRequest request;
    request.set_array_id(id);
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> elements, client->ListAllJobs(request, UINT32_MAX));
    jobs.insert(jobs.end(), elements.begin(), elements.end());
  }
  PrintJobs(jobs, globals.format);
  return absl::OkStatus();
}

Status Hold(const Globals& globals, const Options& options, ExitCode* code) {
  return SetHold(globals, options, true, code);
}

Status Release(const Globals& globals, const Options& options, ExitCode* code) {
  return SetHold(globals, options, false, code);
}

Status Wait(const Globals& globals, const Options& options, ExitCode* code) {
  FollowOptions follow;
  if (!options.timeout.empty()) {
    HPVMD_ASSIGN_OR_RETURN(follow.timeout, While(ParseDuration(options.timeout), "reading --timeout"));
  }
  const bool is_many = options.ids.size() > 1 || IsArray(options.ids.front());
  HPVMD_ASSIGN_OR_RETURN(follow.output_files, ParseOutputFiles(options.outputs, is_many));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  if (!is_many) {
    HPVMD_ASSIGN_OR_RETURN(*code, FollowJob(globals, *client, options.ids.front(), follow));
    return absl::OkStatus();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<std::string> ids, JobsOf(*client, options.ids));
  std::string title;
  for (const std::string& id : options.ids) {
    title += (title.empty() ? "" : " ") + id;
  }
  HPVMD_ASSIGN_OR_RETURN(*code, FollowAll(globals, *client, title, ids, follow));
  return absl::OkStatus();
}

void AddListOptions(CLI::App& list, Options& options) {
  AddEach(list, "--state", options.states,
          "Only jobs in these states, separated by commas; live: not ended yet, ended: in any final state")
      ->option_text("accepted|queued|running|succeeded|failed|cancelled|expired|dead|live|ended");
  AddEach(list, "-l,--label", options.labels, "Only jobs with this label; given several times: with all of them");
  AddWord(list, "--array", options.array, "Only elements of this array");
  list.add_option("--limit", options.limit, "Show at most this many jobs")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  list.add_flag("--all", options.all, "Show all jobs, without a limit");
  list.add_flag("--all-tenants", options.all_tenants,
                "List the jobs of every tenant, by tenant, then newest first; for administrators");
  list.add_flag("-w,--watch", options.watch, "Keep running, and print a line for each job that is new or has changed");
}

void AddIds(CLI::App& command, Options& options, const char* what = "Ids of jobs or arrays") {
  command.add_option("job", options.ids, what)->required();
}

// Adds each command at the top level and below `jobs`.
void AddAll(Commands commands, CLI::App& parent) {
  CLI::App& list = AddCommand(parent, "list", "List jobs, newest first",
                              "Examples:\n"
                              "  hpvmctl list --state running,queued\n"
                              "  hpvmctl list --label project=blur --state failed,dead -o wide\n"
                              "  hpvmctl list --all-tenants --state running\n"
                              "  hpvmctl cancel $(hpvmctl list --state live -o name)");
  AddListOptions(list, SetWork(commands, list, List));
  CLI::App& get = AddCommand(parent, "get", "Show everything about jobs; for a failed job also what to do next",
                             "Examples:\n"
                             "  hpvmctl get job-0193…\n"
                             "  hpvmctl get array-0193…\n"
                             "  hpvmctl get job-0193… -o json");
  AddIds(get, SetWork(commands, get, Get));
  CLI::App& wait = AddCommand(parent, "wait", "Follow jobs to their ends; the exit code tells how they ended",
                              "Examples:\n"
                              "  hpvmctl wait job-0193… --output C=c.npy\n"
                              "  hpvmctl wait array-0193… --timeout 5m --output C=c-{index}.npy");
  Options& waiting = SetWork(commands, wait, Wait);
  AddIds(wait, waiting);
  AddEach(wait, "-O,--output", waiting.outputs,
          "NAME=FILE for each output to write; {index} and {job} in FILE become the job's");
  AddWord(wait, "--timeout", waiting.timeout, "Wait at most this long (exit code 124); the jobs go on");
  CLI::App& cancel = AddCommand(parent, "cancel", "Cancel jobs; their final states tell what became of them",
                                "Examples:\n"
                                "  hpvmctl cancel job-0193…\n"
                                "  hpvmctl cancel array-0193…\n"
                                "  hpvmctl cancel $(hpvmctl list --state live -o name)");
  cancel.add_option("job", SetWork(commands, cancel, Cancel).ids,
                    "Ids of jobs or arrays; without any, the command does nothing");
  CLI::App& hold = AddCommand(
      parent, "hold", "Hold jobs that have not started, until they are released",
      "Deadlines go on meanwhile. A job that an administrator holds can be released by administrators only.\n"
      "Examples:\n"
      "  hpvmctl hold job-0193… --reason \"its data comes at noon\"\n"
      "  hpvmctl hold array-0193…");
  Options& holding = SetWork(commands, hold, Hold);
  AddIds(hold, holding);
  AddWord(hold, "--reason", holding.reason, "Reason, for people who see that the job waits; at most 255 bytes");
  CLI::App& release = AddCommand(parent, "release", "Release jobs that are held",
                                 "Examples:\n"
                                 "  hpvmctl release job-0193…\n"
                                 "  hpvmctl release array-0193…");
  AddIds(release, SetWork(commands, release, Release));
  CLI::App& logs = AddCommand(parent, "logs", "Show what the kernels of a job printed",
                              "-f shows lines as they are printed; lines of a GPU come when the launch has ended.\n"
                              "Examples:\n"
                              "  hpvmctl logs job-0193…\n"
                              "  hpvmctl logs -f job-0193…");
  Options& logged = SetWork(commands, logs, Logs);
  AddIds(logs, logged);
  logs.add_flag("-f,--follow", logged.follow, "Follow the log until the job has ended");
}

}  // namespace

void AddJobs(Commands commands) {
  AddAll(commands, commands.app);
  CLI::App& jobs = AddCommand(commands.app, "jobs",
                              "The commands list, get, wait, cancel, hold, release and logs; without one of them: list",
                              "Examples:\n  hpvmctl jobs\n  hpvmctl jobs get job-0193…");
  jobs.require_subcommand(0, 1);
  AddAll(commands, jobs);
  SetWork(commands, jobs, List);
}

}  // namespace hpvm::ctl
