// SPDX-License-Identifier: Apache-2.0
#include "compiler/back/kernel_il/spirv_bridge.h"

#include <LLVMSPIRVLib/LLVMSPIRVLib.h>
#include <llvm/ADT/SmallVector.h>
#include <llvm/Bitcode/BitcodeWriter.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>

int hpvm_spirv_translate(const char* spirv, size_t spirv_bytes, hpvm_spirv_write write, void* context, char* error,
                         size_t error_bytes) {
  llvm::LLVMContext llvm_context;
  // Readers of SPIR bitcode know typed pointers; later LLVMs read both kinds.
  llvm_context.setOpaquePointers(false);
  std::istringstream input(std::string(spirv, spirv_bytes));
  llvm::Module* raw = nullptr;
  std::string message;
  SPIRV::TranslatorOpts options(SPIRV::VersionNumber::SPIRV_1_2);
  const bool is_read = llvm::readSpirv(llvm_context, options, input, raw, message);
  const std::unique_ptr<llvm::Module> module(raw);
  if (!is_read || module == nullptr) {
    std::snprintf(error, error_bytes, "%s", message.empty() ? "no reason was given" : message.c_str());
    return 1;
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream out(bytes);
  llvm::WriteBitcodeToFile(*module, out);
  write(context, bytes.data(), bytes.size());
  return 0;
}
