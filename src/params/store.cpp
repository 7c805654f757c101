#include "params/store.h"

#include "core/error.h"

namespace nsa {
namespace {

/// `count` elements of a flat tensor.
Tensor part(const Tensor& flat, std::int64_t begin, std::int64_t count) {
  return flat.slice(begin, begin + count);
}

}  // namespace

ParameterStore::ParameterStore(const Layout& layout, Backend& backend, DType compute,
                               StateStorage state)
    : layout_(layout),
      device_(backend.device.get()),
      ops_(backend.ops.get()),
      dtype_(compute),
      state_(state),
      weights_view_(zeros(weights_, compute)),
      gradients_view_(zeros(gradients_, master_dtype())),
      master_view_(compute == master_dtype() ? weights_view_
                                             : zeros(master_, master_dtype(), state.on_host)),
      m_view_(zeros(m_, moment_dtype(), state.on_host)),
      v_view_(zeros(v_, moment_dtype(), state.on_host)) {
  check(compute != DType::kI32, "ParameterStore: not a floating type");
  updates_.assign(layout_.parameters().size(), 0);
}

Tensor ParameterStore::weight(const std::string& name) const {
  return view(weights_view_, name);
}

Tensor ParameterStore::gradient(const std::string& name) const {
  return view(gradients_view_, name);
}

Tensor ParameterStore::fused_weight(const std::string& first, const std::string& last) const {
  return fused_view(weights_view_, first, last);
}

Tensor ParameterStore::fused_gradient(const std::string& first, const std::string& last) const {
  return fused_view(gradients_view_, first, last);
}

void ParameterStore::zero_gradients() {
  device_->fill_zero(gradients_view_.data(), gradients_view_.bytes());
}

void ParameterStore::publish() {
  if (weights_view_.data() == master_view_.data()) return;
  ops_->run(Cast{.out = weights_view_, .in = master_view_});
}

Tensor ParameterStore::zeros(Buffer& buffer, DType dtype, bool on_host) {
  const std::int64_t elements = layout_.size();
  Device& device = on_host ? device_->host_memory() : *device_;
  buffer = Buffer(device, elements * size_of(dtype));
  device.fill_zero(buffer.data(), elements * size_of(dtype));
  return buffer.view(dtype, {elements});
}

Tensor ParameterStore::view(const Tensor& flat, const std::string& name) const {
  const Parameter& parameter = layout_.find(name);
  const Tensor elements = part(flat, layout_.begin(parameter), parameter.size());
  const std::vector<std::int64_t>& shape = parameter.shape;
  switch (shape.size()) {
    case 1:
      return elements;
    case 2:
      return elements.reshape({shape[0], shape[1]});
    default:
      fail("ParameterStore: " + name + " is neither a vector nor a matrix");
  }
}

Tensor ParameterStore::fused_view(const Tensor& flat, const std::string& first,
                                  const std::string& last) const {
  const Parameter& head = layout_.find(first);
  const Parameter& tail = layout_.find(last);
  const std::int64_t begin = layout_.begin(head);
  const std::int64_t end = layout_.begin(tail) + tail.size();
  check(head.bucket == tail.bucket && begin < end, "ParameterStore: fused view out of order");
  std::int64_t reached = begin;
  for (const Parameter& parameter : layout_.parameters()) {
    const std::int64_t at = layout_.begin(parameter);
    if (at < begin || at >= end) continue;
    check(parameter.shape.size() == 2 && parameter.shape[1] == head.shape.at(1),
          "ParameterStore: fused view over unequal columns");
    check(at == reached, "ParameterStore: fused view over a gap");
    reached += parameter.size();
  }
  return part(flat, begin, end - begin).reshape({(end - begin) / head.shape.at(1), head.shape[1]});
}

}  // namespace nsa
