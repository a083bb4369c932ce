// SPDX-License-Identifier: Apache-2.0
// Fuzzes the daemon's end of a ring with a client that writes whatever the input says into it: words of the memory,
// bytes of frames, whole frames, bells. The only permitted effect is the ring's end, and valid frames arrive in
// order.
//
// Input: steps of a byte that selects an action, and its operands.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "base/bytes.h"
#include "hpvm/v1/ring.pb.h"
#include "hpvm/v1/service.pb.h"
#include "server/front/client_ring.h"

namespace hpvm::server {
namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint32_t Next(size_t bytes) {
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && size_ > 0; ++i, --size_) {
      value = value << 8 | *data_++;
    }
    return value;
  }
  std::span<const uint8_t> Bytes(size_t count) {
    count = std::min(count, size_);
    data_ += count;
    size_ -= count;
    return {data_ - count, count};
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Reads frames as OpenRing does, and answers each.
class Reader final : public ClientRing::Calls {
 public:
  Status OnFrame(Frame& frame) override {
    v1::RingCall head;
    if (!head.ParseFromString(frame.head)) {
      return InvalidArgument("No head.");
    }
    v1::RunRequest request;
    const bool is_request = request.ParseFromArray(frame.body.data(), static_cast<int>(frame.body.size()));
    v1::RingReply reply;
    reply.set_id(head.id());
    reply.set_refused(!is_request);
    const size_t size = std::min(frame.body.size(), ClientRing::kBodyBytesMax);
    ring->Send(reply.SerializeAsString(), {reinterpret_cast<const char*>(frame.body.data()), size});
    return absl::OkStatus();
  }
  bool HasRoom() override { return true; }
  Status OnSecond() override { return absl::OkStatus(); }
  void OnEnd(const Status&) override {
    const std::lock_guard lock(mutex_);
    HPVMD_CHECK(!has_ended_);
    has_ended_ = true;
    changed_.notify_all();
  }
  void AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return has_ended_; });
  }

  ClientRing* ring = nullptr;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_ended_ = false;
};

// State shared by all inputs.
struct World {
  World() {
    char name[] = "/tmp/hpvmd-ring-fuzz-XXXXXX";
    inbox = *DescriptorInbox::Start({std::string(mkdtemp(name)) + "/s"}, 0600, RealClock());
    hub = *EventHub::Create();
  }
  std::unique_ptr<DescriptorInbox> inbox;
  std::unique_ptr<EventHub> hub;
  class : public Observer {
    void On(const Event&) override {}
  } observer;
};

void Play(World& world, Input input) {
  const UniqueFd memory_fd = *CreateSealedMemfd("ring", kRingPairBytes), bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Mapping mapping = *Mapping::Map(memory_fd.get(), kRingPairBytes, Mapping::Access::kReadWrite);
  RingPairMemory& memory = *reinterpret_cast<RingPairMemory*>(mapping.data());
  RingProducer producer(memory.to_server);
  std::vector<UniqueFd> fds;
  fds.emplace_back(fcntl(memory_fd.get(), F_DUPFD_CLOEXEC, 0));
  fds.emplace_back(fcntl(bell.get(), F_DUPFD_CLOEXEC, 0));
  const auto ring = *ClientRing::Make({.parts = {world.inbox.get(), world.hub.get()}, .observer = &world.observer},
                                      std::make_shared<RingTurn>(RingTurn{.tenant = "ann"}), fds);
  const auto reader = std::make_shared<Reader>();
  reader->ring = ring.get();
  ring->Begin(reader);
  while (!input.empty()) {
    switch (input.Next(1) % 8) {
      case 0:
        memory.to_server.written.store(input.Next(4));
        break;
      case 1:
        memory.to_client.taken.store(input.Next(4));
        break;
      case 2: {  // Any word of the headers of both rings.
        uint8_t* const at = mapping.data() + input.Next(1) / 4 * 4 + (input.Next(1) % 2) * sizeof(RingMemory);
        const uint32_t value = input.Next(4);
        std::memcpy(at, &value, sizeof(value));
        break;
      }
      case 3: {
        const uint32_t at = input.Next(3) % kRingBytes;
        const std::span<const uint8_t> bytes = input.Bytes(input.Next(1));
        std::memcpy(memory.to_server.bytes + at, bytes.data(), std::min<size_t>(bytes.size(), kRingBytes - at));
        break;
      }
      case 4: {
        const std::span<const uint8_t> head = input.Bytes(input.Next(1) % 16), body = input.Bytes(input.Next(1));
        (void)producer.Put({reinterpret_cast<const char*>(head.data()), head.size()}, body);
        break;
      }
      case 5: {
        v1::RingCall head;
        head.set_id(input.Next(2));
        const std::vector<uint8_t> body(input.Next(2), 'b');
        (void)producer.Put(head.SerializeAsString(), body);
        break;
      }
      case 6: {
        const uint64_t one = 1;
        (void)!write(bell.get(), &one, sizeof(one));
        break;
      }
      case 7:
        world.hub->RunAndWait([] {});
        break;
    }
  }
  ring->End(Cancelled("The input is over."));
  reader->AwaitEnd();
}

}  // namespace
}  // namespace hpvm::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static hpvm::server::World& world = *new hpvm::server::World();
  hpvm::server::Play(world, {data, size});
  return 0;
}
