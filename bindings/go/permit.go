// SPDX-License-Identifier: MIT

package weir

// #include <weir/weir.h>
import "C"

import "sync/atomic"

// Outcome is a request's outcome: enum weir_permit_outcome.
type Outcome int

// Success: served. Dropped: refused or timed out by the overloaded service.
// Ignored: ended for another reason.
const (
	Success Outcome = C.WEIR_PERMIT_SUCCESS
	Dropped Outcome = C.WEIR_PERMIT_DROPPED
	Ignored Outcome = C.WEIR_PERMIT_IGNORED
)

// Permit is the result of an Enter, in flight until Leave.
type Permit struct {
	limiter *Limiter
	left    atomic.Bool
	held    C.struct_weir_permit
}

func (p *Permit) passed(reply *C.struct_weir_reply) (*Permit, Reply) {
	if reply.verdict != C.WEIR_PASSED {
		p = nil
	}
	return p, replyOf(reply)
}

// Enter takes that many units, if they pass, until the permit is left. The
// permit is nil if they don't.
//
//	permit, reply := db.Enter(1)
//	if permit == nil {
//		return &weir.LimitedError{Reply: reply}
//	}
//	defer permit.Leave(weir.Success)
func (q *Quota) Enter(weight uint64) (*Permit, Reply) {
	return q.EnterClass(weight, 0)
}

// EnterClass is Enter with the request's class for an adaptive quota.
func (q *Quota) EnterClass(weight uint64, class Class) (*Permit, Reply) {
	weir := q.lock()
	defer q.unlock()
	permit := &Permit{limiter: q.limiter}
	if weir == nil {
		return permit, unknown
	}
	var reply C.struct_weir_reply
	C.weir_enter(q.handle, C.uint32_t(class), C.uint64_t(weight),
		&permit.held, &reply, 0)
	return permit.passed(&reply)
}

// Leave gives the units back; a second call, or one on nil, has no effect.
func (p *Permit) Leave(outcome Outcome) {
	if p == nil || p.left.Swap(true) {
		return
	}
	p.limiter.mutex.RLock()
	defer p.limiter.mutex.RUnlock()
	if p.limiter.weir != nil {
		C.weir_leave(&p.held, uint32(outcome), 0)
	}
}
