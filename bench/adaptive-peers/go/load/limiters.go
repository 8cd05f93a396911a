// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	weir "weir/bindings/go"
)

// limiter decides about one request: enter returns nil if it is denied, or the
// function to call with its outcome.
type limiter interface {
	enter() func(outcome byte)
}

// none lets all pass. It stands before Envoy, which decides itself.
type none struct{}

func (none) enter() func(byte) { return func(byte) {} }

// static is a limit that never moves.
type static chan struct{}

func (s static) enter() func(byte) {
	select {
	case s <- struct{}{}:
		return func(byte) { <-s }
	default:
		return nil
	}
}

// adaptive is failsafe-go's limiter with its defaults. Like its own executor,
// this one drops the permit of a caller that gave up.
type adaptive struct {
	limiter adaptivelimiter.AdaptiveLimiter[any]
}

func (a adaptive) enter() func(byte) {
	permit, passed := a.limiter.TryAcquirePermit()
	if !passed {
		return nil
	}
	return func(outcome byte) {
		if outcome == 's' {
			permit.Record()
		} else {
			permit.Drop()
		}
	}
}

type ours struct {
	quota *weir.Quota
}

func (o ours) enter() func(byte) {
	permit, _ := o.quota.Enter(1)
	if permit == nil {
		return nil
	}
	return func(outcome byte) {
		switch outcome {
		case 's':
			permit.Leave(weir.Success)
		case 't':
			permit.Leave(weir.Dropped)
		default:
			permit.Leave(weir.Ignored)
		}
	}
}

func openWeir(o options) (limiter, error) {
	made, err := weir.Open(weir.Options{Roots: o.roots, Name: o.name})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := made.Ready(ctx); err != nil {
		return nil, err
	}
	// Without its quota, everything would pass.
	if _, known := made.Policy(o.quota); !known {
		return nil, fmt.Errorf("no quota %q at %s", o.quota, o.roots)
	}
	quota, err := made.Quota(o.quota)
	return ours{quota}, err
}

func open(o options) (limiter, error) {
	switch o.peer {
	case "none":
		return none{}, nil
	case "static":
		return make(static, o.limit), nil
	case "failsafe":
		return adaptive{adaptivelimiter.NewWithDefaults[any]()}, nil
	case "weir":
		return openWeir(o)
	}
	return nil, fmt.Errorf("unknown peer %q", o.peer)
}
