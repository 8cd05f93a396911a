// SPDX-License-Identifier: MIT

// load: one client process of bench/adaptive-peers. Requests arrive in an open
// loop, each asks the limiter, and those that pass go to the backend; a caller
// gives up after -timeout.
//
// Prints "ready", reads the instant of the start (nanoseconds since 1970) from
// its standard input, and after -seconds writes a line for each arrival to
// -out: "ARRIVED OUTCOME LATENCY LATE" in milliseconds since the start. The
// outcome is d (denied), s (served), t (timed out) or e (another error); LATE
// is how late this program was.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	peer, url, arrivals, out, roots, quota, name string
	rate, seconds, phase                         float64
	limit                                        int
	seed                                         int64
	timeout                                      time.Duration
}

type event struct {
	arrived time.Duration
	outcome byte
	latency time.Duration
	late    time.Duration
}

type load struct {
	options options
	limiter limiter
	client  *http.Client
	start   time.Time
	mutex   sync.Mutex
	events  []event
	running sync.WaitGroup
}

func (l *load) record(e event) {
	l.mutex.Lock()
	l.events = append(l.events, e)
	l.mutex.Unlock()
}

// ask sends one request.
func (l *load) ask() byte {
	ctx, cancel := context.WithTimeout(context.Background(),
		l.options.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", l.options.url,
		nil)
	if err != nil {
		return 'e'
	}
	answer, err := l.client.Do(request)
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return 't'
	case err != nil:
		return 'e'
	case answer.StatusCode == http.StatusServiceUnavailable:
		return 'd'
	case answer.StatusCode != http.StatusOK:
		return 'e'
	}
	return 's'
}

func (l *load) arrive(due time.Time) {
	defer l.running.Done()
	began := time.Now()
	e := event{arrived: due.Sub(l.start), outcome: 'd',
		late: began.Sub(due)}
	if leave := l.limiter.enter(); leave != nil {
		e.outcome = l.ask()
		e.latency = time.Since(began)
		leave(e.outcome)
	}
	l.record(e)
}

// run makes the arrivals.
func (l *load) run() {
	random := rand.New(rand.NewSource(l.options.seed))
	mean := float64(time.Second) / l.options.rate
	end := l.start.Add(time.Duration(l.options.seconds * 1e9))
	due := l.start.Add(time.Duration(l.options.phase * mean))
	for due.Before(end) {
		time.Sleep(time.Until(due))
		l.running.Add(1)
		go l.arrive(due)
		gap := mean
		if l.options.arrivals == "poisson" {
			gap *= random.ExpFloat64()
		}
		due = due.Add(time.Duration(gap))
	}
	l.running.Wait()
}

func ms(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/1e6, 'f', 2, 64)
}

func (l *load) write() error {
	file, err := os.Create(l.options.out)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(file)
	for _, e := range l.events {
		fmt.Fprintln(out, ms(e.arrived), string(e.outcome),
			ms(e.latency), ms(e.late))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return file.Close()
}

func parse() options {
	var o options
	flag.StringVar(&o.peer, "peer", "none", "the limiter")
	flag.StringVar(&o.url, "url", "", "the backend")
	flag.StringVar(&o.arrivals, "arrivals", "poisson", "or regular")
	flag.StringVar(&o.out, "out", "", "the file for the arrivals")
	flag.StringVar(&o.roots, "roots", "", "of weir")
	flag.StringVar(&o.quota, "quota", "backend", "of weir")
	flag.StringVar(&o.name, "name", "load", "of this process")
	flag.Float64Var(&o.rate, "rate", 1, "arrivals per second")
	flag.Float64Var(&o.seconds, "seconds", 1, "how long they arrive")
	flag.Float64Var(&o.phase, "phase", 0, "of the first, in mean gaps")
	flag.IntVar(&o.limit, "limit", 0, "of the static limiter")
	flag.Int64Var(&o.seed, "seed", 1, "of the arrivals")
	flag.DurationVar(&o.timeout, "timeout", 2*time.Second, "of a caller")
	flag.Parse()
	return o
}

func work() error {
	o := parse()
	limiter, err := open(o)
	if err != nil {
		return err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 10000}
	l := &load{options: o, limiter: limiter,
		client: &http.Client{Transport: transport}}
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	// With the monotonic clock's reading, which time.Unix() has not.
	now := time.Now()
	l.start = now.Add(time.Duration(at - now.UnixNano()))
	l.run()
	return l.write()
}

func main() {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
