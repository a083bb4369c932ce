// SPDX-License-Identifier: Apache-2.0
#include "client/ctl/text/cost_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "hpvm/v1/service.pb.h"

namespace hpvm::ctl {
namespace {

// Measurements are shown beside the estimate; without a measurement the estimate has a "~".
TEST(CostTextTest, MarksEstimates) {
  v1::ListCostsResponse costs;
  v1::KernelCost* measured = costs.add_kernels();
  measured->set_kernel("m/blur");
  measured->set_device("cpu:0");
  measured->set_instances(1024);
  measured->set_estimate_ns(2'000);
  measured->set_measured_ns(1'500'000);
  measured->set_samples(7);
  measured->set_error(0.25);
  v1::KernelCost* unknown = costs.add_kernels();
  *unknown = *measured;
  unknown->set_device("opencl:0");
  unknown->set_samples(0);
  EXPECT_EQ(CostText(costs.kernels(), false),
            "KERNEL  DEVICE    INSTANCES  ESTIMATE  MEASURED  SAMPLES  ERROR\n"
            "m/blur  cpu:0     <= 1024    2.00 us   1.50 ms   7        25 %\n"
            "m/blur  opencl:0  <= 1024    2.00 us   ~         0        -\n");
  v1::TransferCost* up = costs.add_transfers();
  up->set_source("host");
  up->set_target("opencl:0");
  up->set_start_ns(20'000);
  up->set_bytes_per_second(1024.0 * 1024 * 1024);
  up->set_is_estimate(true);
  EXPECT_NE(CostText(costs.kernels(), true).find("there are more kernels"), std::string::npos);
  const std::string text = CostText(costs.transfers());
  EXPECT_NE(text.find("host  opencl:0  ~20.0 us  ~1.00 GiB/s"), std::string::npos) << text;
}

// Missing figures of a server are not an error.
TEST(CostTextTest, TakesAnyFigure) {
  v1::ListCostsResponse costs;
  for (const double figure : {std::numeric_limits<double>::quiet_NaN(), -1.0, 1e300}) {
    v1::KernelCost* kernel = costs.add_kernels();
    kernel->set_estimate_ns(figure);
    kernel->set_measured_ns(figure);
    kernel->set_samples(3);
    kernel->set_error(figure);
  }
  EXPECT_NE(CostText(costs.kernels(), false).find("ERROR"), std::string::npos);
}

}  // namespace
}  // namespace hpvm::ctl
