// SPDX-License-Identifier: Apache-2.0
#include "base/io/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"

namespace hpvm {

SecretFile::~SecretFile() {
  if (fd_ >= 0) {
    close(fd_);
    unlink(temporary_.c_str());
  }
}

Status SecretFile::Open() {
  struct stat facts {};
  if (!may_replace_ && lstat(path_.c_str(), &facts) == 0) {
    return AlreadyExists("The file \"" + path_ + "\" exists already.");
  }
  temporary_ = path_ + ".XXXXXX";
  fd_ = mkostemp(temporary_.data(), O_CLOEXEC);  // Mode 0600.
  return fd_ >= 0 ? absl::OkStatus() : FromErrno(errno, "Creating a file beside \"" + path_ + "\"");
}

Status SecretFile::Finish(const std::string& secret) {
  const std::string line = secret + "\n";
  if (write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size()) || fsync(fd_) != 0) {
    return FromErrno(errno, "Writing \"" + temporary_ + "\"");
  }
  // link fails when a file has appeared in the meantime; rename does not.
  if (may_replace_ ? rename(temporary_.c_str(), path_.c_str()) != 0 : link(temporary_.c_str(), path_.c_str()) != 0) {
    return FromErrno(errno, "Making \"" + path_ + "\"");
  }
  return absl::OkStatus();
}

StatusOr<std::array<uint8_t, 32>> LoadSecret(const std::string& path) {
  std::array<uint8_t, 32> secret;
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid()) {
    if (ReadAt(file.get(), 0, secret).ok()) {
      return secret;
    }
    // Truncated by a full disk: data that it protected is worthless without it, so make a new one.
    unlink(path.c_str());
  }
  SystemRng().Fill(secret);
  file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return FromErrno(errno, "Writing \"" + path + "\"");
  }
  return secret;
}

}  // namespace hpvm
