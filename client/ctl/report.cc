// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/report.h"

#include <stdio.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <span>

#include "client/ctl/text/device_text.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/tenant_text.h"
#include "client/ctl/text/terminal.h"
#include "client/ctl/text/text.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

#include "base/clock.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

std::string Without(const std::string& text, std::string_view prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

std::string InstanceText(const v1::InstanceId& id) {
  return "(" + std::to_string(id.x()) + ", " + std::to_string(id.y()) + ", " + std::to_string(id.z()) + ")";
}

// Describes the part of a split node's instances that ran there, along its slowest dimension.
std::string PartText(const v1::NodePlacement& placement) {
  return placement.instance_count() == 0
             ? std::string()
             : " [" + std::to_string(placement.first_instance()) + ", " +
                   std::to_string(placement.first_instance() + placement.instance_count()) + ")";
}

// Names and text come from kernels: they must not control the terminal.
std::string LogText(const v1::RunLog& log) {
  std::string text;
  for (const v1::LogLine& line : log.lines()) {
    text += Printable(line.node() + InstanceText(line.instance()) + ": " + line.text()) + "\n";
  }
  if (log.lines_dropped() != 0) {
    text += "... " + std::to_string(log.lines_dropped()) + " more lines were dropped\n";
  }
  for (const v1::Finding& finding : log.findings()) {
    text += Printable("check: node \"" + finding.node() + "\": " + finding.message()) + "\n";
  }
  if (log.findings_dropped() != 0) {
    text += "... " + std::to_string(log.findings_dropped()) + " more findings were dropped\n";
  }
  if (log.check_incomplete()) {
    text += "check: incomplete: the record of accesses ran out of memory; some faults may have gone unseen\n";
  }
  return text;
}

// Formats as "not split over devices, as its parts would write bytes of each other: hist, sum and 3 more".
std::string WholeText(const std::vector<v1::NodePlacement>& placements) {
  constexpr size_t kNamed = 3;
  std::map<std::string, std::vector<std::string>> nodes;  // Node names by reason.
  for (const v1::NodePlacement& p : placements) {
    if (!p.whole().empty()) {
      nodes[p.whole()].push_back(p.node());
    }
  }
  std::string text;
  for (const auto& [reason, names] : nodes) {
    text += "not split over devices, as " + Printable(reason) + ": ";
    for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
      text += (i == 0 ? "" : ", ") + Printable(names[i]);
    }
    text += names.size() > kNamed ? " and " + std::to_string(names.size() - kNamed) + " more\n" : "\n";
  }
  return text;
}

void PrintReportData(const RunReport& report, const Format& format) {
  Json json;
  json["graph"] = report.graph;
  if (!report.job.empty()) {
    json["job"] = report.job;
  }
  json["state"] = report.state;
  json["prepare"] = ToJson(report.prepare);
  json["timing"] = ToJson(report.timing);
  json["nodes_run"] = report.nodes_run;
  json["repetitions"] = report.repetitions;
  json["converged"] = report.converged;
  json["traffic"] = ToJson(report.traffic);
  json["placements"] = Json::array();
  for (const v1::NodePlacement& placement : report.placements) {
    json["placements"].push_back(ToJson(placement));
  }
  json["outputs"] = Json::object();
  for (const auto& [name, output] : report.outputs) {
    json["outputs"][name] = {{"tensor", output.description}, {"file", output.file}};
  }
  json["log"] = ToJson(report.log);
  json["defects"] = report.defects;
  PrintData(json, format);
}

// Prints the second of two rows, after the first if it is wanted. Columns of rows that are printed one by one have
// their typical width.
void PrintRow(std::vector<std::vector<std::string>> rows, std::span<const size_t> widths, bool with_heading) {
  for (size_t i = 0; i < widths.size(); ++i) {
    rows[1][i].resize(std::max(rows[1][i].size(), widths[i]), ' ');
  }
  const std::string table = Table(rows);
  fputs(with_heading ? table.c_str() : table.substr(table.find('\n') + 1).c_str(), stdout);
}

// Colours the state, which is the second line of a job's full report.
std::string WithColouredState(const std::string& text) {
  constexpr std::string_view kState = "\n  state       ";
  const size_t at = text.find(kState);
  return at == std::string::npos ? text
                                 : text.substr(0, at + kState.size()) + ColouredState(text.substr(at + kState.size()));
}

}  // namespace

// For a graph that ran several times, a node's time is the total over all repetitions.
std::string PlacementTable(const std::vector<v1::NodePlacement>& placements) {
  const bool repeats = std::ranges::any_of(placements, [](const v1::NodePlacement& p) { return p.runs() > 1; });
  std::vector<std::vector<std::string>> rows = {{"NODE", "DEVICE", "VARIANT", "START", "TIME"}};
  if (repeats) {
    rows.front().push_back("RUNS");
  }
  for (const v1::NodePlacement& p : placements) {
    rows.push_back({p.node() + PartText(p) + (p.math() == "fast" ? " (fast math)" : ""),
                    (p.is_estimate() ? "~" : "") + p.device(), p.variant().empty() ? "-" : Printable(p.variant()),
                    DurationText(p.start_ns()), DurationText(repeats ? p.total_ns() : p.end_ns() - p.start_ns())});
    if (repeats) {
      rows.back().push_back(std::to_string(p.runs()));
    }
  }
  return Table(rows);
}

std::string JobFactsText(const v1::Job& job, int64_t now_ns) {
  return WithColouredState(Printable(JobFacts(job, now_ns)));
}

void PrintReport(const RunReport& report, const Format& format) {
  if (format == Format::kJson) {
    PrintReportData(report, format);
    return;
  }
  if (format == Format::kName) {
    fputs(report.job.empty() ? "" : (report.job + "\n").c_str(), stdout);
    return;
  }
  const std::string job_text = report.job.empty() ? "" : " (job " + report.job + ")";
  const bool has_estimates = std::ranges::any_of(report.placements, &v1::NodePlacement::is_estimate);
  std::string text = Printable("graph " + report.graph + ": ") + ColouredState(Printable(report.state)) +
                     Printable(job_text) + "\n" + PlacementTable(report.placements) + WholeText(report.placements);
  if (has_estimates) {
    text += "~: placed by an estimate; no similar launch had been measured on that device\n";
  }
  if (report.placements.size() < report.nodes_run) {
    text +=
        "showing " + std::to_string(report.placements.size()) + " of " + std::to_string(report.nodes_run) + " nodes\n";
  }
  const v1::PrepareTiming& prepare = report.prepare;
  text += "phases: parse " + DurationText(prepare.parse_ns()) + ", compile " + DurationText(prepare.compile_ns()) +
          " (" + std::to_string(prepare.compiled()) + " compiled, " + std::to_string(prepare.from_cache()) +
          " from cache), load " + DurationText(prepare.load_ns()) + ", copy in " +
          DurationText(report.timing.copy_in_ns()) + ", run " + DurationText(report.timing.run_ns()) + ", copy out " +
          DurationText(report.timing.copy_out_ns()) + "\n";
  if (report.repetitions > 1 || report.converged) {
    text += "repetitions: " + std::to_string(report.repetitions) + (report.converged ? ", converged\n" : "\n");
  }
  if (report.traffic.spilled_bytes() != 0) {
    text += "moved to and from disk because memory was short: " + BytesText(report.traffic.spilled_bytes()) + "\n";
  }
  if (report.traffic.lost_devices() != 0) {
    text += "devices that failed during the run: " + std::to_string(report.traffic.lost_devices()) + "\n";
  }
  for (const std::string& sentence : report.defects) {
    text += Printable("note: " + sentence) + "\n";
  }
  for (const auto& [name, output] : report.outputs) {
    text += Printable("output " + name + ": " + output.description +
                      (output.file.empty() ? std::string() : " -> " + output.file)) +
            "\n";
  }
  fputs(text.c_str(), stdout);
}

void PrintWarning(std::string_view text) { fprintf(stderr, "hpvmctl: warning: %s\n", Printable(text).c_str()); }

void PrintLog(const v1::RunLog& log, const Format& format) {
  if (format != Format::kJson) {
    fputs(LogText(log).c_str(), stderr);
  }
}

void PrintLogOf(const v1::Job& job, const Format& format) {
  if (format == Format::kJson) {
    PrintData(job.log(), format);
  } else {
    fputs(LogText(job.log()).c_str(), stdout);
  }
}

void PrintJobs(const std::vector<v1::Job>& jobs, const Format& format) {
  PrintList(jobs, format, &v1::Job::id,
            [&] { return Table(JobRows(jobs, RealClock().WallNs(), format == Format::kWide)); });
}

void PrintJobsInFull(const std::vector<v1::Job>& jobs, const Format& format) {
  if (format == Format::kJson || format == Format::kName) {
    PrintJobs(jobs, format);
    return;
  }
  const char* before = "";
  for (const v1::Job& job : jobs) {
    printf("%s%s", before, WithColouredState(Printable(JobDetails(job, RealClock().WallNs()))).c_str());
    before = "\n";
  }
}

void PrintJobLine(const v1::Job& job, const Format& format, bool with_heading) {
  constexpr size_t kWidths[] = {36, 9, 5, 8, 14};
  if (format == Format::kJson) {
    PrintDataLine(ToJson(job), format, with_heading);
  } else if (format == Format::kName) {
    puts(Printable(job.id()).c_str());
  } else {
    const bool wide = format == Format::kWide;
    v1::Job shown = job;
    if (!wide) {
      shown.clear_host();  // All lines have the same columns, and the first job may have no host yet.
    }
    PrintRow(JobRows({shown}, RealClock().WallNs(), wide), kWidths, with_heading);
  }
  fflush(stdout);
}

std::string IdOf(const v1::SubmitResponse& response) {
  return response.job().array_id().empty() ? response.job().id() : response.job().array_id();
}

void PrintSubmitted(const v1::SubmitResponse& response, const Format& format) {
  PrintOne(response, format, IdOf(response), [&] { return Printable(IdOf(response)) + "\n"; });
}

// Lists the known miscomputations of drivers, one per line.
std::string DefectsText(const google::protobuf::RepeatedPtrField<v1::Device>& devices) {
  std::string text;
  for (const v1::Device& device : devices) {
    for (const v1::DriverDefect& defect : device.defects()) {
      text += Printable(device.id() +
                        (defect.in_generated_code()
                             ? " runs no generated code, because its driver computes wrong results for some of it ("
                             : " may compute wrong results in modules that are written for it (OpenCL C, SPIR-V) (") +
                        defect.name() + "): " + defect.reason()) +
              "\n";
    }
  }
  return text;
}

std::string NameOf(const v1::Device& device) {
  std::string name = device.name();
  if (device.emulated()) {
    name += ", emulated";
  }
  if (!device.memory_shared_with().empty()) {
    name += ", memory of " + device.memory_shared_with();
  }
  if (!device.detail().empty()) {
    name += " (" + device.detail() + ")";
  }
  if (device.has_paused() && !device.paused().reason().empty()) {
    name += " (paused: " + device.paused().reason() + ")";
  }
  return name;
}

// An empty `state` stands for the device's own state.
std::vector<std::string> DeviceRow(const v1::Device& device, const std::string& state) {
  return {device.id(),
          Without(v1::Device::Kind_Name(device.kind()), "KIND_"),
          state.empty() ? DeviceStateText(device) : state,
          std::to_string(device.compute_units()),
          BytesText(device.memory_bytes()),
          NameOf(device)};
}

const std::vector<std::string>& DeviceHeading() {
  static const std::vector<std::string> heading = {"DEVICE", "KIND", "STATE", "UNITS", "MEMORY", "NAME"};
  return heading;
}

std::string DevicesText(const google::protobuf::RepeatedPtrField<v1::Device>& devices) {
  std::vector<std::vector<std::string>> rows = {DeviceHeading()};
  for (const v1::Device& device : devices) {
    rows.push_back(DeviceRow(device, ""));
  }
  return Table(rows) + DefectsText(devices);
}

// Prints a line for each device whose health is known; empty when there is none.
std::string HealthText(const google::protobuf::RepeatedPtrField<v1::Device>& devices) {
  std::vector<std::vector<std::string>> rows = {
      {"DEVICE", "BUS", "TEMPERATURE", "POWER LIMIT", "MEMORY ERRORS", "XID", "SLOWED", "DRIVER", "UUID"}};
  for (const v1::Device& device : devices) {
    const v1::DeviceHealth& health = device.health();
    if (!device.has_health()) {
      continue;
    }
    const auto whole = [](bool is_known, double value, const char* unit) {
      return is_known ? std::to_string(static_cast<int64_t>(value)) + unit : std::string("-");
    };
    rows.push_back({device.id(), health.bus().empty() ? "-" : health.bus(),
                    whole(health.has_temperature_c(), health.temperature_c(), " C"),
                    whole(health.has_power_limit_w(), health.power_limit_w(), " W"),
                    health.has_ecc_uncorrected() ? std::to_string(health.ecc_corrected()) + " corrected, " +
                                                       std::to_string(health.ecc_uncorrected()) + " not"
                                                 : "-",
                    health.has_last_xid() ? std::to_string(health.last_xid()) : "-", health.throttled() ? "yes" : "no",
                    health.driver_version(), health.uuid()});
  }
  return rows.size() == 1 ? "" : "\n" + Table(rows);
}

void PrintDevices(const v1::ListDevicesResponse& response, const Format& format) {
  PrintList(response.devices(), format, &v1::Device::id, [&] {
    return DevicesText(response.devices()) +
           (format == Format::kWide ? HealthText(response.devices()) + "\n" + SandboxText(response.sandbox()) : "");
  });
}

void PrintDeviceLine(const v1::Device& device, bool is_gone, const Format& format, bool with_heading) {
  constexpr size_t kWidths[] = {9, 11, 7, 5, 8};
  if (format == Format::kJson) {
    Json line = ToJson(device);
    line["gone"] = is_gone;
    PrintDataLine(line, format, with_heading);
  } else if (format == Format::kName) {
    puts(Printable(device.id()).c_str());
  } else {
    PrintRow({DeviceHeading(), DeviceRow(device, is_gone ? "GONE" : "")}, kWidths, with_heading);
  }
  fflush(stdout);
}

void PrintUsage(const v1::GetUsageResponse& usage, const Format& format) {
  PrintOne(usage, format, usage.tenant(), [&] { return UsageTable(usage); });
}

void PrintCaller(const v1::ServerInfoResponse& info, const v1::Sandbox& sandbox, const Format& format) {
  if (format == Format::kJson) {
    PrintData(Json{{"tenant", info.tenant()},
                   {"role", info.role()},
                   {"caller", info.caller()},
                   {"sandbox", ToJson(sandbox)},
                   {"server_version", info.version()}},
              format);
    return;
  }
  if (format == Format::kName) {
    puts(Printable(info.tenant()).c_str());
    return;
  }
  const auto or_unsaid = [](const std::string& text) { return text.empty() ? "(an older server does not say)" : text; };
  fputs(Table({{"tenant", info.tenant()},
               {"role", or_unsaid(info.role())},
               {"known by", or_unsaid(info.caller())},
               {"server", info.version()}})
            .c_str(),
        stdout);
  fputs(SandboxText(sandbox).c_str(), stdout);
}

Json ToJson(const google::protobuf::Message& message) {
  std::string text;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    return nullptr;
  }
  return Json::parse(text, nullptr, false);
}

void PrintData(const Json& value, const Format& format) { fputs(DataText(value, format).c_str(), stdout); }

void PrintData(const google::protobuf::Message& message, const Format& format) { PrintData(ToJson(message), format); }

void PrintData(const std::vector<const google::protobuf::Message*>& messages, const Format& format) {
  Json list = Json::array();
  for (const google::protobuf::Message* message : messages) {
    list.push_back(ToJson(*message));
  }
  PrintData(list, format);
}

void PrintDataLine(const Json& value, const Format& format, bool with_heading) {
  fputs(DataLine(value, format, with_heading).c_str(), stdout);
  fflush(stdout);
}

}  // namespace hpvm::ctl
