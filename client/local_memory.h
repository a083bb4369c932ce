// SPDX-License-Identifier: Apache-2.0
// Memory that a client shares with a server on its own host, and how the server gets it: a descriptor with a ticket, to
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

// A buffer whose memory is shared. Movable. The memory goes with it; the buffer goes with DeleteBuffer.
struct LocalMemory {
  v1::Buffer buffer;
  UniqueFd fd;  // A memfd whose size is sealed.
  Mapping memory;
};

// Sends descriptors with a new ticket, which is the answer. kUnavailable when nobody takes them `within`.
StatusOr<std::string> SendDescriptors(const std::string& socket_path, std::span<const int> fds, Duration within);

// Buffers of one client that are used again, because memory that is written for the first time takes five times as
// long. Any thread.
class LocalPool {
 public:
  // What waits for use again, at most.
  static constexpr uint64_t kIdleBytesMax = uint64_t{1} << 30;
  static constexpr size_t kIdleMax = 16;

  // The smallest that waits and has so many bytes, and not four times as many. None: the caller makes one.
  std::optional<LocalMemory> Take(uint64_t bytes);
  // Keeps it, and returns the ids of those that are too many now; their memory is gone from here already.
  std::vector<std::string> Give(LocalMemory buffer);
  // Forgets all that wait, and returns their ids.
  std::vector<std::string> Clear();

  // Sizes of the outputs of earlier runs, by what a run is known by; so that the next one can write them where they are
  // wanted.
  std::map<std::string, uint64_t> OutputsOf(const std::string& run);
  void SetOutputsOf(const std::string& run, std::map<std::string, uint64_t> bytes);

  // Why local memory is not used; empty while it is.
  std::string refusal();
  void Refuse(std::string why);

 private:
  static constexpr size_t kRunsMax = 256;

  std::mutex mutex_;
  std::vector<LocalMemory> idle_;  // The longest unused first.
  uint64_t idle_bytes_ = 0;
  std::map<std::string, std::map<std::string, uint64_t>> outputs_;
  std::string refusal_;
};

}  // namespace hpvm

#endif  // HPVMD_CLIENT_LOCAL_MEMORY_H_
