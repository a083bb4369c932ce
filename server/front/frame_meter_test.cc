// SPDX-License-Identifier: Apache-2.0
#include "server/front/frame_meter.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace hpvm::server {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kPriority = 2, kReset = 3, kSettings = 4, kPush = 5, kPing = 6, kWindow = 8,
                  kContinuation = 9;
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8, kHasPriority = 0x20;

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload = "") {
  std::string frame;
  for (const int shift : {16, 8, 0}) {
    frame += static_cast<char>(payload.size() >> shift & 255);
  }
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    frame += static_cast<char>(stream >> shift & 255);
  }
  return frame + payload;
}

// A field that is in no table and is not added to one; short enough for lengths of one byte.
std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

const std::string kBegin = std::string(kHttp2Preface) + Frame(kSettings, 0, 0);
const std::string kMs = "12345678";  // Payload of a ping.

std::string Repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

struct Connection {
  explicit Connection(const FrameLimits& limits)
      : peer(1'000'000, 15), calls(limits.calls, peer), meter(limits, calls) {}
  PeerCalls peer;
  OpenCalls calls;
  FrameMeter meter;
};

class FrameMeterTest : public ::testing::Test {
 protected:
  FrameMeterTest() {
    limits_.control_frames_per_second = 20;
    limits_.resets_per_second = 10;
    limits_.header_bytes_per_second = 10'000;
    limits_.header_block_bytes = 2'000;
  }

  FrameFault Receive(Connection& connection, const std::string& text) const {
    return connection.meter.Receive({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, now_, sent_);
  }
  // Returns the fault of a connection that sends this after a valid beginning; as a whole and byte by byte, which
  // must agree.
  FrameFault Of(const std::string& text, const std::string& begin = kBegin) const {
    Connection whole(limits_), bytes(limits_);
    const FrameFault fault = Receive(whole, begin + text);
    for (const char c : begin + text) {
      Receive(bytes, std::string(1, c));
    }
    EXPECT_EQ(Receive(bytes, ""), fault);
    return fault;
  }

  FrameLimits limits_;
  SentFrames sent_;
  Time now_{std::chrono::hours(1)};
};

// Frames of a well-behaved client.
TEST_F(FrameMeterTest, LetsCallsThrough) {
  const std::string block = "\x83\x86" + Field("te", "trailers");
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, block) + Frame(kData, kEndStream, 1, "message")), FrameFault::kNone);
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, block) + Frame(kData, kEndStream, 1, std::string(100'000, 'x'))),
            FrameFault::kNone)
      << "gRPC may have offered larger frames";
  EXPECT_EQ(Of(Frame(kHeaders, 0, 1, block.substr(0, 5)) + Frame(kContinuation, kEndHeaders, 1, block.substr(5)) +
               Frame(kData, kEndStream, 1)),
            FrameFault::kNone);
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders | kPadded | kHasPriority, 1, "\3" + std::string(5, '\1') + block + "pad") +
               Frame(kHeaders, kEndHeaders, 3, block)),
            FrameFault::kNone);
  EXPECT_EQ(Of(Frame(99, 0, 0, "of the future")), FrameFault::kNone);
}

TEST_F(FrameMeterTest, RefusesWhatIsNoHttp2) {
  const std::string block = "\x83";
  struct Case {
    const char* name;
    std::string begin, text;
    FrameFault want;
  };
  const Case cases[] = {
      {"Http1", "GET / HTTP/1.1\r\n", "", FrameFault::kPreface},
      {"Tls", "\x16\x03\x01", "", FrameFault::kPreface},
      {"NoSettings", std::string(kHttp2Preface), Frame(kPing, 0, 0, kMs), FrameFault::kFrame},
      {"SettingsAckFirst", std::string(kHttp2Preface), Frame(kSettings, kAck, 0), FrameFault::kFrame},
      {"LongPing", kBegin, Frame(kPing, 0, 0, kMs + "9"), FrameFault::kFrame},
      {"PingOfAStream", kBegin, Frame(kPing, 0, 1, kMs), FrameFault::kFrame},
      {"OddSettings", kBegin, Frame(kSettings, 0, 0, "12345"), FrameFault::kFrame},
      {"ShortReset", kBegin, Frame(kReset, 0, 1, "123"), FrameFault::kFrame},
      {"LongWindow", kBegin, Frame(kWindow, 0, 1, "12345"), FrameFault::kFrame},
      {"Push", kBegin, Frame(kPush, 0, 1, block), FrameFault::kFrame},
      {"DataOfNoStream", kBegin, Frame(kData, 0, 0, "x"), FrameFault::kFrame},
      {"HugeUnknown", kBegin, Frame(99, 0, 0, std::string(16'385, 'x')), FrameFault::kFrame},
      {"Interrupted", kBegin, Frame(kHeaders, 0, 1, block) + Frame(kPing, 0, 0, kMs), FrameFault::kFrame},
      {"OfAnotherStream", kBegin, Frame(kHeaders, 0, 1, block) + Frame(kContinuation, 4, 3, block), FrameFault::kFrame},
      {"ContinuesNothing", kBegin, Frame(kContinuation, kEndHeaders, 1, block), FrameFault::kFrame},
      {"LongPad", kBegin, Frame(kHeaders, kEndHeaders | kPadded, 1, "\x09" + block), FrameFault::kFrame},
      {"NoPriority", kBegin, Frame(kHeaders, kEndHeaders | kHasPriority, 1, "123"), FrameFault::kFrame},
      {"NoSuchIndex", kBegin, Frame(kHeaders, kEndHeaders, 1, "\xff\xff\x03"), FrameFault::kFrame},
      {"HalfAField", kBegin, Frame(kHeaders, kEndHeaders, 1, std::string("\0\5ab", 4)), FrameFault::kFrame},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Of(c.text, c.begin), c.want) << c.name;
  }
}

// At the limit, and one beyond; the first SETTINGS frame counts.
TEST_F(FrameMeterTest, LimitsFramesWithoutACall) {
  const std::string frames[] = {
      Frame(kPing, 0, 0, kMs),      Frame(kPing, kAck, 0, kMs),      Frame(kSettings, 0, 0), Frame(kSettings, kAck, 0),
      Frame(kWindow, 0, 0, "1234"), Frame(kPriority, 0, 1, "12345"), Frame(99, 0, 0, "x"),   Frame(kData, 0, 1)};
  for (const std::string& frame : frames) {
    EXPECT_EQ(Of(Repeat(frame, 19)), FrameFault::kNone) << static_cast<int>(frame[3]);
    EXPECT_EQ(Of(Repeat(frame, 20)), FrameFault::kControlFrames) << static_cast<int>(frame[3]);
  }
}

TEST_F(FrameMeterTest, ASecondLaterThereIsRoomAgain) {
  Connection meter(limits_);
  EXPECT_EQ(Receive(meter, kBegin + Repeat(Frame(kPing, 0, 0, kMs), 19)), FrameFault::kNone);
  now_ += std::chrono::milliseconds(500);
  EXPECT_EQ(Receive(meter, Repeat(Frame(kPing, 0, 0, kMs), 10)), FrameFault::kNone);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(Receive(meter, Repeat(Frame(kPing, 0, 0, kMs), 20)), FrameFault::kNone) << "never more than a second's";
  EXPECT_EQ(Receive(meter, Frame(kPing, 0, 0, kMs)), FrameFault::kControlFrames);
  now_ += std::chrono::hours(1);
  EXPECT_EQ(Receive(meter, Frame(kData, 0, 1, "x")), FrameFault::kControlFrames) << "a fault stays";
}

// Window updates and pings that responses ask for are not a flood.
TEST_F(FrameMeterTest, AnswersGiveCredit) {
  Connection meter(limits_);
  EXPECT_EQ(Receive(meter, kBegin), FrameFault::kNone);
  sent_.bytes = 100 * 1'024;
  EXPECT_EQ(Receive(meter, Repeat(Frame(kWindow, 0, 1, "1234"), 100)), FrameFault::kNone);
  sent_.asks = 50;
  EXPECT_EQ(Receive(meter, Repeat(Frame(kPing, kAck, 0, kMs), 50)), FrameFault::kNone);
  const std::string call = Frame(kHeaders, kEndHeaders, 1, "\x83") + Repeat(Frame(kWindow, 0, 1, "1234"), 4);
  EXPECT_EQ(Receive(meter, Repeat(call, 50)), FrameFault::kNone);
  EXPECT_EQ(Receive(meter, Repeat(Frame(kPing, 0, 0, kMs), 19)), FrameFault::kNone);
  EXPECT_EQ(Receive(meter, Frame(kPing, 0, 0, kMs)), FrameFault::kControlFrames);
}

// Resets count whichever side sends them, because a client can make the server do it.
TEST_F(FrameMeterTest, LimitsResets) {
  const std::string frame = Frame(kReset, 0, 1, "1234");
  EXPECT_EQ(Of(Repeat(frame, 10)), FrameFault::kNone);
  EXPECT_EQ(Of(Repeat(frame, 11)), FrameFault::kResets);
  sent_.resets = 6;
  EXPECT_EQ(Of(Repeat(frame, 4)), FrameFault::kNone);
  EXPECT_EQ(Of(Repeat(frame, 5)), FrameFault::kResets);
}

// A header block counts with its decompressed size.
TEST_F(FrameMeterTest, LimitsHeaders) {
  const std::string hundred = Field("x-filler", std::string(60, 'x'));  // 8 + 60 + 32.
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, Repeat(hundred, 20))), FrameFault::kNone);
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, Repeat(hundred, 21))), FrameFault::kHeaders);
  // Into the table once, and then one byte each.
  const std::string kept = "\x40" + hundred.substr(1);
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, kept + std::string(19, '\xbe'))), FrameFault::kNone);
  EXPECT_EQ(Of(Frame(kHeaders, kEndHeaders, 1, kept + std::string(20, '\xbe'))), FrameFault::kHeaders);
  // Blocks that do not end: with fields, with half of one, and with empty pieces.
  EXPECT_EQ(Of(Frame(kHeaders, 0, 1, hundred) + Repeat(Frame(kContinuation, 0, 1, hundred), 20)), FrameFault::kHeaders);
  EXPECT_EQ(Of(Frame(kHeaders, 0, 1, std::string("\0\1x\x7f\xff\x7f", 6) + std::string(3'000, 'x'))),
            FrameFault::kHeaders);
  EXPECT_EQ(Of(Frame(kHeaders, 0, 1) + Repeat(Frame(kContinuation, 0, 1), 100)), FrameFault::kHeaders);
  // Many small blocks.
  const std::string call = Frame(kHeaders, kEndHeaders, 1, Repeat(hundred, 10));
  EXPECT_EQ(Of(Repeat(call, 10)), FrameFault::kNone);
  EXPECT_EQ(Of(Repeat(call, 11)), FrameFault::kHeaders);
}

// Limits of a connection and of a peer; either side ends a call, and closing a connection ends its calls.
TEST(OpenCallsTest, LimitsCallsInProgress) {
  FrameLimits limits;
  limits.calls = 3;
  PeerCalls peer(5, 15);
  const auto headers = [](uint32_t stream) { return Frame(kHeaders, kEndHeaders | kEndStream, stream, "\x83"); };
  const auto receive = [](FrameMeter& meter, const std::string& text) {
    return meter.Receive({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, Time{0}, {});
  };
  const auto send = [](SentMeter& meter, const std::string& text) {
    meter.Send({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  OpenCalls first(limits.calls, peer);
  FrameMeter first_meter(limits, first);
  SentMeter first_sent(first);
  EXPECT_EQ(receive(first_meter, kBegin + headers(1) + headers(3) + headers(5) + headers(5)), FrameFault::kNone);
  EXPECT_EQ(first.size(), 3u);
  send(first_sent, Frame(kHeaders, kEndHeaders, 1, "x") + Frame(kData, 0, 1, "y"));
  EXPECT_EQ(first.size(), 3u);
  send(first_sent, Frame(kHeaders, kEndHeaders | kEndStream, 1, "x") + Frame(kReset, 0, 1, "1234"));
  EXPECT_EQ(receive(first_meter, headers(7) + Frame(kReset, 0, 3, "1234") + headers(9)), FrameFault::kNone);
  EXPECT_EQ(peer.count, 3u);
  {
    OpenCalls second(limits.calls, peer);
    FrameMeter second_meter(limits, second);
    EXPECT_EQ(receive(second_meter, kBegin + headers(1) + headers(3)), FrameFault::kNone);
    EXPECT_EQ(peer.count, 5u);
    EXPECT_EQ(receive(second_meter, headers(5)), FrameFault::kCalls) << "of the peer";
    EXPECT_EQ(peer.count, 5u);
  }
  EXPECT_EQ(peer.count, 3u);
  EXPECT_EQ(receive(first_meter, headers(11)), FrameFault::kCalls) << "of the connection";
  EXPECT_EQ(peer.count, 3u);
}

// A client that resets calls and reconnects has no more of them than before.
TEST_F(FrameMeterTest, LimitsResetsOfAPeer) {
  PeerCalls peer(100, 15);
  std::string resets = kBegin;
  for (int i = 0; i < 10; ++i) {
    resets += Frame(kReset, 0, 1, "1234");
  }
  for (const FrameFault want : {FrameFault::kNone, FrameFault::kResets}) {
    OpenCalls calls(100, peer);
    FrameMeter meter(limits_, calls);
    EXPECT_EQ(meter.Receive({reinterpret_cast<const uint8_t*>(resets.data()), resets.size()}, now_, {}), want);
  }
}

TEST(SentMeterTest, CountsAndKnowsWhereFramesBegin) {
  const std::string text = Frame(kSettings, 0, 0, "123456") + Frame(kSettings, kAck, 0) + Frame(kPing, 0, 0, kMs) +
                           Frame(kPing, kAck, 0, kMs) + Frame(kData, 0, 1, std::string(500, '\3')) +
                           Frame(kReset, 0, 1, "1234") + Frame(kHeaders, kEndHeaders, 1, "x");
  PeerCalls peer(100, 100);
  OpenCalls calls(100, peer);
  SentMeter meter(calls);
  size_t borders = 0;
  for (const char c : text) {
    borders += meter.is_between_frames() ? 1 : 0;
    const auto byte = static_cast<uint8_t>(c);
    meter.Send({&byte, 1});
  }
  EXPECT_TRUE(meter.is_between_frames());
  EXPECT_EQ(borders, 7u);
  EXPECT_EQ(meter.sent().bytes, text.size());
  EXPECT_EQ(meter.sent().resets, 1u);
  EXPECT_EQ(meter.sent().asks, 4u);
}

// A client that reads a stream of small messages answers each with window updates, which its bytes alone would not
// pay for.
TEST_F(FrameMeterTest, SmallMessagesGiveCredit) {
  Connection meter(limits_);
  EXPECT_EQ(Receive(meter, kBegin), FrameFault::kNone);
  SentMeter sent(meter.calls);
  const std::string message = Frame(kData, 0, 1, std::string(50, 'x')), empty = Frame(kData, 0, 1);
  for (int i = 0; i < 1'000; ++i) {
    sent.Send({reinterpret_cast<const uint8_t*>(message.data()), message.size()});
    sent.Send({reinterpret_cast<const uint8_t*>(empty.data()), empty.size()});
    sent_ = sent.sent();
    EXPECT_EQ(Receive(meter, Frame(kWindow, 0, 1, "1234") + Frame(kWindow, 0, 0, "1234")), FrameFault::kNone) << i;
  }
  EXPECT_EQ(Receive(meter, Repeat(Frame(kPing, 0, 0, kMs), 200)), FrameFault::kControlFrames);
}

}  // namespace
}  // namespace hpvm::server
