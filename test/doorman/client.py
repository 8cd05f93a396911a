#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""client.py ADDRESS - doorman.Capacity by Python's gRPC; see README.md.

It runs with the system's python3, where Debian's packages are."""

import json
import sys

import grpc

import doorman_pb2 as pb
import doorman_pb2_grpc as rpc

TIMEOUT = 10  # seconds


def lease_of(given):
    return pb.Lease(expiry_time=given.get("expiry", 0),
                    refresh_interval=given.get("refresh", 0),
                    capacity=given["capacity"])


def master_of(answer):
    if not answer.HasField("mastership"):
        return None
    return answer.mastership.master_address


def discovery(stub, request, timeout):
    answer = stub.Discovery(pb.DiscoveryRequest(), timeout=timeout)
    return {"master": master_of(answer), "is_master": answer.is_master}


def resource_of(given):
    # Fields that the original requires are always set, to 0 too.
    resource = pb.ResourceRequest(resource_id=given["id"],
                                  priority=given.get("priority", 0),
                                  wants=given["wants"])
    if "has" in given:
        resource.has.CopyFrom(lease_of(given["has"]))
    return resource


def grant_of(response):
    safe = response.HasField("safe_capacity")
    return {"id": response.resource_id,
            "capacity": response.gets.capacity,
            "expiry": response.gets.expiry_time,
            "refresh": response.gets.refresh_interval,
            "safe": response.safe_capacity if safe else None}


def get_capacity(stub, request, timeout):
    answer = stub.GetCapacity(
        pb.GetCapacityRequest(
            client_id=request["client"],
            resource=[resource_of(r) for r in request["resources"]]),
        timeout=timeout)
    return {"master": master_of(answer),
            "resources": [grant_of(r) for r in answer.response]}


def server_resource_of(given):
    return pb.ServerCapacityResourceRequest(
        resource_id=given["id"], wants=[pb.PriorityBandAggregate(
            priority=given.get("priority", 0), num_clients=given["clients"],
            wants=given["wants"])])


def algorithm_of(response):
    algorithm = response.algorithm
    learns = algorithm.HasField("learning_mode_duration")
    return {"kind": algorithm.kind, "lease": algorithm.lease_length,
            "refresh": algorithm.refresh_interval,
            "learning": algorithm.learning_mode_duration if learns else None,
            "parameters": [
                {"name": p.name, "value": p.value if p.HasField("value")
                 else None} for p in algorithm.parameters]}


def get_server_capacity(stub, request, timeout):
    answer = stub.GetServerCapacity(
        pb.GetServerCapacityRequest(
            server_id=request["client"],
            resource=[server_resource_of(r) for r in request["resources"]]),
        timeout=timeout)
    return {"master": master_of(answer),
            "resources": [{**grant_of(r), "algorithm": algorithm_of(r)}
                          for r in answer.response]}


def release_capacity(stub, request, timeout):
    answer = stub.ReleaseCapacity(
        pb.ReleaseCapacityRequest(client_id=request["client"],
                                  resource_id=request["resources"]),
        timeout=timeout)
    return {"master": master_of(answer)}


CALLS = {"Discovery": discovery, "GetCapacity": get_capacity,
         "GetServerCapacity": get_server_capacity,
         "ReleaseCapacity": release_capacity}


def answer_to(stub, request):
    line = {"call": request["call"]}
    timeout = request.get("timeout", TIMEOUT)
    try:
        line.update(CALLS[request["call"]](stub, request, timeout))
    except grpc.RpcError as error:
        line.update(error=error.code().value[0], text=error.details())
    return line


def main():
    with grpc.insecure_channel(sys.argv[1]) as channel:
        stub = rpc.CapacityStub(channel)
        for line in sys.stdin:
            print(json.dumps(answer_to(stub, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
