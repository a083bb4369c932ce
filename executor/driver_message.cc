// SPDX-License-Identifier: Apache-2.0
#include "executor/driver_message.h"

#include <utility>

#include "base/unchecked.h"
#include "compiler/api/gpu_code.h"

namespace hpvm {
namespace {

constexpr size_t kTextBytesMax = 4096;
constexpr int kEntriesMax = 1024;

Status Malformed(const char* what) {
  return InvalidArgument(std::string("A driver builder's ") + what + " is malformed.");
}

StatusOr<DriverRequest> ReadRequest(const internal::DriverRequest& message) {
  StatusOr<GpuCode> code = GetGpuCode(message.code());
  if (!code.ok() || message.entries_size() > kEntriesMax || message.groups_size() > 3 * kEntriesMax ||
      message.groups_size() % 3 != 0 || message.identity().size() > kTextBytesMax ||
      message.device().size() > kTextBytesMax) {
    return Malformed("request");
  }
  DriverRequest request;
  request.identity = message.identity();
  request.build.device = message.device();
  request.build.entries.assign(message.entries().begin(), message.entries().end());
  for (int i = 0; i < message.groups_size(); i += 3) {
    request.build.groups.push_back({message.groups(i), message.groups(i + 1), message.groups(i + 2)});
  }
  request.build.format = code->format;
  request.build.options = std::move(code->options);
  request.build.variants = std::move(code->variants);
  return request;
}

}  // namespace

internal::DriverRequest MessageOf(const DriverRequest& request) {
  const DriverBuild& build = request.build;
  internal::DriverRequest message;
  message.set_identity(request.identity);
  message.set_device(build.device);
  message.mutable_entries()->Add(build.entries.begin(), build.entries.end());
  for (const std::array<uint32_t, 3>& group : build.groups) {
    message.mutable_groups()->Add(group.begin(), group.end());
  }
  GpuCode code;
  code.format = build.format;
  code.options = build.options;
  code.variants = build.variants;
  *message.mutable_code() = MessageOf(code);
  return message;
}

StatusOr<DriverRequest> ReadDriverRequest(std::string_view payload, std::span<const uint8_t> code) {
  HPVMD_ASSIGN_OR_RETURN(auto said, ParseUnchecked<internal::DriverRequest>(payload));
  HPVMD_ASSIGN_OR_RETURN(DriverRequest request, std::move(said).Open(ReadRequest));
  request.build.code = code;
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

}  // namespace hpvm
