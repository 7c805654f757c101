#pragma once

// Tensor: a non-owning, contiguous, typed view of at most four dimensions.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "core/dtype.h"
#include "core/error.h"

namespace nsa {

/// A view; whoever made the memory (Buffer, Arena, a mapped file) keeps it alive. Row-major,
/// contiguous: element (i, j) of [rows, cols] stands at i * cols + j. A default Tensor is
/// undefined, which ops read as "this optional operand is absent".
class Tensor {
 public:
  Tensor() = default;
  Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape)
      : data_(data), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
    check(shape.size() <= 4, "Tensor: rank above 4");
    int i = 0;
    for (const std::int64_t extent : shape) {
      check(extent >= 0, "Tensor: negative extent");
      shape_[static_cast<std::size_t>(i++)] = extent;
    }
  }
  /// A view of `count` elements of type T.
  template <class T>
  static Tensor vector(T* data, std::int64_t count) {
    return Tensor(data, DTypeOf<T>::kValue, {count});
  }

  bool defined() const { return data_ != nullptr; }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  /// Extent of dimension i; negative i counts from the end.
  std::int64_t dim(int i) const {
    const int at = i < 0 ? rank_ + i : i;
    check(at >= 0 && at < rank_, "Tensor: dimension out of range");
    return shape_[static_cast<std::size_t>(at)];
  }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= shape_[static_cast<std::size_t>(i)];
    return n;
  }
  std::int64_t bytes() const { return size() * size_of(dtype_); }

  /// The elements as T; throws when T is not the element type.
  template <class T>
  T* as() const {
    check(dtype_ == DTypeOf<T>::kValue, "Tensor: read as another element type");
    return static_cast<T*>(data_);
  }

  /// Rows [begin, end) of the first dimension.
  Tensor slice(std::int64_t begin, std::int64_t end) const {
    check(rank_ >= 1 && 0 <= begin && begin <= end && end <= shape_[0],
          "Tensor: slice out of range");
    Tensor part = *this;
    part.shape_[0] = end - begin;
    const std::int64_t row_bytes = shape_[0] == 0 ? 0 : bytes() / shape_[0];
    part.data_ = static_cast<char*>(data_) + begin * row_bytes;
    return part;
  }
  /// The same elements in another shape of equal size.
  Tensor reshape(std::initializer_list<std::int64_t> shape) const {
    Tensor view(data_, dtype_, shape);
    check(view.size() == size(), "Tensor: reshape changes the number of elements");
    return view;
  }
  bool same_shape(const Tensor& other) const {
    return rank_ == other.rank_ && shape_ == other.shape_;
  }
  bool has_shape(std::initializer_list<std::int64_t> shape) const {
    return same_shape(Tensor(data_, dtype_, shape));
  }
  /// "fp32[96, 4, 32]", for messages.
  std::string describe() const {
    std::string text = name_of(dtype_);
    text += "[";
    for (int i = 0; i < rank_; ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(shape_[static_cast<std::size_t>(i)]);
    }
    return text + "]";
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<std::int64_t, 4> shape_{};
};

}  // namespace nsa
