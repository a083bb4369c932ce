// SPDX-License-Identifier: Apache-2.0
// Reports the machine's state to operators. Takes linear time in tenants and running work, and none for waiting work.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/core/core.h"

namespace hpvm::server {
namespace {

using Phase = Execution::Phase;

bool Runs(const Execution& run) { return run.phase >= Phase::kStarting && run.phase != Phase::kDone; }

const v1::Job& MadeOf(const Execution& job) {
  return job.stored->shared != nullptr ? job.stored->shared->job() : job.shown();
}

// Returns the creation time of the first job that does not run; few jobs run, so it is found soon.
int64_t OldestWaiting(const Tenant& tenant) {
  for (const auto& [sequence, job] : tenant.by_sequence) {
    if (!Runs(*job)) {
      return std::max(job->shown().created_unix_ns(), MadeOf(*job).created_unix_ns());
    }
  }
  return 0;
}

std::string StepOf(const Execution& run) {
  switch (run.phase) {
    case Phase::kPreparing:
      return "Its graph is being prepared.";
    case Phase::kQueued:
      return "Waits for its turn.";
    case Phase::kReading:
      return "Its inputs are being read.";
    case Phase::kReady:
      return "Waits for the executor, or for its graph to be compiled.";
    case Phase::kStoring:
      return run.stored != nullptr && run.stored->awaits_room ? "Waits for room on the server's disk."
                                                              : "Its outputs are being stored.";
    default:
      return "";
  }
}

void FillWork(const Execution& run, int64_t wall_less_clock, v1::RunningWork* work) {
  work->set_tenant(run.tenant->name);
  work->set_priority(run.priority);
  work->set_state(Runs(run) ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED);
  work->set_since_unix_ns(run.received.count() + wall_less_clock);
  work->set_waits_for(StepOf(run));
  if (run.stored != nullptr) {
    const v1::Job& job = run.shown();
    work->set_job_id(job.id());
    work->set_name(MadeOf(run).name());
    work->set_graph(MadeOf(run).graph_name());
    work->set_since_unix_ns(job.started_unix_ns());
    work->set_nodes_run(job.nodes_run());
    work->set_nodes_total(job.nodes_total());
  }
  if (run.preparation != nullptr) {
    const v1::GraphSummary& summary = run.preparation->summary;
    work->set_graph(summary.name());
    *work->mutable_devices() = summary.devices();
  }
}

}  // namespace

void Core::Overview(const Tenant* only, uint32_t running_max, v1::GetOverviewResponse* response) {
  CoreScope scope(context_.monitor);
  const int64_t wall = context_.options.clock->WallNs();
  const Time now = context_.options.clock->Now();
  response->set_time_unix_ns(wall);
  response->set_started_unix_ns(started_unix_ns_);
  const Intake& intake = context_.shutdown.intake;
  response->mutable_intake()->set_closed(intake.closed);
  response->mutable_intake()->set_reason(intake.reason);
  response->mutable_intake()->set_changed_unix_ns(intake.changed_unix_ns);
  response->mutable_intake()->set_changed_by(only == nullptr ? intake.changed_by : "");

  std::map<std::string, uint64_t> held;  // Bytes by device.
  std::map<const Tenant*, v1::TenantLoad*> loads;
  for (const auto& [name, tenant] : tenants_.all()) {
    if (only != nullptr && only != tenant.get()) {
      continue;  // A tenant does not learn how much memory others hold, either.
    }
    const ExecutorSlot& slot = tenant->executor;
    for (int i = 0; i < slot.usage.device_bytes_size() && i < static_cast<int>(slot.profile.size()); ++i) {
      held[slot.profile[i]] += slot.usage.device_bytes(i);
    }
    v1::TenantLoad& load = *response->add_tenants();
    loads[tenant.get()] = &load;
    FillTenant(*tenant, now, &load);
    if (only != nullptr) {
      load.clear_executor_pid();
    }
  }
  for (v1::Device& device : devices_.Seen(/*by_admin=*/only == nullptr)) {
    v1::DeviceLoad& load = *response->add_devices();
    const Arbiter::DeviceTurns turns = arbiter_.TurnsOf(device.id());
    load.set_waiting(static_cast<uint32_t>(turns.waiting));
    load.set_busy_ns(static_cast<uint64_t>(turns.used.count()));
    load.set_memory_bytes(held[device.id()]);
    for (const std::string& holder : turns.holders) {
      if (only == nullptr || holder == only->name) {
        load.add_holders(holder);
      }
    }
    *load.mutable_device() = std::move(device);
  }

  std::vector<const Execution*> running;
  for (const auto& [key, run] : runs_.all()) {
    const auto load = loads.find(run->tenant.get());
    if (load == loads.end()) {
      continue;
    }
    running.push_back(run.get());
    if (run->stored == nullptr) {
      load->second->set_runs(load->second->runs() + 1);
    } else {
      load->second->set_jobs_running(load->second->jobs_running() + 1);
    }
  }
  for (const auto& [tenant, load] : loads) {
    const uint64_t begun = load->jobs_queued() + load->jobs_running();
    load->set_jobs_waiting(tenant->jobs.size() > begun ? tenant->jobs.size() - begun : 0);
  }
  const size_t count = std::min<size_t>(running_max, running.size());
  std::partial_sort(running.begin(), running.begin() + static_cast<std::ptrdiff_t>(count), running.end(),
                    [](const Execution* a, const Execution* b) { return a->received < b->received; });
  for (size_t i = 0; i < count; ++i) {
    FillWork(*running[i], wall - now.count(), response->add_running());
  }
  response->set_running_left_out(running.size() - count);
}

void Core::FillTenant(Tenant& tenant, Time now, v1::TenantLoad* load) {
  arbiter_.SettleDeviceTime(tenant);
  load->set_name(tenant.name);
  load->set_disabled(tenant.policy->disabled);
  load->set_weight(tenant.policy->weight);
  load->set_dominant_share(arbiter_.share().DominantShare(tenant.key, now));
  for (const uint64_t queued : tenant.queued_jobs) {
    load->set_jobs_queued(load->jobs_queued() + queued);
  }
  load->set_oldest_queued_unix_ns(OldestWaiting(tenant));
  const auto used = [&](scheduler::Resource resource) {
    return quotas_.ledger().BalanceOf(tenant.key, resource, now).used;
  };
  load->set_device_ns(used(scheduler::Resource::kDeviceTime));
  load->set_device_bytes(used(scheduler::Resource::kDeviceBytes));
  load->set_host_bytes(used(scheduler::Resource::kHostBytes));
  load->set_disk_bytes(used(scheduler::Resource::kDiskBytes));
  load->set_executor_pid(tenant.executor.state == ExecutorSlot::State::kUp ? tenant.executor.pid : 0);
  load->set_buffers(tenant.buffers.size());
  load->set_graphs(tenant.handles.size());
}

}  // namespace hpvm::server
