// SPDX-License-Identifier: Apache-2.0
// The wire format of artifacts, requests to builders, and measurement records: little-endian numbers, and lists and
// strings preceded by their length. A struct lists its fields once, for writing and reading, in a function beside it
// that argument-dependent lookup finds:
//   inline auto FieldsOf(Point& point) { return std::tie(point.x, point.y); }
// A reader never reads past its bytes, and accepts any value of a number or an enumeration; the caller validates
// values afterwards.
#ifndef HPVMD_COMPILER_API_WIRE_H_
#define HPVMD_COMPILER_API_WIRE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/ids.h"

namespace hpvm {

template <typename Tag>
auto FieldsOf(Id<Tag>& id) {
  return std::tie(id.index);
}
inline auto FieldsOf(Sha256& hash) { return std::tie(hash.bytes); }

// Written in its memory representation.
template <typename T>
concept WireNumber = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, __int128>;
template <typename T>
concept WireList = requires(T list) {
  list.resize(1);
};
template <typename T>
concept WireArray = requires {
  std::tuple_size<T>::value;
};

// Returns the minimum number of bytes of a value.
template <typename T>
constexpr size_t WireBytesMin() {
  if constexpr (WireNumber<T>) {
    return sizeof(T);
  } else if constexpr (WireList<T>) {
    return sizeof(uint32_t);
  } else if constexpr (WireArray<T>) {
    return std::tuple_size<T>::value * WireBytesMin<typename T::value_type>();
  } else {
    return []<typename... Field>(std::type_identity<std::tuple<Field&...>>) {
      return (WireBytesMin<Field>() + ...);
    }(std::type_identity<decltype(FieldsOf(std::declval<T&>()))>());
  }
}

class WireWriter {
 public:
  template <typename... T>
  void operator()(const T&... values) {
    (Put(values), ...);
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  template <typename T>
  void Put(const T& value) {
    if constexpr (WireNumber<T>) {
      Append(&value, sizeof(value));
    } else if constexpr (WireArray<T>) {
      std::apply(*this, value);
    } else if constexpr (!WireList<T>) {
      // Put only reads through the references, so the const_cast is safe.
      std::apply(*this, FieldsOf(const_cast<T&>(value)));
    } else {
      Put(static_cast<uint32_t>(value.size()));
      if constexpr (WireNumber<typename T::value_type>) {
        Append(value.data(), value.size() * sizeof(*value.data()));
      } else {
        for (const auto& element : value) {
          Put(element);
        }
      }
    }
  }
  void Append(const void* data, size_t size) {
    const auto* const begin = static_cast<const uint8_t*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<uint8_t> bytes_;
};

class WireReader {
 public:
  // Borrows `bytes`.
  explicit WireReader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (Get(values), ...);
  }
  // Returns true if all bytes were read without an error.
  bool AtEnd() const { return ok_ && rest_.empty(); }

 private:
  template <typename T>
  void Get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      Get(byte);
      ok_ = ok_ && byte <= 1;
      value = byte == 1;
    } else if constexpr (WireNumber<T>) {
      Take(&value, sizeof(value));
    } else if constexpr (WireArray<T>) {
      std::apply(*this, value);
    } else if constexpr (!WireList<T>) {
      std::apply(*this, FieldsOf(value));
    } else {
      uint32_t count = 0;
      Get(count);
      // Limits the count to what the remaining bytes can hold, so that a false length cannot exhaust memory.
      ok_ = ok_ && count <= rest_.size() / WireBytesMin<typename T::value_type>();
      value.resize(ok_ ? count : 0);
      if constexpr (WireNumber<typename T::value_type>) {
        Take(value.data(), value.size() * sizeof(*value.data()));
      } else {
        for (auto& element : value) {
          Get(element);
        }
      }
    }
  }
  void Take(void* out, size_t size) {
    ok_ = ok_ && size <= rest_.size();
    if (ok_ && size != 0) {
      std::memcpy(out, rest_.data(), size);
      rest_ = rest_.subspan(size);
    }
  }

  std::span<const uint8_t> rest_;
  bool ok_ = true;
};

template <typename... T>
std::vector<uint8_t> WireBytes(const T&... values) {
  WireWriter out;
  out(values...);
  return std::move(out.bytes());
}

// Returns true if the bytes encode exactly these values.
template <typename... T>
bool ReadWire(std::span<const uint8_t> bytes, T&... values) {
  WireReader in(bytes);
  in(values...);
  return in.AtEnd();
}

}  // namespace hpvm

#endif  // HPVMD_COMPILER_API_WIRE_H_
