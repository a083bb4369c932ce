// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_options.h"

#include <cstdlib>

#include "client/ctl/options.h"
#include "client/ctl/text/parse_args.h"

namespace hpvm::ctl {

void AddGraphOptions(CLI::App& command, GraphOptions& options) {
  GraphArguments& arguments = options.arguments;
  command.add_option("graph", arguments.place.document, "The graph document; - reads standard input")->required();
  AddAllowFile(command, arguments.place);
  AddEach(command, "-i,--input", arguments.inputs,
          "NAME=FILE for each input: .npy, .npz[:array], .png, or raw bytes; NAME=2.5 for one of rank 0");
  AddEach(command, "-O,--output", arguments.outputs,
          "NAME=FILE for each output to write: .npy, .npz:array, .png, or raw bytes");
  AddEach(command, "--symbol", arguments.symbols,
          "NAME=INTEGER for symbols that no input's shape fixes; NAME=2.5 for an input of rank 0");
  AddEach(command, "--device", arguments.devices,
          "Run nodes only on this device, as `hpvmctl devices` names it (cpu:0, opencl:0, vulkan:0), or on this family "
          "(opencl); given several times: on any of these");
  command.add_option("--repeat", arguments.repeat, "How many times to run the graph with the same inputs, as one run")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  AddEach(command, "--rotate", arguments.rotate,
          "OUTPUT=INPUT: with --repeat, each repetition gets this output of the repetition before as this input");
  AddWord(
      command, "--until", arguments.until,
      "OUTPUT of one element: with --repeat, the first repetition that sets it to a value other than zero is the last");
  AddEach(command, "--label", options.labels, "KEY=VALUE: a label that is kept with the job");
  AddWord(command, "--deadline", options.deadline, "How long the work may take: 10s, 500ms, 2m; default: the server's");
  command.add_option("--priority", options.priority, "Order among your own jobs: the larger number goes first")
      ->check(CLI::Range(-100, 100))
      ->capture_default_str();
}

CallOptions TracedCall() {
  CallOptions call;
  if (const char* parent = std::getenv("TRACEPARENT"); parent != nullptr) {
    call.request.set_traceparent(parent);
  }
  if (const char* state = std::getenv("TRACESTATE"); state != nullptr) {
    call.request.set_tracestate(state);
  }
  return call;
}

StatusOr<CallOptions> ToCallOptions(const GraphOptions& options) {
  CallOptions call = TracedCall();
  call.request.set_priority(options.priority);
  call.request.set_idempotency_key(options.idempotency_key);
  if (!options.deadline.empty()) {
    HPVMD_ASSIGN_OR_RETURN(const Duration deadline, While(ParseDuration(options.deadline), "reading --deadline"));
    call.request.set_deadline_ns(static_cast<uint64_t>(deadline.count()));
  }
  for (const std::string& label : options.labels) {
    HPVMD_ASSIGN_OR_RETURN(auto pair, ParsePair(label, "--label", true));
    (*call.request.mutable_labels())[pair.first] = pair.second;
  }
  return call;
}

StatusOr<RunOptions> ToRunOptions(const GraphOptions& options, const GraphJob& job) {
  RunOptions run;
  HPVMD_ASSIGN_OR_RETURN(run.call, ToCallOptions(options));
  run.symbols = job.symbols;
  run.repetition = job.repetition;
  run.placements_max = 1000;
  return run;
}

}  // namespace hpvm::ctl
