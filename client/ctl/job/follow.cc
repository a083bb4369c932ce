// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/job/follow.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "client/ctl/report.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/parse_args.h"
#include "client/ctl/text/terminal.h"
#include "client/ctl/text/text.h"
#include "client/ctl/text/timeline.h"

namespace hpvm::ctl {
namespace {

// Text that the signal handler prints; only set while no handler is installed.
char interrupted_text[1024];
size_t interrupted_bytes = 0;

void OnInterrupt(int) {
  // Only async-signal-safe calls. The job continues on the server whatever happens to this process.
  [[maybe_unused]] ssize_t put = write(STDERR_FILENO, interrupted_text, interrupted_bytes);
  _exit(kInterrupted);
}

void ShowEvent(const v1::JobEvent& event) {
  if (!event.has_phase() && !event.has_log()) {
    const std::string before = event.has_job() ? "job " + event.job().id() + ": " : "  ";
    fprintf(stderr, "%s\n", Printable(before + EventText(event)).c_str());
  }
}

Status FetchOutputs(Client& client, const v1::Job& job, const FollowOptions& options, RunReport* report) {
  std::map<std::string, std::string> files = options.output_files;
  if (const auto own = options.output_files_of.find(job.id()); own != options.output_files_of.end()) {
    files.insert(own->second.begin(), own->second.end());
  }
  for (const auto& [name, pattern] : files) {
    const auto has_name = [&name = name](const v1::OutputValue& value) { return value.name() == name; };
    if (std::none_of(job.outputs().begin(), job.outputs().end(), has_name)) {
      return InvalidArgument("Job \"" + job.id() + "\" has no output \"" + name + "\" to write.");
    }
  }
  for (const v1::OutputValue& value : job.outputs()) {
    RunReport::Output& output = report->outputs[value.name()];
    auto file = files.find(value.name());
    const auto& stored = value.stored();
    if (value.has_stored() && stored.type() != v1::ELEMENT_TYPE_UNSPECIFIED) {
      std::vector<uint64_t> shape(stored.shape().begin(), stored.shape().end());
      output.description = Describe(static_cast<ElementType>(stored.type()), shape);
    }
    if (file == files.end()) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, While(client.FetchOutput(job.id(), value.name()),
                                                      "fetching output \"" + value.name() + "\" of job " + job.id()));
    output.description = Describe(tensor.type, tensor.shape);
    output.file = FileFor(file->second, job);
    HPVMD_RETURN_IF_ERROR(While(WriteTensorFile(output.file, tensor), "storing output \"" + value.name() + "\""));
  }
  return absl::OkStatus();
}

ExitCode ReportFailure(const v1::Job& job) {
  fprintf(stderr, "%s %s\n", ErrorHead().c_str(), Printable(FailureText(job)).c_str());
  return ExitCodeOf(job);
}

// The wait's own timeout passed; the jobs continue.
ExitCode ReportTimeout(const Status& status, const std::string& title) {
  fprintf(stderr, "hpvmctl: %s `hpvmctl wait %s` waits again.\n", Printable(Message(status)).c_str(),
          Printable(title).c_str());
  return kTimedOut;
}

void SayHowToComeBack(const std::string& title) {
  const bool is_one = title.find(' ') == std::string::npos && !title.starts_with("array-");
  SayWhenInterrupted("\nhpvmctl: the " + std::string(is_one ? "job goes" : "jobs go") + " on; `hpvmctl wait " + title +
                     "` follows again, `hpvmctl cancel " + title + "` ends " + (is_one ? "it" : "them") + ".\n");
}

}  // namespace

void SayWhenInterrupted(const std::string& text) {
  signal(SIGINT, SIG_DFL);
  interrupted_bytes = std::min(text.size(), sizeof(interrupted_text));
  memcpy(interrupted_text, text.data(), interrupted_bytes);
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

StatusOr<ExitCode> FollowJob(const Globals& globals, Client& client, const std::string& id,
                             const FollowOptions& options) {
  SayHowToComeBack(id);
  RunReport report;
  uint32_t attempt = 0;
  WaitOptions wait;
  wait.call.timeout = options.timeout;
  wait.on_event = [&, shows = globals.ShowsProgress()](const v1::JobEvent& event) {
    if (event.has_placement()) {
      report.placements.push_back(event.placement());
    }
    if (event.has_job() && event.job().attempt() != attempt) {
      attempt = event.job().attempt();
      report.placements.clear();  // Placements of a lost attempt are dropped.
    }
    if (shows) {
      ShowEvent(event);
    }
  };
  StatusOr<v1::Job> waited = client.WaitJob(id, wait);
  if (waited.status().code() == absl::StatusCode::kDeadlineExceeded && options.timeout != kNever) {
    return ReportTimeout(waited.status(), id);
  }
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, std::move(waited));
  const bool succeeded = job.state() == v1::JOB_STATE_SUCCEEDED;
  PrintLog(job.log(), succeeded ? globals.format : Format::kTable);
  if (!succeeded) {
    return ReportFailure(job);
  }
  report.log = job.log();
  report.graph = job.graph_name();
  report.job = job.id();
  report.state = StateText(job.state());
  report.prepare = job.prepare();
  report.defects.assign(job.defects().begin(), job.defects().end());
  report.timing = job.timing();
  report.nodes_run = job.nodes_run();
  HPVMD_RETURN_IF_ERROR(FetchOutputs(client, job, options, &report));
  PrintReport(report, globals.format);
  return kOk;
}

StatusOr<ExitCode> FollowAll(const Globals& globals, Client& client, const std::string& title,
                             const std::vector<std::string>& ids, const FollowOptions& options) {
  constexpr size_t kFailuresShownMax = 3;
  SayHowToComeBack(title);
  size_t ended = 0, failed = 0;
  WaitOptions wait;
  wait.call.timeout = options.timeout;
  wait.on_ended = [&, shows = globals.ShowsProgress()](const v1::Job& job) {
    ++ended;
    failed += job.state() == v1::JOB_STATE_SUCCEEDED ? 0 : 1;
    if (shows) {
      fprintf(stderr, "%s: %s (%zu of %zu ended, %zu without success)\n", Printable(job.id()).c_str(),
              StateText(job.state()).c_str(), ended, ids.size(), failed);
    }
  };
  StatusOr<std::vector<v1::Job>> waited = client.WaitAll(ids, wait);
  if (waited.status().code() == absl::StatusCode::kDeadlineExceeded && options.timeout != kNever) {
    return ReportTimeout(waited.status(), title);
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, std::move(waited));
  ExitCode code = kOk;
  size_t shown = 0;
  for (const v1::Job& job : jobs) {
    if (job.state() == v1::JOB_STATE_SUCCEEDED) {
      RunReport report;
      HPVMD_RETURN_IF_ERROR(FetchOutputs(client, job, options, &report));
      continue;
    }
    code = code == kOk ? ExitCodeOf(job) : code;
    if (++shown <= kFailuresShownMax) {
      ReportFailure(job);
    }
  }
  if (shown > kFailuresShownMax) {
    fprintf(stderr, "hpvmctl: %zu more did not succeed; `hpvmctl get ID` says why.\n", shown - kFailuresShownMax);
  }
  PrintJobs(jobs, globals.format);
  fprintf(stderr, "%zu jobs: %s\n", jobs.size(), StateCounts(jobs).c_str());
  return code;
}

}  // namespace hpvm::ctl
