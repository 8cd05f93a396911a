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

// Never is the RetryAfter of a request that never passes.
const Never = time.Duration(math.MaxInt64)

// toC makes 0 of negative durations.
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

// Reply is a decision and its details: struct weir_reply.
type Reply struct {
	Passed bool
	// Unknown: the name has no quota. Never: it never passes. Stale: no
	// root answered lately. Shadow: a quota in mode shadow would have
	// limited. Exact: a store answered. Contended: a quota was locked for
	// too long. Leased: this process has Granted
	// units a second.
	Unknown, Never, Stale, Shadow, Exact, Contended, Leased bool

	Granted    float64
	Fill       int64
	Remaining  uint64
	RetryAfter time.Duration
	Wait       time.Duration // of Reserve
	Level      int
	Quota      string // the deciding one
}

// unknown is the reply of a closed limiter.
var unknown = Reply{Passed: true, Unknown: true, Remaining: math.MaxUint64}

func replyOf(r *C.struct_weir_reply) Reply {
	return Reply{
		Passed:  r.verdict == C.WEIR_PASSED,
		Unknown: bool(r.unknown), Never: bool(r.never),
		Stale: bool(r.stale), Shadow: bool(r.shadow),
		Exact: bool(r.exact), Contended: bool(r.contended),
		Leased:  bool(r.leased),
		Granted: float64(r.granted), Fill: int64(r.fill),
		Remaining:  uint64(r.remaining),
		RetryAfter: fromC(r.retry_after), Wait: fromC(r.wait),
		Level: int(r.level),
		Quota: C.GoStringN(&r.quota[0], C.int(r.quota_len)),
	}
}

// LimitedError is a refusal, for callers that expect an error.
type LimitedError struct{ Reply Reply }

func (e *LimitedError) Error() string {
	return fmt.Sprintf("weir: limited by %s", e.Reply.Quota)
}

// Quota is a quota of a limiter, found once and used often.
type Quota struct {
	limiter *Limiter
	mutex   sync.RWMutex // before the limiter's; for the members below
	handle  C.struct_weir_handle
	closed  bool
}

// lock is for the duration of a call in C; nil: the quota is closed, and all
// passes.
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

// Close gives its place in the table back; afterwards all passes. It waits for
// the calls on this quota to end.
func (q *Quota) Close() {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	// For reading: a waiting writer would stop all other calls, on every
	// quota, for as long as any call takes, and one may be waiting for a
	// store.
	q.limiter.mutex.RLock()
	defer q.limiter.mutex.RUnlock()
	if !q.closed && q.limiter.weir != nil {
		C.weir_handle_close(q.handle)
	}
	q.closed = true
}

// Take charges that many units if they pass.
func (q *Quota) Take(weight uint64) bool {
	weir := q.lock()
	defer q.unlock()
	return weir == nil || C.weir_take(q.handle, C.uint64_t(weight), nil,
		0) == C.WEIR_PASSED
}

// ask makes a call that fills a reply.
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

// TakeReply is Take with a reason and the time to retry.
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

// Reserve charges now; the caller must wait for Wait before it goes on. It is
// limited if Wait were longer than 'most'.
func (q *Quota) Reserve(weight uint64, most time.Duration) Reply {
	return q.ask(func(reply *C.struct_weir_reply) {
		C.weir_reserve(q.handle, C.uint64_t(weight), toC(most),
			reply, 0)
	})
}

// Charge counts without a decision: for a cost that is known afterwards.
func (q *Quota) Charge(weight uint64) {
	weir := q.lock()
	defer q.unlock()
	if weir != nil {
		C.weir_charge(q.handle, C.uint64_t(weight), 0)
	}
}

// Settle is for work that was begun with the units that it was expected to
// cost: it charges or gives back the difference to the actual ones, which
// *charged becomes. It may be called again while the work goes on:
//
//	charged := uint64(2000)
//	if !tokens.Take(charged) {
//		return errLimited
//	}
//	used := answer(request)
//	tokens.Settle(&charged, used)
func (q *Quota) Settle(charged *uint64, actual uint64) {
	weir := q.lock()
	defer q.unlock()
	if weir != nil {
		C.weir_settle(q.handle, (*C.uint64_t)(charged),
			C.uint64_t(actual), 0)
	}
}

// Refund gives charged units back.
func (q *Quota) Refund(weight uint64) {
	weir := q.lock()
	defer q.unlock()
	if weir != nil {
		C.weir_refund(q.handle, C.uint64_t(weight), 0)
	}
}

// Want announces the units a second that will be wanted of a leased quota.
// EINVAL or ECLOSED.
func (q *Quota) Want(unitsPerSecond float64) error {
	weir := q.lock()
	defer q.unlock()
	if weir == nil {
		return ECLOSED
	}
	return errorOf(C.weir_want(q.handle, C.double(unitsPerSecond), 0))
}

// Wait sleeps until it passes. If the context ends meanwhile, its error is
// returned and the units are given back. If it can't pass before the context's
// deadline, or never, that is a LimitedError as soon as it is known.
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

// Adaptive is the state of an adaptive quota in this process: struct
// weir_adaptive.
type Adaptive struct {
	Limit, Before                    float64
	Reason                           string
	Latency                          time.Duration
	Windows, InFlight, Overdue, Lost uint64
	Fleet, Alone                     bool
}

// Adaptive is false for a quota that isn't adaptive.
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
		Fleet: bool(a.fleet), Alone: bool(a.alone),
	}, true
}
