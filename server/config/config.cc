// SPDX-License-Identifier: Apache-2.0
#include "server/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>

// Compiled in here, because the packaged library throws.
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
// The library's assertions end the process at "[&", which its own code then reports as an error; with NDEBUG the
// compiler would assume them instead.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>

#include "base/edit_distance.h"
#include "base/io/toml_text.h"
#include "server/config/config_access.h"
#include "server/config/device_families.h"

namespace hpvm::server {
namespace {

constexpr uint64_t kDayMs = 86'400'000;
constexpr bool kRestart = true;

void Report(Diagnostics& out, std::string place, std::string message) {
  out.push_back({Severity::kError, std::move(place), std::nullopt, std::move(message)});
}

// Returns " Did you mean "x"?", or nothing when no name is near.
std::string Suggest(const NearMiss& near) {
  return near.best().empty() ? "" : " Did you mean \"" + near.best() + "\"?";
}

size_t EditsMax(std::string_view name) { return std::max<size_t>(2, name.size() / 3); }

void ReadText(const ConfigKey& key, const toml::node& node, std::string& into, Diagnostics& out) {
  if (!node.is_string()) {
    Report(out, std::string(key.name), "The value is not a string.");
    return;
  }
  std::string value = node.as_string()->get();
  if (!key.choices.empty() && std::find(key.choices.begin(), key.choices.end(), value) == key.choices.end()) {
    std::string list;
    for (std::string_view choice : key.choices) {
      list += (list.empty() ? "\"" : ", \"") + std::string(choice) + "\"";
    }
    Report(out, std::string(key.name), "The value (\"" + value + "\") is none of " + list + ".");
    return;
  }
  into = std::move(value);
}

void ReadNumber(const ConfigKey& key, const toml::node& node, uint64_t& into, Diagnostics& out) {
  if (!node.is_integer()) {
    Report(out, std::string(key.name), "The value is not an integer.");
    return;
  }
  const int64_t value = node.as_integer()->get();
  if (value < 0 || static_cast<uint64_t>(value) < key.min) {
    Report(out, std::string(key.name),
           "The value (" + std::to_string(value) + ") is smaller than the minimum (" + std::to_string(key.min) + ").");
    return;
  }
  if (static_cast<uint64_t>(value) > key.max) {
    Report(out, std::string(key.name),
           "The value (" + std::to_string(value) + ") is larger than the limit (" + std::to_string(key.max) + ").");
    return;
  }
  into = static_cast<uint64_t>(value);
}

void ReadValue(const ConfigKey& key, const toml::node& node, Config& config, Diagnostics& out) {
  if (const auto* text = std::get_if<std::string Config::*>(&key.member)) {
    ReadText(key, node, config.**text, out);
  } else if (const auto* number = std::get_if<uint64_t Config::*>(&key.member)) {
    ReadNumber(key, node, config.**number, out);
  } else if (node.is_boolean()) {
    config.*std::get<bool Config::*>(key.member) = node.as_boolean()->get();
  } else {
    Report(out, std::string(key.name), "The value is neither true nor false.");
  }
}

void ReadSection(std::string_view section, const toml::table& table, Config& config, Diagnostics& out) {
  for (const auto& [name_key, node] : table) {
    const std::string name = std::string(section) + "." + std::string(name_key.str());
    if (const ConfigKey* key = FindConfigKey(name); key != nullptr) {
      ReadValue(*key, node, config, out);
      continue;
    }
    NearMiss near(name_key.str(), EditsMax(name_key.str()));
    for (const ConfigKey& known : ConfigKeys()) {
      if (known.section() == section) {
        near.Offer(known.name_in_section());
      }
    }
    Report(out, name, "The key is not known." + Suggest(near));
  }
}

struct FileClose {
  void operator()(FILE* file) const { std::fclose(file); }
};

using limits::kGiB, limits::kKiB, limits::kMiB;
constexpr uint64_t kTiB = 1024 * kGiB, kPiB = 1024 * kTiB;

// Keys of the service itself and of limits on requests.
std::vector<ConfigKey> ServiceKeys() {
  return {
      {"server.listen", &Config::server_listen, 0, 0, kRestart},
      {"server.socket_mode", &Config::server_socket_mode, 0, 0777, kRestart},
      {"server.state_dir", &Config::server_state_dir, 0, 0, kRestart},
      {"server.reflection", &Config::server_reflection, 0, 0, kRestart},
      {"server.drain_ms", &Config::server_drain_ms, 0, kDayMs},
      {"server.reserve_bytes", &Config::server_reserve_bytes, 0, kGiB, kRestart},
      {"log.level", &Config::log_level, 0, 0, !kRestart, {"debug", "info", "warning", "error"}},
      {"log.format", &Config::log_format, 0, 0, !kRestart, {"text", "json"}},
      {"metrics.listen", &Config::metrics_listen, 0, 0, kRestart},
      {"metrics.token_file", &Config::metrics_token_file, 0, 0, kRestart},
      {"tracing.endpoint", &Config::tracing_endpoint, 0, 0, kRestart},
      {"tracing.sampled_per_mille", &Config::tracing_sampled_per_mille, 0, 1'000, kRestart},
      {"tenants.default", &Config::tenants_default},
      {"tenants.from_metadata", &Config::tenants_from_metadata},
      {"tenants.max", &Config::tenants_max, 1, 100'000},
      {"limits.message_bytes_max", &Config::limits_message_bytes_max, kMiB + 64 * kKiB, 256 * kMiB, kRestart},
      {"limits.metadata_bytes_max", &Config::limits_metadata_bytes_max, kKiB, kMiB, kRestart},
      {"limits.streams_per_connection_max", &Config::limits_streams_per_connection_max, 1, 10'000, kRestart},
      {"limits.module_bytes_max", &Config::limits_module_bytes_max, 1, kGiB},
      {"limits.document_bytes_max", &Config::limits_document_bytes_max, 1, kGiB},
      {"limits.stored_bytes_max", &Config::limits_stored_bytes_max, 1, kTiB},
      {"limits.buffer_bytes_max", &Config::limits_buffer_bytes_max, 1, kTiB},
      {"limits.buffers_bytes_max", &Config::limits_buffers_bytes_max, 1, kTiB},
      {"limits.buffers_max", &Config::limits_buffers_max, 1, 1'000'000},
      {"limits.host_bytes_max", &Config::limits_host_bytes_max, 0, kPiB},
      {"limits.prepared_graphs_max", &Config::limits_prepared_graphs_max, 1, 100'000},
      {"limits.graph_idle_ms_max", &Config::limits_graph_idle_ms_max, 1'000, 366 * kDayMs},
      {"limits.buffer_idle_ms_max", &Config::limits_buffer_idle_ms_max, 1'000, 366 * kDayMs},
      {"limits.yields_after_ms", &Config::limits_yields_after_ms, 0, 366 * kDayMs},
      {"limits.uploads_max", &Config::limits_uploads_max, 1, 10'000},
      {"limits.connections_max", &Config::limits_connections_max, 1, 100000, kRestart},
      {"limits.connections_per_peer_max", &Config::limits_connections_per_peer_max, 1, 100000, kRestart},
      {"limits.connections_per_user_max", &Config::limits_connections_per_user_max, 1, 100000, kRestart},
      {"limits.control_frames_per_second_max", &Config::limits_control_frames_per_second_max, 10, 1'000'000, kRestart},
      {"limits.resets_per_second_max", &Config::limits_resets_per_second_max, 10, 1'000'000, kRestart},
      {"limits.header_bytes_per_second_max", &Config::limits_header_bytes_per_second_max, 64 * kKiB, kGiB, kRestart},
      {"limits.calls_per_peer_max", &Config::limits_calls_per_peer_max, 1, 1'000'000, kRestart},
      {"limits.handshake_ms", &Config::limits_handshake_ms, 100, 60'000, kRestart},
      {"limits.write_stall_ms", &Config::limits_write_stall_ms, 1'000, 3'600'000, kRestart},
      {"limits.connection_idle_ms", &Config::limits_connection_idle_ms, 1000, 86400000, kRestart},
      {"limits.connection_age_ms", &Config::limits_connection_age_ms, 10000, 8640000000, kRestart},
  };
}

// Keys of jobs, devices, executors and graphs.
std::vector<ConfigKey> WorkKeys() {
  return {
      {"jobs.queued_per_tenant_max", &Config::jobs_queued_per_tenant_max, 1, 1'000'000},
      {"jobs.queued_max", &Config::jobs_queued_max, 1, 1'000'000},
      {"jobs.running_per_tenant_max", &Config::jobs_running_per_tenant_max, 1, 64},
      {"jobs.running_max", &Config::jobs_running_max, 1, 10'000},
      {"jobs.store", &Config::jobs_store, 0, 0, kRestart, {"sqlite", "memory"}},
      {"jobs.stored_bytes_max", &Config::jobs_stored_bytes_max, kMiB, kTiB},
      {"jobs.disk_bytes_max", &Config::jobs_disk_bytes_max, 0, kPiB},
      {"jobs.kept_bytes_max", &Config::jobs_kept_bytes_max, 0, kTiB},
      {"jobs.scrub_bytes_per_second", &Config::jobs_scrub_bytes_per_second, 0, kGiB, kRestart},
      {"jobs.scrub_every_ms", &Config::jobs_scrub_every_ms, 1'000, 366 * kDayMs, kRestart},
      {"jobs.attempts_default", &Config::jobs_attempts_default, 1, 10},
      {"jobs.array_max", &Config::jobs_array_max, 1, 100'000},
      {"jobs.dependencies_max", &Config::jobs_dependencies_max, 1, 10'000},
      {"jobs.kept_max", &Config::jobs_kept_max, 1, 10'000'000},
      {"jobs.kept_ms", &Config::jobs_kept_ms, 1'000, 366 * kDayMs},
      {"jobs.deadline_default_ms", &Config::jobs_deadline_default_ms, 1, 366 * kDayMs},
      {"jobs.deadline_max_ms", &Config::jobs_deadline_max_ms, 1, 366 * kDayMs},
      {"jobs.watchers_max", &Config::jobs_watchers_max, 1, 100'000},
      {"jobs.watchers_per_tenant_max", &Config::jobs_watchers_per_tenant_max, 1, 100'000},
      {"jobs.watch_bytes_per_tenant_max", &Config::jobs_watch_bytes_per_tenant_max, 0, kGiB},
      {"devices.backends", &Config::devices_backends, 0, 0, kRestart},
      {"devices.deny", &Config::devices_deny, 0, 0, kRestart},
      {"devices.health", &Config::devices_health, 0, 0, kRestart},
      {"devices.health_interval_ms", &Config::devices_health_interval_ms, 100, 60'000, kRestart},
      {"devices.health_temperature_max_c", &Config::devices_health_temperature_max_c, 0, 200},
      {"devices.nvml_library", &Config::devices_nvml_library, 0, 0, kRestart},
      {"cpu.reserved_cores", &Config::cpu_reserved_cores, 0, 0, kRestart},
      {"cpu.numa", &Config::cpu_numa, 0, 0, kRestart, {"off", "node"}},
      {"executor.path", &Config::executor_path, 0, 0, kRestart},
      {"executor.cpu_threads", &Config::executor_cpu_threads, 0, 4'096, kRestart},
      {"executor.spawn_ms_max", &Config::executor_spawn_ms_max, 100, 600'000},
      {"executor.prepare_ms_max", &Config::executor_prepare_ms_max, 100, kDayMs},
      {"executor.idle_ms_max", &Config::executor_idle_ms_max, 1'000, 366 * kDayMs},
      {"executor.crashes_max", &Config::executor_crashes_max, 1, 1'000},
      {"executor.crash_window_ms", &Config::executor_crash_window_ms, 100, kDayMs},
      {"executor.uid_first", &Config::executor_uid_first, 0, 4294967294, kRestart},
      {"executor.uid_count", &Config::executor_uid_count, 0, 1000000, kRestart},
      {"executor.spares", &Config::executor_spares, 0, 64},
      {"executor.sandbox_min", &Config::executor_sandbox_min, 0, 4},
      {"executor.sandbox_max", &Config::executor_sandbox_max, 0, 4},
      {"executor.cgroup", &Config::executor_cgroup, 0, 0, kRestart, {"auto", "none"}},
      {"executor.memory_bytes_max", &Config::executor_memory_bytes_max, 0, kPiB},
      {"executor.spill_bytes_max", &Config::executor_spill_bytes_max, 0, kPiB},
      {"executor.host_bytes_max", &Config::executor_host_bytes_max, 0, kPiB},
      {"executor.device_bytes_max", &Config::executor_device_bytes_max, 0, kPiB},
      {"executor.tasks_max", &Config::executor_tasks_max, 16, 100000},
      {"graph.nodes_max", &Config::graph_nodes_max, 1, limits::kGraphExpandedNodesMax},
      {"graph.edges_max", &Config::graph_edges_max, 1, 10 * limits::kGraphEdgesMax},
      {"graph.depth_max", &Config::graph_depth_max, 2, limits::kGraphDepthMax},
  };
}

// Keys of access, tenants' usage of the machine, and records of both.
std::vector<ConfigKey> AccessKeys() {
  return {
      {"tls.certificate", &Config::tls_certificate, 0, 0, kRestart},
      {"tls.key", &Config::tls_key, 0, 0, kRestart},
      {"tls.client_ca", &Config::tls_client_ca, 0, 0, kRestart},
      {"tls.client_certificates", &Config::tls_client_certificates, 0, 0, kRestart, {"none", "optional", "required"}},
      {"auth.tokens", &Config::auth_tokens, 0, 0, kRestart},
      {"auth.certificates", &Config::auth_certificates, 0, 0, kRestart},
      {"auth.peers", &Config::auth_peers, 0, 0, kRestart},
      {"auth.failures_per_second_max", &Config::auth_failures_per_second_max, 1, 10000},
      {"quota.device_seconds_per_hour", &Config::quota_device_seconds_per_hour, 0, 1000000000},
      {"quota.compile_seconds_per_hour", &Config::quota_compile_seconds_per_hour, 0, 1000000000},
      {"quota.device_bytes_max", &Config::quota_device_bytes_max, 0, kPiB},
      {"quota.host_bytes_max", &Config::quota_host_bytes_max, 0, kPiB},
      {"quota.disk_bytes_max", &Config::quota_disk_bytes_max, 0, kPiB},
      {"quota.modules_max", &Config::quota_modules_max, 0, 1000000000},
      {"quota.requests_per_second", &Config::quota_requests_per_second, 0, 1000000000},
      {"quota.request_bytes_per_second", &Config::quota_request_bytes_per_second, 0, kPiB},
      {"quota.job_wait_seconds_max", &Config::quota_job_wait_seconds_max, 0, 1000000000},
      {"quota.job_run_seconds_max", &Config::quota_job_run_seconds_max, 0, 1000000000},
      {"quota.job_device_seconds_max", &Config::quota_job_device_seconds_max, 0, 1000000000},
      {"scheduling.quantum_ms", &Config::scheduling_quantum_ms, 1, 10000},
      {"scheduling.revoke_grace_ms", &Config::scheduling_revoke_grace_ms, 1, 10000},
      {"audit.enabled", &Config::audit_enabled, 0, 0, kRestart},
      {"audit.file_bytes_max", &Config::audit_file_bytes_max, 65536, kTiB, kRestart},
      {"audit.keep_days", &Config::audit_keep_days, 0, 36'500},
      {"audit.bytes_max", &Config::audit_bytes_max, 0, kPiB},
      {"accounts.keep_days", &Config::accounts_keep_days, 1, 4'000},
      {"identity.stale_ms", &Config::identity_stale_ms, 1'000, 3'600'000, kRestart},
      {"cluster.database", &Config::cluster_database, 0, 0, kRestart},
      {"cluster.host", &Config::cluster_host, 0, 0, kRestart},
      {"cluster.role", &Config::cluster_role, 0, 0, kRestart, {"all", "api", "agent"}},
      {"cluster.blob_dir", &Config::cluster_blob_dir, 0, 0, kRestart},
      {"cluster.labels", &Config::cluster_labels, 0, 0, kRestart},
      {"cluster.address", &Config::cluster_address, 0, 0, kRestart},
      {"cluster.memory_bytes", &Config::cluster_memory_bytes, 0, kPiB, kRestart},
      {"cluster.claims_max", &Config::cluster_claims_max, 1, 1'000, kRestart},
      {"cluster.lease_ms", &Config::cluster_lease_ms, 5'000, 300'000, kRestart},
  };
}

}  // namespace

const std::vector<ConfigKey>& ConfigKeys() {
  static const std::vector<ConfigKey>* keys = [] {
    auto* all = new std::vector<ConfigKey>(ServiceKeys());
    for (const std::vector<ConfigKey>& more : {WorkKeys(), AccessKeys()}) {
      all->insert(all->end(), more.begin(), more.end());
    }
    return all;
  }();
  return *keys;
}

const ConfigKey* FindConfigKey(std::string_view name) {
  const auto found =
      std::find_if(ConfigKeys().begin(), ConfigKeys().end(), [&](const ConfigKey& key) { return key.name == name; });
  return found == ConfigKeys().end() ? nullptr : &*found;
}

ConfigOutcome ParseConfig(std::string_view text) {
  ConfigOutcome outcome;
  if (const size_t at = FindBadTomlCharacter(text); at != text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n');
    Report(outcome.diagnostics, "line " + std::to_string(line),
           "The file is not TOML: it has a control character, or a character beyond ASCII outside of comments and of "
           "strings that are a key's value.");
    return outcome;
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    Report(
        outcome.diagnostics,
        "line " + std::to_string(error.source().begin.line) + ", column " + std::to_string(error.source().begin.column),
        "The file is not TOML: " + std::string(error.description()) + ".");
    return outcome;
  }
  for (const auto& [name_key, node] : parsed.table()) {
    const std::string name(name_key.str());
    NearMiss near(name, EditsMax(name));
    bool is_known = false;
    for (const ConfigKey& key : ConfigKeys()) {
      is_known |= key.section() == name;
      near.Offer(key.section());
    }
    if (!is_known) {
      Report(outcome.diagnostics, name, "The section is not known." + Suggest(near));
    } else if (!node.is_table()) {
      Report(outcome.diagnostics, name, "The value is not a section; write [" + name + "].");
    } else {
      ReadSection(name, *node.as_table(), outcome.config, outcome.diagnostics);
    }
  }
  if (outcome.diagnostics.empty()) {
    outcome.diagnostics = CheckConfig(outcome.config);
  }
  return outcome;
}

// Rejects a connection string with a password, which hpvmctl config would show.
static void CheckCluster(const Config& config, Diagnostics* out) {
  const std::string& database = config.cluster_database;
  const bool is_url = database.starts_with("postgresql://") || database.starts_with("postgres://");
  if (!database.empty() && !is_url && !database.starts_with("sqlite:/")) {
    Report(*out, "cluster.database",
           "The database is neither postgresql://user@host/name nor sqlite:/path, an absolute path.");
  }
  const size_t at = database.find('@');
  const size_t user = database.find("://");
  const bool has_password = is_url && at != std::string::npos && database.find(':', user + 3) < at;
  if (has_password || database.find("password=") != std::string::npos) {
    Report(*out, "cluster.database",
           "The connection string has a password. Put it into a file with mode 0600 and add "
           "?passfile=/path/of/the/file.");
  }
}

Diagnostics CheckConfig(const Config& config) {
  Diagnostics out;
  CheckCluster(config, &out);
  const StatusOr<std::vector<ListenAddress>> listen = ParseListen(config.server_listen);
  if (!listen.ok()) {
    Report(out, "server.listen", Message(listen.status()));
  }
  CheckAccess(config, listen.value_or(std::vector<ListenAddress>{}), &out);
  if (!config.tracing_endpoint.empty()) {
    if (const StatusOr<HttpTarget> endpoint = ParseHttpTarget(config.tracing_endpoint); !endpoint.ok()) {
      Report(out, "tracing.endpoint", Message(endpoint.status()));
    }
  }
  if (config.server_state_dir.empty() || config.server_state_dir[0] != '/') {
    Report(out, "server.state_dir", "The folder (\"" + config.server_state_dir + "\") is not an absolute path.");
  }
  if (!IsTenantName(config.tenants_default)) {
    Report(out, "tenants.default",
           "The name (\"" + config.tenants_default +
               "\") is not 1 to 63 characters of a-z, 0-9, - and _ that start with a letter.");
  }
  if (const StatusOr<std::vector<std::string>> families = FamiliesOf(config.devices_backends); !families.ok()) {
    Report(out, "devices.backends", Message(families.status()));
  }
  if (const Status deny = CheckDeviceNames(config.devices_deny); !deny.ok()) {
    Report(out, "devices.deny", Message(deny));
  }
  if (config.devices_nvml_library.empty()) {
    Report(out, "devices.nvml_library", "The name is empty; to load no library, set devices.health = false.");
  }
  // The first may not be larger than the second.
  constexpr std::pair<std::string_view, std::string_view> kOrdered[] = {
      {"limits.buffer_bytes_max", "limits.buffers_bytes_max"},  {"limits.module_bytes_max", "limits.stored_bytes_max"},
      {"limits.document_bytes_max", "limits.stored_bytes_max"}, {"jobs.queued_per_tenant_max", "jobs.queued_max"},
      {"jobs.running_per_tenant_max", "jobs.running_max"},      {"jobs.deadline_default_ms", "jobs.deadline_max_ms"}};
  const auto number = [&](std::string_view name) {
    return config.*std::get<uint64_t Config::*>(FindConfigKey(name)->member);
  };
  for (const auto& [place, other] : kOrdered) {
    if (const uint64_t value = number(place), limit = number(other); value > limit) {
      Report(out, std::string(place),
             "The value (" + std::to_string(value) + ") is larger than " + std::string(other) + " (" +
                 std::to_string(limit) + ").");
    }
  }
  return out;
}

bool IsTenantName(std::string_view name) {
  if (name.empty() || name.size() > 63 || name[0] < 'a' || name[0] > 'z') {
    return false;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_'; });
}

StatusOr<Config> LoadConfig(const std::string& path) {
  std::unique_ptr<FILE, FileClose> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) {
    return FromErrno(errno, "Opening the configuration \"" + path + "\"");
  }
  constexpr size_t kFileBytesMax = 1 * limits::kMiB;
  std::string text(kFileBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return FromErrno(errno, "Reading the configuration \"" + path + "\"");
  }
  if (text.size() > kFileBytesMax) {
    return InvalidArgument("The configuration \"" + path + "\" is larger than the limit (" +
                           std::to_string(kFileBytesMax) + " bytes).");
  }
  ConfigOutcome outcome = ParseConfig(text);
  if (HasErrors(outcome.diagnostics)) {
    return While(ToStatus(outcome.diagnostics), "reading the configuration \"" + path + "\"");
  }
  return outcome.config;
}

}  // namespace hpvm::server
