// SPDX-License-Identifier: Apache-2.0
// ClusterStore is the job store that several hosts share, in terms of jobs: hosts claim jobs, and every later write for
// a job carries the claim's fence.
//
// A job waits, runs on one host, and ends in exactly one state. A claim gives it to a host with a fence, a number that
// grows with each claim of the job. The host holds all of its claims under one lease, which it renews. When the lease
// has expired by the store's clock, Sweep takes the host's jobs back: a job is claimed again, or is DEAD after its last
// attempt. A write with an old fence changes nothing, so that a host that was paused or cut off cannot end a job that
// another host runs (Gray and Cheriton, "Leases", SOSP 1989).
//
// All times are the store's. Hosts measure durations only, by their own monotonic clocks (agent.h).
//
// Calls are asynchronous. A callback is called once, on any thread, perhaps before the call returns. After kUnavailable
// or kDeadlineExceeded it is unknown whether the call had an effect; every call may then be repeated: a repeated call
// that had its effect changes nothing and returns OK.
#ifndef HPVMD_SERVER_CLUSTER_CLUSTER_STORE_H_
#define HPVMD_SERVER_CLUSTER_CLUSTER_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hpvm::server::cluster {

enum class JobState : uint8_t { kWaiting, kRunning, kSucceeded, kFailed, kCancelled, kExpired, kDead };
constexpr bool IsEnd(JobState state) { return state > JobState::kRunning; }
constexpr JobState kLastJobState = JobState::kDead;
std::string_view Name(JobState state);  // "WAITING", "RUNNING", ...
// Returns the state with that number; kDead for other numbers.
JobState StateFrom(int64_t number);

// Properties of a host, and the demands of a job, are words: "kind:gpu", "device:opencl:0", "feature:f64", "label:lab".
struct Needs {
  std::vector<std::set<std::string>> any_of;  // The host has at least one word of each set.
  uint64_t memory_bytes = 0;                  // The host has that much memory free of other claims.
  std::string host;                           // The only host that may run it, as it has the job's buffers; empty: any.
  std::set<std::string> prefers;              // For a while after the submit, only these hosts claim it, if one lives.
  // The most jobs of the tenant with equal needs that run at a time, on all hosts; 0: no limit. `group` tells apart
  // jobs whose needs are equal otherwise, such as those of two arrays.
  uint64_t running_max = 0;
  std::string group;
};

struct Dependency {
  enum class Condition : uint8_t { kSucceeded, kFailed, kEnded };
  std::string job;
  Condition condition = Condition::kSucceeded;
};
// Returns true when a job may run that comes after one that has ended in this state.
bool IsMet(Dependency::Condition condition, JobState end);

struct NewJob {
  std::string tenant, id;       // `id` is unique in the cluster; the caller draws it at random.
  std::string idempotency_key;  // Empty: none; the id then serves as key.
  std::string request;          // For the host that runs it; the store does not look into it.
  // Two requests with equal hashes are the same one, for the key; empty: the requests themselves are compared.
  std::string request_hash;
  std::string record;         // For lists; the store does not look into it. At most 256 KiB.
  int32_t priority = 0;       // Higher is claimed first, within a tenant.
  uint32_t attempts_max = 1;  // At least 1.
  Duration deadline{0};       // From the submit to the end; 0: none.
  std::vector<Dependency> after;
  Needs needs;
  bool is_held = false;  // It is not claimed until SetHold lets it go.
  std::string hold;      // Says by whom it is held; the store does not look into it. At most 2 KiB.
};

struct JobView {
  std::string tenant, id;
  JobState state = JobState::kWaiting;
  uint32_t attempts = 0;  // Number of claims that count.
  uint64_t fence = 0;     // The last claim's.
  std::string host;       // The last claim's.
  std::string record;     // The job's, or that of its last end or lost attempt.
  std::string result;  // Set at the end by Finish, or by the store: see kEndedBy. Empty in lists, watches, and by key.
  bool cancel_requested = false;
  bool is_held = false;
  std::string hold;     // The last SetHold's.
  uint64_t number = 0;  // Grows with each submit of the tenant.
  // The store's time; 0: it has not started, or ended. The last claim is what counts as start.
  Time submitted{0}, started{0}, ended{0};
};

// Results of jobs that the store ended itself.
inline constexpr char kEndedByDependency[] = "dependency";  // A job that it comes after ended otherwise than required.
inline constexpr char kEndedByDeadline[] = "deadline";
inline constexpr char kEndedByCancel[] = "cancelled";
inline constexpr char kEndedByLoss[] = "lost";  // Every attempt was lost with its host.

// A page of a list or a watch ends before the job whose record would make its records larger than this, unless it is
// the first one.
inline constexpr uint64_t kPageBytesMax = 8 << 20;

// A page of a tenant's jobs, the newest first.
struct ListRequest {
  std::string tenant;
  std::set<JobState> states;  // Empty: all.
  uint64_t before = 0;        // Only jobs with smaller numbers; 0: all.
  uint32_t most = 100;        // At least 1.
};
struct JobPage {
  std::vector<JobView> jobs;
  uint64_t next = 0;  // ListRequest::before of the next page; 0: there is none.
};

// HostIntake says whether a host takes jobs. It stays as it was set when the host joins again.
enum class HostIntake : uint8_t { kOpen, kCordoned, kDraining };

struct HostView {
  std::string name;
  uint64_t incarnation = 0;
  bool is_live = false;   // It has a lease.
  bool has_left = false;  // It ended its lease in order.
  HostIntake intake = HostIntake::kOpen;
  std::set<std::string> has;
  uint64_t memory_bytes = 0, memory_used_bytes = 0;
  uint64_t running = 0;  // Claims that it holds.
};

// A host's process.
struct Worker {
  std::string name;           // The host's, unique in the cluster.
  std::set<std::string> has;  // Words, as in Needs.
  uint64_t memory_bytes = 0;
  std::string process;   // Drawn at random by each process.
  uint64_t joins = 0;    // Grows with each Join of the process, so that a late copy of a former call has no effect.
  std::string replaces;  // The host's former process, which has ended; empty: none known.
};

struct Lease {
  uint64_t incarnation = 0;  // Grows with each Join of the cluster.
  Duration length{0};        // Counted by the store from the time at which it handled the call.
};

struct Claim {
  std::string tenant, id, request, record;
  uint64_t number = 0;  // JobView::number.
  uint64_t fence = 0;
  uint32_t attempts = 0;  // Number of claims that count, with this one.
  bool is_last_attempt = false;
};

struct Claims {
  std::vector<Claim> jobs;
};

struct ClaimRequest {
  std::string worker;
  uint64_t incarnation = 0;
  uint64_t number = 0;  // Grows with each Claim of the incarnation.
  uint32_t jobs_max = 1;
};

struct HeldJob {
  std::string tenant, id;
  uint64_t fence = 0;
  friend auto operator<=>(const HeldJob&, const HeldJob&) = default;
};

struct RenewRequest {
  std::string worker;
  uint64_t incarnation = 0;
  // The jobs that the host runs, or whose ends it has not recorded yet.
  std::vector<HeldJob> held;
  // Claims up to this number have been answered, or their answers will be ignored: jobs of such claims that are not
  // held go back to the queue, and the attempt does not count.
  uint64_t claims_settled = 0;
  std::optional<std::set<std::string>> has = std::nullopt;  // Replaces Worker::has; unset: it stays.
  // Grows with each change of the words; those of a call that comes late, after one with a larger number, are ignored.
  uint64_t has_number = 0;
};

struct Renewal {
  Duration length{0};
  std::vector<HeldJob> lost;                // Held by the caller, but not by the store: their runs have to be stopped.
  std::vector<HeldJob> cancelled, expired;  // To be stopped: the user wants it; the deadline has passed.
  bool is_draining = false;                 // To be stopped, all of them, and given back: the host drains.
};

struct FinishRequest {
  std::string worker;
  HeldJob job;
  JobState state = JobState::kSucceeded;  // kSucceeded, kFailed, kCancelled or kExpired; kWaiting: see is_lost.
  std::string result;
  std::string record;  // Replaces the job's; empty: it stays.
  // With kWaiting: the attempt was lost and counts; the job waits again, or is DEAD. Otherwise it is put back
  // uncounted.
  bool is_lost = false;
  Duration device_time{0};  // Charged to the tenant's clock.
};

struct TenantLimits {
  uint32_t weight = 1;  // At least 1.
  uint64_t waiting_max = UINT64_MAX, running_max = UINT64_MAX;
  bool is_disabled = false;  // Nothing is claimed or submitted.
};

// A change of a job's state. Numbers of a tenant's events grow; none is left out.
struct Event {
  uint64_t number = 0;
  std::string id;
  JobState state = JobState::kWaiting;
  uint64_t fence = 0;
};
struct Events {
  std::vector<Event> events;
  std::vector<JobView> jobs;  // Each job of the events once, as it is now, unless it is forgotten; by their numbers.
  uint64_t cursor = 0;        // For the next Watch.
  bool has_more = false;      // There are later events.
};

// For Watch.
inline constexpr uint64_t kNewestEvent = UINT64_MAX;

// A job's request.
struct StoredJobRequest {
  std::string request, request_hash;
};

// The job of an idempotency key.
struct KeyView {
  JobView job;
  std::string request_hash;
};

struct SweepResult {
  uint64_t changes = 0;
  bool has_more = false;
};

struct Nothing {};

struct ClusterStoreOptions {
  Duration lease = std::chrono::seconds(10);
  Duration prefer_for = std::chrono::seconds(5);  // Needs::prefers.
  // Delay before the attempt after the second lost one; doubles with each more, up to a minute. After the first lost
  // attempt there is no delay: mostly its host was lost, and not by the job's fault.
  Duration retry_after = std::chrono::seconds(1);
  uint64_t events_max = 10'000;                      // Kept per tenant.
  Duration keep_ended = std::chrono::hours(24 * 7);  // Jobs are forgotten, with their keys, so long after their end.
  // Device time, divided by the tenant's weight, that a start costs at once.
  Duration start_cost = std::chrono::milliseconds(10);
  // The most by which the store's time advances without a sweep. With the time that it takes to end a run it has to be
  // less than AgentOptions::stop_margin: so much earlier a lease may end when the database's clock leaps.
  Duration clock_leap_max = std::chrono::seconds(2);
};

// Checks what a batch says of itself: names that are no text, attempts, keys with two requests, ids with two keys, and
// jobs that come after themselves. Errors are those of ClusterStore::Submit.
Status CheckBatch(const std::vector<NewJob>& jobs);
// kInvalidArgument: the name is empty, too long, no UTF-8, or has control characters. `what` begins a sentence.
Status CheckName(const std::string& what, const std::string& name);
Status CheckNames(const std::string& tenant, const std::string& id);
// kInvalidArgument: a name or a word is no text; the end of a claim is no state in which a claim ends.
Status CheckWorker(const Worker& worker);
Status CheckWords(const std::set<std::string>& words);
// kInvalidArgument: the text of a hold is too long.
Status CheckHold(const std::string& hold);
Status CheckFinish(const FinishRequest& request);
// Returns the key, or the id of a job without one.
const std::string& KeyOf(const NewJob& job);

// Returns the delay before the attempt that follows `lost` lost ones.
Duration RetryDelay(const ClusterStoreOptions& options, uint32_t lost);

// The calls that the agent of a host makes.
class AgentStore {
 public:
  virtual ~AgentStore() = default;
  template <typename T>
  using Done = std::function<void(StatusOr<T>)>;

  // Registers a host's process, which runs nothing yet: what the store still counts as run by it, or by the process
  // that it replaces, is taken back at once as lost. kAlreadyExists while another process of that name has a lease: two
  // daemons with one name. kFailedPrecondition when `joins` is not larger than that of an earlier call.
  virtual void Join(Worker worker, Done<Lease> done) = 0;
  // Ends the lease in order: claims that are left go back to the queue, uncounted.
  virtual void Leave(std::string worker, uint64_t incarnation, Done<Nothing> done) = 0;
  // Keeps the lease. kFailedPrecondition: it has expired, or another process has joined under the name.
  virtual void Renew(RenewRequest request, Done<Renewal> done) = 0;

  // Claims jobs that this host may run: of the tenant with the least use for its weight first, within a tenant the
  // highest priority first, then the oldest. kFailedPrecondition as for Renew; also when the number is not larger than
  // that of an earlier Claim, or settled.
  virtual void Claim(ClaimRequest request, Done<Claims> done) = 0;
  // Ends a claim. kFailedPrecondition: the fence is old, or of another host's claim, so the result is dropped. OK again
  // when it was this call's claim that ended the job.
  virtual void Finish(FinishRequest request, Done<JobView> done) = 0;

  // Takes at most about `most` steps of what is due: expired leases, deadlines, ends that dependent jobs have to learn,
  // and jobs to forget. Any daemon calls it, at any time, as often as it likes; two at once are harmless.
  virtual void Sweep(uint32_t most, Done<SweepResult> done) = 0;
};

// The whole store, for daemons that take calls of tenants and operators.
class ClusterStore : public AgentStore {
 public:
  // Adds the jobs (at most 1,000), all or none, and returns each as it is: a job whose idempotency key the tenant has
  // used already is the one that was made then. kResourceExhausted: TenantLimits::waiting_max. kInvalidArgument: a job
  // comes after one that the tenant does not have, or after itself, perhaps by way of others. kFailedPrecondition: the
  // key was used for another request, or the tenant is disabled. kAlreadyExists: the tenant has a job with the id under
  // another key.
  virtual void Submit(std::vector<NewJob> jobs, Done<std::vector<JobView>> done) = 0;
  // A waiting job ends as CANCELLED at once; that of a running one is left to its host, or to the end of the host's
  // lease. Jobs that have ended stay as they are. kNotFound for absent and foreign ids alike.
  virtual void Cancel(std::string tenant, std::string id, Done<JobView> done) = 0;
  // Keeps a waiting job from being claimed, or lets it go. kFailedPrecondition: the job runs, or has ended.
  // `hold` replaces the job's, also when it is held already; empty when it is let go.
  virtual void SetHold(std::string tenant, std::string id, bool is_held, std::string hold, Done<JobView> done) = 0;
  virtual void Get(std::string tenant, std::string id, Done<JobView> done) = 0;
  // kNotFound as for Get.
  virtual void GetRequest(std::string tenant, std::string id, Done<StoredJobRequest> done) = 0;
  // kNotFound: the tenant has not used the key, or its job is forgotten.
  virtual void FindKey(std::string tenant, std::string key, Done<KeyView> done) = 0;
  virtual void List(ListRequest request, Done<JobPage> done) = 0;
  // Returns up to `most` events of the tenant after `cursor` (0: the first; kNewestEvent: none, with the cursor after
  // the newest). kFailedPrecondition when some are no longer kept.
  virtual void Watch(std::string tenant, uint64_t cursor, uint32_t most, Done<Events> done) = 0;

  // For a tenant that is being deleted: cancels its live jobs and forgets those that have ended, at most about `most`
  // of each; also the events, once no job is left. has_more: there are jobs still; with no changes, they run or their
  // ends have yet to be told.
  virtual void Purge(std::string tenant, uint32_t most, Done<SweepResult> done) = 0;
  virtual void SetLimits(std::string tenant, TenantLimits limits, Done<Nothing> done) = 0;
  // kNotFound: no such host has joined.
  virtual void SetIntake(std::string worker, HostIntake intake, Done<Nothing> done) = 0;
  // Returns every host that has joined, by name.
  virtual void ListHosts(Done<std::vector<HostView>> done) = 0;
};

}  // namespace hpvm::server::cluster

#endif  // HPVMD_SERVER_CLUSTER_CLUSTER_STORE_H_
