// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph validate|show: offline, with the same reader as the server's executors.
#include <stdio.h>

#include <memory>

#include "client/ctl/document_files.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
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

void PrintDiagnostics(const Diagnostics& diagnostics, const Format& format) {
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
  PrintData(list, format);
}

Status Validate(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, ReadDocument(options.file));
  const graph::ParseOutcome outcome = graph::Parse(document);
  PrintDiagnostics(outcome.diagnostics, globals.format);
  if (!outcome.graph.has_value()) {
    *code = kUsage;
  } else if (globals.format != Format::kJson) {
    fprintf(stderr, "%s: valid\n", options.file.c_str());
  }
  return absl::OkStatus();
}

Status Show(const Globals&, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, ReadDocument(options.file));
  HPVMD_ASSIGN_OR_RETURN(const graph::Graph graph, ParseDocument(options.file, document));
  fputs((options.dot ? graph::ToDot(graph) : graph::Print(graph)).c_str(), stdout);
  return absl::OkStatus();
}

void AddDocument(CLI::App& command, Options& options) {
  command.add_option("graph", options.file, "The document; - reads standard input")->required();
}

}  // namespace

void AddGraph(Commands commands) {
  CLI::App* graph = commands.app.add_subcommand(
      "graph", "Check and show graph documents without a server; list and release prepared ones");
  graph->require_subcommand(1);
  CLI::App& validate = AddCommand(*graph, "validate", "List everything that is wrong with a document",
                                  "Example:\n  hpvmctl graph validate matmul.json");
  AddDocument(validate, SetWork(commands, validate, Validate));
  CLI::App& show = AddCommand(*graph, "show", "Print the document in its canonical form, or as a picture",
                              "Example:\n  hpvmctl graph show --dot matmul.json | dot -Tsvg -o matmul.svg");
  Options& options = SetWork(commands, show, Show);
  AddDocument(show, options);
  show.add_flag("--dot", options.dot, "Graphviz");
  AddHeldGraphs(commands, *graph);
}

}  // namespace hpvm::ctl
