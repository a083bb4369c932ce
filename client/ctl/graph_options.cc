// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/graph_options.h"

#include <charconv>

#include "CLI/CLI.hpp"

namespace hpvm::ctl {

void AddGraphOptions(CLI::App& command, GraphOptions& options) {
  GraphArguments& arguments = options.arguments;
  command.add_option("graph", arguments.document, "The graph document; - reads standard input")->required();
  command.add_option("-i,--input", arguments.inputs,
                     "NAME=FILE for each input: .npy, .npz[:array], .png, or raw bytes");
  command.add_option("-O,--output", arguments.outputs,
                     "NAME=FILE for each output to write: .npy, .npz:array, .png, or raw bytes");
  command.add_option("--symbol", arguments.symbols, "NAME=INTEGER for symbols that no input's shape fixes");
  command.add_option("--repeat", arguments.repeat, "Run this often with the same inputs, as one run")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command.add_option("--label", options.labels, "KEY=VALUE, kept with the job");
  command.add_option("--deadline", options.deadline,
                     "How long the work may take: 10s, 500ms, 2m; default: the server's");
  command.add_option("--priority", options.priority, "Larger goes first among your own jobs")
      ->check(CLI::Range(-100, 100))
      ->capture_default_str();
}

StatusOr<Duration> ParseDuration(const std::string& text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double scale = unit == "" || unit == "s" ? 1e9
                 : unit == "ms"            ? 1e6
                 : unit == "us"            ? 1e3
                 : unit == "m"             ? 60e9
                 : unit == "h"             ? 3600e9
                                           : 0;
  if (error != std::errc() || scale == 0 || !(value > 0) || value * scale > 9e18) {
    return InvalidArgument("The duration \"" + text + "\" is not a positive number with a unit (us, ms, s, m, h).");
  }
  return Duration(static_cast<int64_t>(value * scale));
}

StatusOr<RunOptions> ToRunOptions(const GraphOptions& options, const GraphJob& job) {
  RunOptions run;
  run.symbols = job.symbols;
  run.repeat = job.repeat;
  run.placements_max = 1000;
  run.call.request.set_priority(options.priority);
  run.call.request.set_idempotency_key(options.idempotency_key);
  if (!options.deadline.empty()) {
    StatusOr<Duration> deadline = ParseDuration(options.deadline);
    if (!deadline.ok()) {
      return While(deadline.status(), "reading --deadline");
    }
    run.call.request.set_deadline_ns(static_cast<uint64_t>(deadline->count()));
  }
  for (const std::string& label : options.labels) {
    size_t at = label.find('=');
    if (at == 0 || at == std::string::npos) {
      return InvalidArgument("--label takes KEY=VALUE, not \"" + label + "\".");
    }
    (*run.call.request.mutable_labels())[label.substr(0, at)] = label.substr(at + 1);
  }
  return run;
}

}  // namespace hpvm::ctl
