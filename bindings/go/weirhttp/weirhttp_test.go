// SPDX-License-Identifier: MIT

package weirhttp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	weir "weir/bindings/go"
)

func open(t *testing.T) *weir.Limiter {
	t.Helper()
	limiter, err := weir.Open(weir.Options{
		Roots: os.Getenv("WEIR_TEST_ROOTS")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limiter.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := limiter.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	return limiter
}

func must(t *testing.T, holds bool, what ...any) {
	t.Helper()
	if !holds {
		t.Fatal(append([]any{"it must hold that"}, what...)...)
	}
}

func ask(h http.Handler, key string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Key", key)
	h.ServeHTTP(w, r)
	return w
}

func byHeader(r *http.Request) string { return r.Header.Get("Key") }

func TestRate(t *testing.T) {
	handler := &Handler{Limiter: open(t), Key: byHeader, Policy: `a "b"`,
		Next: http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		})}
	for left := 2; left >= 0; left-- {
		w := ask(handler, "each/http")
		must(t, w.Code == 201 && w.Header().Get("RateLimit") ==
			`"a \"b\"";r=`+strconv.Itoa(left), w)
		must(t, w.Header().Get("RateLimit-Policy") ==
			`"a \"b\"";q=3;w=3600`, w)
	}
	w := ask(handler, "each/http")
	after := w.Header().Get("Retry-After")
	seconds, _ := strconv.Atoi(after)
	must(t, w.Code == 429 && 1100 < seconds && seconds < 3600, w)
	must(t, w.Header().Get("RateLimit") == `"a \"b\"";r=0;t=`+after, w)
	must(t, w.Header().Get("Content-Type") == "application/problem+json")
	var body struct {
		Status int
		Names  []string `json:"violated-policies"`
	}
	err := json.Unmarshal(w.Body.Bytes(), &body)
	must(t, err == nil && body.Status == 429 && len(body.Names) == 1 &&
		body.Names[0] == `a "b"`, w.Body)
	// No quota has that name, or it is empty.
	for _, key := range []string{"", "nobody's"} {
		w := ask(handler, key)
		must(t, w.Code == 201 && w.Header().Get("RateLimit") == "", w)
	}
	w = ask(handler, "each/"+strings.Repeat("x", 65536))
	must(t, w.Code == 400, w)
}

func TestInFlight(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	limiter := open(t)
	handler := &Handler{Limiter: limiter, Status: 503,
		Key: func(*http.Request) string { return "two" },
		Next: http.HandlerFunc(func(http.ResponseWriter,
			*http.Request) {
			inside <- true
			if <-leave {
				panic(http.ErrAbortHandler)
			}
		})}
	done := make(chan any)
	for i := 0; i < 2; i++ {
		go func() {
			defer func() { done <- recover() }()
			ask(handler, "")
		}()
		<-inside
	}
	w := ask(handler, "")
	must(t, w.Code == 503 && w.Header().Get("Retry-After") == "1", w)
	must(t, w.Header().Get("RateLimit-Policy") ==
		`"default";q=2;qu="concurrent-requests"`, w)
	leave <- true
	leave <- false
	must(t, (<-done == nil) != (<-done == nil), "one has panicked")
	permit, _ := limiter.Enter("two", 2)
	must(t, permit != nil)
	permit.Leave(weir.Success)
}

func TestAddress(t *testing.T) {
	for from, to := range map[string]string{"192.0.2.1:80": "192.0.2.1",
		"[2001:db8::1]:80": "2001:db8::1", "@": "@"} {
		must(t, Address(&http.Request{RemoteAddr: from}) == to, from)
	}
}
