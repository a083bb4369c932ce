// SPDX-License-Identifier: Apache-2.0
#include "client/channel.h"

#include "base/limits.h"
#include "hpvm/v1/service.grpc.pb.h"

namespace hpvm {
namespace {

using Instant = std::chrono::system_clock::time_point;

std::string Quoted(const std::string& text) { return "\"" + text + "\""; }

bool Has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Returns why the channel does not connect, as gRPC tells a call that does not wait.
std::string AskWhy(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  v1::ServerInfoResponse response;
  return v1::Hpvm::NewStub(channel)->ServerInfo(&context, v1::ServerInfoRequest(), &response).error_message();
}

// `failure` is gRPC's text about the last attempt.
Status NoAnswer(const Endpoint& endpoint, Duration within, const std::string& failure) {
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(within).count();
  // A server that speaks TLS closes plain-text connections.
  const bool was_closed = Has(failure, "Socket closed") || Has(failure, "read failed") || Has(failure, "Delayed close");
  return Unavailable("No hpvmd answers at " + Quoted(endpoint.target) + " within " + std::to_string(ms) + " ms" +
                     (endpoint.tls ? " over TLS." : ".") +
                     (was_closed && !endpoint.tls && endpoint.unix_path.empty()
                          ? " A program listens there, but closes the connection; if it is a server with TLS, its "
                            "address is https://" +
                                endpoint.target + "."
                          : ""));
}

// Waits until the channel is connected, at most `within`. An untrusted certificate ends the wait at once, because
// retries would not help.
Status AwaitConnection(const std::shared_ptr<grpc::Channel>& channel, const Endpoint& endpoint,
                       const Credentials& credentials, Duration within) {
  const Instant end = std::chrono::system_clock::now() + within;
  std::string failure;
  for (;;) {
    const grpc_connectivity_state state = channel->GetState(true);
    if (state == GRPC_CHANNEL_READY) {
      return absl::OkStatus();
    }
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      failure = AskWhy(channel);
      if (const std::string told = ExplainHandshake(failure, endpoint, credentials); !told.empty()) {
        return MakeStatus(absl::StatusCode::kUnauthenticated, told);
      }
    }
    if (std::chrono::system_clock::now() >= end) {
      return NoAnswer(endpoint, within, failure);
    }
    channel->WaitForStateChange(state, end);
  }
}

}  // namespace

std::string ExplainHandshake(const std::string& failure, const Endpoint& endpoint, const Credentials& credentials) {
  const std::string server = "The server at " + Quoted(endpoint.target);
  if (Has(failure, "CERTIFICATE_VERIFY_FAILED") || Has(failure, "certificate verify failed")) {
    return server + " shows a certificate that no authority of " +
           (credentials.ca_file.empty() ? std::string("this system") : Quoted(credentials.ca_file)) +
           " has signed, or one that is not valid now. Give the certificate of the server's own authority with "
           "credentials.ca_file (hpvmctl --ca).";
  }
  if (Has(failure, "is not in peer certificate") || Has(failure, "Hostname Verification Check failed")) {
    return server +
           " shows a certificate for another name. Give the name in the certificate with credentials.server_name "
           "(hpvmctl --server-name).";
  }
  if (Has(failure, "WRONG_VERSION_NUMBER") || Has(failure, "wrong version number") ||
      Has(failure, "packet length too long") || Has(failure, "http request")) {
    return server + " does not speak TLS; give its address without https://, and leave out --ca, --cert and --key.";
  }
  if (Has(failure, "CERTIFICATE_REQUIRED") || Has(failure, "certificate required")) {
    return server + " requires a client certificate; give one with --cert and --key.";
  }
  if (Has(failure, "alert unknown ca") || Has(failure, "UNKNOWN_CA") || Has(failure, "bad certificate")) {
    return server + " does not accept the client's certificate (" + Quoted(credentials.certificate_file) + ").";
  }
  return "";
}

StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const Endpoint& endpoint, const Credentials& credentials,
                                                     Duration within) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(limits::kMessageBytesMax));
  arguments.SetMaxSendMessageSize(static_cast<int>(limits::kMessageBytesMax));
  // Reconnects within a second after a server has come back.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  // Detects a dead server machine during calls that wait in silence.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  std::shared_ptr<grpc::ChannelCredentials> security = grpc::InsecureChannelCredentials();
  if (endpoint.tls) {
    HPVMD_ASSIGN_OR_RETURN(const TlsFiles files, ReadTlsFiles(credentials));
    security = grpc::SslCredentials({files.authorities, files.key, files.certificate});
    if (!credentials.server_name.empty()) {
      arguments.SetSslTargetNameOverride(credentials.server_name);
    }
  }
  std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(endpoint.target, security, arguments);
  HPVMD_RETURN_IF_ERROR(AwaitConnection(channel, endpoint, credentials, within));
  return channel;
}

}  // namespace hpvm
