#pragma once

// Layout: which parameters a model has and where each stands in the flat buffers.

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"

namespace nsa {

/// How a parameter starts.
enum class Init : std::uint8_t { kZero, kOne, kNormal };

/// What decides whether a parameter can have a gradient at a stage (architecture: a structurally
/// zero gradient means the tensor is skipped by the optimiser and its update count stands still).
enum class Role : std::uint8_t {
  kOrdinary,
  kPhi,            ///< compressor weights: no gradient under the rate-1 bypass
  kPhiTheta,       ///< pooling logits: no gradient while a block is one token
  kCompressedOnly  ///< projections read by the compressed branch alone: none when it only scores
};

/// Whether an NSA layer needs compressed keys: to attend to, or only to score the selection blocks.
inline bool reads_compressed_keys(const AttentionConfig& attention) {
  return attention.compressed || attention.selected;
}

struct Parameter {
  std::string name;  ///< "blocks.3.attn.k_cmp"
  std::int64_t bucket = 0;
  std::int64_t offset = 0;  ///< first element, inside the bucket
  std::vector<std::int64_t> shape;
  Init init = Init::kNormal;
  double init_std = 0;  ///< of kNormal
  bool decay = false;   ///< weight decay applies: matrices, the embedding and the head included;
                        ///< not norms, biases and theta
  Role role = Role::kOrdinary;
  std::int64_t size() const;
};

/// A bucket is what later moves and is sharded as one piece: the embedding, each block, the head.
struct Bucket {
  std::string name;        ///< "embedding", "block.3", "head"
  std::int64_t begin = 0;  ///< first element in the flat buffers, a multiple of 64
  std::int64_t size = 0;   ///< elements, padding included
};

/// A pure function of the configuration. Adjacent parameters that one matmul reads (q, k, v, gate;
/// mlp gate and up) stand next to each other without padding; all others begin at a multiple of 64
/// elements.
class Layout {
 public:
  explicit Layout(const Config& config);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::int64_t size() const { return size_; }  ///< elements of a flat buffer, padding included
  /// Throws Error where there is no such parameter.
  const Parameter& find(const std::string& name) const;
  bool has(const std::string& name) const;
  /// First element of a parameter in the flat buffers.
  std::int64_t begin(const Parameter& parameter) const;
  /// Elements of all parameters, padding excluded; and those outside the embedding and the head.
  std::int64_t parameter_count() const;
  std::int64_t non_embedding_count() const;
  /// Whether `parameter` can have a gradient when a stage compresses at `rate` and `seq_len`.
  bool is_trained(const Parameter& parameter, std::int64_t rate, std::int64_t seq_len) const;
  /// Identifies names, shapes and order; a checkpoint of another layout is refused by it.
  std::uint32_t fingerprint() const;

 private:
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  std::int64_t size_ = 0;
  AttentionConfig attention_;
};

}  // namespace nsa
