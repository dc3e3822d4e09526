// ATOLL_VECTORIZED: this function is compiled for AVX-512, AVX2 and the baseline, and the processor chooses at load. What it calls must be
// [[gnu::always_inline]] or vectorized itself: a plain inline function is compiled for the baseline and called.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ATOLL_VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ATOLL_VECTORIZED
#endif
