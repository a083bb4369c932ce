// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "server/job_store.h"

namespace hpvm {
namespace {

bool Matches(const JobRecord& record, const JobFilter& filter) {
  if (!filter.states.empty() &&
      std::find(filter.states.begin(), filter.states.end(), record.job.state()) == filter.states.end()) {
    return false;
  }
  return std::all_of(filter.labels.begin(), filter.labels.end(), [&](const auto& label) {
    const auto found = record.job.labels().find(label.first);
    return found != record.job.labels().end() && found->second == label.second;
  });
}

class MemoryJobStore final : public JobStore {
 public:
  Status Insert(JobRecord record) override {
    Tenant& tenant = tenants_[record.tenant];
    if (!record.idempotency_key.empty() && tenant.by_key.contains(record.idempotency_key)) {
      return AlreadyExists("The idempotency key \"" + record.idempotency_key + "\" is in use.");
    }
    record.sequence = next_sequence_++;
    tenant.by_id[record.job.id()] = record.sequence;
    if (!record.idempotency_key.empty()) {
      tenant.by_key[record.idempotency_key] = record.sequence;
    }
    const uint64_t sequence = record.sequence;
    tenant.jobs.emplace(sequence, std::move(record));
    return absl::OkStatus();
  }

  void WhenDurable(std::function<void(const Status&)> done) override { done(absl::OkStatus()); }

  const JobRecord* Find(std::string_view tenant, std::string_view id) const override {
    return FindIn(tenant, id, &Tenant::by_id);
  }

  const JobRecord* FindByKey(std::string_view tenant, std::string_view key) const override {
    return FindIn(tenant, key, &Tenant::by_key);
  }

  Status Change(std::string_view tenant, std::string_view id, v1::JobState from,
                const std::function<void(JobRecord&)>& change) override {
    auto* record = const_cast<JobRecord*>(Find(tenant, id));
    if (record == nullptr) {
      return NotFound("There is no job \"" + std::string(id.substr(0, 80)) + "\".");
    }
    if (record->job.state() != from) {
      return FailedPrecondition("The job is " + v1::JobState_Name(record->job.state()) + ", not " +
                                v1::JobState_Name(from) + ".");
    }
    change(*record);
    if (IsTerminal(record->job.state())) {
      record->request.reset();
    }
    return absl::OkStatus();
  }

  std::vector<const JobRecord*> List(std::string_view tenant, const JobFilter& filter) const override {
    std::vector<const JobRecord*> found;
    const auto in = tenants_.find(std::string(tenant));
    if (in == tenants_.end()) {
      return found;
    }
    const std::map<uint64_t, JobRecord>& jobs = in->second.jobs;
    for (auto it = std::make_reverse_iterator(jobs.lower_bound(filter.before_sequence)); it != jobs.rend(); ++it) {
      if (found.size() == filter.count_max) {
        break;
      }
      if (Matches(it->second, filter)) {
        found.push_back(&it->second);
      }
    }
    return found;
  }

  std::vector<std::pair<std::string, std::string>> Expire(const JobLimits& limits, int64_t now_unix_ns) override {
    std::vector<std::pair<std::string, std::string>> expired;
    for (auto& [name, tenant] : tenants_) {
      uint64_t finished = std::count_if(tenant.jobs.begin(), tenant.jobs.end(),
                                        [](const auto& entry) { return IsTerminal(entry.second.job.state()); });
      for (auto it = tenant.jobs.begin(); it != tenant.jobs.end();) {
        const v1::Job& job = it->second.job;
        const bool old =
            static_cast<uint64_t>(std::max<int64_t>(0, now_unix_ns - job.ended_unix_ns())) > limits.kept_ns;
        if (!IsTerminal(job.state()) || (finished <= limits.kept_max && !old)) {
          ++it;
          continue;
        }
        --finished;
        expired.emplace_back(name, job.id());
        tenant.by_id.erase(job.id());
        tenant.by_key.erase(it->second.idempotency_key);
        it = tenant.jobs.erase(it);
      }
    }
    return expired;
  }

 private:
  struct Tenant {
    std::map<uint64_t, JobRecord> jobs;   // By sequence, so oldest first.
    std::unordered_map<std::string, uint64_t> by_id, by_key;
  };

  const JobRecord* FindIn(std::string_view tenant, std::string_view name,
                          std::unordered_map<std::string, uint64_t> Tenant::*index) const {
    const auto in = tenants_.find(std::string(tenant));
    if (in == tenants_.end()) {
      return nullptr;
    }
    const auto found = (in->second.*index).find(std::string(name));
    return found == (in->second.*index).end() ? nullptr : &in->second.jobs.at(found->second);
  }

  std::unordered_map<std::string, Tenant> tenants_;
  uint64_t next_sequence_ = 1;
};

}  // namespace

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_CANCELLED ||
         state == v1::JOB_STATE_EXPIRED;
}

std::unique_ptr<JobStore> CreateMemoryJobStore() { return std::make_unique<MemoryJobStore>(); }

}  // namespace hpvm
