// SPDX-License-Identifier: Apache-2.0
// Typed 32-bit indices into arenas: half the size of a pointer, and different kinds cannot be mixed up.
#ifndef HPVMD_BASE_IDS_H_
#define HPVMD_BASE_IDS_H_

#include <compare>
#include <cstdint>
#include <functional>

namespace hpvm {

template <typename Tag>
struct Id {
  static constexpr uint32_t kInvalid = 0xffffffffu;
  uint32_t index = kInvalid;

  constexpr Id() = default;
  constexpr explicit Id(uint32_t i) : index(i) {}
  constexpr explicit Id(size_t i) : index(static_cast<uint32_t>(i)) {}
  constexpr bool valid() const { return index != kInvalid; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

}  // namespace hpvm

template <typename Tag>
struct std::hash<hpvm::Id<Tag>> {
  size_t operator()(hpvm::Id<Tag> id) const noexcept { return id.index; }
};

#endif  // HPVMD_BASE_IDS_H_
