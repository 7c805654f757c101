#include "train/utilisation.h"

#include <gtest/gtest.h>

#include "train/flops.h"

namespace nsa {
namespace {

TEST(Peak, IsKnownByName) {
  const Config config;
  EXPECT_EQ(peak_flops(config, "NVIDIA H200", DType::kBF16), 989.4e12);
  EXPECT_EQ(peak_flops(config, "NVIDIA H100 80GB HBM3", DType::kBF16), 989.4e12);
  EXPECT_EQ(peak_flops(config, "NVIDIA H100 PCIe", DType::kBF16), 756e12);
  EXPECT_EQ(peak_flops(config, "NVIDIA A100-SXM4-40GB", DType::kBF16), 312e12);
}

TEST(Peak, IsNotGuessed) {
  const Config config;
  EXPECT_FALSE(peak_flops(config, "cpu", DType::kF32));
  EXPECT_FALSE(peak_flops(config, "NVIDIA H200", DType::kF32));
  EXPECT_FALSE(peak_flops(config, "NVIDIA of tomorrow", DType::kBF16));
}

TEST(Peak, IsTakenFromTheConfigurationFirst) {
  Config config;
  config.log.peak_tflops = 2.5;
  EXPECT_EQ(peak_flops(config, "NVIDIA H200", DType::kBF16), 2.5e12);
  EXPECT_EQ(peak_flops(config, "cpu", DType::kF32), 2.5e12);
}

TEST(TrainingFlops, AreThreeForwards) {
  Config config;
  config.model.head_dim = 64;
  config.model.v_head_dim = 64;
  config.attention.compress.hidden_key = 64;
  config.attention.compress.hidden_value = 64;
  const NsaGeometry geometry;
  EXPECT_DOUBLE_EQ(training_flops(config, 4096, geometry),
                   3 * forward_flops(config, 4096, geometry).total());
  EXPECT_GT(training_flops(config, 4096, geometry), training_flops(config, 2048, geometry));
}

}  // namespace
}  // namespace nsa
