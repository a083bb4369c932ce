// SPDX-License-Identifier: Apache-2.0
// Graphs of the simulation: a document is one line of numbers, and its result is a pure function of its inputs, so
// that code that knows the request can check every result.
#ifndef HPVMD_TESTS_SIM_GRAPH_SPEC_H_
#define HPVMD_TESTS_SIM_GRAPH_SPEC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hpvm::server::sim {

struct GraphSpec {
  uint64_t number = 0;
  bool has_buffer = false;  // Input "b" in addition to "x".
  bool has_index = false;   // Input "i", a scalar u64.
  uint32_t outputs = 1;     // "y", then "z".
  uint64_t output_bytes = 16;
  bool traps = false, is_invalid = false, uses_gpu = false;
  Duration takes{0};

  std::string Document() const;
  static std::optional<GraphSpec> Parse(std::string_view document);
};

// "y" or "z".
std::string OutputName(uint32_t output);

// Keyed by port.
using GraphInputs = std::map<std::string, std::string>;
std::string OutputOf(const GraphSpec& graph, const GraphInputs& inputs, uint32_t output);

// The first eight bytes of "x" identify the submit, and so all its runs.
std::string PayloadOf(uint64_t token, uint64_t bytes);
uint64_t TokenOf(std::string_view payload);
std::string IndexBytes(uint64_t index);

}  // namespace hpvm::server::sim

#endif  // HPVMD_TESTS_SIM_GRAPH_SPEC_H_
