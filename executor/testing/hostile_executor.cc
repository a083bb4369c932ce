// SPDX-License-Identifier: Apache-2.0
// A program that the link takes for an executor and that violates the protocol, in the way named by Hello's cache
// folder.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "base/io/memfd.h"
#include "base/io/ring_channel.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {
namespace {

constexpr int kSocket = 3;

// The contents of Hello, and a channel that obeys the rules.
struct Connection {
  Connection(Mapping mapped, UniqueFd daemons_bell) : memory(std::move(mapped)), bell(std::move(daemons_bell)) {
    writer.UseRing(rings.to_server, bell.get());
  }

  Mapping memory;
  UniqueFd bell;
  RingPairMemory& rings = *reinterpret_cast<RingPairMemory*>(memory.data());
  RingChannelReader reader{kSocket, rings.to_client, bell.get(), kToExecutorLimits};
  RingChannelWriter writer{kSocket, RingChannelWriter::Wait::kYes, SIZE_MAX};
};
std::optional<Connection> daemon;

void Send(const internal::Envelope& envelope, size_t body_bytes = 0, int fd = -1) {
  const std::vector<uint8_t> body(body_bytes);
  const int fds[] = {fd};
  daemon->writer.Send(envelope.SerializeAsString(), body, {fds, fd >= 0 ? 1u : 0u}).IgnoreError();
}

void Ring() {
  const uint64_t one = 1;
  const ssize_t put = write(daemon->bell.get(), &one, sizeof(one));
  (void)put;
}

// Returns the position of the next frame.
uint8_t* NextFrame() { return daemon->rings.to_server.bytes + daemon->rings.to_server.written.load() % kRingBytes; }

void PutHeader(const FrameHeader& header, uint32_t bytes) {
  std::memcpy(NextFrame(), &header, sizeof(header));
  daemon->rings.to_server.written.fetch_add(bytes);
  Ring();
}

// Puts a mark; its frame is sent by the socket.
void PutMark() { PutHeader({0x48504d32, 0, 0, 0}, 16); }

// Ways to corrupt the rings themselves.
void SpoilRing(const std::string& fault, const internal::Envelope& done) {
  RingMemory& ring = daemon->rings.to_server;
  if (fault == "ring ahead of itself") {
    ring.written.fetch_add(kRingBytes + 16);
    Ring();
  } else if (fault == "ring behind itself") {
    ring.written.fetch_sub(16);
    Ring();
  } else if (fault == "ring with half a header") {
    ring.written.fetch_add(8);
    Ring();
  } else if (fault == "ring taken before it was put") {
    daemon->rings.to_client.taken.fetch_add(16);  // Noticed at the daemon's next request.
    Send(done, 16);
  } else if (fault == "ring of huge frame") {
    PutHeader({kFrameMagic, 16, UINT32_MAX, 0}, 1024);
  } else if (fault == "ring of frame that is not there") {
    PutHeader({kFrameMagic, 1024, 0, 0}, 32);
  } else if (fault == "ring of descriptors") {
    PutHeader({kFrameMagic, 0, 0, 1}, 16);
  } else if (fault == "ring of garbage") {
    PutHeader({0xdeadbeef, 0, 0, 0}, 16);
  } else if (fault == "ring without frames") {
    for (int i = 0; i < 1'000'000; ++i) {
      Ring();
    }
  } else if (fault == "ring rewritten") {
    SeededRng rng(9);
    for (int i = 0; i < 1'000'000; ++i) {
      const uint64_t word = rng.Next() % 4 == 0 ? kFrameMagic : rng.Next() % 200;
      std::memcpy(ring.bytes + rng.Next() % (kRingBytes / 4) * 4, &word, 4);
      ring.written.store(static_cast<uint32_t>(rng.Next() % kRingBytes / 16 * 16));
      Ring();
    }
  }
}

internal::Envelope Ready(uint64_t id) {
  internal::Envelope envelope;
  envelope.set_request_id(id);
  envelope.mutable_ready()->set_version(kExecutorProtocolVersion);
  v1::Device* device = envelope.mutable_ready()->add_devices()->mutable_device();
  device->set_id("cpu:0");
  device->set_kind(v1::Device::KIND_CPU);
  device->set_state(v1::Device::STATE_READY);
  return envelope;
}

// A correct answer to a run, which cases then corrupt.
internal::Envelope Done(uint64_t id) {
  internal::Envelope envelope;
  envelope.set_request_id(id);
  internal::OutputTensor* output = envelope.mutable_run_done()->add_outputs();
  output->set_name("y");
  output->set_type(static_cast<uint32_t>(ElementType::kI32));
  output->add_shape(4);
  output->set_bytes(16);
  output->mutable_body()->set_bytes(16);
  envelope.mutable_run_done()->mutable_status();
  return envelope;
}

void SpoilLog(const std::string& fault, v1::RunLog* log) {
  v1::LogLine* line = log->add_lines();
  line->set_text("text");
  v1::Finding* finding = log->add_findings();
  finding->set_kind("race");
  finding->set_count(1);
  if (fault == "log control in a line's node") {
    line->set_node("\x1b[2J");
  } else if (fault == "log long node of a finding") {
    finding->set_node(std::string(kTextBytesMax + 1, 'a'));
  } else if (fault == "log control in line") {
    line->set_text("\x1b[2J");
  } else if (fault == "log line of two") {
    line->set_text("a\nb");
  } else if (fault == "log long line") {
    line->set_text(std::string(limits::kLogLineBytesMax + 4, 'a'));
  } else if (fault == "log many lines") {
    for (uint32_t i = 0; i < limits::kLogLinesMax; ++i) {
      log->add_lines();
    }
  } else if (fault == "log many bytes") {
    for (uint32_t i = 0; i <= kLogHeadBytesMax / limits::kLogLineBytesMax; ++i) {
      log->add_lines()->set_text(std::string(limits::kLogLineBytesMax, 'a'));
    }
  } else if (fault == "log many instances") {
    for (int i = 0; i < 3; ++i) {
      finding->add_instances();
    }
  } else if (fault == "log no kind") {
    finding->clear_kind();
  }
}

void AnswerRun(const std::string& fault, uint64_t id) {
  internal::Envelope done = Done(id);
  internal::OutputTensor* output = done.mutable_run_done()->mutable_outputs(0);
  if (fault == "none") {
    Send(done, 16);
  } else if (fault == "range past body") {
    output->mutable_body()->set_offset(16);
    Send(done, 16);
  } else if (fault == "bytes not shape") {
    output->set_bytes(12);
    Send(done, 16);
  } else if (fault == "shape overflows") {
    output->add_shape(UINT64_MAX);
    Send(done, 16);
  } else if (fault == "type unknown") {
    output->set_type(14);
    Send(done, 16);
  } else if (fault == "wrong id") {
    done.set_request_id(id + 100);
    Send(done, 16);
  } else if (fault == "wrong kind") {
    internal::Envelope ack;
    ack.set_request_id(id);
    ack.mutable_grant_ack();
    Send(ack);
  } else if (fault == "status unknown") {
    done.mutable_run_done()->mutable_status()->set_code(17);
    Send(done, 16);
  } else if (fault == "control in text") {
    output->set_name("y\x1b[2J");
    Send(done, 16);
  } else if (fault == "uninvited records") {
    v1::NodePlacement* node = done.mutable_run_done()->add_nodes();
    node->set_device("cpu:0");
    node->set_math("exact");
    Send(done, 16);
  } else if (fault == "unknown device") {
    done.mutable_run_done()->add_nodes()->set_device("cpu:3");
    Send(done, 16);
  } else if (fault == "unknown lost device") {
    done.mutable_run_done()->add_left_devices("cpu:3");
    Send(done, 16);
  } else if (fault == "the daemon's figure") {
    done.mutable_run_done()->mutable_timing()->set_total_ns(1);
    Send(done, 16);
  } else if (fault.starts_with("log ")) {
    SpoilLog(fault, done.mutable_run_done()->mutable_log());
    Send(done, 16);
  } else if (fault == "descriptor") {
    const StatusOr<UniqueFd> fd = CreateSealedMemfd("x", 16);
    Send(done, 16, fd.ok() ? fd->get() : -1);
  } else if (fault == "usage of a run" || fault == "idle beyond held" || fault == "usage of no device") {
    internal::Envelope usage;
    usage.set_request_id(fault == "usage of a run" ? id : 0);
    usage.mutable_usage()->add_device_bytes(1);
    if (fault != "usage of no device") {
      usage.mutable_usage()->add_idle_device_bytes(fault == "idle beyond held" ? 2 : 1);
    }
    Send(usage);
  } else if (fault == "usage without end") {
    internal::Envelope usage;
    usage.mutable_usage()->add_device_bytes(1);
    usage.mutable_usage()->add_idle_device_bytes(1);
    for (int i = 0; i < 10'000; ++i) {
      Send(usage);
    }
    Send(done, 16);
  } else if (fault.starts_with("costs ")) {
    internal::Envelope costs;
    costs.set_request_id(id);
    internal::GraphCosts* graph = costs.mutable_costs()->add_graphs();
    graph->set_handle(fault == "costs of no graph" ? 0 : 1);
    v1::KernelCost* kernel = graph->add_kernels();
    kernel->set_kernel(fault == "costs with control" ? "m/\x1b[2J" : "m/add");
    kernel->set_measured_ns(fault == "costs not a number" ? std::nan("") : fault == "costs below zero" ? -1 : 1);
    kernel->set_estimate_ns(fault == "costs without end" ? INFINITY : 1);
    kernel->set_device(fault == "costs of no device" ? "cpu:8" : "cpu:0");
    for (uint32_t i = 0; fault == "costs too many" && i < kCostsMax; ++i) {
      *graph->add_kernels() = graph->kernels(0);
    }
    Send(costs);
  } else if (fault == "short and well") {
    done.mutable_run_done()->set_short_entry_plus_1(1);
    Send(done, 16);
  } else if (fault == "uninvited event") {
    internal::Envelope event;
    event.set_request_id(id);
    event.mutable_event()->set_kind(internal::Event::KIND_STARTED);
    Send(event);
  } else if (fault.starts_with("ring ")) {
    SpoilRing(fault, done);
  } else if (fault == "huge frame" || fault == "half frame") {
    PutMark();
    const FrameHeader header{kFrameMagic, 100, fault == "huge frame" ? UINT32_MAX : 0, 0};
    const ssize_t put = write(kSocket, &header, sizeof(header));
    if (fault == "half frame" && put > 0) {
      _exit(3);
    }
  } else if (fault == "frame without mark") {
    SendFrame(kSocket, done.SerializeAsString()).IgnoreError();
    Send(done, 16);
  } else if (fault == "garbage") {
    daemon->writer.Send("\xff\xff\xff\xff").IgnoreError();
  } else if (fault == "two answers") {
    Send(done, 16);
    Send(done, 16);
  } else if (fault == "fatal") {
    internal::Envelope fatal;
    SetStatus(Internal("It cannot go on."), fatal.mutable_fatal()->mutable_status());
    Send(fatal);
  }
}

StatusOr<Frame> Receive() {
  if (!daemon.has_value()) {
    return ReceiveFrame(kSocket, kToExecutorLimits);
  }
  Frame frame;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(const bool is_whole, daemon->reader.Next(&frame));
    if (is_whole) {
      return frame;
    }
    HPVMD_RETURN_IF_ERROR(daemon->reader.Wait(Duration(0)));
  }
}

Status TakeHello(Frame& frame, const internal::Envelope& envelope) {
  HPVMD_ASSIGN_OR_RETURN(Mapping memory, Mapping::Map(frame.fds[0].get(), kRingPairBytes, Mapping::Access::kReadWrite));
  daemon.emplace(std::move(memory), std::move(frame.fds[1]));
  if (envelope.hello().cache_folder() == "fatal before the rings") {
    internal::Envelope fatal;
    SetStatus(Internal("It cannot begin."), fatal.mutable_fatal()->mutable_status());
    return SendFrame(kSocket, fatal.SerializeAsString());
  }
  if (envelope.hello().cache_folder() != "no ready") {
    Send(Ready(envelope.request_id()));
  }
  return absl::OkStatus();
}

Status Serve() {
  std::string fault;
  while (true) {
    HPVMD_ASSIGN_OR_RETURN(Frame frame, Receive());
    HPVMD_ASSIGN_OR_RETURN(Unchecked<internal::Envelope> said, ParseHead(frame.head));
    HPVMD_ASSIGN_OR_RETURN(const internal::Envelope envelope,
                           CheckToExecutor(std::move(said), frame.body.size(), frame.fds.size()));
    if (envelope.has_hello()) {
      fault = envelope.hello().cache_folder();
      HPVMD_RETURN_IF_ERROR(TakeHello(frame, envelope));
    } else if (envelope.has_run()) {
      AnswerRun(fault, envelope.request_id());
    }
  }
}

}  // namespace
}  // namespace hpvm::executor

int main() { return hpvm::executor::Serve().ok() ? 1 : 0; }
