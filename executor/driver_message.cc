// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_message.h"

#include <tuple>

#include "base/unchecked.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/wire.h"

namespace hpvm::executor {

static auto FieldsOf(DriverRequest& request) {
  DriverBuild& b = request.build;
  return std::tie(request.identity, b.device, b.entries, b.groups, b.format, b.options, b.variants);
}

namespace {

constexpr size_t kTextBytesMax = 4096;
constexpr size_t kEntriesMax = 1024;

Status Malformed(const char* what) {
  return InvalidArgument(std::string("A driver builder's ") + what + " is malformed.");
}

}  // namespace

std::string PayloadOf(const DriverRequest& request) { return std::string(TextOf(WireBytes(request))); }

StatusOr<DriverRequest> ReadDriverRequest(std::string_view payload, std::span<const uint8_t> code) {
  DriverRequest request;
  DriverBuild& build = request.build;
  if (!ReadWire(BytesOf(payload), request) || build.entries.size() > kEntriesMax || build.groups.size() > kEntriesMax ||
      request.identity.size() > kTextBytesMax || build.device.size() > kTextBytesMax ||
      !IsWellFormed(GpuCode{.format = build.format, .options = {}, .variants = build.variants})) {
    return Malformed("request");
  }
  build.code = code;
  return request;
}

internal::DriverAnswer AnswerOf(const Status& status, std::string_view log) {
  internal::DriverAnswer answer;
  answer.set_code(static_cast<uint32_t>(status.code()));
  answer.set_message(Message(status).substr(0, kDriverLogBytesMax));
  answer.set_log(std::string(log.substr(0, kDriverLogBytesMax)));
  return answer;
}

StatusOr<internal::DriverAnswer> ReadDriverAnswer(std::string_view payload, std::span<const uint8_t> binary) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::DriverAnswer>(payload));
  return std::move(said).Open([&](internal::DriverAnswer answer) -> StatusOr<internal::DriverAnswer> {
    if (answer.code() > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated) ||
        answer.message().size() > kDriverLogBytesMax || answer.log().size() > kDriverLogBytesMax ||
        (answer.code() != 0 && !binary.empty())) {
      return Malformed("answer");
    }
    return answer;
  });
}

Status StatusOf(const internal::DriverAnswer& answer) {
  return MakeStatus(static_cast<absl::StatusCode>(answer.code()), answer.message());
}

std::vector<uint8_t> KeptOf(const std::string& log, std::span<const uint8_t> binary) {
  internal::DriverBinary kept;
  kept.set_log(log);
  kept.set_binary(binary.data(), binary.size());
  std::vector<uint8_t> bytes(kept.ByteSizeLong());
  kept.SerializeToArray(bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

StatusOr<DriverBinary> ReadKept(std::span<const uint8_t> bytes) {
  HPVMD_ASSIGN_OR_RETURN(
      auto said, ParseUnchecked<internal::DriverBinary>({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return std::move(said).Open([](const internal::DriverBinary& kept) -> StatusOr<DriverBinary> {
    return DriverBinary{.bytes = {kept.binary().begin(), kept.binary().end()}, .log = kept.log()};
  });
}

}  // namespace hpvm::executor
