// SPDX-License-Identifier: MIT

package weir

// #include <weir/weir.h>
import "C"

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// Never is the RetryAfter of what never passes.
const Never = time.Duration(math.MaxInt64)

// toC: below 0 is no time at all.
func toC(d time.Duration) C.weir_duration {
	switch {
	case d == Never:
		return C.WEIR_NEVER
	case d < 0:
		return 0
	}
	return C.weir_duration(d)
}

func fromC(d C.weir_duration) time.Duration {
	if d > math.MaxInt64 {
		return Never
	}
	return time.Duration(d)
}

// Reply is what a decision knows: struct weir_reply.
type Reply struct {
	Passed bool
	// Unknown: the name has no quota. Never: it never passes. Stale: no
	// root was heard. Shadow: a quota in mode shadow would have refused.
	// Exact: a store answered. Leased: Granted units a second are ours.
	Unknown, Never, Stale, Shadow, Exact, Leased bool

	Granted    float64
	Fill       int64
	Remaining  uint64
	RetryAfter time.Duration
	Wait       time.Duration // of Reserve
	Level      int
	Quota      string // the deciding one
}

// unknown is what a limiter says once it is closed.
var unknown = Reply{Passed: true, Unknown: true, Remaining: math.MaxUint64}

func replyOf(r *C.struct_weir_reply) Reply {
	return Reply{
		Passed:  r.verdict == C.WEIR_PASS,
		Unknown: bool(r.unknown), Never: bool(r.never),
		Stale: bool(r.stale), Shadow: bool(r.shadow),
		Exact: bool(r.exact), Leased: bool(r.leased),
		Granted: float64(r.granted), Fill: int64(r.fill),
		Remaining:  uint64(r.remaining),
		RetryAfter: fromC(r.retry_after), Wait: fromC(r.wait),
		Level: int(r.level),
		Quota: C.GoStringN(&r.quota[0], C.int(r.quota_len)),
	}
}

// LimitedError is a refusal, where an error is expected.
type LimitedError struct{ Reply Reply }

func (e *LimitedError) Error() string {
	return fmt.Sprintf("weir: limited by %s", e.Reply.Quota)
}

// Quota is a quota of a limiter, found once and used often.
type Quota struct {
	limiter *Limiter
	mutex   sync.RWMutex // before the limiter's; for what is below
	handle  C.struct_weir_handle
	closed  bool
}

// lock is for as long as a call is in C; nil: it is closed, and all passes.
func (q *Quota) lock() *C.struct_weir {
	q.mutex.RLock()
	q.limiter.mutex.RLock()
	if q.closed {
		return nil
	}
	return q.limiter.weir
}

func (q *Quota) unlock() {
	q.limiter.mutex.RUnlock()
	q.mutex.RUnlock()
}

// Close gives its place in the table back; afterwards all passes. It waits
// until nobody is within a call on this quota.
func (q *Quota) Close() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	// For reading: who waits to write stops all others, on every quota, for
	// as long as any call takes, and one may be asking a store.
	q.limiter.mutex.RLock()
	defer q.limiter.mutex.RUnlock()
	if !q.closed && q.limiter.weir != nil {
		C.weir_handle_close(q.handle)
	}
	q.closed = true
}

// Take asks for that many units and charges them if they pass.
func (q *Quota) Take(weight uint64) bool {
	weir := q.lock()
	defer q.unlock()
	return weir == nil || C.weir_take(q.handle, C.uint64_t(weight), nil,
		0) == C.WEIR_PASS
}

// ask is a call that fills a reply.
func (q *Quota) ask(call func(*C.struct_weir_reply)) Reply {
	weir := q.lock()
	defer q.unlock()
	if weir == nil {
		return unknown
	}
	var reply C.struct_weir_reply
	call(&reply)
	return replyOf(&reply)
}

// TakeReply is Take that says why, and when again.
func (q *Quota) TakeReply(weight uint64) Reply {
	return q.ask(func(reply *C.struct_weir_reply) {
		C.weir_take(q.handle, C.uint64_t(weight), reply, 0)
	})
}

// Peek decides as Take would and charges nothing.
func (q *Quota) Peek(weight uint64) Reply {
	return q.ask(func(reply *C.struct_weir_reply) {
		C.weir_peek(q.handle, C.uint64_t(weight), reply, 0)
	})
}

// Reserve charges now, and says in Wait when to go on; it is refused if that
// were longer than 'most'.
func (q *Quota) Reserve(weight uint64, most time.Duration) Reply {
	return q.ask(func(reply *C.struct_weir_reply) {
		C.weir_reserve(q.handle, C.uint64_t(weight), toC(most),
			reply, 0)
	})
}

// Charge counts without asking: for a cost that is known afterwards.
func (q *Quota) Charge(weight uint64) {
	weir := q.lock()
	defer q.unlock()
	if weir != nil {
		C.weir_charge(q.handle, C.uint64_t(weight), 0)
	}
}

// Refund gives back what was charged.
func (q *Quota) Refund(weight uint64) {
	weir := q.lock()
	defer q.unlock()
	if weir != nil {
		C.weir_refund(q.handle, C.uint64_t(weight), 0)
	}
}

// Want says of a leased quota how many units a second will be wanted. EINVAL
// or ECLOSED.
func (q *Quota) Want(unitsPerSecond float64) error {
	weir := q.lock()
	defer q.unlock()
	if weir == nil {
		return ECLOSED
	}
	return errorOf(C.weir_want(q.handle, C.double(unitsPerSecond), 0))
}

// Wait sleeps until it passes. An end of the context meanwhile is its error,
// and gives the units back. If it can't pass before the context's deadline, or
// never, that is a LimitedError at once or as soon as it is known.
func (q *Quota) Wait(ctx context.Context, weight uint64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := Never
		if end, ok := ctx.Deadline(); ok {
			left = time.Until(end)
		}
		reply := q.Reserve(weight, left)
		if reply.Passed {
			err := sleep(ctx, reply.Wait)
			if err != nil {
				q.Refund(weight)
			}
			return err
		}
		if reply.Never || reply.RetryAfter > left {
			return &LimitedError{reply}
		}
		if err := sleep(ctx, reply.RetryAfter); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Adaptive is how an adaptive quota stands in this process: struct
// weir_adaptive.
type Adaptive struct {
	Limit, Before                    float64
	Reason                           string
	Latency                          time.Duration
	Windows, InFlight, Overdue, Lost uint64
}

// Adaptive is false of a quota that isn't adaptive.
func (q *Quota) Adaptive() (Adaptive, bool) {
	weir := q.lock()
	defer q.unlock()
	var a C.struct_weir_adaptive
	if weir == nil || C.weir_adaptive(q.handle, &a, 0) < 0 {
		return Adaptive{}, false
	}
	return Adaptive{
		Limit: float64(a.limit), Before: float64(a.before),
		Reason: C.GoString(a.reason), Latency: fromC(a.latency),
		Windows: uint64(a.windows), InFlight: uint64(a.in_flight),
		Overdue: uint64(a.overdue), Lost: uint64(a.lost),
	}, true
}
