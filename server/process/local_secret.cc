// SPDX-License-Identifier: Apache-2.0
#include "server/process/local_secret.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io/fd.h"

namespace hpvm::server {

StatusOr<std::array<uint8_t, 32>> LoadSecret(const std::string& folder) {
  const std::string path = folder + "/artifact.key";
  std::array<uint8_t, 32> secret;
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (file.valid()) {
    if (read(file.get(), secret.data(), secret.size()) == static_cast<ssize_t>(secret.size())) {
      return secret;
    }
    // Cut short by a full disk: the cache is worthless without its key, so make a new one.
    unlink(path.c_str());
  }
  for (size_t i = 0; i < secret.size(); i += 8) {
    const uint64_t word = SystemRng().Next();
    __builtin_memcpy(&secret[i], &word, 8);
  }
  file.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() || write(file.get(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    return FromErrno(errno, "Writing \"" + path + "\"");
  }
  return secret;
}

}  // namespace hpvm::server
