#include "recall/recall_score.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/format.h"
#include "train/checkpoint.h"
#include "train/checkpoint_folder.h"
#include "train/own_batch.h"
#include "train/workshop.h"

namespace nsa::recall {
namespace {

/// The documents of a data set, at most `limit`.
std::vector<std::vector<std::int32_t>> read_documents(const TokenDataset& data,
                                                      std::int64_t limit) {
  std::vector<std::int32_t> bounds = {0};
  data.document_starts(0, data.tokens(), bounds);
  bounds.push_back(static_cast<std::int32_t>(data.tokens()));
  std::vector<std::vector<std::int32_t>> documents;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (static_cast<std::int64_t>(i) == limit) break;
    documents.emplace_back(static_cast<std::size_t>(bounds[i + 1] - bounds[i]));
    data.read(bounds[i], documents.back());
  }
  return documents;
}

/// The first of the largest.
std::int32_t likeliest(Device& device, const Tensor& logits) {
  std::int32_t best = 0;
  with_float(logits.dtype(), [&]<class T>() {
    std::vector<T> host(static_cast<std::size_t>(logits.size()));
    device.copy_to_host(host.data(), logits.data(), logits.bytes());
    best = static_cast<std::int32_t>(std::max_element(host.begin(), host.end()) - host.begin());
  });
  return best;
}

/// How many queries of the last forward have the block of their answer among the selected ones.
std::int64_t count_found(Workshop& shop, std::int64_t layer, const std::vector<Query>& asked,
                         std::int64_t block) {
  const Tensor blocks = shop.model.selected_blocks(layer);  // [rows, KV heads, top_n]
  std::vector<std::int32_t> host(static_cast<std::size_t>(blocks.size()));
  shop.backend.device->copy_to_host(host.data(), blocks.data(), blocks.bytes());
  const std::int64_t row = blocks.dim(1) * blocks.dim(2);
  return std::count_if(asked.begin(), asked.end(), [&](const Query& query) {
    const auto begin = host.begin() + query.position * row;
    const std::int64_t wanted = (query.position - query.distance) / block;
    return std::find(begin, begin + row, static_cast<std::int32_t>(wanted)) != begin + row;
  });
}

/// Whether a layer selects blocks; one that does not has none to look at.
bool selects(const AttentionConfig& attention, std::int64_t layer) {
  return attention.selected && !is_dense_layer(attention, layer);
}

}  // namespace

Score score(const Config& config, const Task& task, const std::string& checkpoint,
            std::int64_t documents) {
  Workshop shop(config);
  if (!shop.data.val) fail_config("score needs held-out documents; set data.val");
  CheckpointConfig wanted = shop.config.checkpoint;
  wanted.resume = checkpoint.empty() ? "must" : checkpoint;
  const std::optional<ResumePoint> point = read_resume_point(wanted);
  check_same_model(point->manifest, shop.store);
  load_checkpoint(point->path, point->manifest, shop.store, *shop.backend.device);
  const NsaGeometry geometry = shop.schedule.stages().back().geometry;

  Score result{.step = point->manifest.state.step};
  std::vector<std::int64_t> found(static_cast<std::size_t>(shop.config.model.layers));
  OwnBatch batch(*shop.backend.device, shop.schedule.page());
  for (const std::vector<std::int32_t>& ids : read_documents(*shop.data.val, documents)) {
    const auto rows = static_cast<std::int64_t>(ids.size());
    if (rows > shop.schedule.page()) {
      fail_data(
          fmt::format("a held-out document has {} tokens, more than the longest train.seq_len "
                      "of {}",
                      rows, shop.schedule.page()));
    }
    const std::vector<Query> asked = queries(task, ids);
    shop.model.evaluate(batch.make(ids, rows), geometry);
    for (const Query& query : asked) {
      const Tensor logits = shop.model.logits(query.position);
      const std::int32_t answer = ids[static_cast<std::size_t>(query.position) + 1];
      if (likeliest(*shop.backend.device, logits) == answer) ++result.right;
      result.nearest =
          result.queries == 0 ? query.distance : std::min(result.nearest, query.distance);
      ++result.queries;
    }
    for (std::int64_t layer = 0; layer < shop.config.model.layers; ++layer) {
      if (!selects(shop.config.attention, layer)) continue;
      found[static_cast<std::size_t>(layer)] +=
          count_found(shop, layer, asked, geometry.select_block);
    }
  }
  if (result.queries == 0) fail_data("data.val holds no query");
  for (std::int64_t layer = 0; layer < shop.config.model.layers; ++layer) {
    if (!selects(shop.config.attention, layer)) continue;
    const std::int64_t count = found[static_cast<std::size_t>(layer)];
    result.found.push_back(
        {.layer = layer,
         .share = static_cast<double>(count) / static_cast<double>(result.queries)});
  }
  return result;
}

}  // namespace nsa::recall
