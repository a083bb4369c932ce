// SPDX-License-Identifier: Apache-2.0
// Connection is the library's internal view of one server: its channel, and how each call is made and retried. Only
// the .cc files of this folder include this header, because it includes gRPC.
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
  std::shared_ptr<grpc::Channel> channel;  // Shared because gRPC's interface requires it.
  std::string memory_path;                 // Socket where the server accepts descriptors; empty for none.
  LocalPool local;
  PreparedGraphs graphs;
  std::unique_ptr<LocalRing> ring;  // Destroyed before the members that it borrows.

  // Adds the credentials to a context and returns them in `secret`.
  Status Sign(grpc::ClientContext & context, Duration within, std::string * secret) const;
  // Calls `once` with a fresh context that carries the deadline and the credentials; once more when the server does
  // not know the caller and there are other credentials now. Every call goes through this function.
  Status Attempt(const CallOptions& call, const std::function<Status(grpc::ClientContext&)>& once) const;

  // Calls `once` until it succeeds, fails permanently, or the client's patience is exhausted. Every other call of a
  // method goes through this function, or is documented as sent once.
  Status KeepTrying(const CallOptions& call, const std::function<Status(const CallOptions&)>& once) const;

  // Makes one unary call with the options that every request carries.
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
      return response;  // A run's failure accompanies its log.
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

  // Like OnceOn, for calls that may be carried out twice: retries them.
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

  // Returns all items of a list call, fetching page after page.
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

  // Uploads in chunks; `first` is the first message, complete except for its data.
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
          break;  // Finish returns the reason.
        }
        request.clear_header();
      } while (!rest.empty());
      writer->WritesDone();
      return FromGrpc(writer->Finish());
    }));
    return response;
  }

  // Asks with the header alone whether the server has these bytes, then uploads them if not. Both put calls have the
  // same response and may be carried out twice, because the hash identifies the bytes.
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

// Limit of one message's inline tensors together; below the server's limit for a message.
inline constexpr uint64_t kInlineTotalBytesMax = 3 * limits::kMiB;

// Returns the token that cancels a call; a token without state when nothing does.
inline std::stop_token StopOf(const CallOptions& call) {
  return call.cancel.has_value() ? call.cancel->token() : std::stop_token();
}
Status CancelledByCaller();
// Returns false when the sleep was cut short.
bool SleepUnlessStopped(Duration length, const std::stop_token& stop);
// Adds a random idempotency key unless the call has one.
CallOptions WithKey(CallOptions call);
// Makes the request for a job, without its graph and inputs.
v1::SubmitRequest RequestOf(const SubmitOptions& options);
void BindIndices(const std::set<std::string>& names, v1::SubmitRequest* request);
// Returns `call` with the rest of its timeout, which began at `start`. kDeadlineExceeded when none is left.
StatusOr<CallOptions> Remaining(const CallOptions& call, Time start);
// Returns the options for calls that prepare another one: the idempotency key belongs to the latter only.
CallOptions WithoutKey(CallOptions call);
// Sleeps before the next try of a call that began at `start`, or until the call is cancelled, which the next try
// reports. Returns false when `failure` is final.
bool SleepBeforeRetry(const ClientOptions& options, const CallOptions& call, Time start, const Status& failure,
                      Retries* retries);
inline bool HasEnded(v1::JobState state) { return state >= v1::JOB_STATE_SUCCEEDED && state <= v1::JOB_STATE_DEAD; }
// Makes a tensor of this type and shape without data, and sets `bytes` to the size of its data; kInternal for values
// that a server must not send.
StatusOr<Tensor> TensorWithoutData(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape,
                                   uint64_t* bytes);
// Reserves `bytes`, in huge pages for large sizes, because the first write to each page costs a fault.
void Reserve(uint64_t bytes, std::vector<uint8_t>* data);
// Like TensorWithoutData, with room for the data.
StatusOr<Tensor> EmptyTensor(v1::ElementType type, const google::protobuf::RepeatedField<uint64_t>& shape);
v1::ElementType ToProto(ElementType type);
void BindBuffers(const std::map<std::string, BufferView>& buffers,
                 google::protobuf::RepeatedPtrField<v1::InputBinding>* bindings);
BufferView ViewOf(const v1::BufferView& view);

}  // namespace hpvm

#endif  // HPVMD_CLIENT_CONNECTION_H_
