// SPDX-License-Identifier: Apache-2.0
#include "server/testing/call_script.h"

#include <algorithm>

namespace hpvm::server::testing {
namespace {

struct KindFacts {
  std::string_view name;
  uint32_t weight;  // Frequency in a random script.
};

// Indexed by kind.
constexpr std::array<KindFacts, kActionKinds> kKinds = {{
    {"upload", 60},
    {"upload start", 8},
    {"upload part", 12},
    {"upload finish", 8},
    {"upload abandon", 4},
    {"prepare graph", 44},
    {"cancel prepare", 4},
    {"release graph", 8},
    {"list graphs", 4},
    {"create buffer", 20},
    {"write buffer", 12},
    {"finish write", 8},
    {"read buffer", 12},
    {"end download", 6},
    {"delete buffer", 8},
    {"list buffers", 4},
    {"run", 50},
    {"cancel run", 8},
    {"open stream", 12},
    {"stream item", 16},
    {"close stream", 4},
    {"submit", 60},
    {"submit array", 20},
    {"retry job", 12},
    {"cancel job", 12},
    {"get job", 12},
    {"list jobs", 12},
    {"list jobs step", 12},
    {"list jobs abandon", 6},
    {"watch job", 12},
    {"read events", 12},
    {"unwatch", 4},
    {"fetch output", 8},
    {"list costs", 8},
    {"server info", 4},
    {"usage", 4},
    {"executor ready", 8},
    {"answer prepare", 70},
    {"answer run", 80},
    {"answer costs", 8},
    {"answer reclaim", 8},
    {"report usage", 8},
    {"executor dies", 3},
    {"starts fail", 1},
    {"probe", 4},
    {"hold store", 4},
    {"step store", 16},
    {"disk full", 2},
    {"advance", 24},
    {"set config", 2},
    {"set policy", 2},
    {"stop", 1},
    {"crash", 1},
    {"set job hold", 16},
}};

constexpr uint32_t WeightOfAll() {
  uint32_t sum = 0;
  for (const KindFacts& facts : kKinds) {
    sum += facts.weight;
  }
  return sum;
}

ActionKind RandomKind(Rng& rng) {
  uint64_t left = rng.Below(WeightOfAll());
  size_t kind = 0;
  for (; left >= kKinds[kind].weight; ++kind) {
    left -= kKinds[kind].weight;
  }
  return static_cast<ActionKind>(kind);
}

}  // namespace

std::string_view NameOf(ActionKind kind) { return kKinds[static_cast<size_t>(kind)].name; }

Script DecodeScript(std::span<const uint8_t> bytes) {
  Script script(std::min(bytes.size() / kActionBytes, kActionsMax));
  for (size_t i = 0; i < script.size(); ++i) {
    const std::span<const uint8_t> from = bytes.subspan(i * kActionBytes, kActionBytes);
    script[i] = {static_cast<ActionKind>(from[0] % kActionKinds), from[1], {from[2], from[3], from[4]}};
  }
  return script;
}

std::vector<uint8_t> EncodeScript(const Script& script) {
  std::vector<uint8_t> bytes;
  for (const Action& action : script) {
    bytes.push_back(static_cast<uint8_t>(action.kind));
    bytes.push_back(action.tenant);
    bytes.insert(bytes.end(), action.numbers.begin(), action.numbers.end());
  }
  return bytes;
}

Script RandomScript(Rng& rng, size_t actions) {
  Script script(actions);
  for (Action& action : script) {
    action.kind = RandomKind(rng);
    // Mostly one tenant, so that it has something.
    action.tenant = static_cast<uint8_t>(rng.Below(3) != 0 ? 0 : rng.Below(256));
    for (uint8_t& number : action.numbers) {
      number = static_cast<uint8_t>(rng.Below(256));
    }
  }
  return script;
}

std::string ToLine(const Action& action) {
  std::string line = std::string(NameOf(action.kind)) + " tenant=" + std::to_string(action.tenant);
  for (const uint8_t number : action.numbers) {
    line += " " + std::to_string(number);
  }
  return line;
}

}  // namespace hpvm::server::testing
