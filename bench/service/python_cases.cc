// SPDX-License-Identifier: Apache-2.0
// The Python client compared with plain calls of grpcio (python_calls.py measures both) and with the C++ client.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

#include "bench/service/clients.h"
#include "bench/service/servers.h"
#include "bench/service/service_daemon.h"

namespace hpvm::bench {
namespace {

using Json = nlohmann::json;

// A daemon, and the script's output about it; shared by all cases.
struct PythonSide {
  std::unique_ptr<Servers> servers;
  Json calls;
};

StatusOr<PythonSide*> Start(std::optional<PythonSide>& side, bool quick) {
  if (side.has_value()) {
    return &*side;
  }
  PythonSide made;
  HPVMD_ASSIGN_OR_RETURN(made.servers, Servers::Start());
  const std::string folder = made.servers->folder.path();
  Json document = Json::parse(GraphDocument("copy"));
  document["modules"]["bench"]["source"] = {{"file", ProgramFolder() + "/bench_kernels.wasm"}};
  std::ofstream(folder + "/copy.json") << document.dump();
  std::vector<std::string> arguments = {ProgramFolder() + "/python_calls.py", ProgramFolder() + "/../python",
                                        made.servers->daemon, folder + "/copy.json"};
  if (quick) {
    arguments.emplace_back("--quick");
  }
  const RunOutput output = RunAndRead("/usr/bin/python3", arguments);
  made.calls = Json::parse(output.text, nullptr, false);
  if (output.code != 0 || !made.calls.is_object()) {
    return Unavailable("python_calls.py ended with " + std::to_string(output.code) +
                       "; it needs python3-grpcio, python3-numpy and a build's python folder.");
  }
  side = std::move(made);
  return &*side;
}

// Median milliseconds of runs of the C++ client with inputs and outputs of `bytes`.
StatusOr<double> LargeRuns(const Servers& servers, uint64_t bytes, bool local_memory, bool registered, int count) {
  HPVMD_ASSIGN_OR_RETURN(std::unique_ptr<Client> client,
                         Client::Connect({.endpoint = servers.daemon, .local_memory = local_memory}));
  std::map<std::string, Tensor> inputs;
  RunOptions options;
  std::vector<Buffer> buffers;
  if (registered) {
    for (int i = 0; i < 2; ++i) {
      HPVMD_ASSIGN_OR_RETURN(Buffer buffer, client->MakeLocalBuffer(ElementType::kU8, std::vector<uint64_t>{bytes}));
      std::fill(buffer.memory().begin(), buffer.memory().end(), uint8_t{1});
      buffers.push_back(std::move(buffer));
    }
    options.input_buffers["x"] = buffers[0].View();
    options.output_buffers["y"] = buffers[1].id();
  } else {
    inputs["x"] = Tensor{ElementType::kU8, {bytes}, std::vector<uint8_t>(bytes, 1)};
  }
  std::vector<double> ms;
  for (int i = 0; i < count + 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    HPVMD_RETURN_IF_ERROR(client->Run(servers.handle, inputs, options).status());
    if (i >= 3) {  // Memory for the outputs is found in earlier runs.
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
    }
  }
  return Median(ms);
}

StatusOr<ServiceResult> MeasureRatio(std::optional<PythonSide>& side, const std::string& name, double bound,
                                     const ServiceOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(PythonSide * python, Start(side, options.quick));
  ServiceResult result;
  for (const auto& [figure, value] : python->calls[name].items()) {
    result.Add(figure, value.get<double>());
  }
  result.reach = {{"ratio", false, bound}};
  result.verified = true;
  return result;
}

// `script` is the script's name of the case.
StatusOr<ServiceResult> MeasureLarge(std::optional<PythonSide>& side, const std::string& script, double bound,
                                     double copies_max, const ServiceOptions& options) {
  HPVMD_ASSIGN_OR_RETURN(PythonSide * python, Start(side, options.quick));
  const uint64_t bytes = (options.quick ? uint64_t{4} : uint64_t{64}) << 20;
  HPVMD_ASSIGN_OR_RETURN(const double cpp, LargeRuns(*python->servers, bytes, script != "large/grpc",
                                                     script == "large/registered", options.quick ? 2 : 15));
  const double ours = python->calls[script]["ms"].get<double>();
  ServiceResult result;
  result.Add("python_ms", ours);
  result.Add("cpp_ms", cpp);
  result.Add("ratio", cpp / ours);
  result.Add("copies", python->calls[script]["copies"].get<double>());
  result.reach = {{"ratio", true, bound}, {"copies", false, copies_max}};
  result.note = "ratio: of the C++ client's speed. copies: bytes that the package copied for each that travelled.";
  result.verified = true;
  return result;
}

}  // namespace

void AddPythonCases(std::vector<ServiceCase>& cases) {
  // One daemon for all, started by the first case that needs it.
  const auto side = std::make_shared<std::optional<PythonSide>>();
  const auto ratio = [&](const std::string& name, double bound) {
    cases.push_back({"python/" + name, [=](const ServiceOptions& o) { return MeasureRatio(*side, name, bound, o); }});
  };
  const auto large = [&](const std::string& name, double bound, double copies_max) {
    cases.push_back(
        {"python/" + name, [=](const ServiceOptions& o) { return MeasureLarge(*side, name, bound, copies_max, o); }});
  };
  ratio("run", 1.3);
  large("large/shared", 0.7, 1);
  large("large/grpc", 0.7, 1);  // gRPC makes one more copy.
  large("large/registered", 0.95, 0);
  ratio("import", 1.3);
}

}  // namespace hpvm::bench
