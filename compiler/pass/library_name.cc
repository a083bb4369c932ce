// SPDX-License-Identifier: Apache-2.0
#include "compiler/pass/library_name.h"

#include <algorithm>

namespace hpvm::pass {
namespace {

bool BeginsWithAny(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings, [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// Rust's older scheme: "_ZN", then the length of each part and the part; "<core::...>" is "_$LT$core..".
bool IsOldLibraryName(std::string_view name) {
  name.remove_prefix(3);
  if (BeginsWithAny(name, {"4core", "5alloc", "3std", "St", "KSt", "11panic_abort", "12panic_unwind", "9hashbrown"})) {
    return true;
  }
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  return BeginsWithAny(name, {"_$LT$core..", "_$LT$alloc..", "_$LT$std.."});
}

// Rust's newer scheme: the first crate of the path is "Cs", a number in base 62, "_", and its name preceded by the
// length.
bool IsNewLibraryName(std::string_view name) {
  const size_t crate = name.find("Cs");
  const size_t end = crate == std::string_view::npos ? crate : name.find('_', crate);
  return end != std::string_view::npos && BeginsWithAny(name.substr(end + 1), {"4core", "5alloc", "3std"});
}

}  // namespace

bool IsLibraryName(std::string_view name) {
  if (name.starts_with("_ZN")) {
    return IsOldLibraryName(name);
  }
  if (name.starts_with("_R")) {
    return IsNewLibraryName(name);
  }
  return BeginsWithAny(name, {"core::", "alloc::", "std::", "<core::", "<alloc::", "<std::", "__rust_", "__rdl_",
                              "__rg_", "rust_oom", "rust_panic", "rust_begin_unwind", "_ZSt"});
}

}  // namespace hpvm::pass
