#pragma once

// Small helpers of the check() functions of ops: messages that name the op and the field.

#include <initializer_list>
#include <string>

#include "core/batch.h"
#include "core/error.h"
#include "core/tensor.h"

namespace nsa {

/// Checks of one op. Nothing is formatted unless a check fails.
class FieldChecks {
 public:
  explicit FieldChecks(const char* op) : op_(op) {}

  /// `promise` reads on after the name of the op: "x must be [rows, k]".
  void that(bool ok, const char* promise) const {
    if (!ok) fail(std::string(op_) + ": " + promise);
  }
  /// Defined, of a floating type and of this rank: a field whose type and extents rule the others.
  void leads(const char* field, const Tensor& tensor, int rank) const {
    if (tensor.defined() && tensor.dtype() != DType::kI32 && tensor.rank() == rank) return;
    fail(named(field) + "must be a floating tensor of rank " + std::to_string(rank) + ", is " +
         describe(tensor));
  }
  /// Defined, with exactly this type and shape.
  void is(const char* field, const Tensor& tensor, DType dtype,
          std::initializer_list<std::int64_t> shape) const {
    if (tensor.defined() && tensor.dtype() == dtype && tensor.has_shape(shape)) return;
    fail(named(field) + "must be " + Tensor(nullptr, dtype, shape).describe() + ", is " +
         describe(tensor));
  }
  /// Undefined, or as is().
  void is_or_absent(const char* field, const Tensor& tensor, DType dtype,
                    std::initializer_list<std::int64_t> shape) const {
    if (tensor.defined()) is(field, tensor, dtype, shape);
  }
  void absent(const char* field, const Tensor& tensor) const {
    if (tensor.defined()) fail(named(field) + "must be undefined, is " + describe(tensor));
  }
  /// Bounds start at 0, never decrease and end at `tokens`.
  void covers(const Documents& documents, std::int64_t tokens) const {
    that(!documents.bounds.empty() && documents.bounds.front() == 0,
         "documents.bounds must start with 0");
    for (std::int64_t d = 0; d < documents.count(); ++d) {
      that(documents.length(d) >= 0, "documents.bounds must not decrease");
    }
    that(documents.tokens() == tokens, "documents.bounds must end at the number of tokens");
  }

 private:
  std::string named(const char* field) const { return std::string(op_) + ": " + field + " "; }
  static std::string describe(const Tensor& tensor) {
    return tensor.defined() ? tensor.describe() : "undefined";
  }

  const char* op_;
};

}  // namespace nsa
