// SPDX-License-Identifier: Apache-2.0
#include "tests/diff/shrink.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace hpvm::diff {
namespace {

// Collects lists of statements, and nodes, in a fixed order, so that the same number names the same place in a copy.
void CollectLists(std::vector<Node>& list, std::vector<std::vector<Node>*>& into);

void CollectListsBelow(Node& node, std::vector<std::vector<Node>*>& into) {
  if (node.is_pinned) {
    return;
  }
  for (Node& operand : node.operands) {
    CollectListsBelow(operand, into);
  }
  CollectLists(node.body, into);
  CollectLists(node.otherwise, into);
}

void CollectLists(std::vector<Node>& list, std::vector<std::vector<Node>*>& into) {
  into.push_back(&list);
  for (Node& node : list) {
    CollectListsBelow(node, into);
  }
}

void CollectNodes(std::vector<Node>& list, std::vector<Node*>& into) {
  for (Node& node : list) {
    if (!node.is_pinned) {
      into.push_back(&node);
      CollectNodes(node.operands, into);
      CollectNodes(node.body, into);
      CollectNodes(node.otherwise, into);
    }
  }
}

class Shrinker {
 public:
  Shrinker(Program program, const StillFails& still_fails, uint32_t tries_max)
      : best_(std::move(program)), still_fails_(still_fails), tries_left_(tries_max) {}

  Program Run() {
    uint64_t before;
    do {
      before = Size();
      CutLaunch();
      CutFunctions();
      CutStatements();
      CutNodes();
      CutData();
    } while (Size() < before && tries_left_ > 0);
    return std::move(best_);
  }

 private:
  uint64_t Size() const {
    uint64_t size = best_.instances() + best_.data.size() + best_.globals.size() + best_.functions.size() * 4;
    return size + CountNodes(best_);
  }
  // Keeps `candidate` if it still fails.
  bool Try(Program candidate) {
    if (tries_left_ == 0) {
      return false;
    }
    --tries_left_;
    if (!still_fails_(candidate)) {
      return false;
    }
    best_ = std::move(candidate);
    return true;
  }
  template <typename F>
  bool TryChange(const F& change) {
    Program candidate = best_;
    return change(candidate) && Try(std::move(candidate));
  }

  void CutLaunch();
  void CutFunctions();
  bool EraseStatements(size_t function, size_t which, size_t begin, size_t count);
  void CutStatements();
  void CutNodes();
  void CutData();
  static bool Simplify(Node& node, uint32_t way);

  Program best_;
  const StillFails& still_fails_;
  uint32_t tries_left_;
};

void Shrinker::CutLaunch() {
  for (size_t d = 0; d < 3; ++d) {
    for (uint32_t extent = 1; extent < best_.extent[d]; ++extent) {
      TryChange([&](Program& p) {
        p.extent[d] = extent;
        return true;
      });
    }
    if (best_.group[d] > 1) {
      TryChange([&](Program& p) {
        p.group[d] = 1;
        return true;
      });
    }
  }
}

// Replaces a function by one that returns zeros; the last one is removed when nobody calls it.
void Shrinker::CutFunctions() {
  for (size_t i = best_.functions.size(); i-- > 1;) {
    TryChange([&](Program& p) {
      p.functions[i].body.clear();
      for (ValueType type : p.functions[i].type.results) {
        p.functions[i].body.push_back(Node{.kind = NodeKind::kConst, .type = type, .arity = 1, .is_pinned = true});
      }
      return true;
    });
    while (i + 1 == best_.functions.size() && TryChange([&](Program& p) {
             p.functions.pop_back();
             std::replace(p.table.begin(), p.table.end(), static_cast<int32_t>(i), -1);
             p.references.clear();
             return true;
           })) {
    }
  }
}

bool Shrinker::EraseStatements(size_t function, size_t which, size_t begin, size_t count) {
  return TryChange([&](Program& p) {
    std::vector<std::vector<Node>*> lists;
    CollectLists(p.functions[function].body, lists);
    std::vector<Node>& list = *lists[which];
    const auto first = list.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(count);
    if (std::any_of(first, last, [](const Node& n) { return n.is_pinned || n.arity != 0; })) {
      return false;
    }
    list.erase(first, last);
    return true;
  });
}

void Shrinker::CutStatements() {
  for (size_t f = 0; f < best_.functions.size(); ++f) {
    for (size_t which = 0;; ++which) {
      const auto length_of = [&]() -> size_t {
        std::vector<std::vector<Node>*> lists;
        CollectLists(best_.functions[f].body, lists);
        return which < lists.size() ? lists[which]->size() + 1 : 0;
      };
      if (length_of() == 0 || tries_left_ == 0) {
        break;
      }
      for (size_t count = length_of() - 1; count > 0; count /= 2) {
        for (size_t end = length_of() - 1; end >= count; --end) {
          if (EraseStatements(f, which, end - count, count)) {
            end = std::min(end - count, length_of() - 1) + 1;
          }
        }
      }
    }
  }
}

// Way 0: a zero. Ways from 1 on: operand `way - 1`, then the results of its regions, then its regions in its place.
bool Shrinker::Simplify(Node& node, uint32_t way) {
  if (way == 0) {
    const bool may = node.arity == 1 && node.kind != NodeKind::kConst && node.kind != NodeKind::kAddress;
    const bool is_zero = node.kind == NodeKind::kConst && node.bits[0] == 0 && node.bits[1] == 0;
    if (!may && (node.kind != NodeKind::kConst || is_zero)) {
      return false;
    }
    node = Node{.kind = NodeKind::kConst, .type = node.type, .arity = 1};
    return true;
  }
  std::vector<Node*> parts;
  for (Node& operand : node.operands) {
    parts.push_back(&operand);
  }
  for (std::vector<Node>* region : {&node.body, &node.otherwise}) {
    if (!region->empty()) {
      parts.push_back(&region->back());
    }
  }
  if (way > parts.size()) {
    return false;
  }
  Node& part = *parts[way - 1];
  // The operand of kCanonical or of an address must not take its place: the result would be open.
  const bool shows = node.kind == NodeKind::kCanonical || (node.kind == NodeKind::kAddress && way != 1);
  if (shows || part.arity != node.arity || (node.arity == 1 && part.type != node.type) || node.arity > 1 ||
      (node.arity == 0 && node.body.empty()) || part.kind == NodeKind::kPop) {
    return false;
  }
  Node kept = std::move(part);
  node = std::move(kept);
  return true;
}

void Shrinker::CutNodes() {
  constexpr uint32_t kWays = 6;
  for (size_t f = 0; f < best_.functions.size(); ++f) {
    for (size_t which = 0;; ++which) {
      std::vector<Node*> nodes;
      CollectNodes(best_.functions[f].body, nodes);
      if (which >= nodes.size() || tries_left_ == 0) {
        break;
      }
      for (uint32_t way = 0; way < kWays; ++way) {
        const bool changed = TryChange([&](Program& p) {
          std::vector<Node*> copy;
          CollectNodes(p.functions[f].body, copy);
          return which < copy.size() && Simplify(*copy[which], way);
        });
        if (changed && way > 0) {
          way = 0;  // The new node may be simplified again.
        } else if (changed) {
          break;
        }
      }
    }
  }
}

void Shrinker::CutData() {
  if (!best_.data.empty()) {
    TryChange([](Program& p) {
      p.data.clear();
      return true;
    });
  }
  for (size_t k = 0; k < best_.params.size(); ++k) {
    TryChange([&](Program& p) {
      std::fill(p.params[k].bytes.begin(), p.params[k].bytes.end(), uint8_t{0});
      p.params[k].bits = 0;
      return true;
    });
  }
  TryChange([](Program& p) {
    p.table.clear();
    return true;
  });
  TryChange([](Program& p) {
    p.references.clear();
    p.passive_references.clear();
    return true;
  });
  TryChange([](Program& p) {
    p.passive_data.clear();
    return true;
  });
  while (!best_.globals.empty() && TryChange([](Program& p) {
    p.globals.pop_back();
    return true;
  })) {
  }
  for (size_t f = 0; f < best_.functions.size(); ++f) {
    while (!best_.functions[f].locals.empty() && TryChange([&](Program& p) {
      p.functions[f].locals.pop_back();
      return true;
    })) {
    }
  }
}

}  // namespace

uint32_t CountNodes(const Program& program) {
  uint32_t count = 0;
  for (const Function& function : program.functions) {
    ForEachNode(function.body, [&](const Node&) { ++count; });
  }
  return count;
}

Program Shrink(Program program, const StillFails& still_fails, uint32_t tries_max) {
  return Shrinker(std::move(program), still_fails, tries_max).Run();
}

}  // namespace hpvm::diff
