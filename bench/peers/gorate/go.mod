module weir/bench/gorate

go 1.23.0

require golang.org/x/time v0.12.0
