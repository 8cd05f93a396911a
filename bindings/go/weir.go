// SPDX-License-Identifier: MIT

// Package weir enforces rate limits across all processes of a fleet.
//
//	limiter, err := weir.Open(weir.Options{Roots: "10.0.0.1:7077"})
//	put, err := limiter.Quota("s3/put")
//	if !put.Take(1) {
//		w.WriteHeader(http.StatusTooManyRequests)
//	}
//
// It is libweir by cgo: weir.h documents each call, and holds here. Decisions
// are made in this process's memory; none waits for the network, unless a quota
// is exact. Everything may be used by any goroutine.
//
// Close may be called during and before other calls: a closed limiter lets
// everything pass, like a limiter without quotas. For that each call holds a
// read lock while it is in C, a Quota's call two, and Wait none while it
// sleeps. A Quota's take is some 230 ns of a processor's time, each of its
// locks 20 of them (BenchmarkTake, by getrusage; Go 1.26, two busy cores, a
// name without quota).
package weir

/*
#cgo pkg-config: weir
#include <stdint.h>
#include <stdlib.h>
#include <weir/weir.h>

extern void weirGoEvent(uintptr_t context, void *event);

static void tell(void *context, const struct weir_event *event)
{
	weirGoEvent((uintptr_t)context, (void *)event);
}

static int open_told(struct weir_options *options, uintptr_t context,
		     struct weir **out)
{
	options->struct_size = sizeof(*options);
	options->on_event = tell;
	options->event_context = (void *)context;
	return weir_open(options, out);
}

static int take(struct weir *weir, _GoString_ name, uint64_t weight,
		struct weir_reply *reply)
{
	return weir_take_by_name(weir, _GoStringPtr(name),
				 _GoStringLen(name), weight, reply, 0);
}

static bool charge(struct weir *weir, _GoString_ name, uint64_t weight)
{
	return weir_charge_by_name(weir, _GoStringPtr(name),
				   _GoStringLen(name), weight, 0);
}

static bool settle(struct weir *weir, _GoString_ name, uint64_t *charged,
		   uint64_t actual)
{
	return weir_settle_by_name(weir, _GoStringPtr(name),
				   _GoStringLen(name), charged, actual, 0);
}

static int enter(struct weir *weir, _GoString_ name, uint32_t klass,
		 uint64_t weight, struct weir_permit *permit,
		 struct weir_reply *reply)
{
	return weir_enter_by_name(weir, _GoStringPtr(name),
				  _GoStringLen(name), klass, weight, permit,
				  reply, 0);
}

static int handle_open(struct weir *weir, _GoString_ name,
		       struct weir_handle *out)
{
	return weir_handle_open(weir, _GoStringPtr(name), _GoStringLen(name),
				out);
}

static int policy_of(struct weir *weir, _GoString_ name,
		     struct weir_policy *out)
{
	return weir_policy(weir, _GoStringPtr(name), _GoStringLen(name), out);
}

static uint32_t class_of(_GoString_ name)
{
	return weir_class(_GoStringPtr(name), _GoStringLen(name));
}

static bool is_name(_GoString_ name)
{
	return weir_name_is_valid(_GoStringPtr(name), _GoStringLen(name));
}
*/
import "C"

import (
	"context"
	"fmt"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Error is an error of libweir; the values are enum weir_error's.
type Error int

// The errors that a caller of this package may meet.
const (
	EINVAL      Error = C.WEIR_EINVAL
	ENOMEM      Error = C.WEIR_ENOMEM
	ENAME       Error = C.WEIR_ENAME
	EQUOTA      Error = C.WEIR_EQUOTA
	ENOENT      Error = C.WEIR_ENOENT
	EFULL       Error = C.WEIR_EFULL
	ETIMEOUT    Error = C.WEIR_ETIMEOUT
	ESYSTEM     Error = C.WEIR_ESYSTEM
	ECLOSED     Error = C.WEIR_ECLOSED
	ECREDENTIAL Error = C.WEIR_ECREDENTIAL
	ETLS        Error = C.WEIR_ETLS
	ETABLE      Error = C.WEIR_ETABLE
)

func (e Error) Error() string {
	return "weir: " + C.GoString(C.weir_strerror(C.int(e)))
}

func errorOf(code C.int) error {
	if code < 0 {
		return Error(code)
	}
	return nil
}

// TableRole is the role of a process in a shared table.
type TableRole C.enum_weir_table_role

const (
	TableMayRun  TableRole = C.WEIR_TABLE_MAY_RUN
	TableRuns    TableRole = C.WEIR_TABLE_RUNS
	TableDecides TableRole = C.WEIR_TABLE_DECIDES
)

// Options are those of struct weir_options; zero is the default.
type Options struct {
	Roots      string // "HOST:PORT,…" or "_weir._tcp.NAME"; "": all pass
	Name       string // this process's name in `weir top`
	MemoryMax  uint64 // bytes for quotas and names; 0: 1 GiB
	PassOnFull bool   // names for which it has no room; false: refuses them
	ThreadsMax uint32

	TLSCA, TLSCert, TLSKey, TokenFile string

	LeasePriority int64
	LeasesMax     uint32
	AdaptiveMax   uint32

	// Snapshot is a file that keeps the quotas, for a start while no root
	// can be reached.
	Snapshot string

	Table     string // the file of a shared table
	TableRole TableRole

	LockWait       time.Duration // how long a decision waits for a lock; 0: 1 ms
	PassWhenLocked bool          // and how it decides then; false: limited

	// Exact is weir_exact(), for quotas of sharing=exact: from a package of
	// the program's own that links libweir-exact. A decision may then wait
	// for a store.
	Exact            unsafe.Pointer
	ExactSecretsFile string
	ExactPrefix      string

	// OnEvent is called by libweir's thread; it must return quickly and
	// must not call Close. Open calls it, too, if it fails because of a
	// file.
	OnEvent func(Event)
}

// Limiter is a table of quotas and a thread that exchanges counts with the
// roots.
type Limiter struct {
	mutex sync.RWMutex // held for reading while 'weir' is used
	weir  *C.struct_weir
	heard cgo.Handle
}

// Open never waits for a root, nor fails because none answers.
func Open(options Options) (*Limiter, error) {
	made := C.struct_weir_options{
		memory_max:     C.uint64_t(options.MemoryMax),
		on_full:        C.WEIR_ON_FULL_REFUSE,
		threads_max:    C.uint32_t(options.ThreadsMax),
		lease_priority: C.int64_t(options.LeasePriority),
		leases_max:     C.uint32_t(options.LeasesMax),
		adaptive_max:   C.uint32_t(options.AdaptiveMax),
		table_role:     C.enum_weir_table_role(options.TableRole),
		lock_wait:      C.uint64_t(options.LockWait),
		exact:          (*C.struct_weir_exact)(options.Exact),
	}
	if options.PassOnFull {
		made.on_full = C.WEIR_ON_FULL_PASS
	}
	if options.PassWhenLocked {
		made.when_locked = C.WEIR_LOCKED_PASSES
	}
	defer setTexts(map[**C.char]string{
		&made.roots:              options.Roots,
		&made.name:               options.Name,
		&made.tls_ca:             options.TLSCA,
		&made.tls_cert:           options.TLSCert,
		&made.tls_key:            options.TLSKey,
		&made.token_file:         options.TokenFile,
		&made.exact_secrets_file: options.ExactSecretsFile,
		&made.exact_prefix:       options.ExactPrefix,
		&made.table:              options.Table,
		&made.snapshot:           options.Snapshot,
	})()
	listener := &listener{tell: options.OnEvent}
	limiter := &Limiter{heard: cgo.NewHandle(listener)}
	code := C.open_told(&made, C.uintptr_t(limiter.heard), &limiter.weir)
	if code < 0 {
		limiter.heard.Delete()
		if said := listener.why(); said != "" {
			return nil, fmt.Errorf("%w: %s", Error(code), said)
		}
		return nil, Error(code)
	}
	return limiter, nil
}

// setTexts stores copies of the texts; the function that it returns frees them.
func setTexts(texts map[**C.char]string) func() {
	for field, text := range texts {
		if text != "" {
			*field = C.CString(text)
		}
	}
	return func() {
		for field := range texts {
			C.free(unsafe.Pointer(*field))
		}
	}
}

// Close sends the pending reports (100 ms at most) and waits for other calls to
// end. A second call has no effect.
func (l *Limiter) Close() {
	l.mutex.Lock()
	weir := l.weir
	l.weir = nil
	l.mutex.Unlock()
	if weir == nil {
		return
	}
	// Without the lock: an OnEvent may be waiting for it, and this waits
	// for libweir's thread.
	C.weir_close(weir)
	l.heard.Delete()
}

// Ready waits until a root's quotas have arrived.
func (l *Limiter) Ready(ctx context.Context) error {
	return l.until(ctx, func(d C.weir_duration) C.int {
		return C.weir_ready(l.weir, d)
	})
}

// Sync waits until the roots have answered all reports of this process. Without
// a root it waits for one, until the context ends.
func (l *Limiter) Sync(ctx context.Context) error {
	return l.until(ctx, func(d C.weir_duration) C.int {
		return C.weir_sync(l.weir, d)
	})
}

// Waits are split, so that a context can end them and Close needn't wait for
// long.
const piece = 100 * time.Millisecond

func (l *Limiter) until(ctx context.Context,
	call func(C.weir_duration) C.int) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		left := piece
		if end, ok := ctx.Deadline(); ok && time.Until(end) < piece {
			left = time.Until(end)
		}
		err := l.locked(func() error {
			return errorOf(call(toC(left)))
		})
		if err != ETIMEOUT {
			return err
		}
	}
}

func (l *Limiter) locked(call func() error) error {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	if l.weir == nil {
		return ECLOSED
	}
	return call()
}

// ValidName says whether a name can be a quota's. An invalid name has no quota,
// so it passes: check names from untrusted clients first.
func ValidName(name string) bool {
	return bool(C.is_name(name))
}

// Class is a class of requests of an adaptive quota, for EnterClass.
type Class uint32

// ClassOf is the class of that name, independent of the quota.
func ClassOf(name string) Class {
	return Class(C.class_of(name))
}

// Define makes or edits a quota of a limiter without roots, by its fields as in
// weir-quota(5): Define("name=db", "limit=2/s").
func (l *Limiter) Define(fields ...string) error {
	listed := C.calloc(C.size_t(len(fields)+1), C.sizeof_uintptr_t)
	defer C.free(listed)
	texts := unsafe.Slice((**C.char)(listed), len(fields))
	for i, field := range fields {
		texts[i] = C.CString(field)
		defer C.free(unsafe.Pointer(texts[i]))
	}
	var why [512]C.char
	return l.locked(func() error {
		code := C.weir_define(l.weir, (**C.char)(listed), &why[0],
			C.size_t(len(why)))
		if code < 0 && why[0] != 0 {
			return fmt.Errorf("%w: %s", Error(code),
				C.GoString(&why[0]))
		}
		return errorOf(code)
	})
}

// Policy is a quota's limit: Quantity units in flight, or in Window (0: they
// don't come back).
type Policy struct {
	Concurrency bool
	Quantity    uint64
	Window      time.Duration
}

// Policy is that of the quota named by a reply; false: it isn't known here, or
// lets all pass.
func (l *Limiter) Policy(name string) (Policy, bool) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	var p C.struct_weir_policy
	if l.weir == nil || C.policy_of(l.weir, name, &p) < 0 {
		return Policy{}, false
	}
	return Policy{bool(p.concurrency), uint64(p.quantity),
		fromC(p.window)}, true
}

// Take is Quota.Take by name: for names of a template that depend on the
// request.
func (l *Limiter) Take(name string, weight uint64) bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.weir == nil ||
		C.take(l.weir, name, C.uint64_t(weight), nil) == C.WEIR_PASSED
}

// TakeReply is Take with a reason and the time to retry.
func (l *Limiter) TakeReply(name string, weight uint64) Reply {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	if l.weir == nil {
		return unknown
	}
	var reply C.struct_weir_reply
	C.take(l.weir, name, C.uint64_t(weight), &reply)
	return replyOf(&reply)
}

// Charge is Quota.Charge by name; false: the name has no quota.
func (l *Limiter) Charge(name string, weight uint64) bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.weir != nil && bool(C.charge(l.weir, name, C.uint64_t(weight)))
}

// Settle is Quota.Settle by name; false: the name has no quota, and *charged
// stays.
func (l *Limiter) Settle(name string, charged *uint64, actual uint64) bool {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	return l.weir != nil && bool(C.settle(l.weir, name,
		(*C.uint64_t)(charged), C.uint64_t(actual)))
}

// Enter is Quota.Enter by name.
func (l *Limiter) Enter(name string, weight uint64) (*Permit, Reply) {
	return l.EnterClass(name, weight, 0)
}

// EnterClass is Quota.EnterClass by name.
func (l *Limiter) EnterClass(name string, weight uint64,
	class Class) (*Permit, Reply) {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	permit := &Permit{limiter: l}
	if l.weir == nil {
		return permit, unknown
	}
	var reply C.struct_weir_reply
	C.enter(l.weir, name, C.uint32_t(class), C.uint64_t(weight),
		&permit.held, &reply)
	return permit.passed(&reply)
}

// Status is struct weir_status.
type Status struct {
	Roots, RootsUp, Slots, SlotsUsed      uint32
	RootsThere                            uint32 // 0: not known
	FewRoots                              bool
	Lacking                               uint32
	Memory, MemoryMax                     uint64
	Adaptive, AdaptiveOverflowed, Waiting uint32
	Epoch, Unknown, Overflowed, Reports   uint64
	Contended                             uint64
	OverflowedAge                         uint64 // ns; ^0: never
	Ready, Stale, GrowthFailed            bool
}

// Status is the limiter's state; all zero once it is closed.
func (l *Limiter) Status() Status {
	l.mutex.RLock()
	defer l.mutex.RUnlock()
	if l.weir == nil {
		return Status{}
	}
	var s C.struct_weir_status
	C.weir_status(l.weir, &s)
	return Status{
		Roots: uint32(s.roots), RootsUp: uint32(s.roots_up),
		RootsThere: uint32(s.roots_there),
		FewRoots:   bool(s.few_roots),
		Slots:      uint32(s.slots), SlotsUsed: uint32(s.slots_used),
		Memory: uint64(s.memory), MemoryMax: uint64(s.memory_max),
		Lacking: uint32(s.lacking),
		Epoch:   uint64(s.epoch), Unknown: uint64(s.unknown),
		Overflowed: uint64(s.overflowed), Reports: uint64(s.reports),
		Ready: bool(s.ready), Stale: bool(s.stale),
		Adaptive:           uint32(s.adaptive),
		AdaptiveOverflowed: uint32(s.adaptive_overflowed),
		Waiting:            uint32(s.waiting),
		Contended:          uint64(s.contended),
		OverflowedAge:      uint64(s.overflowed_age),
		GrowthFailed:       bool(s.growth_failed),
	}
}

// Quota finds a quota that is used often. It needn't exist yet: until then
// requests pass. ENAME or ECLOSED.
func (l *Limiter) Quota(name string) (*Quota, error) {
	quota := &Quota{limiter: l}
	err := l.locked(func() error {
		code := C.handle_open(l.weir, name, &quota.handle)
		// A full table made a handle that can be used.
		if code == C.WEIR_EFULL {
			return nil
		}
		return errorOf(code)
	})
	if err != nil {
		return nil, err
	}
	return quota, nil
}
