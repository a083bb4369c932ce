// SPDX-License-Identifier: Apache-2.0
// Kernels for tests of what compilers know of accesses: from a body's text, and random ones.
#ifndef HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_
#define HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"

namespace hpvm {

// A kernel with a buffer %b and scalars %n and %m; the ids are %x and %y, constants are %c0 to %c9, %ones (-1) and
// %fours (-4).
ir::Module BoundsKernel(const std::string& body, bool is_separate = false);

struct KernelLaunch {
  std::array<uint64_t, 3> extent{1, 1, 1};
  uint64_t bytes = 0;
  uint32_t n = 0, m = 0;
};

// Random kernels: arithmetic, branches, loops and stores over few small or extreme values.
class KernelGenerator {
 public:
  explicit KernelGenerator(uint32_t seed) : random_(seed) {}

  std::string Body() {
    values_ = {"x", "y", "n", "m", "c0", "c1", "c2", "c3", "c5"};
    group_.clear();
    std::string text;
    for (uint32_t i = 0, count = Chance(3) ? 1 + Below(2) : 0; i < count; ++i) {
      GroupMemory(&text);
    }
    Statements(2, 3, &text);
    return text;
  }
  KernelLaunch Facts() {
    constexpr uint32_t kExtreme[] = {0xffffffffu, 0x80000000u, 0x7fffffffu, 0x40000000u, 0xfffffffeu};
    const auto scalar = [&] { return Chance(6) ? kExtreme[Below(5)] : Below(9); };
    return {{1 + Below(5), 1 + Below(3), 1}, 4 * (1 + Below(40)), scalar(), scalar()};
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool Chance(uint32_t n) { return Below(n) == 0; }
  std::string Pick() {
    return "%" + values_[Chance(3) ? Below(static_cast<uint32_t>(values_.size()))
                                   : values_.size() - 1 - Below(std::min<uint32_t>(4, values_.size()))];
  }
  std::string Name() { return "v" + std::to_string(++names_); }

  std::string Compare(std::string* text) {
    constexpr const char* kCompares[] = {"lt_u", "lt_s", "gt_u", "gt_s", "le_u", "le_s", "ge_u", "ge_s", "ne", "eq"};
    const std::string name = Name();
    *text += " %" + name + ": i32 = " + kCompares[Below(10)] + ".i32 " + Pick() + ", " + Pick() + "\n";
    return "%" + name;
  }

  void Let(std::string* text) {
    constexpr const char* kOps[] = {"add", "add", "sub", "mul", "shl", "shr_u", "shr_s", "and", "or", "rem_u", "div_u"};
    const std::string name = Name();
    const std::string op = kOps[Below(11)];
    const bool divides = op == "rem_u" || op == "div_u";
    const std::string right = divides ? "%c3" : op == "shl" || op == "shr_u" ? "%c" + std::to_string(Below(4)) : Pick();
    *text += " %" + name + ": i32 = " + op + ".i32 " + Pick() + ", " + right + "\n";
    values_.push_back(name);
  }

  // Sums and multiples as LLVM writes them.
  void Bits(std::string* text) {
    const std::string shifted = Name(), name = Name();
    *text += " %" + shifted + ": i32 = " + (Chance(3) ? "mul" : "shl") + ".i32 " + Pick() + ", %c" +
             std::to_string(1 + Below(4)) + "\n %" + name + ": i32 = ";
    constexpr const char* kOps[] = {"or", "xor", "and", "xor", "and"};
    const uint32_t kind = Below(5);
    *text += std::string(kOps[kind]) + ".i32 %" + shifted + ", " +
             (kind < 3    ? "%c" + std::to_string(Below(8))
              : kind == 3 ? "%ones"
                          : "%fours") +
             "\n";
    values_.push_back(name);
  }

  // A value that nothing is known of, perhaps masked.
  void Load(std::string* text) {
    const std::string name = Name(), masked = Name();
    *text +=
        " %" + name + ": i32 = shl.i32 " + Pick() + ", %c2\n %" + masked + ": i32 = load.i32 param(0) %" + name + "\n";
    values_.push_back(masked);
  }

  void GroupMemory(std::string* text) {
    const std::string bytes = Name(), name = Name();
    *text += " %" + bytes + ": i32 = const.i32 " + std::to_string(4 + Below(60)) + "\n %" + name +
             ": i32 = local_alloc %" + bytes + "\n";
    group_.push_back(name);
  }

  void StoreToGroup(std::string* text) {
    const std::string offset = Name(), name = Name();
    *text += " %" + offset + ": i32 = shl.i32 " + Pick() + ", %c2\n %" + name + ": i32 = add.i32 %" +
             group_[Below(static_cast<uint32_t>(group_.size()))] + ", %" + offset + "\n store.i32 group %" + name +
             (Chance(3) ? " + 4" : "") + ", %x\n";
  }

  void Store(std::string* text) {
    if (!group_.empty() && Chance(2)) {
      return StoreToGroup(text);
    }
    const std::string name = Name();
    *text += " %" + name + ": i32 = shl.i32 " + Pick() + ", %c2\n store.i32 param(0) %" + name +
             (Chance(2) ? " + 4" : "") + ", %x\n";
  }

  void If(int depth, std::string* text) {
    const std::string condition = Compare(text), label = Name();
    const std::string inside = Chance(3) ? " return ()\n" : "";
    *text += " if " + label + " " + condition + " {\n";
    const size_t count = values_.size();
    Statements(depth - 1, 2, text);
    values_.resize(count);
    *text += (inside.empty() ? " leave " + label + " ()\n" : inside) + "} else {\n";
    Statements(depth - 1, 1, text);
    values_.resize(count);
    *text += " leave " + label + " ()\n}\n";
  }

  void Merge(std::string* text) {
    const std::string condition = Compare(text), label = Name(), name = Name();
    *text += " %" + name + ": i32 = if " + label + " " + condition + " {\n leave " + label + " (" + Pick() +
             ")\n} else {\n leave " + label + " (" + Pick() + ")\n}\n";
    values_.push_back(name);
  }

  void Loop(int depth, std::string* text) {
    const std::string label = Name(), i = Name(), j = Name(), next = Name(), next_j = Name(), exit = Name();
    *text += " loop " + label + " (%" + i + ": i32 = " + Pick() + ", %" + j + ": i32 = " + Pick() + ") {\n";
    const size_t count = values_.size();
    values_.push_back(i);
    values_.push_back(j);
    Statements(depth - 1, 2, text);
    *text += " %" + next + ": i32 = " + (Chance(4) ? "sub" : "add") + ".i32 %" + i + ", %c" +
             std::to_string(1 + Below(3)) + "\n %" + next_j + ": i32 = add.i32 %" + j + ", " +
             (Chance(2) ? "%n" : "%c4") + "\n";
    values_.push_back(next);
    if (Chance(4)) {  // A second edge back.
      const std::string early = Compare(text), way = Name();
      *text += " if " + way + " " + early + " {\n continue " + label + " (%" + next + ", %" + next_j +
               ")\n} else {\n leave " + way + " ()\n}\n";
    }
    const std::string condition = Compare(text);
    *text += " if " + exit + " " + condition + " {\n continue " + label + " (%" + next + ", %" + next_j +
             ")\n} else {\n leave " + exit + " ()\n}\n leave " + label + " ()\n}\n";
    values_.resize(count);
  }

  void Statements(int depth, int count, std::string* text) {
    const size_t group_count = group_.size();
    if (!group_.empty() && depth < 2 && Chance(12)) {
      GroupMemory(text);
    }
    for (int i = 0; i < count; ++i) {
      const uint32_t kind = Below(depth > 0 ? 11 : 6);
      kind < 2    ? Let(text)
      : kind == 2 ? Store(text)
      : kind == 3 ? Merge(text)
      : kind == 4 ? Bits(text)
      : kind == 5 ? (Chance(3) ? Load(text) : Let(text))
      : kind < 8  ? If(depth, text)
                  : Loop(depth, text);
    }
    Store(text);
    group_.resize(group_count);
  }

  std::mt19937 random_;
  std::vector<std::string> values_, group_;
  int names_ = 0;
};

}  // namespace hpvm

#endif  // HPVMD_COMPILER_PASS_TESTING_RANDOM_KERNEL_H_
