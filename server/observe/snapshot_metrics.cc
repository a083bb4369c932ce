// SPDX-License-Identifier: Apache-2.0
#include "server/observe/snapshot_metrics.h"

#include <array>
#include <map>

namespace hpvm::server {
namespace {

constexpr std::string_view kPriorities[] = {"low", "normal", "high"};

std::string_view NameOf(v1::Device::State state) {
  return state == v1::Device::STATE_READY ? "ready" : state == v1::Device::STATE_PROBING ? "probing" : "broken";
}

std::string_view NameOf(v1::Device::Kind kind) {
  return kind == v1::Device::KIND_CPU    ? "cpu"
         : kind == v1::Device::KIND_GPU  ? "gpu"
         : kind == v1::Device::KIND_FPGA ? "fpga"
                                         : "other";
}

// Sums of the tenants that share a label.
struct TenantSums {
  std::array<uint64_t, 3> queued{};
  uint64_t running = 0, buffer_bytes = 0, stored_job_bytes = 0;
  std::array<scheduler::Ledger::Balance, scheduler::kResourceCount> quota{};
};

// Converts to seconds, bytes or a plain number.
double InUnit(scheduler::ResourceUnit unit, uint64_t value) {
  return static_cast<double>(value) * (unit == scheduler::ResourceUnit::kNanoseconds ? 1e-9 : 1.0);
}

void DescribeQuotas(Families& families, const std::map<std::string_view, TenantSums>& tenants) {
  const auto each = [&](const auto& value_of) {
    for (const auto& [tenant, sums] : tenants) {
      for (const scheduler::ResourceFacts& facts : scheduler::Resources()) {
        const scheduler::Ledger::Balance& balance = sums.quota[static_cast<size_t>(facts.resource)];
        families.Add({{"tenant", tenant}, {"resource", facts.name}}, value_of(facts, balance));
      }
    }
  };
  families.Gauge("hpvm_tenant_quota_used",
                 "Amount of a resource that the tenant holds or has spent, before restarts too.");
  each([](const auto& facts, const auto& balance) { return InUnit(facts.unit, balance.used); });
  families.Gauge("hpvm_tenant_quota_limit",
                 "The tenant's quota of a resource; for resources that are spent, by their period. 0: none.");
  each([](const auto& facts, const auto& balance) { return InUnit(facts.unit, balance.limit); });
  families.Counter("hpvm_tenant_quota_refused_total", "Requests that were refused because of the quota.");
  each([](const auto&, const auto& balance) { return static_cast<double>(balance.refused); });
}

void DescribeTenants(Families& families, const std::map<std::string_view, TenantSums>& tenants) {
  families.Gauge("hpvm_queue_depth", "Runs and jobs that wait for their turn, by the sign of their priority.");
  for (const auto& [tenant, sums] : tenants) {
    families.AddEach({{"tenant", tenant}}, "priority", kPriorities, sums.queued);
  }
  const auto gauge = [&](const char* name, const char* help, uint64_t TenantSums::*member) {
    families.Gauge(name, help);
    for (const auto& [tenant, sums] : tenants) {
      families.Add({{"tenant", tenant}}, sums.*member);
    }
  };
  gauge("hpvm_running", "Runs and attempts of jobs under way.", &TenantSums::running);
  gauge("hpvm_buffer_bytes", "Bytes of buffers.", &TenantSums::buffer_bytes);
  gauge("hpvm_store_job_bytes", "Bytes of stored jobs, as the tenant's limit counts them.",
        &TenantSums::stored_job_bytes);
  DescribeQuotas(families, tenants);
}

// Adds devices that a management library knows; values that it does not report are absent.
void DescribeHealth(Families& families, const std::vector<v1::Device>& devices) {
  const auto each = [&](const char* name, const char* help, const auto& add) {
    families.Gauge(name, help);
    for (const v1::Device& device : devices) {
      if (device.health().read_unix_ns() != 0) {
        add(device.id(), device.health());
      }
    }
  };
  using Health = v1::DeviceHealth;
  const auto number = [&](const char* name, const char* help, bool (Health::*has)() const,
                          double (Health::*get)() const) {
    each(name, help, [&](const std::string& id, const Health& health) {
      if ((health.*has)()) {
        families.Add({{"device", id}}, (health.*get)());
      }
    });
  };
  number("hpvm_device_temperature_celsius", "Temperature of a device.", &Health::has_temperature_c,
         &Health::temperature_c);
  number("hpvm_device_power_watts", "Power that a device draws.", &Health::has_power_w, &Health::power_w);
  number("hpvm_device_power_limit_watts", "Power that a device may draw.", &Health::has_power_limit_w,
         &Health::power_limit_w);
  number("hpvm_device_busy", "Fraction of the last second in which kernels of any process ran: 0 to 1.",
         &Health::has_busy, &Health::busy);
  each("hpvm_device_memory_used_bytes", "A device's memory that all processes use.",
       [&](const std::string& id, const Health& health) {
         if (health.has_memory_used_bytes()) {
           families.Add({{"device", id}}, health.memory_used_bytes());
         }
       });
  each("hpvm_device_memory_errors", "Memory errors since the driver was loaded.",
       [&](const std::string& id, const Health& health) {
         if (health.has_ecc_corrected()) {
           families.Add({{"device", id}, {"kind", "corrected"}}, health.ecc_corrected());
         }
         if (health.has_ecc_uncorrected()) {
           families.Add({{"device", id}, {"kind", "uncorrected"}}, health.ecc_uncorrected());
         }
       });
  each("hpvm_device_last_xid", "NVIDIA's number (Xid) of the last fault since the server started.",
       [&](const std::string& id, const Health& health) {
         if (health.has_last_xid()) {
           families.Add({{"device", id}}, health.last_xid());
         }
       });
  each("hpvm_device_throttled", "1 while heat or power limits a device's clocks.",
       [&](const std::string& id, const Health& health) {
         families.Add({{"device", id}}, health.throttled());
       });
  families.Gauge("hpvm_device_health_known", "1 while the management library reports a device's health.");
  for (const v1::Device& device : devices) {
    families.Add({{"device", device.id()}}, device.health().read_unix_ns() != 0);
  }
  families.Gauge("hpvm_device_fenced", "1 while a device is fenced: a fault or heat keeps work from it.");
  for (const v1::Device& device : devices) {
    families.Add({{"device", device.id()}}, !device.health().fence().empty());
  }
}

void DescribeDevices(Families& families, const std::vector<v1::Device>& devices) {
  families.Gauge("hpvm_device_state", "1 for the state that a device is in.");
  for (const v1::Device& device : devices) {
    families.Add({{"device", device.id()}, {"kind", NameOf(device.kind())}, {"state", NameOf(device.state())}}, 1.0);
  }
  families.Gauge("hpvm_device_paused", "1 while an administrator has paused a device, so that no work starts on it.");
  for (const v1::Device& device : devices) {
    families.Add({{"device", device.id()}}, device.has_paused() ? 1.0 : 0.0);
  }
  DescribeHealth(families, devices);
  families.Gauge("hpvm_device_memory_bytes", "A device's memory; shared memory counts at one of its devices.");
  for (const v1::Device& device : devices) {
    if (device.memory_shared_with().empty()) {
      families.Add({{"device", device.id()}}, device.memory_bytes());
    }
  }
}

void DescribeCore(Families& families, const CoreSnapshot& core) {
  families.Gauge("hpvm_jobs", "Jobs that have not ended, by state.");
  constexpr std::string_view kStates[] = {"accepted", "queued", "running"};
  families.AddEach({}, "state", kStates, std::array{core.jobs_accepted, core.jobs_queued, core.jobs_running});
  families.Gauge("hpvm_runs", "Runs and items of streams in progress, those that wait included.", core.runs);
  families.Gauge("hpvm_executors", "Executor processes.", core.executors);
  families.Gauge("hpvm_watchers", "Calls in progress that watch: WatchJob, WatchJobs, WatchDevices.", core.watchers);
  families.Gauge("hpvm_store_accepts_writes", "1 while the job store accepts writes.", core.store.accepts_writes);
  families.Gauge("hpvm_disk_reserve_bytes", "Bytes of disk space held in reserve for a full disk.",
                 core.store.reserve_bytes);
  families.Gauge("hpvm_store_pending_writes", "Writes that wait for a commit.", core.store.pending_writes);
  families.Gauge("hpvm_store_damaged_jobs", "Jobs in whose data the scrub has found damage since the start.",
                 core.store.damaged_jobs);
  families.Counter("hpvm_store_scrubbed_bytes_total", "Bytes of the store that the scrub has read.",
                   core.store.scrubbed_bytes);
  families.Counter("hpvm_store_scrubs_total", "Times that the scrub has read all of the store.",
                   core.store.scrub_passes);
  families.Gauge("hpvm_draining", "1 while the daemon is stopping.", core.draining);
  families.Gauge("hpvm_intake_closed", "1 while an administrator keeps the server from starting work.",
                 core.intake.closed);
}

// A daemon that is no host of a cluster has these families without samples.
void DescribeCluster(Families& families, const std::optional<ClusterFacts>& cluster) {
  const auto gauge = [&](const char* name, const char* help, uint64_t ClusterFacts::*member) {
    families.Gauge(name, help);
    if (cluster.has_value()) {
      families.Add({}, *cluster.*member);
    }
  };
  families.Gauge("hpvm_cluster_database_answers", "1 while the cluster's database answers this host.");
  if (cluster.has_value()) {
    families.Add({}, cluster->database_answers);
  }
  families.Gauge("hpvm_cluster_hosts", "Hosts of the cluster, as this host last read them, by state.");
  if (cluster.has_value()) {
    constexpr std::string_view kStates[] = {"live", "lost", "left"};
    families.AddEach({}, "state", kStates, std::array{cluster->hosts_live, cluster->hosts_lost, cluster->hosts_left});
  }
  families.Gauge("hpvm_cluster_has_lease", "1 while this host has a lease, without which it runs no jobs.");
  if (cluster.has_value() && cluster->runs_jobs) {
    families.Add({}, cluster->has_lease);
  }
  gauge("hpvm_cluster_jobs_running", "Jobs that the hosts of the cluster run.", &ClusterFacts::running);
  gauge("hpvm_cluster_jobs_running_here", "Jobs of the cluster that this host runs.", &ClusterFacts::running_here);
}

}  // namespace

void DescribeView(Families& families, const Watch::View& view,
                  const std::function<std::string_view(std::string_view)>& label_of) {
  const CoreSnapshot none;
  const CoreSnapshot& core = view.facts.snapshot != nullptr ? *view.facts.snapshot : none;
  DescribeCore(families, core);
  std::map<std::string_view, TenantSums> tenants;
  for (const TenantSnapshot& tenant : core.tenants) {
    TenantSums& sums = tenants[label_of(tenant.name)];
    for (size_t i = 0; i < sums.queued.size(); ++i) {
      sums.queued[i] += tenant.queued[i];
    }
    sums.running += tenant.running;
    sums.buffer_bytes += tenant.buffer_bytes;
    sums.stored_job_bytes += tenant.stored_job_bytes;
    for (size_t i = 0; i < sums.quota.size(); ++i) {
      sums.quota[i].used += tenant.quota[i].used;
      sums.quota[i].limit += tenant.quota[i].limit;
      sums.quota[i].refused += tenant.quota[i].refused;
    }
  }
  DescribeTenants(families, tenants);
  DescribeDevices(families, core.devices);
  DescribeCluster(families, view.cluster);
  families.Gauge("hpvm_queue_limit", "The limit jobs.queued_max of waiting runs and jobs.", view.queued_max);
  families.Gauge("hpvm_congested", "1 from when the queue of jobs is 80 % full until it is below 50 %.",
                 view.is_congested);
  families.Gauge("hpvm_desired_workers", "Daemons like this one that the work that runs or waits would keep busy.",
                 view.desired_workers);
  families.Gauge("hpvm_loop_stall_seconds_max",
                 "The longest time that the timer's loop took to answer, in the last minute.",
                 static_cast<double>(view.loop_stall_max.count()) * 1e-9);
  families.Gauge("hpvm_live", "1 while /livez reports success.", view.report.live);
  families.Gauge("hpvm_ready", "1 while /readyz reports success.", view.report.ready);
}

}  // namespace hpvm::server
