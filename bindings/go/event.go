// SPDX-License-Identifier: MIT

package weir

// #include <stdint.h>
// #include <weir/weir.h>
import "C"

import (
	"runtime/cgo"
	"sync"
	"unsafe"
)

// EventType is enum weir_event_type.
type EventType int

// Documented in weir.h.
const (
	RootUp        EventType = C.WEIR_EVENT_ROOT_UP
	RootDown      EventType = C.WEIR_EVENT_ROOT_DOWN
	Ready         EventType = C.WEIR_EVENT_READY
	Stale         EventType = C.WEIR_EVENT_STALE
	Fresh         EventType = C.WEIR_EVENT_FRESH
	TableFull     EventType = C.WEIR_EVENT_TABLE_FULL
	StoreChanged  EventType = C.WEIR_EVENT_STORE_CHANGED
	ReportBackoff EventType = C.WEIR_EVENT_REPORT_BACKOFF
	Forked        EventType = C.WEIR_EVENT_FORKED
	Lost          EventType = C.WEIR_EVENT_LOST
	Credential    EventType = C.WEIR_EVENT_CREDENTIAL
	QuotaUnknown  EventType = C.WEIR_EVENT_QUOTA_UNKNOWN
	ExactAway     EventType = C.WEIR_EVENT_EXACT_AWAY
	ExactBack     EventType = C.WEIR_EVENT_EXACT_BACK
	Zone          EventType = C.WEIR_EVENT_ZONE
	AdaptiveFull  EventType = C.WEIR_EVENT_ADAPTIVE_FULL
	Elsewhere     EventType = C.WEIR_EVENT_ELSEWHERE
	Table         EventType = C.WEIR_EVENT_TABLE
	Reporter      EventType = C.WEIR_EVENT_REPORTER
	Denied        EventType = C.WEIR_EVENT_DENIED
	Snapshot      EventType = C.WEIR_EVENT_SNAPSHOT
	FewRoots      EventType = C.WEIR_EVENT_FEW_ROOTS
)

// Event is news for an operator.
type Event struct {
	Type  EventType
	Count uint64
	Text  string
}

// listener is the Go side of a limiter for libweir's thread.
type listener struct {
	tell  func(Event)
	mutex sync.Mutex
	file  string // the last unusable file, and the reason
}

func (l *listener) why() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.file
}

func (l *listener) hear(event Event) {
	if event.Type == Credential || event.Type == Table {
		l.mutex.Lock()
		l.file = event.Text
		l.mutex.Unlock()
	}
	if l.tell != nil {
		l.tell(event)
	}
}

//export weirGoEvent
func weirGoEvent(context C.uintptr_t, event unsafe.Pointer) {
	told := (*C.struct_weir_event)(event)
	cgo.Handle(context).Value().(*listener).hear(Event{
		// 'type' is a keyword in Go.
		Type:  EventType(told._type),
		Count: uint64(told.count),
		Text:  C.GoString(&told.text[0]),
	})
}
