// SPDX-License-Identifier: Apache-2.0
// Any text and options give a refusal or options from the list; an accepted text has no directive that reads a file.
#include <cstdint>
#include <string>

#include "base/status.h"
#include "compiler/front/opencl/lexer.h"
#include "compiler/front/opencl/opencl_front.h"

namespace hpvm::opencl {
namespace {

// Lexes an accepted text again and checks its tokens.
void CheckTaken(std::string_view text) {
  const Lexed lexed = Lex(text);
  HPVMD_CHECK(lexed.faults.empty());
  for (size_t i = 0; i + 1 < lexed.tokens.size(); ++i) {
    const Token& token = lexed.tokens[i];
    HPVMD_CHECK(token.place.offset < text.size() && token.place.line >= 1 && token.place.column >= 1);
    HPVMD_CHECK(!(token.in_directive && token.begins_line && token.text == "#" &&
                  lexed.tokens[i + 1].text.starts_with("include") && lexed.tokens[i + 1].in_directive &&
                  !lexed.tokens[i + 1].begins_line));
  }
}

// The first line of the input is the options.
void Vet(std::string_view input) {
  const size_t end = std::min(input.find('\n'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  GpuTarget target;
  target.api_version = 300;
  const std::vector<ParamSpec> params = {{.name = "a"}, {.name = "n", .is_buffer = false}};
  FrontOptions options;
  options.module_name = "fuzz";
  options.entry = "k";
  options.params = params;
  options.options = input.substr(0, end);
  options.target = &target;
  Diagnostics said;
  // Omits the compiler, which has fuzzers of its own and runs in a process that may crash.
  const std::optional<BuildOptions> taken =
      VetText({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, options, said);
  HPVMD_CHECK(taken.has_value() != HasErrors(said));
  if (taken.has_value()) {
    HPVMD_CHECK(taken->text.find_first_of("\"'\\@\n") == std::string::npos &&
                (" " + taken->text).find(" -I") == std::string::npos);
    CheckTaken(text);
  }
}

}  // namespace
}  // namespace hpvm::opencl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hpvm::opencl::Vet({reinterpret_cast<const char*>(data), size});
  return 0;
}
