// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/testing/random_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/ir/text/text.h"
#include "compiler/ir/verify/verify.h"

namespace hpvm::pass::testing {

ir::Module BoundsKernel(const std::string& body, bool is_separate) {
  const bool has_group = body.find("local_alloc") != std::string::npos;
  std::string text = "module \"m\"\n" + std::string(has_group ? "uses group_memory\n" : "") +
                     (is_separate ? "uses separate_buffers\n" : "") +
                     "param buffer inout \"b\"\nparam i32 \"n\"\nparam i32 \"m\"\nentry f0\n"
                     "func f0 \"k\" (%b: i32, %n: i32, %m: i32) -> () {\n";
  for (int i = 0; i < 10; ++i) {
    text += " %c" + std::to_string(i) + ": i32 = const.i32 " + std::to_string(i) + "\n";
  }
  text += " %ones: i32 = const.i32 -1\n %fours: i32 = const.i32 -4\n";
  text += " %x: i32 = instance_id.i32 %c0\n %y: i32 = instance_id.i32 %c1\n" + body + " return ()\n}\n";
  StatusOr<ir::Module> module = ir::ParseModule(text);
  EXPECT_TRUE(module.ok()) << module.status() << "\n" << text;
  EXPECT_TRUE(ir::Verify(*module).empty()) << ToString(ir::Verify(*module)) << text;
  return *module;
}

std::string NoisyValues(uint32_t count, const std::string& name) {
  std::string text, last = "x";
  for (uint32_t i = 0; i < count; ++i) {
    const std::string next = name + std::to_string(i);
    text += " %" + next + ": i32 = and.i32 %" + last + ", %" + (i % 2 == 0 ? "n" : "m") + "\n";
    last = next;
  }
  return text;
}

std::string KernelGenerator::Body() {
  values_ = {"x", "y", "n", "m", "c0", "c1", "c2", "c3", "c5"};
  wides_ = {"w0"};
  group_.clear();
  std::string text = " %w0: i64 = extend_u.i32 %n\n";
  for (uint32_t i = 0, count = Chance(3) ? 1 + Below(2) : 0; i < count; ++i) {
    GroupMemory(&text);
  }
  if (Chance(8)) {
    text += NoisyValues(200 + Below(150), "noise");
    values_.push_back("noise" + std::to_string(Below(200)));
  }
  if (scales_) {
    ScaledLoop(2, &text);
  }
  Statements(2, 3, &text);
  return text;
}

KernelLaunch KernelGenerator::Facts() {
  constexpr uint32_t kExtreme[] = {0xffffffffu, 0x80000000u, 0x7fffffffu, 0x40000000u, 0xfffffffeu};
  const auto scalar = [&] { return Chance(6) ? kExtreme[Below(5)] : Below(9); };
  return {{1 + Below(5), 1 + Below(3), 1}, 4 * (1 + Below(40)), scalar(), scalar()};
}

std::string KernelGenerator::PickOf(const std::vector<std::string>& values) {
  const auto count = static_cast<uint32_t>(values.size());
  return "%" + values[Chance(3) ? Below(count) : count - 1 - Below(std::min<uint32_t>(4, count))];
}

uint64_t KernelGenerator::Word() {
  const uint64_t power = uint64_t{1} << Below(64);
  switch (Below(6)) {
    case 0:
      return Below(9);
    case 1:
      return power;
    case 2:
      return power - 1;
    case 3:
      return ~uint64_t{0} - Below(3);
    default:
      return uint64_t{random_()} << 32 | random_();
  }
}

std::string KernelGenerator::Compare(std::string* text) {
  constexpr const char* kCompares[] = {"lt_u", "lt_s", "gt_u", "gt_s", "le_u", "le_s", "ge_u", "ge_s", "ne", "eq"};
  const std::string name = Name(), code = kCompares[Below(10)];
  const bool is_wide = Chance(4);
  const std::string left = is_wide ? PickWide() : Pick(), right = is_wide ? PickWide() : Pick();
  *text += " %" + name + ": i32 = " + code + (is_wide ? ".i64 " : ".i32 ") + left + ", " + right + "\n";
  return "%" + name;
}

void KernelGenerator::Let(std::string* text) {
  constexpr const char* kOps[] = {"add", "add", "sub", "mul", "shl", "shr_u", "shr_s", "and", "or", "rem_u", "div_u"};
  const std::string name = Name();
  const std::string op = kOps[Below(11)];
  const bool divides = op == "rem_u" || op == "div_u";
  const std::string right = divides ? "%c3" : op == "shl" || op == "shr_u" ? "%c" + std::to_string(Below(4)) : Pick();
  *text += " %" + name + ": i32 = " + op + ".i32 " + Pick() + ", " + right + "\n";
  values_.push_back(name);
}

// Writes sums and multiples in the forms that LLVM uses.
void KernelGenerator::Bits(std::string* text) {
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

// Writes a load, whose value is unknown to the analysis.
void KernelGenerator::Load(std::string* text) {
  const std::string name = Name(), masked = Name();
  *text +=
      " %" + name + ": i32 = shl.i32 " + Pick() + ", %c2\n %" + masked + ": i32 = load.i32 param(0) %" + name + "\n";
  values_.push_back(masked);
}

std::string KernelGenerator::WideConstant(uint64_t value, std::string* text) {
  const std::string name = Name();
  *text += " %" + name + ": i64 = const.i64 " + std::to_string(static_cast<int64_t>(value)) + "\n";
  return "%" + name;
}

void KernelGenerator::LetWide(std::string* text) {
  constexpr const char* kOps[] = {"add", "sub", "mul", "mul",   "shl",   "shr_u", "shr_s",
                                  "and", "or",  "xor", "div_u", "div_s", "rem_u", "rem_s"};
  constexpr const char* kUnary[] = {"extend8_s", "extend16_s", "extend32_s"};
  const std::string op = kOps[Below(14)], left = PickWide();
  const bool needs_constant = op.starts_with("div") || op.starts_with("rem") || op.starts_with("sh");
  std::string right = PickWide();
  if (needs_constant || Chance(4)) {
    right = WideConstant(op.starts_with("sh") ? Below(64) : Chance(2) ? 1 + Below(40) : Word() | 1, text);
  }
  const std::string name = Name();
  *text += " %" + name + ": i64 = ";
  *text +=
      Chance(8) ? std::string(kUnary[Below(3)]) + ".i64 " + left + "\n" : op + ".i64 " + left + ", " + right + "\n";
  wides_.push_back(name);
}

// Writes a 64-bit value that comes from a 32-bit value or from memory.
void KernelGenerator::LoadWide(std::string* text) {
  if (Chance(2)) {
    constexpr int kWidths[] = {1, 2, 2, 4, 8};
    wides_.push_back(NarrowLoad(kWidths[Below(5)], text));
    return;
  }
  const std::string name = Name();
  *text += " %" + name + ": i64 = " + (Chance(2) ? "extend_u" : "extend_s") + ".i32 " + Pick() + "\n";
  wides_.push_back(name);
}

std::string KernelGenerator::NarrowLoad(int width, std::string* text) {
  const std::string name = Name();
  *text += " %" + name + ": i64 = load.i64 " + (width == 8 ? "" : "w" + std::to_string(width) + " ") +
           (width < 8 && Chance(3) ? "signed " : "") + "param(0) %c" + std::to_string(Below(6)) + "\n";
  return name;
}

void KernelGenerator::Narrow(std::string* text) {
  const std::string name = Name();
  *text += " %" + name + ": i32 = wrap.i64 " + PickWide() + "\n";
  values_.push_back(name);
}

std::string KernelGenerator::Power(const std::string& base, int degree, std::string* text) {
  std::string power = base;
  for (int i = 1; i < degree; ++i) {
    const std::string name = Name();
    *text += " %" + name + ": i64 = mul.i64 " + power + ", " + base + "\n";
    power = "%" + name;
  }
  return power;
}

// Writes a sum of powers of two narrow values from memory that are at least 2^least, times 2^shift. The sum is near
// the limit of the analysis (kWideMax); sometimes only one end of its range exceeds it.
void KernelGenerator::Powers(std::string* text) {
  const int width = Chance(4) ? 4 : 2, least = 8 * width - 1 - static_cast<int>(Below(3));
  const int degree = 2 + static_cast<int>(Below(3));
  const int beyond = 97 + static_cast<int>(Below(5)) - degree * least;
  const int shift = beyond >= 0 && beyond < 62 ? beyond : static_cast<int>(Below(62));
  const std::string limit = WideConstant(uint64_t{1} << least, text);
  std::string terms[2];
  for (std::string& term : terms) {
    const std::string base = "%" + NarrowLoad(width, text), small = Name(), guard = Name();
    *text += " %" + small + ": i32 = lt_u.i64 " + base + ", " + limit + "\n if " + guard + " %" + small +
             " {\n return ()\n} else {\n br " + guard + " ()\n}\n";
    term = Power(base, degree, text);
  }
  const std::string sum = Name(), shifted = Name(), down = Name();
  *text += " %" + sum + ": i64 = " + (Chance(4) ? "sub" : "add") + ".i64 " + terms[0] + ", " + terms[1] + "\n";
  const std::string left = WideConstant(static_cast<uint64_t>(shift), text);
  *text += " %" + shifted + ": i64 = shl.i64 %" + sum + ", " + left + "\n";
  constexpr const char* kOps[] = {"shr_u", "shr_s", "and", "rem_u", "div_u", "or"};
  const uint32_t kind = Below(6);
  const std::string right = WideConstant(kind < 2 ? 20 + Below(44) : Word() | 1, text);
  *text += " %" + down + ": i64 = " + kOps[kind] + ".i64 %" + shifted + ", " + right + "\n";
  wides_.push_back(down);
  Narrow(text);
}

void KernelGenerator::GroupMemory(std::string* text) {
  const std::string bytes = Name(), name = Name();
  *text += " %" + bytes + ": i32 = const.i32 " + std::to_string(4 + Below(60)) + "\n %" + name +
           ": i32 = local_alloc %" + bytes + "\n";
  group_.push_back(name);
}

void KernelGenerator::StoreToGroup(std::string* text) {
  const std::string offset = Name(), name = Name();
  *text += " %" + offset + ": i32 = shl.i32 " + Pick() + ", %c2\n %" + name + ": i32 = add.i32 %" +
           group_[Below(static_cast<uint32_t>(group_.size()))] + ", %" + offset + "\n store.i32 group %" + name +
           (Chance(3) ? " + 4" : "") + ", %x\n";
}

void KernelGenerator::Store(std::string* text) {
  if (!group_.empty() && Chance(2)) {
    return StoreToGroup(text);
  }
  const std::string name = Name();
  *text += " %" + name + ": i32 = shl.i32 " + Pick() + ", %c2\n store.i32 param(0) %" + name +
           (Chance(2) ? " + 4" : "") + ", %x\n";
}

void KernelGenerator::If(int depth, std::string* text) {
  const std::string condition = Compare(text), label = Name();
  const std::string inside = Chance(3) ? " return ()\n" : "";
  *text += " if " + label + " " + condition + " {\n";
  const size_t count = values_.size(), wide_count = wides_.size();
  Statements(depth - 1, 2, text);
  values_.resize(count);
  wides_.resize(wide_count);
  *text += (inside.empty() ? " br " + label + " ()\n" : inside) + "} else {\n";
  Statements(depth - 1, 1, text);
  values_.resize(count);
  wides_.resize(wide_count);
  *text += " br " + label + " ()\n}\n";
}

void KernelGenerator::Merge(std::string* text) {
  const std::string condition = Compare(text), label = Name(), name = Name();
  *text += " %" + name + ": i32 = if " + label + " " + condition + " {\n br " + label + " (" + Pick() +
           ")\n} else {\n br " + label + " (" + Pick() + ")\n}\n";
  values_.push_back(name);
}

void KernelGenerator::Loop(int depth, std::string* text) {
  const std::string label = Name(), i = Name(), j = Name(), next = Name(), next_j = Name(), exit = Name();
  const bool is_wide = Chance(3);
  const std::string type = is_wide ? "i64" : "i32", first_j = is_wide ? PickWide() : Pick();
  *text += " loop " + label + " (%" + i + ": i32 = " + Pick() + ", %" + j + ": " + type + " = " + first_j + ") {\n";
  const size_t count = values_.size(), wide_count = wides_.size();
  values_.push_back(i);
  (is_wide ? wides_ : values_).push_back(j);
  Statements(depth - 1, 2, text);
  const std::string step =
      is_wide ? (Chance(2) ? "%w0" : WideConstant(Chance(2) ? 4 : ~uint64_t{0}, text)) : (Chance(2) ? "%n" : "%c4");
  *text += " %" + next + ": i32 = " + (Chance(4) ? "sub" : "add") + ".i32 %" + i + ", %c" +
           std::to_string(1 + Below(3)) + "\n %" + next_j + ": " + type + " = add." + type + " %" + j + ", " + step +
           "\n";
  values_.push_back(next);
  if (is_wide) {
    wides_.push_back(next_j);
  }
  const std::string again = " continue " + label + " (%" + next + ", %" + next_j + ")\n";
  if (Chance(4)) {  // A second back edge.
    const std::string early = Compare(text), way = Name();
    *text += " if " + way + " " + early + " {\n" + again + "} else {\n br " + way + " ()\n}\n";
  }
  const std::string condition = Compare(text);
  *text +=
      " if " + exit + " " + condition + " {\n" + again + "} else {\n br " + exit + " ()\n}\n br " + label + " ()\n}\n";
  values_.resize(count);
  wides_.resize(wide_count);
}

std::string KernelGenerator::Scaled(const std::string& value, std::string* text) {
  constexpr const char* kOps[] = {"shl", "shl", "shr_u", "shr_u", "shr_s", "mul", "div_u"};
  const std::string name = Name();
  *text += " %" + name + ": i32 = " + kOps[Below(7)] + ".i32 " + value + ", %c" + std::to_string(1 + Below(3)) + "\n";
  return name;
}

// Writes both halves of elements that lie `stride` apart, 2 x - (x & (stride - 1)) and that + stride, or parts of
// them.
void KernelGenerator::Butterfly(const std::string& stride, std::string* text) {
  const std::string x = Chance(3) ? Pick() : Chance(2) ? "%x" : "%y";
  const std::string less = Name(), masked = Name(), twice = Name(), low = Name(), high = Name();
  const bool is_complement = Chance(3);
  *text += " %" + less + ": i32 = sub.i32 " + (is_complement ? "%c0, %" + stride : "%" + stride + ", %c1") + "\n %" +
           masked + ": i32 = and.i32 " + (Chance(2) ? x + ", %" + less : "%" + less + ", " + x) + "\n %" + twice +
           ": i32 = shl.i32 " + x + ", %c" + std::to_string(Below(2)) + "\n %" + low +
           ": i32 = " + (is_complement ? "add" : "sub") + ".i32 %" + twice + ", %" + masked + "\n %" + high +
           ": i32 = add.i32 %" + low + ", " + (Chance(4) ? Pick() : "%" + stride) + "\n";
  values_.insert(values_.end(), {masked, low, high});
}

void KernelGenerator::ScaledLoop(int depth, std::string* text) {
  const std::string label = Name(), s = Name(), exit = Name();
  const std::string first = Chance(2) ? "%c" + std::to_string(1u << Below(4)) : Chance(2) ? "%n" : Pick();
  *text += " loop " + label + " (%" + s + ": i32 = " + first + ") {\n";
  const size_t count = values_.size(), wide_count = wides_.size();
  values_.push_back(s);
  Butterfly(s, text);
  Statements(depth - 1, 1, text);
  const std::string next = Scaled("%" + s, text);
  if (Chance(4)) {  // A second back edge.
    const std::string early = Compare(text), way = Name(), other = Scaled("%" + (Chance(2) ? s : next), text);
    *text +=
        " if " + way + " " + early + " {\n continue " + label + " (%" + other + ")\n} else {\n br " + way + " ()\n}\n";
  }
  constexpr const char* kCompares[] = {"lt_u", "lt_s", "le_u", "le_s", "gt_s", "ne"};
  const std::string condition = Name(), code = kCompares[Below(6)], tested = Chance(2) ? s : next;
  const bool falls = code == "gt_s" || code == "ne";
  *text += " %" + condition + ": i32 = " + code + ".i32 %" + tested + ", " +
           (falls       ? "%c0"
            : Chance(3) ? Pick()
            : Chance(2) ? "%n"
                        : "%m") +
           "\n if " + exit + " %" + condition + " {\n continue " + label + " (%" + next + ")\n} else {\n br " + exit +
           " ()\n}\n br " + label + " ()\n}\n";
  values_.resize(count);
  wides_.resize(wide_count);
}

void KernelGenerator::Statement(int depth, std::string* text) {
  switch (Below(depth > 0 ? 15 : 10)) {
    case 0:
    case 1:
      return Let(text);
    case 2:
      return Store(text);
    case 3:
      return Merge(text);
    case 4:
      return Bits(text);
    case 5:
      return Chance(3) ? Load(text) : Let(text);
    case 6:
      return LetWide(text);
    case 7:
      return LoadWide(text);
    case 8:
      return Narrow(text);
    case 9:
      return Chance(2) ? Powers(text) : LetWide(text);
    case 10:
    case 11:
      return If(depth, text);
    default:
      return scales_ && Chance(2) ? ScaledLoop(depth, text) : Loop(depth, text);
  }
}

void KernelGenerator::Statements(int depth, int count, std::string* text) {
  const size_t group_count = group_.size();
  if (!group_.empty() && depth < 2 && Chance(12)) {
    GroupMemory(text);
  }
  for (int i = 0; i < count; ++i) {
    Statement(depth, text);
  }
  Store(text);
  group_.resize(group_count);
}

}  // namespace hpvm::pass::testing
