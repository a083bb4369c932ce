// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/graphs/corpus.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "nlohmann/json.hpp"

namespace hpvm::gpu_graphs {
namespace {

using nlohmann::json;

// splitmix64
class Random {
 public:
  explicit Random(std::string_view seed) {
    for (const char c : seed) {
      state_ = state_ * 0x100000001b3ull + static_cast<uint8_t>(c);
    }
  }
  uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  }
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 0;
};

template <typename T>
T Draw(Random& random, double low, double high) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(low + (high - low) * random.Unit());
  } else {
    const auto first = static_cast<int64_t>(low);
    const auto count = static_cast<uint64_t>(static_cast<int64_t>(high) - first);
    return static_cast<T>(first + static_cast<int64_t>(count == 0 ? 0 : random.Next() % count));
  }
}

template <typename T>
std::vector<uint8_t> FillOf(const Input& input, Random& random) {
  size_t count = 1;
  for (const uint64_t extent : input.shape) {
    count *= static_cast<size_t>(extent);
  }
  std::vector<T> values(count);
  if (input.fill == "iota" || input.fill == "permutation") {
    std::iota(values.begin(), values.end(), T{});
    for (size_t i = count; input.fill == "permutation" && i > 1; --i) {
      std::swap(values[i - 1], values[random.Next() % i]);
    }
  } else if (input.fill == "offsets") {
    for (size_t i = 1; i < count; ++i) {
      values[i] = static_cast<T>(values[i - 1] + Draw<T>(random, input.low, input.high));
    }
  } else if (input.fill != "zero") {
    std::generate(values.begin(), values.end(), [&] { return Draw<T>(random, input.low, input.high); });
    const size_t row = input.shape.empty() ? 1 : static_cast<size_t>(input.shape.back());
    for (size_t at = 0; input.fill == "sorted" && at < count; at += row) {
      std::sort(values.begin() + static_cast<ptrdiff_t>(at), values.begin() + static_cast<ptrdiff_t>(at + row));
    }
  }
  std::vector<uint8_t> bytes(count * sizeof(T));
  if (!bytes.empty()) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return bytes;
}

ElementType TypeOf(const std::string& name) {
  for (const ElementTypeInfo& info : kElementTypes) {
    if (info.name == name) {
      return info.type;
    }
  }
  throw json::other_error::create(500, "the type \"" + name + "\" does not exist", nullptr);
}

Case CaseOf(const json& entry) {
  Case graph;
  graph.name = entry.at("name");
  graph.document = entry.at("document").dump();
  for (const auto& [name, value] : entry.at("symbols").items()) {
    graph.symbols[name] = value;
  }
  for (const json& one : entry.at("inputs")) {
    graph.inputs.push_back({one.at("name"), TypeOf(one.at("type")), one.at("shape").get<std::vector<uint64_t>>(),
                            one.at("fill"), one.at("low"), one.at("high")});
  }
  graph.repeat = entry.at("repeat");
  for (const json& pair : entry.at("rotate")) {
    graph.rotations.push_back({pair.at(0), pair.at(1)});
  }
  graph.until = entry.at("until");
  return graph;
}

}  // namespace

StatusOr<std::vector<Case>> ReadCorpus(const std::string& text) {
  try {
    std::vector<Case> graphs;
    const json root = json::parse(text);
    for (const json& entry : root.at("graphs")) {
      graphs.push_back(CaseOf(entry));
    }
    return graphs;
  } catch (const json::exception& error) {
    return InvalidArgument("The corpus cannot be read: " + std::string(error.what()) + ".");
  }
}

std::vector<uint8_t> Fill(const Case& graph, const Input& input) {
  Random random(graph.name + "/" + input.name);
  switch (input.type) {
    case ElementType::kBool:
    case ElementType::kU8:
      return FillOf<uint8_t>(input, random);
    case ElementType::kI8:
      return FillOf<int8_t>(input, random);
    case ElementType::kU16:
      return FillOf<uint16_t>(input, random);
    case ElementType::kI16:
      return FillOf<int16_t>(input, random);
    case ElementType::kI32:
      return FillOf<int32_t>(input, random);
    case ElementType::kU32:
      return FillOf<uint32_t>(input, random);
    case ElementType::kI64:
      return FillOf<int64_t>(input, random);
    case ElementType::kU64:
      return FillOf<uint64_t>(input, random);
    case ElementType::kF32:
      return FillOf<float>(input, random);
    case ElementType::kF64:
      return FillOf<double>(input, random);
    case ElementType::kF16:
    case ElementType::kBF16:
      break;
  }
  HPVMD_CHECK(false);
  return {};
}

}  // namespace hpvm::gpu_graphs
