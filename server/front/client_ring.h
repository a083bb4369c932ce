// SPDX-License-Identifier: Apache-2.0
// ClientRing is the daemon's end of one local client's rings (base/io/ring.h): incoming frames are read in turns
// shared with all other clients, outgoing frames wait here while the client does not read, and a client that breaks a
// rule loses its ring.
//
// Everything in the memory is under the client's control. The daemon watches the client's bell and never reads or
// writes it, wakes the client by futex, which cannot block, and closes the descriptors only where closing may take
// long (DescriptorInbox).
#ifndef HPVMD_SERVER_FRONT_CLIENT_RING_H_
#define HPVMD_SERVER_FRONT_CLIENT_RING_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/io/event_hub.h"
#include "base/io/fd.h"
#include "base/io/memfd.h"
#include "base/io/ring.h"
#include "base/status.h"
#include "server/events/events.h"
#include "server/front/descriptor_inbox.h"

namespace hpvm::server {

// The parts of the daemon that rings need. Borrowed; must outlive them.
struct LocalCallers {
  DescriptorInbox* inbox = nullptr;  // Null when local clients cannot send descriptors.
  EventHub* hub = nullptr;           // Null for no rings.
};

// RingTurn is shared by the rings of one tenant: its length does not depend on their number. Hub's thread only.
struct RingTurn {
  std::string tenant;
  size_t awake = 0;  // Number of rings that get turns.
};

class ClientRing final : public EventSource, public std::enable_shared_from_this<ClientRing> {
 public:
  // Maximum number of frames of one tenant in one turn.
  static constexpr size_t kTurnFrames = 16;
  // Maximum number of bells in one second beyond the frames received in it.
  static constexpr uint64_t kIdleBellsMax = 1'000;
  // While this much output waits for the client to read, none of its frames are read.
  static constexpr uint64_t kUnsentBytesMax = uint64_t{1} << 20;
  // Largest body of one frame; the rest is for its small head.
  static constexpr size_t kBodyBytesMax = kRingFrameBytesMax - 1'024;

  // Calls receives the frames. Called on the hub's thread.
  class Calls {
   public:
    virtual ~Calls() = default;
    // An error ends the ring.
    virtual Status OnFrame(Frame& frame) = 0;
    // Returns true when it accepts one more frame. Whenever that may have become true, a frame must be sent. Must not
    // send itself.
    virtual bool HasRoom() = 0;
    // Called once a second. An error ends the ring.
    virtual Status OnSecond() = 0;
    // The ring has ended; nothing is called afterwards.
    virtual void OnEnd(const Status& why) = 0;
  };
  struct Options {
    LocalCallers parts;
    Observer* observer = nullptr;                   // Borrowed; must outlive the ring.
    Duration stall_max = std::chrono::seconds(60);  // Longest time that output waits for a client that reads nothing.
  };

  // `fds` are the memory and the bell. kInvalidArgument says what is wrong with them; the caller then still owns
  // them.
  static StatusOr<std::shared_ptr<ClientRing>> Make(const Options& options, std::shared_ptr<RingTurn> turn,
                                                    std::vector<UniqueFd>& fds);
  // After Begin, the ring may be destroyed only once it has ended.
  ~ClientRing() override;

  // Starts the reception of frames. Called once; thread-safe.
  void Begin(std::shared_ptr<Calls> calls);
  // Sends one frame to the client, after earlier ones. `body` is at most kBodyBytesMax. Never blocks. Thread-safe;
  // without effect after the end.
  void Send(std::string_view head, std::string_view body);
  // Ends the ring soon. The first reason counts. Thread-safe.
  void End(Status why);

  void OnEvent(uint8_t kind, uint32_t epoll_events) override;
  void OnTimer(uint64_t tag) override;
  bool OnTurn() override;
  bool BeginSleep() override;

 private:
  struct Unsent {
    std::string head, body;
  };

  ClientRing(const Options& options, std::shared_ptr<RingTurn> turn, Mapping memory);
  RingPairMemory& memory() { return *reinterpret_cast<RingPairMemory*>(mapping_.data()); }
  void StayAwake();
  bool MayTake();
  // Writes waiting output as far as there is room; returns true when any was written. The caller holds the mutex.
  StatusOr<bool> Flush();
  // Flushes, wakes the client, and makes the hub continue if it waited for that.
  bool FlushAndWake();
  // Runs on the hub's thread. `reason` is for metrics; empty when the client is not at fault.
  void Finish(const Status& why, std::string_view reason);

  const Options options_;
  const std::shared_ptr<RingTurn> turn_;
  Mapping mapping_;

  // Used on the hub's thread only.
  RingConsumer consumer_;
  std::vector<UniqueFd> fds_;
  std::shared_ptr<Calls> calls_;
  Frame frame_;
  uint64_t source_ = 0;  // 0 before the beginning and after the end.
  bool is_awake_ = false;
  uint64_t bells_ = 0, frames_ = 0;  // Counts of this second.

  std::mutex mutex_;
  RingProducer producer_;  // This and the following members are guarded by mutex_.
  std::deque<Unsent> unsent_;
  uint64_t unsent_bytes_ = 0;
  Time stalled_since_ = kNever;
  bool waits_ = false;  // The hub reads no frames until something is sent.
  bool has_ended_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_CLIENT_RING_H_
