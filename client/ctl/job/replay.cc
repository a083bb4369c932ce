// SPDX-License-Identifier: Apache-2.0
// hpvmctl replay: runs a bundle once more and compares the results with the recorded ones.
#include <stdio.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>

#include "client/ctl/document_files.h"
#include "client/ctl/job/follow.h"
#include "client/ctl/job/job_file.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/run.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "hpvm/tensor.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string folder;
  bool local = false;
  std::vector<std::string> devices;
};

// Outcome of the job, recorded or replayed.
struct Fate {
  std::string state;
  std::string error;
  std::map<std::string, Tensor> outputs;
};

StatusOr<Json> ReadJson(const std::string& file) {
  HPVMD_ASSIGN_OR_RETURN(const std::string text, ReadDocument(file));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? StatusOr<Json>(std::move(json)) : InvalidArgument("\"" + file + "\" is not a JSON object.");
}

std::string TextAt(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

StatusOr<Fate> ReadFate(const std::string& folder) {
  HPVMD_ASSIGN_OR_RETURN(const Json record, ReadJson(folder + "/record.json"));
  Fate fate;
  constexpr std::string_view kPrefix = "JOB_STATE_";
  const std::string state = TextAt(record, "state");
  fate.state = state.starts_with(kPrefix) ? state.substr(kPrefix.size()) : state;
  if (const auto error = record.find("error"); error != record.end() && error->is_object()) {
    fate.error = TextAt(*error, "message");
  }
  if (!std::filesystem::exists(folder + "/outputs.json")) {
    return fate;
  }
  HPVMD_ASSIGN_OR_RETURN(const Json outputs, ReadJson(folder + "/outputs.json"));
  const DocumentSource here{folder + "/outputs.json", {}, ""};
  for (const auto& [name, file] : outputs.items()) {
    if (!file.is_string() || !file.get<std::string>().ends_with(".npy")) {
      continue;  // Raw bytes have no type, so they are not compared.
    }
    HPVMD_ASSIGN_OR_RETURN(const std::string path, PathOfNamedFile(here, file.get<std::string>()));
    HPVMD_ASSIGN_OR_RETURN(fate.outputs[name], ReadTensorFile(path, std::nullopt));
  }
  return fate;
}

StatusOr<Fate> RunHere(const SubmitArguments& arguments, const std::vector<std::string>& devices) {
  GraphOptions graph = arguments.graph;
  if (!devices.empty()) {
    graph.arguments.devices = devices;
  }
  HPVMD_ASSIGN_OR_RETURN(const GraphJob job, LoadGraphJob(graph.arguments));
  HPVMD_ASSIGN_OR_RETURN(const RunOptions run, ToRunOptions(graph, job));
  Fate fate;
  StatusOr<LocalOutcome> ran = RunLocally(job, run, {}, graph.arguments.devices);
  fate.state = ran.ok() ? "SUCCEEDED" : "FAILED";
  fate.error = Message(ran.status());
  if (ran.ok()) {
    fate.outputs = std::move(ran->run.outputs);
  }
  return fate;
}

StatusOr<Fate> RunThere(const Globals& globals, SubmitArguments arguments, const std::vector<std::string>& devices) {
  if (!devices.empty()) {
    arguments.graph.arguments.devices = devices;
  }
  HPVMD_ASSIGN_OR_RETURN(const PreparedJob prepared, PrepareJob(arguments));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(
      const v1::SubmitResponse submitted,
      client->Submit(prepared.item.document, prepared.item.modules, prepared.item.inputs, prepared.item.options));
  const std::string& id = submitted.job().id();
  SayWhenInterrupted("\nhpvmctl: interrupted; job " + id + " goes on.\n");
  HPVMD_ASSIGN_OR_RETURN(const v1::Job job, client->WaitJob(id));
  fprintf(stderr, "hpvmctl: ran the job again as %s.\n", Printable(id).c_str());
  Fate fate;
  fate.state = StateText(job.state());
  fate.error = job.error().message();
  for (const v1::OutputValue& output : job.outputs()) {
    if (output.has_stored()) {
      HPVMD_ASSIGN_OR_RETURN(fate.outputs[output.name()], client->FetchOutput(id, output.name()));
    }
  }
  return fate;
}

// Returns an empty string when both are identical bit for bit.
std::string Difference(const Tensor& then, const Tensor& now) {
  if (then.type != now.type || then.shape != now.shape) {
    return "was " + Describe(then.type, then.shape) + ", is " + Describe(now.type, now.shape);
  }
  const size_t elements =
      std::max<size_t>(1, std::accumulate(then.shape.begin(), then.shape.end(), size_t{1}, std::multiplies<>()));
  const size_t size = then.data.size() / elements;
  size_t count = 0, first = 0;
  for (size_t i = 0; i < elements && size > 0; ++i) {
    if (memcmp(&then.data[i * size], &now.data[i * size], size) != 0) {
      first = count++ == 0 ? i : first;
    }
  }
  return count == 0 ? ""
                    : std::to_string(count) + " of " + std::to_string(elements) + " elements differ, the first at " +
                          std::to_string(first);
}

Json Compare(const Fate& then, const Fate& now, bool* is_same) {
  Json report = {{"then", then.state},
                 {"now", now.state},
                 {"error_then", then.error},
                 {"error_now", now.error},
                 {"outputs", Json::object()}};
  *is_same = then.state == now.state;
  if (then.state != "SUCCEEDED" || now.state != "SUCCEEDED") {
    return report;
  }
  for (const auto& [name, tensor] : then.outputs) {
    const auto found = now.outputs.find(name);
    const std::string difference = found == now.outputs.end() ? "is gone" : Difference(tensor, found->second);
    report["outputs"][name] = difference.empty() ? "same" : difference;
    *is_same = *is_same && difference.empty();
  }
  return report;
}

void PrintComparison(const Json& report, bool is_same) {
  const auto text = [&](const char* key) { return Printable(report[key].get<std::string>()); };
  printf("%s: the job was %s and is %s now\n", is_same ? "The same" : "Not the same", text("then").c_str(),
         text("now").c_str());
  for (const char* key : {"error_then", "error_now"}) {
    if (!report[key].get<std::string>().empty()) {
      printf("  %s: %s\n", key == std::string_view("error_then") ? "then" : "now", text(key).c_str());
    }
  }
  for (const auto& [name, difference] : report["outputs"].items()) {
    printf("  output %s: %s\n", Printable(name).c_str(), Printable(difference.get<std::string>()).c_str());
  }
}

Status Replay(const Globals& globals, const Options& options, ExitCode* code) {
  HPVMD_ASSIGN_OR_RETURN(const Fate then, ReadFate(options.folder));
  HPVMD_ASSIGN_OR_RETURN(const SubmitArguments arguments, ReadJobFile(options.folder + "/job.json", {}));
  HPVMD_ASSIGN_OR_RETURN(const Fate now, options.local ? RunHere(arguments, options.devices)
                                                       : RunThere(globals, arguments, options.devices));
  bool is_same = false;
  const Json report = Compare(then, now, &is_same);
  if (globals.format == Format::kTable || globals.format == Format::kWide) {
    PrintComparison(report, is_same);
  } else {
    PrintData(report, globals.format);
  }
  *code = is_same ? kOk : kFailed;
  return absl::OkStatus();
}

}  // namespace

void AddReplay(Commands commands) {
  CLI::App& command = AddCommand(
      commands.app, "replay", "Run again the job that `hpvmctl bundle` has put into a folder, and compare the results",
      "State and outputs are compared bit for bit; the exit code is 1 when they are not the same. Floating-"
      "point\nsums of nodes with \"math\": \"fast\" may differ between devices.\n"
      "Examples:\n  hpvmctl replay job-0193….hpvm\n  hpvmctl replay job-0193….hpvm --local --device cpu");
  Options& options = SetWork(commands, command, Replay);
  AddWord(command, "folder", options.folder, "The bundle's folder")->required();
  command.add_flag("--local", options.local, "Run on this machine, in a process of its own, without a server");
  AddEach(command, "--device", options.devices,
          "Run nodes only on this device or family: cpu:0, opencl; may be repeated");
}

}  // namespace hpvm::ctl
