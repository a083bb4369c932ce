// SPDX-License-Identifier: Apache-2.0
// hpvmctl describe and events: one job's story.
#include <stdio.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

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

// How long a server may be silent before its first event, and after the last one of the past.
constexpr Duration kFirstWait = std::chrono::seconds(5), kQuiet = std::chrono::milliseconds(300);

struct Options {
  std::string id;
  bool follow = false;
};

// Cancels once nothing was heard for a while. One thread calls Heard, a thread of its own waits.
class QuietTimer {
 public:
  explicit QuietTimer(Cancellation cancel) : cancel_(std::move(cancel)), thread_([this] { Wait(); }) {}
  ~QuietTimer() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  QuietTimer(const QuietTimer&) = delete;
  QuietTimer& operator=(const QuietTimer&) = delete;

  void Heard() {
    {
      const std::lock_guard lock(mutex_);
      ++heard_;
    }
    changed_.notify_one();
  }

 private:
  void Wait() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      const uint64_t heard = heard_;
      const bool is_told =
          changed_.wait_for(lock, heard == 0 ? kFirstWait : kQuiet, [&] { return is_over_ || heard_ != heard; });
      if (!is_told) {
        cancel_.Cancel();
        return;
      }
    }
  }

  Cancellation cancel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t heard_ = 0;    // Guarded by mutex_.
  bool is_over_ = false;  // Guarded by mutex_.
  std::thread thread_;    // Last: it uses the others.
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
  return id.starts_with("array-") ? InvalidArgument("\"" + id + "\" is an array, and this is about one job; `hpvmctl " +
                                                    "list --array " + id + "` lists its elements.")
                                  : absl::OkStatus();
}

StatusOr<std::vector<v1::JobEvent>> ReadHistory(Client& client, const std::string& job_id) {
  std::vector<v1::JobEvent> events;
  CallOptions call;
  call.cancel.emplace();
  QuietTimer timer(*call.cancel);
  const Status status = client
                            .WatchJob(
                                job_id,
                                [&](const v1::JobEvent& event) {
                                  events.push_back(event);
                                  timer.Heard();
                                  return true;
                                },
                                call)
                            .status();
  if (!status.ok() && !(call.cancel->IsCancelled() && status.code() == absl::StatusCode::kCancelled)) {
    return status;
  }
  return events;
}

void AddDescribe(Commands commands) {
  CLI::App& describe = AddCommand(commands.app, "describe", "One job's story: what it is, what happened, what is next",
                                  "Examples:\n"
                                  "  hpvmctl describe job-0193…\n"
                                  "  hpvmctl describe job-0193… -o yaml");
  describe.add_option("job", SetWork(commands, describe, Describe).id, "A job's id")->required();
  CLI::App& events = AddCommand(commands.app, "events", "What happened to a job, a line each",
                                "Examples:\n"
                                "  hpvmctl events job-0193…\n"
                                "  hpvmctl events -f job-0193… -o jsonl");
  Options& options = SetWork(commands, events, Events);
  events.add_option("job", options.id, "A job's id")->required();
  events.add_flag("-f,--follow", options.follow, "Go on until the job has ended");
}

}  // namespace hpvm::ctl
