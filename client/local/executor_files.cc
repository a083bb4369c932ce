// SPDX-License-Identifier: Apache-2.0
#include "client/local/executor_files.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/io/secret_file.h"

namespace hpvm {
namespace {

namespace fs = std::filesystem;

std::string CacheFolder() {
  if (const char* cache = getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return std::string(cache) + "/hpvm";
  }
  const char* home = getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/hpvm" : std::string();
}

// Returns the folder of the library or program that contains this code; empty when the linker does not know it.
fs::path OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return {};
  }
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::path() : file.parent_path();
}

}  // namespace

StatusOr<std::string> ExecutorProgram() {
  if (const char* named = getenv("HPVM_EXECUTOR"); named != nullptr) {
    return std::string(named);
  }
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path() / "hpvm-executor";
  const fs::path packaged = OwnFolder() / "hpvm" / "hpvm-executor";
  for (const fs::path& program : {beside, packaged}) {
    if (access(program.c_str(), X_OK) == 0) {
      return program.string();
    }
  }
  return NotFound("The program hpvm-executor is neither \"" + beside.string() + "\" nor \"" + packaged.string() +
                  "\"; set HPVM_EXECUTOR to its path.");
}

std::optional<LocalCache> OpenLocalCache(std::string folder) {
  folder = folder.empty() ? CacheFolder() : std::move(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (folder.empty() || error || chmod(folder.c_str(), 0700) != 0) {
    return std::nullopt;
  }
  const StatusOr<std::array<uint8_t, 32>> key = LoadSecret(folder + "/artifact.key");
  return key.ok() ? std::optional(LocalCache{folder, *key}) : std::nullopt;
}

}  // namespace hpvm
