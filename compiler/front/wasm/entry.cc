// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/entry.h"

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "compiler/front/wasm/read/fault.h"

namespace hpvm::wasm {
namespace {

constexpr uint32_t kTrailing = 6;  // HPVM-web: idx_x, idx_y, idx_z, dim_x, dim_y, dim_z.

std::string Listed(const std::vector<const Export*>& exports) {
  if (exports.empty()) {
    return " It exports no function; link with -Wl,--export-dynamic or mark the kernel HPVM_KERNEL.";
  }
  constexpr size_t kListedMax = 8;
  std::string text = " It exports ";
  for (size_t i = 0; i < std::min(exports.size(), kListedMax); ++i) {
    text += (i == 0 ? "\"" : ", \"") + exports[i]->name.substr(0, 64) + "\"";
  }
  return text + (exports.size() > kListedMax ? " and " + std::to_string(exports.size() - kListedMax) + " more." : ".");
}

const Export* FindExport(const Module& module, const WasmOptions& options, const std::string& place,
                         Diagnostics& diagnostics) {
  std::vector<const Export*> functions;
  for (const Export& item : module.exports) {
    if (item.name == options.entry) {
      if (item.kind == ExternKind::kFunction && !module.functions[item.index].import) {
        return &item;
      }
      diagnostics.push_back(
          Fault(place, std::nullopt,
                "The entry \"" + options.entry + "\" is exported but is " +
                    (item.kind == ExternKind::kFunction ? "an imported function." : "not a function.")));
      return nullptr;
    }
    if (item.kind == ExternKind::kFunction) {
      functions.push_back(&item);
    }
  }
  diagnostics.push_back(Fault(place, std::nullopt,
                              "The module exports no function named \"" + options.entry + "\"." + Listed(functions)));
  return nullptr;
}

ValueType WasmType(Type type) {
  constexpr ValueType kTypes[] = {ValueType::kI32, ValueType::kI64, ValueType::kF32, ValueType::kF64};
  return kTypes[static_cast<size_t>(type)];
}

// Returns the signature that the graph's parameters require. HPVM-web's sizes and indices may be i32 or i64; the
// declared type is used.
Signature WantedType(const Module& module, const WasmOptions& options, const Signature& declared) {
  Signature wanted;
  const auto add_integer = [&] {
    const size_t at = wanted.params.size();
    const bool is_wide = at < declared.params.size() && declared.params[at] == ValueType::kI64;
    wanted.params.push_back(is_wide ? ValueType::kI64 : ValueType::kI32);
  };
  for (const ParamSpec& param : options.params) {
    wanted.params.push_back(WasmType(param.is_buffer ? module.address_type() : param.scalar));
    if (param.is_buffer && options.abi == Abi::kHpvmWeb) {
      add_integer();
    }
  }
  for (uint32_t i = 0; options.abi == Abi::kHpvmWeb && i < kTrailing; ++i) {
    add_integer();
  }
  return wanted;
}

// Returns text such as "buffer "a", f32 "alpha"".
std::string Listed(const std::vector<ParamSpec>& params) {
  std::string text;
  for (const ParamSpec& param : params) {
    text += text.empty() ? "" : ", ";
    text += param.is_buffer ? "buffer" : std::string(ir::Name(param.scalar));
    text += " \"" + param.name + "\"";
  }
  return text.empty() ? "no parameters" : text;
}

std::string SignatureFault(const Signature& declared, const Signature& wanted, const WasmOptions& options) {
  const std::string both = " The module declares " + ToString(declared) + "; the graph passes " +
                           Listed(options.params) + ", which asks for " + ToString(wanted) +
                           (options.abi == Abi::kHpvmWeb ? " in the HPVM-web convention." : ".");
  const std::string what = "The entry \"" + options.entry + "\" ";
  if (!declared.results.empty()) {
    return what + "returns a value; a kernel returns nothing." + both;
  }
  if (declared.params.size() != wanted.params.size()) {
    return what + "takes " + std::to_string(declared.params.size()) + " parameters where " +
           std::to_string(wanted.params.size()) + " are wanted." + both;
  }
  const size_t at =
      static_cast<size_t>(std::mismatch(declared.params.begin(), declared.params.end(), wanted.params.begin()).first -
                          declared.params.begin());
  return what + "has parameter " + std::to_string(at) + " of the type " + std::string(Name(declared.params[at])) +
         " where " + std::string(Name(wanted.params[at])) + " is wanted." + both;
}

ir::ValueId Query(ir::Builder& builder, ir::Opcode code, uint32_t operand, Type type) {
  const ir::ValueId which = builder.Const(Type::kI32, operand);
  ir::Op op{.code = code, .type = type};
  return builder.Append1(op, std::array{which}, type);
}

}  // namespace

std::optional<uint32_t> FindEntry(const Module& module, const WasmOptions& options, const std::string& place,
                                  Diagnostics& diagnostics) {
  if (options.params.size() > limits::kKernelParamsMax) {
    diagnostics.push_back(Fault(place, std::nullopt,
                                "The kernel has more parameters (" + std::to_string(options.params.size()) +
                                    ") than the limit (" + std::to_string(limits::kKernelParamsMax) + ")."));
    return std::nullopt;
  }
  const Export* item = FindExport(module, options, place, diagnostics);
  if (item == nullptr) {
    return std::nullopt;
  }
  const Function& function = module.functions[item->index];
  const Signature& declared = module.signature_of(function);
  const Signature wanted = WantedType(module, options, declared);
  if (declared != wanted) {
    diagnostics.push_back(Fault(place, function.source, SignatureFault(declared, wanted, options)));
    return std::nullopt;
  }
  return item->index;
}

std::vector<ir::KernelParam> EntryParams(const Module& module, const WasmOptions& options) {
  std::vector<ir::KernelParam> params;
  for (const ParamSpec& param : options.params) {
    params.push_back({param.name, param.is_buffer, param.is_writable,
                      param.is_buffer ? module.address_type() : param.scalar, param.is_read});
  }
  return params;
}

ir::FunctionId WrapHpvmWeb(ir::FunctionId inner, ir::Module& out) {
  const ir::FunctionType type = out.function(inner).type;
  ir::Function wrapper;
  wrapper.name = out.function(inner).name + " (HPVM-web)";
  for (const ir::KernelParam& param : out.params) {
    wrapper.type.params.push_back(param.type);
  }
  ir::Builder builder(wrapper);
  const auto params = builder.BeginBody();
  std::vector<ir::ValueId> arguments;
  for (uint32_t k = 0; k < params.size(); ++k) {
    arguments.push_back(params[k]);
    if (out.params[k].is_buffer) {
      arguments.push_back(Query(builder, ir::Opcode::kBufferSize, k, type.params[arguments.size()]));
    }
  }
  for (ir::Opcode code : {ir::Opcode::kInstanceId, ir::Opcode::kInstanceCount}) {
    for (uint32_t dimension = 0; dimension < 3; ++dimension) {
      arguments.push_back(Query(builder, code, dimension, type.params[arguments.size()]));
    }
  }
  ir::Op call{.code = ir::Opcode::kCall, .imm = inner.index};
  builder.Append(call, arguments, {});
  builder.Return({});
  out.functions.push_back(std::move(wrapper));
  return ir::FunctionId(out.functions.size() - 1);
}

}  // namespace hpvm::wasm
