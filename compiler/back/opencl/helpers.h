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

// The part of a program in front of its kernels.
class Helpers {
 public:
  // Makes the function of that name in helpers.cl available, with those it calls.
  void Need(std::string_view name);
  // Adds a function, or whatever text, under a name unless it is there.
  void Add(const std::string& name, const std::string& text);
  // Constant bytes at program scope; the array's name. Equal bytes share one. A multiple of 8 of them.
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
