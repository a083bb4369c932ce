// SPDX-License-Identifier: Apache-2.0
#include "compiler/front/wasm/read/sections.h"

namespace hpvm::wasm {

std::optional<ByteReader> FindSection(std::span<const uint8_t> module, uint8_t id) {
  constexpr size_t kHeaderBytes = 8;
  ByteReader in(module);
  in.Take(kHeaderBytes);
  while (in.ok() && !in.AtEnd()) {
    const uint8_t found = in.U8();
    const uint64_t bytes = in.Uleb();
    const size_t begin = in.position();
    in.Take(bytes);
    if (in.ok() && found == id) {
      ByteReader contents(module.first(in.position()));
      contents.Take(begin);
      return contents;
    }
  }
  return std::nullopt;
}

}  // namespace hpvm::wasm
