module weir/bench/adaptive-hang

go 1.19

require weir/bindings/go v0.0.0

replace weir/bindings/go => ../../bindings/go
