// SPDX-License-Identifier: Apache-2.0
// Parses one argument of a node in a short document.
//
//   NAME, NODE.PORT, in NAME        data that the kernel reads, from an input or a node
//   inout NAME                      data that the kernel updates
//   out [PORT] TYPE[EXTENT, ...]    data that the kernel writes; without brackets: one element, of rank 0
//   TYPE EXPRESSION                 a scalar: i32, i64, f32 or f64
//   EXPRESSION                      a scalar of type i32
#ifndef HPVMD_GRAPH_SHORT_ARGUMENT_H_
#define HPVMD_GRAPH_SHORT_ARGUMENT_H_

#include <string>
#include <string_view>
#include <vector>

namespace hpvm::graph {

// A type with a shape, as text: "f32[h, 2*w]".
struct ShortTensor {
  std::string_view type;
  std::vector<std::string_view> extents;
};

struct ShortArgument {
  // kName is a name that stands alone: a source or a symbol.
  enum class Kind { kName, kIn, kInOut, kOut, kScalar };
  Kind kind = Kind::kScalar;
  std::string_view name;   // kName, kIn, kInOut: the source; kOut: the port, or empty.
  ShortTensor tensor;      // kOut.
  std::string_view type;   // kScalar: the type, or empty.
  std::string_view value;  // kScalar: the expression.
};

// Both fill their result with views into `text`. When the text has none of the forms they return false and store the
// reason, without a full stop, in `fault`.
bool ReadShortArgument(std::string_view text, ShortArgument* argument, std::string* fault);
bool ReadShortTensor(std::string_view text, ShortTensor* tensor, std::string* fault);

}  // namespace hpvm::graph

#endif  // HPVMD_GRAPH_SHORT_ARGUMENT_H_
