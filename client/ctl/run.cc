// SPDX-License-Identifier: Apache-2.0
// hpvmctl run: once and at once, by the server or here; nothing is stored.
#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/graph_options.h"
#include "client/ctl/local.h"
#include "client/ctl/report.h"

namespace hpvm::ctl {
namespace {

struct Options {
  GraphOptions graph;
  bool local = false;
};

StatusOr<LocalOutcome> RunRemotely(const Globals& globals, const GraphJob& job, const RunOptions& run) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(Prepared prepared, client->Prepare(job.document, job.modules));
  StatusOr<RunOutcome> outcome = client->Run(prepared.handle, job.inputs, run);
  client->Release(prepared.handle).IgnoreError();  // The run's outcome is what matters.
  if (!outcome.ok()) {
    return outcome.status();
  }
  return LocalOutcome{*std::move(outcome), prepared.summary.timing(), prepared.summary.name()};
}

Status Run(const Globals& globals, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(GraphJob job, LoadGraphJob(options.graph.arguments));
  HPVMD_ASSIGN_OR_RETURN(RunOptions run, ToRunOptions(options.graph, job));
  HPVMD_ASSIGN_OR_RETURN(LocalOutcome outcome, options.local ? RunLocally(job, run) : RunRemotely(globals, job, run));
  HPVMD_RETURN_IF_ERROR(WriteOutputs(job, outcome.run.outputs));
  RunReport report;
  report.graph = outcome.graph;
  report.prepare = outcome.prepare;
  report.timing = outcome.run.timing;
  report.placements = outcome.run.placements;
  report.nodes_run = outcome.run.nodes_run;
  for (const auto& [name, tensor] : outcome.run.outputs) {
    auto file = job.output_files.find(name);
    report.outputs[name] = {Describe(tensor.type, tensor.shape), file == job.output_files.end() ? "" : file->second};
  }
  PrintReport(report, globals.format);
  return absl::OkStatus();
}

}  // namespace

void AddRun(Commands commands) {
  auto options =
      std::make_shared<Options>();  // Shared by the option table and the action, which outlive this function.
  CLI::App* command = commands.app.add_subcommand("run", "Run a graph once and wait; nothing is stored");
  AddGraphOptions(*command, options->graph);
  command->add_flag("--local", options->local, "Here, in a process of its own, without a server");
  command->footer(
      "Example:\n  hpvmctl run --local mandelbrot.json --symbol w=1280 --symbol h=720 --output image=m.png");
  command->callback([=, &globals = commands.globals, &action = commands.action] {
    action = [&globals, options] { return Report(Run(globals, *options)); };
  });
}

}  // namespace hpvm::ctl
