// SPDX-License-Identifier: Apache-2.0
// Buffers manages the buffers that clients create and runs publish.
#ifndef HPVMD_SERVER_CORE_ROOMS_BUFFERS_H_
#define HPVMD_SERVER_CORE_ROOMS_BUFFERS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/io/fd.h"
#include "hpvm/v1/service.pb.h"
#include "server/core/rooms/graphs.h"
#include "server/core/state/core_context.h"
#include "server/core/state/run_outcome.h"

namespace hpvm::server {

class Buffers : private CoreRoom {
 public:
  struct BufferAccess {
    v1::Buffer buffer;
    SegmentRef segment;
  };
  Buffers(CoreContext& context, Graphs& graphs) : CoreRoom(context), graphs_(graphs) {}

  // --- For clients; these lock the mutex ---
  StatusOr<v1::Buffer> CreateBuffer(Tenant& tenant, const v1::CreateBufferRequest& request);
  // Makes a buffer of a client's memory, whose descriptor was passed separately. When this fails, the caller may still
  // own the descriptor, and closes it on a thread that may block.
  StatusOr<v1::Buffer> RegisterBuffer(Tenant& tenant, UniqueFd& fd, const v1::RegisterBufferRequest& request);
  StatusOr<v1::Buffer> PublishBuffer(Tenant& tenant, std::string_view id);
  StatusOr<BufferAccess> OpenBuffer(Tenant& tenant, std::string_view id);
  // Called after writing through the segment; kAborted when a run has published other memory since.
  StatusOr<v1::Buffer> FinishWrite(Tenant& tenant, std::string_view id, const SegmentRef& segment);
  Status DeleteBuffer(Tenant& tenant, std::string_view id);
  // Lists the tenant's buffers, for clients that have lost them.
  Status ListBuffers(Tenant& tenant, const v1::ListBuffersRequest& request, v1::ListBuffersResponse* response);

  // --- For other rooms; the caller holds the mutex ---
  Status Publish(Tenant& tenant, std::vector<RunOutput>& outputs);
  Status MakeBuffers(Tenant& tenant, std::vector<RunOutput>& outputs, std::vector<std::string>* made);
  void ReserveGenerations(Tenant& tenant, std::vector<RunOutput>& outputs);
  void PublishBuffers(Tenant& tenant, std::vector<RunOutput>& outputs);

 private:
  Status MakeRoomFor(Tenant& tenant, BufferRecord& record, uint64_t memory_bytes);
  StatusOr<v1::Buffer> Keep(Tenant& tenant, BufferRecord record);
  void YieldBuffers(Tenant& tenant, uint64_t size_bytes);

  Graphs& graphs_;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CORE_ROOMS_BUFFERS_H_
