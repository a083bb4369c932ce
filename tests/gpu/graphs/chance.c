// SPDX-License-Identifier: Apache-2.0
// Integer generators, Monte Carlo, bodies, rays and fractals.
#include "common.h"
#include "hpvm.h"

HPVM_KERNEL void pi_hits(const uint64_t* restrict seeds, int* restrict hits, uint64_t* restrict states, int rounds) {
  uint64_t s = seeds[X] | 1u;
  int count = 0;
  for (int k = 0; k < rounds; ++k) {
    s ^= s >> 12;
    s ^= s << 25;
    s ^= s >> 27;
    uint64_t r = s * 0x2545f4914f6cdd1dull;
    float a = (float)(uint32_t)(r >> 40) * 0x1p-24f, b = (float)(uint32_t)(r >> 8 & 0xffffffu) * 0x1p-24f;
    count += a * a + b * b <= 1.0f;
  }
  hits[X] = count;
  states[X] = s;
}

HPVM_KERNEL void sum_ints(const int* restrict in, int64_t* restrict sums, int stride) {
  int64_t sum = 0;
  for (int k = 0; k < stride; ++k) {
    sum += in[X * stride + k];
  }
  sums[X] = sum * sum - stride;
}

HPVM_KERNEL void black_scholes(const float* restrict price, const float* restrict strike, const float* restrict years,
                               float* restrict call, float* restrict put, float rate, float spread) {
  int i = X;
  float root = spread * hpvm_sqrt_f32(years[i]);
  float d1 = (hpvm_log_f32(price[i] / strike[i]) + (rate + 0.5f * spread * spread) * years[i]) / root, d2 = d1 - root;
  float n1 = 0.5f * hpvm_erfc_f32(-d1 * 0.70710678f), n2 = 0.5f * hpvm_erfc_f32(-d2 * 0.70710678f);
  float later = strike[i] * hpvm_exp_f32(-rate * years[i]);
  call[i] = price[i] * n1 - later * n2;
  put[i] = later * (1.0f - n2) - price[i] * (1.0f - n1);
}

// A walk whose steps are drawn from a table by bisection.
HPVM_KERNEL void walk(const double* restrict table, double* restrict ends, int* restrict turns, int n, int steps) {
  double at = 0;
  int count = 0;
  for (int s = 0; s < steps; ++s) {
    double r = (double)(Mix64((uint64_t)(uint32_t)X << 20 | (uint32_t)s) >> 11) * 0x1p-53 * table[n - 1];
    int low = 0, high = n - 1;
    while (low < high) {
      int middle = (low + high) / 2;
      if (table[middle] < r) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    double before = at;
    at += (double)(low - n / 2) * 0.125;
    count += (before < 0) != (at < 0);
  }
  ends[X] = at;
  turns[X] = count;
}

// A twister of 25 words on the stack.
HPVM_KERNEL void twister(const uint32_t* restrict seeds, uint32_t* restrict out, int count) {
  uint32_t s[25];
  s[0] = seeds[X];
  for (int i = 1; i < 25; ++i) {
    s[i] = 1812433253u * (s[i - 1] ^ (s[i - 1] >> 30)) + (uint32_t)i;
  }
  uint32_t sum = 0;
  for (int i = 0; i < count; ++i) {
    int a = i % 25, b = (i + 1) % 25, c = (i + 7) % 25;
    uint32_t y = (s[a] & 0x80000000u) | (s[b] & 0x7fffffffu);
    s[a] = s[c] ^ (y >> 1) ^ (y & 1u ? 0x8ebfd028u : 0u);
    y = s[a] ^ (s[a] << 7 & 0x2b5b2500u);
    sum = Turn32(sum, 5) ^ (y ^ (y >> 16));
  }
  out[X] = sum;
}

HPVM_KERNEL void mandelbrot(uint16_t* restrict out, int w, int h, int most) {
  int x = X, y = Y, k = 0;
  double cr = -2.0 + 3.0 * (double)x / (double)w, ci = -1.25 + 2.5 * (double)y / (double)h, zr = 0, zi = 0;
  while (k < most && zr * zr + zi * zi <= 4.0) {
    double next = zr * zr - zi * zi + cr;
    zi = 2.0 * zr * zi + ci;
    zr = next;
    ++k;
  }
  out[y * w + x] = (uint16_t)k;
}

HPVM_KERNEL void shade(const uint16_t* restrict in, uint8_t* restrict out, int w) {
  int at = Y * w + X, k = in[at];
  out[3 * at] = (uint8_t)(k * 7);
  out[3 * at + 1] = (uint8_t)(k * k >> 3);
  out[3 * at + 2] = (uint8_t)(255 - k);
}

typedef struct {
  float x, y, z, radius, red, mirror;
} Ball;  // 24 bytes.

HPVM_KERNEL void rays(const Ball* restrict balls, float* restrict out, int w, int h, int count) {
  float ox = 0, oy = 0, oz = -3, dx = ((float)X - 0.5f * (float)w) / (float)w,
        dy = ((float)Y - 0.5f * (float)h) / (float)h, dz = 1;
  float length = hpvm_sqrt_f32(dx * dx + dy * dy + dz * dz), light = 0, weight = 1;
  dx /= length;
  dy /= length;
  dz /= length;
  for (int bounce = 0; bounce < 3; ++bounce) {
    float nearest = 1e30f;
    int hit = -1;
    for (int k = 0; k < count; ++k) {
      float px = balls[k].x - ox, py = balls[k].y - oy, pz = balls[k].z - oz;
      float b = px * dx + py * dy + pz * dz, r = balls[k].radius;
      float d = b * b - (px * px + py * py + pz * pz) + r * r;
      if (d > 0.0f) {
        float t = b - hpvm_sqrt_f32(d);
        if (t > 1e-3f && t < nearest) {
          nearest = t;
          hit = k;
        }
      }
    }
    if (hit < 0) {
      light += weight * (0.5f + 0.5f * dy);
      break;
    }
    ox += nearest * dx;
    oy += nearest * dy;
    oz += nearest * dz;
    float nx = (ox - balls[hit].x) / balls[hit].radius, ny = (oy - balls[hit].y) / balls[hit].radius,
          nz = (oz - balls[hit].z) / balls[hit].radius;
    float along = 2.0f * (dx * nx + dy * ny + dz * nz);
    light += weight * (1.0f - balls[hit].mirror) * balls[hit].red * hpvm_max_f32(0.0f, ny);
    weight *= balls[hit].mirror;
    dx -= along * nx;
    dy -= along * ny;
    dz -= along * nz;
  }
  out[Y * w + X] = light;
}

typedef struct {
  float x, y, z, mass;
} Body;

HPVM_KERNEL void forces(const Body* restrict bodies, float* restrict force, int n) {
  Body here = bodies[X];
  float fx = 0, fy = 0, fz = 0;
  for (int k = 0; k < n; ++k) {
    float dx = bodies[k].x - here.x, dy = bodies[k].y - here.y, dz = bodies[k].z - here.z;
    float d = dx * dx + dy * dy + dz * dz + 0.01f, r = 1.0f / hpvm_sqrt_f32(d), f = bodies[k].mass * r * r * r;
    fx += dx * f;
    fy += dy * f;
    fz += dz * f;
  }
  force[3 * X] = fx;
  force[3 * X + 1] = fy;
  force[3 * X + 2] = fz;
}

HPVM_KERNEL void advance(const Body* restrict bodies, const float* restrict speeds, const float* restrict force,
                         Body* restrict moved, float* restrict next, float dt) {
  Body b = bodies[X];
  float v[3];
  for (int k = 0; k < 3; ++k) {
    v[k] = speeds[3 * X + k] + dt * force[3 * X + k];
    next[3 * X + k] = v[k];
  }
  b.x += dt * v[0];
  b.y += dt * v[1];
  b.z += dt * v[2];
  moved[X] = b;
}

// Lennard-Jones with lists of neighbours, in f64.
HPVM_KERNEL void neighbours(const double* restrict at, int* restrict lists, int n, int most, double reach) {
  int count = 0;
  for (int k = 0; k < n && count < most; ++k) {
    double dx = at[3 * k] - at[3 * X], dy = at[3 * k + 1] - at[3 * X + 1], dz = at[3 * k + 2] - at[3 * X + 2];
    if (k != X && dx * dx + dy * dy + dz * dz < reach) {
      lists[X * most + count++] = k;
    }
  }
  while (count < most) {
    lists[X * most + count++] = -1;
  }
}

HPVM_KERNEL void pair_forces(const double* restrict at, const int* restrict lists, double* restrict force, int most) {
  double f[3] = {0, 0, 0};
  for (int k = 0; k < most && lists[X * most + k] >= 0; ++k) {
    int j = lists[X * most + k];
    double d[3], square = 0.01;
    for (int c = 0; c < 3; ++c) {
      d[c] = at[3 * X + c] - at[3 * j + c];
      square += d[c] * d[c];
    }
    double inverse = 1.0 / square, six = inverse * inverse * inverse, strength = six * (six - 0.5) * inverse * 1e-6;
    for (int c = 0; c < 3; ++c) {
      f[c] += d[c] * strength;
    }
  }
  for (int c = 0; c < 3; ++c) {
    force[3 * X + c] = f[c];
  }
}

HPVM_KERNEL void nearest_center(const float* restrict points, const float* restrict centers, int64_t* sums,
                                int* restrict own, int k, int d) {
  int best = 0;
  float least = 1e30f;
  for (int c = 0; c < k; ++c) {
    float square = 0;
    for (int j = 0; j < d; ++j) {
      float diff = points[X * d + j] - centers[c * d + j];
      square += diff * diff;
    }
    if (square < least) {
      least = square;
      best = c;
    }
  }
  own[X] = best;
  for (int j = 0; j < d; ++j) {
    hpvm_atomic_add_i64(sums + best * (d + 1) + j, (int64_t)(points[X * d + j] * 65536.0f));
  }
  hpvm_atomic_add_i64(sums + best * (d + 1) + d, 1);
}

HPVM_KERNEL void move_center(const int64_t* restrict sums, const float* restrict old, float* restrict centers, int d) {
  int c = Y, j = X;
  int64_t count = sums[c * (d + 1) + d];
  centers[c * d + j] = count == 0 ? old[c * d + j] : (float)((double)sums[c * (d + 1) + j] / (double)count / 65536.0);
}
