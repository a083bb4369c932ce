// SPDX-License-Identifier: Apache-2.0
#include "engine/run/run_repeat.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

namespace hpvm::engine {
namespace {

std::string Quoted(std::string_view name) { return '"' + std::string(name) + '"'; }

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (const uint64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

StatusOr<uint32_t> FindPort(const graph::Node& root, const std::string& name, bool is_input, std::string_view who) {
  std::string names;
  for (uint32_t port = 0; port < root.ports.size(); ++port) {
    if ((root.ports[port].access == graph::Access::kIn) != is_input) {
      continue;
    }
    if (root.ports[port].name == name) {
      return port;
    }
    names += (names.empty() ? "" : ", ") + root.ports[port].name;
  }
  const std::string what = is_input ? "input" : "output";
  return InvalidArgument(std::string(who) + " names the " + what + " " + Quoted(name) +
                         ", which the graph does not have; its " + what + "s are: " + (names.empty() ? "none" : names) +
                         ".");
}

template <typename T>
bool Differs(const uint8_t* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  return value != T{0};
}

std::string TypeAndShape(ElementType type, const std::vector<uint64_t>& shape) {
  return std::string(Name(type)) + " " + ShapeText(shape);
}

}  // namespace

StatusOr<Repetition> ReadRepetition(const graph::Node& root, const RunRequest& request) {
  if (request.repeat == 0) {
    return InvalidArgument("Repeat count (0) must be at least 1.");
  }
  Repetition repetition;
  std::set<uint32_t> named;
  for (const Rotation& rotation : request.rotations) {
    scheduler::Carry carry;
    HPVMD_ASSIGN_OR_RETURN(carry.output, FindPort(root, rotation.output, /*is_input=*/false, "A rotation"));
    HPVMD_ASSIGN_OR_RETURN(carry.input, FindPort(root, rotation.input, /*is_input=*/true, "A rotation"));
    for (const uint32_t port : {carry.output, carry.input}) {
      if (!named.insert(port).second) {
        return InvalidArgument("Two rotations name the port " + Quoted(root.ports[port].name) +
                               "; each port may be in one rotation.");
      }
    }
    repetition.rotations.push_back(carry);
  }
  std::sort(repetition.rotations.begin(), repetition.rotations.end(),
            [](const scheduler::Carry& a, const scheduler::Carry& b) { return a.output < b.output; });
  if (request.repeat > 1) {
    repetition.carries = repetition.rotations;
  }
  if (!request.until.empty()) {
    HPVMD_ASSIGN_OR_RETURN(repetition.until,
                           FindPort(root, request.until, /*is_input=*/false, "The end condition of the run"));
    const ElementType type = root.ports[*repetition.until].type;
    if (type == ElementType::kF16 || type == ElementType::kBF16) {
      return InvalidArgument("The output " + Quoted(request.until) + ", which ends the run, has elements of type " +
                             std::string(Name(type)) + "; only integers, bool, f32 and f64 can be tested for zero.");
    }
  }
  return repetition;
}

Status CheckRepetition(const graph::Node& root, const Repetition& repetition, const PortBindings& ports,
                       const graph::SymbolValues& symbols) {
  for (const scheduler::Carry& carry : repetition.rotations) {
    const graph::Port& output = root.ports[carry.output];
    const graph::Port& input = root.ports[carry.input];
    HPVMD_ASSIGN_OR_RETURN(const Binding made, ShapeOf(output, symbols));
    const std::vector<uint64_t>& shape = ports[carry.input]->shape;
    if (output.type != input.type || made.shape != shape) {
      return InvalidArgument("Output " + Quoted(output.name) + " (" + TypeAndShape(output.type, made.shape) +
                             ") cannot become input " + Quoted(input.name) + " (" + TypeAndShape(input.type, shape) +
                             "): types and shapes must be equal.");
    }
  }
  if (repetition.until.has_value()) {
    const graph::Port& output = root.ports[*repetition.until];
    HPVMD_ASSIGN_OR_RETURN(const Binding made, ShapeOf(output, symbols));
    if (made.bytes != ElementBytes(output.type)) {
      return InvalidArgument("The output " + Quoted(output.name) + ", which ends the run, has the shape " +
                             ShapeText(made.shape) + "; it must be one element.");
    }
  }
  return absl::OkStatus();
}

std::vector<uint32_t> OutputsOnHost(const graph::Graph& graph, const Repetition& repetition) {
  if (repetition.carries.empty()) {
    return {};  // After each repetition the outputs are in the caller's memory.
  }
  const graph::Node& root = graph.node(graph.root());
  std::set<std::string_view> scalars;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::Scalar& scalar : node.scalars) {
      if (const auto* input = std::get_if<graph::Scalar::InputRef>(&scalar.value)) {
        scalars.insert(input->input);
      }
    }
  }
  std::set<uint32_t> outputs;
  if (repetition.until.has_value()) {
    outputs.insert(*repetition.until);
  }
  for (const scheduler::Carry& carry : repetition.carries) {
    if (scalars.contains(root.ports[carry.input].name)) {
      outputs.insert(carry.output);
    }
  }
  return {outputs.begin(), outputs.end()};
}

bool IsNotZero(ElementType type, const uint8_t* element) {
  if (type == ElementType::kF32) {
    return Differs<float>(element);
  }
  if (type == ElementType::kF64) {
    return Differs<double>(element);
  }
  return std::any_of(element, element + ElementBytes(type), [](uint8_t byte) { return byte != 0; });
}

}  // namespace hpvm::engine
