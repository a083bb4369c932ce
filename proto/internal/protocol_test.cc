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

// Bytes from another process cannot become a message without the checks.
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

std::string SeedNamed(const std::string& name) {
  std::ifstream file(HPVMD_SOURCE_DIR "/tests/fuzz/protocol/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns a valid message of an executor.
Envelope Seed(const std::string& name) {
  const std::string seed = SeedNamed(name);
  return *CheckFromExecutor(*ParseHead(std::string_view(seed).substr(3)), 0, 0, Devices());
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

// Events carry only lines that kernels print while they run, within the limits of a log.
TEST(ProtocolTest, EventsHaveLinesOnly) {
  struct Case {
    const char* name;
    void (*change)(internal::Event& event);
    const char* want;  // Null when the event is accepted.
  };
  constexpr Case kCases[] = {
      {"lines", [](auto&) {}, nullptr},
      {"unknown kind", [](auto& e) { e.set_kind(internal::Event::KIND_UNSPECIFIED); }, "kind is unknown"},
      {"start with a log", [](auto& e) { e.set_kind(internal::Event::KIND_STARTED); }, "has no log"},
      {"no lines", [](auto& e) { e.mutable_log()->clear_lines(); }, "log.lines"},
      {"findings", [](auto& e) { e.mutable_log()->add_findings()->set_kind("race"); }, "fields other than lines"},
      {"dropped", [](auto& e) { e.mutable_log()->set_lines_dropped(1); }, "fields other than lines"},
      {"two lines in one", [](auto& e) { e.mutable_log()->mutable_lines(0)->set_text("a\nb"); }, "more than one line"},
      {"escapes", [](auto& e) { e.mutable_log()->mutable_lines(0)->set_text("\x1b[2J"); }, "log.lines.text"},
      {"a long line", [](auto& e) { e.mutable_log()->mutable_lines(0)->set_text(std::string(5'000, 'x')); }, "log."},
      {"many lines",
       [](auto& e) {
         for (int i = 0; i < 1'000; ++i) {
           e.mutable_log()->add_lines();
         }
       },
       "log.lines"},
  };
  for (const Case& one : kCases) {
    Envelope envelope;
    envelope.set_request_id(1);
    envelope.mutable_event()->set_kind(internal::Event::KIND_LOG);
    envelope.mutable_event()->mutable_log()->add_lines()->set_text("in[0] is 6");
    one.change(*envelope.mutable_event());
    const Status checked = Receive(envelope).status();
    EXPECT_EQ(checked.ok(), one.want == nullptr) << one.name << ": " << checked;
    EXPECT_THAT(Message(checked), HasSubstr(one.want == nullptr ? "" : one.want)) << one.name;
  }
}

// An executor reports only the names by which the daemon finds a device, and nothing else of its health.
TEST(ProtocolTest, ReadyHasNamesOfDevicesOnly) {
  struct Case {
    const char* name;
    void (*change)(v1::Device& device);
    const char* want;  // Null when the device is accepted.
  };
  const Case cases[] = {
      {"names", [](auto& d) { d.mutable_health()->set_uuid("GPU-1"), d.mutable_health()->set_bus("0000:1b:00.0"); },
       nullptr},
      {"longest uuid", [](auto& d) { d.mutable_health()->set_uuid(std::string(kDeviceIdBytesMax, 'u')); }, nullptr},
      {"long uuid", [](auto& d) { d.mutable_health()->set_uuid(std::string(kDeviceIdBytesMax + 1, 'u')); },
       "devices.health.uuid"},
      {"long bus", [](auto& d) { d.mutable_health()->set_bus(std::string(kDeviceIdBytesMax + 1, 'b')); },
       "devices.health.bus"},
      {"escapes", [](auto& d) { d.mutable_health()->set_uuid("\x1b[2J"); }, "devices.health.uuid"},
      {"a fence", [](auto& d) { d.mutable_health()->set_fence("too hot"); }, "devices.health"},
      {"a temperature", [](auto& d) { d.mutable_health()->set_temperature_c(30); }, "devices.health"},
      {"a pause", [](auto& d) { d.mutable_paused(); }, "devices.paused"},
  };
  for (const Case& one : cases) {
    Envelope envelope = Seed("ready");
    ASSERT_GT(envelope.ready().devices_size(), 0);
    one.change(*envelope.mutable_ready()->mutable_devices(0)->mutable_device());
    const Status checked = Receive(envelope).status();
    EXPECT_EQ(checked.ok(), one.want == nullptr) << one.name << ": " << checked;
    EXPECT_THAT(Message(checked), HasSubstr(one.want == nullptr ? "" : one.want)) << one.name;
  }
}

TEST(ProtocolTest, NeedsAreFewAndShort) {
  Envelope envelope = Seed("prepared");
  internal::Prepared& prepared = *envelope.mutable_prepared();
  for (uint32_t i = static_cast<uint32_t>(prepared.needs_size()); i < kNeedsMax; ++i) {
    prepared.add_needs(std::string(kTextBytesMax, 'd'));
  }
  EXPECT_TRUE(Receive(envelope).ok());
  prepared.add_needs("cpu:0");
  EXPECT_THAT(Message(Receive(envelope).status()), HasSubstr("needs"));
  prepared.clear_needs();
  prepared.add_needs(std::string(kTextBytesMax + 1, 'd'));
  EXPECT_THAT(Message(Receive(envelope).status()), HasSubstr("needs"));
}

// Fields that no check covers do not reach a client.
TEST(ProtocolTest, UnknownFieldsAreDropped) {
  Envelope envelope = DoneOf();
  ASSERT_TRUE(Receive(envelope).ok());
  v1::NodePlacement& node = *envelope.mutable_run_done()->mutable_nodes(0);
  node.GetReflection()->MutableUnknownFields(&node)->AddLengthDelimited(900, "smuggled");
  const StatusOr<Envelope> received = Receive(envelope);
  ASSERT_TRUE(received.ok()) << Message(received.status());
  EXPECT_EQ(received->SerializeAsString().find("smuggled"), std::string::npos);
}

// The daemon rejects fields that it sets itself, and devices that the executor did not list.
TEST(ProtocolTest, RecordsAreHeldAgainstReady) {
  const struct {
    void (*spoil)(internal::RunDone&);
    const char* message;
  } cases[] = {
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_device("cpu:1"); }, "nodes.device names a device"},
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_math("quick"); }, "neither exact nor fast"},
      {[](internal::RunDone& done) { done.mutable_nodes(0)->set_start_ns(1); }, "ends before it starts"},
      {[](internal::RunDone& done) { done.mutable_timing()->set_total_ns(1); }, "only the daemon may set it"},
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
