// SPDX-License-Identifier: MIT

// backend: the overloaded service of bench/adaptive-peers, over HTTP.
//
//	backend -plant workers   8 workers of 20 ms behind a queue without end
//	backend -plant article   each request takes 3.6 ms for each arrival of the
//	                         last second, its own included; no queue
//
// Prints its address. A caller that went away while its request was queued is
// skipped, unless -abandoned=work. GET /control?slow=3&hang=true makes it three
// times slower and stops all ends of requests; both hold until changed.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	workers       = 8
	serviceTime   = 20 * time.Millisecond
	latencyFactor = 3600 * time.Microsecond
	queueMax      = 1 << 20
)

// state is what /control sets.
type state struct {
	mutex   sync.Mutex
	slow    float64
	hanging chan struct{} // closed when the hang is over; nil: no hang
}

func (s *state) set(slow float64, hang bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.slow = slow
	if hang && s.hanging == nil {
		s.hanging = make(chan struct{})
	}
	if !hang && s.hanging != nil {
		close(s.hanging)
		s.hanging = nil
	}
}

func (s *state) slowed(d time.Duration) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return time.Duration(float64(d) * s.slow)
}

func (s *state) waitHang() {
	s.mutex.Lock()
	hanging := s.hanging
	s.mutex.Unlock()
	if hanging != nil {
		<-hanging
	}
}

type job struct {
	caller context.Context
	done   chan struct{}
}

// pool is the plant of eight workers.
type pool struct {
	state *state
	queue chan job
	skip  bool
}

func (p *pool) work() {
	for next := range p.queue {
		p.state.waitHang()
		if p.skip && next.caller.Err() != nil {
			continue
		}
		time.Sleep(p.state.slowed(serviceTime))
		p.state.waitHang()
		close(next.done)
	}
}

func (p *pool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mine := job{r.Context(), make(chan struct{})}
	select {
	case p.queue <- mine:
	default:
		http.Error(w, "queue full", http.StatusInternalServerError)
		return
	}
	select {
	case <-mine.done:
	case <-r.Context().Done():
	}
}

// article is the plant of the article.
type article struct {
	state    *state
	mutex    sync.Mutex
	arrivals []time.Time
}

// latency counts an arrival.
func (a *article) latency() time.Duration {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	now := time.Now()
	for len(a.arrivals) > 0 && now.Sub(a.arrivals[0]) >= time.Second {
		a.arrivals = a.arrivals[1:]
	}
	a.arrivals = append(a.arrivals, now)
	return time.Duration(len(a.arrivals)) * latencyFactor
}

func (a *article) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	time.Sleep(a.state.slowed(a.latency()))
	a.state.waitHang()
}

func main() {
	plant := flag.String("plant", "workers", "workers or article")
	abandoned := flag.String("abandoned", "skip", "skip or work")
	flag.Parse()
	shared := &state{slow: 1}
	var work http.Handler = &article{state: shared}
	if *plant == "workers" {
		p := &pool{shared, make(chan job, queueMax), *abandoned == "skip"}
		for i := 0; i < workers; i++ {
			go p.work()
		}
		work = p
	}
	mux := http.NewServeMux()
	mux.Handle("/", work)
	mux.HandleFunc("/control", func(w http.ResponseWriter, r *http.Request) {
		slow, err := strconv.ParseFloat(r.FormValue("slow"), 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		shared.set(slow, r.FormValue("hang") == "true")
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	fmt.Fprintln(os.Stderr, "backend:", http.Serve(listener, mux))
	os.Exit(1)
}
