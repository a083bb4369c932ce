// SPDX-License-Identifier: Apache-2.0
// Options and results of calls.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_OPTIONS_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "hpvm/cancellation.h"
#include "hpvm/credentials.h"
#include "hpvm/element_type.h"
#include "hpvm/repetition.h"
#include "hpvm/tensor.h"
#include "hpvm/types.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm {

struct ClientOptions {
  // "unix:/path", "host:port" or "https://host:port".
  std::string endpoint = "unix:/run/hpvmd/hpvmd.sock";
  // Time that Connect waits for a server to answer.
  Duration connect_timeout = std::chrono::seconds(5);
  // Tenant in whose name calls are made; the caller's own when empty. For administrators, and for servers without
  // credentials that accept the name given by the caller (tenants.from_metadata).
  std::string tenant = {};
  Credentials credentials = {};
  // Sends large tensors through shared memory if the server is on this host and accepts it; otherwise through gRPC.
  bool local_memory = true;
  // Sends runs through a ring of shared memory if the server is on this host and offers one; otherwise through gRPC.
  bool local_ring = true;
  // Time during which an unanswered call is retried. With 0 every call is sent once.
  Duration patience = std::chrono::seconds(30);
  // Called before a call or a wait is retried, once per outage, on the thread that made the call. Optional.
  std::function<void(const Status&)> on_unanswered = {};
  // Prepares a graph of this client again, and retries the run, when the server has restarted since. For that the
  // client keeps documents and modules until their handles are released; with false it does not.
  bool prepare_again = true;
  // Called after such a preparation with the handle, which does not change, on the thread that made the call.
  // Optional.
  std::function<void(const std::string& handle)> on_prepared_again = {};
};

struct CallOptions {
  // Time limit of the call with all of its retries; kNever for none.
  Duration timeout = kNever;
  // Deadline, priority, labels, idempotency key and trace context of the work itself; see hpvm/v1/common.proto.
  v1::RequestOptions request = {};
  // Ends the call within some milliseconds after it is triggered. Optional.
  std::optional<Cancellation> cancel = {};
};

// The first bytes of a buffer, as an input of a run.
struct BufferView {
  std::string buffer_id = {};
  // When missing: the buffer's own type and shape.
  std::optional<ElementType> type = {};
  std::vector<uint64_t> shape = {};
  // When not 0, the run is refused if another generation is current.
  uint64_t generation = 0;
};

struct RunOptions {
  CallOptions call;
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
  // Inputs that are in buffers, in addition to those given as tensors.
  std::map<std::string, BufferView> input_buffers;
  // Outputs that are written to the named buffers instead of being returned. An empty id makes a new buffer that the
  // caller owns (Buffer takes it over). A run that fails leaves the old contents, except in memory of the client's
  // own.
  std::map<std::string, std::string> output_buffers;
  // Maximum number of placements to return.
  uint32_t placements_max = 0;
  // Receives what the kernels printed and what checks found, also when Run fails. Optional.
  v1::RunLog* log = nullptr;
};

struct RunOutcome {
  std::map<std::string, Tensor> outputs;
  // The buffers of RunOptions.output_buffers, with type and shape.
  std::map<std::string, BufferView> buffers;
  v1::RunTiming timing;
  std::vector<v1::NodePlacement> placements;
  uint64_t nodes_run = 0;
  uint32_t repetitions = 0;
  bool converged = false;  // True when `until` ended the run.
  v1::RunTraffic traffic;
  bool prepared_again = false;  // True when the server had restarted and the graph was prepared again for this run.
};

struct SubmitOptions {
  // call.request holds the job's deadline, priority, labels and idempotency key. When the key is empty, Submit makes
  // a random one and uses it for every retry, so that a lost response never makes two jobs; Job.idempotency_key
  // returns it.
  CallOptions call;
  std::string name;  // For people.
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
  std::vector<v1::JobDependency> after;
  std::optional<v1::JobArray> array;
  // Inputs that receive the index of each element of the array. They have no tensor.
  std::set<std::string> index_inputs;
  // Number of attempts that may be lost with executors and servers; the server's default when 0. With 1 the job is
  // never retried.
  uint32_t attempts_max = 0;
  // The job waits until Client::SetJobHold releases it.
  bool held = false;
  // Limits in addition to the deadline; the tenant's quotas bound them (JobLimits).
  v1::JobLimits limits;
  // Hosts of a cluster on which the job may run. It waits while no host satisfies them; a server that is not part of a
  // cluster refuses what it lacks itself (kFailedPrecondition).
  v1::HostNeeds host_needs;
};

// RunItem is one of the runs of RunMany.
struct RunItem {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, int64_t> symbols;  // In addition to those of RunOptions.
  std::map<std::string, BufferView> input_buffers = {};
};

struct WaitOptions {
  // call.timeout limits the whole wait; then kDeadlineExceeded, and the jobs continue.
  CallOptions call;
  // Receives the events of the job being waited for. After a restart of the server, states may be reported again.
  // Optional.
  std::function<void(const v1::JobEvent&)> on_event;
  // WaitAll only: called when a job has ended. Jobs are waited for in the given order. Optional.
  std::function<void(const v1::Job&)> on_ended;
};

struct WatchJobsOptions {
  // call.timeout limits the whole watch; then kDeadlineExceeded.
  CallOptions call;
  // The fields states, labels, array_id and list_max are used.
  v1::WatchJobsRequest filter;
  // Called when all current jobs have been reported and changes follow; returning false ends the watch. Optional.
  std::function<bool()> on_listed;
};

struct DeviceChange {
  enum class Kind : uint8_t { kAppeared, kChanged, kGone } kind = Kind::kAppeared;
  v1::Device device;  // The current state; for kGone, the last one.
};

// Modules holds the modules of a document, by their names in it.
struct Modules {
  std::map<std::string, std::vector<uint8_t>> bytes;  // Uploaded with the document.
  std::map<std::string, std::string> hashes;          // Already on the server: SHA-256 in hexadecimal.
};

// SubmitItem is one of the jobs of SubmitMany. An array is refused.
struct SubmitItem {
  std::string document;
  Modules modules;
  std::map<std::string, Tensor> inputs;
  SubmitOptions options;  // The timeout of `call` is ignored: one timeout holds for all.
};

struct PrepareOptions {
  // Makes each run look for races, uninitialised reads and similar errors, slowly: see PrepareGraphRequest.check.
  bool check = false;
};

struct Prepared {
  std::string handle;
  v1::GraphSummary summary;
  v1::Diagnostics warnings;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_OPTIONS_H_
