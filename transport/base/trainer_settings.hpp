// What a run file's [model], [training] and [diffusion] say to the built-in trainer: the same values from the specification of a run to the
// trainer's own code. Their defaults are the run file's.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>

namespace atl {

// A decoder-only transformer (pre-norm RMSNorm, rotary positions, SwiGLU); of images its layers, width and heads.
struct ModelSizes {
  std::uint32_t layers = 4;
  std::uint32_t width = 128;
  std::uint32_t heads = 4;
  std::uint32_t feed_forward = 0;  // hidden width of the SwiGLU; 0: 8/3 of width, rounded up to a multiple of 32
  std::uint32_t vocabulary = 256;
  bool tied_embeddings = false;
  friend bool operator==(const ModelSizes&, const ModelSizes&) = default;
};

// The inner loop.
struct TrainingSettings {
  std::uint64_t steps = 0;   // inner steps of each island; required
  std::uint32_t batch = 16;  // sequences per inner step and island
  std::uint32_t sequence_length = 128;
  std::uint32_t accumulation = 1;  // micro-batches per inner step; divides batch
  double learning_rate = 3e-3;
  std::uint64_t warmup_steps = 100;
  double final_learning_rate = 0.1;  // cosine decay ends at this fraction of learning_rate
  double weight_decay = 0.1;         // on matrices only
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double clip_norm = 1.0;             // 0: no clipping
  double max_steps_per_second = 0.0;  // 0: as fast as it goes
  std::string device = "auto";        // auto | cpu | cuda:N
  std::string precision = "auto";     // auto | float32 | bf16 (autocast, CUDA only)
  std::uint32_t threads = 1;          // of the trainer's arithmetic
  std::uint32_t evaluate_batches = 16;
  friend bool operator==(const TrainingSettings&, const TrainingSettings&) = default;
};

// Of strategy decentralized-diffusion: how the images are clustered, what an expert is, and the router.
struct DiffusionSettings {
  std::uint32_t experts = 8;             // 1: one model of all images
  std::string clusters_by = "features";  // features | labels | random
  std::string features = "pixels-pca";   // what is clustered: pixels-pca | npy:FILE | torchscript:FILE
  std::uint32_t feature_width = 32;      // principal components of the pixels
  std::uint32_t fine_clusters = 1024;
  double balance = 1.5;            // a cluster weighs at most so many times the mean; 0: no limit
  std::uint32_t patch = 2;         // pixels of a token's side
  bool conditional = false;        // on the class
  double class_dropout = 0.1;      // images whose class is hidden in training, for guidance
  std::string times = "uniform";   // uniform | logit-normal
  double ema = 0.999;              // of the exported parameters
  std::uint32_t router_patch = 0;  // pixels of a token's side; 0: as patch
  std::uint32_t router_layers = 4;
  std::uint32_t router_width = 64;
  std::uint32_t router_heads = 4;
  std::uint64_t router_steps = 1000;
  std::uint32_t router_batch = 32;
  double router_learning_rate = 1e-3;
  std::uint64_t distill_steps = 0;  // of one dense model that learns what the experts know; 0: none
  std::uint32_t distill_batch = 32;
  std::uint64_t save_every = 500;  // steps between checkpoints of an expert, copied to another island
  friend bool operator==(const DiffusionSettings&, const DiffusionSettings&) = default;
};

}  // namespace atl
