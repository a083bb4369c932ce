// SPDX-License-Identifier: Apache-2.0
// Tests limits of connections and metadata through gRPC itself: at the limit, and one beyond it.
#include <functional>
#include <thread>
#include <vector>

#include "server/testing/access_fixture.h"

namespace hpvm::server {
namespace {

class ConnectionLimitsTest : public AccessFixture {
 protected:
  ConnectionLimitsTest() {
    config_.auth_tokens = false;
    config_.server_listen = "127.0.0.1:0";
  }

  // Opens a separate connection.
  std::shared_ptr<grpc::Channel> Connect() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 1 << 20);
    return grpc::CreateCustomChannel(daemon_->addresses().front(), grpc::InsecureChannelCredentials(), arguments);
  }
  static grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, size_t metadata_bytes = 0) {
    const auto context = With("");
    if (metadata_bytes > 0) {
      context->AddMetadata("x-filler", std::string(metadata_bytes, 'x'));
    }
    v1::ServerInfoResponse info;
    return v1::Hpvm::NewStub(channel)->ServerInfo(context.get(), v1::ServerInfoRequest(), &info);
  }
  static bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 1'000; ++i) {
      if (condition()) {
        return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
};

TEST_F(ConnectionLimitsTest, OfOneAddress) {
  config_.limits_connections_per_peer_max = 3;
  Start();
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 3; ++i) {
    channels.push_back(Connect());
    EXPECT_TRUE(Ask(channels.back()).ok()) << i;
  }
  const auto late = Connect();
  EXPECT_EQ(Ask(late).error_code(), grpc::UNAVAILABLE);
  // Earlier clients are not affected, and closing one makes room.
  EXPECT_TRUE(Ask(channels.front()).ok());
  channels.pop_back();
  EXPECT_TRUE(Eventually([&] { return Ask(Connect()).ok(); }));
}

TEST_F(ConnectionLimitsTest, OfAllOnUnixSockets) {
  config_.server_listen = "unix:" + folder_ + "/s";
  config_.limits_connections_per_peer_max = 1;
  config_.limits_connections_max = 2;
  Start();
  const auto first = Connect(), second = Connect();
  EXPECT_TRUE(Ask(first).ok());
  EXPECT_TRUE(Ask(second).ok());
  EXPECT_EQ(Ask(Connect()).error_code(), grpc::UNAVAILABLE);
}

TEST_F(ConnectionLimitsTest, IdleOnesAreClosed) {
  config_.limits_connection_idle_ms = 1'000;
  Start();
  const auto channel = Connect();
  EXPECT_TRUE(Ask(channel).ok());
  EXPECT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_TRUE(Eventually([&] { return channel->GetState(false) == GRPC_CHANNEL_IDLE; }));
  EXPECT_TRUE(Ask(channel).ok());  // It reconnects.
}

TEST_F(ConnectionLimitsTest, Metadata) {
  config_.limits_metadata_bytes_max = 8 * limits::kKiB;
  Start();
  const auto channel = Connect();
  EXPECT_TRUE(Ask(channel, 7 * limits::kKiB).ok());
  EXPECT_EQ(Ask(channel, 8 * limits::kKiB).error_code(), grpc::RESOURCE_EXHAUSTED);
  // The connection may have been closed because of the metadata.
  EXPECT_TRUE(Eventually([&] { return Ask(channel).ok(); }));
}

}  // namespace
}  // namespace hpvm::server
