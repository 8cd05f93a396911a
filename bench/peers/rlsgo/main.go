// SPDX-License-Identifier: MIT
// rlsgo - the method of Envoy's rate limit service on grpc-go, with a constant
// answer: says its port, serves until killed.
package main

import (
	"context"
	"fmt"
	"log"
	"net"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

type server struct {
	rls.UnimplementedRateLimitServiceServer
}

func (server) ShouldRateLimit(context.Context,
	*rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		Statuses: []*rls.RateLimitResponse_DescriptorStatus{{
			Code: rls.RateLimitResponse_OK,
			CurrentLimit: &rls.RateLimitResponse_RateLimit{
				RequestsPerUnit: 1000000000,
				Unit:            rls.RateLimitResponse_RateLimit_SECOND,
			},
			LimitRemaining:     999999999,
			DurationUntilReset: &durationpb.Duration{Seconds: 1},
		}},
	}, nil
}

func main() {
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(at.Addr().(*net.TCPAddr).Port)
	serving := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(serving, server{})
	log.Fatal(serving.Serve(at))
}
