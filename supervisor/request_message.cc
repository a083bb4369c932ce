// SPDX-License-Identifier: Apache-2.0
#include "supervisor/request_message.h"

#include <string.h>

#include <algorithm>

#include "base/io/memfd.h"
#include "proto/internal/protocol.h"

namespace hpvm::supervisor {
namespace {

// Limit of bytes sent in a frame's body rather than in a separate memfd.
constexpr uint64_t kInlineSourceBytesMax = 1 * limits::kMiB;

uint64_t AlignUp(uint64_t value) { return (value + kRangeAlignment - 1) / kRangeAlignment * kRangeAlignment; }

Status CheckSlice(const std::string& port, const MemorySlice& slice) {
  uint64_t end = 0;
  if (slice.memory_id == 0 || slice.offset % kRangeAlignment != 0 ||
      __builtin_add_overflow(slice.offset, slice.bytes, &end) || end > slice.memory_bytes) {
    return InvalidArgument("Port \"" + port + "\": The range does not lie inside its memory.");
  }
  return absl::OkStatus();
}

void SetMemory(const MemorySlice& slice, internal::MemoryRange* range) {
  range->set_memory_id(slice.memory_id);
  range->set_offset(slice.offset);
  range->set_bytes(slice.bytes);
}

Status EncodeInput(const InputTensor& input, uint64_t* body_bytes, internal::Binding* binding) {
  binding->set_name(input.name);
  binding->set_type(static_cast<uint32_t>(input.type));
  binding->mutable_shape()->Add(input.shape.begin(), input.shape.end());
  if (input.memory.has_value()) {
    HPVMD_RETURN_IF_ERROR(CheckSlice(input.name, *input.memory));
    SetMemory(*input.memory, binding->mutable_memory());
    return absl::OkStatus();
  }
  const uint64_t offset = AlignUp(*body_bytes), given = input.bytes.size();
  if (offset + given > kBodyBytesMax) {
    return InvalidArgument("The inline inputs together (" + std::to_string(offset + given) +
                           " bytes) exceed the limit (" + std::to_string(kBodyBytesMax) + ").");
  }
  binding->mutable_body()->set_offset(static_cast<uint32_t>(offset));
  binding->mutable_body()->set_bytes(static_cast<uint32_t>(given));
  *body_bytes = offset + given;
  return absl::OkStatus();
}

// Copies the inline inputs to the positions given by their ranges.
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
      request->body = bytes;  // The only piece is sent without a copy.
      return;
    }
    request->storage.resize(body_bytes);
    memcpy(request->storage.data() + binding.body().offset(), bytes.data(), bytes.size());
  }
  request->body = request->storage;
}

}  // namespace

Status AddSource(const BytesSource& source, EncodedRequest* request, const std::function<internal::Range*()>& range) {
  if (source.fd < 0 && source.size() <= kInlineSourceBytesMax) {
    range()->set_bytes(static_cast<uint32_t>(source.size()));
    request->body = source.bytes;
    return absl::OkStatus();
  }
  if (source.fd < 0) {
    HPVMD_ASSIGN_OR_RETURN(request->copy, CreateSealedMemfd("hpvm-bytes", source.size()));
    HPVMD_RETURN_IF_ERROR(WriteAt(request->copy.get(), 0, source.bytes));
  }
  request->fds = {source.fd < 0 ? request->copy.get() : source.fd};
  return absl::OkStatus();
}

Status EncodePrepare(const PrepareInput& input, EncodedRequest* request) {
  internal::PrepareGraph* prepare = request->envelope.mutable_prepare_graph();
  prepare->set_handle(input.handle);
  prepare->set_deadline_ns(static_cast<uint64_t>(std::max<int64_t>(input.within.count(), 0)));
  prepare->set_check(input.check);
  for (const ModuleInput& module : input.modules) {
    internal::NamedModule* named = prepare->add_modules();
    named->set_name(module.name);
    named->set_sha256(std::string(Raw(module.hash)));
  }
  prepare->set_document_bytes(input.document.size());
  HPVMD_RETURN_IF_ERROR(AddSource(input.document, request, [&] { return prepare->mutable_document(); }));
  return CheckPrepare(*prepare, request->body.size(), request->fds.size());
}

Status EncodeRun(const RunInput& input, EncodedRequest* request) {
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
  internal::RunOptions& options = *run->mutable_options();
  options = input.options;
  options.set_live_log(input.on_log != nullptr);
  options.set_node_records_max(std::min(options.node_records_max(), kNodeRecordsMax));
  options.set_inline_bytes_max(std::min(options.inline_bytes_max(), kInlineBytesMax));
  FillBody(input, body_bytes, request);
  return CheckRun(*run, request->body.size());
}

}  // namespace hpvm::supervisor
