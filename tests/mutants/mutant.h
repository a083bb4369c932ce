// SPDX-License-Identifier: Apache-2.0
// Seeded bugs, to check that tests catch them. Only copies of the tree with the patches (patches.py) contain them.
#ifndef HPVMD_TESTS_MUTANTS_MUTANT_H_
#define HPVMD_TESTS_MUTANTS_MUTANT_H_

#include <cstdlib>
#include <string>
#include <string_view>

namespace hpvm {

// The enabled bug, or several separated by commas. Read from the environment once, before a sandbox can prevent that.
inline std::string& ChosenMutants() {
  static std::string& chosen = *new std::string([] {
    const char* const named = std::getenv("HPVMD_MUTANT");
    return std::string(named == nullptr ? "" : named);
  }());
  return chosen;
}

inline bool IsMutant(std::string_view name) {
  std::string_view rest = ChosenMutants();
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == name) {
      return true;
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

// Call only while no other thread runs.
inline void SetMutant(std::string_view name) { ChosenMutants() = name; }

}  // namespace hpvm

#define HPVMD_MUTANT(name) (::hpvm::IsMutant(name))

#endif  // HPVMD_TESTS_MUTANTS_MUTANT_H_
