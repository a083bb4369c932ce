// SPDX-License-Identifier: Apache-2.0
// run/1, run/64 and transfer/64MiB: through a real hpvmd, its executor and the client library, compared with a
// minimal gRPC server.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "client/status/status.h"
#include "grpcpp/grpcpp.h"

#include "base/clock.h"
#include "base/status.h"
#include "bench/registry.h"
#include "bench/service/peer.grpc.pb.h"
#include "bench/service/run_calls.h"
#include "bench/service/servers.h"
#include "hpvm/client.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kTransferBytes = uint64_t{64} << 20;
constexpr uint64_t kChunkBytes = uint64_t{1} << 20;

double MedianUs(std::vector<int64_t>& ns) {
  std::nth_element(ns.begin(), ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2), ns.end());
  return static_cast<double>(ns[ns.size() / 2]) / 1e3;
}

// For one client: the median call's microseconds. For many: calls per second.
StatusOr<Measurement> MeasureCalls(uint32_t clients, uint32_t calls, int rounds) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Servers> servers, Servers::Start());
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> ours, MakeRunLoad(servers->daemon, servers->handle, clients));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> peer, MakeEchoLoad(servers->peer, clients));
  const auto round_of = [&](CallLoad& load) {
    return [&load, clients, calls]() -> StatusOr<double> {
      HPVMD_ASSIGN_OR_RETURN(CallLoad::Outcome outcome, load.Run(calls));
      return clients == 1
                 ? MedianUs(outcome.call_ns)
                 : static_cast<double>(outcome.call_ns.size()) * 1e9 / static_cast<double>(outcome.elapsed.count());
    };
  };
  HPVMD_ASSIGN_OR_RETURN(Measurement measurement,
                         MeasureInterleaved(clients == 1 ? Better::kLower : Better::kHigher,
                                            {{"ours", round_of(*ours)}, {"grpc_minimal", round_of(*peer)}}, rounds));
  measurement.verified = true;  // Every answer was compared.
  return measurement;
}

double GigabytesPerSecond(Duration elapsed) {
  return 2.0 * static_cast<double>(kTransferBytes) / static_cast<double>(elapsed.count());
}

// WriteBuffer, Run on the buffers, ReadBuffer.
StatusOr<double> TransferOurs(Servers& servers, const std::string& in, const std::string& out,
                              const std::vector<uint8_t>& sent, std::vector<uint8_t>& back) {
  std::fill(back.begin(), back.end(), uint8_t{0});
  v1::RunRequest request;
  request.set_handle(servers.handle);
  v1::InputBinding* input = request.add_inputs();
  input->set_name("x");
  input->mutable_buffer()->set_buffer_id(in);
  v1::OutputBinding* output = request.add_outputs();
  output->set_name("y");
  output->set_buffer_id(out);
  const Time start = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(servers.client->WriteBuffer(in, sent));
  HPVMD_RETURN_IF_ERROR(servers.client->Run(request).status());
  HPVMD_RETURN_IF_ERROR(servers.client->ReadBuffer(out, back));
  const Duration elapsed = RealClock().Now() - start;
  if (back != sent) {
    return Internal("The bytes that came back are not those that were sent.");
  }
  return GigabytesPerSecond(elapsed);
}

// Sends the same bytes and receives them back over one plain stream.
StatusOr<double> TransferPeer(Peer::Stub& stub, const std::vector<uint8_t>& sent, std::vector<uint8_t>& back) {
  std::fill(back.begin(), back.end(), uint8_t{0});
  const Time start = RealClock().Now();
  grpc::ClientContext context;
  auto stream = stub.Exchange(&context);
  Bytes part;
  for (uint64_t at = 0; at < sent.size(); at += kChunkBytes) {
    part.set_data(sent.data() + at, kChunkBytes);
    if (!stream->Write(part)) {
      break;
    }
  }
  stream->WritesDone();
  uint64_t filled = 0;
  while (stream->Read(&part)) {
    if (part.data().size() > back.size() - filled) {
      return Internal("The peer sent too much.");
    }
    std::copy(part.data().begin(), part.data().end(), back.begin() + static_cast<ptrdiff_t>(filled));
    filled += part.data().size();
  }
  HPVMD_RETURN_IF_ERROR(FromGrpc(stream->Finish()));
  const Duration elapsed = RealClock().Now() - start;
  if (back != sent) {
    return Internal("The peer's bytes are not those that were sent.");
  }
  return GigabytesPerSecond(elapsed);
}

StatusOr<Measurement> MeasureTransfer() {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Servers> servers, Servers::Start());
  const uint64_t shape[] = {kTransferBytes};
  HPVMD_ASSIGN_OR_RETURN(v1::Buffer in, servers->client->CreateBuffer(ElementType::kU8, shape));
  HPVMD_ASSIGN_OR_RETURN(v1::Buffer out, servers->client->CreateBuffer(ElementType::kU8, shape));
  std::vector<uint8_t> sent(kTransferBytes), back(kTransferBytes);
  SeededRng rng(64);
  for (size_t i = 0; i < sent.size(); i += 8) {
    const uint64_t word = rng.Next();
    __builtin_memcpy(sent.data() + i, &word, 8);
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(8 << 20);
  std::unique_ptr<Peer::Stub> stub =
      Peer::NewStub(grpc::CreateCustomChannel(servers->peer, grpc::InsecureChannelCredentials(), arguments));
  HPVMD_ASSIGN_OR_RETURN(
      Measurement measurement,
      MeasureInterleaved(Better::kHigher,
                         {{"ours", [&] { return TransferOurs(*servers, in.id(), out.id(), sent, back); }},
                          {"grpc_stream", [&] { return TransferPeer(*stub, sent, back); }}},
                         5));
  measurement.verified = true;  // Every round compared its bytes.
  return measurement;
}

}  // namespace

void AddExecutorCases(std::vector<Case>& cases);
void AddLocalCases(std::vector<Case>& cases);
void AddRingCases(std::vector<Case>& cases);

void AddDaemonCases(std::vector<Case>& cases) {
  cases.push_back(
      {.suite = "overhead", .name = "run/1", .metric = "us_median_call", .better = Better::kLower, .run = [] {
         return MeasureCalls(1, 2000, 5);
       }});
  cases.push_back(
      {.suite = "overhead", .name = "run/64", .metric = "calls_per_s", .better = Better::kHigher, .run = [] {
         return MeasureCalls(64, 20'000, 5);
       }});
  cases.push_back({.suite = "overhead",
                   .name = "transfer/64MiB",
                   .metric = "GB_per_s",
                   .better = Better::kHigher,
                   .run = MeasureTransfer});
  AddLocalCases(cases);
  AddRingCases(cases);
  AddExecutorCases(cases);
}

}  // namespace hpvm::bench
