// SPDX-License-Identifier: MIT

// The kinds that only sleep. A hang stops them in the middle: the time that a
// request still needs when it begins is the time that it needs afterwards.
package main

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	workerCount   = 8
	serviceTime   = 20 * time.Millisecond
	latencyFactor = 3600 * time.Microsecond
	queueMax      = 1 << 20
)

// state is what /control sets.
type state struct {
	mutex   sync.Mutex
	slow    float64
	hanging chan struct{} // closed when the hang is over; nil: no hang
	since   time.Time     // the begin of the present hang
	hung    time.Duration // all hangs before
}

func (s *state) set(slow float64, hang bool) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.slow = slow
	if hang && s.hanging == nil {
		s.hanging = make(chan struct{})
		s.since = time.Now()
	}
	if !hang && s.hanging != nil {
		close(s.hanging)
		s.hanging = nil
		s.hung += time.Since(s.since)
	}
	return nil
}

// worked is the time without hangs: its differences count.
func (s *state) worked() (now time.Time, hanging chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now = time.Now()
	if s.hanging != nil {
		now = s.since
	}
	return now.Add(-s.hung), s.hanging
}

// spend takes d of time without hangs, and more if the service is slow.
func (s *state) spend(d time.Duration) {
	s.mutex.Lock()
	d = time.Duration(float64(d) * s.slow)
	s.mutex.Unlock()
	begin, _ := s.worked()
	for {
		now, hanging := s.worked()
		if hanging != nil {
			<-hanging
			continue
		}
		left := d - now.Sub(begin)
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

func (s *state) waitHang() {
	if _, hanging := s.worked(); hanging != nil {
		<-hanging
	}
}

type job struct {
	caller context.Context
	done   chan struct{}
}

// workers is the kind with a queue.
type workers struct {
	state
	queue chan job
	skip  bool
}

func newWorkers(skip bool) *workers {
	w := &workers{state: state{slow: 1}, queue: make(chan job, queueMax),
		skip: skip}
	for i := 0; i < workerCount; i++ {
		go w.work()
	}
	return w
}

func (s *workers) work() {
	for next := range s.queue {
		s.waitHang()
		if s.skip && next.caller.Err() != nil {
			continue
		}
		s.spend(serviceTime)
		close(next.done)
	}
}

func (s *workers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mine := job{r.Context(), make(chan struct{})}
	select {
	case s.queue <- mine:
	default:
		http.Error(w, "queue full", http.StatusInternalServerError)
		return
	}
	select {
	case <-mine.done:
	case <-r.Context().Done():
	}
}

// article is the storage of the article, as lab/storage.c has it.
type article struct {
	state
	arrivals sync.Mutex
	recent   []time.Time
}

func newArticle() *article {
	return &article{state: state{slow: 1}}
}

// latency counts an arrival.
func (a *article) latency() time.Duration {
	a.arrivals.Lock()
	defer a.arrivals.Unlock()
	now := time.Now()
	for len(a.recent) > 0 && now.Sub(a.recent[0]) >= time.Second {
		a.recent = a.recent[1:]
	}
	a.recent = append(a.recent, now)
	return time.Duration(len(a.recent)) * latencyFactor
}

func (a *article) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.spend(a.latency())
}
