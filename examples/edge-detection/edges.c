// SPDX-License-Identifier: Apache-2.0
// Six kernels that find the edges of a grey image: smooth, estimate the Laplacian, find its zero crossings, take the gradient, find the
// largest gradient, and keep the crossings where the gradient is large enough. One instance per pixel (x, y), unless stated otherwise.
// Pixels outside the image repeat the nearest pixel.
#include "hpvm.h"

static int clamp(int value, int last) { return value < 0 ? 0 : value > last ? last : value; }

static float at(const float* image, int x, int y, int width, int height) {
  return image[clamp(y, height - 1) * width + clamp(x, width - 1)];
}

// Gaussian, sigma about 1.4, as a 5 by 5 outer product of (1 4 6 4 1) / 16. Takes bytes, returns [0, 1].
HPVM_KERNEL void smooth(const unsigned char* image, float* out, int width, int height) {
  static const float kWeights[5] = {1 / 16.0f, 4 / 16.0f, 6 / 16.0f, 4 / 16.0f, 1 / 16.0f};
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float sum = 0;
  for (int j = -2; j <= 2; ++j) {
    for (int i = -2; i <= 2; ++i) {
      float pixel = image[clamp(y + j, height - 1) * width + clamp(x + i, width - 1)] * (1 / 255.0f);
      sum += kWeights[i + 2] * kWeights[j + 2] * pixel;
    }
  }
  out[y * width + x] = sum;
}

// The morphological Laplacian: dilation plus erosion minus twice the pixel, over a 3 by 3 square.
HPVM_KERNEL void laplacian(const float* image, float* out, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float center = image[y * width + x], largest = center, smallest = center;
  for (int j = -1; j <= 1; ++j) {
    for (int i = -1; i <= 1; ++i) {
      float pixel = at(image, x + i, y + j, width, height);
      largest = pixel > largest ? pixel : largest;
      smallest = pixel < smallest ? pixel : smallest;
    }
  }
  out[y * width + x] = largest + smallest - 2 * center;
}

// 1 where the Laplacian is positive here but not everywhere in the neighbourhood.
HPVM_KERNEL void zero_crossings(const float* laplacian, unsigned char* out, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  int crossing = 0;
  if (laplacian[y * width + x] > 0) {
    for (int j = -1; j <= 1; ++j) {
      for (int i = -1; i <= 1; ++i) {
        crossing |= at(laplacian, x + i, y + j, width, height) <= 0;
      }
    }
  }
  out[y * width + x] = crossing;
}

// The length of Sobel's gradient.
HPVM_KERNEL void gradient(const float* image, float* out, int width, int height) {
  int x = hpvm_instance_id(0), y = hpvm_instance_id(1);
  float gx = 0, gy = 0;
  for (int i = -1; i <= 1; ++i) {
    float weight = i == 0 ? 2 : 1;
    gx += weight * (at(image, x + 1, y + i, width, height) - at(image, x - 1, y + i, width, height));
    gy += weight * (at(image, x + i, y + 1, width, height) - at(image, x + i, y - 1, width, height));
  }
  out[y * width + x] = __builtin_sqrtf(gx * gx + gy * gy);
}

// The row's largest gradient, then one atomic maximum; one instance per row. Bits of nonnegative floats order as integers do.
HPVM_KERNEL void max_gradient(const float* gradient, int* largest_bits, int width) {
  int y = hpvm_instance_id(0);
  float largest = 0;
  for (int x = 0; x < width; ++x) {
    float value = gradient[y * width + x];
    largest = value > largest ? value : largest;
  }
  int bits;
  __builtin_memcpy(&bits, &largest, sizeof(bits));
  hpvm_atomic_max_s_i32(largest_bits, bits);
}

// White at zero crossings whose gradient is at least `threshold` times the largest gradient.
HPVM_KERNEL void reject(const unsigned char* crossings, const float* gradient, const float* largest, unsigned char* out,
                        int width, float threshold) {
  int i = hpvm_instance_id(1) * width + hpvm_instance_id(0);
  out[i] = crossings[i] && gradient[i] >= threshold * largest[0] ? 255 : 0;
}
