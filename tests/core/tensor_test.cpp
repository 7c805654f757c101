#include "core/tensor.h"

#include <array>

#include <gtest/gtest.h>

namespace nsa {
namespace {

TEST(Tensor, SlicesByRows) {
  std::array<float, 12> data{};
  const Tensor tensor(data.data(), DType::kF32, {4, 3});
  const Tensor part = tensor.slice(1, 3);
  EXPECT_TRUE(part.has_shape({2, 3}));
  EXPECT_EQ(part.as<float>(), data.data() + 3);
}

TEST(Tensor, RefusesAnotherElementType) {
  float value = 0;
  const Tensor tensor(&value, DType::kF32, {1});
  EXPECT_THROW(tensor.as<double>(), Error);
}

TEST(Tensor, RefusesAReshapeThatChangesTheSize) {
  std::array<float, 6> data{};
  const Tensor tensor(data.data(), DType::kF32, {2, 3});
  EXPECT_TRUE(tensor.reshape({6}).has_shape({6}));
  EXPECT_THROW(tensor.reshape({5}), Error);
}

TEST(Tensor, RefusesASliceOutOfRange) {
  std::array<float, 6> data{};
  const Tensor tensor(data.data(), DType::kF32, {2, 3});
  EXPECT_THROW(tensor.slice(1, 3), Error);
  EXPECT_THROW(tensor.slice(-1, 1), Error);
}

TEST(Tensor, DescribesItself) {
  EXPECT_EQ(Tensor(nullptr, DType::kF64, {2, 3}).describe(), "fp64[2, 3]");
}

TEST(DType, DispatchRefusesIntegers) {
  EXPECT_THROW(with_float(DType::kI32, []<class T>() { return sizeof(T); }), Error);
  EXPECT_EQ(with_float(DType::kF64, []<class T>() { return sizeof(T); }), 8U);
}

}  // namespace
}  // namespace nsa
