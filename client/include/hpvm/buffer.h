// SPDX-License-Identifier: Apache-2.0
// Data that stays with a server between runs.
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

// Devices have buffers of their own in the sources, of the same name; programs that link both tell them apart by this.
inline namespace client_api {

// Owns a buffer: it is deleted with this. Runs that use it then keep its bytes until they end. Made by
// Client::MakeBuffer, whose bytes are the server's, and by Client::MakeLocalBuffer, whose memory this process shares
// with a server on the same host: runs read it and write it where it lies, and nothing is copied.
//
// Movable. One thread at a time; `memory` may be used by any. The client outlives it.
class Buffer {
 public:
  Buffer();  // Owns none.
  // Takes over one that exists: as a server describes it, or as a run's outcome does.
  Buffer(Client& client, v1::Buffer buffer);
  Buffer(Client& client, const BufferView& view);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  // Empty: it owns none.
  const std::string& id() const { return buffer_.id(); }
  uint64_t size_bytes() const { return buffer_.size_bytes(); }
  // The memory itself; empty where the server has it. Nobody keeps anybody from writing while a run reads: Publish says
  // that new contents are complete.
  std::span<uint8_t> memory() const;

  // Writes and reads from `offset`, in bytes; kOutOfRange beyond the end. In memory of this process's own no call is
  // made, and Write does not publish.
  Status Write(std::span<const uint8_t> bytes, uint64_t offset = 0, const CallOptions& call = {});
  Status Read(std::span<uint8_t> into, uint64_t offset = 0, const CallOptions& call = {}) const;
  // All of it, as its type and shape say; raw bytes as u8.
  StatusOr<Tensor> ReadTensor(const CallOptions& call = {}) const;
  // Shared memory has new contents: the generation grows, and is the answer. kFailedPrecondition for other buffers,
  // which every Write and every run publishes.
  StatusOr<uint64_t> Publish(const CallOptions& call = {});

  // As it is, or its first bytes with another type and shape; for RunOptions.input_buffers.
  BufferView View() const { return {.buffer_id = id()}; }
  BufferView View(ElementType type, std::vector<uint64_t> shape) const;

  // Deletes it and tells how that went. Then this owns none.
  Status Delete(const CallOptions& call = {});
  // Gives it up: somebody else deletes it, or the server when nobody has used it for long. Memory of this process's own
  // goes from here.
  std::string Release();

 private:
  friend class hpvm::Client;

  Client* client_ = nullptr;  // Borrowed.
  v1::Buffer buffer_;
  std::unique_ptr<LocalMemory> local_;  // Null: the server has the bytes.
};

}  // namespace client_api
}  // namespace hpvm

#endif  // HPVMD_CLIENT_INCLUDE_HPVM_BUFFER_H_
