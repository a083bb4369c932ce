// SPDX-License-Identifier: Apache-2.0
// Buffers as clients see them, and as runs publish them.
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
  // A client's memory, whose descriptor came some other way, becomes a buffer. Where it does not, the descriptor may
  // still be the caller's, to be closed where nobody waits.
  StatusOr<v1::Buffer> RegisterBuffer(Tenant& tenant, UniqueFd& fd, const v1::RegisterBufferRequest& request);
  StatusOr<v1::Buffer> PublishBuffer(Tenant& tenant, std::string_view id);
  StatusOr<BufferAccess> OpenBuffer(Tenant& tenant, std::string_view id);
  // After writing through the segment; kAborted when a run published other memory meanwhile.
  StatusOr<v1::Buffer> FinishWrite(Tenant& tenant, std::string_view id, const SegmentRef& segment);
  Status DeleteBuffer(Tenant& tenant, std::string_view id);
  // The tenant's buffers, for clients that have lost them.
  Status ListBuffers(Tenant& tenant, const v1::ListBuffersRequest& request, v1::ListBuffersResponse* response);

  // --- For other rooms, with the mutex ---
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
