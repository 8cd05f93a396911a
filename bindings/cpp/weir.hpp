/* SPDX-License-Identifier: MIT
 * weir.hpp - weir.h for C++17: destructors close limiters and leave permits. A
 * header and nothing else; link with libweir. */

#ifndef WEIR_HPP
#define WEIR_HPP

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "weir/weir.h"

/* The namespace isn't called weir, since C's 'struct weir' has that name.
 *
 *     weirpp::limiter limiter("10.0.0.1:7077,10.0.0.2:7077");
 *     weirpp::quota put(limiter, "s3/put");
 *     if (!put.take())
 *         return 429;
 *
 * weir.h defines each call's promises, its ranges and whether it may block; all
 * of that holds here. Added:
 *
 * Errors. A constructor throws std::system_error, unless it takes a
 * std::error_code: then an object made on an error is empty, and its requests
 * pass. Code without exceptions uses that one, since the other aborts there.
 * Every other call is noexcept.
 *
 * Life. Objects are moved and never copied. A limiter outlives its quotas and
 * permits, as C's does: declare it first. An object that was moved from is
 * empty; it may be destroyed, assigned to, and called: its requests pass.
 *
 * Threads. As in weir.h, except that an object isn't moved, assigned to or
 * destroyed while another thread uses it. */
namespace weirpp
{

using duration = std::chrono::nanoseconds;

/* weir_error values as std::error_code: its message is weir_strerror(). */
inline const std::error_category &category() noexcept
{
    struct weir_category final : std::error_category {
        const char *name() const noexcept override
        {
            return "weir";
        }
        std::string message(int error) const override
        {
            return weir_strerror(error);
        }
    };
    static const weir_category only;
    return only;
}

namespace detail
{
inline void check(int error, const char *what)
{
    if (error >= 0)
        return;
#ifdef __cpp_exceptions
    throw std::system_error(error, category(), what);
#else
    (void)what;
    std::abort();
#endif
}

/* Below 0 becomes 0; WEIR_NEVER and instants near it become max(). */
inline weir_duration to_c(duration d) noexcept
{
    if (d == duration::max())
        return WEIR_NEVER;
    return d.count() < 0 ? 0 : static_cast<weir_duration>(d.count());
}

inline duration from_c(weir_duration d) noexcept
{
    const auto most = static_cast<weir_duration>(duration::max().count());
    return d > most ? duration::max() : duration(static_cast<std::int64_t>(d));
}
} // namespace detail

/* A name that can't be a quota's has no quota, and passes: check names from
 * untrusted clients first. */
inline bool name_is_valid(std::string_view name) noexcept
{
    return weir_name_is_valid(name.data(), name.size());
}

/* The number of a class of requests, for enter(). */
inline std::uint32_t class_of(std::string_view name) noexcept
{
    return weir_class(name.data(), name.size());
}

/* A decision and its details: true if it passed. */
struct reply : weir_reply {
    explicit operator bool() const noexcept
    {
        return verdict == WEIR_PASSED;
    }
    /* When to try again; duration::max(): never. */
    duration retry_after() const noexcept
    {
        return detail::from_c(weir_reply::retry_after);
    }
    /* Of reserve() and wait(). */
    duration wait() const noexcept
    {
        return detail::from_c(weir_reply::wait);
    }
    /* The deciding quota; empty if there is none. Owned by the reply. */
    std::string_view quota() const noexcept
    {
        return { weir_reply::quota, quota_len };
    }
};

/* As WEIR_OPTIONS_INIT: then set the fields of struct weir_options. */
struct options : weir_options {
    options() noexcept : weir_options{}
    {
        struct_size = sizeof(weir_options);
    }
    explicit options(const char *list) noexcept : options()
    {
        roots = list;
    }
};

/* The units in flight of an enter(), until it is left: true if it passed. Left
 * by its destructor at the latest, with WEIR_PERMIT_SUCCESS, or _IGNORED during
 * an exception. */
class permit
{
  public:
    permit() noexcept = default;
    permit(permit &&other) noexcept
    {
        swap(other);
    }
    permit &operator=(permit &&other) noexcept
    {
        permit(std::move(other)).swap(*this);
        return *this;
    }
    ~permit()
    {
        leave(std::uncaught_exceptions() > flying_ ? WEIR_PERMIT_IGNORED
                                                   : WEIR_PERMIT_SUCCESS);
    }

    explicit operator bool() const noexcept
    {
        return verdict_ == WEIR_PASSED;
    }
    /* A second call has no effect. */
    void leave(weir_permit_outcome outcome = WEIR_PERMIT_SUCCESS) noexcept
    {
        weir_leave(&held_, outcome, 0);
    }
    void swap(permit &other) noexcept
    {
        std::swap(held_, other.held_);
        std::swap(verdict_, other.verdict_);
        std::swap(flying_, other.flying_);
    }

  private:
    friend class limiter;
    friend class quota;
    weir_permit held_ = {};
    weir_verdict verdict_ = WEIR_PASSED;
    int flying_ = std::uncaught_exceptions();
};

/* A limiter: a table and its background thread. */
class limiter
{
  public:
    /* Never waits for a root, nor fails because none answers. */
    explicit limiter(const weir_options &o)
    {
        detail::check(weir_open(&o, &weir_), "weir_open");
    }
    explicit limiter(const char *roots) : limiter(options(roots))
    {
    }
    limiter(const weir_options &o, std::error_code &ec) noexcept
    {
        ec.assign(weir_open(&o, &weir_), category());
    }
    limiter(limiter &&other) noexcept : weir_(other.release())
    {
    }
    limiter &operator=(limiter &&other) noexcept
    {
        limiter gone(std::move(*this));
        weir_ = other.release();
        return *this;
    }
    /* Sends the pending reports: 100 ms at most. */
    ~limiter()
    {
        weir_close(weir_);
    }

    /* For the calls of weir.h without a wrapper here. */
    weir *get() const noexcept
    {
        return weir_;
    }
    weir *release() noexcept
    {
        return std::exchange(weir_, nullptr);
    }

    /* Waits until a root's quotas have arrived; false: not within 'timeout'. */
    bool ready(duration timeout) const noexcept
    {
        return weir_ && weir_ready(weir_, detail::to_c(timeout)) == 0;
    }
    bool sync(duration timeout) const noexcept
    {
        return weir_ && weir_sync(weir_, detail::to_c(timeout)) == 0;
    }

    /* By name: for names of a template that depend on the request. For a name
     * that is used often a quota (below) is faster. */
    bool take(std::string_view name, std::uint64_t weight = 1,
              weirpp::reply *reply = nullptr) const noexcept
    {
        if (!weir_)
            return weir_take({}, weight, reply, 0) == WEIR_PASSED;
        return weir_take_by_name(weir_, name.data(), name.size(), weight, reply,
                                 0) == WEIR_PASSED;
    }
    /* False: the name has no quota. */
    bool charge(std::string_view name, std::uint64_t weight) const noexcept
    {
        return weir_ && weir_charge_by_name(weir_, name.data(), name.size(),
                                            weight, 0);
    }
    /* As quota::settle(); false: the name has no quota, and 'charged' stays. */
    bool settle(std::string_view name, std::uint64_t &charged,
                std::uint64_t actual) const noexcept
    {
        return weir_ && weir_settle_by_name(weir_, name.data(), name.size(),
                                            &charged, actual, 0);
    }
    permit enter(std::string_view name, std::uint64_t weight = 1,
                 weirpp::reply *reply = nullptr,
                 std::uint32_t klass = 0) const noexcept
    {
        permit made;
        made.verdict_ =
            weir_ ? weir_enter_by_name(weir_, name.data(), name.size(), klass,
                                       weight, &made.held_, reply, 0)
                  : weir_enter({}, klass, weight, &made.held_, reply, 0);
        return made;
    }

    /* Without roots: makes or edits a quota by its fields, as in weir-quota(5):
     * { "name=db", "limit=2/s" }. An error's description is stored in 'why'. */
    std::error_code define(std::initializer_list<const char *> fields,
                           std::string *why = nullptr) const
    {
        std::vector<const char *> listed(fields);
        listed.push_back(nullptr);
        char text[512] = "";
        const int error = weir_define(weir_, listed.data(), text, sizeof(text));
        if (why)
            *why = text;
        return { error, category() };
    }
    /* The limit of the quota named by a reply; none: it isn't known here, or
     * lets all pass. */
    std::optional<struct weir_policy> policy(
        std::string_view name) const noexcept
    {
        struct weir_policy policy;
        if (!weir_ ||
            ::weir_policy(weir_, name.data(), name.size(), &policy) < 0)
            return std::nullopt;
        return policy;
    }

    std::optional<weir_event> next_event() const noexcept
    {
        weir_event event;
        if (!weir_ || !weir_event_next(weir_, &event))
            return std::nullopt;
        return event;
    }
    struct weir_status status() const noexcept
    {
        struct weir_status status = {};
        if (weir_)
            ::weir_status(weir_, &status);
        return status;
    }

  private:
    weir *weir_ = nullptr;
};

/* A handle: a quota found once and used often. */
class quota
{
  public:
    quota() noexcept = default;
    quota(const limiter &limiter, std::string_view name)
    {
        const int error = open(limiter, name);
        /* A full table made a handle nevertheless, which can be used. */
        if (error != WEIR_EFULL)
            detail::check(error, "weir_handle_open");
    }
    /* Reports WEIR_EFULL, although the quota can be used. */
    quota(const limiter &limiter, std::string_view name,
          std::error_code &ec) noexcept
    {
        ec.assign(open(limiter, name), category());
    }
    quota(quota &&other) noexcept : handle_(other.release())
    {
    }
    quota &operator=(quota &&other) noexcept
    {
        quota gone(std::move(*this));
        handle_ = other.release();
        return *this;
    }
    ~quota()
    {
        weir_handle_close(handle_);
    }

    weir_handle get() const noexcept
    {
        return handle_;
    }
    weir_handle release() noexcept
    {
        return std::exchange(handle_, weir_handle{});
    }

    /* Charges that many units if they pass. */
    bool take(std::uint64_t weight = 1, weirpp::reply *reply = nullptr,
              weir_instant now = 0) const noexcept
    {
        return weir_take(handle_, weight, reply, now) == WEIR_PASSED;
    }
    bool peek(std::uint64_t weight = 1, weirpp::reply *reply = nullptr,
              weir_instant now = 0) const noexcept
    {
        return weir_peek(handle_, weight, reply, now) == WEIR_PASSED;
    }
    void charge(std::uint64_t weight, weir_instant now = 0) const noexcept
    {
        weir_charge(handle_, weight, now);
    }
    /* Charges or gives back the difference between the units charged for some
     * work so far and the actual ones, which 'charged' becomes. */
    void settle(std::uint64_t &charged, std::uint64_t actual,
                weir_instant now = 0) const noexcept
    {
        weir_settle(handle_, &charged, actual, now);
    }
    void refund(std::uint64_t weight, weir_instant now = 0) const noexcept
    {
        weir_refund(handle_, weight, now);
    }
    /* Charges now; the caller must wait for reply.wait() before it goes on. */
    weirpp::reply reserve(std::uint64_t weight, duration most,
                          weir_instant now = 0) const noexcept
    {
        weirpp::reply reply = {};
        weir_reserve(handle_, weight, detail::to_c(most), &reply, now);
        return reply;
    }
    /* Sleeps until it passes. False, at once or later: not within 'most'. */
    bool wait(std::uint64_t weight = 1, duration most = duration::max(),
              weirpp::reply *reply = nullptr) const noexcept
    {
        return weir_wait(handle_, weight, detail::to_c(most), reply) ==
               WEIR_PASSED;
    }
    /* Takes that many units until the permit is left; 'klass' is a
     * class_of(). */
    permit enter(std::uint64_t weight = 1, weirpp::reply *reply = nullptr,
                 std::uint32_t klass = 0, weir_instant now = 0) const noexcept
    {
        permit made;
        made.verdict_ =
            weir_enter(handle_, klass, weight, &made.held_, reply, now);
        return made;
    }
    /* The same, and waits for it, at most so long; weir_enter_wait(). */
    permit enter_wait(std::uint64_t weight = 1, duration most = duration::max(),
                      weirpp::reply *reply = nullptr, std::uint32_t klass = 0,
                      std::int64_t priority = 0) const noexcept
    {
        permit made;
        made.verdict_ = weir_enter_wait(handle_, klass, weight, priority,
                                        detail::to_c(most), &made.held_, reply);
        return made;
    }
    /* Of a leased quota: the units a second that will be wanted. */
    std::error_code want(double units_per_s) const noexcept
    {
        return { weir_want(handle_, units_per_s, 0), category() };
    }

    /* The state of an adaptive quota in this process; none: it isn't
     * adaptive. */
    std::optional<struct weir_adaptive> adaptive() const noexcept
    {
        struct weir_adaptive adaptive;
        if (::weir_adaptive(handle_, &adaptive, 0) < 0)
            return std::nullopt;
        return adaptive;
    }

  private:
    int open(const limiter &limiter, std::string_view name) noexcept
    {
        if (!limiter.get())
            return WEIR_OK;
        return weir_handle_open(limiter.get(), name.data(), name.size(),
                                &handle_);
    }
    weir_handle handle_ = {};
};

} // namespace weirpp

#endif /* WEIR_HPP */
