/* SPDX-License-Identifier: MIT
 * test_weir.cpp - weir.hpp against a real root: test_weir ROOTS. The quotas
 * are those of bindings/live.py. */

#include <weir/weir.hpp>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <vector>

using namespace std::chrono_literals;
using weirpp::limiter;
using weirpp::permit;
using weirpp::quota;
using weirpp::reply;

static int checks;

#define CHECK(condition)                                            \
    do {                                                            \
        checks++;                                                   \
        if (!(condition)) {                                         \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, \
                         #condition);                               \
            std::exit(1);                                           \
        }                                                           \
    } while (0)

static_assert(!std::is_copy_constructible_v<limiter>);
static_assert(!std::is_copy_constructible_v<quota>);
static_assert(!std::is_copy_constructible_v<permit>);
static_assert(std::is_nothrow_move_constructible_v<limiter>);
static_assert(std::is_nothrow_move_assignable_v<quota>);
static_assert(std::is_nothrow_move_assignable_v<permit>);

static bool knows(const quota &q)
{
    reply r;
    q.peek(1, &r);
    return !r.unknown;
}

static void takes(const limiter &l)
{
    quota three(l, "three");
    CHECK(knows(three));
    reply r;
    CHECK(three.take(2, &r) && r && r.remaining == 1 && r.quota() == "three");
    CHECK(three.peek() && !three.take(2, &r) && !r);
    CHECK(r.retry_after() > 0s && r.retry_after() < 1h);
    CHECK(!three.take(4, &r) && r.never);
    CHECK(r.retry_after() == weirpp::duration::max());
    three.refund(2);
    three.charge(3);
    CHECK(!three.peek());
    std::uint64_t charged = 3;
    three.settle(charged, 1);
    CHECK(charged == 1 && three.peek(1, &r) && r.remaining == 2);
    CHECK(l.settle("three", charged, 4) && charged == 4 && !three.peek());
    CHECK(l.charge("three", 1) && !l.charge("nobody", 1));
    CHECK(!l.settle("nobody", charged, 5) && charged == 4);

    /* By name: each name of a template has a bucket of its own. */
    for (int i = 0; i < 3; i++)
        CHECK(l.take("each/cpp-a"));
    CHECK(!l.take("each/cpp-a", 1, &r) && r.quota() == "each/cpp-a");
    CHECK(l.take("each/cpp-b"));
    CHECK(l.take("nobody", 1, &r) && r.unknown);
    CHECK(weirpp::name_is_valid("nobody") && !weirpp::name_is_valid("a\n"));
}

static void waits(const limiter &l)
{
    /* One at a time, fifty a second. The wait depends on the instant of the
     * call: 20 ms at most, and none after a pause. */
    quota slow(l, "slow");
    reply r;
    auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; i++)
        CHECK(slow.wait(1, 10s, &r) && r.wait() >= 0s && r.wait() <= 20ms);
    /* A hundredth less: a bucket counts in fractions of its own. */
    CHECK(std::chrono::steady_clock::now() - begun >= 2 * 19800us);
    CHECK(slow.wait() && !slow.wait(2));

    /* Twenty minutes each. */
    quota full(l, "each/cpp-full");
    CHECK(full.take(3) && !full.wait(1, 0s) && !full.wait(1, -1s));
    CHECK(!full.reserve(1, 0s));
    r = full.reserve(1, 1h);
    CHECK(r && r.wait() > 0s && r.wait() < 1h);
}

static void permits(const limiter &l)
{
    quota two(l, "two");
    {
        permit a = two.enter(), b = l.enter("two"), c = two.enter();
        CHECK(a && b && !c);
        permit d = std::move(a); /* a is empty now */
        a.leave();
        CHECK(!two.enter());
        d.leave();
        d.leave();
        c = two.enter(); /* one place, not two */
        CHECK(c && !two.enter());
        c = two.enter(); /* the new one is requested while the old one is in
                          * flight */
        CHECK(!c);
    }
    try {
        permit a = two.enter(2);
        CHECK(a && !two.enter());
        throw std::runtime_error("in flight");
    } catch (const std::runtime_error &) {
    }
    CHECK(two.enter(2));
    {
        permit a = two.enter_wait(2, std::chrono::seconds(30));
        weirpp::reply why;
        CHECK(a && !two.enter_wait(1, std::chrono::milliseconds(1), &why));
        CHECK(why.wait() >= std::chrono::milliseconds(1));
    }
}

static void threads(const limiter &l)
{
    quota two(l, "two");
    std::atomic<int> in{ 0 }, most{ 0 }, entered{ 0 };
    std::vector<std::thread> all;
    for (int i = 0; i < 4; i++)
        all.emplace_back([&] {
            for (int n = 0; n < 2000; n++) {
                permit held = two.enter();
                if (!held)
                    continue;
                int now = ++in, seen = most;
                while (now > seen && !most.compare_exchange_weak(seen, now))
                    continue;
                entered++;
                --in;
            }
        });
    for (std::thread &one : all)
        one.join();
    CHECK(most <= 2 && entered > 0 && two.enter(2));
}

static void lives(const char *roots)
{
    limiter a(roots);
    limiter b(std::move(a));
    CHECK(!a.get() && b.get() && !a.ready(0s) && b.ready(60s));
    /* A call on an object that was moved from passes. */
    CHECK(a.take("three", 9) && a.enter("two", 9) && quota(a, "x").take());
    CHECK(a.status().roots == 0 && b.status().roots == 1);
    a = std::move(b);
    {
        quota q(a, "three"), p(std::move(q));
        CHECK(knows(p) && !knows(q));
        q = std::move(p);
        CHECK(knows(q) && !knows(p));
    }
    CHECK(a.sync(60s));
    CHECK(a.next_event()->type == WEIR_EVENT_ROOT_UP);
}

template <class Make> static bool throws(int error, Make make)
{
    try {
        make();
    } catch (const std::system_error &e) {
        return e.code() == std::error_code(error, weirpp::category()) &&
               std::string(e.what()).find(weir_strerror(error)) !=
                   std::string::npos;
    }
    return false;
}

static void errors(const limiter &l)
{
    CHECK(throws(WEIR_EINVAL, [] { limiter bad("no port"); }));
    CHECK(throws(WEIR_ENAME, [&] { quota bad(l, ""); }));
    std::error_code ec;
    limiter none(weirpp::options("no port"), ec);
    CHECK(ec.value() == WEIR_EINVAL && ec.category().name()[0] == 'w');
    CHECK(none.take("three", 9));
    quota bad(l, std::string(WEIR_GIVEN_NAME_MAX + 1, 'x'), ec);
    CHECK(ec.value() == WEIR_ENAME && bad.take());
    quota long_one(l, std::string(WEIR_GIVEN_NAME_MAX, 'x'), ec);
    CHECK(!ec);
    quota three(l, "three", ec);
    CHECK(!ec && !three.want(5) && three.want(-1).value() == WEIR_EINVAL);
    /* A table with one place has no room for the names. */
    weirpp::options small;
    small.memory_max = 1;
    small.on_full = WEIR_ON_FULL_PASS;
    limiter full(small);
    std::vector<quota> many;
    for (int i = 0; i < 100; i++)
        many.emplace_back(full, "q" + std::to_string(i), ec);
    CHECK(ec.value() == WEIR_EFULL && many.back().take());
    CHECK(quota(full, "and one more").take());
}

static void without_roots()
{
    limiter own((weirpp::options()));
    std::string why;
    CHECK(!own.define({ "name=db", "kind=concurrency", "sharing=adaptive",
                        "classes=sync:observed,bulk:50%" },
                      &why));
    quota db(own, "db");
    permit held = db.enter(1, nullptr, weirpp::class_of("bulk"));
    CHECK(held && db.adaptive()->in_flight == 1 && !quota(own, "x").adaptive());
    CHECK(!own.define({ "name=r", "limit=3/h", "high_burst=3" }));
    CHECK(own.policy("r")->quantity == 3 && !own.policy("x"));
    CHECK(own.define({ "name=r", "limit=3/x" }, &why).value() == WEIR_EQUOTA);
    CHECK(why.find("'x' is no period") != std::string::npos);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    {
        limiter l(argv[1]);
        CHECK(l.ready(60s));
        takes(l);
        waits(l);
        permits(l);
        threads(l);
        errors(l);
    }
    lives(argv[1]);
    without_roots();
    std::printf("%d checks\n", checks);
    return 0;
}
