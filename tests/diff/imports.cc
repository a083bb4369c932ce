// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/imports.h"

namespace hpvm::diff {

ImportFacts FactsOf(ImportId id) {
  using enum ValueType;
  const auto update = [](std::string_view name, ValueType type) {
    return ImportFacts{name, {{kI32, type}, {type}}, true, false};
  };
  switch (id) {
    case ImportId::kInstanceId:
      return {"instance_id", {{kI32}, {kI32}}};
    case ImportId::kInstanceId64:
      return {"instance_id", {{kI32}, {kI64}}};
    case ImportId::kInstanceCount:
      return {"instance_count", {{kI32}, {kI32}}};
    case ImportId::kInstanceCount64:
      return {"instance_count", {{kI32}, {kI64}}};
    case ImportId::kGroupId:
      return {"group_id", {{kI32}, {kI32}}};
    case ImportId::kGroupSize:
      return {"group_size", {{kI32}, {kI32}}};
    case ImportId::kLocalId:
      return {"local_id", {{kI32}, {kI32}}};
    case ImportId::kBufferSize:
      return {"buffer_size", {{kI32}, {kI32}}};
    case ImportId::kBarrier:
      return {"barrier", {}};
    case ImportId::kLocalAlloc:
      return {"local_alloc", {{kI32}, {kI32}}, true, true};
    case ImportId::kAtomicMinS32:
      return update("atomic_min_s_i32", kI32);
    case ImportId::kAtomicMinU32:
      return update("atomic_min_u_i32", kI32);
    case ImportId::kAtomicMaxS32:
      return update("atomic_max_s_i32", kI32);
    case ImportId::kAtomicMaxU32:
      return update("atomic_max_u_i32", kI32);
    case ImportId::kAtomicMinS64:
      return update("atomic_min_s_i64", kI64);
    case ImportId::kAtomicMaxU64:
      return update("atomic_max_u_i64", kI64);
    case ImportId::kMemorySize:
      return {"memory_size", {{}, {kI32}}, false, true};
    case ImportId::kMemoryGrow:
      return {"memory_grow", {{kI32}, {kI32}}, true, true};
  }
  return {};
}

}  // namespace hpvm::diff
