// SPDX-License-Identifier: Apache-2.0
#include "client/local_run.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hpvm {
namespace {

constexpr uint64_t kPage = 4096;
// Time that a server may leave a descriptor in its socket.
constexpr Duration kTakenWithin = std::chrono::milliseconds(500);

// Rounds up to whole pages, then to eighths of a power of two, so that similar sizes share memory.
uint64_t CapacityFor(uint64_t bytes) {
  const uint64_t pages = std::max<uint64_t>(1, bytes / kPage + (bytes % kPage != 0));
  const uint64_t step = std::max<uint64_t>(1, std::bit_floor(pages) / 8);
  return (pages + step - 1) / step * step * kPage;
}

}  // namespace

bool Client::LocalRun::Tries() const { return !is_over_ && client_.connection_->local.refusal().empty(); }

StatusOr<LocalMemory*> Client::LocalRun::Take(uint64_t bytes) {
  std::optional<LocalMemory> found = client_.connection_->local.Take(bytes);
  if (!found.has_value()) {
    HPVMD_ASSIGN_OR_RETURN(found, client_.MakeLocal(CapacityFor(bytes), call_));
  }
  const std::string id = found->buffer.id();
  return &taken_.emplace(id, *std::move(found)).first->second;
}

bool Client::LocalRun::BindInput(const Tensor& tensor, v1::InputBinding* binding) {
  const StatusOr<LocalMemory*> local = Take(tensor.data.size());
  if (!local.ok()) {
    is_over_ = true;  // For this run only: a quota may have room again. MakeLocal records permanent reasons.
    return false;
  }
  std::copy(tensor.data.begin(), tensor.data.end(), (*local)->memory.data());
  v1::BufferView& view = *binding->mutable_buffer();
  view.set_buffer_id((*local)->buffer.id());
  view.set_type(ToProto(tensor.type));
  view.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  return true;
}

void Client::LocalRun::BindOutputs(const std::map<std::string, std::string>& bound, v1::RunRequest* request) {
  for (const auto& [name, bytes] : client_.connection_->local.OutputsOf(run_)) {
    if (!Tries()) {
      return;
    }
    if (bound.contains(name)) {
      continue;
    }
    if (const StatusOr<LocalMemory*> local = Take(bytes); local.ok()) {
      v1::OutputBinding& output = *request->add_outputs();
      output.set_name(name);
      output.set_buffer_id((*local)->buffer.id());
    }
  }
}

bool Client::LocalRun::IsWorthAnother(const Status& status) {
  if (taken_.empty() || (!absl::IsNotFound(status) && !absl::IsInvalidArgument(status))) {
    return false;
  }
  is_over_ = true;
  LetGo();
  client_.connection_->local.SetOutputsOf(run_, {});
  if (absl::IsNotFound(status)) {
    client_.connection_->local.Clear();  // Another daemon, or one that has dropped what was unused for long.
  }
  return true;
}

Client::LocalRun::~LocalRun() {
  if (!has_ended_well_) {
    LetGo();
    return;
  }
  for (auto& [id, buffer] : taken_) {
    client_.DeleteAll(client_.connection_->local.Give(std::move(buffer)), call_);
  }
}

void Client::LocalRun::LetGo() {
  std::vector<std::string> ids;
  for (const auto& [id, buffer] : taken_) {
    ids.push_back(id);
  }
  taken_.clear();
  client_.DeleteAll(ids, call_);
}

const LocalMemory* Client::LocalRun::Find(const std::string& id) const {
  const auto found = taken_.find(id);
  return found == taken_.end() ? nullptr : &found->second;
}

void Client::LocalRun::Learn(const std::map<std::string, std::string>& bound, const v1::RunResponse& response) {
  has_ended_well_ = true;
  if (!Tries()) {
    return;
  }
  std::map<std::string, uint64_t> outputs;
  for (const v1::OutputValue& value : response.outputs()) {
    if (!value.has_buffer() || bound.contains(value.name())) {
      continue;
    }
    uint64_t bytes = 0;
    if (TensorWithoutData(value.buffer().type(), value.buffer().shape(), &bytes).ok() && bytes > 0) {
      outputs[value.name()] = bytes;
    }
  }
  client_.connection_->local.SetOutputsOf(run_, std::move(outputs));
}

StatusOr<LocalMemory> Client::MakeLocal(uint64_t bytes, const CallOptions& call) {
  LocalMemory local;
  HPVMD_ASSIGN_OR_RETURN(local.fd, CreateSealedMemfd("hpvm-local", bytes));
  HPVMD_ASSIGN_OR_RETURN(local.memory, Mapping::Map(local.fd.get(), bytes, Mapping::Access::kReadWrite));
  HPVMD_ASSIGN_OR_RETURN(local.buffer, RegisterBuffer(local.fd.get(), std::nullopt, {}, call));
  return local;
}

StatusOr<Buffer> Client::MakeLocalBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(const uint64_t bytes, TensorSizeBytes(type, shape));
  auto local = std::make_unique<LocalMemory>();
  HPVMD_ASSIGN_OR_RETURN(local->fd, CreateSealedMemfd("hpvm-local", std::max<uint64_t>(1, bytes)));
  HPVMD_ASSIGN_OR_RETURN(local->memory,
                         Mapping::Map(local->fd.get(), std::max<uint64_t>(1, bytes), Mapping::Access::kReadWrite));
  HPVMD_ASSIGN_OR_RETURN(local->buffer, RegisterBuffer(local->fd.get(), type, shape, call));
  Buffer buffer(*this, local->buffer);
  buffer.local_ = std::move(local);
  return buffer;
}

StatusOr<v1::Buffer> Client::RegisterBuffer(int fd, std::optional<ElementType> type, std::span<const uint64_t> shape,
                                            const CallOptions& call) {
  const std::string& path = connection_->memory_path;
  if (path.empty()) {
    return Unavailable("The server is not reached through a Unix socket, so that it takes no shared memory.");
  }
  v1::RegisterBufferRequest request;
  StatusOr<std::string> ticket = SendDescriptors(path, {&fd, 1}, kTakenWithin);
  if (!ticket.ok()) {
    connection_->local.Refuse(std::string(ticket.status().message()));
    return ticket.status();
  }
  request.set_ticket(*std::move(ticket));
  if (type.has_value()) {
    request.set_type(ToProto(*type));
    request.mutable_shape()->Add(shape.begin(), shape.end());
  }
  StatusOr<v1::RegisterBufferResponse> response = connection_->Once(&v1::Hpvm::Stub::RegisterBuffer, request, call);
  if (!response.ok()) {
    // A full quota has room again later; other reasons are permanent.
    if (!absl::IsResourceExhausted(response.status())) {
      connection_->local.Refuse(std::string(response.status().message()));
    }
    return response.status();
  }
  return std::move(*response->mutable_buffer());
}

StatusOr<v1::Buffer> Client::PublishBuffer(const std::string& id, const CallOptions& call) {
  v1::PublishBufferRequest request;
  request.set_buffer_id(id);
  HPVMD_ASSIGN_OR_RETURN(v1::PublishBufferResponse response,
                         connection_->Once(&v1::Hpvm::Stub::PublishBuffer, request, call));
  return std::move(*response.mutable_buffer());
}

std::string Client::TensorPath() const {
  const std::string refusal = connection_->local.refusal();
  return refusal.empty() ? "shared memory" : "gRPC: " + refusal;
}

}  // namespace hpvm
