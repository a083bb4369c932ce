// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/opencl/helpers.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/status.h"
#include "compiler/back/opencl/cat.h"

namespace hpvm::opencl {
namespace {

constexpr char kHelpers[] = {
#include "compiler/back/opencl/helpers.inc"
    '\n'};

struct Helper {
  std::string_view name, needs, text;
};

// Returns the text before `mark`; `text` then begins after it.
std::string_view TakeTo(std::string_view mark, std::string_view& text) {
  const size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + mark.size(), text.size()));
  return taken;
}

const std::vector<Helper>& AllHelpers() {
  static const auto* const all = [] {
    auto* const helpers = new std::vector<Helper>;
    constexpr std::string_view kMark = "//# ";
    std::string_view rest(kHelpers, sizeof(kHelpers));
    TakeTo(kMark, rest);
    while (!rest.empty()) {
      std::string_view part = TakeTo(kMark, rest);
      std::string_view line = TakeTo("\n", part);
      const std::string_view name = TakeTo(" ", line);
      helpers->push_back({name, line, part.substr(0, part.find("\n\n") + 1)});
    }
    return helpers;
  }();
  return *all;
}

const Helper& Find(std::string_view name) {
  const auto found = std::ranges::find(AllHelpers(), name, &Helper::name);
  HPVMD_CHECK(found != AllHelpers().end());
  return *found;
}

// Functions of a single instruction of NVIDIA's, which is less accurate.
struct Approximation {
  std::string_view name, instruction, result, exact;
};
constexpr Approximation kApproximations[] = {
    {"fast_sqrt", "sqrt.approx.ftz.f32", "root", "sqrt"},
    {"fast_rsqrt", "rsqrt.approx.ftz.f32", "root", "rsqrt"},
    // These implement ir::Family::kApprox. Only targets with GpuTarget::device_math use them.
    {"approx_sin", "sin.approx.ftz.f32", "result", "sin"},
    {"approx_cos", "cos.approx.ftz.f32", "result", "cos"},
    {"approx_exp2", "ex2.approx.ftz.f32", "result", "exp2"},
    {"approx_log2", "lg2.approx.ftz.f32", "result", "log2"},
};

std::string TextOf(const Approximation& of) {
  return Cat("\nfloat ", of.name, "(float a) {\n#if defined(__NV_CL_C_VERSION)\n  float ", of.result, ";\n  asm(\"",
             of.instruction, " %0, %1;\" : \"=f\"(", of.result, ") : \"f\"(a));\n  return ", of.result,
             ";\n#else\n  return ", of.exact, "(a);\n#endif\n}\n");
}

// Returns a copy of a helper for another address space.
std::string ForSpace(std::string_view text, std::string_view space, std::string_view suffix) {
  std::string copy(text);
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (size_t at = copy.find(from); at != std::string::npos; at = copy.find(from, at + to.size())) {
      copy.replace(at, from.size(), to);
    }
  };
  replace("__global", space);
  replace("_global", suffix);
  return copy;
}

}  // namespace

void Helpers::Need(std::string_view name) {
  if (known_.count(name) != 0) {
    return;
  }
  known_.emplace(name, true);
  if (const auto found = std::ranges::find(kApproximations, name, &Approximation::name);
      found != std::end(kApproximations)) {
    text_ += TextOf(*found);
    return;
  }
  std::string_view space = "__global", suffix = "_global";
  std::string in_table(name);
  for (const auto& [other, spelled] :
       {std::pair("_local", "__local"), std::pair("_private", "__private"), std::pair("_constant", "__constant")}) {
    if (const size_t at = in_table.find(other); at != std::string::npos && at + strlen(other) == in_table.size()) {
      in_table.replace(at, std::string::npos, "_global");
      suffix = other;
      space = spelled;
    }
  }
  const Helper& helper = Find(in_table);
  if (!helper.needs.empty()) {
    Need(ForSpace(helper.needs, space, suffix));
  }
  Append(text_, "\n", ForSpace(helper.text, space, suffix));
}

void Helpers::Add(const std::string& name, const std::string& text) {
  if (known_.emplace(name, true).second) {
    text_ += text;
  }
}

std::string Helpers::Constant(const std::vector<uint8_t>& bytes) {
  if (const auto found = constants_.find(bytes); found != constants_.end()) {
    return found->second;
  }
  const std::string name = Cat("data", constants_.size());
  constants_.emplace(bytes, name);
  Append(constant_text_, "__constant ulong ", name, "[", bytes.size() / 8, "] = {");
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    Append(constant_text_, i == 0 ? "" : ",", i % 32 == 0 ? "\n  " : " ", Hex(word), "ul");
  }
  constant_text_ += "};\n";
  return name;
}

std::string Helpers::Text() const {
  std::string text(Find("prelude").text);
  if (uses_fp64) {
    text += "#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#endif\n";
  }
  if (uses_int64_atomics) {
    text +=
        "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"
        "#pragma OPENCL EXTENSION cl_khr_int64_extended_atomics : enable\n";
  }
  return Cat(text, constant_text_, text_);
}

}  // namespace hpvm::opencl
