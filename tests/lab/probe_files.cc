// SPDX-License-Identifier: Apache-2.0
// Files, folders, devices, /proc, and inherited resources of the process.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/io/fd.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

constexpr size_t kReportBytes = 4096;

std::string Printable(const char* data, size_t size) {
  std::string text(data, size);
  std::replace_if(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '.');
  return text;
}

std::string ReadSome(int fd, off_t offset) {
  std::vector<char> bytes(kReportBytes);
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), offset);
  return got < 0 ? Refused() : Took(Printable(bytes.data(), static_cast<size_t>(got)));
}

// path, offset. With the old call and the new one: filters have forgotten one of them before.
std::string Read(Task& task) {
  const std::string path = task.Text("path");
  UniqueFd file(static_cast<int>(syscall(SYS_open, path.c_str(), O_RDONLY, 0)));
  if (!file.valid()) {
    file.reset(open(path.c_str(), O_RDONLY));
  }
  return file.valid() ? ReadSome(file.get(), task.Number("offset")) : Refused();
}

std::string Write(Task& task) {
  UniqueFd file(open(task.Text("path").c_str(), O_WRONLY | O_APPEND));
  return Outcome(file.valid() ? 0 : -1);
}

std::string Create(Task& task) {
  UniqueFd file(open(task.Text("path").c_str(), O_WRONLY | O_CREAT, 0666));
  return Outcome(file.valid() ? 0 : -1);
}

std::string List(Task& task) {
  UniqueFd folder(open(task.Text("path").c_str(), O_RDONLY | O_DIRECTORY));
  if (!folder.valid()) {
    return Refused();
  }
  std::vector<char> entries(kReportBytes);
  const long got = syscall(SYS_getdents64, folder.get(), entries.data(), entries.size());
  return got < 0 ? Refused() : Took(Printable(entries.data(), static_cast<size_t>(got)));
}

// Descriptor by descriptor: a neighbour's memfds, the daemon's database.
std::string ReadDescriptorsOf(Task& task) {
  std::string all;
  for (int fd = 0; fd < 128; ++fd) {
    const std::string path = "/proc/" + task.Text("pid") + "/fd/" + std::to_string(fd);
    UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK));
    if (file.valid()) {
      all += path + " " + ReadSome(file.get(), 0).substr(0, 200) + " ";
    }
  }
  return all.empty() ? Refused() : Took(all);
}

std::string Stat(Task& task) {
  struct stat info;
  return Outcome(stat(task.Text("path").c_str(), &info));
}

std::string Link(Task& task) {
  const std::string to = task.Text("path") + ".lab-link";
  long made = symlink(task.Text("path").c_str(), to.c_str());
  made = made == 0 ? made : link(task.Text("path").c_str(), to.c_str());
  if (made == 0) {
    unlink(to.c_str());
  }
  return Outcome(made);
}

// A file of the lab's own: at levels that do not forbid it, it is removed.
std::string Remove(Task& task) { return Outcome(unlink(task.Text("path").c_str())); }
std::string Rename(Task& task) {
  return Outcome(rename(task.Text("path").c_str(), (task.Text("path") + ".moved").c_str()));
}
std::string MakeFolder(Task& task) { return Outcome(mkdir(task.Text("path").c_str(), 0777)); }
std::string MakeNode(Task& task) { return Outcome(mknod(task.Text("path").c_str(), S_IFIFO | 0666, 0)); }
std::string ChangeMode(Task& task) { return Outcome(chmod(task.Text("path").c_str(), 0777)); }
std::string Watch(Task& task) {
  UniqueFd watch(inotify_init1(IN_CLOEXEC));
  return Outcome(watch.valid() ? inotify_add_watch(watch.get(), task.Text("path").c_str(), IN_ALL_EVENTS) : -1);
}

// Descriptors open from the start, besides the sockets and standard streams: folders and files of the daemon.
std::string Inherited(Task&) {
  std::string found;
  for (int fd = 0; fd < 1024; ++fd) {
    // Sockets do not seek, memfds do; a folder or a file of the daemon's does and can be read.
    struct stat info;
    const long known = syscall(SYS_fstat, fd, &info);
    const bool is_file = known == 0 && (S_ISREG(info.st_mode) || S_ISDIR(info.st_mode)) && info.st_nlink > 0;
    if (is_file) {
      found += std::to_string(fd) + " ";
    }
  }
  errno = ENOENT;
  return found.empty() ? Refused() : Took(found);
}

// Tries each descriptor, upwards: an open folder is a way out of any root.
std::string OpenAt(Task& task) {
  for (int fd = 0; fd < 256; ++fd) {
    UniqueFd file(openat(fd, "../../../../../../../etc/passwd", O_RDONLY));
    if (file.valid()) {
      return Took("by descriptor " + std::to_string(fd));
    }
  }
  UniqueFd file(openat(AT_FDCWD, "../../../../../../../etc/passwd", O_RDONLY));
  return Outcome(file.valid() ? 0 : -1);
}

// This file allows writes to a library's code, whatever the page permissions.
std::string OwnMemory(Task&) {
  UniqueFd file(open("/proc/self/mem", O_RDWR));
  return Outcome(file.valid() ? 0 : -1);
}

constexpr NamedProbe kProbes[] = {
    {"read", Read},           {"write", Write},          {"create", Create},        {"list", List},
    {"stat", Stat},           {"link", Link},            {"remove", Remove},        {"rename", Rename},
    {"mkdir", MakeFolder},    {"mknod", MakeNode},       {"chmod", ChangeMode},     {"inotify", Watch},
    {"fds_of", ReadDescriptorsOf}, {"inherited", Inherited}, {"openat", OpenAt}, {"own_mem", OwnMemory},
};

}  // namespace

std::span<const NamedProbe> FileProbes() { return kProbes; }

}  // namespace hpvm::lab
