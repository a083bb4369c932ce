// SPDX-License-Identifier: Apache-2.0
// Seeded bugs of the compiler, for the check that its tests catch them. Only in the copy that mutants.py builds.
#ifndef HPVMD_TESTS_MUTANTS_MUTANT_H_
#define HPVMD_TESTS_MUTANTS_MUTANT_H_

#include <cstdlib>
#include <string_view>

namespace hpvm {

// Whether that bug is the one that the environment names. Read once, before a sandbox can stand in the way.
inline bool IsCompilerMutant(std::string_view name) {
  static const char* const chosen = std::getenv("HPVMD_COMPILER_MUTANT");
  return chosen != nullptr && name == chosen;
}

}  // namespace hpvm

#define HPVMD_COMPILER_MUTANT(name) (::hpvm::IsCompilerMutant(name))

#endif  // HPVMD_TESTS_MUTANTS_MUTANT_H_
