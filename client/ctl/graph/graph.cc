// SPDX-License-Identifier: Apache-2.0
// hpvmctl graph init|validate|show: offline, with the same reader as the server's executors.
#include <stdio.h>

#include <memory>

#include "client/ctl/document_files.h"
#include "client/ctl/graph/modules.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include "nlohmann/json.hpp"

#include "base/diagnostic.h"
#include "graph/parse.h"

namespace hpvm::ctl {
namespace {

struct Options {
  DocumentSource place;
  bool dot = false, full = false, document_only = false;
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
  HPVMD_ASSIGN_OR_RETURN(const std::string document, ReadDocument(options.place));
  graph::ParseOutcome outcome = graph::Parse(document);
  std::string unread;  // The reason why the modules were not read.
  if (outcome.graph.has_value() && !options.document_only) {
    StatusOr<Diagnostics> of_modules = CheckModules(*outcome.graph, options.place);
    if (of_modules.ok()) {
      outcome.diagnostics.insert(outcome.diagnostics.end(), of_modules->begin(), of_modules->end());
    } else {
      unread = Message(of_modules.status());
    }
  }
  PrintDiagnostics(outcome.diagnostics, globals.format);
  if (HasErrors(outcome.diagnostics)) {
    *code = kUsage;
  } else if (globals.format != Format::kJson) {
    fputs(Printable(options.place.document + ": valid\n").c_str(), stderr);
  }
  if (!unread.empty()) {
    fputs(Printable("The modules were not read: " + unread + "\n").c_str(), stderr);
  }
  return absl::OkStatus();
}

Status Show(const Globals&, const Options& options) {
  HPVMD_ASSIGN_OR_RETURN(const std::string document, ReadDocument(options.place));
  HPVMD_ASSIGN_OR_RETURN(const graph::Graph graph, ParseDocument(options.place.document, document));
  fputs((options.dot ? graph::ToDot(graph) : graph::Print(graph)).c_str(), stdout);
  return absl::OkStatus();
}

void AddDocument(CLI::App& command, Options& options) {
  command.add_option("graph", options.place.document, "The document; - reads standard input")->required();
}

}  // namespace

void AddGraph(Commands commands) {
  CLI::App* graph = commands.app.add_subcommand(
      "graph", "Check and show graph documents without a server; list and release prepared ones");
  graph->require_subcommand(1);
  AddGraphInit(commands, *graph);
  CLI::App& validate = AddCommand(*graph, "validate", "List everything that is wrong with a document and its modules",
                                  "The WebAssembly modules that it names are compiled in a process of its own.\n"
                                  "Example:\n  hpvmctl graph validate matmul.json");
  Options& validated = SetWork(commands, validate, Validate);
  AddDocument(validate, validated);
  AddAllowFile(validate, validated.place);
  validate.add_flag("--document-only", validated.document_only, "Check the document alone, without its modules");
  CLI::App& show =
      AddCommand(*graph, "show", "Print the document in its canonical form, or as a picture",
                 "For a short document (\"hpvm\": 2) the canonical form has everything that follows from it.\n"
                 "Example:\n  hpvmctl graph show --dot matmul.json | dot -Tsvg -o matmul.svg");
  Options& options = SetWork(commands, show, Show);
  AddDocument(show, options);
  show.add_flag("--dot", options.dot, "Print a picture in the language of Graphviz");
  show.add_flag("--full", options.full, "Print every type, shape, access and edge, which is the default")
      ->excludes("--dot");
  AddHeldGraphs(commands, *graph);
}

}  // namespace hpvm::ctl
