// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/graph_spec.h"

#include <cstring>
#include <sstream>

namespace hpvm::server::sim {
namespace {

// Fills `bytes` from one word.
std::string Expand(uint64_t word, uint64_t bytes) {
  SeededRng rng(word);
  std::string text(bytes, '\0');
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t next = rng.Next();
    std::memcpy(text.data() + at, &next, std::min<uint64_t>(sizeof(next), bytes - at));
  }
  return text;
}

void Mix(uint64_t& hash, std::string_view text) {
  hash = (hash ^ text.size()) * 0x9e3779b97f4a7c15u;
  for (; text.size() >= sizeof(uint64_t); text.remove_prefix(sizeof(uint64_t))) {
    uint64_t word;
    std::memcpy(&word, text.data(), sizeof(word));
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 29;
  }
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
}

}  // namespace

std::string GraphSpec::Document() const {
  std::ostringstream text;
  text << "sim " << number << ' ' << has_buffer << ' ' << has_index << ' ' << outputs << ' ' << output_bytes << ' '
       << traps << ' ' << is_invalid << ' ' << uses_gpu << ' ' << takes.count();
  return text.str();
}

std::optional<GraphSpec> GraphSpec::Parse(std::string_view document) {
  std::istringstream text{std::string(document)};
  std::string magic;
  GraphSpec graph;
  int64_t takes_ns = 0;
  text >> magic >> graph.number >> graph.has_buffer >> graph.has_index >> graph.outputs >> graph.output_bytes >>
      graph.traps >> graph.is_invalid >> graph.uses_gpu >> takes_ns;
  if (!text || magic != "sim") {
    return std::nullopt;
  }
  graph.takes = Duration(takes_ns);
  return graph;
}

std::string OutputName(uint32_t output) { return output == 0 ? "y" : "z"; }

std::string OutputOf(const GraphSpec& graph, const GraphInputs& inputs, uint32_t output) {
  uint64_t hash = graph.number * 31 + output;
  for (const auto& [name, bytes] : inputs) {
    Mix(hash, name);
    Mix(hash, bytes);
  }
  return Expand(hash, graph.output_bytes);
}

std::string PayloadOf(uint64_t token, uint64_t bytes) {
  std::string text = Expand(token, std::max<uint64_t>(bytes, sizeof(token)));
  std::memcpy(text.data(), &token, sizeof(token));
  return text;
}

uint64_t TokenOf(std::string_view payload) {
  uint64_t token = 0;
  std::memcpy(&token, payload.data(), std::min(payload.size(), sizeof(token)));
  return token;
}

std::string IndexBytes(uint64_t index) { return {reinterpret_cast<const char*>(&index), sizeof(index)}; }

}  // namespace hpvm::server::sim
