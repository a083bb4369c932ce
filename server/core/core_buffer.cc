// SPDX-License-Identifier: Apache-2.0
// Buffers as clients see them.
#include <utility>

#include "server/core/core.h"
#include "server/process/object_id.h"

namespace hpvm {

v1::Buffer ToMessage(const BufferRecord& record) {
  v1::Buffer message;
  message.set_id(record.id);
  message.set_generation(record.generation);
  message.set_size_bytes(record.size_bytes);
  message.set_type(static_cast<v1::ElementType>(record.shape.type));
  message.mutable_shape()->Add(record.shape.extents.begin(), record.shape.extents.end());
  message.mutable_labels()->insert(record.labels.begin(), record.labels.end());
  message.set_state(record.lost ? v1::Buffer::STATE_LOST : v1::Buffer::STATE_VALID);
  message.set_created_unix_ns(record.created_unix_ns);
  return message;
}

StatusOr<v1::Buffer> Core::CreateBuffer(Tenant& tenant, const v1::CreateBufferRequest& request) {
  BufferRecord record;
  record.size_bytes = request.size_bytes();
  if (request.type() != v1::ELEMENT_TYPE_UNSPECIFIED) {
    record.shape.type = static_cast<uint8_t>(request.type());
    record.shape.extents.assign(request.shape().begin(), request.shape().end());
    HPVMD_ASSIGN_OR_RETURN(const uint64_t needed, CheckedTensorBytes(static_cast<uint32_t>(request.type()),
                                                                     record.shape.extents, "The buffer"));
    if (record.size_bytes == 0) {
      record.size_bytes = needed;
    } else if (needed > record.size_bytes) {
      return InvalidArgument("The buffer's shape needs " + std::to_string(needed) + " bytes, more than its size (" +
                             std::to_string(record.size_bytes) + ").");
    }
  } else if (!request.shape().empty()) {
    return InvalidArgument("The buffer has a shape and no element type.");
  }
  if (record.size_bytes == 0) {
    return InvalidArgument("The buffer's size is 0; at least 1 byte is needed.");
  }
  record.labels.insert(request.options().labels().begin(), request.options().labels().end());
  {
    CoreScope scope(*this);
    HPVMD_RETURN_IF_ERROR(RefuseWhenDraining());
    YieldBuffers(tenant, record.size_bytes);
    scope.Defer([yielded = std::exchange(tenant.yielded, {})] {});
    HPVMD_RETURN_IF_ERROR(tenant.buffers.Admit(record.size_bytes));
    MakeRoom(scope, tenant, SegmentPool::CapacityFor(record.size_bytes));
    record.id = NewObjectId("buf", *options_.rng);
  }
  // Without the mutex: zeroing takes time. Insert admits it again.
  HPVMD_ASSIGN_OR_RETURN(record.segment, tenant.pool.Acquire(record.size_bytes, /*zero=*/true));
  v1::Buffer message = ToMessage(record);
  CoreScope scope(*this);
  HPVMD_RETURN_IF_ERROR(tenant.buffers.Insert(std::move(record)));
  ScheduleExpiry(scope, tenant.shared_from_this());
  return message;
}

StatusOr<Core::BufferAccess> Core::OpenBuffer(Tenant& tenant, std::string_view id) {
  CoreScope scope(*this);
  HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, tenant.buffers.Find(id));
  return BufferAccess{ToMessage(*record), record->segment};
}

StatusOr<v1::Buffer> Core::FinishWrite(Tenant& tenant, std::string_view id, const SegmentRef& segment) {
  CoreScope scope(*this);
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, tenant.buffers.Find(id));
  if (record->segment != segment) {
    return Aborted("A run published the buffer while it was written; what was written is lost.");
  }
  record->generation = ++record->last_generation;
  return ToMessage(*record);
}

Status Core::DeleteBuffer(Tenant& tenant, std::string_view id) {
  SegmentRef last;  // Freed after the mutex.
  CoreScope scope(*this);
  HPVMD_ASSIGN_OR_RETURN(const BufferRecord* record, tenant.buffers.Find(id));
  last = record->segment;
  return tenant.buffers.Erase(id);
}

}  // namespace hpvm
