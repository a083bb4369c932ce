// SPDX-License-Identifier: Apache-2.0
#include "server/observe/process_metrics.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "base/processor_time.h"
#include "server/process/process_facts.h"

namespace hpvm::server {
namespace {

// Returns the fields of /proc/self/stat after the program's name, which may contain anything; [0] is the third field.
std::vector<uint64_t> StatFields() {
  const std::string text = ReadSmallFile("/proc/self/stat");
  const size_t end = text.rfind(')');
  std::vector<uint64_t> fields;
  if (end == std::string::npos) {
    return fields;
  }
  std::istringstream words(text.substr(end + 1));
  for (std::string word; words >> word;) {
    fields.push_back(std::strtoull(word.c_str(), nullptr, 10));
  }
  return fields;
}

// Returns the machine's boot time in seconds since the epoch; 0 when unknown.
double BootTime() {
  const std::string text = ReadSmallFile("/proc/stat");
  const size_t at = text.find("\nbtime ");
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 7, nullptr);
}

double CountFds() {
  std::error_code error;
  const std::filesystem::directory_iterator first("/proc/self/fd", error);
  return error ? 0 : static_cast<double>(std::distance(first, {})) - 1;  // Excludes the descriptor that lists them.
}

}  // namespace

void DescribeProcess(Families& families) {
  const std::vector<uint64_t> fields = StatFields();
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? static_cast<double>(fields[number - 3]) : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  families.Counter("process_cpu_seconds_total", "User and system CPU time of the daemon, without its executors.",
                   // Finer than the ticks of 10 ms in /proc/self/stat.
                   static_cast<double>(ProcessorTimeOf(getpid()).count()) / 1e9);
  families.Gauge("process_resident_memory_bytes", "Resident memory.",
                 field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  families.Gauge("process_virtual_memory_bytes", "Virtual memory.", field(23));
  families.Gauge("process_threads", "Threads.", field(20));
  families.Gauge("process_open_fds", "Open file descriptors.", CountFds());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  families.Gauge("process_max_fds", "The limit of open file descriptors.", limit.rlim_cur);
  static const double boot = BootTime();  // Read once, so that setting the clock does not change it.
  families.Gauge("process_start_time_seconds", "When the daemon started, since the Unix epoch.",
                 boot + field(22) / ticks);
}

void DescribeDisk(Families& families, const std::string& store_folder, const std::string& state_dir) {
  families.Gauge("hpvm_store_bytes", "Sizes of the job store's files, without blobs.");
  if (!store_folder.empty()) {
    for (const auto& [file, name] : {std::pair("database", "/jobs.db"), std::pair("wal", "/jobs.db-wal")}) {
      struct stat info {};
      const bool is_there = stat((store_folder + name).c_str(), &info) == 0;
      families.Add({{"file", file}}, is_there ? info.st_size : 0);
    }
  }
  struct statvfs disk {};
  const bool is_known = !state_dir.empty() && statvfs(state_dir.c_str(), &disk) == 0;
  const auto bytes = [&](auto blocks) { return static_cast<double>(blocks) * static_cast<double>(disk.f_frsize); };
  families.Gauge("hpvm_disk_free_bytes", "Free space on the disk of server.state_dir.");
  if (is_known) {
    families.Add({}, bytes(disk.f_bavail));
  }
  families.Gauge("hpvm_disk_size_bytes", "Size of the disk of server.state_dir.");
  if (is_known) {
    families.Add({}, bytes(disk.f_blocks));
  }
}

}  // namespace hpvm::server
