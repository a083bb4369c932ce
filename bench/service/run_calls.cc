// SPDX-License-Identifier: Apache-2.0
#include "bench/service/run_calls.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "client/status/status.h"
#include "grpcpp/grpcpp.h"

#include "bench/service/peer.grpc.pb.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm::bench {
namespace {

std::string Payload(uint32_t client) {
  std::string data(kCallBytes, '\0');
  for (uint32_t i = 0; i < kCallBytes; ++i) {
    data[i] = static_cast<char>(i * 31 + client * 7);
  }
  return data;
}

std::shared_ptr<grpc::Channel> Connect(const std::string& endpoint, uint32_t client, const std::string& ca_pem) {
  grpc::ChannelArguments arguments;
  // Forces a separate connection: equal arguments would share one.
  arguments.SetInt("hpvm.bench.client", static_cast<int>(client));
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = ca_pem;
  return grpc::CreateCustomChannel(
      endpoint, ca_pem.empty() ? grpc::InsecureChannelCredentials() : grpc::SslCredentials(tls), arguments);
}

// One kind of call: its stub, messages, and the check of a response.
struct RunKind {
  using Stub = v1::Hpvm::Stub;
  using Request = v1::RunRequest;
  using Response = v1::RunResponse;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) {
    return v1::Hpvm::NewStub(channel);
  }
  static Request MakeRequest(const std::string& handle, const std::string& data) {
    Request request;
    request.set_handle(handle);
    v1::InputBinding* input = request.add_inputs();
    input->set_name("x");
    input->mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
    input->mutable_tensor()->add_shape(data.size());
    input->mutable_tensor()->set_data(data);
    return request;
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->Run(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string& data) {
    return response.outputs_size() == 1 && response.outputs(0).tensor().data() == data;
  }
};

struct EchoKind {
  using Stub = Peer::Stub;
  using Request = Bytes;
  using Response = Bytes;
  static std::unique_ptr<Stub> NewStub(const std::shared_ptr<grpc::Channel>& channel) { return Peer::NewStub(channel); }
  static Request MakeRequest(const std::string&, const std::string& data) {
    Request request;
    request.set_data(data);
    return request;
  }
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->Echo(context, request, response, std::move(done));
  }
  static bool IsRight(const Response& response, const std::string& data) { return response.data() == data; }
};

struct CallbackEchoKind : EchoKind {
  static void Call(Stub& stub, grpc::ClientContext* context, const Request* request, Response* response,
                   std::function<void(grpc::Status)> done) {
    stub.async()->CallbackEcho(context, request, response, std::move(done));
  }
};

template <typename Kind>
class Load final : public CallLoad {
 public:
  static StatusOr<std::unique_ptr<CallLoad>> Make(const std::string& endpoint, const std::string& handle,
                                                  uint32_t count, const std::string& ca_pem) {
    auto load = std::make_unique<Load>();
    for (uint32_t i = 0; i < count; ++i) {
      auto client = std::make_unique<Client>();
      std::shared_ptr<grpc::Channel> channel = Connect(endpoint, i, ca_pem);
      if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
        return Unavailable("No server answers at \"" + endpoint + "\".");
      }
      client->stub = Kind::NewStub(channel);
      client->data = Payload(i);
      client->request = Kind::MakeRequest(handle, client->data);
      load->clients_.push_back(std::move(client));
    }
    return std::unique_ptr<CallLoad>(std::move(load));
  }

  StatusOr<Outcome> Run(uint32_t calls) override {
    left_ = static_cast<int64_t>(calls);
    busy_ = clients_.size();
    failure_ = absl::OkStatus();
    for (auto& client : clients_) {
      client->call_ns.clear();
    }
    const Time start = RealClock().Now();
    for (auto& client : clients_) {
      Next(*client);
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return busy_ == 0; });
    HPVMD_RETURN_IF_ERROR(failure_);
    Outcome outcome{RealClock().Now() - start, {}};
    for (auto& client : clients_) {
      outcome.call_ns.insert(outcome.call_ns.end(), client->call_ns.begin(), client->call_ns.end());
    }
    return outcome;
  }

 private:
  struct Client {
    std::unique_ptr<typename Kind::Stub> stub;
    std::string data;
    typename Kind::Request request;
    typename Kind::Response response;
    std::unique_ptr<grpc::ClientContext> context;
    Time sent{0};
    std::vector<int64_t> call_ns;
  };

  void Next(Client& client) {
    if (left_.fetch_sub(1) <= 0) {
      End(absl::OkStatus());
      return;
    }
    client.context = std::make_unique<grpc::ClientContext>();
    client.response.Clear();
    client.sent = RealClock().Now();
    Kind::Call(*client.stub, client.context.get(), &client.request, &client.response,
               [this, &client](grpc::Status status) {
                 client.call_ns.push_back((RealClock().Now() - client.sent).count());
                 if (!status.ok()) {
                   End(FromGrpc(status));
                 } else if (!Kind::IsRight(client.response, client.data)) {
                   End(Internal("An answer does not hold the bytes that were sent."));
                 } else {
                   Next(client);
                 }
               });
  }

  void End(const Status& status) {
    std::lock_guard lock(mutex_);
    if (!status.ok()) {
      failure_ = status;
      left_ = 0;
    }
    if (--busy_ == 0) {
      idle_.notify_all();
    }
  }

  std::vector<std::unique_ptr<Client>> clients_;
  std::atomic<int64_t> left_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t busy_ = 0;  // Guarded by mutex_.
  Status failure_;   // Guarded by mutex_.
};

}  // namespace

StatusOr<std::unique_ptr<CallLoad>> MakeRunLoad(const std::string& endpoint, const std::string& handle,
                                                uint32_t clients, const std::string& ca_pem) {
  return Load<RunKind>::Make(endpoint, handle, clients, ca_pem);
}

StatusOr<std::unique_ptr<CallLoad>> MakeEchoLoad(const std::string& endpoint, uint32_t clients) {
  return Load<EchoKind>::Make(endpoint, "", clients, "");
}

StatusOr<std::unique_ptr<CallLoad>> MakeCallbackEchoLoad(const std::string& endpoint, uint32_t clients) {
  return Load<CallbackEchoKind>::Make(endpoint, "", clients, "");
}

}  // namespace hpvm::bench
