// SPDX-License-Identifier: Apache-2.0
// The C++ client library of hpvmd.
//
//   auto client = hpvm::Client::Connect({.endpoint = "unix:/run/hpvmd/hpvmd.sock"});
//   auto graph = (*client)->Prepare(document, {.bytes = {{"matmul", wasm_bytes}}});
//   auto done = (*client)->Run(graph->handle(), {{"A", a}, {"B", b}});
//   const hpvm::Tensor& c = done->outputs.at("C");
//
// Threads: a Client may be used from any number of threads at once. Every call but RunAsync blocks; the deadline
// in CallOptions ends it, and so does its cancellation, from any thread. Errors carry the server's code and all of its
// diagnostics as text, and as a list with places for DiagnosticsOf.
//
// A server that restarts, drains or is overloaded does not end a call that may be carried out twice: it is sent again,
// with growing random pauses, for ClientOptions.patience. Those are uploads of modules and documents, everything about
// jobs (Submit and RetryJob by their idempotency keys), ServerInfo and ListDevices. Prepare, Release, Run and all that
// concerns buffers is sent once: what it makes ends with the server's process anyway. A run of a graph that this client
// has prepared finds it all the same: see ClientOptions.prepare_again.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_CLIENT_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hpvm/buffer.h"
#include "hpvm/diagnostics.h"
#include "hpvm/graph.h"
#include "hpvm/options.h"
#include "hpvm/pending.h"
#include "hpvm/tensor.h"
#include "hpvm/types.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm {

class Client {
 public:
  // kUnavailable, naming the endpoint, when no server answers in time; kUnauthenticated when a certificate is not
  // believed; kInvalidArgument when the credentials are wrong in themselves, or must not go to this endpoint.
  static StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  StatusOr<v1::ServerInfoResponse> ServerInfo(const CallOptions& call = {});
  StatusOr<std::vector<v1::Device>> ListDevices(const CallOptions& call = {});
  // Also what separates the caller's kernels from everybody else.
  StatusOr<v1::ListDevicesResponse> ListDevicesAndSandbox(const CallOptions& call = {});

  // What the caller's executor knows of how long things take; with a handle of that prepared graph's kernels only.
  StatusOr<v1::ListCostsResponse> ListCosts(const std::string& handle = "", const CallOptions& call = {});

  // Uploads unless the server has the bytes; answers their SHA-256 in hexadecimal.
  StatusOr<std::string> PutModule(std::span<const uint8_t> bytes, v1::ModuleKind kind, const std::string& name,
                                  const CallOptions& call = {});
  StatusOr<std::string> PutGraph(std::string_view document, const CallOptions& call = {});

  // Uploads the document and its modules, and prepares.
  StatusOr<Prepared> Prepare(std::string_view document, const Modules& modules, const CallOptions& call = {},
                             const PrepareOptions& options = {});
  StatusOr<Prepared> Prepare(const Graph& graph, const CallOptions& call = {}, const PrepareOptions& options = {});
  Status Release(const std::string& handle, const CallOptions& call = {});
  // The tenant's handles, whoever prepared them.
  StatusOr<std::vector<v1::PreparedGraph>> ListGraphs(const CallOptions& call = {});

  // Runs and brings the outputs back. Inputs and outputs too large for a message travel through buffers, which are
  // deleted afterwards.
  StatusOr<RunOutcome> Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                           const RunOptions& options = {});
  // Called once, with what became of a run.
  using OnOutcome = std::function<void(const StatusOr<RunOutcome>&)>;
  // Begins a run and returns; no thread waits for it. Large inputs are sent before that, and large outputs are fetched
  // by one thread of the client's for all such runs; it calls `on_outcome`, too, when there is one, and so before the
  // answer can be waited for: a long one keeps others waiting. It is called however the run ends, also for a run that
  // was dropped; it must not end the client. RunOptions.log, when given, lives until the run has ended. Runs go by ring
  // as Run's do, but for those with a timeout. The client's end cancels them.
  Pending<RunOutcome> RunAsync(const std::string& handle, std::map<std::string, Tensor> inputs,
                               const RunOptions& options = {}, OnOutcome on_outcome = nullptr);
  // The call itself, for callers that keep their data in buffers.
  StatusOr<v1::RunResponse> Run(const v1::RunRequest& request, const CallOptions& call = {});

  // Runs a prepared graph once for each item, in as few calls as their sizes allow, one after the other. `on_result`
  // gets the index and what became of it, once for each, in the order in which they end, on the caller's thread; false
  // ends the call, and what has not run never does. Inputs and outputs travel as with Run. Sent once. Answers the
  // failure of a call, which is also the result of the items that it left; OK when each had a result of its own.
  // RunOptions.log must be null.
  Status RunMany(const std::string& handle, std::span<const RunItem> items,
                 const std::function<bool(size_t, StatusOr<RunOutcome>)>& on_result, const RunOptions& options = {});
  // The call itself. `on_result` as above, with the item's index.
  Status RunMany(const v1::RunManyRequest& request, const std::function<bool(v1::RunManyResponse::Result&)>& on_result,
                 const CallOptions& call = {});

  // Submits a job with its inputs, or an array of jobs; the outputs stay with the jobs. Inputs too large for a message
  // travel through buffers, which are deleted when the answer is there: jobs keep what they need. A server that
  // restarts meanwhile gets everything once more.
  StatusOr<v1::SubmitResponse> Submit(std::string_view document, const Modules& modules,
                                      const std::map<std::string, Tensor>& inputs, const SubmitOptions& options = {});
  // Submits jobs in as few calls as their sizes allow; equal documents are uploaded once. Each has a key as with
  // Submit, so that whatever is sent again makes no second job. Answers each job, or why there is none, in their order.
  std::vector<StatusOr<v1::SubmitResponse>> SubmitMany(std::span<const SubmitItem> jobs, const CallOptions& call = {});
  // Submits again what a finished job was submitted with. The key is as in SubmitOptions.
  StatusOr<v1::SubmitResponse> RetryJob(const std::string& id, const CallOptions& call = {});
  StatusOr<v1::Job> GetJob(const std::string& id, const CallOptions& call = {});
  // One page.
  StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request, const CallOptions& call = {});
  // Page by page, up to `jobs_max` jobs. `more`, when given, tells whether there are others.
  StatusOr<std::vector<v1::Job>> ListAllJobs(v1::ListJobsRequest request, uint64_t jobs_max, bool* more = nullptr,
                                             const CallOptions& call = {});
  // The ids of an array's elements, by index. kNotFound when there is no such array.
  StatusOr<std::vector<std::string>> ArrayJobs(const std::string& array_id, const CallOptions& call = {});
  // A job's id, or an array's: then all of its elements, and the answer has only their number.
  StatusOr<v1::CancelJobResponse> CancelJob(const std::string& id, const CallOptions& call = {});

  // Calls `on_event` for every event until the job ends, `on_event` returns false or the call fails. Answers the last
  // state seen. Sent once; WaitJob survives the server.
  StatusOr<v1::Job> WatchJob(const std::string& id, const std::function<bool(const v1::JobEvent&)>& on_event,
                             const CallOptions& call = {});
  // Waits until the job has ended, however it ended, and answers it as GetJob does. A server that goes away is waited
  // for, ClientOptions.patience for each outage: the job is the same afterwards.
  StatusOr<v1::Job> WaitJob(const std::string& id, const WaitOptions& options = {});
  // All of them, in their order.
  StatusOr<std::vector<v1::Job>> WaitAll(const std::vector<std::string>& ids, const WaitOptions& options = {});
  // Calls `on_change` for the tenant's jobs as they are, the oldest first, and then for each change of state, until it
  // returns false (OK) or the call fails. A server that goes away is waited for, ClientOptions.patience for each
  // outage: no change is told twice, and the last state of each job is told for certain. States between two looks are
  // left out when the server kept no changes that far back: after its restart, and for a callback that is slower than
  // the changes. Of a job that is stored no longer, or left the states asked for, only the id is told.
  Status WatchJobs(const WatchJobsOptions& options, const std::function<bool(const v1::JobChange&)>& on_change);
  // Calls `on_change` with what ListDevicesAndSandbox answers and what of it is new: at once, then whenever it has
  // changed, until it returns false (OK) or the call fails. Outages as above. Without changes: the sandbox's facts are
  // others.
  Status WatchDevices(
      const std::function<bool(const v1::ListDevicesResponse&, const std::vector<DeviceChange>&)>& on_change,
      const CallOptions& call = {});
  // One output of a job that succeeded. Goes on where a broken stream ended.
  StatusOr<Tensor> FetchOutput(const std::string& job_id, const std::string& name, const CallOptions& call = {});

  StatusOr<v1::Buffer> CreateBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  Status WriteBuffer(const std::string& id, std::span<const uint8_t> bytes, uint64_t offset = 0,
                     const CallOptions& call = {});
  // Fills `into` from `offset`; the buffer must reach that far.
  Status ReadBuffer(const std::string& id, std::span<uint8_t> into, uint64_t offset = 0, const CallOptions& call = {});
  Status DeleteBuffer(const std::string& id, const CallOptions& call = {});
  // Buffers that are deleted with what owns them, of zeros: in the server's memory, which works everywhere, and in
  // memory of this process's own. kUnavailable when the server is not reached through a Unix socket or takes no memory
  // there.
  StatusOr<Buffer> MakeBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  StatusOr<Buffer> MakeLocalBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  // Registers memory that exists: a memfd with F_SEAL_SHRINK and F_SEAL_GROW. Without a type and a shape, raw bytes.
  // Borrows the descriptor during the call.
  StatusOr<v1::Buffer> RegisterBuffer(int fd, std::optional<ElementType> type = std::nullopt,
                                      std::span<const uint64_t> shape = {}, const CallOptions& call = {});
  // A registered buffer's contents are new: its generation grows.
  StatusOr<v1::Buffer> PublishBuffer(const std::string& id, const CallOptions& call = {});
  // How Run's large tensors travel: "shared memory", or "gRPC" and why.
  std::string TensorPath() const;
  // How Run's calls travel just now: "ring", or "gRPC" and why. A ring is opened beside a client's second run. Runs
  // that are too large for it go by gRPC all the same, and so do those that come while too many are in progress.
  std::string CallPath() const;

  // The tenant's, whoever made them.
  StatusOr<std::vector<v1::Buffer>> ListBuffers(const CallOptions& call = {});

 private:
  friend class Admin;  // Other calls over the same connection.
  struct Connection;
  class AsyncRuns;
  class LocalRun;
  class RunCall;
  explicit Client(std::unique_ptr<Connection> connection);
  // Uploads everything; fills what PrepareGraph and Submit need to name it.
  Status PutAll(std::string_view document, const Modules& modules, const CallOptions& call, std::string* graph,
                google::protobuf::RepeatedPtrField<v1::ModuleBinding>* bindings);
  // Binds each tensor inline, through local memory, or through a new buffer, whose id is added to `created`.
  Status BindInputs(const std::map<std::string, Tensor>& inputs, const CallOptions& call,
                    google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings, std::vector<std::string>* created,
                    LocalRun* local = nullptr);
  // `local`: the memory that the output is in already, or null.
  StatusOr<Tensor> TakeOutput(v1::OutputValue& value, const LocalMemory* local, const CallOptions& call);
  StatusOr<v1::RunResponse> SendRun(v1::RunRequest request, const CallOptions& call);
  StatusOr<Prepared> PrepareOnce(std::string_view document, const Modules& modules, const CallOptions& call,
                                 const PrepareOptions& options);
  // The server does not know `used`, its own name of `handle`. Whether there is another name now.
  StatusOr<bool> PrepareAgain(const std::string& handle, const std::string& used, const CallOptions& call);
  StatusOr<LocalMemory> MakeLocal(uint64_t bytes, const CallOptions& call);
  // Brings a run's outputs, but for those that are `bound` to the caller's buffers; other buffers that hold some are
  // added to `buffers`. `local` may be null.
  StatusOr<RunOutcome> TakeRun(v1::RunResponse& response, const CallOptions& call,
                               const std::map<std::string, std::string>& bound, std::vector<std::string>* buffers,
                               const LocalRun* local = nullptr);
  class ManyRuns;     // client/run_many.cc
  class ManySubmits;  // client/submit_many.cc
  void DeleteAll(const std::vector<std::string>& buffers, const CallOptions& call);
  Status CheckFeatures(const SubmitOptions& options, const CallOptions& call);
  // Adds what one stream brings to `tensor`, from byte `filled` on.
  Status Fetch(const std::string& job_id, const std::string& name, const CallOptions& call,
               std::optional<Tensor>* tensor, uint64_t* filled);

  std::unique_ptr<Connection> connection_;
  std::unique_ptr<AsyncRuns> async_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CLIENT_H_
