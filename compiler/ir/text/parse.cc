// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/limits.h"
#include "compiler/ir/text/parse_function.h"
#include "compiler/ir/text/text.h"
#include "compiler/ir/text/token_reader.h"

namespace hpvm::ir {
namespace {

class ModuleParser {
 public:
  explicit ModuleParser(std::string_view text) : r_(text) {}

  StatusOr<Module> Parse() {
    HPVMD_RETURN_IF_ERROR(Header());
    HPVMD_RETURN_IF_ERROR(Uses());
    while (r_.TakeWord("data")) {
      HPVMD_RETURN_IF_ERROR(ReadData(&m_.data));
    }
    while (r_.TakeWord("global")) {
      HPVMD_RETURN_IF_ERROR(ReadGlobal());
    }
    HPVMD_RETURN_IF_ERROR(ReadStateAndReferences());
    while (r_.TakeWord("param")) {
      HPVMD_RETURN_IF_ERROR(ReadParam());
    }
    if (!r_.TakeWord("entry")) {
      return r_.Expected("\"entry\"");
    }
    HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &m_.entry.index));
    while (r_.TakeWord("func")) {
      HPVMD_RETURN_IF_ERROR(ReadFunction());
    }
    if (r_.token().kind != TokenKind::kEnd) {
      return r_.Expected("\"func\" or the end of the text");
    }
    return std::move(m_);
  }

 private:
  Status Header() {
    if (!r_.TakeWord("module")) {
      return r_.Expected("\"module\"");
    }
    HPVMD_RETURN_IF_ERROR(r_.String(&m_.name));
    m_.is_memory64 = r_.TakeWord("memory64");
    if (r_.TakeWord("memory")) {
      HPVMD_RETURN_IF_ERROR(r_.Number(&m_.memory_bytes));
      HPVMD_RETURN_IF_ERROR(r_.Number(&m_.memory_bytes_max));
    }
    return absl::OkStatus();
  }
  Status Uses() {
    while (r_.TakeWord("uses")) {
      if (r_.TakeWord("barrier")) {
        m_.uses_barrier = true;
      } else if (r_.TakeWord("group_memory")) {
        m_.uses_group_memory = true;
      } else if (r_.TakeWord("separate_buffers")) {
        m_.has_separate_buffers = true;
      } else if (r_.TakeWord("linked")) {
        m_.is_linked = true;
      } else {
        return r_.Expected("\"barrier\", \"group_memory\", \"separate_buffers\" or \"linked\"");
      }
    }
    return absl::OkStatus();
  }
  Status ReadGlobal() {
    Global global{};
    global.is_mutable = r_.TakeWord("mut");
    HPVMD_RETURN_IF_ERROR(r_.ReadType(&global.type));
    HPVMD_RETURN_IF_ERROR(r_.ConstantBits(global.type, &global.init));
    m_.globals.push_back(global);
    return absl::OkStatus();
  }
  Status ReadReferenceType() {
    FunctionType& type = m_.reference_types.emplace_back();
    HPVMD_RETURN_IF_ERROR(r_.Types(&type.params));
    HPVMD_RETURN_IF_ERROR(r_.Expect("->"));
    return r_.Types(&type.results);
  }
  Status ReadData(std::vector<DataSegment>* segments) {
    DataSegment& segment = segments->emplace_back();
    HPVMD_RETURN_IF_ERROR(r_.Number(&segment.address));
    return r_.HexBytes(&segment.bytes);
  }
  Status ReadStateAndReferences() {
    if (r_.TakeWord("stack_pointer")) {
      HPVMD_RETURN_IF_ERROR(r_.Indexed('g', &m_.stack_pointer.emplace()));
    }
    if (r_.TakeWord("stack_frame")) {
      StackFrame& frame = m_.stack_frame.emplace();
      HPVMD_RETURN_IF_ERROR(r_.Number(&frame.begin));
      HPVMD_RETURN_IF_ERROR(r_.Number(&frame.end));
      HPVMD_RETURN_IF_ERROR(r_.Number32(&frame.unit));
    }
    if (r_.TakeWord("state")) {
      HPVMD_RETURN_IF_ERROR(r_.Number(&m_.state_bytes));
    }
    while (r_.TakeWord("state_data")) {
      HPVMD_RETURN_IF_ERROR(ReadData(&m_.state));
    }
    while (r_.TakeWord("segment")) {
      HPVMD_RETURN_IF_ERROR(r_.HexBytes(&m_.passive_segments.emplace_back()));
    }
    while (r_.TakeWord("reftype")) {
      HPVMD_RETURN_IF_ERROR(ReadReferenceType());
    }
    if (r_.TakeWord("first_reference")) {
      HPVMD_RETURN_IF_ERROR(r_.Number32(&m_.first_reference));
    }
    while (r_.TakeWord("ref")) {
      HPVMD_RETURN_IF_ERROR(ReadReference());
    }
    while (r_.TakeWord("format")) {
      HPVMD_RETURN_IF_ERROR(r_.String(&m_.formats.emplace_back()));
    }
    return absl::OkStatus();
  }
  Status ReadReference() {
    Reference& reference = m_.references.emplace_back();
    HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &reference.function.index));
    return r_.Indexed('r', &reference.type);
  }
  Status ReadParam() {
    if (m_.params.size() >= limits::kKernelParamsMax) {
      return r_.Error("The kernel has more parameters than the limit (" + std::to_string(limits::kKernelParamsMax) +
                      ").");
    }
    KernelParam param;
    param.is_buffer = r_.TakeWord("buffer");
    if (!param.is_buffer) {
      HPVMD_RETURN_IF_ERROR(r_.ReadType(&param.type));
    } else {
      param.type = m_.address_type();
      param.is_writable = r_.TakeWord("inout");
      if (!param.is_writable && !r_.TakeWord("in")) {
        return r_.Expected("\"in\" or \"inout\"");
      }
    }
    HPVMD_RETURN_IF_ERROR(r_.String(&param.name));
    m_.params.push_back(std::move(param));
    return absl::OkStatus();
  }
  Status ReadFunction() {
    uint32_t index = 0;
    const uint32_t line = r_.token().line;
    HPVMD_RETURN_IF_ERROR(r_.Indexed('f', &index));
    if (index != m_.functions.size()) {
      return r_.ErrorAt(line, "Function f" + std::to_string(index) + " is found where f" +
                                  std::to_string(m_.functions.size()) + " is expected.");
    }
    Function& function = m_.functions.emplace_back();
    HPVMD_RETURN_IF_ERROR(r_.String(&function.name));
    if (r_.TakeWord("contract")) {
      function.fast_math = FastMath::kContract;
    } else if (r_.TakeWord("exact")) {
      function.fast_math = FastMath::kNone;
    }
    return ParseFunction(r_, function);
  }

  TokenReader r_;
  Module m_;
};

}  // namespace

StatusOr<Module> ParseModule(std::string_view text) {
  if (text.size() > limits::kArtifactBytesMax) {
    return InvalidArgument("The text has more bytes (" + std::to_string(text.size()) + ") than the limit (" +
                           std::to_string(limits::kArtifactBytesMax) + ").");
  }
  return ModuleParser(text).Parse();
}

}  // namespace hpvm::ir
