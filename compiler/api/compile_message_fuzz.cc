// SPDX-License-Identifier: Apache-2.0
// Fuzzes messages between the engine's compiler service, the zygote and its children, as a hostile peer may write
// them. The first byte selects the message type. An accepted message can be used, and is accepted again after
// serialization.
#include <stddef.h>

#include <string>

#include "builder/message.h"
#include "compiler/api/compile_message.h"
#include "compiler/api/gpu_code.h"
#include "compiler/api/wire.h"

namespace hpvm {
namespace {

void Head(std::string_view bytes) {
  Frame frame;
  frame.head = bytes;
  builder::ReadHello(frame).IgnoreError();
  if (const StatusOr<builder::BuildMessage> message = builder::ReadMessage(frame); message.ok()) {
    HPVMD_CHECK(!message->has_request() || message->id() != 0);
    frame.head = builder::HeadOf(*message);
    HPVMD_CHECK(builder::ReadMessage(frame).ok());
  }
}

void Request(std::string_view bytes) {
  if (const StatusOr<ZygoteRequest> request = ReadCompileRequest(bytes); request.ok()) {
    HPVMD_CHECK(Find(request->compile.module_kind) != nullptr);
    HPVMD_CHECK(request->compile.params.size() <= limits::kKernelParamsMax);
    HPVMD_CHECK(PayloadOf(*request) == bytes);
  }
}

void Answer(std::string_view bytes) {
  if (const StatusOr<internal::CompileAnswer> answer = ReadCompileAnswer(bytes); answer.ok()) {
    internal::CompileAnswer again;
    SetDiagnostics(GetDiagnostics(*answer), &again);
    HPVMD_CHECK(ReadCompileAnswer(again.SerializeAsString()).ok());
    HPVMD_CHECK(again.SerializeAsString().size() < kZygoteFrameLimits.head_bytes_max);
  }
}

void Note(std::string_view bytes) {
  if (const StatusOr<internal::CompileNote> note = ReadCompileNote(bytes); note.ok()) {
    std::string name;
    SetHash(GetHash(note->name()), &name);
    HPVMD_CHECK(name == note->name());
  }
}

void Code(std::string_view bytes) {
  GpuCode code;
  if (ReadWire(BytesOf(bytes), code) && IsWellFormed(code)) {
    HPVMD_CHECK(TextOf(WireBytes(code)) == bytes);
    ValidateGpuCode(code, 4).IgnoreError();
  }
}

}  // namespace
}  // namespace hpvm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  constexpr void (*kReaders[])(std::string_view) = {hpvm::Head, hpvm::Request, hpvm::Answer, hpvm::Note, hpvm::Code};
  kReaders[data[0] % std::size(kReaders)](bytes);
  return 0;
}
