// SPDX-License-Identifier: Apache-2.0
#include "hpvm/buffer.h"

#include <algorithm>
#include <utility>

#include "client/connection.h"

#include "base/status.h"

namespace hpvm {
namespace {

// Time that the destructor waits for a server.
constexpr Duration kDeletedWithin = std::chrono::seconds(1);

Status CheckRange(const LocalMemory& local, uint64_t offset, uint64_t bytes) {
  const uint64_t size = local.buffer.size_bytes();
  return offset <= size && bytes <= size - offset
             ? absl::OkStatus()
             : MakeStatus(absl::StatusCode::kOutOfRange,
                          "The range of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) +
                              " passes the end of the buffer (" + std::to_string(size) + " bytes).");
}

Status IsNone() { return FailedPrecondition("The buffer owns nothing: it was deleted, released or moved from."); }

}  // namespace

Buffer::Buffer() = default;

Buffer::Buffer(Client& client, v1::Buffer buffer) : client_(&client), buffer_(std::move(buffer)) {}

Buffer::Buffer(Client& client, const BufferView& view) : client_(&client) {
  buffer_.set_id(view.buffer_id);
  buffer_.set_generation(view.generation);
  if (view.type.has_value()) {
    buffer_.set_type(ToProto(*view.type));
    buffer_.mutable_shape()->Add(view.shape.begin(), view.shape.end());
    buffer_.set_size_bytes(TensorBytes(*view.type, view.shape).value_or(0));
  }
}

Buffer::~Buffer() {
  if (!id().empty()) {
    // On failure the server deletes it once it has been unused for long.
    Delete({.timeout = kDeletedWithin}).IgnoreError();
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : client_(other.client_), buffer_(std::move(other.buffer_)), local_(std::move(other.local_)) {
  other.buffer_.Clear();
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    const Buffer old = std::move(*this);  // Destroyed last.
    client_ = other.client_;
    buffer_ = std::move(other.buffer_);
    other.buffer_.Clear();
    local_ = std::move(other.local_);
  }
  return *this;
}

std::span<uint8_t> Buffer::memory() const {
  return local_ != nullptr ? local_->memory.span().first(buffer_.size_bytes()) : std::span<uint8_t>();
}

Status Buffer::Write(std::span<const uint8_t> bytes, uint64_t offset, const CallOptions& call) {
  if (id().empty()) {
    return IsNone();
  }
  if (local_ == nullptr) {
    return client_->WriteBuffer(id(), bytes, offset, call);
  }
  HPVMD_RETURN_IF_ERROR(CheckRange(*local_, offset, bytes.size()));
  std::copy(bytes.begin(), bytes.end(), memory().begin() + static_cast<ptrdiff_t>(offset));
  return absl::OkStatus();
}

Status Buffer::Read(std::span<uint8_t> into, uint64_t offset, const CallOptions& call) const {
  if (id().empty()) {
    return IsNone();
  }
  if (local_ == nullptr) {
    return into.empty() ? absl::OkStatus() : client_->ReadBuffer(id(), into, offset, call);
  }
  HPVMD_RETURN_IF_ERROR(CheckRange(*local_, offset, into.size()));
  const std::span<const uint8_t> from = memory().subspan(offset, into.size());
  std::copy(from.begin(), from.end(), into.begin());
  return absl::OkStatus();
}

StatusOr<Tensor> Buffer::ReadTensor(const CallOptions& call) const {
  StatusOr<Tensor> tensor = Tensor{ElementType::kU8, {size_bytes()}, std::vector<uint8_t>(size_bytes())};
  if (buffer_.type() != v1::ELEMENT_TYPE_UNSPECIFIED) {
    tensor = EmptyTensor(buffer_.type(), buffer_.shape());
  }
  HPVMD_RETURN_IF_ERROR(tensor.status());
  HPVMD_RETURN_IF_ERROR(Read(tensor->data, 0, call));
  return tensor;
}

StatusOr<uint64_t> Buffer::Publish(const CallOptions& call) {
  if (id().empty()) {
    return IsNone();
  }
  HPVMD_ASSIGN_OR_RETURN(const v1::Buffer published, client_->PublishBuffer(id(), call));
  return published.generation();
}

BufferView Buffer::View(ElementType type, std::vector<uint64_t> shape) const {
  return {.buffer_id = id(), .type = type, .shape = std::move(shape)};
}

Status Buffer::Delete(const CallOptions& call) {
  const std::string id = Release();
  return id.empty() ? IsNone() : client_->DeleteBuffer(id, call);
}

std::string Buffer::Release() {
  std::string id = buffer_.id();
  buffer_.Clear();
  local_ = nullptr;
  return id;
}

StatusOr<Buffer> Client::MakeBuffer(ElementType type, std::span<const uint64_t> shape, const CallOptions& call) {
  HPVMD_ASSIGN_OR_RETURN(v1::Buffer made, CreateBuffer(type, shape, call));
  return Buffer(*this, std::move(made));
}

}  // namespace hpvm
