#include "reference.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <thread>

namespace {

using Matrix = std::vector<double>;  // Row by row.

// Sums of squares for a relative Frobenius error.
struct Distance {
  double difference = 0.0;
  double reference = 0.0;

  void add(double value, double expected) {
    difference += (value - expected) * (value - expected);
    reference += expected * expected;
  }
  void add(const Distance& other) {
    difference += other.difference;
    reference += other.reference;
  }
  double relative() const { return reference > 0.0 ? std::sqrt(difference / reference) : std::sqrt(difference); }
};

// c[m, n] += a[m, k] * b[k, n]. The inner loop runs along rows, so that the compiler can vectorise it without being
// allowed to reorder sums.
void multiply_add(const Matrix& a, const Matrix& b, Matrix& c, std::size_t m, std::size_t k, std::size_t n) {
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t l = 0; l < k; ++l) {
      const double factor = a[i * k + l];
      const double* from = &b[l * n];
      double* to = &c[i * n];
      for (std::size_t j = 0; j < n; ++j) {
        to[j] += factor * from[j];
      }
    }
  }
}

Matrix transpose(const Matrix& a, std::size_t rows, std::size_t columns) {
  Matrix t(a.size());
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      t[j * rows + i] = a[i * columns + j];
    }
  }
  return t;
}

// One thread's share.
class Worker {
 public:
  Worker(const Inputs& inputs, const Outputs& outputs)
      : in_(inputs),
        out_(outputs),
        d_(static_cast<std::size_t>(inputs.shape.head_dim)),
        heads_(static_cast<std::size_t>(inputs.shape.heads)),
        m_(static_cast<std::size_t>(inputs.shape.queries)),
        scale_(1.0 / std::sqrt(static_cast<double>(d_))),
        grad_q(heads_, Matrix(m_ * d_)) {}

  void sequence(std::size_t b, bool sampled) {
    const auto begin = static_cast<std::size_t>(in_.offsets[b]);
    const std::size_t n = static_cast<std::size_t>(in_.offsets[b + 1]) - begin;
    for (std::size_t h = 0; h < heads_ && n > 0; ++h) {
      head(b, h, begin, n, sampled);
    }
  }

  Distance o, grad_k, grad_v;

 private:
  void head(std::size_t b, std::size_t h, std::size_t begin, std::size_t n, bool sampled) {
    const Matrix q = rows(in_.q, 0, m_, h), k = rows(in_.k, begin, n, h), v = rows(in_.v, begin, n, h);
    const Matrix grad_o = rows(in_.grad_o, b * m_, m_, h);
    Matrix p(m_ * n);
    multiply_add(q, transpose(k, n, d_), p, m_, d_, n);
    softmax(p, n);
    Matrix output(m_ * d_);
    multiply_add(p, v, output, m_, n, d_);
    // dS = P * (dO V^T - delta), where delta is the row sum of dO * O.
    Matrix grad_s(m_ * n);
    multiply_add(grad_o, transpose(v, n, d_), grad_s, m_, d_, n);
    for (std::size_t i = 0; i < m_; ++i) {
      double delta = 0.0;
      for (std::size_t c = 0; c < d_; ++c) {
        delta += grad_o[i * d_ + c] * output[i * d_ + c];
      }
      for (std::size_t j = 0; j < n; ++j) {
        double& s = grad_s[i * n + j];
        s = scale_ * p[i * n + j] * (s - delta);
      }
    }
    multiply_add(grad_s, k, grad_q[h], m_, n, d_);
    if (!sampled) {
      return;
    }
    Matrix expected_k(n * d_), expected_v(n * d_);
    multiply_add(transpose(grad_s, m_, n), q, expected_k, n, m_, d_);
    multiply_add(transpose(p, m_, n), grad_o, expected_v, n, m_, d_);
    measure(o, rows(out_.o, b * m_, m_, h), output);
    measure(grad_k, rows(out_.grad_k, begin, n, h), expected_k);
    measure(grad_v, rows(out_.grad_v, begin, n, h), expected_v);
  }

  // Rows `begin .. begin + count` of one head of a tensor.
  Matrix rows(const Elements& tensor, std::size_t begin, std::size_t count, std::size_t head) const {
    Matrix matrix(count * d_);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t c = 0; c < d_; ++c) {
        matrix[i * d_ + c] = tensor.get(((begin + i) * heads_ + head) * d_ + c);
      }
    }
    return matrix;
  }

  void softmax(Matrix& scores, std::size_t n) const {
    for (std::size_t i = 0; i < m_; ++i) {
      double* row = &scores[i * n];
      const double largest = *std::max_element(row, row + n);
      double sum = 0.0;
      for (std::size_t j = 0; j < n; ++j) {
        row[j] = std::exp(scale_ * (row[j] - largest));
        sum += row[j];
      }
      for (std::size_t j = 0; j < n; ++j) {
        row[j] /= sum;
      }
    }
  }

  static void measure(Distance& distance, const Matrix& values, const Matrix& expected) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      distance.add(values[i], expected[i]);
    }
  }

  const Inputs& in_;
  const Outputs& out_;
  const std::size_t d_, heads_, m_;
  const double scale_;

 public:
  std::vector<Matrix> grad_q;  // Of each head, summed over this worker's sequences.
};

}  // namespace

Errors compare(const Inputs& inputs, const Outputs& outputs, const std::vector<bool>& sampled,
               const std::function<void()>& done) {
  const std::size_t batch = inputs.offsets.size() - 1;
  std::vector<Worker> workers(std::max(1u, std::thread::hardware_concurrency()), Worker(inputs, outputs));
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&] {
      for (std::size_t b = next++; b < batch; b = next++) {
        worker.sequence(b, sampled[b]);
        done();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Distance o, grad_q, grad_k, grad_v;
  for (const Worker& worker : workers) {
    o.add(worker.o);
    grad_k.add(worker.grad_k);
    grad_v.add(worker.grad_v);
  }
  const auto [queries, heads, head_dim] = inputs.shape;
  for (std::int64_t i = 0; i < queries * heads * head_dim; ++i) {
    const auto head = static_cast<std::size_t>(i / head_dim % heads);
    const auto at = static_cast<std::size_t>(i / (head_dim * heads) * head_dim + i % head_dim);
    double expected = 0.0;
    for (const Worker& worker : workers) {
      expected += worker.grad_q[head][at];
    }
    grad_q.add(outputs.grad_q.get(static_cast<std::size_t>(i)), expected);
  }
  return {o.relative(), grad_q.relative(), grad_k.relative(), grad_v.relative()};
}
