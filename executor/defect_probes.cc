// SPDX-License-Identifier: Apache-2.0
#include "executor/defect_probes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/gpu/defect_probe.h"
#include "backends/gpu/known_defects.h"
#include "backends/registry.h"
#include "base/clock.h"
#include "base/io/fd.h"
#include "base/limits.h"
#include "executor/driver_environment.h"
#include "executor/launcher.h"
#include "executor/probe_output.h"
#include "proto/internal/protocol.h"
#include "sandbox/limits.h"
#include "sandbox/sandbox.h"

namespace hpvm::executor {
namespace {

// Limit for all probes of a device; the process that started this one waits longer.
constexpr Duration kWallMax = std::chrono::seconds(30);
constexpr rlim_t kCpuSecondsMax = 20;
constexpr uint64_t kDataBytesMax = 4 * limits::kGiB;  // As for builders.

enum class Verdict : uint8_t {
  kStarted = 1,  // The answer follows, or the process's end.
  // The device does not take such code, or a probe with this name has already shown the defect.
  kSkipped,
  kRight,
  kWrong,
  kFailed,  // The probe could not be run.
  kNoDevice
};

// Written in one call, so that it arrives whole.
struct Record {
  uint32_t probe = 0;
  Verdict verdict = Verdict::kStarted;
  char detail[251] = {};
};
static_assert(sizeof(Record) == 256);

void Tell(int pipe, uint32_t probe, Verdict verdict, const std::string& detail = "") {
  Record record;
  record.probe = probe;
  record.verdict = verdict;
  detail.copy(record.detail, sizeof(record.detail) - 1);
  if (write(pipe, &record, sizeof(record)) != sizeof(record)) {
    _exit(1);
  }
}

Status LockDown(const std::string& folder, pid_t parent) {
  HPVMD_RETURN_IF_ERROR(sandbox::LimitChild({.data_bytes = kDataBytesMax}, parent));
  // There is no extra second in which to report it.
  HPVMD_RETURN_IF_ERROR(sandbox::SetLimit(RLIMIT_CPU, kCpuSecondsMax));
  setpgid(0, 0);  // Its children end with it.
  SetDriverEnvironment(folder, folder);
  sandbox::SandboxReport report;
  return sandbox::Confine(&report,
                          {.role = sandbox::SandboxRole::kBuilder, .paths = DriverPaths(folder, /*is_builder=*/true)});
}

// The child: runs the probes from `first` on.
[[noreturn]] void RunProbes(const std::string& name, const std::string& folder, uint32_t first, bool has_shown,
                            pid_t parent, int pipe) {
  Hub hub;
  StatusOr<std::unique_ptr<Device>> device = Unavailable("");
  if (const Status locked = LockDown(folder, parent); !locked.ok()) {
    device = locked;
  } else {
    device = backends::CreateDevice(name, hub, {});
  }
  if (!device.ok()) {
    Tell(pipe, first, Verdict::kNoDevice, Message(device.status()));
    _exit(0);
  }
  const std::span<const gpu::KnownDefect> defects = gpu::KnownDefects();
  for (uint32_t i = first; i < defects.size(); ++i) {
    has_shown = has_shown && i > 0 && defects[i].name == defects[i - 1].name;
    if (has_shown || !gpu::Concerns(defects[i].probe, **device)) {
      Tell(pipe, i, Verdict::kSkipped);
      continue;
    }
    Tell(pipe, i, Verdict::kStarted);
    const StatusOr<bool> right = gpu::ComputesRightly(defects[i].probe, **device, RealClock().Now() + kWallMax);
    // A wrong address may also be one that the device does not survive.
    const bool is_wrong = right.ok() ? !*right : absl::IsUnavailable(right.status());
    has_shown = is_wrong;
    Tell(pipe, i,
         is_wrong     ? Verdict::kWrong
         : right.ok() ? Verdict::kRight
                      : Verdict::kFailed,
         right.ok() ? "" : Message(right.status()));
    if (!right.ok() && !absl::IsInvalidArgument(right.status())) {
      break;  // The device is lost to this process.
    }
  }
  // _exit instead of exit, because the destructors of drivers hang and crash.
  _exit(0);
}

class Prober {
 public:
  Prober(std::string device, std::string folder, Time deadline)
      : device_(std::move(device)), folder_(std::move(folder)), deadline_(deadline) {}

  // Runs one process after another, until each probe has an answer.
  Status Run() {
    const auto count = static_cast<uint32_t>(gpu::KnownDefects().size());
    while (next_ < count) {
      const uint32_t before = next_;
      HPVMD_RETURN_IF_ERROR(RunOne());
      if (next_ == before) {
        return Unavailable("The process that tests the driver of " + device_ + " ended without an answer.");
      }
    }
    return absl::OkStatus();
  }
  // Defects that were shown, each name once.
  const std::vector<const gpu::KnownDefect*>& shown() const { return shown_; }

 private:
  Status RunOne() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return FromErrno(errno, "Creating a pipe");
    }
    const UniqueFd read_end(ends[0]);
    UniqueFd write_end(ends[1]);
    const pid_t parent = getpid(), child = fork();
    if (child < 0) {
      return FromErrno(errno, "Forking");
    }
    if (child == 0) {
      RunProbes(device_, folder_, next_, !shown_.empty() && next_ > 0 && IsShown(gpu::KnownDefects()[next_].name),
                parent, write_end.get());
    }
    setpgid(child, child);
    write_end.reset();
    is_running_ = false;
    const Status read = ReadAll(read_end.get());
    kill(-child, SIGKILL);
    int how = 0;
    waitpid(child, &how, 0);
    HPVMD_RETURN_IF_ERROR(read);
    if (is_running_) {  // The probe that it had started killed it.
      const std::string end = WIFSIGNALED(how) ? "signal " + std::to_string(WTERMSIG(how)) : "the driver called exit";
      Answer(next_, Verdict::kWrong, "The driver ended its process (" + end + ").");
    }
    return absl::OkStatus();
  }

  Status ReadAll(int pipe) {
    while (true) {
      const Duration left = deadline_ - RealClock().Now();
      pollfd ready{pipe, POLLIN, 0};
      if (left <= Duration{0} ||
          poll(&ready, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count())) == 0) {
        return DeadlineExceeded("Testing the driver of " + device_ + " took longer than " +
                                std::to_string(std::chrono::duration_cast<std::chrono::seconds>(kWallMax).count()) +
                                " s.");
      }
      Record record;
      const ssize_t got = read(pipe, &record, sizeof(record));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got != sizeof(record) || record.probe != next_) {
        return absl::OkStatus();  // The process has ended.
      }
      record.detail[sizeof(record.detail) - 1] = 0;
      if (record.verdict == Verdict::kNoDevice) {
        return Unavailable(record.detail);
      }
      is_running_ = record.verdict == Verdict::kStarted;
      if (!is_running_) {
        Answer(next_, record.verdict, record.detail);
      }
    }
  }

  bool IsShown(std::string_view name) const {
    return std::any_of(shown_.begin(), shown_.end(),
                       [&](const gpu::KnownDefect* defect) { return defect->name == name; });
  }

  void Answer(uint32_t probe, Verdict verdict, const std::string& detail) {
    const gpu::KnownDefect& defect = gpu::KnownDefects()[probe];
    ++next_;
    is_running_ = false;
    if (verdict == Verdict::kSkipped) {
      return;
    }
    if (verdict == Verdict::kWrong && !IsShown(defect.name)) {
      shown_.push_back(&defect);
    }
    const std::string_view answer = verdict == Verdict::kRight   ? "right"
                                    : verdict == Verdict::kWrong ? "wrong"
                                                                 : "could not be run";
    PutLine("{\"device\":" + Quoted(device_) + ",\"defect\":" + Quoted(std::string(defect.name)) + ",\"probe\":" +
            std::to_string(probe) + ",\"concerns\":" + (defect.is_ours ? "\"generated code\"" : "\"native modules\"") +
            ",\"answer\":" + Quoted(std::string(answer)) + (detail.empty() ? "" : ",\"detail\":" + Quoted(detail)) +
            "}");
  }

  const std::string device_, folder_;
  const Time deadline_;
  uint32_t next_ = 0;
  bool is_running_ = false;
  std::vector<const gpu::KnownDefect*> shown_;
};

}  // namespace

Status RunDefectProbes(const std::string& device) {
  if (!backends::HasDriver(device)) {
    return InvalidArgument("\"" + device + "\" has no driver to test.");
  }
  const bool has_socket = HasSocket();
  sandbox::SandboxReport report;
  HPVMD_RETURN_IF_ERROR(sandbox::Isolate({}, &report));
  HPVMD_ASSIGN_OR_RETURN(const PrivateFolder folder, MakePrivateFolder(""));
  Prober prober(device, folder.path, RealClock().Now() + kWallMax);
  const Status status = prober.Run();
  RemoveFolder(folder.path);
  internal::Envelope answer;
  if (status.ok()) {
    answer.set_request_id(1);
    internal::Ready* ready = answer.mutable_ready();
    ready->set_version(kExecutorProtocolVersion);
    for (const gpu::KnownDefect* defect : prober.shown()) {
      v1::DriverDefect* shown = ready->add_defects();
      shown->set_name(std::string(defect->name));
      shown->set_reason(std::string(defect->reason));
      shown->set_in_generated_code(defect->is_ours);
    }
  } else {
    SetStatus(status, answer.mutable_fatal()->mutable_status());
  }
  HPVMD_RETURN_IF_ERROR(has_socket ? SendAnswer(answer) : absl::OkStatus());
  return status;
}

}  // namespace hpvm::executor
