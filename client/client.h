// SPDX-License-Identifier: Apache-2.0
// The C++ client library of hpvmd.
//
//   auto client = hpvm::Client::Connect({.endpoint = "unix:/run/hpvmd/hpvmd.sock"});
//   auto graph = (*client)->Prepare(document, {.bytes = {{"matmul", wasm_bytes}}});
//   auto done = (*client)->Run(graph->handle(), {{"A", a}, {"B", b}});
//   const hpvm::Tensor& c = done->outputs.at("C");
//
// Threads: a Client may be used from any number of threads at once. Every call blocks; the deadline in CallOptions ends
// it. Errors carry the server's code and all of its diagnostics as text.
#ifndef HPVMD_CLIENT_CLIENT_H_
#define HPVMD_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/tensor.h"

#include "base/clock.h"
#include "base/status.h"
#include "hpvm/v1/service.pb.h"

namespace hpvm {

struct ClientOptions {
  // "unix:/path", "host:port".
  std::string endpoint = "unix:/run/hpvmd/hpvmd.sock";
  // How long Connect waits for a server that answers.
  Duration connect_timeout = std::chrono::seconds(5);
  // Who calls; empty: whom the server takes for the caller. Only servers with tenants.from_metadata believe it.
  std::string tenant = {};
};

struct CallOptions {
  // The gRPC deadline of each call; kNever: none.
  Duration timeout = kNever;
  // The work's own deadline, priority, labels, idempotency key, trace context; see hpvm/v1/common.proto.
  v1::RequestOptions request;
};

struct RunOptions {
  CallOptions call;
  std::map<std::string, int64_t> symbols;
  uint32_t repeat = 1;
  // How many placements to return.
  uint32_t placements_max = 0;
  // Gets what the kernels printed and what checks found, also when Run fails. Optional.
  v1::RunLog* log = nullptr;
};

struct RunOutcome {
  std::map<std::string, Tensor> outputs;
  v1::RunTiming timing;
  std::vector<v1::NodePlacement> placements;
  uint64_t nodes_run = 0;
};

// The modules of a document, by the name that it gives them.
struct Modules {
  std::map<std::string, std::vector<uint8_t>> bytes;  // Uploaded with the document.
  std::map<std::string, std::string> hashes;          // On the server already: SHA-256 in hexadecimal.
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

class Client {
 public:
  // kUnavailable, naming the endpoint, when no server answers in time.
  static StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  StatusOr<v1::ServerInfoResponse> ServerInfo(const CallOptions& call = {});
  StatusOr<std::vector<v1::Device>> ListDevices(const CallOptions& call = {});

  // Uploads unless the server has the bytes; answers their SHA-256 in hexadecimal.
  StatusOr<std::string> PutModule(std::span<const uint8_t> bytes, v1::ModuleKind kind, const std::string& name,
                                  const CallOptions& call = {});
  StatusOr<std::string> PutGraph(std::string_view document, const CallOptions& call = {});

  // Uploads the document and its modules, and prepares.
  StatusOr<Prepared> Prepare(std::string_view document, const Modules& modules, const CallOptions& call = {},
                             const PrepareOptions& options = {});
  Status Release(const std::string& handle, const CallOptions& call = {});

  // Runs and brings the outputs back. Inputs and outputs too large for a message travel through buffers, which are
  // deleted afterwards.
  StatusOr<RunOutcome> Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                           const RunOptions& options = {});
  // The call itself, for callers that keep their data in buffers.
  StatusOr<v1::RunResponse> Run(const v1::RunRequest& request, const CallOptions& call = {});

  // Submits a job with its inputs; the outputs stay with the job.
  StatusOr<v1::SubmitResponse> Submit(std::string_view document, const Modules& modules,
                                      const std::map<std::string, Tensor>& inputs, const RunOptions& options = {},
                                      const std::string& name = "");
  StatusOr<v1::Job> GetJob(const std::string& id, const CallOptions& call = {});
  // Calls `on_event` for every event until the job ends, `on_event` returns false or the call fails. Answers the last
  // state seen.
  StatusOr<v1::Job> WatchJob(const std::string& id, const std::function<bool(const v1::JobEvent&)>& on_event,
                             const CallOptions& call = {});
  StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request, const CallOptions& call = {});
  StatusOr<v1::Job> CancelJob(const std::string& id, const CallOptions& call = {});
  StatusOr<Tensor> FetchOutput(const std::string& job_id, const std::string& name, const CallOptions& call = {});

  StatusOr<v1::Buffer> CreateBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call = {});
  Status WriteBuffer(const std::string& id, std::span<const uint8_t> bytes, uint64_t offset = 0,
                     const CallOptions& call = {});
  // Fills `into` from `offset`; the buffer must reach that far.
  Status ReadBuffer(const std::string& id, std::span<uint8_t> into, uint64_t offset = 0, const CallOptions& call = {});
  Status DeleteBuffer(const std::string& id, const CallOptions& call = {});

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  // Binds each tensor inline or through a new buffer, whose id is added to `created`.
  Status BindInputs(const std::map<std::string, Tensor>& inputs, const CallOptions& call,
                    google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings, std::vector<std::string>* created);
  StatusOr<Tensor> TakeOutput(v1::OutputValue& value, const CallOptions& call);
  void DeleteAll(const std::vector<std::string>& buffers, const CallOptions& call);

  std::unique_ptr<Impl> impl_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_CLIENT_H_
