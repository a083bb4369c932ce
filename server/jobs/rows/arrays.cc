// SPDX-License-Identifier: Apache-2.0
#include "server/jobs/rows/arrays.h"

#include <algorithm>
#include <string>

namespace hpvm::server {
namespace {

// Size and largest value of an integer type; 0 bytes: not an integer type.
struct IntegerType {
  uint32_t bytes = 0;
  uint64_t max = 0;
};

IntegerType IntegerTypeOf(v1::ElementType type) {
  switch (type) {
    case v1::ELEMENT_TYPE_I8:
      return {1, INT8_MAX};
    case v1::ELEMENT_TYPE_U8:
      return {1, UINT8_MAX};
    case v1::ELEMENT_TYPE_I16:
      return {2, INT16_MAX};
    case v1::ELEMENT_TYPE_U16:
      return {2, UINT16_MAX};
    case v1::ELEMENT_TYPE_I32:
      return {4, INT32_MAX};
    case v1::ELEMENT_TYPE_U32:
      return {4, UINT32_MAX};
    case v1::ELEMENT_TYPE_I64:
      return {8, INT64_MAX};
    case v1::ELEMENT_TYPE_U64:
      return {8, UINT64_MAX};
    default:
      return {};
  }
}

uint64_t StepOf(const v1::JobArray& array) { return std::max<uint64_t>(1, array.step()); }

Status CheckIndexPort(const v1::GraphSummary& summary, const std::string& name, uint64_t last) {
  for (const v1::PortSummary& port : summary.inputs()) {
    if (port.name() != name) {
      continue;
    }
    if (port.shape_size() != 0) {
      return InvalidArgument("Input \"" + name + "\" is bound to the array's index; its rank (" +
                             std::to_string(port.shape_size()) + ") is not 0.");
    }
    if (const StatusOr<v1::Tensor> tensor = IndexTensor(port.type(), last); !tensor.ok()) {
      return InvalidArgument("Input \"" + name + "\": " + Message(tensor.status()));
    }
  }
  return absl::OkStatus();  // A name that the graph does not have is refused with the other bindings.
}

// Returns the input of `stored` at a position of the request; null when it is inline.
const internal::StoredInput* InputAt(const StoredRequest& stored, int position) {
  for (const internal::StoredInput& input : stored.inputs()) {
    if (input.index() == static_cast<uint32_t>(position)) {
      return &input;
    }
  }
  return nullptr;
}

}  // namespace

StatusOr<uint64_t> CountElements(const v1::JobArray& array, uint64_t count_max) {
  if (array.last() < array.first()) {
    return InvalidArgument("The array's last index (" + std::to_string(array.last()) + ") is below its first (" +
                           std::to_string(array.first()) + ").");
  }
  const uint64_t steps = (array.last() - array.first()) / StepOf(array);  // One less than the elements.
  if (steps >= count_max) {
    const std::string count = steps == UINT64_MAX ? "2^64" : std::to_string(steps + 1);
    return ResourceExhausted("The array has " + count + " elements; the limit is " + std::to_string(count_max) + ".");
  }
  return steps + 1;
}

uint64_t IndexOf(const v1::JobArray& array, uint64_t position) { return array.first() + position * StepOf(array); }

StatusOr<v1::Tensor> IndexTensor(v1::ElementType type, uint64_t index) {
  const IntegerType integer = IntegerTypeOf(type);
  if (integer.bytes == 0) {
    return InvalidArgument("The type " + v1::ElementType_Name(type) +
                           " cannot hold an array's index; use an integer type.");
  }
  if (index > integer.max) {
    return InvalidArgument("The array's index (" + std::to_string(index) + ") is larger than the type " +
                           v1::ElementType_Name(type) + " can hold (" + std::to_string(integer.max) + ").");
  }
  v1::Tensor tensor;
  tensor.set_type(type);
  for (uint32_t byte = 0; byte < integer.bytes; ++byte) {
    tensor.mutable_data()->push_back(static_cast<char>(index >> (8 * byte) & 0xff));
  }
  return tensor;
}

Status CheckArrayUse(const v1::SubmitRequest& request, const v1::GraphSummary& summary) {
  const v1::JobArray& array = request.array();
  const uint64_t last = request.has_array() ? IndexOf(array, (array.last() - array.first()) / StepOf(array)) : 0;
  for (const v1::InputBinding& input : request.inputs()) {
    if (!input.array_index()) {
      continue;
    }
    if (!request.has_array()) {
      return InvalidArgument("Input \"" + input.name() +
                             "\" is bound to an array's index, but the job is not an array.");
    }
    HPVMD_RETURN_IF_ERROR(CheckIndexPort(summary, input.name(), last));
  }
  if (array.symbol().empty()) {
    return absl::OkStatus();
  }
  if (std::find(summary.symbols().begin(), summary.symbols().end(), array.symbol()) == summary.symbols().end()) {
    return InvalidArgument("The graph has no symbol \"" + array.symbol().substr(0, 80) + "\" for the array's index.");
  }
  if (request.symbols().contains(array.symbol())) {
    return InvalidArgument("The symbol \"" + array.symbol() + "\" is given a value but is also the array's index.");
  }
  if (last > INT64_MAX) {
    return InvalidArgument("The array's last index (" + std::to_string(last) + ") is larger than a symbol can hold.");
  }
  return absl::OkStatus();
}

Status TakeElement(StoredRequest& stored, uint64_t index) {
  const auto type_of = [&](int position) {
    const internal::StoredInput* input = InputAt(stored, position);
    return input == nullptr ? v1::ELEMENT_TYPE_UNSPECIFIED : static_cast<v1::ElementType>(input->type());
  };
  HPVMD_RETURN_IF_ERROR(FillIndex(*stored.mutable_request(), index, type_of));
  google::protobuf::RepeatedPtrField<internal::StoredInput> kept;
  for (const internal::StoredInput& input : stored.inputs()) {
    const auto position = static_cast<int>(input.index());
    if (position < stored.request().inputs_size() && !stored.request().inputs(position).has_tensor()) {
      *kept.Add() = input;
    }
  }
  *stored.mutable_inputs() = kept;
  return absl::OkStatus();
}

}  // namespace hpvm::server
