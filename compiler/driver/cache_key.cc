// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/cache_key.h"

namespace hpvm::compile {

Sha256 CacheKeyOf(const CompileRequest& request, std::string_view target, const Sha256& build) {
  Hasher hasher;
  auto number = [&](uint64_t value) { hasher.Add({reinterpret_cast<const uint8_t*>(&value), sizeof(value)}); };
  hasher.Add(build.bytes);
  hasher.AddField(target);
  number(static_cast<uint64_t>(request.module_kind));
  hasher.Add(request.module_hash.bytes);
  hasher.AddField(request.module_name);  // Messages contain it.
  hasher.AddField(request.entry);
  number(request.params.size());
  for (const ParamSpec& param : request.params) {
    hasher.AddField(param.name);
    number(param.is_buffer);
    number(param.is_writable);
    number(static_cast<uint64_t>(param.scalar));
  }
  number(static_cast<uint64_t>(request.abi));
  number(static_cast<uint64_t>(request.target));
  number(request.fast_math);
  hasher.AddField(BytesOf(request.gpu));
  hasher.AddField(request.options);
  number(request.constants.size());
  for (const SpecialisationConstant& constant : request.constants) {
    number(constant.id);
    number(constant.is_float);
    number(constant.bits);
  }
  return hasher.Finish();
}

}  // namespace hpvm::compile
