// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/opencl/bridge/bridge.h"

#include <clang/Basic/Diagnostic.h>
#include <clang/Basic/DiagnosticOptions.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/FrontendActions.h>
#include <clang/Frontend/PreprocessorOutputOptions.h>
#include <clang/Frontend/Utils.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/VirtualFileSystem.h>
#include <llvm/Support/raw_ostream.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/front/opencl/bridge/declarations.h"
#include "compiler/front/opencl/bridge/header.h"

namespace hpvm::opencl {
namespace {

constexpr char kFile[] = "module.cl";

// Forwards errors to the listener. Warnings are dropped: the driver reports them itself.
class DiagnosticCollector : public clang::DiagnosticConsumer {
 public:
  explicit DiagnosticCollector(const hpvm_opencl_listener& listener) : listener_(listener) {}

  bool any() const { return any_; }

  void HandleDiagnostic(clang::DiagnosticsEngine::Level level, const clang::Diagnostic& info) override {
    DiagnosticConsumer::HandleDiagnostic(level, info);
    if (level < clang::DiagnosticsEngine::Error) {
      return;
    }
    any_ = true;
    llvm::SmallString<256> message;
    info.FormatDiagnostic(message);
    const hpvm_opencl_place place =
        info.hasSourceManager() ? PlaceOf(info.getLocation(), info.getSourceManager()) : hpvm_opencl_place{0, 0};
    listener_.fault(listener_.context, place, message.c_str());
  }

 private:
  const hpvm_opencl_listener& listener_;
  bool any_ = false;
};

// Does the same as `-E` and writes the result to a string.
class Preprocess : public clang::PreprocessorFrontendAction {
 public:
  explicit Preprocess(std::string& out) : out_(out) {}

 private:
  void ExecuteAction() override {
    llvm::raw_string_ostream stream(out_);
    clang::PreprocessorOutputOptions options;
    options.ShowCPP = 1;
    clang::DoPrintPreprocessedInput(getCompilerInstance().getPreprocessor(), &stream, options);
  }

  std::string& out_;
};

class Describe : public clang::ASTFrontendAction {
 public:
  explicit Describe(const hpvm_opencl_listener& listener) : listener_(listener) {}

 private:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance&, llvm::StringRef) override {
    return ListDeclarations(listener_);
  }

  const hpvm_opencl_listener& listener_;
};

// Returns false after an error, which the listener has already received.
bool Run(clang::FrontendAction& action, std::vector<const char*> arguments, llvm::StringRef text,
         const hpvm_opencl_listener& listener) {
  auto files = llvm::makeIntrusiveRefCnt<llvm::vfs::InMemoryFileSystem>();
  files->addFile(kFile, 0, llvm::MemoryBuffer::getMemBuffer(text, kFile));
  files->addFile("/include/opencl-c-base.h", 0, llvm::MemoryBuffer::getMemBuffer(BaseHeader(), "opencl-c-base.h"));
  auto faults = std::make_unique<DiagnosticCollector>(listener);
  DiagnosticCollector& told = *faults;
  clang::DiagnosticOptions diagnostic_options;
  const auto early = clang::CompilerInstance::createDiagnostics(*files, diagnostic_options, &told, false);
  auto invocation = std::make_shared<clang::CompilerInvocation>();
  arguments.push_back(kFile);
  if (!clang::CompilerInvocation::CreateFromArgs(*invocation, arguments, *early) || told.any()) {
    return false;
  }
  invocation->getFrontendOpts().DisableFree = false;
  clang::CompilerInstance compiler(std::move(invocation));
  compiler.setVirtualFileSystem(files);
  compiler.createDiagnostics(&told, false);
  return compiler.ExecuteAction(action) && !told.any();
}

// Returns `text` without the lines that clang prints before the file's own text.
llvm::StringRef WithoutPreamble(llvm::StringRef text) {
  const std::string marker = "# 1 \"" + std::string(kFile) + "\" 2\n";
  const size_t at = text.find(marker);
  return at == llvm::StringRef::npos ? text : text.substr(at + marker.size());
}

}  // namespace
}  // namespace hpvm::opencl

void hpvm_opencl_describe(const hpvm_opencl_request* request, const hpvm_opencl_listener* listener) {
  using namespace hpvm::opencl;
  std::vector<const char*> common = {"-triple", "spir64-unknown-unknown", "-x", "cl",
                                     "-w",      "-ferror-limit",          "16", "-fno-caret-diagnostics"};
  std::vector<const char*> first = common;
  first.push_back("-E");
  first.insert(first.end(), request->arguments, request->arguments + request->argument_count);
  std::string text;
  Preprocess preprocess(text);
  if (!Run(preprocess, first, {request->text, request->text_bytes}, *listener)) {
    return;
  }
  // The second pass describes exactly the text that the driver gets. Macros, those of -D included, are already
  // expanded.
  std::vector<const char*> second = common;
  for (size_t i = 0; i < request->argument_count; ++i) {
    if (!llvm::StringRef(request->arguments[i]).starts_with("-D")) {
      second.push_back(request->arguments[i]);
    }
  }
  second.insert(second.end(), {"-fsyntax-only", "-finclude-default-header", "-fdeclare-opencl-builtins",
                               "-internal-isystem", "/include"});
  const std::string rest = "# 1 \"" + std::string(kFile) + "\"\n" + WithoutPreamble(text).str();
  Describe describe(*listener);
  if (Run(describe, second, rest, *listener)) {
    listener->text(listener->context, rest.data(), rest.size());
  }
}
