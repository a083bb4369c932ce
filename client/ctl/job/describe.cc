// SPDX-License-Identifier: Apache-2.0
// hpvmctl describe and events: the history of one job.
#include <stdio.h>

#include <algorithm>

#include "client/ctl/job/follow.h"
#include "client/ctl/job/history.h"
#include "client/ctl/options.h"
#include "client/ctl/report.h"
#include "client/ctl/text/job_text.h"
#include "client/ctl/text/text.h"
#include "client/ctl/text/timeline.h"
#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace hpvm::ctl {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string id;
  bool follow = false;
};

std::string Indented(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1);
    out += "  " + text.substr(at, end - at + 1);
    at = end + 1;
  }
  return out;
}

Status Describe(const Globals& globals, const Options& options) {
  HPVMD_RETURN_IF_ERROR(CheckIsJob(options.id));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events, ReadHistory(*client, options.id));
  HPVMD_ASSIGN_OR_RETURN(const v1::Job job, client->GetJob(options.id));
  const int64_t now_ns = RealClock().WallNs();
  const std::string now = NowText(job, now_ns), next = NextStepNow(job);
  if (globals.format == Format::kJson) {
    Json json = {{"job", ToJson(job)}, {"now", now}, {"next", next}, {"events", Json::array()}};
    for (const v1::JobEvent& event : events) {
      json["events"].push_back(ToJson(event));
    }
    PrintData(json, globals.format);
    return absl::OkStatus();
  }
  if (globals.format == Format::kName) {
    puts(Printable(job.id()).c_str());
    return absl::OkStatus();
  }
  std::string text = JobFactsText(job, now_ns) + "\nTimeline\n" + Indented(Table(TimelineRows(job, events, now_ns)));
  if (const std::vector<v1::NodePlacement> placements = PlacementsOf(events); !placements.empty()) {
    text += "\nNodes\n" + Indented(PlacementTable(placements));
  }
  text += now.empty() ? "" : "\nNow\n" + Indented(Printable(now) + "\n");
  text += next.empty() ? "" : "\nNext\n" + Indented(Printable(next) + "\n");
  fputs(text.c_str(), stdout);
  return absl::OkStatus();
}

void PrintEvent(const v1::JobEvent& event, const Format& format, bool with_heading) {
  if (format == Format::kJson) {
    PrintDataLine(ToJson(event), format, with_heading);
    return;
  }
  if (format == Format::kName) {
    printf("%llu\n", static_cast<unsigned long long>(event.sequence()));
  } else {
    printf("%s  %s\n", PreciseTimeText(event.time_unix_ns()).c_str(), Printable(EventText(event)).c_str());
  }
  fflush(stdout);
}

Status Events(const Globals& globals, const Options& options) {
  HPVMD_RETURN_IF_ERROR(CheckIsJob(options.id));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, globals.Connect());
  bool with_heading = true;
  const auto print = [&](const v1::JobEvent& event) {
    PrintEvent(event, globals.format, with_heading);
    with_heading = false;
  };
  if (options.follow) {
    SayWhenInterrupted("\nhpvmctl: the job goes on; `hpvmctl events -f " + options.id + "` shows its events again.\n");
    WaitOptions wait;
    wait.on_event = print;
    return client->WaitJob(options.id, wait).status();
  }
  HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events, ReadHistory(*client, options.id));
  if (globals.format == Format::kJson) {
    PrintData(Pointers(events), globals.format);
  } else {
    std::for_each(events.begin(), events.end(), print);
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckIsJob(const std::string& id) {
  return id.starts_with("array-")
             ? InvalidArgument("\"" + id + "\" is an array, and this command takes one job; `hpvmctl " +
                               "list --array " + id + "` lists its elements.")
             : absl::OkStatus();
}

StatusOr<std::vector<v1::JobEvent>> ReadHistory(Client& client, const std::string& job_id) {
  HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client.ServerInfo());
  if (std::find(info.features().begin(), info.features().end(), "job-past") == info.features().end()) {
    return Unimplemented("The server (release " + info.version() + ") cannot list the past events of a job.");
  }
  std::vector<v1::JobEvent> events;
  const auto take = [&](const v1::JobEvent& event) {
    if (!event.has_past_ends()) {
      events.push_back(event);
    }
    return !event.has_past_ends();
  };
  HPVMD_RETURN_IF_ERROR(client.WatchJob(job_id, take, {}, /*marks_past=*/true).status());
  return events;
}

void AddDescribe(Commands commands) {
  CLI::App& describe =
      AddCommand(commands.app, "describe", "Describe a job: what it is, what happened, what to do next",
                 "Examples:\n"
                 "  hpvmctl describe job-0193…\n"
                 "  hpvmctl describe job-0193… -o yaml");
  describe.add_option("job", SetWork(commands, describe, Describe).id, "A job's id")->required();
  CLI::App& events = AddCommand(commands.app, "events", "List what happened to a job, one line per event",
                                "Examples:\n"
                                "  hpvmctl events job-0193…\n"
                                "  hpvmctl events -f job-0193… -o jsonl");
  Options& options = SetWork(commands, events, Events);
  events.add_option("job", options.id, "A job's id")->required();
  events.add_flag("-f,--follow", options.follow, "Print further events until the job has ended");
}

}  // namespace hpvm::ctl
