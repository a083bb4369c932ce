// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_wire.h"

#include <algorithm>
#include <utility>

#include "compiler/api/gpu_code.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace {

enum class Kind : uint8_t { kHello = 1, kRequest = 2, kAnswer = 3, kCancel = 4 };
constexpr size_t kTextBytesMax = 4096;
constexpr uint32_t kEntriesMax = 1024;

WireWriter Begin(Kind kind) {
  WireWriter out;
  out.U8(static_cast<uint8_t>(kind));
  return out;
}

// A reader of a frame's head, past its kind.
WireReader Open(const Frame& frame, Kind kind) {
  WireReader in({reinterpret_cast<const uint8_t*>(frame.head.data()), frame.head.size()});
  if (in.U8() != static_cast<uint8_t>(kind)) {
    in.Fail();
  }
  return in;
}

Status Malformed(const char* what) {
  return InvalidArgument(std::string("A driver builder's ") + what + " is malformed.");
}

}  // namespace

std::vector<uint8_t> EncodeDriverHello(const ArtifactKey& key) {
  WireWriter out = Begin(Kind::kHello);
  out.Raw(key.data(), key.size());
  return std::move(out.bytes());
}

StatusOr<ArtifactKey> DecodeDriverHello(const Frame& frame) {
  WireReader in = Open(frame, Kind::kHello);
  ArtifactKey key{};
  const std::span<const uint8_t> bytes = in.Raw(key.size());
  if (!in.AtEnd() || !frame.body.empty()) {
    return Malformed("first message");
  }
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

std::vector<uint8_t> EncodeDriverRequest(const DriverRequest& request) {
  const DriverBuild& build = request.build;
  WireWriter out = Begin(Kind::kRequest);
  out.U64(request.id);
  out.Text(request.identity);
  out.Text(build.device);
  out.U32(static_cast<uint32_t>(build.entries.size()));
  for (const std::string& entry : build.entries) {
    out.Text(entry);
  }
  out.U32(static_cast<uint32_t>(build.groups.size()));
  for (const std::array<uint32_t, 3>& group : build.groups) {
    for (const uint32_t extent : group) {
      out.U32(extent);
    }
  }
  GpuCode code;
  code.format = build.format;
  code.options = build.options;
  code.variants = build.variants;
  WriteGpuCode(code, out);
  return std::move(out.bytes());
}

StatusOr<DriverRequest> DecodeDriverRequest(const Frame& frame) {
  WireReader in = Open(frame, Kind::kRequest);
  DriverRequest request;
  request.id = in.U64();
  request.identity = in.Text();
  request.build.device = in.Text();
  const uint32_t entries = in.Count(4);
  for (uint32_t i = 0; in.ok() && i < entries; ++i) {
    request.build.entries.push_back(in.Text());
  }
  const uint32_t groups = in.Count(12);
  for (uint32_t i = 0; in.ok() && i < groups; ++i) {
    request.build.groups.push_back({in.U32(), in.U32(), in.U32()});
  }
  GpuCode code = ReadGpuCode(in);
  request.build.format = code.format;
  request.build.options = std::move(code.options);
  request.build.variants = std::move(code.variants);
  request.build.code = frame.body;
  if (!in.AtEnd() || request.id == 0 || entries > kEntriesMax || groups > kEntriesMax ||
      request.identity.size() > kTextBytesMax || request.build.device.size() > kTextBytesMax) {
    return Malformed("request");
  }
  return request;
}

std::vector<uint8_t> EncodeDriverCancel(const DriverCancel& cancel) {
  WireWriter out = Begin(Kind::kCancel);
  out.U64(cancel.id);
  return std::move(out.bytes());
}

bool IsDriverCancel(const Frame& frame) { return Open(frame, Kind::kCancel).ok(); }

StatusOr<DriverCancel> DecodeDriverCancel(const Frame& frame) {
  WireReader in = Open(frame, Kind::kCancel);
  const DriverCancel cancel{in.U64()};
  if (!in.AtEnd() || cancel.id == 0 || !frame.body.empty()) {
    return Malformed("cancellation");
  }
  return cancel;
}

std::vector<uint8_t> EncodeDriverAnswer(const DriverAnswer& answer) {
  WireWriter out = Begin(Kind::kAnswer);
  out.U64(answer.id);
  out.U32(static_cast<uint32_t>(answer.status.code()));
  out.Text(Message(answer.status).substr(0, kDriverLogBytesMax));
  out.Text(std::string_view(answer.log).substr(0, kDriverLogBytesMax));
  return std::move(out.bytes());
}

StatusOr<DriverAnswer> DecodeDriverAnswer(const Frame& frame) {
  WireReader in = Open(frame, Kind::kAnswer);
  DriverAnswer answer;
  answer.id = in.U64();
  const uint32_t code = in.U32();
  const std::string message = in.Text();
  answer.log = in.Text();
  if (!in.AtEnd() || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated) ||
      message.size() > kDriverLogBytesMax || answer.log.size() > kDriverLogBytesMax ||
      (code != 0 && !frame.body.empty())) {
    return Malformed("answer");
  }
  answer.status = Status(static_cast<absl::StatusCode>(code), message);
  return answer;
}

}  // namespace hpvm
