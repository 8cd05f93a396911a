// SPDX-License-Identifier: MIT

// backend: the overloaded service of bench/adaptive-peers, over HTTP.
//
//	backend -kind workers    8 workers of 20 ms behind a queue without end
//	backend -kind article    each request takes 3.6 ms for each arrival of the
//	                         last second, its own included; no queue
//	backend -kind postgres   a query of the PostgreSQL at -database, by a pool
//	                         of 8 connections
//
// Prints its address. A request whose caller went away while it was queued is
// skipped, unless -abandoned=work. GET /control?slow=3&hang=true makes it three
// times slower and lets no request go on; both hold until changed. GET
// /capacity?for=3s, of postgres, answers with the queries per second of a pool
// that is never idle.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// service is a kind of backend.
type service interface {
	http.Handler
	// set returns when requests find it so.
	set(slow float64, hang bool) error
}

// measured is a service whose capacity isn't known beforehand.
type measured interface {
	capacity(d time.Duration) (float64, error)
}

func open(kind, database string, skip bool) (service, error) {
	switch kind {
	case "workers":
		return newWorkers(skip), nil
	case "article":
		return newArticle(), nil
	case "postgres":
		return newPostgres(database, skip)
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

func bad(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}

func control(s service) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		slow, err := strconv.ParseFloat(r.FormValue("slow"), 64)
		if err == nil {
			err = s.set(slow, r.FormValue("hang") == "true")
		}
		if err != nil {
			bad(w, err)
		}
	}
}

func capacity(s measured) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := time.ParseDuration(r.FormValue("for"))
		if err != nil {
			bad(w, err)
			return
		}
		perSecond, err := s.capacity(d)
		if err != nil {
			bad(w, err)
			return
		}
		fmt.Fprintf(w, "%.1f\n", perSecond)
	}
}

func serve() error {
	kind := flag.String("kind", "workers", "workers, article or postgres")
	database := flag.String("database", "", "a URL, of postgres")
	abandoned := flag.String("abandoned", "skip", "skip or work")
	flag.Parse()
	chosen, err := open(*kind, *database, *abandoned == "skip")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", chosen)
	mux.Handle("/control", control(chosen))
	if m, is := chosen.(measured); is {
		mux.Handle("/capacity", capacity(m))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}

func main() {
	fmt.Fprintln(os.Stderr, "backend:", serve())
	os.Exit(1)
}
