// SPDX-License-Identifier: Apache-2.0
// The real compiler inside the calling process, for tests that link LLVM and wabt.
#ifndef HPVMD_ENGINE_TESTING_IN_PROCESS_COMPILER_H_
#define HPVMD_ENGINE_TESTING_IN_PROCESS_COMPILER_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "compiler/api/service.h"

namespace hpvm::engine::testing {

class InProcessCompiler final : public CompilerService {
 public:
  StatusOr<CompileOutcome> Compile(const CompileRequest& request, Time deadline) override;
};

// Returns WebAssembly text as a binary module; ends the program when the text is wrong.
std::vector<uint8_t> WasmFromText(std::string_view text);

}  // namespace hpvm::engine::testing

#endif  // HPVMD_ENGINE_TESTING_IN_PROCESS_COMPILER_H_
