// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_BASE_IO_SECRET_FILE_H_
#define HPVMD_BASE_IO_SECRET_FILE_H_

#include <array>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace hpvm {

// SecretFile writes a file for a secret: it is created readable by its owner alone before the secret exists, and
// appears under its name only when complete. Used by one thread.
class SecretFile {
 public:
  SecretFile(std::string path, bool may_replace) : path_(std::move(path)), may_replace_(may_replace) {}
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  // Returns kAlreadyExists when the file exists and may not be replaced.
  Status Open();
  // Writes the secret with a line end; the bytes are on disk when it returns.
  Status Finish(const std::string& secret);

 private:
  const std::string path_;
  const bool may_replace_;
  std::string temporary_;
  int fd_ = -1;
};

// Returns the 32 random bytes in the file; the first call creates the file, readable by its owner alone.
StatusOr<std::array<uint8_t, 32>> LoadSecret(const std::string& path);

}  // namespace hpvm

#endif  // HPVMD_BASE_IO_SECRET_FILE_H_
