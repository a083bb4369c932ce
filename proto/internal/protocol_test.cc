// SPDX-License-Identifier: Apache-2.0
#include "proto/internal/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <type_traits>

namespace hpvm {
namespace {

using internal::Envelope;
using ::testing::HasSubstr;

// Bytes from another process become no message without the checks.
static_assert(!std::is_convertible_v<Unchecked<Envelope>, Envelope>);
static_assert(!std::is_constructible_v<Envelope, Unchecked<Envelope>>);
static_assert(!std::is_copy_constructible_v<Unchecked<Envelope>>);

const std::vector<std::string>& Devices() {
  static const auto* const devices = new std::vector<std::string>{"cpu:0"};
  return *devices;
}

StatusOr<Envelope> Receive(const Envelope& envelope, size_t body_bytes = 0) {
  HPVMD_ASSIGN_OR_RETURN(Unchecked<Envelope> said, ParseHead(envelope.SerializeAsString()));
  return CheckFromExecutor(std::move(said), body_bytes, 0, Devices());
}

Envelope DoneOf() {
  Envelope envelope;
  envelope.set_request_id(1);
  envelope.mutable_run_done()->mutable_status();
  v1::NodePlacement& node = *envelope.mutable_run_done()->add_nodes();
  node.set_device("cpu:0");
  node.set_math("exact");
  return envelope;
}

// The fuzzer begins with messages that both ends accept (tests/fuzz/protocol_seeds.py).
TEST(ProtocolTest, SeedsAreAccepted) {
  size_t seeds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(HPVMD_SOURCE_DIR "/tests/fuzz/protocol")) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string seed((std::istreambuf_iterator<char>(file)), {});
    ASSERT_GE(seed.size(), 3u);
    StatusOr<Unchecked<Envelope>> said = ParseHead(std::string_view(seed).substr(3));
    ASSERT_TRUE(said.ok()) << entry.path();
    const size_t body_bytes = static_cast<uint8_t>(seed[1]) * size_t{16};
    const StatusOr<Envelope> checked = (seed[0] & 1) != 0
                                           ? CheckFromExecutor(*std::move(said), body_bytes, 0, Devices())
                                           : CheckToExecutor(*std::move(said), body_bytes, 0);
    EXPECT_TRUE(checked.ok()) << entry.path() << ": " << Message(checked.status());
    ++seeds;
  }
  EXPECT_GE(seeds, 10u);
}

// Nothing that no check has looked at goes on to a client.
TEST(ProtocolTest, UnknownFieldsAreDropped) {
  Envelope envelope = DoneOf();
  ASSERT_TRUE(Receive(envelope).ok());
  v1::NodePlacement& node = *envelope.mutable_run_done()->mutable_nodes(0);
  node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(900, "smuggled");
  const StatusOr<Envelope> received = Receive(envelope);
  ASSERT_TRUE(received.ok()) << Message(received.status());
  EXPECT_EQ(received->SerializeAsString().find("smuggled"), std::string::npos);
}

// The daemon takes from no executor what it says itself, nor devices that the executor did not list.
TEST(ProtocolTest, RecordsAreHeldAgainstReady) {
  const struct {
    void (*spoil)(internal::RunDone&);
    const char* message;
  } cases[] = {
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_device("cpu:1"); }, "nodes.device names a device"},
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_math("quick"); }, "neither exact nor fast"},
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_start_ns(1); }, "ends before it starts"},
      {[](internal::RunDone& done) { done.mutable_timing()->set_total_ns(1); }, "not the executor's to say"},
      {[](internal::RunDone& done) { done.mutable_traffic()->set_lost_devices(1); }, "not the number of left_devices"},
      {[](internal::RunDone& done) { done.add_left_devices("vulkan:0"); }, "left_devices names a device"},
  };
  for (const auto& c : cases) {
    Envelope envelope = DoneOf();
    c.spoil(*envelope.mutable_run_done());
    EXPECT_THAT(Message(Receive(envelope).status()), HasSubstr(c.message));
  }
  Envelope checker = DoneOf();
  checker.mutable_run_done()->mutable_nodes(0)->set_device(kCheckerName);
  EXPECT_TRUE(Receive(checker).ok());
}

}  // namespace
}  // namespace hpvm
