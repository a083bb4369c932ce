// SPDX-License-Identifier: Apache-2.0
// Client::RunMany.
#include <utility>
#include <vector>

#include "client/connection.h"

namespace hpvm {
namespace {

// Servers accept at least this many items in one call.
constexpr int kItemsMax = 1'024;

}  // namespace

Status Client::RunMany(const v1::RunManyRequest& request,
                       const std::function<bool(v1::RunManyResponse::Result&)>& on_result, const CallOptions& call) {
  v1::RunManyRequest sent = request;
  *sent.mutable_options() = call.request;
  bool stopped = false;
  const Status ended = connection_->Attempt(call, [&](grpc::ClientContext& context) {
    std::unique_ptr<grpc::ClientReader<v1::RunManyResponse>> reader = connection_->stub->RunMany(&context, sent);
    v1::RunManyResponse part;
    while (!stopped && reader->Read(&part)) {
      for (v1::RunManyResponse::Result& result : *part.mutable_results()) {
        stopped = stopped || !on_result(result);
      }
    }
    if (stopped) {
      context.TryCancel();
    }
    return FromGrpc(reader->Finish());
  });
  return stopped ? Cancelled("The caller has ended the call.") : ended;
}

// ManyRuns sends items in one call after the other.
class [[gnu::visibility("hidden")]] Client::ManyRuns {
 public:
  using OnResult = std::function<bool(size_t, StatusOr<RunOutcome>)>;
  ManyRuns(Client & client, const std::string& handle, const OnResult& on_result, const RunOptions& options)
      : client_(client), handle_(handle), on_result_(on_result), options_(options) {
    request_.set_handle(client.connection_->graphs.Current(handle));
    options.repetition.Put(&request_);
    request_.set_placements_max(options.placements_max);
  }

  // Sends the queued items first when this one would exceed the limits.
  void Add(size_t index, const RunItem& item) {
    v1::RunManyRequest::Item bound;
    bound.mutable_symbols()->insert(options_.symbols.begin(), options_.symbols.end());
    for (const auto& [name, value] : item.symbols) {
      (*bound.mutable_symbols())[name] = value;
    }
    BindBuffers(item.input_buffers, bound.mutable_inputs());
    std::vector<std::string> buffers;
    const Status status =
        failure_.ok() ? client_.BindInputs(item.inputs, options_.call, bound.mutable_inputs(), &buffers) : failure_;
    const uint64_t bytes = bound.ByteSizeLong();
    if (request_.items_size() == kItemsMax || bytes_ + bytes > kInlineTotalBytesMax) {
      Send();
    }
    buffers_.insert(buffers_.end(), buffers.begin(), buffers.end());
    if (!status.ok()) {
      Tell(index, status);
      return;
    }
    bytes_ += bytes;
    *request_.add_items() = std::move(bound);
    indices_.push_back(index);
  }

  Status Finish() {
    Send();
    return failure_;
  }

 private:
  void Send() {
    std::vector<bool> is_told(indices_.size(), false);
    if (failure_.ok() && !indices_.empty()) {
      const StatusOr<CallOptions> call = Remaining(options_.call, start_);
      failure_ = call.status();
      if (call.ok()) {
        failure_ = Call(*call, &is_told);
        if (absl::IsNotFound(failure_) && buffers_.empty() && PrepareAgain(*call)) {
          failure_ = Call(*call, &is_told);
        }
      }
    }
    for (size_t i = 0; i < indices_.size(); ++i) {
      if (!is_told[i]) {
        failure_ = failure_.ok() ? Internal("The server left out the result of an item.") : failure_;
        Tell(indices_[i], failure_);
      }
    }
    client_.DeleteAll(buffers_, options_.call);
    buffers_.clear();
    indices_.clear();
    request_.clear_items();
    bytes_ = 0;
  }

  Status Call(const CallOptions& call, std::vector<bool>* is_told) {
    return client_.RunMany(
        request_,
        [&](v1::RunManyResponse::Result& result) {
          if (result.index() >= indices_.size() || (*is_told)[result.index()]) {
            return true;  // The server counts wrongly: items that it leaves out are reported at the end.
          }
          (*is_told)[result.index()] = true;
          StatusOr<RunOutcome> outcome = client_.TakeRun(*result.mutable_run(), options_.call, {}, &buffers_);
          if (outcome.ok()) {
            outcome->prepared_again = prepared_again_;
          }
          return Tell(indices_[result.index()], std::move(outcome));
        },
        call);
  }

  // Called when the server does not know the handle. Returns true when there is another handle now.
  bool PrepareAgain(const CallOptions& call) {
    const StatusOr<bool> prepared = client_.PrepareAgain(handle_, request_.handle(), call);
    prepared_again_ = prepared.ok() && *prepared;
    request_.set_handle(client_.connection_->graphs.Current(handle_));
    return prepared_again_;
  }

  bool Tell(size_t index, StatusOr<RunOutcome> result) {
    if (!wants_more_) {
      return false;
    }
    wants_more_ = on_result_(index, std::move(result));
    if (!wants_more_ && failure_.ok()) {
      failure_ = Cancelled("The caller has ended the call.");
    }
    return wants_more_;
  }

  Client& client_;
  const std::string& handle_;
  const OnResult& on_result_;
  const RunOptions& options_;
  const Time start_ = RealClock().Now();
  v1::RunManyRequest request_;
  std::vector<size_t> indices_;       // Indices of the request's items.
  uint64_t bytes_ = 0;                // Bytes of the request's items.
  std::vector<std::string> buffers_;  // To be deleted after the call.
  Status failure_;                    // Once set, nothing is sent.
  bool wants_more_ = true;
  bool prepared_again_ = false;
};

Status Client::RunMany(const std::string& handle, std::span<const RunItem> items,
                       const std::function<bool(size_t, StatusOr<RunOutcome>)>& on_result, const RunOptions& options) {
  if (options.log != nullptr) {
    return InvalidArgument("RunMany brings no logs; its RunOptions.log must be null.");
  }
  if (!options.input_buffers.empty() || !options.output_buffers.empty()) {
    return InvalidArgument("RunMany takes input buffers in its items only; its RunOptions must have none.");
  }
  ManyRuns runs(*this, handle, on_result, options);
  for (size_t i = 0; i < items.size(); ++i) {
    runs.Add(i, items[i]);
  }
  return runs.Finish();
}

}  // namespace hpvm
