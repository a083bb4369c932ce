/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that belong to no suite, each for one instance. */
#ifndef HPVMD_BENCH_CPU_OTHERS_H_
#define HPVMD_BENCH_CPU_OTHERS_H_

#include "language.h"

BODY void mandelbrot_at(GLOBAL int* restrict counts, float left, float top, float step, int width, int limit, int i,
                        int j) {
  const float cx = left + i * step, cy = top + j * step;
  float x = 0, y = 0;
  int count = 0;
  while (count < limit && x * x + y * y <= 4.0f) {
    const float next = x * x - y * y + cx;
    y = 2.0f * x * y + cy;
    x = next;
    ++count;
  }
  counts[j * width + i] = count;
}

/* The cumulative normal distribution, by a polynomial of degree five. */
BODY float normal_below(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * (d < 0 ? -d : d));
  const float tail =
      0.39894228040f * EXPF(-0.5f * d * d) *
      (k * (0.319381530f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f)))));
  return d > 0 ? 1.0f - tail : tail;
}

BODY void black_scholes_at(GLOBAL const float* restrict prices, GLOBAL const float* restrict strikes,
                           GLOBAL const float* restrict years, GLOBAL float* restrict calls,
                           GLOBAL float* restrict puts, float rate, float volatility, int i) {
  const float price = prices[i], strike = strikes[i], time = years[i];
  const float root = SQRTF(time);
  const float d1 = (LOGF(price / strike) + (rate + 0.5f * volatility * volatility) * time) / (volatility * root);
  const float d2 = d1 - volatility * root;
  const float below1 = normal_below(d1), below2 = normal_below(d2);
  const float discounted = strike * EXPF(-rate * time);
  calls[i] = price * below1 - discounted * below2;
  puts[i] = discounted * (1.0f - below2) - price * (1.0f - below1);
}

/* The acceleration of body `first` + i (x, y, z, mass) by all others. */
BODY void n_body_rows_at(GLOBAL const float* restrict bodies, GLOBAL float* restrict accelerations, float softening,
                         int count, int first, int i) {
  const int own = 4 * (first + i);
  const float x = bodies[own], y = bodies[own + 1], z = bodies[own + 2];
  float ax = 0, ay = 0, az = 0;
  for (int j = 0; j < count; ++j) {
    const float dx = bodies[4 * j] - x, dy = bodies[4 * j + 1] - y, dz = bodies[4 * j + 2] - z;
    const float inverse = 1.0f / SQRTF(dx * dx + dy * dy + dz * dz + softening);
    const float force = bodies[4 * j + 3] * inverse * inverse * inverse;
    ax += dx * force;
    ay += dy * force;
    az += dz * force;
  }
  accelerations[3 * i] = ax;
  accelerations[3 * i + 1] = ay;
  accelerations[3 * i + 2] = az;
}
BODY void n_body_at(GLOBAL const float* restrict bodies, GLOBAL float* restrict accelerations, float softening,
                    int count, int i) {
  n_body_rows_at(bodies, accelerations, softening, count, 0, i);
}

/* `bins` is a power of two. */
BODY void histogram_at(GLOBAL const int* restrict values, GLOBAL int* restrict counts, int bins, int i) {
  ATOMIC_INCREMENT(&counts[values[i] & (bins - 1)]);
}

/* C = A B by tiles that a group of TILE by TILE loads together; m, n and k are multiples of TILE. */
#define TILE 16
BODY void load_tiles(GLOBAL const float* restrict a, GLOBAL const float* restrict b, LOCAL float* tile_a,
                     LOCAL float* tile_b, int n, int k, int p, int row, int column, int local_row, int local_column) {
  tile_a[local_row * TILE + local_column] = a[row * k + p + local_column];
  tile_b[local_row * TILE + local_column] = b[(p + local_row) * n + column];
}
BODY float multiply_tiles(LOCAL const float* tile_a, LOCAL const float* tile_b, float sum, int local_row,
                          int local_column) {
  for (int q = 0; q < TILE; ++q) {
    sum += tile_a[local_row * TILE + q] * tile_b[q * TILE + local_column];
  }
  return sum;
}

/* The sum of 2 * LEAVES elements by a group of LEAVES, as a tree. */
#define LEAVES 256

#ifdef HAS_GROUPS /* Without barriers there is no body for one instance; openmp.c has the loops over the group. */
BODY void tiled_matmul_at(GLOBAL const float* restrict a, GLOBAL const float* restrict b, GLOBAL float* restrict c,
                          LOCAL float* tile_a, LOCAL float* tile_b, int n, int k, int row, int column, int local_row,
                          int local_column) {
  float sum = 0;
  for (int p = 0; p < k; p += TILE) {
    load_tiles(a, b, tile_a, tile_b, n, k, p, row, column, local_row, local_column);
    BARRIER();
    sum = multiply_tiles(tile_a, tile_b, sum, local_row, local_column);
    BARRIER();
  }
  c[row * n + column] = sum;
}

BODY void tree_sum_at(GLOBAL const float* restrict values, GLOBAL float* restrict sums, LOCAL float* leaves, int group,
                      int local_id) {
  leaves[local_id] = values[group * 2 * LEAVES + local_id] + values[group * 2 * LEAVES + LEAVES + local_id];
  BARRIER();
  for (int stride = LEAVES / 2; stride > 0; stride /= 2) {
    if (local_id < stride) {
      leaves[local_id] += leaves[local_id + stride];
    }
    BARRIER();
  }
  if (local_id == 0) {
    sums[group] = leaves[0];
  }
}
#endif

#endif /* HPVMD_BENCH_CPU_OTHERS_H_ */
