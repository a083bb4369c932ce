// SPDX-License-Identifier: Apache-2.0
// LocalEngine is the engine without a daemon: a child process of this program prepares and runs graphs on this
// machine.
//
//   auto engine = hpvm::LocalEngine::Start();
//   auto graph = (*engine)->Prepare(document, {.bytes = {{"matmul", wasm_bytes}}});
//   auto done = (*engine)->Run(graph->handle, {{"A", a}, {"B", b}});
//
// The calls are those of hpvm::Client, so that a template can take either. The process isolates kernels from this
// program and restricts itself as a daemon's executors do; it ends with the engine. The services of a server are
// missing: tenants, quotas, jobs, persistent buffers.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_LOCAL_ENGINE_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_LOCAL_ENGINE_H_

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hpvm/graph.h"
#include "hpvm/options.h"
#include "hpvm/tensor.h"
#include "hpvm/types.h"

namespace hpvm {

struct LocalEngineOptions {
  // Path of the program hpvm-executor. When empty: $HPVM_EXECUTOR, else the file beside the running program, else the
  // installed one.
  std::string program = {};
  // Folder that caches compiled kernels, for this user only. When empty: $XDG_CACHE_HOME/hpvm, else ~/.cache/hpvm.
  // Without a usable folder nothing is cached.
  std::string cache_folder = {};
  // "cpu", "opencl:0", "vulkan:1" and so on, 1 to 8 of them; the CPU alone when empty.
  std::vector<std::string> devices = {};
  // Descriptor that receives the process's standard error (borrowed). With -1, only the end of the output is kept,
  // for the message about how the process ended.
  int stderr_fd = -1;
  // Time that Start waits for the process.
  Duration start_timeout = std::chrono::seconds(15);
};

// Thread-safe. Errors are those that a server returns, with DiagnosticsOf. When the process ends, for example because
// of a driver fault, all its calls in progress and all later ones fail with kUnavailable; the program then has to
// start another engine.
class LocalEngine {
 public:
  static StatusOr<std::unique_ptr<LocalEngine>> Start(const LocalEngineOptions& options = {});
  // Ends the process; calls in progress fail.
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  std::vector<v1::Device> ListDevices() const;

  // As in Client. Modules that are named by their hash return kNotFound, because there is no server to look them up.
  // Only the deadline of the request options is used.
  StatusOr<Prepared> Prepare(std::string_view document, const Modules& modules, const CallOptions& call = {},
                             const PrepareOptions& options = {});
  StatusOr<Prepared> Prepare(const Graph& graph, const CallOptions& call = {}, const PrepareOptions& options = {});
  Status Release(const std::string& handle, const CallOptions& call = {});
  // As in Client, without buffers: the buffers of RunOptions return kInvalidArgument.
  StatusOr<RunOutcome> Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                           const RunOptions& options = {});

 private:
  struct Process;
  explicit LocalEngine(std::unique_ptr<Process> process);
  std::unique_ptr<Process> process_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_LOCAL_ENGINE_H_
