// SPDX-License-Identifier: Apache-2.0
// Tenant holds what one tenant owns. Guarded by the core's mutex, except where stated otherwise.
#ifndef HPVMD_SERVER_CORE_STATE_TENANT_H_
#define HPVMD_SERVER_CORE_STATE_TENANT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/grant.h"
#include "base/io/memfd.h"
#include "base/lendable.h"
#include "hpvm/v1/graph.pb.h"
#include "scheduler/share/fair_share.h"
#include "scheduler/share/ledger.h"
#include "server/config/tenant_policy.h"
#include "server/core/state/job_history.h"
#include "server/core/state/outcome.h"
#include "server/executors/crash_breaker.h"
#include "server/executors/executor_spawner.h"
#include "server/executors/module_breaker.h"
#include "server/executors/sandbox_facts.h"
#include "server/jobs/blobs/blob_folder.h"
#include "server/jobs/rows/dependencies.h"
#include "server/memory/blob_store.h"
#include "server/memory/buffer_store.h"
#include "server/memory/segment_pool.h"

namespace hpvm::server {

class CoreScope;
struct Sending;

struct NamedBlob {
  std::string name;
  BlobRef blob;
};

// Preparation is a document with its modules, prepared in the tenant's executor, and prepared again from the stored
// bytes when that executor is new. The tenant's table lends it to every handle and job with equal contents, and may
// drop it when it is not lent.
struct Preparation {
  std::string key;  // Made from the hashes of the document and the modules, and `check`.
  bool check = false;
  BlobRef document;
  std::vector<NamedBlob> modules;
  uint64_t link_handle = 0;  // Number of the graph in every executor of the tenant.
  uint64_t ready_epoch = 0;  // Epoch of the executor that has prepared it; 0: none.
  bool validated = false;    // An executor has accepted it: the summary is set.
  v1::GraphSummary summary;
  v1::Diagnostics warnings;
  // Set once validated: sets of devices, of each of which one must be present (internal::Prepared).
  google::protobuf::RepeatedPtrField<std::string> needs;
  std::vector<NativeUse> native;  // Set once validated: native modules, each once per device.
  uint64_t used = 0;              // Counter value of the last use, for dropping the least recently used.
  using Waiter = std::function<void(CoreScope&, const Outcome&)>;
  struct Wait {
    Waiter then;
    std::function<bool()> is_wanted;  // Empty: the caller waits until the end.
  };
  std::vector<Wait> waits;
  std::shared_ptr<Sending> sending;  // Set while a caller in `waits` waits.
  // Outputs that were too large to be inline when inputs and symbols were these: the next such run is sent with memory
  // for them at once. The size is a guess, since values of inputs can also decide sizes; the executor reports when it
  // is too small.
  std::vector<TensorShape> last_inputs;
  std::map<std::string, int64_t> last_symbols;
  std::vector<std::pair<std::string, uint64_t>> large_outputs;
  // Pins on the document's file in the job store, then on the modules', once a job has stored them, so that the next
  // job needs neither the disk nor another thread to know that they are there.
  std::vector<PinnedBlob> stored;
};
using PreparationRef = std::shared_ptr<Preparation>;

// GraphHandle is a client's name for a prepared graph. The tenant's table lends it to callers that use the graph.
struct GraphHandle {
  PreparationRef preparation;
  int64_t created_unix_ns = 0;
  Time used{0};
};

// Returns the timing of the preparation to the first caller that waited for it; for later callers every module counts
// as cached, with no time spent.
v1::PrepareTiming TakeTiming(Preparation& preparation);

struct DeviceGrant {
  GrantState state = GrantState::kNone;
  bool contended = false;
};

// ExecutorSlot is the place of the tenant's one executor: spawned on demand, never given to another tenant, spawned
// again after its death.
struct ExecutorSlot {
  enum class State : uint8_t { kDown, kStarting, kUp } state = State::kDown;
  uint64_t epoch = 0;                                    // Number of executors so far; 0: none yet.
  std::vector<std::string> profile;                      // The devices of the executor of this epoch.
  std::vector<internal::RefusedDevice> emitted_refused;  // As in SpawnRequest.
  std::shared_ptr<supervisor::ExecutorProcess>
      port;               // Set in kUp only. Shared with calls in progress, which run without the mutex.
  bool is_ready = false;  // The executor has opened its devices; `pid` is then set.
  int pid = 0;
  bool ended = false;  // The executor of this epoch ended before it was installed, with `end_status`.
  Status end_status;
  std::vector<Preparation::Waiter> waiting;  // Callers that wait for kUp.
  uint64_t sent_runs = 0;  // Number of runs that the executor has, or whose outputs are being taken in.
  CrashBreaker breaker;    // Counts unexplained ends.
  // Counts all ends, with a higher limit: crashes of the tenant's own modules are held against those modules, but only
  // up to this limit.
  CrashBreaker breaker_of_all;
  ModuleBreaker modules;
  std::set<NativeUse> in_flight;  // Native modules in flight when the executor of this epoch ended.
  Time ready_at{0};               // Time at which `is_ready` was set.
  // Why the last executor refused to serve because its sandbox was weaker than demanded; kept until `refused_until`,
  // or until the demand or the configuration changes.
  Status refusal;
  Time refused_until{0};
  TenantPolicyRef refused_policy;
  std::shared_ptr<const Config> refused_config;
  std::optional<SandboxFacts> sandbox;  // As the last executor reported it.
  uint64_t killed_epoch = 0;            // Epoch of the executor that the daemon itself ended, which is not a crash.
  Time last_used{0};
  // Decisions of the fair share, made even while no executor lives; the grant page follows them.
  std::vector<DeviceGrant> grants;  // Indexed by the fair share's device.
  // Device of the fair share by entry of the page, which is an entry of the profile.
  std::vector<scheduler::DeviceIndex> entry_devices;
  UniqueFd grant_fd;
  Mapping grant_page;
  scheduler::Lease device_bytes;  // Device memory that the executor of this epoch holds, as it last reported.
  internal::Usage usage;          // Memory by entry of the profile, likewise.
  uint64_t device_bytes_max = 0;  // The tenant's quota, for the grant page; 0: none.
  Time memory_asked{0};           // Time at which other tenants were last asked to give memory to this one.
};

struct Execution;
class JobEvents;
struct LiveArray;

struct Tenant : std::enable_shared_from_this<Tenant> {
  Tenant(std::string tenant_name, scheduler::Account tenant_account, uint64_t stored_bytes_max,
         const BufferLimits& buffer_limits, uint64_t idle_bytes_max, const Clock* clock)
      : name(std::move(tenant_name)),
        key(tenant_account.tenant),
        account(tenant_account),
        modules("module", stored_bytes_max, account, clock),
        graphs("graph document", stored_bytes_max, {}, clock),
        buffers(buffer_limits, clock),
        pool(idle_bytes_max, account) {}

  const std::string name;
  const scheduler::TenantKey key;
  const scheduler::Account account;
  // Never null. For a tenant that is no longer known it is a disabled policy, and `is_known` is false.
  TenantPolicyRef policy;
  bool is_known = true;
  Duration device_time_paid{0};  // Part of the device time measured by the fair share that has been charged.
  BlobStore modules, graphs;
  BufferStore buffers;
  SegmentPool pool;                                                     // Has a mutex of its own.
  uint64_t downloads = 0;                                               // Number in progress.
  uint64_t uploads = 0;                                                 // Number in progress.
  std::unordered_map<std::string, Lendable<Preparation>> preparations;  // Keyed by hash.
  std::map<std::string, Lendable<GraphHandle>> handles;                 // Keyed by id.
  bool expires = false;                                                 // A timer is set that removes unused objects.
  std::vector<SegmentRef> yielded;  // Memory of buffers that gave way, to be freed without the mutex.
  uint64_t watchers = 0;            // Number of calls that watch something.
  uint64_t next_link_handle = 1, uses = 0;
  ExecutorSlot executor;
  uint64_t active = 0;  // Number of operations that use or wait for the executor.

  // Jobs (execution.h), including those whose insert is in flight, which clients do not know yet.
  std::map<std::string, std::shared_ptr<Execution>> jobs;      // Jobs that have not ended, by id.
  std::map<uint64_t, std::shared_ptr<Execution>> by_sequence;  // The same jobs.
  std::array<uint64_t, 3> queued_jobs{};  // Number in the fair share's queue, by priority: below 0, 0, above 0.
  std::map<std::string, std::shared_ptr<LiveArray>> arrays;  // Keyed by id, while an element lives.
  std::map<std::string, std::shared_ptr<JobEvents>> recent;  // Events of ended jobs, by id.
  // Events of jobs that other hosts of a cluster have, by id, while clients of this host watch them.
  struct Followed {
    std::shared_ptr<JobEvents> events;
    bool has_ended = false;
  };
  std::map<std::string, Followed> followed;
  JobHistory history;         // Kept while a caller watches the tenant's jobs, and for a while after.
  uint64_t job_watchers = 0;  // Number of `watchers` that read the history.
  Time history_until{0};      // Time until which the history is kept without watchers.
  Dependencies dependencies;
  // Disk space of the tenant's rows in the store; writes in flight have leases of their own.
  scheduler::Lease stored_rows;
  // Returns the number of jobs that have not ended and do not run, and of submits in flight.
  uint64_t waiting_jobs() const { return account.Used(scheduler::Resource::kQueuedJobs); }
  // Returns the bytes that the tenant's rows occupy in the store, including space reserved for writes in flight.
  uint64_t stored_job_bytes() const { return account.Used(scheduler::Resource::kDiskBytes); }
  // Submits in progress by idempotency key: duplicates wait for the answer to the first one.
  std::map<std::string, std::vector<std::function<void(CoreScope&)>>> pending_keys;
};

using TenantRef = std::shared_ptr<Tenant>;  // Shared with operations in progress.

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_TENANT_H_
