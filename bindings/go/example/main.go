// SPDX-License-Identifier: MIT

// A web server that shares a quota with its other instances: example [ROOTS
// [ADDRESS]]
//
//	weir serve &
//	weir quota set site limit=100/s
//	weir quota set 'site/*' limit=3/s parent=site
//	weir quota set db kind=concurrency limit=2
//	go run . & curl -i http://127.0.0.1:8080/
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	weir "weir/bindings/go"
	"weir/bindings/go/weirhttp"
)

func argument(i int, otherwise string) string {
	if len(os.Args) > i {
		return os.Args[i]
	}
	return otherwise
}

func main() {
	limiter, err := weir.Open(weir.Options{
		Roots:   argument(1, "127.0.0.1:7077"),
		OnEvent: func(e weir.Event) { log.Print("weir: ", e.Text) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limiter.Close()
	db, err := limiter.Quota("db")
	if err != nil {
		log.Fatal(err)
	}

	answer := func(w http.ResponseWriter, r *http.Request) {
		permit, _ := db.Enter(1) // nil when two are in there
		if permit == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		defer permit.Leave(weir.Success)
		fmt.Fprintln(w, "forty-two")
	}
	listener, err := net.Listen("tcp", argument(2, "127.0.0.1:8080"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/\n", listener.Addr())
	log.Print(http.Serve(listener, &weirhttp.Handler{
		Next:    http.HandlerFunc(answer),
		Limiter: limiter,
		Key: func(r *http.Request) string {
			return "site/" + weirhttp.Address(r)
		},
	}))
}
