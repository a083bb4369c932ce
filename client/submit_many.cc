// SPDX-License-Identifier: Apache-2.0
// Client::SubmitMany.
#include <utility>
#include <vector>

#include "client/connection.h"
#include "client/status/retry.h"

namespace hpvm {
namespace {

// Servers accept at least this many jobs in one call.
constexpr size_t kJobsMax = 256;

// Returns equal names for equal documents with equal modules.
std::string NameOf(const SubmitItem& item) {
  std::string name = ToHex(HashOf(item.document));
  for (const auto& [module, bytes] : item.modules.bytes) {
    name += " " + std::to_string(module.size()) + " " + module + " " + ToHex(HashOf(bytes));
  }
  for (const auto& [module, hash] : item.modules.hashes) {
    name += " " + std::to_string(module.size()) + " " + module + " " + hash;
  }
  return name;
}

}  // namespace

// ManySubmits sends jobs until each has a response: jobs that got none, or that an overloaded or restarted server did
// not accept, are sent again with their keys.
class [[gnu::visibility("hidden")]] Client::ManySubmits {
 public:
  ManySubmits(Client & client, std::span<const SubmitItem> jobs, const CallOptions& call)
      : client_(client),
        jobs_(jobs),
        call_(WithoutKey(call)),
        retries_(client.connection_->options.patience, SystemRng()) {
    for (size_t i = 0; i < jobs.size(); ++i) {
      keys_.push_back(WithKey(jobs[i].options.call).request.idempotency_key());
      results_.emplace_back(Unavailable("The job was not sent."));
      open_.push_back(i);
    }
  }

  std::vector<StatusOr<v1::SubmitResponse>> Run() {
    while (!open_.empty()) {
      SendOpen();
      if (!is_over_.ok()) {
        break;
      }
      Status failure;
      const std::vector<size_t> sent = std::exchange(open_, {});
      for (const size_t i : sent) {
        if (!results_[i].ok() && IsForAgain(results_[i].status())) {
          failure = results_[i].status();
          open_.push_back(i);
        }
      }
      if (!open_.empty() && MayRetry(failure) &&
          !SleepBeforeRetry(client_.connection_->options, call_, start_, failure, &retries_)) {
        break;
      }
    }
    return std::move(results_);
  }

 private:
  // Sends all open jobs, in calls of limited size.
  void SendOpen() {
    graphs_.clear();
    is_new_server_.reset();
    size_t next = 0;
    while (next < open_.size() && is_over_.ok()) {
      v1::SubmitManyRequest request;
      std::vector<size_t> sent;
      std::vector<std::string> buffers;
      uint64_t bytes = 0;
      while (next < open_.size() && sent.size() < kJobsMax) {
        const size_t i = open_[next];
        v1::SubmitRequest job = RequestOf(jobs_[i].options);
        if (const Status bound = Bind(i, &job, &buffers); !bound.ok()) {
          results_[i] = bound;
          ++next;
          continue;
        }
        const uint64_t more = job.ByteSizeLong();
        if (!sent.empty() && bytes + more > kInlineTotalBytesMax) {
          break;  // Bound again for the next call; its buffers are deleted with this one's.
        }
        bytes += more;
        *request.add_jobs() = std::move(job);
        sent.push_back(i);
        ++next;
      }
      if (!sent.empty()) {
        Send(request, sent);
      }
      client_.DeleteAll(buffers, call_);  // Accepted jobs keep the bytes that they use.
    }
  }

  Status Bind(size_t i, v1::SubmitRequest * job, std::vector<std::string> * buffers) {
    const SubmitItem& item = jobs_[i];
    HPVMD_ASSIGN_OR_RETURN(const CallOptions rest, Remaining(call_, start_));
    const auto [known, is_new] = graphs_.try_emplace(NameOf(item));
    if (is_new) {
      const Status put = client_.PutAll(item.document, item.modules, rest, known->second.mutable_graph_sha256(),
                                        known->second.mutable_modules());
      if (!put.ok()) {
        graphs_.erase(known);
        return put;
      }
    }
    *job->mutable_document() = known->second;
    *job->mutable_options() = item.options.call.request;
    job->mutable_options()->set_idempotency_key(keys_[i]);
    BindIndices(item.options.index_inputs, job);
    return client_.BindInputs(item.inputs, rest, job->mutable_inputs(), buffers);
  }

  void Send(const v1::SubmitManyRequest& request, const std::vector<size_t>& sent) {
    StatusOr<CallOptions> rest = Remaining(call_, start_);
    StatusOr<v1::SubmitManyResponse> response =
        rest.ok() ? client_.connection_->CallOn(*client_.connection_->stub, &v1::Hpvm::Stub::SubmitMany, request, *rest)
                  : StatusOr<v1::SubmitManyResponse>(rest.status());
    if (response.ok() && response->results_size() != static_cast<int>(sent.size())) {
      response = Internal("The server answered " + std::to_string(response->results_size()) + " of " +
                          std::to_string(sent.size()) + " jobs.");
    }
    if (!response.ok()) {
      is_over_ = response.status();  // It was retried as often as the patience allows.
      for (const size_t i : open_) {
        results_[i] = results_[i].ok() ? results_[i] : is_over_;
      }
      return;
    }
    for (size_t at = 0; at < sent.size(); ++at) {
      v1::SubmitResponse& result = *response->mutable_results(static_cast<int>(at));
      const Status refused = FromProto(result.error());
      if (refused.ok()) {
        if (result.job().idempotency_key().empty()) {
          result.mutable_job()->set_idempotency_key(keys_[sent[at]]);
        }
        results_[sent[at]] = std::move(result);
        retries_.Answered();
      } else {
        results_[sent[at]] = refused;
      }
    }
  }

  // Returns true when the server cannot at the moment, or when it has started since the graph was uploaded to another
  // one.
  bool IsForAgain(const Status& refused) {
    if (!absl::IsNotFound(refused)) {
      return MayRetry(refused);
    }
    if (!is_new_server_.has_value()) {
      const StatusOr<v1::ServerInfoResponse> info = client_.ServerInfo(call_);
      is_new_server_ = info.ok() && std::exchange(server_, info->started_unix_ns()) != info->started_unix_ns();
    }
    return *is_new_server_;
  }

  Client& client_;
  const std::span<const SubmitItem> jobs_;
  const CallOptions call_;
  const Time start_ = RealClock().Now();
  Retries retries_;
  std::vector<std::string> keys_;
  std::vector<StatusOr<v1::SubmitResponse>> results_;
  std::vector<size_t> open_;                          // Jobs without a final response.
  std::map<std::string, v1::GraphReference> graphs_;  // Uploaded for the calls of one round.
  int64_t server_ = 0;                                // Start time of the server that answered NOT_FOUND.
  std::optional<bool> is_new_server_;                 // Set once per round.
  Status is_over_;                                    // Reason why no further call is made.
};

std::vector<StatusOr<v1::SubmitResponse>> Client::SubmitMany(std::span<const SubmitItem> jobs,
                                                             const CallOptions& call) {
  return ManySubmits(*this, jobs, call).Run();
}

}  // namespace hpvm
