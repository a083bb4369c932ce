// SPDX-License-Identifier: Apache-2.0
// Makes a copy of a program or library that caches take for another build of it.
#ifndef HPVMD_BASE_TESTING_ANOTHER_BUILD_H_
#define HPVMD_BASE_TESTING_ANOTHER_BUILD_H_

#include <filesystem>
#include <fstream>
#include <string>

namespace hpvm {

// Copies `from` to `to` with one bit of its build id note flipped. Returns false when there is no such note, or copying
// failed.
inline bool CopyAsAnotherBuild(const std::filesystem::path& from, const std::filesystem::path& to) {
  // The note has a name of 4 bytes, a SHA-1 of 20 bytes, and type 3.
  constexpr char kNote[] = "\4\0\0\0\x14\0\0\0\3\0\0\0GNU";
  std::string bytes(std::filesystem::file_size(from), 0);
  std::ifstream(from, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const size_t at = bytes.find(std::string(kNote, sizeof(kNote)));
  if (at == std::string::npos) {
    return false;
  }
  bytes[at + sizeof(kNote)] ^= 1;
  std::ofstream(to, std::ios::binary) << bytes;
  std::filesystem::permissions(to, std::filesystem::perms::owner_all);
  return std::filesystem::file_size(to) == bytes.size();
}

}  // namespace hpvm

#endif  // HPVMD_BASE_TESTING_ANOTHER_BUILD_H_
