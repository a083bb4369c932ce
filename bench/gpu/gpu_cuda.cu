// SPDX-License-Identifier: Apache-2.0
// The peers "cuda" and "cublas" of `hpvm-bench gpu`, built only where there is a CUDA toolkit: nstream and the matrix
// product, on the same sizes. Prints one JSON object a line, which hpvm-bench merges.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

void Check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "hpvm-bench-cuda: %s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
  }
}

__global__ void Nstream(float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c, float scalar,
                        long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    a[i] += b[i] + scalar * c[i];
  }
}

__global__ void Nstream4(float4* __restrict__ a, const float4* __restrict__ b, const float4* __restrict__ c,
                         float scalar, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const float4 y = b[i], z = c[i];
    float4 x = a[i];
    x.x += y.x + scalar * z.x;
    x.y += y.y + scalar * z.y;
    x.z += y.z + scalar * z.z;
    x.w += y.w + scalar * z.w;
    a[i] = x;
  }
}

// One element an item, as the naive leaf has it.
__global__ void Matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n, int k) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  for (int p = 0; p < k; ++p) {
    sum += a[row * k + p] * b[p * n + column];
  }
  c[row * n + column] = sum;
}

struct Timed {
  double seconds = 0;
  int launches = 0;
};

// The best of several batches, as hpvm-bench measures its own.
Timed Measure(const std::function<void()>& launch) {
  launch();
  Check(cudaDeviceSynchronize(), "The first launch");
  Timed best;
  int batch = 1;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 5 || std::chrono::steady_clock::now() - start < std::chrono::milliseconds(1000);
       ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < batch; ++i) {
      launch();
    }
    Check(cudaDeviceSynchronize(), "A batch");
    const double once = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / batch;
    best.seconds = best.seconds == 0 ? once : std::min(best.seconds, once);
    best.launches += batch;
    batch = static_cast<int>(std::clamp(0.02 / best.seconds, 1.0, 200.0));
  }
  return best;
}

void Print(const std::string& name, const char* peer, const Timed& timed, bool verified, const char* chosen) {
  std::printf("{\"case\":\"%s\",\"peer\":\"%s\",\"seconds\":%.9g,\"launches\":%d,\"verified\":%s,\"chosen\":\"%s\"}\n",
              name.c_str(), peer, timed.seconds, timed.launches, verified ? "true" : "false", chosen);
  std::fflush(stdout);
}

float* Device(size_t count, const std::vector<float>& from) {
  float* memory = nullptr;
  Check(cudaMalloc(&memory, count * sizeof(float)), "Allocating");
  if (!from.empty()) {
    Check(cudaMemcpy(memory, from.data(), count * sizeof(float), cudaMemcpyHostToDevice), "Copying");
  }
  return memory;
}

std::vector<float> Numbers(size_t count, unsigned seed) {
  std::vector<float> values(count);
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(seed >> 8) * 0x1p-24f;
  }
  return values;
}

void RunNstream(long long n) {
  constexpr float kScalar = 0.4f;
  const std::vector<float> a = Numbers(n, 1), b = Numbers(n, 2), c = Numbers(n, 3);
  float *da = Device(n, a), *db = Device(n, b), *dc = Device(n, c);
  const auto verify = [&](const std::function<void()>& launch) {
    Check(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice), "Copying");
    launch();
    std::vector<float> result(n);
    Check(cudaMemcpy(result.data(), da, n * sizeof(float), cudaMemcpyDeviceToHost), "Copying");
    for (long long i = 0; i < n; i += 997) {
      if (std::fabs(result[i] - (a[i] + b[i] + static_cast<double>(kScalar) * c[i])) > 1e-5) {
        return false;
      }
    }
    return true;
  };
  const auto scalar = [&] { Nstream<<<static_cast<unsigned>((n + 255) / 256), 256>>>(da, db, dc, kScalar, n); };
  Print("nstream", "cuda", Measure(scalar), verify(scalar), "scalar, 256 threads");
  if (n % 4 == 0) {
    const auto wide = [&] {
      Nstream4<<<static_cast<unsigned>((n / 4 + 255) / 256), 256>>>(
          reinterpret_cast<float4*>(da), reinterpret_cast<const float4*>(db), reinterpret_cast<const float4*>(dc),
          kScalar, n / 4);
    };
    Print("nstream", "cuda_float4", Measure(wide), verify(wide), "float4, 256 threads");
  }
  for (float* memory : {da, db, dc}) {
    cudaFree(memory);
  }
}

void RunMatmul(int n, cublasHandle_t cublas) {
  const size_t count = static_cast<size_t>(n) * n;
  const std::vector<float> a = Numbers(count, 4), b = Numbers(count, 5);
  float *da = Device(count, a), *db = Device(count, b), *dc = Device(count, {});
  const auto verify = [&](const std::function<void()>& launch) {
    Check(cudaMemset(dc, 0xff, count * sizeof(float)), "Clearing");
    launch();
    std::vector<float> result(count);
    Check(cudaMemcpy(result.data(), dc, count * sizeof(float), cudaMemcpyDeviceToHost), "Copying");
    for (size_t at = 0; at < count; at += count / 400 + 1) {
      double sum = 0;
      for (int p = 0; p < n; ++p) {
        sum += static_cast<double>(a[at / n * n + p]) * b[static_cast<size_t>(p) * n + at % n];
      }
      if (!(std::fabs(result[at] - sum) <= 1e-4 * sum)) {
        return false;
      }
    }
    return true;
  };
  const std::string name = "matmul_" + std::to_string(n);
  const dim3 block(32, 8), grid(n / 32, n / 8);
  const auto naive = [&] { Matmul<<<grid, block>>>(da, db, dc, n, n); };
  Print(name, "cuda", Measure(naive), verify(naive), "naive, 32 x 8 threads");
  const float one = 1, zero = 0;
  // Row-major C = A B is column-major C^T = B^T A^T.
  const auto library = [&] {
    cublasSgemm(cublas, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, db, n, da, n, &zero, dc, n);
  };
  Print(name, "cublas", Measure(library), verify(library), "cublasSgemm, f32");
  for (float* memory : {da, db, dc}) {
    cudaFree(memory);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  cublasHandle_t cublas;
  if (cublasCreate(&cublas) != CUBLAS_STATUS_SUCCESS) {
    std::fprintf(stderr, "hpvm-bench-cuda: cuBLAS does not start.\n");
    return 1;
  }
  RunNstream(quick ? 1'000'003 : 1ll << 26);
  for (int n : quick ? std::vector<int>{256} : std::vector<int>{1024, 2048, 4096, 8192}) {
    RunMatmul(n, cublas);
  }
  cublasDestroy(cublas);
  return 0;
}
