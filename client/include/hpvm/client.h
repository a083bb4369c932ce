// SPDX-License-Identifier: Apache-2.0
// The C++ client library of hpvmd.
//
//   auto client = hpvm::Client::Connect({.endpoint = "unix:/run/hpvmd/hpvmd.sock"});
//   auto graph = (*client)->Prepare(document, {.bytes = {{"matmul", wasm_bytes}}});
//   auto done = (*client)->Run(graph->handle(), {{"A", a}, {"B", b}});
//   const hpvm::Tensor& c = done->outputs.at("C");
//
// Thread-safe. Every call except RunAsync blocks until its deadline (CallOptions) passes or any thread cancels it.
// Errors carry the server's code and all of its diagnostics, both as text and as a list with positions
// (DiagnosticsOf).
//
// When a server restarts, drains or is overloaded, calls that may be carried out twice are retried with random
// exponential backoff for ClientOptions.patience. These are uploads of modules and documents, all calls about jobs
// (Submit and RetryJob by their idempotency keys), ServerInfo and ListDevices. Prepare, Release, Run and all calls
// about buffers are sent once, because the state that they make ends with the server's process anyway. A run of a
// graph that this client has prepared still finds that graph: see ClientOptions.prepare_again.
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
  // Returns kUnavailable, naming the endpoint, when no server answers in time; kUnauthenticated when a certificate is
  // not trusted; kInvalidArgument when the credentials are malformed or must not be sent to this endpoint.
  static StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  StatusOr<v1::ServerInfoResponse> ServerInfo(const CallOptions& call = {});
  StatusOr<std::vector<v1::Device>> ListDevices(const CallOptions& call = {});
  // Also returns what isolates the caller's kernels from other tenants.
  StatusOr<v1::ListDevicesResponse> ListDevicesAndSandbox(const CallOptions& call = {});

  // Returns the durations that the caller's executor has measured or estimated; with a handle, only for the kernels
  // of that prepared graph.
  StatusOr<v1::ListCostsResponse> ListCosts(const std::string& handle = "", const CallOptions& call = {});

  // Uploads the bytes unless the server has them. Returns their SHA-256 in hexadecimal.
  StatusOr<std::string> PutModule(std::span<const uint8_t> bytes, v1::ModuleKind kind, const std::string& name,
                                  const CallOptions& call = {});
  StatusOr<std::string> PutGraph(std::string_view document, const CallOptions& call = {});
  // Returns the tenant's uploads that the server still holds: modules, then graph documents.
  StatusOr<std::vector<v1::StoredModule>> ListModules(const CallOptions& call = {});
  // Returns kFailedPrecondition while the module is in use.
  Status DeleteModule(const std::string& sha256, const CallOptions& call = {});

  // Uploads the document and its modules, and prepares the graph.
  StatusOr<Prepared> Prepare(std::string_view document, const Modules& modules, const CallOptions& call = {},
                             const PrepareOptions& options = {});
  StatusOr<Prepared> Prepare(const Graph& graph, const CallOptions& call = {}, const PrepareOptions& options = {});
  Status Release(const std::string& handle, const CallOptions& call = {});
  // Returns the handles of all graphs that the tenant has prepared, from this client or another.
  StatusOr<std::vector<v1::PreparedGraph>> ListGraphs(const CallOptions& call = {});

  // Runs the graph and fetches the outputs. Inputs and outputs that are too large for a message travel through
  // buffers, which are deleted afterwards.
  StatusOr<RunOutcome> Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                           const RunOptions& options = {});
  // Called once with the outcome of a run.
  using OnOutcome = std::function<void(const StatusOr<RunOutcome>&)>;
  // Starts a run and returns; no thread waits for it. Large inputs are sent before the return. One thread of the
  // client fetches the large outputs of all such runs; it also calls `on_outcome`, if set, before Pending::Wait
  // returns, so a slow callback delays other runs. `on_outcome` is called however the run ends, also when its Pending
  // was destroyed; it must not destroy the client. RunOptions.log, if set, must live until the run has ended. Runs
  // use the ring as Run's do, except runs with a timeout. Destroying the client cancels them.
  Pending<RunOutcome> RunAsync(const std::string& handle, std::map<std::string, Tensor> inputs,
                               const RunOptions& options = {}, OnOutcome on_outcome = nullptr);
  // The plain call, for callers that keep their data in buffers.
  StatusOr<v1::RunResponse> Run(const v1::RunRequest& request, const CallOptions& call = {});

  // Runs a prepared graph once per item, in as few calls as the sizes allow, one after the other. Calls `on_result`
  // on the caller's thread with the index and the outcome of each item, once per item, in the order in which they
  // end; when it returns false the call ends, and items that have not run never do. Inputs and outputs travel as with
  // Run. The call is sent once. Returns the error of a call that failed, which is also the result of the items left
  // without one; OK when each item had a result of its own. RunOptions.log must be null.
  Status RunMany(const std::string& handle, std::span<const RunItem> items,
                 const std::function<bool(size_t, StatusOr<RunOutcome>)>& on_result, const RunOptions& options = {});
  // The plain call. `on_result` is called as above; the result holds the item's index.
  Status RunMany(const v1::RunManyRequest& request, const std::function<bool(v1::RunManyResponse::Result&)>& on_result,
                 const CallOptions& call = {});

  // Submits a job with its inputs, or an array of jobs; the outputs stay with the jobs. Inputs that are too large for
  // a message travel through buffers, which are deleted after the response: jobs keep what they need. If the server
  // restarts meanwhile, everything is sent again.
  StatusOr<v1::SubmitResponse> Submit(std::string_view document, const Modules& modules,
                                      const std::map<std::string, Tensor>& inputs, const SubmitOptions& options = {});
  // Submits jobs in as few calls as their sizes allow; equal documents are uploaded once. Each job has an idempotency
  // key as with Submit, so a retry never makes a second job. Returns for each job, in order, the response or the
  // error.
  std::vector<StatusOr<v1::SubmitResponse>> SubmitMany(std::span<const SubmitItem> jobs, const CallOptions& call = {});
  // Submits a finished job again with its original request. The idempotency key is as in SubmitOptions.
  StatusOr<v1::SubmitResponse> RetryJob(const std::string& id, const CallOptions& call = {});
  StatusOr<v1::Job> GetJob(const std::string& id, const CallOptions& call = {});
  // Returns one page.
  StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request, const CallOptions& call = {});
  // Fetches page after page, up to `jobs_max` jobs. Sets `more`, if given, to whether there are further jobs.
  StatusOr<std::vector<v1::Job>> ListAllJobs(v1::ListJobsRequest request, uint64_t jobs_max, bool* more = nullptr,
                                             const CallOptions& call = {});
  // Returns the ids of an array's elements, by index. kNotFound when there is no such array.
  StatusOr<std::vector<std::string>> ArrayJobs(const std::string& array_id, const CallOptions& call = {});
  // Cancels a job, or all elements of an array when `id` is an array's; for an array the response has only their
  // number.
  StatusOr<v1::CancelJobResponse> CancelJob(const std::string& id, const CallOptions& call = {});
  // Holds a job that has not started, or releases it; for an array, every element that has not started. The reason is
  // for people, at most 255 bytes. Returns kFailedPrecondition when the job runs or has ended, kPermissionDenied when
  // an administrator holds it and the caller is not an administrator.
  StatusOr<v1::SetJobHoldResponse> SetJobHold(const std::string& id, bool held, const std::string& reason = "",
                                              const CallOptions& call = {});

  // Calls `on_event` for every event until the job ends, `on_event` returns false or the call fails. Returns the last
  // state seen. The call is sent once; WaitJob survives server restarts. With `marks_past`, an event with past_ends
  // set follows the events of the past (servers with the feature "job-past").
  StatusOr<v1::Job> WatchJob(const std::string& id, const std::function<bool(const v1::JobEvent&)>& on_event,
                             const CallOptions& call = {}, bool marks_past = false);
  // Waits until the job has ended, in whatever state, and returns it as GetJob does. Survives outages of the server
  // of up to ClientOptions.patience each: the job is the same afterwards.
  StatusOr<v1::Job> WaitJob(const std::string& id, const WaitOptions& options = {});
  // Waits for all jobs, in the order of `ids`.
  StatusOr<std::vector<v1::Job>> WaitAll(const std::vector<std::string>& ids, const WaitOptions& options = {});
  // Calls `on_change` for the tenant's current jobs, the oldest first, and then for each change of state, until it
  // returns false (OK) or the call fails. Survives outages of the server of up to ClientOptions.patience each: no
  // change is reported twice, and the last state of each job is always reported. Intermediate states are skipped when
  // the server no longer keeps changes that old: after its restart, and when the callback is slower than the changes.
  // For a job that is no longer stored, or that has left the requested states, only the id is reported.
  Status WatchJobs(const WatchJobsOptions& options, const std::function<bool(const v1::JobChange&)>& on_change);
  // Calls `on_change` with the response of ListDevicesAndSandbox and the differences to the previous one: at once,
  // then after every change, until it returns false (OK) or the call fails. Outages are handled as above. An empty
  // list of changes means that only the facts about the sandbox changed.
  Status WatchDevices(
      const std::function<bool(const v1::ListDevicesResponse&, const std::vector<DeviceChange>&)>& on_change,
      const CallOptions& call = {});
  // ExportedJob holds the request of a job with everything it names. The bytes of its parts arrive one by one and are
  // checked against their SHA-256. Both calls resume where a broken stream ended.
  struct ExportedJob {
    v1::SubmitRequest request;
    std::vector<v1::ExportJobResponse::Part> parts;
  };
  StatusOr<ExportedJob> ExportJob(const std::string& id, const CallOptions& call = {});
  StatusOr<std::string> ExportPart(const std::string& id, const v1::ExportJobResponse::Part& part,
                                   const CallOptions& call = {});
  // Returns one output of a job that succeeded. Resumes where a broken stream ended.
  StatusOr<Tensor> FetchOutput(const std::string& job_id, const std::string& name, const CallOptions& call = {});

  StatusOr<v1::Buffer> CreateBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  Status WriteBuffer(const std::string& id, std::span<const uint8_t> bytes, uint64_t offset = 0,
                     const CallOptions& call = {});
  // Fills `into` from `offset`; the buffer must be large enough.
  Status ReadBuffer(const std::string& id, std::span<uint8_t> into, uint64_t offset = 0, const CallOptions& call = {});
  Status DeleteBuffer(const std::string& id, const CallOptions& call = {});
  // Make zero-filled buffers that are deleted with the returned owner. MakeBuffer uses the server's memory, which
  // works everywhere; MakeLocalBuffer uses this process's own memory, and returns kUnavailable when the server is not
  // reached through a Unix socket or does not accept memory there.
  StatusOr<Buffer> MakeBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  StatusOr<Buffer> MakeLocalBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  // Registers existing memory: a memfd with F_SEAL_SHRINK and F_SEAL_GROW. Raw bytes when type and shape are missing.
  // Borrows the descriptor during the call.
  StatusOr<v1::Buffer> RegisterBuffer(int fd, std::optional<ElementType> type = std::nullopt,
                                      std::span<const uint64_t> shape = {}, const CallOptions& call = {});
  // Declares that a registered buffer has new contents: increments its generation.
  StatusOr<v1::Buffer> PublishBuffer(const std::string& id, const CallOptions& call = {});
  // Returns how Run's large tensors travel: "shared memory", or "gRPC" and the reason.
  std::string TensorPath() const;
  // Returns how Run's calls travel at the moment: "ring", or "gRPC" and the reason. The client opens a ring during
  // its second run. Runs that are too large for the ring still go by gRPC, as do runs that start while too many are
  // in progress.
  std::string CallPath() const;

  // Returns all of the tenant's buffers, from this client or another.
  StatusOr<std::vector<v1::Buffer>> ListBuffers(const CallOptions& call = {});

 private:
  // Appends an export's bytes to `bytes` and sets its header; resumes where `bytes` ends.
  Status ReceiveExport(v1::ExportJobRequest request, const CallOptions& call, v1::ExportJobResponse::Header* header,
                       std::string* bytes);
  friend class Admin;  // Makes other calls over the same connection.
  struct Connection;
  class AsyncRuns;
  class LocalRun;
  class RunCall;
  explicit Client(std::unique_ptr<Connection> connection);
  // Uploads everything; fills the fields of PrepareGraph and Submit that name the uploads.
  Status PutAll(std::string_view document, const Modules& modules, const CallOptions& call, std::string* graph,
                google::protobuf::RepeatedPtrField<v1::ModuleBinding>* bindings);
  // Binds each tensor inline, through local memory, or through a new buffer whose id is added to `created`.
  Status BindInputs(const std::map<std::string, Tensor>& inputs, const CallOptions& call,
                    google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings, std::vector<std::string>* created,
                    LocalRun* local = nullptr);
  // `local` is the memory that already holds the output, or null.
  StatusOr<Tensor> TakeOutput(v1::OutputValue& value, const LocalMemory* local, const CallOptions& call);
  StatusOr<v1::RunResponse> SendRun(v1::RunRequest request, const CallOptions& call);
  StatusOr<Prepared> PrepareOnce(std::string_view document, const Modules& modules, const CallOptions& call,
                                 const PrepareOptions& options);
  // Called when the server does not know `used`, its own name for `handle`. Returns true when there is another name
  // now.
  StatusOr<bool> PrepareAgain(const std::string& handle, const std::string& used, const CallOptions& call);
  StatusOr<LocalMemory> MakeLocal(uint64_t bytes, const CallOptions& call);
  // Fetches the outputs of a run, except those that are `bound` to the caller's buffers; adds other buffers that hold
  // outputs to `buffers`. `local` may be null.
  StatusOr<RunOutcome> TakeRun(v1::RunResponse& response, const CallOptions& call,
                               const std::map<std::string, std::string>& bound, std::vector<std::string>* buffers,
                               const LocalRun* local = nullptr);
  class ManyRuns;     // client/run_many.cc
  class ManySubmits;  // client/submit_many.cc
  void DeleteAll(const std::vector<std::string>& buffers, const CallOptions& call);
  Status CheckFeatures(const SubmitOptions& options, const CallOptions& call);
  // Appends the bytes of one stream to `tensor`, from byte `filled` on.
  Status Fetch(const std::string& job_id, const std::string& name, const CallOptions& call,
               std::optional<Tensor>* tensor, uint64_t* filled);

  std::unique_ptr<Connection> connection_;
  std::unique_ptr<AsyncRuns> async_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_CLIENT_H_
