// SPDX-License-Identifier: Apache-2.0
// hpvm-scenario ENDPOINT SCENARIO GRAPHS: performs each step of a scenario (README.md) with the C++ client. GRAPHS is
// a folder of the documents that steps name, with their modules. After a step "restart" it prints a message and waits
// for a line before it continues. Exits with 1 and names the step that failed.
#include <algorithm>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <set>

#include "nlohmann/json.hpp"

#include "base/status.h"
#include "hpvm/admin.h"
#include "hpvm/client.h"

namespace hpvm {
namespace {

using Json = nlohmann::json;

template <typename T>
void Put(const Json& data, std::vector<uint8_t>* bytes) {
  for (const Json& element : data) {
    const T value = element.get<T>();
    const auto* const first = reinterpret_cast<const uint8_t*>(&value);
    bytes->insert(bytes->end(), first, first + sizeof(value));
  }
}

StatusOr<Tensor> TensorOf(const Json& value) {
  const std::optional<ElementType> type = ElementTypeFromName(value.at("type").get<std::string>());
  Tensor tensor{type.value_or(ElementType::kBool), value.at("shape").get<std::vector<uint64_t>>(), {}};
  const Json& data = value.at("data");
  switch (tensor.type) {
    case ElementType::kI32:
      Put<int32_t>(data, &tensor.data);
      break;
    case ElementType::kI64:
      Put<int64_t>(data, &tensor.data);
      break;
    case ElementType::kF32:
      Put<float>(data, &tensor.data);
      break;
    case ElementType::kF64:
      Put<double>(data, &tensor.data);
      break;
    default:
      return Unimplemented("The player has no values of type " + value.at("type").get<std::string>() + ".");
  }
  return tensor;
}

Status Check(bool is_so, const std::string& what) { return is_so ? absl::OkStatus() : Internal("Not so: " + what); }

Status CheckSame(const Tensor& tensor, const Json& wanted) {
  HPVMD_ASSIGN_OR_RETURN(const Tensor other, TensorOf(wanted));
  return Check(tensor.type == other.type && tensor.shape == other.shape && tensor.data == other.data,
               "the tensor is " + wanted.dump());
}

class Player {
 public:
  Player(Client& client, std::string graphs) : client_(client), admin_(client), graphs_(std::move(graphs)) {}

  // The failure that a step expects is part of it.
  Status Play(const Json& step) {
    const auto done = kSteps.find(step.at("do").get<std::string>());
    if (done == kSteps.end()) {
      return Unimplemented("The player has no such step.");
    }
    const Status status = (this->*done->second)(step);
    if (!step.contains("error")) {
      return status;
    }
    const Json& error = step.at("error");
    const std::string codes = "|" + error.at("code").get<std::string>() + "|";
    HPVMD_RETURN_IF_ERROR(Check(codes.find("|" + absl::StatusCodeToString(status.code()) + "|") != std::string::npos,
                                "it fails with " + codes + ", but: " + status.ToString()));
    HPVMD_RETURN_IF_ERROR(Check(Message(status).find(error.value("message", "")) != std::string::npos,
                                "the message says that: " + Message(status)));
    std::set<std::string> places;
    for (const v1::Diagnostic& fault : DiagnosticsOf(status)) {
      places.insert(fault.place());
    }
    for (const std::string place : error.value("places", Json::array())) {
      HPVMD_RETURN_IF_ERROR(Check(places.contains(place), "a diagnostic is about " + place));
    }
    return absl::OkStatus();
  }

 private:
  using Step = Status (Player::*)(const Json&);
  static const std::map<std::string, Step> kSteps;

  static std::string As(const Json& step) { return step.value("as", ""); }

  StatusOr<std::string> Document(const Json& step) {
    std::ifstream file(graphs_ + "/" + step.at("graph").get<std::string>() + ".json");
    Json document = Json::parse(file);
    const Json patch = step.value("patch", Json::object());
    for (const auto& [pointer, value] : patch.items()) {
      document[Json::json_pointer(pointer)] = value;
    }
    return document.dump();
  }

  // Puts tensors into `inputs`, buffers into `buffers`.
  Status Inputs(const Json& values, std::map<std::string, Tensor>* inputs, std::map<std::string, BufferView>* buffers) {
    for (const auto& [name, value] : values.items()) {
      if (value.contains("buffer")) {
        (*buffers)[name] = {.buffer_id = ids_.at(value.at("buffer"))};
      } else {
        HPVMD_ASSIGN_OR_RETURN((*inputs)[name], TensorOf(value));
      }
    }
    return absl::OkStatus();
  }

  Status Server(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const v1::ServerInfoResponse info, client_.ServerInfo());
    const std::set<std::string> features(info.features().begin(), info.features().end());
    for (const std::string feature : step.at("features")) {
      HPVMD_RETURN_IF_ERROR(Check(features.contains(feature), "the server has " + feature));
    }
    return absl::OkStatus();
  }
  template <typename Devices>
  static Status CheckIds(const Devices& devices, const Json& step) {
    Json ids = Json::array();
    for (const v1::Device& device : devices) {
      ids.push_back(device.id());
    }
    return Check(ids == step.at("ids"), "the devices are those: " + ids.dump());
  }
  Status Devices(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Device> devices, client_.ListDevices());
    return CheckIds(devices, step);
  }

  Status Prepare(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const std::string document, Document(step));
    HPVMD_ASSIGN_OR_RETURN(const Prepared prepared, client_.Prepare(document, {}));
    ids_[As(step)] = prepared.handle;
    return absl::OkStatus();
  }
  Status Run(const Json& step) {
    std::map<std::string, Tensor> inputs;
    RunOptions options;
    HPVMD_RETURN_IF_ERROR(Inputs(step.at("inputs"), &inputs, &options.input_buffers));
    options.repetition.repeat = step.value("repeat", 1u);
    options.repetition.rotations = step.value("rotations", std::map<std::string, std::string>());
    const Json new_buffers = step.value("new_buffers", Json::object());
    for (const auto& [output, label] : new_buffers.items()) {
      options.output_buffers[output] = "";
    }
    HPVMD_ASSIGN_OR_RETURN(const RunOutcome outcome, client_.Run(ids_.at(step.at("graph")), inputs, options));
    for (const auto& [output, label] : new_buffers.items()) {
      Keep(label, Buffer(client_, outcome.buffers.at(output)));
    }
    const Json outputs = step.value("outputs", Json::object());
    for (const auto& [name, wanted] : outputs.items()) {
      HPVMD_RETURN_IF_ERROR(CheckSame(outcome.outputs.at(name), wanted));
    }
    return Check(outcome.prepared_again == step.value("prepared_again", outcome.prepared_again),
                 "it was prepared again");
  }
  Status RunMany(const Json& step) {
    std::vector<RunItem> items;
    for (const Json& values : step.at("items")) {
      RunItem& item = items.emplace_back();
      HPVMD_RETURN_IF_ERROR(Inputs(values, &item.inputs, &item.input_buffers));
    }
    Json codes = Json::array();
    HPVMD_RETURN_IF_ERROR(
        client_.RunMany(ids_.at(step.at("graph")), items, [&](size_t index, const StatusOr<RunOutcome>& outcome) {
          codes[index] = absl::StatusCodeToString(outcome.status().code());
          return true;
        }));
    return Check(codes == step.at("codes"), "the runs end so: " + codes.dump());
  }
  Status Release(const Json& step) { return client_.Release(ids_.at(step.at("graph"))); }

  void Keep(const std::string& label, hpvm::Buffer buffer) {
    ids_[label] = buffer.id();
    buffers_[label] = std::move(buffer);
  }
  Status MakeBuffer(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(step.at("value")));
    HPVMD_ASSIGN_OR_RETURN(hpvm::Buffer buffer, client_.MakeBuffer(tensor.type, tensor.shape));
    HPVMD_RETURN_IF_ERROR(buffer.Write(tensor.data));
    Keep(As(step), std::move(buffer));
    return absl::OkStatus();
  }
  Status Shared(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(step.at("value")));
    HPVMD_ASSIGN_OR_RETURN(hpvm::Buffer buffer, client_.MakeLocalBuffer(tensor.type, tensor.shape));
    std::copy(tensor.data.begin(), tensor.data.end(), buffer.memory().begin());
    Keep(As(step), std::move(buffer));
    return absl::OkStatus();
  }
  Status Fill(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(step.at("value")));
    std::copy(tensor.data.begin(), tensor.data.end(), buffers_.at(step.at("buffer")).memory().begin());
    return absl::OkStatus();
  }
  Status Publish(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const uint64_t generation, buffers_.at(step.at("buffer")).Publish());
    return Check(generation > 1, "the generation grows");
  }
  Status Read(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, buffers_.at(step.at("buffer")).ReadTensor());
    return CheckSame(tensor, step.at("value"));
  }
  Status Write(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, TensorOf(step.at("value")));
    return buffers_.at(step.at("buffer")).Write(tensor.data);
  }
  Status Delete(const Json& step) { return buffers_.at(step.at("buffer")).Delete(); }

  Status Submit(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const std::string document, Document(step));
    std::map<std::string, Tensor> inputs;
    std::map<std::string, BufferView> none;
    HPVMD_RETURN_IF_ERROR(Inputs(step.at("inputs"), &inputs, &none));
    SubmitOptions options;
    options.name = step.value("name", "");
    options.call.request.set_idempotency_key(step.value("key", ""));
    const Json labels = step.value("labels", Json::object());
    for (const auto& [name, value] : labels.items()) {
      (*options.call.request.mutable_labels())[name] = value.get<std::string>();
    }
    for (const std::string job : step.value("after", Json::array())) {
      options.after.emplace_back().set_job_id(ids_.at(job));
    }
    HPVMD_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client_.Submit(document, {}, inputs, options));
    ids_[As(step)] = response.job().id();
    return Check(!step.contains("same_as") || ids_.at(step.at("same_as")) == response.job().id(), "it is the same job");
  }
  static Json NameOf(v1::JobState state) { return v1::JobState_Name(state).substr(sizeof("JOB_STATE_") - 1); }
  Status Wait(const Json& step) {
    const std::string& id = ids_.at(step.at("job"));
    WaitOptions options;
    options.call.timeout = std::chrono::seconds(60);
    HPVMD_ASSIGN_OR_RETURN(const v1::Job job, client_.WaitJob(id, options));
    HPVMD_RETURN_IF_ERROR(
        Check(NameOf(job.state()) == step.at("state"), "the job ends so, not as " + NameOf(job.state()).dump()));
    const Json outputs = step.value("outputs", Json::object());
    for (const auto& [name, wanted] : outputs.items()) {
      HPVMD_ASSIGN_OR_RETURN(const Tensor tensor, client_.FetchOutput(id, name));
      HPVMD_RETURN_IF_ERROR(CheckSame(tensor, wanted));
    }
    return absl::OkStatus();
  }
  Status Cancel(const Json& step) { return client_.CancelJob(ids_.at(step.at("job"))).status(); }
  Status Retry(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client_.RetryJob(ids_.at(step.at("job"))));
    ids_[As(step)] = response.job().id();
    return absl::OkStatus();
  }
  Status Jobs(const Json& step) {
    v1::ListJobsRequest request;
    for (const auto& [name, value] : step.at("labels").items()) {
      (*request.mutable_labels())[name] = value.get<std::string>();
    }
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs, client_.ListAllJobs(request, 100));
    Json names = Json::array();
    for (const v1::Job& job : jobs) {
      names.push_back(job.name());
    }
    return Check(names == step.at("names"), "the jobs are those: " + names.dump());
  }
  Status WatchJobs(const Json& step) {
    WatchJobsOptions options;
    options.call.timeout = std::chrono::seconds(60);
    return client_.WatchJobs(options, [&](const v1::JobChange& change) {
      return change.job().id() != ids_.at(step.at("job")) || NameOf(change.job().state()) != step.at("state");
    });
  }
  Status WatchDevices(const Json& step) {
    hpvm::Status same;
    CallOptions call;
    call.timeout = std::chrono::seconds(30);
    HPVMD_RETURN_IF_ERROR(client_.WatchDevices(
        [&](const v1::ListDevicesResponse& now, const std::vector<DeviceChange>&) {
          same = CheckIds(now.devices(), step);
          return false;
        },
        call));
    return same;
  }
  Status Costs(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const v1::ListCostsResponse costs, client_.ListCosts(ids_.at(step.at("graph"))));
    std::set<std::string> kernels;
    for (const v1::KernelCost& kernel : costs.kernels()) {
      kernels.insert(kernel.kernel());
    }
    return Check(Json(kernels) == step.at("kernels"), "the kernels are those: " + Json(kernels).dump());
  }

  Status CreateTenant(const Json& step) {
    v1::Tenant tenant;
    tenant.set_name(step.at("name"));
    tenant.set_weight(step.at("weight"));
    return admin_.CreateTenant(tenant).status();
  }
  Status Tenant(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const v1::Tenant tenant, admin_.GetTenant(step.at("name")));
    return Check(tenant.weight() == step.at("weight"), "the weight is that");
  }
  Status UpdateTenant(const Json& step) {
    v1::UpdateTenantRequest request;
    request.set_name(step.at("name"));
    request.set_weight(step.at("weight"));
    return admin_.UpdateTenant(request).status();
  }
  Status CreateToken(const Json& step) {
    v1::CreateTokenRequest request;
    request.set_tenant(step.at("tenant"));
    HPVMD_ASSIGN_OR_RETURN(const v1::CreateTokenResponse made, admin_.CreateToken(request));
    ids_[As(step)] = made.token().id();
    return Check(made.secret().starts_with("hpvm_") && made.secret().size() == 69, "the secret is one");
  }
  Status Tokens(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const std::vector<v1::Token> tokens, admin_.ListTokens(step.at("tenant")));
    return Check(tokens.size() == step.at("count"), "there are as many tokens");
  }
  Status RevokeToken(const Json& step) { return admin_.RevokeToken(ids_.at(step.at("token"))); }
  Status Usage(const Json& step) {
    HPVMD_ASSIGN_OR_RETURN(const v1::GetUsageResponse usage, admin_.GetUsage(""));
    std::set<std::string> names;
    for (const v1::ResourceUsage& resource : usage.resources()) {
      names.insert(resource.resource());
    }
    for (const std::string wanted : step.at("resources")) {
      HPVMD_RETURN_IF_ERROR(Check(names.contains(wanted), "the use of " + wanted + " is known"));
    }
    return absl::OkStatus();
  }
  Status Audit(const Json& step) {
    bool is_named = false;
    HPVMD_RETURN_IF_ERROR(admin_.ReadAudit({}, [&](std::string_view record) {
      is_named = is_named || record.find(step.at("names").get<std::string>()) != std::string_view::npos;
      return true;
    }));
    return Check(is_named, "the audit names it");
  }
  Status Restart(const Json&) {
    std::cout << "restart" << std::endl;
    std::string line;
    std::getline(std::cin, line);
    return client_.ServerInfo().status();  // Waits for the server.
  }

  Client& client_;
  Admin admin_;
  const std::string graphs_;
  std::map<std::string, std::string> ids_;  // Names of steps to ids: handles, jobs, buffers, tokens.
  std::map<std::string, Buffer> buffers_;
};

const std::map<std::string, Player::Step> Player::kSteps = {
    {"server", &Player::Server},
    {"devices", &Player::Devices},
    {"prepare", &Player::Prepare},
    {"run", &Player::Run},
    {"run_many", &Player::RunMany},
    {"release", &Player::Release},
    {"buffer", &Player::MakeBuffer},
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
    {"restart", &Player::Restart},
};

Status PlayAll(const std::string& endpoint, const std::string& scenario, const std::string& graphs) {
  HPVMD_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect({.endpoint = endpoint, .connect_timeout = std::chrono::seconds(30)}));
  std::ifstream file(scenario);
  Player player(*client, graphs);
  for (const Json& step : Json::parse(file)) {
    HPVMD_RETURN_IF_ERROR(While(player.Play(step), "doing " + step.dump()));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hpvm

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: hpvm-scenario ENDPOINT SCENARIO GRAPHS\n";
    return 2;
  }
  const hpvm::Status status = hpvm::PlayAll(argv[1], argv[2], argv[3]);
  if (!status.ok()) {
    std::cerr << "hpvm-scenario: " << hpvm::Message(status) << "\n";
  }
  return status.ok() ? 0 : 1;
}
