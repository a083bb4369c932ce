// SPDX-License-Identifier: Apache-2.0
// WatchJobs and WatchDevices: calls that report changes for as long as their clients want.
//
// Such a call does no work on gRPC's threads. Its work is a step in its tenant's turn, among that tenant's other
// work: it looks for changes, and writes them. It looks again when the write is done, or when it is woken.
#include <memory>
#include <mutex>
#include <utility>

#include "base/hash.h"
#include "base/limits.h"
#include "server/core/state/request_options.h"
#include "server/rpc/calls.h"

namespace hpvm::server {
namespace {

using Found = JobWatch::Found;

// Limit of a request, which gRPC keeps for as long as the call lives: enough for options, filters, and a cursor.
constexpr size_t kRequestBytesMax = 32 * limits::kKiB;

// Each source belongs to one call; its methods are called one after another, from different threads.
class JobSource {
 public:
  using Request = v1::WatchJobsRequest;
  using Response = v1::WatchJobsResponse;
  static constexpr char kPath[] = "/hpvm.v1.Hpvm/WatchJobs";

  JobSource(Core& core, TenantRef tenant, const Request& request)
      : core_(core), tenant_(std::move(tenant)), request_(request) {}
  ~JobSource() {
    if (place_ != nullptr) {
      core_.job_watch().Close(*place_);
    }
  }
  // Returns when the call should end.
  StatusOr<Time> Open(Watchers::Wake wake) {
    HPVMD_ASSIGN_OR_RETURN(place_, core_.job_watch().Open(tenant_, request_, std::move(wake)));
    return place_->watcher.until;
  }
  StatusOr<Found> Next(Response* response) { return core_.job_watch().Next(*place_, response); }

 private:
  Core& core_;
  const TenantRef tenant_;
  const Request request_;
  std::unique_ptr<JobWatch::WatchState> place_;
};

// A cursor is the hash of everything reported: whatever has happened in between, and in whichever server, an object
// that looks as before is not reported again.
class DeviceSource {
 public:
  using Request = v1::WatchDevicesRequest;
  using Response = v1::WatchDevicesResponse;
  static constexpr char kPath[] = "/hpvm.v1.Hpvm/WatchDevices";

  DeviceSource(Core& core, TenantRef tenant, const Request& request)
      : core_(core), tenant_(std::move(tenant)), told_(request.cursor()) {}
  ~DeviceSource() {
    if (place_.key != 0) {
      core_.watchers().Remove(tenant_, place_.key);
    }
  }
  StatusOr<Time> Open(Watchers::Wake wake) {
    HPVMD_ASSIGN_OR_RETURN(place_, core_.watchers().Add(tenant_, Watchers::kDevices, std::move(wake)));
    return place_.until;
  }
  StatusOr<Found> Next(Response* response) {
    HPVMD_RETURN_IF_ERROR(core_.watchers().Refusal(*tenant_));
    response->Clear();
    if (!core_.devices().ListKnownDevices(*tenant_, response->mutable_now())) {
      return Found::kNothing;
    }
    const std::string cursor = ToHex(HashOf(response->now().SerializeAsString()));
    const bool is_first = std::exchange(is_first_, false);
    if (cursor == told_) {
      response->clear_now();
      if (!is_first) {
        return Found::kNothing;
      }
    }
    told_ = cursor;
    response->set_cursor(cursor);
    return Found::kAnswer;
  }

 private:
  Core& core_;
  const TenantRef tenant_;
  std::string told_;
  bool is_first_ = true;
  Watchers::Registration place_;
};

// At most one step or one write is in progress; at its end it sees what came meanwhile.
template <typename Source>
class WatchStream final : public grpc::ServerWriteReactor<typename Source::Response>,
                          public SelfOwned<WatchStream<Source>> {
 public:
  WatchStream(Core& core, StatusOr<TenantRef> tenant, const typename Source::Request& request)
      : core_(core), tenant_(std::move(tenant)) {
    refusal_ = tenant_.ok() ? CheckRequestOptions(request.options(), /*key_honoured=*/false) : tenant_.status();
    if (const size_t bytes = request.ByteSizeLong(); refusal_.ok() && bytes > kRequestBytesMax) {
      refusal_ = InvalidArgument("The request to watch (" + std::to_string(bytes) +
                                 " bytes) is larger than the limit (" + std::to_string(kRequestBytesMax) + ").");
    }
    if (refusal_.ok()) {
      source_ = std::make_unique<Source>(core, *tenant_, request);
    }
  }

  void Begin() {
    if (!refusal_.ok()) {
      finished_ = true;
      this->Finish(ToGrpc(refusal_));
      return;
    }
    Pump();
  }

  void OnWriteDone(bool ok) override {
    const Callback watched(Source::kPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      is_writing_ = false;
      is_gone_ |= !ok;
      response_.reset();  // An idle watch keeps nothing.
    }
    Pump();
  }

  void OnCancel() override {
    const Callback watched(Source::kPath, tenant_);
    {
      std::lock_guard lock(mutex_);
      is_gone_ = true;
    }
    Pump();
  }

  void OnDone() override {
    const Callback watched(Source::kPath, tenant_);
    source_.reset();
    this->ReleaseSelf();
  }

 private:
  // Thread-safe.
  void Pump() {
    std::unique_lock lock(mutex_);
    has_news_ = true;
    if (finished_ || is_writing_ || is_stepping_) {
      return;
    }
    if (is_gone_) {
      End(lock, Cancelled("The client went away."));
      return;
    }
    is_stepping_ = true;
    lock.unlock();
    core_.watchers().InTurn(*tenant_, [self = this->shared_from_this()] { return self->Step(); });
  }

  StatusOr<Found> Look() {
    if (!is_open_) {
      // Weak, because the core must not keep a finished call.
      HPVMD_ASSIGN_OR_RETURN(until_, source_->Open([weak = this->weak_from_this()] {
        if (const auto self = weak.lock()) {
          self->Pump();
        }
      }));
      is_open_ = true;
    }
    response_ = response_ == nullptr ? std::make_unique<typename Source::Response>() : std::move(response_);
    return source_->Next(response_.get());
  }

  FairQueue::Step Step() {
    {
      std::lock_guard lock(mutex_);
      has_news_ = false;
    }
    const StatusOr<Found> found = Look();
    std::unique_lock lock(mutex_);
    if (found.ok() && !is_gone_ && (*found == Found::kMore || (*found == Found::kNothing && has_news_))) {
      return FairQueue::Step::kAgain;
    }
    is_stepping_ = false;
    if (is_gone_) {
      End(lock, Cancelled("The client went away."));
    } else if (!found.ok()) {
      End(lock, found.status());
    } else if (*found == Found::kAnswer) {
      is_writing_ = true;
      lock.unlock();
      this->StartWrite(response_.get());
    } else if (core_.clock().Now() >= until_) {
      End(lock, Outcome());  // The client reconnects, and presents its credentials again.
    }
    return FairQueue::Step::kDone;
  }

  void End(std::unique_lock<std::mutex>& lock, const Outcome& ended) {
    finished_ = true;
    lock.unlock();
    this->Finish(ToGrpc(ended));
  }

  Core& core_;
  const StatusOr<TenantRef> tenant_;
  Status refusal_;
  std::mutex mutex_;
  // Used by the step in progress, or the write:
  std::unique_ptr<Source> source_;
  std::unique_ptr<typename Source::Response> response_;
  Time until_{0};
  bool is_open_ = false;
  // Guarded by the mutex:
  bool is_stepping_ = false, is_writing_ = false, is_gone_ = false, has_news_ = false, finished_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::WatchJobsResponse>* StartWatchJobs(Core& core, StatusOr<TenantRef> tenant,
                                                                const v1::WatchJobsRequest* request) {
  return WatchStream<JobSource>::Create(core, std::move(tenant), *request);
}

grpc::ServerWriteReactor<v1::WatchDevicesResponse>* StartWatchDevices(Core& core, StatusOr<TenantRef> tenant,
                                                                      const v1::WatchDevicesRequest* request) {
  return WatchStream<DeviceSource>::Create(core, std::move(tenant), *request);
}

}  // namespace hpvm::server
