// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/kernel/kernel_report.h"

#include <stdio.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <tuple>
#include <vector>

#include "client/ctl/report.h"
#include "client/ctl/text/text.h"
#include "client/files/input_file.h"
#include "nlohmann/json.hpp"

#include "compiler/api/source_text.h"

namespace hpvm::ctl {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Kind = KernelRemark::Kind;

// Limits of a source file that is shown, and of a line.
constexpr uintmax_t kSourceBytesMax = 16 << 20;
constexpr size_t kSourceLineBytesMax = 100;

std::string_view NameOf(Kind kind) {
  constexpr std::string_view kNames[] = {"",        "shape", "control", "access", "bounds",
                                         "barrier", "tile",  "refused", "call"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "";
}

std::string_view UnitOf(const CpuVariant& variant) {
  switch (variant.unit) {
    case CpuVariant::Unit::kInstance:
      return "instance";
    case CpuVariant::Unit::kTile:
      return "tile";
    case CpuVariant::Unit::kGroup:
      return "group";
  }
  return "";
}

// A tile of one instance means one instance at a time without checks.
bool IsLockstep(const CpuVariant& variant) {
  return variant.unit == CpuVariant::Unit::kGroup || (variant.unit == CpuVariant::Unit::kTile && variant.lanes > 1);
}

// Formats as "tiles of 48 x 8 instances (3 vectors of 16 lanes, 8 rows), unchecked where a launch shows the bounds".
std::string Describe(const CpuVariant& variant) {
  const std::string lanes = std::to_string(variant.lanes);
  std::string text = "one instance at a time";
  if (variant.unit == CpuVariant::Unit::kGroup) {
    text = "groups, " + lanes + " lanes at a time, which keep " + std::to_string(variant.value_bytes) +
           " bytes per lane across barriers";
  } else if (IsLockstep(variant)) {
    text = "tiles of " + std::to_string(variant.width()) + " x " + std::to_string(variant.height()) + " instances (" +
           (variant.columns == 1 ? "vectors" : std::to_string(variant.columns) + " vectors") + " of " + lanes +
           " lanes" + (variant.is_along_y ? " along y, for launches that are narrow along x" : "") +
           (variant.rows == 1 ? "" : ", " + std::to_string(variant.rows) + " rows") +
           (variant.is_for_edges ? "; for launches most of whose tiles meet an edge of the extent" : "") + ")";
  }
  return text + (variant.needs_proof ? ", unchecked, for launches that provably stay inside their buffers" : "");
}

std::string_view KindOf(const ir::KernelParam& param) {
  return !param.is_buffer ? ir::Name(param.type) : !param.is_writable ? "in" : param.is_read ? "inout" : "out";
}

std::string Describe(const ir::KernelParam& param) { return "\"" + param.name + "\" " + std::string(KindOf(param)); }

// Sources reads lines of the files that debug information names.
class Sources {
 public:
  explicit Sources(const std::string& module) : folder_(fs::path(module).parent_path()) {}

  std::string LineOf(const std::string& file, uint32_t line) {
    auto [found, is_new] = files_.try_emplace(file);
    if (is_new) {
      for (const fs::path& path : {fs::path(file), folder_ / file, folder_ / fs::path(file).filename()}) {
        if (Read(path, &found->second)) {
          break;
        }
      }
    }
    return line >= 1 && line <= found->second.size() ? found->second[line - 1] : "";
  }

 private:
  // Reads regular files only: a name from a module must not make this wait for a pipe.
  static bool Read(const fs::path& path, std::vector<std::string>* lines) {
    const StatusOr<std::string> text = ReadInputText(path.string(), kSourceBytesMax);
    if (!text.ok()) {
      return false;
    }
    std::istringstream stream(*text);
    for (std::string line; std::getline(stream, line);) {
      const size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
      lines->push_back(line.substr(begin, kSourceLineBytesMax));
    }
    return true;
  }

  fs::path folder_;
  std::map<std::string, std::vector<std::string>> files_;
};

// Place groups the remarks of one line, of one byte when no line is known, or of the whole kernel.
struct RemarkLocation {
  uint32_t rank = 0;  // Order: the whole kernel, lines, bytes.
  std::string file;
  uint32_t line = 0, byte = 0;
  auto operator<=>(const RemarkLocation&) const = default;
};

RemarkLocation PlaceOfRemark(const Artifact& artifact, const KernelRemark& remark) {
  if (const SourceLine* line = FindLine(artifact, remark.source)) {
    return {1, artifact.files[line->file], line->line, 0};
  }
  return remark.source == 0 ? RemarkLocation{} : RemarkLocation{2, "", 0, remark.source};
}

std::string HeadingOf(const RemarkLocation& place, Sources& sources) {
  if (place.rank == 0) {
    return "the kernel as a whole";
  }
  if (place.rank == 2) {
    return "byte " + std::to_string(place.byte);
  }
  const std::string text = sources.LineOf(place.file, place.line);
  return place.file + ":" + std::to_string(place.line) + (text.empty() ? "" : "    " + text);
}

std::string_view NameOf(GpuFormat format) {
  switch (format) {
    case GpuFormat::kNone:
      break;
    case GpuFormat::kOpenClC:
      return "OpenCL C";
    case GpuFormat::kSpirvKernel:
      return "a SPIR-V kernel";
    case GpuFormat::kPtx:
      return "PTX";
    case GpuFormat::kSpirBitcode:
      return "SPIR bitcode";
    case GpuFormat::kSpirvShader:
      return "a SPIR-V shader";
    case GpuFormat::kBitstream:
      return "a bitstream";
  }
  return "nothing";
}

std::string Product(const std::array<uint32_t, 3>& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
}

// Formats as "4 x 1 x 1 instances a work item, unchecked where a launch shows the bounds".
std::string Describe(const GpuVariant& variant) {
  const bool is_single = variant.tile == std::array<uint32_t, 3>{1, 1, 1};
  std::string text = is_single ? "one instance per work item" : Product(variant.tile) + " instances per work item";
  text += variant.group[0] == 0 ? "" : ", groups of " + Product(variant.group) + " work items";
  text += variant.needs_alignment ? ", buffers at multiples of 16 bytes" : "";
  text += variant.needs_proof ? ", unchecked, for launches that provably stay inside their buffers" : "";
  return text + (variant.needs_words ? ", where the range of the indices is known" : "");
}

// Measurements of a GPU are pairs of a variant and one of four shapes of groups (compiler/api/tuning_record.h).
constexpr uint32_t kGroupShapes = 4;

// Returns the name of the variant that bit `index` of a class of launches stands for.
std::string NameOf(const Artifact& artifact, uint32_t index) {
  if (IsGpuCode(artifact.kind)) {
    const uint32_t variant = index / kGroupShapes;
    return variant < artifact.gpu.variants.size() ? Describe(artifact.gpu.variants[variant]) + ", shape " +
                                                        std::to_string(index % kGroupShapes) + " of groups"
                                                  : "a variant that no longer exists";
  }
  return index < artifact.variants.size() ? Describe(artifact.variants[index]) : "one instance at a time";
}

// Formats as "about 512 x 512 instances": a class covers extents within a factor of four.
std::string SizeOf(const TuningClass& item) {
  std::string text = "about ";
  for (size_t d = 0; d < 3; ++d) {
    const uint32_t bits = item.sizes[d] == 0 ? 0 : 2 * item.sizes[d] - 1;
    if (d == 0 || item.sizes[d] > 1) {
      text += (d == 0 ? "" : " x ") + std::to_string(uint64_t{1} << std::min(bits, 63u));
    }
  }
  return text + " instances";
}

std::string MeasuredVariants(const KernelExplanation& explanation) {
  if (!explanation.tuning.has_value()) {
    return "";
  }
  std::string text = "measured by local runs on " + explanation.tuning->device + ":\n";
  for (const TuningClass& item : explanation.tuning->classes) {
    text += "  " + SizeOf(item) + ": " + NameOf(explanation.artifact, item.winner);
    if (item.winner < item.instance_ns.size() && item.instance_ns[item.winner] > 0) {
      char time[32];
      snprintf(time, sizeof(time), ", %.3g ns per instance", static_cast<double>(item.instance_ns[item.winner]));
      text += time;
    }
    text += "\n";
  }
  return text;
}

Json ToJson(const TuningRecord& record) {
  Json json = {{"device", record.device}, {"classes", Json::array()}};
  for (const TuningClass& item : record.classes) {
    json["classes"].push_back({{"size_bits", item.sizes}, {"winner", item.winner}, {"instance_ns", item.instance_ns}});
  }
  return json;
}

// Describes the form in which the driver gets the program, and how it is launched.
std::string DescribeProgram(const Artifact& artifact) {
  const GpuCode& gpu = artifact.gpu;
  std::string text = "goes to the driver as " + std::string(NameOf(gpu.format)) + " (" +
                     std::to_string(artifact.code.size()) + " bytes)";
  if (gpu.is_native) {
    const std::array<uint32_t, 3>& group = gpu.variants[0].group;
    return text + ", the module's own code: its accesses are not checked" +
           (group[0] == 0 ? "" : "; groups have " + Product(group) + " work items") + "\n";
  }
  text += "; a launch takes the first variant that it allows, and later the quickest that was measured, of:\n";
  for (const GpuVariant& variant : gpu.variants) {
    text += "  " + Describe(variant) + "\n";
  }
  return text;
}

std::string Summary(const KernelExplanation& explanation) {
  const Artifact& artifact = explanation.artifact;
  std::string text = "kernel \"" + artifact.entry + "\" of " + explanation.module + " for " + artifact.target + ", " +
                     (artifact.fast_math ? "fast" : "exact") + " math\n";
  std::string params;
  for (const ir::KernelParam& param : artifact.params) {
    params += (params.empty() ? "" : ", ") + Describe(param);
  }
  text +=
      "parameters: " + (params.empty() ? "none" : params) +
      (explanation.is_inferred && !params.empty() ? " (guessed from what the kernel does with them; --param sets them)"
                                                  : "") +
      "\n";
  const bool is_lockstep = std::any_of(artifact.variants.begin(), artifact.variants.end(), IsLockstep);
  if (IsGpuCode(artifact.kind)) {
    text += DescribeProgram(artifact);
  } else if (artifact.kind != ArtifactKind::kCpuImage) {
    text += "compiled to text only: this machine cannot run code for that processor\n";
  } else if (is_lockstep) {
    text +=
        "vectorised; a launch takes the first variant that it allows, and later the quickest that was measured, of:\n";
    for (const CpuVariant& variant : artifact.variants) {
      text += "  " + Describe(variant) + "\n";
    }
    text += "  one instance at a time\n";
  } else {
    text += "not vectorised: runs one instance at a time\n";
  }
  return text;
}

void PrintText(const KernelExplanation& explanation) {
  const Artifact& artifact = explanation.artifact;
  std::map<RemarkLocation, std::vector<const KernelRemark*>> places;
  for (const KernelRemark& remark : artifact.remarks) {
    places[PlaceOfRemark(artifact, remark)].push_back(&remark);
  }
  Sources sources(explanation.module);
  std::string text = Summary(explanation) + MeasuredVariants(explanation);
  for (auto& [place, remarks] : places) {
    text += "\n" + HeadingOf(place, sources) + "\n";
    std::stable_sort(remarks.begin(), remarks.end(), [](const KernelRemark* a, const KernelRemark* b) {
      return std::tie(a->kind, a->text) < std::tie(b->kind, b->text);
    });
    for (size_t i = 0, next = 0; i < remarks.size(); i = next) {
      // Because compilers unroll, several operations of one line may have the same remark.
      while (next < remarks.size() && remarks[next]->kind == remarks[i]->kind &&
             remarks[next]->text == remarks[i]->text) {
        ++next;
      }
      const std::string kind(NameOf(remarks[i]->kind));
      text += "  " + kind + std::string(kind.size() < 9 ? 9 - kind.size() : 1, ' ') + remarks[i]->text +
              (next - i == 1 ? "" : " (" + std::to_string(next - i) + " times)") + "\n";
    }
  }
  fputs(Printable(text).c_str(), stdout);
}

Json ToJson(const Artifact& artifact, const KernelRemark& remark) {
  Json json = {{"kind", NameOf(remark.kind)}, {"text", remark.text}};
  if (remark.source != 0) {
    json["offset"] = remark.source;
  }
  if (const SourceLine* line = FindLine(artifact, remark.source)) {
    json["file"] = artifact.files[line->file];
    json["line"] = line->line;
    json["column"] = line->column;
  }
  return json;
}

void PrintExplanationData(const KernelExplanation& explanation, const Format& format) {
  const Artifact& artifact = explanation.artifact;
  Json json = {{"module", explanation.module},
               {"entry", artifact.entry},
               {"target", artifact.target},
               {"math", artifact.fast_math ? "fast" : "exact"},
               {"vectorised", std::any_of(artifact.variants.begin(), artifact.variants.end(), IsLockstep)}};
  json["parameters"] = Json::array();
  for (const ir::KernelParam& param : artifact.params) {
    json["parameters"].push_back({{"name", param.name}, {"kind", KindOf(param)}});
  }
  json["parameters_guessed"] = explanation.is_inferred;
  json["variants"] = Json::array();
  for (const CpuVariant& variant : artifact.variants) {
    json["variants"].push_back({{"unit", UnitOf(variant)},
                                {"lanes", variant.lanes},
                                {"columns", variant.columns},
                                {"rows", variant.rows},
                                {"needs_proof", variant.needs_proof},
                                {"value_bytes", variant.value_bytes}});
  }
  for (const GpuVariant& variant : artifact.gpu.variants) {
    json["variants"].push_back({{"entry", variant.entry},
                                {"tile", variant.tile},
                                {"group", variant.group},
                                {"needs_proof", variant.needs_proof},
                                {"needs_words", variant.needs_words},
                                {"needs_alignment", variant.needs_alignment},
                                {"can_trap", variant.can_trap},
                                {"local_bytes", variant.local_bytes}});
  }
  if (IsGpuCode(artifact.kind)) {
    json["format"] = NameOf(artifact.gpu.format);
  }
  json["learnt"] = explanation.tuning.has_value() ? ToJson(*explanation.tuning) : Json();
  json["remarks"] = Json::array();
  for (const KernelRemark& remark : artifact.remarks) {
    json["remarks"].push_back(ToJson(artifact, remark));
  }
  json["warnings"] = Json::array();
  for (const Diagnostic& warning : explanation.warnings) {
    json["warnings"].push_back(ToString(warning));
  }
  json["listing"] = artifact.listing;
  json["read_ns"] = artifact.read_ns;
  json["pass_ns"] = artifact.pass_ns;
  json["emit_ns"] = artifact.emit_ns;
  PrintData(json, format);
}

}  // namespace

void PrintExplanation(const KernelExplanation& explanation, const Format& format) {
  if (format == Format::kJson) {
    PrintExplanationData(explanation, format);
    return;
  }
  for (const Diagnostic& warning : explanation.warnings) {
    PrintWarning(ToString(warning));
  }
  if (!explanation.artifact.listing.empty()) {
    std::string listing = explanation.artifact.listing;
    std::replace(listing.begin(), listing.end(), '\t', ' ');
    fputs(Printable(listing).c_str(), stdout);
  } else {
    PrintText(explanation);
  }
}

}  // namespace hpvm::ctl
