// SPDX-License-Identifier: MIT

// A server that can hang, and a service in front of it that has an adaptive
// limit; bench/adaptive-hang/run starts both.
//
//	adaptive-hang serve WORKERS SERVICE [leaves]
//	adaptive-hang load URL RATE SEED SECONDS QUOTA-FIELD...
//
// serve prints its address. Each request takes a worker for SERVICE, in the
// order of arrival; with "leaves" a request whose caller has gone leaves the
// queue. GET /hang?for=10s: until then no worker begins or ends.
//
// load sends requests by chance, if its quota lets them in, and gives up after
// two seconds. For each that was let in it prints when it began, in seconds
// since its start, how long it took, in milliseconds, and whether it was
// answered.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	weir "weir/bindings/go"
)

const timeout = 2 * time.Second

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// ---- The server ----

type server struct {
	free    chan struct{} // a token for each worker that is free
	service time.Duration
	leaves  bool
	hung    atomic.Int64 // until then, in Unix nanoseconds
}

// whole waits until the server doesn't hang.
func (s *server) whole() {
	for {
		left := time.Until(time.Unix(0, s.hung.Load()))
		if left <= 0 {
			return
		}
		time.Sleep(left)
	}
}

func (s *server) work(w http.ResponseWriter, r *http.Request) {
	gone := r.Context().Done()
	if !s.leaves {
		gone = nil
	}
	select {
	case <-s.free:
	case <-gone:
		return
	}
	defer func() { s.free <- struct{}{} }()
	s.whole()
	if s.leaves && r.Context().Err() != nil {
		return
	}
	time.Sleep(s.service)
	s.whole()
	io.WriteString(w, "done\n")
}

func (s *server) hang(w http.ResponseWriter, r *http.Request) {
	long, err := time.ParseDuration(r.FormValue("for"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.hung.Store(time.Now().Add(long).UnixNano())
}

func serve(arguments []string) {
	workers, err := strconv.Atoi(arguments[0])
	must(err)
	service, err := time.ParseDuration(arguments[1])
	must(err)
	s := &server{free: make(chan struct{}, workers), service: service,
		leaves: len(arguments) > 2 && arguments[2] == "leaves"}
	for i := 0; i < workers; i++ {
		s.free <- struct{}{}
	}
	http.HandleFunc("/", s.work)
	http.HandleFunc("/hang", s.hang)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Printf("http://%s\n", listener.Addr())
	must(http.Serve(listener, nil))
}

// ---- The service in front of it ----

type load struct {
	client *http.Client
	url    string
	db     *weir.Quota
	begun  time.Time
	lock   sync.Mutex // of out
	out    *bufio.Writer
}

func (l *load) answered() bool {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", l.url, nil)
	must(err)
	response, err := l.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}

func (l *load) request() {
	permit, _ := l.db.Enter(1)
	if permit == nil {
		return
	}
	at := time.Now()
	answered := l.answered()
	took := time.Since(at)
	outcome := weir.Dropped
	if answered {
		outcome = weir.Success
	}
	permit.Leave(outcome)
	l.lock.Lock()
	defer l.lock.Unlock()
	fmt.Fprintf(l.out, "%.4f %.2f %t\n", at.Sub(l.begun).Seconds(),
		took.Seconds()*1000, answered)
}

func run(arguments []string) {
	rate, err := strconv.ParseFloat(arguments[1], 64)
	must(err)
	seed, err := strconv.ParseInt(arguments[2], 10, 64)
	must(err)
	seconds, err := strconv.ParseFloat(arguments[3], 64)
	must(err)
	limiter, err := weir.Open(weir.Options{})
	must(err)
	must(limiter.Define(arguments[4:]...))
	db, err := limiter.Quota("db")
	must(err)
	l := &load{url: arguments[0], db: db, begun: time.Now(),
		client: &http.Client{Transport: &http.Transport{
			MaxIdleConnsPerHost: 1000}},
		out: bufio.NewWriter(os.Stdout)}
	chance := rand.New(rand.NewSource(seed))
	var running sync.WaitGroup
	for due := 0.0; ; {
		due += chance.ExpFloat64() / rate
		if due > seconds {
			break
		}
		at := l.begun.Add(time.Duration(due * float64(time.Second)))
		time.Sleep(time.Until(at))
		running.Add(1)
		go func() {
			defer running.Done()
			l.request()
		}()
	}
	running.Wait()
	must(l.out.Flush())
}

func main() {
	if len(os.Args) >= 4 && os.Args[1] == "serve" {
		serve(os.Args[2:])
	} else if len(os.Args) >= 7 && os.Args[1] == "load" {
		run(os.Args[2:])
	} else {
		log.Fatal("see the head of main.go")
	}
}
