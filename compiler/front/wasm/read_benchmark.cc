// SPDX-License-Identifier: Apache-2.0
// Measures the front end on a module of 10 MiB that repeats the math library's functions. "validated" reads them all
// and lowers none; "lowered" has them in a table through which the kernel calls.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/front/wasm/wasm_front.h"
#include "compiler/math/math_module.h"

namespace hpvm::wasm {
namespace {

using Bytes = std::vector<uint8_t>;
using Span = std::span<const uint8_t>;

constexpr size_t kModuleBytes = 10 << 20;

void Append(Bytes& to, Span bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
void AppendNumber(Bytes& to, uint32_t value) {
  for (; value >= 0x80; value >>= 7) {
    to.push_back(static_cast<uint8_t>(value | 0x80));
  }
  to.push_back(static_cast<uint8_t>(value));
}
uint32_t Number(Span bytes, size_t* at) {
  uint32_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = bytes[(*at)++];
    value |= uint32_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0) {
      return value;
    }
  }
}

// A section: its number of items, and the bytes after that number.
struct Section {
  uint32_t count = 0;
  Bytes items;

  void WriteTo(Bytes& module, uint8_t id) const {
    Bytes content;
    AppendNumber(content, count);
    Append(content, items);
    module.push_back(id);
    AppendNumber(module, static_cast<uint32_t>(content.size()));
    Append(module, content);
  }
};

enum : uint8_t { kTypes = 1, kFunctions = 3, kTable = 4, kExports = 7, kElements = 9, kCode = 10, kSections = 13 };

Bytes Inflate(bool is_reached) {
  const Span library = math::MathModule();
  Section sections[kSections];
  for (size_t at = 8; at < library.size();) {
    const uint8_t id = library[at++];
    const size_t size = Number(library, &at);
    const size_t end = at + size;
    if (id != 0) {
      sections[id].count = Number(library, &at);
      sections[id].items.assign(library.begin() + static_cast<ptrdiff_t>(at),
                                library.begin() + static_cast<ptrdiff_t>(end));
    }
    at = end;
  }
  const Section functions = sections[kFunctions], code = sections[kCode];
  while (sections[kCode].items.size() < kModuleBytes) {
    for (const auto& [to, from] : {std::pair{kFunctions, &functions}, std::pair{kCode, &code}}) {
      sections[to].count += from->count;
      Append(sections[to].items, from->items);
    }
  }
  const uint32_t run = sections[kFunctions].count++;
  AppendNumber(sections[kFunctions].items, sections[kTypes].count++);
  Append(sections[kTypes].items, Bytes{0x60, 0, 0});
  Bytes body = {0};
  if (is_reached) {
    body.insert(body.end(), {0x41, 0, 0x11});  // i32.const 0, call_indirect.
    AppendNumber(body, sections[kTypes].count - 1);
    body.push_back(0);
    sections[kTable] = {1, {0x70, 0}};
    AppendNumber(sections[kTable].items, run);
    sections[kElements] = {1, {0, 0x41, 0, 0x0b}};
    AppendNumber(sections[kElements].items, run);
    for (uint32_t i = 0; i < run; ++i) {
      AppendNumber(sections[kElements].items, i);
    }
  }
  body.push_back(0x0b);
  ++sections[kCode].count;
  AppendNumber(sections[kCode].items, static_cast<uint32_t>(body.size()));
  Append(sections[kCode].items, body);
  sections[kExports] = {1, {3, 'r', 'u', 'n', 0}};
  AppendNumber(sections[kExports].items, run);
  Bytes module(library.begin(), library.begin() + 8);
  for (uint8_t id = 1; id < kSections; ++id) {
    if (sections[id].count > 0) {
      sections[id].WriteTo(module, id);
    }
  }
  return module;
}

// Measures processor time, since other work may run on the machine.
double Milliseconds() { return static_cast<double>(std::clock()) * 1e3 / CLOCKS_PER_SEC; }

void Measure(const char* name, const Bytes& module) {
  constexpr int kRuns = 5;
  double best = 1e9;
  size_t functions = 0;
  for (int i = 0; i < kRuns; ++i) {
    const double begin = Milliseconds();
    const ReadOutcome outcome = ReadWasm(module, {.entry = "run", .params = {}, .module_name = "large"});
    best = std::min(best, Milliseconds() - begin);
    HPVMD_CHECK(outcome.module.has_value());
    functions = outcome.module->functions.size();
  }
  std::printf("%-9s %.1f MiB, %zu functions in the kernel: %.0f ms of processor time, best of %d\n", name,
              static_cast<double>(module.size()) / (1 << 20), functions, best, kRuns);
}

}  // namespace
}  // namespace hpvm::wasm

int main() {
  using hpvm::wasm::Inflate;
  hpvm::wasm::Measure("validated", Inflate(/*is_reached=*/false));
  hpvm::wasm::Measure("lowered", Inflate(/*is_reached=*/true));
}
