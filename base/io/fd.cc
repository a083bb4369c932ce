// SPDX-License-Identifier: Apache-2.0
#include "base/io/fd.h"

#include <unistd.h>

namespace hpvm {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) {
    close(fd_);
  }
  fd_ = fd;
}

}  // namespace hpvm
