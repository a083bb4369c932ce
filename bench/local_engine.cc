// SPDX-License-Identifier: Apache-2.0
#include "bench/local_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "backends/registry.h"

namespace hpvm::bench {

StatusOr<std::vector<uint8_t>> ReadKernels(const std::string& file_name) {
  const std::string path = ProgramFolder() + "/" + file_name;
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bytes.empty() ? StatusOr<std::vector<uint8_t>>(NotFound("File \"" + path + "\" is missing or empty.")) : bytes;
}

StatusOr<std::unique_ptr<LocalEngine>> LocalEngine::Start(const Options& options) {
  std::unique_ptr<LocalEngine> local(new LocalEngine());
  HPVMD_ASSIGN_OR_RETURN(local->kernels_, ReadKernels(options.kernels));
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return FromErrno(errno, "Creating a socket pair");
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  fcntl(theirs.get(), F_SETFD, 0);  // The child inherits its end.
  HPVMD_ASSIGN_OR_RETURN(
      Process process, Process::Start({ProgramFolder() + "/hpvm-compiler", "--socket", std::to_string(theirs.get())}));
  local->compiler_process_ = std::make_unique<Process>(std::move(process));
  ArtifactKey key{};
  // A shared cache folder needs a key common to all processes.
  for (size_t i = 0; i < key.size() && options.cache_folder.empty(); i += sizeof(uint64_t)) {
    const uint64_t word = SystemRng().Next();
    __builtin_memcpy(key.data() + i, &word, sizeof(word));
  }
  local->compiler_ = ConnectCompiler(std::move(ours), key, options.cache_folder);
  std::vector<Device*> borrowed;
  for (const std::string& name : options.devices) {
    const DeviceOptions of_device{
        .cpu_threads = options.cpu_threads, .tuning = options.tuning, .gpu_forced = options.gpu_forced};
    HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, backends::CreateDevice(name, local->hub_, of_device));
    local->devices_.push_back(options.wrap ? options.wrap(std::move(device)) : std::move(device));
    borrowed.push_back(local->devices_.back().get());
  }
  local->engine_ =
      std::make_unique<engine::Engine>(engine::EngineOptions{.devices = std::move(borrowed),
                                                             .hub = &local->hub_,
                                                             .compiler = local->compiler_.get(),
                                                             .clock = &RealClock(),
                                                             .graph_limits = options.graph_limits,
                                                             .device_bytes_max = options.device_bytes_max});
  return local;
}

StatusOr<std::shared_ptr<engine::PreparedGraph>> LocalEngine::Prepare(std::string_view document) {
  HPVMD_ASSIGN_OR_RETURN(engine::PrepareOutcome outcome, engine_->Prepare(document, *this, kNever));
  HPVMD_RETURN_IF_ERROR(ToStatus(outcome.diagnostics));
  return outcome.graph;
}

}  // namespace hpvm::bench
