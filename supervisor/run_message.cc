// SPDX-License-Identifier: Apache-2.0
#include "supervisor/run_message.h"

#include <string.h>

#include <algorithm>
#include <string_view>

#include "proto/internal/protocol.h"

namespace hpvm {
namespace {

uint64_t AlignUp(uint64_t value) { return (value + kRangeAlignment - 1) / kRangeAlignment * kRangeAlignment; }

Status CheckCount(std::string_view what, uint64_t count, uint64_t max) {
  if (count <= max) {
    return absl::OkStatus();
  }
  return InvalidArgument("The number of " + std::string(what) + " (" + std::to_string(count) + ") exceeds the limit (" +
                         std::to_string(max) + ").");
}

Status CheckSlice(const std::string& port, const MemorySlice& slice) {
  uint64_t end = 0;
  if (slice.memory_id == 0 || slice.offset % kRangeAlignment != 0 ||
      __builtin_add_overflow(slice.offset, slice.bytes, &end) || end > slice.memory_bytes) {
    return InvalidArgument("Port \"" + port + "\": The memory's range does not lie inside it.");
  }
  return absl::OkStatus();
}

void SetMemory(const MemorySlice& slice, internal::MemoryRange* range) {
  range->set_memory_id(slice.memory_id);
  range->set_offset(slice.offset);
  range->set_bytes(slice.bytes);
}

Status EncodeInput(const InputTensor& input, uint64_t* body_bytes, internal::Binding* binding) {
  const std::optional<uint64_t> bytes = TensorBytes(input.type, input.shape);
  const uint64_t given = input.memory.has_value() ? input.memory->bytes : input.bytes.size();
  if (!bytes.has_value() || *bytes != given) {
    return InvalidArgument("Port \"" + input.name + "\": The data (" + std::to_string(given) +
                           " bytes) does not have the size that its shape needs" +
                           (bytes.has_value() ? " (" + std::to_string(*bytes) + ")." : "."));
  }
  binding->set_name(input.name);
  binding->set_type(static_cast<uint32_t>(input.type));
  binding->mutable_shape()->Add(input.shape.begin(), input.shape.end());
  if (input.memory.has_value()) {
    HPVMD_RETURN_IF_ERROR(CheckSlice(input.name, *input.memory));
    SetMemory(*input.memory, binding->mutable_memory());
    return absl::OkStatus();
  }
  const uint64_t offset = AlignUp(*body_bytes);
  if (offset + given > kBodyBytesMax) {
    return InvalidArgument("The inline inputs together (" + std::to_string(offset + given) +
                           " bytes) exceed the limit (" + std::to_string(kBodyBytesMax) + ").");
  }
  binding->mutable_body()->set_offset(static_cast<uint32_t>(offset));
  binding->mutable_body()->set_bytes(static_cast<uint32_t>(given));
  *body_bytes = offset + given;
  return absl::OkStatus();
}

// Lays the inline inputs out as their ranges say.
void FillBody(const RunInput& input, uint64_t body_bytes, EncodedRequest* request) {
  if (body_bytes == 0) {
    return;
  }
  const internal::Run& run = request->envelope.run();
  for (size_t i = 0; i < input.inputs.size(); ++i) {
    const std::span<const uint8_t> bytes = input.inputs[i].bytes;
    const internal::Binding& binding = run.inputs(static_cast<int>(i));
    if (!binding.has_body() || bytes.empty()) {
      continue;
    }
    if (bytes.size() == body_bytes) {
      request->body = bytes;  // The only one: sent from where it is.
      return;
    }
    request->storage.resize(body_bytes);
    memcpy(request->storage.data() + binding.body().offset(), bytes.data(), bytes.size());
  }
  request->body = request->storage;
}

}  // namespace

Status EncodeRun(const RunInput& input, EncodedRequest* request) {
  HPVMD_RETURN_IF_ERROR(CheckCount("inputs", input.inputs.size(), kPortsMax));
  HPVMD_RETURN_IF_ERROR(CheckCount("outputs", input.outputs.size(), kPortsMax));
  HPVMD_RETURN_IF_ERROR(CheckCount("symbols", input.symbols.size(), kPortsMax));
  internal::Run* run = request->envelope.mutable_run();
  run->set_handle(input.handle);
  uint64_t body_bytes = 0;
  for (const InputTensor& tensor : input.inputs) {
    HPVMD_RETURN_IF_ERROR(EncodeInput(tensor, &body_bytes, run->add_inputs()));
  }
  for (const OutputTarget& output : input.outputs) {
    internal::Target* target = run->add_outputs();
    target->set_name(output.name);
    switch (output.kind) {
      case OutputTarget::Kind::kInline:
        target->set_inline_(true);
        break;
      case OutputTarget::Kind::kDiscard:
        target->set_discard(true);
        break;
      case OutputTarget::Kind::kMemory:
        HPVMD_RETURN_IF_ERROR(CheckSlice(output.name, output.memory));
        if (!output.memory.writable) {
          return InvalidArgument("Port \"" + output.name + "\": The output's memory is read-only.");
        }
        SetMemory(output.memory, target->mutable_memory());
        break;
    }
  }
  for (const auto& [name, value] : input.symbols) {
    (*run->mutable_symbols())[name] = value;
  }
  run->set_deadline_ns(static_cast<uint64_t>(std::max<int64_t>(input.within.count(), 0)));
  run->set_events(input.on_started != nullptr);
  HPVMD_RETURN_IF_ERROR(CheckCount("rotations", static_cast<uint64_t>(input.options.rotations_size()), kPortsMax));
  internal::RunOptions& options = *run->mutable_options();
  options = input.options;
  options.set_node_records_max(std::min(options.node_records_max(), kNodeRecordsMax));
  options.set_inline_bytes_max(std::min(options.inline_bytes_max(), kInlineBytesMax));
  FillBody(input, body_bytes, request);
  return absl::OkStatus();
}

}  // namespace hpvm
