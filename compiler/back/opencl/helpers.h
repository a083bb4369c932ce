// SPDX-License-Identifier: Apache-2.0
// Functions of OpenCL C that kernels call, written into the program once and only if needed.
#ifndef HPVMD_COMPILER_BACK_OPENCL_HELPERS_H_
#define HPVMD_COMPILER_BACK_OPENCL_HELPERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hpvm::opencl {

// Helpers collects the part of a program that precedes its kernels.
class Helpers {
 public:
  // Makes the function of that name in helpers.cl available, with the functions it calls.
  void Need(std::string_view name);
  // Adds a function or other text under a name, unless the name exists.
  void Add(const std::string& name, const std::string& text);
  // Declares constant bytes at program scope, a multiple of 8, and returns the array's name. Equal bytes share an
  // array.
  std::string Constant(const std::vector<uint8_t>& bytes);
  bool uses_fp64 = false, uses_int64_atomics = false;

  std::string Text() const;

 private:
  std::map<std::string, bool, std::less<>> known_;
  std::map<std::vector<uint8_t>, std::string> constants_;
  std::string constant_text_, text_;
};

}  // namespace hpvm::opencl

#endif  // HPVMD_COMPILER_BACK_OPENCL_HELPERS_H_
