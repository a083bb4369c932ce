// SPDX-License-Identifier: Apache-2.0
// The daemon's end of one local client's rings (base/io/ring.h): what comes is taken in turns beside everybody else's,
// what goes waits here while the client does not read, and a client that breaks a rule loses its ring.
//
// Everything in the memory is the client's word. The daemon watches the client's bell and never reads or writes it,
// wakes the client by futex, which cannot block, and lets the descriptors go only where closing may take long
// (DescriptorInbox).
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

// What rings need of the daemon. Borrowed; lives longer than they.
struct LocalCallers {
  DescriptorInbox* inbox = nullptr;  // Null: nothing comes from local clients.
  EventHub* hub = nullptr;           // Null: no rings.
};

// The rings of one tenant share a turn: it is no longer however many there are. Hub's thread only.
struct RingTurn {
  std::string tenant;
  size_t awake = 0;  // Rings that get turns.
};

class ClientRing final : public EventSource, public std::enable_shared_from_this<ClientRing> {
 public:
  // Frames of one tenant in one turn.
  static constexpr size_t kTurnFrames = 16;
  // Bells of one second beyond the frames that came in it.
  static constexpr uint64_t kIdleBellsMax = 1'000;
  // While as much waits for the client to read, no frame of its is taken.
  static constexpr uint64_t kUnsentBytesMax = uint64_t{1} << 20;
  // The largest body of one frame, whose head is small.
  static constexpr size_t kBodyBytesMax = kRingFrameBytesMax - 1'024;

  // What the frames are for. The hub's thread calls it.
  class Calls {
   public:
    virtual ~Calls() = default;
    // A status ends the ring.
    virtual Status OnFrame(Frame& frame) = 0;
    // Whether it takes one more frame. Whenever that may have changed to yes, something is sent. It sends nothing.
    virtual bool HasRoom() = 0;
    // Once a second. A status ends the ring.
    virtual Status OnSecond() = 0;
    // The ring has ended; nothing is called after that.
    virtual void OnEnd(const Status& why) = 0;
  };
  struct Options {
    LocalCallers parts;
    Observer* observer = nullptr;                   // Borrowed; lives longer.
    Duration stall_max = std::chrono::seconds(60);  // So long answers may wait for a client that takes none.
  };

  // `fds`: the memory, then the bell. kInvalidArgument says what is wrong with them; then they are still the caller's.
  static StatusOr<std::shared_ptr<ClientRing>> Make(const Options& options, std::shared_ptr<RingTurn> turn,
                                                    std::vector<UniqueFd>& fds);
  // After Begin, only once it has ended.
  ~ClientRing() override;

  // Frames come from now on. Once; any thread.
  void Begin(std::shared_ptr<Calls> calls);
  // One frame to the client, after those before it. `body` is at most kBodyBytesMax. Never blocks. Any thread; without
  // effect after the end.
  void Send(std::string_view head, std::string_view body);
  // Ends it soon. The first reason counts. Any thread.
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
  // Puts what waits as far as there is room; whether any went. The mutex is held.
  StatusOr<bool> Flush();
  // Flushes, wakes the client and has the hub go on if it waited for that.
  bool FlushAndWake();
  // Hub's thread. `reason` is for metrics; empty: no fault of the client's.
  void Finish(const Status& why, std::string_view reason);

  const Options options_;
  const std::shared_ptr<RingTurn> turn_;
  Mapping mapping_;

  // Hub's thread only.
  RingConsumer consumer_;
  std::vector<UniqueFd> fds_;
  std::shared_ptr<Calls> calls_;
  Frame frame_;
  uint64_t source_ = 0;  // 0: before the beginning, and after the end.
  bool is_awake_ = false;
  uint64_t bells_ = 0, frames_ = 0;  // Of this second.

  std::mutex mutex_;
  RingProducer producer_;  // Guarded by mutex_, as below.
  std::deque<Unsent> unsent_;
  uint64_t unsent_bytes_ = 0;
  Time stalled_since_ = kNever;
  bool waits_ = false;  // The hub takes no frames until something is sent.
  bool has_ended_ = false;
};

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_FRONT_CLIENT_RING_H_
