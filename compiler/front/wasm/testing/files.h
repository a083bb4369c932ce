// SPDX-License-Identifier: Apache-2.0
#ifndef HPVMD_COMPILER_FRONT_WASM_TESTING_FILES_H_
#define HPVMD_COMPILER_FRONT_WASM_TESTING_FILES_H_

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace hpvm::wasm {

// Returns the file's bytes; empty when it cannot be read, which no test takes for a module.
inline std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::string ReadText(const std::string& path) {
  const std::vector<uint8_t> bytes = ReadBytes(path);
  return {bytes.begin(), bytes.end()};
}

}  // namespace hpvm::wasm

#endif  // HPVMD_COMPILER_FRONT_WASM_TESTING_FILES_H_
