#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "ops/backend.h"
#include "support/compress_case.h"
#include "support/near.h"

namespace nsa::test {
namespace {

/// Pooling weights by sampling: bin shares from overlaps of real intervals, then softmax.
std::vector<double> naive_pool(const CompressCase& c, std::int64_t head) {
  const std::int64_t block = c.geometry.compress_block();
  std::vector<double> w(static_cast<std::size_t>(block), 0.0);
  const double l = static_cast<double>(block);
  const double bins = static_cast<double>(c.variant.bins);
  double sum = 0;
  for (std::int64_t j = 0; j < block; ++j) {
    double logit = 0;
    for (std::int64_t m = 0; c.variant.phi == Phi::kPoolMlp && m < c.variant.bins; ++m) {
      const double left = std::max(static_cast<double>(j) / l, static_cast<double>(m) / bins);
      const double right =
          std::min(static_cast<double>(j + 1) / l, static_cast<double>(m + 1) / bins);
      logit += c.phi.theta.get(head * c.variant.bins + m) * l * std::max(0.0, right - left);
    }
    sum += w[static_cast<std::size_t>(j)] = std::exp(logit);
  }
  for (double& weight : w) weight /= sum;
  return w;
}

/// W2 silu(W1 z + b1).
std::vector<double> naive_mlp(const CompressCase& c, const std::vector<double>& z) {
  std::vector<double> y(static_cast<std::size_t>(c.variant.dim), 0.0);
  for (std::int64_t f = 0; f < c.variant.hidden; ++f) {
    double alpha = c.phi.b1.get(f);
    for (std::size_t i = 0; i < z.size(); ++i) {
      const auto width = static_cast<std::int64_t>(z.size());
      alpha += c.phi.w1.get(f * width + static_cast<std::int64_t>(i)) * z[i];
    }
    const double u = alpha / (1 + std::exp(-alpha));
    for (std::int64_t d = 0; d < c.variant.dim; ++d) {
      y[static_cast<std::size_t>(d)] += c.phi.w2.get(d * c.variant.hidden + f) * u;
    }
  }
  return y;
}

/// phi of the block that starts at `token`, for one head.
std::vector<double> naive_phi(const CompressCase& c, std::int64_t token, std::int64_t head) {
  const std::int64_t block = c.geometry.compress_block();
  const std::int64_t dim = c.variant.dim;
  const auto at = [&](std::int64_t j, std::int64_t d) {
    return c.x.get(((token + j) * c.variant.heads + head) * dim + d);
  };
  if (c.variant.phi == Phi::kMlpFlat) {
    std::vector<double> z;
    for (std::int64_t j = 0; j < block; ++j) {
      for (std::int64_t d = 0; d < dim; ++d) {
        z.push_back(at(j, d) + c.phi.position.get(j * dim + d));
      }
    }
    return naive_mlp(c, z);
  }
  const std::vector<double> w = naive_pool(c, head);
  std::vector<double> p(static_cast<std::size_t>(dim), 0.0);
  for (std::int64_t j = 0; j < block; ++j) {
    for (std::int64_t d = 0; d < dim; ++d) {
      p[static_cast<std::size_t>(d)] += w[static_cast<std::size_t>(j)] * at(j, d);
    }
  }
  if (c.variant.phi == Phi::kMean) return p;
  std::vector<double> y = naive_mlp(c, p);
  if (c.variant.phi == Phi::kPoolMlp) {
    for (std::size_t d = 0; d < y.size(); ++d) y[d] += p[d];
  }
  return y;
}

void naive_rope(std::vector<double>& y, std::int64_t rotary_dim, std::int64_t position) {
  for (std::int64_t k = 0; k < rotary_dim / 2; ++k) {
    const double exponent = -2.0 * static_cast<double>(k) / static_cast<double>(rotary_dim);
    const double angle = static_cast<double>(position) * std::pow(kRopeBase, exponent);
    double& a = y[static_cast<std::size_t>(k)];
    double& b = y[static_cast<std::size_t>(k + rotary_dim / 2)];
    const double turned = a * std::cos(angle) - b * std::sin(angle);
    b = b * std::cos(angle) + a * std::sin(angle);
    a = turned;
  }
}

/// The whole op, by definition: block after block of every document.
Owned naive_compress(const CompressCase& c) {
  Owned result(c.variant.dtype,
               {c.out.tensor().dim(0), c.out.tensor().dim(1), c.out.tensor().dim(2)});
  const Documents documents = c.documents;
  const std::int64_t block = c.geometry.compress_block();
  const std::int64_t offset = compress_position_offset(c.variant.position, block);
  std::int64_t at = 0;
  for (std::int64_t d = 0; d < documents.count(); ++d) {
    for (std::int64_t start = 0; start + block <= documents.length(d);
         start += c.geometry.compress_stride()) {
      for (std::int64_t h = 0; h < c.variant.heads; ++h) {
        std::vector<double> y;
        if (c.variant.bypass) {
          for (std::int64_t i = 0; i < c.variant.dim; ++i) {
            y.push_back(
                c.x.get(((documents.begin(d) + start) * c.variant.heads + h) * c.variant.dim + i));
          }
        } else {
          y = naive_phi(c, documents.begin(d) + start, h);
        }
        naive_rope(y, c.variant.rotary_dim, start + offset);
        for (const double value : y) result.set(at++, value);
      }
    }
  }
  return result;
}

TEST(Compress, ForwardFollowsTheDefinition) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    for (const Variant& variant : all_variants(dtype)) {
      const CompressCase c(variant);
      c.forward(*backend.ops);
      EXPECT_TRUE(near(c.out, naive_compress(c), dtype == DType::kF64 ? 1e-13 : 1e-6))
          << name_of(variant);
    }
  }
}

TEST(Compress, PoolMlpStartsAsTheMeanAtEveryRate) {
  Backend backend = make_backend("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const std::int32_t rate : {1, 2, 4, 7, 16}) {
      const CompressCase pool({.rate = rate, .lengths = {70, 40}, .dtype = dtype});
      pool.phi.theta.fill(0);
      pool.phi.w2.fill(0);
      const CompressCase mean(
          {.phi = Phi::kMean, .rate = rate, .lengths = {70, 40}, .dtype = dtype});
      pool.forward(*backend.ops);
      mean.forward(*backend.ops);
      EXPECT_TRUE(same(pool.out, mean.out)) << "rate " << rate;
    }
  }
}

}  // namespace
}  // namespace nsa::test
