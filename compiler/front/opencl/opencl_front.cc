// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/opencl_front.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "compiler/front/opencl/build_options.h"
#include "compiler/front/opencl/lexer.h"
#include "compiler/front/opencl/limits.h"
#include "compiler/front/opencl/program.h"

namespace hpvm::opencl {
namespace {

constexpr size_t kFaultsMax = 16;  // Further faults of a text resemble the first ones.

struct BannedWord {
  std::string_view word, why;
};
constexpr std::string_view kFiles = "modules may not ask for files of the host";
constexpr std::string_view kAssembly = "inline assembly is not accepted";
constexpr BannedWord kBanned[] = {
    {"__has_include", kFiles},
    {"__has_include_next", kFiles},
    {"__has_embed", kFiles},
    {"asm", kAssembly},
    {"__asm", kAssembly},
    {"__asm__", kAssembly},
    {"_Pragma", "a pragma must be a line of its own (#pragma)"},
    {"__pragma", "a pragma must be a line of its own (#pragma)"},
    {"printf", "modules that are native to a device may not print"},
};
constexpr std::string_view kDirectives[] = {"define",   "undef", "if",    "ifdef", "ifndef",  "elif",  "elifdef",
                                            "elifndef", "else",  "endif", "error", "warning", "pragma"};
constexpr std::string_view kPragmas[] = {"OPENCL", "STDC", "nounroll", "once", "unroll"};

class Vetting {
 public:
  Vetting(const FrontOptions& options, Diagnostics& out) : options_(options), out_(out) {}

  std::optional<BuildOptions> CheckText(std::span<const uint8_t> bytes) {
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
    return HasErrors(out_) ? std::nullopt : std::optional(*std::move(build));
  }

  std::optional<Vetted> Run(std::span<const uint8_t> bytes) {
    std::optional<BuildOptions> build = CheckText(bytes);
    if (!build.has_value()) {
      return std::nullopt;
    }
    StatusOr<Program> program =
        ReadProgram({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, ArgumentsOf(*build));
    if (!program.ok()) {
      Add(Message(program.status()));
      return std::nullopt;
    }
    for (const TextFault& fault : program->faults) {
      fault.place.line == 0 ? Add(Sentence(fault.message)) : AddAt(fault.place, Sentence(fault.message));
    }
    if (program->faults.empty()) {
      CheckMemory(*program);
      CheckEntry(*program);
    }
    return HasErrors(out_) ? std::nullopt : std::optional(Vetted{std::move(program->text), std::move(build->text)});
  }

 private:
  void Add(std::string message, Severity severity = Severity::kError) {
    out_.push_back({severity, "module \"" + options_.module_name + "\"", {}, std::move(message)});
  }
  static std::string Sentence(std::string message) {
    message[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(message[0])));
    return message + (message.ends_with('.') || message.ends_with('?') ? "" : ".");
  }
  void AddAt(const SourcePosition& at, const std::string& message) {
    if (++faults_ <= kFaultsMax) {
      Add("Line " + std::to_string(at.line) + ", column " + std::to_string(at.column) + ": " + message);
    }
  }

  void CheckWord(const std::string& word, const SourcePosition& at, bool is_option) {
    for (const BannedWord& banned : kBanned) {
      if (banned.word == word) {
        const std::string message = "\"" + word + "\" is refused: " + std::string(banned.why) + ".";
        is_option ? Add("In the build options " + message) : AddAt(at, message);
      }
    }
  }

  // Checks each word as written and the word that "##" makes of its two neighbours.
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
                                   (is_file ? std::string(kFiles) : "it is not on the list of accepted directives") +
                                   ".");
      } else if (name == "pragma") {
        CheckPragma(tokens, i);
      }
    }
  }

  void CheckPragma(const std::vector<Token>& tokens, size_t at) {
    const bool has_name = at + 2 < tokens.size() && tokens[at + 2].in_directive && !tokens[at + 2].begins_line;
    const std::string name = has_name ? tokens[at + 2].text : "";
    if (has_name && std::find(std::begin(kPragmas), std::end(kPragmas), name) == std::end(kPragmas)) {
      AddAt(tokens[at].place,
            "\"#pragma " + name +
                "\" is refused: only the pragmas OPENCL, STDC, unroll, nounroll and once are accepted.");
    }
  }

  // Returns clang's arguments for the device: macros and extensions that texts test. OpenCL 3.0 drivers define the
  // rest.
  std::vector<std::string> ArgumentsOf(const BuildOptions& build) const {
    const GpuTarget& target = *options_.target;
    const auto is_language = [](const std::string& word) { return word.starts_with("-cl-std="); };
    const auto language = std::ranges::find_if(build.arguments, is_language);
    const bool is_late =
        language != build.arguments.end() && language->compare(8, 2, "CL") == 0 && (*language)[10] >= '2';
    std::string extensions = is_late ? "+all,-cl_khr_fp16"
                                     : "-all,+cl_khr_byte_addressable_store,+cl_khr_global_int32_base_atomics,"
                                       "+cl_khr_global_int32_extended_atomics,+cl_khr_local_int32_base_atomics,"
                                       "+cl_khr_local_int32_extended_atomics";
    const auto add = [&](bool has, const char* name) { extensions += std::string(has ? ",+" : ",-") + name; };
    add(target.has_fp64, "cl_khr_fp64");
    if (is_late) {
      add(target.has_fp64, "__opencl_c_fp64");
    }
    add(target.has_int64_atomics, "cl_khr_int64_base_atomics");
    add(target.has_int64_atomics, "cl_khr_int64_extended_atomics");
    std::vector<std::string> arguments = {"-cl-ext=" + extensions, "-D__ENDIAN_LITTLE__=1",
                                          "-D__OPENCL_VERSION__=" + std::to_string(target.api_version)};
    if (language == build.arguments.end()) {
      arguments.push_back("-cl-std=CL1.2");
    }
    arguments.insert(arguments.end(), build.arguments.begin(), build.arguments.end());
    return arguments;
  }

  void CheckMemory(const Program& program) {
    struct Sum {
      uint64_t bytes = 0;
      bool is_told = false;
    };
    std::map<std::pair<Variable::Space, std::string>, Sum> sums;
    const auto check = [&](const Variable& variable, Sum& sum, uint64_t most, const std::string& what) {
      // The sum cannot wrap: the number of variables is limited, and each counts at most 2^40 bytes.
      sum.bytes += std::min(variable.bytes, uint64_t{1} << 40);
      if (sum.bytes > most && !sum.is_told) {
        sum.is_told = true;
        AddAt(variable.place, "With \"" + variable.name + "\" " + what + " takes " + std::to_string(sum.bytes) +
                                  " bytes; the limit is " + std::to_string(most) + ".");
      }
    };
    for (const Variable& variable : program.variables) {
      Sum& sum = sums[{variable.space, variable.space == Variable::Space::kConstant ? "" : variable.function}];
      switch (variable.space) {
        case Variable::Space::kPrivate:
          check(variable, sum, limits::kPrivateBytesMax,
                "the private memory of the function \"" + variable.function + "\"");
          break;
        case Variable::Space::kLocal:
          check(variable, sum, options_.target->local_bytes_max,
                "the local memory of the kernel \"" + variable.function + "\"");
          break;
        case Variable::Space::kConstant:
          check(variable, sum, limits::kConstantBytesMax, "constant memory of the text");
      }
    }
  }

  void CheckEntry(const Program& program) {
    std::string names;
    for (size_t i = 0; i < program.kernels.size(); ++i) {
      if (program.kernels[i].name == options_.entry) {
        return CheckParameters(program.kernels[i]);
      }
      if (i < kFaultsMax) {
        names += (names.empty() ? "\"" : ", \"") + program.kernels[i].name + "\"";
      }
    }
    Add("The text has no kernel \"" + options_.entry + "\"; it has " + (names.empty() ? "none" : names) + ".");
  }

  void CheckParameters(const Kernel& kernel) {
    if (kernel.parameters.size() != options_.params.size()) {
      AddAt(kernel.place, "The kernel \"" + kernel.name + "\" takes " + std::to_string(kernel.parameters.size()) +
                              " arguments, and the node has " + std::to_string(options_.params.size()) +
                              " parameters (ports and scalars); their number and order must match.");
      return;
    }
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      CheckParameter(kernel.parameters[i], options_.params[i], i);
    }
  }

  void CheckParameter(const Parameter& parameter, const ParamSpec& param, size_t index) {
    using Kind = Parameter::Kind;
    const std::string both =
        "Parameter " + std::to_string(index) + " is " +
        (param.is_buffer ? "the port" : "the scalar of type " + std::string(ir::Name(param.scalar))) + " \"" +
        param.name + "\" of the node, but has the type \"" + parameter.type + "\" in the kernel";
    const bool is_float = param.scalar == ir::Type::kF32 || param.scalar == ir::Type::kF64;
    const uint32_t bits = param.scalar == ir::Type::kI64 || param.scalar == ir::Type::kF64 ? 64 : 32;
    switch (parameter.kind) {
      case Kind::kGlobal:
        if (!param.is_buffer) {
          return AddAt(parameter.place, both + ".");
        }
        if (!param.is_writable && !parameter.is_const) {
          Add("Port \"" + param.name + "\" is read-only, but the kernel can write through its \"" + parameter.type +
                  "\", and no check prevents that. Declare the parameter const.",
              Severity::kWarning);
        }
        return;
      case Kind::kLocal:
        return AddAt(parameter.place, both + "; local memory has to be declared inside the kernel.");
      case Kind::kVector:
      case Kind::kRecord:
      case Kind::kOpaque:
      case Kind::kOther:
        return AddAt(parameter.place, both + "; buffers and 32-bit and 64-bit numbers can be passed.");
      case Kind::kInteger:
      case Kind::kFloat:
        if (param.is_buffer || parameter.bits != bits || is_float != (parameter.kind == Kind::kFloat)) {
          AddAt(parameter.place, both + ".");
        }
    }
  }

  const FrontOptions& options_;
  Diagnostics& out_;
  size_t faults_ = 0;
};

}  // namespace

std::optional<Vetted> VetOpenCl(std::span<const uint8_t> text, const FrontOptions& options, Diagnostics& diagnostics) {
  return Vetting(options, diagnostics).Run(text);
}

std::optional<BuildOptions> VetText(std::span<const uint8_t> text, const FrontOptions& options,
                                    Diagnostics& diagnostics) {
  return Vetting(options, diagnostics).CheckText(text);
}

}  // namespace hpvm::opencl
