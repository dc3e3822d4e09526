// ATOLL_VECTORISED: compile a loop for AVX-512, AVX2 and plain x86-64, and take the widest the machine has.
//
// The results are the same: the folder is compiled without contraction, loops with sums keep a fixed number of
// independent lanes in their source, and the compiler may not reorder floating-point arithmetic.
// Left out under sanitizers, whose run-time is not up yet when the loader asks which version to take.
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define ATOLL_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATOLL_SANITIZED 1
#endif

#if defined(__x86_64__) && defined(__linux__) && !defined(ATOLL_SANITIZED)
#define ATOLL_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ATOLL_VECTORISED
#endif
