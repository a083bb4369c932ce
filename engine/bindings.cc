// SPDX-License-Identifier: Apache-2.0
#include "engine/bindings.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <variant>

namespace hpvm::engine {
namespace {

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (uint64_t extent : shape) {
    text += (text.size() == 1 ? "" : ", ") + std::to_string(extent);
  }
  return text + "]";
}

bool IsKnownType(ElementType type) {
  return static_cast<size_t>(type) >= 1 && static_cast<size_t>(type) <= kElementTypes.size();
}

Status CheckMemory(std::string_view what, const graph::Port& port, const Binding& binding, BindData data) {
  const std::string name = std::string(what) + " \"" + port.name + "\"";
  if (binding.type != port.type) {
    return InvalidArgument(name + " has elements of type " +
                           std::string(IsKnownType(binding.type) ? Name(binding.type) : "unknown") +
                           "; the graph declares " + std::string(Name(port.type)) + ".");
  }
  if (binding.shape.size() > limits::kTensorRankMax) {
    return InvalidArgument(name + " has " + std::to_string(binding.shape.size()) + " dimensions; at most " +
                           std::to_string(limits::kTensorRankMax) + " are allowed.");
  }
  const std::optional<uint64_t> bytes = TensorBytes(binding.type, binding.shape);
  if (!bytes.has_value() || *bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return InvalidArgument(name + " of shape " + ShapeText(binding.shape) + " has more than 2^63 bytes.");
  }
  if (data == BindData::kOptional) {
    return absl::OkStatus();
  }
  if (binding.bytes != *bytes) {
    return InvalidArgument(name + " of shape " + ShapeText(binding.shape) + " needs " + std::to_string(*bytes) +
                           " bytes; " + std::to_string(binding.bytes) + " are bound.");
  }
  if (binding.data == nullptr && *bytes > 0) {
    return InvalidArgument(name + " (" + std::to_string(*bytes) + " bytes) is bound to no memory.");
  }
  return absl::OkStatus();
}

// Returns an error for names in `given` that are no port of the requested kind.
Status RefuseUnknown(const graph::Node& root, bool inputs, const std::map<std::string, Binding>& given) {
  const std::string what = inputs ? "input" : "output";
  for (const auto& [name, binding] : given) {
    const bool is_known = std::any_of(root.ports.begin(), root.ports.end(), [&](const graph::Port& port) {
      return port.name == name && (port.access == graph::Access::kIn) == inputs;
    });
    if (!is_known) {
      std::string names;
      for (const graph::Port& port : root.ports) {
        if ((port.access == graph::Access::kIn) == inputs) {
          names += (names.empty() ? "" : ", ") + port.name;
        }
      }
      return InvalidArgument("The graph has no " + what + " \"" + name + "\"; its " + what +
                             "s are: " + (names.empty() ? "none" : names) + ".");
    }
  }
  return absl::OkStatus();
}

template <typename T>
T Read(const Binding& binding) {
  T value;
  std::memcpy(&value, binding.data, sizeof(value));
  return value;
}

using Number = std::variant<int64_t, uint64_t, double>;

std::optional<Number> ReadNumber(const Binding& binding) {
  switch (binding.type) {
    case ElementType::kBool:
      return Number(uint64_t{Read<uint8_t>(binding) != 0});
    case ElementType::kI8:
      return Number(int64_t{Read<int8_t>(binding)});
    case ElementType::kU8:
      return Number(uint64_t{Read<uint8_t>(binding)});
    case ElementType::kI16:
      return Number(int64_t{Read<int16_t>(binding)});
    case ElementType::kU16:
      return Number(uint64_t{Read<uint16_t>(binding)});
    case ElementType::kI32:
      return Number(int64_t{Read<int32_t>(binding)});
    case ElementType::kU32:
      return Number(uint64_t{Read<uint32_t>(binding)});
    case ElementType::kI64:
      return Number(Read<int64_t>(binding));
    case ElementType::kU64:
      return Number(Read<uint64_t>(binding));
    case ElementType::kBF16:
      return Number(double{std::bit_cast<float>(uint32_t{Read<uint16_t>(binding)} << 16)});
    case ElementType::kF32:
      return Number(double{Read<float>(binding)});
    case ElementType::kF64:
      return Number(Read<double>(binding));
    case ElementType::kF16:
      return std::nullopt;
  }
  return std::nullopt;
}

uint64_t FloatBits(graph::ScalarType type, double value) {
  return type == graph::ScalarType::kF32 ? std::bit_cast<uint32_t>(static_cast<float>(value))
                                         : std::bit_cast<uint64_t>(value);
}

}  // namespace

Status BindInputs(const graph::Node& root, const std::map<std::string, Binding>& inputs, BindData data,
                  PortBindings& ports) {
  size_t found = 0;
  for (uint32_t port = 0; port < root.ports.size(); ++port) {
    const graph::Port& p = root.ports[port];
    if (p.access != graph::Access::kIn) {
      continue;
    }
    auto it = inputs.find(p.name);
    if (it == inputs.end()) {
      HPVMD_RETURN_IF_ERROR(RefuseUnknown(root, /*inputs=*/true, inputs));
      return InvalidArgument("Input \"" + p.name + "\" is not bound.");
    }
    HPVMD_RETURN_IF_ERROR(CheckMemory("Input", p, it->second, data));
    ports[port] = &it->second;
    ++found;
  }
  return found == inputs.size() ? absl::OkStatus() : RefuseUnknown(root, /*inputs=*/true, inputs);
}

Status CheckOutputNames(const graph::Node& root, const std::map<std::string, Binding>& outputs) {
  size_t found = 0;
  for (const graph::Port& port : root.ports) {
    found += port.access != graph::Access::kIn && outputs.contains(port.name) ? 1 : 0;
  }
  return found == outputs.size() ? absl::OkStatus() : RefuseUnknown(root, /*inputs=*/false, outputs);
}

Status CheckOutput(const graph::Port& port, const graph::FlatValue& value, const Binding& binding) {
  HPVMD_RETURN_IF_ERROR(CheckMemory("Output", port, binding, BindData::kRequired));
  if (binding.shape != value.shape) {
    return InvalidArgument("Output \"" + port.name + "\" is bound with shape " + ShapeText(binding.shape) +
                           "; the graph gives " + ShapeText(value.shape) + ".");
  }
  return absl::OkStatus();
}

Status CheckOverlaps(const graph::Node& root, const PortBindings& ports) {
  struct Range {
    const uint8_t* begin;
    const uint8_t* end;
    uint32_t port;
  };
  std::vector<Range> ranges;
  ranges.reserve(ports.size());
  for (uint32_t port = 0; port < ports.size(); ++port) {
    if (ports[port]->bytes > 0) {
      ranges.push_back({ports[port]->data, ports[port]->data + ports[port]->bytes, port});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  // The furthest end of any port so far, and that of any output.
  const Range* any = nullptr;
  const Range* output = nullptr;
  for (const Range& range : ranges) {
    const bool is_output = root.ports[range.port].access != graph::Access::kIn;
    const Range* other = is_output ? any : output;
    if (other != nullptr && range.begin < other->end) {
      return InvalidArgument("Ports \"" + root.ports[other->port].name + "\" and \"" + root.ports[range.port].name +
                             "\" share memory; an output must have its own.");
    }
    any = any == nullptr || range.end > any->end ? &range : any;
    output = is_output && (output == nullptr || range.end > output->end) ? &range : output;
  }
  return absl::OkStatus();
}

StatusOr<graph::SymbolValues> SolveSymbols(const graph::Graph& graph, const PortBindings& ports,
                                           const std::map<std::string, int64_t>& given) {
  std::map<std::string, std::vector<uint64_t>> shapes;
  const graph::Node& root = graph.node(graph.root());
  for (uint32_t port = 0; port < ports.size(); ++port) {
    if (root.ports[port].access == graph::Access::kIn) {
      shapes.emplace(root.ports[port].name, ports[port]->shape);
    }
  }
  return graph::SolveSymbols(graph, shapes, given);
}

StatusOr<Binding> ShapeOf(const graph::Port& port, const graph::SymbolValues& symbols) {
  Binding binding;
  binding.type = port.type;
  for (const graph::Expr& expr : port.shape) {
    HPVMD_ASSIGN_OR_RETURN(const int64_t extent, graph::Evaluate(expr, symbols));
    if (extent < 0) {
      return InvalidArgument("Output \"" + port.name + "\" has the extent \"" + expr.text + "\" (" +
                             std::to_string(extent) + "), which is negative.");
    }
    binding.shape.push_back(static_cast<uint64_t>(extent));
  }
  const std::optional<uint64_t> bytes = TensorBytes(binding.type, binding.shape);
  if (!bytes.has_value() || *bytes > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return ResourceExhausted("Output \"" + port.name + "\" of shape " + ShapeText(binding.shape) +
                             " has more than 2^63 bytes.");
  }
  binding.bytes = *bytes;
  return binding;
}

StatusOr<uint64_t> ScalarBits(const graph::Port& port, const Binding& binding, graph::ScalarType type) {
  const std::optional<Number> number = binding.bytes == ElementBytes(binding.type) ? ReadNumber(binding) : std::nullopt;
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("Input \"" + port.name + "\" of type " + std::string(Name(binding.type)) +
                           " cannot be a kernel's scalar: " + std::string(why) + ".");
  };
  if (!number.has_value()) {
    return refuse("it is not a single element of a type that a scalar can have");
  }
  const bool is_float = type == graph::ScalarType::kF32 || type == graph::ScalarType::kF64;
  if (const double* value = std::get_if<double>(&*number)) {
    return is_float ? StatusOr<uint64_t>(FloatBits(type, *value)) : refuse("the kernel takes an integer");
  }
  const int64_t* signed_value = std::get_if<int64_t>(&*number);
  const uint64_t bits = signed_value != nullptr ? static_cast<uint64_t>(*signed_value) : std::get<uint64_t>(*number);
  if (is_float) {
    return FloatBits(type, signed_value != nullptr ? static_cast<double>(*signed_value) : static_cast<double>(bits));
  }
  if (type == graph::ScalarType::kI64) {
    return bits;
  }
  const bool fits = signed_value != nullptr ? *signed_value >= std::numeric_limits<int32_t>::min() &&
                                                  *signed_value <= std::numeric_limits<int32_t>::max()
                                            : bits <= std::numeric_limits<uint32_t>::max();
  return fits ? StatusOr<uint64_t>(bits & 0xffffffffu) : refuse("its value does not fit 32 bits");
}

}  // namespace hpvm::engine
