// SPDX-License-Identifier: Apache-2.0
// Config is the daemon's configuration: a TOML file, every key checked, and the values that the command line
// overrides.
//
// All keys are in one table (ConfigKeys), on which reading, checking and the tests of schemas/config.schema.json are
// based.
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

// Initialised to the defaults. Names are section_key.
struct Config {
  // "unix:/path" or "host:port"; several are separated by commas.
  std::string server_listen = "unix:/run/hpvmd/hpvmd.sock";
  uint64_t server_socket_mode = 0600;
  std::string server_state_dir = "/var/lib/hpvmd";
  bool server_reflection = false;
  uint64_t server_drain_ms = 30'000;
  // Bytes kept free on the disk of server.state_dir for when it is full; a sixteenth of a smaller disk.
  uint64_t server_reserve_bytes = 16 * limits::kMiB;

  std::string log_level = "info";
  std::string log_format = "text";

  // "host:port" for Prometheus metrics and health over HTTP; none when empty.
  std::string metrics_listen;
  // File with the secret that lets a scraper see metrics that name tenants.
  std::string metrics_token_file;
  // "http://host:port" of an OpenTelemetry collector (OTLP over HTTP); no spans are exported when empty.
  std::string tracing_endpoint;
  // Number of recorded traces per 1,000 that begin here; a caller's decision about its own trace is obeyed.
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
  // Time after which unused objects are deleted, or give way to new ones of the same tenant at the limit.
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
  // "sqlite" keeps jobs on disk in server.state_dir; "memory" loses them with the daemon.
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
  std::string devices_deny;  // Families, ids, UUIDs and bus addresses, separated by commas.
  bool devices_health = true;
  uint64_t devices_health_interval_ms = 1'000;
  uint64_t devices_health_temperature_max_c = 95;  // None when 0.
  std::string devices_nvml_library = "libnvidia-ml.so.1";

  std::string cpu_reserved_cores = "0";  // See CheckReservedCores.
  std::string cpu_numa = "off";

  std::string executor_path;          // hpvm-executor beside hpvmd when empty.
  uint64_t executor_cpu_threads = 0;  // As many as the machine has when 0.
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
  uint64_t quota_job_wait_seconds_max = 0;
  uint64_t quota_job_run_seconds_max = 0;
  uint64_t quota_job_device_seconds_max = 0;

  uint64_t scheduling_quantum_ms = 5;
  uint64_t scheduling_revoke_grace_ms = 10;

  bool audit_enabled = true;
  uint64_t audit_file_bytes_max = 67108864;
  // Retention of the audit: minimum days and maximum bytes; unlimited when 0.
  uint64_t audit_keep_days = 0;
  uint64_t audit_bytes_max = 0;

  // Number of days for which tenants' usage is kept (hpvmctl usage).
  uint64_t accounts_keep_days = 400;

  // Time for which identities count while the cluster's database cannot be reached.
  uint64_t identity_stale_ms = 60'000;

  // A database that several hosts share (docs/CLUSTER.md); none when empty.
  std::string cluster_database;
  std::string cluster_host;  // This machine's name when empty.
  std::string cluster_role = "all";
  std::string cluster_blob_dir;
  std::string cluster_labels;   // Separated by commas.
  std::string cluster_address;  // "host:port".
  uint64_t cluster_memory_bytes = 0;
  uint64_t cluster_claims_max = 16;
  uint64_t cluster_lease_ms = 10'000;
};

struct ConfigKey {
  std::string_view name;  // "section.name".
  std::variant<std::string Config::*, bool Config::*, uint64_t Config::*> member;
  uint64_t min = 0, max = 0;              // For numbers.
  bool needs_restart = false;             // A reload keeps the old value and reports it.
  std::vector<std::string_view> choices;  // For texts; any when empty.

  std::string_view section() const { return name.substr(0, name.find('.')); }
  std::string_view name_in_section() const { return name.substr(name.find('.') + 1); }
};
const std::vector<ConfigKey>& ConfigKeys();
const ConfigKey* FindConfigKey(std::string_view name);  // Returns null when there is none.

struct ConfigOutcome {
  Config config;
  Diagnostics diagnostics;  // Places are "section.key", or empty for the whole file.
};

// Parses TOML and reports every fault: unknown keys with the nearest known one, wrong types, values beyond their
// limits.
ConfigOutcome ParseConfig(std::string_view text);
// Returns kNotFound or kPermissionDenied for the file, kInvalidArgument with every fault for its contents.
StatusOr<Config> LoadConfig(const std::string& path);
// Checks rules that involve several keys; also for values from the command line.
Diagnostics CheckConfig(const Config& config);

// Accepts 1 to 63 characters of a-z, 0-9, - and _, beginning with a letter.
bool IsTenantName(std::string_view name);

}  // namespace hpvm::server

#endif  // HPVMD_SERVER_CONFIG_CONFIG_H_
