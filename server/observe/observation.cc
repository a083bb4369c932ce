// SPDX-License-Identifier: Apache-2.0
#include "server/observe/observation.h"

#include <unistd.h>

#include <mutex>
#include <utility>

#include "server/core/state/run_outcome.h"
#include "server/observe/families.h"
#include "server/observe/http_endpoint.h"
#include "server/observe/paced_text.h"
#include "server/observe/process_metrics.h"
#include "server/observe/prometheus_observer.h"
#include "server/observe/snapshot_metrics.h"
#include "server/observe/span_exporter.h"
#include "server/observe/tracer.h"
#include "server/process/log.h"

namespace hpvm::server {
namespace {

void DescribeOurselves(Families& families, const SpanExporter* spans) {
  families.Gauge("hpvm_build_info", "Always 1; the label is the daemon's version.");
  families.Add({{"version", HPVMD_VERSION}}, 1);
  const LogCounts log = CountLog();
  families.Counter("hpvm_log_lines_total", "Lines logged.", log.lines);
  families.Counter("hpvm_log_lines_dropped_total", "Lines not written: too many from one place, or stderr hangs.");
  families.Add({{"reason", "rate"}}, log.limited);
  families.Add({{"reason", "stderr"}}, log.overflown);
  const SpanCounts counts = spans == nullptr ? SpanCounts() : spans->counts();
  families.Counter("hpvm_spans_exported_total", "Spans that the collector accepted.", counts.exported);
  families.Counter("hpvm_spans_dropped_total", "Spans that the collector did not get.", counts.dropped);
  families.Counter("hpvm_span_export_failures_total", "Requests to the collector that did not succeed.",
                   counts.failures);
}

void DescribeConfig(Families& families, const ConfigFacts& facts) {
  families.Gauge("hpvm_config_info", "Always 1; the label is the hash of the configuration in force.");
  families.Add({{"hash", facts.sha256}}, 1);
  families.Gauge("hpvm_config_loaded_time_seconds", "When the configuration came into force, since the Unix epoch.",
                 static_cast<double>(facts.loaded_unix_ns) / 1e9);
  families.Gauge("hpvm_config_awaiting_restart_keys", "Keys whose values in the file wait for a restart.",
                 facts.awaiting_restart.size());
}

}  // namespace

struct Observation::Parts {
  Parts(const Config& config, const Clock& clock)
      : state_dir(config.server_state_dir),
        metrics(clock),
        heart(clock),
        watch(clock, metrics, heart),
        text(clock, [this] { return Text(/*with_tenants=*/true); }),
        anonymous_text(clock, [this] { return Text(/*with_tenants=*/false); }) {}

  HttpResponse Metrics(const HttpRequest& request);
  StatusOr<bool> MaySeeTenants(std::string_view authorization);
  std::string Text(bool with_tenants);
  HttpResponse Live();
  HttpResponse Ready(const HttpRequest& request);
  // Returns true when the client may also see the reasons: other machines need credentials for that.
  bool MaySeeReasons(const HttpRequest& request);

  const std::string state_dir;
  std::mutex mutex;
  std::string store_folder;  // This and the next member are guarded by the mutex.
  std::function<StatusOr<bool>(std::string_view)> may_see_tenants;
  std::function<ConfigFacts()> in_force;
  PrometheusObserver metrics;
  Heart heart;
  std::unique_ptr<SpanExporter> exporter;
  std::unique_ptr<Tracer> tracer;
  EventList events;  // Metrics and traces.
  server::Watch watch;
  PacedText text, anonymous_text;          // Used on the endpoint's thread.
  bool is_public = false;                  // Other machines can reach the endpoint.
  std::unique_ptr<HttpEndpoint> endpoint;  // Destroyed first.
  std::string no_address;
};

HttpResponse Observation::Parts::Metrics(const HttpRequest& request) {
  HttpResponse response;
  const StatusOr<bool> with_tenants = MaySeeTenants(request.authorization);
  if (is_public && request.authorization.empty()) {
    response.code = 401;
    response.body =
        "Requests for metrics from other machines need credentials: the secret of metrics.token_file, or a token.\n";
    return response;
  }
  // Reported as an error, so that a scraper whose secret has changed does not silently get less.
  if (!with_tenants.ok()) {
    response.code = absl::IsUnavailable(with_tenants.status()) ? 503 : 401;
    response.body = Message(with_tenants.status()) + "\n";
    return response;
  }
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = (*with_tenants ? text : anonymous_text).Get();
  return response;
}

StatusOr<bool> Observation::Parts::MaySeeTenants(std::string_view authorization) {
  // Held during the query, because its objects may be gone after Unwatch.
  std::lock_guard lock(mutex);
  return may_see_tenants ? may_see_tenants(authorization) : StatusOr<bool>(false);
}

std::string Observation::Parts::Text(bool with_tenants) {
  const Watch::View view = watch.Look();
  Families families;
  metrics.Describe(families);
  DescribeView(families, view, [this](std::string_view tenant) { return metrics.TenantLabel(tenant); });
  {
    std::lock_guard lock(mutex);
    DescribeDisk(families, store_folder, state_dir);
    if (in_force) {
      DescribeConfig(families, in_force());
    }
  }
  DescribeOurselves(families, exporter.get());
  DescribeProcess(families);
  if (!with_tenants) {
    families.AddUpTenants();
  }
  return families.Text();
}

HttpResponse Observation::Parts::Live() {
  HealthReport report = watch.Look().report;
  if (report.live || is_public) {
    report.reasons.clear();
  }
  HttpResponse response;
  response.code = report.live ? 200 : 503;
  response.content_type = "application/json";
  response.body = ToJson("live", report.live, report.reasons);
  return response;
}

bool Observation::Parts::MaySeeReasons(const HttpRequest& request) {
  return !is_public || (!request.authorization.empty() && MaySeeTenants(request.authorization).ok());
}

HttpResponse Observation::Parts::Ready(const HttpRequest& request) {
  HealthReport report = watch.Look().report;
  if (!MaySeeReasons(request)) {
    report.reasons.clear();
    report.sandbox.reset();
  }
  HttpResponse response;
  response.code = report.ready ? 200 : 503;
  response.content_type = "application/json";
  response.body = ToJson("ready", report.ready, report.reasons, report.sandbox);
  return response;
}

Observation::Observation() = default;

Observation::~Observation() {
  if (parts_ != nullptr) {
    parts_->endpoint.reset();
    parts_->watch.Stop();
  }
}

StatusOr<std::unique_ptr<Observation>> Observation::Start(const Config& config, const Clock& clock, Rng& rng,
                                                          HttpEndpoint::Certificates certificates) {
  std::unique_ptr<Observation> observation(new Observation());
  observation->parts_ = std::make_unique<Parts>(config, clock);
  Parts& parts = *observation->parts_;
  parts.events.Subscribe(parts.metrics);
  if (!config.tracing_endpoint.empty()) {
    HPVMD_ASSIGN_OR_RETURN(HttpTarget target, ParseHttpTarget(config.tracing_endpoint));
    parts.exporter =
        std::make_unique<SpanExporter>(std::move(target), SpanResource{HPVMD_VERSION, std::to_string(getpid())});
    parts.tracer = std::make_unique<Tracer>(config.tracing_sampled_per_mille, clock, rng, *parts.exporter);
    parts.events.Subscribe(*parts.tracer);
    LogInfo("Exporting traces", {{"endpoint", config.tracing_endpoint}});
  }
  if (!config.metrics_listen.empty()) {
    HPVMD_ASSIGN_OR_RETURN(const ListenAddress listen, ParseMetricsListen(config.metrics_listen));
    parts.is_public = listen.is_public;
    if (listen.is_public && !certificates) {
      return FailedPrecondition("Metrics that other machines reach (\"" + listen.target + "\") need a certificate.");
    }
    HPVMD_ASSIGN_OR_RETURN(
        parts.endpoint,
        HttpEndpoint::Start(SplitHostPort(listen),
                            {
                                {"/metrics", [&parts](const HttpRequest& request) { return parts.Metrics(request); }},
                                {"/livez", [&parts](const HttpRequest&) { return parts.Live(); }},
                                {"/readyz", [&parts](const HttpRequest& request) { return parts.Ready(request); }},
                            },
                            listen.is_public ? std::move(certificates) : nullptr));
    LogInfo("Serving metrics and health",
            {{"address", parts.endpoint->address()}, {"tls", listen.is_public ? "yes" : "no"}});
  }
  return observation;
}

Observer& Observation::observer() { return parts_->events; }

Heart& Observation::heart() { return parts_->heart; }

const std::string& Observation::metrics_address() const {
  return parts_->endpoint != nullptr ? parts_->endpoint->address() : parts_->no_address;
}

void Observation::Watch(WatchedParts parts) {
  {
    std::lock_guard lock(parts_->mutex);
    parts_->store_folder = parts.store_folder;
    parts_->may_see_tenants = parts.may_see_tenants;
    parts_->in_force = parts.in_force;
  }
  parts.wants_tenants = parts_->endpoint != nullptr;
  parts_->watch.Start(std::move(parts));
}

void Observation::Unwatch() {
  {
    std::lock_guard lock(parts_->mutex);
    parts_->may_see_tenants = nullptr;
    parts_->in_force = nullptr;
  }
  parts_->watch.Stop();
}

}  // namespace hpvm::server
