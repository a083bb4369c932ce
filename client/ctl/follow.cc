// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/follow.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "client/ctl/report.h"
#include "client/ctl/text.h"
#include "client/status.h"

namespace hpvm::ctl {
namespace {

// What the signal handler needs to print; set before it is installed.
char interrupted_text[256];
size_t interrupted_bytes = 0;

void OnInterrupt(int) {
  // Only calls that are safe in a handler. The job goes on in the server whatever happens to this process.
  [[maybe_unused]] ssize_t put = write(STDERR_FILENO, interrupted_text, interrupted_bytes);
  _exit(kInterrupted);
}

void HandleInterrupt(const std::string& id) {
  int bytes = snprintf(
      interrupted_text, sizeof(interrupted_text),
      "\nhpvmctl: the job goes on; `hpvmctl jobs wait %s` follows it again, `hpvmctl jobs cancel %s` ends it.\n",
      id.c_str(), id.c_str());
  interrupted_bytes = static_cast<size_t>(bytes);
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  sigaction(SIGINT, &action, nullptr);
}

void ShowEvent(const v1::JobEvent& event) {
  if (event.has_job()) {
    fprintf(stderr, "job %s: %s\n", Printable(event.job().id()).c_str(), StateText(event.job().state()).c_str());
  } else if (event.has_progress()) {
    fprintf(stderr, "  %llu of %llu nodes\n", static_cast<unsigned long long>(event.progress().nodes_run()),
            static_cast<unsigned long long>(event.progress().nodes_total()));
  } else if (event.has_placement()) {
    fprintf(stderr, "  %s on %s\n", Printable(event.placement().node()).c_str(),
            Printable(event.placement().device()).c_str());
  }
}

Status FetchOutputs(Client& client, const v1::Job& job, const FollowOptions& options, RunReport* report) {
  for (const v1::OutputValue& value : job.outputs()) {
    RunReport::Output& output = report->outputs[value.name()];
    auto file = options.output_files.find(value.name());
    const auto& stored = value.stored();
    if (value.has_stored() && stored.type() != v1::ELEMENT_TYPE_UNSPECIFIED) {
      std::vector<uint64_t> shape(stored.shape().begin(), stored.shape().end());
      output.description = Describe(static_cast<ElementType>(stored.type()), shape);
    }
    if (file == options.output_files.end()) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(Tensor tensor, client.FetchOutput(job.id(), value.name()));
    output.description = Describe(tensor.type, tensor.shape);
    output.file = file->second;
    HPVMD_RETURN_IF_ERROR(While(WriteTensorFile(file->second, tensor), "storing output \"" + value.name() + "\""));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<ExitCode> FollowJob(const Globals& globals, Client& client, const std::string& id,
                             const FollowOptions& options) {
  HandleInterrupt(id);
  RunReport report;
  bool shows = globals.ShowsProgress();
  auto on_event = [&](const v1::JobEvent& event) {
    if (event.has_placement()) {
      report.placements.push_back(event.placement());
    }
    if (shows) {
      ShowEvent(event);
    }
    return true;
  };
  HPVMD_RETURN_IF_ERROR(client.WatchJob(id, on_event).status());
  HPVMD_ASSIGN_OR_RETURN(v1::Job job, client.GetJob(id));
  const bool has_report = job.state() == v1::JOB_STATE_SUCCEEDED;
  PrintLog(job.log(), has_report ? globals.format : Format::kTable);
  report.log = job.log();
  if (job.state() != v1::JOB_STATE_SUCCEEDED) {
    Status error = FromProto(job.error());
    if (error.ok()) {
      error = job.state() == v1::JOB_STATE_CANCELLED ? Cancelled("The job was cancelled.")
              : job.state() == v1::JOB_STATE_EXPIRED
                  ? DeadlineExceeded("The job's deadline passed before it started.")
                  : MakeStatus(absl::StatusCode::kUnknown, "The job ended as " + StateText(job.state()) + ".");
    }
    return Report(While(error, "running job " + id));
  }
  report.graph = job.graph_name();
  report.job = job.id();
  report.state = StateText(job.state());
  report.prepare = job.prepare();
  report.timing = job.timing();
  report.nodes_run = job.nodes_run();
  HPVMD_RETURN_IF_ERROR(FetchOutputs(client, job, options, &report));
  PrintReport(report, globals.format);
  return kOk;
}

}  // namespace hpvm::ctl
