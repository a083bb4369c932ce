// SPDX-License-Identifier: Apache-2.0
#include "server/observe/process_metrics.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace hpvm::server {
namespace {

std::string ReadProc(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// Fields of /proc/self/stat after the program's name, which may contain anything; [0] is the third.
std::vector<uint64_t> StatFields() {
  const std::string text = ReadProc("/proc/self/stat");
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

// When the machine started, in seconds since the epoch; 0 when it is not said.
double BootTime() {
  const std::string text = ReadProc("/proc/stat");
  const size_t at = text.find("\nbtime ");
  return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 7, nullptr);
}

double CountFds() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) {
    return 0;
  }
  double count = -1;  // The one that lists them.
  while (const dirent* entry = readdir(folder)) {
    count += entry->d_name[0] == '.' ? 0 : 1;
  }
  closedir(folder);
  return count;
}

}  // namespace

void DescribeProcess(Families& families) {
  const std::vector<uint64_t> fields = StatFields();
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? static_cast<double>(fields[number - 3]) : 0;
  };
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto gauge = [&](const char* name, const char* help, double value) {
    families.Gauge(name, help);
    families.Add({}, value);
  };
  families.Counter("process_cpu_seconds_total", "User and system CPU time of the daemon, without its executors.");
  families.Add({}, (field(14) + field(15)) / ticks);
  gauge("process_resident_memory_bytes", "Resident memory.", field(24) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  gauge("process_virtual_memory_bytes", "Virtual memory.", field(23));
  gauge("process_threads", "Threads.", field(20));
  gauge("process_open_fds", "Open file descriptors.", CountFds());
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  gauge("process_max_fds", "The limit of open file descriptors.", static_cast<double>(limit.rlim_cur));
  static const double boot = BootTime();  // One value, lest a clock that is set move it.
  gauge("process_start_time_seconds", "When the daemon started, since the Unix epoch.", boot + field(22) / ticks);
}

void DescribeDisk(Families& families, const std::string& store_folder, const std::string& state_dir) {
  families.Gauge("hpvm_store_bytes", "Sizes of the job store's files, without blobs.");
  if (!store_folder.empty()) {
    for (const auto& [file, name] : {std::pair("database", "/jobs.db"), std::pair("wal", "/jobs.db-wal")}) {
      struct stat info {};
      const bool is_there = stat((store_folder + name).c_str(), &info) == 0;
      families.Add({{"file", file}}, is_there ? static_cast<double>(info.st_size) : 0);
    }
  }
  struct statvfs disk {};
  const bool is_known = !state_dir.empty() && statvfs(state_dir.c_str(), &disk) == 0;
  const auto bytes = [&](auto blocks) { return static_cast<double>(blocks) * static_cast<double>(disk.f_frsize); };
  families.Gauge("hpvm_disk_free_bytes", "Room on the disk of server.state_dir.");
  if (is_known) {
    families.Add({}, bytes(disk.f_bavail));
  }
  families.Gauge("hpvm_disk_size_bytes", "Size of the disk of server.state_dir.");
  if (is_known) {
    families.Add({}, bytes(disk.f_blocks));
  }
}

}  // namespace hpvm::server
