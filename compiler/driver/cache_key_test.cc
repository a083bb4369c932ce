// SPDX-License-Identifier: Apache-2.0
#include "compiler/driver/cache_key.h"

#include <gtest/gtest.h>

#include <set>

#include "base/io/build_id.h"

namespace hpvm::compile {
namespace {

// Another build of the compiler, or of LLVM, has other keys, for every kind of module and every target.
TEST(CacheKeyTest, AnotherBuildHasOtherKeys) {
  std::vector<MappedObject> objects = MappedObjects();
  std::set<Sha256> keys;
  size_t count = 0;
  for (size_t changed = 0; changed <= objects.size(); ++changed) {
    if (changed > 0) {
      objects[changed - 1].id[0] ^= 1;
    }
    for (const ModuleKind kind : {ModuleKind::kWasm, ModuleKind::kSpirv, ModuleKind::kOpenCl, ModuleKind::kBitstream}) {
      for (const ArtifactKind target :
           {ArtifactKind::kInterp, ArtifactKind::kCpuImage, ArtifactKind::kOpenCl, ArtifactKind::kVulkan}) {
        CompileRequest request;
        request.module_kind = kind;
        request.target = target;
        keys.insert(CacheKeyOf(request, "x86-64-v3", BuildIdentityOf(objects)));
        ++count;
      }
    }
  }
  EXPECT_EQ(keys.size(), count);
}

}  // namespace
}  // namespace hpvm::compile
