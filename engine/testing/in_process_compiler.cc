// SPDX-License-Identifier: Apache-2.0
#include "engine/testing/in_process_compiler.h"

#include <wabt/ir.h>
#include <wabt/stream.h>

#include <memory>
#include <utility>

#include <wabt/binary-writer.h>
#include <wabt/wast-lexer.h>
#include <wabt/wast-parser.h>

#include "compiler/driver/compile.h"

namespace hpvm::engine::testing {

StatusOr<CompileOutcome> InProcessCompiler::Compile(const CompileRequest& request, Time deadline) {
  const Time start = RealClock().Now();
  HPVMD_ASSIGN_OR_RETURN(const cpu::CpuTarget target, cpu::HostCpuTarget());
  cpu::InitializeLlvm();
  compile::CompileResult result = compile::CompileModule(request, request.module, target);
  return CompileOutcome{.diagnostics = std::move(result.diagnostics),
                        .artifact = std::move(result.artifact),
                        .elapsed = RealClock().Now() - start};
}

std::vector<uint8_t> WasmFromText(std::string_view text) {
  wabt::Errors errors;
  const std::unique_ptr<wabt::WastLexer> lexer =
      wabt::WastLexer::CreateBufferLexer("test.wat", text.data(), text.size(), &errors);
  wabt::WastParseOptions options{wabt::Features()};
  std::unique_ptr<wabt::Module> module;
  HPVMD_CHECK(wabt::Succeeded(wabt::ParseWatModule(lexer.get(), &module, &errors, &options)));
  wabt::MemoryStream stream;
  HPVMD_CHECK(wabt::Succeeded(wabt::WriteBinaryModule(&stream, module.get(), wabt::WriteBinaryOptions())));
  return stream.output_buffer().data;
}

}  // namespace hpvm::engine::testing
