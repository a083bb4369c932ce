// SPDX-License-Identifier: Apache-2.0
// Kernels that count: nested loops from constants or an outer loop's counter to another, in steps of either sign,
// also near the ends of their type (compiler/analysis/loop_ranges.h).
#include <string>

#include "base/status.h"
#include "compiler/ir/text/text.h"
#include "tests/diff/random.h"
#include "tests/spmd/generate.h"

namespace hpvm::spmd {
namespace {

class LoopsGenerator {
 public:
  explicit LoopsGenerator(uint64_t seed) : random_(seed), seed_(seed) {}

  Kernel Generate() && {
    type_ = random_.Percent(70) ? "i32" : "i64";
    const std::string zero = "%zero: i32 = const.i32 0\n";
    sum_ = Constant(1);
    const std::string sum = Loop(random_.Between(1, 3), "");
    StatusOr<ir::Module> module =
        ir::ParseModule("module \"loops\"\nparam buffer inout \"d\"\nentry f0\nfunc f0 \"loops\" (%d: i32) -> () {\n" +
                        zero + body_ + "store." + type_ + " param(0) %zero, " + sum + "\nreturn ()\n}\n");
    HPVMD_CHECK(module.ok());
    Kernel kernel;
    kernel.seed = seed_;
    kernel.module = *std::move(module);
    Binding binding;
    binding.bytes = 8;
    kernel.bindings.push_back(binding);
    return kernel;
  }

 private:
  void Line(const std::string& line) { body_ += line + "\n"; }
  std::string Fresh() { return "%t" + std::to_string(fresh_++); }
  std::string Defined(const std::string& expression) {
    const std::string name = Fresh();
    Line(name + ": " + type_ + " = " + expression);
    return name;
  }
  std::string Constant(int64_t value) { return Defined("const." + type_ + " " + std::to_string(value)); }
  // Most often near the previous number.
  int64_t Number() {
    const int64_t top = type_ == "i32" ? 0x7fffffff : 0x7fffffffffffffff;
    near_ = random_.Percent(60) ? near_ : random_.Below(8);
    switch (near_) {
      case 0:
        return top - random_.Below(5);
      case 1:
        return -top - 1 + random_.Below(5);
      case 2:
        return -static_cast<int64_t>(random_.Below(20));
      default:
        return random_.Below(20);
    }
  }
  // A constant, or one more or less than the outer loop's counter.
  std::string From(const std::string& outer) {
    const std::string constant = Constant(Number());
    return outer.empty() || random_.Percent(50) ? constant : Defined("add." + type_ + " " + outer + ", " + constant);
  }

  std::string Loop(uint32_t depth, const std::string& outer) {
    static constexpr const char* kTests[] = {"ne", "lt_s", "lt_u", "le_s", "le_u", "gt_s", "gt_u", "ge_s", "ge_u"};
    const std::string label = "l" + std::to_string(fresh_++), result = Fresh(), i = Fresh(), p = Fresh(), s = Fresh();
    const std::string begin = From(outer), other = From(outer), bound = From(outer), before = sum_;
    const auto sizes = [&] { return int64_t{1} << random_.Below(4); };
    const std::string step = Constant(random_.Percent(50) ? sizes() : -sizes());
    const std::string other_step = Constant(random_.Percent(50) ? random_.Below(40) : -sizes());
    const std::string typed = ": " + type_ + " = ";
    Line(result + typed + "loop " + label + " (" + i + typed + begin + ", " + p + typed + other + ", " + s + typed +
         before + ") {");
    const std::string product = Defined("mul." + type_ + " " + i + ", " + p);
    sum_ = Defined("add." + type_ + " " + s + ", " + product);
    if (depth > 1) {
      sum_ = Loop(depth - 1, i);
    }
    const std::string next = Defined("add." + type_ + " " + i + ", " + step);
    const std::string later = Defined("add." + type_ + " " + p + ", " + other_step);
    const std::string tested = random_.Percent(60) ? next : random_.Percent(60) ? i : later;
    const std::string on = Fresh(), branch = "b" + std::to_string(fresh_++);
    const bool is_swapped = random_.Percent(30);
    Line(on + ": i32 = " + kTests[random_.Below(9)] + "." + type_ + " " + (is_swapped ? bound : tested) + ", " +
         (is_swapped ? tested : bound));
    Line("if " + branch + " " + on + " {\ncontinue " + label + " (" + next + ", " + later + ", " + sum_ +
         ")\n} else {\nbr " + branch + " ()\n}\nbr " + label + " (" + sum_ + ")\n}");
    sum_ = before;
    return result;
  }

  diff::Random random_;
  const uint64_t seed_;
  uint32_t fresh_ = 0, near_ = 7;
  std::string type_, body_, sum_;
};

}  // namespace

Kernel GenerateLoops(uint64_t seed) { return LoopsGenerator(seed).Generate(); }

}  // namespace hpvm::spmd
