// The sequence of publishes and merges, and what a finish leaves of it: README.md of the island link, Stepping and Finish.
#include "agent/island_link/round_orders.hpp"

#include <string>

#include "agent/island_link/messages.hpp"
#include "tests/catch.hpp"

namespace of_round_orders_test {

using namespace atl::island_link;

namespace {

using Orders = RoundOrders<PublishOrder, MergeOrder>;

PublishOrder publish(std::uint64_t round, std::uint32_t fragment, std::uint64_t step) {
  PublishOrder order;
  order.round = round;
  order.fragment = fragment;
  order.step = step;
  return order;
}
MergeOrder merge(std::uint64_t round, std::uint32_t fragment, std::uint64_t step, double alpha = 0.5) {
  MergeOrder order;
  order.alpha = alpha;
  order.round = round;
  order.fragment = fragment;
  order.step = step;
  return order;
}

// What is done at `step`, in its sequence: "p1 m1" is the publish of round 1, then its merge.
std::string all(Orders& orders, std::uint64_t step) {
  std::string text;
  while (const auto due = orders.take(step)) {
    const auto* order = std::get_if<PublishOrder>(&*due);
    text += text.empty() ? "" : " ";
    text += order != nullptr ? "p" + std::to_string(order->round) : "m" + std::to_string(std::get<MergeOrder>(*due).round);
  }
  return text;
}

}  // namespace

TEST_CASE("publishes come before merges, each in the order they came, and nothing before its step") {
  Orders orders;
  orders.add({publish(2, 1, 8), publish(3, 0, 8)}, {merge(1, 0, 8), merge(2, 1, 9)});
  CHECK(all(orders, 7).empty());
  CHECK(orders.free_until(7) == 7);
  CHECK(orders.free_until(20) == 8);
  // Round 1 is of the fragment that round 3 publishes: it is merged first.
  CHECK(all(orders, 8) == "p2 m1 p3");
  CHECK(all(orders, 9) == "m2");
  CHECK(all(orders, 100).empty());
}

TEST_CASE("with an overlap of a whole period a merge that overwrites comes after the publish of its step, and before any of a later step") {
  Orders orders;
  orders.add({publish(1, 0, 4), publish(2, 0, 8), publish(3, 0, 12)}, {merge(1, 0, 8, 0), merge(2, 0, 12, 0), merge(3, 0, 12, 0)});
  CHECK(all(orders, 4) == "p1");
  CHECK(all(orders, 8) == "p2 m1");
  CHECK(all(orders, 12) == "p3 m2 m3");  // the end: the last one is published and merged at one step
  // Two fragments: each publish only waits for merges of its own that belong to an earlier step.
  orders.add({publish(3, 0, 8), publish(4, 1, 10)}, {merge(1, 0, 8, 0), merge(2, 1, 10, 0)});
  CHECK(all(orders, 8) == "p3 m1");
  CHECK(all(orders, 10) == "p4 m2");
  // A trainer that is late for both, because it was told to leave, keeps to that.
  orders.add({publish(2, 0, 8)}, {merge(1, 0, 6, 0)});
  CHECK(all(orders, 8) == "m1 p2");
}

TEST_CASE("with an overlap of a whole period each round is merged before the next one of its fragment is published") {
  Orders orders;
  orders.add({publish(1, 0, 4), publish(2, 0, 8), publish(3, 0, 12)}, {merge(1, 0, 8), merge(2, 0, 12), merge(3, 0, 16)});
  CHECK(all(orders, 4) == "p1");
  CHECK(all(orders, 8) == "m1 p2");
  CHECK(all(orders, 12) == "m2 p3");
  CHECK(all(orders, 16) == "m3");
}

TEST_CASE("a finish leaves what is done up to the merge of its round") {
  Orders orders;
  orders.add({publish(1, 0, 4), publish(2, 1, 6), publish(3, 0, 8)}, {merge(1, 0, 6), merge(2, 1, 8), merge(3, 0, 10)});
  CHECK(orders.finish(1, false, 3) == 6);
  CHECK(all(orders, 100) == "p1 p2 m1");
}

TEST_CASE("a finish leaves no publish of a fragment whose merge of an earlier round it makes void") {
  Orders orders;
  // Overlap of a whole period, two fragments: at step 8 round 2 is merged and round 4, of the same fragment, is published.
  orders.add({publish(1, 0, 4), publish(2, 1, 4), publish(3, 0, 8), publish(4, 1, 8)}, {merge(1, 0, 8), merge(2, 1, 8), merge(3, 0, 12)});
  CHECK(orders.finish(1, false, 4) == 8);
  CHECK(all(orders, 100) == "p1 p2 m1 p3");
}

TEST_CASE("a finish of now leaves no order for a later round, and says where to stand next") {
  Orders orders;
  orders.add({publish(2, 0, 8), publish(3, 1, 10)}, {merge(1, 1, 7), merge(2, 0, 9), merge(3, 1, 11)});
  CHECK(orders.finish(2, true, 6) == 9);
  CHECK(orders.next_step() == 8);
  CHECK(all(orders, 8) == "p2 m1");
  CHECK(orders.next_step() == 9);
  CHECK(all(orders, 9) == "m2");
  CHECK_FALSE(orders.next_step());
}

TEST_CASE("a finish of a round without a merge stands where the trainer stands") {
  Orders orders;
  orders.add({publish(5, 0, 8)}, {merge(5, 0, 9)});
  CHECK(orders.finish(3, false, 6) == 6);
  CHECK(all(orders, 100).empty());
}

}  // namespace of_round_orders_test
