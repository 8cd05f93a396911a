// SPDX-License-Identifier: MIT

package weir

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The quotas are those of bindings/live.py.
func open(t testing.TB) *Limiter {
	t.Helper()
	limiter, err := Open(Options{Roots: os.Getenv("WEIR_TEST_ROOTS"),
		Name: t.Name()})
	check(t, err)
	t.Cleanup(limiter.Close)
	check(t, limiter.Ready(patience(t)))
	return limiter
}

func patience(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, holds bool, what ...any) {
	t.Helper()
	if !holds {
		t.Fatal(append([]any{"it must hold that"}, what...)...)
	}
}

func quota(t testing.TB, limiter *Limiter, name string) *Quota {
	t.Helper()
	quota, err := limiter.Quota(name)
	check(t, err)
	t.Cleanup(quota.Close)
	must(t, !quota.Peek(1).Unknown, name, "is known")
	return quota
}

func TestTakePeekChargeRefund(t *testing.T) {
	three := quota(t, open(t), "three")
	reply := three.TakeReply(2)
	must(t, reply.Passed && reply.Remaining == 1 && reply.Fill == 2 &&
		reply.Quota == "three" && reply.RetryAfter == 0, reply)
	must(t, three.Peek(1).Passed && !three.Take(2))
	reply = three.TakeReply(2)
	must(t, !reply.Passed && !reply.Never && reply.RetryAfter > 0 &&
		reply.RetryAfter < time.Hour, reply)
	reply = three.TakeReply(4)
	must(t, reply.Never && reply.RetryAfter == Never, reply)
	three.Refund(2)
	three.Charge(3)
	must(t, !three.Peek(1).Passed)
	must(t, three.Want(5) == nil && three.Want(-1) == EINVAL)
}

func TestSettle(t *testing.T) {
	limiter := open(t)
	cost := quota(t, limiter, "each/cost")
	charged := uint64(0)
	cost.Settle(&charged, 2)
	must(t, charged == 2 && cost.Peek(1).Remaining == 1, charged)
	cost.Settle(&charged, 1)
	must(t, charged == 1 && cost.Peek(1).Remaining == 2, charged)
	must(t, limiter.Charge("each/cost", 1))
	must(t, limiter.Settle("each/cost", &charged, 5) && charged == 5)
	must(t, !cost.Peek(1).Passed)
	must(t, limiter.Settle("each/cost", &charged, 0) && charged == 0)
	must(t, cost.Peek(1).Remaining == 2)
	must(t, !limiter.Charge("nobody", 1))
	must(t, !limiter.Settle("nobody", &charged, 1) && charged == 0)
}

func TestByName(t *testing.T) {
	limiter := open(t)
	for i := 0; i < 3; i++ {
		must(t, limiter.Take("each/a", 1))
	}
	reply := limiter.TakeReply("each/a", 1)
	must(t, !reply.Passed && reply.Quota == "each/a", reply)
	must(t, limiter.Take("each/b", 1))
	must(t, limiter.TakeReply("nobody's", 1).Unknown)
	for name, valid := range map[string]bool{"": false, "a": true,
		"a\n": false, "a\x00": false, "\xff": false,
		"shadow:a": false, strings.Repeat("a", 65536): true,
		strings.Repeat("a", 65537): false} {
		must(t, ValidName(name) == valid, name)
		_, err := limiter.Quota(name)
		must(t, (err == nil) == valid, name, err)
		must(t, limiter.Take(name, 1) == (len(name) <= 65536))
	}
}

func TestOptions(t *testing.T) {
	_, err := Open(Options{Roots: "no port"})
	must(t, err == EINVAL && strings.Contains(err.Error(), "range"), err)
	_, err = Open(Options{Roots: "a:1", TLSCA: "/no/ca.pem"})
	must(t, errors.Is(err, ETLS) && strings.Contains(err.Error(),
		"/no/ca.pem: it can't be read: No such file"), err)
	_, err = Open(Options{Table: "/no/table"})
	must(t, errors.Is(err, ETABLE) && strings.Contains(err.Error(),
		"/no/table"), err)
	small, err := Open(Options{MemoryMax: 1})
	check(t, err)
	defer small.Close()
	/* Of a hundred names some have room; the others go by OnFull. */
	passed := 0
	for i := 0; i < 100; i++ {
		quota, err := small.Quota("q" + strings.Repeat("x", i))
		check(t, err)
		if quota.Take(1) {
			passed++
		}
	}
	must(t, passed == int(small.Status().Slots), passed)
	short, cancel := context.WithTimeout(context.Background(),
		time.Millisecond)
	defer cancel()
	err = small.Ready(short)
	must(t, errors.Is(err, context.DeadlineExceeded), err)
	err = small.Sync(short)
	must(t, errors.Is(err, context.DeadlineExceeded), err)
}

func TestEvents(t *testing.T) {
	events := make(chan Event, 100)
	var limiter atomic.Pointer[Limiter]
	opened, err := Open(Options{Roots: os.Getenv("WEIR_TEST_ROOTS"),
		OnEvent: func(event Event) {
			if l := limiter.Load(); l != nil {
				l.Status()
			}
			events <- event
		}})
	check(t, err)
	limiter.Store(opened)
	first := <-events
	must(t, first.Type == RootUp && first.Text == "root0", first)
	must(t, (<-events).Type == Ready)
	check(t, opened.Sync(patience(t)))
	status := opened.Status()
	must(t, status.Roots == 1 && status.RootsUp == 1 && status.Ready)
	opened.Close()
	opened.Close()
	must(t, opened.Status() == Status{})
}

func TestWithoutRoots(t *testing.T) {
	own, err := Open(Options{})
	check(t, err)
	defer own.Close()
	check(t, own.Define("name=db", "kind=concurrency", "sharing=adaptive",
		"classes=sync:observed,bulk:50%"))
	db, err := own.Quota("db")
	check(t, err)
	permit, _ := db.EnterClass(1, ClassOf("bulk"))
	now, ok := db.Adaptive()
	must(t, permit != nil && ok && now.InFlight == 1 && now.Limit > 0 &&
		now.Reason == "initial", now)
	must(t, own.Status().Adaptive == 1)
	permit.Leave(Success)

	check(t, own.Define("name=r", "limit=3/h", "high_burst=3"))
	policy, ok := own.Policy("r")
	must(t, ok && policy == Policy{false, 3, time.Hour}, policy)
	_, ok = own.Policy("nobody's")
	must(t, !ok)
	err = own.Define("name=r", "limit=3/x")
	must(t, errors.Is(err, EQUOTA) &&
		strings.Contains(err.Error(), "'x' is no period"), err)
	err = open(t).Define("name=r")
	must(t, errors.Is(err, EINVAL), err)
}

func TestWait(t *testing.T) {
	slow := quota(t, open(t), "slow")
	background := context.Background()
	begun := time.Now()
	for i := 0; i < 5; i++ {
		check(t, slow.Wait(background, 1))
	}
	// A hundredth less: a bucket counts in fractions of its own.
	must(t, time.Since(begun) >= 4*19800*time.Microsecond)

	var limited *LimitedError
	err := slow.Wait(background, 2)
	must(t, errors.As(err, &limited) && limited.Reply.Never, err)
	ended, cancel := context.WithCancel(background)
	cancel()
	must(t, errors.Is(slow.Wait(ended, 1), context.Canceled))
}

func TestWhoIsCancelledGivesBack(t *testing.T) {
	each := quota(t, open(t), "each/cancelled")
	must(t, each.Take(3))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	// Two, of which only one is checked: the leak meanwhile is rounded.
	go func() { done <- each.Wait(ctx, 2) }()
	for limit := patience(t); each.Peek(0).Fill < 4; {
		check(t, limit.Err())
		time.Sleep(time.Millisecond)
	}
	cancel()
	must(t, errors.Is(<-done, context.Canceled))
	must(t, each.Peek(0).Fill <= 3)

	// Twenty minutes are more than ten: that is known at once.
	short, cancel := context.WithTimeout(context.Background(),
		10*time.Minute)
	defer cancel()
	var limited *LimitedError
	err := each.Wait(short, 1)
	must(t, errors.As(err, &limited) && short.Err() == nil, err)
	must(t, strings.Contains(err.Error(), "each/cancelled"), err)
}

func TestPermits(t *testing.T) {
	limiter := open(t)
	two := quota(t, limiter, "two")
	first, _ := two.Enter(1)
	second, _ := limiter.Enter("two", 1)
	refused, reply := two.Enter(1)
	must(t, first != nil && second != nil && refused == nil)
	must(t, !reply.Passed && reply.Quota == "two", reply)
	refused.Leave(Success)
	first.Leave(Success)
	first.Leave(Success)
	third, _ := two.Enter(1)
	must(t, third != nil && !two.Peek(1).Passed)
	second.Leave(Dropped)
	third.Leave(Ignored)
	must(t, two.Peek(2).Passed)

	var inside, entered atomic.Int32
	var all sync.WaitGroup
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := 0; n < 1000; n++ {
				permit, _ := two.Enter(1)
				if permit == nil {
					continue
				}
				entered.Add(1)
				if inside.Add(1) > 2 {
					t.Error("three are inside")
				}
				inside.Add(-1)
				// Two goroutines: it is left once.
				all.Add(1)
				go func() {
					permit.Leave(Success)
					all.Done()
				}()
				permit.Leave(Success)
			}
		}()
	}
	all.Wait()
	must(t, entered.Load() > 0 && two.Peek(2).Passed)
}

// A call stays in C for long, as one that waits for a store does.
func TestClosingAQuotaStopsNobodyElse(t *testing.T) {
	limiter, err := Open(Options{})
	check(t, err)
	defer limiter.Close()
	gone, err := limiter.Quota("gone")
	check(t, err)
	limiter.mutex.RLock()
	defer limiter.mutex.RUnlock()
	done := make(chan bool)
	go func() {
		gone.Close()
		close(done)
	}()
	for limit := patience(t); ; {
		must(t, limiter.mutex.TryRLock(), "others can call")
		limiter.mutex.RUnlock()
		select {
		case <-done:
			must(t, gone.TakeReply(1).Unknown)
			return
		default:
			check(t, limit.Err())
			time.Sleep(time.Millisecond)
		}
	}
}

func TestClosedUnderTheirHands(t *testing.T) {
	for i := 0; i < 10; i++ {
		limiter := open(t)
		three := quota(t, limiter, "three")
		slow := quota(t, limiter, "slow")
		permit, _ := limiter.Enter("two", 1)
		ctx, cancel := context.WithCancel(context.Background())
		var all, begun sync.WaitGroup
		for n := 0; n < 4; n++ {
			all.Add(1)
			begun.Add(1)
			go func() {
				defer all.Done()
				for turn := 0; ctx.Err() == nil; turn++ {
					three.Take(1)
					limiter.Take("each/closed", 1)
					other, err := limiter.Quota("two")
					if err == nil {
						other.Close()
					}
					_ = slow.Wait(ctx, 1)
					if turn == 0 {
						begun.Done()
					}
				}
			}()
		}
		begun.Wait()
		limiter.Close()
		must(t, three.Take(9) && limiter.Take("three", 9))
		must(t, limiter.Ready(ctx) == ECLOSED &&
			three.Want(1) == ECLOSED)
		after, reply := limiter.Enter("two", 9)
		must(t, after != nil && reply.Unknown)
		after.Leave(Success)
		permit.Leave(Success)
		cancel()
		all.Wait()
	}
}

// used is this process's processor time, which doesn't depend on the machine's
// load as the clock does.
func used(b *testing.B, work func()) {
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	work()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	spent := after.Utime.Nano() + after.Stime.Nano() -
		before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(spent)/float64(b.N), "cpu-ns/op")
}

func BenchmarkTake(b *testing.B) {
	limiter, err := Open(Options{})
	check(b, err)
	defer limiter.Close()
	quota, err := limiter.Quota("nobody's")
	check(b, err)
	var mutex sync.RWMutex
	for name, work := range map[string]func(){
		"take":  func() { quota.Take(1) },
		"reply": func() { quota.TakeReply(1) },
		"lock":  func() { mutex.RLock(); mutex.RUnlock() },
	} {
		b.Run(name, func(b *testing.B) {
			used(b, func() {
				for i := 0; i < b.N; i++ {
					work()
				}
			})
		})
		b.Run(name+"-parallel", func(b *testing.B) {
			used(b, func() {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						work()
					}
				})
			})
		})
	}
}
