#include "layer/host_device.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <new>
#include <numeric>

namespace moesim::bench {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

// Runs the work; returns the number of items and lanes.
template <class T, class W>
std::size_t run_all(const W& work) {
  if constexpr (W::kWarp) {
    for (std::size_t i = 0; i < work.count(); ++i)
      for (int round = 0; round < work.rounds(); ++round) {
        typename W::Value joined = work.template lane<T>(i, round, 0);
        for (int lane = 1; lane < kLanes; ++lane)
          joined = W::join(joined, work.template lane<T>(i, round, lane));
        work.template finish<T>(i, round, joined);
      }
    return work.count() * static_cast<std::size_t>(work.rounds()) * kLanes;
  } else {
    const std::size_t items = work.template items<T>();
    for (std::size_t i = 0; i < items; ++i) work.template item<T>(i);
    return items;
  }
}

// op(A) as floats, in column order.
template <class T>
std::vector<float> unpacked(const void* from, bool turned, int rows, int columns, int ld) {
  const T* data = static_cast<const T*>(from);
  std::vector<float> out(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns));
  for (std::size_t c = 0, at = 0; c < static_cast<std::size_t>(columns); ++c)
    for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r, ++at)
      out[at] = to_float(
          data[turned ? c + r * static_cast<std::size_t>(ld) : r + c * static_cast<std::size_t>(ld)]);
  return out;
}

template <class T>
void multiply(const Product& p, Into into) {
  const std::vector<float> a = unpacked<T>(p.a, p.turn_a, p.rows, p.depth, p.lda);
  const std::vector<float> b = unpacked<T>(p.b, p.turn_b, p.depth, p.columns, p.ldb);
  const std::size_t rows = static_cast<std::size_t>(p.rows), depth = static_cast<std::size_t>(p.depth);
  std::vector<float> column(rows);
  for (std::size_t c = 0; c < static_cast<std::size_t>(p.columns); ++c) {
    std::fill(column.begin(), column.end(), 0.0f);
    for (std::size_t d = 0; d < depth; ++d) {
      const float factor = b[c * depth + d];
      for (std::size_t r = 0; r < rows; ++r) column[r] += a[d * rows + r] * factor;
    }
    const std::size_t at = c * static_cast<std::size_t>(p.ldc);
    for (std::size_t r = 0; r < rows; ++r) {
      if (into == Into::kFloats) {
        static_cast<float*>(p.c)[at + r] = column[r];
      } else {
        T& out = static_cast<T*>(p.c)[at + r];
        out = from_float<T>(column[r] + (into == Into::kAddElements ? to_float(out) : 0.0f));
      }
    }
  }
}

template <class T>
class HostDevice : public LayerDevice {
 public:
  explicit HostDevice(bool counts_work) : counts_work_(counts_work) {}

  std::string kind() const override { return "cpu"; }
  std::string name() const override { return processor(); }
  std::string clock() const override { return counts_work_ ? "counted work, no time" : "time on a core"; }
  std::vector<std::string> about() const override { return {}; }
  Readings readings() const override { return {}; }
  Element element() const override { return sizeof(T) == sizeof(Bf16) ? Element::kBf16 : Element::kFloat; }

  void* allocate(std::size_t bytes) override {
    void* memory = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
    std::memset(memory, 0, bytes);
    return memory;
  }
  void release(void* memory) override { ::operator delete(memory, kAlignment); }
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void zero(void* memory, std::size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }

  void run(const Work& work) override {
    counted_ += 1e-9 * static_cast<double>(std::visit([](const auto& one) { return run_all<T>(one); }, work));
  }
  void product(const Product& product, Into into) override {
    multiply<T>(product, into);
    counted_ += 2e-12 * product.rows * product.columns * product.depth;
  }
  void grouped(const std::vector<Product>& products) override {
    for (const Product& one : products) product(one, Into::kElements);
  }
  void sort(const int* keys, int* sorted, int* order, int count, int) override {
    std::iota(order, order + count, 0);
    std::stable_sort(order, order + count, [&](int a, int b) { return keys[a] < keys[b]; });
    for (int i = 0; i < count; ++i) sorted[i] = keys[order[i]];
    counted_ += 1e-9 * count;
  }

  void wait() override {}
  // Counts only CPU time, since other processes use this machine.
  void mark(std::size_t number) override {
    if (number >= marks_.size()) marks_.resize(number + 1);
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    marks_[number] =
        counts_work_ ? counted_ : static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  double seconds(std::size_t from, std::size_t to) override { return marks_.at(to) - marks_.at(from); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  const bool counts_work_;
  double counted_ = 0;
  std::vector<double> marks_;
};

}  // namespace

std::unique_ptr<LayerDevice> host_device(Element element, bool counts_work) {
  if (element == Element::kBf16) return std::make_unique<HostDevice<Bf16>>(counts_work);
  return std::make_unique<HostDevice<float>>(counts_work);
}

}  // namespace moesim::bench
