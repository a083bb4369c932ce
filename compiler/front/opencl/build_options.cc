// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/build_options.h"

#include <algorithm>
#include <iterator>

#include "base/limits.h"
#include "compiler/front/opencl/limits.h"

namespace hpvm::opencl {
namespace {

constexpr std::string_view kAllowed[] = {
    "-Werror",
    "-cl-denorms-are-zero",
    "-cl-fast-relaxed-math",
    "-cl-finite-math-only",
    "-cl-fp32-correctly-rounded-divide-sqrt",
    "-cl-kernel-arg-info",
    "-cl-mad-enable",
    "-cl-no-signed-zeros",
    "-cl-no-subgroup-ifp",
    "-cl-opt-disable",
    "-cl-single-precision-constant",
    "-cl-strict-aliasing",
    "-cl-uniform-work-group-size",
    "-cl-unsafe-math-optimizations",
    "-w",
};

// Options that change the meaning of macros or literals.
constexpr std::string_view kRead[] = {"-cl-fast-relaxed-math", "-cl-finite-math-only", "-cl-single-precision-constant"};

struct Language {
  std::string_view name;
  uint32_t version;
};
constexpr Language kLanguages[] = {{"CL1.0", 100}, {"CL1.1", 110}, {"CL1.2", 120}, {"CL2.0", 200}, {"CL3.0", 300}};

// Returns true for characters to which no shell or driver gives a special meaning.
bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-+=.,()*/%<>!&|^~?:").find(c) != std::string_view::npos;
}

bool IsName(std::string_view text) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && is_letter(text[0]) &&
         std::ranges::all_of(text, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

std::vector<std::string_view> Split(std::string_view options) {
  std::vector<std::string_view> words;
  for (size_t at = options.find_first_not_of(" \t\n\r"); at != std::string_view::npos;) {
    const size_t end = std::min(options.find_first_of(" \t\n\r", at), options.size());
    words.push_back(options.substr(at, end - at));
    at = options.find_first_not_of(" \t\n\r", end);
  }
  return words;
}

Status Refuse(std::string_view word, const std::string& why) {
  return InvalidArgument("The build option \"" + std::string(word) + "\" is refused: " + why + ".");
}

Status CheckLanguage(std::string_view word, uint32_t api_version) {
  const std::string_view name = word.substr(word.find('=') + 1);
  for (const Language& language : kLanguages) {
    if (language.name == name) {
      // OpenCL 3.0 devices need not support 2.0; their driver reports that itself.
      return language.version <= std::max(api_version, 120u)
                 ? absl::OkStatus()
                 : Refuse(word, "the device has OpenCL " + std::to_string(api_version / 100) + "." +
                                    std::to_string(api_version / 10 % 10));
    }
  }
  return Refuse(word, "the languages are CL1.0, CL1.1, CL1.2, CL2.0 and CL3.0");
}

Status CheckDefinition(std::string_view word, std::string_view definition, BuildOptions& result) {
  const size_t equals = definition.find('=');
  if (!IsName(definition.substr(0, equals))) {
    return Refuse(word, "-D takes NAME or NAME=VALUE");
  }
  result.arguments.push_back("-D" + std::string(definition));
  if (equals != std::string_view::npos) {
    result.definitions.emplace_back(definition.substr(equals + 1));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<BuildOptions> ReadBuildOptions(std::string_view options, uint32_t api_version) {
  if (options.size() > hpvm::limits::kBuildOptionsBytesMax) {
    return InvalidArgument("The build options have " + std::to_string(options.size()) + " bytes; the limit is " +
                           std::to_string(hpvm::limits::kBuildOptionsBytesMax) + ".");
  }
  const std::vector<std::string_view> words = Split(options);
  if (words.size() > limits::kOptionsMax) {
    return InvalidArgument("There are " + std::to_string(words.size()) + " build options; the limit is " +
                           std::to_string(limits::kOptionsMax) + ".");
  }
  BuildOptions result;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (!std::ranges::all_of(word, IsPlain)) {
      return Refuse(word,
                    "options may not contain quotes, backslashes or other characters that drivers read differently");
    }
    const bool is_definition = word.starts_with("-D");
    if (!is_definition) {
      result.text += (result.text.empty() ? "" : " ") + std::string(word);
    }
    if (word == "-D") {
      if (++i == words.size() || !std::ranges::all_of(words[i], IsPlain)) {
        return Refuse(word, "-D takes NAME or NAME=VALUE");
      }
      HPVMD_RETURN_IF_ERROR(CheckDefinition(words[i], words[i], result));
    } else if (is_definition) {
      HPVMD_RETURN_IF_ERROR(CheckDefinition(word, word.substr(2), result));
    } else if (word.starts_with("-cl-std=")) {
      HPVMD_RETURN_IF_ERROR(CheckLanguage(word, api_version));
      result.arguments.emplace_back(word);
    } else if (word.starts_with("-I") || word.starts_with("-i")) {
      return Refuse(word, "modules may not name files of the host");
    } else if (std::find(std::begin(kAllowed), std::end(kAllowed), word) == std::end(kAllowed)) {
      return Refuse(word,
                    "it is not on the list of accepted options (-D, -cl-std= and OpenCL's options that name no file)");
    } else if (std::find(std::begin(kRead), std::end(kRead), word) != std::end(kRead)) {
      result.arguments.emplace_back(word);
    }
  }
  return result;
}

}  // namespace hpvm::opencl
