// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_wire.h"

#include <utility>

#include "compiler/api/gpu_code.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace {

constexpr size_t kTextBytesMax = 4096;
constexpr uint32_t kEntriesMax = 1024;

Status Malformed(const char* what) {
  return InvalidArgument(std::string("A driver builder's ") + what + " is malformed.");
}

}  // namespace

std::vector<uint8_t> EncodeDriverRequest(const DriverRequest& request) {
  const DriverBuild& build = request.build;
  WireWriter out;
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

StatusOr<DriverRequest> DecodeDriverRequest(std::span<const uint8_t> payload, std::span<const uint8_t> code) {
  WireReader in(payload);
  DriverRequest request;
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
  GpuCode gpu = ReadGpuCode(in);
  request.build.format = gpu.format;
  request.build.options = std::move(gpu.options);
  request.build.variants = std::move(gpu.variants);
  request.build.code = code;
  if (!in.AtEnd() || entries > kEntriesMax || groups > kEntriesMax || request.identity.size() > kTextBytesMax ||
      request.build.device.size() > kTextBytesMax) {
    return Malformed("request");
  }
  return request;
}

std::vector<uint8_t> EncodeDriverAnswer(const DriverAnswer& answer) {
  WireWriter out;
  out.U32(static_cast<uint32_t>(answer.status.code()));
  out.Text(Message(answer.status).substr(0, kDriverLogBytesMax));
  out.Text(std::string_view(answer.log).substr(0, kDriverLogBytesMax));
  return std::move(out.bytes());
}

StatusOr<DriverAnswer> DecodeDriverAnswer(std::span<const uint8_t> payload, std::span<const uint8_t> binary) {
  WireReader in(payload);
  DriverAnswer answer;
  const uint32_t code = in.U32();
  const std::string message = in.Text();
  answer.log = in.Text();
  if (!in.AtEnd() || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated) ||
      message.size() > kDriverLogBytesMax || answer.log.size() > kDriverLogBytesMax || (code != 0 && !binary.empty())) {
    return Malformed("answer");
  }
  answer.status = Status(static_cast<absl::StatusCode>(code), message);
  return answer;
}

}  // namespace hpvm
