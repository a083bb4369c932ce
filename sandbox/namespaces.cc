// SPDX-License-Identifier: Apache-2.0
// Namespaces and their root folder. Every step is an attempt, because plain containers refuse them.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/io/fd.h"
#include "sandbox/sandbox.h"

namespace hpvm::sandbox {
namespace {

constexpr int kShared = CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;

Status WriteFile(const char* path, const std::string& text) {
  UniqueFd file(open(path, O_WRONLY | O_CLOEXEC));
  if (!file.valid() || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return FromErrno(errno, std::string("Writing ") + path);
  }
  return absl::OkStatus();
}

// Without privileges: enters a user namespace, in which the process has the privileges that namespaces and mounts need.
// Its user and group do not change.
Status EnterUserNamespace() {
  const std::string uid = std::to_string(getuid()), gid = std::to_string(getgid());
  if (unshare(CLONE_NEWUSER | kShared) != 0) {
    return FromErrno(errno, "unshare");
  }
  HPVMD_RETURN_IF_ERROR(WriteFile("/proc/self/setgroups", "deny"));
  HPVMD_RETURN_IF_ERROR(WriteFile("/proc/self/uid_map", uid + " " + uid + " 1"));
  return WriteFile("/proc/self/gid_map", gid + " " + gid + " 1");
}

// Folders at which the new root may be mounted until it replaces the old one; nothing below is needed then.
constexpr const char* kPlaces[] = {"/tmp", "/run", "/var", "/mnt", "/proc"};

// The new root must not cover anything that it has to show.
bool Hides(std::string_view place, std::span<const PathRule> rules) {
  return std::any_of(rules.begin(), rules.end(), [&](const PathRule& rule) {
    char real[PATH_MAX];
    return rule.path.starts_with(place) ||
           (realpath(rule.path.c_str(), real) != nullptr && std::string_view(real).starts_with(place));
  });
}

StatusOr<std::string> MountRoot(std::span<const PathRule> rules) {
  int error = ENOENT;
  for (const char* place : kPlaces) {
    if (Hides(place, rules)) {
      continue;
    }
    if (mount("hpvm-root", place, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=1m,nr_inodes=4096,mode=0755") == 0) {
      return std::string(place);
    }
    error = errno;
  }
  return FromErrno(error, "Mounting a root");
}

// Creates the folders from the root to `path`'s parent, relative to the folder `root`.
void MakeParents(int root, const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    mkdirat(root, path.substr(1, slash - 1).c_str(), 0755);  // It may exist already.
  }
}

// Binds the file or folder `real` of the old root (a path without links) under its name in the new one.
void Bind(int root, const std::string& place, const std::string& real) {
  struct stat info {};
  if (real == "/" || stat(real.c_str(), &info) != 0) {
    return;
  }
  MakeParents(root, real);
  const char* const relative = real.c_str() + 1;
  if (S_ISDIR(info.st_mode)) {
    mkdirat(root, relative, 0755);
  } else {
    UniqueFd file(openat(root, relative, O_CREAT | O_RDONLY | O_CLOEXEC, 0644));
  }
  // Paths that fail are missing in the new root: a driver then works without them, or reports what it lacks.
  mount(real.c_str(), (place + real).c_str(), nullptr, MS_BIND | MS_REC, nullptr);
}

void BindRule(int root, const std::string& place, const std::string& path) {
  char real[PATH_MAX];
  if (realpath(path.c_str(), real) == nullptr) {
    return;
  }
  Bind(root, place, real);
  if (path != real && path.size() > 1) {
    MakeParents(root, path);
    symlinkat(real, root, path.c_str() + 1);  // Fails when the name already leads there through a link to a folder.
  }
}

}  // namespace

Status LeaveNamespaces(bool may_enter_user, std::string* detail) {
  const int error = unshare(kShared) == 0 ? 0 : errno;
  const bool needs_user = error == EPERM && may_enter_user;
  const Status left = needs_user ? EnterUserNamespace() : error != 0 ? FromErrno(error, "unshare") : absl::OkStatus();
  if (left.ok()) {
    *detail +=
        std::string(", namespaces: ") + (needs_user ? "user " : "") + (getpid() == 1 ? "pid " : "") + "net ipc uts";
  }
  return left;
}

Status ReplaceRoot(std::span<const PathRule> rules) {
  if (unshare(CLONE_NEWNS) != 0) {
    return FromErrno(errno, "unshare");
  }
  // Later mounts are not visible outside, nor outside mounts here.
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
    return FromErrno(errno, "Making mounts private");
  }
  HPVMD_ASSIGN_OR_RETURN(const std::string place, MountRoot(rules));
  UniqueFd root(open(place.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (const PathRule& rule : rules) {
    BindRule(root.get(), place, rule.path);
  }
  const unsigned long flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
  if (mount(nullptr, place.c_str(), nullptr, flags, nullptr) != 0) {
    return FromErrno(errno, "Making the root read-only");
  }
  if (fchdir(root.get()) != 0 || syscall(SYS_pivot_root, ".", ".") != 0) {
    const Status status = FromErrno(errno, "pivot_root");
    umount2(place.c_str(), MNT_DETACH);
    return status;
  }
  // The old root now covers the new one.
  if (umount2(".", MNT_DETACH) != 0 || chdir("/") != 0) {
    return FromErrno(errno, "Letting go of the old root");
  }
  return absl::OkStatus();
}

}  // namespace hpvm::sandbox
