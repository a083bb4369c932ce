// SPDX-License-Identifier: Apache-2.0
// The corpus of whole graphs that corpus.py writes: documents, sizes, and how to make the inputs.
#ifndef HPVMD_TESTS_GPU_GRAPHS_CORPUS_H_
#define HPVMD_TESTS_GPU_GRAPHS_CORPUS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "hpvm/element_type.h"

namespace hpvm::gpu_graphs {

// One input, made from the names of the graph and the input: the same bytes in every process.
struct Input {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<uint64_t> shape;
  // uniform: [low, high), integers or reals. sorted: the same, ascending along the last dimension. permutation: of 0 ..
  // count - 1. offsets: begins with 0 and grows by [low, high) from element to element. iota: 0, 1, 2 ... zero.
  std::string fill;
  double low = 0, high = 1;
};

struct Case {
  std::string name;
  std::string document;
  std::map<std::string, int64_t> symbols;
  std::vector<Input> inputs;
  uint32_t repeat = 1;
  std::vector<engine::Rotation> rotations;
  std::string until;
};

// Parses {"graphs": [...]}. kInvalidArgument names the fault.
StatusOr<std::vector<Case>> ReadCorpus(const std::string& text);
std::vector<uint8_t> Fill(const Case& graph, const Input& input);

}  // namespace hpvm::gpu_graphs

#endif  // HPVMD_TESTS_GPU_GRAPHS_CORPUS_H_
