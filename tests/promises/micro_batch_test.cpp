// The micro-batch decides how much is computed at once, not what is computed.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "config/parse.h"
#include "core/format.h"
#include "data/loader.h"
#include "promises/tiny_run.h"
#include "train/optimizer.h"
#include "train/workshop.h"

namespace nsa::test {
namespace {

constexpr std::int64_t kSteps = 8;

/// One stage; a step is twelve sequences, which micro-batches of 1, 2, 3 and 4 make up.
Overrides one_stage() {
  return {"schedule.stages=[]", "train.seq_len=96", "train.tokens_per_step=1152", "eval.every=0",
          fmt::format("train.steps={}", kSteps)};
}

Overrides with_micro_batch(std::int64_t sequences) {
  Overrides overrides = one_stage();
  overrides.push_back(fmt::format("train.micro_batch={}", sequences));
  return overrides;
}

/// What a run computed: a loss a step, and the blocks that each query of each layer selected.
struct Course {
  std::vector<double> losses;
  std::vector<std::vector<std::int32_t>> blocks;  ///< by step; top_n a query
};

class MicroBatch : public TinyRun {
 protected:
  Config configuration(const Overrides& overrides) const {
    return parse_config((folder_ / "run.yaml").string(), overrides, nullptr);
  }

  Course course(std::int64_t micro_batch, const Overrides& more) const {
    Overrides overrides = with_micro_batch(micro_batch);
    overrides.insert(overrides.end(), more.begin(), more.end());
    Workshop shop(configuration(overrides));
    Loader loader(shop.data.train,
                  {.page = shop.schedule.page(),
                   .seed = shop.config.run.seed,
                   .doc_mask = shop.config.data.doc_mask,
                   .max_rows = shop.largest_rows()},
                  *shop.backend.device);
    Optimizer optimizer(shop.config.optim, shop.store, shop.backend);
    Course found;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      take_step(shop, loader, optimizer, shop.schedule.at(step), found);
    }
    return found;
  }

 private:
  /// The blocks stand by layer, then by row, so that micro-batches of any size give one order.
  static void take_step(Workshop& shop, Loader& loader, Optimizer& optimizer, const StepPlan& plan,
                        Course& found) {
    const auto layers = static_cast<std::size_t>(shop.config.model.layers);
    std::vector<std::vector<std::int32_t>> blocks(layers);
    std::int64_t targets = 0;
    shop.store.zero_gradients();
    const auto tokens = static_cast<double>(plan.tokens_per_step);
    for (std::int64_t micro = 0; micro < plan.micro_batches; ++micro) {
      const Batch batch = loader.next(plan.micro_batch, plan.seq_len);
      shop.model.train_micro(batch, plan.geometry, 1.0 / tokens);
      targets += batch.targets_valid;
      for (std::size_t layer = 0; layer < layers; ++layer) {
        const Tensor selected = shop.model.selected_blocks(static_cast<std::int64_t>(layer));
        const auto* ids = selected.as<std::int32_t>();
        blocks[layer].insert(blocks[layer].end(), ids, ids + selected.size());
      }
    }
    const auto valid = static_cast<double>(targets);
    found.losses.push_back(shop.model.take_loss_sums().cross_entropy / valid);
    optimizer.gradient_norm(tokens / valid);
    optimizer.update(plan, tokens / valid);
    std::vector<std::int32_t> all;
    for (const auto& of_layer : blocks) all.insert(all.end(), of_layer.begin(), of_layer.end());
    found.blocks.push_back(all);
  }
};

/// Of each step: selected blocks of `a` that stand at another place than in `b`.
std::int64_t differing_blocks(const std::vector<std::int32_t>& a,
                              const std::vector<std::int32_t>& b) {
  EXPECT_EQ(a.size(), b.size());
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) differing += a[i] != b[i] ? 1 : 0;
  return differing;
}

/// The losses are equal to 1e-6 as long as the same blocks are selected; a block that differs ends
/// the comparison, and how many did is printed.
void expect_same_course(const Course& course, const Course& reference, const std::string& name) {
  ASSERT_EQ(course.losses.size(), static_cast<std::size_t>(kSteps));
  double largest = 0;
  std::int64_t differing = 0;
  std::int64_t compared = 0;
  for (std::size_t step = 0; step < course.losses.size() && differing == 0; ++step) {
    differing = differing_blocks(course.blocks[step], reference.blocks[step]);
    if (differing > 0) break;
    const double relative = std::abs(course.losses[step] / reference.losses[step] - 1);
    EXPECT_LE(relative, 1e-6) << name << ", step " << step + 1;
    largest = std::max(largest, relative);
    ++compared;
  }
  std::cout << fmt::format(
      "{}: {} selected blocks of {} a step differ; loss within {:.1e} over {} of {} steps\n", name,
      differing, course.blocks[0].size(), largest, compared, kSteps);
  EXPECT_EQ(compared, kSteps) << name << ": another block was selected";
}

TEST_F(MicroBatch, TrainingLossIsTheSameForOneTwoAndFour) {
  const Course reference = course(1, {});
  EXPECT_LT(reference.losses.back(), reference.losses.front());
  for (const std::int64_t sequences : {2, 4}) {
    expect_same_course(course(sequences, {}), reference, fmt::format("micro-batch {}", sequences));
  }
}

TEST_F(MicroBatch, TrainingLossIsTheSameForPackedDocuments) {
  const Course reference = course(1, {"data.doc_mask=true"});
  for (const std::int64_t sequences : {2, 4}) {
    expect_same_course(course(sequences, {"data.doc_mask=true"}), reference,
                       fmt::format("doc_mask, micro-batch {}", sequences));
  }
}

double loss_in(const std::string& text) {
  std::smatch found;
  const std::regex loss("val loss ([0-9.]+) over");
  if (std::regex_search(text, found, loss)) return std::stod(found.str(1));
  ADD_FAILURE() << "no val loss in: " << text;
  return 0;
}

TEST_F(MicroBatch, ValidationLossIsTheSameForOneThreeAndFour) {
  for (const std::string mask : {"data.doc_mask=false", "data.doc_mask=true"}) {
    const std::string name = mask == "data.doc_mask=false" ? "plain" : "masked";
    Overrides overrides = with_micro_batch(1);
    overrides.push_back(mask);
    ASSERT_EQ(train(name, overrides).code, 0);
    const double one = loss_in(train(name, overrides, {}, {"--eval-only"}).out);
    for (const std::int64_t sequences : {3, 4}) {
      Overrides other = with_micro_batch(sequences);
      other.push_back(mask);
      const double loss = loss_in(train(name, other, {}, {"--eval-only"}).out);
      EXPECT_NEAR(loss, one, 1e-6) << mask << ", micro-batch " << sequences;
    }
  }
}

/// Losses of the train rows, by step.
std::vector<double> losses_of(const std::string& rows) {
  std::vector<double> losses;
  const std::regex loss(R"re("type":"train".*"loss":([0-9.]+),"grad)re");
  std::smatch found;
  for (auto at = std::sregex_iterator(rows.begin(), rows.end(), loss); at != std::sregex_iterator();
       ++at) {
    losses.push_back(std::stod(at->str(1)));
  }
  return losses;
}

TEST_F(MicroBatch, AnotherOneAtAResumeKeepsTheDataOrder) {
  ASSERT_EQ(train("straight", with_micro_batch(1)).code, 0);
  Overrides first = with_micro_batch(1);
  first.emplace_back("run.stop_after=3");
  ASSERT_EQ(train("parts", first).code, 75);
  ASSERT_EQ(train("parts", with_micro_batch(4)).code, 0);
  const std::vector<double> straight = losses_of(rows("straight"));
  const std::vector<double> parts = losses_of(rows("parts"));
  ASSERT_EQ(straight.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(parts.size(), straight.size());
  for (std::size_t step = 0; step < straight.size(); ++step) {
    EXPECT_NEAR(parts[step] / straight[step], 1, 1e-6) << "step " << step + 1;
  }
  // Steps of other data have other losses: the comparison above can fail.
  Overrides unlike = with_micro_batch(4);
  unlike.emplace_back("run.seed=6");
  ASSERT_EQ(train("other", first).code, 75);
  ASSERT_EQ(train("other", unlike).code, 0);
  EXPECT_GT(std::abs(losses_of(rows("other")).at(3) / straight[3] - 1), 1e-4);
}

}  // namespace
}  // namespace nsa::test
