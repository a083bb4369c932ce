// SPDX-License-Identifier: Apache-2.0
// Resolves the bindings of a run: its inputs, and the destinations of its outputs.
#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "proto/internal/protocol.h"
#include "server/core/rooms/runs.h"
#include "server/core/state/bindings.h"
#include "server/process/object_id.h"

namespace hpvm::server {
Status CheckCount(std::string_view what, int count) {
  if (static_cast<uint32_t>(count) > kPortsMax) {
    return InvalidArgument("The request has " + std::to_string(count) + " " + std::string(what) + "; the limit is " +
                           std::to_string(kPortsMax) + ".");
  }
  return absl::OkStatus();
}

Status CheckBindings(const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                     const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs) {
  HPVMD_RETURN_IF_ERROR(CheckCount("inputs", inputs.size()));
  return CheckCount("outputs", outputs.size());
}

Status ResolveTensor(const v1::Tensor& tensor, const std::string& place, supervisor::InputTensor& input) {
  input.shape.assign(tensor.shape().begin(), tensor.shape().end());
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes,
                         CheckedTensorBytes(static_cast<uint32_t>(tensor.type()), input.shape, place));
  if (tensor.data().size() > limits::kInlineTensorBytesMax) {
    return InvalidArgument(place + " has " + std::to_string(tensor.data().size()) + " inline bytes; the limit is " +
                           std::to_string(limits::kInlineTensorBytesMax) + ". Pass larger data in a buffer.");
  }
  if (bytes != tensor.data().size()) {
    return InvalidArgument(place + " has " + std::to_string(tensor.data().size()) + " bytes; its shape needs " +
                           std::to_string(bytes) + ".");
  }
  input.type = static_cast<ElementType>(tensor.type());
  input.bytes = BytesOf(tensor.data());
  return absl::OkStatus();
}

Status ResolveView(BufferStore& buffers, const v1::BufferView& view, const std::string& place,
                   supervisor::InputTensor& input, std::vector<SegmentRef>& pins) {
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, buffers.Find(view.buffer_id()));
  if (view.generation() != 0 && view.generation() != record->generation) {
    return FailedPrecondition(place + " asks for generation " + std::to_string(view.generation()) +
                              " of its buffer, which has generation " + std::to_string(record->generation) + ".");
  }
  if (record->lost) {
    return DataLoss(place + "'s buffer was lost with the device that held it; write it again.");
  }
  uint32_t type = static_cast<uint32_t>(view.type());
  if (type == 0) {
    type = record->shape.type;
    input.shape = record->shape.extents;
  } else {
    input.shape.assign(view.shape().begin(), view.shape().end());
  }
  if (type == 0) {
    return InvalidArgument(place + "'s buffer has no element type; the view must give one.");
  }
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, CheckedTensorBytes(type, input.shape, place));
  if (bytes > record->size_bytes) {
    return InvalidArgument(place + "'s shape needs " + std::to_string(bytes) + " bytes; its buffer has " +
                           std::to_string(record->size_bytes) + ".");
  }
  input.type = static_cast<ElementType>(type);
  if (bytes > 0) {
    input.memory = SliceOf(*record->segment, bytes);
    pins.push_back(record->segment.Lend());
  }
  return absl::OkStatus();
}

Status ResolveOutput(BufferStore& buffers, const v1::OutputBinding& binding, OutputPlan& plan) {
  switch (binding.target_case()) {
    case v1::OutputBinding::kBufferId: {
      HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, buffers.Find(binding.buffer_id()));
      plan.kind = OutputPlan::Kind::kBuffer;
      plan.buffer_id = binding.buffer_id();
      plan.buffer_bytes = record->size_bytes;
      if (record->segment->read_only) {
        return FailedPrecondition("Output \"" + binding.name() +
                                  "\" is bound to registered memory that can only be read.");
      }
      if (record->segment->registered) {
        plan.segment = record->segment.Lend();
        plan.segment_bytes = record->size_bytes;
      }
      break;
    }
    case v1::OutputBinding::kNewBuffer:
      plan.kind = binding.new_buffer() ? OutputPlan::Kind::kNewBuffer : OutputPlan::Kind::kAuto;
      break;
    case v1::OutputBinding::kDiscard:
      plan.kind = binding.discard() ? OutputPlan::Kind::kDiscard : OutputPlan::Kind::kAuto;
      break;
    case v1::OutputBinding::TARGET_NOT_SET:
      break;
  }
  return absl::OkStatus();
}

Status CheckRegisteredOutputs(const std::map<std::string, OutputPlan>& plans, const std::vector<SegmentRef>& pins) {
  std::set<uint64_t> taken;
  for (const SegmentRef& pin : pins) {
    taken.insert(pin->id);
  }
  for (const auto& [name, plan] : plans) {
    if (plan.segment != nullptr && plan.segment->registered && !taken.insert(plan.segment->id).second) {
      return InvalidArgument(
          "Output \"" + name + "\" is bound to the registered buffer \"" + plan.buffer_id +
          "\", which is bound to another port, too. A run writes registered memory in place: bind another buffer.");
    }
  }
  return absl::OkStatus();
}

Status Runs::ResolveBindings(Tenant& tenant, Sending& sending,
                             const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                             const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs) {
  sending.input.inputs.resize(static_cast<size_t>(inputs.size()));
  sending.input_shapes.reserve(sending.input.inputs.size());
  for (int i = 0; i < inputs.size(); ++i) {
    const v1::InputBinding& binding = inputs[i];
    supervisor::InputTensor& input = sending.input.inputs[static_cast<size_t>(i)];
    input.name = binding.name();
    const std::string place = "Input \"" + binding.name() + "\"";
    if (binding.has_tensor()) {
      HPVMD_RETURN_IF_ERROR(ResolveTensor(binding.tensor(), place, input));
    } else if (binding.has_buffer()) {
      HPVMD_RETURN_IF_ERROR(ResolveView(tenant.buffers, binding.buffer(), place, input, sending.pins));
    } else {
      return InvalidArgument(place + " is bound to neither a tensor nor a buffer.");
    }
    sending.input_shapes.push_back({static_cast<uint8_t>(input.type), input.shape});
  }
  for (const v1::OutputBinding& binding : outputs) {
    const auto [plan, is_new] = sending.plans.try_emplace(binding.name());
    if (!is_new) {
      return InvalidArgument("Output \"" + binding.name() + "\" is bound twice.");
    }
    HPVMD_RETURN_IF_ERROR(ResolveOutput(tenant.buffers, binding, plan->second));
  }
  return CheckRegisteredOutputs(sending.plans, sending.pins);
}

}  // namespace hpvm::server
