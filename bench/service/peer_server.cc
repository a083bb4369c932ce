// SPDX-License-Identifier: Apache-2.0
#include "bench/service/peer_server.h"

#include <signal.h>

#include "grpcpp/grpcpp.h"

#include "bench/service/peer.grpc.pb.h"

namespace hpvm::bench {
namespace {

class PeerService final : public Peer::WithCallbackMethod_CallbackEcho<Peer::Service> {
  grpc::ServerUnaryReactor* CallbackEcho(grpc::CallbackServerContext* context, const Bytes* request,
                                         Bytes* response) override {
    response->set_data(request->data());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::Status Echo(grpc::ServerContext*, const Bytes* request, Bytes* response) override {
    response->set_data(request->data());
    return grpc::Status::OK;
  }

  grpc::Status Exchange(grpc::ServerContext*, grpc::ServerReaderWriter<Bytes, Bytes>* stream) override {
    std::string kept;
    kept.reserve(size_t{64} << 20);  // The benchmark's size, so that reallocation is not measured.
    Bytes part;
    size_t chunk = 1;
    while (stream->Read(&part)) {
      chunk = std::max(chunk, part.data().size());
      kept += part.data();
    }
    for (size_t at = 0; at < kept.size(); at += chunk) {
      part.set_data(kept.data() + at, std::min(chunk, kept.size() - at));
      if (!stream->Write(part)) {
        return grpc::Status::CANCELLED;
      }
    }
    return grpc::Status::OK;
  }
};

}  // namespace

int ServePeer(const std::string& endpoint) {
  // Blocked before the server's threads exist, so that only sigwait below receives it.
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  PeerService service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  builder.SetMaxReceiveMessageSize(8 << 20);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return 1;
  }
  int signal_number = 0;
  sigwait(&stop, &signal_number);
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  return 0;
}

}  // namespace hpvm::bench
