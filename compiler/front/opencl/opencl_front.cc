// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/opencl_front.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "compiler/front/opencl/build_options.h"
#include "compiler/front/opencl/kernels.h"
#include "compiler/front/opencl/lexer.h"
#include "compiler/front/opencl/limits.h"

namespace hpvm::opencl {
namespace {

constexpr size_t kFaultsMax = 16;  // The rest of a text's faults are of a kind with the first.

struct BannedWord {
  std::string_view word, why;
};
constexpr std::string_view kFiles = "modules may not ask for files of the host";
constexpr std::string_view kAssembly = "inline assembly is not taken";
constexpr BannedWord kBanned[] = {
    {"__has_include", kFiles},
    {"__has_include_next", kFiles},
    {"__has_embed", kFiles},
    {"asm", kAssembly},
    {"__asm", kAssembly},
    {"__asm__", kAssembly},
    {"_Pragma", "pragmas stand on lines of their own here"},
    {"__pragma", "pragmas stand on lines of their own here"},
    {"printf", "modules that are native to a device may not print"},
};
constexpr std::string_view kDirectives[] = {"define",   "undef", "if",    "ifdef", "ifndef",  "elif",  "elifdef",
                                            "elifndef", "else",  "endif", "error", "warning", "pragma"};
constexpr std::string_view kPragmas[] = {"OPENCL", "STDC", "nounroll", "once", "unroll"};

class Vetting {
 public:
  Vetting(const FrontOptions& options, Diagnostics& out) : options_(options), out_(out) {}

  std::optional<std::string> Run(std::span<const uint8_t> bytes) {
    if (bytes.empty() || bytes.size() > limits::kTextBytesMax) {
      Add("The OpenCL C text has " + std::to_string(bytes.size()) + " bytes; 1 to " +
          std::to_string(limits::kTextBytesMax) + " is allowed.");
      return std::nullopt;
    }
    StatusOr<BuildOptions> build = ReadBuildOptions(options_.options, options_.target->api_version);
    if (!build.ok()) {
      Add(Message(build.status()));
      return std::nullopt;
    }
    for (const std::string& definition : build->definitions) {
      CheckWords(Lex(definition).tokens, true);
    }
    const Lexed lexed = Lex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    for (const LexFault& fault : lexed.faults) {
      AddAt(fault.place, fault.message);
    }
    CheckWords(lexed.tokens, false);
    CheckDirectives(lexed.tokens);
    if (!HasErrors(out_)) {
      CheckEntry(lexed.tokens);
    }
    return HasErrors(out_) ? std::nullopt : std::optional(build->text);
  }

 private:
  void Add(std::string message, Severity severity = Severity::kError) {
    out_.push_back({severity, "module \"" + options_.module_name + "\"", {}, std::move(message)});
  }
  void AddAt(const Place& at, const std::string& message) {
    if (++faults_ <= kFaultsMax) {
      Add("Line " + std::to_string(at.line) + ", column " + std::to_string(at.column) + ": " + message);
    }
  }

  void CheckWord(const std::string& word, const Place& at, bool is_option) {
    for (const BannedWord& banned : kBanned) {
      if (banned.word == word) {
        const std::string message = "\"" + word + "\" is refused: " + std::string(banned.why) + ".";
        is_option ? Add("In the build options " + message) : AddAt(at, message);
      }
    }
  }

  // Words as they stand, and those that "##" makes of its two neighbours.
  void CheckWords(const std::vector<Token>& tokens, bool is_option) {
    std::string pasted;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Token& token = tokens[i];
      if (token.kind != Token::Kind::kName) {
        continue;
      }
      const bool is_pasted =
          i >= 3 && tokens[i - 1].text == "#" && tokens[i - 2].text == "#" && tokens[i - 3].kind == Token::Kind::kName;
      pasted = is_pasted ? pasted + token.text : token.text;
      CheckWord(token.text, token.place, is_option);
      if (is_pasted) {
        CheckWord(pasted, token.place, is_option);
      }
    }
  }

  void CheckDirectives(const std::vector<Token>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (!tokens[i].begins_line || tokens[i].text != "#" || !tokens[i].in_directive) {
        continue;
      }
      // An empty directive does nothing.
      if (i + 1 == tokens.size() || !tokens[i + 1].in_directive || tokens[i + 1].begins_line) {
        continue;
      }
      const std::string& name = tokens[i + 1].text;
      if (std::find(std::begin(kDirectives), std::end(kDirectives), name) == std::end(kDirectives)) {
        const bool is_file = name.starts_with("include") || name == "import" || name == "embed";
        AddAt(tokens[i].place, "\"#" + name + "\" is refused: " +
                                   (is_file ? std::string(kFiles) : "it is not on the list of directives") + ".");
      } else if (name == "pragma") {
        CheckPragma(tokens, i);
      }
    }
  }

  void CheckPragma(const std::vector<Token>& tokens, size_t at) {
    const bool has_name = at + 2 < tokens.size() && tokens[at + 2].in_directive && !tokens[at + 2].begins_line;
    const std::string name = has_name ? tokens[at + 2].text : "";
    if (has_name && std::find(std::begin(kPragmas), std::end(kPragmas), name) == std::end(kPragmas)) {
      AddAt(tokens[at].place, "\"#pragma " + name +
                                  "\" is refused: those of OPENCL, STDC, unroll, nounroll and once are "
                                  "taken.");
    }
  }

  void CheckEntry(const std::vector<Token>& tokens) {
    const std::vector<KernelDeclaration> kernels = FindKernels(tokens);
    const KernelDeclaration* found = nullptr;
    std::string names;
    size_t same = 0;
    for (size_t i = 0; i < kernels.size(); ++i) {
      if (kernels[i].name == options_.entry) {
        found = &kernels[i];
        ++same;
      }
      if (i < kFaultsMax) {
        names += (names.empty() ? "\"" : ", \"") + kernels[i].name + "\"";
      }
    }
    if (found == nullptr) {
      // A macro may make the name; then the driver says whether it is there.
      const auto may_make = [&](const Token& token) {
        return token.kind == Token::Kind::kName && token.text == options_.entry;
      };
      const bool pastes = std::adjacent_find(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
                            return a.text == "#" && b.text == "#";
                          }) != tokens.end();
      if (!pastes && std::none_of(tokens.begin(), tokens.end(), may_make)) {
        Add("The text has no kernel \"" + options_.entry + "\"; it has " + (names.empty() ? "none" : names) + ".");
      }
      return;
    }
    // Of several, in branches for several devices, one is compiled.
    if (same == 1 && found->is_whole) {
      CheckParameters(*found);
    }
  }

  void CheckParameters(const KernelDeclaration& kernel) {
    if (kernel.parameters.size() != options_.params.size()) {
      AddAt(kernel.place, "The kernel \"" + kernel.name + "\" takes " + std::to_string(kernel.parameters.size()) +
                              " arguments, and the node has " + std::to_string(options_.params.size()) +
                              " parameters (ports and scalars); as many are needed, in the same order.");
      return;
    }
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      CheckParameter(kernel, ShapeOf(kernel.parameters[i]), options_.params[i], i);
    }
  }

  void CheckParameter(const KernelDeclaration& kernel, const ParameterShape& shape, const ParamSpec& param,
                      size_t index) {
    using Kind = ParameterShape::Kind;
    const std::string both =
        "Parameter " + std::to_string(index) + " is " +
        (param.is_buffer ? "the port" : "the scalar of type " + std::string(ir::Name(param.scalar))) + " \"" +
        param.name + "\" of the node, but \"" + shape.text + "\" of the kernel";
    const bool is_float = param.scalar == ir::Type::kF32 || param.scalar == ir::Type::kF64;
    const uint32_t width = param.scalar == ir::Type::kI64 || param.scalar == ir::Type::kF64 ? 64 : 32;
    switch (shape.kind) {
      case Kind::kUnknown:
        return;
      case Kind::kGlobal:
        if (!param.is_buffer) {
          return AddAt(kernel.place, both + ".");
        }
        if (!param.is_writable && !shape.is_const) {
          Add("Port \"" + param.name + "\" is only read, but the kernel's \"" + shape.text +
                  "\" could be written through; nothing checks that it is not. Declare it const.",
              Severity::kWarning);
        }
        return;
      case Kind::kLocal:
        return AddAt(kernel.place, both + "; local memory has to be declared inside the kernel.");
      case Kind::kOther:
        return AddAt(kernel.place, both + "; buffers and 32-bit and 64-bit numbers can be passed.");
      case Kind::kInteger:
      case Kind::kFloat:
        if (param.is_buffer || shape.width != width || is_float != (shape.kind == Kind::kFloat)) {
          AddAt(kernel.place, both + ".");
        }
    }
  }

  const FrontOptions& options_;
  Diagnostics& out_;
  size_t faults_ = 0;
};

}  // namespace

std::optional<std::string> VetOpenCl(std::span<const uint8_t> text, const FrontOptions& options,
                                     Diagnostics& diagnostics) {
  return Vetting(options, diagnostics).Run(text);
}

}  // namespace hpvm::opencl
