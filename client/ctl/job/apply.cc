// SPDX-License-Identifier: Apache-2.0
// hpvmctl apply: submits the jobs of job files.
#include <stdio.h>

#include <algorithm>
#include <memory>

#include "client/ctl/document_files.h"
#include "client/ctl/job/job_file.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/scalar_word.h"
#include "client/ctl/text/text.h"
#include "client/status/retry.h"
#include <nlohmann/json.hpp>

#include "hpvm/tensor.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> files;
  DocumentSource place;  // Only its allowed files are used.
  AfterwardsOptions afterwards;
  std::string key;
  bool dry_run = false;
};

Json ToJson(const PreparedJob& job) {
  Json json = {{"file", job.where},
               {"graph", job.graph},
               {"name", job.item.options.name},
               {"jobs", job.item.options.array.has_value() ? "an array" : "one"},
               {"inputs", Json::object()},
               {"outputs", job.output_files}};
  for (const auto& [name, tensor] : job.item.inputs) {
    json["inputs"][name] = Describe(tensor.type, tensor.shape);
  }
  for (const std::string& name : job.item.options.index_inputs) {
    json["inputs"][name] = "the element's index";
  }
  return json;
}

void PrintDryRun(const std::vector<PreparedJob>& jobs, const Format& format) {
  Json list = Json::array();
  std::vector<std::vector<std::string>> rows = {{"FILE", "GRAPH", "NAME", "JOBS", "INPUTS"}};
  std::string names;
  for (const PreparedJob& job : jobs) {
    list.push_back(ToJson(job));
    std::string inputs;
    for (const auto& [name, type] : list.back()["inputs"].items()) {
      inputs += (inputs.empty() ? "" : ", ") + name + ": " + type.get<std::string>();
    }
    rows.push_back({job.where, job.graph, job.item.options.name.empty() ? "-" : job.item.options.name,
                    list.back()["jobs"], inputs.empty() ? "-" : inputs});
    names += Printable(job.where) + "\n";
  }
  if (format == Format::kJson) {
    PrintData(list, format);
  } else {
    fputs((format == Format::kName ? names : Table(rows)).c_str(), stdout);
  }
  fputs("hpvmctl: the job files are in order; nothing was sent (--dry-run).\n", stderr);
}

// Rewrites "A=a.npy" relative to this process's folder. Numbers and "@index" stay; the array name after an archive is
// not part of the path.
StatusOr<std::string> PlacedWord(const DocumentSource& here, const std::string& word) {
  constexpr std::string_view kArchive = ".npz:";
  const size_t equals = word.find('=');
  const std::string value = word.substr(equals + 1);
  if (value.empty() || value == "@index" || IsScalarWord(value)) {
    return word;
  }
  const size_t archive = value.find(kArchive);
  const size_t end = archive == std::string::npos ? value.size() : archive + kArchive.size() - 1;
  HPVMD_ASSIGN_OR_RETURN(const std::string path, PathOfNamedFile(here, value.substr(0, end)));
  return word.substr(0, equals + 1) + path + value.substr(end);
}

Status PlaceFiles(const DocumentSource& here, GraphArguments* graph) {
  for (std::vector<std::string>* words : {&graph->inputs, &graph->outputs}) {
    for (std::string& word : *words) {
      HPVMD_ASSIGN_OR_RETURN(word, PlacedWord(here, word));
    }
  }
  return absl::OkStatus();
}

Status Apply(const Globals& globals, const Options& options, ExitCode* code) {
  std::vector<PreparedJob> jobs;
  const std::string key = options.key.empty() ? NewIdempotencyKey() : options.key;
  for (const std::string& file : options.files) {  // All files are read before anything is sent.
    HPVMD_ASSIGN_OR_RETURN(SubmitArguments arguments, ReadJobFile(file, options.place.allow_files));
    if (arguments.graph.idempotency_key.empty()) {
      arguments.graph.idempotency_key = key + (options.files.size() > 1 ? "-" + std::to_string(jobs.size() + 1) : "");
    }
    HPVMD_ASSIGN_OR_RETURN(jobs.emplace_back(), While(PrepareJob(arguments), "reading the job file \"" + file + "\""));
    jobs.back().where = file;
  }
  if (options.dry_run) {
    PrintDryRun(jobs, globals.format);
    return absl::OkStatus();
  }
  AfterwardsOptions afterwards = options.afterwards;
  afterwards.detach |= std::any_of(jobs.begin(), jobs.end(), [](const auto& job) { return job.item.options.held; });
  if (jobs.size() == 1) {
    return SubmitOne(globals, std::move(jobs.front()), afterwards, code);
  }
  return SubmitAll(globals, std::move(jobs), key, afterwards, code);
}

}  // namespace

StatusOr<SubmitArguments> ReadJobFile(const std::string& file, const std::vector<std::string>& allow_files) {
  HPVMD_ASSIGN_OR_RETURN(const std::string text, ReadDocument(file));
  HPVMD_ASSIGN_OR_RETURN(JobFile read, ParseJobFile(file, text));
  const DocumentSource here{file, allow_files, ""};
  const std::string where = "reading the job file \"" + file + "\"";
  GraphArguments& graph = read.job.graph.arguments;
  graph.place.allow_files = allow_files;
  if (!graph.place.text.empty()) {
    graph.place.document = file;
  } else {
    HPVMD_ASSIGN_OR_RETURN(graph.place.document, While(PathOfNamedFile(here, graph.place.document), where));
  }
  for (const auto& [name, module] : read.modules) {
    HPVMD_ASSIGN_OR_RETURN(graph.module_bytes[name], While(ReadNamedFile(here, module), where));
  }
  HPVMD_RETURN_IF_ERROR(While(PlaceFiles(here, &graph), where));
  return read.job;
}

void AddApply(Commands commands) {
  CLI::App& command =
      AddCommand(commands.app, "apply", "Submit jobs that are described in files",
                 "A job file gives the options of submit in JSON: docs/CLI.md, schemas/job.schema.json. Everything is "
                 "read and checked\n"
                 "before anything is sent. Files that a job file names lie in its own folder or below.\n"
                 "Examples:\n"
                 "  hpvmctl apply blur.job.json\n"
                 "  hpvmctl apply --dry-run blur.job.json matmul.job.json\n"
                 "  hpvmctl apply --detach blur.job.json matmul.job.json");
  Options& options = SetWork(commands, command, Apply);
  command.add_option("file", options.files, "Job files; - is standard input")->required();
  AddAllowFile(command, options.place);
  AddAfterwards(command, options.afterwards, options.key);
  command.add_flag("--dry-run", options.dry_run, "Read and check everything, send nothing");
}

}  // namespace hpvm::ctl
