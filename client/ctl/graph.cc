// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph validate|show: offline, with the same reader as the server's executors.
#include <stdio.h>

#include <memory>

#include "CLI/CLI.hpp"
#include "client/ctl/command.h"
#include "client/ctl/document_files.h"
#include "client/ctl/text/text.h"
#include "nlohmann/json.hpp"

#include "base/diagnostic.h"
#include "graph/parse.h"

namespace hpvm::ctl {
namespace {

struct Options {
  std::string file;
  bool dot = false;
};

void PrintDiagnostics(const Diagnostics& diagnostics, Format format) {
  if (format != Format::kJson) {
    fputs(Printable(ToString(diagnostics) + (diagnostics.empty() ? "" : "\n")).c_str(), stdout);
    return;
  }
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Diagnostic& item : diagnostics) {
    nlohmann::ordered_json entry = {{"severity", item.severity == Severity::kError ? "error" : "warning"},
                                    {"place", item.place},
                                    {"message", item.message}};
    if (item.offset.has_value()) {
      entry["offset"] = *item.offset;
    }
    list.push_back(entry);
  }
  puts(list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

ExitCode Validate(const Globals& globals, const Options& options) {
  StatusOr<std::string> document = ReadDocument(options.file);
  if (!document.ok()) {
    return Report(document.status());
  }
  graph::ParseOutcome outcome = graph::Parse(*document);
  PrintDiagnostics(outcome.diagnostics, globals.format);
  if (!outcome.graph.has_value()) {
    return kUsage;
  }
  if (globals.format != Format::kJson) {
    fprintf(stderr, "%s: valid\n", options.file.c_str());
  }
  return kOk;
}

ExitCode Show(const Options& options) {
  StatusOr<std::string> document = ReadDocument(options.file);
  if (!document.ok()) {
    return Report(document.status());
  }
  graph::ParseOutcome outcome = graph::Parse(*document);
  if (!outcome.graph.has_value()) {
    return Report(
        InvalidArgument("The graph \"" + options.file + "\" is not valid:\n" + ToString(outcome.diagnostics)));
  }
  fputs((options.dot ? graph::ToDot(*outcome.graph) : graph::Print(*outcome.graph)).c_str(), stdout);
  return kOk;
}

}  // namespace

void AddGraph(Commands commands) {
  auto options = std::make_shared<Options>();  // Shared by the option tables and actions, which outlive this function.
  CLI::App* graph = commands.app.add_subcommand(
      "graph", "Check and show graph documents without a server; list and release prepared ones");
  graph->require_subcommand(1);
  CLI::App* validate = graph->add_subcommand("validate", "List everything that is wrong with a document");
  validate->add_option("graph", options->file, "The document; - reads standard input")->required();
  validate->footer("Example:\n  hpvmctl graph validate matmul.json");
  validate->callback([=, &globals = commands.globals, &action = commands.action] {
    action = [=, &globals] { return Validate(globals, *options); };
  });
  CLI::App* show = graph->add_subcommand("show", "Print the document in its canonical form, or as a picture");
  show->add_option("graph", options->file, "The document; - reads standard input")->required();
  show->add_flag("--dot", options->dot, "Graphviz");
  show->footer("Example:\n  hpvmctl graph show --dot matmul.json | dot -Tsvg -o matmul.svg");
  show->callback([=, &action = commands.action] { action = [=] { return Show(*options); }; });
  AddHeldGraphs(commands, *graph);
}

}  // namespace hpvm::ctl
