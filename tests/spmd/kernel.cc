// SPDX-License-Identifier: Apache-2.0
#include "tests/spmd/kernel.h"

#include <bit>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <utility>

#include "compiler/ir/text/text.h"
#include "compiler/ir/walk.h"
#include "tests/diff/random.h"

namespace hpvm::spmd {
namespace {

using diff::Random;

uint32_t RandomInteger(Random& random) {
  static constexpr uint32_t kEdges[] = {0,          1,          2,    3,   0xffffffff, 0xfffffffe, 0x7fffffff,
                                        0x80000000, 0x80000001, 0xff, 128, 0x8000,     0xffff,     0x10000};
  switch (random.Below(4)) {
    case 0:
      return kEdges[random.Below(std::size(kEdges))];
    case 1:
      return static_cast<uint32_t>(random.Next());
    default:
      return random.Below(64);
  }
}

double RandomFloat(Random& random) {
  static constexpr double kEdges[] = {0.0,   -0.0,     0.5,          -0.5,         1.5,           2.5,
                                      1e-40, 4.9e-324, 1e38,         -1e9,         1e10,          1e19,
                                      1e300, -1e38,    2147483647.0, 2147483648.0, -2147483649.0, 9.3e18};
  switch (random.Below(4)) {
    case 0:
      return kEdges[random.Below(std::size(kEdges))];
    case 1:
      return static_cast<double>(static_cast<int32_t>(random.Next())) / 1024.0;
    default:
      return static_cast<double>(random.Below(32)) * 0.25 - 2.0;
  }
}

uint32_t RandomF32(Random& random) {
  if (random.Percent(4)) {
    static constexpr uint32_t kSpecial[] = {0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0x7f800001, 0xffc12345};
    return kSpecial[random.Below(std::size(kSpecial))];
  }
  const double value = RandomFloat(random);
  return std::bit_cast<uint32_t>(static_cast<float>(value > 3e38 || value < -3e38 ? 3.0 : value));
}

uint64_t RandomF64(Random& random) {
  if (random.Percent(4)) {
    static constexpr uint64_t kSpecial[] = {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000000,
                                            0xfff0000000000000, 0x7ff0000000000001};
    return kSpecial[random.Below(std::size(kSpecial))];
  }
  return std::bit_cast<uint64_t>(RandomFloat(random));
}

uint32_t Word32(Binding::Fill fill, Random& random) {
  switch (fill) {
    case Binding::Fill::kIntegers:
      return RandomInteger(random);
    case Binding::Fill::kF32:
      return RandomF32(random);
    default:
      return 0;
  }
}

constexpr std::pair<Binding::Fill, const char*> kFillNames[] = {{Binding::Fill::kZero, "zero"},
                                                                {Binding::Fill::kIntegers, "integers"},
                                                                {Binding::Fill::kF32, "f32"},
                                                                {Binding::Fill::kF64, "f64"},
                                                                {Binding::Fill::kPermutation, "permutation"}};

std::string NameOf(Binding::Fill fill) {
  for (const auto& [value, name] : kFillNames) {
    if (value == fill) {
      return name;
    }
  }
  return "?";
}

// Parses "binding 3 bytes 640 fill f32 seed 17 float 4 scalar 0"
bool ReadBinding(std::istringstream& line, Kernel& kernel) {
  size_t index = 0;
  std::string word, fill;
  Binding binding;
  if (!(line >> index >> word >> binding.bytes >> word >> fill >> word >> binding.seed >> word >> binding.float_bytes >>
        word >> binding.scalar) ||
      index != kernel.bindings.size()) {
    return false;
  }
  for (const auto& [value, name] : kFillNames) {
    if (fill == name) {
      binding.fill = value;
      kernel.bindings.push_back(binding);
      return true;
    }
  }
  return false;
}

bool ReadTriple(std::istringstream& line, std::array<uint64_t, 3>& triple) {
  return static_cast<bool>(line >> triple[0] >> triple[1] >> triple[2]);
}

}  // namespace

std::vector<uint64_t> Content(const Binding& binding) {
  Random random(binding.seed);
  std::vector<uint64_t> words((binding.bytes + 7) / 8);
  const size_t halves = binding.bytes / 4;
  if (binding.fill == Binding::Fill::kPermutation) {
    std::vector<uint32_t> order(halves);
    for (uint32_t i = 0; i < halves; ++i) {
      const uint32_t place = random.Below(i + 1);
      order[i] = order[place];
      order[place] = i;
    }
    if (halves != 0) {
      std::memcpy(words.data(), order.data(), halves * 4);
    }
    return words;
  }
  for (uint64_t& word : words) {
    if (binding.fill == Binding::Fill::kF64) {
      word = RandomF64(random);
    } else {
      const uint64_t low = Word32(binding.fill, random);
      word = low | uint64_t{Word32(binding.fill, random)} << 32;
    }
  }
  return words;
}

uint64_t CountOps(const ir::Module& module) {
  uint64_t count = 0;
  for (const ir::Function& function : module.functions) {
    ir::ForEachOp(function, [&](ir::OpId) { ++count; });
  }
  return count;
}

std::string ToText(const Kernel& kernel) {
  std::ostringstream text;
  text << ";; seed " << kernel.seed << "\n";
  for (const auto& [name, triple] : {std::pair{"extent", kernel.extent}, std::pair{"group", kernel.group}}) {
    text << ";; " << name << " " << triple[0] << " " << triple[1] << " " << triple[2] << "\n";
  }
  for (size_t k = 0; k < kernel.bindings.size(); ++k) {
    const Binding& binding = kernel.bindings[k];
    text << ";; binding " << k << " bytes " << binding.bytes << " fill " << NameOf(binding.fill) << " seed "
         << binding.seed << " float " << binding.float_bytes << " scalar " << binding.scalar << "\n";
  }
  text << ir::Print(kernel.module);
  return text.str();
}

StatusOr<Kernel> FromText(const std::string& text) {
  Kernel kernel;
  std::istringstream lines(text);
  for (std::string whole; std::getline(lines, whole) && whole.starts_with(";;");) {
    std::istringstream line(whole.substr(2));
    std::string word;
    line >> word;
    const bool is_good = word == "seed"      ? static_cast<bool>(line >> kernel.seed)
                         : word == "extent"  ? ReadTriple(line, kernel.extent)
                         : word == "group"   ? ReadTriple(line, kernel.group)
                         : word == "binding" ? ReadBinding(line, kernel)
                                             : true;
    if (!is_good) {
      return InvalidArgument("The line \"" + whole + "\" of a kernel's launch cannot be read.");
    }
  }
  HPVMD_ASSIGN_OR_RETURN(kernel.module, ir::ParseModule(text));
  if (kernel.bindings.size() != kernel.module.params.size()) {
    return InvalidArgument("The kernel has " + std::to_string(kernel.module.params.size()) + " parameters and " +
                           std::to_string(kernel.bindings.size()) + " bindings.");
  }
  return kernel;
}

}  // namespace hpvm::spmd
