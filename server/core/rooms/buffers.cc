// SPDX-License-Identifier: Apache-2.0
#include "server/core/rooms/buffers.h"

#include <utility>

#include "server/core/state/handle_page.h"
#include "server/memory/client_memory.h"
#include "server/process/object_id.h"

namespace hpvm::server {

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
  message.set_registered(record.segment->registered);
  message.set_read_only(record.segment->read_only);
  return message;
}

namespace {

// Returns a record of the size and shape in the request, which is of either kind. A size of 0 means that none was
// given.
template <typename Request>
StatusOr<BufferRecord> RecordFor(const Request& request) {
  BufferRecord record;
  record.size_bytes = request.size_bytes();
  record.labels.insert(request.options().labels().begin(), request.options().labels().end());
  if (request.type() == v1::ELEMENT_TYPE_UNSPECIFIED) {
    if (!request.shape().empty()) {
      return InvalidArgument("The buffer has a shape but no element type.");
    }
    return record;
  }
  record.shape.type = static_cast<uint8_t>(request.type());
  record.shape.extents.assign(request.shape().begin(), request.shape().end());
  HPVMD_ASSIGN_OR_RETURN(const uint64_t needed,
                         CheckedTensorBytes(static_cast<uint32_t>(request.type()), record.shape.extents, "The buffer"));
  if (record.size_bytes == 0) {
    record.size_bytes = needed;
  } else if (needed > record.size_bytes) {
    return InvalidArgument("The buffer's shape needs " + std::to_string(needed) + " bytes, more than its size (" +
                           std::to_string(record.size_bytes) + ").");
  }
  return record;
}

}  // namespace

// Also sets the record's id.
Status Buffers::MakeRoomFor(Tenant& tenant, BufferRecord& record, uint64_t memory_bytes) {
  CoreScope scope(monitor_);
  HPVMD_RETURN_IF_ERROR(shutdown_.RefuseWork());
  YieldBuffers(tenant, record.size_bytes);
  scope.Defer([yielded = std::exchange(tenant.yielded, {})] {});
  HPVMD_RETURN_IF_ERROR(tenant.buffers.Admit(record.size_bytes));
  graphs_.MakeRoom(scope, tenant, memory_bytes);
  record.id = NewObjectId("buf", *options_.rng);
  return absl::OkStatus();
}

StatusOr<v1::Buffer> Buffers::Keep(Tenant& tenant, BufferRecord record) {
  v1::Buffer message = ToMessage(record);
  CoreScope scope(monitor_);
  HPVMD_RETURN_IF_ERROR(tenant.buffers.Insert(std::move(record)));
  graphs_.ScheduleExpiry(scope, tenant.shared_from_this());
  return message;
}

StatusOr<v1::Buffer> Buffers::CreateBuffer(Tenant& tenant, const v1::CreateBufferRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(BufferRecord record, RecordFor(request));
  if (record.size_bytes == 0) {
    return InvalidArgument("The buffer's size is 0; at least 1 byte is needed.");
  }
  HPVMD_RETURN_IF_ERROR(MakeRoomFor(tenant, record, SegmentPool::CapacityFor(record.size_bytes)));
  // Outside the mutex, because zeroing takes time. Keep checks again whether the buffer is admitted.
  HPVMD_ASSIGN_OR_RETURN(SegmentRef segment, tenant.pool.Acquire(record.size_bytes, /*zero=*/true));
  record.segment = Lendable(std::move(segment));
  return Keep(tenant, std::move(record));
}

StatusOr<v1::Buffer> Buffers::RegisterBuffer(Tenant& tenant, UniqueFd& fd, const v1::RegisterBufferRequest& request) {
  HPVMD_ASSIGN_OR_RETURN(BufferRecord record, RecordFor(request));
  HPVMD_ASSIGN_OR_RETURN(const ClientMemory memory, CheckClientMemory(fd.get()));
  if (record.size_bytes == 0) {
    record.size_bytes = memory.bytes;
  } else if (record.size_bytes > memory.bytes) {
    return InvalidArgument("The buffer needs " + std::to_string(record.size_bytes) + " bytes; the shared memory has " +
                           std::to_string(memory.bytes) + ".");
  }
  HPVMD_RETURN_IF_ERROR(MakeRoomFor(tenant, record, memory.bytes));
  HPVMD_ASSIGN_OR_RETURN(SegmentRef segment, tenant.pool.Adopt(fd, memory.bytes, memory.read_only));
  record.segment = Lendable(std::move(segment));
  return Keep(tenant, std::move(record));
}

StatusOr<v1::Buffer> Buffers::PublishBuffer(Tenant& tenant, std::string_view id) {
  CoreScope scope(monitor_);
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, tenant.buffers.Find(id));
  if (!record->segment->registered) {
    return FailedPrecondition("The buffer \"" + record->id +
                              "\" is not registered: WriteBuffer and runs publish what they write.");
  }
  record->generation = ++record->last_generation;
  return ToMessage(*record);
}

StatusOr<Buffers::BufferAccess> Buffers::OpenBuffer(Tenant& tenant, std::string_view id) {
  CoreScope scope(monitor_);
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, tenant.buffers.Find(id));
  return BufferAccess{ToMessage(*record), record->segment.Lend()};
}

StatusOr<v1::Buffer> Buffers::FinishWrite(Tenant& tenant, std::string_view id, const SegmentRef& segment) {
  CoreScope scope(monitor_);
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, tenant.buffers.Find(id));
  if (record->segment.get() != segment.get()) {
    return Aborted("A run published the buffer while it was written; the written bytes are lost.");
  }
  record->generation = ++record->last_generation;
  return ToMessage(*record);
}

Status Buffers::DeleteBuffer(Tenant& tenant, std::string_view id) {
  SegmentRef last;  // Freed after the mutex is unlocked.
  CoreScope scope(monitor_);
  HPVMD_ASSIGN_OR_RETURN(BufferRecord * record, tenant.buffers.Find(id));
  last = record->segment.Lend();
  return tenant.buffers.Erase(id);
}

void Buffers::YieldBuffers(Tenant& tenant, uint64_t size_bytes) {
  const Time before = options_.clock->Now() - std::chrono::milliseconds(config_->limits_yields_after_ms);
  std::vector<SegmentRef> taken = tenant.buffers.TakeIdle(before, size_bytes);
  std::move(taken.begin(), taken.end(), std::back_inserter(tenant.yielded));
}

Status Buffers::ListBuffers(Tenant& tenant, const v1::ListBuffersRequest& request, v1::ListBuffersResponse* response) {
  HPVMD_ASSIGN_OR_RETURN(const size_t page, PageSize(request.page_size()));
  HPVMD_RETURN_IF_ERROR(CheckToken(request.page_token(), "buf-00000000000000000000000000000000"));
  CoreScope scope(monitor_);
  const Time now = options_.clock->Now();
  size_t bytes = 0;
  std::string last = request.page_token();
  for (const BufferRecord* record : tenant.buffers.After(last, page + 1)) {
    v1::Buffer buffer = ToMessage(*record);
    buffer.set_idle_ns(static_cast<uint64_t>(std::max(Duration{0}, now - record->used).count()));
    if (!AddToPage(std::move(buffer), page, PageBytesMax(*config_), &bytes, last, response->mutable_buffers(),
                   response)) {
      break;
    }
    last = record->id;
  }
  return absl::OkStatus();
}

Status Buffers::Publish(Tenant& tenant, std::vector<RunOutput>& outputs) {
  std::vector<std::string> made;
  for (RunOutput& output : outputs) {
    output.in_new_buffer |= output.segment != nullptr && output.buffer_id.empty();
  }
  HPVMD_RETURN_IF_ERROR(MakeBuffers(tenant, outputs, &made));
  ReserveGenerations(tenant, outputs);
  PublishBuffers(tenant, outputs);
  return absl::OkStatus();
}

// Makes all new buffers that the outputs need, or none.
Status Buffers::MakeBuffers(Tenant& tenant, std::vector<RunOutput>& outputs, std::vector<std::string>* made) {
  for (RunOutput& output : outputs) {
    if (!output.in_new_buffer || output.segment == nullptr) {
      continue;
    }
    BufferRecord record;
    record.id = NewObjectId("buf", *options_.rng);
    record.size_bytes = std::max<uint64_t>(1, output.bytes);
    record.shape = {static_cast<uint8_t>(output.type), output.shape};
    record.segment = Lendable(output.segment);
    output.segment = record.segment.Lend();
    output.buffer_id = record.id;
    output.generation = record.generation;
    YieldBuffers(tenant, record.size_bytes);
    if (const Status inserted = tenant.buffers.Insert(std::move(record)); !inserted.ok()) {
      for (const std::string& id : *made) {
        tenant.buffers.Erase(id).IgnoreError();
      }
      made->clear();
      return While(inserted, "making a buffer for output \"" + output.name + "\"");
    }
    made->push_back(output.buffer_id);
  }
  return absl::OkStatus();
}

// Outputs for buffers that were deleted since get no generation: no client can see what was written.
void Buffers::ReserveGenerations(Tenant& tenant, std::vector<RunOutput>& outputs) {
  for (RunOutput& output : outputs) {
    if (output.segment == nullptr || output.generation != 0 || output.buffer_id.empty()) {
      continue;
    }
    if (const StatusOr<BufferRecord*> record = tenant.buffers.Find(output.buffer_id); record.ok()) {
      output.generation = ++(*record)->last_generation;
    }
  }
}

// Cannot fail: all existing buffers change together.
void Buffers::PublishBuffers(Tenant& tenant, std::vector<RunOutput>& outputs) {
  for (RunOutput& output : outputs) {
    if (output.segment == nullptr || output.generation == 0 || output.buffer_id.empty() || output.in_new_buffer) {
      continue;
    }
    if (const StatusOr<BufferRecord*> record = tenant.buffers.Find(output.buffer_id); record.ok()) {
      output.segment = tenant.buffers.Publish(**record, output.segment,
                                              {static_cast<uint8_t>(output.type), output.shape}, output.generation);
    }
  }
}

}  // namespace hpvm::server
