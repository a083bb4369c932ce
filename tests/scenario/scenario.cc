// SPDX-License-Identifier: Apache-2.0
// Carries out a scenario (README.md) with the C++ client.
//
//   hpvm-scenario SERVER SCENARIO.json GRAPHS
//
// GRAPHS is a folder with the documents that steps name. At the step `restart` it prints "restart" and waits for a
// line. Exit code 1: a step did something else than the scenario says; standard error says what.
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

#include "hpvm/admin.h"
#include "hpvm/client.h"
#include "hpvm/diagnostics.h"

namespace hpvm::scenario {
namespace {

using Json = nlohmann::json;

Status Wrong(const std::string& what) { return absl::InternalError(absl::StrCat("Wrong: ", what)); }

Status Expect(bool is_so, const std::string& what) { return is_so ? absl::OkStatus() : Wrong(what); }

template <typename T>
void Put(const Json& data, std::vector<uint8_t>* bytes) {
  for (const Json& element : data) {
    const T value = element.get<T>();
    const size_t at = bytes->size();
    bytes->resize(at + sizeof(T));
    std::memcpy(bytes->data() + at, &value, sizeof(T));
  }
}

Tensor TensorOf(const Json& value) {
  Tensor tensor{
      *ElementTypeFromName(value["type"].get<std::string>()), value["shape"].get<std::vector<uint64_t>>(), {}};
  switch (tensor.type) {
    case ElementType::kF32:
      Put<float>(value["data"], &tensor.data);
      break;
    case ElementType::kF64:
      Put<double>(value["data"], &tensor.data);
      break;
    default:
      Put<int32_t>(value["data"], &tensor.data);
      break;
  }
  return tensor;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Status Same(const std::map<std::string, Tensor>& outputs, const Json& wanted) {
  for (const auto& [name, value] : wanted.items()) {
    const Tensor expected = TensorOf(value);
    const auto found = outputs.find(name);
    if (found == outputs.end() || found->second.type != expected.type || found->second.shape != expected.shape ||
        found->second.data != expected.data) {
      return Wrong("output \"" + name + "\" is another");
    }
  }
  return absl::OkStatus();
}

std::set<std::string> Ids(const std::vector<v1::Device>& devices) {
  std::set<std::string> ids;
  for (const v1::Device& device : devices) {
    ids.insert(device.id());
  }
  return ids;
}

// One thread. Members are named as the scenario's steps.
class Player {
 public:
  Player(Client& client, std::string graphs) : client_(client), admin_(client), graphs_(std::move(graphs)) {}

  Status Play(const Json& step) {
    const auto found = steps_.find(step["do"].get<std::string>());
    if (found == steps_.end()) {
      return Wrong("there is no such step");
    }
    const Status done = (this->*found->second)(step);
    if (!step.contains("error")) {
      return done;
    }
    return CheckFailure(done, step["error"]);
  }

 private:
  static Status CheckFailure(const Status& done, const Json& wanted) {
    const std::vector<std::string> codes = absl::StrSplit(wanted["code"].get<std::string>(), '|');
    const std::string code = absl::StatusCodeToString(done.code());
    if (std::find(codes.begin(), codes.end(), code) == codes.end()) {
      return Wrong("it ended with " + done.ToString());
    }
    if (!absl::StrContains(done.message(), wanted.value("message", ""))) {
      return Wrong("the message is \"" + std::string(done.message()) + "\"");
    }
    std::set<std::string> places;
    for (const v1::Diagnostic& diagnostic : DiagnosticsOf(done)) {
      places.insert(diagnostic.place());
    }
    for (const std::string& place : wanted.value("places", std::vector<std::string>())) {
      if (!places.contains(place)) {
        return Wrong("no diagnostic is about " + place);
      }
    }
    return absl::OkStatus();
  }

  void Bind(const Json& inputs, std::map<std::string, Tensor>* tensors, std::map<std::string, BufferView>* buffers) {
    for (const auto& [name, value] : inputs.items()) {
      if (value.contains("buffer")) {
        (*buffers)[name] = views_.at(value["buffer"]);
      } else {
        (*tensors)[name] = TensorOf(value);
      }
    }
  }

  Status Server(const Json& step) {
    const StatusOr<v1::ServerInfoResponse> info = client_.ServerInfo();
    if (!info.ok()) {
      return info.status();
    }
    for (const std::string feature : step["features"]) {
      if (std::find(info->features().begin(), info->features().end(), feature) == info->features().end()) {
        return Wrong("there is no feature " + feature);
      }
    }
    return absl::OkStatus();
  }

  Status Devices(const Json& step) {
    const auto devices = client_.ListDevices();
    return devices.ok() ? Expect(Ids(*devices) == step["ids"].get<std::set<std::string>>(), "the devices are others")
                        : devices.status();
  }

  Status Prepare(const Json& step) {
    Json document = Json::parse(ReadFile(graphs_ + "/" + step["graph"].get<std::string>() + ".json"));
    for (const auto& [pointer, value] : step.value("patch", Json::object()).items()) {
      document[Json::json_pointer(pointer)] = value;
    }
    const auto prepared = client_.Prepare(document.dump(), {});
    if (prepared.ok()) {
      handles_[step["as"]] = prepared->handle;
    }
    return prepared.status();
  }

  Status Run(const Json& step) {
    RunOptions options;
    std::map<std::string, Tensor> inputs;
    Bind(step["inputs"], &inputs, &options.input_buffers);
    options.repetition.repeat = step.value("repeat", 1u);
    options.repetition.rotations = step.value("rotations", std::map<std::string, std::string>());
    for (const auto& [output, buffer] : step.value("into", Json::object()).items()) {
      options.output_buffers[output] = views_.at(buffer).buffer_id;
    }
    const auto outcome = client_.Run(handles_.at(step["graph"]), inputs, options);
    if (!outcome.ok()) {
      return outcome.status();
    }
    if (outcome->prepared_again != step.value("prepared_again", outcome->prepared_again)) {
      return Wrong("whether the graph was prepared again");
    }
    return Same(outcome->outputs, step.value("outputs", Json::object()));
  }

  Status RunMany(const Json& step) {
    std::vector<RunItem> items(step["items"].size());
    for (size_t i = 0; i < items.size(); ++i) {
      Bind(step["items"][i], &items[i].inputs, &items[i].input_buffers);
    }
    std::vector<std::string> codes(items.size());
    const Status done = client_.RunMany(handles_.at(step["graph"]), items, [&](size_t i, StatusOr<RunOutcome> outcome) {
      codes[i] = absl::StatusCodeToString(outcome.status().code());
      return true;
    });
    return done.ok() ? Expect(codes == step["codes"].get<std::vector<std::string>>(), "the codes are others") : done;
  }

  Status Keep(const Json& step, StatusOr<hpvm::Buffer> buffer) {
    if (buffer.ok()) {
      views_[step["as"]] = buffer->View();
      buffers_[step["as"]] = *std::move(buffer);
    }
    return buffer.status();
  }

  Status Buffer(const Json& step) {
    const Tensor value = TensorOf(step["value"]);
    const Status made = Keep(step, client_.MakeBuffer(value.type, value.shape));
    return made.ok() ? buffers_[step["as"]].Write(value.data) : made;
  }

  Status Empty(const Json& step) {
    return Keep(step, client_.MakeBuffer(*ElementTypeFromName(step["type"].get<std::string>()),
                                         step["shape"].get<std::vector<uint64_t>>()));
  }

  Status Shared(const Json& step) {
    const Tensor value = TensorOf(step["value"]);
    const Status made = Keep(step, client_.MakeLocalBuffer(value.type, value.shape));
    if (made.ok()) {
      std::copy(value.data.begin(), value.data.end(), buffers_[step["as"]].memory().begin());
    }
    return made;
  }

  Status Fill(const Json& step) {
    const Tensor value = TensorOf(step["value"]);
    std::copy(value.data.begin(), value.data.end(), buffers_.at(step["buffer"]).memory().begin());
    return absl::OkStatus();
  }

  Status Publish(const Json& step) {
    const auto generation = buffers_.at(step["buffer"]).Publish();
    return generation.ok() ? Expect(*generation > 1, "the generation did not grow") : generation.status();
  }

  Status Read(const Json& step) {
    const auto tensor = buffers_.at(step["buffer"]).ReadTensor();
    return tensor.ok() ? Same({{"it", *tensor}}, {{"it", step["value"]}}) : tensor.status();
  }

  Status Write(const Json& step) { return buffers_.at(step["buffer"]).Write(TensorOf(step["value"]).data); }

  Status Delete(const Json& step) { return buffers_.at(step["buffer"]).Delete(); }

  Status Submit(const Json& step) {
    SubmitOptions options;
    options.name = step.value("name", "");
    options.call.request.set_idempotency_key(step.value("key", ""));
    for (const auto& [key, value] : step.value("labels", std::map<std::string, std::string>())) {
      (*options.call.request.mutable_labels())[key] = value;
    }
    for (const std::string& name : step.value("after", std::vector<std::string>())) {
      v1::JobDependency dependency;
      dependency.set_job_id(jobs_.at(name));
      options.after.push_back(dependency);
    }
    std::map<std::string, Tensor> inputs;
    std::map<std::string, BufferView> buffers;
    Bind(step["inputs"], &inputs, &buffers);
    const std::string document = ReadFile(graphs_ + "/" + step["graph"].get<std::string>() + ".json");
    const auto response = client_.Submit(document, {}, inputs, options);
    if (!response.ok()) {
      return response.status();
    }
    jobs_[step["as"]] = response->job().id();
    return Expect(!step.contains("same_as") || response->job().id() == jobs_.at(step["same_as"]), "it is another job");
  }

  Status Wait(const Json& step) {
    WaitOptions options;
    options.call.timeout = std::chrono::seconds(60);
    const auto job = client_.WaitJob(jobs_.at(step["job"]), options);
    if (!job.ok()) {
      return job.status();
    }
    if (v1::JobState_Name(job->state()) != "JOB_STATE_" + step["state"].get<std::string>()) {
      return Wrong("the job ended as " + v1::JobState_Name(job->state()));
    }
    std::map<std::string, Tensor> outputs;
    for (const auto& [name, value] : step.value("outputs", Json::object()).items()) {
      auto tensor = client_.FetchOutput(job->id(), name);
      if (!tensor.ok()) {
        return tensor.status();
      }
      outputs[name] = *std::move(tensor);
    }
    return Same(outputs, step.value("outputs", Json::object()));
  }

  Status Cancel(const Json& step) { return client_.CancelJob(jobs_.at(step["job"])).status(); }

  Status Retry(const Json& step) {
    const auto response = client_.RetryJob(jobs_.at(step["job"]));
    if (response.ok()) {
      jobs_[step["as"]] = response->job().id();
    }
    return response.status();
  }

  Status Jobs(const Json& step) {
    v1::ListJobsRequest request;
    for (const auto& [key, value] : step["labels"].items()) {
      (*request.mutable_labels())[key] = value.get<std::string>();
    }
    const auto jobs = client_.ListAllJobs(request, 100);
    if (!jobs.ok()) {
      return jobs.status();
    }
    std::vector<std::string> names;
    for (const v1::Job& job : *jobs) {
      names.push_back(job.name());
    }
    return Expect(names == step["names"].get<std::vector<std::string>>(), "the jobs are others");
  }

  Status WatchJobs(const Json& step) {
    bool is_seen = false;
    WatchJobsOptions options;
    options.call.timeout = std::chrono::seconds(60);
    const Status watched = client_.WatchJobs(options, [&](const v1::JobChange& change) {
      is_seen |= change.job().id() == jobs_.at(step["job"]) &&
                 v1::JobState_Name(change.job().state()) == "JOB_STATE_" + step["state"].get<std::string>();
      return !is_seen;
    });
    return watched.ok() ? Expect(is_seen, "the change was not told") : watched;
  }

  Status WatchDevices(const Json& step) {
    std::set<std::string> ids;
    const Status watched = client_.WatchDevices([&](const v1::ListDevicesResponse& now, const auto&) {
      ids = Ids({now.devices().begin(), now.devices().end()});
      return false;
    });
    return watched.ok() ? Expect(ids == step["ids"].get<std::set<std::string>>(), "the devices are others") : watched;
  }

  Status Costs(const Json& step) {
    const auto costs = client_.ListCosts(handles_.at(step["graph"]));
    if (!costs.ok()) {
      return costs.status();
    }
    std::set<std::string> kernels;
    for (const v1::KernelCost& cost : costs->kernels()) {
      kernels.insert(cost.kernel());
    }
    return Expect(kernels == step["kernels"].get<std::set<std::string>>(), "the kernels are others");
  }

  Status CreateTenant(const Json& step) {
    v1::Tenant tenant;
    tenant.set_name(step["name"]);
    tenant.set_weight(step["weight"]);
    return admin_.CreateTenant(tenant).status();
  }

  Status Tenant(const Json& step) {
    const auto tenant = admin_.GetTenant(step["name"]);
    return tenant.ok() ? Expect(tenant->weight() == step["weight"].get<uint32_t>(), "the weight is another")
                       : tenant.status();
  }

  Status UpdateTenant(const Json& step) {
    v1::UpdateTenantRequest request;
    request.set_name(step["name"]);
    request.set_weight(step["weight"]);
    return admin_.UpdateTenant(request).status();
  }

  Status CreateToken(const Json& step) {
    v1::CreateTokenRequest request;
    request.set_tenant(step["tenant"]);
    const auto made = admin_.CreateToken(request);
    if (!made.ok()) {
      return made.status();
    }
    tokens_[step["as"]] = made->token().id();
    return Expect(made->secret().starts_with("hpvm_") && made->secret().size() == 69, "the secret has another form");
  }

  Status Tokens(const Json& step) {
    const auto tokens = admin_.ListTokens(step["tenant"]);
    return tokens.ok() ? Expect(tokens->size() == step["count"].get<size_t>(), "there are others") : tokens.status();
  }

  Status RevokeToken(const Json& step) { return admin_.RevokeToken(tokens_.at(step["token"])); }

  Status Usage(const Json& step) {
    const auto usage = admin_.GetUsage("");
    if (!usage.ok()) {
      return usage.status();
    }
    std::set<std::string> names;
    for (const v1::ResourceUsage& resource : usage->resources()) {
      names.insert(resource.resource());
    }
    for (const std::string resource : step["resources"]) {
      if (!names.contains(resource)) {
        return Wrong("there is no resource " + resource);
      }
    }
    return absl::OkStatus();
  }

  Status Audit(const Json& step) {
    bool is_seen = false;
    const Status read = admin_.ReadAudit({}, [&](std::string_view record) {
      is_seen |= absl::StrContains(record, step["names"].get<std::string>());
      return true;
    });
    return read.ok() ? Expect(is_seen, "no record names it") : read;
  }

  Status Release(const Json& step) { return client_.Release(handles_.at(step["graph"])); }

  Status Restart(const Json&) {
    std::cout << "restart" << std::endl;
    std::string line;
    return Expect(static_cast<bool>(std::getline(std::cin, line)), "nobody restarted the server");
  }

  Client& client_;
  Admin admin_;
  const std::string graphs_;
  std::map<std::string, std::string> handles_, jobs_, tokens_;
  std::map<std::string, hpvm::Buffer> buffers_;
  std::map<std::string, BufferView> views_;  // Also of those that were deleted.
  const std::map<std::string, Status (Player::*)(const Json&)> steps_ = {
      {"server", &Player::Server},
      {"devices", &Player::Devices},
      {"prepare", &Player::Prepare},
      {"run", &Player::Run},
      {"run_many", &Player::RunMany},
      {"buffer", &Player::Buffer},
      {"empty", &Player::Empty},
      {"shared", &Player::Shared},
      {"fill", &Player::Fill},
      {"publish", &Player::Publish},
      {"read", &Player::Read},
      {"write", &Player::Write},
      {"delete", &Player::Delete},
      {"submit", &Player::Submit},
      {"wait", &Player::Wait},
      {"cancel", &Player::Cancel},
      {"retry", &Player::Retry},
      {"jobs", &Player::Jobs},
      {"watch_jobs", &Player::WatchJobs},
      {"watch_devices", &Player::WatchDevices},
      {"costs", &Player::Costs},
      {"create_tenant", &Player::CreateTenant},
      {"tenant", &Player::Tenant},
      {"update_tenant", &Player::UpdateTenant},
      {"create_token", &Player::CreateToken},
      {"tokens", &Player::Tokens},
      {"revoke_token", &Player::RevokeToken},
      {"usage", &Player::Usage},
      {"audit", &Player::Audit},
      {"release", &Player::Release},
      {"restart", &Player::Restart},
  };
};

int Main(const std::vector<std::string>& arguments) {
  if (arguments.size() != 4) {
    std::cerr << "usage: hpvm-scenario SERVER SCENARIO.json GRAPHS\n";
    return 2;
  }
  const auto client = Client::Connect({.endpoint = arguments[1]});
  if (!client.ok()) {
    std::cerr << client.status() << "\n";
    return 1;
  }
  Player player(**client, arguments[3]);
  for (const Json& step : Json::parse(ReadFile(arguments[2]))) {
    if (const Status done = player.Play(step); !done.ok()) {
      std::cerr << step.dump() << "\n  " << done << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace hpvm::scenario

int main(int argc, char** argv) { return hpvm::scenario::Main({argv, argv + argc}); }
