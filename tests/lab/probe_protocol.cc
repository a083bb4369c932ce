// SPDX-License-Identifier: Apache-2.0
// Messages that an executor must not send, and false contents of those that it may.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/io/fd.h"
#include "base/io/frame_socket.h"
#include "proto/internal/protocol.h"
#include "tests/lab/payload.h"

namespace hpvm::lab {
namespace {

constexpr int kSocket = 3;
const std::string kOn = "refused: went on";  // The daemon judges these.

void Send(const internal::Envelope& envelope, size_t body_bytes = 0, int fd = -1) {
  const std::vector<uint8_t> body(body_bytes);
  const int fds[] = {fd};
  DaemonWriter().Send(envelope.SerializeAsString(), body, {fds, fd >= 0 ? 1u : 0u}).IgnoreError();
}

internal::Envelope Answer(uint64_t id) {
  internal::Envelope envelope;
  envelope.set_request_id(id);
  envelope.mutable_run_done()->mutable_status();
  return envelope;
}

void Ring() {
  const uint64_t one = 1;
  const ssize_t put = write(DaemonBell(), &one, sizeof(one));
  (void)put;
}

// Waits until the daemon has looked: the runner's own next frame would repair the damage.
void RingAndWait() {
  Ring();
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
}

// In the ring, in place of the next frame.
void SendHeader(uint32_t magic, uint32_t head, uint32_t body, uint32_t fds) {
  const FrameHeader header{magic, head, body, fds};
  RingMemory& ring = DaemonRings().to_server;
  std::memcpy(ring.bytes + ring.written.load() % kRingBytes, &header, sizeof(header));
  ring.written.fetch_add(sizeof(header));
  RingAndWait();
}

std::string BadMagic(Task&) { return SendHeader(0xdeadbeef, 4, 0, 0), kOn; }
std::string HugeHead(Task&) { return SendHeader(kFrameMagic, UINT32_MAX, 0, 0), kOn; }
std::string HugeBody(Task&) { return SendHeader(kFrameMagic, 4, UINT32_MAX, 0), kOn; }
std::string ManyDescriptors(Task&) { return SendHeader(kFrameMagic, 4, 0, UINT32_MAX), kOn; }
std::string EmptyFrame(Task&) { return SendHeader(kFrameMagic, 0, 0, 0), kOn; }
// Announces bytes that never come: the rest of the stream cannot be understood.
std::string HalfFrame(Task&) {
  PutDaemonMark();
  const FrameHeader header{kFrameMagic, 200 * 1024, 4 << 20, 0};
  const ssize_t put = write(kSocket, &header, sizeof(header));
  (void)put;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return kOn;
}
std::string BadHead(Task&) {
  DaemonWriter().Send(std::string(1000, '\xff')).IgnoreError();
  return kOn;
}
std::string SendDescriptor(Task&) {
  UniqueFd memory(memfd_create("gift", 0));
  internal::Envelope envelope = Answer(1);
  return Send(envelope, 0, memory.get()), kOn;
}
// The rings themselves. Repeatedly: other threads of the runner put frames, too, and then the position is right
// again.
std::string PutPosition(uint32_t beyond) {
  for (int i = 0; i < 80; ++i) {
    DaemonRings().to_server.written.fetch_add(beyond);
    Ring();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return kOn;
}
std::string RingAhead(Task&) { return PutPosition(kRingBytes + 16); }
std::string RingBehind(Task&) { return PutPosition(static_cast<uint32_t>(-16)); }
std::string RingNotWhole(Task&) { return SendHeader(kFrameMagic, 1024, 0, 0), kOn; }
// Noticed at the daemon's next request.
std::string RingTaken(Task&) { return DaemonRings().to_client.taken.fetch_add(kRingBytes), kOn; }
std::string RingBells(Task&) {
  for (int i = 0; i < 1'000'000; ++i) {
    Ring();
  }
  return kOn;
}
// Rings again as soon as the daemon sleeps, so that no bell merges with another.
std::string RingPatientBells(Task&) {
  const Time end = RealClock().Now() + std::chrono::seconds(10);
  while (RealClock().Now() < end) {
    if (DaemonRings().to_server.asleep.exchange(0) != 0) {
      Ring();
    }
  }
  return kOn;
}
std::string RingRewritten(Task&) {
  RingMemory& ring = DaemonRings().to_server;
  SeededRng rng(11);
  for (int i = 0; i < 2'000'000; ++i) {
    const uint32_t word = rng.Next() % 4 == 0 ? kFrameMagic : static_cast<uint32_t>(rng.Next() % 200);
    std::memcpy(ring.bytes + rng.Next() % (kRingBytes / 4) * 4, &word, sizeof(word));
    ring.written.store(static_cast<uint32_t>(rng.Next() % kRingBytes / 16 * 16));
    Ring();
  }
  return kOn;
}
std::string UnknownId(Task& task) { return Send(Answer(task.request_id + 1'000'000)), kOn; }
std::string NoId(Task&) { return Send(Answer(0)), kOn; }
std::string Twice(Task& task) {
  internal::Envelope answer = Answer(task.request_id);
  SetStatus(Aborted("First."), answer.mutable_run_done()->mutable_status());
  return Send(answer), kOn;
}
std::string WrongKind(Task& task) {
  internal::Envelope answer;
  answer.set_request_id(task.request_id);
  answer.mutable_prepared()->mutable_status();
  return Send(answer), kOn;
}
std::string SecondReady(Task&) {
  internal::Envelope answer;
  answer.set_request_id(1);
  answer.mutable_ready()->set_version(kExecutorProtocolVersion);
  answer.mutable_ready()->set_sandbox_level(4);
  return Send(answer), kOn;
}
std::string DaemonsMessage(Task& task) {
  internal::Envelope envelope;
  envelope.set_request_id(task.request_id);
  envelope.mutable_cancel()->set_target_id(1);
  return Send(envelope), kOn;
}
std::string UnaskedAck(Task& task) {
  internal::Envelope envelope;
  envelope.set_request_id(task.request_id + 1);
  envelope.mutable_grant_ack()->set_epoch(UINT32_MAX);
  return Send(envelope), kOn;
}
std::string EventFlood(Task& task) {
  internal::Envelope envelope;
  envelope.set_request_id(task.request_id);
  envelope.mutable_event()->set_kind(internal::Event::KIND_STARTED);
  for (int i = 0; i < 20'000; ++i) {
    Send(envelope);
  }
  return kOn;
}
std::string UsageLies(Task&) {
  internal::Envelope envelope;
  for (int i = 0; i < 8; ++i) {
    envelope.mutable_usage()->add_device_bytes(UINT64_MAX);
    envelope.mutable_usage()->add_idle_device_bytes(UINT64_MAX);
  }
  return Send(envelope), kOn;
}
std::string UsageTooMany(Task&) {
  internal::Envelope envelope;
  for (int i = 0; i < 9; ++i) {
    envelope.mutable_usage()->add_device_bytes(1);
  }
  return Send(envelope), kOn;
}
std::string UsageFlood(Task&) {
  internal::Envelope envelope;
  envelope.mutable_usage()->add_device_bytes(1);
  for (int i = 0; i < 20'000; ++i) {
    Send(envelope);
  }
  return kOn;
}
std::string LastWords(Task&) {
  internal::Envelope envelope;
  SetStatus(Internal("\x1b[2J" + std::string(20'000, 'x')), envelope.mutable_fatal()->mutable_status());
  return Send(envelope), kOn;
}

// False values in the answer itself.
std::string Lie(Task& task, const Status& status = absl::OkStatus()) {
  task.keep_answer = true;
  SetStatus(status, task.done->mutable_status());
  return "";
}
std::string TimeLies(Task& task) {
  for (int i = 0; i < 8; ++i) {
    task.done->add_device_ns(task.Number("low") != 0 ? 0 : UINT64_MAX);
  }
  task.done->mutable_timing()->set_run_ns(UINT64_MAX);
  task.done->mutable_timing()->set_queue_ns(UINT64_MAX);
  return Lie(task, Aborted("lab[refused: lied]"));
}
std::string DevicesLost(Task& task) {
  for (const char* id : {"cpu:0", "opencl:0", "vulkan:0"}) {
    task.done->add_lost_devices(id);
  }
  return Lie(task, Unavailable("All devices are lost, the attacker says."));
}
std::string StatusUnknown(Task& task) {
  Lie(task);
  task.done->mutable_status()->set_code(99);
  return "";
}
std::string TextInjection(Task& task) {
  Lie(task);
  task.done->mutable_status()->set_code(10);
  task.done->mutable_status()->set_message("\x1b[2J\x1b]0;lab-title\x07 lab-injected\r\n");
  return "";
}
std::string OutputLies(Task& task) {
  internal::OutputTensor* output = task.done->add_outputs();
  output->set_name("report");
  output->set_type(3);
  output->add_shape(UINT64_MAX);
  output->add_shape(UINT64_MAX);
  output->set_bytes(1);
  return Lie(task);
}
std::string OutputPastBody(Task& task) {
  internal::OutputTensor* output = task.done->add_outputs();
  output->set_name("report");
  output->set_type(3);
  output->add_shape(1 << 20);
  output->set_bytes(1 << 20);
  output->mutable_body()->set_offset(UINT32_MAX & ~15u);
  output->mutable_body()->set_bytes(1 << 20);
  return Lie(task);
}
std::string OutputMissing(Task& task) { return Lie(task); }
std::string ManyRecords(Task& task) {
  for (int i = 0; i < 5000; ++i) {
    task.done->add_nodes()->set_node("node");
  }
  return Lie(task, Aborted("lab[refused: lied]"));
}
std::string MemoryLies(Task& task) {
  internal::OutputTensor* output = task.done->add_outputs();
  output->set_name("report");
  output->set_type(3);
  output->add_shape(uint64_t{1} << 50);
  output->set_bytes(uint64_t{1} << 50);
  task.done->set_needs_memory(true);
  return Lie(task, ResourceExhausted("Needs a little memory."));
}

// Never answers.
std::string Silent(Task&) {
  std::this_thread::sleep_for(std::chrono::seconds(600));
  return kOn;
}
// Answers when nobody waits any more.
std::string Late(Task& task) {
  std::this_thread::sleep_for(std::chrono::milliseconds(task.Number("ms")));
  task.keep_answer = true;
  SetStatus(Aborted("lab[refused: late]"), task.done->mutable_status());
  return "";
}

constexpr NamedProbe kProbes[] = {
    {"bad_magic", BadMagic},
    {"huge_head", HugeHead},
    {"huge_body", HugeBody},
    {"many_descriptors", ManyDescriptors},
    {"empty_frame", EmptyFrame},
    {"half_frame", HalfFrame},
    {"bad_head", BadHead},
    {"send_descriptor", SendDescriptor},
    {"ring_ahead", RingAhead},
    {"ring_behind", RingBehind},
    {"ring_not_whole", RingNotWhole},
    {"ring_taken", RingTaken},
    {"ring_bells", RingBells},
    {"ring_patient_bells", RingPatientBells},
    {"ring_rewritten", RingRewritten},
    {"unknown_id", UnknownId},
    {"no_id", NoId},
    {"twice", Twice},
    {"wrong_kind", WrongKind},
    {"second_ready", SecondReady},
    {"daemons_message", DaemonsMessage},
    {"unasked_ack", UnaskedAck},
    {"event_flood", EventFlood},
    {"usage_lies", UsageLies},
    {"usage_too_many", UsageTooMany},
    {"usage_flood", UsageFlood},
    {"last_words", LastWords},
    {"time_lies", TimeLies},
    {"devices_lost", DevicesLost},
    {"status_unknown", StatusUnknown},
    {"text_injection", TextInjection},
    {"output_lies", OutputLies},
    {"output_past_body", OutputPastBody},
    {"output_missing", OutputMissing},
    {"many_records", ManyRecords},
    {"memory_lies", MemoryLies},
    {"silent", Silent},
    {"late", Late},
};

}  // namespace

std::span<const NamedProbe> ProtocolProbes() { return kProbes; }

}  // namespace hpvm::lab
