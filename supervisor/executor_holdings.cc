// SPDX-License-Identifier: Apache-2.0
#include "supervisor/executor_holdings.h"

#include <vector>

#include "base/failpoint.h"
#include "proto/internal/protocol.h"
#include "supervisor/request_message.h"

namespace hpvm::supervisor {

using internal::Envelope;

Status ExecutorHoldings::PutModules(const PrepareInput& input, const Send& send) {
  for (const ModuleInput& module : input.modules) {
    const uint64_t bytes = module.bytes.size();
    if (bytes == 0 || bytes > limits::kModuleBytesMax) {
      return InvalidArgument("Module \"" + module.name + "\": The size (" + std::to_string(bytes) +
                             " bytes) is not between 1 and the limit (" + std::to_string(limits::kModuleBytesMax) +
                             ").");
    }
    HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.module.send"));
    if (modules_.Touch(module.hash, bytes)) {
      continue;
    }
    while (modules_.size() > kModulesMax || modules_.weight() > kModulesBytesMax) {
      const Sha256 oldest = modules_.oldest();
      modules_.Erase(oldest);
      if (oldest == module.hash) {
        return ResourceExhausted("The modules of one graph exceed the limit (" + std::to_string(kModulesBytesMax) +
                                 " bytes).");
      }
      Envelope drop;
      drop.mutable_drop_module()->set_sha256(oldest.bytes.data(), oldest.bytes.size());
      HPVMD_RETURN_IF_ERROR(send(drop, {}, {}, true));
    }
    if (const Status status = PutModule(module, send); !status.ok()) {
      modules_.Erase(module.hash);
      return status;
    }
  }
  return absl::OkStatus();
}

Status ExecutorHoldings::PutModule(const ModuleInput& module, const Send& send) {
  EncodedRequest request;
  internal::PutModule* put = request.envelope.mutable_put_module();
  put->set_sha256(module.hash.bytes.data(), module.hash.bytes.size());
  put->set_bytes(module.bytes.size());
  HPVMD_RETURN_IF_ERROR(AddSource(module.bytes, &request, [&] { return put->mutable_body(); }));
  return send(request.envelope, request.body, request.fds, request.fds.empty());
}

Status ExecutorHoldings::ShareMemory(const MemorySlice& slice, const Send& send) {
  HPVMD_RETURN_IF_ERROR(HPVMD_FAILPOINT("link.memory.share"));
  if (memories_.Touch(slice.memory_id)) {
    return absl::OkStatus();
  }
  while (memories_.size() > kMemoriesMax) {
    const uint64_t oldest = memories_.oldest();
    memories_.Erase(oldest);
    Envelope forget;
    forget.mutable_forget_memory()->set_memory_id(oldest);
    HPVMD_RETURN_IF_ERROR(send(forget, {}, {}, true));
  }
  Envelope envelope;
  internal::ShareMemory* share = envelope.mutable_share_memory();
  share->set_memory_id(slice.memory_id);
  share->set_bytes(slice.memory_bytes);
  share->set_writable(slice.writable);
  const Status status = send(envelope, {}, {&slice.fd, 1}, true);
  if (!status.ok()) {
    memories_.Erase(slice.memory_id);
  }
  return status;
}

Status ExecutorHoldings::ShareMemories(const RunInput& input, const Send& send) {
  std::vector<const MemorySlice*> slices;
  for (const InputTensor& tensor : input.inputs) {
    if (tensor.memory.has_value()) {
      slices.push_back(&*tensor.memory);
    }
  }
  for (const OutputTarget& output : input.outputs) {
    if (output.kind == OutputTarget::Kind::kMemory) {
      slices.push_back(&output.memory);
    }
  }
  if (slices.size() > kMemoriesMax) {
    return InvalidArgument("The memories of one run (" + std::to_string(slices.size()) + ") exceed the limit (" +
                           std::to_string(kMemoriesMax) + ").");
  }
  for (const MemorySlice* slice : slices) {
    HPVMD_RETURN_IF_ERROR(ShareMemory(*slice, send));
  }
  return absl::OkStatus();
}

}  // namespace hpvm::supervisor
