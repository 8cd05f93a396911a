// SPDX-License-Identifier: MIT
// client ADDRESS - doorman.Capacity by Go's gRPC; see README.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	pb "doormanpb"
)

type lease struct {
	Expiry   int64   `json:"expiry"`
	Refresh  int64   `json:"refresh"`
	Capacity float64 `json:"capacity"`
}

type resource struct {
	ID       string  `json:"id"`
	Wants    float64 `json:"wants"`
	Priority int64   `json:"priority"`
	Has      *lease  `json:"has"`
	Clients  int64   `json:"clients"` // GetServerCapacity's
}

type request struct {
	Call      string          `json:"call"`
	Client    string          `json:"client"`
	Resources json.RawMessage `json:"resources"`
	Timeout   float64         `json:"timeout"` // seconds
}

type grant struct {
	ID string `json:"id"`
	lease
	Safe *float64 `json:"safe"`
}

type parameter struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

type algorithm struct {
	Kind       int32       `json:"kind"`
	Lease      int64       `json:"lease"`
	Refresh    int64       `json:"refresh"`
	Learning   *int64      `json:"learning"`
	Parameters []parameter `json:"parameters"`
}

type serverGrant struct {
	grant
	Algorithm algorithm `json:"algorithm"`
}

type answer map[string]interface{}

// The address of the master, or null if the answer has no mastership.
func masterOf(mastership *pb.Mastership) interface{} {
	if mastership == nil {
		return nil
	}
	return mastership.GetMasterAddress()
}

func discovery(ctx context.Context, client pb.CapacityClient,
	_ *request) (answer, error) {
	got, err := client.Discovery(ctx, &pb.DiscoveryRequest{})
	return answer{"master": masterOf(got.GetMastership()),
		"is_master": got.GetIsMaster()}, err
}

func ask(given *resource) *pb.ResourceRequest {
	made := &pb.ResourceRequest{ResourceId: &given.ID,
		Priority: &given.Priority, Wants: &given.Wants}
	if given.Has != nil {
		made.Has = &pb.Lease{ExpiryTime: &given.Has.Expiry,
			RefreshInterval: &given.Has.Refresh,
			Capacity:        &given.Has.Capacity}
	}
	return made
}

func getCapacity(ctx context.Context, client pb.CapacityClient,
	request *request) (answer, error) {
	var resources []resource
	if err := json.Unmarshal(request.Resources, &resources); err != nil {
		log.Fatal(err)
	}
	in := &pb.GetCapacityRequest{ClientId: &request.Client}
	for i := range resources {
		in.Resource = append(in.Resource, ask(&resources[i]))
	}
	got, err := client.GetCapacity(ctx, in)
	grants := []grant{}
	for _, response := range got.GetResponse() {
		gets := response.GetGets()
		grants = append(grants, grant{response.GetResourceId(),
			lease{gets.GetExpiryTime(), gets.GetRefreshInterval(),
				gets.GetCapacity()},
			response.SafeCapacity})
	}
	return answer{"master": masterOf(got.GetMastership()),
		"resources": grants}, err
}

func algorithmOf(got *pb.Algorithm) algorithm {
	made := algorithm{int32(got.GetKind()), got.GetLeaseLength(),
		got.GetRefreshInterval(), nil, []parameter{}}
	if got != nil {
		made.Learning = got.LearningModeDuration
	}
	for _, p := range got.GetParameters() {
		made.Parameters = append(made.Parameters,
			parameter{p.GetName(), p.Value})
	}
	return made
}

func getServerCapacity(ctx context.Context, client pb.CapacityClient,
	request *request) (answer, error) {
	var resources []resource
	if err := json.Unmarshal(request.Resources, &resources); err != nil {
		log.Fatal(err)
	}
	in := &pb.GetServerCapacityRequest{ServerId: &request.Client}
	for i := range resources {
		given := &resources[i]
		in.Resource = append(in.Resource, &pb.ServerCapacityResourceRequest{
			ResourceId: &given.ID,
			Wants: []*pb.PriorityBandAggregate{{Priority: &given.Priority,
				NumClients: &given.Clients, Wants: &given.Wants}}})
	}
	got, err := client.GetServerCapacity(ctx, in)
	grants := []serverGrant{}
	for _, response := range got.GetResponse() {
		gets := response.GetGets()
		grants = append(grants, serverGrant{grant{response.GetResourceId(),
			lease{gets.GetExpiryTime(), gets.GetRefreshInterval(),
				gets.GetCapacity()},
			response.SafeCapacity}, algorithmOf(response.GetAlgorithm())})
	}
	return answer{"master": masterOf(got.GetMastership()),
		"resources": grants}, err
}

func releaseCapacity(ctx context.Context, client pb.CapacityClient,
	request *request) (answer, error) {
	in := &pb.ReleaseCapacityRequest{ClientId: &request.Client}
	err := json.Unmarshal(request.Resources, &in.ResourceId)
	if err != nil {
		log.Fatal(err)
	}
	got, err := client.ReleaseCapacity(ctx, in)
	return answer{"master": masterOf(got.GetMastership())}, err
}

var calls = map[string]func(context.Context, pb.CapacityClient,
	*request) (answer, error){
	"Discovery":         discovery,
	"GetCapacity":       getCapacity,
	"GetServerCapacity": getServerCapacity,
	"ReleaseCapacity":   releaseCapacity,
}

func answerTo(client pb.CapacityClient, line []byte) answer {
	asked := request{Timeout: 10}
	if err := json.Unmarshal(line, &asked); err != nil {
		log.Fatal(err)
	}
	patience := time.Duration(asked.Timeout * float64(time.Second))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	made, err := calls[asked.Call](ctx, client, &asked)
	if err != nil {
		made = answer{"error": int(status.Code(err)),
			"text": status.Convert(err).Message()}
	}
	made["call"] = asked.Call
	return made
}

func main() {
	connection, err := grpc.Dial(os.Args[1], grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := pb.NewCapacityClient(connection)
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := out.Encode(answerTo(client, lines.Bytes())); err != nil {
			log.Fatal(err)
		}
	}
}
