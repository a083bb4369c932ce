// SPDX-License-Identifier: Apache-2.0
// Checks a request's bindings to a graph's ports and converts them to the form that is sent to an executor.
#ifndef HPVMD_SERVER_CORE_STATE_BINDINGS_H_
#define HPVMD_SERVER_CORE_STATE_BINDINGS_H_

#include <map>
#include <string>
#include <vector>

#include "hpvm/v1/tensor.pb.h"
#include "server/core/state/execution.h"
#include "server/memory/buffer_store.h"

namespace hpvm::server {

inline supervisor::MemorySlice SliceOf(const Segment& segment, uint64_t bytes) {
  return {.memory_id = segment.id,
          .fd = segment.fd.get(),
          .memory_bytes = segment.capacity_bytes,
          .writable = !segment.read_only,
          .offset = 0,
          .bytes = bytes};
}

// Returns kInvalidArgument when `count` exceeds the number of ports that any graph can have.
Status CheckCount(std::string_view what, int count);
Status CheckBindings(const google::protobuf::RepeatedPtrField<v1::InputBinding>& inputs,
                     const google::protobuf::RepeatedPtrField<v1::OutputBinding>& outputs);

// The Resolve functions borrow the tensor's bytes. kInvalidArgument names `place`.
Status ResolveTensor(const v1::Tensor& tensor, const std::string& place, supervisor::InputTensor& input);
// Adds the buffer's memory to `pins`, unless the view is empty.
Status ResolveView(BufferStore& buffers, const v1::BufferView& view, const std::string& place,
                   supervisor::InputTensor& input, std::vector<SegmentRef>& pins);
Status ResolveOutput(BufferStore& buffers, const v1::OutputBinding& binding, OutputPlan& plan);
// Checks outputs in registered memory, which runs write in place: returns kInvalidArgument where one of `pins`, the
// inputs' memory, or another output uses the same memory.
Status CheckRegisteredOutputs(const std::map<std::string, OutputPlan>& plans, const std::vector<SegmentRef>& pins);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_STATE_BINDINGS_H_
