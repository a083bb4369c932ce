// SPDX-License-Identifier: Apache-2.0
#include "server/process/process_facts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "base/number.h"

namespace hpvm::server {
namespace {

constexpr size_t kFileBytesMax = 4 << 20;

struct FolderClose {
  void operator()(DIR* folder) const { closedir(folder); }
};

}  // namespace

std::string ReadSmallFile(const std::string& path) {
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  while (file.valid() && text.size() < kFileBytesMax) {
    char part[4096];
    const ssize_t count = read(file.get(), part, sizeof(part));
    if (count <= 0) {
      break;
    }
    text.append(part, static_cast<size_t>(count));
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    text = at == std::string_view::npos ? "" : text.substr(at + 1);
  }
  return parts;
}

ProcessUse UseOf(int pid) {
  const std::string text = ReadSmallFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t close = text.rfind(')');
  if (close == std::string::npos) {
    return {};
  }
  // The state is field 3; index 0 here is the empty text before it.
  const std::vector<std::string_view> fields = Split(std::string_view(text).substr(close + 1), ' ');
  const auto field = [&](size_t number) {
    return number - 2 < fields.size() ? ParseNumber<uint64_t>(fields[number - 2]).value_or(0) : 0;
  };
  const auto ticks = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return {.processor = Duration(static_cast<int64_t>((field(14) + field(15)) * (1'000'000'000 / ticks))),
          .resident_bytes = field(24) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))};
}

std::optional<ProcessFacts> ReadProcess(int pid) {
  const std::string text = ReadSmallFile("/proc/" + std::to_string(pid) + "/stat");
  // "12 (name) S 1 …"; the name may contain anything, including parentheses.
  const size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return std::nullopt;
  }
  // Index 1 is the state, field 3: the parent is field 4, the start time field 22.
  const std::vector<std::string_view> fields = Split(std::string_view(text).substr(close + 1), ' ');
  ProcessFacts facts;
  facts.pid = pid;
  facts.name = text.substr(open + 1, close - open - 1);
  const auto parent = fields.size() < 21 ? std::nullopt : ParseNumber<int>(fields[2]);
  const auto start = parent.has_value() ? ParseNumber<uint64_t>(fields[20]) : std::nullopt;
  if (!start.has_value()) {
    return std::nullopt;
  }
  facts.parent = *parent;
  facts.start_ticks = *start;
  facts.has_ended = fields[1] == "Z" || fields[1] == "X";
  return facts;
}

std::vector<ProcessFacts> ListProcesses() {
  std::vector<ProcessFacts> processes;
  const std::unique_ptr<DIR, FolderClose> folder(opendir("/proc"));
  while (const dirent* entry = folder == nullptr ? nullptr : readdir(folder.get())) {
    const std::optional<int> pid = ParseNumber<int>(entry->d_name);
    if (std::optional<ProcessFacts> facts = pid.has_value() ? ReadProcess(*pid) : std::nullopt) {
      processes.push_back(*std::move(facts));
    }
  }
  return processes;
}

std::vector<std::string> ReadArguments(int pid) {
  const std::string text = ReadSmallFile("/proc/" + std::to_string(pid) + "/cmdline");
  const std::vector<std::string_view> parts = Split(text, '\0');
  return {parts.begin(), parts.end()};
}

uint64_t MemoryAllowed(const std::string& root) {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto bound = [&](const std::string& path) {
    const std::string text = ReadSmallFile(root + path);
    // "max" does not parse as a number.
    if (const auto limit = ParseNumber<uint64_t>(std::string_view(text).substr(0, text.find('\n'))).value_or(0)) {
      bytes = std::min(bytes, limit);
    }
  };
  // Lines are "0::/path" for version 2 and "9:memory:/path" for version 1.
  const std::string groups = ReadSmallFile(root + "/proc/self/cgroup");
  for (const std::string_view line : Split(groups, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) {
      continue;
    }
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string_view> names = Split(controllers, ',');
    const bool is_unified = controllers.empty();
    if (!is_unified && std::find(names.begin(), names.end(), "memory") == names.end()) {
      continue;
    }
    // From the process's own group to the root; a container that sees its own group as the root has a limit there.
    const std::string folder = is_unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string_view path = line.substr(second + 1);;) {
      for (const char* file : {"/memory.max", "/memory.high", "/memory.limit_in_bytes"}) {
        bound(folder + (path == "/" ? "" : std::string(path)) + file);
      }
      if (path.empty()) {
        break;
      }
      const size_t parent = path.rfind('/');
      path = path.substr(0, parent == std::string_view::npos ? 0 : parent);
    }
  }
  return bytes;
}

StatusOr<std::string> BootId() {
  std::string id = ReadSmallFile("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') {
    id.pop_back();
  }
  return id.empty() ? StatusOr<std::string>(Unavailable("The machine's boot id cannot be read; is /proc mounted?"))
                    : id;
}

bool KilledProcesses::Kill(const ProcessFacts& process) {
  KilledProcess killed{process, UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0))), 0};
  if (!killed.pidfd.valid() && errno == ESRCH) {
    return false;
  }
  // Checked again: from here on the descriptor refers to that process, whatever happens to its number.
  const std::optional<ProcessFacts> now = ReadProcess(process.pid);
  if (!now.has_value() || now->start_ticks != process.start_ticks || now->has_ended) {
    return false;
  }
  if (!killed.pidfd.valid() || syscall(SYS_pidfd_send_signal, killed.pidfd.get(), SIGKILL, nullptr, 0) != 0) {
    if (errno == ESRCH) {
      return false;
    }
    killed.error = errno;
  }
  killed_.push_back(std::move(killed));
  return true;
}

Status KilledProcesses::AwaitEnds(Time deadline) {
  for (const KilledProcess& killed : killed_) {
    const std::string which = "process " + std::to_string(killed.process.pid) + " (" + killed.process.name + ")";
    if (killed.error != 0) {
      return FromErrno(killed.error, "Ending " + which);
    }
    while (true) {
      const Duration left = std::max(deadline - RealClock().Now(), Duration{0});
      pollfd fd{killed.pidfd.get(), POLLIN, 0};
      const auto timeout_ms =
          std::chrono::ceil<std::chrono::milliseconds>(std::min(left, Duration(std::chrono::hours(1))));
      const int count = poll(&fd, 1, static_cast<int>(timeout_ms.count()));
      if (count > 0) {
        break;
      }
      if (count == 0 || errno != EINTR) {
        return Unavailable("The " + which + " was killed but has not ended; it may hang in a driver.");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace hpvm::server
