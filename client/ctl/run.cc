// SPDX-License-Identifier: Apache-2.0
// hpvmctl run: runs a graph once, on the server or locally; nothing is stored.
#include "client/ctl/run.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "client/ctl/graph_job.h"
#include "client/ctl/graph_options.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"

#include "base/clock.h"
#include "hpvm/local_engine.h"

namespace hpvm::ctl {
namespace {

struct Options {
  GraphOptions graph;
  bool local = false;
  bool check = false;
};

// Subtracts the time that preparing took from a run's deadline, if it has one; at least a nanosecond is left.
RunOptions WithinDeadline(RunOptions options, Duration taken) {
  if (const uint64_t deadline_ns = options.call.request.deadline_ns(); deadline_ns != 0) {
    const auto taken_ns = static_cast<uint64_t>(taken.count());
    options.call.request.set_deadline_ns(deadline_ns > taken_ns ? deadline_ns - taken_ns : 1);
  }
  return options;
}

// Converts to LocalEngine's device names: the processor has no number.
std::vector<std::string> LocalDevices(std::vector<std::string> devices) {
  std::replace(devices.begin(), devices.end(), std::string("cpu:0"), std::string("cpu"));
  return devices;
}

StatusOr<LocalOutcome> RunRemotely(const Globals& globals, const GraphJob& job, const RunOptions& run,
                                   const PrepareOptions& prepare) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  const Time begin = RealClock().Now();
  CallOptions preparing = TracedCall();
  if (run.call.request.deadline_ns() != 0) {
    preparing.timeout = Duration(static_cast<int64_t>(run.call.request.deadline_ns()));
  }
  StatusOr<Prepared> answer = client->Prepare(job.document, job.modules, preparing, prepare);
  if (absl::IsDeadlineExceeded(answer.status())) {  // gRPC's message does not say what took so long.
    return While(answer.status(),
                 "preparing the graph within the deadline (" + DurationText(run.call.request.deadline_ns()) + ")");
  }
  HPVMD_ASSIGN_OR_RETURN(Prepared prepared, std::move(answer));
  for (const v1::Diagnostic& warning : prepared.warnings.items()) {
    PrintWarning(ToText(warning));
  }
  StatusOr<RunOutcome> outcome =
      client->Run(prepared.handle, job.inputs, WithinDeadline(run, RealClock().Now() - begin));
  client->Release(prepared.handle).IgnoreError();  // Only the run's outcome matters.
  if (!outcome.ok()) {
    return outcome.status();
  }
  return LocalOutcome{*std::move(outcome),
                      prepared.summary.timing(),
                      prepared.summary.name(),
                      {prepared.summary.defects().begin(), prepared.summary.defects().end()}};
}

Status Run(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(GraphJob job, LoadGraphJob(options.graph.arguments));
  HPVMD_ASSIGN_OR_RETURN(RunOptions run, ToRunOptions(options.graph, job));
  RunReport report;
  run.log = &report.log;
  const PrepareOptions prepare{.check = options.check};
  StatusOr<LocalOutcome> ran = options.local ? RunLocally(job, run, prepare, options.graph.arguments.devices)
                                             : RunRemotely(globals, job, run, prepare);
  // After a failure people need the log most, and there is no report then.
  PrintLog(report.log, ran.ok() ? globals.format : Format::kTable);
  HPVMD_ASSIGN_OR_RETURN(LocalOutcome outcome, std::move(ran));
  HPVMD_RETURN_IF_ERROR(WriteOutputs(job, outcome.run.outputs));
  *code = report.log.findings_size() != 0 || report.log.findings_dropped() != 0 ? kFailed : kOk;
  report.graph = outcome.graph;
  report.prepare = outcome.prepare;
  report.defects = outcome.defects;
  report.timing = outcome.run.timing;
  report.placements = outcome.run.placements;
  report.nodes_run = outcome.run.nodes_run;
  report.repetitions = outcome.run.repetitions;
  report.converged = outcome.run.converged;
  report.traffic = outcome.run.traffic;
  for (const auto& [name, tensor] : outcome.run.outputs) {
    auto file = job.output_files.find(name);
    report.outputs[name] = {Describe(tensor.type, tensor.shape), file == job.output_files.end() ? "" : file->second};
  }
  PrintReport(report, globals.format);
  return absl::OkStatus();
}

}  // namespace

StatusOr<LocalOutcome> RunLocally(const GraphJob& job, const RunOptions& run, const PrepareOptions& prepare,
                                  const std::vector<std::string>& devices) {
  LocalEngineOptions start;
  start.devices = LocalDevices(devices);
  start.stderr_fd = STDERR_FILENO;
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<LocalEngine> engine, LocalEngine::Start(start));
  const Time begin = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(const Prepared prepared, engine->Prepare(job.document, job.modules, run.call, prepare));
  for (const v1::Diagnostic& warning : prepared.warnings.items()) {
    PrintWarning(ToText(warning));
  }
  LocalOutcome outcome;
  outcome.graph = prepared.summary.name();
  outcome.prepare = prepared.summary.timing();
  HPVMD_ASSIGN_OR_RETURN(outcome.run,
                         engine->Run(prepared.handle, job.inputs, WithinDeadline(run, RealClock().Now() - begin)));
  return outcome;
}

void AddRun(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "run", "Run a graph once and wait; nothing is stored",
                 "Lines that kernels print go to standard error as node(x, y, z): text.\n"
                 "Examples:\n"
                 "  hpvmctl run --local mandelbrot.json --symbol w=1280 --symbol h=720 --output image=m.png\n"
                 "  hpvmctl run --local --check blur.json --input in=small.npy");
  Options& options = SetWork(commands, command, Run);
  AddGraphOptions(command, options.graph);
  command.add_flag("--local", options.local, "Run on this machine, in a process of its own, without a server");
  command.add_flag("--check", options.check,
                   "Look for races, uninitialised reads, accesses that land in another buffer and missed barriers; "
                   "slow; the exit code is 1 if any are found");
}

}  // namespace hpvm::ctl
