// SPDX-License-Identifier: Apache-2.0
// Method: one table of jobs, searched through. Each call is one transaction, made before it answers.
// Invariants, which a database's implementation keeps by its transactions: a job is RUNNING exactly while its fence is
// its host's claim; counters of tenants equal the numbers of their rows; each change of a state is one event; each pair
// of a dependent and a job that it waits for is judged once.
#include "server/cluster/testing/model_cluster_store.h"

#include <algorithm>

namespace hpvm::server::cluster {
namespace {

std::string Quoted(const std::string& name) { return "\"" + name + "\""; }

// As lists and watches show jobs.
JobView WithoutResult(JobView view) {
  view.result.clear();
  return view;
}

}  // namespace

ModelClusterStore::Job* ModelClusterStore::Find(const std::string& tenant, const std::string& id) {
  const auto found = jobs_.find({tenant, id});
  return found == jobs_.end() ? nullptr : &found->second;
}

StatusOr<ModelClusterStore::Host*> ModelClusterStore::FindHost(const std::string& name, uint64_t incarnation) {
  const auto found = hosts_.find(name);
  if (found == hosts_.end() || found->second.incarnation != incarnation || found->second.has_left) {
    return FailedPrecondition("The host " + Quoted(name) + " has no lease of incarnation " +
                              std::to_string(incarnation) + ": another process has joined, or it has left.");
  }
  if (!IsLive(found->second)) {
    return FailedPrecondition("The lease of the host " + Quoted(name) + " has expired; it has to join again.");
  }
  return &found->second;
}

void ModelClusterStore::AddEvent(TenantRow& tenant, const JobView& job) const {
  tenant.kept.push_back({++tenant.events, job.id, job.state, job.fence});
  if (tenant.kept.size() > options_.events_max) {
    tenant.kept.pop_front();
  }
}

void ModelClusterStore::Change(Job& job, JobState state) {
  const JobView before = job.view;
  TenantRow& tenant = tenants_[job.view.tenant];
  tenant.waiting -= before.state == JobState::kWaiting ? 1 : 0;
  tenant.running -= before.state == JobState::kRunning ? 1 : 0;
  tenant.waiting += state == JobState::kWaiting ? 1 : 0;
  tenant.running += state == JobState::kRunning ? 1 : 0;
  job.view.state = state;
  job.view.ended = IsEnd(state) ? clock_.Now() : Time{0};
  job.view.started = state == JobState::kRunning ? clock_.Now() : job.view.started;
  AddEvent(tenant, job.view);
  if (on_change) {
    on_change(job.request, before, job.view);
  }
}

void ModelClusterStore::End(Job& job, JobState state, std::string result) {
  job.view.result = std::move(result);
  Change(job, state);
  if (waits_.contains({job.view.tenant, job.view.id})) {
    ended_.emplace_back(job.view.tenant, job.view.id);
  }
}

// The claim is over without a result.
void ModelClusterStore::TakeBack(Job& job, bool counts) {
  if (!counts) {
    --job.view.attempts;
  } else {
    job.not_before = clock_.Now() + RetryDelay(options_, ++job.lost);
  }
  if (job.view.cancel_requested) {
    End(job, JobState::kCancelled, kEndedByCancel);
  } else if (clock_.Now() >= job.deadline) {
    End(job, JobState::kFailed, kEndedByDeadline);
  } else if (counts && job.view.attempts >= job.request.attempts_max) {
    End(job, JobState::kDead, kEndedByLoss);
  } else {
    Change(job, JobState::kWaiting);
  }
}

void ModelClusterStore::TakeBackAll(const std::string& host, uint64_t incarnation, bool counts) {
  for (auto& [key, job] : jobs_) {
    if (job.view.state == JobState::kRunning && job.view.host == host && job.incarnation == incarnation) {
      TakeBack(job, counts);
    }
  }
}

Status ModelClusterStore::CheckInsert(const std::vector<NewJob>& jobs) {
  HPVMD_RETURN_IF_ERROR(CheckBatch(jobs));
  std::map<std::string, size_t> added;
  std::set<Key> ids;
  for (const NewJob& job : jobs) {
    ids.emplace(job.tenant, job.id);
  }
  for (const NewJob& job : jobs) {
    TenantRow& tenant = tenants_[job.tenant];
    const std::string& name = job.idempotency_key.empty() ? job.id : job.idempotency_key;
    if (const auto known = tenant.keys.find(name); known != tenant.keys.end()) {
      const NewJob& before = Find(job.tenant, known->second)->request;
      const bool is_same =
          job.request_hash.empty() ? before.request == job.request : before.request_hash == job.request_hash;
      if (!is_same) {
        return FailedPrecondition("The key " + Quoted(name) + " was used for another request.");
      }
      continue;
    }
    if (Find(job.tenant, job.id) != nullptr) {
      return AlreadyExists("The tenant has a job with an id of the batch already, under another key.");
    }
    if (tenant.limits.is_disabled) {
      return FailedPrecondition("The tenant " + Quoted(job.tenant) + " is disabled.");
    }
    for (const Dependency& dependency : job.after) {
      if (Find(job.tenant, dependency.job) == nullptr && !ids.contains({job.tenant, dependency.job})) {
        return InvalidArgument("The tenant has no job " + Quoted(dependency.job) + " to come after.");
      }
    }
    if (tenant.waiting + ++added[job.tenant] > tenant.limits.waiting_max) {
      return ResourceExhausted("The tenant " + Quoted(job.tenant) + " has " + std::to_string(tenant.waiting) +
                               " waiting jobs; the limit is " + std::to_string(tenant.limits.waiting_max) + ".");
    }
  }
  return absl::OkStatus();
}

StatusOr<JobView> ModelClusterStore::Insert(NewJob&& request) {
  TenantRow& tenant = tenants_[request.tenant];
  const std::string& name = request.idempotency_key.empty() ? request.id : request.idempotency_key;
  const auto [known, is_new] = tenant.keys.try_emplace(name, request.id);
  if (!is_new) {
    return WithoutResult(Find(request.tenant, known->second)->view);
  }
  Job& job = jobs_[{request.tenant, request.id}];
  job.request = std::move(request);
  job.view.tenant = job.request.tenant;
  job.view.id = job.request.id;
  job.sequence = next_sequence_++;
  job.submitted = job.view.submitted = clock_.Now();
  job.view.number = job.sequence;
  job.view.is_held = job.request.is_held;
  job.view.hold = job.request.hold;
  job.view.record = job.request.record;
  job.deadline = job.request.deadline > Duration{0} ? job.submitted + job.request.deadline : kNever;
  ++tenant.waiting;
  AddEvent(tenant, job.view);
  if (on_change) {
    on_change(job.request, JobView(), job.view);
  }
  for (const Dependency& dependency : job.request.after) {
    const Job* on = Find(job.view.tenant, dependency.job);
    if (on == nullptr || !IsEnd(on->view.state)) {  // A job of the same batch may be inserted later.
      waits_[{job.view.tenant, dependency.job}].push_back({job.view.id, dependency.condition});
      ++job.pending;
    } else if (!IsMet(dependency.condition, on->view.state)) {
      job.cannot_start = true;
    }
  }
  if (job.cannot_start) {
    End(job, JobState::kFailed, kEndedByDependency);
  }
  return job.view;
}

void ModelClusterStore::Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) {
  if (Status refused = CheckInsert(jobs); !refused.ok()) {
    return done(std::move(refused));
  }
  // The ids of a batch mean the earlier jobs with the same keys, if there are any.
  std::map<Key, std::string> keys, ids;
  for (const NewJob& job : jobs) {
    const std::string& key = job.idempotency_key.empty() ? job.id : job.idempotency_key;
    const std::string& first = keys.try_emplace({job.tenant, key}, job.id).first->second;
    const auto known = tenants_[job.tenant].keys.find(key);
    ids[{job.tenant, job.id}] = known != tenants_[job.tenant].keys.end() ? known->second : first;
  }
  for (NewJob& job : jobs) {
    for (Dependency& dependency : job.after) {
      const auto same = ids.find({job.tenant, dependency.job});
      dependency.job = same != ids.end() ? same->second : dependency.job;
    }
  }
  std::vector<JobView> views;
  for (NewJob& job : jobs) {
    views.push_back(*Insert(std::move(job)));
  }
  done(std::move(views));
}

void ModelClusterStore::Join(Worker worker, Done<Lease> done) {
  if (Status refused = CheckWorker(worker); !refused.ok()) {
    return done(std::move(refused));
  }
  const auto found = hosts_.find(worker.name);
  HostIntake intake = HostIntake::kOpen;
  if (found != hosts_.end()) {
    Host& before = found->second;
    const bool is_same = before.worker.process == worker.process;
    if (!is_same && before.worker.process != worker.replaces && IsLive(before)) {
      return done(AlreadyExists("Another process of the host " + Quoted(worker.name) +
                                " has a lease: two daemons have one name."));
    }
    if (is_same && worker.joins <= before.worker.joins) {
      return done(FailedPrecondition("Join " + std::to_string(worker.joins) + " of the host " + Quoted(worker.name) +
                                     " comes late."));
    }
    intake = before.intake;
    TakeBackAll(worker.name, before.incarnation, /*counts=*/true);
  }
  Host host{.worker = std::move(worker),
            .incarnation = next_incarnation_++,
            .until = clock_.Now() + options_.lease,
            .intake = intake};
  const Lease lease{.incarnation = host.incarnation, .length = options_.lease};
  hosts_[host.worker.name] = std::move(host);
  done(lease);
}

void ModelClusterStore::Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) {
  const StatusOr<Host*> host = FindHost(worker, incarnation);
  if (!host.ok()) {
    return done(host.status());
  }
  TakeBackAll(worker, incarnation, /*counts=*/false);
  (*host)->has_left = true;
  done(Nothing());
}

void ModelClusterStore::Renew(RenewRequest request, Done<Renewal> done) {
  const StatusOr<Host*> host = FindHost(request.worker, request.incarnation);
  if (!host.ok()) {
    return done(host.status());
  }
  if (Status refused = CheckWords(request.has.value_or(std::set<std::string>())); !refused.ok()) {
    return done(std::move(refused));
  }
  (*host)->until = clock_.Now() + options_.lease;
  (*host)->settled = std::max((*host)->settled, request.claims_settled);
  if (request.has.has_value() && request.has_number > (*host)->has_number) {
    (*host)->worker.has = *request.has;
    (*host)->has_number = request.has_number;
  }
  Renewal renewal{.length = options_.lease,
                  .lost = {},
                  .cancelled = {},
                  .expired = {},
                  .is_draining = (*host)->intake == HostIntake::kDraining};
  const std::set<HeldJob> held(request.held.begin(), request.held.end());
  for (const HeldJob& claim : held) {
    const Job* job = Find(claim.tenant, claim.id);
    if (job == nullptr || job->view.state != JobState::kRunning || job->view.fence != claim.fence) {
      renewal.lost.push_back(claim);
    } else if (job->view.cancel_requested) {
      renewal.cancelled.push_back(claim);
    } else if (clock_.Now() >= job->deadline) {
      renewal.expired.push_back(claim);
    }
  }
  for (auto& [key, job] : jobs_) {
    const bool is_claim = job.view.state == JobState::kRunning && job.view.host == request.worker &&
                          job.incarnation == request.incarnation;
    if (!is_claim || held.contains({job.view.tenant, job.view.id, job.view.fence})) {
      continue;
    }
    // The answer to its claim was lost.
    if (job.claim_number <= request.claims_settled) {
      TakeBack(job, /*counts=*/false);
    }
  }
  done(std::move(renewal));
}

uint64_t ModelClusterStore::MemoryUsed(const Host& host) const {
  uint64_t bytes = 0;
  for (const auto& [key, job] : jobs_) {
    if (job.view.state == JobState::kRunning && job.view.host == host.worker.name) {
      bytes += job.request.needs.memory_bytes;
    }
  }
  return bytes;
}

bool ModelClusterStore::IsGroupFull(const Job& job) const {
  const Needs& needs = job.request.needs;
  if (needs.running_max == 0) {
    return false;
  }
  const auto runs = std::ranges::count_if(jobs_, [&](const auto& item) {
    const Needs& other = item.second.request.needs;
    return item.second.view.state == JobState::kRunning && item.second.view.tenant == job.view.tenant &&
           other.group == needs.group && other.running_max == needs.running_max;
  });
  return static_cast<uint64_t>(runs) >= needs.running_max;
}

bool ModelClusterStore::MayClaim(const Job& job, const Host& host) const {
  const Needs& needs = job.request.needs;
  const Time now = clock_.Now();
  if (job.view.state != JobState::kWaiting || job.not_before > now) {
    return false;
  }
  if (job.pending > 0 || job.view.is_held) {
    return false;
  }
  if (!needs.host.empty() && needs.host != host.worker.name) {
    return false;
  }
  if (job.deadline <= now || IsGroupFull(job)) {
    return false;
  }
  if (!std::ranges::all_of(needs.any_of, [&](const std::set<std::string>& words) {
        return std::ranges::any_of(words, [&](const std::string& word) { return host.worker.has.contains(word); });
      })) {
    return false;
  }
  if (MemoryUsed(host) + needs.memory_bytes > host.worker.memory_bytes) {
    return false;
  }
  const bool is_preferred = needs.prefers.empty() || needs.prefers.contains(host.worker.name);
  return is_preferred || now >= job.submitted + options_.prefer_for ||
         std::ranges::none_of(needs.prefers, [&](const std::string& name) {
           const auto found = hosts_.find(name);
           return found != hosts_.end() && IsLive(found->second) && found->second.intake == HostIntake::kOpen;
         });
}

ModelClusterStore::Job* ModelClusterStore::NextFor(const Host& host) {
  Job* best = nullptr;
  const auto rank = [&](const Job& job) {
    return std::tuple(tenants_[job.view.tenant].clock, job.view.tenant, -int64_t{job.request.priority}, job.sequence);
  };
  for (auto& [key, job] : jobs_) {
    const TenantRow& tenant = tenants_[job.view.tenant];
    if (tenant.limits.is_disabled || tenant.running >= tenant.limits.running_max || !MayClaim(job, host)) {
      continue;
    }
    if (best == nullptr || rank(job) < rank(*best)) {
      best = &job;
    }
  }
  return best;
}

void ModelClusterStore::Claim(ClaimRequest request, Done<Claims> done) {
  const StatusOr<Host*> host = FindHost(request.worker, request.incarnation);
  if (!host.ok()) {
    return done(host.status());
  }
  if (request.number <= (*host)->last_claim || request.number <= (*host)->settled) {
    return done(FailedPrecondition("Claim " + std::to_string(request.number) + " of the host " +
                                   Quoted(request.worker) + " comes late."));
  }
  (*host)->last_claim = request.number;
  Claims claims;
  while (claims.jobs.size() < request.jobs_max && (*host)->intake == HostIntake::kOpen) {
    Job* const job = NextFor(**host);
    if (job == nullptr) {
      break;
    }
    TenantRow& tenant = tenants_[job->view.tenant];
    // A tenant that was idle gets no credit for the past.
    std::optional<double> least;
    for (const auto& [name, other] : tenants_) {
      least = other.running > 0 ? std::min(other.clock, least.value_or(other.clock)) : least;
    }
    tenant.clock = std::max(tenant.clock, least.value_or(tenant.clock)) +
                   std::chrono::duration<double>(options_.start_cost).count() / std::max(1u, tenant.limits.weight);
    ++job->view.attempts;
    ++job->view.fence;
    job->view.host = request.worker;
    job->incarnation = request.incarnation;
    job->claim_number = request.number;
    Change(*job, JobState::kRunning);
    claims.jobs.push_back({.tenant = job->view.tenant,
                           .id = job->view.id,
                           .request = job->request.request,
                           .record = job->view.record,
                           .number = job->view.number,
                           .fence = job->view.fence,
                           .attempts = job->view.attempts,
                           .is_last_attempt = job->view.attempts >= job->request.attempts_max});
  }
  done(std::move(claims));
}

void ModelClusterStore::Finish(FinishRequest request, Done<JobView> done) {
  if (Status refused = CheckFinish(request); !refused.ok()) {
    return done(std::move(refused));
  }
  Job* const job = Find(request.job.tenant, request.job.id);
  if (job == nullptr) {
    return done(NotFound("There is no job " + Quoted(request.job.id) + "."));
  }
  // A database that lost its last transactions gives a fence again, perhaps to another host.
  const bool is_mine = job->view.host == request.worker && job->view.fence == request.job.fence;
  if (is_mine && job->ended_fence == request.job.fence && request.job.fence > 0) {
    return done(job->view);  // A repeated call.
  }
  if (job->view.state != JobState::kRunning || !is_mine) {
    return done(FailedPrecondition("The claim " + std::to_string(request.job.fence) + " of the job " +
                                   Quoted(request.job.id) + " is over; the last one is " +
                                   std::to_string(job->view.fence) + "."));
  }
  TenantRow& tenant = tenants_[job->view.tenant];
  tenant.clock += std::chrono::duration<double>(request.device_time).count() / std::max(1u, tenant.limits.weight);
  job->ended_fence = request.job.fence;
  job->view.record = request.record.empty() ? job->view.record : request.record;
  if (request.state == JobState::kWaiting) {
    TakeBack(*job, request.is_lost);
  } else {
    End(*job, request.state, std::move(request.result));
  }
  done(job->view);
}

void ModelClusterStore::Cancel(std::string tenant, std::string id, Done<JobView> done) {
  Job* const job = Find(tenant, id);
  if (job == nullptr) {
    return done(NotFound("The tenant has no job " + Quoted(id) + "."));
  }
  if (!IsEnd(job->view.state)) {
    job->view.cancel_requested = true;
    if (job->view.state == JobState::kWaiting) {
      End(*job, JobState::kCancelled, kEndedByCancel);
    }
  }
  done(job->view);
}

void ModelClusterStore::Get(std::string tenant, std::string id, Done<JobView> done) {
  const Job* const job = Find(tenant, id);
  if (job == nullptr) {
    return done(NotFound("The tenant has no job " + Quoted(id) + "."));
  }
  done(job->view);
}

void ModelClusterStore::GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) {
  const Job* const job = Find(tenant, id);
  if (job == nullptr) {
    return done(NotFound("The tenant has no job " + Quoted(id) + "."));
  }
  done(StoredJobRequest{.request = job->request.request, .request_hash = job->request.request_hash});
}

void ModelClusterStore::FindKey(std::string tenant, std::string key, Done<KeyView> done) {
  const auto& keys = tenants_[tenant].keys;
  const auto known = keys.find(key);
  const Job* const job = known == keys.end() ? nullptr : Find(tenant, known->second);
  if (job == nullptr) {
    return done(NotFound("The tenant has no job with that key."));
  }
  done(KeyView{.job = WithoutResult(job->view), .request_hash = job->request.request_hash});
}

void ModelClusterStore::SetHold(std::string tenant, std::string id, bool is_held, std::string hold,
                                Done<JobView> done) {
  if (Status refused = CheckHold(hold); !refused.ok()) {
    return done(std::move(refused));
  }
  Job* const job = Find(tenant, id);
  if (job == nullptr) {
    return done(NotFound("The tenant has no job " + Quoted(id) + "."));
  }
  if (job->view.state != JobState::kWaiting) {
    return done(FailedPrecondition("The job " + Quoted(id) + " is " + std::string(Name(job->view.state)) +
                                   "; only waiting jobs can be held or let go."));
  }
  job->view.is_held = is_held;
  job->view.hold = is_held ? hold : "";
  done(job->view);
}

void ModelClusterStore::List(ListRequest request, Done<JobPage> done) {
  std::vector<JobView> found;
  for (const auto& [key, job] : jobs_) {
    if (key.first == request.tenant && (request.states.empty() || request.states.contains(job.view.state)) &&
        (request.before == 0 || job.view.number < request.before)) {
      found.push_back(WithoutResult(job.view));
    }
  }
  std::ranges::sort(found, std::greater<>(), &JobView::number);
  const size_t most = std::clamp(request.most, 1u, 1000u);
  size_t count = 0;
  for (uint64_t bytes = 0; count < std::min(found.size(), most); ++count) {
    bytes += found[count].record.size();
    if (count > 0 && bytes > kPageBytesMax) {
      break;
    }
  }
  JobPage page;
  page.next = count > 0 && (count < found.size() || count == most) ? found[count - 1].number : 0;
  found.resize(count);
  page.jobs = std::move(found);
  done(std::move(page));
}

void ModelClusterStore::ListHosts(Done<std::vector<HostView>> done) {
  std::vector<HostView> views;
  for (const auto& [name, host] : hosts_) {
    HostView view;
    view.name = name;
    view.incarnation = host.incarnation;
    view.is_live = IsLive(host);
    view.has_left = host.has_left;
    view.intake = host.intake;
    view.has = host.worker.has;
    view.memory_bytes = host.worker.memory_bytes;
    view.memory_used_bytes = MemoryUsed(host);
    view.running = static_cast<uint64_t>(std::ranges::count_if(jobs_, [&](const auto& entry) {
      return entry.second.view.state == JobState::kRunning && entry.second.view.host == name;
    }));
    views.push_back(std::move(view));
  }
  done(std::move(views));
}

void ModelClusterStore::Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) {
  const TenantRow& row = tenants_[tenant];
  if (cursor == kNewestEvent) {
    return done(Events{.events = {}, .jobs = {}, .cursor = row.events});
  }
  Events events{.events = {}, .jobs = {}, .cursor = cursor};
  if (cursor > row.events) {
    return done(InvalidArgument("The cursor (" + std::to_string(cursor) + ") is beyond the last event (" +
                                std::to_string(row.events) + ")."));
  }
  if (row.events - cursor > row.kept.size()) {
    return done(
        FailedPrecondition("Events after " + std::to_string(cursor) + " are no longer kept; list the jobs again."));
  }
  std::set<std::string> ids;
  uint64_t bytes = 0;
  for (const Event& event : row.kept) {
    if (event.number <= cursor || events.events.size() == most) {
      continue;
    }
    const Job* const job = Find(tenant, event.id);
    bytes += job == nullptr || ids.contains(event.id) ? 0 : job->view.record.size();
    if (!ids.empty() && bytes > kPageBytesMax) {
      break;
    }
    events.events.push_back(event);
    events.cursor = event.number;
    ids.insert(event.id);
  }
  events.has_more = events.cursor < row.events;
  for (const std::string& id : ids) {
    if (const Job* const job = Find(tenant, id); job != nullptr) {
      events.jobs.push_back(WithoutResult(job->view));
    }
  }
  std::ranges::sort(events.jobs, {}, &JobView::number);
  done(std::move(events));
}

void ModelClusterStore::Purge(std::string tenant, uint32_t most, Done<SweepResult> done) {
  SweepResult result;
  uint32_t cancelled = 0, forgotten = 0;
  for (auto entry = jobs_.begin(); entry != jobs_.end();) {
    Job& job = entry->second;
    const bool is_told = std::ranges::find(ended_, entry->first) == ended_.end();
    if (job.view.tenant == tenant && IsEnd(job.view.state) && is_told && forgotten < most) {
      tenants_[tenant].keys.erase(KeyOf(job.request));
      entry = jobs_.erase(entry);
      ++forgotten;
      continue;
    }
    if (job.view.tenant == tenant && !IsEnd(job.view.state)) {
      job.view.cancel_requested = true;
      if (job.view.state == JobState::kWaiting && cancelled < most) {
        ++cancelled;
        End(job, JobState::kCancelled, kEndedByCancel);
      }
    }
    ++entry;
  }
  result.changes = cancelled + forgotten;
  result.has_more = std::ranges::any_of(jobs_, [&](const auto& job) { return job.first.first == tenant; });
  if (!result.has_more) {
    tenants_[tenant].kept.clear();
  }
  done(result);
}

void ModelClusterStore::SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) {
  tenants_[tenant].limits = limits;
  done(Nothing());
}

void ModelClusterStore::SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) {
  const auto found = hosts_.find(worker);
  if (found == hosts_.end()) {
    return done(NotFound("There is no host " + Quoted(worker) + "."));
  }
  found->second.intake = intake;
  done(Nothing());
}

void ModelClusterStore::Sweep(uint32_t most, Done<SweepResult> done) {
  SweepResult result;
  const Time now = clock_.Now();
  for (auto& [key, job] : jobs_) {
    if (result.changes >= most) {
      result.has_more = true;
      return done(result);
    }
    if (job.view.state == JobState::kRunning) {
      const auto host = hosts_.find(job.view.host);
      if (host == hosts_.end() || host->second.incarnation != job.incarnation || !IsLive(host->second)) {
        TakeBack(job, /*counts=*/true);
        ++result.changes;
      }
    } else if (job.view.state == JobState::kWaiting && job.deadline <= now) {
      End(job, job.view.fence > 0 ? JobState::kFailed : JobState::kExpired, kEndedByDeadline);
      ++result.changes;
    }
  }
  while (!ended_.empty() && result.changes < most) {
    const Key key = ended_.front();
    std::vector<Wait>& waits = waits_[key];
    if (waits.empty()) {
      waits_.erase(key);
      ended_.pop_front();
      continue;
    }
    const Wait wait = waits.back();
    waits.pop_back();
    ++result.changes;
    Job* const waiter = Find(key.first, wait.waiter);
    if (waiter == nullptr) {
      continue;  // It is forgotten.
    }
    --waiter->pending;
    if (waiter->view.state == JobState::kWaiting && !IsMet(wait.condition, jobs_.at(key).view.state)) {
      End(*waiter, JobState::kFailed, kEndedByDependency);
    }
  }
  for (auto entry = jobs_.begin(); entry != jobs_.end() && result.changes < most;) {
    const Job& job = entry->second;
    const bool is_old = IsEnd(job.view.state) && job.view.ended + options_.keep_ended <= now;
    if (!is_old || std::ranges::find(ended_, entry->first) != ended_.end()) {
      ++entry;
      continue;
    }
    const std::string& key = KeyOf(job.request);
    tenants_[job.view.tenant].keys.erase(key);
    entry = jobs_.erase(entry);
    ++result.changes;
  }
  result.has_more = !ended_.empty();
  done(result);
}

size_t ModelClusterStore::running(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.running;
}

size_t ModelClusterStore::waiting(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.waiting;
}

}  // namespace hpvm::server::cluster
