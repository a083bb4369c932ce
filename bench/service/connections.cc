// SPDX-License-Identifier: Apache-2.0
#include "bench/service/connections.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "bench/processes.h"
#include "bench/service/run_calls.h"
#include "bench/service/service_daemon.h"
#include "hpvm/client.h"

namespace hpvm::bench {
namespace {

constexpr uint64_t kTransferBytes = uint64_t{64} << 20;

std::string ReadWhole(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

// Returns a port that was free a moment ago.
int FreePort() {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  return ntohs(address.sin_port);
}

// Makes a self-signed certificate for 127.0.0.1 with the command openssl.
Status MakeCertificate(const std::string& folder) {
  const RunOutput made =
      RunAndRead("/usr/bin/openssl", {"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                      "-nodes", "-keyout", folder + "/server.key", "-out", folder + "/server.pem",
                                      "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"});
  return made.code == 0 ? absl::OkStatus() : Unavailable("openssl made no certificate.");
}

// One daemon with the graph prepared, reached over one transport.
struct Side {
  TemporaryFolder folder;
  std::unique_ptr<Process> process;
  std::string endpoint, ca, handle;
  std::unique_ptr<Client> client;
  v1::Buffer in, out;

  static StatusOr<std::unique_ptr<Side>> Start(const std::string& program, bool tls) {
    auto side = std::make_unique<Side>();
    const std::string& folder = side->folder.path();
    const std::string tcp = "127.0.0.1:" + std::to_string(FreePort());
    side->endpoint = tls ? tcp : "unix:" + folder + "/s";
    std::ofstream config(folder + "/hpvmd.toml");
    config << "[server]\nlisten = \"" << side->endpoint << "\"\nstate_dir = \"" << folder
           << "/state\"\n[limits]\nconnections_per_peer_max = 1000\n[devices]\nbackends = \"cpu\"\n[log]\nlevel = "
              "\"error\"\n";
    if (tls) {
      HPVMD_RETURN_IF_ERROR(MakeCertificate(folder));
      config << "[tls]\ncertificate = \"" << folder << "/server.pem\"\nkey = \"" << folder << "/server.key\"\n";
      side->ca = folder + "/server.pem";
    }
    config.close();
    HPVMD_ASSIGN_OR_RETURN(Process process, Process::Start({program, "--config", folder + "/hpvmd.toml"}));
    side->process = std::make_unique<Process>(std::move(process));
    HPVMD_RETURN_IF_ERROR(side->Prepare());
    return side;
  }

  Status Prepare() {
    HPVMD_ASSIGN_OR_RETURN(client, Client::Connect({.endpoint = endpoint,
                                                    .connect_timeout = std::chrono::seconds(20),
                                                    .credentials = {.ca_file = ca}}));
    HPVMD_ASSIGN_OR_RETURN(const std::vector<uint8_t> kernels, ReadBenchKernels());
    HPVMD_ASSIGN_OR_RETURN(Prepared prepared,
                           client->Prepare(GraphDocument("copy"), {.bytes = {{"bench", kernels}}, .hashes = {}}));
    handle = prepared.handle;
    const uint64_t shape[] = {kTransferBytes};
    HPVMD_ASSIGN_OR_RETURN(in, client->CreateBuffer(ElementType::kU8, shape));
    HPVMD_ASSIGN_OR_RETURN(out, client->CreateBuffer(ElementType::kU8, shape));
    return absl::OkStatus();
  }
};

// One round of a case; returns its microseconds.
using Round = std::function<StatusOr<double>(Side&)>;

// Returns the median call of one client, or the time per call of many.
StatusOr<Round> CallsOf(Side& side, uint32_t clients, uint32_t calls) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<CallLoad> made,
                         MakeRunLoad(side.endpoint, side.handle, clients, side.ca.empty() ? "" : ReadWhole(side.ca)));
  return [load = std::shared_ptr<CallLoad>(std::move(made)), clients, calls](Side&) -> StatusOr<double> {
    HPVMD_ASSIGN_OR_RETURN(CallLoad::Outcome outcome, load->Run(calls));
    std::vector<double> us(outcome.call_ns.begin(), outcome.call_ns.end());
    return clients == 1 ? Median(us) / 1e3
                        : static_cast<double>(outcome.elapsed.count()) / 1e3 / static_cast<double>(us.size());
  };
}

StatusOr<double> Transfer(Side& side, const std::vector<uint8_t>& sent) {
  std::vector<uint8_t> back(sent.size());
  v1::RunRequest request;
  request.set_handle(side.handle);
  request.add_inputs()->set_name("x");
  request.mutable_inputs(0)->mutable_buffer()->set_buffer_id(side.in.id());
  request.add_outputs()->set_name("y");
  request.mutable_outputs(0)->set_buffer_id(side.out.id());
  const Time start = RealClock().Now();
  HPVMD_RETURN_IF_ERROR(side.client->WriteBuffer(side.in.id(), sent));
  HPVMD_RETURN_IF_ERROR(side.client->Run(request).status());
  HPVMD_RETURN_IF_ERROR(side.client->ReadBuffer(side.out.id(), back));
  const Duration took = RealClock().Now() - start;
  return back == sent ? StatusOr<double>(static_cast<double>(took.count()) / 1e3)
                      : Internal("The bytes that came back are not those that were sent.");
}

StatusOr<Round> TransfersOf() {
  auto sent = std::make_shared<std::vector<uint8_t>>(kTransferBytes);
  SeededRng rng(64);
  for (uint8_t& byte : *sent) {
    byte = static_cast<uint8_t>(rng.Next());
  }
  return [sent](Side& side) { return Transfer(side, *sent); };
}

struct Kind {
  std::string name;
  uint32_t clients, calls;  // 0 clients mean a transfer.
};

StatusOr<ServiceResult> Measure(const ConnectionOptions& options, bool tls, const Kind& kind) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Side> front, Side::Start(ProgramFolder() + "/hpvmd", tls));
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Side> direct, Side::Start(options.direct, tls));
  const uint32_t calls = options.service.quick ? kind.clients : kind.calls;
  const auto round_of = [&](Side& side) {
    return kind.clients == 0 ? TransfersOf() : CallsOf(side, kind.clients, calls);
  };
  HPVMD_ASSIGN_OR_RETURN(const Round front_round, round_of(*front));
  HPVMD_ASSIGN_OR_RETURN(const Round direct_round, round_of(*direct));
  std::vector<double> front_us, direct_us, ratios;
  const int pairs = options.service.quick ? 1 : options.pairs;
  for (int pair = -1; pair < pairs; ++pair) {  // The first pair is a warm-up.
    double us[2];
    for (const int turn : {0, 1}) {
      const bool is_front = (pair + turn) % 2 == 0;
      HPVMD_ASSIGN_OR_RETURN(us[is_front ? 0 : 1], is_front ? front_round(*front) : direct_round(*direct));
    }
    if (pair >= 0) {
      front_us.push_back(us[0]);
      direct_us.push_back(us[1]);
      ratios.push_back(us[0] / us[1]);
    }
  }
  ServiceResult result;
  result.Add("front_us", Median(front_us));
  result.Add("direct_us", Median(direct_us));
  result.Add("ratio", Median(ratios));
  std::sort(ratios.begin(), ratios.end());
  result.Add("ratio_quartile_low", ratios[ratios.size() / 4]);
  result.Add("ratio_quartile_high", ratios[ratios.size() * 3 / 4]);
  result.reach.push_back({"ratio", /*at_least=*/false, 1.05});
  result.verified = true;  // Every answer was compared.
  return result;
}

}  // namespace

int RunConnections(const ConnectionOptions& options, const std::string& command) {
  std::vector<ServiceCase> cases;
  for (const bool tls : {false, true}) {
    for (const Kind& kind : {Kind{"run/1", 1, 1'000}, Kind{"run/64", 64, 10'000}, Kind{"transfer/64MiB", 0, 0}}) {
      cases.push_back({std::string(tls ? "tls/" : "unix/") + kind.name,
                       [&options, tls, kind](const ServiceOptions&) { return Measure(options, tls, kind); }});
    }
  }
  return RunSuite("connections", cases, options.service, command);
}

}  // namespace hpvm::bench
