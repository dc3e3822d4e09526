// Walks a plain structure without naming its fields, so that what digests or compares values misses none, also none of a later day.
// C++20 has no reflection: a structure has as many fields as empty braces initialise it, and structured bindings name them all.
// Threads: pure functions.
#pragma once

#include <concepts>

#include "strategies/specification/run_spec.hpp"

namespace atl::sim {

#define ATOLL_NAMES_1 f1
#define ATOLL_NAMES_2 ATOLL_NAMES_1, f2
#define ATOLL_NAMES_3 ATOLL_NAMES_2, f3
#define ATOLL_NAMES_4 ATOLL_NAMES_3, f4
#define ATOLL_NAMES_5 ATOLL_NAMES_4, f5
#define ATOLL_NAMES_6 ATOLL_NAMES_5, f6
#define ATOLL_NAMES_7 ATOLL_NAMES_6, f7
#define ATOLL_NAMES_8 ATOLL_NAMES_7, f8
#define ATOLL_NAMES_9 ATOLL_NAMES_8, f9
#define ATOLL_NAMES_10 ATOLL_NAMES_9, f10
#define ATOLL_NAMES_11 ATOLL_NAMES_10, f11
#define ATOLL_NAMES_12 ATOLL_NAMES_11, f12
#define ATOLL_NAMES_13 ATOLL_NAMES_12, f13
#define ATOLL_NAMES_14 ATOLL_NAMES_13, f14
#define ATOLL_NAMES_15 ATOLL_NAMES_14, f15
#define ATOLL_NAMES_16 ATOLL_NAMES_15, f16
#define ATOLL_NAMES_17 ATOLL_NAMES_16, f17
#define ATOLL_NAMES_18 ATOLL_NAMES_17, f18
#define ATOLL_NAMES_19 ATOLL_NAMES_18, f19
#define ATOLL_NAMES_20 ATOLL_NAMES_19, f20
#define ATOLL_NAMES_21 ATOLL_NAMES_20, f21
#define ATOLL_NAMES_22 ATOLL_NAMES_21, f22
#define ATOLL_NAMES_23 ATOLL_NAMES_22, f23
#define ATOLL_NAMES_24 ATOLL_NAMES_23, f24
#define ATOLL_NAMES_25 ATOLL_NAMES_24, f25
#define ATOLL_NAMES_26 ATOLL_NAMES_25, f26
#define ATOLL_NAMES_27 ATOLL_NAMES_26, f27
#define ATOLL_NAMES_28 ATOLL_NAMES_27, f28
#define ATOLL_NAMES_29 ATOLL_NAMES_28, f29
#define ATOLL_NAMES_30 ATOLL_NAMES_29, f30
#define ATOLL_NAMES_31 ATOLL_NAMES_30, f31
#define ATOLL_NAMES_32 ATOLL_NAMES_31, f32
#define ATOLL_NAMES_33 ATOLL_NAMES_32, f33
#define ATOLL_NAMES_34 ATOLL_NAMES_33, f34
#define ATOLL_NAMES_35 ATOLL_NAMES_34, f35
#define ATOLL_NAMES_36 ATOLL_NAMES_35, f36
#define ATOLL_NAMES_37 ATOLL_NAMES_36, f37
#define ATOLL_NAMES_38 ATOLL_NAMES_37, f38
#define ATOLL_NAMES_39 ATOLL_NAMES_38, f39
#define ATOLL_NAMES_40 ATOLL_NAMES_39, f40
#define ATOLL_BRACES_1 \
  {}
#define ATOLL_BRACES_2 \
  ATOLL_BRACES_1, {}
#define ATOLL_BRACES_3 \
  ATOLL_BRACES_2, {}
#define ATOLL_BRACES_4 \
  ATOLL_BRACES_3, {}
#define ATOLL_BRACES_5 \
  ATOLL_BRACES_4, {}
#define ATOLL_BRACES_6 \
  ATOLL_BRACES_5, {}
#define ATOLL_BRACES_7 \
  ATOLL_BRACES_6, {}
#define ATOLL_BRACES_8 \
  ATOLL_BRACES_7, {}
#define ATOLL_BRACES_9 \
  ATOLL_BRACES_8, {}
#define ATOLL_BRACES_10 \
  ATOLL_BRACES_9, {}
#define ATOLL_BRACES_11 \
  ATOLL_BRACES_10, {}
#define ATOLL_BRACES_12 \
  ATOLL_BRACES_11, {}
#define ATOLL_BRACES_13 \
  ATOLL_BRACES_12, {}
#define ATOLL_BRACES_14 \
  ATOLL_BRACES_13, {}
#define ATOLL_BRACES_15 \
  ATOLL_BRACES_14, {}
#define ATOLL_BRACES_16 \
  ATOLL_BRACES_15, {}
#define ATOLL_BRACES_17 \
  ATOLL_BRACES_16, {}
#define ATOLL_BRACES_18 \
  ATOLL_BRACES_17, {}
#define ATOLL_BRACES_19 \
  ATOLL_BRACES_18, {}
#define ATOLL_BRACES_20 \
  ATOLL_BRACES_19, {}
#define ATOLL_BRACES_21 \
  ATOLL_BRACES_20, {}
#define ATOLL_BRACES_22 \
  ATOLL_BRACES_21, {}
#define ATOLL_BRACES_23 \
  ATOLL_BRACES_22, {}
#define ATOLL_BRACES_24 \
  ATOLL_BRACES_23, {}
#define ATOLL_BRACES_25 \
  ATOLL_BRACES_24, {}
#define ATOLL_BRACES_26 \
  ATOLL_BRACES_25, {}
#define ATOLL_BRACES_27 \
  ATOLL_BRACES_26, {}
#define ATOLL_BRACES_28 \
  ATOLL_BRACES_27, {}
#define ATOLL_BRACES_29 \
  ATOLL_BRACES_28, {}
#define ATOLL_BRACES_30 \
  ATOLL_BRACES_29, {}
#define ATOLL_BRACES_31 \
  ATOLL_BRACES_30, {}
#define ATOLL_BRACES_32 \
  ATOLL_BRACES_31, {}
#define ATOLL_BRACES_33 \
  ATOLL_BRACES_32, {}
#define ATOLL_BRACES_34 \
  ATOLL_BRACES_33, {}
#define ATOLL_BRACES_35 \
  ATOLL_BRACES_34, {}
#define ATOLL_BRACES_36 \
  ATOLL_BRACES_35, {}
#define ATOLL_BRACES_37 \
  ATOLL_BRACES_36, {}
#define ATOLL_BRACES_38 \
  ATOLL_BRACES_37, {}
#define ATOLL_BRACES_39 \
  ATOLL_BRACES_38, {}
#define ATOLL_BRACES_40 \
  ATOLL_BRACES_39, {}
#define ATOLL_FIELDS(n)                              \
  if constexpr (requires { T{ATOLL_BRACES_##n}; }) { \
    const auto& [ATOLL_NAMES_##n] = value;           \
    walk(visit, ATOLL_NAMES_##n);                    \
  } else

// visit(field) for each field of an aggregate of at most forty fields and no base class, in order.
template <typename T, typename Visit>
void for_each_field(const T& value, const Visit& visit) {
  const auto walk = [](const Visit& each, const auto&... fields) { (each(fields), ...); };
  // clang-format off
  ATOLL_FIELDS(40)
  ATOLL_FIELDS(39)
  ATOLL_FIELDS(38)
  ATOLL_FIELDS(37)
  ATOLL_FIELDS(36)
  ATOLL_FIELDS(35)
  ATOLL_FIELDS(34)
  ATOLL_FIELDS(33)
  ATOLL_FIELDS(32)
  ATOLL_FIELDS(31)
  ATOLL_FIELDS(30)
  ATOLL_FIELDS(29)
  ATOLL_FIELDS(28)
  ATOLL_FIELDS(27)
  ATOLL_FIELDS(26)
  ATOLL_FIELDS(25)
  ATOLL_FIELDS(24)
  ATOLL_FIELDS(23)
  ATOLL_FIELDS(22)
  ATOLL_FIELDS(21)
  ATOLL_FIELDS(20)
  ATOLL_FIELDS(19)
  ATOLL_FIELDS(18)
  ATOLL_FIELDS(17)
  ATOLL_FIELDS(16)
  ATOLL_FIELDS(15)
  ATOLL_FIELDS(14)
  ATOLL_FIELDS(13)
  ATOLL_FIELDS(12)
  ATOLL_FIELDS(11)
  ATOLL_FIELDS(10)
  ATOLL_FIELDS(9)
  ATOLL_FIELDS(8)
  ATOLL_FIELDS(7)
  ATOLL_FIELDS(6)
  ATOLL_FIELDS(5)
  ATOLL_FIELDS(4)
  ATOLL_FIELDS(3)
  ATOLL_FIELDS(2)
  ATOLL_FIELDS(1)
  {
    static_assert(sizeof(T) <= 1, "no aggregate, or one of too many fields");
    static_cast<void>(walk);
  }
  // clang-format on
}

// Structured bindings do not take what a structure adds to its base.
template <std::same_as<ModelSpec> T, typename Visit>
void for_each_field(const T& value, const Visit& visit) {
  static_assert(
      !requires {
        T{{}, {}, {}, {}};
      },
      "name the new field");
  for_each_field(static_cast<const ModelSizes&>(value), visit);
  visit(value.from);
  visit(value.sha256);
}
template <std::same_as<TrainingSpec> T, typename Visit>
void for_each_field(const T& value, const Visit& visit) {
  static_assert(
      !requires {
        T{{}, {}, {}, {}};
      },
      "name the new field");
  for_each_field(static_cast<const TrainingSettings&>(value), visit);
  visit(value.tokens);
  visit(value.evaluate_every);
}

#undef ATOLL_FIELDS
#undef ATOLL_NAMES_1
#undef ATOLL_BRACES_1
#undef ATOLL_NAMES_2
#undef ATOLL_BRACES_2
#undef ATOLL_NAMES_3
#undef ATOLL_BRACES_3
#undef ATOLL_NAMES_4
#undef ATOLL_BRACES_4
#undef ATOLL_NAMES_5
#undef ATOLL_BRACES_5
#undef ATOLL_NAMES_6
#undef ATOLL_BRACES_6
#undef ATOLL_NAMES_7
#undef ATOLL_BRACES_7
#undef ATOLL_NAMES_8
#undef ATOLL_BRACES_8
#undef ATOLL_NAMES_9
#undef ATOLL_BRACES_9
#undef ATOLL_NAMES_10
#undef ATOLL_BRACES_10
#undef ATOLL_NAMES_11
#undef ATOLL_BRACES_11
#undef ATOLL_NAMES_12
#undef ATOLL_BRACES_12
#undef ATOLL_NAMES_13
#undef ATOLL_BRACES_13
#undef ATOLL_NAMES_14
#undef ATOLL_BRACES_14
#undef ATOLL_NAMES_15
#undef ATOLL_BRACES_15
#undef ATOLL_NAMES_16
#undef ATOLL_BRACES_16
#undef ATOLL_NAMES_17
#undef ATOLL_BRACES_17
#undef ATOLL_NAMES_18
#undef ATOLL_BRACES_18
#undef ATOLL_NAMES_19
#undef ATOLL_BRACES_19
#undef ATOLL_NAMES_20
#undef ATOLL_BRACES_20
#undef ATOLL_NAMES_21
#undef ATOLL_BRACES_21
#undef ATOLL_NAMES_22
#undef ATOLL_BRACES_22
#undef ATOLL_NAMES_23
#undef ATOLL_BRACES_23
#undef ATOLL_NAMES_24
#undef ATOLL_BRACES_24
#undef ATOLL_NAMES_25
#undef ATOLL_BRACES_25
#undef ATOLL_NAMES_26
#undef ATOLL_BRACES_26
#undef ATOLL_NAMES_27
#undef ATOLL_BRACES_27
#undef ATOLL_NAMES_28
#undef ATOLL_BRACES_28
#undef ATOLL_NAMES_29
#undef ATOLL_BRACES_29
#undef ATOLL_NAMES_30
#undef ATOLL_BRACES_30
#undef ATOLL_NAMES_31
#undef ATOLL_BRACES_31
#undef ATOLL_NAMES_32
#undef ATOLL_BRACES_32
#undef ATOLL_NAMES_33
#undef ATOLL_BRACES_33
#undef ATOLL_NAMES_34
#undef ATOLL_BRACES_34
#undef ATOLL_NAMES_35
#undef ATOLL_BRACES_35
#undef ATOLL_NAMES_36
#undef ATOLL_BRACES_36
#undef ATOLL_NAMES_37
#undef ATOLL_BRACES_37
#undef ATOLL_NAMES_38
#undef ATOLL_BRACES_38
#undef ATOLL_NAMES_39
#undef ATOLL_BRACES_39
#undef ATOLL_NAMES_40
#undef ATOLL_BRACES_40

}  // namespace atl::sim
