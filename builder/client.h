// SPDX-License-Identifier: Apache-2.0
// BuildClient is the client's end of a supervisor: each caller waits for the answer to its request, one thread reads
// all answers.
#ifndef HPVMD_BUILDER_CLIENT_H_
#define HPVMD_BUILDER_CLIENT_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "builder/message.h"

namespace hpvm::builder {

class BuildClient {
 public:
  struct Options {
    FrameLimits limits;
    std::string peer;  // For errors: "The compiler process".
    // Returns the next note waiting to be sent, if there is one. Thread-safe; may be null.
    std::function<std::optional<std::string>()> next_note;
  };
  BuildClient(UniqueFd socket, const BuildHello& hello, Options options);
  ~BuildClient();

  struct Request {
    std::string payload;
    std::span<const uint8_t> body;
    std::span<const int> fds;
    Time deadline = kNever;
    const std::atomic<uint32_t>* stop = nullptr;  // Not zero: the answer is no longer wanted.
  };
  struct Answer {
    std::string payload;
    std::vector<uint8_t> body;
  };
  // Blocks until the answer arrives, the deadline passes (kDeadlineExceeded) or the stop word is set (kCancelled,
  // within 10 ms); in the last two cases the supervisor is told. Returns kUnavailable when it is gone. Thread-safe.
  StatusOr<Answer> Build(const Request& request);
  // Sends notes as long as that does not block. A note is far smaller than a socket's buffer.
  void SendNotes();
  // Ends the connection, for example after a malformed answer; returns kUnavailable, as waiting callers do.
  Status Close(const Status& why);

 private:
  struct Waiting {
    bool has_arrived = false;
    Answer answer;
  };
  Status CheckPatience(const Request& request) const;
  Status Send(std::string_view head, const Request& request, Time deadline);
  void SendNotesLocked();
  StatusOr<Answer> WaitFor(uint64_t id, const Request& request);
  void ReadAnswers();

  UniqueFd socket_;
  const Options options_;
  std::thread reader_;
  std::mutex send_mutex_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unordered_map<uint64_t, Waiting> waiting_;  // Keyed by request id; guarded by mutex_.
  uint64_t next_id_ = 1;                           // Guarded by mutex_.
  Status broken_;  // Why the connection is unusable; guarded by mutex_ once the reader runs.
};

}  // namespace hpvm::builder

#endif  // HPVMD_BUILDER_CLIENT_H_
