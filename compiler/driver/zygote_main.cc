// SPDX-License-Identifier: Apache-2.0
// hpvm-compiler: the zygote (zygote.h), or one compile for a developer:
//   hpvm-compiler --module x.wasm --entry f --param buffer:in --param i32 ... --emit ir|llvm|asm|artifact
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include <CLI/CLI.hpp>

#include "compiler/driver/compile.h"
#include "compiler/driver/zygote.h"
#include "compiler/ir/text/text.h"

namespace hpvm::compile {
namespace {

struct ToolOptions {
  std::string module;
  std::string entry;
  std::vector<std::string> params;
  std::string abi = "hpvm";
  std::string emit = "ir";
  std::string level;
};

// Parses "buffer:in", "buffer:out", "buffer:inout" or a scalar's type, each with an optional "=name".
std::optional<ParamSpec> ParseParam(std::string text, size_t index) {
  ParamSpec param;
  param.name = "p" + std::to_string(index);
  if (size_t equals = text.find('='); equals != std::string::npos) {
    param.name = text.substr(equals + 1);
    text.resize(equals);
  }
  if (text.starts_with("buffer:")) {
    std::string access = text.substr(7);
    param.is_writable = access != "in";
    return access == "in" || access == "out" || access == "inout" ? std::optional(param) : std::nullopt;
  }
  param.is_buffer = false;
  for (ir::Type type : {ir::Type::kI32, ir::Type::kI64, ir::Type::kF32, ir::Type::kF64}) {
    if (text == ir::Name(type)) {
      param.scalar = type;
      return param;
    }
  }
  return std::nullopt;
}

int Fail(const std::string& message) {
  std::cerr << "hpvm-compiler: " << message << "\n";
  return 1;
}

int Print(const StatusOr<std::string>& text) {
  if (!text.ok()) {
    return Fail(Message(text.status()));
  }
  std::cout.write(text->data(), static_cast<std::streamsize>(text->size()));
  return 0;
}

StatusOr<std::string> Emit(const ir::Module& module, const std::string& emit, const cpu::CpuTarget& target) {
  if (emit == "ir") {
    return ir::Print(module);
  }
  if (emit == "llvm" || emit == "asm") {
    return cpu::EmitCpuText(module, target, emit == "llvm" ? cpu::CpuText::kLlvm : cpu::CpuText::kAssembly);
  }
  HPVMD_ASSIGN_OR_RETURN(Artifact artifact, cpu::EmitCpuImage(module, target));
  std::vector<uint8_t> bytes = Serialize(artifact, ArtifactKey{});
  return std::string(bytes.begin(), bytes.end());
}

int RunTool(const ToolOptions& options) {
  std::ifstream file(options.module, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || bytes.empty()) {
    return Fail("The module \"" + options.module + "\" cannot be read or is empty.");
  }
  CompileRequest request;
  request.module_name = options.module;
  request.entry = options.entry;
  request.abi = options.abi == "hpvm" ? Abi::kHpvm : Abi::kHpvmWeb;
  for (const std::string& text : options.params) {
    std::optional<ParamSpec> param = ParseParam(text, request.params.size());
    if (!param.has_value()) {
      return Fail("The parameter \"" + text +
                  "\" is not one of buffer:in, buffer:out, buffer:inout, i32, i64, f32, f64.");
    }
    request.params.push_back(*param);
  }
  StatusOr<cpu::CpuTarget> target = options.level.empty() ? cpu::HostCpuTarget() : cpu::CpuTarget{options.level};
  if (!target.ok()) {
    return Fail(Message(target.status()));
  }
  FrontResult front = PrepareModule(request, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  std::cerr << ToString(front.diagnostics);
  return front.module.has_value() ? Print(Emit(*front.module, options.emit, *target)) : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Compiles kernels for hpvmd's executors; with --module, one kernel for a developer.", "hpvm-compiler");
  ZygoteOptions zygote;
  bool no_sandbox = false;
  CLI::Option* socket = app.add_option("--socket", zygote.socket, "Descriptor of the inherited socket to the client");
  app.add_option("--cache", zygote.cache_folder, "Folder of compiled artifacts");
  app.add_option("--cache-bytes", zygote.cache_bytes_max, "Limit of the folder's size in bytes")->capture_default_str();
  app.add_option("--memory-bytes", zygote.memory_bytes_max, "Limit of one compile's address space in bytes")
      ->capture_default_str();
  app.add_option("--seconds", zygote.seconds_max, "Limit of one compile's processor time in seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 3600));
  app.add_option("--wall-seconds", zygote.wall_seconds_max, "Limit of one compile's wall time in seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 86400));
  app.add_option("--children", zygote.children_max, "Compiles at a time; 0: one per core")->capture_default_str();
  app.add_flag(
      "--opencl", zygote.has_opencl,
      "Load the OpenCL C front end, and the translator of SPIR-V kernels for drivers that do not accept SPIR-V");
  app.add_flag("--needs-landlock", zygote.needs_landlock,
               "Exit if the system lacks Landlock, which keeps this process from files");
  app.add_flag("--no-sandbox", no_sandbox, "Run without the sandbox; for debuggers only");
  ToolOptions tool;
  CLI::Option* module = app.add_option("--module", tool.module, "A WebAssembly file to compile")->excludes(socket);
  app.add_option("--entry", tool.entry, "The exported function to compile")->needs(module);
  app.add_option("--param", tool.params,
                 "A parameter's kind, in order: buffer:in, buffer:out, buffer:inout, or a scalar's type")
      ->needs(module)
      ->take_all();
  app.add_option("--abi", tool.abi, "The convention by which the graph passes parameters")
      ->needs(module)
      ->check(CLI::IsMember({"hpvm", "hpvm-web"}));
  app.add_option("--emit", tool.emit, "The form to print")
      ->needs(module)
      ->check(CLI::IsMember({"ir", "llvm", "asm", "artifact"}));
  app.add_option("--level", tool.level, "Processor level; the default is this machine's")
      ->needs(module)
      ->check(CLI::IsMember({"x86-64-v2", "x86-64-v3", "x86-64-v4"}));
  CLI11_PARSE(app, argc, argv);
  if (!tool.module.empty()) {
    return RunTool(tool);
  }
  if (zygote.socket < 0) {
    return Fail("Either --socket or --module is needed.");
  }
  zygote.is_sandboxed = !no_sandbox;
  return RunZygote(zygote);
}

}  // namespace
}  // namespace hpvm::compile

int main(int argc, char** argv) { return hpvm::compile::Main(argc, argv); }
