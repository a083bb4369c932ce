// SPDX-License-Identifier: Apache-2.0
#include "graph/flatten.h"

#include <bit>
#include <cmath>
#include <string>
#include <unordered_map>

#include "absl/strings/str_cat.h"

#include "graph/diagnostic_sink.h"
#include "graph/expr.h"

namespace hpvm::graph {
namespace {

// Expands scopes depth first, with an explicit stack. A node is open at most once at any time, so the values of its
// ports are in arrays indexed by (first port of the node) + port, whatever the replica.
class Flattener {
 public:
  Flattener(const Graph& graph, const SymbolValues& symbols, uint64_t nodes_max)
      : graph_(graph), symbols_(symbols), nodes_max_(nodes_max) {}

  StatusOr<FlatGraph> Run() {
    if (symbols_.size() < graph_.symbols.size()) {
      return InvalidArgument(
          Cat("Values are given for ", symbols_.size(), " symbols; the graph has ", graph_.symbols.size(), "."));
    }
    symbols_.resize(graph_.symbols.size());
    IndexPorts();
    HPVMD_RETURN_IF_ERROR(MakeInputs());
    open_.push_back({graph_.root()});
    while (!open_.empty()) {
      HPVMD_RETURN_IF_ERROR(Step());
    }
    flat_.outputs.resize(graph_.nodes[0].ports.size());
    for (uint32_t p = 0; p < flat_.outputs.size(); ++p) {
      if (graph_.nodes[0].ports[p].access != Access::kIn) {
        flat_.outputs[p] = value_[p];
        HPVMD_RETURN_IF_ERROR(CheckShape(graph_.root(), p, value_[p]));
      }
    }
    return std::move(flat_);
  }

 private:
  // An internal node that is being expanded.
  struct Frame {
    NodeId node;
    uint32_t child = 0;  // The next child to visit.
    std::array<uint64_t, 3> extent{1, 1, 1};
    std::array<uint64_t, 3> at{0, 0, 0};  // The replica's index.
    uint64_t replica = 0;                 // Counts over all enclosing replications.
    bool first = true;                    // True until the first replica of this frame has finished.
  };

  void IndexPorts() {
    base_.resize(graph_.nodes.size() + 1, 0);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      base_[i + 1] = base_[i] + static_cast<uint32_t>(graph_.nodes[i].ports.size());
    }
    outer_source_.resize(base_.back());
    inner_source_.resize(base_.back());
    value_.resize(base_.back());
    inside_.resize(base_.back());
    follows_.resize(base_.back());
    exposed_as_.assign(base_.back(), kNone);
    is_one_to_one_.assign(base_.back(), false);
    replicas_.assign(graph_.nodes.size(), 0);
    checks_one_to_one_.assign(graph_.nodes.size(), false);
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const Edge& edge : graph_.nodes[i].edges) {
        const bool inward = edge.target.node.valid();
        const uint32_t target = base_[inward ? edge.target.node.index : i] + edge.target.port;
        (inward ? outer_source_ : inner_source_)[target] = edge.source;
        if (!inward && edge.source.node.valid()) {
          exposed_as_[base_[edge.source.node.index] + edge.source.port] = target;
        }
        checks_one_to_one_[i] = checks_one_to_one_[i] || edge.kind == EdgeKind::kOneToOne;
        // Only between leaves; replicas of internal nodes have an order of their own.
        is_one_to_one_[target] = edge.kind == EdgeKind::kOneToOne && graph_.node(edge.source.node).is_leaf &&
                                 graph_.node(edge.target.node).is_leaf;
      }
    }
    uint32_t inputs = 0;
    for (const Port& port : graph_.nodes[0].ports) {
      input_index_.emplace(port.access == Access::kIn ? std::string_view(port.name) : std::string_view(), inputs++);
    }
  }

  // Returns a place such as "/nodes/blur/ports/0"; the root's ports have names.
  std::string PortPlace(NodeId node, uint32_t port) const {
    if (node.valid() && node.index != 0) {
      return Cat(graph_.node(node).pointer, "/ports/", port);
    }
    const Port& own = graph_.nodes[0].ports[port];
    std::string place = own.access == Access::kIn ? "/inputs/" : "/outputs/";
    AppendPointerToken(place, own.name);
    return place;
  }

  Status EvaluateShape(NodeId node, uint32_t port) {
    const Port& spec = graph_.node(node).ports[port];
    shape_.clear();
    for (const Expr& extent : spec.shape) {
      const StatusOr<int64_t> value = Evaluate(extent, symbols_);
      if (!value.ok()) {
        return InvalidArgument(Cat(PortPlace(node, port), ": ", Message(value.status())));
      }
      if (*value < 0) {
        return InvalidArgument(
            Cat(PortPlace(node, port), ": Extent ", Quoted(extent.text), " is ", *value, "; it cannot be negative."));
      }
      shape_.push_back(static_cast<uint64_t>(*value));
    }
    return absl::OkStatus();
  }

  static std::string ShapeText(const std::vector<uint64_t>& shape) {
    std::string text = "[";
    for (const uint64_t extent : shape) {
      text += Cat(text.size() > 1 ? ", " : "", extent);
    }
    return text + "]";
  }

  // Compares the shape of the arriving value with the port's shape.
  Status CheckShape(NodeId node, uint32_t port, FlatValueId value) {
    HPVMD_RETURN_IF_ERROR(EvaluateShape(node, port));
    const std::vector<uint64_t>& arriving = flat_.values[value.index].shape;
    if (arriving != shape_) {
      return InvalidArgument(Cat(PortPlace(node, port), ": Port ", Quoted(graph_.node(node).ports[port].name),
                                 " has shape ", ShapeText(shape_), "; the data of its edge has ", ShapeText(arriving),
                                 "."));
    }
    return absl::OkStatus();
  }

  // Creates a value of shape shape_.
  StatusOr<FlatValueId> MakeValue(NodeId node, uint32_t port) {
    FlatValue value;
    value.type = graph_.node(node).ports[port].type;
    value.bytes = ElementBytes(value.type);
    bool overflow = false;
    bool empty = false;
    for (const uint64_t extent : shape_) {
      empty = empty || extent == 0;
      overflow = overflow || __builtin_mul_overflow(value.bytes, extent, &value.bytes);
    }
    if (!empty && (overflow || value.bytes > INT64_MAX)) {
      return ResourceExhausted(Cat(PortPlace(node, port), ": Shape ", ShapeText(shape_), " of ", Name(value.type),
                                   " needs more than 2^63 - 1 bytes."));
    }
    value.bytes = empty ? 0 : value.bytes;
    value.shape = shape_;
    flat_.values.push_back(std::move(value));
    return FlatValueId(flat_.values.size() - 1);
  }

  Status MakeInputs() {
    const std::vector<Port>& ports = graph_.nodes[0].ports;
    for (uint32_t p = 0; p < ports.size(); ++p) {
      if (ports[p].access == Access::kIn) {
        HPVMD_RETURN_IF_ERROR(EvaluateShape(graph_.root(), p));
        HPVMD_ASSIGN_OR_RETURN(inside_[p], MakeValue(graph_.root(), p));
        flat_.values.back().input = p;
      }
    }
    return CheckOneToOne(graph_.root());
  }

  FlatValueId ValueAt(NodeId scope, const Endpoint& source) const {
    return source.node.valid() ? value_[base_[source.node.index] + source.port]
                               : inside_[base_[scope.index] + source.port];
  }

  // Visits the next child of the innermost open node, or ends one of its replicas.
  Status Step() {
    Frame& frame = open_.back();
    const Node& node = graph_.node(frame.node);
    if (frame.child == node.children.size()) {
      return EndReplica();
    }
    const NodeId child = node.children[frame.child++];
    return graph_.node(child).is_leaf ? AddLeaf(frame.node, child) : Open(frame.node, child);
  }

  // Returns the value that an `out` port of a child continues: the buffer that an earlier replica of an enclosing
  // node wrote.
  FlatValueId Followed(NodeId child, uint32_t port) const {
    const uint32_t exposed = exposed_as_[base_[child.index] + port];
    return exposed == kNone ? FlatValueId() : follows_[exposed];
  }

  // Called before any work for a leaf or a replica of an internal node, which bounds time and memory, whatever the
  // extents are.
  Status Count(const Node& node) {
    items_ += node.ports.size() + node.scalars.size() + (node.is_leaf ? 0 : node.edges.size());
    if (++expanded_ > nodes_max_) {
      return ResourceExhausted(Cat("The graph has more than ", nodes_max_,
                                   " nodes once replicated nodes are expanded, which is the limit."));
    }
    if (items_ > ItemsMax()) {
      return ResourceExhausted(
          Cat("The graph has more than ", ItemsMax(),
              " ports, scalars and edges once replicated nodes are expanded, which is the limit."));
    }
    return absl::OkStatus();
  }
  uint64_t ItemsMax() const { return 8 * nodes_max_ + limits::kGraphEdgesMax; }

  Status Open(NodeId scope, NodeId id) {
    const Node& node = graph_.node(id);
    Frame frame{id};
    for (size_t d = 0; d < node.instances.size(); ++d) {
      HPVMD_ASSIGN_OR_RETURN(frame.extent[d], Extent(node, "/instances/", d, node.instances[d], 1));
    }
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      const uint32_t slot = base_[id.index] + p;
      if (node.ports[p].access != Access::kOut) {
        inside_[slot] = ValueAt(scope, outer_source_[slot]);
        HPVMD_RETURN_IF_ERROR(CheckShape(id, p, inside_[slot]));
      }
      follows_[slot] = node.ports[p].access == Access::kOut ? Followed(id, p) : FlatValueId();
    }
    frame.replica = replicas_[id.index]++;
    HPVMD_RETURN_IF_ERROR(Count(node));
    open_.push_back(frame);
    SetIndices(open_.back());
    return CheckOneToOne(id);
  }

  void SetIndices(const Frame& frame) {
    const std::vector<SymbolId>& symbols = graph_.node(frame.node).index_symbols;
    for (size_t d = 0; d < symbols.size(); ++d) {
      symbols_[symbols[d].index] = static_cast<int64_t>(frame.at[d]);
    }
  }

  Status EndReplica() {
    Frame& frame = open_.back();
    const Node& node = graph_.node(frame.node);
    // Reads all values before any changes: one port's value may be another's.
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      const uint32_t slot = base_[frame.node.index] + p;
      if (node.ports[p].access != Access::kIn) {
        value_[slot] = ValueAt(frame.node, inner_source_[slot]);
      }
    }
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      const uint32_t slot = base_[frame.node.index] + p;
      if (node.ports[p].access == Access::kInOut) {
        inside_[slot] = value_[slot];
      } else if (node.ports[p].access == Access::kOut) {
        follows_[slot] = value_[slot];
      }
    }
    frame.child = 0;
    for (size_t d = 0; d < 3; ++d) {
      if (++frame.at[d] < frame.extent[d]) {
        frame.replica = replicas_[frame.node.index]++;
        SetIndices(frame);
        HPVMD_RETURN_IF_ERROR(Count(node));
        return CheckOneToOne(frame.node);
      }
      frame.at[d] = 0;
    }
    const NodeId closed = frame.node;
    open_.pop_back();
    return open_.empty() ? absl::OkStatus() : CheckOutputs(closed);
  }

  Status CheckOutputs(NodeId id) {
    const Node& node = graph_.node(id);
    for (uint32_t p = 0; p < node.ports.size(); ++p) {
      if (node.ports[p].access != Access::kIn) {
        HPVMD_RETURN_IF_ERROR(CheckShape(id, p, value_[base_[id.index] + p]));
      }
    }
    return absl::OkStatus();
  }

  // Checks the edges inside `scope`, for the current replica.
  Status CheckOneToOne(NodeId scope) {
    if (!checks_one_to_one_[scope.index]) {
      return absl::OkStatus();
    }
    const std::vector<Edge>& edges = graph_.node(scope).edges;
    for (size_t e = 0; e < edges.size(); ++e) {
      if (edges[e].kind != EdgeKind::kOneToOne) {
        continue;
      }
      const Node& source = graph_.node(edges[e].source.node);
      const Node& target = graph_.node(edges[e].target.node);
      for (size_t d = 0; d < source.instances.size(); ++d) {
        HPVMD_ASSIGN_OR_RETURN(const uint64_t left, Extent(source, "/instances/", d, source.instances[d], 0));
        HPVMD_ASSIGN_OR_RETURN(const uint64_t right, Extent(target, "/instances/", d, target.instances[d], 0));
        if (left != right) {
          return InvalidArgument(Cat(graph_.node(scope).pointer, "/edges/", e,
                                     "/kind: Kind \"one_to_one\" needs equal instance counts; node ",
                                     Quoted(source.name), " has ", left, " in dimension ", d, ", node ",
                                     Quoted(target.name), " ", right, "."));
        }
      }
    }
    return absl::OkStatus();
  }

  StatusOr<uint64_t> Extent(const Node& node, std::string_view list, size_t d, const Expr& expr, int64_t min) const {
    const StatusOr<int64_t> value = Evaluate(expr, symbols_);
    if (!value.ok()) {
      return InvalidArgument(Cat(node.pointer, list, d, ": ", Message(value.status())));
    }
    if (*value < min) {
      return InvalidArgument(Cat(node.pointer, list, d, ": Extent ", Quoted(expr.text), " is ", *value, "; at least ",
                                 min, " is needed."));
    }
    return static_cast<uint64_t>(*value);
  }

  Status AddLeaf(NodeId scope, NodeId id) {
    const Node& leaf = graph_.node(id);
    HPVMD_RETURN_IF_ERROR(Count(leaf));
    FlatNode flat;
    flat.leaf = id;
    flat.replica = ReplicaOf();
    flat.first_port = static_cast<uint32_t>(flat_.ports.size());
    flat.first_scalar = static_cast<uint32_t>(flat_.scalars.size());
    for (size_t d = 0; d < leaf.instances.size(); ++d) {
      HPVMD_ASSIGN_OR_RETURN(flat.extent[d], Extent(leaf, "/instances/", d, leaf.instances[d], 0));
    }
    for (size_t d = 0; d < leaf.extent_ports.size(); ++d) {
      flat.extent_port[d] = static_cast<int32_t>(leaf.extent_ports[d]);  // kFixedExtent becomes -1.
    }
    for (size_t d = 0; d < leaf.group.size(); ++d) {
      HPVMD_ASSIGN_OR_RETURN(flat.group[d], Extent(leaf, "/group/", d, leaf.group[d], 1));
    }
    uint64_t total = 0;
    if (__builtin_mul_overflow(flat.extent[0], flat.extent[1], &total) ||
        __builtin_mul_overflow(total, flat.extent[2], &total) || total > INT64_MAX) {
      return ResourceExhausted(Cat(leaf.pointer, "/instances: The node has more than 2^63 - 1 instances."));
    }
    const FlatNodeId node(flat_.nodes.size());
    flat_.nodes.push_back(flat);
    for (uint32_t p = 0; p < leaf.ports.size(); ++p) {
      HPVMD_RETURN_IF_ERROR(AddPort(scope, id, p, node));
    }
    for (size_t s = 0; s < leaf.scalars.size(); ++s) {
      HPVMD_RETURN_IF_ERROR(AddScalar(leaf, s));
    }
    return absl::OkStatus();
  }

  uint64_t ReplicaOf() const {
    for (auto frame = open_.rbegin(); frame != open_.rend(); ++frame) {
      if (!graph_.node(frame->node).instances.empty()) {
        return frame->replica;
      }
    }
    return 0;
  }

  Status AddPort(NodeId scope, NodeId id, uint32_t p, FlatNodeId node) {
    const uint32_t slot = base_[id.index] + p;
    FlatPort port;
    port.access = graph_.node(id).ports[p].access;
    port.is_one_to_one = is_one_to_one_[slot];
    if (port.access != Access::kOut) {
      port.in = ValueAt(scope, outer_source_[slot]);
      HPVMD_RETURN_IF_ERROR(CheckShape(id, p, port.in));
    } else {
      HPVMD_RETURN_IF_ERROR(EvaluateShape(id, p));
      port.in = Followed(id, p);
      if (port.in.valid() && flat_.values[port.in.index].shape != shape_) {
        return InvalidArgument(Cat(PortPlace(id, p), ": Port ", Quoted(graph_.node(id).ports[p].name), " has shape ",
                                   ShapeText(shape_), "; an earlier replica gave it shape ",
                                   ShapeText(flat_.values[port.in.index].shape), "."));
      }
    }
    if (port.access != Access::kIn) {
      HPVMD_ASSIGN_OR_RETURN(port.out, MakeValue(id, p));
      flat_.values.back().producer = node;
      flat_.values.back().producer_port = p;
      value_[slot] = port.out;
    }
    flat_.ports.push_back(port);
    return absl::OkStatus();
  }

  Status AddScalar(const Node& leaf, size_t index) {
    const Scalar& scalar = leaf.scalars[index];
    FlatScalar flat;
    flat.type = scalar.type;
    if (const auto* input = std::get_if<Scalar::InputRef>(&scalar.value); input != nullptr) {
      const auto found = input_index_.find(input->input);
      HPVMD_CHECK(found != input_index_.end());
      flat.input = static_cast<int32_t>(found->second);
      flat_.scalars.push_back(flat);
      return absl::OkStatus();
    }
    const bool is_real = scalar.type == ScalarType::kF32 || scalar.type == ScalarType::kF64;
    const StatusOr<uint64_t> bits = is_real ? RealBits(scalar) : IntegerBits(scalar);
    if (!bits.ok()) {
      return InvalidArgument(Cat(leaf.pointer, "/scalars/", index, ": ", Message(bits.status())));
    }
    flat.bits = *bits;
    flat_.scalars.push_back(flat);
    return absl::OkStatus();
  }

  StatusOr<uint64_t> IntegerBits(const Scalar& scalar) const {
    const Expr& expr = std::get<Expr>(scalar.value);
    HPVMD_ASSIGN_OR_RETURN(const int64_t value, Evaluate(expr, symbols_));
    if (scalar.type == ScalarType::kI64) {
      return static_cast<uint64_t>(value);
    }
    if (value < INT32_MIN || value > UINT32_MAX) {
      return InvalidArgument(Cat("Value ", Quoted(expr.text), " is ", value, ", outside 32 bits."));
    }
    return static_cast<uint32_t>(value);
  }

  StatusOr<uint64_t> RealBits(const Scalar& scalar) const {
    const Expr* expr = std::get_if<Expr>(&scalar.value);
    double value = 0;
    if (expr != nullptr) {
      HPVMD_ASSIGN_OR_RETURN(value, EvaluateReal(*expr, symbols_));
    } else {
      value = std::get<double>(scalar.value);
    }
    if (scalar.type == ScalarType::kF64) {
      return std::bit_cast<uint64_t>(value);
    }
    const auto narrow = static_cast<float>(value);
    if (!std::isfinite(narrow)) {
      return InvalidArgument(Cat("Value ", Quoted(expr == nullptr ? "" : expr->text), " is ", absl::StrCat(value),
                                 ", too large for type \"f32\"."));
    }
    return std::bit_cast<uint32_t>(narrow);
  }

  static constexpr uint32_t kNone = 0xffffffffu;
  const Graph& graph_;
  SymbolValues symbols_;
  const uint64_t nodes_max_;
  uint64_t expanded_ = 0;
  uint64_t items_ = 0;
  FlatGraph flat_;
  std::vector<Frame> open_;
  std::vector<uint64_t> shape_;

  std::vector<uint32_t> base_;          // Indexed by node: its first port in the arrays below.
  std::vector<Endpoint> outer_source_;  // The endpoint that feeds the port from outside.
  std::vector<Endpoint> inner_source_;  // The endpoint that feeds an internal node's own port from inside.
  std::vector<FlatValueId> value_;      // For out, inout: the value that siblings read.
  std::vector<FlatValueId> inside_;     // For in, inout of internal nodes: the value that children read.
  std::vector<FlatValueId> follows_;    // For out of internal nodes: the value that their writers continue.
  std::vector<uint32_t> exposed_as_;    // The enclosing node's own port (in these arrays) to which the port is bound.
  std::vector<uint64_t> replicas_;      // Indexed by node: number of replicas begun.
  std::vector<bool> checks_one_to_one_;
  std::vector<bool> is_one_to_one_;  // True for ports whose edge is one_to_one.
  std::unordered_map<std::string_view, uint32_t> input_index_;
};

}  // namespace

StatusOr<FlatGraph> Flatten(const Graph& graph, const SymbolValues& symbols, uint64_t expanded_nodes_max) {
  return Flattener(graph, symbols, expanded_nodes_max).Run();
}

std::string PathOf(const Graph& graph, const FlatNode& node) {
  std::string path = graph.node(node.leaf).name;
  bool numbered = false;
  for (NodeId at = graph.node(node.leaf).parent; at.valid() && at.index != 0; at = graph.node(at).parent) {
    const Node& outer = graph.node(at);
    // The innermost replication carries the number, which counts over all replications.
    const bool here = !numbered && !outer.instances.empty();
    numbered = numbered || here;
    path = outer.name + (here ? Cat("[", node.replica, "]") : "") + "/" + path;
  }
  return path;
}

}  // namespace hpvm::graph
