// SPDX-License-Identifier: Apache-2.0
// The daemon's configuration: a TOML file, every key checked, and what the command line sets on top.
//
// The keys stand in one table (ConfigKeys), from which reading, checking and the tests of schemas/config.schema.json
// work.
#ifndef HPVMD_SERVER_CONFIG_CONFIG_H_
#define HPVMD_SERVER_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.h"
#include "base/limits.h"
#include "base/status.h"
#include "server/config/address.h"

namespace hpvm::server {

// Defaults as written here. Names are section_key.
struct Config {
  // "unix:/path", "host:port". Several may be given, separated by commas.
  std::string server_listen = "unix:/run/hpvmd/hpvmd.sock";
  uint64_t server_socket_mode = 0600;
  std::string server_state_dir = "/var/lib/hpvmd";
  bool server_reflection = false;
  uint64_t server_drain_ms = 30'000;
  // Kept free on the disk of server.state_dir for when it is full; a sixteenth of a smaller disk.
  uint64_t server_reserve_bytes = 16 * limits::kMiB;

  std::string log_level = "info";
  std::string log_format = "text";

  // Prometheus metrics and health over HTTP: "host:port"; empty: none.
  std::string metrics_listen;
  // With the secret that lets a scraper see metrics that name tenants.
  std::string metrics_token_file;
  // "http://host:port" of an OpenTelemetry collector (OTLP over HTTP); empty: no spans are exported.
  std::string tracing_endpoint;
  // Of 1,000 traces that begin here, how many are recorded; what a caller says about its own trace is obeyed.
  uint64_t tracing_sampled_per_mille = 1'000;

  std::string tenants_default = "local";
  bool tenants_from_metadata = false;
  uint64_t tenants_max = 1'000;

  uint64_t limits_message_bytes_max = limits::kMessageBytesMax;
  uint64_t limits_metadata_bytes_max = 16 * limits::kKiB;
  uint64_t limits_streams_per_connection_max = 100;
  uint64_t limits_module_bytes_max = limits::kModuleBytesMax;
  uint64_t limits_document_bytes_max = limits::kGraphDocumentBytesMax;
  uint64_t limits_stored_bytes_max = 1 * limits::kGiB;
  uint64_t limits_buffer_bytes_max = 16 * limits::kGiB;
  uint64_t limits_buffers_bytes_max = 64 * limits::kGiB;
  uint64_t limits_buffers_max = 10'000;
  uint64_t limits_prepared_graphs_max = 1'000;
  // What nobody has used for so long goes by itself, or gives way to something new of its tenant's at the limit.
  uint64_t limits_graph_idle_ms_max = 86'400'000;
  uint64_t limits_buffer_idle_ms_max = 86'400'000;
  uint64_t limits_yields_after_ms = 600'000;
  uint64_t limits_uploads_max = 64;
  uint64_t limits_host_bytes_max = 0;
  uint64_t limits_connections_max = 1024;
  uint64_t limits_connections_per_peer_max = 32;
  uint64_t limits_connections_per_user_max = 128;
  uint64_t limits_control_frames_per_second_max = 200;
  uint64_t limits_resets_per_second_max = 200;
  uint64_t limits_header_bytes_per_second_max = 16 * limits::kMiB;
  uint64_t limits_calls_per_peer_max = 1024;
  uint64_t limits_handshake_ms = 10000;
  uint64_t limits_write_stall_ms = 60000;
  uint64_t limits_connection_idle_ms = 300000;
  uint64_t limits_connection_age_ms = 3600000;

  uint64_t jobs_queued_per_tenant_max = 1'000;
  uint64_t jobs_queued_max = 10'000;
  uint64_t jobs_running_per_tenant_max = 16;
  uint64_t jobs_running_max = 64;
  // "sqlite": on disk in server.state_dir; "memory": gone with the daemon.
  std::string jobs_store = "sqlite";
  uint64_t jobs_stored_bytes_max = 16 * limits::kGiB;
  uint64_t jobs_disk_bytes_max = 0;
  uint64_t jobs_kept_max = 10'000;
  uint64_t jobs_kept_ms = 86'400'000;
  uint64_t jobs_kept_bytes_max = 8 * limits::kGiB;
  uint64_t jobs_scrub_bytes_per_second = 4 * limits::kMiB;
  uint64_t jobs_scrub_every_ms = 86'400'000;
  uint64_t jobs_attempts_default = 3;
  uint64_t jobs_array_max = 1'000;
  uint64_t jobs_dependencies_max = 64;
  uint64_t jobs_deadline_default_ms = 600'000;
  uint64_t jobs_deadline_max_ms = 86'400'000;
  uint64_t jobs_watchers_max = 1'000;
  uint64_t jobs_watchers_per_tenant_max = 250;
  uint64_t jobs_watch_bytes_per_tenant_max = limits::kMiB;

  std::string devices_backends = "auto";

  std::string executor_path;          // Empty: hpvm-executor beside hpvmd.
  uint64_t executor_cpu_threads = 0;  // 0: as many as the machine has.
  uint64_t executor_spawn_ms_max = 10'000;
  uint64_t executor_prepare_ms_max = 600'000;
  uint64_t executor_idle_ms_max = 600'000;
  uint64_t executor_crashes_max = 3;
  uint64_t executor_crash_window_ms = 60'000;
  uint64_t executor_uid_first = 0;
  uint64_t executor_uid_count = 1000;
  uint64_t executor_spares = 1;
  uint64_t executor_sandbox_min = 1;
  uint64_t executor_sandbox_max = 4;
  std::string executor_cgroup = "auto";
  uint64_t executor_memory_bytes_max = 0;
  uint64_t executor_spill_bytes_max = 0;
  uint64_t executor_host_bytes_max = 0;
  uint64_t executor_device_bytes_max = 0;
  uint64_t executor_tasks_max = 512;

  uint64_t graph_nodes_max = limits::kGraphNodesMax;
  uint64_t graph_edges_max = limits::kGraphEdgesMax;
  uint64_t graph_depth_max = limits::kGraphDepthMax;

  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  std::string tls_client_certificates = "none";

  bool auth_tokens = false;
  bool auth_certificates = false;
  bool auth_peers = false;
  uint64_t auth_failures_per_second_max = 5;

  uint64_t quota_device_seconds_per_hour = 28'800;
  uint64_t quota_compile_seconds_per_hour = 3'600;
  uint64_t quota_device_bytes_max = 128 * limits::kGiB;
  uint64_t quota_host_bytes_max = 0;
  uint64_t quota_disk_bytes_max = 0;
  uint64_t quota_modules_max = 10'000;
  uint64_t quota_requests_per_second = 50'000;
  uint64_t quota_request_bytes_per_second = 16 * limits::kGiB;

  uint64_t scheduling_quantum_ms = 5;
  uint64_t scheduling_revoke_grace_ms = 10;

  bool audit_enabled = true;
  uint64_t audit_file_bytes_max = 67108864;
  // Of the record, what is kept at least and where it ends; 0: all of it, for ever.
  uint64_t audit_keep_days = 0;
  uint64_t audit_bytes_max = 0;

  // Days of what tenants used (hpvmctl usage).
  uint64_t accounts_keep_days = 400;
};

struct ConfigKey {
  std::string_view name;  // "section.name".
  std::variant<std::string Config::*, bool Config::*, uint64_t Config::*> member;
  uint64_t min = 0, max = 0;              // Numbers.
  bool needs_restart = false;             // A reload keeps the old value and says so.
  std::vector<std::string_view> choices;  // Texts; empty: any.

  std::string_view section() const { return name.substr(0, name.find('.')); }
  std::string_view name_in_section() const { return name.substr(name.find('.') + 1); }
};
const std::vector<ConfigKey>& ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);  // Null: there is none.

struct ConfigOutcome {
  Config config;
  Diagnostics diagnostics;  // Places are "section.key", or empty for the file as a whole.
};

// Reads TOML. Every fault is reported: unknown keys with the nearest known one, wrong types, values beyond their
// limits.
ConfigOutcome ParseConfig(std::string_view text);
// kNotFound or kPermissionDenied for the file, kInvalidArgument with every fault for its contents.
StatusOr<Config> LoadConfig(const std::string& path);
// Rules that join several keys. Also for values from the command line.
Diagnostics CheckConfig(const Config& config);

// 1 to 63 characters of a-z, 0-9, - and _, a letter first.
bool IsTenantName(std::string_view name);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_H_
