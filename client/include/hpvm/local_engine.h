// SPDX-License-Identifier: Apache-2.0
// The engine without a daemon: graphs are prepared and run on this machine, by a process of this program's own.
//
//   auto engine = hpvm::LocalEngine::Start();
//   auto graph = (*engine)->Prepare(document, {.bytes = {{"matmul", wasm_bytes}}});
//   auto done = (*engine)->Run(graph->handle, {{"A", a}, {"B", b}});
//
// The calls are those of hpvm::Client, so that a template takes either. Kernels are separated from this program by the
// process, which locks itself down as a daemon's executors do; it ends with the engine. What a server adds is missing:
// tenants, quotas, jobs, buffers that stay.
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
  // The program hpvm-executor. Empty: $HPVM_EXECUTOR, else beside the running program, else where the package has it.
  std::string program = {};
  // Compiled kernels are kept there, for this user only. Empty: $XDG_CACHE_HOME/hpvm, else ~/.cache/hpvm. Where that
  // cannot be, nothing is kept.
  std::string cache_folder = {};
  // "cpu", "opencl:0", "vulkan:1" ...: 1 to 8; empty: the CPU alone.
  std::vector<std::string> devices = {};
  // Where the process writes what it says on standard error: a descriptor, which is borrowed; -1: only its end is kept,
  // for the message that tells how it ended.
  int stderr_fd = -1;
  // How long Start waits for the process.
  Duration start_timeout = std::chrono::seconds(15);
};

// Any thread. Errors are those that a server gives, with DiagnosticsOf. A process that ends, as for a fault of a
// driver's, fails what it was asked and everything afterwards with kUnavailable: then another engine has to be started.
class LocalEngine {
 public:
  static StatusOr<std::unique_ptr<LocalEngine>> Start(const LocalEngineOptions& options = {});
  // Ends the process; what is in progress fails.
  ~LocalEngine();
  LocalEngine(const LocalEngine&) = delete;
  LocalEngine& operator=(const LocalEngine&) = delete;

  std::vector<v1::Device> ListDevices() const;

  // As Client's. Modules that are named by their hash are kNotFound: there is no server to look them up. Of the request
  // options the deadline counts.
  StatusOr<Prepared> Prepare(std::string_view document, const Modules& modules, const CallOptions& call = {},
                             const PrepareOptions& options = {});
  StatusOr<Prepared> Prepare(const Graph& graph, const CallOptions& call = {}, const PrepareOptions& options = {});
  Status Release(const std::string& handle, const CallOptions& call = {});
  // As Client's, without buffers: those of RunOptions are kInvalidArgument.
  StatusOr<RunOutcome> Run(const std::string& handle, const std::map<std::string, Tensor>& inputs,
                           const RunOptions& options = {});

 private:
  struct Process;
  explicit LocalEngine(std::unique_ptr<Process> process);
  std::unique_ptr<Process> process_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_LOCAL_ENGINE_H_
