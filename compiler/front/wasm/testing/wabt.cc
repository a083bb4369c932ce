// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/testing/wabt.h"

#include <cstring>
#include <memory>

#include "gtest/gtest.h"
#include "wabt/binary-reader.h"
#include "wabt/binary-writer.h"
#include "wabt/interp/binary-reader-interp.h"
#include "wabt/interp/interp.h"
#include "wabt/wast-lexer.h"
#include "wabt/wast-parser.h"

namespace hpvm::wasm {
namespace {

constexpr uint32_t kOut = 1024;  // Address of the array.

wabt::Features AllFeatures() {
  wabt::Features features;
  features.enable_exceptions();
  features.enable_threads();
  features.enable_tail_call();
  features.enable_memory64();
  return features;
}

wabt::interp::HostFunc::Ptr InstanceId(wabt::interp::Store& store, const uint32_t& current) {
  return wabt::interp::HostFunc::New(store, wabt::interp::FuncType({wabt::Type::I32}, {wabt::Type::I32}),
                                     [&current](wabt::interp::Thread&, const wabt::interp::Values& params,
                                                wabt::interp::Values& results, wabt::interp::Trap::Ptr*) {
                                       results[0].Set(params[0].Get<uint32_t>() == 0 ? current : 0u);
                                       return wabt::Result::Ok;
                                     });
}

}  // namespace

std::vector<uint8_t> Assemble(std::string_view wat) {
  wabt::Errors errors;
  const wabt::Features features = AllFeatures();
  auto lexer = wabt::WastLexer::CreateBufferLexer("test", wat.data(), wat.size(), &errors);
  std::unique_ptr<wabt::Module> module;
  wabt::WastParseOptions options(features);
  if (Failed(wabt::ParseWatModule(lexer.get(), &module, &errors, &options))) {
    ADD_FAILURE() << (errors.empty() ? "?" : errors[0].message) << " in\n" << wat;
    return {};
  }
  wabt::MemoryStream stream;
  const wabt::WriteBinaryOptions write(features, /*canonicalize_lebs=*/true, /*relocatable=*/false,
                                       /*write_debug_names=*/true);
  if (Failed(wabt::WriteBinaryModule(&stream, module.get(), write))) {
    ADD_FAILURE() << "The module cannot be written:\n" << wat;
    return {};
  }
  return stream.output_buffer().data;
}

std::optional<std::vector<uint32_t>> RunInWabt(const std::vector<uint8_t>& bytes, uint32_t instances) {
  namespace in = wabt::interp;
  const wabt::Features features = AllFeatures();
  wabt::Errors errors;
  in::ModuleDesc description;
  const wabt::ReadBinaryOptions options(features, nullptr, false, true, true);
  if (wabt::Failed(in::ReadBinaryInterp("test", bytes.data(), bytes.size(), options, &errors, &description))) {
    ADD_FAILURE() << (errors.empty() ? "?" : errors[0].message);
    return std::nullopt;
  }
  uint32_t current = 0;
  std::vector<uint32_t> out(instances);
  for (; current < instances; ++current) {
    in::Store store(features);  // Module state is private to an instance; only the array is shared, and instances use
                                // disjoint parts.
    const auto module = in::Module::New(store, description);
    const auto id = InstanceId(store, current);
    const in::RefVec imports(description.imports.size(), id.ref());
    in::Trap::Ptr trap;
    const auto instance = in::Instance::Instantiate(store, module.ref(), imports, &trap);
    in::Values results;
    for (size_t i = 0; instance && i < description.exports.size(); ++i) {
      if (description.exports[i].type.name != "run") {
        continue;
      }
      const auto function = store.UnsafeGet<in::Func>(instance->exports()[i]);
      if (Failed(function->Call(store, {in::Value::Make(kOut)}, results, &trap)) || trap) {
        return std::nullopt;
      }
      const auto memory = store.UnsafeGet<in::Memory>(instance->memories()[0]);
      std::memcpy(&out[current], memory->UnsafeData() + kOut + 4 * uint64_t{current}, 4);
    }
  }
  return out;
}

}  // namespace hpvm::wasm
