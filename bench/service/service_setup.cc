// SPDX-License-Identifier: Apache-2.0
#include "bench/service/service_setup.h"

#include <signal.h>
#include <unistd.h>

namespace hpvm::bench {
namespace {

std::string Pattern(uint32_t connection, size_t bytes) {
  std::string data(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<char>(i * 31 + connection * 7);
  }
  return data;
}

}  // namespace

DaemonSettings RoomySettings() {
  DaemonSettings settings;
  settings.keys = {{"devices.backends", "\"cpu\""}, {"jobs.queued_per_tenant_max", "1000000"},
                   {"jobs.queued_max", "1000000"},  {"jobs.running_per_tenant_max", "1"},
                   {"jobs.kept_max", "1000000"},    {"server.drain_ms", "500"},
                   {"log.level", "\"warning\""}};
  return settings;
}

LoadSpec CopyLoad(LoadKind kind, const std::string& endpoint, const std::string& handle, uint32_t connections) {
  LoadSpec spec;
  spec.kind = kind;
  spec.endpoint = endpoint;
  spec.connections = connections;
  spec.handle = handle;
  spec.input = spec.output = [](uint32_t connection) { return Pattern(connection, kCopyBytes); };
  return spec;
}

Status HoldJobsBack(ServiceDaemon& daemon) {
  HPVMD_ASSIGN_OR_RETURN(const std::string handle, daemon.Prepare("work"));
  LoadSpec spec = CopyLoad(LoadKind::kSubmit, daemon.endpoint(), handle, 1);
  // Seconds of work, none of which a stopped executor does.
  spec.input = [](uint32_t) { return WorkInput(1'000'000'000, 4); };
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<ServiceLoad> load, ServiceLoad::Make(spec));
  HPVMD_ASSIGN_OR_RETURN(LoadResult submitted, load->Closed(1, 1));
  for (int i = 0; i < 2'000; ++i) {
    HPVMD_ASSIGN_OR_RETURN(v1::Job job, daemon.client().GetJob(submitted.job_ids.at(0)));
    if (job.state() == v1::JOB_STATE_RUNNING) {
      usleep(100'000);  // RUNNING begins before the executor has the job.
      return daemon.SignalExecutors(SIGSTOP);
    }
    usleep(5'000);
  }
  return DeadlineExceeded("The job that holds the others back does not start.");
}

StatusOr<std::set<std::string>> ListIds(ServiceDaemon& daemon, const std::vector<v1::JobState>& states) {
  std::set<std::string> ids;
  v1::ListJobsRequest request;
  request.set_page_size(1'000);
  for (const v1::JobState state : states) {
    request.add_states(state);
  }
  do {
    HPVMD_ASSIGN_OR_RETURN(v1::ListJobsResponse response, daemon.client().ListJobs(request));
    for (const v1::Job& job : response.jobs()) {
      ids.insert(job.id());
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return ids;
}

Status AwaitAllEnded(ServiceDaemon& daemon, Duration within) {
  const Time end = RealClock().Now() + within;
  v1::ListJobsRequest request;
  request.set_page_size(1);
  for (const v1::JobState state : {v1::JOB_STATE_ACCEPTED, v1::JOB_STATE_QUEUED, v1::JOB_STATE_RUNNING}) {
    request.add_states(state);
  }
  while (RealClock().Now() < end) {
    HPVMD_ASSIGN_OR_RETURN(v1::ListJobsResponse response, daemon.client().ListJobs(request));
    if (response.jobs_size() == 0) {
      return absl::OkStatus();
    }
    usleep(5'000);
  }
  return DeadlineExceeded("Some jobs have not ended in time.");
}

Status CheckListed(ServiceDaemon& daemon, const std::vector<std::string>& acknowledged) {
  const std::set<std::string> unique(acknowledged.begin(), acknowledged.end());
  if (unique.size() != acknowledged.size()) {
    return Internal("An id was given to two jobs.");
  }
  HPVMD_ASSIGN_OR_RETURN(const std::set<std::string> listed, ListIds(daemon, {}));
  for (const std::string& id : unique) {
    if (!listed.contains(id)) {
      return DataLoss("Job " + id + " was acknowledged and is not there.");
    }
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<EchoPeer>> EchoPeer::Start() {
  auto peer = std::make_unique<EchoPeer>();
  HPVMD_ASSIGN_OR_RETURN(Process process, Process::Start({ProgramFolder() + "/hpvm-bench", "serve-peer",
                                                          "unix:" + peer->folder_.path() + "/peer.sock"}));
  peer->process_.emplace(std::move(process));
  return peer;
}

StatusOr<std::unique_ptr<ServiceLoad>> EchoPeer::Connect(size_t bytes, uint32_t connections) const {
  LoadSpec spec;
  spec.kind = LoadKind::kEcho;
  spec.endpoint = "unix:" + folder_.path() + "/peer.sock";
  spec.connections = connections;
  spec.input = spec.output = [bytes](uint32_t connection) { return Pattern(connection, bytes); };
  return ServiceLoad::Make(spec);
}

}  // namespace hpvm::bench
