// SPDX-License-Identifier: Apache-2.0
#include "server/observe/tracer.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "server/core/state/run_outcome.h"
#include "server/jobs/rows/job_state_name.h"

namespace hpvm::server {
namespace {

constexpr size_t kTextBytesMax = 256, kErrorBytesMax = 1'024;

std::string Cut(std::string_view text, size_t bytes_max = kTextBytesMax) {
  return text.size() <= bytes_max ? std::string(text) : std::string(text.substr(0, bytes_max)) + "…";
}

void SetError(Span& span, const Status& status) {
  span.failed = true;
  span.error = Cut(Message(status), kErrorBytesMax);
  span.attributes.emplace_back("hpvm.code", absl::StatusCodeToString(status.code()));
}

void SetError(Span& span, const v1::Status& status) {
  if (status.code() != 0) {
    SetError(span, MakeStatus(static_cast<absl::StatusCode>(status.code()), status.message()));
  }
}

// Limits the duration of a phase, as an executor or a message reports it, to at most `left`.
int64_t Clamp(int64_t ns, int64_t left) { return std::clamp<int64_t>(ns, 0, std::max<int64_t>(left, 0)); }

int64_t ClampUnsigned(uint64_t ns, int64_t left) {
  return Clamp(static_cast<int64_t>(std::min<uint64_t>(ns, INT64_MAX)), left);
}

void NameAttempt(Span& span, std::string_view tenant, const v1::Job& job) {
  span.attributes.emplace_back("hpvm.tenant", Cut(tenant));
  span.attributes.emplace_back("hpvm.job_id", Cut(job.id()));
  span.attributes.emplace_back("hpvm.attempt", int64_t{job.attempt()});
}

bool HasEnded(const v1::Job& job) { return job.state() >= v1::JOB_STATE_SUCCEEDED; }

Sha256 HashOfId(std::string_view what, std::string_view job_id, uint32_t number) {
  return HashOf(std::string(what) + " " + std::to_string(number) + " " + std::string(job_id));
}

template <size_t kSize>
std::array<uint8_t, kSize> Part(const Sha256& hash, size_t offset) {
  std::array<uint8_t, kSize> part;
  std::copy_n(hash.bytes.begin() + static_cast<ptrdiff_t>(offset), kSize, part.begin());
  part[0] |= 1;  // Not all zero.
  return part;
}

}  // namespace

Tracer::Tracer(uint64_t sampled_per_mille, const Clock& clock, Rng& rng, SpanSink& sink)
    : sampled_per_mille_(sampled_per_mille), clock_(clock), ids_(rng), sink_(sink) {}

Span Tracer::MakeSpan(const TraceContext& in, const char* name, int64_t start, int64_t end) {
  Span span;
  span.trace = in.trace;
  span.id = ids_.NewSpan();
  span.parent = in.span;
  span.name = name;
  span.start_unix_ns = start;
  span.end_unix_ns = std::max(start, end);
  return span;
}

// --- Calls ---

Tracer::Call Tracer::BeginCall(v1::RequestOptions& options) {
  Call call;
  call.start_unix_ns = clock_.WallNs();
  const std::optional<TraceContext> caller = ParseTraceparent(options.traceparent());
  if (caller.has_value()) {
    call.self = *caller;
    call.parent = caller->span;
    if (IsTracestate(options.tracestate())) {
      call.tracestate = options.tracestate();
    }
  } else {
    call.self.trace = ids_.NewTrace();
    call.self.sampled = ids_.Sample(sampled_per_mille_);
  }
  call.self.span = ids_.NewSpan();
  // A trace that the caller does not record keeps the caller's context.
  if (call.self.sampled || !caller.has_value()) {
    options.set_traceparent(FormatTraceparent(call.self));
  }
  if (call.tracestate.empty()) {
    options.clear_tracestate();
  }
  return call;
}

void Tracer::AddPrepare(Call& call, const v1::PrepareTiming& timing) {
  const int64_t end = clock_.WallNs();
  const std::pair<const char*, uint64_t> steps[] = {
      {"parse", timing.parse_ns()}, {"compile", timing.compile_ns()}, {"load", timing.load_ns()}};
  int64_t at = call.start_unix_ns;
  for (const auto& [name, ns] : steps) {
    if (ns == 0) {
      continue;
    }
    const int64_t took = ClampUnsigned(ns, end - at);
    call.children.push_back(MakeSpan(call.self, name, at, at + took));
    at += took;
  }
}

void Tracer::EndCall(Call call, const char* name, const Status& status) {
  if (!call.self.sampled) {
    return;
  }
  Span span = MakeSpan(call.self, name, call.start_unix_ns, clock_.WallNs());
  span.id = call.self.span;
  span.parent = call.parent;
  span.kind = Span::Kind::kServer;
  span.tracestate = std::move(call.tracestate);
  span.attributes = std::move(call.attributes);
  span.attributes.emplace_back("rpc.system", "grpc");
  span.attributes.emplace_back("rpc.service", "hpvm.v1.Hpvm");
  span.attributes.emplace_back("rpc.method", name);
  span.attributes.emplace_back("rpc.grpc.status_code", static_cast<int64_t>(status.code()));
  if (!status.ok()) {
    SetError(span, status);
  }
  std::vector<Span> spans = std::move(call.children);
  spans.push_back(std::move(span));
  sink_.Add(std::move(spans));
}

void Tracer::Take(const events::CallBegan& event) {
  if (v1::RequestOptions* options = event.options(event.request); options != nullptr) {
    Call call = BeginCall(*options);
    std::lock_guard lock(mutex_);
    calls_.insert_or_assign(event.call, std::move(call));
  }
}

void Tracer::Take(const events::CallPrepared& event) {
  std::lock_guard lock(mutex_);
  if (const auto found = calls_.find(event.call); found != calls_.end() && found->second.self.sampled) {
    AddPrepare(found->second, event.timing);
  }
}

void Tracer::Take(const events::CallEnded& event) {
  if (event.call == nullptr) {
    return;
  }
  std::unique_lock lock(mutex_);
  auto ended = calls_.extract(event.call);
  lock.unlock();
  if (!ended.empty()) {
    Call& call = ended.mapped();
    call.attributes.insert(call.attributes.end(), event.facts.begin(), event.facts.end());
    EndCall(std::move(call), event.span, event.status);
  }
}

// --- Runs ---

void Tracer::Take(const events::RunEnded& event) {
  const auto& [tenant, job_id, graph, traceparent, outcome] = event;
  std::optional<TraceContext> in = ParseTraceparent(traceparent);
  int64_t earliest = INT64_MIN;
  if (!job_id.empty()) {
    v1::Job job;
    job.set_id(std::string(job_id));
    job.set_traceparent(std::string(traceparent));
    in = TraceOf(job).self;
    if (in->sampled) {
      std::lock_guard lock(mutex_);
      const auto attempt = attempts_.find(job_id);
      in->span = AttemptSpan(job_id, attempt == attempts_.end() ? 0 : attempt->second.number);
      earliest = attempt == attempts_.end() ? earliest : attempt->second.start_unix_ns;
    }
  }
  if (!in.has_value() || !in->sampled) {
    return;
  }
  const int64_t end = clock_.WallNs();
  const int64_t start = std::max(earliest, end - Clamp(static_cast<int64_t>(outcome.timing().total_ns()), end));
  std::vector<Span> spans;
  AddPhases(*in, outcome, start, end, /*with_queue=*/job_id.empty(), spans);
  for (Span& span : spans) {
    if (span.parent == in->span) {
      span.attributes.emplace_back("hpvm.tenant", Cut(tenant));
      span.attributes.emplace_back("hpvm.graph_name", Cut(graph));
    }
  }
  sink_.Add(std::move(spans));
}

// The executor reports the durations of its phases, not their times: they are laid one after the other, up to the
// end.
void Tracer::AddPhases(const TraceContext& in, const RunOutcome& outcome, int64_t start, int64_t end, bool with_queue,
                       std::vector<Span>& spans) {
  int64_t at = start;
  if (with_queue) {
    at += Clamp(static_cast<int64_t>(outcome.timing().queue_ns()), end - start);
    spans.push_back(MakeSpan(in, "queue", start, at));
  }
  const v1::RunTiming& timing = outcome.timing();
  const std::pair<const char*, uint64_t> phases[] = {{"bind", timing.bind_ns()},
                                                     {"copy_in", timing.copy_in_ns()},
                                                     {"run", timing.run_ns()},
                                                     {"copy_out", timing.copy_out_ns()}};
  int64_t sum = 0;
  for (const auto& [name, took] : phases) {
    sum += Clamp(static_cast<int64_t>(took), end - at - sum);
  }
  if (sum == 0 && outcome.outcome.ok()) {
    return;
  }
  at = end - sum;
  for (const auto& [name, took] : phases) {
    const int64_t ns = Clamp(static_cast<int64_t>(took), end - at);
    Span span = MakeSpan(in, name, at, at + ns);
    if (std::string_view(name) == "run") {
      span.attributes.emplace_back("hpvm.nodes_run",
                                   static_cast<int64_t>(std::min<uint64_t>(outcome.reply.done.nodes_run(), INT64_MAX)));
      if (!outcome.outcome.ok()) {
        SetError(span, outcome.outcome.status);
        if (outcome.outcome.detail.has_value() && !outcome.outcome.detail->node().empty()) {
          span.attributes.emplace_back("hpvm.node", Cut(outcome.outcome.detail->node()));
        }
      }
      TraceContext inside = in;
      inside.span = span.id;
      AddNodes(inside, outcome, at, at + ns, spans);
    }
    spans.push_back(std::move(span));
    at += ns;
  }
}

void Tracer::AddNodes(const TraceContext& in, const RunOutcome& outcome, int64_t start, int64_t end,
                      std::vector<Span>& spans) {
  const auto& nodes = outcome.reply.done.nodes();
  const auto at = [&](uint64_t ns) { return start + Clamp(static_cast<int64_t>(ns), end - start); };
  for (int i = 0; i < std::min(nodes.size(), static_cast<int>(kNodesMax)); ++i) {
    const v1::NodePlacement& node = nodes[i];
    Span span = MakeSpan(in, "node", at(node.start_ns()), at(node.end_ns()));
    span.attributes.emplace_back("hpvm.node", Cut(node.node()));
    span.attributes.emplace_back("hpvm.device", Cut(node.device()));
    if (node.math() == "fast") {
      span.attributes.emplace_back("hpvm.math", "fast");
    }
    spans.push_back(std::move(span));
  }
}

// --- Jobs ---

Tracer::JobTrace Tracer::TraceOf(const v1::Job& job) const {
  const Sha256 hash = HashOfId("job", job.id(), 0);
  JobTrace trace;
  if (const std::optional<TraceContext> caller = ParseTraceparent(job.traceparent()); caller.has_value()) {
    trace.self = *caller;
    trace.parent = caller->span;
  } else {
    trace.self.trace = Part<16>(hash, 0);
    trace.self.sampled = (hash.bytes[16] * 256u + hash.bytes[17]) * 1'000u / 65'536u < sampled_per_mille_;
  }
  trace.self.span = Part<8>(hash, 24);
  return trace;
}

SpanId Tracer::AttemptSpan(std::string_view job_id, uint32_t number) {
  return Part<8>(HashOfId("attempt", job_id, number), 0);
}

void Tracer::Take(const events::JobChanged& event) {
  const auto& [tenant, job, cause] = event;
  const JobTrace trace = TraceOf(job);
  if (!trace.self.sampled) {
    return;
  }
  if (job.state() == v1::JOB_STATE_RUNNING) {
    BeginAttempt(tenant, job, trace);
    return;
  }
  std::vector<Span> spans;
  if (job.attempt() > 0) {
    EndAttempt(tenant, job, trace, spans);
  }
  if (HasEnded(job)) {
    EndJob(tenant, job, trace, spans);
  }
  if (!spans.empty()) {
    sink_.Add(std::move(spans));
  }
}

void Tracer::BeginAttempt(std::string_view tenant, const v1::Job& job, const JobTrace& trace) {
  const int64_t now = clock_.WallNs();
  {
    std::lock_guard lock(mutex_);
    Attempt& attempt = attempts_[job.id()];
    if (attempt.number == job.attempt()) {
      return;  // An update about the same attempt.
    }
    attempt = {job.attempt(), now};
  }
  const int lost = job.lost_attempts_size();
  const int64_t since = lost > 0 ? job.lost_attempts(lost - 1).ended_unix_ns() : job.created_unix_ns();
  Span queue = MakeSpan(trace.self, "queue", std::min(since, now), now);
  NameAttempt(queue, tenant, job);
  sink_.Add({std::move(queue)});
}

void Tracer::EndAttempt(std::string_view tenant, const v1::Job& job, const JobTrace& trace, std::vector<Span>& spans) {
  const int64_t end = HasEnded(job) && job.ended_unix_ns() > 0 ? job.ended_unix_ns() : clock_.WallNs();
  int64_t start = std::min(job.started_unix_ns() > 0 ? job.started_unix_ns() : end, end);
  {
    std::lock_guard lock(mutex_);
    const auto found = attempts_.find(job.id());
    if (found != attempts_.end()) {
      start = std::min(found->second.start_unix_ns, end);
      attempts_.erase(found);
    } else if (HasEnded(job)) {
      return;  // It was over before: the job ended between attempts.
    }
  }
  Span span = MakeSpan(trace.self, "attempt", start, end);
  span.id = AttemptSpan(job.id(), job.attempt());
  NameAttempt(span, tenant, job);
  const int lost = job.lost_attempts_size();
  if (lost > 0 && job.lost_attempts(lost - 1).attempt() == job.attempt()) {
    SetError(span, job.lost_attempts(lost - 1).error());
  } else if (HasEnded(job)) {
    SetError(span, job.error());
  }
  const v1::PrepareTiming& prepare = job.prepare();
  if (HasEnded(job)) {
    int64_t took = ClampUnsigned(prepare.parse_ns(), end - start);
    took += ClampUnsigned(prepare.compile_ns(), end - start - took);
    took += ClampUnsigned(prepare.load_ns(), end - start - took);
    if (took > 0) {
      TraceContext inside = trace.self;
      inside.span = span.id;
      spans.push_back(MakeSpan(inside, "prepare", start, start + took));
      spans.back().attributes.emplace_back("hpvm.compiled", int64_t{prepare.compiled()});
      spans.back().attributes.emplace_back("hpvm.from_cache", int64_t{prepare.from_cache()});
    }
  }
  spans.push_back(std::move(span));
}

void Tracer::EndJob(std::string_view tenant, const v1::Job& job, const JobTrace& trace, std::vector<Span>& spans) {
  const int64_t end = job.ended_unix_ns() > 0 ? job.ended_unix_ns() : clock_.WallNs();
  Span span = MakeSpan(trace.self, "job", std::min(job.created_unix_ns(), end), end);
  span.id = trace.self.span;
  span.parent = trace.parent;
  span.attributes.emplace_back("hpvm.tenant", Cut(tenant));
  span.attributes.emplace_back("hpvm.job_id", Cut(job.id()));
  span.attributes.emplace_back("hpvm.graph", Cut(job.graph_sha256()));
  span.attributes.emplace_back("hpvm.state", StateName(job.state()));
  span.attributes.emplace_back("hpvm.attempts", int64_t{job.attempt()});
  if (!job.array_id().empty()) {
    span.attributes.emplace_back("hpvm.array_id", Cut(job.array_id()));
    span.attributes.emplace_back("hpvm.array_index", ClampUnsigned(job.array_index(), INT64_MAX));
  }
  SetError(span, job.error());
  spans.push_back(std::move(span));
}

}  // namespace hpvm::server
