// SPDX-License-Identifier: Apache-2.0
// What calls take and what they answer.
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
  // "unix:/path", "host:port", "https://host:port".
  std::string endpoint = "unix:/run/hpvmd/hpvmd.sock";
  // How long Connect waits for a server that answers.
  Duration connect_timeout = std::chrono::seconds(5);
  // In whose name the calls are made; empty: the caller's own. For administrators, and for servers without credentials
  // that take the caller's word (tenants.from_metadata).
  std::string tenant = {};
  Credentials credentials = {};
  // Large tensors travel through shared memory where the server is on this host and takes it; false: through gRPC.
  bool local_memory = true;
  // Runs go through a ring of shared memory where the server is on this host and offers one; false: through gRPC.
  bool local_ring = true;
  // How long a call is sent again while no answer comes. 0: every call is sent once.
  Duration patience = std::chrono::seconds(30);
  // Called before a call, or a wait, is sent again; once an outage, from the thread that made the call. Optional.
  std::function<void(const Status&)> on_unanswered = {};
  // A graph that this client has prepared is prepared again, and the run sent once more, when the server was restarted
  // since. For that the client keeps documents and modules until their handles are released; false: it does not.
  bool prepare_again = true;
  // Called after that with the handle, which stays as it is; from the thread that made the call. Optional.
  std::function<void(const std::string& handle)> on_prepared_again = {};
};

struct CallOptions {
  // How long a call may take, with all of its tries; kNever: as long as it wants.
  Duration timeout = kNever;
  // The work's own deadline, priority, labels, idempotency key, trace context; see hpvm/v1/common.proto.
  v1::RequestOptions request = {};
  // Ends the call within some milliseconds when it is triggered. Optional.
  std::optional<Cancellation> cancel = {};
};

// The first bytes of a buffer, as an input of a run.
struct BufferView {
  std::string buffer_id = {};
  // Without a type: the buffer's own type and shape.
  std::optional<ElementType> type = {};
  std::vector<uint64_t> shape = {};
  // Not 0: the run is refused when another generation is current.
  uint64_t generation = 0;
};

struct RunOptions {
  CallOptions call;
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
  // Inputs that are in buffers, besides those that are given as tensors.
  std::map<std::string, BufferView> input_buffers;
  // Outputs that go to buffers, by their ids, instead of coming back; an empty id is a new buffer, which is the
  // caller's (Buffer takes it over). A run that fails leaves the old contents, but where the memory is the client's.
  std::map<std::string, std::string> output_buffers;
  // How many placements to return.
  uint32_t placements_max = 0;
  // Gets what the kernels printed and what checks found, also when Run fails. Optional.
  v1::RunLog* log = nullptr;
};

struct RunOutcome {
  std::map<std::string, Tensor> outputs;
  // Those of RunOptions.output_buffers, with type and shape.
  std::map<std::string, BufferView> buffers;
  v1::RunTiming timing;
  std::vector<v1::NodePlacement> placements;
  uint64_t nodes_run = 0;
  uint32_t repetitions = 0;
  bool converged = false;  // `until` ended it.
  v1::RunTraffic traffic;
  bool prepared_again = false;  // The server was restarted since, and the graph prepared again for this run.
};

struct SubmitOptions {
  // The job's deadline, priority and labels are in call.request, and so is its idempotency key. Without one Submit
  // makes a random one and uses it for every try, so that a lost answer never makes two jobs; Job.idempotency_key names
  // it.
  CallOptions call;
  std::string name;  // For people.
  std::map<std::string, int64_t> symbols;
  Repetition repetition;
  std::vector<v1::JobDependency> after;
  std::optional<v1::JobArray> array;
  // Inputs that each element of the array gets its index for. They have no tensor.
  std::set<std::string> index_inputs;
  // Attempts that may be lost with executors and servers; 0: the server's default. 1: never tried again.
  uint32_t attempts_max = 0;
};

// One of the runs of RunMany.
struct RunItem {
  std::map<std::string, Tensor> inputs;
  std::map<std::string, int64_t> symbols;  // Besides those of RunOptions.
  std::map<std::string, BufferView> input_buffers = {};
};

struct WaitOptions {
  // call.timeout: of the whole wait; then kDeadlineExceeded, and the jobs go on.
  CallOptions call;
  // What happens to the job that is being waited for. After the server restarted, states may come again. Optional.
  std::function<void(const v1::JobEvent&)> on_event;
  // WaitAll: a job has ended. Jobs are waited for in their order. Optional.
  std::function<void(const v1::Job&)> on_ended;
};

struct WatchJobsOptions {
  // call.timeout: of the whole watch; then kDeadlineExceeded.
  CallOptions call;
  // states, labels, array_id and list_max count.
  v1::WatchJobsRequest filter;
  // The jobs that there are have been told, and what follows are changes; false ends the watch. Optional.
  std::function<bool()> on_listed;
};

struct DeviceChange {
  enum class Kind : uint8_t { kAppeared, kChanged, kGone } kind = Kind::kAppeared;
  v1::Device device;  // As it is now; one that is gone, as it was.
};

// The modules of a document, by the name that it gives them.
struct Modules {
  std::map<std::string, std::vector<uint8_t>> bytes;  // Uploaded with the document.
  std::map<std::string, std::string> hashes;          // On the server already: SHA-256 in hexadecimal.
};

// One of the jobs of SubmitMany. No array: that is refused.
struct SubmitItem {
  std::string document;
  Modules modules;
  std::map<std::string, Tensor> inputs;
  SubmitOptions options;  // The timeout of `call` is not read: one holds for all.
};

struct PrepareOptions {
  // Each run looks for races, uninitialised reads and the like, slowly: see PrepareGraphRequest.check.
  bool check = false;
};

struct Prepared {
  std::string handle;
  v1::GraphSummary summary;
  v1::Diagnostics warnings;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_OPTIONS_H_
