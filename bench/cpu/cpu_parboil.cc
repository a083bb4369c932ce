// SPDX-License-Identifier: Apache-2.0
// Parboil's kernels: sizes, inputs and references.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/clock.h"
#include "bench/cpu/cpu_case.h"

namespace hpvm::bench {
namespace {

std::string Cube(uint64_t x, uint64_t y, uint64_t z) {
  return std::to_string(x) + " x " + std::to_string(y) + " x " + std::to_string(z);
}

CpuCase MakeSgemm(CpuSize size) {
  return MakeSgemmOf(Pick<uint64_t>(size, 1'024, 512, 37), Pick<uint64_t>(size, 1'024, 512, 53),
                     Pick<uint64_t>(size, 1'024, 512, 29));
}

// Rows of 1 to 256 entries, most of them short; half of a row's columns are near the diagonal, half anywhere.
struct CompressedRows {
  std::vector<int32_t> starts{0}, columns;
};
CompressedRows MakeRows(uint64_t rows) {
  SeededRng rng(23);
  CompressedRows out;
  for (uint64_t row = 0; row < rows; ++row) {
    const double u = static_cast<double>((rng.Next() >> 11) + 1) * 0x1p-53;
    const auto length = static_cast<uint64_t>(std::min(256.0, 1 + 16 * (1 / std::sqrt(u) - 1)));
    const size_t first = out.columns.size();
    for (uint64_t k = 0; k < length; ++k) {
      const uint64_t column = k % 2 == 0 ? (row + rng.Below(2'000)) % rows : rng.Below(rows);
      out.columns.push_back(static_cast<int32_t>(column));
    }
    std::sort(out.columns.begin() + static_cast<int64_t>(first), out.columns.end());
    out.starts.push_back(static_cast<int32_t>(out.columns.size()));
  }
  return out;
}

CpuCase MakeSpmv(CpuSize size) {
  const uint64_t rows = Pick<uint64_t>(size, 300'007, 40'009, 307, 2'048'000);
  CompressedRows matrix = MakeRows(rows);
  const uint64_t entries = matrix.columns.size();
  CpuCase c{.suite = "parboil",
            .name = "spmv",
            .sizes = std::to_string(rows) + " rows of 1 to 256, " + std::to_string(entries) + " entries, CSR f32",
            .unit = "flop"};
  c.arrays.push_back(InArray("starts", std::move(matrix.starts)));
  c.arrays.push_back(InArray("columns", std::move(matrix.columns)));
  c.arrays.push_back(InArray("values", RandomReals<float>(entries, -1, 2, 24)));
  c.arrays.push_back(InArray("x", RandomReals<float>(rows, 0.5, 1.5, 25)));
  c.arrays.push_back(OutArray("y", ElementType::kF32, rows));
  c.extent = {rows, 1, 1};
  c.work = 2.0 * static_cast<double>(entries);
  c.tolerance = 2e-6;
  c.magnitude = 64;
  c.reference = [starts = c.arrays[0].initial.as<int32_t>(), columns = c.arrays[1].initial.as<int32_t>(),
                 values = c.arrays[2].initial.as<float>(), x = c.arrays[3].initial.as<float>()](size_t, uint64_t row) {
    double sum = 0;
    for (int32_t k = starts[row + 1]; k-- > starts[row];) {
      sum +=
          static_cast<double>(values[static_cast<size_t>(k)]) * x[static_cast<size_t>(columns[static_cast<size_t>(k)])];
    }
    return sum;
  };
  return c;
}

CpuCase MakeHeat(CpuSize size) {
  const uint64_t nx = Pick<uint64_t>(size, 514, 130, 19, 514), ny = Pick<uint64_t>(size, 258, 66, 11, 514),
                 nz = Pick<uint64_t>(size, 130, 34, 9, 514);
  constexpr float kC0 = 0.1667f, kC1 = 0.0278f;
  CpuCase c{.suite = "parboil", .name = "heat", .sizes = "7 points, " + Cube(nx, ny, nz) + " f32", .unit = "flop"};
  c.arrays.push_back(InArray("in", RandomReals<float>(nx * ny * nz, -1, 2, 26)));
  c.arrays.push_back(OutArray("out", ElementType::kF32, nx * ny * nz));
  c.scalars = {kC0, kC1, static_cast<int32_t>(nx), static_cast<int32_t>(ny)};
  c.extent = {nx - 2, ny - 2, nz - 2};
  c.work = 8.0 * static_cast<double>((nx - 2) * (ny - 2) * (nz - 2));
  c.tolerance = 1e-6;
  c.reference = [in = c.arrays[0].initial.as<float>(), nx, ny, nz](size_t, uint64_t at) {
    const uint64_t x = at % nx, y = at / nx % ny, z = at / nx / ny;
    if (x == 0 || y == 0 || z == 0 || x == nx - 1 || y == ny - 1 || z == nz - 1) {
      return 0.0;
    }
    double sum = -static_cast<double>(kC0) / kC1 * in[at];
    for (uint64_t distance : {uint64_t{1}, nx, nx * ny}) {
      sum += static_cast<double>(in[at - distance]) + in[at + distance];
    }
    return kC1 * sum;
  };
  return c;
}

// D3Q19 in the order of the enumeration in bench/cpu/parboil.h: C N S E W T B NE NW SE SW NT NB ST SB ET EB WT WB.
constexpr int kDirections = 19;
constexpr int kVelocity[kDirections][3] = {{0, 0, 0},   {0, 1, 0},  {0, -1, 0}, {1, 0, 0},  {-1, 0, 0},
                                           {0, 0, 1},   {0, 0, -1}, {1, 1, 0},  {-1, 1, 0}, {1, -1, 0},
                                           {-1, -1, 0}, {0, 1, 1},  {0, 1, -1}, {0, -1, 1}, {0, -1, -1},
                                           {1, 0, 1},   {1, 0, -1}, {-1, 0, 1}, {-1, 0, -1}};
constexpr int kMargin = 2, kObstacle = 1, kAccelerate = 2;

double Weight(int direction) {
  const int* v = kVelocity[direction];
  const int length = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
  return length == 0 ? 1.0 / 3 : length == 1 ? 1.0 / 18 : 1.0 / 36;
}

int Opposite(int direction) {
  for (int other = 0; other < kDirections; ++other) {
    if (std::equal(kVelocity[direction], kVelocity[direction] + 3, kVelocity[other],
                   [](int a, int b) { return a == -b; })) {
      return other;
    }
  }
  return -1;
}

struct Lattice {
  int64_t nx, ny, nz;
  float omega;
  std::span<const float> source;
  std::span<const int32_t> flags;
  int64_t layer() const { return nx * ny; }
  int64_t cells() const { return layer() * (nz + 2 * kMargin); }
  double At(int direction, int64_t cell) const { return source[static_cast<size_t>(direction * cells() + cell)]; }

  // Returns what the cell sends in a direction.
  double Sent(int direction, int64_t cell) const {
    if ((flags[static_cast<size_t>(cell)] & kObstacle) != 0) {
      return At(Opposite(direction), cell);
    }
    double density = 0, u[3] = {0, 0, 0};
    for (int d = 0; d < kDirections; ++d) {
      density += At(d, cell);
      for (int axis = 0; axis < 3; ++axis) {
        u[axis] += kVelocity[d][axis] * At(d, cell);
      }
    }
    for (double& one : u) {
      one /= density;
    }
    if ((flags[static_cast<size_t>(cell)] & kAccelerate) != 0) {
      u[0] = 0.005f, u[1] = 0.002f, u[2] = 0;
    }
    const int* v = kVelocity[direction];
    const double along = v[0] * u[0] + v[1] * u[1] + v[2] * u[2];
    const double speed = u[0] * u[0] + u[1] * u[1] + u[2] * u[2];
    const double equilibrium = Weight(direction) * density * (1 + 3 * along + 4.5 * along * along - 1.5 * speed);
    return At(direction, cell) + omega * (equilibrium - At(direction, cell));
  }
  double Reference(uint64_t at) const {
    const auto direction = static_cast<int>(static_cast<int64_t>(at) / cells());
    const int* v = kVelocity[direction];
    const int64_t from = static_cast<int64_t>(at) % cells() - v[0] - nx * v[1] - layer() * v[2];
    return from < kMargin * layer() || from >= (nz + kMargin) * layer() ? 0 : Sent(direction, from);
  }
};

// Walls at the border, some obstacles inside, and some cells that drive the flow.
std::vector<int32_t> LatticeFlags(int64_t nx, int64_t ny, int64_t nz) {
  SeededRng rng(27);
  std::vector<int32_t> flags(static_cast<size_t>(nx * ny * (nz + 2 * kMargin)), kObstacle);
  for (int64_t z = 1; z < nz - 1; ++z) {
    for (int64_t y = 1; y < ny - 1; ++y) {
      for (int64_t x = 1; x < nx - 1; ++x) {
        const uint64_t kind = rng.Below(100);
        flags[static_cast<size_t>(x + nx * (y + ny * (z + kMargin)))] = kind < 3   ? kObstacle
                                                                        : kind < 6 ? kAccelerate
                                                                                   : 0;
      }
    }
  }
  return flags;
}

CpuCase MakeLbm(CpuSize size) {
  const int64_t nx = Pick(size, 120, 60, 12), ny = Pick(size, 120, 50, 10), nz = Pick(size, 150, 40, 8);
  constexpr float kOmega = 1.95f;
  Lattice lattice{.nx = nx, .ny = ny, .nz = nz, .omega = kOmega, .source = {}, .flags = {}};
  const auto cells = static_cast<uint64_t>(lattice.cells());
  std::vector<float> source = RandomReals<float>(cells * kDirections, 0.8, 1.2, 28);
  for (uint64_t i = 0; i < source.size(); ++i) {
    source[i] *= static_cast<float>(Weight(static_cast<int>(i / cells)));
  }
  CpuCase c{.suite = "parboil",
            .name = "lbm",
            .sizes = "D3Q19, " + Cube(static_cast<uint64_t>(nx), static_cast<uint64_t>(ny), static_cast<uint64_t>(nz)) +
                     " f32, an array a direction",
            .unit = "cell"};
  c.arrays.push_back(InArray("source", std::move(source)));
  c.arrays.push_back(InArray("flags", LatticeFlags(nx, ny, nz)));
  c.arrays.push_back(OutArray("target", ElementType::kF32, cells * kDirections));
  c.scalars = {kOmega, static_cast<int32_t>(nx), static_cast<int32_t>(ny), static_cast<int32_t>(cells)};
  c.extent = {static_cast<uint64_t>(nx), static_cast<uint64_t>(ny), static_cast<uint64_t>(nz)};
  c.work = static_cast<double>(nx * ny * nz);
  c.tolerance = 1e-5;
  lattice.source = c.arrays[0].initial.as<float>();
  lattice.flags = c.arrays[1].initial.as<int32_t>();
  c.magnitude = 0.1;
  c.reference = [lattice](size_t, uint64_t at) { return lattice.Reference(at); };
  return c;
}

CpuCase MakeMriQ(CpuSize size) {
  const uint64_t voxels = Pick<uint64_t>(size, 32'768, 4'096, 301, 262'144),
                 points = Pick<uint64_t>(size, 1'024, 512, 53, 2'048);
  CpuCase c{.suite = "parboil",
            .name = "mri_q",
            .sizes = std::to_string(voxels) + " voxels, " + std::to_string(points) + " points",
            .is_bitwise = false,
            .unit = "pair"};
  std::vector<float> samples = RandomReals<float>(4 * points, -2, 3, 29);
  for (uint64_t k = 0; k < points; ++k) {
    samples[4 * k + 3] = 0.5f + samples[4 * k + 3] * samples[4 * k + 3] / 9;
  }
  for (const char* axis : {"xs", "ys", "zs"}) {
    c.arrays.push_back(InArray(axis, RandomReals<float>(voxels, -0.75, 0.5, 30 + static_cast<uint64_t>(axis[0]))));
  }
  c.arrays.push_back(InArray("samples", std::move(samples)));
  c.arrays.push_back(OutArray("real", ElementType::kF32, voxels));
  c.arrays.push_back(OutArray("imaginary", ElementType::kF32, voxels));
  c.scalars = {static_cast<int32_t>(points)};
  c.extent = {voxels, 1, 1};
  c.work = static_cast<double>(voxels * points);
  c.tolerance = 1e-6;
  c.magnitude = static_cast<double>(points);
  c.samples = 1'000;
  c.reference = [x = c.arrays[0].initial.as<float>(), y = c.arrays[1].initial.as<float>(),
                 z = c.arrays[2].initial.as<float>(), k = c.arrays[3].initial.as<float>(),
                 points](size_t array, uint64_t i) {
    double sum = 0;
    for (uint64_t p = 0; p < points; ++p) {
      const double turns = static_cast<double>(k[4 * p]) * x[i] + static_cast<double>(k[4 * p + 1]) * y[i] +
                           static_cast<double>(k[4 * p + 2]) * z[i];
      const double angle = 2 * M_PI * (turns - std::floor(turns));
      sum += k[4 * p + 3] * (array == 4 ? std::cos(angle) : std::sin(angle));
    }
    return sum;
  };
  return c;
}

constexpr double kBin = 4, kReach = 2, kCutoff = 8;  // CUTCP_BIN, CUTCP_REACH in bench/cpu/parboil.h.

// Atoms (x, y, z, charge) by bin, x fastest, and the start of each bin.
struct Atoms {
  std::vector<float> atoms;
  std::vector<int32_t> starts;
};
Atoms MakeAtoms(std::array<uint64_t, 3> bins) {
  SeededRng rng(31);
  Atoms out;
  const auto real = [&] { return static_cast<double>(rng.Next() >> 11) * 0x1p-53; };
  for (uint64_t bin = 0; bin < bins[0] * bins[1] * bins[2]; ++bin) {
    out.starts.push_back(static_cast<int32_t>(out.atoms.size() / 4));
    const uint64_t at[3] = {bin % bins[0], bin / bins[0] % bins[1], bin / bins[0] / bins[1]};
    for (uint64_t atom = 0, count = 2 + rng.Below(9); atom < count; ++atom) {
      for (uint64_t axis : at) {
        out.atoms.push_back(static_cast<float>(kBin * (static_cast<double>(axis) + real())));
      }
      out.atoms.push_back(static_cast<float>(3 * real() - 1));
    }
  }
  out.starts.push_back(static_cast<int32_t>(out.atoms.size() / 4));
  return out;
}

CpuCase MakeCutcp(CpuSize size) {
  const std::array<uint64_t, 3> n = {Pick<uint64_t>(size, 96, 40, 10, 256), Pick<uint64_t>(size, 88, 36, 9, 256),
                                     Pick<uint64_t>(size, 40, 16, 5, 128)};
  constexpr float kSpacing = 0.5f;
  std::array<uint64_t, 3> bins{};
  for (size_t axis = 0; axis < 3; ++axis) {
    bins[axis] = static_cast<uint64_t>(static_cast<double>(n[axis]) * kSpacing / kBin + 2 * kReach) + 2;
  }
  Atoms atoms = MakeAtoms(bins);
  CpuCase c{.suite = "parboil",
            .name = "cutcp",
            .sizes = Cube(n[0], n[1], n[2]) + " points, " + std::to_string(atoms.atoms.size() / 4) + " atoms",
            .unit = "point"};
  c.arrays.push_back(InArray("atoms", std::move(atoms.atoms)));
  c.arrays.push_back(InArray("starts", std::move(atoms.starts)));
  c.arrays.push_back(OutArray("potential", ElementType::kF32, n[0] * n[1] * n[2]));
  c.scalars = {kSpacing,
               static_cast<float>(kCutoff),
               static_cast<int32_t>(bins[0]),
               static_cast<int32_t>(bins[1]),
               static_cast<int32_t>(n[0]),
               static_cast<int32_t>(n[1])};
  c.extent = n;
  c.work = static_cast<double>(n[0] * n[1] * n[2]);
  c.tolerance = 1e-5;
  c.magnitude = 50;
  c.samples = Pick<uint64_t>(size, 1'000, 1'000, 1'000, 100);  // Each sample visits every atom.
  c.reference = [all = c.arrays[0].initial.as<float>(), n](size_t, uint64_t at) {
    const uint64_t index[3] = {at % n[0], at / n[0] % n[1], at / n[0] / n[1]};
    double sum = 0;
    for (size_t atom = 0; atom < all.size(); atom += 4) {
      double square = 0;
      for (size_t axis = 0; axis < 3; ++axis) {
        square += std::pow(kReach * kBin + static_cast<double>(index[axis]) * kSpacing - all[atom + axis], 2);
      }
      if (square < kCutoff * kCutoff) {
        sum += all[atom + 3] * std::pow(1 - square / (kCutoff * kCutoff), 2) / std::sqrt(square);
      }
    }
    return sum;
  };
  return c;
}

constexpr CpuCaseMaker kCases[] = {
    {"sgemm", MakeSgemm}, {"spmv", MakeSpmv},  {"heat", MakeHeat},
    {"lbm", MakeLbm},     {"mri_q", MakeMriQ}, {"cutcp", MakeCutcp},
};

}  // namespace

std::span<const CpuCaseMaker> ParboilCases() { return kCases; }

CpuCase MakeSgemmOf(uint64_t m, uint64_t n, uint64_t k) {
  CpuCase c{.suite = "parboil", .name = "sgemm", .sizes = Cube(m, n, k) + " f32", .is_matmul = true, .unit = "flop"};
  c.arrays.push_back(InArray("a", RandomReals<float>(m * k, -1, 1, 21)));
  c.arrays.push_back(InArray("b", RandomReals<float>(k * n, 0, 1, 22)));
  c.arrays.push_back(OutArray("c", ElementType::kF32, m * n));
  c.scalars = {static_cast<int32_t>(n), static_cast<int32_t>(k)};
  c.extent = {n, m, 1};
  c.work = 2.0 * static_cast<double>(m * n * k);
  c.tolerance = 2e-6;
  c.magnitude = 32;
  c.reference = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>(), n, k](size_t, uint64_t at) {
    double sum = 0;
    for (uint64_t p = 0; p < k; ++p) {
      sum += static_cast<double>(a[at / n * k + p]) * b[p * n + at % n];
    }
    return sum;
  };
  c.error_bound = [a = c.arrays[0].initial.as<float>(), b = c.arrays[1].initial.as<float>(), n, k](size_t,
                                                                                                   uint64_t at) {
    double magnitudes = 0;
    for (uint64_t p = 0; p < k; ++p) {
      magnitudes += std::abs(static_cast<double>(a[at / n * k + p]) * b[p * n + at % n]);
    }
    return InnerProductBound<float>(k, magnitudes);
  };
  return c;
}

}  // namespace hpvm::bench
