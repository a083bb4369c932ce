// SPDX-License-Identifier: Apache-2.0
// Memory that a client shares with a server on the same host. The server gets the descriptor, with a ticket, through
// the socket file beside the service's own (RegisterBufferRequest in hpvm/v1/buffer.proto).
#ifndef HPVMD_CLIENT_LOCAL_MEMORY_H_
#define HPVMD_CLIENT_LOCAL_MEMORY_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"
#include "base/status.h"
#include "hpvm/client.h"

namespace hpvm {

// LocalMemory is a buffer whose memory is shared. Movable. Destruction frees the memory; DeleteBuffer frees the
// buffer.
struct LocalMemory {
  v1::Buffer buffer;
  UniqueFd fd;  // A memfd whose size is sealed.
  Mapping memory;
};

// Sends descriptors with a new ticket and returns the ticket. kUnavailable when nobody accepts them `within`.
StatusOr<std::string> SendDescriptors(const std::string& socket_path, std::span<const int> fds, Duration within);

// LocalPool keeps a client's buffers for reuse, because the first write to new memory takes five times as long.
// Thread-safe.
class LocalPool {
 public:
  // Limit of the bytes that wait for reuse.
  static constexpr uint64_t kIdleBytesMax = uint64_t{1} << 30;
  static constexpr size_t kIdleMax = 16;

  // Takes the smallest waiting buffer with at least `bytes` and at most four times as many. When there is none, the
  // caller makes one.
  std::optional<LocalMemory> Take(uint64_t bytes);
  // Keeps the buffer, and returns the ids of buffers that exceed the limit; their memory is already freed here.
  std::vector<std::string> Give(LocalMemory buffer);
  // Drops all waiting buffers and returns their ids.
  std::vector<std::string> Clear();

  // Returns the sizes of the outputs of earlier runs with the same key, so that the next run can write them into
  // place.
  std::map<std::string, uint64_t> OutputsOf(const std::string& run);
  void SetOutputsOf(const std::string& run, std::map<std::string, uint64_t> bytes);

  // Reason why local memory is not used; empty while it is.
  std::string refusal();
  void Refuse(std::string why);

 private:
  static constexpr size_t kRunsMax = 256;

  std::mutex mutex_;
  std::vector<LocalMemory> idle_;  // Least recently used first.
  uint64_t idle_bytes_ = 0;
  std::map<std::string, std::map<std::string, uint64_t>> outputs_;
  std::string refusal_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_MEMORY_H_
