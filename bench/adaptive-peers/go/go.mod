module weir/bench/adaptive-peers

go 1.23.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	weir/bindings/go v0.0.0
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/influxdata/tdigest v0.0.1 // indirect
)

replace weir/bindings/go => ../../../bindings/go
