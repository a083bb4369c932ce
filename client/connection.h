// SPDX-License-Identifier: Apache-2.0
// The library's own view of one server: its channel, and how each call is made and sent again. Only the .cc files of
// this folder include it, because it includes gRPC.
#ifndef HPVMD_CLIENT_CONNECTION_H_
#define HPVMD_CLIENT_CONNECTION_H_

#include <algorithm>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "client/bearer.h"
#include "client/local_memory.h"
#include "client/local_ring.h"
#include "client/prepared_graphs.h"
#include "client/status/retry.h"
#include "client/status/status.h"
#include "grpcpp/grpcpp.h"

#include "base/hash.h"
#include "base/limits.h"
#include "base/status.h"
#include "hpvm/client.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {

struct [[gnu::visibility("hidden")]] Client::Connection {
  ClientOptions options;
  std::unique_ptr<Bearer> bearer;
  std::unique_ptr<v1::Hpvm::Stub> stub;
  std::shared_ptr<grpc::Channel> channel;  // Shared because gRPC's interface says so.
  std::string memory_path;                 // Where the server takes descriptors; empty: nowhere.
  LocalPool local;
  PreparedGraphs graphs;
  std::unique_ptr<LocalRing> ring;  // Goes before what it borrows.

  // Adds who calls to a context; `secret` is what it carries then.
  Status Sign(grpc::ClientContext & context, Duration within, std::string * secret) const;
  // Calls `once` with a context of its own that carries the deadline and who calls; once more when the server does not
  // know the caller and there are other credentials now. Every call goes through this.
  Status Attempt(const CallOptions& call, const std::function<Status(grpc::ClientContext&)>& once) const;

  // Calls `once` until it succeeds, fails for good, or the client's patience is at its end. Every other call that a
  // method makes goes through this, or is documented as sent once.
  Status KeepTrying(const CallOptions& call, const std::function<Status(const CallOptions&)>& once) const;

  // One unary call with the options that every request carries.
  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> OnceOn(Stub & on, grpc::Status(Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                            Request request, const CallOptions& call) const {
    *request.mutable_options() = call.request;
    constexpr bool may_fail_in_body = requires(const Response& r) { FromProto(r.error()); };
    request.mutable_options()->set_errors_in_body(may_fail_in_body);
    Response response;
    HPVMD_RETURN_IF_ERROR(Attempt(call, [&](grpc::ClientContext& context) {
      response.Clear();
      return FromGrpc((on.*method)(&context, request, &response));
    }));
    if constexpr (requires { response.log(); }) {
      return response;  // A run's failure stands beside its log.
    } else if constexpr (may_fail_in_body) {
      HPVMD_RETURN_IF_ERROR(FromProto(response.error()));
    }
    return response;
  }
  template <typename Request, typename Response>
  StatusOr<Response> Once(grpc::Status(v1::Hpvm::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                          const Request& request, const CallOptions& call) const {
    return OnceOn(*stub, method, request, call);
  }

  // The same for calls that may be carried out twice.
  template <typename Stub, typename Request, typename Response>
  StatusOr<Response> CallOn(Stub & on, grpc::Status(Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                            const Request& request, const CallOptions& call) const {
    StatusOr<Response> response = Internal("No call was made.");
    HPVMD_RETURN_IF_ERROR(KeepTrying(call, [&](const CallOptions& now) {
      response = OnceOn(on, method, request, now);
      return response.status();
    }));
    return response;
  }
  template <typename Request, typename Response>
  StatusOr<Response> Call(grpc::Status(v1::Hpvm::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                          const Request& request, const CallOptions& call) const {
    return CallOn(*stub, method, request, call);
  }

  // All that a list call answers, page by page.
  template <typename Item, typename Stub, typename Request, typename Response>
  StatusOr<std::vector<Item>> List(Stub & on,
                                   grpc::Status(Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                                   google::protobuf::RepeatedPtrField<Item> * (Response::*items)(),
                                   const CallOptions& call, Request request = Request()) const {
    constexpr uint32_t kPageMax = 1'000;
    std::vector<Item> all;
    request.set_page_size(kPageMax);
    do {
      HPVMD_ASSIGN_OR_RETURN(Response page, CallOn(on, method, request, call));
      auto* found = (page.*items)();
      all.insert(all.end(), std::make_move_iterator(found->begin()), std::make_move_iterator(found->end()));
      request.set_page_token(page.next_page_token());
    } while (!request.page_token().empty());
    return all;
  }

  // Uploads in chunks; `first` is the first message, complete but for its data.
  template <typename Request, typename Response>
  StatusOr<Response> Upload(
      std::unique_ptr<grpc::ClientWriter<Request>>(v1::Hpvm::Stub::*method)(grpc::ClientContext*, Response*),
      const Request& first, std::span<const uint8_t> bytes, const CallOptions& call) const {
    Response response;
    HPVMD_RETURN_IF_ERROR(Attempt(call, [&](grpc::ClientContext& context) {
      std::unique_ptr<grpc::ClientWriter<Request>> writer = (stub.get()->*method)(&context, &response);
      Request request = first;
      std::span<const uint8_t> rest = bytes;
      do {
        size_t size = std::min<size_t>(rest.size(), limits::kChunkBytes);
        request.set_data(rest.data(), size);
        rest = rest.subspan(size);
        if (!writer->Write(request)) {
          break;  // Finish says why.
        }
        request.clear_header();
      } while (!rest.empty());
      writer->WritesDone();
      return FromGrpc(writer->Finish());
    }));
    return response;
  }

  // Asks whether the server has these bytes with the header alone, then uploads. Both put calls answer alike, and may
  // be carried out twice: bytes are known by their hash.
  template <typename Request, typename Response>
  StatusOr<std::string> Put(
      std::unique_ptr<grpc::ClientWriter<Request>>(v1::Hpvm::Stub::*method)(grpc::ClientContext*, Response*),
      Request first, std::span<const uint8_t> bytes, const CallOptions& call) const {
    std::string hash = ToHex(HashOf(bytes));
    first.mutable_header()->set_sha256(hash);
    first.mutable_header()->set_size_bytes(bytes.size());
    *first.mutable_header()->mutable_options() = call.request;
    HPVMD_RETURN_IF_ERROR(KeepTrying(call, [&](const CallOptions& now) {
      if (bytes.size() > limits::kChunkBytes) {
        StatusOr<Response> known = Upload<Request, Response>(method, first, {}, now);
        if (known.status().code() != absl::StatusCode::kNotFound) {
          return known.status();
        }
      }
      return Upload<Request, Response>(method, first, bytes, now).status();
    }));
    return hash;
  }
};

// The limit of one message's inline tensors together, below the server's for a message.
inline constexpr uint64_t kInlineTotalBytesMax = 3 * limits::kMiB;

// The token that ends a call before its time; one of nothing when nothing does.
inline std::stop_token StopOf(const CallOptions& call) {
  return call.cancel.has_value() ? call.cancel->token() : std::stop_token();
}
Status CancelledByCaller();
// False: it was cut short.
bool SleepUnlessStopped(Duration length, const std::stop_token& stop);
// With a random idempotency key unless it has one.
CallOptions WithKey(CallOptions call);
// The request for a job, without its graph and inputs.
v1::SubmitRequest RequestOf(const SubmitOptions& options);
void BindIndices(const std::set<std::string>& names, v1::SubmitRequest* request);
// What is left of `call` when its timeout began at `start`. kDeadlineExceeded when nothing is.
StatusOr<CallOptions> Remaining(const CallOptions& call, Time start);
// The options of calls that prepare another one: the idempotency key is that one's alone.
CallOptions WithoutKey(CallOptions call);
// Sleeps before the next try of a call that began at `start`, or until it is cancelled, which the next try says; false
// when `failure` stands.
bool SleepBeforeRetry(const ClientOptions& options, const CallOptions& call, Time start, const Status& failure,
                      Retries* retries);
inline bool HasEnded(v1::JobState state) { return state >= v1::JOB_STATE_SUCCEEDED && state <= v1::JOB_STATE_DEAD; }
// A tensor of this type and shape, and how many bytes its data has; kInternal for what a server must not send.
StatusOr<Tensor> TensorWithoutData(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape,
                                   uint64_t* bytes);
// Makes room for so many bytes, in huge pages where there are many: each page costs a fault when it is first written.
void Reserve(uint64_t bytes, std::vector<uint8_t>* data);
// The same with room for its data.
StatusOr<Tensor> EmptyTensor(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape);
v1::ElementType ToProto(ElementType type);
void BindBuffers(const std::map<std::string, BufferView>& buffers,
                 google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings);
BufferView ViewOf(const v1::BufferView& view);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_CONNECTION_H_
