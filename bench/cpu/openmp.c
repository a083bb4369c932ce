/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels as loops over the same bodies, with OpenMP. */
#include "openmp.h"

#include "others.h"
#include "parboil.h"
#include "prk.h"
#include "small_arrays.h"

#define KERNEL(name) __attribute__((visibility("default"))) void native_##name(const struct NativeLaunch* launch)
#define EXTENT                                                                      \
  const int nx = launch->extent[0], ny = launch->extent[1], nz = launch->extent[2]; \
  (void)nx, (void)ny, (void)nz
#define BUFFER(type, name, index) type* name = (type*)launch->buffers[index]

KERNEL(nstream) {
  EXTENT;
  BUFFER(double, a, 0);
  BUFFER(const double, b, 1);
  BUFFER(const double, c, 2);
  const double scalar = launch->scalars[0].f64;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    nstream_at(a, b, c, scalar, i);
  }
}

KERNEL(transpose) {
  EXTENT;
  BUFFER(double, a, 0);
  BUFFER(double, b, 1);
  const int order = launch->scalars[0].i32;
#pragma omp parallel for
  for (int i = 0; i < ny; ++i) {
    for (int j = 0; j < nx; ++j) {
      transpose_at(a, b, order, i, j);
    }
  }
}

KERNEL(star) {
  EXTENT;
  BUFFER(const double, in, 0);
  BUFFER(const double, weights, 1);
  BUFFER(double, out, 2);
  const int order = launch->scalars[0].i32;
#pragma omp parallel for
  for (int i = 0; i < ny; ++i) {
    for (int j = 0; j < nx; ++j) {
      star_at(in, weights, out, order, i, j);
    }
  }
}

KERNEL(dgemm) {
  EXTENT;
  BUFFER(const double, a, 0);
  BUFFER(const double, b, 1);
  BUFFER(double, c, 2);
  const int n = launch->scalars[0].i32, k = launch->scalars[1].i32;
#pragma omp parallel for
  for (int row = 0; row < ny; ++row) {
    for (int column = 0; column < nx; ++column) {
      dgemm_at(a, b, c, n, k, row, column);
    }
  }
}

KERNEL(sparse) {
  EXTENT;
  BUFFER(const double, matrix, 0);
  BUFFER(const int, columns, 1);
  BUFFER(const double, vector, 2);
  BUFFER(double, result, 3);
  const int per_row = launch->scalars[0].i32;
#pragma omp parallel for
  for (int row = 0; row < nx; ++row) {
    sparse_at(matrix, columns, vector, result, per_row, row);
  }
}

KERNEL(reduce) {
  EXTENT;
  BUFFER(const double, vectors, 0);
  BUFFER(double, sum, 1);
  const int count = launch->scalars[0].i32, length = launch->scalars[1].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    reduce_at(vectors, sum, count, length, i);
  }
}

KERNEL(pic) {
  EXTENT;
  BUFFER(const double, charges, 0);
  BUFFER(double, particles, 1);
  const int cells = launch->scalars[0].i32;
  const double step = launch->scalars[1].f64;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    pic_at(charges, particles, cells, step, i);
  }
}

KERNEL(sgemm) {
  EXTENT;
  BUFFER(const float, a, 0);
  BUFFER(const float, b, 1);
  BUFFER(float, c, 2);
  const int n = launch->scalars[0].i32, k = launch->scalars[1].i32;
#pragma omp parallel for
  for (int row = 0; row < ny; ++row) {
    for (int column = 0; column < nx; ++column) {
      sgemm_at(a, b, c, n, k, row, column);
    }
  }
}

/* The same product with its loops in the order in which rows are read one after the other. */
KERNEL(sgemm_ikj) {
  EXTENT;
  BUFFER(const float, a, 0);
  BUFFER(const float, b, 1);
  BUFFER(float, c, 2);
  const int n = launch->scalars[0].i32, k = launch->scalars[1].i32;
#pragma omp parallel for
  for (int row = 0; row < ny; ++row) {
    for (int column = 0; column < nx; ++column) {
      c[row * n + column] = 0;
    }
    for (int p = 0; p < k; ++p) {
      for (int column = 0; column < nx; ++column) {
        c[row * n + column] += a[row * k + p] * b[p * n + column];
      }
    }
  }
}

KERNEL(spmv) {
  EXTENT;
  BUFFER(const int, starts, 0);
  BUFFER(const int, columns, 1);
  BUFFER(const float, values, 2);
  BUFFER(const float, x, 3);
  BUFFER(float, y, 4);
#pragma omp parallel for
  for (int row = 0; row < nx; ++row) {
    spmv_at(starts, columns, values, x, y, row);
  }
}

KERNEL(heat) {
  EXTENT;
  BUFFER(const float, in, 0);
  BUFFER(float, out, 1);
  const float c0 = launch->scalars[0].f32, c1 = launch->scalars[1].f32;
  const int width = launch->scalars[2].i32, height = launch->scalars[3].i32;
#pragma omp parallel for collapse(2)
  for (int z = 0; z < nz; ++z) {
    for (int y = 0; y < ny; ++y) {
      for (int x = 0; x < nx; ++x) {
        heat_at(in, out, c0, c1, width, height, x, y, z);
      }
    }
  }
}

KERNEL(lbm) {
  EXTENT;
  BUFFER(const float, source, 0);
  BUFFER(const int, flags, 1);
  BUFFER(float, target, 2);
  const float omega = launch->scalars[0].f32;
  const int width = launch->scalars[1].i32, height = launch->scalars[2].i32, cells = launch->scalars[3].i32;
#pragma omp parallel for collapse(2)
  for (int z = 0; z < nz; ++z) {
    for (int y = 0; y < ny; ++y) {
      for (int x = 0; x < nx; ++x) {
        lbm_at(source, flags, target, omega, width, height, cells, x, y, z);
      }
    }
  }
}

KERNEL(mri_q) {
  EXTENT;
  BUFFER(const float, xs, 0);
  BUFFER(const float, ys, 1);
  BUFFER(const float, zs, 2);
  BUFFER(const float, samples, 3);
  BUFFER(float, real, 4);
  BUFFER(float, imaginary, 5);
  const int count = launch->scalars[0].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    mri_q_at(xs, ys, zs, samples, real, imaginary, count, i);
  }
}

KERNEL(cutcp) {
  EXTENT;
  BUFFER(const float, atoms, 0);
  BUFFER(const int, starts, 1);
  BUFFER(float, potential, 2);
  const float spacing = launch->scalars[0].f32, cutoff = launch->scalars[1].f32;
  const int bins_x = launch->scalars[2].i32, bins_y = launch->scalars[3].i32;
  const int width = launch->scalars[4].i32, height = launch->scalars[5].i32;
#pragma omp parallel for collapse(2)
  for (int k = 0; k < nz; ++k) {
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) {
        cutcp_at(atoms, starts, potential, spacing, cutoff, bins_x, bins_y, width, height, i, j, k);
      }
    }
  }
}

/* Rows take very different times; a static schedule would leave a thread waiting. */
KERNEL(mandelbrot) {
  EXTENT;
  BUFFER(int, counts, 0);
  const float left = launch->scalars[0].f32, top = launch->scalars[1].f32, step = launch->scalars[2].f32;
  const int width = launch->scalars[3].i32, limit = launch->scalars[4].i32;
#pragma omp parallel for schedule(dynamic)
  for (int j = 0; j < ny; ++j) {
    for (int i = 0; i < nx; ++i) {
      mandelbrot_at(counts, left, top, step, width, limit, i, j);
    }
  }
}

KERNEL(black_scholes) {
  EXTENT;
  BUFFER(const float, prices, 0);
  BUFFER(const float, strikes, 1);
  BUFFER(const float, years, 2);
  BUFFER(float, calls, 3);
  BUFFER(float, puts, 4);
  const float rate = launch->scalars[0].f32, volatility = launch->scalars[1].f32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    black_scholes_at(prices, strikes, years, calls, puts, rate, volatility, i);
  }
}

KERNEL(n_body) {
  EXTENT;
  BUFFER(const float, bodies, 0);
  BUFFER(float, accelerations, 1);
  const float softening = launch->scalars[0].f32;
  const int count = launch->scalars[1].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    n_body_at(bodies, accelerations, softening, count, i);
  }
}

KERNEL(histogram) {
  EXTENT;
  BUFFER(const int, values, 0);
  BUFFER(int, counts, 1);
  const int bins = launch->scalars[0].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    histogram_at(values, counts, bins, i);
  }
}

/* What a group does between two barriers is a loop over its instances. */
#define FOR_TILE                                         \
  for (int local_row = 0; local_row < TILE; ++local_row) \
    for (int local_column = 0; local_column < TILE; ++local_column)

KERNEL(tiled_matmul) {
  EXTENT;
  BUFFER(const float, a, 0);
  BUFFER(const float, b, 1);
  BUFFER(float, c, 2);
  const int n = launch->scalars[0].i32, k = launch->scalars[1].i32;
#pragma omp parallel for collapse(2)
  for (int group_y = 0; group_y < ny / TILE; ++group_y) {
    for (int group_x = 0; group_x < nx / TILE; ++group_x) {
      const int row = group_y * TILE, column = group_x * TILE;
      float tile_a[TILE * TILE], tile_b[TILE * TILE], sums[TILE][TILE] = {{0}};
      for (int p = 0; p < k; p += TILE) {
        FOR_TILE {
          load_tiles(a, b, tile_a, tile_b, n, k, p, row + local_row, column + local_column, local_row, local_column);
        }
        FOR_TILE {
          sums[local_row][local_column] =
              multiply_tiles(tile_a, tile_b, sums[local_row][local_column], local_row, local_column);
        }
      }
      FOR_TILE { c[(row + local_row) * n + column + local_column] = sums[local_row][local_column]; }
    }
  }
}

KERNEL(tree_sum) {
  EXTENT;
  BUFFER(const float, values, 0);
  BUFFER(float, sums, 1);
#pragma omp parallel for
  for (int group = 0; group < nx / LEAVES; ++group) {
    float leaves[LEAVES];
    for (int i = 0; i < LEAVES; ++i) {
      leaves[i] = values[group * 2 * LEAVES + i] + values[group * 2 * LEAVES + LEAVES + i];
    }
    for (int stride = LEAVES / 2; stride > 0; stride /= 2) {
      for (int i = 0; i < stride; ++i) {
        leaves[i] += leaves[i + stride];
      }
    }
    sums[group] = leaves[0];
  }
}

KERNEL(complex_product) {
  EXTENT;
  BUFFER(const float, a, 0);
  BUFFER(const float, b, 1);
  BUFFER(float, c, 2);
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    complex_product_at(a, b, c, i);
  }
}

KERNEL(complex_matrices) {
  EXTENT;
  BUFFER(const float, a, 0);
  BUFFER(const float, b, 1);
  BUFFER(float, c, 2);
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    complex_matrices_at(a, b, c, i);
  }
}

KERNEL(xtea) {
  EXTENT;
  BUFFER(const int, key, 0);
  BUFFER(int, blocks, 1);
  const int rounds = launch->scalars[0].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    xtea_at(key, blocks, rounds, i);
  }
}

KERNEL(sha256) {
  EXTENT;
  BUFFER(const int, messages, 0);
  BUFFER(const int, constants, 1);
  BUFFER(int, hashes, 2);
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    sha256_at(messages, constants, hashes, i);
  }
}

KERNEL(binomial) {
  EXTENT;
  BUFFER(const float, prices, 0);
  BUFFER(const float, strikes, 1);
  BUFFER(float, puts, 2);
  const float up = launch->scalars[0].f32;
  const float up_weight = launch->scalars[1].f32;
  const float down_weight = launch->scalars[2].f32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    binomial_at(prices, strikes, puts, up, up_weight, down_weight, i);
  }
}

KERNEL(sort_rows) {
  EXTENT;
  BUFFER(float, values, 0);
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    sort_rows_at(values, i);
  }
}

KERNEL(docking) {
  EXTENT;
  BUFFER(const float, ligand, 0);
  BUFFER(const float, protein, 1);
  BUFFER(const float, poses, 2);
  BUFFER(float, scores, 3);
  const float reach = launch->scalars[0].f32;
  const int atoms = launch->scalars[1].i32;
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    docking_at(ligand, protein, poses, scores, reach, atoms, i);
  }
}

KERNEL(stencil27) {
  EXTENT;
  BUFFER(const float, in, 0);
  BUFFER(float, out, 1);
  const float own = launch->scalars[0].f32;
  const float others = launch->scalars[1].f32;
  const int width = launch->scalars[2].i32;
  const int height = launch->scalars[3].i32;
  const int depth = launch->scalars[4].i32;
#pragma omp parallel for collapse(2)
  for (int k = 0; k < nz; ++k) {
    for (int j = 0; j < ny; ++j) {
      for (int i = 0; i < nx; ++i) {
        stencil27_at(in, out, own, others, width, height, depth, i, j, k);
      }
    }
  }
}

KERNEL(unit_vectors) {
  EXTENT;
  BUFFER(const float, in, 0);
  BUFFER(float, out, 1);
#pragma omp parallel for
  for (int i = 0; i < nx; ++i) {
    unit_vectors_at(in, out, i);
  }
}
