// SPDX-License-Identifier: Apache-2.0
// Buffers: data that stays with a server between runs.
#ifndef HPVMD_CLIENT_INCLUDE_HPVM_BUFFER_H_
#define HPVMD_CLIENT_INCLUDE_HPVM_BUFFER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hpvm/element_type.h"
#include "hpvm/options.h"
#include "hpvm/tensor.h"
#include "hpvm/types.h"
#include "hpvm/v1/buffer.pb.h"

namespace hpvm {

class Client;
struct LocalMemory;

// Devices have a class Buffer of their own in the sources; this namespace keeps the two apart in programs that link
// both.
inline namespace client_api {

// Buffer owns a buffer of the server and deletes it when destroyed; runs that use the buffer at that moment keep its
// bytes until they end. Client::MakeBuffer makes a buffer whose bytes the server holds. Client::MakeLocalBuffer makes
// a buffer whose memory this process shares with a server on the same host: runs read and write that memory in place,
// without copies.
//
// Movable. Not thread-safe, but any thread may access `memory`. The client must outlive the buffer.
class Buffer {
 public:
  Buffer();  // Owns no buffer.
  // Takes ownership of an existing buffer, as a server or the outcome of a run describes it.
  Buffer(Client& client, v1::Buffer buffer);
  Buffer(Client& client, const BufferView& view);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  // Empty when this object owns no buffer.
  const std::string& id() const { return buffer_.id(); }
  uint64_t size_bytes() const { return buffer_.size_bytes(); }
  // Returns the shared memory itself; empty when the server holds the bytes. Nothing prevents writes while a run
  // reads; Publish declares new contents complete.
  std::span<uint8_t> memory() const;

  // Write or read from `offset`, in bytes; kOutOfRange beyond the end. For shared memory no call is made, and Write
  // does not publish.
  Status Write(std::span<const uint8_t> bytes, uint64_t offset = 0, const CallOptions& call = {});
  Status Read(std::span<uint8_t> into, uint64_t offset = 0, const CallOptions& call = {}) const;
  // Returns the whole buffer with its type and shape; raw bytes are returned as u8.
  StatusOr<Tensor> ReadTensor(const CallOptions& call = {}) const;
  // Declares that shared memory has new contents: increments the generation and returns it. kFailedPrecondition for
  // other buffers, which every Write and every run publishes.
  StatusOr<uint64_t> Publish(const CallOptions& call = {});

  // Returns the buffer as it is, or its first bytes with another type and shape; for RunOptions.input_buffers.
  BufferView View() const { return {.buffer_id = id()}; }
  BufferView View(ElementType type, std::vector<uint64_t> shape) const;

  // Deletes the buffer and returns the result. Afterwards this object owns no buffer.
  Status Delete(const CallOptions& call = {});
  // Gives up ownership and returns the id: the caller deletes the buffer, or the server does once it has been unused
  // for long. Shared memory is unmapped from this process.
  std::string Release();

 private:
  friend class hpvm::Client;

  Client* client_ = nullptr;  // Borrowed.
  v1::Buffer buffer_;
  std::unique_ptr<LocalMemory> local_;  // Null when the server holds the bytes.
};

}  // namespace client_api
}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_BUFFER_H_
