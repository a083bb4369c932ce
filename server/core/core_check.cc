// SPDX-License-Identifier: Apache-2.0
// Compares the accounts with the sums over the objects themselves.
#include <algorithm>
#include <unordered_set>

#include "server/core/core.h"
#include "server/core/jobs/submission.h"

namespace hpvm::server {
namespace {

using scheduler::Resource;

struct Counted {
  uint64_t queued = 0, disk_bytes = 0, inline_bytes = 0, blob_bytes = 0;
  bool is_busy = false;
  std::unordered_set<const Blob*> blobs;

  void Add(const Blob& blob) { blob_bytes += blobs.insert(&blob).second ? blob.size_bytes : 0; }
  void Add(const Preparation& preparation) {
    Add(*preparation.document);
    for (const NamedBlob& module : preparation.modules) {
      Add(*module.blob);
    }
  }
};

// Returns true when the job has neither started nor ended, whether or not it is on disk.
bool IsWaiting(const Execution& job) {
  switch (job.phase) {
    case Execution::Phase::kWaiting:
    case Execution::Phase::kQueued:
    case Execution::Phase::kStarting:
      return true;
    case Execution::Phase::kEnding:
      return job.stored->attempt == nullptr;
    default:
      return false;
  }
}

Status Compare(const Tenant& tenant, Resource resource, uint64_t objects, bool at_least) {
  const uint64_t used = tenant.account.Used(resource);
  if (at_least ? used >= objects : used == objects) {
    return absl::OkStatus();
  }
  return Internal("Tenant " + tenant.name + " has " + std::to_string(used) + " of " +
                  std::string(scheduler::FactsOf(resource).name) + " in its account, but its objects add up to " +
                  std::to_string(objects) + ".");
}

}  // namespace

Status Core::CheckAccounts(bool at_rest) {
  HPVMD_RETURN_IF_ERROR(quotas_.ledger().CheckSums());
  CoreScope scope(context_.monitor);
  std::map<const Tenant*, Counted> all;
  for (const Submission* submission : table_.submissions) {
    Counted& counted = all[submission->tenant.get()];
    counted.is_busy = true;
    counted.queued += submission->count;
    counted.disk_bytes += submission->disk_bytes.amount();
  }
  for (const auto& [id, run] : runs_.all()) {
    Counted& counted = all[run->tenant.get()];
    counted.is_busy = true;
    for (const supervisor::InputTensor& input : run->sending->input.inputs) {
      counted.inline_bytes += run->stored == nullptr ? input.bytes.size() : 0;
    }
  }
  for (const auto& [name, tenant] : tenants_.all()) {
    Counted& counted = all[tenant.get()];
    for (const auto& [id, job] : tenant->jobs) {
      counted.queued += IsWaiting(*job) ? 1 : 0;
      counted.is_busy |= job->stored->attempt != nullptr || job->stored->writing;
      counted.disk_bytes += job->stored->attempt != nullptr ? job->stored->attempt->disk_bytes.amount() : 0;
    }
    for (const auto& [key, preparation] : tenant->preparations) {
      counted.Add(*preparation);
    }
    tenant->modules.ForEach([&](const Blob& blob) { counted.Add(blob); });
    tenant->graphs.ForEach([&](const Blob& blob) { counted.Add(blob); });
    const bool is_exact = at_rest && !counted.is_busy && tenant->uploads == 0;
    const ExecutorSlot& slot = tenant->executor;
    HPVMD_RETURN_IF_ERROR(Compare(*tenant, Resource::kQueuedJobs, counted.queued, false));
    HPVMD_RETURN_IF_ERROR(Compare(*tenant, Resource::kRunningJobs, arbiter_.share().running(tenant->key), false));
    HPVMD_RETURN_IF_ERROR(
        Compare(*tenant, Resource::kDiskBytes, tenant->stored_rows.amount() + counted.disk_bytes, false));
    HPVMD_RETURN_IF_ERROR(Compare(*tenant, Resource::kModules, tenant->modules.size(), false));
    HPVMD_RETURN_IF_ERROR(Compare(*tenant, Resource::kDeviceBytes, slot.device_bytes.amount(), false));
    if (slot.state != ExecutorSlot::State::kUp && slot.device_bytes.amount() > 0) {
      return Internal("Tenant " + tenant->name + " is charged for device memory, but has no executor.");
    }
    const uint64_t segments = is_exact ? tenant->buffers.SegmentBytes() : tenant->pool.live_bytes();
    HPVMD_RETURN_IF_ERROR(
        Compare(*tenant, Resource::kHostBytes, segments + counted.blob_bytes + counted.inline_bytes, !is_exact));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
