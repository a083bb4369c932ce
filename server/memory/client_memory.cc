// SPDX-License-Identifier: Apache-2.0
#include "server/memory/client_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace hpvm::server {

StatusOr<ClientMemory> CheckClientMemory(int fd) {
  const int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
  struct statfs where {};
  if (fstatfs(fd, &where) != 0 || where.f_type != TMPFS_MAGIC || mode == O_WRONLY) {
    return InvalidArgument(
        "The descriptor is not shared memory in ordinary pages that can be read (memfd_create without MFD_HUGETLB).");
  }
  constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return InvalidArgument("The shared memory's size is not sealed: it needs F_SEAL_SHRINK and F_SEAL_GROW.");
  }
  // Seals the seals: only the contents can change afterwards. Fails when they were sealed before, or the descriptor
  // is read-only.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
  seals = fcntl(fd, F_GET_SEALS);
  if ((seals & F_SEAL_SEAL) == 0 && mode != O_RDONLY) {
    return InvalidArgument("The shared memory's seals cannot be sealed (F_SEAL_SEAL).");
  }
  const off_t bytes = lseek(fd, 0, SEEK_END);
  if (bytes <= 0) {
    return InvalidArgument("The shared memory has no bytes.");
  }
  return ClientMemory{.bytes = static_cast<uint64_t>(bytes),
                      .read_only = mode == O_RDONLY || (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0};
}

}  // namespace hpvm::server
