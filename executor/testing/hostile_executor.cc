// SPDX-License-Identifier: Apache-2.0
// A program that the link takes for an executor and that breaks the protocol, each time in the way that Hello's cache
// folder names.
#include <unistd.h>

#include <cmath>
#include <map>
#include <string>

#include "base/io/memfd.h"
#include "proto/internal/protocol.h"

namespace hpvm::executor {
namespace {

constexpr int kSocket = 3;

void Send(const internal::Envelope& envelope, size_t body_bytes = 0, int fd = -1) {
  const std::vector<uint8_t> body(body_bytes);
  const int fds[] = {fd};
  SendFrame(kSocket, envelope.SerializeAsString(), body, {fds, fd >= 0 ? 1u : 0u}).IgnoreError();
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

// A good answer to a run, for cases to spoil.
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
  } else if (fault == "huge frame") {
    const FrameHeader header{kFrameMagic, 16, UINT32_MAX, 0};
    const ssize_t put = write(kSocket, &header, sizeof(header));
    (void)put;
  } else if (fault == "half frame") {
    const FrameHeader header{kFrameMagic, 100, 0, 0};
    const ssize_t put = write(kSocket, &header, sizeof(header));
    (void)put;
    _exit(3);
  } else if (fault == "garbage") {
    SendFrame(kSocket, "\xff\xff\xff\xff").IgnoreError();
  } else if (fault == "two answers") {
    Send(done, 16);
    Send(done, 16);
  } else if (fault == "fatal") {
    internal::Envelope fatal;
    SetStatus(Internal("It cannot go on."), fatal.mutable_fatal()->mutable_status());
    Send(fatal);
  }
}

int Serve() {
  std::string fault;
  while (true) {
    const StatusOr<Frame> frame = ReceiveFrame(kSocket, kToExecutorLimits);
    StatusOr<Unchecked<internal::Envelope>> said = frame.ok() ? ParseHead(frame->head) : frame.status();
    if (!said.ok()) {
      return 0;
    }
    const StatusOr<internal::Envelope> envelope =
        CheckToExecutor(*std::move(said), frame->body.size(), frame->fds.size());
    if (!envelope.ok()) {
      return 0;
    }
    if (envelope->has_hello()) {
      fault = envelope->hello().cache_folder();
      if (fault != "no ready") {
        Send(Ready(envelope->request_id()));
      }
    } else if (envelope->has_run()) {
      AnswerRun(fault, envelope->request_id());
    }
  }
}

}  // namespace
}  // namespace hpvm::executor

int main() { return hpvm::executor::Serve(); }
