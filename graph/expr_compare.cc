// SPDX-License-Identifier: Apache-2.0
// Compares expressions as polynomials with integer coefficients. Divisions, remainders, minima and maxima are opaque
// factors, which are equal when their operands are equal polynomials.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "graph/diagnostic_sink.h"
#include "graph/expr.h"

namespace hpvm::graph {
namespace {

using Kind = Expr::Kind;

constexpr size_t kTermsMax = 64;      // Longer expressions are not compared.
constexpr size_t kMonomialsMax = 32;  // Expressions that expand to more monomials are not compared, either.

// Sorted factors -> coefficient, without zero coefficients. Factors are symbols, and opaque ones from 2^32 on.
using Monomial = std::vector<uint64_t>;
using Polynomial = std::map<Monomial, int64_t>;

class Normalizer {
 public:
  explicit Normalizer(uint64_t& budget) : budget_(budget) {}

  std::optional<Polynomial> Normalize(const Expr& expr) {
    std::vector<Polynomial> stack;
    for (const Expr::Term& term : expr.terms) {
      if (term.kind == Kind::kConst) {
        stack.push_back(term.value == 0 ? Polynomial{} : Polynomial{{{}, term.value}});
        continue;
      }
      if (term.kind == Kind::kSymbol) {
        stack.push_back({{{static_cast<uint64_t>(term.value)}, 1}});
        continue;
      }
      Polynomial right = std::move(stack.back());
      if (term.kind == Kind::kNeg) {
        stack.back() = Sum({}, right, -1);
      } else {
        stack.pop_back();
        stack.back() = Apply(term.kind, stack.back(), right);
      }
      if (failed_ || stack.back().size() > kMonomialsMax) {
        return std::nullopt;
      }
    }
    return stack.size() == 1 ? std::optional(std::move(stack.back())) : std::nullopt;
  }

  Polynomial Sum(Polynomial left, const Polynomial& right, int64_t sign) {
    for (const auto& [monomial, coefficient] : right) {
      Add(left, monomial, sign, coefficient);
    }
    return left;
  }

  bool failed() const { return failed_; }

 private:
  Polynomial Apply(Kind kind, const Polynomial& left, const Polynomial& right) {
    switch (kind) {
      case Kind::kAdd:
        return Sum(left, right, 1);
      case Kind::kSub:
        return Sum(left, right, -1);
      case Kind::kMul:
        return Product(left, right);
      default:
        return Opaque(kind, left, right);
    }
  }

  Polynomial Product(const Polynomial& left, const Polynomial& right) {
    Polynomial product;
    for (const auto& [a, x] : left) {
      for (const auto& [b, y] : right) {
        Monomial monomial;
        std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(monomial));
        Add(product, monomial, x, y);
        if (failed_) {
          return {};
        }
      }
    }
    return product;
  }

  Polynomial Opaque(Kind kind, const Polynomial& left, const Polynomial& right) {
    std::string key = Cat(static_cast<int>(kind), ":");
    const std::string a = TextOf(left);
    const std::string b = TextOf(right);
    // Minima and maxima commute.
    const bool swap = (kind == Kind::kMin || kind == Kind::kMax) && b < a;
    key += (swap ? b : a) + "," + (swap ? a : b);
    const uint64_t factor = (uint64_t{1} << 32) + opaque_.try_emplace(key, opaque_.size()).first->second;
    return {{{factor}, 1}};
  }

  std::string TextOf(const Polynomial& polynomial) {
    std::string text;
    for (const auto& [monomial, coefficient] : polynomial) {
      text += Cat("+", coefficient);
      for (const uint64_t factor : monomial) {
        text += Cat("*", factor);
      }
      Spend(monomial.size());
    }
    return text;
  }

  void Add(Polynomial& into, const Monomial& monomial, int64_t a, int64_t b) {
    int64_t product = 0;
    Spend(1 + monomial.size());
    if (failed_ || __builtin_mul_overflow(a, b, &product)) {
      failed_ = true;
      return;
    }
    int64_t& coefficient = into[monomial];
    failed_ = __builtin_add_overflow(coefficient, product, &coefficient);
    if (coefficient == 0) {
      into.erase(monomial);
    }
  }

  void Spend(uint64_t steps) {
    failed_ = failed_ || budget_ < steps;
    budget_ -= std::min(budget_, steps);
  }

  uint64_t& budget_;
  bool failed_ = false;
  std::map<std::string, uint64_t> opaque_;
};

bool SameTerms(const Expr& a, const Expr& b) {
  return std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end());
}

}  // namespace

Sameness Compare(const Expr& a, const Expr& b, uint64_t& budget) {
  if (SameTerms(a, b)) {
    return Sameness::kEqual;
  }
  if (a.terms.size() > kTermsMax || b.terms.size() > kTermsMax) {
    return Sameness::kUnknown;
  }
  Normalizer normalizer(budget);
  const std::optional<Polynomial> left = normalizer.Normalize(a);
  const std::optional<Polynomial> right = left.has_value() ? normalizer.Normalize(b) : std::nullopt;
  if (!right.has_value()) {
    return Sameness::kUnknown;
  }
  const Polynomial difference = normalizer.Sum(*left, *right, -1);
  if (normalizer.failed()) {
    return Sameness::kUnknown;
  }
  if (difference.empty()) {
    return Sameness::kEqual;
  }
  const bool constant = difference.size() == 1 && difference.begin()->first.empty();
  return constant ? Sameness::kDifferent : Sameness::kUnknown;
}

}  // namespace hpvm::graph
