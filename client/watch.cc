// SPDX-License-Identifier: Apache-2.0
// Client's watch calls: streams that are restarted after they break.
#include <map>
#include <utility>

#include "client/connection.h"
#include "client/job_news.h"
#include "client/status/retry.h"

namespace hpvm {
namespace {

// StreamEnd describes how one stream ended.
struct StreamEnd {
  Status status;
  bool was_stopped = false;  // Ended by the consumer.
  bool had_answer = false;
};

// Opens one stream after another, until one is stopped or fails permanently.
Status KeepWatching(const ClientOptions& options, const CallOptions& call,
                    const std::function<StreamEnd(const CallOptions&)>& once) {
  const Time start = RealClock().Now();
  Retries retries(options.patience, SystemRng());
  for (;;) {
    HPVMD_ASSIGN_OR_RETURN(const CallOptions rest, Remaining(call, start));
    StreamEnd end = once(rest);
    if (end.was_stopped) {
      return absl::OkStatus();
    }
    if (end.had_answer) {
      retries.Answered();
    }
    if (end.status.ok()) {
      if (end.had_answer) {
        continue;  // Servers end old streams.
      }
      end.status = Unavailable("The server ended the watch before it answered.");
    }
    // A server with too many watchers has room again when others have ended.
    const bool is_crowded = end.status.code() == absl::StatusCode::kResourceExhausted;
    if ((!MayRetry(end.status) && !is_crowded) || !SleepBeforeRetry(options, call, start, end.status, &retries)) {
      return end.status;
    }
  }
}

// Reads one stream; `take` returns whether to continue.
template <typename Response, typename Take>
StreamEnd ReadStream(grpc::ClientContext& context, grpc::ClientReader<Response>& reader, const Take& take) {
  StreamEnd end;
  Response response;
  while (!end.was_stopped && reader.Read(&response)) {
    end.had_answer = true;
    end.was_stopped = !take(response);
  }
  if (end.was_stopped) {
    context.TryCancel();
  }
  end.status = FromGrpc(reader.Finish());
  return end;
}

std::vector<DeviceChange> Compare(const v1::ListDevicesResponse& before, const v1::ListDevicesResponse& now) {
  std::map<std::string, const v1::Device*> known;
  for (const v1::Device& device : before.devices()) {
    known[device.id()] = &device;
  }
  std::vector<DeviceChange> changes;
  for (const v1::Device& device : now.devices()) {
    const auto found = known.find(device.id());
    if (found == known.end()) {
      changes.push_back({DeviceChange::Kind::kAppeared, device});
      continue;
    }
    if (found->second->SerializeAsString() != device.SerializeAsString()) {
      changes.push_back({DeviceChange::Kind::kChanged, device});
    }
    known.erase(found);
  }
  for (const auto& [id, device] : known) {
    changes.push_back({DeviceChange::Kind::kGone, *device});
  }
  return changes;
}

}  // namespace

Status Client::WatchJobs(const WatchJobsOptions& options, const std::function<bool(const v1::JobChange&)>& on_change) {
  v1::WatchJobsRequest request = options.filter;
  *request.mutable_options() = options.call.request;
  JobNews news;
  bool was_listed = false;
  const auto take = [&](v1::WatchJobsResponse& response) {
    if (!news.Take(response, on_change)) {
      return false;
    }
    const bool is_first_list = news.is_listed() && !std::exchange(was_listed, news.is_listed());
    return !is_first_list || !options.on_listed || options.on_listed();
  };
  return KeepWatching(connection_->options, options.call, [&](const CallOptions& call) {
    StreamEnd end;
    request.set_cursor(news.cursor());
    const Status ended = connection_->Attempt(call, [&](grpc::ClientContext& context) {
      end = ReadStream(context, *connection_->stub->WatchJobs(&context, request), take);
      return end.status;
    });
    end.status = ended;
    if (ended.code() == absl::StatusCode::kInvalidArgument && !news.cursor().empty()) {
      news.DropCursor();  // Another server, which does not know this one's cursors.
      end.status = Unavailable(Message(ended));
    }
    return end;
  });
}

Status Client::WatchDevices(
    const std::function<bool(const v1::ListDevicesResponse&, const std::vector<DeviceChange>&)>& on_change,
    const CallOptions& call) {
  v1::WatchDevicesRequest request;
  *request.mutable_options() = call.request;
  v1::ListDevicesResponse known;
  const auto take = [&](v1::WatchDevicesResponse& response) {
    request.set_cursor(response.cursor());
    if (!response.has_now()) {
      return true;
    }
    const v1::ListDevicesResponse before = std::exchange(known, std::move(*response.mutable_now()));
    return on_change(known, Compare(before, known));
  };
  return KeepWatching(connection_->options, call, [&](const CallOptions& now) {
    StreamEnd end;
    const Status ended = connection_->Attempt(now, [&](grpc::ClientContext& context) {
      end = ReadStream(context, *connection_->stub->WatchDevices(&context, request), take);
      return end.status;
    });
    end.status = ended;
    return end;
  });
}

}  // namespace hpvm
