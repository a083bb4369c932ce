// SPDX-License-Identifier: Apache-2.0
#include "executor/launcher.h"

#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "backends/interp/device.h"
#include "backends/registry.h"
#include "base/io/child_process.h"
#include "base/io/memfd.h"
#include "compiler/api/gpu_target.h"
#include "engine/engine.h"
#include "engine/run/crash_note.h"
#include "executor/driver_environment.h"
#include "executor/driver_process.h"
#include "executor/runner.h"
#include "proto/internal/protocol.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

constexpr uint32_t kJobsMaxDefault = 16;

// The peer may take some time between starting this process and greeting it, but not for ever.
constexpr Duration kHelloWithin = std::chrono::seconds(10);

struct Greeting {
  internal::Envelope envelope;
  Mapping rings;  // From Hello, like the bell.
  UniqueFd bell;
  Mapping grants;  // The grant page; empty when there is none.
  UniqueFd spill;  // The spill file; invalid when there is none.
};

Status CheckVersion(const internal::Hello& hello) {
  return hello.version() == kExecutorProtocolVersion
             ? absl::OkStatus()
             : FailedPrecondition("Hello: version (" + std::to_string(hello.version()) +
                                  ") is not this program's version (" + std::to_string(kExecutorProtocolVersion) +
                                  ").");
}

StatusOr<Mapping> MapSealed(const char* what, int fd, uint64_t bytes, Mapping::Access access) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t size, CheckSealedMemfd(fd));
  if (size < bytes) {
    return InvalidArgument("Hello: the memory of the " + std::string(what) + " has " + std::to_string(size) +
                           " bytes; it must have at least " + std::to_string(bytes) + ".");
  }
  return Mapping::Map(fd, bytes, access);
}

// Receives Settle or Hello, whichever is first; after a Settle, which has no time limit, Hello.
StatusOr<Greeting> ReceiveGreeting(Time deadline) {
  HPVMD_ASSIGN_OR_RETURN(Frame frame, ReceiveFrame(kExecutorSocket, kToExecutorLimits, deadline));
  Greeting greeting;
  HPVMD_ASSIGN_OR_RETURN(Unchecked<internal::Envelope> said, ParseHead(frame.head));
  HPVMD_ASSIGN_OR_RETURN(greeting.envelope, CheckToExecutor(std::move(said), frame.body.size(), frame.fds.size()));
  if (greeting.envelope.has_settle()) {
    HPVMD_RETURN_IF_ERROR(CheckVersion(greeting.envelope.settle().known()));
    return greeting;
  }
  if (!greeting.envelope.has_hello()) {
    return InvalidArgument("The first message is neither Settle nor Hello.");
  }
  const internal::Hello& hello = greeting.envelope.hello();
  HPVMD_RETURN_IF_ERROR(CheckVersion(hello));
  HPVMD_ASSIGN_OR_RETURN(greeting.rings,
                         MapSealed("rings", frame.fds[0].get(), kRingPairBytes, Mapping::Access::kReadWrite));
  greeting.bell = std::move(frame.fds[1]);
  if (hello.has_grant_page()) {
    HPVMD_ASSIGN_OR_RETURN(greeting.grants,
                           MapSealed("grant page", frame.fds[2].get(), kGrantPageBytes, Mapping::Access::kRead));
  }
  if (hello.has_spill_file()) {
    greeting.spill = std::move(frame.fds.back());
  }
  return greeting;
}

// Returns the path of a file beside this program.
StatusOr<std::string> Sibling(const std::string& name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(path)) {
    return FromErrno(errno, "Finding this program's own path");
  }
  const std::string own(path, static_cast<size_t>(length));
  return own.substr(0, own.rfind('/') + 1) + name;
}

sandbox::SandboxLevel LevelMax(const internal::Hello& hello) {
  return hello.sandbox_level_max_plus_1() == 0
             ? sandbox::SandboxLevel::kNamespaces
             : static_cast<sandbox::SandboxLevel>(hello.sandbox_level_max_plus_1() - 1);
}

// Starts the compiler process, which confines itself. Returns the other end of its socket.
StatusOr<UniqueFd> StartCompiler(const internal::Hello& hello) {
  std::string program = hello.compiler_program();
  if (program.empty()) {
    HPVMD_ASSIGN_OR_RETURN(program, Sibling("hpvm-compiler"));
  }
  HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
  SpawnOptions spawn;
  // The tenant's folder is sent by the socket, because command lines are readable by everyone on the machine.
  spawn.arguments = {program, "--socket", std::to_string(kExecutorSocket)};
  // Ensures that the level reported by the executor also holds for its compiler.
  if (!hello.without_lock_down() && LevelMax(hello) >= sandbox::SandboxLevel::kFiles && sandbox::HasLandlock()) {
    spawn.arguments.push_back("--needs-landlock");
  }
  // The code that reads OpenCL C and translates SPIR-V kernels takes memory, so only tenants that need it get it.
  if (std::any_of(hello.backends().begin(), hello.backends().end(), [](const std::string& backend) {
        const DeviceFamily* const family = backends::FindFamily(backend);
        return family != nullptr && family->reads_opencl;
      })) {
    spawn.arguments.push_back("--opencl");
  }
  spawn.socket = ends.second.get();
  spawn.stderr_fd = STDERR_FILENO;
  // Its end shows on the socket, so the process need not be watched; if it outlives this one for a moment, init reaps
  // it.
  HPVMD_ASSIGN_OR_RETURN(const SpawnedProcess process, Spawn(spawn));
  return std::move(ends.first);
}

// Keyed by kind of driver.
using Builders = std::map<std::string, std::unique_ptr<DriverBuilder>>;

// Starts a supervisor for each kind of driver in the profile; each confines itself. Returns the other ends of their
// sockets.
StatusOr<std::map<std::string, UniqueFd>> StartBuilders(const internal::Hello& hello) {
  std::map<std::string, UniqueFd> sockets;
  for (const std::string& backend : hello.backends()) {
    const std::string family(FamilyOf(backend));
    if (!backends::HasDriver(backend) || sockets.contains(family)) {
      continue;
    }
    HPVMD_ASSIGN_OR_RETURN(auto ends, CreateSocketPair());
    SpawnOptions spawn;
    spawn.arguments = {"/proc/self/exe", "--driver-builder=" + family, "--socket", std::to_string(kExecutorSocket)};
    if (hello.without_device_nodes()) {
      spawn.arguments.push_back("--without-nodes");
    }
    spawn.socket = ends.second.get();
    spawn.stderr_fd = STDERR_FILENO;
    HPVMD_ASSIGN_OR_RETURN(const SpawnedProcess process, Spawn(spawn));  // Not watched, like the compiler.
    sockets.emplace(family, std::move(ends.first));
  }
  return sockets;
}

v1::Device::Kind KindOf(DeviceKind kind) {
  constexpr v1::Device::Kind kKinds[] = {v1::Device::KIND_NULL, v1::Device::KIND_INTERPRETER, v1::Device::KIND_CPU,
                                         v1::Device::KIND_GPU, v1::Device::KIND_FPGA};
  return kKinds[static_cast<size_t>(kind)];
}

uint32_t MachineThreads() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? static_cast<uint32_t>(std::max(1, CPU_COUNT(&set))) : 1;
}

struct OpenedDevices {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<uint32_t> entries;  // Indexed by device: index in the profile and the grant page.
  GrantGates gates;
  std::vector<v1::Device> broken;  // Driver devices that do not open; the executor runs without them.
};

// Opens the profile's devices, each obeying its entry of the grant page.
StatusOr<OpenedDevices> OpenDevices(const internal::Hello& hello, const GrantPage* grants, TuningStore& tuning,
                                    const Builders& builders, Hub& hub) {
  OpenedDevices opened;
  for (int i = 0; i < hello.backends_size(); ++i) {
    const std::string& backend = hello.backends(i);
    DeviceOptions options;
    options.cpu_threads = hello.cpu_threads() != 0 ? hello.cpu_threads() : MachineThreads();
    options.cpu_grant = grants != nullptr ? &grants->entries[static_cast<size_t>(i)] : nullptr;
    if (grants != nullptr) {
      const auto entry = static_cast<uint32_t>(i);
      options.gate = (opened.gates[entry] = std::make_unique<GrantGate>(grants->entries[entry])).get();
    }
    options.tuning = &tuning;
    const auto builder = builders.find(std::string(FamilyOf(backend)));
    options.builder = builder == builders.end() ? nullptr : builder->second.get();
    StatusOr<std::unique_ptr<Device>> device = backends::CreateDevice(backend, hub, options);
    if (device.ok()) {
      opened.devices.push_back(*std::move(device));
      opened.entries.push_back(static_cast<uint32_t>(i));
    } else if (backends::HasDriver(backend)) {
      opened.broken.push_back(BrokenDevice(backend, device.status()));
    } else {
      return device.status();
    }
  }
  return opened;
}

internal::Envelope ReadyMessage(uint64_t request_id, const engine::Engine& engine, const OpenedDevices& opened,
                                const sandbox::SandboxReport& report) {
  internal::Envelope envelope;
  envelope.set_request_id(request_id);
  internal::Ready* ready = envelope.mutable_ready();
  ready->set_version(kExecutorProtocolVersion);
  for (const DeviceInfo& info : engine.devices()) {
    Describe(info, ready->add_devices());
  }
  for (const v1::Device& broken : opened.broken) {
    *ready->add_broken() = broken;
  }
  ready->set_sandbox_level(static_cast<uint32_t>(report.level));
  ready->set_sandbox_detail(CleanText(report.detail, kTextBytesMax, false));
  return envelope;
}

// A driver runs tenants' native code in this process: when that code faults, the daemon learns of it from the end of
// the process, and from these last words which work was running.
void TellAndDie(int signal_number) {
  constexpr char kHead[] = "The process was running ";
  char text[4096];
  const size_t length = engine::ReadCrashNotes(text, sizeof(text));
  if (length > 0) {
    const ssize_t put = write(STDERR_FILENO, kHead, sizeof(kHead) - 1) + write(STDERR_FILENO, text, length);
    (void)put;
  }
  signal(signal_number, SIG_DFL);  // The instruction then faults again.
}

// Call after drivers have been loaded, because some set their own handlers.
void TellOfCrashes() {
  struct sigaction action {};
  action.sa_handler = TellAndDie;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
    sigaction(number, &action, nullptr);
  }
}

sandbox::IsolateOptions IsolationOf(const internal::Hello& hello, bool has_nodes) {
  sandbox::IsolateOptions options;
  options.uid = hello.uid();
  options.gid = hello.gid();
  if (has_nodes) {
    options.groups = DeviceNodeGroups();
  }
  options.has_cgroup = hello.has_cgroup();
  options.tasks_max = hello.tasks_max();
  options.level_max = LevelMax(hello);
  return options;
}

Status CheckLevel(const internal::Hello& hello, const sandbox::SandboxReport& report) {
  if (static_cast<uint32_t>(report.level) >= hello.sandbox_level_min()) {
    return absl::OkStatus();
  }
  return FailedPrecondition("The sandbox of this machine reaches level " +
                            std::to_string(static_cast<int>(report.level)) + " (" + report.detail +
                            "), but the configuration demands at least level " +
                            std::to_string(hello.sandbox_level_min()) + ".");
}

bool HasDrivers(const internal::Hello& hello) {
  return std::any_of(hello.backends().begin(), hello.backends().end(),
                     [](const std::string& backend) { return backends::HasDriver(backend); });
}

// Results of the steps that precede any knowledge of a tenant.
struct Settled {
  sandbox::SandboxReport report;
  UniqueFd compiler;
  bool is_confined = false;
};

StatusOr<Settled> SettleIn(const internal::Hello& known) {
  Settled settled;
  const bool has_drivers = HasDrivers(known);
  if (!known.without_lock_down()) {
    const bool has_nodes = has_drivers && !known.without_device_nodes();
    HPVMD_RETURN_IF_ERROR(
        While(sandbox::Isolate(IsolationOf(known, has_nodes), &settled.report), "isolating the process"));
  } else {
    settled.report.detail = "not locked down";
  }
  HPVMD_ASSIGN_OR_RETURN(settled.compiler, StartCompiler(known));
  // Drivers' builders have to be started first, in the tenant's folders.
  if (!known.without_lock_down() && !has_drivers) {
    sandbox::ConfineOptions confine;
    confine.level_max = LevelMax(known);
    confine.file_bytes_max = known.spill_bytes_max();
    HPVMD_RETURN_IF_ERROR(While(sandbox::Confine(&settled.report, confine), "locking the process down"));
    settled.is_confined = true;
  }
  return settled;
}

// Checks that Hello does not contradict the steps already taken.
Status CheckAgrees(const internal::Hello& known, const internal::Hello& hello) {
  const bool agrees = known.without_lock_down() == hello.without_lock_down() && known.uid() == hello.uid() &&
                      known.gid() == hello.gid() && known.has_cgroup() == hello.has_cgroup() &&
                      known.tasks_max() == hello.tasks_max() && known.spill_bytes_max() >= hello.spill_bytes_max() &&
                      HasDrivers(known) == HasDrivers(hello) &&
                      known.sandbox_level_max_plus_1() == hello.sandbox_level_max_plus_1() &&
                      known.compiler_program() == hello.compiler_program() &&
                      known.without_device_nodes() == hello.without_device_nodes();
  return agrees ? absl::OkStatus() : InvalidArgument("Hello contradicts the earlier Settle.");
}

Status Serve() {
  HPVMD_ASSIGN_OR_RETURN(Greeting greeting, ReceiveGreeting(RealClock().Now() + kHelloWithin));
  Settled settled;
  if (greeting.envelope.has_settle()) {
    const internal::Hello known = greeting.envelope.settle().known();
    HPVMD_ASSIGN_OR_RETURN(settled, SettleIn(known));
    HPVMD_ASSIGN_OR_RETURN(greeting, ReceiveGreeting(kNever));
    HPVMD_RETURN_IF_ERROR(greeting.envelope.has_hello() ? CheckAgrees(known, greeting.envelope.hello())
                                                        : InvalidArgument("A second Settle came instead of Hello."));
  } else {
    HPVMD_ASSIGN_OR_RETURN(settled, SettleIn(greeting.envelope.hello()));
  }
  const internal::Hello& hello = greeting.envelope.hello();
  const bool has_drivers = HasDrivers(hello);
  HPVMD_ASSIGN_OR_RETURN(auto builder_sockets, StartBuilders(hello));
  HPVMD_ASSIGN_OR_RETURN(DriverSandbox sandbox,
                         PrepareSandbox(has_drivers, {hello.cache_folder(), hello.scratch_folder()},
                                        has_drivers && !hello.without_device_nodes()));
  sandbox.confine.level_max = LevelMax(hello);
  sandbox.confine.file_bytes_max = hello.spill_bytes_max();
  if (!hello.without_lock_down() && !settled.is_confined) {
    HPVMD_RETURN_IF_ERROR(While(sandbox::Confine(&settled.report, sandbox.confine), "locking the process down"));
  }
  HPVMD_RETURN_IF_ERROR(CheckLevel(hello, settled.report));
  // No byte of a tenant has been read so far, and no thread has been started.
  const auto* grants = reinterpret_cast<const GrantPage*>(greeting.grants.data());
  Hub hub;
  ArtifactKey key;
  std::copy(hello.artifact_key().begin(), hello.artifact_key().end(), key.begin());
  const std::unique_ptr<CompilerService> compiler =
      ConnectCompiler(std::move(settled.compiler), key, hello.cache_folder());
  Builders builders;
  for (auto& [family, socket] : builder_sockets) {
    builders[family] = ConnectDriverBuilder(std::move(socket), {key, hello.cache_folder()}, backends::DriverIdentity);
  }
  HPVMD_ASSIGN_OR_RETURN(const OpenedDevices opened, OpenDevices(hello, grants, *compiler, builders, hub));
  if (has_drivers) {
    TellOfCrashes();
  }
  engine::EngineOptions options;
  for (const std::unique_ptr<Device>& device : opened.devices) {
    options.devices.push_back(device.get());
  }
  const std::unique_ptr<Device> checker = CreateInterpDevice(hub);
  for (const uint32_t entry : opened.entries) {
    options.device_limits.push_back(grants == nullptr ? engine::DeviceMemory::Limits()
                                                      : engine::DeviceMemory::Limits{&grants->entries[entry], grants});
  }
  for (const uint32_t entry : opened.entries) {
    const std::string& backend = hello.backends(static_cast<int>(entry));
    const auto refused = std::find_if(hello.emitted_refused().begin(), hello.emitted_refused().end(),
                                      [&](const internal::RefusedDevice& one) { return one.id() == backend; });
    options.emitted_refusals.push_back(refused == hello.emitted_refused().end() ? "" : refused->reason());
  }
  options.checker = checker.get();
  options.hub = &hub;
  options.compiler = compiler.get();
  options.clock = &RealClock();
  options.measures_transfers = true;
  options.host_bytes_max = hello.host_bytes_max();
  options.device_bytes_max = hello.device_bytes_max();
  options.spill_fd = greeting.spill.get();
  options.spill_bytes_max = greeting.spill.valid() ? hello.spill_bytes_max() : 0;
  const auto set = [](auto value, auto* limit) { *limit = value != 0 ? value : *limit; };
  set(hello.document_bytes_max(), &options.graph_limits.document_bytes_max);
  set(hello.nodes_max(), &options.graph_limits.nodes_max);
  set(hello.edges_max(), &options.graph_limits.edges_max);
  const uint64_t document_bytes_max = options.graph_limits.document_bytes_max;
  engine::Engine engine(std::move(options));
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Runner> runner,
                         Runner::Create({.engine = &engine,
                                         .socket = kExecutorSocket,
                                         .rings = reinterpret_cast<RingPairMemory*>(greeting.rings.data()),
                                         .bell = greeting.bell.get(),
                                         .grants = grants,
                                         .grant_entries = opened.entries,
                                         .gates = &opened.gates,
                                         .jobs_max = hello.jobs_max() != 0 ? hello.jobs_max() : kJobsMaxDefault,
                                         .document_bytes_max = document_bytes_max}));
  runner->Serve(ReadyMessage(greeting.envelope.request_id(), engine, opened, settled.report));
}

}  // namespace

void Describe(const DeviceInfo& info, internal::DeviceReport* described) {
  v1::Device* device = described->mutable_device();
  device->set_id(info.id);
  device->set_kind(KindOf(info.kind));
  device->set_name(CleanText(info.name, kNameBytesMax, false));
  device->set_silicon(CleanText(info.silicon, kNameBytesMax, false));
  // The identity is all that is known here of its health.
  if (!info.uuid.empty() || !info.bus.empty()) {
    device->mutable_health()->set_uuid(CleanText(info.uuid, kDeviceIdBytesMax, false));
    device->mutable_health()->set_bus(CleanText(info.bus, kDeviceIdBytesMax, false));
  }
  device->set_compute_units(info.compute_units);
  device->set_memory_bytes(info.memory_bytes);
  device->set_allocation_bytes_max(info.allocation_bytes_max);
  device->set_emulated(info.is_emulated);
  device->set_state(v1::Device::STATE_READY);
  described->set_has_driver(backends::HasDriver(info.id));
  if (described->has_driver()) {
    described->set_gpu_target(BytesOf(info.gpu));
  }
}

v1::Device BrokenDevice(const std::string& id, const Status& why) {
  v1::Device device;
  device.set_id(id);
  device.set_state(v1::Device::STATE_BROKEN);
  device.set_detail(CleanText(Message(why), kTextBytesMax, false));
  return device;
}

StatusOr<DriverSandbox> PrepareSandbox(bool has_drivers, const DriverFolders& folders, bool has_nodes) {
  DriverSandbox sandbox;
  if (!has_drivers) {
    return sandbox;
  }
  if (folders.scratch.empty()) {
    HPVMD_ASSIGN_OR_RETURN(sandbox.folder, MakePrivateFolder(folders.cache));
  } else {
    sandbox.folder.path = folders.scratch;
  }
  std::string kept = sandbox.folder.path;
  if (!folders.cache.empty()) {
    kept = folders.cache + "/driver";
    mkdir(kept.c_str(), 0770);  // A folder that exists or cannot be created is acceptable: the driver works without it.
  }
  SetDriverEnvironment(sandbox.folder.path, kept);
  sandbox.confine.role = sandbox::SandboxRole::kDriver;
  sandbox.confine.paths = DriverPaths(sandbox.folder.path, /*is_builder=*/false, has_nodes);
  sandbox.confine.paths.push_back({kept, sandbox::PathAccess::kPrivate});
  return sandbox;
}

Status RunExecutor() {
  close_range(kExecutorSocket + 1, ~0u, 0);
  // Orphans of its children end with them: as the first of its PID namespace this process would inherit them.
  signal(SIGCHLD, SIG_IGN);
  const Status status = Serve();
  internal::Envelope fatal;
  SetStatus(status, fatal.mutable_fatal()->mutable_status());
  SendFrame(kExecutorSocket, fatal.SerializeAsString(), {}, {}, RealClock().Now() + std::chrono::seconds(1))
      .IgnoreError();
  return status;
}

}  // namespace hpvm::executor
