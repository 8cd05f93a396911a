// SPDX-License-Identifier: MIT
// client ADDRESS - Envoy's rate limit services by Envoy's own generated code;
// see README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const patience = time.Minute

type asked struct {
	Call  string          `json:"call"`
	Body  json.RawMessage `json:"body"`
	Token string          `json:"token"`
	Count int             `json:"count"` // answers to wait for at the end
	// and, for Quotas, until an answer assigns a token bucket
	Granted bool `json:"granted"`
}

var marshal = protojson.MarshalOptions{UseProtoNames: true}

func should(ctx context.Context, to *grpc.ClientConn,
	body []byte) ([]proto.Message, error) {
	request := &rls.RateLimitRequest{}
	if err := protojson.Unmarshal(body, request); err != nil {
		log.Fatal(err)
	}
	got, err := rls.NewRateLimitServiceClient(to).ShouldRateLimit(ctx, request)
	return []proto.Message{got}, err
}

func check(ctx context.Context, to *grpc.ClientConn,
	service string) ([]proto.Message, error) {
	got, err := health.NewHealthClient(to).Check(ctx,
		&health.HealthCheckRequest{Service: service})
	return []proto.Message{got}, err
}

func watch(ctx context.Context, to *grpc.ClientConn, service string,
	count int) ([]proto.Message, error) {
	stream, err := health.NewHealthClient(to).Watch(ctx,
		&health.HealthCheckRequest{Service: service})
	all := []proto.Message{}
	for err == nil && len(all) < count {
		var got *health.HealthCheckResponse
		got, err = stream.Recv()
		if err == nil {
			all = append(all, got)
		}
	}
	return all, err
}

func isGrant(answer *rlqs.RateLimitQuotaResponse) bool {
	for _, action := range answer.GetBucketAction() {
		told := action.GetQuotaAssignmentAction().GetRateLimitStrategy()
		if told.GetTokenBucket() != nil {
			return true
		}
	}
	return false
}

// Sends each report after the answer to the one before.
func quotas(ctx context.Context, to *grpc.ClientConn,
	ask *asked) ([]proto.Message, error) {
	var reports []json.RawMessage
	if err := json.Unmarshal(ask.Body, &reports); err != nil {
		log.Fatal(err)
	}
	stream, err := rlqs.NewRateLimitQuotaServiceClient(to).
		StreamRateLimitQuotas(ctx)
	all := []proto.Message{}
	granted := !ask.Granted
	for i := 0; err == nil && (i < len(reports)+ask.Count || !granted); i++ {
		report := &rlqs.RateLimitQuotaUsageReports{}
		if i < len(reports) {
			if err := protojson.Unmarshal(reports[i], report); err != nil {
				log.Fatal(err)
			}
			err = stream.Send(report)
			if err == io.EOF { // the stream has ended: Recv has the error
				err = nil
			}
		}
		if err == nil {
			var got *rlqs.RateLimitQuotaResponse
			got, err = stream.Recv()
			all = append(all, got)
			granted = granted || isGrant(got)
		}
	}
	return all, err
}

func call(ctx context.Context, to *grpc.ClientConn,
	ask *asked) ([]proto.Message, error) {
	var service string
	if ask.Call == "ShouldRateLimit" {
		return should(ctx, to, ask.Body)
	}
	if ask.Call == "Quotas" {
		return quotas(ctx, to, ask)
	}
	if err := json.Unmarshal(ask.Body, &service); err != nil {
		log.Fatal(err)
	}
	if ask.Call == "Check" {
		return check(ctx, to, service)
	}
	return watch(ctx, to, service, ask.Count)
}

func answerTo(to *grpc.ClientConn, line []byte) string {
	ask := asked{}
	if err := json.Unmarshal(line, &ask); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if ask.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization",
			"Bearer "+ask.Token)
	}
	all, err := call(ctx, to, &ask)
	if err != nil {
		said, _ := json.Marshal(map[string]any{
			"error": int(status.Code(err)),
			"text":  status.Convert(err).Message()})
		return string(said)
	}
	parts := []string{}
	for _, message := range all {
		text, err := marshal.Marshal(message)
		if err != nil {
			log.Fatal(err)
		}
		parts = append(parts, string(text))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func main() {
	to, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer to.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		os.Stdout.WriteString(answerTo(to, lines.Bytes()) + "\n")
	}
}
