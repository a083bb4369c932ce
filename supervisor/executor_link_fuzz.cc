// SPDX-License-Identifier: Apache-2.0
// A hostile executor against the daemon's end of its rings and its socket: requests, frames, raw bytes, positions,
// bells and ends in any order, through the real hub and link, without a process.
//
// For any input, every request is answered exactly once, the end is reported exactly once and last, all data passed on
// lies inside the received bytes, and a violation ends the process. Input: the first byte says whether the process
// waited as a spare; then operations, see Play.
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>

#include "base/io/child_process.h"
#include "base/io/memfd.h"
#include "base/io/ring_channel.h"
#include "proto/internal/protocol.h"
#include "supervisor/executor_hub.h"
#include "supervisor/executor_link.h"

namespace hpvm::supervisor {
namespace {
// The process of a session, in place of a real one.
struct FakeProcess {
  UniqueFd socket;
  int end = -1;  // The process descriptor: readable when it has ended.
  std::atomic<bool> ended{false};
  void End() {
    ended = true;
    const uint64_t one = 1;
    HPVMD_CHECK(write(end, &one, sizeof(one)) == sizeof(one));
  }
};
FakeProcess* fake = nullptr;
}  // namespace
}  // namespace hpvm::supervisor

// Replaces child_process.cc. The names are qualified so that a definition that replaces nothing does not compile: the
// linker would silently take the real one.
const std::vector<std::string>& hpvm::DriverVariables() {
  static const auto* const none = new std::vector<std::string>();
  return *none;
}
hpvm::StatusOr<hpvm::SpawnedProcess> hpvm::Spawn(const SpawnOptions& options) {
  supervisor::FakeProcess& fake = *supervisor::fake;
  SpawnedProcess process;
  process.pid = getpid();
  process.pidfd.reset(eventfd(0, EFD_CLOEXEC));
  fake.end = process.pidfd.get();
  fake.socket.reset(fcntl(options.socket, F_DUPFD_CLOEXEC, 3));
  HPVMD_CHECK(process.pidfd.valid() && fake.socket.valid());
  HPVMD_CHECK(fcntl(fake.socket.get(), F_SETFL, O_NONBLOCK) == 0);
  return process;
}
std::string hpvm::Reap(const SpawnedProcess&) { return supervisor::fake->ended ? "signal 9" : ""; }
void hpvm::SendKill(const SpawnedProcess&) { supervisor::fake->End(); }
void hpvm::KillAndReap(const SpawnedProcess&) { supervisor::fake->End(); }

namespace hpvm::supervisor {
namespace {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const uint8_t byte = rest_.empty() ? 0 : static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(rest_.empty() ? 0 : 1);
    return byte;
  }
  std::string_view Bytes(size_t count) {
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  std::string_view LongBytes() {
    const size_t low = Byte();
    return Bytes(low | size_t{Byte()} << 8);
  }

 private:
  std::string_view rest_;
};

class Session {
 public:
  explicit Session(ExecutorHub& hub) : hub_(hub) { fake = &process_; }

  void Play(Input input);

 private:
  // The outcome of a request.
  struct Request {
    RequestId id = 0;
    std::atomic<int> answers{0};
  };

  Request& NewRequest() { return requests_.emplace_back(); }
  template <typename Reply>
  std::function<void(StatusOr<Reply>)> Done(Request& request) {
    return [this, &request](StatusOr<Reply> reply) {
      HPVMD_CHECK(request.answers.fetch_add(1) == 0);
      // Requests after the end are refused after it; no answer comes then.
      if (reply.ok()) {
        HPVMD_CHECK(ends_ == 0);
        Look(*reply);
      }
    };
  }
  std::function<void(const Status&)> OnEnd() {
    return [this](const Status&) { HPVMD_CHECK(ends_.fetch_add(1) == 0); };
  }
  std::function<void(const ExecutorReady&)> OnReady() {
    return [this](const ExecutorReady& ready) {
      HPVMD_CHECK(ends_ == 0 && readies_.fetch_add(1) == 0);
      const internal::Ready& said = ready.said;
      HPVMD_CHECK(said.devices_size() > 0 && said.devices_size() <= static_cast<int>(kDevicesMax));
      HPVMD_CHECK(said.broken_size() <= static_cast<int>(kDevicesMax));
      HPVMD_CHECK(said.sandbox_level() <= 4 && IsCleanText(said.sandbox_detail(), true));
    };
  }
  static void Look(const internal::Usage& usage) {
    HPVMD_CHECK(usage.device_bytes_size() <= static_cast<int>(kDevicesMax));
    HPVMD_CHECK(usage.idle_device_bytes_size() == usage.device_bytes_size());
    for (int i = 0; i < usage.device_bytes_size(); ++i) {
      HPVMD_CHECK(usage.idle_device_bytes(i) <= usage.device_bytes(i));
    }
  }
  static void Look(const internal::Costs& costs) {
    HPVMD_CHECK(costs.transfers_size() <= static_cast<int>(kTransferCostsMax));
    for (const internal::GraphCosts& graph : costs.graphs()) {
      HPVMD_CHECK(graph.handle() != 0 && graph.kernels_size() <= static_cast<int>(kCostsMax));
    }
  }
  static void Look(const internal::Envelope& answer) {
    Look(answer.usage());
    Look(answer.costs());
  }
  static void Look(const internal::Prepared& reply) {
    for (const Diagnostic& diagnostic : GetDiagnostics(reply.diagnostics())) {
      HPVMD_CHECK(diagnostic.message.size() <= kMessageTextBytesMax);
    }
    HPVMD_CHECK(reply.summary().defects().empty());
  }
  static void Look(const RunReply& reply) {
    const uint8_t* const begin = reply.body.data();
    for (const internal::OutputTensor& output : reply.done.outputs()) {
      const std::span<const uint8_t> data = reply.DataOf(output);
      HPVMD_CHECK(data.empty() || (data.data() >= begin && data.data() + data.size() <= begin + reply.body.size()));
    }
    HPVMD_CHECK(reply.done.device_ns_size() <= static_cast<int>(kDevicesMax));
    HPVMD_CHECK(reply.done.lost_devices_size() <= static_cast<int>(kDevicesMax));
    for (const v1::NodePlacement& node : reply.done.nodes()) {
      HPVMD_CHECK(node.end_ns() >= node.start_ns());
    }
  }

  void Start(bool is_spare);
  void TakeHello();
  void Ask(uint8_t what, Input& input);
  void PlayFrame(Input& input);
  void PlayRing(Input& input);
  void PutBytes(std::string_view bytes);
  void PutMark();
  void SendBytes(std::string_view bytes);
  void Ring();
  void Read();
  RequestId Pick(uint8_t which) const;

  ExecutorHub& hub_;
  FakeProcess process_;
  std::deque<Request> requests_;  // A deque, so that addresses stay valid.
  std::atomic<int> ends_{0}, readies_{0};
  std::unique_ptr<ExecutorLink> link_;
  UniqueFd memory_;
  Mapping rings_memory_;
  UniqueFd bell_;
  RingPairMemory* rings_ = nullptr;
};

void Session::Start(bool is_spare) {
  ExecutorOptions options;
  options.program = "/none";
  options.stderr_fd = STDERR_FILENO;
  options.hello.set_sandbox_level_max_plus_1(1);
  options.shutdown_grace = std::chrono::milliseconds(1);
  options.on_usage = [](const internal::Usage& usage) { Look(usage); };
  if (!is_spare) {
    link_ = *ExecutorLink::Start(hub_, options, OnReady(), OnEnd());
  } else {
    link_ = *ExecutorLink::StartSpare(hub_, options, OnEnd());
    HPVMD_CHECK(ReceiveFrame(process_.socket.get(), kToExecutorLimits).ok());
    link_->Greet(options, OnReady(), OnEnd()).IgnoreError();
  }
  TakeHello();
}

void Session::TakeHello() {
  StatusOr<Frame> hello = ReceiveFrame(process_.socket.get(), kToExecutorLimits);
  HPVMD_CHECK(hello.ok() && hello->fds.size() == 2);
  rings_memory_ = *Mapping::Map(hello->fds[0].get(), kRingPairBytes, Mapping::Access::kReadWrite);
  rings_ = reinterpret_cast<RingPairMemory*>(rings_memory_.data());
  bell_ = std::move(hello->fds[1]);
}

RequestId Session::Pick(uint8_t which) const {
  // The first is Hello's.
  return which == 0 || requests_.empty() ? 1 : requests_[which % requests_.size()].id;
}

// Sends a frame with the input's bytes as its head and zeros as its body, perhaps as an answer to an existing request,
// through the ring, or by the socket, with a mark or without.
void Session::PlayFrame(Input& input) {
  const uint8_t flags = input.Byte(), which = input.Byte();
  const std::string body(input.Byte() * size_t{16}, '\0');
  std::string head(input.LongBytes());
  internal::Envelope envelope;
  if ((flags & 1) != 0 && envelope.ParseFromString(head)) {
    envelope.set_request_id(Pick(which));
    head = envelope.SerializeAsString();
  }
  FrameHeader header{kFrameMagic, static_cast<uint32_t>(head.size()), static_cast<uint32_t>(body.size()), 0};
  if ((flags & 2) != 0) {
    header.body_bytes += which;
  }
  if ((flags & 4) != 0) {
    header.fds = which;
  }
  const std::string frame = std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + head + body;
  if ((flags & 8) == 0 && frame.size() <= kRingFrameBytesMax) {
    PutBytes(frame);
    return;
  }
  if ((flags & 16) == 0) {
    PutMark();
  }
  SendBytes(frame);
}

// Puts arbitrary bytes like a producer.
void Session::PutBytes(std::string_view bytes) {
  RingMemory& ring = rings_->to_server;
  const uint32_t at = ring.written.load();
  for (size_t i = 0; i < bytes.size(); ++i) {
    ring.bytes[(at + i) % kRingBytes] = static_cast<uint8_t>(bytes[i]);
  }
  ring.written.store(at + static_cast<uint32_t>((bytes.size() + 15) / 16 * 16));
  Ring();
}

void Session::PutMark() {
  const auto scratch = std::make_unique<RingMemory>();
  RingProducer(*scratch).PutMark().IgnoreError();
  PutBytes({reinterpret_cast<const char*>(scratch->bytes), sizeof(FrameHeader)});
}

void Session::PlayRing(Input& input) {
  const uint8_t what = input.Byte();
  const uint32_t value = input.Byte() | uint32_t{input.Byte()} << 8 | uint32_t{input.Byte()} << 16;
  switch (what % 8) {
    case 0:
      for (uint32_t i = 0; i < value % 512; ++i) {
        Ring();
      }
      break;
    case 1:
      rings_->to_server.written.fetch_add(value);
      break;
    case 2:
      rings_->to_server.written.store(value);
      break;
    case 3:
      rings_->to_client.taken.store(value);
      break;
    case 4:
      rings_->to_server.wants_room.store(value);
      rings_->to_client.asleep.store(value);
      break;
    case 5:
      rings_->to_client.taken.store(rings_->to_client.written.load());
      break;
    case 6:
      PutMark();
      break;
    default:
      PutBytes(input.LongBytes());
      break;
  }
  Ring();
}

// Rings the bell and waits until the hub has looked.
void Session::Ring() {
  const uint64_t one = 1;
  HPVMD_CHECK(write(bell_.get(), &one, sizeof(one)) == sizeof(one));
  for (int i = 0; i < 3; ++i) {
    hub_.events().RunAndWait([] {});
  }
}

// Sends as much as the link takes.
void Session::SendBytes(std::string_view bytes) {
  for (int refused = 0; !bytes.empty() && refused < 100 && !process_.ended && process_.socket.valid();) {
    const ssize_t sent = send(process_.socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return;
    }
    bytes.remove_prefix(sent < 0 ? 0 : static_cast<size_t>(sent));
    refused += sent < 0 ? 1 : 0;
    Ring();
  }
}

void Session::Read() {
  char bytes[65'536];
  while (process_.socket.valid() && read(process_.socket.get(), bytes, sizeof(bytes)) > 0) {
  }
}

void Session::Ask(uint8_t what, Input& input) {
  static const std::vector<uint8_t>* const kData = new std::vector<uint8_t>(64);
  const uint8_t argument = input.Byte();
  if (!memory_.valid()) {
    memory_ = *CreateSealedMemfd("fuzz", 4096);
  }
  InputTensor tensor{.name = "x", .type = ElementType::kF32, .shape = {16}, .bytes = *kData, .memory = {}};
  if ((argument & 2) != 0) {
    tensor.bytes = {};
    tensor.memory =
        MemorySlice{.memory_id = 1u + (argument >> 4), .fd = memory_.get(), .memory_bytes = 4096, .bytes = 64};
  }
  Request& request = NewRequest();
  if (what == 0) {
    PrepareInput prepare;
    prepare.handle = 1 + (argument & 7);
    prepare.document.bytes = *kData;
    if ((argument & 8) != 0) {
      prepare.modules.push_back({.name = "m", .hash = HashOf(*kData), .bytes = {.bytes = *kData}});
    }
    request.id = link_->Prepare(prepare, Done<internal::Prepared>(request));
  } else if (what == 1) {
    RunInput run;
    run.handle = argument & 7;
    run.inputs = {tensor};
    run.options.set_log((argument & 8) != 0);
    run.options.set_node_records_max((argument & 16) != 0 ? 0 : 1000);
    if ((argument & 32) != 0) {
      run.on_started = [] {};
    }
    request.id = link_->Run(run, Done<RunReply>(request));
  } else if (what == 3) {
    const RequestId next = Pick(static_cast<uint8_t>(requests_.size() - 2)) + 1;
    internal::Envelope changed;
    changed.mutable_grant_changed()->set_entry(argument & 7);
    changed.mutable_grant_changed()->set_epoch(argument);
    link_->Ask(std::move(changed), Done<internal::Envelope>(request));
    request.id = next;  // The call does not return it; most often it is this one.
  } else {
    const RequestId next = Pick(static_cast<uint8_t>(requests_.size() - 2)) + 1;
    internal::Envelope question;
    if (what == 2 || (argument & 64) != 0) {
      question.mutable_list_costs()->set_handle(argument & 7);
    } else {
      question.mutable_reclaim()->set_entry(argument & 7);
      question.mutable_reclaim()->set_bytes_max(uint64_t{argument} << 20);
    }
    link_->Ask(std::move(question), Done<internal::Envelope>(request));
    request.id = next;
  }
}

void Session::Play(Input input) {
  Start((input.Byte() & 1) != 0);
  for (int count = 0; !input.empty() && count < 64; ++count) {
    const uint8_t what = input.Byte() % 16;
    switch (what) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        Ask(what, input);
        break;
      case 5:
        link_->Cancel(Pick(input.Byte()));
        break;
      case 6:
        link_->Release(input.Byte());
        break;
      case 7:
        link_->Forget(input.Byte());
        break;
      case 8:
        link_->Shutdown();
        break;
      case 9:
        link_->Kill("It was asked for.");
        break;
      case 10:
        process_.End();
        break;
      case 11:
        process_.socket.reset();
        break;
      case 12:
        Read();
        break;
      case 13:
        PutMark();
        SendBytes(input.Bytes(input.Byte()));
        break;
      case 14:
        PlayRing(input);
        break;
      default:
        PlayFrame(input);
        break;
    }
  }
  link_.reset();
  // The link is gone: every request has been answered, and no callback follows.
  HPVMD_CHECK(ends_ == 1);
  for (const Request& request : requests_) {
    HPVMD_CHECK(request.answers == 1);
  }
}

}  // namespace
}  // namespace hpvm::supervisor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hpvm::supervisor;
  static ExecutorHub* const hub = ExecutorHub::Create()->release();
  Session(*hub).Play(Input(data, size));
  return 0;
}
