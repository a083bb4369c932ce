// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/frontend.h"

#include <algorithm>

#include "base/io/memfd.h"
#include "server/testing/steps.h"

namespace hpvm::server::sim {
namespace {

// A commit or two, with the writes queued before them.
constexpr Duration kCancelWithin = std::chrono::seconds(1);

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string ReadFile(DiskFile& file, uint64_t bytes, Status* status) {
  std::string text(bytes, '\0');
  const StatusOr<size_t> got = file.ReadAt(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  *status = got.status();
  text.resize(got.value_or(0));
  return text;
}

}  // namespace

Duration Network::Delay() {
  const bool is_late = context_.faults_on && Chance(rng_, context_.plan.delay);
  return is_late ? Milliseconds(Between(rng_, 1, 2'000)) : Microseconds(Between(rng_, 20, 500));
}

void Network::ToServer(bool may_repeat, std::function<void(SimDaemon&)> deliver) {
  const auto send = [&] {
    if (context_.faults_on && Chance(rng_, context_.plan.lose)) {
      return;
    }
    context_.events.After(Delay(), 0, [this, deliver] {
      if (SimDaemon* daemon = daemon_(); daemon != nullptr) {
        deliver(*daemon);
      }
    });
  };
  send();
  if (may_repeat && context_.faults_on && Chance(rng_, context_.plan.duplicate)) {
    send();
  }
}

void Network::ToClient(std::function<void()> deliver) {
  const uint32_t copies = context_.faults_on && Chance(rng_, context_.plan.lose)        ? 0
                          : context_.faults_on && Chance(rng_, context_.plan.duplicate) ? 2
                                                                                        : 1;
  for (uint32_t i = 0; i < copies; ++i) {
    context_.events.After(Delay(), 0, deliver);
  }
}

void Frontend::Submit(SimDaemon& daemon, Submission& submission, SubmitReply reply) {
  struct Call {
    v1::SubmitRequest submit;
    v1::RetryJobRequest retry;
    v1::SubmitResponse response;
  };
  auto call = std::make_shared<Call>();
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(submission.tenant);
  if (!tenant.ok()) {
    reply(tenant.status(), call->response);
    return;
  }
  const uint64_t number = daemon.BeginCall("submission " + std::to_string(submission.number));
  const auto done = [this, &daemon, &submission, call, number, reply = std::move(reply)](const Outcome& outcome) {
    if (daemon.EndCall(number)) {
      history_.OnSubmitted(submission, outcome, call->response);
      reply(outcome, call->response);
    }
  };
  if (submission.retry_of.empty()) {
    call->submit = submission.request;
    daemon.core().job_submitter().Submit(*tenant, call->submit, &call->response, done);
  } else {
    call->retry.set_job_id(submission.retry_of);
    call->retry.mutable_options()->set_idempotency_key(submission.key);
    daemon.core().job_submitter().RetryJob(*tenant, call->retry, &call->response, done);
  }
}

void Frontend::Cancel(SimDaemon& daemon, const std::string& tenant_name, const std::string& id, Reply reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  auto response = std::make_shared<v1::CancelJobResponse>();
  const uint64_t number = daemon.BeginCall("cancel " + id);
  const Time asked = context_.clock.Now();
  history_.OnCancelAsked(id);
  daemon.core().job_wishes().CancelJob(
      *tenant, id, response.get(),
      [this, &daemon, tenant_name, id, response, number, asked, reply = std::move(reply)](const Outcome& outcome) {
        if (!daemon.EndCall(number)) {
          return;
        }
        // It waits for the disk, never for the run.
        const bool has_quick_disk = context_.plan.slow_commits == 0 && context_.plan.full_every == Duration{0};
        context_.Check(!has_quick_disk || context_.clock.Now() - asked < kCancelWithin, "cancel",
                       [&] { return "Cancelling " + id + " was answered after more than a second."; });
        context_.trace.Add("answer",
                           "cancel " + Short(id) + ": " + std::string(outcome.status.message()).substr(0, 80));
        history_.OnCancelled(tenant_name, id, outcome.status);
        if (outcome.ok() && response->has_job()) {
          history_.OnJob(tenant_name, id, outcome.status, response->job());
        }
        reply(outcome.status);
      });
}

void Frontend::GetJob(SimDaemon& daemon, const std::string& tenant_name, const std::string& id, const JobReply& reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  v1::Job job;
  const uint64_t number = daemon.BeginCall("get " + id);
  const Status status = daemon.core().job_reader().GetJob(**tenant, id, &job);
  if (daemon.EndCall(number)) {
    history_.OnJob(tenant_name, id, status, job);
    reply(status, job);
  }
}

void Frontend::ListJobs(SimDaemon& daemon, const std::string& tenant_name, const v1::ListJobsRequest& request) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  v1::ListJobsResponse response;
  const uint64_t number = daemon.BeginCall("list");
  const Status status = server::testing::Finish(daemon.core().job_reader().ListJobs(*tenant, request, &response));
  if (daemon.EndCall(number) && status.ok()) {
    history_.OnList(tenant_name, response);
  }
}

void Frontend::Fetch(SimDaemon& daemon, const std::string& tenant_name, const std::string& id,
                     const std::string& name) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  const uint64_t number = daemon.BeginCall("fetch " + id);
  StatusOr<JobReader::StoredBytes> output = daemon.core().job_reader().FindOutput(**tenant, id, name);
  Status status = output.status();
  std::string bytes;
  if (output.ok() && output->file != nullptr) {
    bytes = ReadFile(*output->file, output->header.size_bytes(), &status);
  } else if (output.ok()) {
    bytes = output->inline_bytes;
  }
  if (daemon.EndCall(number)) {
    history_.OnOutput(tenant_name, id, name, status, bytes);
  }
}

struct Frontend::Watcher {
  std::string tenant, id;
  JobReply reply;
  uint64_t key = 0, after = 0, call = 0;
  uint32_t attempt = 0;
  bool wake_scheduled = false, over = false;
};

void Frontend::Watch(SimDaemon& daemon, const std::string& tenant_name, const std::string& id, JobReply reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  auto watcher = std::make_shared<Watcher>();
  watcher->tenant = tenant_name;
  watcher->id = id;
  watcher->reply = std::move(reply);
  // Like a stream's reactor, which may be notified on any thread and reads separately.
  const auto wake = [this, &daemon, weak = std::weak_ptr<Watcher>(watcher)] {
    const std::shared_ptr<Watcher> held = weak.lock();
    if (held == nullptr || std::exchange(held->wake_scheduled, true)) {
      return;
    }
    context_.events.After(Microseconds(30), context_.incarnation, [this, &daemon, held] {
      held->wake_scheduled = false;
      ReadEvents(daemon, held);
    });
  };
  const StatusOr<uint64_t> key = daemon.core().job_reader().WatchJob(**tenant, id, wake);
  if (!key.ok()) {
    history_.OnJob(tenant_name, id, key.status(), v1::Job());
    watcher->reply(key.status(), v1::Job());
    return;
  }
  watcher->key = *key;
  daemon.Hold(watcher);
  wake();
}

void Frontend::ReadEvents(SimDaemon& daemon, const std::shared_ptr<Watcher>& watcher) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(watcher->tenant);
  if (watcher->over || !tenant.ok()) {
    return;
  }
  const StatusOr<JobReader::EventBatch> batch =
      daemon.core().job_reader().ReadEvents(**tenant, watcher->id, watcher->after, 100);
  Status status = batch.status();
  v1::Job last;
  if (batch.ok()) {
    for (const v1::JobEvent& event : batch->events) {
      context_.Check(event.sequence() > watcher->after, "watch",
                     [&] { return "Events of " + watcher->id + " came out of order."; });
      watcher->after = event.sequence();
      if (event.has_job()) {
        last = event.job();
        context_.Check(last.attempt() >= watcher->attempt, "watch",
                       [&] { return "A watcher of " + watcher->id + " saw an attempt go back."; });
        watcher->attempt = last.attempt();
      }
    }
    if (!batch->last) {
      return;
    }
    context_.Check(IsTerminal(last.state()), "watch",
                   [&] { return "The events of " + watcher->id + " ended before the job did."; });
    history_.OnJob(watcher->tenant, watcher->id, status, last);
  }
  watcher->over = true;
  daemon.core().job_reader().Unwatch(**tenant, watcher->id, watcher->key);
  watcher->reply(status, last);
}

void Frontend::PutGraph(SimDaemon& daemon, const std::string& tenant_name, const std::string& document,
                        const Reply& reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  Status status = tenant.status();
  if (status.ok()) {
    status = daemon.core().graphs().BeginUpload(**tenant);
  }
  if (status.ok()) {
    auto upload = BlobUpload::Start("graph document", ToHex(HashOf(document)), document.size(), document.size(), 0, "");
    StatusOr<scheduler::Lease> host_bytes = daemon.core().graphs().HoldHostBytes(**tenant, document.size());
    status = host_bytes.status();
    if (status.ok()) {
      upload.value()->PayWith(*std::move(host_bytes));
      upload.value()->Add(document).IgnoreError();
      status =
          daemon.core().graphs().InsertBlob(**tenant, Graphs::BlobKind::kGraph, *upload.value()->Finish()).status();
    }
    daemon.core().graphs().EndUpload(**tenant);
  }
  reply(status);
}

void Frontend::Prepare(SimDaemon& daemon, const std::string& tenant_name, const std::string& graph_sha256,
                       HandleReply reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  struct Call {
    v1::PrepareGraphRequest request;
    v1::PrepareGraphResponse response;
  };
  auto call = std::make_shared<Call>();
  call->request.set_graph_sha256(graph_sha256);
  const uint64_t number = daemon.BeginCall("prepare");
  daemon.core().graphs().PrepareGraph(*tenant, call->request, &call->response,
                                      [&daemon, call, number, reply = std::move(reply)](const Outcome& outcome) {
                                        if (daemon.EndCall(number)) {
                                          reply(outcome.status, call->response.handle());
                                        }
                                      });
}

void Frontend::Run(SimDaemon& daemon, const std::string& tenant_name, const std::string& handle, const GraphSpec& graph,
                   uint64_t token, Reply reply) {
  const StatusOr<TenantRef> tenant = daemon.core().tenants().FindTenant(tenant_name);
  if (!tenant.ok()) {
    return;
  }
  auto request = std::make_shared<v1::RunRequest>();
  const std::string payload = PayloadOf(token, 24);
  request->set_handle(handle);
  v1::InputBinding& input = *request->add_inputs();
  input.set_name("x");
  input.mutable_tensor()->set_type(v1::ELEMENT_TYPE_U8);
  input.mutable_tensor()->add_shape(payload.size());
  input.mutable_tensor()->set_data(payload);
  const uint64_t number = daemon.BeginCall("run");
  daemon.core().runs().Run(
      *tenant, *request,
      [this, &daemon, request, number, graph, payload, reply = std::move(reply)](RunOutcome outcome) {
        if (!daemon.EndCall(number)) {
          return;
        }
        const GraphInputs inputs{{"x", payload}};
        for (const RunOutput& output : outcome.outputs) {
          const std::string want = OutputOf(graph, inputs, output.name == "y" ? 0 : 1);
          const std::string got(output.data.begin(), output.data.end());
          context_.Check(output.segment != nullptr || got == want, "results", [&] {
            return "A run's output " + output.name + " has " + std::to_string(got.size()) + " wrong bytes.";
          });
        }
        reply(outcome.outcome.status);
      });
}

StatusOr<std::string> Frontend::MakeBuffer(SimDaemon& daemon, const std::string& tenant_name,
                                           const std::string& bytes) {
  HPVMD_ASSIGN_OR_RETURN(const TenantRef tenant, daemon.core().tenants().FindTenant(tenant_name));
  v1::CreateBufferRequest request;
  request.set_type(v1::ELEMENT_TYPE_U8);
  request.add_shape(bytes.size());
  HPVMD_ASSIGN_OR_RETURN(const v1::Buffer buffer, daemon.core().buffers().CreateBuffer(*tenant, request));
  HPVMD_ASSIGN_OR_RETURN(const Buffers::BufferAccess access, daemon.core().buffers().OpenBuffer(*tenant, buffer.id()));
  HPVMD_RETURN_IF_ERROR(WriteAt(access.segment->fd.get(), 0, BytesOf(bytes)));
  HPVMD_RETURN_IF_ERROR(daemon.core().buffers().FinishWrite(*tenant, buffer.id(), access.segment).status());
  return buffer.id();
}

StatusOr<std::string> Frontend::ReadBuffer(SimDaemon& daemon, const std::string& tenant_name, const std::string& id) {
  HPVMD_ASSIGN_OR_RETURN(const TenantRef tenant, daemon.core().tenants().FindTenant(tenant_name));
  HPVMD_ASSIGN_OR_RETURN(const Buffers::BufferAccess access, daemon.core().buffers().OpenBuffer(*tenant, id));
  std::string bytes(access.buffer.size_bytes(), '\0');
  HPVMD_RETURN_IF_ERROR(ReadAt(access.segment->fd.get(), 0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
  return bytes;
}

Status Frontend::DeleteBuffer(SimDaemon& daemon, const std::string& tenant_name, const std::string& id) {
  HPVMD_ASSIGN_OR_RETURN(const TenantRef tenant, daemon.core().tenants().FindTenant(tenant_name));
  return daemon.core().buffers().DeleteBuffer(*tenant, id);
}

}  // namespace hpvm::server::sim
