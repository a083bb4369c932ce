// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_SERVER_JOBS_TESTING_TEMPORARY_FOLDER_H_
#define HPVMD_SERVER_JOBS_TESTING_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace hpvm::server {

// TemporaryFolder is removed at the end of its scope.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& parent = "/tmp") : path_(parent + "/hpvm-jobs-XXXXXX") {
    mkdtemp(path_.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_JOBS_TESTING_TEMPORARY_FOLDER_H_
