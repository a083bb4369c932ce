// SPDX-License-Identifier: Apache-2.0
#include "bench/service/service_daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/io/fd.h"

namespace hpvm::bench {
namespace {

constexpr char kCopy[] = R"({"hpvm": 1, "name": "copy",
  "inputs": {"x": {"type": "u8", "shape": ["n"]}}, "outputs": {"y": {"type": "u8", "shape": ["n"]}},
  "modules": {"bench": {"kind": "wasm", "source": {"file": "bench_kernels.wasm"}}},
  "nodes": {"copy": {"ports": [{"name": "x", "access": "in", "type": "u8", "shape": ["n"]},
                               {"name": "y", "access": "out", "type": "u8", "shape": ["n"]}],
                     "instances": ["n/16"], "variants": [{"module": "bench", "entry": "copy"}]}},
  "edges": [{"from": "x", "to": "copy.x"}, {"from": "copy.y", "to": "y"}]})";

constexpr char kWork[] = R"({"hpvm": 1, "name": "work",
  "inputs": {"x": {"type": "u8", "shape": [8]}}, "outputs": {"y": {"type": "u8", "shape": [4]}},
  "modules": {"bench": {"kind": "wasm", "source": {"file": "bench_kernels.wasm"}}},
  "nodes": {"work": {"ports": [{"name": "x", "access": "in", "type": "u8", "shape": [8]},
                               {"name": "y", "access": "out", "type": "u8", "shape": [4]}],
                     "variants": [{"module": "bench", "entry": "work"}]}},
  "edges": [{"from": "x", "to": "work.x"}, {"from": "work.y", "to": "y"}]})";

std::string ReadText(const std::string& path) {
  std::ifstream stream(path);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

Status WriteConfig(const std::string& path, const DaemonSettings& settings) {
  std::map<std::string, std::map<std::string, std::string>> sections;
  for (const auto& [key, value] : settings.keys) {
    const size_t dot = key.find('.');
    sections[key.substr(0, dot)][key.substr(dot + 1)] = value;
  }
  std::ofstream stream(path);
  for (const auto& [section, keys] : sections) {
    stream << "[" << section << "]\n";
    for (const auto& [key, value] : keys) {
      stream << key << " = " << value << "\n";
    }
  }
  stream.close();
  return stream ? absl::OkStatus() : Unavailable("Writing the configuration \"" + path + "\" failed.");
}

// Polls by itself, because gRPC's own connection attempts are too far apart.
bool Accepts(const std::string& path) {
  UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

std::string GraphDocument(const std::string& graph) { return graph == "copy" ? kCopy : kWork; }

StatusOr<std::vector<uint8_t>> ReadBenchKernels() {
  std::ifstream stream(ProgramFolder() + "/bench_kernels.wasm", std::ios::binary);
  if (!stream) {
    return NotFound("The file bench_kernels.wasm is not beside the program.");
  }
  return std::vector<uint8_t>(std::istreambuf_iterator<char>(stream), {});
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(parent) + "/task")) {
    std::istringstream of_task(ReadText(task.path() / "children"));
    for (pid_t pid = 0; of_task >> pid;) {
      children.push_back(pid);
    }
  }
  return children;
}

std::string ProgramNameOf(pid_t pid) {
  std::string name = ReadText("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, name.find('\n'));
}

StatusOr<std::unique_ptr<ServiceDaemon>> ServiceDaemon::Start(const DaemonSettings& settings) {
  auto daemon = std::make_unique<ServiceDaemon>();
  daemon->endpoint_ = "unix:" + daemon->folder_.path() + "/hpvmd.sock";
  HPVMD_RETURN_IF_ERROR(daemon->Restart(settings).status());
  return daemon;
}

ServiceDaemon::~ServiceDaemon() {
  // A stopped process would not receive SIGTERM.
  if (process_.has_value()) {
    SignalExecutors(SIGCONT).IgnoreError();
  }
}

StatusOr<Duration> ServiceDaemon::Restart(const DaemonSettings& settings) {
  const std::string config = folder_.path() + "/hpvmd.toml";
  HPVMD_RETURN_IF_ERROR(WriteConfig(config, settings));
  client_.reset();
  process_.reset();
  if (!settings.failpoints.empty()) {
    setenv("HPVMD_FAILPOINTS", settings.failpoints.c_str(), 1);
  }
  const Time start = RealClock().Now();
  StatusOr<Process> process =
      Process::Start({ProgramFolder() + "/hpvmd", "--config", config, "--listen", endpoint_, "--state", state()});
  unsetenv("HPVMD_FAILPOINTS");
  HPVMD_RETURN_IF_ERROR(process.status());
  process_.emplace(*std::move(process));
  while (!Accepts(endpoint_.substr(5))) {
    if (RealClock().Now() - start > std::chrono::seconds(60)) {
      return Unavailable("hpvmd does not serve after a minute.");
    }
    usleep(500);
  }
  HPVMD_ASSIGN_OR_RETURN(client_,
                         Client::Connect({.endpoint = endpoint_, .connect_timeout = std::chrono::seconds(60)}));
  HPVMD_RETURN_IF_ERROR(client_->ServerInfo().status());
  return RealClock().Now() - start;
}

void ServiceDaemon::Kill() {
  process_->Kill();
  process_.reset();
}

StatusOr<Duration> ServiceDaemon::Stop() {
  const Time start = RealClock().Now();
  const int code = process_->Stop(std::chrono::seconds(120));
  const Duration took = RealClock().Now() - start;
  if (code != 0) {
    return Internal("hpvmd did not stop as asked (exit code " + std::to_string(code) + ").");
  }
  process_.reset();
  return took;
}

StatusOr<std::string> ServiceDaemon::Prepare(const std::string& graph, const std::string& tenant) {
  HPVMD_ASSIGN_OR_RETURN(std::vector<uint8_t> kernels, ReadBenchKernels());
  std::unique_ptr<Client> own;
  if (!tenant.empty()) {
    HPVMD_ASSIGN_OR_RETURN(own, Client::Connect({.endpoint = endpoint_, .tenant = tenant}));
  }
  Client& client = own != nullptr ? *own : *client_;
  HPVMD_ASSIGN_OR_RETURN(Prepared prepared, client.Prepare(GraphDocument(graph),
                                                           {.bytes = {{"bench", std::move(kernels)}}, .hashes = {}}));
  return prepared.handle;
}

Status ServiceDaemon::SignalExecutors(int signal_number) {
  bool any = false;
  for (const pid_t pid : ChildrenOf(process_->pid())) {
    if (ProgramNameOf(pid).starts_with("hpvm-executor")) {
      any = kill(pid, signal_number) == 0 || any;
    }
  }
  return any ? absl::OkStatus() : NotFound("The daemon has no executor.");
}

uint64_t ServiceDaemon::RssBytes() const {
  std::istringstream statm(ReadText("/proc/" + std::to_string(process_->pid()) + "/statm"));
  uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t ServiceDaemon::CpuUs() const {
  const std::string stat = ReadText("/proc/" + std::to_string(process_->pid()) + "/stat");
  // The name in parentheses may contain anything; the 12th and 13th fields after it are user and system time.
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 2)));
  std::string skipped;
  for (int i = 0; i < 11; ++i) {
    fields >> skipped;
  }
  uint64_t user = 0, system = 0;
  fields >> user >> system;
  return (user + system) * 1'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
}

std::string ServiceDaemon::DatabasePath() const {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(state(), ignored)) {
    if (entry.path().filename() == "jobs.db") {
      return entry.path();
    }
  }
  return "";
}

std::string ServiceDaemon::StoreFingerprint() const {
  const std::string path = DatabasePath();
  if (path.empty()) {
    return "";
  }
  std::map<std::string, std::string> files;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::filesystem::path(path).parent_path(), ignored)) {
    const std::string name =
        std::filesystem::relative(entry.path(), std::filesystem::path(path).parent_path(), ignored);
    // The folder also holds caches and a lock. The index of the write-ahead log is shared memory.
    const bool is_store = name.starts_with("jobs.db") || name.starts_with("blobs/");
    if (is_store && entry.is_regular_file(ignored) && !name.ends_with("-shm")) {
      files[entry.path()] = std::to_string(entry.file_size(ignored)) + " " +
                            std::to_string(entry.last_write_time(ignored).time_since_epoch().count());
    }
  }
  std::string text;
  for (const auto& [name, facts] : files) {
    text += name + " " + facts + "\n";
  }
  return text;
}

std::string WorkInput(uint32_t steps, uint32_t times) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &steps, 4);
  std::memcpy(bytes.data() + 4, &times, 4);
  return bytes;
}

std::string WorkOutput(uint32_t steps, uint32_t times) {
  uint32_t value = 1;
  for (uint32_t i = 0; i < times; ++i) {
    for (uint32_t j = 0; j < steps; ++j) {
      value = value * 1664525u + 1013904223u;
    }
  }
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

RssWatch::RssWatch(const ServiceDaemon& daemon) {
  thread_ = std::thread([this, &daemon] {
    while (!stop_) {
      max_ = std::max(max_.load(), daemon.RssBytes());
      usleep(20'000);
    }
  });
}

RssWatch::~RssWatch() {
  stop_ = true;
  thread_.join();
}

}  // namespace hpvm::bench
