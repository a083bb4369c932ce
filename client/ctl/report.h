// SPDX-License-Identifier: Apache-2.0
// Reports of where work ran and how long each phase took, as a table or JSON on standard output.
#ifndef HPVMD_CLIENT_CTL_REPORT_H_
#define HPVMD_CLIENT_CTL_REPORT_H_

#include <stdio.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "client/ctl/command.h"
#include "client/ctl/text/text.h"
#include <nlohmann/json_fwd.hpp>

#include "hpvm/client.h"
#include "hpvm/tensor.h"
#include "hpvm/v1/admin.pb.h"

namespace hpvm::ctl {

struct RunReport {
  std::string graph;
  std::string job;  // Empty when it was not a job.
  std::string state = "SUCCEEDED";
  v1::PrepareTiming prepare;
  v1::RunTiming timing;
  std::vector<v1::NodePlacement> placements;
  uint32_t repetitions = 0;  // 0 when unknown.
  bool converged = false;
  v1::RunTraffic traffic;
  uint64_t nodes_run = 0;
  struct Output {
    std::string description;  // "f32[480, 640]".
    std::string file;         // Empty when not written.
  };
  std::map<std::string, Output> outputs;
  v1::RunLog log;
  std::vector<std::string> defects;  // GraphSummary::defects.
};

// Prints "hpvmctl: warning: ..." on standard error.
void PrintWarning(std::string_view text);
// Prints the kernels' output on standard error, one "node(instance): text" per line, then each finding. Prints
// nothing for JSON, whose report contains it.
void PrintLog(const v1::RunLog& log, const Format& format);
void PrintReport(const RunReport& report, const Format& format);
// Prints the log alone, on standard output, as text or JSON.
void PrintLogOf(const v1::Job& job, const Format& format);
void PrintJobs(const std::vector<v1::Job>& jobs, const Format& format);
// Returns a job's facts as Printable text, with the state in colour.
std::string JobFactsText(const v1::Job& job, int64_t now_ns);
// Returns a table of nodes with their device, start and duration.
std::string PlacementTable(const std::vector<v1::NodePlacement>& placements);
// Prints every fact of each job; like PrintJobs for formats other than tables.
void PrintJobsInFull(const std::vector<v1::Job>& jobs, const Format& format);
// Prints one job as a row or as one line of JSON, for continuous lists; flushes.
void PrintJobLine(const v1::Job& job, const Format& format, bool with_heading);
// Returns the array's id, or the job's.
std::string IdOf(const v1::SubmitResponse& response);
// Prints the response of Submit or RetryJob: the array's id or the job's, or all of it as JSON.
void PrintSubmitted(const v1::SubmitResponse& response, const Format& format);
// Prints one device like PrintJobLine; JSON has "gone" in addition.
void PrintDeviceLine(const v1::Device& device, bool is_gone, const Format& format, bool with_heading);
// The wide format also shows what isolates the caller's kernels from others.
void PrintDevices(const v1::ListDevicesResponse& response, const Format& format);
void PrintUsage(const v1::GetUsageResponse& usage, const Format& format);
// Prints the identity under which the server knows the caller.
void PrintCaller(const v1::ServerInfoResponse& info, const v1::Sandbox& sandbox, const Format& format);

// Converts a message to protobuf's JSON form, so that every documented field appears under its documented name.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);
// Prints for programs, in the form that `format` (kJson) says; several messages as a list.
void PrintData(const nlohmann::ordered_json& value, const Format& format);
void PrintData(const google::protobuf::Message& message, const Format& format);
void PrintData(const std::vector<const google::protobuf::Message*>& messages, const Format& format);
// Prints one item of a continuous list in the same form; flushes.
void PrintDataLine(const nlohmann::ordered_json& value, const Format& format, bool with_heading);
// The pointers are borrowed from `messages`.
template <typename Messages>
std::vector<const google::protobuf::Message*> Pointers(const Messages& messages) {
  std::vector<const google::protobuf::Message*> pointers;
  for (const auto& message : messages) {
    pointers.push_back(&message);
  }
  return pointers;
}
// Prints in the requested format: JSON, one name per line, or the result of `text`.
template <typename Message, typename Text>
void PrintOne(const Message& message, const Format& format, const std::string& name, const Text& text) {
  if (format == Format::kJson) {
    PrintData(message, format);
  } else {
    fputs((format == Format::kName ? Printable(name) + "\n" : text()).c_str(), stdout);
  }
}
template <typename Messages, typename Name, typename Text>
void PrintList(const Messages& messages, const Format& format, const Name& name_of, const Text& text) {
  if (format == Format::kJson) {
    PrintData(Pointers(messages), format);
  } else if (format == Format::kName) {
    for (const auto& message : messages) {
      puts(Printable(std::invoke(name_of, message)).c_str());
    }
  } else {
    fputs(text().c_str(), stdout);
  }
}

}  // namespace hpvm::ctl

#endif  // HPVMD_CLIENT_CTL_REPORT_H_
