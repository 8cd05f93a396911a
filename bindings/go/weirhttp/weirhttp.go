// SPDX-License-Identifier: MIT

// Package weirhttp puts a quota before an http.Handler:
//
//	http.ListenAndServe(":8080", &weirhttp.Handler{
//		Next:    mux,
//		Limiter: limiter,
//		Key: func(r *http.Request) string {
//			return "site/" + weirhttp.Address(r)
//		},
//	})
//
// A refused client gets HTTP's headers for it:
//
//	RateLimit-Policy: "default";q=150;w=2
//	RateLimit: "default";r=0;t=3    (draft-ietf-httpapi-ratelimit-headers)
//	Retry-After: 3                  (RFC 9110)
//
// and application/problem+json (RFC 9457).
package weirhttp

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"time"

	weir "weir/bindings/go"
)

// The greatest integer of a structured field (RFC 9651).
const integerMax = 1e15 - 1

const problem = "https://iana.org/assignments/http-problem-types" +
	"#quota-exceeded"

// Handler lets a request enter a quota, and leave it at its end: so a quota of
// kind rate is charged, units of kind concurrency are in flight, and a chain
// may have both.
type Handler struct {
	Next    http.Handler
	Limiter *weir.Limiter

	// Key returns the quota's name for a request; empty: no quota. An
	// invalid name, which a client's words may cause, is answered with 400.
	Key func(*http.Request) string

	Policy string // the quota's name for clients: "default"
	Status int    // of a limited request: 429
}

// Address is the peer's, without its port.
func Address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := h.Key(r)
	if name == "" {
		h.Next.ServeHTTP(w, r)
		return
	}
	if !weir.ValidName(name) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	permit, reply := h.Limiter.Enter(name, 1)
	if permit == nil {
		h.refuse(w, reply)
		return
	}
	h.tell(w, reply, reply.Remaining, "")
	// A panic leaves the permit, too.
	outcome := weir.Ignored
	defer func() { permit.Leave(outcome) }()
	h.Next.ServeHTTP(w, r)
	outcome = weir.Success
}

func (h *Handler) policy() string {
	if h.Policy == "" {
		return "default"
	}
	return h.Policy
}

// item is the policy as a structured field's string, which is printable ASCII.
func (h *Handler) item() string {
	made := []byte{'"'}
	for _, c := range []byte(h.policy()) {
		if c == '"' || c == '\\' {
			made = append(made, '\\')
		}
		if c < ' ' || c > '~' {
			c = '?'
		}
		made = append(made, c)
	}
	return string(append(made, '"'))
}

func (h *Handler) refuse(w http.ResponseWriter, reply weir.Reply) {
	status := h.Status
	if status == 0 {
		status = http.StatusTooManyRequests
	}
	until := ""
	if reply.RetryAfter != weir.Never {
		after := seconds(reply.RetryAfter)
		until = ";t=" + after
		w.Header().Set("Retry-After", after)
	}
	h.tell(w, reply, 0, until)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// A client that is gone needn't get the answer.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": problem, "title": http.StatusText(status),
		"status": status, "violated-policies": []string{h.policy()},
	})
}

// tell sets the headers about the quota that decided.
func (h *Handler) tell(w http.ResponseWriter, reply weir.Reply, left uint64,
	until string) {
	policy, known := h.Limiter.Policy(reply.Quota)
	if !known {
		return
	}
	item, quantity := h.item(), smaller(policy.Quantity, integerMax)
	allowed := item + ";q=" + strconv.FormatUint(quantity, 10)
	if policy.Window > 0 {
		allowed += ";w=" + seconds(policy.Window)
	}
	if policy.Concurrency {
		allowed += `;qu="concurrent-requests"`
	}
	w.Header().Set("RateLimit-Policy", allowed)
	w.Header().Set("RateLimit", item+";r="+
		strconv.FormatUint(smaller(left, quantity), 10)+until)
}

func smaller(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return b
}

// seconds are rounded up, so that an obedient client doesn't come too early.
func seconds(d time.Duration) string {
	whole := int64(d / time.Second)
	if d%time.Second > 0 || whole == 0 {
		whole++
	}
	return strconv.FormatInt(whole, 10)
}
