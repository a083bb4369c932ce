// SPDX-License-Identifier: Apache-2.0
// What one tenant owns. Guarded by the core's mutex, except for what says otherwise.
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

// A document with its modules, prepared in the tenant's executor, and prepared again from the stored bytes when that
// executor is new. The tenant's table lends it to every handle and job with equal contents, and may drop it when
// it is not lent.
struct Preparation {
  std::string key;  // Of the document's and the modules' hashes, and `check`.
  bool check = false;
  BlobRef document;
  std::vector<NamedBlob> modules;
  uint64_t link_handle = 0;  // Its number in every executor of the tenant.
  uint64_t ready_epoch = 0;  // The executor that has it; 0: none.
  bool validated = false;    // An executor has accepted it: the summary is set.
  v1::GraphSummary summary;
  v1::Diagnostics warnings;
  std::vector<NativeUse> native;  // Once validated: modules that run as their author made them, each once a device.
  uint64_t used = 0;              // A counter, for dropping the least recently used.
  using Waiter = std::function<void(CoreScope&, const Outcome&)>;
  struct Wait {
    Waiter then;
    std::function<bool()> is_wanted;  // Empty: until the end.
  };
  std::vector<Wait> waits;
  std::shared_ptr<Sending> sending;  // While they wait.
  // Outputs that were too large to be inline when inputs and symbols were these: memory goes along with the next such
  // run at once. A guess, since values of inputs can decide sizes, too; where it falls short the executor says so.
  std::vector<TensorShape> last_inputs;
  std::map<std::string, int64_t> last_symbols;
  std::vector<std::pair<std::string, uint64_t>> large_outputs;
  // The document's file in the job store, then the modules', once a job has put them there: held, so that the next one
  // needs neither the disk nor another thread to know that they are there.
  std::vector<PinnedBlob> stored;
};
using PreparationRef = std::shared_ptr<Preparation>;

// A client's name for a prepared graph. The tenant's table lends it to whoever came by it and uses the graph.
struct GraphHandle {
  PreparationRef preparation;
  int64_t created_unix_ns = 0;
  Time used{0};
};

// What preparing took, for whoever waited for it; later callers find everything prepared and waited for none of it.
v1::PrepareTiming TakeTiming(Preparation& preparation);

struct DeviceGrant {
  GrantState state = GrantState::kNone;
  bool contended = false;
};

// The tenant's one executor: spawned on demand, never given to another tenant, spawned again after its death.
struct ExecutorSlot {
  enum class State : uint8_t { kDown, kStarting, kUp } state = State::kDown;
  uint64_t epoch = 0;                                    // Counts executors; 0: none yet.
  std::vector<std::string> profile;                      // The devices of the executor of this epoch.
  std::vector<internal::RefusedDevice> emitted_refused;  // Of the profile, as SpawnRequest has them.
  std::shared_ptr<supervisor::ExecutorProcess>
      port;               // kUp only. Shared with calls in progress, which run without the mutex.
  bool is_ready = false;  // It has opened its devices; then:
  int pid = 0;
  bool ended = false;  // The one of this epoch ended before it was installed; why:
  Status end_status;
  std::vector<Preparation::Waiter> waiting;  // For kUp.
  uint64_t sent_runs = 0;                    // Runs that it has, or whose outputs are being taken in.
  CrashBreaker breaker;                      // Of ends that nothing explains.
  // Of all ends, with a higher limit: modules of one's own crash for themselves, but not without end.
  CrashBreaker breaker_of_all;
  ModuleBreaker modules;
  std::set<NativeUse> in_flight;  // With which this epoch's ended.
  Time ready_at{0};               // When is_ready was set.
  // Why the last one refused to serve, its sandbox being weaker than demanded; held until then, or until the demand or
  // the configuration changes.
  Status refusal;
  Time refused_until{0};
  TenantPolicyRef refused_policy;
  std::shared_ptr<const Config> refused_config;
  std::optional<SandboxFacts> sandbox;  // As the last one reported it.
  uint64_t killed_epoch = 0;            // The daemon itself ended this one: not a crash.
  Time last_used{0};
  // What the fair share decided, also while no executor lives; the page follows it.
  std::vector<DeviceGrant> grants;                    // By device of the fair share.
  std::vector<scheduler::DeviceIndex> entry_devices;  // By entry of the page: of the profile.
  UniqueFd grant_fd;
  Mapping grant_page;
  scheduler::Lease device_bytes;  // What the executor of this epoch holds on devices, as it last said.
  internal::Usage usage;          // By entry of the profile, likewise.
  uint64_t device_bytes_max = 0;  // The tenant's quota, for the grant page; 0: none.
  Time memory_asked{0};           // When other tenants were last asked to give way to this one.
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
        modules("module", stored_bytes_max, account),
        graphs("graph document", stored_bytes_max),
        buffers(buffer_limits, clock),
        pool(idle_bytes_max, account) {}

  const std::string name;
  const scheduler::TenantKey key;
  const scheduler::Account account;
  // Never null. Of a tenant that is no longer known: disabled, and `is_known` is false.
  TenantPolicyRef policy;
  bool is_known = true;
  Duration device_time_paid{0};  // Of what the fair share has measured.
  BlobStore modules, graphs;
  BufferStore buffers;
  SegmentPool pool;                                                     // Locks itself.
  uint64_t downloads = 0;                                               // In progress.
  uint64_t uploads = 0;                                                 // In progress.
  std::unordered_map<std::string, Lendable<Preparation>> preparations;  // By key.
  std::map<std::string, Lendable<GraphHandle>> handles;                 // By id.
  bool expires = false;                                                 // A timer looks for what nobody uses any more.
  std::vector<SegmentRef> yielded;  // Of buffers that gave way: to be freed unlocked.
  uint64_t watchers = 0;            // Calls that watch something.
  uint64_t next_link_handle = 1, uses = 0;
  ExecutorSlot executor;
  uint64_t active = 0;  // Operations that use or wait for the executor.

  // Jobs (execution.h). Those whose insert is in flight are here already, unknown to clients.
  std::map<std::string, std::shared_ptr<Execution>> jobs;      // By id, until they have ended.
  std::map<uint64_t, std::shared_ptr<Execution>> by_sequence;  // The same jobs.
  std::array<uint64_t, 3> queued_jobs{};                       // In the fair share's queue; priority below 0, 0, above.
  std::map<std::string, std::shared_ptr<LiveArray>> arrays;    // By id, while an element lives.
  std::map<std::string, std::shared_ptr<JobEvents>> recent;    // Events of ended jobs, by id.
  JobHistory history;                                          // While somebody watches its jobs, and a while after.
  uint64_t job_watchers = 0;                                   // Those of `watchers` that read the history.
  Time history_until{0};                                       // Without any of them.
  Dependencies dependencies;
  scheduler::Lease stored_rows;  // Disk bytes of its rows in the store; what is on its way there pays for itself.
  // Jobs that have not ended and do not run, and submits in flight.
  uint64_t waiting_jobs() const { return account.Used(scheduler::Resource::kQueuedJobs); }
  // Of its rows in the store, and reserved for what is on its way there.
  uint64_t stored_job_bytes() const { return account.Used(scheduler::Resource::kDiskBytes); }
  // Submits in progress by idempotency key: duplicates wait for the first one's answer.
  std::map<std::string, std::vector<std::function<void(CoreScope&)>>> pending_keys;
};

using TenantRef = std::shared_ptr<Tenant>;  // Shared with operations in progress.

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_TENANT_H_
