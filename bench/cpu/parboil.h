/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of Parboil's kernels, each for one instance: what stands inside of the loops. */
#ifndef HPVMD_BENCH_CPU_PARBOIL_H_
#define HPVMD_BENCH_CPU_PARBOIL_H_

#include "language.h"

/* C = A B; A is m by k, B is k by n. */
BODY void sgemm_at(GLOBAL const float* restrict a, GLOBAL const float* restrict b, GLOBAL float* restrict c, int n,
                   int k, int row, int column) {
  float sum = 0;
  for (int p = 0; p < k; ++p) {
    sum += a[row * k + p] * b[p * n + column];
  }
  c[row * n + column] = sum;
}

/* y = M x, M in compressed rows (CSR). */
BODY void spmv_at(GLOBAL const int* restrict starts, GLOBAL const int* restrict columns,
                  GLOBAL const float* restrict values, GLOBAL const float* restrict x, GLOBAL float* restrict y,
                  int row) {
  float sum = 0;
  for (int k = starts[row]; k < starts[row + 1]; ++k) {
    sum += values[k] * x[columns[k]];
  }
  y[row] = sum;
}

/* Seven points in three dimensions; (x, y, z) counts the interior. */
BODY void heat_at(GLOBAL const float* restrict in, GLOBAL float* restrict out, float c0, float c1, int nx, int ny,
                  int x, int y, int z) {
  const int at = x + 1 + nx * (y + 1 + ny * (z + 1));
  out[at] =
      c1 * (in[at + nx * ny] + in[at - nx * ny] + in[at + nx] + in[at - nx] + in[at + 1] + in[at - 1]) - c0 * in[at];
}

/* D3Q19, one array a direction; a step collides and pushes to the neighbours. Cells lie x, y, z with two layers of
 * margin below and above. */
enum { kC, kN, kS, kE, kW, kT, kB, kNE, kNW, kSE, kSW, kNT, kNB, kST, kSB, kET, kEB, kWT, kWB };
#define LBM_DIRECTIONS 19
#define LBM_MARGIN 2
#define LBM_OBSTACLE 1
#define LBM_ACCELERATE 2
BODY void lbm_at(GLOBAL const float* restrict source, GLOBAL const int* restrict flags, GLOBAL float* restrict target,
                 float omega, int nx, int ny, int cells, int x, int y, int z) {
  const int at = x + nx * (y + ny * (z + LBM_MARGIN));
  const int up = nx * ny;
  const float c = source[kC * cells + at], n = source[kN * cells + at], s = source[kS * cells + at];
  const float e = source[kE * cells + at], w = source[kW * cells + at], t = source[kT * cells + at];
  const float b = source[kB * cells + at], ne = source[kNE * cells + at], nw = source[kNW * cells + at];
  const float se = source[kSE * cells + at], sw = source[kSW * cells + at], nt = source[kNT * cells + at];
  const float nb = source[kNB * cells + at], st = source[kST * cells + at], sb = source[kSB * cells + at];
  const float et = source[kET * cells + at], eb = source[kEB * cells + at], wt = source[kWT * cells + at];
  const float wb = source[kWB * cells + at];
  if (flags[at] & LBM_OBSTACLE) {
    target[kC * cells + at] = c;
    target[kS * cells + at - nx] = n;
    target[kN * cells + at + nx] = s;
    target[kW * cells + at - 1] = e;
    target[kE * cells + at + 1] = w;
    target[kB * cells + at - up] = t;
    target[kT * cells + at + up] = b;
    target[kSW * cells + at - nx - 1] = ne;
    target[kSE * cells + at - nx + 1] = nw;
    target[kNW * cells + at + nx - 1] = se;
    target[kNE * cells + at + nx + 1] = sw;
    target[kSB * cells + at - nx - up] = nt;
    target[kST * cells + at - nx + up] = nb;
    target[kNB * cells + at + nx - up] = st;
    target[kNT * cells + at + nx + up] = sb;
    target[kWB * cells + at - 1 - up] = et;
    target[kWT * cells + at - 1 + up] = eb;
    target[kEB * cells + at + 1 - up] = wt;
    target[kET * cells + at + 1 + up] = wb;
    return;
  }
  const float rho = c + n + s + e + w + t + b + ne + nw + se + sw + nt + nb + st + sb + et + eb + wt + wb;
  float ux = (e - w + ne - nw + se - sw + et + eb - wt - wb) / rho;
  float uy = (n - s + ne + nw - se - sw + nt + nb - st - sb) / rho;
  float uz = (t - b + nt - nb + st - sb + et - eb + wt - wb) / rho;
  if (flags[at] & LBM_ACCELERATE) {
    ux = 0.005f;
    uy = 0.002f;
    uz = 0.000f;
  }
  const float u2 = 1.5f * (ux * ux + uy * uy + uz * uz) - 1.0f;
  const float keep = 1.0f - omega;
  const float d1 = omega * rho / 3.0f, d2 = omega * rho / 18.0f, d3 = omega * rho / 36.0f;
  target[kC * cells + at] = keep * c - d1 * u2;
  target[kN * cells + at + nx] = keep * n + d2 * (uy * (4.5f * uy + 3.0f) - u2);
  target[kS * cells + at - nx] = keep * s + d2 * (uy * (4.5f * uy - 3.0f) - u2);
  target[kE * cells + at + 1] = keep * e + d2 * (ux * (4.5f * ux + 3.0f) - u2);
  target[kW * cells + at - 1] = keep * w + d2 * (ux * (4.5f * ux - 3.0f) - u2);
  target[kT * cells + at + up] = keep * t + d2 * (uz * (4.5f * uz + 3.0f) - u2);
  target[kB * cells + at - up] = keep * b + d2 * (uz * (4.5f * uz - 3.0f) - u2);
  target[kNE * cells + at + nx + 1] = keep * ne + d3 * ((ux + uy) * (4.5f * (ux + uy) + 3.0f) - u2);
  target[kNW * cells + at + nx - 1] = keep * nw + d3 * ((-ux + uy) * (4.5f * (-ux + uy) + 3.0f) - u2);
  target[kSE * cells + at - nx + 1] = keep * se + d3 * ((ux - uy) * (4.5f * (ux - uy) + 3.0f) - u2);
  target[kSW * cells + at - nx - 1] = keep * sw + d3 * ((-ux - uy) * (4.5f * (-ux - uy) + 3.0f) - u2);
  target[kNT * cells + at + nx + up] = keep * nt + d3 * ((uy + uz) * (4.5f * (uy + uz) + 3.0f) - u2);
  target[kNB * cells + at + nx - up] = keep * nb + d3 * ((uy - uz) * (4.5f * (uy - uz) + 3.0f) - u2);
  target[kST * cells + at - nx + up] = keep * st + d3 * ((-uy + uz) * (4.5f * (-uy + uz) + 3.0f) - u2);
  target[kSB * cells + at - nx - up] = keep * sb + d3 * ((-uy - uz) * (4.5f * (-uy - uz) + 3.0f) - u2);
  target[kET * cells + at + 1 + up] = keep * et + d3 * ((ux + uz) * (4.5f * (ux + uz) + 3.0f) - u2);
  target[kEB * cells + at + 1 - up] = keep * eb + d3 * ((ux - uz) * (4.5f * (ux - uz) + 3.0f) - u2);
  target[kWT * cells + at - 1 + up] = keep * wt + d3 * ((-ux + uz) * (4.5f * (-ux + uz) + 3.0f) - u2);
  target[kWB * cells + at - 1 - up] = keep * wb + d3 * ((-ux - uz) * (4.5f * (-ux - uz) + 3.0f) - u2);
}

/* Q of a voxel: `samples` holds kx, ky, kz and the squared magnitude of phi for each point of k-space. */
BODY void mri_q_at(GLOBAL const float* restrict xs, GLOBAL const float* restrict ys, GLOBAL const float* restrict zs,
                   GLOBAL const float* restrict samples, GLOBAL float* restrict real, GLOBAL float* restrict imaginary,
                   int count, int i) {
  const float x = xs[i], y = ys[i], z = zs[i];
  float sum_real = 0, sum_imaginary = 0;
  for (int k = 0; k < count; ++k) {
    const float angle = 6.2831853071795864769f * (samples[4 * k] * x + samples[4 * k + 1] * y + samples[4 * k + 2] * z);
    sum_real += samples[4 * k + 3] * COSF(angle);
    sum_imaginary += samples[4 * k + 3] * SINF(angle);
  }
  real[i] = sum_real;
  imaginary[i] = sum_imaginary;
}

/* The potential of the atoms (x, y, z, charge) within a cutoff, on a lattice. Atoms are sorted into cubic bins as wide
 * as CUTCP_BIN, of which each lattice point looks at those within the cutoff; `starts` is the first atom of each. The
 * lattice begins CUTCP_REACH bins inside of the box. */
#define CUTCP_BIN 4.0f
#define CUTCP_REACH 2
BODY void cutcp_at(GLOBAL const float* restrict atoms, GLOBAL const int* restrict starts,
                   GLOBAL float* restrict potential, float spacing, float cutoff, int bins_x, int bins_y, int nx,
                   int ny, int i, int j, int k) {
  const float x = CUTCP_REACH * CUTCP_BIN + i * spacing;
  const float y = CUTCP_REACH * CUTCP_BIN + j * spacing;
  const float z = CUTCP_REACH * CUTCP_BIN + k * spacing;
  const int bin_x = (int)(x / CUTCP_BIN), bin_y = (int)(y / CUTCP_BIN), bin_z = (int)(z / CUTCP_BIN);
  const float cutoff2 = cutoff * cutoff;
  float energy = 0;
  for (int bz = bin_z - CUTCP_REACH; bz <= bin_z + CUTCP_REACH; ++bz) {
    for (int by = bin_y - CUTCP_REACH; by <= bin_y + CUTCP_REACH; ++by) {
      const int first = bin_x - CUTCP_REACH + bins_x * (by + bins_y * bz);
      for (int atom = starts[first]; atom < starts[first + 2 * CUTCP_REACH + 1]; ++atom) {
        const float dx = atoms[4 * atom] - x, dy = atoms[4 * atom + 1] - y, dz = atoms[4 * atom + 2] - z;
        const float r2 = dx * dx + dy * dy + dz * dz;
        if (r2 < cutoff2) {
          const float s = 1.0f - r2 / cutoff2;
          energy += atoms[4 * atom + 3] / SQRTF(r2) * s * s;
        }
      }
    }
  }
  potential[i + nx * (j + ny * k)] = energy;
}

#endif /* HPVMD_BENCH_CPU_PARBOIL_H_ */
